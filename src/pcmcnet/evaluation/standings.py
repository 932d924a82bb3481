"""The result of a leaderboard: a comparison for each table, and the standing of each model across all tables.

Models are ranked by their NLL on each table. Models without an NLL on a table are tied for the last ranks on this
table, so that an inapplicable model counts as one of the worst.
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
from pcmcnet.evaluation.comparison import DIFFERENCE, GIVEN_TEST_PART, Comparison, ComparisonRow
from pcmcnet.evaluation.leaderboard_entries import Use
from pcmcnet.evaluation.report import FOOTNOTE, MARK
from pcmcnet.reports.formats import NotebookMixin, ToDictMixin, to_json
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.sections import Block, Table, note
from pcmcnet.reports.tables import escaped, markdown_table, text_table
from pcmcnet.storage import require_folder, sole_writer, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# -- Ranks -------------------------------------------------------------------------------------------------------------
# Losses of models on tables -> ranks, mean ranks, and their critical distance (Demsar, 2006).
#
# On each of N tables the k models are ranked, from 1 for the lowest loss; equal losses share the mean of their ranks.
# Two mean ranks differ significantly at the level alpha if they differ by more than Nemenyi's critical distance,
#
#     CD = q_alpha sqrt(k (k + 1) / (6 N)),        q_alpha = Q(1 - alpha; k, inf) / sqrt(2),
#
# with Q the quantile of the studentized range. Every table counts once, regardless of its size. Shapes: losses (N, k),
# ranks (N, k), mean ranks (k,).

LEVEL = 0.95
_DIGITS = 9  # decimals to which losses are rounded, so that rounding errors do not determine ranks


def ranks(losses: ArrayLike) -> Floats:  # (N, k) -> (N, k)
    """Rank the models on each table from 1 (lowest loss) to k; models with equal losses get the mean of their ranks.

    Represent a missing loss by inf: models without a loss are tied for the last ranks.

    Examples
    --------
    >>> ranks([[0.7, 0.5, 0.7, np.inf]])
    array([[2.5, 1. , 2.5, 4. ]])
    """
    v = np.round(np.asarray(losses, dtype=np.float64), _DIGITS)
    if v.ndim != 2 or np.isnan(v).any():
        raise InputError(f"losses: expected an array of shape (tables, models) without NaN, got shape {v.shape}.")
    model, rival = v[:, :, None], v[:, None, :]
    ranked: Floats = (rival < model).sum(-1) + ((rival == model).sum(-1) + 1) / 2
    return ranked


def critical_distance(models: int, tables: int, *, level: float = LEVEL) -> float:
    """Return Nemenyi's critical distance: mean ranks that are further apart differ significantly.

    Examples
    --------
    >>> round(critical_distance(5, 30), 3)  # 2.728 sqrt(5 6 / (6 30))
    1.114
    """
    if models < 2 or tables < 1:
        raise InputError(f"expected at least 2 models and 1 table to compare ranks, got {models} and {tables}.")
    from scipy.stats import studentized_range  # importing it takes a second

    q = float(studentized_range.ppf(level, models, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(models * (models + 1) / (6 * tables)))


def groups_within_distance(mean_ranks: ArrayLike, distance: float) -> list[tuple[int, int]]:
    """Return the maximal groups of models whose mean ranks (k,), in ascending order, differ by at most ``distance``.

    A group has at least two models and is given by the positions of its first and last model. No group is contained in
    another group.

    Examples
    --------
    >>> groups_within_distance([1.0, 1.8, 2.5, 4.0], 1.0)
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
# The result of a leaderboard on one table: the comparison, the models that were not applicable, and a verdict on each.
#
# The best model is the one with the lowest NLL. Another model is "tied" with it if the p-value of their paired
# difference is above 0.05, or if it has a lower NLL but gives scores, not probabilities.

Verdict = Literal["best", "tied", "worse", "missing"]


