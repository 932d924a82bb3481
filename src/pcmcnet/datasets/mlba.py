"""The multiattribute linear ballistic accumulator: choices with context effects and known probabilities.

An alternative has two positive attributes (x, y); higher values are better. Attributes are converted to drifts as
follows (Trueblood, Brown & Heathcote, 2014), with s = x + y and t = y / x:

- subjective values u1 = s (1 + t^m)^(-1/m) and u2 = s (1 + t^-m)^(-1/m): m > 1 favours alternatives
  with similar attributes, m = 1 gives (x, y);
- drift d_i = i0 + sum over j, k of w(u_ik - u_jk) (u_ik - u_jk), with attention w(g) = exp(-lambda1 g)
  to an advantage g > 0 and exp(-lambda2 |g|) to a disadvantage. The comparisons cause the context effects.

The drifts determine the outcome of a race: alternative i covers a distance a, uniform on [1, 2], at a speed drawn from
N(d_i, 1). The alternative that arrives first is chosen, given that at least one speed is positive. With v = 1 / time
and S_i(v) the probability that i has not arrived yet,

    S_i(v) = mean over a of Phi(a v - d_i) = [H(2 v - d_i) - H(v - d_i)] / v,  H(x) = x Phi(x) + phi(x),
    S_i'(v) = [d_i (Phi(2 v - d_i) - Phi(v - d_i)) + phi(v - d_i) - phi(2 v - d_i)] / v^2,
    P(i) = integral over v > 0 of S_i'(v) prod_{j != i} S_j(v) dv / (1 - prod_j Phi(-d_j)).

The substitution v = 1 / time turns the 1 / time^2 tail into a finite limit at v = 0. The integrand is analytic with
Gaussian decay, so Gauss-Legendre panels converge geometrically. The integrands of a set add up to the derivative of
prod_j S_j, so the integrals add up to the denominator. Probabilities that sum to 1 in each set therefore verify the
quadrature. With d the largest drift, the integrals below v = (d - REACH) / 2 and above v = d + REACH are left out,
because their values are at most Phi(-REACH) = 6e-16 per alternative.

Shapes: attributes (sets, alternatives, 2) -> probabilities (sets, alternatives).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from scipy.special import ndtr

from pcmcnet.arrays import Floats, Ints
from pcmcnet.datasets.truth import require_seed, require_sets
from pcmcnet.errors import ConfigError, InputError

__all__ = ["A", "B", "choice_sets", "probabilities", "simulate"]


A = (4.0, 6.0)
"""The first fixed alternative of the paper's experiment."""
B = (6.0, 4.0)
"""The second fixed alternative of the paper's experiment: A with the two attributes swapped."""
THIRD = (1.0, 9.0)
"""Range of both attributes of the third alternative, c, in the paper's experiment."""

NEAR, FAR = 1.0, 2.0  # range of the uniform distance
REACH = 8.0  # standard deviations of speed that the integral covers
PANEL, NODES = 4.0, 24  # width in v, and number of Gauss-Legendre nodes, of a panel
MIN_DRIFT = -10.0  # lower drifts are raised to this one: they win with probability below 1e-22
MAX_DRIFT = 1e4  # limits the work, which grows by one panel for every 8 units of the largest drift
CHUNK_VALUES = 1 << 17  # numbers in one temporary array, small enough for the cache


def probabilities(
    attributes: ArrayLike, m: float = 5.0, lambda1: float = 0.2, lambda2: float = 0.4, i0: float = 5.0
) -> Floats:
    """Compute the choice probabilities of the MLBA, with an error of about 1e-12.

    Parameters
    ----------
    attributes : array, (sets, alternatives, 2)
        Attributes of the alternatives, all positive.
    m : float
        Curvature of the subjective values, above 0. Default 5.
    lambda1, lambda2 : float
        Decay of attention to advantages and to disadvantages, respectively, at least 0. Defaults: 0.2 and 0.4.
    i0 : float
        Drift of an alternative that is equal to all other alternatives. Default 5.

    Returns
    -------
    array of float, (sets, alternatives)
        Choice probabilities, which are uniform in sets without a positive drift.

    Raises
    ------
    ConfigError
        If a parameter is out of range.
    InputError
        If the attributes are not finite positive numbers of the given shape, or if a drift is above 10,000.

    Examples
    --------
    A decoy that is similar to the first alternative, but dominated, attracts choices to the first alternative:

    >>> probabilities([[(4, 6), (6, 4), (3.5, 5.5)]]).round(3)
    array([[0.575, 0.382, 0.043]])
    """
    _require_parameters(m=m, lambda1=lambda1, lambda2=lambda2, i0=i0)
    x = _checked(attributes)
    n_sets, n = x.shape[:2]
    drift = np.empty((n_sets, n))
    for sets in _chunks(np.arange(n_sets), 2 * n * n):
        drift[sets] = _drifts(x[sets], m, lambda1, lambda2, i0)
    # raise InputError for drifts that overflowed or would need too many panels
    bad = np.argwhere(~(drift <= MAX_DRIFT))
    if len(bad):
        i, j = (int(index) for index in bad[0])
        raise InputError(
            f"attributes, set {i}, alternative {j}: expected a drift of at most {MAX_DRIFT:g}, "
            f"got {drift[i, j]:g}; {len(bad)} such alternatives. Divide the attributes by a constant, "
            "lower i0 or raise lambda1."
        )
    p = np.full((n_sets, n), 1 / n)
    racing = np.flatnonzero((drift > 0).any(axis=1))
    p[racing] = _race(drift[racing])
    return p


