"""Log stationary distribution from pair scores f, for rates exp f, with a separate scale for each state.

The rates of leaving state i are exp f_ij = exp(m_i) r_ij, with m_i the largest f_ij. Dividing the rates of leaving i by
exp(m_i) multiplies the probability of i by exp(m_i), before normalisation. So if p is the stationary distribution of
the rates r, which are at most 1 in every row, the log stationary distribution of the rates exp f is

    log p_i - m_i + a constant that makes the probabilities sum to 1.

Other rate forms divide all rates of a set by the largest rate. Rates far below the largest rate then vanish below the
floor, together with their gradients, so that a network that separates alternatives well could stop learning. Shapes:
scores (B, J, J), mask (B, J) -> log p (B, J).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pcmcnet.layers.likelihood import plain_log_probabilities
from pcmcnet.layers.pairwise.rate_forms import RATE_FLOOR, above_floor, has_elementwise_kernel
from pcmcnet.layers.stationary import solve_chain
from pcmcnet.layers.stationary.elimination import result_type, working_type
from pcmcnet.layers.tensor_ops import real_pairs

ChainSolver = Callable[[Tensor, Tensor], Tensor]  # rates (B, J, J), mask (B, J) -> p (B, J)


def log_stationary_distribution(scores: Tensor, mask: Tensor, solve: ChainSolver = solve_chain) -> Tensor:
    """Return the log stationary distribution of the rates exp(scores), (B, J, J) -> (B, J), with -inf for padding."""
    if has_elementwise_kernel(scores):
        from pcmcnet.layers.stationary import log_distribution_triton

        rates, scales = log_distribution_triton.state_scaled_rates(scores, mask, RATE_FLOOR)
        return log_distribution_triton.unscaled_log_probabilities(solve(rates, mask), scales, mask)
    dtype, scores = scores.dtype, scores.to(working_type(scores.device))
    scales = log_state_scales(scores, mask)
    return unscaled_log_probabilities(solve(state_scaled_rates(scores, scales), mask), scales, mask).to(
        result_type(dtype)
    )


def log_state_scales(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the largest score of each row (B, J), or 0 for a row without pairs, finite and without a gradient."""
    top = scores.detach().masked_fill(~real_pairs(mask), -math.inf).amax(2)
    return top.nan_to_num(nan=math.nan, posinf=torch.finfo(top.dtype).max, neginf=0.0)  # NaN stays NaN


def state_scaled_rates(scores: Tensor, scales: Tensor) -> Tensor:
    """Return rates, scaled so that the largest rate of a row is about 1: (B, J, J), log-scales (B, J) -> (B, J, J)."""
    return above_floor((scores - scales.unsqueeze(2)).clamp(max=0).exp())


def unscaled_log_probabilities(p: Tensor, scales: Tensor, mask: Tensor) -> Tensor:
    """Return the log-probabilities of the unscaled chain, given the distribution p of the scaled chain: (B, J) each."""
    logs = plain_log_probabilities(p, mask) - scales
    return logs.log_softmax(1).masked_fill(~mask, -math.inf)
