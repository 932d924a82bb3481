"""The conditional logit on ragged choice sets: log-likelihood, scores, Hessian, Newton's method.

With z_j = x_j - x_chosen for the alternatives not chosen, the choice has log-probability

    -log(1 + sum_j exp(b . z_j)),

score -zbar and Hessian -(sum_j p_j z_j z_j' - zbar zbar'), where zbar = sum_j p_j z_j (McFadden, 1974). It is concave
in b, so Newton's steps, halved where they overshoot, find the maximum if there is one. Sets of one alternative have
log-probability 0 whatever b is, and are left out. Coefficients may be fixed or bounded: see ``parameter_bounds.py``.
Shapes: z (M, K), one row per alternative not chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import max_by_set, spread, sum_by_set, weighted_sum_by_set
from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.box_cox import LinearisedUtility
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.maximum_likelihood import (
    NO_CURVATURE,
    Maximum,
    hessian,
    map_in_threads,
    maximise,
    newton_direction,
    require_finite_curvature,
    single_threaded_blas,
)
from pcmcnet.models.logit.nested_likelihood import Allocation, NestedLikelihood, NestedRows
from pcmcnet.models.logit.parameter_bounds import Parameters

# What a further step could gain, relative to the log-likelihood, for a step to be taken; relative to a single set's, as
# long as the step would move some utility: a coefficient without finite estimate goes on until its curvature tells it
# from others.
_DECREMENT = 1e-13
_MOVED = 0.1
_ROUNDING = 1e-14  # of a sum of log-probabilities
_HALVINGS = 40
_RIDGE_INCREASES = 200  # at most; each multiplies the ridge by 100
_BLOCK = 4096
_PART = 2**14  # rows, about, that a thread takes at a time


class _SetChunk(NamedTuple):
    """Sets that are computed together."""

    sets: slice
    rows: slice
    offsets: Ints  # of the sets within the part


@dataclass(frozen=True)
class LogitLikelihood:
    """Differences between the alternatives not chosen and the chosen one, for the sets with a choice to make."""

    z: Floats  # (M, K)
    offsets: Ints  # (R + 1,)
    sets: Ints  # (R,) which sets these are
    n_sets: int  # S, sets of one alternative included

    @classmethod
    def from_matrix(cls, x: Floats, offsets: Ints, chosen: Ints) -> LogitLikelihood:
        """Take differences of a design matrix (N, K)."""
        # 1. All rows but the chosen ones, less the chosen one of their set; block by block, to stay in cache.
        sizes = np.diff(offsets)
        picked = offsets[:-1] + chosen
        others = np.ones(len(x), bool)
        others[picked] = False
        z, pick = x[others], np.repeat(picked, sizes - 1)
        for rows in _blocks(len(z)):
            z[rows] -= x[pick[rows]]
        # 2. Sets of one alternative have no rows left, and no part in the likelihood.
        sets = np.flatnonzero(sizes > 1)
        ends = np.cumsum(sizes[sets] - 1)
        return cls(z, np.concatenate([[0], ends]), sets, len(sizes))

    @property
    def n_columns(self) -> int:
        """Number of coefficients."""
        return int(self.z.shape[1])

    @property
    def spread(self) -> Floats:
        """(K,) root mean square of each column's differences; 1 for a column without any."""
        rms: Floats = np.sqrt(np.einsum("mk,mk->k", self.z, self.z) / max(len(self.z), 1))
        return np.where(rms > 0, rms, 1.0)

    @cached_property
    def _parts(self) -> list[_SetChunk]:
        """Cut where a set begins."""
        cuts = np.searchsorted(self.offsets, np.arange(0, len(self.z) + _PART, _PART))
        cuts = np.unique(np.minimum(cuts, len(self.sets)))
        at = self.offsets
        return [_SetChunk(slice(a, b), slice(at[a], at[b]), at[a : b + 1] - at[a]) for a, b in pairwise(cuts)]

    def evaluate(self, b: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the log-probabilities of the choices (R,), the probabilities (M,) of the others, and zbar (R, K)."""
        ll, p, mean = np.empty(len(self.sets)), np.empty(len(self.z)), np.empty((len(self.sets), self.n_columns))

        def fill(part: _SetChunk) -> None:
            z = self.z[part.rows]
            ll[part.sets], p[part.rows] = _probabilities(z @ b, part.offsets)
            mean[part.sets] = weighted_sum_by_set(p[part.rows], z, part.offsets)

        map_in_threads(fill, self._parts)
        return ll, p, mean

    def log_likelihoods(self, b: Floats) -> Floats:
        """Return the log-probability of each choice, (S,)."""
        return self.over_all_sets(_probabilities(self.z @ b, self.offsets)[0])

    def over_all_sets(self, values: Floats) -> Floats:
        """Give the sets of one alternative the value 0: (R, ...) -> (S, ...)."""
        out = np.zeros((self.n_sets, *values.shape[1:]))
        out[self.sets] = values
        return out

    def scores(self, b: Floats) -> Floats:
        """Return the gradient of each set's log-probability, (S, K)."""
        return self.over_all_sets(-self.evaluate(b)[2])

    def hessian(self, p: Floats, mean: Floats, weights: Floats) -> Floats:
        """Return the Hessian (K, K) of the weighted log-likelihood at what ``evaluate`` gave; weights (R,)."""

        def bend(part: _SetChunk) -> Floats:
            w = weights[part.sets]
            return _gram(w, mean[part.sets]) - _gram(p[part.rows] * spread(w, part.offsets), self.z[part.rows])

        return sum(map_in_threads(bend, self._parts), np.zeros((self.n_columns, self.n_columns)))

    @single_threaded_blas()
    def maximise(
        self, weights: Floats, *, within: Parameters | None = None, max_iter: int = 100, settle: bool = True
    ) -> tuple[Floats, Floats, int]:
        """Find the coefficients with the largest weighted log-likelihood, by Newton's method.

        Parameters
        ----------
        weights
            (S,) of the sets.
        within
            Where to begin, and which coefficients are fixed or bounded; all are free and begin at 0 if not given.
        max_iter, settle
            Steps, at most, and whether the maximum must be reached within them.

        Returns
        -------
        Coefficients (K,), the Hessian there (K, K), and the number of steps. The coefficient of a column of zeros stays
        where it begins.
        """
        # Columns are scaled to differences of about 1, so that steps and gains are in units of utilities.
        w = weights[self.sets]
        unit, scale = float(w.sum()) / max(len(w), 1), 1 / self.spread
        within = Parameters.free(np.zeros(self.n_columns)) if within is None else within
        b = within.start.copy()
        ll, p, mean = self.evaluate(b)
        value = w @ ll
        for step in range(1, max_iter + 1):
            # 1. Newton's step at b. Half of gradient . direction is what it gains, to second order.
            gradient = -(w @ mean) * scale
            curvature = -self.hessian(p, mean, w) * np.outer(scale, scale)
            room = within.room(b, scale)
            direction = _solve(curvature, gradient) if within.anywhere else newton_direction(curvature, gradient, *room)
            gain = float(gradient @ direction) / 2
            direction = direction * scale
            # 2. Nothing left to gain: stop, unless some utility still runs away to infinity.
            if gain <= _DECREMENT * (unit + abs(value)) and (gain <= _DECREMENT * unit or self._arrived(direction)):
                b = within.inside(b + direction)  # the last step, which squares the error that is left
                return b, self.hessian(*self.evaluate(b)[1:], w), step
            # 3. The likelihood is concave: a step that is halved often enough raises it.
            for _ in range(_HALVINGS):
                ll, p, mean = self.evaluate(b + direction)
                if w @ ll > value - _ROUNDING * abs(value):
                    break
                direction = direction / 2
            else:  # rounding is all that is left
                return b, self.hessian(*self.evaluate(b)[1:], w), step
            b, value = within.inside(b + direction), w @ ll
        if not settle:
            return b, self.hessian(p, mean, w), max_iter
        raise TrainingError(
            f"the log-likelihood has not settled after {max_iter} steps: raise max_iter, or look for columns on very "
            f"different scales."
        )

    def maximum(self, weights: Floats, *, within: Parameters, max_iter: int) -> Maximum:
        """Return the maximum with all that standard errors need: see :meth:`maximise`."""
        b, hessian, steps = self.maximise(weights, within=within, max_iter=max_iter)
        value = float(weights @ self.log_likelihoods(b))
        return Maximum(b, value, self.scores(b), hessian, steps, self.spread)

    def _arrived(self, direction: Floats) -> bool:
        """Tell whether a step leaves all utilities nearly where they are.

        Near a maximum, steps shrink fast. Without one, each step moves some utility by about 1, for ever smaller gains.
        """
        return bool(np.abs(self.z @ direction).max(initial=0.0) < _MOVED)


def _probabilities(v: Floats, offsets: Ints) -> tuple[Floats, Floats]:  # (M,) -> (R,), (M,)
    """Return the log-probabilities of the choices and the probabilities of the others, at their utilities."""
    top = np.maximum(max_by_set(v, offsets), 0.0)
    p = np.exp(v - spread(top, offsets))
    total = np.exp(-top) + sum_by_set(p, offsets)
    p /= spread(total, offsets)
    return -(top + np.log(total)), p


def _blocks(rows: int) -> Iterator[slice]:
    """Part rows so that what is made of a block stays in the processor's cache."""
    return (slice(at, at + _BLOCK) for at in range(0, rows, _BLOCK))


def _gram(weights: Floats, values: Floats) -> Floats:  # (M,), (M, K) -> (K, K)
    """Return sum_m weights_m values_m values_m'."""
    total, root = np.zeros((values.shape[1], values.shape[1])), np.sqrt(weights)
    for rows in _blocks(len(values)):
        block = root[rows, None] * values[rows]
        total += block.T @ block
    return total


def _solve(curvature: Floats, gradient: Floats) -> Floats:
    """Solve for Newton's step, with a ridge that grows until the information is positive definite."""
    require_finite_curvature(curvature)
    ridge = 1e-12 * max(float(np.trace(curvature)) / max(len(curvature), 1), 1e-300)
    eye = np.eye(len(curvature))
    for _ in range(_RIDGE_INCREASES):
        try:
            factor = np.linalg.cholesky(curvature + ridge * eye)
        except np.linalg.LinAlgError:
            ridge *= 100
            continue
        return np.linalg.solve(factor.T, np.linalg.solve(factor, gradient))
    raise TrainingError(NO_CURVATURE)


# -- Logits, with nests or without, of a utility that is not linear in its parameters ----------------------------------
# At any parameters theta the utility is replaced by a linear one, M c with dc / dtheta = G, which has its value and its
# derivatives: see `models/logit/box_cox.py`. With s the scores of a logit of M c, those in theta are s G, exactly.


class NonlinearLogitLikelihood:
    """Choices whose utilities are linearised anew at every point."""

    def __init__(self, linearise: Callable[[Floats], LinearisedUtility], offsets: Ints, chosen: Ints) -> None:
        self._linearise, self._offsets, self._chosen = linearise, offsets, chosen
        self._last: tuple[bytes, LogitLikelihood, LinearisedUtility] | None = None

    def objective(self, theta: Floats) -> tuple[Floats, Floats]:
        """(K,) -> (S,), (S, K): log-probabilities of the choices and their scores; -inf beyond any number."""
        sets, near = self._at(theta)
        if not np.isfinite(sets.z).all():
            return np.full(sets.n_sets, -np.inf), np.zeros((sets.n_sets, len(theta)))
        ll, _, mean = sets.evaluate(near.coefficients)
        return sets.over_all_sets(ll), sets.over_all_sets(-mean) @ near.chain

    def spread(self, theta: Floats) -> Floats:  # (K,) -> (K,)
        """Return the size of what each parameter moves: root mean squares of the derivatives of utility differences."""
        sets, near = self._at(theta)
        rms = np.sqrt(np.mean((sets.z @ near.chain) ** 2, axis=0))
        return np.where(rms > 0, rms, 1.0)

    def _at(self, theta: Floats) -> tuple[LogitLikelihood, LinearisedUtility]:
        """Linearise, once for calls at one point."""
        key = theta.tobytes()
        if self._last is None or self._last[0] != key:
            near = self._linearise(theta)
            with np.errstate(invalid="ignore"):  # inf - inf, far out
                self._last = key, LogitLikelihood.from_matrix(near.matrix, self._offsets, self._chosen), near
        return self._last[1], self._last[2]


def nonlinear_maximum(
    design: Design,
    sets: ChoiceData,
    problem: LogitLikelihood,
    within: Parameters,
    named: Collection[str],
    max_iter: int,
) -> Maximum:
    """Find the maximum of a conditional logit whose utility is not linear.

    Parameters
    ----------
    design, sets
        The utility, and the choices.
    problem
        The utility at the exponents that ``within`` begins with, which is linear: its maximum is where the search
        begins, but for the parameters that are ``named``.
    within
        All parameters.
    max_iter
        Steps of either search, at most.
    """
    # 1. With the exponents held where they begin, the utility is linear: its logit has one maximum, found by Newton.
    form, weights = design.form, sets.weights
    known = {} if form.offset is None else {form.offset: 1.0}
    linear = Parameters.of(form.columns, fixed=known, bounds={}, start={})
    b, _, _ = problem.maximise(weights, within=linear, max_iter=max_iter)
    # 2. Start there, except for the parameters whose starting values are given.
    begin = form.parameters(b, form.exponents(within.start))
    begin = within.inside(np.where([name in named for name in form.names], within.start, begin))
    # 3. Climb with the utility linearised anew at each point, which gives exact scores.
    logit = NonlinearLogitLikelihood(partial(design.linearised, sets), sets.offsets, sets.require_chosen("fitting"))
    scale = 1 / logit.spread(begin)
    theta, steps = maximise(logit.objective, begin, weights, scale=scale, within=within, max_iter=max_iter)
    # 4. The Hessian there, in steps that suit the size of what each parameter moves at the maximum.
    ll, scores = logit.objective(theta)
    spread = logit.spread(theta)
    curvature = hessian(logit.objective, theta, weights, scale=1 / spread)
    return Maximum(theta, float(weights @ ll), scores, curvature, steps, spread)


class NonlinearNestedLikelihood(NestedLikelihood):
    """Choices in nested sets; utilities, as ``linearise`` gives them by row, are linearised anew at every point."""

    def __init__(
        self,
        linearise: Callable[[Floats], LinearisedUtility],
        n_parameters: int,
        nests: NestedRows,
        chosen: Bools,
        counts: Floats,
        allocation: Allocation | None = None,
    ) -> None:
        super().__init__(np.zeros((len(chosen), n_parameters)), nests, chosen, counts, allocation)
        self._linearise = linearise

    def evaluate(self, values: Floats) -> tuple[Floats, Floats]:
        """(P,) -> (S,), (S, P): log-probabilities and scores; -inf beyond any number."""
        near = self._linearise(values[: self.K])
        if not np.isfinite(near.matrix).all():
            n_sets = len(self.nests.sets) - 1
            return np.full(n_sets, -np.inf), np.zeros((n_sets, len(values)))
        self.x = near.matrix[self.nests.order]
        ll, scores = super().evaluate(np.concatenate([near.coefficients, values[self.K :]]))
        scores[:, : self.K] = scores[:, : self.K] @ near.chain
        return ll, scores
