"""Parts of an explanation -> sections of its report: one function for each part, in the order of the report.

What a model does comes first (columns, responses, context, single choice sets), then how good it is (fit, calibration,
axioms), then what it is (table, model).
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
    ALTERNATIVES_SHOWN,
    categories_chart,
    changes_figure,
    demand_chart,
    importance_chart,
    probabilities_chart,
    shown_alternatives,
)
from pcmcnet.plots.page_figures import page_figure
from pcmcnet.plots.quality import calibration_chart, fit_intervals, learning_chart, sizes_chart
from pcmcnet.reports.sections import Block, Facts, Heading, Section, Table, Text, brief, is_picture, note, warning
from pcmcnet.reports.tables import Cells, number, percent

_KINDS = {
    "typical": "A typical choice",
    "surprising": "A surprising choice",
    "uncertain": "An uncertain choice",
    "large": "A large choice set",
}
_RESPONSES = {"elasticity": "elasticity", "semi": "semi-elasticity", "marginal": "marginal effect"}
MEASURED: dict[TrainingOverlap, str] = {
    "all": "in-sample",
    "most": "mostly in-sample",
    "some": "perhaps in part in-sample",
    "none known": "on the whole table",
}
_HEADS = (  # of the tables of columns: numbers, categories, others
    ["numeric column", "of", "least", "median", "largest", "mean offered", "mean chosen", "missing"],
    ["categorical column", "of", "distinct", "most frequent"],
    ["other column", "of", "kind", "distinct", "missing", "what"],
)
_OF = {"feature": "alternative", "individual": "individual", "label": "alternative"}
_TRAINING = {
    "fingerprint": "training table (SHA-256)",
    "drawn_from": "drawn from table (SHA-256)",
    "choice_sets": "trained on choice sets",
    "alternatives": "with alternatives",
}
_ROWS = 80  # of a model's own table that are shown


def importance_section(part: Importance, names: ColumnNames = DEFAULT_NAMES, *, in_sample: bool) -> Section:
    """Permutation importance of the columns."""
    how = (
        f"Each column is shuffled {part.repeats} times: a feature among the alternatives of its set, a column of the "
        f"individual among sets. What is lost by that is what the model gets from the column, given all others. A "
        f"column that others can stand in for looks less important than it is."
    )
    blocks: list[Block] = [Text(how), page_figure(importance_chart(part, names, most=len(part.rows)))]
    if in_sample:
        blocks.append(note("Measured on the training table: columns that the model has memorised look important, too."))
    return Section(name="importance", title="What matters most", blocks=tuple(blocks))


def elasticities_section(part: NumericEffects, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Responses to numeric features, and demand curves of the most important ones."""
    heads = ["feature", "response", "of the alternative itself", "of its rivals"]
    rows = [
        [names.label(table.column), _RESPONSES[table.kind], number(table.rows[0].own), number(table.rows[0].other)]
        for table in part.tables
    ]
    text = (
        f"By how many per cent the probability of an alternative changes when a feature of it, or of one rival, rises "
        f"by one per cent (elasticity) or by one unit (semi-elasticity, in parts of 1). Averages over {part.sets:,} "
        f"sets, in which an alternative counts as much as it is predicted to be chosen."
    )
    blocks: list[Block] = [Text(text), Table(cells=[heads, *rows])]
    if part.others:
        others = f"{', '.join(names[name] for name in part.others)} {'is' if len(part.others) == 1 else 'are'}"
        why = "only numbers rise by a unit. Their importance is in the section before."
        blocks.append(note(f"{others} not among them: {why}"))
    blocks += [note(f"No elasticity for {names[name]}: it {why}.") for name, why in part.left_out.items()]
    drawn = [page_figure(demand_chart(curves, names)) for curves in part.demand.values()]
    return Section(name="elasticities", title="How it responds to numbers", blocks=(*blocks, *drawn))


