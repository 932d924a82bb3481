"""The maximum of a log-likelihood whose scores are known set by set, and its curvature there.

An objective takes parameters (P,) to the log-probabilities of the choices (S,) and their gradients (S, P). Newton's
steps find the maximum where the Hessian is known. Where it is not, a quasi-Newton method (BFGS) comes near first, and
the Hessian is the central difference of the exact gradient. Parameters may be fixed or bounded: see
``parameter_bounds.py``.
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
import torch

from pcmcnet.arrays import Floats
from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.parameter_bounds import Parameters

# -- Work done part by part, several parts at a time -------------------------------------------------------------------
# Parts are cut by the data alone and each is computed by one thread, so results are the same bit for bit whatever the
# number of threads. numpy's products have threads of their own, which would compete with those and round otherwise.

T = TypeVar("T")
U = TypeVar("U")

_Number = tuple[Any, int]  # a library, and how many threads it has


def map_in_threads(function: Callable[[T], U], parts: Sequence[T]) -> list[U]:
    """Call a function for every part; numpy and scipy let other threads run meanwhile."""
    if len(parts) < 2:
        return list(map(function, parts))
    with single_threaded_blas(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(function, parts))


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Let every product of numpy's have one thread, until the last of those who asked for it at a time is done."""
    own = _one_thread.enter()
    try:
        yield
    finally:
        _one_thread.leave(own)


class _OneThread:
    """A limit for the process, which the first to enter sets and the last to leave lifts.

    Products that OpenMP divides have a limit in each thread, set and lifted by everyone who enters.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._before: list[_Number] = []

    def enter(self) -> list[_Number]:
        """Set the limit; returns what this thread alone had before."""
        with self._lock:
            if not self._inside:
                self._before = _limit([library for library in _blas() if not _is_of_a_thread(library)])
            self._inside += 1
            return _limit([library for library in _blas() if _is_of_a_thread(library)])

    def leave(self, own: list[_Number]) -> None:
        """Lift this thread's limit, and that of the process if nobody else is inside."""
        with self._lock:
            self._inside -= 1
            for library, number in own + ([] if self._inside else self._before):
                _set(library, number)
                _free(library)


_one_thread = _OneThread()


def _limit(libraries: list[Any]) -> list[_Number]:
    """Give libraries one thread; returns the numbers they had."""
    before = [(library, library.num_threads) for library in libraries]
    for library in libraries:
        _set(library, 1)
    return before


def _set(library: Any, number: int) -> None:
    """Set a number of threads, whoever set the one before."""
    _free(library)
    library.set_num_threads(number)


def _free(library: Any) -> None:
    """Undo what threadpoolctl 3.8 has begun: the thread that set a number for the process is the only one who may."""
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


def _is_of_a_thread(library: Any) -> bool:
    return getattr(library, "threading_layer", None) == "openmp"


@cache
def _blas() -> list[Any]:
    """Find the libraries of numpy's products: a search through all that are loaded."""
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


Objective = Callable[[Floats], tuple[Floats, Floats]]
Hessian = Callable[[Floats], Floats]

_DECREMENT = 1e-12  # what a further step could gain, relative to the log-likelihood, for a step to be taken
_SADDLE = 1e-7  # upward curvature, relative to the largest, that is more than rounding
_HALVINGS = 30
FLAT = 1e-10  # curvature, relative to the largest, that is no more than rounding
_STEP = 1e-5  # about the best for central differences of a gradient exact to 1e-15
NO_CURVATURE = (
    "the log-likelihood has no finite curvature: look for columns on very different scales, or simplify the model."
)


@dataclass(frozen=True)
class Maximum:
    """Where a weighted log-likelihood is largest, and what standard errors need to know about it."""

    values: Floats  # (P,)
    log_likelihood: float  # weighted sum over sets
    scores: Floats  # (S, P) gradient of each set's log-likelihood, without its weight
    hessian: Floats  # (P, P) of the weighted log-likelihood
    steps: int
    spread: Floats | None = None  # (P,) size of what each parameter multiplies, if some may have no finite estimate


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
    """Return the parameters (P,) with the largest weighted log-likelihood near a start, and the number of steps.

    Parameters
    ----------
    objective
        See above; -inf says that the parameters are out of bounds.
    starts
        (P,), or (A, P) for several, of which the one that leads highest counts.
    weights
        (S,) of the sets.
    curvature
        The Hessian of the weighted log-likelihood, if known: Newton's steps then go all the way.
    scale
        (P,) size that a change of each parameter should have to matter.
    within
        Parameters that are fixed or bounded, if any; starts are moved there.
    max_iter
        Steps of either method, at most.
    enough
        What a further step could gain, relative to the log-likelihood, for a step to be taken.
    """
    # 1. Start within the bounds, and measure every parameter in units of its scale.
    starts = np.atleast_2d(starts)
    size = np.ones(starts.shape[1]) if scale is None else scale
    within = Parameters.free(starts[0]) if within is None else within
    starts = within.inside(starts)
    # 2. Without a Hessian, come near a maximum by quasi-Newton steps, from each start; go on from the highest point.
    near = [(x, 0) if curvature else _quasi_newton(objective, x, weights, size, within, max_iter) for x in starts]
    x, steps = max(near, key=lambda found: float(weights @ objective(found[0])[0])) if len(near) > 1 else near[0]
    # 3. Newton's steps converge quadratically from there. They end where no step gains more than rounding.
    for _ in range(max_iter):
        bend = curvature(x) if curvature else hessian(objective, x, weights, scale=size)
        moved = _newton_step(objective, x, weights, bend * np.outer(size, size), size, within, enough)
        if moved is None:
            return x, steps
        x, steps = moved, steps + 1
    raise TrainingError(
        f"the log-likelihood has not settled after {steps} steps: raise max_iter or simplify the model."
    )


