"""The networks of PCMC-Net: a batch of choice sets -> rates of every ordered pair -> log-probabilities.

    representation of I and of each S_i  ->  rate of every ordered pair  ->  stationary distribution

:class:`PCMCNetwork` is a single chain, :class:`ChainMixture` a mixture with one chain per latent class, and
:class:`AveragedChains` an average of networks. Shapes: B sets of up to J alternatives, K classes, M averaged networks.
Tensors: individuals (B, D0), alternatives (B, J, D), rates (B, J, J), log p (B, J).
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
from pcmcnet.models.networks.averaged_members import AveragedNetwork
from pcmcnet.models.networks.mixture_model import LatentClassNetwork
from pcmcnet.models.networks.network_config import signs_of_numbers
from pcmcnet.training.compiled_steps import MAX_LAYERS_OR_COLUMNS, CompiledForm
from pcmcnet.training.device import batches_on, device_of
from pcmcnet.training.network import ChoiceNetwork

if TYPE_CHECKING:
    from pcmcnet.models.pcmcnet import PCMCNetConfig

log = logging.getLogger("pcmcnet")

MAX_UTILITY_DROP = 20.0  # in units of log-rates, for rates that are not exponentials: keeps the chain irreducible
CLASS_SPREAD = 0.3  # standard deviation of the initial weights of the utilities of classes


class PCMCNetwork(ChoiceNetwork):
    """Network that maps a batch to the log-probabilities (B, J) of a single chain."""

    takes_generators = True
    items: Tensor | None  # (n, n) fixed log-rates of pairs of labels, if labels are the only inputs
    classes = 1  # number of chains

    def __init__(
        self, encoder: Encoder, config: PCMCNetConfig, encoders: Encoders | None = None, *, marks: int = 0
    ) -> None:
        """Build the network, whose rates have ``marks`` additional individual-level inputs."""
        super().__init__()
        individual, features = encoder.individual, encoder.features
        self.individual = build_representation(individual, dropout=config.dropout, custom=encoders)
        self.alternative = build_representation(features, dropout=config.dropout, custom=encoders)
        # A step with contents waits for their distinct values, which a CUDA graph cannot do.
        self.supports_cuda_graphs = not (individual.contents or features.contents)
        signs = signs_of_numbers(config.monotone, encoder)
        n_other = self.alternative.width - features.n_numeric  # numeric inputs come last in a representation
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
            signs=None if signs is None else F.pad(signs, (n_other, 0)),
        )
        self.utility = self.new_utility(features, signs) if config.utility == "linear" else None
        has_items = self.utility is not None and config.rate == "exp"
        labels = starting_values.label_codes_if_alone(encoder) if has_items else None
        self.register_buffer("items", None if labels is None else torch.zeros(labels, labels))

    def new_utility(self, features: SideEncoder, signs: Tensor | None) -> LinearUtility:
        """Return a new linear utility whose weights are all 0."""
        custom = [name for name, _ in self.alternative.custom.values()]  # columns with custom encoders
        return LinearUtility(features, self.individual.width, self.alternative.width, custom, signs)

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
    def compiled_form(self) -> CompiledForm | None:
        """The weights in the form of the C training steps, or None if the C code does not support the network."""
        return compiled_form_of(self) if self.classes == 1 else None

    @property
    def computes_in_chunks(self) -> bool:
        """Whether the rates of pairs are computed in chunks."""
        return self.rates.computes_in_chunks

    @property
    def sign_constrained(self) -> list[SignedLinear | LinearUtility]:
        """All layers and utilities that can have sign constraints on their weights."""
        return [part for part in self.modules() if isinstance(part, SignedLinear | LinearUtility)]

    def represent(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the representations of individuals (B, D0) and of alternatives (B, J, D)."""
        individual = self.individual(batch.individual_numeric, batch.individual_categorical, batch.individual_contents)
        return individual, self.alternative(batch.numeric, batch.categorical, batch.contents)

    # -- before training --------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Check that alternatives differ, and increase the output bias if most relu rates start with zero gradient."""
        sets.require_variation_within_sets()
        if self.rates.rate == "relu":
            # Count dead rates on the batch of the largest sets: a set of one alternative has no pair.
            plan = plan_batches(sets.sizes, batch_size=1024, pair_budget=pair_budget)
            (batch,) = batches_on(device_of(self), sets, plan[-1:])
            self.eval()  # dropout would make the check random
            if self.revive(batch):
                log.info("most rates started with zero gradient: the output bias was increased")
        elif self.rates.rate == "exp" and self.rates.epsilon == 0:
            # The bias shifts all scores, which only changes the time scale. Its gradient is 0 up to rounding errors,
            # which Adam would follow.
            self.rates.output.bias.requires_grad_(False)

    def set_starting_values(self, sample: Callable[[int], EncodedSets], decay: float) -> None:
        """Start from a fitted PCMC if labels are the only inputs, or from the inner logit if weight decay is strong."""
        if self.items is not None:
            starting_values.start_as_items(self.items, sample(starting_values.MAX_ITEM_SETS), decay)
        elif self.utility is not None and decay >= starting_values.LOGIT_START_DECAY:
            starting_values.start_as_logit(self.utility, sample(starting_values.MAX_LOGIT_SETS))

    # -- rates and probabilities ------------------------------------------------------------------------------

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, K, J, J) of the chains of each set, where K = 1 for a single chain."""
        inputs = self.represent(batch)
        utility = None if self.utility is None else self.utility(batch, *inputs)
        return self.rates_between(*inputs, utility, batch.mask, batch.categorical).unsqueeze(1)

    def rates_between(
        self, individual: Tensor, alternatives: Tensor, utility: Tensor | None, mask: Tensor, categorical: Tensor
    ) -> Tensor:
        """Return the rates of all ordered pairs: (B, D0), (B, J, D), (B, J), (B, J), (B, J, C) -> (B, J, J)."""
        if utility is None:
            rates: Tensor = self.rates(individual, alternatives, mask)
            return rates
        scores = self.rates.scores(individual, alternatives, mask)
        if self.items is not None:
            label = categorical[..., 0]
            scores = scores + self.items[label.unsqueeze(2), label.unsqueeze(1)]
        return self.rates_of_scores(scores, utility, mask)

    def rates_of_scores(self, scores: Tensor, utility: Tensor, mask: Tensor) -> Tensor:
        """Compute rates from the scores (B, J, J) and the utilities (B, J) of the destination alternatives."""
        if self.rates.rate == "exp":
            return self.rates.rates_from_scores(scores + utility.unsqueeze(1), mask)
        top = utility.detach().masked_fill(~mask, -math.inf).amax(1, keepdim=True)
        factor = (utility - top).clamp(-MAX_UTILITY_DROP, 0.0).exp()
        return self.rates.rates_from_scores(scores, mask) * factor.unsqueeze(1)

    @property
    def has_log_rates(self) -> bool:
        """Whether the network's scores are log-rates, in which case rates may differ by many orders of magnitude."""
        return self.utility is None and self.rates.rate == "exp" and self.rates.epsilon == 0

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        if self.has_log_rates:
            return self._log_distribution(batch, solve_chain)
        return log_probabilities(self.distribution(batch), batch.mask)

    def probabilities(self, batch: Batch) -> Tensor:
        """Return the stationary distribution (B, J), with 0 for padding."""
        return self.distribution(batch)

    def distribution(self, batch: Batch, solve: ChainSolver = solve_chain) -> Tensor:
        """Return the stationary distribution (B, J) computed by ``solve``, with 0 for padding."""
        if self.has_log_rates:
            return self._log_distribution(batch, solve).exp()
        return solve(self.chains(batch).squeeze(1), batch.mask)

    def _log_distribution(self, batch: Batch, solve: ChainSolver) -> Tensor:
        return log_stationary_distribution(self.rates.scores(*self.represent(batch), batch.mask), batch.mask, solve)

    def revive(self, batch: Batch) -> bool:
        """Increase the output bias if most relu rates start with zero gradient, and return True if it was increased."""
        return starting_values.revive_dead_rates(self.rates, *self.represent(batch), batch.mask)


