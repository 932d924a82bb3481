"""Thurstone's Case V: independent normal utilities of equal variance (Thurstone, 1927).

Item i has the utility mu_i + Z_i with Z_i standard normal, and the largest of the set is chosen. For two items
P(i | {i, j}) = Phi((mu_i - mu_j) / sqrt 2); for any set, with x the utility of i,

    P(i | S) = integral of phi(x - mu_i) prod_{j in S, j != i} Phi(x - mu_j) dx.

The integrand is analytic and decays as a Gaussian, so the trapezoidal rule converges faster than any power of its
step. One grid serves all items of a set, as the product without i is the whole product over Phi(x - mu_i): n terms
a node instead of n^2. All is done in logs, so that small probabilities keep their relative accuracy. Each integrand
is log-concave with a curvature of at least 1 and its mode between (min mu + max mu) / 2 and max mu + sqrt(2 log n):
what lies REACH beyond is below 1e-16 of the whole. A product of n factors has details of width 1 / sqrt n, which
sets the step.
Shapes: mu (B, J), mask (B, J) -> log-probabilities (B, J).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.errors import ArtifactError
from pcmcnet.layers.threads import one_thread_if_small
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.items.strengths import FittedStrengths, StrengthEstimate, StrengthModel, lbfgs
from pcmcnet.models.items.universe import DistinctSets, PaddedSets

REACH = 8.5  # standard deviations
STEP = 0.8  # of the grid, times sqrt n
WORK = 1000  # multiplications for an item of a set, about
BOUND = 100.0  # of a strength: beyond any that a finite sample supports


class Thurstone(StrengthModel):
    """One mean utility per item, with standard normal noise; the largest utility is chosen.

    Options are those of :class:`StrengthConfig`.

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

    def _estimate(self, sets: DistinctSets, n: int, reference: int, ridge: float) -> StrengthEstimate:
        # 1. The objective, as a function of the strengths but the reference's.
        free = np.flatnonzero(np.arange(n) != reference)
        place, total = torch.from_numpy(free), float(sets.counts.sum())
        batches = list(sets.batches())

        def nll(values: Tensor) -> Tensor:  # (n - 1,) -> ()
            mu = torch.zeros(n, dtype=torch.float64).index_put((place,), values)
            penalty = ridge / 2 * (mu - mu.mean()).square().sum()
            return (torch.stack([_nll(mu[batch.items], batch) for batch in batches]).sum() + penalty) / total

        # 2. The estimates, and the Hessian there for their errors.
        config, strengths = self.config, np.zeros(n)
        with one_thread_if_small(WORK * len(sets.items)):
            minimum = lbfgs(nll, strengths[free], max_iter=config.max_iter, tolerance=config.tolerance, bound=BOUND)
            strengths[free] = minimum.at
            hessian = sum((_hessian(strengths, batch) for batch in batches), ridge * (np.eye(n) - 1 / n))
        return StrengthEstimate(strengths, hessian, minimum.iterations, minimum.converged)

    @torch.no_grad()
    def _item_log_p(self, sets: DistinctSets, strengths: Floats) -> Floats:
        out, mu = np.zeros(len(sets.items)), torch.from_numpy(strengths)
        with one_thread_if_small(WORK * len(sets.items)):
            for batch in sets.batches():
                log_p = normal_log_p(mu[batch.items], batch.mask)
                out[batch.flat[batch.mask.numpy()]] = log_p[batch.mask].numpy()
        return out

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedStrengths:
        state = super()._restore(files, record, table)
        if np.abs(state.strengths).max() > 2 * BOUND:  # the integral has as many nodes as they are apart
            raise ArtifactError("the saved strengths are larger than any that can be fitted: save the model again.")
        return state


def _nll(mu: Tensor, batch: PaddedSets) -> Tensor:  # (B, J) -> ()
    """Minus the log-likelihood of the counts of a batch, whose items have means ``mu``."""
    return -(batch.counts * normal_log_p(mu, batch.mask).masked_fill(~batch.mask, 0)).sum()


def _hessian(strengths: Floats, batch: PaddedSets) -> Floats:  # (n,) -> (n, n)
    """Second derivatives of a batch: a set has its own items alone, so J rows (B, J) hold those of all sets."""
    n, J = len(strengths), batch.items.shape[1]
    mu = torch.from_numpy(strengths)[batch.items].requires_grad_()
    (slope,) = torch.autograd.grad(_nll(mu, batch), mu, create_graph=True)
    rows = [torch.autograd.grad(slope[:, k].sum(), mu, retain_graph=True)[0] for k in range(J)]
    cell = batch.items.unsqueeze(2) * n + batch.items.unsqueeze(1)  # (B, J, J); padding adds 0
    values = torch.stack(rows, dim=1).masked_fill(~batch.mask.unsqueeze(2), 0)
    flat = np.bincount(cell.numpy().ravel(), weights=values.numpy().ravel(), minlength=n * n)
    return flat.reshape(n, n).astype(np.float64)


def normal_log_p(mu: Tensor, mask: Tensor) -> Tensor:  # (B, J), (B, J) -> (B, J)
    """Log-probabilities that each item's utility is the largest of its set; padding gets -inf."""
    # 1. The nodes of each set, from below the lowest mode to above the highest.
    with torch.no_grad():  # the integral does not depend on where its nodes are
        J = mu.shape[1]
        top = mu.masked_fill(~mask, -math.inf).amax(1)
        low = (mu.masked_fill(~mask, math.inf).amin(1) + top) / 2 - REACH
        high = top + math.sqrt(2 * math.log(J)) + REACH
        nodes = math.ceil(float((high - low).max()) * math.sqrt(J) / STEP) + 1
        x = low[:, None] + (high - low)[:, None] * torch.linspace(0, 1, nodes, dtype=mu.dtype)  # (B, K)
    # 2. The integrand of each item at each node: the product of all others' Phi, times phi.
    z = x.unsqueeze(1) - mu.unsqueeze(2)  # (B, J, K)
    log_below = torch.special.log_ndtr(z).masked_fill(~mask.unsqueeze(2), 0)
    log_first = torch.logsumexp(log_below.sum(1, keepdim=True) - log_below - z * z / 2, dim=2)
    # 3. A set's integrals have one step and one constant, which normalisation removes; they sum to 1 as they are.
    return torch.log_softmax(log_first.masked_fill(~mask, -math.inf), dim=1)
