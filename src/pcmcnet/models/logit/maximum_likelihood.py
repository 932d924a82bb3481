"""Maximum likelihood from the scores of each choice set: Newton's method, BFGS and numerical Hessians.

An objective maps parameters (P,) to the log-probabilities of the choices (S,) and their gradients (S, P). If the
Hessian is known, Newton's method finds the maximum. Otherwise, a quasi-Newton method (BFGS) first approaches the
maximum, and Newton's method then uses a Hessian computed by central differences of the exact gradient. Parameters may
be fixed or bounded: see ``parameter_bounds.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.concurrency import thread_count
from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.parameter_bounds import Parameters

# -- Threads -----------------------------------------------------------------------------------------------------------
# Chunks of the data do not depend on the number of threads and each is computed by one thread, so results are the same
# bit for bit for any number of threads. NumPy's matrix products use threads of their own, which would compete with
# these and change the rounding, so they are limited to one.

T = TypeVar("T")
U = TypeVar("U")

_ThreadCount = tuple[Any, int]  # a BLAS library and its number of threads


def map_in_threads(function: Callable[[T], U], chunks: Sequence[T]) -> list[U]:
    """Call a function for each chunk in several threads, since NumPy and SciPy release the GIL."""
    if len(chunks) < 2:
        return list(map(function, chunks))
    with single_threaded_blas(), ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(function, chunks))


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit NumPy's matrix products to one thread until the last concurrent caller leaves the block."""
    previous = _blas_limit.enter()
    try:
        yield
    finally:
        _blas_limit.leave(previous)


class _BlasLimit:
    """A limit of one BLAS thread for the process, set by the first caller and lifted by the last caller.

    BLAS libraries built with OpenMP have a separate limit in each thread, which every caller sets and lifts.
    """

    def __init__(self) -> None:
        self._lock, self._callers = Lock(), 0
        self._before: list[_ThreadCount] = []

    def enter(self) -> list[_ThreadCount]:
        """Set the limit, and return the previous thread counts of the libraries with a limit in each thread."""
        with self._lock:
            if not self._callers:
                self._before = _limit([library for library in _blas() if not _is_per_thread(library)])
            self._callers += 1
            return _limit([library for library in _blas() if _is_per_thread(library)])

    def leave(self, previous: list[_ThreadCount]) -> None:
        """Lift the limit of this thread and, if this is the last caller, the limit of the process."""
        with self._lock:
            self._callers -= 1
            for library, number in previous + ([] if self._callers else self._before):
                _set_threads(library, number)
                _release(library)


_blas_limit = _BlasLimit()


def _limit(libraries: list[Any]) -> list[_ThreadCount]:
    """Limit libraries to one thread, and return the previous number of threads of each library."""
    before = [(library, library.num_threads) for library in libraries]
    for library in libraries:
        _set_threads(library, 1)
    return before


def _set_threads(library: Any, number: int) -> None:
    """Set the number of threads of a library, even if a different thread set the number before."""
    _release(library)
    library.set_num_threads(number)


def _release(library: Any) -> None:
    """Release the lock of threadpoolctl 3.8, which otherwise allows only the thread that set a limit to change it."""
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


def _is_per_thread(library: Any) -> bool:
    """Return True if a library has a separate limit for each calling thread."""
    return getattr(library, "threading_layer", None) == "openmp"


@cache
def _blas() -> list[Any]:
    """Return the loaded BLAS libraries."""
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


Objective = Callable[[Floats], tuple[Floats, Floats]]
Hessian = Callable[[Floats], Floats]

_DECREMENT = 1e-12  # least gain of a Newton step, relative to the log-likelihood
_SADDLE = 1e-7  # positive eigenvalue of the Hessian, relative to the largest, that is more than rounding error
_ROUNDING = 1e-14  # relative rounding error of a log-likelihood
_MAX_HALVINGS = 30
FLAT = 1e-10  # eigenvalue, relative to the largest, that is rounding error
_STEP = 1e-5  # step of central differences; near the optimum for a gradient exact to 1e-15
NO_CURVATURE = (
    "the Hessian of the log-likelihood is not finite: rescale columns on very different scales, or simplify the model."
)


@dataclass(frozen=True)
class Maximum:
    """Maximum of a weighted log-likelihood, with the scores and the Hessian that standard errors need."""

    values: Floats  # (P,)
    log_likelihood: float  # weighted sum over sets
    scores: Floats  # (S, P) gradient of each set's log-likelihood, before weighting
    hessian: Floats  # (P, P) of the weighted log-likelihood
    steps: int
    spread: Floats | None = None  # (P,) scale of what each parameter multiplies, to detect infinite estimates
    prior_score: Floats | None = None  # (P,) gradient of the log of the prior, if there is one


