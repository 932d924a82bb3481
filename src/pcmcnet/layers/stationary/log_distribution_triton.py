"""Scaled rates and log-probabilities for ``log_stationary_distribution`` on a CUDA device, with one kernel per pass.

Shapes: scores (B, n, n), mask (B, n) -> rates (B, n, n), scales (B, n); p, scales and mask (B, n) -> log p (B, n).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.kernel_launch import launch, wait_for_earlier
from pcmcnet.layers.pairwise.triton.pair_layout import columns
from pcmcnet.layers.settings import ELEMENTWISE_BLOCK as BLOCK
from pcmcnet.layers.stationary import log_distribution
from pcmcnet.layers.tensor_ops import pull_back

LOG_BLOCK = 256  # numbers per block; smaller than BLOCK, as each set has only n logarithms. Not tuned
LARGEST = tl.constexpr(torch.finfo(torch.float32).max)


def state_scaled_rates(scores: Tensor, mask: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return rates, scaled so that the largest rate of each row is about 1, and the log-scale of each row."""
    rates, scales = _RowRates.apply(scores, mask, floor)
    return rates, scales


def unscaled_log_probabilities(p: Tensor, scales: Tensor, mask: Tensor) -> Tensor:
    """Return the log-probabilities of the unscaled chain, with -inf for padding."""
    log_p: Tensor = _UnscaledLogs.apply(p, scales, mask)
    return log_p


def _blocks(rows: int, n: int, size: int = BLOCK) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid for rows of n numbers, and the shape of a block of about ``size`` numbers."""
    width = columns(n)
    rows_per_block = max(size // width, 1)
    return (triton.cdiv(rows, rows_per_block),), {"R": rows_per_block, "C": width}


class _RowRates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, floor: float) -> tuple[Tensor, Tensor]:
        sets, n, _ = scores.shape
        values, out, level = scores.detach().contiguous(), scores.new_empty(scores.shape), scores.new_empty(sets, n)
        grid, shape = _blocks(sets * n, n)
        launch(_row_rates_forward, grid, values, mask.contiguous(), out, level, sets * n, n, floor, **shape)
        ctx.save_for_backward(scores, level)
        ctx.mark_non_differentiable(level)
        ctx.set_materialize_grads(False)
        return out, level

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, None, None]:
        scores, level = ctx.saved_tensors
        if gradient is None:
            return None, None, None
        if torch.is_grad_enabled():  # create_graph=True
            return (
                pull_back(partial(log_distribution.state_scaled_rates, scales=level), [scores], gradient)[0],
                None,
                None,
            )
        scores, out = scores.contiguous(), torch.empty_like(scores, memory_format=torch.contiguous_format)
        rows, n = level.numel(), scores.shape[-1]
        grid, shape = _blocks(rows, n)
        launch(_row_rates_backward, grid, scores, level, gradient.contiguous(), out, rows, n, **shape)
        return out, None, None


class _UnscaledLogs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, law: Tensor, level: Tensor, mask: Tensor) -> Tensor:
        out, (grid, shape) = torch.empty_like(law), _blocks(*law.shape, size=LOG_BLOCK)
        launch(_logs_forward, grid, law.detach().contiguous(), level, mask.contiguous(), out, *law.shape, **shape)
        ctx.save_for_backward(law, level, mask, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        law, level, mask, logs = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            plain = partial(log_distribution.unscaled_log_probabilities, scales=level, mask=mask)
            return pull_back(plain, [law], gradient)[0], None, None
        out, (grid, shape) = torch.empty_like(law), _blocks(*law.shape, size=LOG_BLOCK)
        launch(_logs_backward, grid, law.contiguous(), logs, gradient.contiguous(), out, *law.shape, **shape)
        return out, None, None


@triton.jit(do_not_specialize=["rows", "n", "floor"])
def _row_rates_forward(scores, mask, out, level, rows, n, floor, R: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    r, j = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R), tl.arange(0, C)
    b = r // n
    here = (r < rows)[:, None] & (j < n)[None, :]
    at = r[:, None] * n + j[None, :]
    s = tl.load(scores + at, mask=here, other=0.0)
    real = tl.load(mask + b[:, None] * n + j[None, :], mask=here, other=0) != 0
    pairs = real & (tl.load(mask + r, mask=r < rows, other=0) != 0)[:, None] & ((r - b * n)[:, None] != j[None, :])
    top = tl.max(tl.where(pairs & (s == s), s, float("-inf")), 1)  # NaN stays NaN
    top = tl.where(top == float("-inf"), 0.0, tl.minimum(top, LARGEST))
    q = tl.exp(tl.minimum(s - top[:, None], 0.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + at, q + floor, mask=here)
    tl.store(level + r, top, mask=r < rows)


@triton.jit(do_not_specialize=["rows", "n"])
def _row_rates_backward(scores, level, gradient, out, rows, n, R: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    r, j = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R), tl.arange(0, C)
    here = (r < rows)[:, None] & (j < n)[None, :]
    at = r[:, None] * n + j[None, :]
    s, top = tl.load(scores + at, mask=here, other=0.0), tl.load(level + r, mask=r < rows, other=0.0)[:, None]
    slope = tl.where(s <= top, tl.exp(s - top), 0.0)
    tl.store(out + at, slope * tl.load(gradient + at, mask=here, other=0.0), mask=here)


@triton.jit(do_not_specialize=["sets", "n"])
def _logs_forward(law, level, mask, out, sets, n, R: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    b, j = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    at, here = b * n + j, (b < sets) & (j < n)
    p = tl.load(law + at, mask=here, other=0.0)
    possible = (tl.load(mask + at, mask=here, other=0) != 0) & (p != 0)
    x = tl.log(tl.where(possible, p, 1.0)) - tl.load(level + at, mask=here, other=0.0)
    x = tl.where(possible, x, float("-inf"))
    top = tl.max(x, 1)[:, None]
    top = tl.where(top == float("-inf"), 0.0, top)
    x = x - top
    tl.store(out + at, x - tl.log(tl.sum(tl.exp(x), 1))[:, None], mask=here)


@triton.jit(do_not_specialize=["sets", "n"])
def _logs_backward(law, logs, gradient, out, sets, n, R: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    b, j = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    at, here = b * n + j, (b < sets) & (j < n)
    x = tl.load(logs + at, mask=here, other=float("-inf"))
    possible = x != float("-inf")
    g = tl.where(possible, tl.load(gradient + at, mask=here, other=0.0), 0.0)
    by_logs = g - tl.exp(x) * tl.sum(g, 1)[:, None]
    p = tl.load(law + at, mask=here & possible, other=1.0)
    tl.store(out + at, tl.where(possible, by_logs / p, 0.0), mask=here)
