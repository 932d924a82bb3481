"""Estimates with their standard errors, three ways, and the table that shows them.

With H the Hessian of the log-likelihood at the estimate and g_s the score of set s, weights included, the covariance is

    classical   (-H)^-1                                          if the model is right
    robust      (-H)^-1 [sum_s g_s g_s'] (-H)^-1                 if it is not (Huber, 1967; White, 1982)
    clustered   the same with the scores of a cluster summed,    if the sets of a cluster go together
                times G / (G - 1) for G clusters

Parameters that are fixed, or have come to a bound, are taken as given: H and g_s have no rows for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.logit.maximum_likelihood import Maximum
from pcmcnet.models.logit.parameter_bounds import Parameters, listed
from pcmcnet.reports.formats import data_frame, to_fragment
from pcmcnet.reports.sections import Table
from pcmcnet.reports.tables import number

Errors = Literal["classical", "robust", "clustered"]

_FLAT = 1e-10  # curvature in a direction, relative to the usual, below which the likelihood has no maximum in it
_STEP = 1e-5  # of central differences, relative


class Ratio(NamedTuple):
    """A ratio of two coefficients with its standard error."""

    name: str
    value: float
    error: float

    def _repr_html_(self) -> str:
        head, row = ["ratio", "value", "standard error"], [self.name, number(self.value), number(self.error)]
        return to_fragment("Ratio", [Table(cells=[head, row])])


@dataclass(frozen=True)
class Estimates:
    """What maximum likelihood found. ``null`` holds the values that z and p test against."""

    names: tuple[str, ...]
    values: Floats  # (K,)
    null: Floats  # (K,)
    covariances: Mapping[str, Floats]  # by kind of errors, (K, K)
    log_likelihood: float
    null_log_likelihood: float  # all alternatives of a set alike
    n_sets: int
    steps: int
    clusters: int | None = None
    constants_log_likelihood: float | None = None  # the likelihood that constants alone reach, where there are some
    unbounded: tuple[str, ...] = ()  # coefficients that the data push to infinity
    fixed: tuple[str, ...] = ()  # coefficients that were given, not estimated
    at_bound: tuple[str, ...] = ()  # coefficients that came to one of their bounds
    weight: float | None = None  # of all sets; their number if not given

    @property
    def n_parameters(self) -> int:
        """Number of parameters that were estimated: all that were not fixed."""
        return len(self.values) - len(self.fixed)

    @property
    def aic(self) -> float:
        """Akaike's criterion: smaller is better."""
        return 2 * self.n_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's criterion, smaller is better; a set of weight 2 counts as two sets, as in the likelihood."""
        weight = self.n_sets if self.weight is None else self.weight
        return float(np.log(weight)) * self.n_parameters - 2 * self.log_likelihood

    @property
    def rho_squared(self) -> float:
        """McFadden's measure, against all alternatives of a set alike; 0 where nothing could be explained."""
        return 1 - self.log_likelihood / self.null_log_likelihood if self.null_log_likelihood else 0.0

    @property
    def adjusted_rho_squared(self) -> float:
        """The same, less the number of parameters."""
        null = self.null_log_likelihood
        return 1 - (self.log_likelihood - self.n_parameters) / null if null else 0.0

    def covariance(self, errors: Errors = "classical") -> Floats:
        """Return the covariance (K, K) of the estimates; 0 where they are fixed or at a bound, as given numbers are."""
        if errors not in get_args(Errors):
            got, remedy = f"{errors!r}.", ""
            if not isinstance(errors, str):
                got = f"an object of type {type(errors).__name__}."
                remedy = " Those of a bootstrap are shown by pcmcnet.table(model, errors=...)."
            raise InputError(f"errors must be one of {', '.join(get_args(Errors))}, got {got}{remedy}")
        if errors not in self.covariances:
            raise InputError("clustered errors need the clusters: fit with cluster=<column>, or a table with persons.")
        return self.covariances[errors]

    def standard_errors(self, errors: Errors = "classical") -> dict[str, float]:
        """Return the standard error of each coefficient.

        It is inf where the data push a coefficient to infinity, and nan where there is none: for a coefficient that
        is fixed, or has come to a bound.
        """
        spread = np.sqrt(np.maximum(np.diag(self.covariance(errors)), 0.0))
        found = dict(zip(self.names, spread.tolist(), strict=True))
        found |= dict.fromkeys(self.unbounded, float("inf"))
        return found | dict.fromkeys((*self.fixed, *self.at_bound), float("nan"))

    def position(self, name: str) -> int:
        """Return where a coefficient stands."""
        if name not in self.names:
            raise InputError(f"no coefficient is called {name!r}." + did_you_mean(name, self.names))
        return self.names.index(name)

    def delta(self, function: Callable[[Floats], Any], errors: Errors = "classical") -> tuple[Floats, Floats]:
        """Return f(estimates) and its standard errors by the delta method; f may return many values.

        Errors are inf for values that depend on a coefficient without finite estimate. Coefficients that are fixed or
        at a bound count as known numbers.
        """
        # 1. The Jacobian J of f by central differences, in steps of a part of each coefficient or of its error.
        at = np.asarray(function(self.values), np.float64)
        covariance = self.covariance(errors)
        sizes = np.maximum(np.abs(self.values), np.sqrt(np.maximum(np.diag(covariance), 0.0)))
        jacobian = np.empty((at.size, len(self.values)))
        for k, size in enumerate(np.where(sizes > 0, sizes, 1.0)):
            step = np.zeros_like(self.values)
            step[k] = _STEP * size
            ahead, behind = (np.asarray(function(self.values + s * step), np.float64).ravel() for s in (1, -1))
            jacobian[:, k] = (ahead - behind) / (2 * step[k])
        # 2. The variance of f is J V J' to first order.
        variance = np.einsum("ik,kl,il->i", jacobian, covariance, jacobian)
        # 3. A value that moves with a coefficient without a finite estimate has no finite variance either.
        runaway = [self.names.index(name) for name in self.unbounded]
        moved = np.abs(jacobian[:, runaway] * self.values[runaway]).max(axis=1, initial=0.0)
        variance[moved > _FLAT * np.maximum(np.abs(at.ravel()), _FLAT)] = np.inf
        return at, np.sqrt(np.maximum(variance, 0.0)).reshape(at.shape)

    def rows(self, errors: Errors, calibrated: Collection[str] = ()) -> tuple[tuple[str, ...], ...]:
        """Return name, estimate, standard error, z and p of each coefficient as text; or why it has no error."""
        lines = []
        for row in estimate_rows(self, errors, calibrated=calibrated):
            has_error = row.state in ("", NO_ESTIMATE)
            test = (f"{row.std_error:.3g}", f"{row.z:.2f}", f"{row.p:.3f}") if has_error else (row.state, "", "")
            lines.append((row.name, f"{row.estimate:.4g}", *test))
        return tuple(lines)

    def facts(self) -> dict[str, str]:
        """Return the figures above an econometrician's table."""
        constants = self.constants_log_likelihood
        facts = {
            "choice sets": f"{self.n_sets:,}",
            "parameters": f"{self.n_parameters:,}" + (f", and {len(self.fixed):,} fixed" if self.fixed else ""),
            "log-likelihood": f"{self.log_likelihood:.3f}",
            "null log-likelihood": f"{self.null_log_likelihood:.3f}",
            "constants-only log-likelihood": "" if constants is None else f"{constants:.3f}",
            "rho-squared": f"{self.rho_squared:.4f}",
            "adjusted rho-squared": f"{self.adjusted_rho_squared:.4f}",
            "AIC": f"{self.aic:.2f}",
            "BIC": f"{self.bic:.2f}",
            "steps": f"{self.steps:,}",
            "no finite estimate": listed(self.unbounded),
        }
        return {name: fact for name, fact in facts.items() if fact}


