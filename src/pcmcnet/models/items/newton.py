"""Log-strengths of the logit of items, by Newton's method, with or without a ridge.

    maximise   sum_S sum_i C_iS log P(i | S)  -  ridge / 2 sum_i s_i^2         P(i | S) = exp s_i / sum_{j in S} exp s_j

The log-likelihood is concave in the log-strengths s. With n_S = sum_i C_iS its gradient is sum_S (C_iS - n_S p_iS) and
minus its Hessian is sum_S n_S (diag p_S - p_S p_S'), so Newton's method takes a few steps and gives the standard errors
on the way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data.ragged import log_softmax_by_set, spread, sum_by_set
from pcmcnet.models.items.universe import DistinctSets

HALVINGS = 50
CENTRING = 1e-6  # of the largest count


class Estimate(NamedTuple):
    """Strengths (n,), the Hessian (n, n) of minus the objective there, and how the search went."""

    strengths: Floats
    hessian: Floats
    iterations: int
    converged: bool


def newton(
    sets: DistinctSets,
    n: int,
    *,
    reference: int | None = None,
    ridge: float = 0.0,
    start: Floats | None = None,
    max_iter: int = 200,
    tolerance: float = 1e-12,
) -> Estimate:
    """Maximise the log-likelihood of the counts, less ridge / 2 times the squares of the log-strengths.

    The log-strength of ``reference`` stays 0. Without one, the ridge centres the log-strengths of items that share
    sets, and leaves items in no set at 0.
    """
    # 1. What does not change from step to step: choices from each set, and the cells of the Hessian.
    free = np.arange(n) != reference
    offered = spread(sum_by_set(sets.counts, sets.offsets), sets.offsets)  # (M,) n_S
    left, right = sets.pairs()
    cell = sets.items[left] * n + sets.items[right]

    def value(s: Floats) -> float:
        return float(sets.counts @ log_softmax_by_set(s[sets.items], sets.offsets)) - ridge / 2 * float(s @ s)

    def derivatives(s: Floats) -> tuple[Floats, Floats]:
        p = np.exp(log_softmax_by_set(s[sets.items], sets.offsets))
        slope = np.bincount(sets.items, weights=sets.counts - offered * p, minlength=n) - ridge * s
        shared = np.bincount(cell, weights=offered[left] * p[left] * p[right], minlength=n * n)
        hessian: Floats = -shared.reshape(n, n).astype(np.float64)
        hessian[np.diag_indices(n)] = ridge - hessian.sum(1)  # rows of the likelihood's part sum to 0
        return slope, hessian

    # 2. Newton's steps.
    strengths, total = np.zeros(n) if start is None else start, max(float(sets.counts.sum()), 1.0)
    for iteration in range(1, max_iter + 1):
        slope, hessian = derivatives(strengths)
        step = np.zeros(n)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], slope[free])
        gain = float(slope @ step)  # twice what a quadratic would gain
        if gain <= tolerance * total:
            strengths = strengths + step  # Newton's last step squares the error
            return Estimate(strengths, derivatives(strengths)[1], iteration, True)
        now = value(strengths)  # halve a step that leads too far (Armijo)
        for _ in range(HALVINGS):
            if value(strengths + step) >= now + 1e-4 * float(slope @ step):
                break
            step = step / 2
        strengths = strengths + step
    return Estimate(strengths, derivatives(strengths)[1], max_iter, False)


def centring_ridge(sets: DistinctSets, ridge: float = 0.0) -> float:
    """Return a ridge that centres log-strengths without a reference, and does next to nothing else than was asked."""
    return max(ridge, CENTRING * max(float(sets.counts.max(initial=0.0)), 1.0))
