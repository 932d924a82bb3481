"""An explanation -> the sections of its report: what is in the table, what the model is, and how good it is.

The sections on what the model does are in ``answers``. A part that was left out has no section; the report says why at
its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from pcmcnet.evaluation.in_sample import Seen
from pcmcnet.evaluation.report import FOOTNOTE, MARK, Report
from pcmcnet.insight.calibration import Calibration
from pcmcnet.insight.explanation import Explanation, ModelSummary
from pcmcnet.insight.fit_quality import FOLDS, FitQuality
from pcmcnet.insight.table_summary import ColumnSummary, TableSummary
from pcmcnet.plots.explanation.answers import (
    axioms_section,
    context_section,
    elasticities_section,
    examples_section,
    importance_section,
)
from pcmcnet.plots.explanation.figures import (
    LOSSES,
    calibration_figures,
    learning_figure,
    sizes_figure,
)
from pcmcnet.reports.sections import Block, Dot, Facts, Intervals, Section, Table, Text, Tiles, note, warning
from pcmcnet.reports.tables import number

_ROWS = 80  # of a model's own table that are shown


def sections_of(found: Explanation) -> list[Section]:
    """Return the sections of a report, in its order."""
    makers: dict[str, Any] = {
        "table": table_section,
        "model": model_section,
        "fit": fit_section,
        "calibration": calibration_section,
        "importance": lambda part: importance_section(part, in_sample=found.fit is not None and found.fit.in_sample),
        "elasticities": elasticities_section,
        "context": context_section,
        "axioms": axioms_section,
        "examples": examples_section,
    }
    there = [make(getattr(found, name)) for name, make in makers.items() if getattr(found, name) is not None]
    return [glance_section(found), *there, made_section(found)]


def glance_section(found: Explanation) -> Section:
    """Put the numbers to see first in tiles, and what must not be missed below them."""
    tiles: list[tuple[str, str, str]] = []
    blocks: list[Block] = []
    if found.table is not None:
        tiles.append(("choice sets", f"{found.table.choice_sets:,}", f"{found.table.alternatives:,} alternatives"))
    if found.model is not None:
        tiles.append(("model", found.model.kind, f"{found.model.parameters:,} parameters"))
    if found.fit is not None:
        tiles += _fit_tiles(found.fit)
        blocks.append(_seen_words(found.fit))
    if found.calibration is not None:
        error = found.calibration.alternatives.error
        tiles.append(("calibration error", f"{error:.4f}", "0 is perfect"))
    if found.importance is not None:
        first = found.importance.rows[0]
        tiles.append(
            ("most important", first.name, f"{first.value:+.3f} {LOSSES[found.importance.loss]} when shuffled")
        )
    if found.context is not None:
        size = "none" if found.context.none else f"{found.context.strongest:.2f}"
        tiles.append(("strongest context effect", size, "change of a log-ratio"))
    if found.axioms is not None:
        checked = [f for f in found.axioms.findings if f.verdict != "not checked"]
        tiles.append(("axioms obeyed", f"{len(found.axioms.obeyed)} of {len(checked)}", "on sampled sets"))
    caveats = [] if found.model is None else [warning(f"Caveat: {caveat}.") for caveat in found.model.caveats]
    return Section(name="glance", title="At a glance", blocks=(Tiles(tuple(tiles)), *blocks, *caveats))


def _fit_tiles(fit: FitQuality) -> list[tuple[str, str, str]]:
    report, where = fit.report, f" ({_MEASURED[fit.seen]})" if fit.in_sample else ""
    found = []
    if report.nll is not None:
        found.append((f"NLL{where}", number(report.nll), f"uniform: {report.uniform['nll']:.4f}"))
    uniform = {n: report.uniform[f"top_{n}"] for n in report.shown_top}
    return found + [(f"top {n}{where}", f"{report.top[n]:.1%}", f"uniform: {u:.1%}") for n, u in uniform.items()]


def _seen_words(fit: FitQuality) -> Block:
    if fit.warning is not None:
        return warning(fit.warning)
    return note(
        "This is not the table that the model was trained on: the fingerprints differ. The figures of the model are "
        "out of sample as far as the two share no choice sets."
    )


def table_section(part: TableSummary) -> Section:
    """Sizes, columns and choices."""
    smallest, largest = int(part.sizes[0]), int(part.sizes[-1])
    text = (
        f"{part.choice_sets:,} choice sets of {smallest} to {largest} alternatives, {part.alternatives:,} in all"
        f"{'' if part.unweighted else '; sets have weights'}."
    )
    blocks: list[Block] = [Text(text)]
    if not part.has_choices:
        blocks.append(note("The table has no choices."))
    if part.unlabelled is not None:
        text = (
            f"Alternatives have no labels here. They are called by their numbers among those on offer in their choice "
            f"set, in the order of the table, and by a feature: the first of all is {part.unlabelled}."
        )
        blocks.append(note(text))
    if len(part.sizes) > 1:
        blocks.append(sizes_figure(part))
    numeric = [column for column in part.columns if column.kind == "numeric"]
    named = [column for column in part.columns if column.kind == "categorical"]
    if numeric:
        blocks += [Table(cells=[_NUMERIC, *map(_numeric_row, numeric)])]
    if named:
        blocks += [Table(cells=[["categorical column", "of", "distinct", "most frequent"], *map(_named_row, named)])]
    others = [column for column in part.columns if column.kind not in ("numeric", "categorical")]
    if others:
        heads = ["other column", "of", "kind", "distinct", "missing", "what"]
        blocks += [Table(cells=[heads, *map(_other_row, others)])]
    if part.labels:
        rows = [[label.label, f"{label.offered:.1%}", f"{label.chosen:.1%}"] for label in part.labels]
        blocks.append(Table(cells=[["alternative", "on offer", "chosen"], *rows]))
    return Section(name="table", title="The table", blocks=tuple(blocks))


_NUMERIC = ["numeric column", "of", "least", "median", "largest", "mean offered", "mean chosen", "missing"]
_OF = {"feature": "alternative", "individual": "individual", "label": "alternative"}


def _numeric_row(column: ColumnSummary) -> list[str]:
    values = (column.low, column.median, column.high, column.offered, column.chosen)
    return [column.name, _OF[column.role], *map(number, values), f"{column.missing:,}"]


def _named_row(column: ColumnSummary) -> list[str]:
    most = ", ".join(f"{name} {share:.0%}" for name, share in column.categories)
    return [column.name, _OF[column.role], number(column.distinct), most]


def _other_row(column: ColumnSummary) -> list[str]:
    counts = [number(column.distinct), f"{column.missing:,}"]
    return [column.name, _OF[column.role], column.kind, *counts, column.detail or "-"]


def model_section(part: ModelSummary) -> Section:
    """Options, training and what the model says of itself."""
    training = {_TRAINING.get(name, name): _spoken(value) for name, value in part.training.items()}
    facts = {"class": part.kind, "parameters": f"{part.parameters:,}", **training}
    options = {name: _spoken(value) for name, value in part.options.items()}
    blocks: list[Block] = [Facts(facts)]
    if options:
        blocks.append(Table(cells=[["option", "value"], *([k, v] for k, v in options.items())], folded="Options"))
    rows = [list(row) for row in part.summary.rows]
    if rows:
        title = f"The model's own table ({len(rows):,} rows{f', the first {_ROWS}' if len(rows) > _ROWS else ''})"
        blocks.append(Table(cells=[list(part.summary.header), *rows[:_ROWS]], folded=title))
    if part.histories:
        blocks.append(learning_figure(part.histories))
    blocks += [warning(f"Caveat: {caveat}.") for caveat in part.caveats]
    return Section(name="model", title="The model", blocks=tuple(blocks))


_TRAINING = {
    "fingerprint": "training table (SHA-256)",
    "drawn_from": "drawn from table (SHA-256)",
    "choice_sets": "trained on choice sets",
    "alternatives": "with alternatives",
}


def _spoken(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_spoken(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(_spoken, value)) or "-"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) and value < 10**7 else str(value)
    return value if isinstance(value, str) else json.dumps(value)


def fit_section(part: FitQuality) -> Section:
    """The model beside baselines, and what is what."""
    report = part.report
    own = f"this model, {_MEASURED[part.seen] if part.in_sample else 'as it is'}"
    heads = ["", "NLL", *(f"TOP {n}" for n in report.shown_top), "measured"]
    shown = {n: report.top[n] for n in report.shown_top}
    rows = [[own, *_values(report.nll, shown, report.intervals, report.gives), _measured(part)]]
    compared = part.baselines
    for row in compared.rows if compared is not None else ():
        if row.error is not None:
            rows.append([row.label, f"failed: {row.error}"])
            continue
        top = {n: row.values[f"top_{n}"] for n in report.shown_top}
        values = _values(row.values.get("nll"), top, row.intervals, row.gives)
        rows.append([row.label, *values, f"out of sample, {FOLDS} folds"])
    blocks: list[Block] = [_seen_words(part), Table(cells=[heads, *rows], strong=frozenset({0}))]
    drawn = _drawn(part)
    if len(drawn.dots) > 1:
        blocks.append(drawn)
    if compared is not None:
        blocks.append(note(_what_is_what(part, report)))
    if report.n_impossible:
        blocks.append(warning(f"{report.n_impossible:,} of the choices got probability 0."))
    if report.gives == "ranking":
        blocks.append(note("A ranking gives no probabilities, and so has no NLL."))
    if MARK in rows[0][1]:
        blocks.append(note(FOOTNOTE))
    blocks.append(
        note(f"In brackets: {report.level:.0%} intervals by the bootstrap over choice sets. NLL: lower is better.")
    )
    return Section(name="fit", title="How well it predicts these choices", blocks=tuple(blocks))


def _drawn(part: FitQuality) -> Intervals:
    """The NLL of all, or the accuracy where the model has none; what is infinite cannot be drawn."""
    metric = "top_1" if part.report.nll is None else "nll"
    rows = [("this model", part.report.values[metric], part.report.intervals)]
    rows += [(r.label, r.values.get(metric), r.intervals) for r in (part.baselines.rows if part.baselines else ())]
    name, seen = metric.upper().replace("_", " "), part.seen != "none known"
    return Intervals(
        metric=name,
        caption=f"{name} with intervals{'; hollow: in-sample' if seen else ''}.",
        labels=tuple(label for label, _, _ in rows),
        dots=tuple(
            Dot(k, value, *ends.get(metric, (value, value)), marked=k == 0 and seen)
            for k, (_, value, ends) in enumerate(rows)
            if value is not None and isfinite(value)
        ),
        best=0,
    )


def _measured(part: FitQuality) -> str:
    return _MEASURED[part.seen]


_MEASURED: dict[Seen, str] = {
    "all": "in-sample",
    "most": "mostly in-sample",
    "some": "perhaps in part in-sample",
    "none known": "on the whole table",
}


def _what_is_what(part: FitQuality, report: Report) -> str:
    compared = part.baselines
    assert compared is not None
    drawn = f" on {compared.n_sets:,} sets drawn from it" if compared.n_sets < report.n_sets else ""
    text = (
        f"The baselines are cross-validated on this table{drawn}: fitted to four fifths of it and tested on the rest, "
        f"in turn, so that their figures are out of sample."
    )
    if part.in_sample:
        text += (
            " Those of the model are not, and the two do not compare fairly: cross-validate a model of its kind, or "
            "ask about a table that it has not seen."
        )
    return text


def _values(nll: float | None, top: Mapping[int, float], intervals: Mapping[str, Any], gives: str) -> list[str]:
    mark = MARK if gives == "scores" else ""
    cells = ["-" if nll is None else f"{nll:.4f}{mark}{_interval(intervals.get('nll'))}"]
    return cells + [f"{value:.3f}{_interval(intervals.get(f'top_{n}'), 3)}" for n, value in top.items()]


def _interval(ends: tuple[float, float] | None, digits: int = 4) -> str:
    return "" if ends is None else f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"


def calibration_section(part: Calibration) -> Section:
    """Whether probabilities can be taken at their word."""
    first = part.first
    gap = float(first.share @ (first.predicted - first.observed))
    leaning = "surer than it should be" if gap > 0 else "less sure than it could be"
    text = (
        f"Expected calibration error: {part.alternatives.error:.4f} over all alternatives, {first.error:.4f} for the "
        f"most probable of each set. The most probable alternative is predicted with "
        f"{first.share @ first.predicted:.1%} on average and chosen in {first.share @ first.observed:.1%}: if "
        f"anything, the model is {leaning}."
    )
    return Section(
        name="calibration",
        title="Can its probabilities be taken at their word?",
        blocks=(Text(text), *calibration_figures(part), note(f"{part.n_sets:,} sets of two alternatives or more.")),
    )


def made_section(found: Explanation) -> Section:
    """How the report came about, and what is not in it."""
    facts = {name: _spoken(value) for name, value in found.facts.items()}
    left = {f"no section on {name}": why for name, why in found.left_out.items()}
    return Section(name="made", title="How this report was made", blocks=(Facts({**facts, **left}),))
