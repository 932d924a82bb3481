"""The networks of PCMC-Net: a batch of choice sets -> rates of every ordered pair -> log-probabilities.

    representation of I and of each S_i  ->  rate of every ordered pair  ->  stationary distribution

:class:`PCMCNetwork` is one chain, :class:`ChainMixture` a mixture of chains of latent classes, :class:`AveragedChains`
an average of networks. Shapes: B sets of up to J alternatives, K classes, M averaged networks; individuals (B, D0),
alternatives (B, J, D), rates (B, J, J), log p (B, J).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data import Batch, EncodedSets, Encoder
from pcmcnet.data.batches import plan_batches
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.layers import PairwiseRates, log_probabilities, settings, solve_chain
from pcmcnet.layers.inner_logit import LinearUtility, SignedLinear
from pcmcnet.layers.pairwise.rate_forms import RATE_FLOOR
from pcmcnet.layers.perceptron import NEGATIVE_SLOPES
from pcmcnet.layers.representation import build_representation
from pcmcnet.layers.stationary.log_distribution import ChainSolver, log_stationary_distribution
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.networks import starting_values
from pcmcnet.models.networks.averaging import AveragedNetwork
from pcmcnet.models.networks.mixture_model import LatentClassNetwork
from pcmcnet.models.networks.network_config import signs_of_numbers
from pcmcnet.training.compiled_steps import MAX_LAYERS_OR_COLUMNS, CompiledForm
from pcmcnet.training.device import batches_on, device_of
from pcmcnet.training.network import ChoiceNetwork

if TYPE_CHECKING:
    from pcmcnet.models.pcmcnet import PCMCNetConfig

log = logging.getLogger("pcmcnet")

MAX_UTILITY_DROP = (
    20.0  # by which a utility can lower a rate that is not an exponential: the chain has to stay irreducible
)
CLASS_SPREAD = 0.3  # standard deviation of the first values of what the classes of a mixture add to the utility


class PCMCNetwork(ChoiceNetwork):
    """Batch -> log-probabilities (B, J)."""

    takes_generators = True
    items: Tensor | None  # (n, n) log-rates of pairs of labels to add to, where nothing but labels is known

    classes = 1  # chains, of which a mixture has several

    def __init__(self, encoder: Encoder, config: PCMCNetConfig, own: Encoders | None = None, *, marks: int = 0) -> None:
        """Build the network; its rates see so many ``marks`` beside what is known of the individual."""
        super().__init__()
        who, what = encoder.individual, encoder.features
        self.individual = build_representation(who, dropout=config.dropout, own=own)
        self.alternative = build_representation(what, dropout=config.dropout, own=own)
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
        labels = (
            starting_values.label_codes_if_alone(encoder) if self.utility is not None and config.rate == "exp" else None
        )
        self.register_buffer("items", None if labels is None else torch.zeros(labels, labels))

    def new_utility(self, what: SideEncoder, signs: Tensor | None) -> LinearUtility:
        """Return a utility of alternatives for individuals, 0 at the start."""
        theirs = [name for name, _ in self.alternative.own.values()]
        return LinearUtility(what, self.individual.width, self.alternative.width, theirs, signs)

    @property
    def utilities(self) -> list[LinearUtility]:
        """The utility, where there is one, and those that a mixture adds to it."""
        return [] if self.utility is None else [self.utility]

    @property
    def share_weights(self) -> list[nn.Parameter]:
        """Weights of the shares of classes, of which a mixture has several."""
        return []

    @property
    def prior_weights(self) -> list[nn.Parameter]:
        """Weights of utilities and of the shares of classes."""
        return [*(weights for part in self.utilities for weights in part.plain_weights), *self.share_weights]

    @property
    def compiled_form(self) -> CompiledForm | None:
        """The weights for the C training steps, if they know such a network: one chain, not a mixture."""
        return compiled_form_of(self) if self.classes == 1 else None

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

    # -- before training --------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Check that alternatives differ, and undo a start in which most rates have no gradient."""
        sets.require_variation_within_sets()
        if self.rates.rate == "relu":
            # Dead rates are counted on the batch of the largest sets: a set of one alternative has no pair.
            plan = plan_batches(sets.sizes, batch_size=1024, pair_budget=pair_budget)
            (batch,) = batches_on(device_of(self), sets, plan[-1:])
            self.eval()  # dropout would make the check random
            if self.revive(batch):
                log.info("most rates had no gradient at the start; the output bias was raised")
        elif self.rates.rate == "exp" and self.rates.epsilon == 0:
            # A shift of all scores only changes the time scale, which the distribution ignores. The gradient is 0, and
            # Adam would follow its rounding errors.
            self.rates.output.bias.requires_grad_(False)

    def set_starting_values(self, sample: Callable[[int], EncodedSets], decay: float) -> None:
        """Start as the chain of items if only labels are known, or as the logit inside if the decay is strong."""
        if self.items is not None:
            starting_values.start_as_items(self.items, sample(starting_values.MAX_ITEM_SETS), decay)
        elif self.utility is not None and decay >= starting_values.LOGIT_START_DECAY:
            starting_values.start_as_logit(self.utility, sample(starting_values.MAX_LOGIT_SETS))

    # -- rates and probabilities ------------------------------------------------------------------------------

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates of the chains of each set, (B, K, J, J): here of one."""
        seen = self.represent(batch)
        utility = None if self.utility is None else self.utility(batch, *seen)
        return self.rates_between(*seen, utility, batch.mask, batch.categorical).unsqueeze(1)

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
            return self.rates.rates_from_scores(scores + utility.unsqueeze(1), mask)
        top = utility.detach().masked_fill(~mask, -math.inf).amax(1, keepdim=True)
        factor = (utility - top).clamp(-MAX_UTILITY_DROP, 0.0).exp()
        return self.rates.rates_from_scores(scores, mask) * factor.unsqueeze(1)

    @property
    def has_log_rates(self) -> bool:
        """Whether rates are exponentials of scores alone, some of which may be far larger than others."""
        return self.utility is None and self.rates.rate == "exp" and self.rates.epsilon == 0

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        if self.has_log_rates:
            return self._log_distribution(batch, solve_chain)
        return log_probabilities(self.distribution(batch), batch.mask)

    def probabilities(self, batch: Batch) -> Tensor:
        """Return the stationary distribution (B, J); padding gets 0."""
        return self.distribution(batch)

    def distribution(self, batch: Batch, solve: ChainSolver = solve_chain) -> Tensor:
        """Return the stationary distribution (B, J) by a solver; padding gets 0."""
        if self.has_log_rates:
            return self._log_distribution(batch, solve).exp()
        return solve(self.chains(batch).squeeze(1), batch.mask)

    def _log_distribution(self, batch: Batch, solve: ChainSolver) -> Tensor:
        return log_stationary_distribution(self.rates.scores(*self.represent(batch), batch.mask), batch.mask, solve)

    def revive(self, batch: Batch) -> bool:
        """Undo a start in which most rates have no gradient; return whether it was one."""
        return starting_values.revive_dead_rates(self.rates, *self.represent(batch), batch.mask)


# -- Compiled training steps --------------------------------------------------------------------------------------


def compiled_form_of(network: PCMCNetwork) -> CompiledForm | None:
    """Return the weights of a network for the C training steps, or None if these compute another formula."""
    # 1. What the C code computes: its activations, rates and sizes, embeddings and numbers alone, no dropout or signs.
    rates, utility, sides = network.rates, network.utility, (network.alternative, network.individual)
    within = (
        rates.activation in NEGATIVE_SLOPES
        and rates.dropout.p == 0
        and (rates.rate == "exp" or (rates.rate == "relu" and utility is None))
        and rates.precision != "bfloat16"
        and max(rates.hidden, default=0) <= settings.COMPILED_UP_TO_UNITS
        and max(len(rates.hidden), *(len(side.embeddings) for side in sides)) < MAX_LAYERS_OR_COLUMNS
        and not any(len(side.encoders) or len(side.curves) for side in sides)
        and not isinstance(rates.leave, SignedLinear)
    )
    if not within or any(p.dtype != torch.float32 or not p.is_contiguous() for p in network.parameters()):
        return None
    # 2. The weights by their part in the formula.
    tables = [[weight for embedding in side.embeddings for weight in embedding.parameters()] for side in sides]
    embedded = [sum(table.shape[1] for table in of_side) for of_side in tables]
    layers = [(layer.weight, layer.bias) for layer in rates.layers if isinstance(layer, nn.Linear)]
    who = None if rates.who is None else rates.who.weight
    return CompiledForm(
        embeddings=tables[0],
        individual_embeddings=tables[1],
        numbers=network.alternative.width - embedded[0],
        individual_numbers=network.individual.width - embedded[1],
        first=(who, rates.leave.weight, rates.enter.weight, rates.enter.bias),
        layers=layers,
        utility=None if utility is None else (list(utility.constants), utility.slopes, utility.worth, utility.taste),
        items=network.items,
        slope=NEGATIVE_SLOPES[rates.activation],
        exponential=rates.rate == "exp",
        epsilon=rates.epsilon,
        floor=RATE_FLOOR,
    )


# -- Mixtures -----------------------------------------------------------------------------------------------------
#
# A mixture of K chains: people are of one of K unknown classes, each with its own rates.
#
#     p(S) = sum_k m_k(I) pi_k(S),    m(I) = softmax(a + A I),    pi_k the stationary distribution of class k
#
# The class is one more input of the rate network about the individual: a one-hot mark. So all classes share
# representations and layers, and one call computes the rates of all. A class also has its own utility, added to the
# common one: the logits inside form a latent class logit, and the prior of the additions draws classes towards each
# other. The additions start at random, since equal classes would stay equal.


class ChainMixture(LatentClassNetwork, PCMCNetwork):
    """Batch -> log-probabilities (B, J) of a mixture of chains."""

    def __init__(self, encoder: Encoder, config: PCMCNetConfig, own: Encoders | None = None, *, classes: int) -> None:
        super().__init__(encoder, config, own, marks=classes)
        self.classes, self.batches_by_person = classes, config.by == "person"
        signs = signs_of_numbers(config.monotone, encoder)
        added = 0 if self.utility is None else classes
        self.additions = nn.ModuleList(self.new_utility(encoder.features, signs) for _ in range(added))
        self.share = nn.Parameter(torch.zeros(classes))
        width = self.individual.width
        self.leaning = nn.Parameter(torch.zeros(classes, width)) if width else None
        self._set_apart()

    @torch.no_grad()
    def _set_apart(self) -> None:
        for part in self._additions:
            for weights in part.plain_weights:
                weights.normal_(0.0, CLASS_SPREAD)
            part.project_()

    @property
    def _additions(self) -> list[LinearUtility]:
        return [part for part in self.additions if isinstance(part, LinearUtility)]

    @property
    def utilities(self) -> list[LinearUtility]:
        """The utility of all classes, where there is one, and what each class adds to it."""
        return [*super().utilities, *self._additions]

    @property
    def share_weights(self) -> list[nn.Parameter]:
        """Weights of the shares of classes."""
        return [self.share] if self.leaning is None else [self.share, self.leaning]

    def share_logits(self, individual: Tensor) -> Tensor:
        """Return a + A I, of which the shares of the classes are the softmax: (B, D0) -> (B, K)."""
        if self.leaning is None:
            return self.share.expand(individual.shape[0], -1)
        return self.share + individual @ self.leaning.mT

    def log_membership(self, batch: Batch) -> Tensor:
        """Return the logarithms of the shares of the classes before any choice, (B, K)."""
        return self.share_logits(self.represent(batch)[0]).log_softmax(-1)

    def of_classes(self, x: Tensor) -> Tensor:
        """Repeat what is known of a set for each class: (B, ...) -> (B K, ...)."""
        return x.unsqueeze(1).expand(-1, self.classes, *x.shape[1:]).flatten(0, 1)

    def marked(self, individual: Tensor) -> Tensor:
        """Mark individuals with the class: (B, D0) -> (B K, D0 + K)."""
        marks = torch.eye(self.classes, dtype=individual.dtype, device=individual.device)
        marks = marks.expand(individual.shape[0], -1, -1).flatten(0, 1)
        return torch.cat([self.of_classes(individual), marks], -1)

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates of the chains of all classes, (B, K, J, J)."""
        return self._chains(batch, *self.represent(batch))

    def _chains(self, batch: Batch, individual: Tensor, alternatives: Tensor) -> Tensor:
        utility = None
        if self.utility is not None:
            added = [part(batch, individual, alternatives) for part in self._additions]
            utility = (self.utility(batch, individual, alternatives).unsqueeze(1) + torch.stack(added, 1)).flatten(0, 1)
        known = self.marked(individual), self.of_classes(alternatives), utility
        rates = self.rates_between(*known, self.of_classes(batch.mask), self.of_classes(batch.categorical))
        return rates.view(-1, self.classes, *rates.shape[1:])

    def classwise(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the leanings (B, K) and the probabilities of the alternatives in each class, (B, K, J)."""
        individual, alternatives = self.represent(batch)
        rates = self._chains(batch, individual, alternatives).flatten(0, 1)
        p = solve_chain(rates, self.of_classes(batch.mask))
        return self.share_logits(individual), p.view(-1, self.classes, p.shape[1])

    def revive(self, batch: Batch) -> bool:
        """Undo a start in which most rates have no gradient; return whether it was one."""
        individual, alternatives = self.represent(batch)
        seen = self.marked(individual), self.of_classes(alternatives), self.of_classes(batch.mask)
        return starting_values.revive_dead_rates(self.rates, *seen)


# -- Averages -----------------------------------------------------------------------------------------------------
#
# The mean of M stationary distributions is again the stationary distribution of a chain on each set, in which as much
# flows from i to j as in the chains of all members together:
#
#     p = 1/M sum_m p^m,    q_ij = sum_m p^m_i q^m_ij / sum_m p^m_i
#
# Flows that balance for each m balance in sum, so p is stationary for q. These rates depend on the whole set; uniform
# expansion holds for p, as it does for each p^m.


class AveragedChains(AveragedNetwork):
    """Batch -> logarithms of the mean of several stationary distributions (B, J)."""

    classes = 1

    def chain_inputs(self, batch: Batch) -> list[tuple[PCMCNetwork, Batch]]:
        """Return every member with the batch as it sees it."""
        return [(member, seen) for member, seen in self.member_inputs(batch) if isinstance(member, PCMCNetwork)]

    def member_chains(self, batch: Batch) -> Tensor:
        """Return the rates of the chains of all members, (B, M, J, J)."""
        return torch.cat([member.chains(seen) for member, seen in self.chain_inputs(batch)], 1)

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates of the one chain with the average distribution, (B, 1, J, J)."""
        rates = self.member_chains(batch)
        p = torch.stack([solve_chain(q, batch.mask) for q in rates.unbind(1)], 1).unsqueeze(-1)  # (B, M, J, 1)
        flows = (p * rates).sum(1, keepdim=True)
        return flows / p.sum(1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
