"""Logarithms of choice probabilities on a CUDA device, in one kernel each way.

The formula is that of :func:`~pcmcnet.layers.likelihood.log_likelihood.plain_log_probabilities`.
Shapes: p and mask (B, n) -> log p (B, n).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.likelihood.log_likelihood import plain_log_probabilities
from pcmcnet.layers.settings import ELEMENTWISE_BLOCK as BLOCK
from pcmcnet.layers.transforms import pull_back


def log_probabilities(p: Tensor, mask: Tensor) -> Tensor:
    """Take logs; padding and probabilities of 0 get -inf and no gradient."""
    found: Tensor = _LogProbabilities.apply(p, mask)
    return found


def compile_one() -> None:
    """Compile a small kernel, and load it."""
    _ = _log_forward.warmup(torch.float32, torch.bool, torch.float32, 1, C=BLOCK, grid=(1,)).run


class _LogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, mask: Tensor) -> Tensor:
        given, out = p.detach().contiguous(), p.new_empty(p.shape)
        launch(_log_forward, (triton.cdiv(p.numel(), BLOCK),), given, mask.contiguous(), out, p.numel(), C=BLOCK)
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


@triton.jit(do_not_specialize=["count"])
def _log_forward(p, mask, out, count, C: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * C + tl.arange(0, C)
    x = tl.load(p + at, mask=at < count, other=0.0)
    possible = (tl.load(mask + at, mask=at < count, other=0) != 0) & (x != 0)
    tl.store(out + at, tl.where(possible, tl.log(tl.where(possible, x, 1.0)), float("-inf")), mask=at < count)


@triton.jit(do_not_specialize=["count"])
def _log_backward(p, mask, gradient, out, count, C: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * C + tl.arange(0, C)
    x, g = tl.load(p + at, mask=at < count, other=0.0), tl.load(gradient + at, mask=at < count, other=0.0)
    possible = (tl.load(mask + at, mask=at < count, other=0) != 0) & (x != 0)
    tl.store(out + at, tl.where(possible, g / tl.where(possible, x, 1.0), 0.0), mask=at < count)
