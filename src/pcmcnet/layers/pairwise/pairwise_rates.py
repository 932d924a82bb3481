"""Representations -> pairwise rates.

A network f scores every ordered pair (i, j) for the individual I, and a rate form converts the score into a rate. The
first layer of f is linear in the concatenation [I, S_i, S_j] and is computed as W0 I + Wa S_i + Wb S_j, which takes n
products instead of n^2. The later layers and the rates have several implementations of the same formulas:

    scores   plain_scores     all pairs in one pass: for torch's compiler, `torch.func` and forward mode; without a
                              hidden layer; for small batches on a CPU; on other devices without kernels
             chunked_scores   chunks of pairs, in threads: larger batches on a CPU
             triton.network   kernels for CUDA devices: float32 weights and two hidden layers or more. In bfloat16 they
                              also compute the first layer
             triton.hopper    the last hidden layer of this network on a Hopper GPU: relu or leaky_relu in bfloat16
    rates    plain_rates      torch's operators
             triton           one kernel: the forms exp and relu of sets that are not too large, in float32

The thresholds for choosing an implementation are in ``pcmcnet.layers.settings``. Triton is imported only if its kernels
run. Shapes: individual (B, D0), alternatives (B, J, D), mask (B, J) -> rates (B, J, J).
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
from pcmcnet.layers import settings
from pcmcnet.layers.inner_logit import RISING_ACTIVATIONS, SignedLinear, unit_signs
from pcmcnet.layers.pairwise.cpu import chunked_scores, plain_scores
from pcmcnet.layers.pairwise.rate_forms import (
    RATE_FLOOR,
    Layer,
    PairOptions,
    RateForm,
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

    With a mask (B, J), only the scores of pairs of two different real alternatives are defined; other entries are
    arbitrary. ``kernels`` selects the Triton kernels.
    """
    if kernels:
        from pcmcnet.layers.pairwise.triton.network import scores_of_halves

        return scores_of_halves(leave, enter, layers, options, mask)
    if _can_score_in_one_pass(leave, enter, layers, options):
        return plain_scores(leave, enter, layers, options)
    return chunked_scores(leave, enter, layers, options, mask)


def _can_score_in_one_pass(leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions) -> bool:
    """Return True if ``plain_scores`` is required, or is as fast as computing chunks of pairs."""
    if not layers or leave.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    sets, places, _ = leave.shape
    widest = max(weight.shape[1] for weight, _ in layers)
    numbers = sets * places**2 * max(widest, 1)
    return numbers <= options.plain_up_to or is_transformed(leave, enter, *chain.from_iterable(layers))


def rates_of_scores(scores: Tensor, mask: Tensor, *, rate: RateForm, epsilon: float) -> Tensor:
    """Return rates, scaled so that the largest rate of a set is about 1: (B, J, J), mask (B, J) -> (B, J, J)."""
    if rate in ("exp", "relu") and has_elementwise_kernel(scores):
        from pcmcnet.layers.pairwise.triton import elementwise

        return elementwise.rates(scores, mask, rate=rate, epsilon=epsilon, floor=RATE_FLOOR)
    return plain_rates(scores, mask, rate=rate, epsilon=epsilon)


# -- number type of the n^2 products -----------------------------------------------------------------------------------
# bfloat16 has the range of float32 and 8 bits of precision; its products are several times faster on hardware that
# supports it. Sums within a product are in float32, and so are the scores and everything computed from them.

Precision = Literal["auto", "float32", "bfloat16"]


def compute_dtype(precision: Precision, device: torch.device, widths: Sequence[int]) -> torch.dtype:
    """Return the dtype of the matrix products, given the widths of the hidden layers and the device."""
    if precision == "auto":
        wide = len(widths) > 0 and all(width >= settings.BFLOAT16_FROM_UNITS for width in widths)
        precision = "bfloat16" if device.type == "cuda" and wide else "float32"
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