# -- Starts ------------------------------------------------------------------------------------------------------------
# A likelihood with several maxima is searched from several starts. Starts count as having ended at the same maximum if
# their objectives are nearly equal.

SAME_MAXIMUM = 0.1  # difference in log-likelihood below which two maxima count as one
SAME_POINT = 0.3  # difference of a parameter, in units that change a utility by about 1, below which they count as one


@dataclass(frozen=True, kw_only=True)
class StartsRecord:
    """Where the starts of a search ended."""

    starts: int
    at_maximum: int  # number of starts that ended at the best maximum
    next_best: float | None = None  # log-likelihood of the next best maximum, if there is one
    failed: int = 0  # number of starts without a finite likelihood
    sample: int | None = None  # number of choice sets on which the starts were compared; None for all

    def __str__(self) -> str:
        parts = [f"{self.at_maximum} of {self.starts} starts ended at this maximum"]
        if self.next_best is not None:
            parts.append(f"next best {self.next_best:.3f}")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.sample is not None:
            parts.append(f"compared on a sample of {self.sample:,} choice sets")
        return "; ".join(parts)


def group_by_maximum(
    objectives: Sequence[float], tolerance: float = SAME_MAXIMUM, points: Floats | None = None
) -> list[list[int]]:
    """Return the indices of the starts that ended at each maximum, with the best maximum first.

    Parameters
    ----------
    objectives
        Log-likelihood at the end of each start.
    tolerance
        Difference in log-likelihood up to which two ends may be the same maximum.
    points
        Parameters (N, P) at the ends, in units that change a utility by about 1. If given, ends at the same maximum
        must also be close. By default, only the log-likelihoods count.

    Examples
    --------
    >>> group_by_maximum([-9.0, -5.0, -5.05])
    [[1, 2], [0]]
    >>> group_by_maximum([-9.0, -5.0, -5.05], points=np.array([[0.0], [1.0], [2.0]]))
    [[1], [2], [0]]
    """
    groups: list[list[int]] = []
    for k in sorted(range(len(objectives)), key=lambda k: -objectives[k]):
        for group in reversed(groups):
            first = group[0]
            is_near = points is None or np.abs(points[first] - points[k]).max(initial=0.0) <= SAME_POINT
            if objectives[first] - objectives[k] <= tolerance and is_near:
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def maximise(
    objective: Objective,
    starts: Floats,
    weights: Floats,
    *,
    curvature: Hessian | None = None,
    scale: Floats | None = None,
    within: Parameters | None = None,
    max_iter: int = 200,
    enough: float = _DECREMENT,
) -> tuple[Floats, int]:
    """Maximise a weighted log-likelihood, and return the parameters (P,) and the number of iterations.

    Parameters
    ----------
    objective
        Function that returns log-probabilities (-inf if infeasible) and scores at given parameters.
    starts
        Starting values (P,), or (A, P) for several starts. The best maximum is returned.
    weights
        Weights (S,) of the choice sets.
    curvature
        Function that returns the Hessian of the weighted log-likelihood. If given, only Newton's method is used.
    scale
        Typical change (P,) of each parameter. Default 1.
    within
        Fixed, bounded or equal parameters. Starting values are clipped to the bounds. By default, there are no
        constraints.
    max_iter
        Maximum number of iterations of each method. Default 200.
    enough
        Smallest gain for which Newton's method continues, relative to the log-likelihood.

    Raises
    ------
    TrainingError
        If Newton's method has not converged after ``max_iter`` iterations, or the Hessian is not finite.
    """
    # 1. Start within the bounds, and measure each parameter in units of its scale.
    starts = np.atleast_2d(starts)
    size = np.ones(starts.shape[1]) if scale is None else scale
    within = Parameters.free(starts[0]) if within is None else within
    starts = within.clip(starts)
    if within.same_as is not None:  # maximise over the different values
        u, steps = maximise(
            reduced_objective(objective, within),
            starts[:, within.distinct],
            weights,
            curvature=None if curvature is None else reduced_hessian(curvature, within),
            scale=within.reduced_scale(size),
            within=within.reduced,
            max_iter=max_iter,
            enough=enough,
        )
        return u[within.group], steps
    # 2. Without a Hessian, come near a maximum by BFGS from each start; continue from the best.
    runs = [(x, 0) if curvature else _quasi_newton(objective, x, weights, size, within, max_iter) for x in starts]
    x, steps = max(runs, key=lambda run: float(weights @ objective(run[0])[0])) if len(runs) > 1 else runs[0]
    # 3. Newton's method converges quadratically from there. It ends when no step gains more than rounding error.
    for _ in range(max_iter):
        hessian = curvature(x) if curvature else numerical_hessian(objective, x, weights, scale=size)
        x, ended = _newton_step(objective, x, weights, hessian * np.outer(size, size), size, within, enough)
        if ended:
            return x, steps
        steps += 1
    raise TrainingError(
        f"the log-likelihood has not converged after {steps} iterations: raise max_iter or simplify the model."
    )


