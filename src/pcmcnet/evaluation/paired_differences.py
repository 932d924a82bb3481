"""Paired differences: compare each model with the best model, choice set by choice set.

The S test sets of all folds form one sample. Model m has the value v_ms on set s, which has weight w_s:

    mean of m          sum_s w_s v_ms / sum_s w_s
    difference of m    mean of v_ms - v_bs, with b the best model and v the NLL

All means use the same bootstrap resamples (:mod:`pcmcnet.evaluation.bootstrap`), so that the difficulty of a choice set
cancels out of a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import PcmcNetError
from pcmcnet.evaluation.bootstrap import aggregate_by_group, p_values, percentile_interval, resampled_means
from pcmcnet.evaluation.comparison import DIFFERENCE, Comparison, ComparisonRow, FoldResult
from pcmcnet.evaluation.metrics import mean_metrics, metrics_per_set, uniform_log_p
from pcmcnet.evaluation.report import LEVEL
from pcmcnet.models.interface.choice_model import ChoiceModel


@dataclass(frozen=True)
class Cell:
    """Results of one model on one fold: metrics (S,) of the test sets by name, and costs."""

    metrics: dict[str, Floats]
    fit_seconds: float
    predict_seconds: float
    parameters: int
    where: str = ""  # description of the machine and the device
    caveats: tuple[str, ...] = ()  # of the fitted model


@dataclass(frozen=True)
class Failure:
    """The error that stopped the fit or the test of a model."""

    kind: str  # class name of the exception
    message: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describe an exception on a single line, with its class name unless it is a PcmcNetError."""
        text = " ".join(str(error).split())
        kind = type(error).__name__
        return cls(kind, text if isinstance(error, PcmcNetError) and text else f"{kind}: {text}".rstrip(": "))


Outcomes = Mapping[str, Sequence[Cell | Failure]]  # label -> one outcome per fold, up to the first failure
CELL_COSTS = ("fit_seconds", "predict_seconds", "parameters", "where", "caveats")  # fields of a cell except its metrics
Pooled = dict[str, dict[str, Floats]]  # label -> metric -> values of the sets with a positive weight


def build_comparison(
    models: Mapping[str, ChoiceModel],
    outcomes: Outcomes,
    data: ChoiceData,
    tests: Sequence[Ints],
    groups: Ints | None,
    design: Mapping[str, Any],
) -> Comparison:
    """Build the comparison from the results of all folds, resampling ``groups`` (S,), or choice sets if None."""
    # 1. Pool the folds: the values of each model and metric over all test sets with a positive weight.
    tested = np.concatenate(tests)
    counted = data.weights[tested] > 0
    weights = data.weights[tested[counted]]
    pooled = _pooled(outcomes, counted)
    means = {label: mean_metrics(per_set, weights) for label, per_set in pooled.items()}
    # 2. Compare each model with the best, set by set.
    best = _best(models, means)
    if best is not None:
        for label, per_set in pooled.items():
            if label != best and "nll" in per_set:
                per_set[DIFFERENCE] = per_set["nll"] - pooled[best]["nll"]
                means[label][DIFFERENCE] = float(np.average(per_set[DIFFERENCE], weights=weights))
    # 3. Resample all means together, for intervals and p-values.
    units = None if groups is None else groups[tested[counted]]
    ends, p = _resampled(pooled, weights, units, seed=design["seed"], resamples=design["resamples"])
    # 4. Build a row for each model, and the metrics of the uniform model for reference.
    rows = []
    for label, model in models.items():
        results = _fold_results(outcomes[label], [data.weights[test] for test in tests])
        facts = _facts(label, means[label], ends, p, pooled[label]) if label in means else {}
        rows.append(_row(label, model, results, facts, is_best=label == best))
    chosen, top = data.require_chosen("a comparison"), tuple(design["top"])
    reference = metrics_per_set(uniform_log_p(data.offsets), data.offsets, chosen, top)
    uniform = mean_metrics({name: values[tested] for name, values in reference.items()}, data.weights[tested])
    return Comparison(
        rows=tuple(rows), n_sets=len(tested), best=best, top=top, uniform=uniform, design=design, level=LEVEL
    )