def z_test(difference: float, error: float) -> tuple[float, float]:
    """Return z and its two-sided p."""
    from scipy.special import ndtr

    if error == 0:
        return float("inf") if difference else 0.0, 0.0 if difference else 1.0
    z = difference / error
    return float(z), float(2 * ndtr(-abs(z)))


def infer(
    maximum: Maximum,
    parameters: Parameters,
    weights: Floats,
    sizes: Ints,
    clusters: Ints | None = None,
    null: Floats | None = None,
    constants_log_likelihood: float | None = None,
) -> Estimates:
    """Turn the maximum of a log-likelihood into estimates with their errors.

    Parameters
    ----------
    maximum
        Where it is, with scores and Hessian there.
    parameters
        (K,) names, and which parameters were fixed or bounded.
    weights, sizes, clusters
        (S,) weight, number of alternatives and, perhaps, cluster of each set.
    null
        (K,) values to test against; 0 if not given.
    constants_log_likelihood
        What constants alone reach, to be shown beside.
    """
    names, values = parameters.names, maximum.values
    # 1. The inverse of the information, over the parameters that are neither fixed nor at a bound.
    ended = parameters.at_bound(values)
    free = ~(parameters.fixed | ended)
    inverse, flat = _inverse(-maximum.hessian, maximum.spread, float(weights.sum()), free)
    # 2. It is the classical covariance; the robust one puts the products of the scores between two of it.
    each = maximum.scores * weights[:, None]
    covariances = {"classical": inverse, "robust": inverse @ (each.T @ each) @ inverse}
    # 3. The clustered one first sums the scores of a cluster, whose sets are not independent.
    n_clusters = None
    if clusters is not None:
        n_clusters = len(np.unique(clusters[weights > 0]))
        if n_clusters < 2:
            raise InputError("clustered errors need at least 2 clusters, found 1: choose another column.")
        sums = np.column_stack([np.bincount(clusters, weights=score) for score in each.T])
        factor = n_clusters / (n_clusters - 1)
        covariances["clustered"] = factor * (inverse @ (sums.T @ sums) @ inverse)
    return Estimates(
        names=names,
        values=values,
        null=np.zeros_like(values) if null is None else null,
        covariances=covariances,
        log_likelihood=maximum.log_likelihood,
        null_log_likelihood=float(-(weights @ np.log(sizes))),
        n_sets=int((weights > 0).sum()),
        steps=maximum.steps,
        clusters=n_clusters,
        constants_log_likelihood=constants_log_likelihood,
        unbounded=tuple(names[k] for k in flat),
        fixed=tuple(names[k] for k in np.flatnonzero(parameters.fixed)),
        at_bound=tuple(names[k] for k in np.flatnonzero(ended)),
        weight=float(weights.sum()),
    )


