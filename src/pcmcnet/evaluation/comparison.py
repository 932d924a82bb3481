"""The result of a comparison: one row per model, with intervals, costs and the paired difference from the best model.

Every metric is the weighted mean over all held-out choice sets. The results of each fold are also stored. The best
model is the one with the lowest NLL among those that give probabilities.
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
from pcmcnet.reports.formats import NotebookMixin, ToDictMixin
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.sections import Block, Table, note
from pcmcnet.reports.tables import escaped, markdown_table, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GIVEN_TEST_PART = "given"  # design["split"] if the caller gave the test part
DIFFERENCE = "difference"  # difference of the NLL from that of the best model; a key like the names of metrics


@dataclass(frozen=True, kw_only=True)
class FoldResult(ToDictMixin):
    """Results of a model on one fold; if the model failed, ``error`` is the message."""

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
    """Results of one model in a comparison.

    A model that only ranks alternatives has accuracies but no NLL, and a failed model has no metrics.
    """

    label: str
    model: str  # registry name
    options: Mapping[str, Any]
    gives: Gives = "probabilities"
    values: Mapping[str, float] = field(default_factory=dict)  # metric -> mean over all held-out sets
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of the values, and of "difference"
    difference: float | None = None  # NLL minus that of the best model on the same sets
    p_value: float | None = None  # two-sided, for a difference of 0
    fit_seconds: float | None = None  # mean over folds
    predict_seconds: float | None = None  # mean over folds
    parameters: int | None = None  # mean over folds
    n_impossible: int = 0  # choices to which the model gave probability 0
    folds: tuple[FoldResult, ...] = ()
    error: str | None = None  # message, if the model failed

    def spread(self, metric: str) -> float | None:
        """Return the standard deviation of a metric across folds.

        Parameters
        ----------
        metric
            Name of the metric, such as "nll".

        Returns
        -------
        float or None
            Standard deviation, or None if there are fewer than two folds or a value is infinite.
        """
        means = [fold.values[metric] for fold in self.folds if metric in fold.values]
        return float(np.std(means, ddof=1)) if len(means) > 1 and np.isfinite(means).all() else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values, with None for infinite numbers."""
        return {**super().to_dict(), "spread": {name: self.spread(name) for name in self.values}}