def choice_sets(n_sets: int, rng: np.random.Generator) -> Floats:
    """Draw choice sets {A, B, c} of the paper's experiment, with the attributes of c uniform on [1, 9]^2.

    Parameters
    ----------
    n_sets : int
        Number of choice sets, at least 1.
    rng : numpy.random.Generator
        Random number generator.

    Returns
    -------
    array of float, (n_sets, 3, 2)
        Attributes of A, B and c.

    Raises
    ------
    ConfigError
        If ``n_sets`` is not an integer from 1 to 2^31 - 1.
    """
    c = rng.uniform(*THIRD, size=(require_sets(n_sets), 2))
    fixed = np.broadcast_to([A, B], (len(c), 2, 2))
    return np.concatenate([fixed, c[:, None]], axis=1)


def simulate(sets: int, *, seed: int) -> pa.Table:
    """Simulate the paper's first experiment: choice sets {a, b, c} with one choice each and the true probabilities.

    Parameters
    ----------
    sets : int
        Number of choice sets, at least 1.
    seed : int
        Seed of the random number generator, at least 0. The same seed gives the same table.

    Returns
    -------
    pyarrow.Table
        Long table with three rows per set and columns choice_set, alternative, attr1, attr2, chosen and true_prob.

    Raises
    ------
    ConfigError
        If ``sets`` or ``seed`` is not an integer in the valid range.
    """
    rng = np.random.default_rng(require_seed(seed))
    x = choice_sets(sets, rng)
    p = probabilities(x)
    # draw once per set; the last threshold, 1, is left out, so rounding cannot lead past it
    chosen = (rng.random((len(p), 1)) >= p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    labels = pa.DictionaryArray.from_arrays(np.tile(np.arange(3, dtype=np.int8), len(x)), ["a", "b", "c"])
    return pa.table(
        {
            "choice_set": np.repeat(np.arange(len(x), dtype=np.int32), 3),
            "alternative": labels.cast(pa.string()),
            "attr1": x[..., 0].ravel(),
            "attr2": x[..., 1].ravel(),
            "chosen": (chosen[:, None] == np.arange(3)).astype(np.int8).ravel(),
            "true_prob": p.ravel(),
        }
    )


def _require_parameters(**parameters: float) -> None:
    """Raise ConfigError if a parameter is not a number or is out of range."""
    number, tiny = "a finite number", math.ulp(0.0)  # the smallest number above 0
    rules = {  # name: expectation, minimum, the paper's value
        "m": (f"{number} above 0", tiny, 5.0),
        "lambda1": (f"{number}, 0 or above", 0.0, 0.2),
        "lambda2": (f"{number}, 0 or above", 0.0, 0.4),
        "i0": (number, -math.inf, 5.0),
    }
    for name, value in parameters.items():
        expected, minimum, paper = rules[name]
        if not isinstance(value, Real) or not math.isfinite(value) or value < minimum:
            raise ConfigError(f"{name}: expected {expected}, got {value!r}. The paper uses {name}={paper}.")


def _checked(attributes: ArrayLike) -> Floats:
    """Return the attributes as float64 (sets, alternatives, 2). Raise InputError unless all are positive and finite."""
    shape = "attributes: expected numbers of shape (sets, alternatives, 2) with at least 1 alternative"
    try:
        x: Floats = np.asarray(attributes, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{shape}, got a {type(attributes).__name__} that cannot be converted ({error}). "
            "Use only numbers, and the same number of alternatives in every set."
        ) from error
    if x.ndim != 3 or x.shape[2] != 2 or x.shape[1] == 0:
        raise InputError(f"{shape}, got shape {x.shape}. For a single set, pass a list with one set.")
    bad = np.argwhere(~(np.isfinite(x) & (x > 0)))
    if len(bad):
        i, j, k = (int(index) for index in bad[0])
        raise InputError(
            f"attributes, set {i}, alternative {j}, attribute {k}: expected a finite number above 0, "
            f"got {x[i, j, k]}; {len(bad)} such values. Shift or drop them: subjective values need y / x > 0."
        )
    return x


def _chunks(index: Ints, numbers: int) -> Iterator[Ints]:
    """Yield chunks of ``index`` such that temporary arrays of ``numbers`` values per entry stay within CHUNK_VALUES."""
    size = max(1, CHUNK_VALUES // numbers)
    for start in range(0, len(index), size):
        yield index[start : start + size]


def _drifts(x: Floats, m: float, lambda1: float, lambda2: float, i0: float) -> Floats:  # (S, J, 2) -> (S, J)
    """Compute drifts from pairwise comparisons of subjective values, in logs to avoid overflow of t^m for large m."""
    with np.errstate(over="ignore", invalid="ignore"):  # `probabilities` raises an error for overflowed drifts
        log_t = np.log(x[..., 1]) - np.log(x[..., 0])
        # log(1 + t^m) / m = max(log t, 0) + rest, and the rest is the same for t and 1 / t
        rest = np.log1p(np.exp(-m * np.abs(log_t))) / m
        log_u = -np.stack([np.maximum(log_t, 0) + rest, np.maximum(-log_t, 0) + rest], axis=-1)
        u = x.sum(axis=-1, keepdims=True) * np.exp(log_u)
        gain = u[:, :, None] - u[:, None]  # (S, J, J, 2): i against j; 0 for i = j
        attention = np.exp(-np.where(gain > 0, lambda1, lambda2) * np.abs(gain))
        drift: Floats = i0 + (attention * gain).sum(axis=(2, 3))
    return drift


def _race(drift: Floats, *, nodes: int = NODES, panel: float = PANEL) -> Floats:  # (S, J) -> (S, J)
    """Compute the choice probabilities of sets with a positive drift by numerical integration over v.

    Each set has its own quadrature panels, so the result for a set does not depend on other sets.
    """
    # 1. Find the limits of the integral of each set, and its number of panels.
    drift = np.maximum(drift, MIN_DRIFT)
    best = drift.max(axis=1)
    low, high = np.maximum(0, (best - REACH) / FAR), (best + REACH) / NEAR
    panels = np.ceil((high - low) / panel).astype(np.int64)
    # 2. Sum over the panels, for all sets with the same number of panels at a time.
    at, weight = np.polynomial.legendre.leggauss(nodes)
    at, weight = (at + 1) / 2, weight / 2  # on [0, 1]
    won = np.zeros_like(drift)
    for count in np.unique(panels):
        for sets in _chunks(np.flatnonzero(panels == count), drift.shape[1] * nodes):
            start, width = low[sets, None], (high - low)[sets, None] / count  # (S', 1)
            for k in range(count):
                density = _arrival(drift[sets, :, None], (start + width * (k + at))[:, None])
                won[sets] += width * (density @ weight)
    # 3. Condition on a positive speed of at least one alternative.
    p: Floats = won / (1 - ndtr(-drift).prod(axis=1, keepdims=True))
    return p


def _arrival(d: Floats, v: Floats) -> Floats:  # (S, J, 1), (S, 1, K) -> (S, J, K)
    """Return the density, with respect to v, of i arriving first: S_i'(v) times the other S_j(v)."""
    far, near = FAR * v - d, NEAR * v - d
    cdf_far, cdf_near, pdf_far, pdf_near = ndtr(far), ndtr(near), _normal_pdf(far), _normal_pdf(near)
    length = (FAR - NEAR) * v
    not_arrived = np.maximum((far * cdf_far + pdf_far - near * cdf_near - pdf_near) / length, 0)
    slope: Floats = np.maximum((d * (cdf_far - cdf_near) + pdf_near - pdf_far) / (length * v), 0)
    # multiply the products before i and after i: S_i may be 0, so the full product cannot be divided by it
    slope[:, 1:] *= not_arrived.cumprod(axis=1)[:, :-1]
    slope[:, :-1] *= not_arrived[:, ::-1].cumprod(axis=1)[:, ::-1][:, 1:]
    return slope


def _normal_pdf(x: Floats) -> Floats:
    """Return the density of the standard normal distribution."""
    density: Floats = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return density
