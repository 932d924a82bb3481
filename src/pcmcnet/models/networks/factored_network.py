"""The factored network of PCMC-Net: rates of non-negative rank r, for choice sets of any size.

    representation of I and of each S_i  ->  log u_i, log v_i (r factors)  ->  stationary distribution

The rates are q_ij = sum_k u_ik v_jk (:mod:`pcmcnet.layers.factored`). The linear utility of an alternative is added to
its log v, so the network learns deviations from a logit, like the pairwise network. Time and memory are linear in the
number of alternatives. :class:`FactoredNetwork` is a single chain, and :class:`FactoredMixture` a mixture with one
chain per latent class. Shapes: B sets of up to J alternatives, K classes, r factors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from pcmcnet.arrays import Ints
from pcmcnet.data import Batch, Encoder
from pcmcnet.layers.factored import FactoredRates, composed_distribution, dense_rates, log_factored_distribution
from pcmcnet.layers.stationary.log_distribution import ChainSolver
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.networks.chain_network import ChainNetwork, MixtureOfChains
from pcmcnet.models.networks.compiled_form import compiled_form
from pcmcnet.training.compiled_steps import CompiledForm

if TYPE_CHECKING:
    from pcmcnet.models.pcmcnet import PCMCNetConfig


class FactoredNetwork(ChainNetwork):
    """Network that maps a batch to the log-probabilities (B, J) of a single chain with r factors."""

    rates: FactoredRates

    def __init__(
        self,
        encoder: Encoder,
        config: PCMCNetConfig,
        encoders: Encoders | None = None,
        *,
        rank: int,
        marks: int = 0,
    ) -> None:
        """Build the network, whose factors have ``marks`` additional individual-level inputs."""
        super().__init__(encoder, config, encoders, marks=marks)
        self.rates = FactoredRates(
            self.individual_width,
            self.alternative.width,
            rank,
            config.hidden,
            activation=config.activation,
            dropout=config.dropout,
            precision=config.precision,
            signs=self.representation_signs,
        )
        self.utility = self.new_utility(encoder.features) if config.utility == "linear" else None

    @property
    def compiled_form(self) -> CompiledForm | None:
        """The weights in the form of the C training steps, or None if the C code does not support the network."""
        return compiled_form(self, None, self.rates.what, rank=self.rates.rank) if self.classes == 1 else None

    def count_pairs(self, sizes: Ints) -> Ints:
        """Return the number of pairs of an alternative and a factor."""
        return sizes * self.rates.rank

    def count_evaluations(self, sizes: Ints) -> Ints:
        """Return the number of alternatives: one evaluation gives all factors of an alternative."""
        return sizes

    def log_factors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return log u and log v, (B, J, r) each."""
        inputs = self.represent(batch)
        utility = None if self.utility is None else self.utility(batch, *inputs)
        log_u, log_v = self.factors_between(*inputs, utility)
        return log_u, expand_log_v(log_v, batch.log_expansion)

    def factors_between(
        self, individual: Tensor, alternatives: Tensor, utility: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return log u and log v (B, J, r): (B, D0), (B, J, D), utilities (B, J) or None."""
        log_u, log_v = self.rates(individual, alternatives)
        return log_u, log_v if utility is None else log_v + utility.unsqueeze(-1)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        return log_factored_distribution(*self.log_factors(batch), batch.mask)

    def distribution(self, batch: Batch, solve: ChainSolver) -> Tensor:
        """Return the stationary distribution (B, J), with ``solve`` for the chain of the factors."""
        return composed_distribution(*self.log_factors(batch), batch.mask, solve).exp()

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, 1, J, J) of all pairs, for small sets."""
        return dense_rates(*self.log_factors(batch), batch.mask).unsqueeze(1)


def expand_log_v(log_v: Tensor, log_expansion: Tensor | None) -> Tensor:  # (B, J, r), (B, J) -> (B, J, r)
    """Return log v of sampled alternatives, each of which counts as many copies: copies share its probability."""
    return log_v if log_expansion is None else log_v + log_expansion.unsqueeze(-1)


class FactoredMixture(MixtureOfChains, FactoredNetwork):
    """Network that maps a batch to the log-probabilities (B, J) of a mixture of chains with r factors each."""

    def class_factors(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log u and log v (B K, J, r) of all classes, and the logits (B, K) of the class shares."""
        individual, alternatives = self.represent(batch)
        utility = self.class_utilities(batch, individual, alternatives)
        expansion = None if batch.log_expansion is None else self.for_each_class(batch.log_expansion)
        log_u, log_v = self.factors_between(
            self.with_class_marks(individual), self.for_each_class(alternatives), utility
        )
        return log_u, expand_log_v(log_v, expansion), self.share_logits(individual)

    def classwise(self, batch: Batch, solve: ChainSolver | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits (B, K) of the class shares, and the probabilities (B, K, J) in each class.

        ``solve`` is the solver for the chain of the factors in an export.
        """
        log_u, log_v, logits = self.class_factors(batch)
        mask = self.for_each_class(batch.mask)
        if solve is None:
            p = log_factored_distribution(log_u, log_v, mask).exp()
        else:
            p = composed_distribution(log_u, log_v, mask, solve).exp()
        return logits, p.view(-1, self.classes, p.shape[1])

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates (B, K, J, J) of the chains of all classes, for small sets."""
        log_u, log_v, _ = self.class_factors(batch)
        rates = dense_rates(log_u, log_v, self.for_each_class(batch.mask))
        return rates.view(-1, self.classes, *rates.shape[1:])