# -- Compiled training steps --------------------------------------------------------------------------------------


def compiled_form_of(network: PCMCNetwork) -> CompiledForm | None:
    """Return the weights in the form of the C training steps, or None if the C code does not support the network."""
    # 1. Check that the C code supports the activation, rates, sizes and inputs; it has no dropout or encoders.
    rates, utility, sides = network.rates, network.utility, (network.alternative, network.individual)
    is_supported = (
        rates.activation in NEGATIVE_SLOPES
        and rates.dropout.p == 0
        and (rates.rate == "exp" or (rates.rate == "relu" and utility is None))
        and rates.precision != "bfloat16"
        and max(rates.hidden, default=0) <= settings.COMPILED_UP_TO_UNITS
        and max(len(rates.hidden), *(len(side.embeddings) for side in sides)) < MAX_LAYERS_OR_COLUMNS
        and not any(len(side.encoders) or len(side.curves) for side in sides)
    )
    if not is_supported or any(p.dtype != torch.float32 or not p.is_contiguous() for p in network.parameters()):
        return None
    # 2. Collect the weights by their role.
    tables = [[weight for embedding in side.embeddings for weight in embedding.parameters()] for side in sides]
    embedded = [sum(table.shape[1] for table in of_side) for of_side in tables]
    layers = [(layer.weight, layer.bias) for layer in rates.layers if isinstance(layer, nn.Linear)]
    individual_weight = None if rates.who is None else rates.who.weight
    return CompiledForm(
        embeddings=tables[0],
        individual_embeddings=tables[1],
        numbers=network.alternative.width - embedded[0],
        individual_numbers=network.individual.width - embedded[1],
        first=(individual_weight, rates.leave.weight, rates.enter.weight, rates.enter.bias),
        layers=layers,
        utility=None if utility is None else (list(utility.constants), utility.slopes, utility.worth, utility.taste),
        items=network.items,
        slope=NEGATIVE_SLOPES[rates.activation],
        exponential=rates.rate == "exp",
        epsilon=rates.epsilon,
        floor=RATE_FLOOR,
        bounds=[entry for part in network.sign_constrained for entry in part.bounded_weights],
    )


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


