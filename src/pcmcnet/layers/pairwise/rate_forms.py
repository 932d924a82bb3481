"""Conversion of pair scores to rates, with torch's operators.

A rate form converts the score f of a pair into a rate:

    relu       q = max(0, f) + epsilon    (the paper's)
    softplus   q = log(1 + exp f) + epsilon
    exp        q = exp f + epsilon

The time scale does not change the stationary distribution, so the rates of a set are divided by the largest rate. For
``exp``, the largest score is subtracted before exponentiating, so that nothing overflows. A floor far below the
relevant rates keeps every chain irreducible. Shapes: scores (B, J, J), mask (B, J) -> rates (B, J, J).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.perceptron import ACTIVATIONS, ActivationRule
from pcmcnet.layers.tensor_ops import can_run_kernels, real_pairs

RateForm = Literal["relu", "softplus", "exp"]

RATE_FLOOR = math.exp(-40)  # relative to the largest rate of the set; keeps probabilities and gradients within float32


def plain_rates(scores: Tensor, mask: Tensor, *, rate: RateForm, epsilon: float) -> Tensor:
    """Return rates, scaled so that the largest rate of a set is about 1: (B, J, J), mask (B, J) -> (B, J, J)."""
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    pairs = real_pairs(mask)
    if rate == "exp":
        top = _largest(scores, pairs)
        if epsilon > 0:
            top = top.clamp(min=math.log(epsilon))
        q = (scores - top).clamp(max=0).exp()
        if epsilon > 0:
            q = q + epsilon * torch.exp(-top)
    else:
        if rate == "softplus" and epsilon == 0:  # below -40 softplus equals exp: shift scores up, or they underflow
            scores = scores - (_largest(scores, pairs) + 40).clamp(max=0)
        q = (F.relu(scores) if rate == "relu" else F.softplus(scores)) + epsilon
        q = q / _largest(q, pairs).clamp(min=torch.finfo(q.dtype).tiny)
    return above_floor(q)


def above_floor(rates: Tensor) -> Tensor:
    """Add a small constant, the floor, to rates of at most 1.

    In an export, the sum is scaled, because ONNX optimisers would remove such a small constant.
    """
    return (rates / RATE_FLOOR + 1) * RATE_FLOOR if torch.compiler.is_exporting() else rates + RATE_FLOOR


def has_elementwise_kernel(scores: Tensor) -> bool:
    """Return True if a kernel can convert the scores (B, J, J) to rates: float32 scores and sets of limited size."""
    if (
        not can_run_kernels(scores) or scores.dtype != torch.float32
    ):  # first: an exported graph must not depend on a shape
        return False
    return scores.numel() > 0 and scores.shape[-1] <= settings.RATES_KERNEL_UP_TO_ALTERNATIVES


def _largest(values: Tensor, pairs: Tensor) -> Tensor:  # (B, J, J), (B, J, J) -> (B, 1, 1)
    """Return the largest value over the pairs of each set (1 if there are no pairs), finite and without a gradient."""
    top = values.detach().masked_fill(~pairs, -math.inf).amax((1, 2), keepdim=True)
    return top.nan_to_num(nan=math.nan, posinf=torch.finfo(top.dtype).max, neginf=1.0)  # NaN stays NaN


# -- options of all implementations of the scores ----------------------------------------------------------------------

Layer = tuple[Tensor, Tensor]  # weight (out, in) and bias (out,)


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """Options for computing the scores of pairs.

    Parameters
    ----------
    activation, dropout
        Activation and dropout probability of the hidden layers. Outside training, the dropout probability is 0.
    dtype
        Dtype of the matrix products and of intermediate values. The last layer has the dtype of its weights.
    kept_bytes
        Maximum number of bytes that the forward pass saves for the backward pass. If None (default), the value depends
        on the device.
    plain_up_to
        On a CPU: maximum number of values (pairs x units) for scoring all pairs in one pass.
    chunk_numbers, least_chunk_numbers
        On a CPU: maximum and minimum number of values in the temporary tensor of a chunk.
    single_pairs_from
        On a CPU: minimum number of units for which chunks consist of single pairs and are shared among threads.
    chunk_pairs
        On a GPU: number of pairs per chunk.
    """

    activation: str
    dropout: float = 0.0
    dtype: torch.dtype = torch.float32
    kept_bytes: int | None = None
    plain_up_to: int = settings.PLAIN_SCORES_UP_TO_NUMBERS
    chunk_numbers: int = settings.CPU_CHUNK_MAX_NUMBERS
    least_chunk_numbers: int = settings.CPU_CHUNK_MIN_NUMBERS
    single_pairs_from: int = settings.SINGLE_PAIRS_FROM_UNITS
    chunk_pairs: int = settings.GPU_CHUNK_PAIRS

    @property
    def rule(self) -> ActivationRule:
        """The activation and its derivative, as torch operators."""
        return ACTIVATIONS[self.activation]

    def budget(self, device: torch.device) -> int:
        """Return the maximum number of bytes that the forward pass on a device saves for the backward pass."""
        if self.kept_bytes is not None:
            return self.kept_bytes
        return _gpu_budget(device) if device.type == "cuda" else settings.CPU_MAX_SAVED_BYTES


@cache
def _gpu_budget(device: torch.device) -> int:
    total = int(torch.cuda.get_device_properties(device).total_memory)
    return max(total // 24, min(settings.GPU_MAX_SAVED_BYTES, total // 4))
