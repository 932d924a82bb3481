"""The pairwise network of PCMC-Net: a batch of choice sets -> rates of every ordered pair -> log-probabilities.

    representation of I and of each S_i  ->  rate of every ordered pair  ->  stationary distribution

:class:`PCMCNetwork` is a single chain, and :class:`ChainMixture` a mixture with one chain per latent class. Shapes: B
sets of up to J alternatives, K classes. Tensors: individuals (B, D0), alternatives (B, J, D), rates (B, J, J), log p
(B, J).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcmcnet.data import Batch, EncodedSets, Encoder
from pcmcnet.data.batches import plan_batches
from pcmcnet.layers import PairwiseRates, log_probabilities, solve_chain
from pcmcnet.layers.stationary.log_distribution import ChainSolver, log_stationary_distribution
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.networks import starting_values
from pcmcnet.models.networks.chain_network import ChainNetwork, MixtureOfChains
from pcmcnet.models.networks.compiled_form import compiled_form
from pcmcnet.training.compiled_steps import CompiledForm
from pcmcnet.training.device import batches_on, device_of

if TYPE_CHECKING:
    from pcmcnet.models.pcmcnet import PCMCNetConfig

log = logging.getLogger("pcmcnet")

MAX_UTILITY_DROP = 20.0  # in units of log-rates, for rates that are not exponentials: keeps the chain irreducible


class PCMCNetwork(ChainNetwork):
    """Network that maps a batch to the log-probabilities (B, J) of a single chain."""

    rates: PairwiseRates
    items: Tensor | None  # (n, n) fixed log-rates of pairs of labels, if labels are the only inputs

    def __init__(
        self, encoder: Encoder, config: PCMCNetConfig, encoders: Encoders | None = None, *, marks: int = 0
    ) -> None:
        """Build the network, whose rates have ``marks`` additional individual-level inputs."""
        super().__init__(encoder, config, encoders, marks=marks)
        self.rates = PairwiseRates(
            self.individual_width,
            self.alternative.width,
            config.hidden,
            activation=config.activation,
            dropout=config.dropout,
            rate=config.rate,
            epsilon=config.epsilon,
            initialisation=config.initialisation,
            precision=config.precision,
            signs=self.representation_signs,
        )
        self.utility = self.new_utility(encoder.features) if config.utility == "linear" else None
        has_items = self.utility is not None and config.rate == "exp"
        labels = starting_values.label_codes_if_alone(encoder) if has_items else None
        self.register_buffer("items", None if labels is None else torch.zeros(labels, labels))

    @property
    def compiled_form(self) -> CompiledForm | None:
        """The weights in the form of the C training steps, or None if the C code does not support the network."""
        rates = self.rates
        if self.classes > 1 or not (rates.rate == "exp" or (rates.rate == "relu" and self.utility is None)):
            return None
        is_exponential = rates.rate == "exp"
        return compiled_form(
            self, rates.leave.weight, rates.enter, exponential=is_exponential, epsilon=rates.epsilon, items=self.items
        )

    @property
    def computes_in_chunks(self) -> bool:
        """Whether the rates of pairs are computed in chunks."""
        return self.rates.computes_in_chunks

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
            sets = sample(starting_values.MAX_ITEM_SETS)
            if sets.log_expansion is None:  # the estimates of PCMC do not correct for sampled alternatives
                starting_values.start_as_items(self.items, sets, decay)
                return
        super().set_starting_values(sample, decay)

    # -- rates and probabilities ------------------------------------------------------------------------------

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, K, J, J) of the chains of each set, where K = 1 for a single chain."""
        inputs = self.represent(batch)
        utility = None if self.utility is None else self.utility(batch, *inputs)
        return expand_rates(self.rates_between(*inputs, utility, batch.mask, batch.categorical), batch).unsqueeze(1)

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

    @property
    def solves_rates(self) -> bool:
        """Whether predictions solve chains of the rates of pairs."""
        return not self.has_log_rates

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
        scores = self.rates.scores(*self.represent(batch), batch.mask)
        if batch.log_expansion is not None:
            scores = scores + batch.log_expansion.unsqueeze(1)
        return log_stationary_distribution(scores, batch.mask, solve)

    def revive(self, batch: Batch) -> bool:
        """Increase the output bias if most relu rates start with zero gradient, and return True if it was increased."""
        return starting_values.revive_dead_rates(self.rates, *self.represent(batch), batch.mask)


def expand_rates(rates: Tensor, batch: Batch) -> Tensor:  # (B, ..., J, J) -> (B, ..., J, J)
    """Return the rates between sampled alternatives, each of which counts as many copies: it is entered as often."""
    if batch.log_expansion is None:
        return rates
    factors = batch.log_expansion.exp().unsqueeze(1)  # (B, 1, J), of the destinations
    return rates * (factors.unsqueeze(1) if rates.ndim == 4 else factors)


# -- Mixtures -----------------------------------------------------------------------------------------------------


class ChainMixture(MixtureOfChains, PCMCNetwork):
    """Network that maps a batch to the log-probabilities (B, J) of a mixture of chains."""

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, K, J, J) of the chains of all classes."""
        return self._chains(batch, *self.represent(batch))

    def _chains(self, batch: Batch, individual: Tensor, alternatives: Tensor) -> Tensor:
        rates = self.rates_between(
            self.with_class_marks(individual),
            self.for_each_class(alternatives),
            self.class_utilities(batch, individual, alternatives),
            self.for_each_class(batch.mask),
            self.for_each_class(batch.categorical),
        )
        return expand_rates(rates.view(-1, self.classes, *rates.shape[1:]), batch)

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
