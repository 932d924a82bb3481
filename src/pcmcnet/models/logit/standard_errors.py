"""Estimates with classical, robust and clustered standard errors, and the table of coefficients.

Let H be the Hessian of the log-likelihood at the estimates, and g_s the weighted score of choice set s. The covariance
matrix of the estimates is

    classical   (-H)^-1                                          inverse of the information; correct specification
    robust      (-H)^-1 [sum_s g_s g_s'] (-H)^-1                 sandwich with BHHH matrix (Huber, 1967; White, 1982)
    clustered   sandwich with scores summed within clusters,     dependent choices within a cluster
                times G / (G - 1) for G clusters

In a choice-based sample (``data/choice_based.py``), the robust covariance subtracts from g_s the mean of the scores in
the stratum of s.

If all weights are multiplied by a number, the classical covariance is divided by this number, and the other two do not
change. So with expansion weights, which are not numbers of identical choices, only the sandwich is valid.

The scores sum to 0 at the maximum, so the clustered covariance has at most rank G - 1. With G <= K clusters for K
coefficients, some combination of the coefficients has an estimated variance of 0, and K coefficients cannot be tested
jointly. Even with more clusters, the standard errors tend to be too small if clusters are few; rules of thumb ask for
20 to 50 (Cameron & Miller, 2015).

Parameters that are fixed or on the boundary are treated as known, so H and g_s have no rows for these parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.logit.convergence import ConvergenceRecord, measure_convergence
from pcmcnet.models.logit.maximum_likelihood import Maximum
from pcmcnet.models.logit.parameter_bounds import Parameters, listed
from pcmcnet.reports.formats import to_fragment
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.sections import Table
from pcmcnet.reports.tables import number

Errors = Literal["classical", "robust", "clustered"]

WEIGHTS_AS_COUNTS = "not valid for expansion weights, only for weights that are numbers of identical choices"

FEW_CLUSTERS = 30  # with fewer clusters, clustered standard errors have a caveat (Cameron & Miller, 2015)

_FLAT = 1e-10  # relative eigenvalue of the information below which the likelihood has no maximum in that direction
_STEP = 1e-5  # relative step of central differences


class Ratio(NamedTuple):
    """A ratio of two coefficients with its standard error."""

    name: str
    value: float
    error: float

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row: name, value and error."""
        return data_frame(pa.Table.from_pylist([self._asdict()]))

    def _repr_html_(self) -> str:
        head, row = ["ratio", "value", "standard error"], [self.name, number(self.value), number(self.error)]
        return to_fragment("Ratio", [Table(cells=[head, row])])


