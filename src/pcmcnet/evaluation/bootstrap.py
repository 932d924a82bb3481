"""The bootstrap: intervals for weighted means over choice sets, and standard errors of coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data import ChoiceData
from pcmcnet.data.resampling import resample
from pcmcnet.errors import ConfigError, InputError, TrainingError
from pcmcnet.evaluation.predictions import require_training_sets
from pcmcnet.models import LatentClassMNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel, require_estimated
from pcmcnet.progress import show_steps
from pcmcnet.reports.formats import FormatsMixin, ResultContent
from pcmcnet.reports.frames import data_frame

# -- Bootstrap intervals -----------------------------------------------------------------------------------------------
# Values per choice set -> intervals of their weighted means, by the percentile bootstrap over choice sets.
#
# A resample draws S of the S sets with replacement and computes sum(w v) / sum(w) over them (Efron, 1979). All M
# columns of the values (S, M) use the same resamples, so the means of one resample are comparable, and the interval of
# a difference is the interval of a column that holds the differences. If the sets of a person, or of another group,
# depend on each other, `aggregate_by_group` makes groups the units that are drawn.
#
# The percentile interval is too short for few sets. Its percentiles are moved outwards to Phi(t sqrt(n / (n - 1))),
# with t the Student quantile at n - 1 degrees of freedom: the expanded percentile interval of Hesterberg (2015, "What
# teachers should know about the bootstrap"). At n = 10 it uses the 0.9 % percentile instead of the 2.5 % percentile; at
# n = 1,000 there is almost no change. With unequal weights, n is (sum w)^2 / sum(w^2). A single set says nothing about
# the variance, so its interval is (-inf, inf).

MANY_DEGREES = 200  # degrees of freedom from which the series of a t quantile is exact to 3e-10
_SETS_PER_BATCH = 2**21  # sets drawn per batch, about 50 MiB: memory does not grow with the number of resamples


def bootstrap_interval(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    resamples: int = 1000,
    level: float = 0.95,
) -> Floats:
    """Return the ends of the bootstrap interval for a weighted mean, (2,), or for M weighted means, (M, 2).

    ``values`` (S,) or (S, M) has one row per choice set, and its entries may be infinite. A weight is the importance of
    a set in the mean, not a number of observations. Sets with weight 0 are ignored. The interval is (-inf, inf) if
    fewer than two sets have a positive weight. ``level`` is the nominal coverage.

    Examples
    --------
    >>> hits = np.repeat([0.0, 1.0], [300, 700])  # binomial: 0.7 -+ 1.96 sqrt(0.7 0.3 / 1000) = 0.672, 0.728
    >>> bootstrap_interval(hits, rng=np.random.default_rng(0)).round(2)
    array([0.67, 0.73])
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, got {level}.")
    v, w = _checked(values, weights)
    return percentile_interval(resampled_means(v, w, rng=rng, resamples=resamples), w, level=level)


def percentile_interval(means: Floats, weights: Floats, *, level: float = 0.95) -> Floats:
    """Return the interval ends, (2,) or (M, 2), given resampled means and the weights of the resampled units."""
    w = weights[weights > 0]
    if len(w) < 2:
        return np.broadcast_to([-np.inf, np.inf], (*means.shape[1:], 2)).copy()
    tail = expanded_tail(level, n=float(w.sum() ** 2 / (w**2).sum()))
    # Do not interpolate between two means: inf - inf would give NaN.
    low = np.quantile(means, tail, axis=0, method="lower")
    high = np.quantile(means, 1 - tail, axis=0, method="higher")
    return np.stack([low, high], axis=-1)