def categories_section(part: AllCategories, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Which categories are liked, a figure for each column."""
    sets = part.tables[0].sets
    text = (
        f"One alternative of each of {sets:,} choice sets is drawn and given one category after the other; everything "
        f"else stays as it is. A category at 2 is chosen twice as often as an average one would be."
    )
    drawn = [page_figure(categories_chart(table, names)) for table in part.tables]
    return Section(name="categories", title="Which categories are liked", blocks=(Text(text), *drawn))


def trade_offs_section(part: TradeOffs, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """What makes up for one unit more of a feature."""
    reference = names.label(part.reference)
    heads = ["one more of", f"made up for by {reference}", "quartiles over alternatives", "share of other sign"]
    rows = []
    for r in part.rows:
        change = f"{'+' if r.median > 0 else ''}{number(r.median)}"
        rows.append([names.label(r.column), change, f"{number(r.low)} to {number(r.high)}", f"{r.odd:.1%}"])
    if part.members > 1:
        heads.append(f"{LEVEL:.0%} interval")
        rows = [
            [*row, "-" if r.ends is None else f"{number(r.ends[0])} to {number(r.ends[1])}"]
            for row, r in zip(rows, part.rows, strict=True)
        ]
    text = (
        f"By how much {names[part.reference]} must change so that an alternative keeps its probability although it has "
        f"one unit more of another feature: the median over the alternatives of {part.sets:,} choice sets, each as "
        f"often as it is predicted to be chosen."
    )
    how = (
        f"The interval is that of the median, from {part.members} networks: one more would lie within with "
        f"probability {LEVEL:g}."
        if part.members > 1
        else "A single model has no interval; an ensemble does."
    )
    return Section(
        name="trade_offs", title="What makes up for what", blocks=(Text(text), Table(cells=[heads, *rows]), note(how))
    )


def context_section(part: ContextSummary, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """The strongest cases, and a map of the first."""
    # 1. Whether there is any effect: in a logit there is none.
    found = part.search
    looked = (
        f"{found.pairs:,} pairs of alternatives, each with a probability of at least {found.least:g}, in "
        f"{found.removals:,} sets with one alternative removed"
    )
    if part.has_no_effects:
        text = (
            f"None. Removing an alternative never changes the preference between two others: of {looked}, the largest "
            f"change of a log-ratio is {part.strongest:.1g}, which is rounding. So it is in every logit."
        )
        return Section(name="context", title="Context effects", blocks=(Text(text),))
    # 2. The strongest case in words, and all of them in a table.
    first = found.cases[0]
    text = (
        f"Does an alternative change the preference between two others? In a logit it never does. Of {looked}, the "
        f"log-ratio log P(i) / P(j) changes by {found.mean:.3g} on average. The strongest: in choice set "
        f"{first.choice_set}, the share of {first.i} against {first.j} is {first.share_with:.1%} where "
        f"{first.removed} is on offer and {first.share_without:.1%} where it is not."
    )
    heads = ["choice set", "third", "i", "j", "share of i with the third", "without it", "log-ratio by adding it"]
    rows = [
        [str(c.choice_set), c.removed, c.i, c.j, f"{c.share_with:.1%}", f"{c.share_without:.1%}", f"{c.by_adding:+.3f}"]
        for c in found.cases
    ]
    # 3. The alternatives of the strongest case, and a map of it.
    named = ["", f"i: {first.i}", f"j: {first.j}", f"third: {first.removed}"]
    features = [[names.label(name), *map(brief, values)] for name, values in part.alternatives.items()]
    blocks: list[Block] = [Text(text), Table(cells=[heads, *rows])]
    if features:
        blocks += [Heading("The strongest case"), Table(cells=[named, *features])]
    if part.map is not None and part.features is not None:
        x, y = map(names.label, part.features)
        blocks.append(map_figure(part.map, (x, y), (first.i, first.j, first.removed)))
    # 4. How many alternatives act together.
    if part.orders is not None:
        looked = f"In {part.orders.sets:,} choice sets, log-ratios are taken apart by how many others act together."
        text = f"{looked} Order 1 is the preference of two alone, order 2 what each single other adds, and so on."
        blocks += [Heading("How many act together"), Text(text), Table(cells=part.orders.cells)]
    return Section(name="context", title="Context effects", blocks=tuple(blocks))


def examples_section(part: tuple[ExampleSet, ...], names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Single choice sets."""
    blocks: list[Block] = []
    for k, example in enumerate(part):
        blocks += _example(example, names, folded="closed" if k else "open")
    return Section(name="examples", title="Choice sets to look at", blocks=tuple(blocks))


def _example(example: ExampleSet, names: ColumnNames, *, folded: Literal["open", "closed"]) -> list[Block]:
    blocks: list[Block] = [Heading(f"{_KINDS[example.kind]}: set {example.choice_set}", folded), Text(_story(example))]
    if example.individual:
        values = ", ".join(f"{names[name]} {brief(value)}" for name, value in example.individual.items())
        blocks.append(note(f"The individual: {values}."))
        pictures = {names[name]: brief(value) for name, value in example.individual.items() if is_picture(value)}
        if pictures:
            blocks.append(Table(cells=[["of the individual", *pictures], ["", *pictures.values()]]))
    strong = frozenset(k for k, place in enumerate(shown_alternatives(example)) if place == example.chosen)
    blocks.append(Table(cells=_alternatives(example, names), strong=strong))
    if len(example.p) > ALTERNATIVES_SHOWN:
        words = f"{ALTERNATIVES_SHOWN} of {len(example.p)} alternatives; all of them are in explanation.json."
        blocks.append(note(words))
    blocks.append(page_figure(probabilities_chart(example)))
    if example.attribution is not None:
        blocks.append(changes_figure(example.attribution))
    if example.chain is not None:
        blocks.append(chain_figure(example.chain))
    return blocks


def _story(example: ExampleSet) -> str:
    n, best = len(example.p), int(example.p.argmax())
    text = f"{n} alternatives. The most probable is {example.names[best]} with {percent(example.p[best])}"
    if example.chosen is None:
        return f"{text}; the choice is not known."
    if example.chosen == best:
        return f"{text}, and it was chosen."
    place = 1 + int((example.p > example.p[example.chosen]).sum())
    return (
        f"{text}; chosen was {example.names[example.chosen]}, number {place} in the order of probability, "
        f"with {percent(example.p[example.chosen])}."
    )


def _alternatives(example: ExampleSet, names: ColumnNames) -> Cells:
    """The alternatives that are shown, the most probable first."""
    heads = ["alternative", "probability", *map(names.label, example.columns)]
    called = [name + (" (chosen)" if k == example.chosen else "") for k, name in enumerate(example.names)]
    rows = [
        [called[k], f"{example.p[k]:.4f}", *(brief(values[k]) for values in example.columns.values())]
        for k in shown_alternatives(example)
    ]
    return [heads, *rows]


def seen_words(fit: FitQuality) -> Block:
    """Say whether the model has seen the table."""
    if fit.warning is not None:
        return warning(fit.warning)
    return note(
        "This is not the table that the model was trained on: the fingerprints differ. The figures of the model are "
        "out of sample as far as the two share no choice sets."
    )


def fit_section(part: FitQuality) -> Section:
    """The model beside baselines, and what is what."""
    # 1. The model in the first row, its baselines below.
    report = part.report
    own = f"this model, {MEASURED[part.seen] if part.in_sample else 'as it is'}"
    heads = ["", "NLL", *(f"TOP {n}" for n in report.shown_top), "measured"]
    shown = {n: report.top[n] for n in report.shown_top}
    rows = [[own, *_values(report.nll, shown, report.intervals, report.gives), MEASURED[part.seen]]]
    compared = part.baselines
    for row in compared.rows if compared is not None else ():
        if row.error is not None:
            rows.append([row.label, f"failed: {row.error}"])
            continue
        top = {n: row.values[f"top_{n}"] for n in report.shown_top}
        values = _values(row.values.get("nll"), top, row.intervals, row.gives)
        rows.append([row.label, *values, f"out of sample, {FOLDS} folds"])
    # 2. The table and its figure, after whether the model has seen these choices.
    blocks: list[Block] = [seen_words(part), Table(cells=[heads, *rows], strong=frozenset({0}))]
    drawn = fit_intervals(part)
    if len(drawn.dots) > 1:
        blocks.append(drawn)
    if compared is not None:
        blocks.append(note(_what_is_what(part, report)))
    # 3. What must be known to read them.
    if report.n_impossible:
        blocks.append(warning(f"{report.n_impossible:,} of the choices got probability 0."))
    if report.gives == "ranking":
        blocks.append(note("A ranking gives no probabilities, and so has no NLL."))
    if MARK in rows[0][1]:
        blocks.append(note(FOOTNOTE))
    brackets = f"In brackets: {report.level:.0%} intervals by the bootstrap over choice sets."
    blocks.append(note(f"{brackets} NLL: lower is better."))
    return Section(name="fit", title="How well it predicts these choices", blocks=tuple(blocks))


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
        f"The favourite of each set, its most probable alternative, is predicted with "
        f"{first.share @ first.predicted:.1%} on average and chosen in {first.share @ first.observed:.1%}: if "
        f"anything, the model is {leaning}. Sets are put into {len(first.share)} bins by how probable the favourite "
        f"is. The calibration error is the mean distance of predicted and chosen over the bins: {100 * part.error:.1f} "
        f"points."
    )
    figures = [page_figure(calibration_chart(part, which)) for which in ("first", "alternatives")]
    return Section(
        name="calibration",
        title="Can its probabilities be taken at their word?",
        blocks=(Text(text), *figures, note(f"{part.n_sets:,} sets of two alternatives or more.")),
    )