@dataclass(frozen=True)
class Estimates:
    """Maximum likelihood estimates with their covariance matrices and measures of fit.

    ``null`` contains the values of the coefficients under the null hypotheses of the z-tests.
    """

    names: tuple[str, ...]
    values: Floats  # (K,)
    null: Floats  # (K,)
    covariances: Mapping[str, Floats]  # by kind of standard errors, (K, K)
    log_likelihood: float
    null_log_likelihood: float  # of equal probabilities within each choice set
    n_sets: int
    steps: int  # iterations
    clusters: int | None = None  # number of clusters, for clustered errors
    constants_log_likelihood: float | None = None  # of a model with constants only; None without constants
    unbounded: tuple[str, ...] = ()  # coefficients without a finite estimate
    fixed: tuple[str, ...] = ()  # coefficients that are not estimated
    equal: Mapping[str, str] = field(default_factory=dict)  # coefficients that equal an earlier one, with its name
    at_bound: tuple[str, ...] = ()  # coefficients on the boundary of the parameter space
    weight: float | None = None  # total weight of the sets; default: their number
    weighted: bool = False  # whether a choice set has a weight other than 1
    n_single: int = 0  # number of sets with one alternative
    single_weight: float = 0.0  # total weight of these sets
    convergence: ConvergenceRecord | None = None  # None if no parameter is free
    sketch: Floats | None = None  # of the columns of a linear utility: see ``column_sketch.py``

    @property
    def n_parameters(self) -> int:
        """Number of estimated parameters: those that are not fixed, and do not equal an earlier parameter."""
        return len(self.values) - len(self.fixed) - len(self.equal)

    @property
    def _n_tested(self) -> int:
        """Number of parameters with a standard error, where equal parameters count once."""
        return len(self.values) - len({*self.fixed, *self.at_bound, *self.equal})

    @property
    def aic(self) -> float:
        """Akaike information criterion, where smaller is better."""
        return 2 * self.n_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Bayesian information criterion, where smaller is better.

        The number of observations is the total weight of the choice sets with at least two alternatives, so a set with
        weight 2 counts as two sets. A set with one alternative says nothing about the coefficients.
        """
        weight = (self.n_sets if self.weight is None else self.weight) - self.single_weight
        return float(np.log(weight)) * self.n_parameters - 2 * self.log_likelihood

    @property
    def rho_squared(self) -> float:
        """McFadden's rho-squared relative to equal probabilities, or 0 if the null log-likelihood is 0."""
        return 1 - self.log_likelihood / self.null_log_likelihood if self.null_log_likelihood else 0.0

    @property
    def adjusted_rho_squared(self) -> float:
        """McFadden's rho-squared, adjusted for the number of parameters."""
        null = self.null_log_likelihood
        return 1 - (self.log_likelihood - self.n_parameters) / null if null else 0.0

    def covariance(self, errors: Errors = "classical") -> Floats:
        """Return the covariance matrix (K, K) of the estimates.

        Rows and columns of coefficients that are fixed or on the boundary are 0.

        Parameters
        ----------
        errors
            Kind of standard errors: "classical" (default), "robust" or "clustered".

        Raises
        ------
        InputError
            If ``errors`` is unknown, or clustered errors are requested from a fit without clusters.
        """
        if errors not in get_args(Errors):
            got, remedy = f"{errors!r}.", ""
            if not isinstance(errors, str):
                got = f"an object of type {type(errors).__name__}."
                remedy = " For bootstrap errors, use pcmcnet.table(model, errors=...)."
            raise InputError(f"errors must be one of {', '.join(get_args(Errors))}, got {got}{remedy}")
        if errors not in self.covariances:
            raise InputError(
                "clustered errors need clusters: fit with cluster=<column>, or read the table with person=<column>."
            )
        return self.covariances[errors]

    def standard_errors(self, errors: Errors = "classical") -> dict[str, float]:
        """Return the standard error of each coefficient, by name.

        The standard error is inf for a coefficient without a finite estimate, and nan for a coefficient that is fixed
        or on the boundary.

        Parameters
        ----------
        errors
            Kind of standard errors: "classical" (default), "robust" or "clustered".
        """
        deviations = np.sqrt(np.maximum(np.diag(self.covariance(errors)), 0.0))
        by_name = dict(zip(self.names, deviations.tolist(), strict=True))
        by_name |= dict.fromkeys(self.unbounded, float("inf"))
        return by_name | dict.fromkeys((*self.fixed, *self.at_bound), float("nan"))

    @property
    def equal_groups(self) -> list[tuple[str, ...]]:
        """Names of each group of estimated coefficients that are constrained to be equal."""
        members: dict[str, list[str]] = {}
        for name, first in self.equal.items():
            members.setdefault(first, [first]).append(name)
        return [tuple(names) for names in members.values()]

    def with_unbounded(self, names: Collection[str]) -> Estimates:
        """Return the estimates with more coefficients marked as having no finite estimate."""
        unbounded = {*self.unbounded, *names}
        return replace(self, unbounded=tuple(name for name in self.names if name in unbounded))

    def position(self, name: str) -> int:
        """Return the index of a coefficient, or raise InputError if the name is unknown."""
        if name not in self.names:
            raise InputError(f"the model has no coefficient {name!r}." + did_you_mean(name, self.names))
        return self.names.index(name)

    def delta(self, function: Callable[[Floats], Any], errors: Errors = "classical") -> tuple[Floats, Floats]:
        """Return f(estimates) and its standard errors by the delta method.

        Parameters
        ----------
        function
            Function f of all coefficients (K,), which may return an array.
        errors
            Kind of standard errors: "classical" (default), "robust" or "clustered".

        Returns
        -------
        Value and standard error of f. The error is inf for a value that depends on a coefficient without a finite
        estimate. Coefficients that are fixed or on the boundary are treated as known.
        """
        # 1. The Jacobian J of f by central differences, with steps relative to each coefficient or its error.
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
        # 3. A value that depends on a coefficient without a finite estimate has no finite variance.
        runaway = [self.names.index(name) for name in self.unbounded]
        moved = np.abs(jacobian[:, runaway] * self.values[runaway]).max(axis=1, initial=0.0)
        variance[moved > _FLAT * np.maximum(np.abs(at.ravel()), _FLAT)] = np.inf
        return at, np.sqrt(np.maximum(variance, 0.0)).reshape(at.shape)

    def rows(self, errors: Errors, calibrated: Collection[str] = ()) -> tuple[tuple[str, ...], ...]:
        """Return name, estimate, standard error, z and p of each coefficient as text.

        A coefficient without a standard error has the reason in its place.
        """
        lines = []
        for row in estimate_rows(self, errors, calibrated=calibrated):
            has_error = row.state in ("", NO_ESTIMATE)
            test = (f"{row.std_error:.3g}", f"{row.z:.2f}", f"{row.p:.3f}") if has_error else (row.state, "", "")
            lines.append((row.name, f"{row.estimate:.4g}", *test))
        return tuple(lines)

    @property
    def default_errors(self) -> Errors:
        """The kind of standard errors that suits the table: clustered, robust for weighted sets, or classical."""
        if self.clusters is not None:
            return "clustered"
        return "robust" if self.weighted else "classical"

    @property
    def lacks_clusters(self) -> bool:
        """Whether there are clusters, but not more than coefficients with a standard error."""
        return self.clusters is not None and self.clusters <= self._n_tested

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Reasons why AIC and BIC may not be valid."""
        return (f"AIC and BIC use a weighted likelihood, and are {WEIGHTS_AS_COUNTS}",) if self.weighted else ()

    def error_caveats(self, errors: Errors) -> tuple[str, ...]:
        """Return the reasons why standard errors of the given kind may not be valid."""
        caveats = []
        if errors == "clustered" and self.lacks_clusters:
            n_tested = self._n_tested
            caveats.append(
                f"clustered standard errors of {n_tested} coefficients need more than {n_tested} clusters, got "
                f"{self.clusters}: they are unreliable and may be much too small. Use errors='robust', or a cluster "
                f"column with more groups"
            )
        elif errors == "clustered" and self.clusters is not None and self.clusters < FEW_CLUSTERS:
            caveats.append(
                f"clustered standard errors tend to be too small with fewer than about {FEW_CLUSTERS} clusters; this "
                f"model has {self.clusters}"
            )
        if self.weighted and errors == "classical":
            caveats.append(f"classical standard errors are {WEIGHTS_AS_COUNTS}: use errors='robust'")
        return tuple(caveats)

    def facts(self) -> dict[str, str]:
        """Return the measures of fit that a summary shows above its table."""
        constants = self.constants_log_likelihood
        facts = {
            "choice sets": f"{self.n_sets:,}"
            + (f", {self.n_single:,} of them with one alternative" if self.n_single else ""),
            "parameters": f"{self.n_parameters:,}" + (f", and {len(self.fixed):,} fixed" if self.fixed else ""),
            "equal": "; ".join(" = ".join(map(repr, group)) for group in self.equal_groups),
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
    """Return the z-statistic and its two-sided p-value."""
    if error == 0:
        return float("inf") if difference else 0.0, 0.0 if difference else 1.0
    z = difference / error
    return float(z), math.erfc(abs(z) / math.sqrt(2))


def infer(
    maximum: Maximum,
    parameters: Parameters,
    weights: Floats,
    sizes: Floats | Ints,
    clusters: Ints | None = None,
    null: Floats | None = None,
    constants_log_likelihood: float | None = None,
    strata: Ints | None = None,
) -> Estimates:
    """Return estimates with standard errors from the maximum of a log-likelihood.

    Parameters
    ----------
    maximum
        The maximum, with its scores and Hessian.
    parameters
        Names, fixed values and bounds of the K parameters.
    weights, sizes
        Weight and number of alternatives (S,) of each choice set. For sampled alternatives: see ``equivalent_sizes``.
    clusters
        Cluster (S,) of each choice set. By default, there are no clusters.
    null
        Values (K,) under the null hypotheses. Default 0.
    constants_log_likelihood
        Log-likelihood of a model with constants only, if known.
    strata
        Stratum (S,) by which each choice set was sampled. By default, there are no strata.

    Raises
    ------
    InputError
        If there are fewer than two clusters.
    """
    if parameters.same_as is not None:
        maximum_of_groups, null_of_groups = _of_groups(maximum, parameters, null)
        rest = (clusters, null_of_groups, constants_log_likelihood, strata)
        of_groups = infer(maximum_of_groups, parameters.reduced, weights, sizes, *rest)
        return _of_parameters(of_groups, parameters)
    names, values = parameters.names, maximum.values
    # 1. Invert the information matrix of the parameters that are neither fixed nor on the boundary.
    on_boundary = parameters.at_bound(values)
    free = ~(parameters.fixed | on_boundary)
    inverse, unbounded = _inverse(-maximum.hessian, maximum.spread, float(weights.sum()), free)
    # 2. The inverse is the classical covariance; the robust one is the sandwich with the outer product of the scores.
    each = maximum.scores * weights[:, None]
    deviations = each if strata is None else _without_means(each, strata)
    covariances = {"classical": inverse, "robust": inverse @ (deviations.T @ deviations) @ inverse}
    # 3. The clustered covariance first sums the scores within each cluster.
    n_clusters = None
    if clusters is not None:
        n_clusters = len(np.unique(clusters[weights > 0]))
        if n_clusters < 2:
            raise InputError("clustered errors need at least 2 clusters, got 1: choose another column.")
        sums = np.column_stack([np.bincount(clusters, weights=score) for score in each.T])
        factor = n_clusters / (n_clusters - 1)
        covariances["clustered"] = factor * (inverse @ (sums.T @ sums) @ inverse)
    # 4. Convergence, of the parameters with a finite estimate.
    finite = np.flatnonzero(free & ~np.isin(np.arange(len(values)), unbounded))
    gradient = each.sum(0) + (0.0 if maximum.prior_score is None else maximum.prior_score)
    of_finite = np.ix_(finite, finite)
    information = -maximum.hessian[of_finite] * ((weights > 0).sum() / weights.sum())
    spread = np.sqrt(np.maximum(np.diag(information), 1e-300)) if maximum.spread is None else maximum.spread[finite]
    distance = values if null is None else values - null
    convergence = measure_convergence(
        [names[k] for k in finite],
        gradient[finite],
        information,
        inverse[of_finite],
        distance[finite],
        1 / spread,
    )
    is_single = (sizes == 1) & (weights > 0)
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
        unbounded=tuple(names[k] for k in unbounded),
        fixed=tuple(names[k] for k in np.flatnonzero(parameters.fixed)),
        at_bound=tuple(names[k] for k in np.flatnonzero(on_boundary)),
        weight=float(weights.sum()),
        weighted=bool((weights[weights > 0] != 1).any()),
        n_single=int(is_single.sum()),
        single_weight=float(weights[is_single].sum()),
        convergence=convergence,
    )


def _without_means(scores: Floats, strata: Ints) -> Floats:  # (S, K), (S,) -> (S, K)
    """Return the scores minus their means within strata."""
    sums = np.zeros((int(strata.max(initial=0)) + 1, scores.shape[1]))
    np.add.at(sums, strata, scores)
    means = sums / np.maximum(np.bincount(strata, minlength=len(sums)), 1)[:, None]
    return np.asarray(scores - means[strata])


def _of_groups(maximum: Maximum, parameters: Parameters, null: Floats | None) -> tuple[Maximum, Floats | None]:
    """Return the maximum and the null values as functions of the different values, if some parameters are equal."""
    T, first = parameters.expansion, parameters.distinct
    spread = None if maximum.spread is None else 1 / parameters.reduced_scale(1 / maximum.spread)
    of_groups = replace(
        maximum,
        values=maximum.values[first],
        scores=maximum.scores @ T,
        hessian=T.T @ maximum.hessian @ T,
        spread=spread,
        prior_score=None if maximum.prior_score is None else maximum.prior_score @ T,
    )
    return of_groups, None if null is None else null[first]


def _of_parameters(estimates: Estimates, parameters: Parameters) -> Estimates:
    """Return estimates of all parameters, given the estimates of the first parameter of each group of equal ones."""
    names, group = parameters.names, parameters.group

    def members(firsts: Collection[str]) -> tuple[str, ...]:
        return tuple(name for name, g in zip(names, group, strict=True) if estimates.names[g] in firsts)

    firsts = dict(zip(names, (estimates.names[g] for g in group), strict=True))
    fixed = members(estimates.fixed)
    return replace(
        estimates,
        names=names,
        values=estimates.values[group],
        null=estimates.null[group],
        covariances={kind: matrix[np.ix_(group, group)] for kind, matrix in estimates.covariances.items()},
        unbounded=members(estimates.unbounded),
        fixed=fixed,
        at_bound=members(estimates.at_bound),
        equal={name: first for name, first in firsts.items() if first != name and name not in fixed},
    )


def _inverse(information: Floats, spread: Floats | None, weight: float, free: Bools) -> tuple[Floats, list[int]]:
    """Return the pseudo-inverse of the information, and the coefficients without a finite estimate.

    The inverse omits directions in which the likelihood is flat. Rows and columns of coefficients that are not free are
    0. In units of ``spread``, the information about a coefficient is close to the total weight of the sets.
    """
    # 1. Scale coefficients to about the same information, so that eigenvalues can be compared.
    index = np.flatnonzero(free)
    information = information[np.ix_(index, index)]
    scale = 1 / (np.sqrt(np.maximum(np.diag(information), 1e-300)) if spread is None else spread[index])
    # 2. Invert along the eigenvectors with curvature; along the others there is no maximum.
    values, vectors = np.linalg.eigh(information * np.outer(scale, scale))
    usual = max(float(values.max(initial=0.0)), 0.0 if spread is None else weight, 1e-300)
    curved = values > _FLAT * usual
    inverse = np.zeros((len(free), len(free)))
    inverse[np.ix_(index, index)] = (
        (vectors[:, curved] / values[curved]) @ vectors[:, curved].T * np.outer(scale, scale)
    )
    # 3. Coefficients with a large loading on a flat eigenvector have no finite estimate.
    flat = np.abs(vectors[:, ~curved])
    moved = (flat > 0.1 * flat.max(axis=0, initial=0.0)).any(axis=1)
    return inverse, index[moved].tolist()


# -- Table of coefficients: estimate, standard error, z, p and confidence interval -------------------------------------
# The confidence interval of level q is estimate -+ Phi^-1((1 + q) / 2) standard errors. A coefficient that is fixed or
# on the boundary has no standard error, nor has a constant that was calibrated to known shares after the fit: its
# standard error, z, p and interval are nan. A coefficient without a finite estimate has an infinite standard error.

NAN = float("nan")
NO_ESTIMATE = "no finite estimate"  # state of a coefficient whose likelihood has no maximum


class EstimateRow(NamedTuple):
    """One coefficient, where z and p test its null value: 1 for log-sums and Box-Cox exponents, else 0."""

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
    """Return a row for each coefficient, without standard errors for ``calibrated`` coefficients."""
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    quantile, std_errors = NormalDist().inv_cdf((1 + level) / 2), estimates.standard_errors(errors)
    states = dict.fromkeys(estimates.unbounded, NO_ESTIMATE)
    states |= dict.fromkeys(estimates.fixed, "fixed") | dict.fromkeys(estimates.at_bound, "at its bound")
    states |= dict.fromkeys(calibrated, "calibrated")
    std_errors |= dict.fromkeys(calibrated, NAN)
    rows = []
    for name, value, null in zip(estimates.names, estimates.values.tolist(), estimates.null.tolist(), strict=True):
        error, state = std_errors[name], states.get(name, "")
        z, p = z_test(value - null, error) if error == error else (NAN, NAN)
        lower, upper = value - quantile * error, value + quantile * error
        rows.append(EstimateRow(name, value, error, z, p, lower, upper, state))
    return rows


def interval_ends(lower: float, upper: float) -> tuple[str, str]:
    """Return the bounds of a confidence interval as text, or empty strings if they are nan."""
    return ("", "") if lower != lower else (f"{lower:.4g}", f"{upper:.4g}")


def estimate_frame(estimates: Estimates, errors: Errors, level: float = 0.95, calibrated: Collection[str] = ()) -> Any:
    """Return the rows of :func:`estimate_rows` as a pandas data frame, indexed by name."""
    rows = estimate_rows(estimates, errors, level, calibrated)
    columns = {field: [getattr(row, field) for row in rows] for field in EstimateRow._fields}
    return data_frame(pa.table(columns), index="name", method="estimates", instead="coefficients and standard_errors()")
