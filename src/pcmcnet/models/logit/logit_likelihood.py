"""Conditional logit on ragged choice sets: log-likelihood, scores, Hessian and Newton's method.

Let z_j = x_j - x_chosen for the alternatives that are not chosen. The log-probability of the choice is

    -log(1 + sum_j exp(b . z_j)).

Its score is -zbar and its Hessian is -(sum_j p_j z_j z_j' - zbar zbar'), where zbar = sum_j p_j z_j (McFadden, 1974).
The log-likelihood is concave in b, so Newton's method with step halving finds the maximum if there is one. Choice sets
with a single alternative have log-probability 0 for every b and are left out. Coefficients may be fixed or bounded: see
``parameter_bounds.py``. Shapes: z (M, K) has one row per alternative that is not chosen.

If alternatives are a sample, log(W_j / W_chosen) is added to b . z_j, where W_j is the expansion factor of alternative
j. With this correction, the estimates from the sample are consistent (McFadden, 1978).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
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
    map_in_threads,
    maximise,
    newton_direction,
    numerical_hessian,
    require_finite_curvature,
    single_threaded_blas,
)
from pcmcnet.models.logit.nested_likelihood import Allocation, NestedLikelihood, NestedRows
from pcmcnet.models.logit.parameter_bounds import Parameters

# Iterations stop if the expected gain of a step is below _DECREMENT times the log-likelihood and the step changes no
# utility by _MOVED or more. If it does, they stop when the gain is below _DECREMENT times the log-likelihood of one
# set: a coefficient without a finite estimate then moves on until its Hessian is flat, which standard errors detect.
_DECREMENT = 1e-13
_MOVED = 0.1
_ROUNDING = 1e-14  # relative rounding error of a sum of log-probabilities
_MAX_HALVINGS = 40
_MAX_RIDGE_INCREASES = 200  # each multiplies the ridge by 100
_BLOCK = 4096  # rows of a block that fits the processor's cache
_PART = 2**14  # approximate rows of a chunk, the unit of work of a thread


class _SetChunk(NamedTuple):
    """Chunk of consecutive choice sets that one thread computes."""

    sets: slice
    rows: slice
    offsets: Ints  # first row of each set within the chunk


@dataclass(frozen=True)
class LogitLikelihood:
    """Likelihood of a conditional logit, computed from the choice sets with at least two alternatives.

    ``z`` contains the differences between the alternatives that are not chosen and the chosen one, and ``correction``
    the same differences of the logarithms of the expansion factors, if alternatives are a sample.
    """

    z: Floats  # (M, K)
    offsets: Ints  # (R + 1,)
    sets: Ints  # (R,) indices of these sets
    n_sets: int  # S, including sets of one alternative
    correction: Floats | None = None  # (M,)

    @classmethod
    def from_matrix(cls, x: Floats, offsets: Ints, chosen: Ints, expansion: Floats | None = None) -> LogitLikelihood:
        """Build the likelihood from a design matrix (N, K), and the expansion factors (N,) of sampled alternatives."""
        # 1. Subtract the chosen row of each set from its other rows, in blocks that fit the cache.
        sizes = np.diff(offsets)
        chosen_row = offsets[:-1] + chosen
        not_chosen = np.ones(len(x), bool)
        not_chosen[chosen_row] = False
        z, minus = x[not_chosen], np.repeat(chosen_row, sizes - 1)
        for rows in _blocks(len(z)):
            z[rows] -= x[minus[rows]]
        # 2. Sets of one alternative have no other rows, and do not enter the likelihood.
        sets = np.flatnonzero(sizes > 1)
        ends = np.cumsum(sizes[sets] - 1)
        correction = None if expansion is None else np.log(expansion[not_chosen] / expansion[minus])
        return cls(z, np.concatenate([[0], ends]), sets, len(sizes), correction)

    @property
    def n_columns(self) -> int:
        """Number of coefficients."""
        return int(self.z.shape[1])

    @property
    def spread(self) -> Floats:
        """Root mean square (K,) of each column of ``z``, or 1 for a column of zeros."""
        rms: Floats = np.sqrt(np.einsum("mk,mk->k", self.z, self.z) / max(len(self.z), 1))
        return np.where(rms > 0, rms, 1.0)

    @cached_property
    def _chunks(self) -> list[_SetChunk]:
        """Chunks of whole choice sets."""
        cuts = np.searchsorted(self.offsets, np.arange(0, len(self.z) + _PART, _PART))
        cuts = np.unique(np.minimum(cuts, len(self.sets)))
        at = self.offsets
        return [_SetChunk(slice(a, b), slice(at[a], at[b]), at[a : b + 1] - at[a]) for a, b in pairwise(cuts)]

    def evaluate(self, b: Floats) -> tuple[Floats, Floats, Floats]:
        """Return log-probabilities of choices (R,), probabilities of the other alternatives (M,), and zbar (R, K)."""
        ll, p, mean = np.empty(len(self.sets)), np.empty(len(self.z)), np.empty((len(self.sets), self.n_columns))

        def fill(chunk: _SetChunk) -> None:
            z = self.z[chunk.rows]
            ll[chunk.sets], p[chunk.rows] = _probabilities(self._corrected(z @ b, chunk.rows), chunk.offsets)
            mean[chunk.sets] = weighted_sum_by_set(p[chunk.rows], z, chunk.offsets)

        map_in_threads(fill, self._chunks)
        return ll, p, mean

    def log_likelihoods(self, b: Floats) -> Floats:
        """Return the log-probability (S,) of each choice."""
        return self.over_all_sets(_probabilities(self._corrected(self.z @ b, slice(None)), self.offsets)[0])

    def _corrected(self, v: Floats, rows: slice) -> Floats:
        """Return utilities of some rows, with the correction for sampled alternatives."""
        return v if self.correction is None else v + self.correction[rows]

    def over_all_sets(self, values: Floats) -> Floats:
        """Return values for all choice sets, with 0 for sets of one alternative: (R, ...) -> (S, ...)."""
        out = np.zeros((self.n_sets, *values.shape[1:]))
        out[self.sets] = values
        return out

    def scores(self, b: Floats) -> Floats:
        """Return the gradient (S, K) of each set's log-probability."""
        return self.over_all_sets(-self.evaluate(b)[2])

    def hessian(self, p: Floats, mean: Floats, weights: Floats) -> Floats:
        """Return the Hessian (K, K) of the log-likelihood, given p and mean from ``evaluate`` and weights (R,)."""

        def chunk_hessian(chunk: _SetChunk) -> Floats:
            w = weights[chunk.sets]
            return _gram(w, mean[chunk.sets]) - _gram(p[chunk.rows] * spread(w, chunk.offsets), self.z[chunk.rows])

        return sum(map_in_threads(chunk_hessian, self._chunks), np.zeros((self.n_columns, self.n_columns)))

    @single_threaded_blas()
    def maximise(
        self, weights: Floats, *, within: Parameters | None = None, max_iter: int = 100, settle: bool = True
    ) -> tuple[Floats, Floats, int]:
        """Maximise the weighted log-likelihood by Newton's method.

        Parameters
        ----------
        weights
            Weights (S,) of the choice sets.
        within
            Starting values, and fixed or bounded coefficients. By default, all coefficients are free and start at 0.
        max_iter
            Maximum number of iterations.
        settle
            Whether to raise TrainingError if the iterations have not converged.

        Returns
        -------
        Coefficients (K,), the Hessian (K, K) at these coefficients, and the number of iterations. The coefficient of a
        column of zeros keeps its starting value.
        """
        # Scale columns to differences of about 1, so that steps and gains are in units of utility.
        if within is not None and within.same_as is not None:  # add the columns of equal coefficients
            reduced = replace(self, z=self.z @ within.expansion)
            u, _, steps = reduced.maximise(weights, within=within.reduced, max_iter=max_iter, settle=settle)
            b = u[within.group]
            return b, self.hessian(*self.evaluate(b)[1:], weights[self.sets]), steps
        w = weights[self.sets]
        unit, scale = float(w.sum()) / max(len(w), 1), 1 / self.spread
        within = Parameters.free(np.zeros(self.n_columns)) if within is None else within
        b = within.start.copy()
        ll, p, mean = self.evaluate(b)
        value = w @ ll
        for step in range(1, max_iter + 1):
            # 1. The Newton step at b. Half of gradient . direction is its gain, to second order.
            gradient = -(w @ mean) * scale
            curvature = -self.hessian(p, mean, w) * np.outer(scale, scale)
            limits = within.step_limits(b, scale)
            if within.is_unconstrained:
                direction = _solve(curvature, gradient)
            else:
                direction = newton_direction(curvature, gradient, *limits)
            gain = float(gradient @ direction) / 2
            direction = direction * scale
            # 2. Stop if there is nothing left to gain, unless some utility still diverges.
            if gain <= _DECREMENT * (unit + abs(value)) and (gain <= _DECREMENT * unit or self._is_settled(direction)):
                b = within.clip(b + direction)  # one last step: it squares the remaining error
                return b, self.hessian(*self.evaluate(b)[1:], w), step
            # 3. Halve the step until it raises the likelihood, which is concave.
            for _ in range(_MAX_HALVINGS):
                ll, p, mean = self.evaluate(b + direction)
                if w @ ll > value - _ROUNDING * abs(value):
                    break
                direction = direction / 2
            else:  # only rounding error is left
                return b, self.hessian(*self.evaluate(b)[1:], w), step
            b, value = within.clip(b + direction), w @ ll
        if not settle:
            return b, self.hessian(p, mean, w), max_iter
        raise TrainingError(
            f"the log-likelihood has not converged after {max_iter} iterations: raise max_iter, or rescale columns "
            f"that differ widely in scale."
        )

    def maximum(self, weights: Floats, *, within: Parameters, max_iter: int) -> Maximum:
        """Return the result of :meth:`maximise`, with the scores and the Hessian that standard errors need."""
        b, hessian, steps = self.maximise(weights, within=within, max_iter=max_iter)
        value = float(weights @ self.log_likelihoods(b))
        return Maximum(b, value, self.scores(b), hessian, steps, self.spread)

    def _is_settled(self, direction: Floats) -> bool:
        """Return True if a step hardly changes any utility.

        Near a maximum, steps shrink fast. If there is no maximum, each step changes some utility by about 1, while the
        gains become ever smaller.
        """
        return bool(np.abs(self.z @ direction).max(initial=0.0) < _MOVED)


