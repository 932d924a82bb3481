"""Thurstone's Case V: independent normal utilities with equal variances (Thurstone, 1927).

Item i has the utility mu_i + Z_i with Z_i standard normal, and the item with the largest utility is chosen. For two
items, P(i | {i, j}) = Phi((mu_i - mu_j) / sqrt 2). For any set, the probability is an integral over the utility x of i:

    P(i | S) = integral of phi(x - mu_i) prod_{j in S, j != i} Phi(x - mu_j) dx.

The integrand is analytic and decays as a Gaussian, so the trapezoidal rule converges faster than any power of its step.
One grid serves all items of a set: the product without i is the full product divided by Phi(x - mu_i), so each node
needs n terms instead of n^2. The sums are computed on the log scale, so that small probabilities keep their relative
accuracy. Each integrand is log-concave with a curvature of at least 1, and its mode is between (min mu + max mu) / 2
and max mu + sqrt(2 log n), so the part that is more than TAIL_DEVIATIONS away from this interval contributes less than
1e-16 of the total. A product of n factors varies on a scale of 1 / sqrt n, which determines the step. Shapes: mu (B,
J), mask (B, J) -> log-probabilities (B, J).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import ArtifactError
from pcmcnet.layers.threads import one_thread_if_small
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.items.strengths import FittedStrengths, StrengthEstimate, StrengthModel, lbfgs
from pcmcnet.models.items.universe import DistinctSets, PaddedSets

TAIL_DEVIATIONS = 8.5  # standard deviations by which the grid extends beyond the modes
GRID_STEP = 0.8  # step of the grid, times sqrt n
WORK_PER_ITEM = 1000  # approximate number of multiplications per item of a set
MAX_STRENGTH = 100.0  # bound on strengths, larger than any that a finite sample supports


class Thurstone(StrengthModel):
    """Thurstone's Case V model: one mean utility per item, with independent standard normal errors.

    The item with the largest utility is chosen. Items are identified by the labels of the alternatives; features are
    not used.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> table = {"game": [1, 1, 2, 2, 3, 3, 4, 4], "team": ["a", "b"] * 4, "won": [1, 0, 1, 0, 1, 0, 0, 1]}
    >>> data = ChoiceData.from_long(table, choice_set="game", chosen="won", alternative="team")
    >>> Thurstone(smoothing=0).fit(data).predict_proba(data)[:2].round(6)
    array([0.75, 0.25])
    """

    name = "thurstone"
    precision = math.pi**2 / 6

    def _estimate(self, sets: DistinctSets, n: int, fixed: Ints, ridge: float) -> StrengthEstimate:
        # 1. Define the objective as a function of all strengths except the fixed ones.
        free = np.setdiff1d(np.arange(n), fixed)
        free_index, total = torch.from_numpy(free), float(sets.counts.sum())
        batches = list(sets.batches())

        def nll(values: Tensor) -> Tensor:  # (free,) -> ()
            mu = torch.zeros(n, dtype=torch.float64).index_put((free_index,), values)
            penalty = ridge / 2 * (mu - mu.mean()).square().sum()
            return (torch.stack([_nll(mu[batch.items], batch) for batch in batches]).sum() + penalty) / total

        # 2. Estimate the strengths, and compute the Hessian for their standard errors.
        config, strengths = self.config, np.zeros(n)
        with one_thread_if_small(WORK_PER_ITEM * len(sets.items)):
            minimum = lbfgs(
                nll, strengths[free], max_iter=config.max_iter, tolerance=config.tolerance, bound=MAX_STRENGTH
            )
            strengths[free] = minimum.x
            hessian = sum((_hessian(strengths, batch) for batch in batches), ridge * (np.eye(n) - 1 / n))
        return StrengthEstimate(strengths, hessian, minimum.iterations, minimum.converged)

    @torch.no_grad()
    def _item_log_p(self, sets: DistinctSets, strengths: Floats) -> Floats:
        out, mu = np.zeros(len(sets.items)), torch.from_numpy(strengths)
        with one_thread_if_small(WORK_PER_ITEM * len(sets.items)):
            for batch in sets.batches():
                log_p = normal_log_p(mu[batch.items], batch.mask)
                out[batch.flat[batch.mask.numpy()]] = log_p[batch.mask].numpy()
        return out

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedStrengths:
        state = super()._restore(files, record, table)
        if np.abs(state.strengths).max() > 2 * MAX_STRENGTH:  # the number of nodes grows with their range
            raise ArtifactError("the saved strengths exceed the range of fitted strengths: save the model again.")
        return state


def _nll(mu: Tensor, batch: PaddedSets) -> Tensor:  # (B, J) -> ()
    """Return the negative log-likelihood of the counts in a batch with mean utilities ``mu`` (B, J)."""
    return -(batch.counts * normal_log_p(mu, batch.mask).masked_fill(~batch.mask, 0)).sum()


def _hessian(strengths: Floats, batch: PaddedSets) -> Floats:  # (n,) -> (n, n)
    """Return the Hessian of :func:`_nll` for a batch.

    Utilities of different sets do not interact, so J backward passes give the second derivatives of all sets at once.
    """
    n, J = len(strengths), batch.items.shape[1]
    mu = torch.from_numpy(strengths)[batch.items].requires_grad_()
    (slope,) = torch.autograd.grad(_nll(mu, batch), mu, create_graph=True)
    rows = [torch.autograd.grad(slope[:, k].sum(), mu, retain_graph=True)[0] for k in range(J)]
    cell = batch.items.unsqueeze(2) * n + batch.items.unsqueeze(1)  # (B, J, J); padding adds 0
    values = torch.stack(rows, dim=1).masked_fill(~batch.mask.unsqueeze(2), 0)
    flat = np.bincount(cell.numpy().ravel(), weights=values.numpy().ravel(), minlength=n * n)
    return flat.reshape(n, n).astype(np.float64)


def normal_log_p(mu: Tensor, mask: Tensor) -> Tensor:  # (B, J), (B, J) -> (B, J)
    """Return the log-probability that each item's utility is the largest of its set, with -inf for padding."""
    # 1. Place the nodes of each set from below the lowest mode to above the highest.
    with torch.no_grad():  # the integral does not depend on the position of its nodes
        J = mu.shape[1]
        top = mu.masked_fill(~mask, -math.inf).amax(1)
        low = (mu.masked_fill(~mask, math.inf).amin(1) + top) / 2 - TAIL_DEVIATIONS
        high = top + math.sqrt(2 * math.log(J)) + TAIL_DEVIATIONS
        nodes = math.ceil(float((high - low).max()) * math.sqrt(J) / GRID_STEP) + 1
        x = low[:, None] + (high - low)[:, None] * torch.linspace(0, 1, nodes, dtype=mu.dtype)  # (B, K)
    # 2. Compute the integrand of each item at each node, phi times the product of the other items' Phi, and sum.
    z = x.unsqueeze(1) - mu.unsqueeze(2)  # (B, J, K)
    log_below = torch.special.log_ndtr(z).masked_fill(~mask.unsqueeze(2), 0)
    log_first = torch.logsumexp(log_below.sum(1, keepdim=True) - log_below - z * z / 2, dim=2)
    # 3. Normalise: all integrals of a set have the same step and constant, and sum to 1 up to these.
    return torch.log_softmax(log_first.masked_fill(~mask, -math.inf), dim=1)