def axioms_section(part: Audit) -> Section:
    """Which axioms of choice hold."""
    held = ", ".join(part.obeyed) or "none"
    text = (
        f"Obeyed in all cases looked at: {held}. A violation is no fault: people violate these axioms, and a model "
        f"that has learnt it from them does so too."
    )
    heads = ["axiom", "verdict", "cases", "violated", "mean", "largest", "in"]
    rows = [
        [f.axiom, f.verdict, f"{f.cases:,}", f"{f.share:.1%}", f"{f.mean:.2g}", f"{f.largest:.2g}", f.unit]
        for f in part.findings
    ]
    worst = [[f.axiom, f"choice set {f.choice_set}: {f.example}"] for f in part.findings if f.example is not None]
    blocks: list[Block] = [Text(text), Table(cells=[heads, *rows])]
    if worst:
        blocks.append(Facts({f"worst case, {axiom}": example for axiom, example in worst}))
    relative = part["copies"].more["of_a_logit"]
    facts = (
        f"{part.sets:,} choice sets drawn, {part.questions:,} asked about; sizes up to {part.tolerance:g} are rounding."
        f" A second copy of an alternative costs the others {relative:.2f} of what it costs them in a logit."
    )
    blocks += [note(text) for text in (facts, *part.notes)]
    return Section(name="axioms", title="Axioms of choice", blocks=tuple(blocks))


