"""Cells -> rows: pool the folds, resample, and compare each model with the best, set by set.

The S tested sets of all folds make one sample. Per model m and set s there is a value v_ms; with weights w,

    mean of m          sum_s w_s v_ms / sum_s w_s
    difference of m    the mean of v_ms - v_bs, with b the best model and v the NLL

and every mean is resampled together with all others (``bootstrap.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.evaluation.bootstrap_intervals import by_group, p_values, percentiles, resampled_means
from pcmcnet.evaluation.comparison import DIFFERENCE, Comparison, FoldResult, Row
from pcmcnet.evaluation.cross_validation import Cell, Failure, Fold
from pcmcnet.evaluation.metrics import uniform_log_p
from pcmcnet.evaluation.per_set import mean_metrics, metrics_per_set
from pcmcnet.evaluation.report import LEVEL
from pcmcnet.models.interface.choice_model import ChoiceModel

Outcomes = Mapping[str, Sequence[Cell | Failure]]  # one per fold; shorter where the model failed
_COSTS = ("fit_seconds", "predict_seconds", "parameters", "where", "caveats")  # of a cell, beside its metrics
Pooled = dict[str, dict[str, Floats]]  # label -> metric -> values of the sets that count


def tally(
    models: Mapping[str, ChoiceModel],
    outcomes: Outcomes,
    data: ChoiceData,
    plan: Sequence[Fold],
    *,
    groups: Ints | None,
    top: tuple[int, ...],
    seed: int,
    resamples: int,
    design: Mapping[str, Any],
) -> Comparison:
    """Turn what was measured into the result; ``groups`` (S,) are resampled where given, else sets."""
    tested = np.concatenate([fold.test for fold in plan])
    there = data.weights[tested] > 0  # a set of weight 0 takes no part
    weights = data.weights[tested[there]]
    pooled = _pooled(outcomes, there)
    means = {label: mean_metrics(per_set, weights) for label, per_set in pooled.items()}
    best = _best(models, means)
    if best is not None:
        for label, per_set in pooled.items():
            if label != best and "nll" in per_set:
                per_set[DIFFERENCE] = per_set["nll"] - pooled[best]["nll"]
                means[label][DIFFERENCE] = float(np.average(per_set[DIFFERENCE], weights=weights))
    units = None if groups is None else groups[tested[there]]
    ends, p = _resampled(pooled, weights, units, seed=seed, resamples=resamples)
    rows = []
    for label, model in models.items():
        results = _fold_results(outcomes[label], [data.weights[fold.test] for fold in plan])
        facts = _facts(label, means[label], ends, p, pooled[label]) if label in means else {}
        rows.append(_row(label, model, results, facts, is_best=label == best))
    chosen = data.require_chosen("a comparison")
    reference = metrics_per_set(uniform_log_p(data.offsets), data.offsets, chosen, top)
    uniform = mean_metrics({name: values[tested] for name, values in reference.items()}, data.weights[tested])
    return Comparison(
        rows=tuple(rows), n_sets=len(tested), best=best, top=top, uniform=uniform, design=design, level=LEVEL
    )


def _pooled(outcomes: Outcomes, there: NDArray[np.bool_]) -> Pooled:
    """Join the folds of the models that got through all of them."""
    pooled: Pooled = {}
    for label, found in outcomes.items():
        cells = [cell for cell in found if isinstance(cell, Cell)]
        if len(cells) == len(found):
            names = cells[0].metrics
            pooled[label] = {name: np.concatenate([cell.metrics[name] for cell in cells])[there] for name in names}
    return pooled


def _best(models: Mapping[str, ChoiceModel], means: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return the first of least NLL among models that give probabilities and hold nothing chosen impossible."""
    nll = {k: v["nll"] for k, v in means.items() if models[k].gives == "probabilities" and np.isfinite(v["nll"])}
    return min(nll, key=nll.__getitem__) if nll else None


Keyed = dict[tuple[str, str], Any]  # by label and metric


def _resampled(
    pooled: Pooled, weights: Floats, groups: Ints | None, *, seed: int, resamples: int
) -> tuple[Keyed, Keyed]:
    """Return the intervals of all means and the p-values of all differences, from one series of resamples."""
    keys = [(label, name) for label, per_set in pooled.items() for name in per_set]
    if not resamples or not keys:
        return {}, {}
    values = np.column_stack([pooled[label][name] for label, name in keys])  # (S, M)
    if groups is not None:
        values, weights = by_group(values, weights, groups)
    means = resampled_means(values, weights, rng=np.random.default_rng(seed), resamples=resamples)  # (R, M)
    ends = dict(zip(keys, map(tuple, percentiles(means, weights, level=LEVEL).tolist()), strict=True))
    if len(weights) < 2:  # nothing is known about the spread
        return ends, {}
    return ends, dict(zip(keys, p_values(means).tolist(), strict=True))


def _facts(
    label: str, means: Mapping[str, float], ends: Keyed, p: Keyed, per_set: Mapping[str, Floats]
) -> dict[str, Any]:
    """What the row of a model that did not fail says of its quality."""
    return {
        "values": {name: value for name, value in means.items() if name != DIFFERENCE},
        "intervals": {name: ends[label, name] for name in means if (label, name) in ends},
        "difference": means.get(DIFFERENCE),
        "p_value": p.get((label, DIFFERENCE)),
        "n_impossible": int(np.isposinf(per_set.get("nll", 0.0)).sum()),
    }


def _fold_results(outcomes: Sequence[Cell | Failure], weights: Sequence[Floats]) -> tuple[FoldResult, ...]:
    """Sum up each fold; those after a failure were not tried."""
    results = []
    for outcome, w in zip(outcomes, weights, strict=False):
        if isinstance(outcome, Failure):
            results.append(FoldResult(n_sets=len(w), error=outcome.message))
            continue
        values = mean_metrics(outcome.metrics, w) if w.any() else {}
        cost = {name: getattr(outcome, name) for name in _COSTS}
        results.append(FoldResult(n_sets=len(w), values=values, **cost))
    return tuple(results)


def _row(
    label: str, model: ChoiceModel, folds: tuple[FoldResult, ...], facts: Mapping[str, Any], *, is_best: bool
) -> Row:
    error = next((fold.error for fold in folds if fold.error is not None), None)
    cost: dict[str, Any] = {}
    if error is None:
        cost = {name: _mean(folds, name) for name in ("fit_seconds", "predict_seconds")}
        cost["parameters"] = round(_mean(folds, "parameters"))  # folds may know different categories
    found = {**facts, "difference": 0.0} if is_best else facts
    options = asdict(model.config)
    return Row(
        label=label,
        model=model.name,
        options=options,
        gives=model.gives,
        folds=folds,
        error=error,
        **found,
        **cost,
    )


def _mean(folds: Sequence[FoldResult], name: str) -> float:
    return float(np.mean([getattr(fold, name) for fold in folds]))
