"""Do things that are given 30 % happen 3 times in 10? Predicted probabilities against observed frequencies.

All alternatives of all sets, with the weight of their set, are cut by their probability into bins of equal weight;
alternatives of equal probability stay together. In each bin b, of weight share w_b,

    predicted_b = mean probability,    observed_b = share of alternatives that were chosen,
    error of a curve = sum_b w_b |observed_b - predicted_b|.

The alternatives of a set depend on each other, so the intervals resample whole sets. The second curve looks at the
favourite of each set alone, its most probable alternative: how often is it chosen, by how sure the model is. The
calibration error is the error of this curve, everywhere. That of all alternatives is smaller the more there are in a
set, for most of them are hardly ever chosen and rightly so: it says little. Sets of one alternative have no choice to
predict and are left out. A perfect model also has an error above 0, by chance, that falls with the
number of sets per bin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import max_by_set
from pcmcnet.errors import InputError
from pcmcnet.evaluation import metrics
from pcmcnet.evaluation.bootstrap import percentile_interval, resampled_means
from pcmcnet.evaluation.compare import compare
from pcmcnet.evaluation.comparison import Comparison
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

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationCurve(ToDictMixin):
    """Predicted against observed, in B bins from the least to the most probable."""

    predicted: Floats  # (B,) mean probability
    observed: Floats  # (B,) share chosen
    low: Floats  # (B,) ends of the interval of the observed share; it where no resamples were asked for
    high: Floats
    share: Floats  # (B,) of the weight; sums to 1
    _derived = ("error",)

    @property
    def error(self) -> float:
        """The mean distance of predicted and observed."""
        return float(self.share @ np.abs(self.observed - self.predicted))


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration(ToDictMixin, ReportPartMixin):
    """How far probabilities can be taken at their word."""

    alternatives: CalibrationCurve  # of all alternatives
    first: CalibrationCurve  # of the most probable alternative of each set
    n_sets: int  # with two alternatives or more and a weight above 0
    level: float = LEVEL  # of the intervals
    _derived = ("error",)

    def _short(self) -> str:
        return f"error {self.error:.4f} over {self.n_sets:,} choice sets"

    @property
    def error(self) -> float:
        """The calibration error: by how much the favourite is more, or less, probable than it is often chosen."""
        return self.first.error


def calibration(
    model: Predictor, data: Any, bins: int = 10, seed: int = 0, *, resamples: int = 1000, level: float = LEVEL
) -> Calibration:
    """Compare predicted probabilities with observed frequencies.

    Parameters
    ----------
    model
        Anything with ``predict_log_proba(data)``.
    data
        Choice sets with choices, better not those that the model was fitted to; or a table, read by its schema.
    bins
        Number of bins, at most; equal probabilities are not cut apart.
    seed, resamples, level
        Of the bootstrap over choice sets; no resamples, no intervals.

    Examples
    --------
    >>> class Fair:
    ...     def predict_log_proba(self, data):
    ...         return np.full(data.n_rows, -np.log(2))
    >>> table = {"toss": np.repeat(np.arange(4), 2), "up": [1, 0, 1, 0, 0, 1, 1, 0]}
    >>> data = ChoiceData.from_long(table, choice_set="toss", chosen="up")
    >>> found = calibration(Fair(), data)
    >>> found.alternatives.predicted, found.alternatives.observed, found.first.error
    (array([0.5]), array([0.5]), 0.0)
    """
    require_number("bins", bins, whole=True, low=1)
    require_number("resamples", resamples, whole=True, low=0)
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    if gives_of(model) == "ranking":
        raise InputError(f"{type(model).__name__} gives a ranking, and there is nothing to calibrate in one.")
    sets = require_data(model, data)
    sets.require_chosen("a calibration")
    require_sets(sets)
    sets = sets.subset((sets.weights > 0) & (sets.sizes > 1))
    if not len(sets):
        raise InputError("every choice set has a single alternative: there is nothing to calibrate.")
    log_p = predicted_log_p(model, sets)
    chosen = sets.require_chosen("a calibration")
    hit = np.zeros(len(log_p))
    hit[sets.offsets[:-1] + chosen] = 1.0
    best = np.exp(max_by_set(log_p, sets.offsets))
    right = metrics.top_hits(log_p, sets.offsets, chosen, 1)  # ties count by their chance
    draw = _Draw(np.random.default_rng(seed), resamples, level)
    return Calibration(
        alternatives=_curve(np.exp(log_p), hit, sets.set_of_alternative, sets.weights, bins, draw),
        first=_curve(best, right, np.arange(len(sets)), sets.weights, bins, draw),
        n_sets=len(sets),
        level=level,
    )


def calibrate(model: ChoiceModel, data: Any) -> Calibrated:
    """Return the fitted model at the temperature that suits the choices best.

    Parameters
    ----------
    model
        A fitted model; it is kept inside and not changed.
    data
        Choice sets that the model was not fitted to, or a table of them, read by its schema.

    Returns
    -------
    Calibrated
        Its ``temperature_`` holds T and the mean NLL of these choices before and after.
    """
    if not isinstance(model, ChoiceModel):
        raise InputError(f"model: expected a fitted model, got {type(model).__name__}.")
    schema = model.schema  # raises where the model is not fitted
    sets = data if isinstance(data, ChoiceData) else ChoiceData.from_schema(data, schema)
    if model.gives == "ranking":
        raise InputError(f"{type(model).__name__} gives a ranking, and there is nothing to calibrate in one.")
    return Calibrated(model, find_temperature(model, sets))


class _Draw(NamedTuple):
    """How intervals are drawn."""

    rng: np.random.Generator
    resamples: int
    level: float


def _curve(p: Floats, y: Floats, owner: Ints, weights: Floats, bins: int, draw: _Draw) -> CalibrationCurve:
    """Bin M cases with probabilities p and outcomes y, of the sets that ``owner`` names, with the sets' weights."""
    w = weights[owner]
    place = equal_bins(p, w, bins)
    n = int(place.max()) + 1
    mass, said, happened = (np.bincount(place, w * v, n).astype(np.float64) for v in (np.ones(len(p)), p, y))
    predicted, observed = said / mass, happened / mass
    low, high = observed, observed
    if draw.resamples:
        cell = owner * n + place  # set by bin
        counts, hits = (np.bincount(cell, v, len(weights) * n).reshape(-1, n) for v in (np.ones(len(p)), y))
        means = resampled_means(np.hstack([counts, hits]), weights, rng=draw.rng, resamples=draw.resamples)
        there = means[:, :n] > 0  # a resample may miss a bin
        shares = np.where(there, means[:, n:] / np.where(there, means[:, :n], 1.0), observed)
        low, high = percentile_interval(shares, weights, level=draw.level).T.clip(0, 1)
    return CalibrationCurve(predicted=predicted, observed=observed, low=low, high=high, share=mass / mass.sum())