def reduced_objective(objective: Objective, within: Parameters) -> Objective:
    """Return the objective as a function of the different values (F,) of parameters of which some are equal."""

    def at(u: Floats) -> tuple[Floats, Floats]:
        ll, scores = objective(u[within.group])
        return ll, scores @ within.expansion

    return at


def reduced_hessian(curvature: Hessian, within: Parameters) -> Hessian:
    """Return the Hessian (F, F) as a function of the different values (F,)."""
    return lambda u: within.expansion.T @ curvature(u[within.group]) @ within.expansion


def _quasi_newton(
    objective: Objective, start: Floats, weights: Floats, size: Floats, within: Parameters, max_iter: int
) -> tuple[Floats, int]:
    """Maximise over the parameters that are not fixed, by BFGS or, if there are bounds, by L-BFGS-B."""
    from scipy.optimize import Bounds, minimize

    total, free = max(float(weights.sum()), 1e-300), ~within.fixed
    if not free.any():
        return start, 0

    def at(u: Floats) -> Floats:
        x = start.copy()
        x[free] = u * size[free]
        return x

    def mean_loss(u: Floats) -> tuple[float, Floats]:
        ll, scores = objective(at(u))
        value = -(weights @ ll) / total
        if not np.isfinite(value):
            return 1e300, np.zeros_like(u)  # infeasible: the line search shortens the step
        return float(value), -(weights @ scores)[free] * size[free] / total

    # The gradient of the mean loss does not grow with the number of sets, so one tolerance suits all tables.
    options = {"maxiter": max_iter, "gtol": 1e-5}  # Newton's method does the rest
    limits = (
        None if within.is_unconstrained else Bounds(*(bound[free] / size[free] for bound in (within.low, within.high)))
    )
    method = "BFGS" if limits is None else "L-BFGS-B"
    minimum = minimize(mean_loss, (start / size)[free], jac=True, method=method, bounds=limits, options=options)
    return within.clip(at(np.asarray(minimum.x))), int(minimum.nit)


def _newton_step(
    objective: Objective, x: Floats, weights: Floats, hessian: Floats, scale: Floats, within: Parameters, enough: float
) -> tuple[Floats, bool]:
    """Return the parameters after a Newton step, and whether no further step increases the likelihood enough."""
    # 1. The Newton step within the bounds. Half of gradient . step is its gain in the quadratic model.
    ll, scores = objective(x)
    value, gradient = weights @ ll, (weights @ scores) * scale
    low, high = within.step_limits(x, scale)
    step, least = newton_direction(-hessian, gradient, low, high), enough * (1 + abs(value))
    if gradient @ step / 2 <= least:
        # 2. Nothing to gain to second order: a maximum or a saddle point. At a maximum, take one last step, after which
        #    the relative error is about the square of what it was. Leave a saddle point along the eigenvector of the
        #    largest eigenvalue of the Hessian.
        free = np.flatnonzero((low < 0) & (high > 0))
        values, vectors = eigh(hessian[np.ix_(free, free)])
        if not len(free) or values[-1] / 2 <= max(least, _SADDLE * float(np.abs(values).max())):
            last = within.clip(x + step * scale)
            return (last if weights @ objective(last)[0] >= value - _ROUNDING * abs(value) else x), True
        step = np.zeros_like(x)
        step[free] = vectors[:, -1] * (1 if gradient[free] @ vectors[:, -1] >= 0 else -1)
    # 3. Halve the step until it gains: far from the maximum it may overshoot.
    for _ in range(_MAX_HALVINGS):
        next_x = within.clip(x + step * scale)
        if weights @ objective(next_x)[0] > value:
            return next_x, False
        step = step / 2
    return x, True


def newton_direction(
    information: Floats, gradient: Floats, low: Floats, high: Floats
) -> Floats:  # (P, P), 3 x (P,) -> (P,)
    """Return the Newton step within bounds, with the eigenvalues of the information replaced by their absolute values.

    The step is an ascent direction at any point, even if the information matrix is not positive definite.
    """
    # 1. The step without bounds, in the eigenvectors of the information.
    free = np.flatnonzero(low < high)
    values, vectors = eigh(information[np.ix_(free, free)])
    curvature, slope = magnitudes(values), vectors.T @ gradient[free]
    step = np.zeros_like(gradient)
    step[free] = vectors @ (slope / curvature)
    # 2. If it violates a bound, maximise the same quadratic model within the bounds. This is a least-squares problem:
    #    up to a constant, g . d - d' C d / 2 is minus half of |C^(1/2) d - C^(-1/2) g|^2.
    if ((step < low) | (step > high)).any():
        from scipy.optimize import lsq_linear

        root, limits = np.sqrt(curvature), (low[free], high[free])
        step[free] = lsq_linear(
            root[:, None] * vectors.T, slope / root, limits, method="bvls", tol=1e-14, max_iter=10 * len(free)
        ).x
    return step