def resampled_means(
    values: ArrayLike, weights: ArrayLike | None = None, *, rng: np.random.Generator, resamples: int = 1000
) -> Floats:
    """Return the weighted mean of each resample, (resamples,) or (resamples, M), for :func:`bootstrap_interval`."""
    if resamples < 1:
        raise ConfigError(f"resamples must be at least 1, got {resamples}.")
    v, w = _checked(values, weights)
    v, w = v[w > 0], w[w > 0]
    S = len(w)
    columns = v.reshape(S, -1)  # (S, M)
    # 1. Set infinite values aside: 0 * inf would give NaN.
    plus, minus = columns == np.inf, columns == -np.inf
    if (plus.any(axis=0) & minus.any(axis=0)).any():
        raise InputError("values contain both inf and -inf: their mean does not exist.")
    weighted = np.where(plus | minus, 0.0, columns) * w[:, None]
    # 2. Compute the means in batches of resamples; a mean is infinite if an infinite value was drawn.
    step = max(1, _SETS_PER_BATCH // S)
    parts = []
    for start in range(0, resamples, step):
        count = _counts(S, min(step, resamples - start), rng)  # (R, S)
        mean = (count @ weighted) / (count @ w)[:, None]  # (R, M)
        if plus.any() or minus.any():
            mean[count @ plus > 0] = np.inf
            mean[count @ minus > 0] = -np.inf
        parts.append(mean)
    return np.concatenate(parts).reshape(resamples, *v.shape[1:])


def p_values(differences: Floats) -> Floats:
    """Return the two-sided p-value of each difference, given its resampled means (R, M).

    The p-value is twice the smaller of (1 + #{d <= 0}) / (1 + R) and (1 + #{d >= 0}) / (1 + R), but at most 1. The
    observed sample counts as an additional resample on each side, so that the p-value is never 0.

    Examples
    --------
    >>> p_values(np.array([[0.2, 0.0], [0.1, 0.0], [-0.1, 0.0]]))  # 2 (1 + 1) / (1 + 3), and 2 (1 + 3) / (1 + 3)
    array([1., 1.])
    >>> p_values(np.full((999, 1), 0.3))
    array([0.002])
    """
    below, above = (differences <= 0).sum(axis=0), (differences >= 0).sum(axis=0)
    p: Floats = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (1 + len(differences)))
    return p


def aggregate_by_group(values: Floats, weights: Floats, groups: ArrayLike) -> tuple[Floats, Floats]:
    """Aggregate the values (S, M) and weights (S,) of sets into values (G, M) and weights (G,) of their groups.

    The value of a group is the weighted mean over its sets, and its weight is the sum of their weights, so that the
    weighted mean over groups equals the weighted mean over sets. Resampling groups keeps the dependent sets of a group
    together. Groups with weight 0 are left out.
    """
    counted = weights > 0
    w = weights[counted]
    group = np.unique(np.asarray(groups)[counted], return_inverse=True)[1]
    total: Floats = np.bincount(group, w).astype(np.float64)
    means = np.column_stack([np.bincount(group, w * column) for column in values[counted].T]) / total[:, None]
    return means, total


def _counts(sets: int, resamples: int, rng: np.random.Generator) -> Floats:
    """Return the number of times each resample draws each set, (resamples, sets)."""
    drawn = rng.integers(0, sets, (resamples, sets))
    drawn += sets * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * sets).reshape(resamples, sets).astype(np.float64)


def expanded_tail(level: float, n: float) -> float:
    """Return the tail probability of the expanded percentile interval."""
    n = max(n, 2.0)  # at n = 2 the interval already covers all resamples
    x = _t_quantile((1 - level) / 2, n - 1) * math.sqrt(n / (n - 1))
    return math.erfc(-x / math.sqrt(2)) / 2  # Phi(x), also far in the tail