def table_section(part: TableSummary, names: ColumnNames = DEFAULT_NAMES) -> Section:
    """Sizes, columns and choices."""
    # 1. Sizes of choice sets, and how alternatives are called.
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
        blocks.append(page_figure(sizes_chart(part)))
    # 2. A table for each kind of column, then one of the labels.
    numeric = [_numeric_row(column, names) for column in part.columns if column.kind == "numeric"]
    named = [_named_row(column, names) for column in part.columns if column.kind == "categorical"]
    others = [_other_row(column, names) for column in part.columns if column.kind not in ("numeric", "categorical")]
    blocks += [
        Table(cells=[heads, *rows]) for heads, rows in zip(_HEADS, (numeric, named, others), strict=True) if rows
    ]
    if part.labels:
        rows = [[label.label, f"{label.offered:.1%}", f"{label.chosen:.1%}"] for label in part.labels]
        blocks.append(Table(cells=[["alternative", "on offer", "chosen"], *rows]))
    return Section(name="table", title="The table", blocks=tuple(blocks))


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
    training = {_TRAINING.get(name, name): spoken(value) for name, value in part.training.items()}
    facts = {"class": part.kind, "parameters": f"{part.parameters:,}", **training}
    options = {name: spoken(value) for name, value in part.options.items()}
    blocks: list[Block] = [Facts(facts)]
    if options:
        blocks.append(Table(cells=[["option", "value"], *([k, v] for k, v in options.items())], folded="Options"))
    rows = [list(row) for row in part.summary.rows]
    if rows:
        title = f"The model's own table ({len(rows):,} rows{f', the first {_ROWS}' if len(rows) > _ROWS else ''})"
        blocks.append(Table(cells=[list(part.summary.header), *rows[:_ROWS]], folded=title))
    if part.histories:
        blocks.append(page_figure(learning_chart(part.histories)))
    blocks += [warning(f"Caveat: {caveat}.") for caveat in part.caveats]
    return Section(name="model", title="The model", blocks=tuple(blocks))


def spoken(value: Any) -> str:
    """Write an option or a fact of any type."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {spoken(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(spoken, value)) or "-"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) and value < 10**7 else str(value)
    return value if isinstance(value, str) else json.dumps(value)
