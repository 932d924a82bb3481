"""Representations -> pairwise rates.

A network f scores every ordered pair (i, j) for the individual I, and a rate form makes the score a rate. The first
layer of f is linear in the concatenation [I, S_i, S_j], so it is computed as W0 I + Wa S_i + Wb S_j: n products instead
of n^2. For the layers after it, and for the rates, there are several implementations, which compute the same:

    scores   plain_scores     on all pairs at once: for torch's compiler, `torch.func` and forward mode; without a
                              hidden layer; for small batches on a CPU; on any other device without kernels
             chunked_scores   chunk of pairs by chunk of pairs, in threads: larger batches on a CPU
             triton.network   kernels for CUDA devices: float32 weights and two hidden layers or more. In bfloat16 they
                              take in the first layer, too
             triton.hopper    the last hidden layer of these on a Hopper GPU: relu or leaky_relu in bfloat16
    rates    plain_rates      torch's operators
             triton           one kernel: the forms exp and relu of sets that are not too large, in float32

The thresholds are in ``pcmcnet.layers.settings``. Triton is imported only where its kernels run.
Shapes: individual (B, D0), alternatives (B, J, D), mask (B, J) -> rates (B, J, J).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from pcmcnet.checks import require_word
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.layers.inner_logit import RISING_ACTIVATIONS, SignedLinear, unit_signs
from pcmcnet.layers.pairwise.cpu import chunked_scores, plain_scores
from pcmcnet.layers.pairwise.rate_forms import (
    RATE_FLOOR,
    Layer,
    PairOptions,
    Precision,
    RateForm,
    compute_dtype,
    has_elementwise_kernel,
    plain_rates,
)
from pcmcnet.layers.perceptron import Activation, Dropout
from pcmcnet.layers.tensor_ops import has_triton, is_transformed, needs_plain_operators

Initialisation = Literal["safe", "paper"]


def pair_scores(
    leave: Tensor,
    enter: Tensor,
    layers: Sequence[Layer],
    options: PairOptions,
    mask: Tensor | None = None,
    *,
    kernels: bool = False,
) -> Tensor:
    """Score all ordered pairs of each set: (B, J, H), (B, J, H) -> (B, J, J).

    With a mask (B, J) those of two different real alternatives, and anything elsewhere. ``kernels``: whether Triton
    kernels compute them.
    """
    if kernels:
        from pcmcnet.layers.pairwise.triton.network import scores_of_halves

        return scores_of_halves(leave, enter, layers, options, mask)
    if _takes_plain_formula(leave, enter, layers, options):
        return plain_scores(leave, enter, layers, options)
    return chunked_scores(leave, enter, layers, options, mask)


def _takes_plain_formula(leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions) -> bool:
    if not layers or leave.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    sets, places, _ = leave.shape
    widest = max(weight.shape[1] for weight, _ in layers)
    numbers = sets * places**2 * max(widest, 1)
    return numbers <= options.plain_up_to or is_transformed(leave, enter, *chain.from_iterable(layers))


def rates_of_scores(scores: Tensor, mask: Tensor, *, rate: RateForm, epsilon: float) -> Tensor:
    """Turn scores into rates whose largest in each set is about 1: (B, J, J), (B, J) -> (B, J, J)."""
    if rate in ("exp", "relu") and has_elementwise_kernel(scores):
        from pcmcnet.layers.pairwise.triton import elementwise

        return elementwise.rates(scores, mask, rate=rate, epsilon=epsilon, floor=RATE_FLOOR)
    return plain_rates(scores, mask, rate=rate, epsilon=epsilon)


class PairwiseRates(nn.Module):
    """Score every ordered pair of alternatives, for this individual, with one positive rate.

    Parameters
    ----------
    d_individual, d_alternative
        Widths of the representations; ``d_individual`` may be 0.
    hidden
        Widths of the hidden layers of f; empty for a single neuron.
    activation, dropout
        Of the hidden layers.
    rate, epsilon
        The rate form and its additive constant.
    initialisation
        "safe": the output layer starts at a constant, positive score, so the model starts uniform and every
        rate has a gradient. "paper": normal weights with variance 2 / fan-in, as published, which may start
        with most rates dead; see ``revive_dead_rates`` in ``pcmcnet.models.networks.starting_values``.
    precision
        Number type of the products over pairs; see :mod:`pcmcnet.layers.pairwise.rate_forms`.
    signs
        Of the entries of an alternative's representation (D,), where some are to have one: with an entry of sign +1
        rates into the alternative rise and rates out of it fall, with one of sign -1 the other way round
        (:mod:`pcmcnet.layers.inner_logit`).
    """

    def __init__(
        self,
        d_individual: int,
        d_alternative: int,
        hidden: Sequence[int] = (64, 64),
        *,
        activation: Activation = "leaky_relu",
        dropout: float = 0.0,
        rate: RateForm = "exp",
        epsilon: float = 0.0,
        initialisation: Initialisation = "safe",
        precision: Precision = "auto",
        signs: Tensor | None = None,
    ) -> None:
        super().__init__()
        # 1. Check the options.
        require_rate(rate, epsilon)
        require_word("activation", activation, get_args(Activation))
        require_word("initialisation", initialisation, get_args(Initialisation))
        require_word("precision", precision, get_args(Precision))
        if signs is not None and activation not in RISING_ACTIVATIONS:
            raise ConfigError(f"signs need an activation that never falls, {RISING_ACTIVATIONS}, got {activation!r}.")
        # 2. The first layer in three parts: individual, alternative left, alternative entered; then the others.
        widths = (*hidden, 1)
        self.rate, self.epsilon, self.precision, self.hidden = rate, epsilon, precision, tuple(hidden)
        self.who = nn.Linear(d_individual, widths[0], bias=False) if d_individual else None
        if signs is None:
            self.leave = nn.Linear(d_alternative, widths[0], bias=False)
            self.enter = nn.Linear(d_alternative, widths[0])
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        else:
            units = [*map(unit_signs, hidden), torch.ones(1)]
            self.leave, self.enter = SignedLinear(-signs, units[0], bias=False), SignedLinear(signs, units[0])
            self.layers = nn.ModuleList(SignedLinear(a, b) for a, b in pairwise(units))
        self.activation = activation
        self.dropout = Dropout(dropout)
        self._initialise(initialisation, fan_in=d_individual + 2 * d_alternative)

    @property
    def output(self) -> nn.Linear:
        """The layer whose bias shifts all scores."""
        last = self.layers[-1] if len(self.layers) else self.enter
        assert isinstance(last, nn.Linear)
        return last

    def _initialise(self, how: Initialisation, *, fan_in: int) -> None:
        first = [layer for layer in (self.who, self.leave, self.enter) if layer is not None]
        for layer in first:  # one layer in three parts: the fan-in is that of the concatenation
            nn.init.normal_(layer.weight, std=math.sqrt(2 / max(fan_in, 1)))
        nn.init.uniform_(self.enter.bias, -1 / math.sqrt(max(fan_in, 1)), 1 / math.sqrt(max(fan_in, 1)))
        for module in self.layers:
            assert isinstance(module, nn.Linear)
            nn.init.kaiming_normal_(module.weight)
        if how == "safe":
            for layer in first if not len(self.layers) else [self.output]:
                nn.init.zeros_(layer.weight)
            nn.init.ones_(self.output.bias)
        for module in self.modules():
            if isinstance(module, SignedLinear):
                module.reflect_()

    def forward(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """(B, D0), (B, J, D), (B, J) -> (B, J, J)."""
        self._require_shapes(individual, alternatives, mask)
        return self.rates_from_scores(self.scores(individual, alternatives, mask), mask)

    def rates_from_scores(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Turn scores into rates: (B, J, J), (B, J) -> (B, J, J)."""
        return rates_of_scores(scores, mask, rate=self.rate, epsilon=self.epsilon)

    def _require_shapes(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> None:
        d0, d = self.who.in_features if self.who else individual.shape[-1], self.leave.in_features
        if alternatives.ndim != 3 or alternatives.shape[-1] != d:
            raise InputError(f"alternatives: expected shape (B, J, {d}), got {(*alternatives.shape,)}.")
        B, J, _ = alternatives.shape
        for name, given, shape in (("individual", individual, (B, d0)), ("mask", mask, (B, J))):
            if given.shape != shape:
                raise InputError(f"{name}: expected shape {(*shape,)}, got {(*given.shape,)}.")

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor | None = None) -> Tensor:
        """Evaluate f on all ordered pairs: (B, D0), (B, J, D) -> (B, J, J); on anything else where a mask is given."""
        if self._has_kernels(alternatives) and self._dtype(alternatives) == torch.bfloat16:
            from pcmcnet.layers.pairwise.triton.hidden_layers import FirstLayer
            from pcmcnet.layers.pairwise.triton.network import scores_of_inputs

            nobody = (individual[:, :0], self.leave.weight[:, :0])
            known, who = nobody if self.who is None else (individual, self.who.weight)
            weights = (who, self.leave.weight, self.enter.weight, self.enter.bias)
            options = self._options(alternatives)
            return scores_of_inputs(FirstLayer(known, alternatives, *weights), self._later_layers(), options, mask)
        return self.scores_of_halves(*self.halves(individual, alternatives), mask)

    def halves(self, individual: Tensor, alternatives: Tensor) -> tuple[Tensor, Tensor]:
        """Split the first layer into what is left, with the individual's part, and what is entered: 2 x (B, J, H)."""
        leave, enter = self.leave(alternatives), self.enter(alternatives)
        if self.who is not None:
            leave = leave + self.who(individual).unsqueeze(1)
        return leave, enter

    def scores_of_halves(self, leave: Tensor, enter: Tensor, mask: Tensor | None = None) -> Tensor:
        """Evaluate the rest of f on the pairwise sums of the halves: 2 x (B, J, H) -> (B, J, J)."""
        kernels = self._has_kernels(leave)
        return pair_scores(leave, enter, self._later_layers(), self._options(leave), mask, kernels=kernels)

    def _later_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of the layers after the first."""
        return [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]

    def _options(self, given: Tensor) -> PairOptions:
        return PairOptions(activation=self.activation, dropout=self.dropout.active, dtype=self._dtype(given))

    def _dtype(self, given: Tensor) -> torch.dtype:
        """Type of the products over pairs."""
        half = compute_dtype(self.precision, given.device, self.hidden) == torch.bfloat16
        return torch.bfloat16 if half else given.dtype

    @property
    def computes_in_chunks(self) -> bool:
        """Whether a GPU computes the pairs chunk by chunk, in memory that does not grow with their number."""
        return self._has_kernels(self.leave.weight)

    def _has_kernels(self, given: Tensor) -> bool:
        """Return True if Triton kernels score the pairs of an input."""
        there = given.device.type == "cuda" and given.dtype == torch.float32 and len(self.layers) > 1 and has_triton()
        return there and not needs_plain_operators(given, *self.parameters())


def require_rate(rate: str, epsilon: float) -> None:
    """Refuse an unknown rate form, and an epsilon that the form cannot do without."""
    require_word("rate", rate, get_args(RateForm))
    if not (0 <= epsilon < math.inf):
        raise ConfigError(f"epsilon must be a number of at least 0, got {epsilon}.")
    if rate == "relu" and epsilon == 0:
        raise ConfigError("rate='relu' needs epsilon > 0, or pairs with no rate either way appear; the paper's is 0.5.")