def _t_quantile(p: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution."""
    if freedom < MANY_DEGREES:
        from scipy.special import stdtrit  # slow to import

        return float(stdtrit(freedom, p))
    # The quantile of the normal distribution and its first corrections (Abramowitz & Stegun, 1964, formula 26.7.5).
    x = NormalDist().inv_cdf(p)
    corrections = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92_160,
    )
    return x + sum(correction / freedom**k for k, correction in enumerate(corrections, start=1))


def _checked(values: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats]:
    """Return values and weights as arrays, or raise InputError if their shapes or values are not valid."""
    v = np.asarray(values, dtype=np.float64)
    w = np.ones(len(v)) if weights is None else np.asarray(weights, dtype=np.float64)
    if v.ndim not in (1, 2) or w.shape != v.shape[:1]:
        raise InputError(f"expected shape (S,) or (S, M) for values and (S,) for weights, got {v.shape} and {w.shape}.")
    if np.isnan(v).any():
        raise InputError(f"values: expected numbers, got NaN for {int(np.isnan(v).sum())} of {v.size}.")
    if not (np.isfinite(w) & (w >= 0)).all() or not w.any():
        raise InputError("weights must be finite and at least 0, and at least one must be above 0.")
    return v, w


# -- Bootstrap errors --------------------------------------------------------------------------------------------------
# Standard errors by the bootstrap: a logit is fitted again to resamples of the persons, or of the choice sets.
#
# A resample gives random weights to the persons (:mod:`pcmcnet.data.resampling`). The covariance of the estimates over
# the resamples estimates their sampling covariance, and percentiles give intervals. The design-matrix columns are the
# same as in the model: levels and scales are not learnt again, and latent classes are numbered as in the model. A
# resample depends only on the seed and its own number.

_MIN_ESTIMATED_SHARE = 0.5  # share of the resamples that must have estimates


class ResampledUnits(NamedTuple):
    """The group (S,) of each choice set, the name of the groups, and the number of groups with a positive weight."""

    groups: Ints
    unit: str
    n_units: int


def resampled_units(sets: ChoiceData, by: str | ArrayLike | None) -> ResampledUnits:
    """Return the units that a bootstrap resamples: by default persons, otherwise rankings, otherwise choice sets.

    The word "person" selects these default units too, unless it is the name of a column and no persons are declared.
    """
    schema = sets.schema
    if isinstance(by, str) and by == "person" and (schema.person or "person" not in {**sets.individual, **sets.keep}):
        by = None
    column = (schema.group_column or schema.choice_set) if by is None else by
    groups = sets.groups(column)
    n_units = len(np.unique(groups[sets.weights > 0]))
    if n_units < 2:
        raise InputError("the bootstrap needs at least two groups of choice sets: choose another column.")
    if not isinstance(column, str):
        return ResampledUnits(groups, "groups", n_units)
    sets_of_table = "rankings" if schema.rank is not None else "choice sets" if schema.counts is None else "markets"
    names = {schema.person: "persons", schema.choice_set: sets_of_table}
    return ResampledUnits(groups, names.get(column, f"groups of column {column!r}"), n_units)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BootstrapErrors(FormatsMixin):
    """Bootstrap estimates of logit coefficients, returned by :func:`bootstrap_errors` and printed as a table.

    Attributes
    ----------
    names
        Names of the K coefficients.
    values
        Estimates from the original table, (K,).
    samples
        Estimates from D resamples, (D, K).
    unit
        The resampled units: "persons", "rankings", "choice sets", or the groups defined by a column.
    n_units
        Number of resampled units with a positive weight.
    failed
        Number of resamples that were left out because their estimates are not finite.
    level
        Confidence level of the intervals.
    """

    names: tuple[str, ...]
    values: Floats  # (K,)
    samples: Floats  # (D, K)
    unit: str
    n_units: int
    failed: int
    level: float

    @property
    def covariance(self) -> Floats:
        """Covariance matrix of the estimates, (K, K)."""
        covariance: Floats = np.atleast_2d(np.cov(self.samples, rowvar=False))
        return covariance

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard error of each coefficient."""
        return dict(zip(self.names, self.samples.std(axis=0, ddof=1).tolist(), strict=True))

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Percentile interval of each coefficient."""
        low, high = np.quantile(self.samples, [(1 - self.level) / 2, (1 + self.level) / 2], axis=0).tolist()
        return dict(zip(self.names, zip(low, high, strict=True), strict=True))

    def to_frame(self) -> Any:
        """Return a pandas data frame indexed by coefficient, with columns estimate, std_error, lower and upper."""
        ends = self.intervals
        lower, upper = zip(*ends.values(), strict=True)
        columns = {"name": self.names, "estimate": self.values, "std_error": self.standard_errors.values()}
        table = pa.table({name: list(values) for name, values in (columns | {"lower": lower, "upper": upper}).items()})
        return data_frame(table, index="name", instead="standard_errors and intervals")

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "unit": self.unit,
            "n_units": self.n_units,
            "draws": len(self.samples),
            "failed": self.failed,
            "level": self.level,
            "estimates": dict(zip(self.names, self.values.tolist(), strict=True)),
            "standard_errors": self.standard_errors,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
        }

    def _content(self) -> ResultContent:
        facts = {"draws": f"{len(self.samples):,} of {self.n_units:,} {self.unit}"}
        if self.failed:
            facts["draws without estimates"] = f"{self.failed:,}, left out"
        ends, errors = self.intervals, self.standard_errors
        levels = ((1 - self.level) / 2, (1 + self.level) / 2)
        head = ["coefficient", "estimate", "std err", *(f"{end:.3g}" for end in levels)]
        rows = [
            [name, f"{value:.4g}", f"{errors[name]:.3g}", *(f"{end:.4g}" for end in ends[name])]
            for name, value in zip(self.names, self.values, strict=True)
        ]
        return ResultContent(title="Bootstrap errors", facts=facts, cells=[head, *rows])

    def __repr__(self) -> str:
        return str(self)


@suggests_arguments()
def bootstrap_errors(
    model: ChoiceModel,
    data: Any,
    draws: int = 200,
    seed: int = 0,
    *,
    by: str | None = None,
    level: float = 0.95,
    progress: bool = True,
) -> BootstrapErrors:
    """Compute bootstrap standard errors of a logit by fitting it again to resampled persons or choice sets.

    Parameters
    ----------
    model
        A fitted logit.
    data
        The choice sets that the model was fitted to: ``ChoiceData``, or a table that its schema can read.
    draws
        Number of resamples, each of which requires a fit. Default 200, which is enough for standard errors; use 1,000
        for intervals.
    seed
        Seed of the resamples. Default 0.
    by
        Column whose values define the groups to resample. Default None: persons if the table declares them, otherwise
        rankings or choice sets.
    level
        Confidence level of the percentile intervals. Default 0.95.
    progress
        Whether to report progress: a progress bar on a terminal, otherwise one log line per resample. Default True.

    Returns
    -------
    BootstrapErrors
        Standard errors, intervals, and the estimates from every resample.

    Raises
    ------
    InputError
        If the model is not a logit, its constants were calibrated, it was fitted to another table, or most resamples
        have no finite estimates.
    """
    require_number("draws", draws, whole=True, low=2)
    require_number("seed", seed, whole=True, low=0)
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    if not isinstance(model, LogitModel):
        raise InputError(f"bootstrap_errors supports logits only, got {type(model).__name__}.")
    require_estimated(model, "the bootstrap")
    sets = require_training_sets(model, data)
    groups, unit, n_units = resampled_units(sets, by)
    # Fit the model to each resample; some may have no finite estimates.
    samples, failed = [], 0
    with show_steps(draws, show=progress) as steps:
        for k, source in enumerate(np.random.SeedSequence(seed).spawn(draws), start=1):
            steps.begin(f"draw {k}")
            values = _refitted(model, resample(sets, source, groups))
            failed += values is None
            samples += [] if values is None else [values]
            steps.end(f"draw {k}", "no estimates" if values is None else "done")
    if len(samples) < max(2, _MIN_ESTIMATED_SHARE * draws):
        raise InputError(
            f"{failed} of {draws} resamples lack a finite estimate of some coefficient: the table has too few "
            f"choices for the model. Leave columns out, or increase min_chosen."
        )
    return BootstrapErrors(
        names=model.estimates_.names,
        values=model.estimates_.values,
        samples=np.stack(samples),
        unit=unit,
        n_units=n_units,
        failed=failed,
        level=level,
    )


def _refitted(model: LogitModel, part: ChoiceData) -> Floats | None:
    """Return the estimates from a resample, or None if any coefficient is missing or not finite."""
    try:
        refitted = model._replicate(part, model.table_.seed).estimates_
    except (InputError, TrainingError):
        return None
    if refitted.unbounded or refitted.names != model.estimates_.names:
        return None
    return relabel_classes(model, refitted.values) if isinstance(model, LatentClassMNL) else refitted.values


def relabel_classes(model: LatentClassMNL, values: Floats) -> Floats:  # (P,) -> (P,)
    """Permute the latent classes estimated from a resample to match the order of the model's classes.

    The permutation minimises the sum of squared differences between coefficients, in units of standard errors.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    if model.n_classes_ == 1 or model.config.fixed or model.config.bounds:  # these options fix the class numbers
        return values
    C, K = model.n_classes_, len(model.design_.names)
    b = values[: C * K].reshape(C, K)
    g = np.concatenate([np.zeros((1, len(model.membership_design_.names))), values[C * K :].reshape(C - 1, -1)])
    errors = np.array(list(model.standard_errors().values()))[: C * K]
    scale = np.where(np.isfinite(errors) & (errors > 0), errors, 1.0)
    target, scale = model.estimates_.values[: C * K].reshape(C, K), scale.reshape(C, K)
    distances = np.square((b - target[:, None]) / scale[:, None]).sum(axis=2)  # (C, C), between target i and class j
    best = linear_sum_assignment(distances)[1]
    return np.concatenate([b[best].ravel(), (g[best][1:] - g[best][0]).ravel()])
