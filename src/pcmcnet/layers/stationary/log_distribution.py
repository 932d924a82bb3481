"""Scores of pairs -> log-probabilities, where rates are exp f: the law of a chain whose states differ by any factor.

A state i is left by rates exp f_ij = exp(m_i) r_ij, m_i the largest f_ij. Dividing them by exp(m_i) multiplies the
state's probability by it. So with p the law of the rates r, which are at most 1 in every row,

    log p_i - m_i, but for a constant that makes probabilities sum to 1,

is that of exp f. In units of the largest rate of the whole set, as other forms have them, rates far below it are lost
in the floor, and so are their gradients: a network that tells alternatives apart well may come to that, and stay.
Shapes: scores (B, J, J), mask (B, J) -> log p (B, J).
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

ChainSolver = Callable[[Tensor, Tensor], Tensor]  # rates (B, J, J), mask (B, J) -> law (B, J)


def log_stationary_distribution(scores: Tensor, mask: Tensor, solve: ChainSolver = solve_chain) -> Tensor:
    """Return log-probabilities of the alternatives; padding gets -inf."""
    if has_elementwise_kernel(scores):
        from pcmcnet.layers.stationary import log_distribution_triton

        rates, level = log_distribution_triton.state_scaled_rates(scores, mask, RATE_FLOOR)
        return log_distribution_triton.unscaled_log_probabilities(solve(rates, mask), level, mask)
    given, scores = scores, scores.to(working_type(scores.device))
    level = log_state_scales(scores, mask)
    return unscaled_log_probabilities(solve(state_scaled_rates(scores, level), mask), level, mask).to(
        result_type(given.dtype)
    )


def log_state_scales(scores: Tensor, mask: Tensor) -> Tensor:
    """(B, J) the largest score of each row, finite and a constant to the gradient; 0 where there is no pair."""
    top = scores.detach().masked_fill(~real_pairs(mask), -math.inf).amax(2)
    return top.nan_to_num(nan=math.nan, posinf=torch.finfo(top.dtype).max, neginf=0.0)  # a NaN stays one


def state_scaled_rates(scores: Tensor, level: Tensor) -> Tensor:
    """Turn scores into rates whose largest in each row is about 1."""
    return above_floor((scores - level.unsqueeze(2)).clamp(max=0).exp())


def unscaled_log_probabilities(law: Tensor, level: Tensor, mask: Tensor) -> Tensor:
    """Return log-probabilities from the law of rates in units of each row's level."""
    logs = plain_log_probabilities(law, mask) - level
    return logs.log_softmax(1).masked_fill(~mask, -math.inf)