class PairwiseRates(nn.Module):
    """Layer that assigns a positive rate to every ordered pair of alternatives, for each individual.

    Parameters
    ----------
    d_individual
        Width D0 of the individual's representation; may be 0.
    d_alternative
        Width D of an alternative's representation.
    hidden
        Number of units in each hidden layer of f. If empty, f is linear. Default: (64, 64).
    activation
        Activation of the hidden layers: "relu", "leaky_relu" (default), "sigmoid", "tanh", "silu" or "gelu".
    dropout
        Dropout probability of the hidden layers. Default: 0.
    rate
        Rate form: "exp" (default), "relu" (the paper's) or "softplus".
    epsilon
        Constant added to the rates, at least 0. Default: 0, but rate="relu" needs a positive value (0.5 in the paper).
    initialisation
        "safe" (default): the output layer starts at a constant positive score, so that the model starts at the uniform
        distribution and every rate has a gradient. "paper": normal weights with variance 2 / fan-in, as published. With
        this option, most rates may be dead at the start, that is, without a gradient; see ``revive_dead_rates`` in
        ``pcmcnet.models.networks.starting_values``.
    precision
        Dtype of the matrix products over pairs: "float32", "bfloat16", or "auto" (default), which selects bfloat16 for
        wide hidden layers on a GPU and float32 otherwise.
    signs
        Signs (D,) of the entries of an alternative's representation: 1, -1 or 0. If an entry of sign 1 rises, the rates
        of entering the alternative never fall and the rates of leaving it never rise. For sign -1, the reverse holds.
        Default None: no constraint. See :mod:`pcmcnet.layers.inner_logit`.

    Raises
    ------
    ConfigError
        If an option is unknown, rate="relu" has no positive ``epsilon``, or ``signs`` are combined with a non-monotone
        activation.
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
            raise ConfigError(f"signs need a monotone activation, one of {RISING_ACTIVATIONS}, got {activation!r}.")
        # 2. Build the first layer in three parts (individual, alternative left, alternative entered), then the others.
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
        """The output layer of f, whose bias shifts all scores."""
        last = self.layers[-1] if len(self.layers) else self.enter
        assert isinstance(last, nn.Linear)
        return last

    def _initialise(self, how: Initialisation, *, fan_in: int) -> None:
        """Draw the initial weights, where ``fan_in`` is the number of inputs of the whole first layer."""
        first = [layer for layer in (self.who, self.leave, self.enter) if layer is not None]
        for layer in first:
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
        """Return the rates of all ordered pairs.

        Parameters
        ----------
        individual
            Representations of the individuals, (B, D0).
        alternatives
            Representations of the alternatives, (B, J, D).
        mask
            Mask (B, J), True for real alternatives and False for padding.

        Returns
        -------
        Tensor
            Positive rates (B, J, J) of leaving i for j, with a maximum of about 1 in each set. Entries on the diagonal
            and at padding are arbitrary.

        Raises
        ------
        InputError
            If a tensor has the wrong shape.
        """
        self._require_shapes(individual, alternatives, mask)
        return self.rates_from_scores(self.scores(individual, alternatives, mask), mask)

    def rates_from_scores(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return the rates for given scores.

        Parameters
        ----------
        scores
            Scores of all ordered pairs, (B, J, J).
        mask
            Mask (B, J), True for real alternatives.

        Returns
        -------
        Tensor
            Rates (B, J, J), with a maximum of about 1 in each set.
        """
        return rates_of_scores(scores, mask, rate=self.rate, epsilon=self.epsilon)

    def _require_shapes(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> None:
        """Raise InputError if the inputs do not have the shapes (B, D0), (B, J, D) and (B, J)."""
        d0, d = self.who.in_features if self.who else individual.shape[-1], self.leave.in_features
        if alternatives.ndim != 3 or alternatives.shape[-1] != d:
            raise InputError(f"alternatives: expected shape (B, J, {d}), got {(*alternatives.shape,)}.")
        B, J, _ = alternatives.shape
        for name, tensor, shape in (("individual", individual, (B, d0)), ("mask", mask, (B, J))):
            if tensor.shape != shape:
                raise InputError(f"{name}: expected shape {(*shape,)}, got {(*tensor.shape,)}.")

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the scores f of all ordered pairs.

        Parameters
        ----------
        individual
            Representations of the individuals, (B, D0).
        alternatives
            Representations of the alternatives, (B, J, D).
        mask
            Mask (B, J), True for real alternatives. With a mask, scores are defined only for pairs of two different
            real alternatives; other entries are arbitrary. Default None: all scores are defined.

        Returns
        -------
        Tensor
            Scores of all ordered pairs, (B, J, J).
        """
        if self._has_kernels(alternatives) and self._dtype(alternatives) == torch.bfloat16:
            from pcmcnet.layers.pairwise.triton.hidden_layers import FirstLayer
            from pcmcnet.layers.pairwise.triton.network import scores_of_inputs

            empty = (individual[:, :0], self.leave.weight[:, :0])
            inputs, weight = empty if self.who is None else (individual, self.who.weight)
            weights = (weight, self.leave.weight, self.enter.weight, self.enter.bias)
            options = self._options(alternatives)
            return scores_of_inputs(FirstLayer(inputs, alternatives, *weights), self._later_layers(), options, mask)
        return self.scores_of_halves(*self.halves(individual, alternatives), mask)

    def halves(self, individual: Tensor, alternatives: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two halves of the first layer, whose sum for a pair is the input of the first activation.

        Parameters
        ----------
        individual
            Representations of the individuals, (B, D0).
        alternatives
            Representations of the alternatives, (B, J, D).

        Returns
        -------
        tuple
            Contributions to the first layer, (B, J, H) each: the first from the individual and the alternative that is
            left, the second from the alternative that is entered.
        """
        leave, enter = self.leave(alternatives), self.enter(alternatives)
        if self.who is not None:
            leave = leave + self.who(individual).unsqueeze(1)
        return leave, enter

    def scores_of_halves(self, leave: Tensor, enter: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the scores of all ordered pairs, given the halves of the first layer.

        Parameters
        ----------
        leave, enter
            Halves of the first layer, (B, J, H) each, as returned by :meth:`halves`.
        mask
            Mask (B, J), True for real alternatives, as in :meth:`scores`. Default None: all scores are defined.

        Returns
        -------
        Tensor
            Scores of all ordered pairs, (B, J, J).
        """
        kernels = self._has_kernels(leave)
        return pair_scores(leave, enter, self._later_layers(), self._options(leave), mask, kernels=kernels)

    def _later_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Return the weights and biases of the layers after the first."""
        return [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]

    def _options(self, inputs: Tensor) -> PairOptions:
        """Return the options for scoring the given inputs."""
        return PairOptions(activation=self.activation, dropout=self.dropout.active, dtype=self._dtype(inputs))

    def _dtype(self, inputs: Tensor) -> torch.dtype:
        """Return the dtype of the matrix products over pairs."""
        half = compute_dtype(self.precision, inputs.device, self.hidden) == torch.bfloat16
        return torch.bfloat16 if half else inputs.dtype

    @property
    def computes_in_chunks(self) -> bool:
        """Whether a GPU processes the pairs in chunks, so that memory does not grow with the number of pairs."""
        return self._has_kernels(self.leave.weight)

    def _has_kernels(self, inputs: Tensor) -> bool:
        """Return True if Triton kernels can score the pairs of the given inputs."""
        supported = inputs.device.type == "cuda" and inputs.dtype == torch.float32 and len(self.layers) > 1
        return supported and has_triton() and not needs_plain_operators(inputs, *self.parameters())


def require_rate(rate: str, epsilon: float) -> None:
    """Raise ConfigError for an unknown rate form, a negative epsilon, or an epsilon of 0 with rate="relu"."""
    require_word("rate", rate, get_args(RateForm))
    if not (0 <= epsilon < math.inf):
        raise ConfigError(f"epsilon must be a number of at least 0, got {epsilon}.")
    if rate == "relu" and epsilon == 0:
        raise ConfigError("rate='relu' needs epsilon > 0: otherwise both rates of a pair can be 0. The paper uses 0.5.")
