"""The sections of a report: one function for each part of an explanation, in the order of the report.

The first sections show what drives predictions (columns, responses, context, example choice sets), the next ones show
predictive quality (fit, calibration, axioms), and the last ones describe the table and the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pcmcnet.data.columns.names import DEFAULT_NAMES, ColumnNames
from pcmcnet.evaluation.predictions import TrainingOverlap
from pcmcnet.evaluation.report import FOOTNOTE, MARK, Report
from pcmcnet.insight.axioms import Audit
from pcmcnet.insight.calibration import FOLDS, Calibration, FitQuality
from pcmcnet.insight.context_effects import ContextSummary
from pcmcnet.insight.explanation import ModelSummary
from pcmcnet.insight.feature_effects import AllCategories, NumericEffects
from pcmcnet.insight.importance import Importance
from pcmcnet.insight.table_summary import ColumnSummary, ExampleSet, TableSummary
from pcmcnet.insight.willingness_to_pay import LEVEL, TradeOffs
from pcmcnet.plots.chain import chain_figure
from pcmcnet.plots.context import map_figure
from pcmcnet.plots.effects import (
    MAX_ALTERNATIVES_SHOWN,
    categories_chart,
    demand_chart,
    importance_chart,
    probabilities_chart,
    rival_changes_figure,
    shown_alternatives,
)
from pcmcnet.plots.page_figures import page_figure
from pcmcnet.plots.quality import calibration_chart, fit_intervals, learning_chart, sizes_chart
from pcmcnet.reports.sections import (
    Block,
    Facts,
    Heading,
    Section,
    Table,
    Text,
    format_cell,
    is_image_uri,
    note,
    warning,
)
from pcmcnet.reports.tables import Cells, number, percent

_KINDS = {
    "typical": "A typical choice",
    "surprising": "A surprising choice",
    "uncertain": "An uncertain choice",
    "large": "A large choice set",
}
_RESPONSES = {"elasticity": "elasticity", "semi": "semi-elasticity", "marginal": "marginal effect"}
SAMPLE_WORDS: dict[TrainingOverlap, str] = {
    "all": "in-sample",
    "most": "mostly in-sample",
    "some": "possibly partly in-sample",
    "none known": "on the whole table",
}
_HEADERS = (  # of the tables of numeric, categorical and other columns
    ["numeric column", "of", "min", "median", "max", "mean offered", "mean chosen", "missing"],
    ["categorical column", "of", "distinct", "most frequent"],
    ["other column", "of", "kind", "distinct", "missing", "details"],
)
_OF = {"feature": "alternative", "individual": "individual", "label": "alternative"}
_TRAINING = {
    "fingerprint": "training table (SHA-256)",
    "drawn_from": "source table (SHA-256)",
    "choice_sets": "training choice sets",
    "alternatives": "training alternatives",
}
_MAX_SUMMARY_ROWS = 80  # of the model's summary table


def importance_section(part: Importance, names: ColumnNames = DEFAULT_NAMES, *, in_sample: bool) -> Section:
    """Return the section on permutation importance."""
    how = (
        f"Each column is shuffled {part.repeats} times: a feature among the alternatives of its choice set, an "
        f"individual-level column among choice sets. The increase in the loss is what the column contributes, "
        f"given all other columns. A column that is correlated with others looks less important than it is."
    )
    blocks: list[Block] = [Text(how), page_figure(importance_chart(part, names, most=len(part.rows)))]
    if in_sample:
        blocks.append(note("Measured on the training table: columns to which the model has overfitted look important."))
    return Section(name="importance", title="What drives predictions", blocks=tuple(blocks))


def elasticities_section(part: NumericEffects, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Return the section on responses to numeric features, with demand curves of the most important ones."""
    header = ["feature", "response", "of the alternative itself", "of its rivals"]
    rows = [
        [names.label(table.column), _RESPONSES[table.kind], number(table.rows[0].own), number(table.rows[0].other)]
        for table in part.tables
    ]
    text = (
        f"Relative change in the probability of an alternative if a feature of this alternative, or of one rival, "
        f"rises by one per cent (elasticity) or by one unit (semi-elasticity: 0.05 means 5%). Averages over "
        f"{part.sets:,} choice sets, weighted by predicted probability."
    )
    blocks: list[Block] = [Text(text), Table(cells=[header, *rows])]
    if part.others:
        non_numeric = ", ".join(names[name] for name in part.others)
        blocks.append(
            note(
                f"These features are not numeric and have no elasticity: {non_numeric}. Their importance is in the "
                f"previous section."
            )
        )
    blocks += [note(f"No elasticity for {names[name]}: it {reason}.") for name, reason in part.left_out.items()]
    curves = [page_figure(demand_chart(demand, names)) for demand in part.demand.values()]
    return Section(name="elasticities", title="Elasticities and demand curves", blocks=(*blocks, *curves))


