"""Log-probabilities and the mean NLL on a CUDA device: one kernel for each forward and each backward pass.

The formulas are the same as in :mod:`~pcmcnet.layers.likelihood`.
Shapes: p and mask (B, n) -> log p (B, n); log p (B, n), chosen and weight (B,) -> sums (2,).
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
from pcmcnet.layers.likelihood import choice_nll, plain_log_probabilities, weighted_mean
from pcmcnet.layers.settings import ELEMENTWISE_BLOCK as BLOCK
from pcmcnet.layers.tensor_ops import pull_back


def log_probabilities(p: Tensor, mask: Tensor) -> Tensor:
    """Return log-probabilities, with -inf and a gradient of 0 for padding and for probabilities of 0."""
    log_p: Tensor = _LogProbabilities.apply(p, mask)
    return log_p


def compile_small_kernel() -> None:
    """Compile and load a small kernel, which also loads Triton's compiler."""
    _ = _log_forward.warmup(torch.float32, torch.bool, torch.float32, 1, C=BLOCK, grid=(1,)).run


class _LogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, mask: Tensor) -> Tensor:
        values, out = p.detach().contiguous(), p.new_empty(p.shape)
        launch(_log_forward, (triton.cdiv(p.numel(), BLOCK),), values, mask.contiguous(), out, p.numel(), C=BLOCK)
        ctx.save_for_backward(p, mask)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        p, mask = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return pull_back(partial(plain_log_probabilities, mask=mask), [p], gradient)[0], None
        p, mask = p.contiguous(), mask.contiguous()
        out = torch.empty_like(p)
        launch(_log_backward, (triton.cdiv(p.numel(), BLOCK),), p, mask, gradient.contiguous(), out, p.numel(), C=BLOCK)
        return out, None


def mean_nll(log_p: Tensor, chosen: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weighted mean NLL, the sum of weighted losses and the sum of weights."""
    mean, sums = _MeanLoss.apply(log_p, chosen, weight)
    return mean, sums[0], sums[1]


class _MeanLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_p: Tensor, chosen: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        sets, n = log_p.shape
        mean, sums = log_p.new_empty(()), log_p.new_empty(2)
        launch(_mean_forward, (1,), log_p.detach().contiguous(), chosen, weight, mean, sums, sets, n, C=BLOCK)
        ctx.save_for_backward(log_p, chosen, weight, sums)
        ctx.mark_non_differentiable(sums)
        ctx.set_materialize_grads(False)
        return mean, sums

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor, None, None]:
        log_p, chosen, weight, sums = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            plain = pull_back(lambda x: weighted_mean(choice_nll(x, chosen), weight)[0], [log_p], gradient)
            return plain[0], None, None
        sets, n = log_p.shape
        out = torch.empty_like(log_p, memory_format=torch.contiguous_format)
        arguments = (gradient, chosen, weight, sums, out, sets * n, n)
        launch(_mean_backward, (triton.cdiv(sets * n, BLOCK),), *arguments, C=BLOCK)
        return out, None, None


@triton.jit(do_not_specialize=["sets", "n"])
def _mean_forward(log_p, chosen, weight, mean, sums, sets, n, C: tl.constexpr):
    """Compute the sum of weighted losses, the sum of weights and the weighted mean over all sets, in one program."""
    wait_for_earlier()
    loss, total = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for begin in range(0, sets, C):
        b = (begin + tl.arange(0, C)).to(tl.int64)
        w = tl.load(weight + b, mask=b < sets, other=0.0)
        loss -= w * tl.load(log_p + b * n + tl.load(chosen + b, mask=b < sets, other=0), mask=b < sets, other=0.0)
        total += w
    tl.store(sums, tl.sum(loss, 0))
    tl.store(sums + 1, tl.sum(total, 0))
    tl.store(mean, tl.sum(loss, 0) / tl.sum(total, 0))


@triton.jit(do_not_specialize=["count", "n"])
def _mean_backward(gradient, chosen, weight, sums, out, count, n, C: tl.constexpr):
    wait_for_earlier()
    at = tl.program_id(0).to(tl.int64) * C + tl.arange(0, C)
    b = at // n
    is_chosen = tl.load(chosen + b, mask=at < count, other=-1) == at - b * n
    slope = -tl.load(gradient) / tl.load(sums + 1) * tl.load(weight + b, mask=at < count, other=0.0)
    tl.store(out + at, tl.where(is_chosen, slope, 0.0), mask=at < count)


@triton.jit(do_not_specialize=["count"])
def _log_forward(p, mask, out, count, C: tl.constexpr):
    wait_for_earlier()
    at = tl.program_id(0).to(tl.int64) * C + tl.arange(0, C)
    x = tl.load(p + at, mask=at < count, other=0.0)
    possible = (tl.load(mask + at, mask=at < count, other=0) != 0) & (x != 0)
    tl.store(out + at, tl.where(possible, tl.log(tl.where(possible, x, 1.0)), float("-inf")), mask=at < count)


@triton.jit(do_not_specialize=["count"])
def _log_backward(p, mask, gradient, out, count, C: tl.constexpr):
    wait_for_earlier()
    at = tl.program_id(0).to(tl.int64) * C + tl.arange(0, C)
    x, g = tl.load(p + at, mask=at < count, other=0.0), tl.load(gradient + at, mask=at < count, other=0.0)
    possible = (tl.load(mask + at, mask=at < count, other=0) != 0) & (x != 0)
    tl.store(out + at, tl.where(possible, g / tl.where(possible, x, 1.0), 0.0), mask=at < count)
