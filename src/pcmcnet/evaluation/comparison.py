"""The result of a comparison: one row per model, with intervals, costs and the paired difference to the best.

Every value is the mean over all tested choice sets, weighted by the table's weights; what differs between folds is
kept beside it. The best model is the one of least NLL among those that give probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pcmcnet.errors import printable
from pcmcnet.evaluation.report import FOOTNOTE, LEVEL, MARK, discriminating_metrics, notes_on_omitted_metrics
from pcmcnet.models.interface.choice_model import Gives
from pcmcnet.reports.formats import NotebookMixin, ToDictMixin, data_frame
from pcmcnet.reports.sections import Block, Table, note
from pcmcnet.reports.tables import escaped, markdown_table, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIFFERENCE = "difference"  # of the NLL to that of the best model, beside the names of metrics


@dataclass(frozen=True, kw_only=True)
class FoldResult(ToDictMixin):
    """What a model did on one fold; ``error`` says why it did nothing."""

    n_sets: int
    values: Mapping[str, float] = field(default_factory=dict)
    fit_seconds: float | None = None
    predict_seconds: float | None = None
    parameters: int | None = None
    where: str = ""
    caveats: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(ToDictMixin):
    """One model of a comparison. A ranking has accuracies alone, a failed model no values."""

    label: str
    model: str  # its name in the registry
    options: Mapping[str, Any]
    gives: Gives = "probabilities"
    values: Mapping[str, float] = field(default_factory=dict)  # metric -> mean over all tested sets
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of these, and of "difference"
    difference: float | None = None  # NLL minus that of the best model on the same sets
    p_value: float | None = None  # two-sided, of no difference
    fit_seconds: float | None = None  # mean over folds, as the two below
    predict_seconds: float | None = None
    parameters: int | None = None
    n_impossible: int = 0  # choices that the model held to have probability 0
    folds: tuple[FoldResult, ...] = ()
    error: str | None = None  # why the model failed

    def spread(self, metric: str) -> float | None:
        """Return the standard deviation of a metric's means over folds; None for fewer than two."""
        means = [fold.values[metric] for fold in self.folds if metric in fold.values]
        return float(np.std(means, ddof=1)) if len(means) > 1 and np.isfinite(means).all() else None

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON knows them; an infinite number is None."""
        return {**super().to_dict(), "spread": {name: self.spread(name) for name in self.values}}


@dataclass(frozen=True, kw_only=True)
class Comparison(ToDictMixin, NotebookMixin):
    """Models measured on the same choice sets. Made by :func:`compare`; prints as a table.

    Attributes
    ----------
    rows
        One per model, in the order given.
    n_sets
        Number of tested choice sets.
    best
        Label of the model with the least NLL among those that give probabilities; None if there is none.
    top
        For which n the accuracy within the first n was measured.
    uniform
        For each metric, the value of the model that tells no alternatives apart.
    design
        How it was measured: folds, seed, table, machine, versions; see :meth:`to_dict`.
    level
        The level of the intervals.
    """

    rows: tuple[ComparisonRow, ...]
    n_sets: int
    best: str | None
    top: tuple[int, ...]
    uniform: Mapping[str, float]
    design: Mapping[str, Any]
    level: float = LEVEL
    _derived = ("verdict",)

    def _short(self) -> str:
        return f"{len(self.rows)} models, {self.n_sets:,} choice sets; {self.verdict}"

    def _blocks(self) -> list[Block]:
        best = frozenset(k for k, row in enumerate(self.rows) if row.label == self.best)
        return [Table(cells=self.cells(), strong=best), *map(note, (self.how, *self.notes))]

    def __getitem__(self, label: str) -> ComparisonRow:
        """Return the row of a label."""
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(label)

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics that were measured, in their order."""
        return ("nll", *(f"top_{n}" for n in self.top))

    @property
    def shown(self) -> tuple[str, ...]:
        """Those of them that can tell models apart: the columns of the table, and what is drawn."""
        return tuple(discriminating_metrics(self.columns, self.uniform))

    @property
    def how(self) -> str:
        """One sentence on how it was measured."""
        design, noun = self.design, "choice set" if self.n_sets == 1 else "choice sets"
        if design["split"] is None:
            way = f"{design['folds']}-fold cross-validation: each of {self.n_sets:,} {noun} is tested once"
        else:
            fit, test = design["split"]
            way = f"one split, {fit:.0%} to fit and {test:.0%} to test: {self.n_sets:,} {noun} tested"
        groups = "" if design["by"] is None else f"; groups by {design['by']} stay whole, and are what is resampled"
        if design["valid"]:
            groups += f"; {design['valid']:.0%} of each training part is held out for early stopping"
        return f"{way}{groups}; seed {design['seed']}."

    @property
    def notes(self) -> list[str]:
        """What the reader of the table has to know beside it."""
        there = [row for row in self.rows if row.error is None]
        notes = [FOOTNOTE] if any(row.gives == "scores" for row in there) else []
        if any(row.gives == "ranking" for row in there):
            notes.append("A ranking gives no probabilities, and so has no NLL.")
        notes += notes_on_omitted_metrics(self.top, self.uniform)
        notes += [
            f"{row.label}: {row.n_impossible:,} of the choices got probability 0." for row in there if row.n_impossible
        ]
        for row in there:
            for caveat in dict.fromkeys(c for fold in row.folds for c in fold.caveats):
                n = sum(caveat in fold.caveats for fold in row.folds)
                notes.append(f"{row.label}: {caveat} ({n} of {len(row.folds)} fits).")
        places = dict.fromkeys(fold.where for row in there for fold in row.folds if fold.where)
        if len(places) > 1:
            notes.append(f"Measured in different places, so that seconds do not compare: {' | '.join(places)}.")
        return notes

    @property
    def verdict(self) -> str:
        """One sentence on which model is best, by how much, and how sure that is."""
        if self.best is None:
            return "No model is best: none gives a probability to every choice."
        others = [row for row in self.rows if row.difference is not None and row.label != self.best]
        if not others:
            return f"{self.best} is the only model with an NLL: {self[self.best].values['nll']:.4f}."
        fair = [row for row in others if row.gives == "probabilities"] or others
        following = min(fair, key=lambda row: row.difference or 0.0)
        by = f"{following.difference:.2g} NLL below {following.label}"
        if following.p_value is None:
            return f"{self.best} has the least NLL: {by}."
        p = f"p = {following.p_value:.3f}".replace("0.", ".")
        if following.p_value > 1 - self.level:
            return f"{self.best} has the least NLL, {by}, which may be chance: {p}."
        return f"{self.best} is best: {by}, {p}."

    def plot(self, metric: str = "nll", ax: Axes | None = None) -> Axes:
        """Draw a metric of every model, one of ``columns``, with its interval; :meth:`to_frame` has the numbers."""
        from pcmcnet.plots.comparison import plot_comparison

        return plot_comparison(self, ax, metric=metric)

    def to_arrow(self) -> pa.Table:
        """Return one row per model as an Arrow table: values, interval ends, costs; null where there is none."""
        columns: dict[str, Any] = {"model": [row.label for row in self.rows]}
        for name in (*self.columns, "brier", DIFFERENCE):
            values = [row.difference if name == DIFFERENCE else row.values.get(name) for row in self.rows]
            ends = [row.intervals.get(name, (None, None)) for row in self.rows]
            columns[name] = pa.array(values, pa.float64())
            columns[f"{name}_low"] = pa.array([low for low, _ in ends], pa.float64())
            columns[f"{name}_high"] = pa.array([high for _, high in ends], pa.float64())
        for name in ("p_value", "fit_seconds", "predict_seconds"):
            columns[name] = pa.array([getattr(row, name) for row in self.rows], pa.float64())
        columns["parameters"] = pa.array([row.parameters for row in self.rows], pa.int64())
        columns["gives"] = [row.gives for row in self.rows]
        columns["error"] = pa.array([row.error for row in self.rows], pa.string())
        return pa.table(columns)

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by model."""
        return data_frame(self.to_arrow(), index="model", instead="to_arrow()")

    def to_markdown(self) -> str:
        """Return the comparison as a Markdown table with its notes."""
        notes = (f"\n{escaped(note)}" for note in self.notes)
        return printable("\n".join([markdown_table(self.cells()), "", escaped(self.verdict), "", self.how, *notes]))

    def __str__(self) -> str:
        notes = ["", *self.notes] if self.notes else []
        return printable("\n".join([self.how, "", text_table(self.cells()), "", self.verdict, *notes]))

    def cells(self) -> list[list[str]]:
        """The table as text: a row of heads, then one row per model; that of a failed model is shorter."""
        heads = [name.upper().replace("_", " ") for name in self.shown]
        table = [["model", *heads, "fit s", "parameters", "NLL - best", "p"]]
        for row in self.rows:
            if row.error is not None:
                table.append([row.label, f"failed: {row.error}"])
                continue
            mark = MARK if row.gives == "scores" else ""
            values = [_spanned(row, name, mark if name == "nll" else "") for name in self.shown]
            cost = [f"{row.fit_seconds or 0:.1f}", f"{row.parameters or 0:,}"]
            gap = "best" if row.label == self.best else _spanned(row, DIFFERENCE, mark)
            table.append([row.label, *values, *cost, gap, "-" if row.p_value is None else f"{row.p_value:.3f}"])
        return table


def _spanned(row: ComparisonRow, name: str, mark: str) -> str:
    """A value with its interval behind it: 1.2345 [1.2001, 1.2689]."""
    value = row.difference if name == DIFFERENCE else row.values.get(name)
    if value is None:
        return "-"
    form = "+.4f" if name == DIFFERENCE else ".4f" if name == "nll" else ".3f"
    low, high = row.intervals.get(name, (None, None))
    if low is None or high is None:
        return f"{value:{form}}{mark}"
    return f"{value:{form}}{mark} [{low:{form}}, {high:{form}}]"
