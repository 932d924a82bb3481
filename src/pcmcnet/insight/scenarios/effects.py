"""Figures of groups before and after a change, with their intervals, as rows that are found by group and print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.insight.scenarios.figures import Answer, Question
from pcmcnet.insight.scenarios.surplus import ConsumerSurplus
from pcmcnet.reports.tables import PrintsAsTable, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One figure of one group; the ends of intervals are None where there are none."""

    group: str
    before: float
    after: float
    change: float
    low: float | None = None  # ends of the interval of the change
    high: float | None = None
    after_low: float | None = None
    after_high: float | None = None


class _ByName:
    """Rows that are found by their group."""

    __slots__ = ()
    rows: tuple[Any, ...]

    def __getitem__(self, group: str) -> Any:
        for row in self.rows:
            if row.group == group:
                return row
        raise InputError(f"no group {group!r}." + did_you_mean(group, [row.group for row in self.rows]))


@dataclass(frozen=True)
class Effects(_ByName, PrintsAsTable):
    """A figure of all groups before and after; prints as a table. ``effects["car"]`` is the row of a group."""

    quantity: str
    rows: tuple[Effect, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON, by group."""
        return {row.group: {k: v for k, v in asdict(row).items() if k != "group"} for row in self.rows}

    def _cells(self) -> list[list[str]]:
        return self.cells()

    def cells(self, title: str | None = None) -> list[list[str]]:
        """Return the cells of the table, the heads first; the first head is ``title``, or the quantity."""
        share = self.quantity == "share"
        heads = [title or self.quantity, "before", "after", "change in points" if share else "change"]
        cells = [heads + ["interval"] * any(row.low is not None for row in self.rows)]
        for row in self.rows:
            values = [f"{value:.2%}" if share else number(value) for value in (row.before, row.after)]
            change, *ends = (self._signed(end) for end in (row.change, row.low, row.high) if end is not None)
            cells.append([row.group, *values, change, *([" to ".join(ends)] if ends else [])])
        return cells

    def _signed(self, change: float) -> str:
        """Write a change with its sign, of a share in points."""
        return f"{100 * change:+.2f}" if self.quantity == "share" else f"{'+' * (change > 0)}{number(change)}"


@dataclass(frozen=True, slots=True)
class Diverted:
    """The part of what the changed alternatives lose that goes to a group, or of what they gain that comes from it."""

    group: str
    ratio: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Diversion(_ByName, PrintsAsTable):
    """Diversion ratios of the groups that the change is not of; prints as a table."""

    of: tuple[str, ...]  # the groups that the change is of
    rows: tuple[Diverted, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        return {"of": list(self.of), "rows": [asdict(row) for row in self.rows]}

    def _cells(self) -> list[list[str]]:
        between = any(row.low is not None for row in self.rows)
        cells = [["group", "diversion", *(["interval"] if between else [])]]
        for row in self.rows:
            ends = [] if row.low is None or row.high is None else [f"{row.low:.1%} to {row.high:.1%}"]
            cells.append([row.group, f"{row.ratio:.1%}", *ends])
        return cells


class Told:
    """The figures of an answer, put into rows."""

    def __init__(self, question: Question, answer: Answer, names: tuple[str, ...]) -> None:
        self.question, self.names = question, names
        self.values = question.split(answer.values)
        self.low, self.high = (None if end is None else question.split(end) for end in (answer.low, answer.high))
        self.diverts, self.mixed = question.diverts(answer.values), question.mixed(answer.values)

    def effects(self, block: str, quantity: str, more: Sequence[str] = ()) -> Effects:
        """Return shares, volumes or revenue by group."""
        tops = {"shares": 1.0, "volumes": float(self.question.after.data.weights.sum())}
        least, most = (0.0, tops[block]) if block in tops else (-np.inf, np.inf)
        rows = []
        for k, group in enumerate((*self.names, *more)):
            before, after, change = self.values[block][:, k].tolist()
            ends: dict[str, float] = {}
            if self.low is not None and self.high is not None:
                (_, after_low, low), (_, after_high, high) = self.low[block][:, k], self.high[block][:, k]
                ends = {
                    "low": low,
                    "high": high,
                    "after_low": max(after_low, least),
                    "after_high": min(after_high, most),
                }
            ends = {name: float(end) for name, end in ends.items()}
            rows.append(Effect(group=group, before=before, after=after, change=change, **ends))
        return Effects(quantity, tuple(rows))

    def revenue(self, column: str | None) -> Effects | str:
        """Return the revenue by group and in all, or why there is none."""
        if column is None:
            return "no column of revenue was named: give revenue=<column>."
        return self.effects("revenue", f"revenue, {column}", ["all"])

    def diversion(self) -> Diversion | str:
        """Return the diversion ratios, or why there are none."""
        changed = self.question.changed
        if changed.all():
            return "the change is of all alternatives, so nothing is diverted from some of them to others."
        if self.mixed:
            return "some of the changed alternatives lose and others gain: ask for one change at a time."
        if not self.diverts:
            return "the changed alternatives lose and gain nothing, so nothing is diverted."
        rows = [Diverted(self.names[k], *self._with_ends("diversion", k)) for k in np.flatnonzero(~changed).tolist()]
        return Diversion(tuple(self.names[k] for k in np.flatnonzero(changed)), tuple(rows))

    def surplus(self) -> dict[str, ConsumerSurplus]:
        """Return the consumer surplus by its name, if there is one."""
        if (cost := self.question.cost) is None:
            return {}
        data = self.question.before.data
        mean, low, high = self._with_ends("surplus", 0)
        unit = data.schema.named[cost].unit if cost in data.schema.named else None
        found = ConsumerSurplus(unit or cost, mean, low, high, total=mean * float(data.weights.sum()))
        return {"consumer_surplus": found}

    def _with_ends(self, block: str, k: int) -> tuple[float, float | None, float | None]:
        low, high = (None if end is None else float(end[block][k]) for end in (self.low, self.high))
        return float(self.values[block][k]), low, high
