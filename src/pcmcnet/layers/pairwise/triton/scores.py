"""Scores of all ordered pairs on a CUDA device: the products by matrix units, all else fused around them.

A tensor of one number per pair and unit costs about as much to move as to multiply. So the first hidden layer is built
from its two thin matrices in one pass, bias, activation and dropout of a later one happen where its product is read or
made, and the last one leaves a single number per pair (``network``).
Shapes: leave and enter (B, J, H) -> scores (B, J, J).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers import settings
from pcmcnet.layers.generators import seeds_on
from pcmcnet.layers.pairwise.options import Layer, PairOptions
from pcmcnet.layers.pairwise.triton.first_layer import FirstLayer, first_layer_gradients, halves, packed_inputs
from pcmcnet.layers.pairwise.triton.network import Network
from pcmcnet.layers.pairwise.triton.pair_layout import Layout

HALVES = 2  # tensors: leave and enter


def scores_of_halves(
    leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score ordered pairs of each set by hidden layers after the first, at least one, and the output layer.

    With a mask (B, J), real alternatives first, the pairs of two different ones, and 0 elsewhere; else all of them.
    """
    if len(leave) > settings.GPU_SETS_AT_A_TIME:
        parts = zip(_split(leave), _split(enter), _split(mask), strict=False)
        return torch.cat([scores_of_halves(a, b, layers, options, real) for a, b, real in parts])
    return _scores((leave, enter), layers, options, Layout.of(mask, leave))


def scores_of_inputs(
    first: FirstLayer, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Do the same from the first layer on, whose product is in bfloat16, too."""
    if len(first.alternatives) > settings.GPU_SETS_AT_A_TIME:
        parts = zip(_split(first.individual), _split(first.alternatives), _split(mask), strict=False)
        given = ((FirstLayer(who, what, *first[2:]), real) for who, what, real in parts)
        return torch.cat([scores_of_inputs(layer, layers, options, real) for layer, real in given])
    return _scores(first, layers, options, Layout.of(mask, first.alternatives))


def _split(sets: Tensor | None) -> Iterable[Any]:
    """Split a tensor into as many sets as one launch takes; a mask that is None goes with every part."""
    return repeat(None) if sets is None else torch.split(sets, settings.GPU_SETS_AT_A_TIME)


def _scores(first: Sequence[Tensor], layers: Sequence[Layer], options: PairOptions, places: Layout) -> Tensor:
    inputs = [*first, *chain.from_iterable(layers)]
    device = inputs[0].device
    seeds = seeds_on(device, len(layers))
    if torch.is_grad_enabled() and any(t.requires_grad for t in inputs):
        scores = _Scores.apply(options, places, seeds, len(first), *inputs)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    leave, enter, *_ = _begun(inputs[: len(first)])
    return Network(options, places, seeds, leave, enter, *inputs[len(first) :]).all_scores(keep=False)[0]


def _begun(first: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the halves, and what else is to be kept: the packed inputs of a first layer."""
    if len(first) == HALVES:
        return first
    layer = FirstLayer(*(tensor.detach() for tensor in first))
    packed = packed_inputs(layer)
    return *halves(layer, packed), packed


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: PairOptions, places: Layout, seeds: Tensor, first: int, *inputs: Tensor) -> Tensor:
        leave, enter, *packed = _begun(inputs[:first])
        network = Network(options, places, seeds, leave, enter, *inputs[first:])
        scores, kept = network.all_scores(keep=True)
        ctx.network, ctx.counts = network, (first, len(inputs), len(inputs) + len(packed))
        ctx.save_for_backward(*inputs, *packed, *kept)  # the inputs, so that a change of them meanwhile is noticed
        return scores

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise PcmcNetError(
                "the kernels for pairwise rates on a GPU have a first derivative only: take second ones by torch.func "
                "(hessian, or grad of grad), which computes without these kernels, or on a CPU."
            )
        (first, given, end), saved = ctx.counts, ctx.saved_tensors
        packed, kept = saved[given:end], saved[end:]
        dtype = torch.bfloat16 if packed else torch.float32
        sums = ctx.network.all_gradients(kept, gradient, dtype, shift=ctx.needs_input_grad[-1])
        if not packed:
            return None, None, None, None, *sums.halves.chunk(2, -1), *sums.layers, sums.shift
        wanted = (ctx.needs_input_grad[4], ctx.needs_input_grad[5])
        of_first = first_layer_gradients(FirstLayer(*saved[:first]), packed[0], sums.halves, of_inputs=wanted)
        return None, None, None, None, *of_first, *sums.layers, sums.shift
