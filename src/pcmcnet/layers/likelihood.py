"""Log-likelihood of the choices from probabilities, with torch's operators or one Triton kernel.

Shapes: probabilities (B, J), chosen and weight (B,).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcmcnet.layers.tensor_ops import can_run_kernels


def log_probabilities(p: Tensor, mask: Tensor) -> Tensor:  # (B, J), (B, J) -> (B, J)
    """Return the logarithms of choice probabilities.

    Parameters
    ----------
    p
        Choice probabilities, (B, J).
    mask
        Mask (B, J), True for real alternatives and False for padding.

    Returns
    -------
    Tensor
        Log-probabilities, (B, J). For padding and probabilities of 0, the result is -inf and its gradient is 0, whereas
        ``log`` itself would give a gradient of NaN.
    """
    if can_run_kernels(p) and p.numel() and p.shape == mask.shape and p.dtype in (torch.float32, torch.float64):
        from pcmcnet.layers import likelihood_triton

        return likelihood_triton.log_probabilities(p, mask)
    return plain_log_probabilities(p, mask)


def plain_log_probabilities(p: Tensor, mask: Tensor) -> Tensor:
    """Compute :func:`log_probabilities` with torch's own operators."""
    possible = mask & (p != 0)  # NaN stays NaN
    return p.where(possible, torch.ones_like(p)).log().masked_fill(~possible, -math.inf)


def choice_nll(log_p: Tensor, chosen: Tensor) -> Tensor:  # (B, J), (B,) -> (B,)
    """Return the negative log-likelihood of each choice.

    Parameters
    ----------
    log_p
        Log-probabilities of the alternatives, (B, J).
    chosen
        Positions of the chosen alternatives, (B,).

    Returns
    -------
    Tensor
        Negative log-likelihood of each choice, (B,).
    """
    return -log_p.gather(1, chosen.unsqueeze(1)).squeeze(1)


def mean_nll(log_p: Tensor, chosen: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # (B, J), (B,), (B,)
    """Return the weighted mean NLL and, without gradients, the sum of weighted losses and the sum of weights."""
    if can_run_kernels(log_p) and log_p.dtype == weight.dtype == torch.float32:
        from pcmcnet.layers import likelihood_triton

        return likelihood_triton.mean_nll(log_p, chosen, weight)
    return weighted_mean(choice_nll(log_p, chosen), weight)


def weighted_mean(losses: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # (B,), (B,)
    """Return the weighted mean of losses and, without gradients, the sum of weighted losses and the sum of weights."""
    loss, total = (weight * losses).sum(), weight.sum()
    return loss / total, loss.detach(), total