class ChainMixture(LatentClassNetwork, PCMCNetwork):
    """Network that maps a batch to the log-probabilities (B, J) of a mixture of chains."""

    def __init__(
        self, encoder: Encoder, config: PCMCNetConfig, encoders: Encoders | None = None, *, classes: int
    ) -> None:
        super().__init__(encoder, config, encoders, marks=classes)
        self.classes, self.batches_by_person = classes, config.by == "person"
        signs = signs_of_numbers(config.monotone, encoder)
        n_additions = 0 if self.utility is None else classes
        self.additions = nn.ModuleList(self.new_utility(encoder.features, signs) for _ in range(n_additions))
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

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, K, J, J) of the chains of all classes."""
        return self._chains(batch, *self.represent(batch))

    def _chains(self, batch: Batch, individual: Tensor, alternatives: Tensor) -> Tensor:
        utility = None
        if self.utility is not None:
            added = [part(batch, individual, alternatives) for part in self._additions]
            utility = (self.utility(batch, individual, alternatives).unsqueeze(1) + torch.stack(added, 1)).flatten(0, 1)
        rates = self.rates_between(
            self.with_class_marks(individual),
            self.for_each_class(alternatives),
            utility,
            self.for_each_class(batch.mask),
            self.for_each_class(batch.categorical),
        )
        return rates.view(-1, self.classes, *rates.shape[1:])

    def classwise(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits (B, K) of the class shares, and the probabilities (B, K, J) in each class."""
        individual, alternatives = self.represent(batch)
        rates = self._chains(batch, individual, alternatives).flatten(0, 1)
        p = solve_chain(rates, self.for_each_class(batch.mask))
        return self.share_logits(individual), p.view(-1, self.classes, p.shape[1])

    def revive(self, batch: Batch) -> bool:
        """Increase the output bias if most relu rates start with zero gradient, and return True if it was increased."""
        individual, alternatives = self.represent(batch)
        return starting_values.revive_dead_rates(
            self.rates,
            self.with_class_marks(individual),
            self.for_each_class(alternatives),
            self.for_each_class(batch.mask),
        )


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

    def chain_inputs(self, batch: Batch) -> list[tuple[PCMCNetwork, Batch]]:
        """Return a list of members, each with its inputs."""
        return [(member, inputs) for member, inputs in self.member_inputs(batch) if isinstance(member, PCMCNetwork)]

    def member_chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, M, J, J) of the chains of all members."""
        return torch.cat([member.chains(inputs) for member, inputs in self.chain_inputs(batch)], 1)

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, 1, J, J) of the chain whose stationary distribution is the average."""
        rates = self.member_chains(batch)
        p = torch.stack([solve_chain(q, batch.mask) for q in rates.unbind(1)], 1).unsqueeze(-1)  # (B, M, J, 1)
        flows = (p * rates).sum(1, keepdim=True)
        return flows / p.sum(1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