def _inverse(information: Floats, spread: Floats | None, weight: float, free: Bools) -> tuple[Floats, list[int]]:
    """Invert, leaving out the directions in which the likelihood is flat; say which coefficients those move.

    Coefficients that are not free are taken as given: they have rows and columns of 0. By the size of what it
    multiplies, a coefficient has about as much information as there are sets, by weight.
    """
    # 1. Units in which all coefficients have about the same information, so that eigenvalues compare.
    place = np.flatnonzero(free)
    information = information[np.ix_(place, place)]
    scale = 1 / (np.sqrt(np.maximum(np.diag(information), 1e-300)) if spread is None else spread[place])
    # 2. Invert along the axes in which the likelihood bends; along the others it has no maximum.
    values, vectors = np.linalg.eigh(information * np.outer(scale, scale))
    usual = max(float(values.max(initial=0.0)), 0.0 if spread is None else weight, 1e-300)
    solid = values > _FLAT * usual
    inverse = np.zeros((len(free), len(free)))
    inverse[np.ix_(place, place)] = (vectors[:, solid] / values[solid]) @ vectors[:, solid].T * np.outer(scale, scale)
    # 3. The coefficients with a large part in some flat axis are those without a finite estimate.
    flat = np.abs(vectors[:, ~solid])
    moved = (flat > 0.1 * flat.max(axis=0, initial=0.0)).any(axis=1)
    return inverse, place[moved].tolist()


# -- Estimates -> one row per coefficient: estimate, standard error, z, p and the ends of an interval ------------------
# The interval of level q is estimate -+ Phi^-1((1 + q) / 2) standard errors. A coefficient that is fixed or has come to
# a bound has no error, so that all else is nan for it; nor has a constant that was moved to known shares after the fit.
# One that the data push to infinity has an infinite error.

NAN = float("nan")
NO_ESTIMATE = "no finite estimate"  # state of a coefficient that the data push to infinity


class EstimateRow(NamedTuple):
    """One coefficient; z and p test it against its null value, which is 1 for a log-sum and 0 otherwise."""

    name: str
    estimate: float
    std_error: float
    z: float
    p: float
    lower: float
    upper: float
    state: str  # "", "fixed", "at its bound", "calibrated" or "no finite estimate"


def estimate_rows(
    estimates: Estimates, errors: Errors, level: float = 0.95, calibrated: Collection[str] = ()
) -> list[EstimateRow]:
    """Return the rows, in the order of the coefficients; ``calibrated`` ones are no estimates, and have no errors."""
    from scipy.special import ndtri

    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    wide, spread = float(ndtri((1 + level) / 2)), estimates.standard_errors(errors)
    states = dict.fromkeys(estimates.unbounded, NO_ESTIMATE)
    states |= dict.fromkeys(estimates.fixed, "fixed") | dict.fromkeys(estimates.at_bound, "at its bound")
    states |= dict.fromkeys(calibrated, "calibrated")
    spread |= dict.fromkeys(calibrated, NAN)
    rows = []
    for name, value, null in zip(estimates.names, estimates.values.tolist(), estimates.null.tolist(), strict=True):
        error, state = spread[name], states.get(name, "")
        z, p = z_test(value - null, error) if error == error else (NAN, NAN)
        rows.append(EstimateRow(name, value, error, z, p, value - wide * error, value + wide * error, state))
    return rows


def interval_ends(lower: float, upper: float) -> tuple[str, str]:
    """Write the ends of an interval; nothing where there is none."""
    return ("", "") if lower != lower else (f"{lower:.4g}", f"{upper:.4g}")


def estimate_frame(estimates: Estimates, errors: Errors, level: float = 0.95, calibrated: Collection[str] = ()) -> Any:
    """Return the rows as a pandas data frame, indexed by name."""
    rows = estimate_rows(estimates, errors, level, calibrated)
    columns = {field: [getattr(row, field) for row in rows] for field in EstimateRow._fields}
    return data_frame(pa.table(columns), index="name", asked="estimates", instead="coefficients and standard_errors()")
