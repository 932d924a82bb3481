"""What all networks of PCMC-Net share: inputs, the utility inside, latent classes, and averages.

    representation of I and of each S_i  ->  rates  ->  stationary distribution

A subclass computes the rates: of every ordered pair (:mod:`pcmcnet.models.networks.pairwise_network`), or as products
of r factors (:mod:`pcmcnet.models.networks.factored_network`). :class:`MixtureOfChains` has one chain per latent class,
and :class:`AveragedChains` averages networks. Shapes: B sets of up to J alternatives, K classes, M averaged networks.
Tensors: individuals (B, D0), alternatives (B, J, D), rates (B, J, J), log p (B, J).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data import Batch, EncodedSets, Encoder
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.layers import PairwiseRates, log_probabilities, settings, solve_chain
from pcmcnet.layers.factored import FactoredRates
from pcmcnet.layers.inner_logit import LinearUtility, SignedLinear
from pcmcnet.layers.representation import build_representation
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.networks import starting_values
from pcmcnet.models.networks.averaged_members import AveragedNetwork
from pcmcnet.models.networks.mixture_model import LatentClassNetwork
from pcmcnet.models.networks.network_config import signs_of_numbers
from pcmcnet.training.network import ChoiceNetwork

if TYPE_CHECKING:
    from pcmcnet.models.pcmcnet import PCMCNetConfig

CLASS_SPREAD = 0.3  # standard deviation of the initial weights of the utilities of classes


class ChainNetwork(ChoiceNetwork):
    """Base class of networks whose probabilities are the stationary distribution of a chain.

    A subclass creates the layer ``rates`` and the linear ``utility`` (or None) after the representations.
    """

    takes_generators = True
    classes = 1  # number of chains
    rates: PairwiseRates | FactoredRates
    utility: LinearUtility | None

    def __init__(
        self, encoder: Encoder, config: PCMCNetConfig, encoders: Encoders | None = None, *, marks: int = 0
    ) -> None:
        """Build the representations; the rates have ``marks`` additional individual-level inputs."""
        super().__init__()
        individual, features = encoder.individual, encoder.features
        self.individual = build_representation(individual, dropout=config.dropout, custom=encoders)
        self.alternative = build_representation(features, dropout=config.dropout, custom=encoders)
        # A step with contents waits for their distinct values, which a CUDA graph cannot do.
        self.supports_cuda_graphs = not (individual.contents or features.contents)
        self.signs = signs_of_numbers(config.monotone, encoder)  # (F,) of the numeric columns, or None
        self.individual_width = self.individual.width + marks

    @property
    def solves_rates(self) -> bool:
        """Whether predictions solve chains of the rates of pairs, as opposed to those of factors or of log-rates."""
        return False

    @property
    def representation_signs(self) -> Tensor | None:
        """Signs (D,) of the entries of an alternative's representation, in which numeric inputs come last."""
        if self.signs is None:
            return None
        return F.pad(self.signs, (self.alternative.width - len(self.signs), 0))

    def new_utility(self, features: SideEncoder) -> LinearUtility:
        """Return a new linear utility whose weights are all 0."""
        custom = [name for name, _ in self.alternative.custom.values()]  # columns with custom encoders
        return LinearUtility(features, self.individual.width, self.alternative.width, custom, self.signs)

    @property
    def utilities(self) -> list[LinearUtility]:
        """The linear utilities of the network."""
        return [] if self.utility is None else [self.utility]

    @property
    def share_weights(self) -> list[nn.Parameter]:
        """Weights of the latent-class shares, or an empty list for a single chain."""
        return []

    @property
    def prior_weights(self) -> list[nn.Parameter]:
        """Weights of the utilities and of the class shares."""
        return [*(weights for part in self.utilities for weights in part.plain_weights), *self.share_weights]

    @property
    def sign_constrained(self) -> list[SignedLinear | LinearUtility]:
        """All layers and utilities that can have sign constraints on their weights."""
        return [part for part in self.modules() if isinstance(part, SignedLinear | LinearUtility)]

    def represent(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the representations of individuals (B, D0) and of alternatives (B, J, D)."""
        individual = self.individual(batch.individual_numeric, batch.individual_categorical, batch.individual_contents)
        return individual, self.alternative(batch.numeric, batch.categorical, batch.contents)

    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Check that alternatives differ."""
        sets.require_variation_within_sets()

    def set_starting_values(self, sample: Callable[[int], EncodedSets], decay: float) -> None:
        """Start from the inner logit if weight decay is strong."""
        if self.utility is not None and decay >= starting_values.LOGIT_START_DECAY:
            starting_values.start_as_logit(self.utility, sample(starting_values.MAX_LOGIT_SETS))

    @abstractmethod
    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, K, J, J) of the chains of each set, where K = 1 for a single chain."""


# -- Mixtures -----------------------------------------------------------------------------------------------------
#
# A mixture of K chains: each decision maker belongs to one of K unknown classes, which have their own rates.
#
#     p(S) = sum_k m_k(I) pi_k(S),    m(I) = softmax(a + A I),    pi_k the stationary distribution of class k
#
# The class is a one-hot input of the rate network, next to the individual. So all classes share representations and
# layers, and one call computes the rates of all classes. Each class also adds its own utility to the common one: the
# logits inside form a latent class logit, and the prior of these additions draws the classes towards each other. The
# additions start at random, since equal classes would stay equal.


class MixtureOfChains(LatentClassNetwork, ChainNetwork):
    """Base class of networks that map a batch to the log-probabilities (B, J) of a mixture of chains."""

    def __init__(
        self,
        encoder: Encoder,
        config: PCMCNetConfig,
        encoders: Encoders | None = None,
        *,
        classes: int,
        **shape: int,
    ) -> None:
        super().__init__(encoder, config, encoders, marks=classes, **shape)
        self.classes, self.batches_by_person = classes, config.by == "person"
        n_additions = 0 if self.utility is None else classes
        self.additions = nn.ModuleList(self.new_utility(encoder.features) for _ in range(n_additions))
        self.share = nn.Parameter(torch.zeros(classes))
        width = self.individual.width
        self.leaning = nn.Parameter(torch.zeros(classes, width)) if width else None
        self._randomise_additions()

    @torch.no_grad()
    def _randomise_additions(self) -> None:
        for utility in self._additions:
            for weights in utility.plain_weights:
                weights.normal_(0.0, CLASS_SPREAD)
            utility.project_()

    @property
    def _additions(self) -> list[LinearUtility]:
        return [part for part in self.additions if isinstance(part, LinearUtility)]

    @property
    def utilities(self) -> list[LinearUtility]:
        """The common utility and the additional utility of each class, or an empty list if there is no utility."""
        return [*super().utilities, *self._additions]

    @property
    def share_weights(self) -> list[nn.Parameter]:
        """Weights of the class shares."""
        return [self.share] if self.leaning is None else [self.share, self.leaning]

    def share_logits(self, individual: Tensor) -> Tensor:
        """Return a + A I, the logits of the class shares: (B, D0) -> (B, K)."""
        if self.leaning is None:
            return self.share.expand(individual.shape[0], -1)
        return self.share + individual @ self.leaning.mT

    def log_membership(self, batch: Batch) -> Tensor:
        """Return the logarithms (B, K) of the prior class shares."""
        return self.share_logits(self.represent(batch)[0]).log_softmax(-1)

    def for_each_class(self, x: Tensor) -> Tensor:
        """Repeat the values of each set for every class: (B, ...) -> (B K, ...)."""
        return x.unsqueeze(1).expand(-1, self.classes, *x.shape[1:]).flatten(0, 1)

    def with_class_marks(self, individual: Tensor) -> Tensor:
        """Append the one-hot class to the individual: (B, D0) -> (B K, D0 + K)."""
        marks = torch.eye(self.classes, dtype=individual.dtype, device=individual.device)
        marks = marks.expand(individual.shape[0], -1, -1).flatten(0, 1)
        return torch.cat([self.for_each_class(individual), marks], -1)

    def class_utilities(self, batch: Batch, individual: Tensor, alternatives: Tensor) -> Tensor | None:
        """Return the utility of each alternative in each class (B K, J), or None if there is no utility."""
        if self.utility is None:
            return None
        added = [part(batch, individual, alternatives) for part in self._additions]
        utilities: Tensor = self.utility(batch, individual, alternatives).unsqueeze(1) + torch.stack(added, 1)
        return utilities.flatten(0, 1)


# -- Averages -----------------------------------------------------------------------------------------------------
#
# The mean of M stationary distributions is again the stationary distribution of a chain. Its flow from i to j is the
# sum of the flows of all members:
#
#     p = 1/M sum_m p^m,    q_ij = sum_m p^m_i q^m_ij / sum_m p^m_i
#
# The flows of each member balance, so their sum balances, and p is stationary for q. These rates depend on the whole
# set. Uniform expansion holds for p, since it holds for each p^m.


class AveragedChains(AveragedNetwork):
    """Network that maps a batch to the logarithms (B, J) of the members' mean stationary distribution."""

    classes = 1

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        mask, members = batch.mask, self.chain_inputs(batch)
        is_small = mask.numel() * mask.shape[1] <= settings.SOLVE_TOGETHER_UP_TO_PAIRS
        if not (is_small and mask.device.type == "cpu" and all(member.solves_rates for member, _ in members)):
            return super().forward(batch)
        # One call takes fewer operations than one per member: an elimination has several for each alternative.
        rates, M = torch.cat([member.chains(inputs) for member, inputs in members], 1).flatten(0, 1), len(members)
        p = solve_chain(rates, mask.repeat_interleave(M, 0)).view(-1, M, mask.shape[1])  # (B, M, J)
        return log_probabilities(p.mean(1), mask)

    def chain_inputs(self, batch: Batch) -> list[tuple[ChainNetwork, Batch]]:
        """Return a list of members, each with its inputs."""
        return [(member, inputs) for member, inputs in self.member_inputs(batch) if isinstance(member, ChainNetwork)]

    def member_chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, M, J, J) of the chains of all members."""
        return torch.cat([member.chains(inputs) for member, inputs in self.chain_inputs(batch)], 1)

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, 1, J, J) of the chain whose stationary distribution is the average."""
        rates = self.member_chains(batch)
        p = torch.stack([solve_chain(q, batch.mask) for q in rates.unbind(1)], 1).unsqueeze(-1)  # (B, M, J, 1)
        flows = (p * rates).sum(1, keepdim=True)
        return flows / p.sum(1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