# -- Estimates that only a prior keeps finite --------------------------------------------------------------------------
# If the data push a parameter to infinity, as when an alternative is never chosen, the likelihood has an exponential
# tail: g e^-x has a Newton step of 1 at every x. With a prior, the maximum is finite. But Newton steps from there, on
# the likelihood without the prior, keep a length of about 1, in units that change a utility by 1. If a parameter merely
# has a large standard error, these Newton steps become short.

_LONG_STEP = 0.3  # length of a Newton step that does not vanish
_STEPS_WITHOUT_PRIOR = 12


def diverges_without_prior(
    objective: Objective, curvature: Hessian, x: Floats, weights: Floats, *, scale: Floats, within: Parameters
) -> Bools:
    """Return True for each parameter (P,) that the likelihood without a prior pushes to infinity.

    Parameters
    ----------
    objective, curvature, weights, scale, within
        As in :func:`maximise`, without the prior.
    x
        Maximum with the prior (P,).
    """
    if within.same_as is not None:
        of_groups = diverges_without_prior(
            reduced_objective(objective, within),
            reduced_hessian(curvature, within),
            x[within.distinct],
            weights,
            scale=within.reduced_scale(scale),
            within=within.reduced,
        )
        return np.asarray(of_groups[within.group])
    diverges = np.zeros(len(x), bool)
    for _ in range(_STEPS_WITHOUT_PRIOR):
        # 1. The Newton step along each eigenvector of the Hessian. At most maxima, all of them are short at the start.
        ll, scores = objective(x)
        value, gradient = weights @ ll, (weights @ scores) * scale
        low, high = within.step_limits(x, scale)
        free = np.flatnonzero((low < 0) & (high > 0))
        values, vectors = eigh((curvature(x) * np.outer(scale, scale))[np.ix_(free, free)])
        lengths = vectors.T @ gradient[free] / magnitudes(values)
        long = np.abs(lengths) > _LONG_STEP
        # 2. Parameters with a large loading on an eigenvector with a long step diverge if the steps remain long.
        loadings = np.abs(vectors[:, long])
        diverges[:] = False
        diverges[free] = (loadings > 0.1 * loadings.max(axis=0, initial=0.0)).any(axis=1)
        if not long.any():
            return diverges
        # 3. Take the step, but not further than 1 along any eigenvector, and halve it until the likelihood rises.
        step = np.zeros_like(x)
        step[free] = vectors @ lengths.clip(-1, 1)
        for _ in range(_MAX_HALVINGS):
            next_x = within.clip(x + step * scale)
            if weights @ objective(next_x)[0] > value:
                break
            step = step / 2
        else:
            return diverges  # only rounding error is left to gain
        x = next_x
    return diverges


def magnitudes(values: Floats) -> Floats:
    """Return the absolute values of eigenvalues, floored at FLAT times the largest absolute value."""
    largest = max(float(np.abs(values).max(initial=0.0)), 1e-290)
    return np.maximum(np.abs(values), FLAT * largest)


def eigh(curvature: Floats) -> tuple[Floats, Floats]:  # (P, P) -> (P,), (P, P)
    """Return eigenvalues and eigenvectors, or raise TrainingError if they cannot be computed."""
    require_finite_curvature(curvature)
    try:
        values, vectors = np.linalg.eigh(curvature)
    except np.linalg.LinAlgError as error:
        raise TrainingError(NO_CURVATURE) from error
    return values, vectors


def require_finite_curvature(curvature: Floats) -> None:
    """Raise TrainingError if an entry is not finite, since LAPACK would fail or return wrong values."""
    if not np.isfinite(curvature).all():
        raise TrainingError(NO_CURVATURE)


def numerical_hessian(objective: Objective, x: Floats, weights: Floats, *, scale: Floats | None = None) -> Floats:
    """Return the Hessian (P, P) of the weighted log-likelihood, by central differences of its gradient."""
    size = np.ones_like(x) if scale is None else scale
    out = np.empty((len(x), len(x)))
    for k in range(len(x)):
        step = np.zeros_like(x)
        step[k] = _STEP * max(abs(x[k]), size[k])
        ahead, behind = (weights @ objective(x + sign * step)[1] for sign in (1, -1))
        out[k] = (ahead - behind) / (2 * step[k])
    return (out + out.T) / 2