def _pooled(outcomes: Outcomes, counted: NDArray[np.bool_]) -> Pooled:
    """Concatenate the folds of each model that did not fail, keeping only the sets marked by ``counted``."""
    pooled: Pooled = {}
    for label, by_fold in outcomes.items():
        cells = [cell for cell in by_fold if isinstance(cell, Cell)]
        if len(cells) == len(by_fold):
            names = cells[0].metrics
            pooled[label] = {name: np.concatenate([cell.metrics[name] for cell in cells])[counted] for name in names}
    return pooled


def _best(models: Mapping[str, ChoiceModel], means: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return the label of the model with the lowest finite NLL, among models that give probabilities, or None."""
    nll = {k: v["nll"] for k, v in means.items() if models[k].gives == "probabilities" and np.isfinite(v["nll"])}
    return min(nll, key=nll.__getitem__) if nll else None


Keyed = dict[tuple[str, str], Any]  # by label and metric


def _resampled(
    pooled: Pooled, weights: Floats, groups: Ints | None, *, seed: int, resamples: int
) -> tuple[Keyed, Keyed]:
    """Compute the intervals of all means and the p-values of all differences from the same resamples."""
    keys = [(label, name) for label, per_set in pooled.items() for name in per_set]
    if not resamples or not keys:
        return {}, {}
    values = np.column_stack([pooled[label][name] for label, name in keys])  # (S, M)
    if groups is not None:
        values, weights = aggregate_by_group(values, weights, groups)
    means = resampled_means(values, weights, rng=np.random.default_rng(seed), resamples=resamples)  # (R, M)
    ends = dict(zip(keys, map(tuple, percentile_interval(means, weights, level=LEVEL).tolist()), strict=True))
    if len(weights) < 2:  # the variance cannot be estimated from one unit
        return ends, {}
    return ends, dict(zip(keys, p_values(means).tolist(), strict=True))


def _facts(
    label: str, means: Mapping[str, float], ends: Keyed, p: Keyed, per_set: Mapping[str, Floats]
) -> dict[str, Any]:
    """Return the metrics, intervals and p-value for the row of a model that did not fail."""
    return {
        "values": {name: value for name, value in means.items() if name != DIFFERENCE},
        "intervals": {name: ends[label, name] for name in means if (label, name) in ends},
        "difference": means.get(DIFFERENCE),
        "p_value": p.get((label, DIFFERENCE)),
        "n_impossible": int(np.isposinf(per_set.get("nll", 0.0)).sum()),
    }


def _fold_results(outcomes: Sequence[Cell | Failure], weights: Sequence[Floats]) -> tuple[FoldResult, ...]:
    """Return the result of each fold up to and including the first failure."""
    results = []
    for outcome, w in zip(outcomes, weights, strict=False):
        if isinstance(outcome, Failure):
            results.append(FoldResult(n_sets=len(w), error=outcome.message))
            continue
        cost: dict[str, Any] = {name: getattr(outcome, name) for name in CELL_COSTS}
        results.append(FoldResult(n_sets=len(w), values=mean_metrics(outcome.metrics, w) if w.any() else {}, **cost))
    return tuple(results)


def _row(
    label: str, model: ChoiceModel, folds: tuple[FoldResult, ...], facts: Mapping[str, Any], *, is_best: bool
) -> ComparisonRow:
    """Build the row of a model from its folds and metrics."""
    error = next((fold.error for fold in folds if fold.error is not None), None)
    cost: dict[str, Any] = {}
    if error is None:
        names = ("fit_seconds", "predict_seconds", "parameters")
        cost = {name: float(np.mean([getattr(fold, name) for fold in folds])) for name in names}
        cost["parameters"] = round(cost["parameters"])  # folds may have different categories
    results = {**facts, "difference": 0.0} if is_best else facts
    model_facts: dict[str, Any] = {"model": model.name, "options": asdict(model.config), "gives": model.gives}
    return ComparisonRow(label=label, **model_facts, folds=folds, error=error, **results, **cost)
