"""An explanation -> the sections of its report: findings, the table and the model.

The sections on how good a model is are in ``quality``, on how it responds in ``responses``, and on what else it does in
``answers``. A part that was left out has no section; the report says why at
its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pcmcnet.data.column_names import PLAIN, ColumnNames
from pcmcnet.insight.explanation import Explanation, ModelSummary
from pcmcnet.insight.findings import Finding
from pcmcnet.insight.table_summary import ColumnSummary, TableSummary
from pcmcnet.plots.explanation.answers import axioms_section, context_section, examples_section, importance_section
from pcmcnet.plots.explanation.page_figures import (
    LOSSES,
    learning_figure,
    sizes_figure,
)
from pcmcnet.plots.explanation.quality import calibration_section, fit_section, fit_tiles, seen_words
from pcmcnet.plots.explanation.responses import categories_section, elasticities_section, trade_offs_section
from pcmcnet.reports.sections import (
    Block,
    Facts,
    Point,
    Points,
    Section,
    Table,
    Text,
    Tiles,
    note,
    warning,
)
from pcmcnet.reports.tables import number

_REMOVE = ("context", "examples")  # parts that take alternatives away; the axioms say so themselves
_ROWS = 80  # of a model's own table that are shown


def sections_of(found: Explanation) -> list[Section]:
    """Return the sections of a report, in its order: findings, what the model does, how good it is, what it is."""
    names, in_sample = found.names, found.fit is not None and found.fit.in_sample
    makers: dict[str, Any] = {
        "importance": lambda part: importance_section(part, names, in_sample=in_sample),
        "elasticities": lambda part: elasticities_section(part, names),
        "categories": lambda part: categories_section(part, names),
        "trade_offs": lambda part: trade_offs_section(part, names),
        "context": lambda part: context_section(part, names),
        "examples": lambda part: examples_section(part, names),
        "fit": fit_section,
        "calibration": calibration_section,
        "axioms": axioms_section,
        "table": lambda part: table_section(part, names),
        "model": model_section,
    }
    there = [make(getattr(found, name)) for name, make in makers.items() if getattr(found, name) is not None]
    if found.removals is not None:
        there = [_warned(section, found.removals) if section.name in _REMOVE else section for section in there]
    said = found.findings
    points = [findings_section(said)] if said else []
    return [*points, glance_section(found), *there, made_section(found)]


def _warned(section: Section, text: str) -> Section:
    return replace(section, blocks=(warning(text), *section.blocks))


def findings_section(said: tuple[Finding, ...]) -> Section:
    """Say what was found, each sentence with its figures."""
    points = Points(tuple(Point(finding.text, finding.figures, finding.part) for finding in said))
    return Section(name="findings", title="Findings", blocks=(points,))


def glance_section(found: Explanation) -> Section:
    """Put the numbers to see first in tiles, and what must not be missed below them."""
    tiles: list[tuple[str, str, str]] = []
    blocks: list[Block] = []
    if found.table is not None:
        tiles.append(("choice sets", f"{found.table.choice_sets:,}", f"{found.table.alternatives:,} alternatives"))
    if found.model is not None:
        tiles.append(("model", found.model.kind, f"{found.model.parameters:,} parameters"))
    if found.fit is not None:
        tiles += fit_tiles(found.fit)
        blocks.append(seen_words(found.fit))
    if found.calibration is not None:
        error = found.calibration.error
        tiles.append(("calibration error", f"{100 * error:.1f} points", "of favourites; 0 is perfect"))
    if found.importance is not None:
        first = found.importance.rows[0]
        tiles.append(
            (
                "most important",
                found.names[first.name],
                f"{first.value:+.3f} {LOSSES[found.importance.loss]} when shuffled",
            )
        )
    if found.context is not None:
        size = "none" if found.context.none else f"{found.context.strongest:.2f}"
        tiles.append(("strongest context effect", size, "change of a log-ratio"))
    if found.axioms is not None:
        checked = [f for f in found.axioms.findings if f.verdict != "not checked"]
        tiles.append(("axioms obeyed", f"{len(found.axioms.obeyed)} of {len(checked)}", "on sampled sets"))
    caveats = [] if found.model is None else [warning(f"Caveat: {caveat}.") for caveat in found.model.caveats]
    return Section(name="glance", title="At a glance", blocks=(Tiles(tuple(tiles)), *blocks, *caveats))


def table_section(part: TableSummary, names: ColumnNames = PLAIN) -> Section:
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
            f"set, in the order of the table, and by what tells them apart there: the first of all is "
            f"{part.unlabelled}."
        )
        blocks.append(note(text))
    if len(part.sizes) > 1:
        blocks.append(sizes_figure(part))
    numeric = [column for column in part.columns if column.kind == "numeric"]
    named = [column for column in part.columns if column.kind == "categorical"]
    if numeric:
        blocks += [Table(cells=[_NUMERIC, *(_numeric_row(column, names) for column in numeric)])]
    if named:
        heads = ["categorical column", "of", "distinct", "most frequent"]
        blocks += [Table(cells=[heads, *(_named_row(column, names) for column in named)])]
    others = [column for column in part.columns if column.kind not in ("numeric", "categorical")]
    if others:
        heads = ["other column", "of", "kind", "distinct", "missing", "what"]
        blocks += [Table(cells=[heads, *(_other_row(column, names) for column in others)])]
    if part.labels:
        rows = [[label.label, f"{label.offered:.1%}", f"{label.chosen:.1%}"] for label in part.labels]
        blocks.append(Table(cells=[["alternative", "on offer", "chosen"], *rows]))
    return Section(name="table", title="The table", blocks=tuple(blocks))


_NUMERIC = ["numeric column", "of", "least", "median", "largest", "mean offered", "mean chosen", "missing"]
_OF = {"feature": "alternative", "individual": "individual", "label": "alternative"}


def _numeric_row(column: ColumnSummary, names: ColumnNames) -> list[str]:
    values = (column.low, column.median, column.high, column.offered, column.chosen)
    return [names.label(column.name), _OF[column.role], *map(number, values), f"{column.missing:,}"]


def _named_row(column: ColumnSummary, names: ColumnNames) -> list[str]:
    most = ", ".join(f"{name} {share:.0%}" for name, share in column.categories)
    return [names[column.name], _OF[column.role], number(column.distinct), most]


def _other_row(column: ColumnSummary, names: ColumnNames) -> list[str]:
    counts = [number(column.distinct), f"{column.missing:,}"]
    return [names.label(column.name), _OF[column.role], column.kind, *counts, column.detail or "-"]


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


def made_section(found: Explanation) -> Section:
    """How the report came about, and what is not in it."""
    facts = {name: _spoken(value) for name, value in found.facts.items()}
    left = {f"no section on {name}": why for name, why in found.left_out.items()}
    return Section(name="made", title="How this report was made", blocks=(Facts({**facts, **left}),))
