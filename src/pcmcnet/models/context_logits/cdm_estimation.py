"""Fitting strengths and context effects of items to counts, by L-BFGS.

With counts C_iS of the distinct sets, strengths s (n,) and context effects c (n, n), 0 on the diagonal, it minimises

    - sum_S sum_{i in S} C_iS log P(i | S)  +  ridge / 2 sum_ij c_ij^2          v_i(S) = s_i + sum_{j in S} c_ij

and a ridge on s, which does no more than centre it unless the logit itself has learnt one (``held``). All of it is
convex, as v is linear in s and c. So every search ends at the same probabilities, and with a ridge at the same effects.
Of rank r, c_ij = t_i . k_j off the diagonal, the same function of t and k (n, r) is not convex; its search begins at
the best approximation of that rank to the full effects. An infinite ridge leaves the logit of the strengths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.data.ragged import log_softmax_by_set
from pcmcnet.models.items.lbfgs import lbfgs
from pcmcnet.models.items.newton import centring_ridge, newton
from pcmcnet.models.items.universe import DistinctSets, PaddedSets


class Effects(NamedTuple):
    """Strengths (n,) and context effects (n, n) of column items on row items, and how the search went."""

    strengths: Floats
    context: Floats
    iterations: int = 0
    converged: bool = True


def log_p(sets: DistinctSets, strengths: Floats, context: Floats) -> Floats:  # -> (M,)
    """Log-probabilities of the items of distinct sets."""
    if not len(sets.items):
        return np.empty(0)
    left, right = sets.pairs()
    effects = context[sets.items[left], sets.items[right]]
    v = strengths[sets.items] + np.bincount(left, weights=effects, minlength=len(sets.items))
    return log_softmax_by_set(v, sets.offsets)


def logit(sets: DistinctSets, n: int, held: float = 0.0) -> Effects:
    """The limit of an infinite ridge: no context at all."""
    found = newton(sets, n, ridge=centring_ridge(sets, held))
    return Effects(found.strengths, np.zeros((n, n)), found.iterations, found.converged)


def estimate(
    sets: DistinctSets, start: Effects, ridge: float, held: float, *, rank: int | None, max_iter: int, tolerance: float
) -> Effects:
    """Minimise from a start; ``rank`` None is the full form."""
    n, loss = len(start.strengths), objective(sets, len(start.strengths), ridge, held)

    def minimum(context: Callable[[Tensor], Tensor], strengths: Floats, begin: Floats) -> Effects:
        found = lbfgs(
            lambda x: loss(x[:n], context(x[n:])),
            np.concatenate([strengths, begin.ravel()]),
            max_iter=max_iter,
            tolerance=tolerance,
        )
        c: Floats = context(torch.from_numpy(found.at[n:])).numpy() * (1 - np.eye(n))
        return Effects(found.at[:n], c, found.iterations, found.converged)

    full = minimum(lambda x: x.reshape(n, n), start.strengths, start.context)
    if rank is None:
        return full
    u, d, v = np.linalg.svd(full.context)

    def product(x: Tensor) -> Tensor:  # (2 n r,) -> (n, n)
        targets, contexts = x.reshape(2, n, -1)
        effects: Tensor = targets @ contexts.T
        return effects

    factors = np.stack([f[:, :rank] * np.sqrt(d[:rank]) for f in (u, v.T)])  # (2, n, r)
    return minimum(product, full.strengths, factors)


def objective(sets: DistinctSets, n: int, ridge: float, held: float = 0.0) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what is minimised, as a mean over choices, as a function of strengths (n,) and effects (n, n)."""
    batches, total = list(sets.batches()), float(sets.counts.sum())
    apart, centring = 1 - torch.eye(n, dtype=torch.float64), centring_ridge(sets, held)

    def loss(s: Tensor, c: Tensor) -> Tensor:
        effects = c * apart
        likelihood = torch.stack([_log_likelihood(s, effects, batch) for batch in batches]).sum()
        penalty = ridge / 2 * effects.square().sum() + centring / 2 * s.square().sum()
        return (penalty - likelihood) / total

    return loss


def _log_likelihood(s: Tensor, effects: Tensor, batch: PaddedSets) -> Tensor:  # -> ()
    pairs = effects[batch.items.unsqueeze(2), batch.items.unsqueeze(1)]  # (B, J, J)
    v = s[batch.items] + (pairs * batch.mask.unsqueeze(1)).sum(2)
    found = torch.log_softmax(v.masked_fill(~batch.mask, -torch.inf), dim=1)
    return (batch.counts * found.masked_fill(~batch.mask, 0)).sum()
