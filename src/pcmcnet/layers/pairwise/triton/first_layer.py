"""The first layer of the pair network, which is linear: both halves by one thin product in bfloat16.

    leave_bi = Wa S_bi + W0 I_b        enter_bj = Wb S_bj + c

A number x is given as the two bfloat16 that are nearest to x and to what is left of it, which keeps 16 bits: features
of alternatives may differ by little. Weights have the 8 bits that they have in the hidden layers. So the columns are

    [I, rest of I, S, rest of S, 1]  by  [W0, W0, Wa, Wa, 0]  and  [0, 0, Wb, Wb, c].

Shapes: individual I (B, D0), alternatives S (B, J, D) -> leave and enter (B, J, H).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.overlap import wait_for_earlier


class FirstLayer(NamedTuple):
    """Inputs and weights of the first layer."""

    individual: Tensor  # (B, D0), where D0 may be 0
    alternatives: Tensor  # (B, J, D)
    who: Tensor  # (H, D0)
    leave: Tensor  # (H, D)
    enter: Tensor  # (H, D)
    bias: Tensor  # (H,)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """J, D0, D, and the number of columns: a multiple of 8, as products are fastest with."""
        known, width = self.individual.shape[1], self.alternatives.shape[2]
        return self.alternatives.shape[1], known, width, (2 * (known + width) + 8) // 8 * 8


def packed_inputs(given: FirstLayer) -> Tensor:
    """Return the inputs (B J, columns)."""
    places, known, width, columns = given.shape
    rows = given.alternatives.shape[0] * places
    out = given.leave.new_empty(rows, columns, dtype=torch.bfloat16)
    inputs = (given.individual.contiguous(), given.alternatives.contiguous())
    shape = {"R": 8, "C": triton.next_power_of_2(columns), "num_warps": 4}
    launch(_pack_inputs, (triton.cdiv(rows, 8),), *inputs, out, rows, places, known, width, columns, **shape)
    return out


def halves(given: FirstLayer, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return leave and enter, side by side in memory."""
    places, known, width, columns = given.shape
    units = len(given.bias)
    weights = given.leave.new_empty(2 * units, columns, dtype=torch.bfloat16)
    shape = {"R": 8, "C": triton.next_power_of_2(columns), "num_warps": 4}
    layer = tuple(t.contiguous() for t in given[2:])
    launch(_pack_weights, (triton.cdiv(2 * units, 8),), *layer, weights, units, known, width, columns, **shape)
    both = torch.mm(inputs, weights.t(), out_dtype=torch.float32).view(-1, places, 2 * units)
    return both[..., :units], both[..., units:]


def first_layer_gradients(
    given: FirstLayer, inputs: Tensor, d_halves: Tensor, *, of_inputs: tuple[bool, bool]
) -> tuple[Tensor | None, ...]:
    """Turn the gradient by both halves side by side (B, J, 2 H), in bfloat16, into those by all in ``given``."""
    _, known, width, columns = given.shape
    units, both = len(given.bias), d_halves.flatten(0, 1)
    sums = torch.mm(both.t(), inputs, out_dtype=torch.float32)
    layer = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in given[2:]]
    shape = {"R": 8, "C": triton.next_power_of_2(max(known, width)), "num_warps": 4}
    launch(_unpack_weights, (triton.cdiv(units, 8),), sums, *layer, units, known, width, columns, **shape)
    d_individual = d_alternatives = None
    if of_inputs[0]:
        d_individual = d_halves[..., :units].sum(1, dtype=torch.float32) @ given.who
    if of_inputs[1]:
        weights = torch.cat([given.leave, given.enter]).to(both.dtype)
        d_alternatives = torch.mm(both, weights, out_dtype=torch.float32).view_as(given.alternatives)
    return d_individual, d_alternatives, *layer


@triton.jit(do_not_specialize=["rows", "J"])
def _pack_inputs(individual, alternatives, out, rows, J, D0, D, K, R: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    r, c = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    real = (r < rows) & (c < K)
    s = c - 2 * D0
    rest = tl.where(c < 2 * D0, c >= D0, s >= D)
    x = tl.load(individual + r // J * D0 + c - tl.where(rest, D0, 0), mask=real & (c < 2 * D0), other=0.0)
    x += tl.load(alternatives + r * D + s - tl.where(rest, D, 0), mask=real & (s >= 0) & (s < 2 * D), other=0.0)
    x = tl.where(s == 2 * D, 1.0, x)
    near = x.to(tl.bfloat16)
    value = tl.where(rest & (s < 2 * D), (x - near.to(tl.float32)).to(tl.bfloat16), near)
    tl.store(out + r * K + c, value, mask=real)


@triton.jit
def _pack_weights(who, leave, enter, bias, out, H, D0, D, K, R: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    r, c = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    real, entered = (r < 2 * H) & (c < K), r >= H
    u, s = tl.where(entered, r - H, r), c - 2 * D0
    at = u * D + s - tl.where(s >= D, D, 0)
    own = real & (s >= 0) & (s < 2 * D)
    w = tl.load(who + u * D0 + c - tl.where(c >= D0, D0, 0), mask=real & (c < 2 * D0) & (r < H), other=0.0)
    w += tl.load(leave + at, mask=own & (r < H), other=0.0)
    w += tl.load(enter + at, mask=own & entered, other=0.0)
    w += tl.load(bias + u + c * 0, mask=real & entered & (s == 2 * D), other=0.0)
    tl.store(out + r * K + c, w.to(tl.bfloat16), mask=real)


@triton.jit
def _unpack_weights(sums, who, leave, enter, bias, H, D0, D, K, R: tl.constexpr, C: tl.constexpr):
    """Do the reverse for gradients: the columns of a number and of its rest have one weight."""
    wait_for_earlier()
    u, c = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    known, own, at = (u < H) & (c < D0), (u < H) & (c < D), sums + u * K + c
    tl.store(who + u * D0 + c, tl.load(at, mask=known) + tl.load(at + D0, mask=known), mask=known)
    at += 2 * D0
    tl.store(leave + u * D + c, tl.load(at, mask=own) + tl.load(at + D, mask=own), mask=own)
    at += H * K
    tl.store(enter + u * D + c, tl.load(at, mask=own) + tl.load(at + D, mask=own), mask=own)
    tl.store(bias + u + c, tl.load(at + 2 * D, mask=(u < H) & (c == 0)), mask=(u < H) & (c == 0))