def _quasi_newton(
    objective: Objective, start: Floats, weights: Floats, size: Floats, within: Parameters, max_iter: int
) -> tuple[Floats, int]:
    """Come near a maximum, over the parameters that are not fixed."""
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
            return 1e300, np.zeros_like(u)  # too far: the line search comes back
        return float(value), -(weights @ scores)[free] * size[free] / total

    # The mean loss has a gradient of about the same size whatever the number of sets, so that one tolerance serves all.
    options = {"maxiter": max_iter, "gtol": 1e-5}  # Newton's steps do the rest
    limits = None if within.anywhere else Bounds(*(bound[free] / size[free] for bound in (within.low, within.high)))
    method = "BFGS" if limits is None else "L-BFGS-B"
    found = minimize(mean_loss, (start / size)[free], jac=True, method=method, bounds=limits, options=options)
    return within.inside(at(np.asarray(found.x))), int(found.nit)


def _newton_step(
    objective: Objective, x: Floats, weights: Floats, bend: Floats, scale: Floats, within: Parameters, enough: float
) -> Floats | None:
    """Take a step uphill; None where there is nothing to gain, or no step gains anything."""
    # 1. Newton's step between the bounds. Half of gradient . step is what the quadratic model says it gains.
    ll, scores = objective(x)
    value, gradient = weights @ ll, (weights @ scores) * scale
    low, high = within.room(x, scale)
    step, least = newton_direction(-bend, gradient, low, high), enough * (1 + abs(value))
    if gradient @ step / 2 <= least:
        # 2. Nothing to gain to second order: a maximum or a saddle. Off a saddle leads the direction in which the
        #    likelihood bends upwards most.
        free = np.flatnonzero((low < 0) & (high > 0))
        values, vectors = eigh(bend[np.ix_(free, free)])
        if not len(free) or values[-1] / 2 <= max(least, _SADDLE * float(np.abs(values).max())):
            return None
        step = np.zeros_like(x)
        step[free] = vectors[:, -1] * (1 if gradient[free] @ vectors[:, -1] >= 0 else -1)
    # 3. Halve the step until it gains: far from the maximum the quadratic model may overshoot.
    for _ in range(_HALVINGS):
        there = within.inside(x + step * scale)
        if weights @ objective(there)[0] > value:
            return there
        step = step / 2
    return None


def newton_direction(
    information: Floats, gradient: Floats, low: Floats, high: Floats
) -> Floats:  # (P, P), 3 x (P,) -> (P,)
    """Return Newton's step between bounds; where the likelihood is flat or bends upwards, as if it bent downwards.

    With the eigenvalues of the information replaced by their sizes, the step leads uphill at any point.
    """
    # 1. The step without bounds, in the axes of the information.
    free = np.flatnonzero(low < high)
    values, vectors = eigh(information[np.ix_(free, free)])
    bend, slope = sizes(values), vectors.T @ gradient[free]
    step = np.zeros_like(gradient)
    step[free] = vectors @ (slope / bend)
    # 2. Where it leads out, the largest value of the same quadratic model between the bounds: least squares, as
    #    g . d - d' C d / 2 is, up to a constant, minus half of |C^(1/2) d - C^(-1/2) g|^2.
    if ((step < low) | (step > high)).any():
        from scipy.optimize import lsq_linear

        root, limits = np.sqrt(bend), (low[free], high[free])
        step[free] = lsq_linear(
            root[:, None] * vectors.T, slope / root, limits, method="bvls", tol=1e-14, max_iter=10 * len(free)
        ).x
    return step


def sizes(values: Floats) -> Floats:
    """Return the sizes of eigenvalues, floored at FLAT times the largest."""
    largest = max(float(np.abs(values).max(initial=0.0)), 1e-290)
    return np.maximum(np.abs(values), FLAT * largest)


def eigh(curvature: Floats) -> tuple[Floats, Floats]:  # (P, P) -> (P,), (P, P)
    """Return eigenvalues and eigenvectors; a curvature that has none is a TrainingError."""
    require_finite_curvature(curvature)
    try:
        values, vectors = np.linalg.eigh(curvature)
    except np.linalg.LinAlgError as error:
        raise TrainingError(NO_CURVATURE) from error
    return values, vectors


def require_finite_curvature(curvature: Floats) -> None:
    """Refuse numbers of which LAPACK makes others, or none."""
    if not np.isfinite(curvature).all():
        raise TrainingError(NO_CURVATURE)


def hessian(objective: Objective, x: Floats, weights: Floats, *, scale: Floats | None = None) -> Floats:
    """Return the Hessian (P, P) of the weighted log-likelihood, by central differences of its gradient."""
    size = np.ones_like(x) if scale is None else scale
    out = np.empty((len(x), len(x)))
    for k in range(len(x)):
        step = np.zeros_like(x)
        step[k] = _STEP * max(abs(x[k]), size[k])
        ahead, behind = (weights @ objective(x + sign * step)[1] for sign in (1, -1))
        out[k] = (ahead - behind) / (2 * step[k])
    return (out + out.T) / 2
