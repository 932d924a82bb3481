"""How well a fitted model predicts a table, beside baselines that are cross-validated on the same table.

The two are not alike. The model was fitted elsewhere, or on this very table: then its figures are in-sample, and
flatter it. The baselines are fitted to parts of this table and tested on the rest, so that theirs never are.

Whether the model has seen the table is told by the fingerprint of its training table. A table of which it was fitted to
a part has another one; but a model keeps one choice set of its training table, and a table that holds this set too
overlaps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns import Column, Numeric
from pcmcnet.evaluation.compare import compare
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.report import Report, evaluate
from pcmcnet.models.base import ChoiceModel

Seen = Literal["all", "some", "none known"]

TOP = (1, 5)
FOLDS = 5
MOST = 5000  # choice sets that baselines are cross-validated on


@dataclass(frozen=True, kw_only=True)
class FitQuality:
    """Figures of the model on the table, and of the baselines."""

    report: Report
    seen: Seen  # which choice sets of the table the model was trained on
    baselines: Comparison | None = None  # None where none were asked for, or the table is too small for folds

    @property
    def in_sample(self) -> bool:
        """Whether the table is the one that the model was trained on."""
        return self.seen == "all"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        baselines = None if self.baselines is None else self.baselines.to_dict()
        return {"seen": self.seen, "in_sample": self.in_sample, "model": self.report.to_dict(), "baselines": baselines}


def fit_quality(
    model: ChoiceModel, data: ChoiceData, baselines: Mapping[str, ChoiceModel], *, seed: int = 0
) -> FitQuality:
    """Evaluate a model on a table, and cross-validate baselines on it.

    Baselines see up to 5,000 sets, drawn at random from a larger table; the model is asked about all.
    """
    report = evaluate(model, data, TOP, seed)
    counted = np.flatnonzero(data.weights > 0)
    few = np.random.default_rng(seed).permutation(counted)[:MOST]
    part = data if len(counted) <= MOST else data.subset(np.sort(few))
    measured = None
    if baselines and len(counted) >= 2 * FOLDS:
        measured = compare(baselines, part, FOLDS, seed, top=TOP, progress=False)
    return FitQuality(report=report, seen=seen_by(model, data), baselines=measured)


def seen_by(model: ChoiceModel, data: ChoiceData) -> Seen:
    """Tell which sets of a table a model was trained on, as far as that can be known."""
    if model.training_.get("fingerprint") == data.fingerprint():
        return "all"
    kept = (model.training_.get("table") or {}).get("example")
    return "some" if kept and _holds(data, kept) else "none known"


def _holds(data: ChoiceData, kept: Mapping[str, Any]) -> bool:
    """Tell whether a table has a set with the same alternatives, individual and choice, in whatever order of sets."""
    rows = kept["alternatives"]
    alike = np.flatnonzero(data.sizes == len(rows))
    if data.chosen is not None:
        alike = alike[data.chosen[alike] == kept["chosen"]]
    places = data.offsets[alike][:, None] + np.arange(len(rows))  # (C, n)
    same = np.ones(len(alike), np.bool_)
    for name, column in data.features.items():
        same &= _equal(column, places, [row.get(name) for row in rows]).all(axis=1)
    for name, column in data.individual.items():
        same &= _equal(column, alike, [kept["individual"].get(name)])
    return bool(same.any()) and bool(data.features or data.individual)


def _equal(column: Column, places: Any, values: list[Any]) -> Any:
    """Compare values of a column at places (..., n) with those kept (n,)."""
    if isinstance(column, Numeric):
        wanted = np.array([np.nan if value is None else value for value in values], np.float32)
        found = column.values[places]
        return (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    codes = {name: k for k, name in enumerate(column.categories)}
    return column.codes[places] == np.array([codes.get(str(value), -1) for value in values])
