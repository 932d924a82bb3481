"""Information of a design about its coefficients, and the criteria of its precision.

A choice in a task with alternatives 1, ..., J has log-probabilities with the gradients g_j = d log p_j / d b in the
coefficients b. The Fisher information of the task is sum_j p_j g_j g_j', and that of a design
is the sum over its tasks:

    M = sum_t Z_t' Z_t,    row j of Z_t = sqrt(p_j) g_j.

In a logit, g_j = x_j - sum_i p_i x_i. If another fitted model serves as the prior, its probabilities and gradients are
those of ``model_scores.py``.

A criterion is the logarithm of an error, and lower is better. With C = M^-1 and R draws of the prior:

    D, Db      mean over draws of det(C)^(1 / P)                              (Db: Sandor & Wedel, 2001)
    C          geometric mean over ratios b_k / b_cost of the mean over draws of the variance of the ratio
    context    mean over draws of det(C_gg)^(1 / G), where C_gg is the block of the context parameters g; it is the
               inverse of the Schur complement of the other parameters, so these count as unknown. A small weight on
               the D-error of the other parameters, as in a compound design, keeps these estimable, too

A candidate task changes M by a matrix of rank m, the number of its alternatives. Determinants follow from the m x m
matrix I + Z C Z' (matrix determinant lemma), so the criterion of many candidates costs a few small products each.

Shapes: levels (N, J, K) -> Z (N, R, J, P). Rest of the design (S, R, P, P) and candidates (S, R, C, m, P) -> (S, C).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.designs.attributes import ProfileSpace

Scores = Floats  # (N, R, J, P): square roots of probabilities times gradients of log-probabilities


class ScoreFunction(Protocol):
    """A model of choices that gives the scores of tasks. Its coefficients are in units of ``scales``."""

    @property
    def scales(self) -> Floats:
        """Units of the coefficients, (P,)."""

    def __call__(self, levels: Ints) -> Scores:
        """Return the scores (N, R, J, P) of tasks (N, J, K)."""


def softmax(utilities: Floats) -> Floats:
    """Return probabilities along the last axis."""
    exponentials = np.exp(utilities - utilities.max(axis=-1, keepdims=True))
    probabilities: Floats = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


def logit_scores(x: Floats, p: Floats) -> Scores:  # (N, J, P), (N, R, J) -> (N, R, J, P)
    """Return the scores of logits with columns x and probabilities p."""
    scores: Floats = np.sqrt(p)[..., None] * (x[:, None] - (p @ x)[:, :, None, :])
    return scores


@dataclass(frozen=True, eq=False)
class LogitScores:
    """Scores of a logit for each draw (R, P) of its coefficients."""

    space: ProfileSpace
    draws: Floats
    scales: Floats

    def __call__(self, levels: Ints) -> Scores:
        """Return the scores of tasks."""
        x = self.space.encode(levels) / self.scales
        utilities = (x @ (self.draws * self.scales).T).swapaxes(1, 2)  # (N, R, J)
        return logit_scores(x, softmax(utilities))


# -- Criteria ----------------------------------------------------------------------------------------------------------


class Criterion(Protocol):
    """Logarithm of the error of a design; lower is better."""

    def value(self, information: Floats) -> Floats:
        """Return the criterion of designs with information (..., R, P, P)."""

    def with_rows(self, rest: Floats, rows: Floats) -> Floats:
        """Return the criterion (S, C) of designs (S, R, P, P) with each candidate's rows (S, R, C, m, P) added."""


@dataclass(frozen=True)
class DeterminantCriterion:
    """D- and Db-error, and the compound criterion of context effects, which follow ``n_nuisance`` other parameters."""

    n_nuisance: int = 0
    nuisance_weight: float = 0.0

    def value(self, information: Floats) -> Floats:
        """Return the criterion of designs with information (..., R, P, P)."""
        return self._combine(_log_det(information), _log_det(self._nuisance(information)), information.shape[-1])

    def with_rows(self, rest: Floats, rows: Floats) -> Floats:
        """Return the criterion (S, C) of designs with each candidate's rows added."""
        k = self.n_nuisance
        total = _log_det_with_rows(rest, rows)
        nuisance = _log_det_with_rows(self._nuisance(rest), rows[..., :k]) if k else np.zeros((1, 1, 1))
        return self._combine(total.swapaxes(1, 2), nuisance.swapaxes(1, 2), rest.shape[-1])

    def _nuisance(self, information: Floats) -> Floats:
        return information[..., : self.n_nuisance, : self.n_nuisance]

    def _combine(self, total: Floats, nuisance: Floats, n: int) -> Floats:  # (..., R) -> (...)
        with np.errstate(invalid="ignore"):  # both are -inf for designs that identify neither
            difference = np.nan_to_num((nuisance - total) / (n - self.n_nuisance), nan=np.inf)
        value = _log_mean_exp(difference)
        if self.nuisance_weight == 0:
            return value
        return value + self.nuisance_weight * _log_mean_exp(-nuisance / self.n_nuisance)