@dataclass(frozen=True, kw_only=True)
class TableResult(ToDictMixin):
    """Result of a leaderboard on one table."""

    name: str
    use: Use
    comparison: Comparison  # of the applicable models
    absent: Mapping[str, str]  # label -> why a model is not applicable
    whole: int  # choice sets of the whole table; comparison.n_sets of them were used
    floor: float | None = None  # NLL of the true probabilities on these choices, if they are known
    ranked: bool = True  # whether the table counts in ranks

    def row(self, label: str) -> ComparisonRow | None:
        """Return the comparison row of the model with this label, or None if the model has no NLL on this table."""
        match = next((row for row in self.comparison.rows if row.label == label), None)
        return match if match is not None and match.error is None and "nll" in match.values else None

    def nll(self, label: str) -> float:
        """Return the NLL of the model with this label, or inf if the model has no NLL on this table."""
        row = self.row(label)
        return np.inf if row is None else row.values["nll"]

    def reason(self, label: str) -> str | None:
        """Return the reason why the model with this label has no NLL on this table, or None if it has an NLL."""
        if self.row(label) is not None:
            return None
        if label in self.absent:
            return self.absent[label]
        return self.comparison[label].error or "a ranking gives no probabilities"

    def verdict(self, label: str) -> Verdict:
        """Return the verdict on a model for this table.

        Parameters
        ----------
        label
            Label of the model.

        Returns
        -------
        str
            "best", "tied" (not significantly worse than the best model), "worse" (significantly worse), or "missing"
            (the model has no NLL on this table).
        """
        row = self.row(label)
        if row is None or row.difference is None:
            return "missing"
        if label == self.comparison.best:
            return "best"
        is_significant = row.p_value is not None and row.p_value <= 1 - LEVEL
        return "worse" if is_significant and row.difference > 0 else "tied"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        plain = super().to_dict()
        return {**plain, "sets_of_the_table": plain.pop("whole")}


def nll_cell(table: TableResult, label: str) -> str:
    """Format the NLL of a model on a table with the verdict, such as "0.8123 best"."""
    row, verdict = table.row(label), table.verdict(label)
    if row is None:
        return "-"
    mark = MARK if row.gives == "scores" else ""
    return f"{row.values['nll']:.4f}{mark}{f' {verdict}' if verdict in ('best', 'tied') else ''}"


def plain_row(table: TableResult, label: str) -> dict[str, Any]:
    """Return the results of one model on one table as JSON values."""
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
    """Mean ranks and other summary statistics of a model over the ranked tables."""

    model: str  # label
    mean_rank: float
    mean_ranks: Mapping[str, float]  # use -> mean rank over the tables of that use
    measured: int  # number of tables on which it has an NLL
    surely_best: int  # number of tables on which every other model is significantly worse
    not_worse: int  # number of tables on which it is not significantly worse than the best
    fit_seconds: float | None  # median over the tables; None without an NLL
    parameters: float | None  # median over the tables


