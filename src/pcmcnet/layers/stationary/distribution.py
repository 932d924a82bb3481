"""Pairwise rates -> choice probabilities.

Alternatives are the states of a continuous-time Markov chain; ``rates[..., i, j]`` is the rate of leaving i
for j. The choice probabilities p solve p @ G = 0 and sum(p) = 1, where G is ``rates`` with each diagonal
entry set to minus its row sum (Ragain & Ugander, 2016).

The chains are checked and their states put in order (see ``checks``), so that the elimination (see ``elimination``)
meets no division by 0.
Shapes: rates (..., n, n), mask (..., n) -> p (..., n).
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcmcnet.errors import ChainError
from pcmcnet.layers.stationary.checks import require_finite, root_first
from pcmcnet.layers.stationary.gradient import solve_chain
from pcmcnet.layers.stationary.scale import result_type, working_type

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def stationary_distribution(rates: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the stationary distribution of each chain; differentiable in the rates, any number of times.

    The diagonal of ``rates`` is ignored and the time scale does not matter. Some rates may be 0 as long as
    one state can be reached from all others; states that cannot be returned to get probability 0.

    Parameters
    ----------
    rates
        (..., n, n) non-negative rates of leaving i for j, in any floating type. The elimination runs in
        float64; the result has the type of ``rates``, or float32 for a half-precision one.
    mask
        (..., n) true for the real alternatives; padded ones get probability 0 and gradient 0.

    Returns
    -------
    Tensor
        (..., n) probabilities.

    Raises
    ------
    ChainError
        For rates that are no tensor, negative or not finite, for an empty set, and for a chain with two closed classes.

    Examples
    --------
    >>> stationary_distribution(torch.tensor([[0.0, 1.0], [3.0, 0.0]]))
    tensor([0.7500, 0.2500])
    """
    for name, value in (("rates", rates), ("mask", mask)):
        if not (isinstance(value, Tensor) or (value is None and name == "mask")):
            raise ChainError(f"{name}: expected a torch.Tensor, got {type(value).__name__}: use torch.as_tensor.")
    if rates.layout != torch.strided or rates.is_nested or rates.is_meta:
        raise ChainError("rates: expected a dense tensor with numbers, got one that is sparse, nested or meta.")
    if rates.ndim < 2 or rates.shape[-1] != rates.shape[-2] or rates.dtype not in FLOATS:
        raise ChainError(f"rates: expected floating numbers of shape (..., n, n), got {rates.dtype} {(*rates.shape,)}.")
    n, batch = rates.shape[-1], rates.shape[:-2]
    if mask is None:
        mask = rates.new_ones(*batch, n, dtype=torch.bool)
    if mask.shape != rates.shape[:-1]:
        raise ChainError(f"mask: expected shape {(*rates.shape[:-1],)}, got {(*mask.shape,)}.")
    if not rates.numel():
        if n == 0:
            raise ChainError("rates: a choice set needs at least one alternative, got n = 0.")
        return rates.sum(-1).to(result_type(rates.dtype))
    flat, real = rates.reshape(-1, n, n), mask.reshape(-1, n).bool()
    order = root_first(flat.detach(), real, batch)
    if order is not None:
        rows = order.unsqueeze(-1).expand(-1, n, n)
        flat = flat.gather(1, rows).gather(2, rows.mT)
        real = real.gather(1, order)
    p = solve_chain(flat.to(working_type(flat.device)), real).to(result_type(rates.dtype))
    if order is not None:
        p = p.gather(1, order.argsort(1))
    return require_finite(p, batch).reshape(*batch, n)
