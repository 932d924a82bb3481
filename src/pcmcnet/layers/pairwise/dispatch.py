"""Which implementation scores the pairs, and which turns scores into rates.

    scores   plain      the formula on all pairs at once: for torch's compiler, ``torch.func`` and forward mode; without
                        a hidden layer; for small batches on a CPU; on any other device without kernels
             cpu        chunk of pairs by chunk of pairs, in threads: larger batches on a CPU
             triton     kernels for CUDA devices: float32 weights and two hidden layers or more. In bfloat16 they take
                        in the first layer, too
             hopper     takes over the last hidden layer of ``triton`` on a Hopper GPU: relu or leaky_relu in bfloat16
    rates    rates      torch's operators
             triton     one kernel: the forms exp and relu of sets that are not too large, in float32

The thresholds are in :mod:`pcmcnet.layers.settings`. Triton is imported only where its kernels run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from types import ModuleType

import torch
from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.gpu import has_triton, runs_kernels
from pcmcnet.layers.pairwise.cpu import chunked_scores
from pcmcnet.layers.pairwise.options import Layer, PairOptions
from pcmcnet.layers.pairwise.plain import plain_scores
from pcmcnet.layers.pairwise.rate_forms import FLOOR, RateForm, plain_rates
from pcmcnet.layers.transforms import is_transformed, needs_plain_operators


def has_pair_kernels(given: Tensor, later_layers: int, parameters: Iterable[Tensor]) -> bool:
    """Tell whether Triton kernels score the pairs, by an input and by the number of layers after the first."""
    there = given.device.type == "cuda" and given.dtype == torch.float32 and later_layers > 1 and has_triton()
    return there and not needs_plain_operators(given, *parameters)


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

    With a mask (B, J) those of two different real alternatives, and anything elsewhere. ``kernels``: whether there are
    any, see :func:`has_pair_kernels`.
    """
    if kernels:
        from pcmcnet.layers.pairwise.triton.scores import scores_of_halves

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


def scores_of_inputs(
    individual: Tensor,
    alternatives: Tensor,
    first: tuple[Tensor, Tensor, Tensor, Tensor],
    layers: Sequence[Layer],
    options: PairOptions,
    mask: Tensor | None,
) -> Tensor:
    """Score pairs by kernels that take in the first layer, too: its three weights and its bias."""
    from pcmcnet.layers.pairwise.triton.first_layer import FirstLayer
    from pcmcnet.layers.pairwise.triton.scores import scores_of_inputs

    return scores_of_inputs(FirstLayer(individual, alternatives, *first), layers, options, mask)


def hopper_kernels(weight: Tensor, options: PairOptions) -> ModuleType | None:
    """Return the kernels for the last hidden layer on a Hopper GPU, where they run and take the layer."""
    hopper = _hopper_kernels(weight.device)
    return hopper if hopper is not None and hopper.fits(weight, options.dtype, options.activation) else None


@cache
def _hopper_kernels(device: torch.device) -> ModuleType | None:
    import triton

    known = triton.__version__.startswith(settings.HOPPER_TRITON_VERSIONS)
    if not known or find_spec("triton.experimental.gluon") is None:
        return None
    if torch.cuda.get_device_capability(device) != (9, 0):
        return None
    from pcmcnet.layers.pairwise import hopper

    return hopper


def rates_of_scores(scores: Tensor, mask: Tensor, *, rate: RateForm, epsilon: float) -> Tensor:
    """Turn scores into rates whose largest in each set is about 1: (B, J, J), (B, J) -> (B, J, J)."""
    if runs_kernels(scores) and _has_rate_kernel(scores, rate):
        from pcmcnet.layers.pairwise.triton import rates

        return rates.rates(scores, mask, rate=rate, epsilon=epsilon, floor=FLOOR)
    return plain_rates(scores, mask, rate=rate, epsilon=epsilon)


def _has_rate_kernel(scores: Tensor, rate: RateForm) -> bool:
    small = scores.numel() > 0 and scores.shape[-1] <= settings.RATES_KERNEL_UP_TO_ALTERNATIVES
    return scores.dtype == torch.float32 and rate in ("exp", "relu") and small
