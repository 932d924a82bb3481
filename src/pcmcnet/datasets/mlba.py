"""The multiattribute linear ballistic accumulator: choices with context effects and known probabilities.

An alternative has two positive attributes (x, y), higher is better. From attributes to drifts
(Trueblood, Brown & Heathcote, 2014), with s = x + y and t = y / x:

- subjective values u1 = s (1 + t^m)^(-1/m) and u2 = s (1 + t^-m)^(-1/m): m > 1 favours alternatives
  whose attributes are alike, m = 1 gives back (x, y);
- drift d_i = i0 + sum over j, k of w(u_ik - u_jk) (u_ik - u_jk), with attention w(g) = exp(-lambda1 g)
  to an advantage g > 0 and exp(-lambda2 |g|) to a disadvantage. This is where context enters.

From drifts to probabilities, a race: i has a distance a to cover, uniform on [1, 2], at a speed drawn
from N(d_i, 1); the first to arrive is chosen, given that some speed is positive. In v = 1 / time, i is
still under way with probability S_i(v), and

    S_i(v) = mean over a of Phi(a v - d_i) = [H(2 v - d_i) - H(v - d_i)] / v,  H(x) = x Phi(x) + phi(x),
    S_i'(v) = [d_i (Phi(2 v - d_i) - Phi(v - d_i)) + phi(v - d_i) - phi(2 v - d_i)] / v^2,
    P(i) = integral over v > 0 of S_i'(v) prod_{j != i} S_j(v) dv / (1 - prod_j Phi(-d_j)).

Why v: the 1 / time^2 tail becomes an ordinary end at v = 0, and the integrand is analytic with Gaussian
decay, so that Gauss-Legendre panels converge geometrically. The integrands of a set add up to the
derivative of prod_j S_j, so that the integrals add up to the denominator: rows that sum to 1 confirm the
quadrature. With d the largest drift, what is left out below v = (d - REACH) / 2 and above v = d + REACH
is at most Phi(-REACH) = 6e-16 per alternative.

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
"""The second one: A with its attributes exchanged."""
THIRD = (1.0, 9.0)
"""Range of both attributes of the third alternative, c."""

NEAR, FAR = 1.0, 2.0  # the distance to cover is uniform between these
REACH = 8.0  # standard deviations of speed that the integral covers
PANEL, NODES = 4.0, 24  # width in v and Gauss-Legendre nodes of a panel
NEVER = -10.0  # a lower drift wins with probability below 1e-22: it may as well be this one
MAX_DRIFT = 1e4  # the work grows with the largest drift, by a panel for every 8
CHUNK = 1 << 17  # numbers in one temporary array, small enough for the cache


def probabilities(
    attributes: ArrayLike, m: float = 5.0, lambda1: float = 0.2, lambda2: float = 0.4, i0: float = 5.0
) -> Floats:
    """Compute the choice probabilities of the MLBA, to about 1e-12.

    Parameters
    ----------
    attributes
        Positive numbers of shape (sets, alternatives, 2).
    m
        Curvature of the subjective values, above 0.
    lambda1, lambda2
        Decay of the attention paid to an advantage and to a disadvantage, at least 0.
    i0
        Drift of an alternative that differs from no other.

    Returns
    -------
    Array of shape (sets, alternatives). A set none of whose drifts is positive gets the uniform law.

    Raises
    ------
    ConfigError
        A parameter is out of its range.
    InputError
        The attributes are not finite positive numbers of that shape, or give a drift above 10,000.

    Examples
    --------
    A decoy close to the first alternative, and worse, draws choices to it:

    >>> probabilities([[(4, 6), (6, 4), (3.5, 5.5)]]).round(3)
    array([[0.575, 0.382, 0.043]])
    """
    _check_parameters(m=m, lambda1=lambda1, lambda2=lambda2, i0=i0)
    x = _checked(attributes)
    n_sets, n = x.shape[:2]
    drift = np.empty((n_sets, n))
    for some in _chunks(np.arange(n_sets), 2 * n * n):
        drift[some] = _drifts(x[some], m, lambda1, lambda2, i0)
    # refuse drifts that overflowed, or would need an unreasonable number of panels
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
    """Draw the choice sets {a, b, c} of the paper's experiment, with c uniform on [1, 9]^2.

    Returns
    -------
    Attributes of shape (n_sets, 3, 2): A, B and c.

    Raises
    ------
    ConfigError
        ``n_sets`` is not a whole number from 1 to 2^31 - 1.
    """
    c = rng.uniform(*THIRD, size=(require_sets(n_sets), 2))
    fixed = np.broadcast_to([A, B], (len(c), 2, 2))
    return np.concatenate([fixed, c[:, None]], axis=1)


def simulate(sets: int, *, seed: int) -> pa.Table:
    """Simulate the paper's first experiment: sets {a, b, c}, one choice each, and the true probabilities.

    Parameters
    ----------
    sets
        How many choice sets, at least 1.
    seed
        Seed of all randomness, at least 0: the same seed gives the same table.

    Returns
    -------
    Long table, three rows per set, with columns choice_set, alternative, attr1, attr2, chosen and true_prob.

    Raises
    ------
    ConfigError
        ``sets`` or ``seed`` is not a whole number in its range.
    """
    rng = np.random.default_rng(require_seed(seed))
    x = choice_sets(sets, rng)
    p = probabilities(x)
    # one draw per set; the last threshold is 1 by definition, so rounding cannot miss it
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


def _check_parameters(**given: float) -> None:
    """Refuse parameters that are no numbers or out of range."""
    number, tiny = "a finite number", math.ulp(0.0)  # the least number above 0
    rules = {  # name: expected, least value, the paper's value
        "m": (f"{number} above 0", tiny, 5.0),
        "lambda1": (f"{number}, 0 or above", 0.0, 0.2),
        "lambda2": (f"{number}, 0 or above", 0.0, 0.4),
        "i0": (number, -math.inf, 5.0),
    }
    for name, value in given.items():
        expected, least, paper = rules[name]
        if not isinstance(value, Real) or not math.isfinite(value) or value < least:
            raise ConfigError(f"{name}: expected {expected}, got {value!r}. The paper has {name}={paper}.")


def _checked(attributes: ArrayLike) -> Floats:
    """Return the attributes as (sets, alternatives, 2) float64, all positive and finite."""
    shape = "attributes: expected numbers of shape (sets, alternatives, 2), alternatives at least 1"
    try:
        x: Floats = np.asarray(attributes, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{shape}, got {type(attributes).__name__} that does not convert ({error}). "
            "Give every set the same number of alternatives and only numbers."
        ) from error
    if x.ndim != 3 or x.shape[2] != 2 or x.shape[1] == 0:
        raise InputError(f"{shape}, got shape {x.shape}. For one set, pass a list that holds it.")
    bad = np.argwhere(~(np.isfinite(x) & (x > 0)))
    if len(bad):
        i, j, k = (int(index) for index in bad[0])
        raise InputError(
            f"attributes, set {i}, alternative {j}, attribute {k}: expected a finite number above 0, "
            f"got {x[i, j, k]}; {len(bad)} such values. Shift or drop them: subjective values need y / x > 0."
        )
    return x


def _chunks(index: Ints, numbers: int) -> Iterator[Ints]:
    """Cut ``index`` so that temporary arrays of ``numbers`` per entry stay within CHUNK."""
    size = max(1, CHUNK // numbers)
    for start in range(0, len(index), size):
        yield index[start : start + size]


def _drifts(x: Floats, m: float, lambda1: float, lambda2: float, i0: float) -> Floats:  # (S, J, 2) -> (S, J)
    """Compare subjective values pairwise; in logs, since t^m overflows for a curved model."""
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by probabilities
        log_t = np.log(x[..., 1]) - np.log(x[..., 0])
        # log(1 + t^m) / m = max(log t, 0) + rest, and the rest is the same for t and 1 / t
        rest = np.log1p(np.exp(-m * np.abs(log_t))) / m
        log_u = -np.stack([np.maximum(log_t, 0) + rest, np.maximum(-log_t, 0) + rest], axis=-1)
        u = x.sum(axis=-1, keepdims=True) * np.exp(log_u)
        gain = u[:, :, None] - u[:, None]  # (S, J, J, 2): i against j; 0 where i = j
        attention = np.exp(-np.where(gain > 0, lambda1, lambda2) * np.abs(gain))
        drift: Floats = i0 + (attention * gain).sum(axis=(2, 3))
    return drift


def _race(drift: Floats, *, nodes: int = NODES, panel: float = PANEL) -> Floats:  # (S, J) -> (S, J)
    """Integrate over v for sets with a positive drift; a set's own panels, so its company does not matter."""
    # 1. Where the integral begins and ends for each set, and how many panels it needs.
    drift = np.maximum(drift, NEVER)
    best = drift.max(axis=1)
    low, high = np.maximum(0, (best - REACH) / FAR), (best + REACH) / NEAR
    panels = np.ceil((high - low) / panel).astype(np.int64)
    # 2. Add up the panels, for sets with as many of them at once.
    at, weight = np.polynomial.legendre.leggauss(nodes)
    at, weight = (at + 1) / 2, weight / 2  # on [0, 1]
    won = np.zeros_like(drift)
    for count in np.unique(panels):
        for some in _chunks(np.flatnonzero(panels == count), drift.shape[1] * nodes):
            start, width = low[some, None], (high - low)[some, None] / count  # (S', 1)
            for k in range(count):
                density = _arrival(drift[some, :, None], (start + width * (k + at))[:, None])
                won[some] += width * (density @ weight)
    # 3. Given that some speed is positive.
    given: Floats = won / (1 - ndtr(-drift).prod(axis=1, keepdims=True))
    return given


def _arrival(d: Floats, v: Floats) -> Floats:  # (S, J, 1), (S, 1, K) -> (S, J, K)
    """Density in v of i arriving first: S_i'(v) times the other S_j(v)."""
    far, near = FAR * v - d, NEAR * v - d
    cdf_far, cdf_near, pdf_far, pdf_near = ndtr(far), ndtr(near), _normal_pdf(far), _normal_pdf(near)
    length = (FAR - NEAR) * v
    under_way = np.maximum((far * cdf_far + pdf_far - near * cdf_near - pdf_near) / length, 0)
    slope: Floats = np.maximum((d * (cdf_far - cdf_near) + pdf_near - pdf_far) / (length * v), 0)
    # the product without i is the product before i times the product after i: S_i may be 0, so no division
    slope[:, 1:] *= under_way.cumprod(axis=1)[:, :-1]
    slope[:, :-1] *= under_way[:, ::-1].cumprod(axis=1)[:, ::-1][:, 1:]
    return slope


def _normal_pdf(x: Floats) -> Floats:
    """Density of the standard normal law."""
    density: Floats = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return density
