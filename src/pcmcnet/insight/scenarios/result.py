"""What a scenario does to the market: shares, volumes, revenue, diversion and surplus, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.effects import Diversion, Effects
from pcmcnet.insight.scenarios.surplus import ConsumerSurplus
from pcmcnet.reports.formats import InEveryFormat, Printed
from pcmcnet.reports.tables import number
from pcmcnet.storage.to_json import to_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A change, and how much of the table it is of."""

    text: str
    alternatives: int
    sets: int

    def __str__(self) -> str:
        sets = f"{self.sets:,} choice set{'s' * (self.sets != 1)}"
        return f"{self.text}: {self.alternatives:,} alternative{'s' * (self.alternatives != 1)} in {sets}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario(InEveryFormat):
    """What :func:`scenario` found; prints as a table, in every format that a report may need.

    Attributes
    ----------
    model
        The class of the model.
    steps
        The changes, in their order.
    by
        What the groups are.
    sets
        Number of choice sets.
    shares
        Share of the choices of each group before and after, with the interval of its change.
    volumes
        The same, times the weights of the choice sets.
    intervals
        How intervals were found, or why there are none.
    notes
        What to know before trusting the figures.
    """

    model: str
    steps: tuple[Step, ...]
    by: str
    sets: int
    shares: Effects
    volumes: Effects
    intervals: str
    notes: tuple[str, ...]
    parts: Mapping[str, Any]  # revenue, diversion and consumer_surplus, or why there is none

    @property
    def revenue(self) -> Effects:
        """Revenue of each group and the sum of all, where a column of it was named."""
        found: Effects = self._part("revenue")
        return found

    @property
    def diversion(self) -> Diversion:
        """Where the choices go that the changed alternatives lose, or where those come from that they gain."""
        found: Diversion = self._part("diversion")
        return found

    @property
    def consumer_surplus(self) -> ConsumerSurplus:
        """What the change is worth to those who choose; a gain is positive."""
        found: ConsumerSurplus = self._part("consumer_surplus")
        return found

    def _part(self, name: str) -> Any:
        found = self.parts[name]
        if isinstance(found, str):
            raise InputError(found)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON; a part that cannot be had is None, and ``left_out`` says why."""
        whole: dict[str, Any] = to_json(
            {
                "model": self.model,
                "changes": [asdict(step) for step in self.steps],
                "by": self.by,
                "choice_sets": self.sets,
                "intervals": self.intervals,
                "shares": self.shares.to_dict(),
                "volumes": self.volumes.to_dict(),
                **{name: None if isinstance(part, str) else _plain(part) for name, part in self.parts.items()},
                "left_out": {name: part for name, part in self.parts.items() if isinstance(part, str)},
                "notes": list(self.notes),
            }
        )
        return whole

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a flat mapping for each group: shares, volumes and, where there are any, revenue and diversion."""
        blocks = {"share": self.shares, "volume": self.volumes}
        if isinstance(self.parts["revenue"], Effects):
            blocks["revenue"] = self.parts["revenue"]
        rows = []
        for group in (row.group for row in self.shares.rows):
            found: dict[str, Any] = {self.by: group}
            for name, effects in blocks.items():
                values = {k: v for k, v in asdict(effects[group]).items() if k != "group"}
                found |= {f"{name}_{'change_' * (k in ('low', 'high'))}{k}": v for k, v in values.items()}
            if isinstance(diversion := self.parts["diversion"], Diversion) and group not in diversion.of:
                row = diversion[group]
                found |= {"diversion": row.ratio, "diversion_low": row.low, "diversion_high": row.high}
            rows.append(found)
        return rows

    def to_arrow(self) -> pa.Table:
        """Return :meth:`to_rows` as an Arrow table; a figure that a group does not have is null."""
        rows = self.to_rows()
        names = dict.fromkeys(name for row in rows for name in row)
        kinds = [pa.field(name, pa.string() if name == self.by else pa.float64()) for name in names]
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds))

    def to_frame(self) -> Any:
        """Return :meth:`to_rows` as a pandas data frame, indexed by group."""
        if find_spec("pandas") is None:
            raise InputError("to_frame needs pandas, which is not installed: pip install pandas, or use to_rows().")
        return self.to_arrow().to_pandas().set_index(self.by)

    def _printed(self) -> Printed:
        facts = {f"change {k}" if k > 1 else "change": str(step) for k, step in enumerate(self.steps, start=1)}
        if isinstance(revenue := self.parts["revenue"], Effects):
            before, after, change, *ends = revenue.cells()[-1][1:]
            facts[revenue.quantity] = f"{before} before, {after} after, {change}" + "".join(f" ({end})" for end in ends)
        if isinstance(surplus := self.parts["consumer_surplus"], ConsumerSurplus):
            facts["consumer surplus"] = str(surplus)
        title = f"Scenario: {self.model} on {self.sets:,} choice sets"
        return Printed(title=title, cells=self._cells(), facts=facts, notes=(self.intervals, *self.notes))

    def _cells(self) -> list[list[str]]:
        """Return shares and, beside them, diversion, volumes where sets have weights, and revenue, if there is any."""
        cells = self.shares.cells(self.by)
        if isinstance(diversion := self.parts["diversion"], Diversion):
            cells[0].append("diversion")
            for row in cells[1:]:
                row.append("-" if row[0] in diversion.of else f"{diversion[row[0]].ratio:.1%}")
        beside = {"volume": None if self._unweighted else self.volumes, "revenue": self.parts["revenue"]}
        for name, effects in beside.items():
            if isinstance(effects, Effects):
                cells[0] += [f"{name} before", "after"]
                for row in cells[1:]:
                    row += [number(value) for value in (effects[row[0]].before, effects[row[0]].after)]
        return cells

    @property
    def _unweighted(self) -> bool:
        return abs(sum(row.before for row in self.volumes.rows) - self.sets) < 1e-6 * self.sets

    __repr__ = InEveryFormat.__str__


def _plain(part: Any) -> Any:
    return part.to_dict() if hasattr(part, "to_dict") else asdict(part)
