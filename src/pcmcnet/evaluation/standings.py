"""The result of a leaderboard: a comparison for each table, and where each model stands over all of them.

Over the tables, models are ranked by their NLL. A model without an NLL on a table shares the last places there, so that
being unfit for a table costs as much as being the worst on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError, printable
from pcmcnet.evaluation.comparison import DIFFERENCE, Comparison, ComparisonRow
from pcmcnet.evaluation.leaderboard_entries import Use
from pcmcnet.evaluation.report import FOOTNOTE, MARK
from pcmcnet.reports.formats import NotebookMixin, ToDictMixin, data_frame, to_json
from pcmcnet.reports.sections import Block, Table, note
from pcmcnet.reports.tables import escaped, markdown_table, text_table
from pcmcnet.storage import require_folder, sole_writer, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# -- Ranks -------------------------------------------------------------------------------------------------------------
# Losses of models on tables -> ranks, their means, and how far two means must lie apart (Demsar, 2006).
#
# On each of N tables the k models are ranked, 1 for the least loss; equal losses share the mean of their places. Two
# mean ranks differ with confidence 1 - alpha if they lie further apart than the critical distance of Nemenyi,
#
#     CD = q_alpha sqrt(k (k + 1) / (6 N)),        q_alpha = Q(1 - alpha; k, inf) / sqrt(2),
#
# with Q the quantile of the studentized range. Every table counts once, whatever its size. Shapes: losses (N, k), ranks
# (N, k), mean ranks (k,).

LEVEL = 0.95
_DIGITS = 9  # losses closer than this are equal: rounding is no reason for a rank


def ranks(losses: ArrayLike) -> Floats:  # (N, k) -> (N, k)
    """Rank the models of each table from 1 to k, the least loss first; equal losses have the mean of their places.

    A model without a loss has inf: such models share the last places.

    Examples
    --------
    >>> ranks([[0.7, 0.5, 0.7, np.inf]])
    array([[2.5, 1. , 2.5, 4. ]])
    """
    v = np.round(np.asarray(losses, dtype=np.float64), _DIGITS)
    if v.ndim != 2 or np.isnan(v).any():
        raise InputError(f"losses: expected numbers (tables, models) without NaN, got shape {v.shape}.")
    mine, theirs = v[:, :, None], v[:, None, :]
    places: Floats = (theirs < mine).sum(-1) + ((theirs == mine).sum(-1) + 1) / 2
    return places


def critical_distance(models: int, tables: int, *, level: float = LEVEL) -> float:
    """Return how far apart the mean ranks of two models must lie to differ; k models on N tables.

    Examples
    --------
    >>> round(critical_distance(5, 30), 3)  # 2.728 sqrt(5 6 / (6 30))
    1.114
    """
    if models < 2 or tables < 1:
        raise InputError(f"ranks differ between 2 or more models on 1 or more tables, got {models} on {tables}.")
    from scipy.stats import studentized_range  # here, since loading it takes a second that few need

    q = float(studentized_range.ppf(level, models, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(models * (models + 1) / (6 * tables)))


def groups_within_distance(mean_ranks: ArrayLike, distance: float) -> list[tuple[int, int]]:
    """Find the largest groups of neighbours whose mean ranks (k,), rising, do not differ by the critical distance.

    A group of two models or more is given by the positions of its first and last one; none lies within another.

    Examples
    --------
    >>> alike([1.0, 1.8, 2.5, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    r = np.asarray(mean_ranks, dtype=np.float64)
    last = np.searchsorted(r, r + distance, side="right") - 1
    reached, groups = -1, []
    for first, end in enumerate(last.tolist()):
        if end > max(first, reached):
            groups.append((first, end))
        reached = max(reached, end)
    return groups


# -- Table result ------------------------------------------------------------------------------------------------------
# What a leaderboard has measured on one table: a comparison, who could not take part, and the verdict on each model.
#
# The best model is that of least NLL. Another one is "tied" with it where the p-value of their paired difference is
# above 0.05, or where it has less NLL with scores that are no probabilities.

Verdict = Literal["best", "tied", "worse", "missing"]


@dataclass(frozen=True, kw_only=True)
class TableResult(ToDictMixin):
    """What was measured on one table."""

    name: str
    use: Use
    comparison: Comparison  # of the models that took part
    absent: Mapping[str, str]  # label -> why a model did not take part
    whole: int  # choice sets of the table, of which comparison.n_sets were measured
    floor: float | None = None  # NLL of the true probabilities on these choices, where they are known
    ranked: bool = True  # whether it counts in ranks

    def row(self, label: str) -> ComparisonRow | None:
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
        """Return the values as JSON knows them."""
        plain = super().to_dict()
        return {**plain, "sets_of_the_table": plain.pop("whole")}


def nll_cell(table: TableResult, label: str) -> str:
    """Write an NLL with its mark and verdict: 0.8123 best."""
    row, verdict = table.row(label), table.verdict(label)
    if row is None:
        return "-"
    mark = MARK if row.gives == "scores" else ""
    return f"{row.values['nll']:.4f}{mark}{f' {verdict}' if verdict in ('best', 'tied') else ''}"


def plain_row(table: TableResult, label: str) -> dict[str, Any]:
    """Return one row of a data frame."""
    row, numbers = table.row(label), dict[str, Any]()
    for name in ("nll", DIFFERENCE):
        value = None if row is None else row.difference if name == DIFFERENCE else row.values[name]
        low, high = (None, None) if row is None else row.intervals.get(name, (None, None))
        numbers |= {name: value, f"{name}_low": low, f"{name}_high": high}
    numbers |= {name: None if row is None else getattr(row, name) for name in ("p_value", "fit_seconds")}
    verdict = {"verdict": table.verdict(label), "reason": table.reason(label)}
    numbers["floor"] = table.floor
    return {"table": table.name, "use": table.use, "model": label, **to_json(numbers), **verdict}


# -- Standings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a model stands over the ranked tables."""

    model: str  # its label
    mean_rank: float
    mean_ranks: Mapping[str, float]  # over the tables of each use
    measured: int  # tables on which it has an NLL
    surely_best: int  # tables on which every other model is significantly worse
    not_worse: int  # tables on which it is not significantly worse than the best
    fit_seconds: float | None  # median over the tables of what a fit takes; None without an NLL
    parameters: float | None  # median over the tables


@dataclass(frozen=True, kw_only=True)
class Leaderboard(ToDictMixin, NotebookMixin):
    """Models measured on many tables. Made by :func:`leaderboard`; prints as tables.

    Attributes
    ----------
    models
        Labels, in the order given.
    tables
        What was measured on each table.
    skipped
        Why other tables were not measured.
    design
        How it was measured: folds, seed, sizes, limits.
    """

    models: tuple[str, ...]
    tables: tuple[TableResult, ...]
    skipped: Mapping[str, str]
    design: Mapping[str, Any]
    _derived = ("verdict",)

    def _short(self) -> str:
        return f"{len(self.models)} models, {len(self.tables)} tables; {self.verdict}"

    def _blocks(self) -> list[Block]:
        tables = [Table(cells=cells) for cells in (self.standing_cells(), self.nll_cells())]
        return [*tables, *map(note, (self.how, *self.notes))]

    def __getitem__(self, name: str) -> TableResult:
        """Return the result of a table."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    def ranked(self, use: Use | None = None) -> tuple[TableResult, ...]:
        """Return the tables that count in ranks; with ``use``, those of one use."""
        return tuple(table for table in self.tables if table.ranked and use in (None, table.use))

    def ranks(self, use: Use | None = None) -> Floats:
        """(N, k) rank of each model on each ranked table, in the order of ``models``."""
        losses = [[table.nll(label) for label in self.models] for table in self.ranked(use)]
        return ranks(np.array(losses, dtype=np.float64).reshape(-1, len(self.models)))

    def standings(self, use: Use | None = None) -> tuple[Standing, ...]:
        """Return where each model stands, the best mean rank first; with ``use``, on the tables of one use."""
        tables, places = self.ranked(use), self.ranks(use)
        if not tables:
            return ()
        uses = np.array([table.use for table in tables])
        found = []
        for k, label in enumerate(self.models):
            verdicts = [table.verdict(label) for table in tables]
            rows = [row for table in tables if (row := table.row(label)) is not None]
            found.append(
                Standing(
                    model=label,
                    mean_rank=float(places[:, k].mean()),
                    mean_ranks={kind: float(places[uses == kind, k].mean()) for kind in dict.fromkeys(uses.tolist())},
                    measured=sum(verdict != "missing" for verdict in verdicts),
                    surely_best=sum(self._surely_best(label, table) for table in tables),
                    not_worse=sum(verdict in ("best", "tied") for verdict in verdicts),
                    fit_seconds=_median(row.fit_seconds for row in rows),
                    parameters=_median(row.parameters for row in rows),
                )
            )
        return tuple(sorted(found, key=lambda standing: standing.mean_rank))

    def _surely_best(self, label: str, table: TableResult) -> bool:
        others = [table.verdict(other) for other in self.models if other != label]
        return table.verdict(label) == "best" and "worse" in others and "tied" not in others

    def critical_distance(self, use: Use | None = None) -> float:
        """Return how far apart two mean ranks must lie to differ."""
        return critical_distance(len(self.models), len(self.ranked(use)))

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one plain row per table and model; None where there is no number."""
        return [plain_row(table, label) for table in self.tables for label in self.models]

    def to_frame(self) -> Any:
        """Return :meth:`to_rows` as a pandas data frame."""
        return data_frame(pa.Table.from_pylist(self.to_rows()), instead="to_rows()")

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON knows them; an infinite number is None."""
        distance = self.critical_distance() if len(self.models) > 1 and self.ranked() else None
        return {**super().to_dict(), "critical_distance": distance, "standings": to_json(self.standings())}

    def to_markdown(self, *, details: bool = False) -> str:
        """Return the standings and the NLL of every model on every table; with ``details`` also each comparison."""
        parts = [markdown_table(cells) for cells in (self.standing_cells(), self.nll_cells())]
        notes = "\n".join(f"- {escaped(note)}" for note in self.notes)
        text = f"{self.how}\n\n{parts[0]}\n\n{escaped(self.verdict)}\n\n{parts[1]}\n\n{notes}"
        if details:
            text += "".join(f"\n\n## {t.name}\n\n{t.comparison.to_markdown()}" for t in self.tables)
        return printable(text)

    def __str__(self) -> str:
        tables = [text_table(cells) for cells in (self.standing_cells(), self.nll_cells())]
        return printable("\n\n".join([self.how, tables[0], self.verdict, tables[1], "\n".join(self.notes)]))

    @property
    def verdict(self) -> str:
        """One sentence on which model has the best mean rank, and which ones are not told apart from it."""
        standings, n = self.standings(), len(self.ranked())
        if not n:
            return "No model is ranked: no table was measured."
        first = standings[0]
        best = f"{first.model} has the best mean rank, {first.mean_rank:.2f} over {n} {'table' if n == 1 else 'tables'}"
        if len(standings) == 1:
            return f"{best}."
        within = first.mean_rank + self.critical_distance()
        close = [standing.model for standing in standings[1:] if standing.mean_rank <= within]
        if not close:
            return f"{best}; all other models rank significantly lower."
        return f"{best}; the difference from {', '.join(close)} is not significant."

    @property
    def how(self) -> str:
        """One sentence on how it was measured."""
        d, noun = self.design, "table" if len(self.tables) == 1 else "tables"
        return (
            f"{len(self.models)} models on {len(self.tables)} {noun}, {d['folds']}-fold cross-validation, seed "
            f"{d['seed']}; tables cut to {d['sets']:,} choice sets, fits to {d['seconds']:g} s."
        )

    @property
    def notes(self) -> list[str]:
        """What the reader of the tables has to know beside them."""
        notes = ["best: least NLL on the table; tied: not significantly worse (p above 0.05, not corrected)."]
        if any(row.gives == "scores" for table in self.tables for row in table.comparison.rows):
            notes.append(f"{FOOTNOTE}.")
        if self.ranked():
            folds = self.design["folds"]
            notes.append(f"seconds, parameters: of a fit to {folds - 1} of {folds} folds, the median over the tables.")
        if len(self.models) > 1 and self.ranked():
            notes.append(f"Mean ranks differ significantly where they lie {self.critical_distance():.2f} apart.")
        notes += [
            f"{table.name}: {table.comparison.n_sets:,} of {table.whole:,} choice sets."
            for table in self.tables
            if table.comparison.n_sets < table.whole
        ]
        twice = [table.name for table in self.tables if not table.ranked]
        notes += [f"{name} does not count in ranks: its choices are those of another table." for name in twice]
        reasons: dict[tuple[str, str], list[str]] = {}
        for table in self.tables:
            for label in self.models:
                if reason := table.reason(label):
                    reasons.setdefault((label, reason), []).append(table.name)
        notes += [f"{label} on {', '.join(names)}: {reason}" for (label, reason), names in reasons.items()]
        return notes + [f"{name} skipped: {reason}" for name, reason in self.skipped.items()]

    def standing_cells(self) -> list[list[str]]:
        """The standings as text: a row of heads, then one per model, the best first."""
        uses = list(dict.fromkeys(table.use for table in self.ranked()))
        shown = uses if len(uses) > 1 else []
        head = ["model", "mean rank", *shown, "tables", "surely best", "not worse than best", "seconds", "parameters"]
        table = [head]
        for s in self.standings():
            means = [f"{mean:.2f}" for mean in (s.mean_rank, *(s.mean_ranks[use] for use in shown))]
            costs = [f"{s.fit_seconds:,.1f}" if s.fit_seconds is not None else "-"]
            costs += [f"{s.parameters:,.0f}" if s.parameters is not None else "-"]
            table.append([s.model, *means, str(s.measured), str(s.surely_best), str(s.not_worse), *costs])
        return table

    def nll_cells(self) -> list[list[str]]:
        """The NLL of every model as text: a row of heads, then one per table."""
        labels = [standing.model for standing in self.standings()] or list(self.models)
        floors = any(table.floor is not None for table in self.tables)
        table = [["NLL", "use", "sets", *(["floor"] if floors else []), *labels]]
        for result in self.tables:
            floor = ["-" if result.floor is None else f"{result.floor:.4f}"] if floors else []
            values = [nll_cell(result, label) for label in labels]
            table.append([result.name, result.use, f"{result.comparison.n_sets:,}", *floor, *values])
        return table

    def plot(self, use: Use | None = None, path: str | Path | None = None, ax: Axes | None = None) -> Axes | Figure:
        """Draw the mean ranks, with bars that join models whose ranks do not differ.

        Parameters
        ----------
        use
            Draw the tables of one use; None for all.
        path
            Also write the picture there: .png, .pdf or .svg.
        ax
            Where to draw; a new figure if None.

        Returns
        -------
        matplotlib.axes.Axes or matplotlib.figure.Figure
            The axes given, or the new figure; :meth:`to_frame` has the numbers.

        Raises
        ------
        InputError
            When there are fewer than two models, or no table.
        """
        from pcmcnet.plots.leaderboard import plot_leaderboard

        return plot_leaderboard(self, use, path, ax)

    def save(self, folder: str | Path) -> list[Path]:
        """Write leaderboard.json, leaderboard.md and, where there are ranks to compare, leaderboard.png."""
        place = require_folder(folder)
        files = [place / f"leaderboard.{kind}" for kind in ("json", "md", "png")]
        with sole_writer(place):
            content = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
            write_bytes(files[0], f"{content}\n".encode())
            write_bytes(files[1], f"# Leaderboard\n\n{self.to_markdown(details=True)}\n".encode())
            if len(self.models) > 1 and self.ranked():
                self.plot(path=files[2])
                return files
            files[2].unlink(missing_ok=True)  # that of an earlier run
        return files[:2]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