def categories_section(part: AllCategories, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Return the section on categories, with a figure for each column."""
    sets = part.tables[0].sets
    text = (
        f"In each of {sets:,} choice sets, one alternative is drawn at random and given each category in turn; "
        f"everything else stays the same. A category at 2 is chosen twice as often as an average category."
    )
    figures = [page_figure(categories_chart(table, names)) for table in part.tables]
    return Section(name="categories", title="Preferred categories", blocks=(Text(text), *figures))


def trade_offs_section(part: TradeOffs, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Return the section on trade-offs: the change in one feature that compensates for one more unit of another."""
    reference = names.label(part.reference)
    header = ["one more of", f"compensated by {reference}", "quartiles over alternatives", "opposite sign"]
    rows = []
    for r in part.rows:
        change = f"{'+' if r.median > 0 else ''}{number(r.median)}"
        rows.append([names.label(r.column), change, f"{number(r.low)} to {number(r.high)}", f"{r.odd:.1%}"])
    if part.members > 1:
        header.append(f"{LEVEL:.0%} interval")
        rows = [
            [*row, "-" if r.ends is None else f"{number(r.ends[0])} to {number(r.ends[1])}"]
            for row, r in zip(rows, part.rows, strict=True)
        ]
    text = (
        f"The change in {names[part.reference]} that keeps the probability of an alternative constant when another "
        f"feature rises by one unit: the median over {part.sets:,} choice sets, weighted by predicted probability. "
        f"Opposite sign: share of alternatives whose trade-off has the opposite sign to the median."
    )
    how = (
        f"The interval for the median is based on {part.members} networks: the value of a further network would "
        f"fall inside the interval with probability {LEVEL:g}."
        if part.members > 1
        else "A single model has no interval; an ensemble has one."
    )
    return Section(name="trade_offs", title="Trade-offs", blocks=(Text(text), Table(cells=[header, *rows]), note(how)))


def context_section(part: ContextSummary, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Return the section on context effects: the strongest cases, and a map of the strongest case."""
    # 1. Report if there is no effect, as in a logit.
    search = part.search
    sample = (
        f"{search.pairs:,} pairs of alternatives, each with a probability of at least {search.least:g}, in "
        f"{search.removals:,} choice sets with one alternative removed"
    )
    if part.has_no_effects:
        text = (
            f"The model has no context effects: no alternative changes the preference between two others, as in a "
            f"logit (IIA). In {sample}, the largest change in a log-ratio is {part.strongest:.1g}, which is rounding "
            f"error."
        )
        return Section(name="context", title="Context effects", blocks=(Text(text),))
    # 2. Describe the strongest case, and list all cases in a table.
    first = search.cases[0]
    text = (
        f"Does an alternative change the preference between two others? In a logit, it never does (IIA). In {sample}, "
        f"the log-odds log(P(i) / P(j)) change by {search.mean:.3g} on average. The strongest case is in choice set "
        f"{first.choice_set}: the share of {first.i} against {first.j} is {first.share_with:.1%} with {first.removed} "
        f"and {first.share_without:.1%} without it."
    )
    header = ["choice set", "third", "i", "j", "share of i with third", "without it", "change in log-ratio"]
    rows = [
        [str(c.choice_set), c.removed, c.i, c.j, f"{c.share_with:.1%}", f"{c.share_without:.1%}", f"{c.by_adding:+.3f}"]
        for c in search.cases
    ]
    # 3. Show the alternatives of the strongest case, and a map of it.
    columns = ["", f"i: {first.i}", f"j: {first.j}", f"third: {first.removed}"]
    features = [[names.label(name), *map(format_cell, values)] for name, values in part.alternatives.items()]
    blocks: list[Block] = [Text(text), Table(cells=[header, *rows])]
    if features:
        blocks += [Heading("The strongest case"), Table(cells=[columns, *features])]
    if part.map is not None and part.features is not None:
        x, y = map(names.label, part.features)
        blocks.append(map_figure(part.map, (x, y), (first.i, first.j, first.removed)))
    # 4. Decompose the effects by the number of alternatives that interact.
    if part.orders is not None:
        text = (
            f"In {part.orders.sets:,} choice sets, log-ratios are decomposed by the number of alternatives that "
            f"interact. Order 1 is the preference between two alternatives on their own, order 2 the effect of "
            f"each single "
            f"third alternative, and so on."
        )
        blocks += [Heading("Orders of interaction"), Text(text), Table(cells=part.orders.cells)]
    return Section(name="context", title="Context effects", blocks=tuple(blocks))


def examples_section(part: tuple[ExampleSet, ...], names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Return the section on example choice sets, with the Markov chain of the first one for specialists."""
    blocks: list[Block] = []
    for k, example in enumerate(part):
        blocks += _example(example, names, folded="closed" if k else "open")
    if part and part[0].chain is not None:
        blocks += [Heading(f"Markov chain of set {part[0].choice_set}", "closed"), chain_figure(part[0].chain)]
    return Section(name="examples", title="Example choice sets", blocks=tuple(blocks))


def _example(example: ExampleSet, names: ColumnNames, *, folded: Literal["open", "closed"]) -> list[Block]:
    blocks: list[Block] = [Heading(f"{_KINDS[example.kind]}: set {example.choice_set}", folded), Text(_story(example))]
    if example.individual:
        values = ", ".join(f"{names[name]} {format_cell(value)}" for name, value in example.individual.items())
        blocks.append(note(f"Individual: {values}."))
        pictures = {
            names[name]: format_cell(value) for name, value in example.individual.items() if is_image_uri(value)
        }
        if pictures:
            blocks.append(Table(cells=[["of the individual", *pictures], ["", *pictures.values()]]))
    strong = frozenset(k for k, place in enumerate(shown_alternatives(example)) if place == example.chosen)
    blocks.append(Table(cells=_alternatives(example, names), strong=strong))
    if len(example.p) > MAX_ALTERNATIVES_SHOWN:
        text = f"{MAX_ALTERNATIVES_SHOWN} of {len(example.p)} alternatives; explanation.json contains all of them."
        blocks.append(note(text))
    blocks.append(page_figure(probabilities_chart(example)))
    if example.attribution is not None:
        blocks.append(rival_changes_figure(example.attribution))
    return blocks


def _story(example: ExampleSet) -> str:
    n, best = len(example.p), int(example.p.argmax())
    text = (
        f"{n} alternatives. The most probable one is {example.names[best]}, with a probability of "
        f"{percent(example.p[best])}"
    )
    if example.chosen is None:
        return f"{text}; the choice is unknown."
    if example.chosen == best:
        return f"{text}, and it was chosen."
    rank = 1 + int((example.p > example.p[example.chosen]).sum())
    return (
        f"{text}; the chosen one is {example.names[example.chosen]}, ranked {rank} with a probability of "
        f"{percent(example.p[example.chosen])}."
    )


def _alternatives(example: ExampleSet, names: ColumnNames) -> Cells:
    """Return a table of the alternatives to show, the most probable first."""
    header = ["alternative", "probability", *map(names.label, example.columns)]
    labels = [name + (" (chosen)" if k == example.chosen else "") for k, name in enumerate(example.names)]
    rows = [
        [labels[k], f"{example.p[k]:.4f}", *(format_cell(values[k]) for values in example.columns.values())]
        for k in shown_alternatives(example)
    ]
    return [header, *rows]


def in_sample_block(fit: FitQuality) -> Block:
    """Return a paragraph on whether the model was trained on the table."""
    if fit.warning is not None:
        return warning(fit.warning)
    return note(
        "The model was trained on another table (the fingerprints differ). These are out-of-sample results, provided "
        "that no choice set is in both tables."
    )


def fit_section(part: FitQuality) -> Section:
    """Return the section on goodness of fit: the model and its baselines."""
    # 1. Put the model in the first row, its baselines below.
    report = part.report
    label = f"this model, {SAMPLE_WORDS[part.seen]}" if part.in_sample else "this model"
    header = ["", "NLL", *(f"TOP {n}" for n in report.shown_top), "measured"]
    shown = {n: report.top[n] for n in report.shown_top}
    rows = [[label, *_values(report.nll, shown, report.intervals, report.gives), SAMPLE_WORDS[part.seen]]]
    baselines = part.baselines
    for row in part.baseline_rows:
        if row.error is not None:
            rows.append([row.label, f"failed: {row.error}"])
            continue
        top = {n: row.values[f"top_{n}"] for n in report.shown_top}
        values = _values(row.values.get("nll"), top, row.intervals, row.gives)
        rows.append([row.label, *values, f"out of sample, {FOLDS} folds"])
    # 2. Report whether the results are in-sample, then show the table and its figure.
    blocks: list[Block] = [in_sample_block(part), Table(cells=[header, *rows], strong=frozenset({0}))]
    intervals = fit_intervals(part)
    if len(intervals.dots) > 1:
        blocks.append(intervals)
    if baselines is not None:
        blocks.append(note(_baselines_note(part, report)))
    # 3. Add notes on how to read them.
    if report.n_impossible:
        blocks.append(warning(f"{report.n_impossible:,} of the choices have predicted probability 0."))
    if report.gives == "ranking":
        blocks.append(note("A ranking has no probabilities and therefore no NLL."))
    if MARK in rows[0][1]:
        blocks.append(note(FOOTNOTE))
    brackets = f"In brackets: {report.level:.0%} bootstrap intervals over choice sets."
    blocks.append(note(f"{brackets} NLL: lower is better."))
    return Section(name="fit", title="Goodness of fit", blocks=tuple(blocks))


def _baselines_note(part: FitQuality, report: Report) -> str:
    baselines = part.baselines
    assert baselines is not None
    sample = f", on a sample of {baselines.n_sets:,} choice sets" if baselines.n_sets < report.n_sets else ""
    text = (
        f"The baselines are cross-validated on this table in {FOLDS} folds{sample}, so their results are out of sample."
    )
    if part.in_sample:
        text += (
            " The results of the model are in-sample, so the comparison is not fair: cross-validate the model, or use "
            "a table that it was not trained on."
        )
    return text


def _values(nll: float | None, top: Mapping[int, float], intervals: Mapping[str, Any], gives: str) -> list[str]:
    mark = MARK if gives == "scores" else ""
    cells = ["-" if nll is None else f"{nll:.4f}{mark}{_interval(intervals.get('nll'))}"]
    return cells + [f"{value:.3f}{_interval(intervals.get(f'top_{n}'), 3)}" for n, value in top.items()]


def _interval(ends: tuple[float, float] | None, digits: int = 4) -> str:
    return "" if ends is None else f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"


def calibration_section(part: Calibration) -> Section:
    """Return the section on calibration."""
    first = part.first
    excess = float(first.share @ (first.predicted - first.observed))
    tendency = "overconfident" if excess > 0 else "underconfident"
    text = (
        f"The most probable alternative of a choice set has a predicted probability of "
        f"{first.share @ first.predicted:.1%} on average and is chosen in {first.share @ first.observed:.1%} of the "
        f"sets: if anything, the model is {tendency}. Choice sets are grouped into {len(first.share)} bins by this "
        f"probability. The calibration error is the mean difference between predicted and observed shares over the "
        f"bins: {100 * part.error:.1f} percentage points."
    )
    figures = [page_figure(calibration_chart(part, which)) for which in ("first", "alternatives")]
    return Section(
        name="calibration",
        title="Calibration",
        blocks=(Text(text), *figures, note(f"{part.n_sets:,} choice sets with at least two alternatives.")),
    )


def axioms_section(part: Audit) -> Section:
    """Return the section on axioms of choice."""
    obeyed = ", ".join(part.obeyed) or "none"
    text = (
        f"Satisfied in all cases checked: {obeyed}. A violation is not an error: people violate these axioms, and "
        f"a model fitted to their choices does so, too."
    )
    header = ["axiom", "verdict", "cases", "violated", "mean", "largest", "unit"]
    rows = [
        [f.axiom, f.verdict, f"{f.cases:,}", f"{f.share:.1%}", f"{f.mean:.2g}", f"{f.largest:.2g}", f.unit]
        for f in part.findings
    ]
    worst = [[f.axiom, f"choice set {f.choice_set}: {f.example}"] for f in part.findings if f.example is not None]
    blocks: list[Block] = [Text(text), Table(cells=[header, *rows])]
    if worst:
        blocks.append(Facts({f"worst case, {axiom}": example for axiom, example in worst}))
    relative = part["copies"].more["of_a_logit"]
    facts = (
        f"{part.sets:,} choice sets sampled, {part.questions:,} predicted; violations up to {part.tolerance:g} are "
        f"regarded as rounding errors. A second copy of an alternative takes {relative:.2f} times as much share "
        f"from the others as in a logit."
    )
    blocks += [note(text) for text in (facts, *part.notes)]
    return Section(name="axioms", title="Axioms of choice", blocks=tuple(blocks))


def table_section(part: TableSummary, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Return the section on the table: sizes, columns and choices."""
    # 1. Describe the sizes of choice sets and the names of alternatives.
    smallest, largest = int(part.sizes[0]), int(part.sizes[-1])
    text = (
        f"{part.choice_sets:,} choice sets of {smallest} to {largest} alternatives, {part.alternatives:,} in total"
        f"{'' if part.unweighted else '; choice sets are weighted'}."
    )
    blocks: list[Block] = [Text(text)]
    if not part.has_choices:
        blocks.append(note("The table has no choices."))
    if part.unlabelled is not None:
        text = (
            f"Alternatives have no labels in this table. They are named by their position in the choice set and by a "
            f"feature that distinguishes them: the first one is {part.unlabelled}."
        )
        blocks.append(note(text))
    if len(part.sizes) > 1:
        blocks.append(page_figure(sizes_chart(part)))
    # 2. Show a table for each kind of column, then one of the labels.
    numeric = [_numeric_row(column, names) for column in part.columns if column.kind == "numeric"]
    categorical = [_categorical_row(column, names) for column in part.columns if column.kind == "categorical"]
    other = [_other_row(column, names) for column in part.columns if column.kind not in ("numeric", "categorical")]
    blocks += [
        Table(cells=[header, *rows])
        for header, rows in zip(_HEADERS, (numeric, categorical, other), strict=True)
        if rows
    ]
    if part.labels:
        rows = [[label.label, f"{label.offered:.1%}", f"{label.chosen:.1%}"] for label in part.labels]
        blocks.append(Table(cells=[["alternative", "available", "chosen"], *rows]))
    return Section(name="table", title="The table", blocks=tuple(blocks))


def _numeric_row(column: ColumnSummary, names: ColumnNames) -> list[str]:
    values = (column.low, column.median, column.high, column.offered, column.chosen)
    return [names.label(column.name), _OF[column.role], *map(number, values), f"{column.missing:,}"]


def _categorical_row(column: ColumnSummary, names: ColumnNames) -> list[str]:
    most = ", ".join(f"{name} {share:.0%}" for name, share in column.categories)
    return [names[column.name], _OF[column.role], number(column.distinct), most]


def _other_row(column: ColumnSummary, names: ColumnNames) -> list[str]:
    counts = [number(column.distinct), f"{column.missing:,}"]
    return [names.label(column.name), _OF[column.role], column.kind, *counts, column.detail or "-"]


def model_section(part: ModelSummary) -> Section:
    """Return the section on the model: options, training and summary."""
    training = {_TRAINING.get(name, name): format_value(value) for name, value in part.training.items()}
    facts = {"class": part.kind, "parameters": f"{part.parameters:,}", **training}
    options = {name: format_value(value) for name, value in part.options.items()}
    blocks: list[Block] = [Facts(facts)]
    if options:
        blocks.append(Table(cells=[["option", "value"], *([k, v] for k, v in options.items())], folded="Options"))
    rows = [list(row) for row in part.summary.rows]
    if rows:
        cut = f", the first {_MAX_SUMMARY_ROWS}" if len(rows) > _MAX_SUMMARY_ROWS else ""
        title = f"Model summary ({len(rows):,} rows{cut})"
        blocks.append(Table(cells=[list(part.summary.header), *rows[:_MAX_SUMMARY_ROWS]], folded=title))
    if part.histories:
        blocks.append(page_figure(learning_chart(part.histories)))
    blocks += [warning(f"Caveat: {caveat}.") for caveat in part.caveats]
    return Section(name="model", title="The model", blocks=tuple(blocks))


def format_value(value: Any) -> str:
    """Format an option or a fact of any type."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {format_value(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value)) or "-"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) and value < 10**7 else str(value)
    return value if isinstance(value, str) else json.dumps(value)
