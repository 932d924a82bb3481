"""The bootstrap: intervals of weighted means over choice sets, and standard errors of estimates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, TrainingError
from pcmcnet.evaluation.predictions import require_training_sets
from pcmcnet.models import LatentClassMNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel, require_estimated
from pcmcnet.progress import show_steps
from pcmcnet.reports.formats import FormatsMixin, ResultContent, data_frame

# -- Bootstrap intervals -----------------------------------------------------------------------------------------------
# Values per choice set -> intervals of their weighted means, by the percentile bootstrap over choice sets.
#
# A resample draws S of the S sets with replacement and takes sum(w v) / sum(w) over them (Efron, 1979). All M columns
# of the values (S, M) see the same resamples, so the means of one resample may be compared with each other, and the
# interval of a difference is that of the column of differences. Where the sets of a person or of another group depend
# on each other, `by_group` makes groups the units that are drawn.
#
# The percentile interval is too short for few sets. Its percentiles are moved outwards to Phi(t sqrt(n / (n - 1))),
# with t the Student quantile at n - 1 degrees of freedom: the expanded percentile interval of Hesterberg (2015, "What
# teachers should know about the bootstrap"). At n = 10 this asks for the 0.9 % percentile in place of the 2.5 %; at n =
# 1,000 hardly anything changes. With unequal weights, n is (sum w)^2 / sum(w^2). From one set nothing can be said about
# the spread, so its interval is (-inf, inf), never a point.

_SETS_PER_BATCH = 2**21  # sets drawn together, some 50 MiB: memory does not grow with resamples


def bootstrap_interval(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    resamples: int = 1000,
    level: float = 0.95,
) -> Floats:
    """Return the interval of the weighted mean, low and high: (2,) or (M, 2).

    ``values`` are (S,) or (S, M), one row per choice set; inf is admitted. A weight is what a set stands for in the
    mean, not a number of observations; a set of weight 0 is as if it were not there. The interval is (-inf, inf) where
    fewer than two sets have a weight. ``level`` is the share of samples whose interval should hold the true mean.

    Examples
    --------
    >>> hits = np.repeat([0.0, 1.0], [300, 700])  # binomial: 0.7 -+ 1.96 sqrt(0.7 0.3 / 1000) = 0.672, 0.728
    >>> bootstrap_interval(hits, rng=np.random.default_rng(0)).round(2)
    array([0.67, 0.73])
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, got {level}.")
    v, w = _checked(values, weights)
    return percentile_interval(resampled_means(v, w, rng=rng, resamples=resamples), w, level=level)


def percentile_interval(means: Floats, weights: Floats, *, level: float = 0.95) -> Floats:
    """Return low and high of resampled means, (2,) or (M, 2), given the weights of what was resampled."""
    w = weights[weights > 0]
    if len(w) < 2:
        return np.broadcast_to([-np.inf, np.inf], (*means.shape[1:], 2)).copy()
    tail = _tail(level, n=float(w.sum() ** 2 / (w**2).sum()))
    # No interpolation between two means: it would make NaN of inf - inf.
    low = np.quantile(means, tail, axis=0, method="lower")
    high = np.quantile(means, 1 - tail, axis=0, method="higher")
    return np.stack([low, high], axis=-1)


