"""The network of PCMC-Net: a batch of choice sets -> rates of every ordered pair -> log-probabilities.

    representation of I and of each S_i  ->  rate of every ordered pair  ->  stationary distribution

M networks trained from different starts (the first and its ``others``, each with its view of a batch) predict the mean
of their probabilities. That is again the law of a chain on each set, in which as much flows from i to j as in the
chains of all together:

    p = 1/M sum_m p^m,    q_ij = sum_m p^m_i q^m_ij / sum_m p^m_i

Flows that balance for each m balance in sum, so p is stationary for q. These rates depend on the whole set; uniform
expansion holds for p, as it does for each p^m.
A mixture of such chains is in :mod:`pcmcnet.models.networks.chain_mixture`.
Shapes: B sets of up to J alternatives; individuals (B, D0), alternatives (B, J, D), rates (B, J, J), log p (B, J).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data import Batch, Encoder
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.layers import PairwiseRates, log_probabilities, solve_chain
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.layers.log_law import Solve, log_law
from pcmcnet.layers.monotone_weights import SignedLinear
from pcmcnet.layers.representation import representation_of
from pcmcnet.models.interface.own_encoders import Encoders
from pcmcnet.models.networks import item_start
from pcmcnet.models.networks.monotone_features import signs_of_numbers
from pcmcnet.models.networks.pcmcnet_config import PCMCNetConfig
from pcmcnet.models.networks.small_network import compiled_form_of
from pcmcnet.training.compiled_steps import CompiledForm
from pcmcnet.training.device import device_of
from pcmcnet.training.network import ChoiceNetwork

DEEPEST = 20.0  # by which a utility can lower a rate that is not an exponential: the chain has to stay irreducible


class PCMCNetwork(ChoiceNetwork):
    """Batch -> log-probabilities (B, J)."""

    takes_generators = True
    items: Tensor | None  # (n, n) log-rates of pairs of labels to add to, where nothing but labels is known

    classes = 1  # chains, of which a mixture has several

    def __init__(self, encoder: Encoder, config: PCMCNetConfig, own: Encoders | None = None, *, marks: int = 0) -> None:
        """Build the network; its rates see so many ``marks`` beside what is known of the individual."""
        super().__init__()
        who, what = encoder.individual, encoder.features
        self.individual = representation_of(who, dropout=config.dropout, own=own)
        self.alternative = representation_of(what, dropout=config.dropout, own=own)
        self.supports_cuda_graphs = not (who.contents or what.contents)  # a step waits for their distinct values
        signs = signs_of_numbers(config.monotone, encoder)
        others = self.alternative.width - what.n_numeric  # numbers come last in a representation
        self.rates = PairwiseRates(
            self.individual.width + marks,
            self.alternative.width,
            config.hidden,
            activation=config.activation,
            dropout=config.dropout,
            rate=config.rate,
            epsilon=config.epsilon,
            initialisation=config.initialisation,
            precision=config.precision,
            signs=None if signs is None else F.pad(signs, (others, 0)),
        )
        self.utility = self.new_utility(what, signs) if config.utility == "linear" else None
        labels = item_start.labels_alone(encoder) if self.utility is not None and config.rate == "exp" else None
        self.register_buffer("items", None if labels is None else torch.zeros(labels, labels))
        self.others = nn.ModuleList()  # networks whose probabilities are averaged with these
        self.views = nn.ModuleList()  # of each of the others: a batch -> what it sees of it

    def new_utility(self, what: SideEncoder, signs: Tensor | None) -> LinearUtility:
        """Return a utility of alternatives for individuals, 0 at the start."""
        theirs = [name for name, _ in self.alternative.own.values()]
        return LinearUtility(what, self.individual.width, self.alternative.width, theirs, signs)

    @property
    def utilities(self) -> list[LinearUtility]:
        """The utility, where there is one, and those that a mixture adds to it."""
        return [] if self.utility is None else [self.utility]

    @property
    def of_shares(self) -> list[nn.Parameter]:
        """Weights of the shares of classes, of which a mixture has several."""
        return []

    @property
    def prior_weights(self) -> list[nn.Parameter]:
        """Weights of utilities and of the shares of classes."""
        return [*(weights for part in self.utilities for weights in part.plain_weights), *self.of_shares]

    @property
    def compiled_form(self) -> CompiledForm | None:
        """The weights for the C training steps, if they know such a network: one chain, and no others averaged."""
        return compiled_form_of(self) if self.classes == 1 and not len(self.others) else None

    @property
    def computes_in_chunks(self) -> bool:
        """Whether the rates of pairs are computed in chunks."""
        return self.rates.computes_in_chunks

    @property
    def sign_constrained(self) -> list[SignedLinear | LinearUtility]:
        """All layers and utilities whose weights may have signs."""
        return [part for part in self.modules() if isinstance(part, SignedLinear | LinearUtility)]

    def represent(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Represent individuals (B, D0) and alternatives (B, J, D)."""
        individual = self.individual(batch.individual_numeric, batch.individual_categorical, batch.individual_contents)
        return individual, self.alternative(batch.numeric, batch.categorical, batch.contents)

    @property
    def members(self) -> list[PCMCNetwork]:
        """The networks that are put together: this one and the others."""
        return [self, *(other for other in self.others if isinstance(other, PCMCNetwork))]

    def add(self, other: PCMCNetwork, view: nn.Module) -> None:
        """Put another network to this one, on the device where this one is."""
        device = device_of(self)
        self.others.append(other.to(device))
        self.views.append(view.to(device))

    def _own_chains(self, batch: Batch) -> list[Tensor]:
        """Return the rates of the chain of each member, (B, 1, J, J)."""
        seen = [batch, *(view(batch) for view in self.views)]
        return [member.own_chain(theirs) for member, theirs in zip(self.members, seen, strict=True)]

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates of the K chains of each set, (B, K, J, J): here of one."""
        return together(self.member_chains(batch), batch.mask) if len(self.others) else self.own_chain(batch)

    def member_chains(self, batch: Batch) -> Tensor:
        """Return the rates of the chains of all members, (B, M, J, J)."""
        return torch.cat(self._own_chains(batch), 1)

    def own_chain(self, batch: Batch) -> Tensor:
        """Return the rates of this network's chain, (B, 1, J, J)."""
        known = self.represent(batch)
        utility = None if self.utility is None else self.utility(batch, *known)
        return self.rates_between(*known, utility, batch.mask, batch.categorical).unsqueeze(1)

    def rates_between(
        self, individual: Tensor, alternatives: Tensor, utility: Tensor | None, mask: Tensor, categorical: Tensor
    ) -> Tensor:
        """(B, D0), (B, J, D), utilities of the alternatives (B, J), mask (B, J), categories (B, J, C) -> (B, J, J)."""
        if utility is None:
            rates: Tensor = self.rates(individual, alternatives, mask)
            return rates
        scores = self.rates.scores(individual, alternatives, mask)
        if self.items is not None:
            label = categorical[..., 0]
            scores = scores + self.items[label.unsqueeze(2), label.unsqueeze(1)]
        return self.rates_of_scores(scores, utility, mask)

    def rates_of_scores(self, scores: Tensor, utility: Tensor, mask: Tensor) -> Tensor:
        """Turn scores (B, J, J) and the utilities (B, J) of the alternatives entered into rates."""
        if self.rates.rate == "exp":
            return self.rates.of_scores(scores + utility.unsqueeze(1), mask)
        top = utility.detach().masked_fill(~mask, -math.inf).amax(1, keepdim=True)
        factor = (utility - top).clamp(-DEEPEST, 0.0).exp()
        return self.rates.of_scores(scores, mask) * factor.unsqueeze(1)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        if not len(self.others) and self.by_rows:
            return self._log_law(batch)
        laws = self.laws(batch)
        law = laws[0] if len(laws) == 1 else sum(laws[1:], laws[0]) / len(laws)
        return log_probabilities(law, batch.mask)

    @property
    def by_rows(self) -> bool:
        """Whether rates are those of scores alone, of which some states may have far larger ones than others."""
        return self.utility is None and self.rates.rate == "exp" and self.rates.epsilon == 0

    def _log_law(self, batch: Batch, solve: Solve = solve_chain) -> Tensor:
        return log_law(self.rates.scores(*self.represent(batch), batch.mask), batch.mask, solve)

    def laws(self, batch: Batch, solve: Solve = solve_chain) -> list[Tensor]:
        """Return the law of the chain of each member, (B, J)."""
        seen = [batch, *(view(batch) for view in self.views)]
        return [member._own_law(theirs, solve) for member, theirs in zip(self.members, seen, strict=True)]

    def _own_law(self, batch: Batch, solve: Solve) -> Tensor:
        if self.by_rows:
            return self._log_law(batch, solve).exp()
        return solve(self.own_chain(batch).squeeze(1), batch.mask)

    def revive(self, batch: Batch) -> bool:
        """Undo a dead start: see :meth:`PairwiseRates.revive`."""
        return self.rates.revive(*self.represent(batch), batch.mask)


def together(chains: Tensor, mask: Tensor) -> Tensor:
    """Return the chain in which as much flows as in all of several: (B, M, J, J), (B, J) -> (B, 1, J, J)."""
    p = torch.stack([solve_chain(rates, mask) for rates in chains.unbind(1)], 1).unsqueeze(-1)  # (B, M, J, 1)
    return (p * chains).sum(1, keepdim=True) / p.sum(1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