@dataclass(frozen=True, eq=False)
class RatioCriterion:
    """Error of ratios of coefficients, from the gradients (R, P, W) of the W ratios at each draw."""

    gradients: Floats

    def value(self, information: Floats) -> Floats:
        """Return the criterion of designs with information (..., R, P, P)."""
        solved = np.linalg.solve(information, np.broadcast_to(self.gradients, (*information.shape[:-1], self.n_ratios)))
        return self._combine((self.gradients * solved).sum(axis=-2))

    def with_rows(self, rest: Floats, rows: Floats) -> Floats:
        """Return the criterion (S, C) of designs with each candidate's rows added, by Woodbury's formula."""
        inverse = _inverse(rest)  # (S, R, P, P)
        solved = inverse @ self.gradients  # (S, R, P, W)
        before = (self.gradients * solved).sum(axis=-2)[:, :, None]  # (S, R, 1, W)
        projected = _times(rows, solved)  # (S, R, C, m, W)
        small = np.eye(rows.shape[-2]) + _times(rows, inverse) @ rows.swapaxes(-1, -2)
        fall = (projected * np.linalg.solve(small, projected)).sum(axis=-2)
        return self._combine((before - fall).swapaxes(1, 2))

    @property
    def n_ratios(self) -> int:
        """Number of ratios."""
        return int(self.gradients.shape[-1])

    def _combine(self, variances: Floats) -> Floats:  # (..., R, W) -> (...)
        value: Floats = np.log(np.maximum(variances, 1e-300).mean(axis=-2)).mean(axis=-1)
        return value


def ratio_gradients(draws: Floats, scales: Floats, cost: int, others: Sequence[int]) -> Floats:  # -> (R, P, W)
    """Return the gradients of the ratios -b_k / b_cost, with respect to coefficients in units of the scales."""
    gradients = np.zeros((*draws.shape, len(others)))
    for w, k in enumerate(others):
        gradients[:, k, w] = -1 / draws[:, cost]
        gradients[:, cost, w] = draws[:, k] / draws[:, cost] ** 2
    return gradients / scales[:, None]


def _log_det(matrices: Floats) -> Floats:
    """Return log-determinants of positive semidefinite matrices, -inf if singular; 0 for matrices of size 0."""
    if matrices.shape[-1] == 0:
        return np.zeros(1)
    sign, value = np.linalg.slogdet(matrices)
    return np.where(sign > 0, value, -np.inf)


def _log_det_with_rows(rest: Floats, rows: Floats) -> Floats:  # (S, R, P, P), (S, R, C, m, P) -> (S, R, C)
    """Return log det(rest + rows' rows)."""
    small = np.eye(rows.shape[-2]) + _times(rows, _inverse(rest)) @ rows.swapaxes(-1, -2)
    return _log_det(rest)[..., None] + _log_det(small)


def _inverse(matrices: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


def _times(rows: Floats, matrices: Floats) -> Floats:  # (S, R, C, m, P), (S, R, P, W) -> (S, R, C, m, W)
    """Return products with one large matrix product for all candidates of a start and draw."""
    S, R, C, m, P = rows.shape
    return (rows.reshape(S, R, C * m, P) @ matrices).reshape(S, R, C, m, -1)


def _log_mean_exp(values: Floats) -> Floats:  # (..., R) -> (...)
    top = values.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        out: Floats = np.log(np.exp(values - top).mean(axis=-1)) + top[..., 0]
    return np.where(np.isinf(top[..., 0]), top[..., 0], out)