@dataclass(frozen=True, kw_only=True)
class Comparison(ToDictMixin, NotebookMixin):
    """Comparison of models on the same choice sets, returned by :func:`compare` and printed as a table.

    Attributes
    ----------
    rows
        One row per model, in the order in which the models were given.
    n_sets
        Number of held-out choice sets.
    best
        Label of the model with the lowest NLL among those that give probabilities; None if no model has a finite NLL.
    top
        Values of n for which the top-n accuracy was computed.
    uniform
        Value of each metric for uniform random guessing.
    design
        Settings of the comparison: folds, seed, table, machine and versions.
    level
        Confidence level of the intervals.
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
        """Return the row with this label. Raise KeyError if there is no such row."""
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(label)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the computed metrics, in the order of the table's columns."""
        return ("nll", *(f"top_{n}" for n in self.top))

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the metrics to print and plot: those that can differ between models."""
        return tuple(discriminating_metrics(self.columns, self.uniform))

    @property
    def how(self) -> str:
        """One sentence that describes the protocol: folds or split, groups, early stopping, seed."""
        design, noun = self.design, "choice set" if self.n_sets == 1 else "choice sets"
        if design["split"] is None:
            protocol = f"{design['folds']}-fold cross-validation: each of {self.n_sets:,} {noun} is tested once"
        elif design["split"] == GIVEN_TEST_PART:
            protocol = f"one fit, tested on the {self.n_sets:,} {noun} of the given test part"
        else:
            fit, test = design["split"]
            protocol = f"one split, {fit:.0%} for training and {test:.0%} for testing: {self.n_sets:,} {noun} tested"
        if design["by"] is not None:
            protocol += f"; sets are grouped by {design['by']} for splitting and resampling"
        if design["valid"]:
            protocol += f"; {design['valid']:.0%} of each training part is held out for early stopping"
        return f"{protocol}; seed {design['seed']}."

    @property
    def notes(self) -> list[str]:
        """Notes printed below the comparison table."""
        rows = [row for row in self.rows if row.error is None]
        notes = [FOOTNOTE] if any(row.gives == "scores" for row in rows) else []
        if any(row.gives == "ranking" for row in rows):
            notes.append("A ranking gives no probabilities and therefore has no NLL.")
        notes += notes_on_omitted_metrics(self.top, self.uniform)
        notes += [
            f"{row.label} gives probability 0 to {row.n_impossible:,} of the observed choices."
            for row in rows
            if row.n_impossible
        ]
        for row in rows:
            for caveat in dict.fromkeys(c for fold in row.folds for c in fold.caveats):
                n = sum(caveat in fold.caveats for fold in row.folds)
                notes.append(f"{row.label}: {caveat} ({n} of {len(row.folds)} fits).")
        machines = dict.fromkeys(fold.where for row in rows for fold in row.folds if fold.where)
        if len(machines) > 1:
            notes.append(f"Times are not comparable, because the machines or devices differ: {' | '.join(machines)}.")
        return notes

    @property
    def verdict(self) -> str:
        """Sentence that names the best model, its lead over the second best, and whether the lead is significant."""
        if self.best is None:
            return "No model is best: no model gives every observed choice a positive probability."
        rivals = [row for row in self.rows if row.difference is not None and row.label != self.best]
        if not rivals:
            return f"{self.best} is the only model with an NLL: {self[self.best].values['nll']:.4f}."
        candidates = [row for row in rivals if row.gives == "probabilities"] or rivals
        second = min(candidates, key=lambda row: row.difference or 0.0)
        by = f"{second.difference:.2g} NLL below {second.label}"
        if second.p_value is None:
            return f"{self.best} has the lowest NLL, {by}."
        p = f"p = {second.p_value:.3f}".replace("0.", ".")
        if second.p_value > 1 - self.level:
            return f"{self.best} has the lowest NLL, {by}; the difference is not significant, {p}."
        return f"{self.best} is best: {by}, {p}."

    def plot(self, metric: str = "nll", ax: Axes | None = None) -> Axes:
        """Plot a metric of every model with its interval; :meth:`to_frame` returns the plotted values.

        Parameters
        ----------
        metric
            Name of a metric, one of ``columns``. Default "nll".
        ax
            Axes to draw on. If None (default), a new figure is created.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        from pcmcnet.plots.comparison import plot_comparison

        return plot_comparison(self, ax, metric=metric)

    def to_arrow(self) -> pa.Table:
        """Return metrics, interval ends and costs as an Arrow table with one row per model; missing values are null."""
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
        """Return the table of :meth:`to_arrow` as a pandas data frame, indexed by model."""
        return data_frame(self.to_arrow(), index="model", instead="to_arrow()")

    def to_markdown(self) -> str:
        """Return the comparison as a Markdown table with its notes."""
        notes = (f"\n{escaped(note)}" for note in self.notes)
        return printable("\n".join([markdown_table(self.cells()), "", escaped(self.verdict), "", self.how, *notes]))

    def __str__(self) -> str:
        notes = ["", *self.notes] if self.notes else []
        return printable("\n".join([self.how, "", text_table(self.cells()), "", self.verdict, *notes]))

    def cells(self) -> list[list[str]]:
        """Return the table as rows of text: a header, then one row per model; a failed model has a shorter row."""
        heads = [name.upper().replace("_", " ") for name in self.shown]
        table = [["model", *heads, "fit s", "parameters", "NLL - best", "p"]]
        for row in self.rows:
            if row.error is not None:
                table.append([row.label, f"failed: {row.error}"])
                continue
            mark = MARK if row.gives == "scores" else ""
            values = [_with_interval(row, name, mark if name == "nll" else "") for name in self.shown]
            cost = [f"{row.fit_seconds or 0:.1f}", f"{row.parameters or 0:,}"]
            difference = "best" if row.label == self.best else _with_interval(row, DIFFERENCE, mark)
            table.append([row.label, *values, *cost, difference, "-" if row.p_value is None else f"{row.p_value:.3f}"])
        return table


def _with_interval(row: ComparisonRow, name: str, mark: str) -> str:
    """Format a metric with its interval, such as 1.2345 [1.2001, 1.2689]."""
    value = row.difference if name == DIFFERENCE else row.values.get(name)
    if value is None:
        return "-"
    form = "+.4f" if name == DIFFERENCE else ".4f" if name == "nll" else ".3f"
    low, high = row.intervals.get(name, (None, None))
    if low is None or high is None:
        return f"{value:{form}}{mark}"
    return f"{value:{form}}{mark} [{low:{form}}, {high:{form}}]"
