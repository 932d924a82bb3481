"""How well a fitted model predicts a table, beside baselines that are cross-validated on the same table.

The two are not alike. The model was fitted elsewhere, or on this very table: then its figures are in-sample, and
flatter it; see ``evaluation.seen`` for how that is known. The baselines are fitted to parts of this table and tested on
the rest, so that theirs never are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.evaluation.compare import compare
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.in_sample import Seen, in_sample_warning, seen_by
from pcmcnet.evaluation.report import Report, evaluate
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.notebook import PartOfReport

TOP = (1, 5)
FOLDS = 5
MOST = 5000  # choice sets that baselines are cross-validated on


@dataclass(frozen=True, kw_only=True)
class FitQuality(PartOfReport):
    """Figures of the model on the table, and of the baselines."""

    report: Report
    seen: Seen  # which choice sets of the table the model was trained on
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
    seen = seen_by(model, data)
    return FitQuality(report=report, seen=seen, warning=in_sample_warning(model, data, seen), baselines=measured)