@dataclass(frozen=True, kw_only=True)
class Leaderboard(ToDictMixin, NotebookMixin):
    """Comparison of models on many tables, returned by :func:`leaderboard`.

    Attributes
    ----------
    models
        Labels of the models, in the order in which they were given.
    tables
        Results for each table.
    skipped
        Mapping from the names of skipped tables to the reasons.
    design
        Settings of the leaderboard: folds, seed, limits, machine and versions.
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
        """Return the result for the table with this name. Raise KeyError if there is no such table."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    def ranked(self, use: Use | None = None) -> tuple[TableResult, ...]:
        """Return the results of the tables that count towards the ranks.

        Parameters
        ----------
        use
            Restrict the results to tables with this use. Default None: all tables.
        """
        return tuple(table for table in self.tables if table.ranked and use in (None, table.use))

    def ranks(self, use: Use | None = None) -> Floats:
        """Return the rank of each model on each ranked table, (N, k), in the order of ``models``.

        Parameters
        ----------
        use
            Restrict the results to tables with this use. Default None: all tables.
        """
        losses = [[table.nll(label) for label in self.models] for table in self.ranked(use)]
        return ranks(np.array(losses, dtype=np.float64).reshape(-1, len(self.models)))

    def standings(self, use: Use | None = None) -> tuple[Standing, ...]:
        """Return the standing of each model, in order of mean rank, best first.

        Parameters
        ----------
        use
            Restrict the results to tables with this use. Default None: all tables.
        """
        tables, table_ranks = self.ranked(use), self.ranks(use)
        if not tables:
            return ()
        uses = np.array([table.use for table in tables])
        standings = []
        for k, label in enumerate(self.models):
            verdicts = [table.verdict(label) for table in tables]
            rows = [row for table in tables if (row := table.row(label)) is not None]
            by_use = {kind: float(table_ranks[uses == kind, k].mean()) for kind in dict.fromkeys(uses.tolist())}
            standings.append(
                Standing(
                    model=label,
                    mean_rank=float(table_ranks[:, k].mean()),
                    mean_ranks=by_use,
                    measured=sum(verdict != "missing" for verdict in verdicts),
                    surely_best=sum(self._is_significantly_best(label, table) for table in tables),
                    not_worse=sum(verdict in ("best", "tied") for verdict in verdicts),
                    fit_seconds=_median(row.fit_seconds for row in rows),
                    parameters=_median(row.parameters for row in rows),
                )
            )
        return tuple(sorted(standings, key=lambda standing: standing.mean_rank))

    def _is_significantly_best(self, label: str, table: TableResult) -> bool:
        """Return True if all other models with an NLL on the table are significantly worse than this model."""
        rivals = [table.verdict(rival) for rival in self.models if rival != label]
        return table.verdict(label) == "best" and "worse" in rivals and "tied" not in rivals

    def critical_distance(self, use: Use | None = None) -> float:
        """Return the critical distance between mean ranks: a larger difference is significant.

        Parameters
        ----------
        use
            Restrict the results to tables with this use. Default None: all tables.
        """
        return critical_distance(len(self.models), len(self.ranked(use)))

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row of JSON values per table and model, with None for missing and infinite numbers."""
        return [plain_row(table, label) for table in self.tables for label in self.models]

    def to_frame(self) -> Any:
        """Return the rows of :meth:`to_rows` as a pandas data frame."""
        return data_frame(pa.Table.from_pylist(self.to_rows()), instead="to_rows()")

    def to_dict(self) -> dict[str, Any]:
        """Return the leaderboard as JSON values, with None for infinite numbers."""
        distance = self.critical_distance() if len(self.models) > 1 and self.ranked() else None
        return {**super().to_dict(), "critical_distance": distance, "standings": to_json(self.standings())}

    def to_markdown(self, *, details: bool = False) -> str:
        """Return the standings and the NLL of every model on every table as Markdown.

        Parameters
        ----------
        details
            Whether to include the comparison for each table. Default False.
        """
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
        """Sentence that names the model with the best mean rank, and the models that it does not significantly beat."""
        standings, n = self.standings(), len(self.ranked())
        if not n:
            return "No model is ranked: there are no results."
        first = standings[0]
        best = f"{first.model} has the best mean rank, {first.mean_rank:.2f} over {n} {'table' if n == 1 else 'tables'}"
        if len(standings) == 1:
            return f"{best}."
        within = first.mean_rank + self.critical_distance()
        close = [standing.model for standing in standings[1:] if standing.mean_rank <= within]
        if not close:
            return f"{best}; its lead over every other model is significant."
        return f"{best}; its lead over {', '.join(close)} is not significant."

    @property
    def how(self) -> str:
        """One sentence that describes the protocol: models, tables, folds, seed, limits."""
        d, noun = self.design, "table" if len(self.tables) == 1 else "tables"
        return (
            f"{len(self.models)} models on {len(self.tables)} {noun}, {d['folds']}-fold cross-validation, seed "
            f"{d['seed']}; at most {d['sets']:,} choice sets per table and {d['seconds']:g} s per fit."
        )

    @property
    def notes(self) -> list[str]:
        """Notes printed below the tables."""
        notes = ["best: lowest NLL on the table; tied: not significantly worse than the best (uncorrected p > 0.05)."]
        if any(row.gives == "scores" for table in self.tables for row in table.comparison.rows):
            notes.append(f"{FOOTNOTE}.")
        if self.ranked():
            folds = self.design["folds"]
            notes.append(f"seconds and parameters: medians over the tables, for fits to {folds - 1} of {folds} folds.")
        if len(self.models) > 1 and self.ranked():
            notes.append(f"Mean ranks differ significantly if they are more than {self.critical_distance():.2f} apart.")
        notes += [
            f"{table.name}: a sample of {table.comparison.n_sets:,} of {table.whole:,} choice sets."
            for table in self.tables
            if table.comparison.n_sets < table.whole
        ]
        notes += [
            f"{table.name}: {table.comparison.how[:-1]}."
            for table in self.tables
            if table.comparison.design["split"] == GIVEN_TEST_PART
        ]
        unranked = [table.name for table in self.tables if not table.ranked]
        notes += [f"{name} is not ranked, because it contains the same choices as another table." for name in unranked]
        reasons: dict[tuple[str, str], list[str]] = {}
        for table in self.tables:
            for label in self.models:
                if reason := table.reason(label):
                    reasons.setdefault((label, reason), []).append(table.name)
        notes += [f"{label} on {', '.join(names)}: {reason}" for (label, reason), names in reasons.items()]
        return notes + [f"{name} skipped: {reason}" for name, reason in self.skipped.items()]

    def standing_cells(self) -> list[list[str]]:
        """Return the standings as rows of text: a header, then one row per model, best first."""
        uses = list(dict.fromkeys(table.use for table in self.ranked()))
        shown = uses if len(uses) > 1 else []
        counts = ["tables", "significantly best", "not worse than best"]
        table = [["model", "mean rank", *shown, *counts, "seconds", "parameters"]]
        for s in self.standings():
            means = [f"{mean:.2f}" for mean in (s.mean_rank, *(s.mean_ranks[use] for use in shown))]
            costs = [f"{s.fit_seconds:,.1f}" if s.fit_seconds is not None else "-"]
            costs += [f"{s.parameters:,.0f}" if s.parameters is not None else "-"]
            table.append([s.model, *means, str(s.measured), str(s.surely_best), str(s.not_worse), *costs])
        return table

    def nll_cells(self) -> list[list[str]]:
        """Return the NLL of every model as rows of text: a header, then one row per table."""
        labels = [standing.model for standing in self.standings()] or list(self.models)
        floors = any(table.floor is not None for table in self.tables)
        table = [["NLL", "use", "sets", *(["floor"] if floors else []), *labels]]
        for result in self.tables:
            floor = ["-" if result.floor is None else f"{result.floor:.4f}"] if floors else []
            values = [nll_cell(result, label) for label in labels]
            table.append([result.name, result.use, f"{result.comparison.n_sets:,}", *floor, *values])
        return table

    def plot(self, use: Use | None = None, path: str | Path | None = None, ax: Axes | None = None) -> Axes | Figure:
        """Plot the mean ranks, with bars that connect models whose mean ranks do not differ significantly.

        Parameters
        ----------
        use
            Restrict the plot to tables with this use. Default None: all tables.
        path
            File to which the figure is also written (.png, .pdf or .svg). Default None: no file is written.
        ax
            Axes to draw on. If None (default), a new figure is created.

        Returns
        -------
        matplotlib.axes.Axes or matplotlib.figure.Figure
            The given axes, or the new figure. :meth:`to_frame` returns the plotted numbers.

        Raises
        ------
        InputError
            If there are fewer than two models, or no tables.
        """
        from pcmcnet.plots.leaderboard import plot_leaderboard

        return plot_leaderboard(self, use, path, ax)

    def save(self, folder: str | Path) -> list[Path]:
        """Write leaderboard.json, leaderboard.md and, if at least two models are ranked, leaderboard.png.

        Parameters
        ----------
        folder
            Output folder, which is created if necessary.

        Returns
        -------
        list of Path
            Paths of the written files.
        """
        path = require_folder(folder)
        files = [path / f"leaderboard.{kind}" for kind in ("json", "md", "png")]
        with sole_writer(path):
            content = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
            write_bytes(files[0], f"{content}\n".encode())
            write_bytes(files[1], f"# Leaderboard\n\n{self.to_markdown(details=True)}\n".encode())
            if len(self.models) > 1 and self.ranked():
                self.plot(path=files[2])
                return files
            files[2].unlink(missing_ok=True)  # of an earlier run
        return files[:2]


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None, or None if there are no such values."""
    numbers = [value for value in values if value is not None]
    return float(np.median(numbers)) if numbers else None