def resampled_means(
    values: ArrayLike, weights: ArrayLike | None = None, *, rng: np.random.Generator, resamples: int = 1000
) -> Floats:
    """Return the weighted mean of each resample, (resamples,) or (resamples, M); see :func:`bootstrap_interval`."""
    if resamples < 1:
        raise ConfigError(f"resamples must be at least 1, got {resamples}.")
    v, w = _checked(values, weights)
    v, w = v[w > 0], w[w > 0]
    S = len(w)
    columns = v.reshape(S, -1)  # (S, M)
    # Means of finite values; one draw of inf, which 0 * inf would make NaN of, makes its mean infinite.
    plus, minus = columns == np.inf, columns == -np.inf
    if (plus.any(axis=0) & minus.any(axis=0)).any():
        raise InputError("values hold both inf and -inf: their mean does not exist.")
    weighted = np.where(plus | minus, 0.0, columns) * w[:, None]
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
    """Return the two-sided p-value of each difference from its resampled means (R, M).

    Twice the smaller of (1 + #{d <= 0}) / (1 + R) and (1 + #{d >= 0}) / (1 + R), at most 1: the observed sample
    counts as one more resample on either side, so that no number of resamples makes a p-value of 0.

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
    """Turn values (S, M) and weights (S,) of sets into those of their G groups, (G, M) and (G,).

    A group's value is its weighted mean and its weight the sum of weights, so the weighted mean over groups is that
    over sets, and resampling them keeps the sets of a group, which depend on each other, together. Groups without a
    weight are left out.
    """
    there = weights > 0
    w = weights[there]
    dense = np.unique(np.asarray(groups)[there], return_inverse=True)[1]
    total: Floats = np.bincount(dense, w).astype(np.float64)
    means = np.column_stack([np.bincount(dense, w * column) for column in values[there].T]) / total[:, None]
    return means, total


def _counts(sets: int, resamples: int, rng: np.random.Generator) -> Floats:
    """How often each resample drew each set: (resamples, sets)."""
    drawn = rng.integers(0, sets, (resamples, sets))
    drawn += sets * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * sets).reshape(resamples, sets).astype(np.float64)


def _tail(level: float, n: float) -> float:
    """Share of resamples outside each end of the expanded interval."""
    from scipy.special import ndtr, stdtrit  # here, since loading it takes half a second that few need

    n = max(n, 2.0)  # at 2 the interval already spans all resamples
    t = stdtrit(n - 1, (1 - level) / 2)
    return float(ndtr(t * np.sqrt(n / (n - 1))))


def _checked(values: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats]:
    v = np.asarray(values, dtype=np.float64)
    w = np.ones(len(v)) if weights is None else np.asarray(weights, dtype=np.float64)
    if v.ndim not in (1, 2) or w.shape != v.shape[:1]:
        raise InputError(f"expected values (S,) or (S, M) and weights (S,), got shapes {v.shape} and {w.shape}.")
    if np.isnan(v).any():
        raise InputError(f"values must be numbers, got NaN for {int(np.isnan(v).sum())} of {v.size}.")
    if not (np.isfinite(w) & (w >= 0)).all() or not w.any():
        raise InputError("weights must be finite, at least 0, and above 0 for at least one choice set.")
    return v, w


# -- Bootstrap errors --------------------------------------------------------------------------------------------------
# Standard errors by the bootstrap: a logit is fitted again to persons, or choice sets, drawn with replacement.
#
# A draw takes n of the n units with replacement (Efron, 1979). It weighs each set by how often its unit was drawn,
# times the weight that it had, so that a person drawn twice stays one person. The covariance of the estimates over
# draws is that of the estimates; their percentiles are the ends of intervals. The columns of the utility stay those of
# the model: levels and scales are not learnt anew, and latent classes are numbered as in the model. Draws depend on the
# seed and on their own number alone.

_MIN_ESTIMATED_SHARE = 0.5  # share of the draws that must lead to estimates


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BootstrapErrors(FormatsMixin):
    """Estimates over draws; prints as a table. Made by :func:`bootstrap_errors`.

    Attributes
    ----------
    names, values
        The coefficients and their estimates from the table itself.
    samples
        (D, K) their estimates from the draws.
    unit, n_units
        What was drawn, and how many there are.
    failed
        Draws without estimates, which are left out.
    level
        Of the intervals.
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
        """(K, K) covariance of the estimates."""
        found: Floats = np.atleast_2d(np.cov(self.samples, rowvar=False))
        return found

    @property
    def standard_errors(self) -> dict[str, float]:
        """The standard error of each coefficient."""
        return dict(zip(self.names, self.samples.std(axis=0, ddof=1).tolist(), strict=True))

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The percentile interval of each coefficient."""
        low, high = np.quantile(self.samples, [(1 - self.level) / 2, (1 + self.level) / 2], axis=0).tolist()
        return dict(zip(self.names, zip(low, high, strict=True), strict=True))

    def to_frame(self) -> Any:
        """Return a pandas data frame, indexed by name: estimate, std_error, lower, upper."""
        ends = self.intervals
        lower, upper = zip(*ends.values(), strict=True)
        columns = {"name": self.names, "estimate": self.values, "std_error": self.standard_errors.values()}
        table = pa.table({name: list(values) for name, values in (columns | {"lower": lower, "upper": upper}).items()})
        return data_frame(table, index="name", instead="standard_errors and intervals")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
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
    """Fit a logit again to draws of persons, or of choice sets, for errors that assume little.

    Parameters
    ----------
    model
        A fitted logit.
    data
        The choice sets that it was fitted to.
    draws
        Number of fits; 200 are enough for standard errors, intervals want 1,000.
    seed
        Where the draws come from.
    by
        Column whose groups are drawn; persons where the table declares them, and choice sets otherwise, if not given.
    level
        Of the percentile intervals.
    progress
        Show a bar on a terminal, or log a line per draw elsewhere.

    Raises
    ------
    InputError
        When the model is no logit, its constants were moved to known shares, the table is another one, or most draws
        lead to no estimates.
    """
    require_number("draws", draws, whole=True, low=2)
    require_number("seed", seed, whole=True, low=0)
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    if not isinstance(model, LogitModel):
        raise InputError(f"bootstrap errors are those of the coefficients of a logit; got {type(model).__name__}.")
    require_estimated(model, "the bootstrap")
    sets = require_training_sets(model, data)
    groups = sets.groups(by)
    samples, failed = [], 0
    with show_steps(draws, show=progress) as steps:
        for k, part in enumerate(_draws(sets, groups, draws, seed), start=1):
            steps.begin(f"draw {k}")
            values = _refitted(model, part)
            failed += values is None
            samples += [] if values is None else [values]
            steps.end(f"draw {k}", "no estimates" if values is None else "done")
    if len(samples) < max(2, _MIN_ESTIMATED_SHARE * draws):
        raise InputError(
            f"{failed} of {draws} draws lead to no finite estimates of all coefficients: the table has too few choices "
            f"for the model. Leave columns out, or raise min_chosen."
        )
    column = by or sets.schema.person
    return BootstrapErrors(
        names=model.estimates_.names,
        values=model.estimates_.values,
        samples=np.stack(samples),
        unit="choice sets" if column in (None, sets.schema.choice_set) else f"groups by {column}" if by else "persons",
        n_units=len(np.unique(groups)),
        failed=failed,
        level=level,
    )


def _draws(sets: ChoiceData, groups: Ints, draws: int, seed: int) -> Iterator[ChoiceData]:
    """Yield the sets of each draw, weighed by how often their groups were drawn."""
    n = len(np.unique(groups))
    for source in np.random.SeedSequence(seed).spawn(draws):
        times = np.bincount(np.random.default_rng(source).integers(n, size=n), minlength=n)[groups]
        part = replace(sets, weights=sets.weights * times)
        yield part.subset(part.weights > 0)


def _refitted(model: LogitModel, part: ChoiceData) -> Floats | None:
    """Return the estimates from a draw; None where there are none, or not of the same coefficients."""
    # The search starts at the estimates from the table itself, which are near those from a draw.
    options, estimates = asdict(model.config), model.estimates_
    options["start"] = {name: value for name, value in model.coefficients.items() if name not in estimates.fixed}
    if isinstance(model, LatentClassMNL):
        options["classes"] = model.n_classes_
    try:
        again = type(model)(**options).refit(part, model.design_, model.table_.seed)
    except (InputError, TrainingError):
        return None
    if again.unbounded or again.names != estimates.names:
        return None
    return relabel_classes(model, again.values) if isinstance(model, LatentClassMNL) else again.values


def relabel_classes(model: LatentClassMNL, values: Floats) -> Floats:  # (P,) -> (P,)
    """Number the classes of a draw as those of the model, by their coefficients: the order of shares may differ."""
    if model.n_classes_ == 1 or model.config.fixed or model.config.bounds:  # which name classes by their numbers
        return values
    C, K = model.n_classes_, len(model.design_.names)
    b = values[: C * K].reshape(C, K)
    g = np.concatenate([np.zeros((1, len(model.membership_design_.names))), values[C * K :].reshape(C - 1, -1)])
    spread = np.array(list(model.standard_errors().values()))[: C * K]
    sizes = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
    orders = [list(order) for order in permutations(range(C))]
    far = [np.square((b[order].ravel() - model.estimates_.values[: C * K]) / sizes).sum() for order in orders]
    best = orders[int(np.argmin(far))]
    return np.concatenate([b[best].ravel(), (g[best][1:] - g[best][0]).ravel()])
