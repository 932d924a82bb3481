"""What a leaderboard has measured on one table: a comparison, who could not take part, and the verdict on each model.

The best model is that of least NLL. Another one is "tied" with it where the p-value of their paired difference is above
0.05, or where it has less NLL with scores that are no probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pcmcnet.evaluation.comparison import DIFFERENCE, Comparison, Row
from pcmcnet.evaluation.leaderboard_tables import Use
from pcmcnet.evaluation.ranks import LEVEL
from pcmcnet.evaluation.report import MARK, finite

Verdict = Literal["best", "tied", "worse", "missing"]


@dataclass(frozen=True, kw_only=True)
class TableResult:
    """What was measured on one table.

    Attributes
    ----------
    name, use, ranked
        The table, what it is used for, and whether it counts in ranks.
    comparison
        The models that took part, as ``compare`` returns it.
    absent
        Why other models did not take part.
    whole
        Number of choice sets of the whole table, of which ``comparison.n_sets`` were measured.
    floor
        NLL of the true probabilities on these choices, where they are known.
    """

    name: str
    use: Use
    comparison: Comparison
    absent: Mapping[str, str]
    whole: int
    floor: float | None = None
    ranked: bool = True

    def row(self, label: str) -> Row | None:
        """Return the row of a model that has an NLL here."""
        found = next((row for row in self.comparison.rows if row.label == label), None)
        return found if found is not None and found.error is None and "nll" in found.values else None

    def nll(self, label: str) -> float:
        """Return the NLL of a model, inf where it has none."""
        row = self.row(label)
        return np.inf if row is None else row.values["nll"]

    def reason(self, label: str) -> str | None:
        """Return why a model has no NLL here; None if it has one."""
        if self.row(label) is not None:
            return None
        if label in self.absent:
            return self.absent[label]
        return self.comparison[label].error or "a ranking gives no probabilities"

    def verdict(self, label: str) -> Verdict:
        """Tell how a model compares with the best one."""
        row = self.row(label)
        if row is None or row.difference is None:
            return "missing"
        if label == self.comparison.best:
            return "best"
        sure = row.p_value is not None and row.p_value <= 1 - LEVEL
        return "worse" if sure and row.difference > 0 else "tied"

    def to_dict(self) -> dict[str, Any]:
        """Return what survives JSON."""
        return {
            "name": self.name,
            "use": self.use,
            "ranked": self.ranked,
            "sets_of_the_table": self.whole,
            "floor": self.floor,
            "absent": dict(self.absent),
            "comparison": self.comparison.to_dict(),
        }


def nll_cell(table: TableResult, label: str) -> str:
    """An NLL with its mark and what is to be said of it: 0.8123 best."""
    row, verdict = table.row(label), table.verdict(label)
    if row is None:
        return "-"
    mark = MARK if row.gives == "scores" else ""
    return f"{row.values['nll']:.4f}{mark}{f' {verdict}' if verdict in ('best', 'tied') else ''}"


def plain_row(table: TableResult, label: str) -> dict[str, Any]:
    """One row of numbers, for a data frame."""
    row = table.row(label)
    ends = {} if row is None else row.intervals
    numbers: dict[str, Any] = {
        "nll": None if row is None else row.values["nll"],
        "nll_low": ends.get("nll", (None, None))[0],
        "nll_high": ends.get("nll", (None, None))[1],
        "difference": None if row is None else row.difference,
        "difference_low": ends.get(DIFFERENCE, (None, None))[0],
        "difference_high": ends.get(DIFFERENCE, (None, None))[1],
        "p_value": None if row is None else row.p_value,
        "fit_seconds": None if row is None else row.fit_seconds,
        "floor": table.floor,
    }
    return {
        "table": table.name,
        "use": table.use,
        "model": label,
        **{name: finite(value) for name, value in numbers.items()},
        "verdict": table.verdict(label),
        "reason": table.reason(label),
    }