def _probabilities(v: Floats, offsets: Ints) -> tuple[Floats, Floats]:  # (M,) -> (R,), (M,)
    """Return log-probabilities of the choices and probabilities of the other alternatives, at utilities v."""
    top = np.maximum(max_by_set(v, offsets), 0.0)
    p = np.exp(v - spread(top, offsets))
    total = np.exp(-top) + sum_by_set(p, offsets)
    p /= spread(total, offsets)
    return -(top + np.log(total)), p


def _blocks(rows: int) -> Iterator[slice]:
    """Yield slices of rows that fit into the processor's cache."""
    return (slice(at, at + _BLOCK) for at in range(0, rows, _BLOCK))


def _gram(weights: Floats, values: Floats) -> Floats:  # (M,), (M, K) -> (K, K)
    """Return sum_m weights_m values_m values_m'."""
    total, root = np.zeros((values.shape[1], values.shape[1])), np.sqrt(weights)
    for rows in _blocks(len(values)):
        block = root[rows, None] * values[rows]
        total += block.T @ block
    return total


def _solve(curvature: Floats, gradient: Floats) -> Floats:
    """Return the Newton step, with a ridge that grows until the information matrix is positive definite."""
    require_finite_curvature(curvature)
    ridge = 1e-12 * max(float(np.trace(curvature)) / max(len(curvature), 1), 1e-300)
    eye = np.eye(len(curvature))
    for _ in range(_MAX_RIDGE_INCREASES):
        try:
            factor = np.linalg.cholesky(curvature + ridge * eye)
        except np.linalg.LinAlgError:
            ridge *= 100
            continue
        return np.linalg.solve(factor.T, np.linalg.solve(factor, gradient))
    raise TrainingError(NO_CURVATURE)