def equal_bins(values: Floats, weights: Floats, bins: int) -> Ints:
    """Number the bins, of about equal weight, that values fall into; equal values share one, and none is empty.

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
# How well a fitted model predicts a table, beside baselines that are cross-validated on the same table.
#
# The two are not alike. The model was fitted elsewhere, or on this very table: then its figures are in-sample, and
# flatter it (see `seen_by`). The baselines are fitted to parts of this table and tested on
# the rest, so that theirs never are.

TOP_RANKS = (1, 5)
FOLDS = 5
MAX_BASELINE_SETS = 5000  # choice sets that baselines are cross-validated on


@dataclass(frozen=True, kw_only=True)
class FitQuality(ReportPartMixin):
    """Figures of the model on the table, and of the baselines."""

    report: Report
    seen: TrainingOverlap  # which choice sets of the table the model was trained on
    warning: str | None = None  # the same in words, where it has seen any
    baselines: Comparison | None = None  # None where none were asked for, or the table is too small for folds

    def _short(self) -> str:
        nll = self.report.nll
        return f"{self.report.n_sets:,} choice sets" + ("" if nll is None else f", NLL {nll:.4f}")

    @property
    def in_sample(self) -> bool:
        """Whether the table is the one that the model was trained on, or its training part was drawn from."""
        return self.seen in ("all", "most")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        figures = {"model": self.report.to_dict(), "baselines": to_json(self.baselines)}
        return {"seen": self.seen, "in_sample": self.in_sample, **figures}


def fit_quality(
    model: ChoiceModel, data: ChoiceData, baselines: Mapping[str, ChoiceModel], *, seed: int = 0
) -> FitQuality:
    """Evaluate a model on a table, and cross-validate baselines on it.

    Baselines see up to 5,000 sets, drawn at random from a larger table; the model is asked about all.
    """
    report, measured = evaluate(model, data, TOP_RANKS, seed), None
    counted = np.flatnonzero(data.weights > 0)
    if baselines and len(counted) >= 2 * FOLDS:
        few = np.random.default_rng(seed).permutation(counted)[:MAX_BASELINE_SETS]
        part = data if len(counted) <= MAX_BASELINE_SETS else data.subset(np.sort(few))
        measured = compare(baselines, part, FOLDS, seed, top=TOP_RANKS, progress=False)
    seen = training_overlap(model, data)
    return FitQuality(report=report, seen=seen, warning=in_sample_warning(model, data, seen), baselines=measured)
