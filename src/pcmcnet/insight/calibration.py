"""Calibration: predicted probabilities compared with observed frequencies.

All alternatives, with the weights of their sets, are sorted by predicted probability into bins of equal weight.
Alternatives with equal probabilities share a bin. These figures are computed for each bin b, which has the share w_b of
the total weight:

    predicted_b = mean probability,    observed_b = share of alternatives that were chosen,
    error of a curve = sum_b w_b |observed_b - predicted_b|.

The alternatives of a set depend on each other, so the bootstrap resamples whole sets. The second calibration curve uses
only the most probable alternative of each set, called the favourite: it shows how often favourites with a given
probability are chosen. The calibration error is the error of the curve of favourites. The error over all alternatives
is less informative: it shrinks as sets grow, because most alternatives are correctly predicted to be rarely chosen.
Sets with one alternative offer no choice and are left out. Even a perfect model has a calibration error above 0 by
chance, which falls as the number of sets per bin grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData, read_chunked
from pcmcnet.data.columns.ragged import max_by_set
from pcmcnet.errors import InputError
from pcmcnet.evaluation import metrics
from pcmcnet.evaluation.bootstrap import percentile_interval, resampled_means
from pcmcnet.evaluation.compare import compare
from pcmcnet.evaluation.comparison import Comparison, ComparisonRow
from pcmcnet.evaluation.predictions import (
    Predictor,
    TrainingOverlap,
    gives_of,
    in_sample_warning,
    predicted_log_p,
    require_data,
    require_sets,
    training_overlap,
)
from pcmcnet.evaluation.report import Report, evaluate
from pcmcnet.models.calibrated import Calibrated, find_temperature
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.formats import ReportPartMixin, ToDictMixin, to_json
from pcmcnet.reports.frames import FrameMixin

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationCurve(ToDictMixin, FrameMixin):
    """Predicted and observed shares in B bins, in order of increasing probability.

    Attributes
    ----------
    predicted
        Mean predicted probability, (B,).
    observed
        Share of cases that were chosen, (B,).
    low, high
        Limits (B,) of the interval for the observed share, which equal ``observed`` if ``resamples`` is 0.
    share
        Share of each bin in the total weight, (B,).
    """

    predicted: Floats
    observed: Floats
    low: Floats
    high: Floats
    share: Floats
    _derived = ("error",)

    def _frame_rows(self) -> list[dict[str, Any]]:
        names = ("predicted", "observed", "low", "high", "share")
        values = (getattr(self, name) for name in names)
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]

    @property
    def error(self) -> float:
        """Weighted mean absolute difference between predicted and observed shares."""
        return float(self.share @ np.abs(self.observed - self.predicted))


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration(ToDictMixin, ReportPartMixin):
    """Result of :func:`calibration`: how well predicted probabilities match observed frequencies.

    Attributes
    ----------
    alternatives
        Calibration curve of all alternatives.
    first
        Calibration curve of the most probable alternative of each set.
    n_sets
        Number of sets with at least two alternatives and a positive weight.
    level
        Confidence level of the intervals.
    """

    alternatives: CalibrationCurve
    first: CalibrationCurve
    n_sets: int
    level: float = LEVEL
    _derived = ("error",)

    def _frame_rows(self) -> list[dict[str, Any]]:
        curves = {"first": self.first, "alternatives": self.alternatives}
        return [{"curve": name, **row} for name, curve in curves.items() for row in curve._frame_rows()]

    def _short(self) -> str:
        return f"error {self.error:.4f} over {self.n_sets:,} choice sets"

    @property
    def error(self) -> float:
        """Calibration error: weighted mean absolute difference between predicted and observed shares of favourites."""
        return self.first.error


def calibration(
    model: Predictor, data: Any, bins: int = 10, seed: int = 0, *, resamples: int = 1000, level: float = LEVEL
) -> Calibration:
    """Compare predicted probabilities with observed frequencies.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice sets with choices, preferably held out, or a table that matches the model's schema.
    bins
        Maximum number of bins (10 by default). Alternatives with equal probabilities share a bin.
    seed
        Seed for the bootstrap over choice sets (0 by default).
    resamples
        Number of bootstrap resamples (1,000 by default), or 0 to compute no intervals.
    level
        Confidence level of the intervals (0.95 by default).

    Returns
    -------
    Calibration
        Curves of predicted and observed shares, with the calibration error.

    Raises
    ------
    InputError
        If the choices are unknown, the model returns a ranking, or every set has a single alternative.
    ConfigError
        If a number is out of range.

    Examples
    --------
    >>> class Fair:
    ...     def predict_log_proba(self, data):
    ...         return np.full(data.n_rows, -np.log(2))
    >>> table = {"toss": np.repeat(np.arange(4), 2), "up": [1, 0, 1, 0, 0, 1, 1, 0]}
    >>> data = ChoiceData.from_long(table, choice_set="toss", chosen="up")
    >>> result = calibration(Fair(), data)
    >>> result.alternatives.predicted, result.alternatives.observed, result.first.error
    (array([0.5]), array([0.5]), 0.0)
    """
    require_number("bins", bins, whole=True, low=1)
    require_number("resamples", resamples, whole=True, low=0)
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    if gives_of(model) == "ranking":
        raise InputError(f"{type(model).__name__} returns a ranking, which has no probabilities to calibrate.")
    sets = require_data(model, data)
    sets.require_chosen("a calibration")
    require_sets(sets)
    sets = sets.subset((sets.weights > 0) & (sets.sizes > 1))
    if not len(sets):
        raise InputError("every choice set has a single alternative, so there is nothing to calibrate.")
    log_p = predicted_log_p(model, sets)
    chosen = sets.require_chosen("a calibration")
    hit = np.zeros(len(log_p))
    hit[sets.offsets[:-1] + chosen] = 1.0
    best = np.exp(max_by_set(log_p, sets.offsets))
    right = metrics.top_hits(log_p, sets.offsets, chosen, 1)  # a tie of k alternatives counts 1 / k
    bootstrap = _Bootstrap(np.random.default_rng(seed), resamples, level)
    return Calibration(
        alternatives=_curve(np.exp(log_p), hit, sets.set_of_alternative, sets.weights, bins, bootstrap),
        first=_curve(best, right, np.arange(len(sets)), sets.weights, bins, bootstrap),
        n_sets=len(sets),
        level=level,
    )


def calibrate(model: ChoiceModel, data: Any) -> Calibrated:
    """Return a fitted model rescaled by the temperature that maximises the likelihood of the choices.

    Parameters
    ----------
    model
        A fitted model, which is wrapped but not changed.
    data
        Choice sets to which the model was not fitted, or a table that matches the model's schema.

    Returns
    -------
    Calibrated
        The calibrated model, whose ``temperature_`` holds the temperature and the mean NLL before and after
        calibration.

    Raises
    ------
    InputError
        If ``model`` is not a fitted model or returns a ranking, or if the choices are unknown.
    """
    if not isinstance(model, ChoiceModel):
        raise InputError(f"model: expected a fitted model, got {type(model).__name__}.")
    schema = model.schema  # raises if the model is not fitted
    data = read_chunked(data)
    sets = data if isinstance(data, ChoiceData) else ChoiceData.from_schema(data, schema)
    if model.gives == "ranking":
        raise InputError(f"{type(model).__name__} returns a ranking, which has no probabilities to calibrate.")
    return Calibrated(model, find_temperature(model, sets))


class _Bootstrap(NamedTuple):
    """Options of the bootstrap intervals."""

    rng: np.random.Generator
    resamples: int
    level: float


def _curve(p: Floats, y: Floats, owner: Ints, weights: Floats, bins: int, bootstrap: _Bootstrap) -> CalibrationCurve:
    """Return the calibration curve of M cases with probabilities p, outcomes y and set positions ``owner``."""
    # 1. Weighted means of prediction and outcome in each bin.
    w = weights[owner]
    place = equal_bins(p, w, bins)
    n = int(place.max()) + 1
    mass, sum_p, sum_y = (np.bincount(place, w * v, n).astype(np.float64) for v in (np.ones(len(p)), p, y))
    predicted, observed = sum_p / mass, sum_y / mass
    low, high = observed, observed
    # 2. Intervals of the observed shares, by resampling sets.
    if bootstrap.resamples:
        cell = owner * n + place  # set by bin
        counts, hits = (np.bincount(cell, v, len(weights) * n).reshape(-1, n) for v in (np.ones(len(p)), y))
        means = resampled_means(np.hstack([counts, hits]), weights, rng=bootstrap.rng, resamples=bootstrap.resamples)
        filled = means[:, :n] > 0  # a resample may have no case in a bin
        shares = np.where(filled, means[:, n:] / np.where(filled, means[:, :n], 1.0), observed)
        low, high = percentile_interval(shares, weights, level=bootstrap.level).T.clip(0, 1)
    return CalibrationCurve(predicted=predicted, observed=observed, low=low, high=high, share=mass / mass.sum())


def equal_bins(values: Floats, weights: Floats, bins: int) -> Ints:
    """Return the bin of each value, so that bins have similar weights, equal values share a bin, and no bin is empty.

    Examples
    --------
    >>> equal_bins(np.array([0.1, 0.9, 0.2, 0.9]), np.ones(4), 2)
    array([0, 1, 0, 1])
    """
    distinct, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place, weights, len(distinct))
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    of_distinct = np.minimum((middle * bins).astype(np.int64), bins - 1)
    number: Ints = np.unique(of_distinct, return_inverse=True)[1][place]
    return number


# -- Fit quality -------------------------------------------------------------------------------------------------------
# Goodness of fit of a model on a table, compared with baselines that are cross-validated on the same table.
#
# The two are measured differently. The model may have been fitted to this table: then its scores are in-sample and
# optimistic (see `training_overlap`). The baselines are fitted to some folds of this table and tested on
# the others, so their scores are always out of sample.

TOP_RANKS = (1, 5)
FOLDS = 5
MODEL_LABEL = "this model"
MAX_BASELINE_SETS = 5000  # for cross-validation; a larger table is sampled


@dataclass(frozen=True, kw_only=True)
class FitQuality(ReportPartMixin):
    """Goodness of fit of a model and of its baselines.

    Attributes
    ----------
    report
        Scores of the model on the table.
    seen
        How many choice sets of the table the model was trained on: "all", "most", "some" or "none known".
    warning
        Warning that the scores are in-sample, or None if no overlap with the training data is known.
    baselines
        Scores of the baselines and of the model on the same sets, with paired differences. None if there are no
        baselines or the table is too small for cross-validation.
    """

    report: Report
    seen: TrainingOverlap
    warning: str | None = None
    baselines: Comparison | None = None

    _frame_index = "model"

    def _frame_rows(self) -> Iterator[dict[str, Any]]:
        report = self.report
        values = {k: v for k, v in report.values.items() if k == "nll" or k.startswith("top_")}
        rows = [(MODEL_LABEL, values, report.intervals, not self.in_sample)]
        if self.baselines is not None:
            rows += [(row.label, dict(row.values), row.intervals, True) for row in self.baseline_rows]
        for label, metrics_of_model, intervals, out_of_sample in rows:
            row: dict[str, Any] = {"model": label}
            for name in values:
                low, high = intervals.get(name, (None, None))
                row |= {name: metrics_of_model.get(name), f"{name}_low": low, f"{name}_high": high}
            yield {**row, "out_of_sample": out_of_sample}

    def _short(self) -> str:
        nll = self.report.nll
        return f"{self.report.n_sets:,} choice sets" + ("" if nll is None else f", NLL {nll:.4f}")

    @property
    def in_sample(self) -> bool:
        """True if the model was trained on this table, or on a training set drawn from it."""
        return self.seen in ("all", "most")

    @property
    def baseline_rows(self) -> tuple[ComparisonRow, ...]:
        """Rows of the baselines, without the row of the model itself."""
        return () if self.baselines is None else tuple(row for row in self.baselines.rows if row.label != MODEL_LABEL)

    @property
    def rival(self) -> str | None:
        """Label of the baseline with the lowest NLL, or None if no NLL of the model or a baseline is finite."""
        nll = {row.label: row.values.get("nll", np.inf) for row in self.baseline_rows if row.gives == "probabilities"}
        best = min(nll, key=nll.__getitem__, default=None)
        return best if best is not None and np.isfinite([nll[best], self._own_nll]).all() else None

    @property
    def _own_nll(self) -> float:
        row = None if self.baselines is None else self.baselines[MODEL_LABEL]
        return np.inf if row is None or row.gives != "probabilities" else row.values.get("nll", np.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON-compatible values."""
        figures = {"model": self.report.to_dict(), "baselines": to_json(self.baselines)}
        return {"seen": self.seen, "in_sample": self.in_sample, **figures}


def fit_quality(
    model: ChoiceModel, data: ChoiceData, baselines: Mapping[str, ChoiceModel], *, seed: int = 0
) -> FitQuality:
    """Evaluate a model on all sets of a table, and cross-validate the baselines on up to 5,000 sets."""
    report, comparison = evaluate(model, data, TOP_RANKS, seed), None
    counted = np.flatnonzero(data.weights > 0)
    if baselines and len(counted) >= 2 * FOLDS:
        sampled = np.random.default_rng(seed).permutation(counted)[:MAX_BASELINE_SETS]
        subset = data if len(counted) <= MAX_BASELINE_SETS else data.subset(np.sort(sampled))
        fitted = {MODEL_LABEL: model}
        comparison = compare(baselines, subset, FOLDS, seed, fitted=fitted, top=TOP_RANKS, progress=False)
    seen = training_overlap(model, data)
    return FitQuality(report=report, seen=seen, warning=in_sample_warning(model, data, seen), baselines=comparison)