def equivalent_sizes(sets: ChoiceData) -> Floats:
    """Return the inverse probability (S,) of each choice if all utilities are equal.

    This is the number of alternatives. For sampled alternatives it is sum_j W_j / W_chosen.
    """
    if sets.expansion is None:
        return sets.sizes.astype(np.float64)
    chosen = sets.offsets[:-1] + sets.require_chosen("fitting")
    sums: Floats = sum_by_set(sets.expansion, sets.offsets) / sets.expansion[chosen]
    return sums


# -- Utilities that are not linear in their parameters -----------------------------------------------------------------
# At any parameters theta the utility is replaced by the linear utility M c with dc / dtheta = G, which has the same
# value and derivatives: see `models/logit/box_cox.py`. If s are the scores of a logit with utility M c, the scores in
# theta are exactly s G.


class NonlinearLogitLikelihood:
    """Likelihood of a logit whose utility is linearised at each evaluation."""

    def __init__(self, linearise: Callable[[Floats], LinearisedUtility], sets: ChoiceData) -> None:
        self._linearise = linearise
        self._sets = (sets.offsets, sets.require_chosen("fitting"), sets.expansion)
        self._last: tuple[bytes, LogitLikelihood, LinearisedUtility] | None = None

    def objective(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return log-probabilities (S,) of the choices, or -inf on overflow, and their scores (S, K)."""
        sets, near = self._at(theta)
        if not np.isfinite(sets.z).all():
            return np.full(sets.n_sets, -np.inf), np.zeros((sets.n_sets, len(theta)))
        ll, _, mean = sets.evaluate(near.coefficients)
        return sets.over_all_sets(ll), sets.over_all_sets(-mean) @ near.chain

    def spread(self, theta: Floats) -> Floats:  # (K,) -> (K,)
        """Return the root mean square derivative of utility differences with respect to each parameter."""
        sets, near = self._at(theta)
        rms = np.sqrt(np.mean((sets.z @ near.chain) ** 2, axis=0))
        return np.where(rms > 0, rms, 1.0)

    def _at(self, theta: Floats) -> tuple[LogitLikelihood, LinearisedUtility]:
        """Linearise the utility, or reuse the last result if the parameters are the same."""
        key = theta.tobytes()
        if self._last is None or self._last[0] != key:
            near = self._linearise(theta)
            with np.errstate(invalid="ignore"):  # inf - inf after overflow
                self._last = key, LogitLikelihood.from_matrix(near.matrix, *self._sets), near
        return self._last[1], self._last[2]


def nonlinear_maximum(
    design: Design,
    sets: ChoiceData,
    problem: LogitLikelihood,
    within: Parameters,
    named: Collection[str],
    max_iter: int,
) -> Maximum:
    """Maximise the likelihood of a conditional logit with a nonlinear utility.

    Parameters
    ----------
    design, sets
        Design of the utility, and choice sets.
    problem
        The likelihood with the exponents at their starting values, which is linear in the coefficients.
    within
        All parameters, with starting values and bounds.
    named
        Parameters that start at the values in ``within``. The other parameters start at the maximum of ``problem``.
    max_iter
        Maximum number of iterations of each of the two maximisations.
    """
    # 1. With exponents and scales at their starting values, the utility is linear: Newton's method finds the maximum.
    form, weights = design.form, sets.weights
    offset = {} if form.offset is None else {form.offset: 1.0}
    linear = Parameters.of(form.columns, fixed=offset, bounds={}, start={})
    b, _, _ = problem.maximise(weights, within=linear, max_iter=max_iter)
    # 2. Start there, except for the parameters in ``named``.
    begin = form.parameters(b, within.start[len(form.columns) :])
    begin = within.clip(np.where([name in named for name in form.names], within.start, begin))
    # 3. Maximise with the utility linearised at each evaluation, which gives exact scores.
    logit = NonlinearLogitLikelihood(design.lineariser(sets), sets)
    scale = 1 / logit.spread(begin)
    theta, steps = maximise(logit.objective, begin, weights, scale=scale, within=within, max_iter=max_iter)
    # 4. The Hessian at the maximum, by finite differences whose steps suit the effect of each parameter.
    ll, scores = logit.objective(theta)
    spread = logit.spread(theta)
    curvature = numerical_hessian(logit.objective, theta, weights, scale=1 / spread)
    return Maximum(theta, float(weights @ ll), scores, curvature, steps, spread)


class NonlinearNestedLikelihood(NestedLikelihood):
    """Likelihood of a nested logit whose utility is linearised at each evaluation."""

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
        """Return log-probabilities (S,), or -inf on overflow, and scores (S, P)."""
        near = self._linearise(values[: self.K])
        if not np.isfinite(near.matrix).all():
            n_sets = len(self.nests.sets) - 1
            return np.full(n_sets, -np.inf), np.zeros((n_sets, len(values)))
        self.x = near.matrix[self.nests.order]
        ll, scores = super().evaluate(np.concatenate([near.coefficients, values[self.K :]]))
        scores[:, : self.K] = scores[:, : self.K] @ near.chain
        return ll, scores
