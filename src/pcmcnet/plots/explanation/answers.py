"""Sections on what a model does: which columns it goes by, context, axioms, and single choice sets."""

from __future__ import annotations

from typing import Literal

from pcmcnet.data.column_names import PLAIN, ColumnNames
from pcmcnet.insight.axioms import Audit
from pcmcnet.insight.context_summary import ContextSummary
from pcmcnet.insight.example_sets import ExampleSet
from pcmcnet.insight.importance import Importance
from pcmcnet.plots.explanation.page_figures import importance_figure
from pcmcnet.plots.explanation.page_set_figures import (
    SHOWN,
    attribution_figure,
    chain_figure,
    map_figure,
    probabilities_figure,
    shown,
)
from pcmcnet.reports.sections import Block, Facts, Heading, Section, Table, Text, brief, is_picture, note
from pcmcnet.reports.tables import Cells, percent

_KINDS = {
    "typical": "A typical choice",
    "surprising": "A surprising choice",
    "uncertain": "An uncertain choice",
    "large": "A large choice set",
}


def importance_section(part: Importance, names: ColumnNames = PLAIN, *, in_sample: bool) -> Section:
    """Permutation importance of the columns."""
    how = (
        f"Each column is shuffled {part.repeats} times: a feature among the alternatives of its set, a column of the "
        f"individual among sets. What is lost by that is what the model gets from the column, given all others. A "
        f"column that others can stand in for looks less important than it is."
    )
    blocks: list[Block] = [Text(how), importance_figure(part, names)]
    if in_sample:
        blocks.append(note("Measured on the training table: columns that the model has memorised look important, too."))
    return Section(name="importance", title="What matters most", blocks=tuple(blocks))


def context_section(part: ContextSummary, names: ColumnNames = PLAIN) -> Section:
    """The strongest cases, and a map of the first."""
    found = part.search
    looked = (
        f"{found.pairs:,} pairs of alternatives, each with a probability of at least {found.least:g}, in "
        f"{found.removals:,} sets with one alternative removed"
    )
    if part.none:
        text = (
            f"None. Removing an alternative never changes the preference between two others: of {looked}, the largest "
            f"change of a log-ratio is {part.strongest:.1g}, which is rounding. So it is in every logit."
        )
        return Section(name="context", title="Context effects", blocks=(Text(text),))
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
    named = ["", f"i: {first.i}", f"j: {first.j}", f"third: {first.removed}"]
    features = [[names.label(name), *map(brief, values)] for name, values in part.alternatives.items()]
    blocks: list[Block] = [Text(text), Table(cells=[heads, *rows])]
    if features:
        blocks += [Heading("The strongest case"), Table(cells=[named, *features])]
    if part.map is not None and part.features is not None:
        x, y = map(names.label, part.features)
        blocks.append(map_figure(part.map, (x, y), (first.i, first.j, first.removed)))
    if part.orders is not None:
        looked = f"In {part.orders.sets:,} choice sets, log-ratios are taken apart by how many others act together."
        text = f"{looked} Order 1 is the preference of two alone, order 2 what each single other adds, and so on."
        blocks += [Heading("How many act together"), Text(text), Table(cells=part.orders.cells)]
    return Section(name="context", title="Context effects", blocks=tuple(blocks))


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


def examples_section(part: tuple[ExampleSet, ...], names: ColumnNames = PLAIN) -> Section:
    """Single choice sets."""
    blocks = [
        block for k, example in enumerate(part) for block in _example(example, names, folded="closed" if k else "open")
    ]
    return Section(name="examples", title="Choice sets to look at", blocks=tuple(blocks))


def _example(example: ExampleSet, names: ColumnNames, *, folded: Literal["open", "closed"]) -> list[Block]:
    blocks: list[Block] = [
        Heading(f"{_KINDS[example.kind]}: set {example.choice_set}", folded),
        Text(_story(example)),
    ]
    if example.individual:
        values = ", ".join(f"{names[name]} {brief(value)}" for name, value in example.individual.items())
        blocks.append(note(f"The individual: {values}."))
        pictures = {names[name]: brief(value) for name, value in example.individual.items() if is_picture(value)}
        if pictures:
            blocks.append(Table(cells=[["of the individual", *pictures], ["", *pictures.values()]]))
    strong = frozenset(k for k, place in enumerate(shown(example)) if place == example.chosen)
    blocks.append(Table(cells=_alternatives(example, names), strong=strong))
    if len(example.p) > SHOWN:
        blocks.append(note(f"{SHOWN} of {len(example.p)} alternatives; all of them are in explanation.json."))
    blocks.append(probabilities_figure(example))
    if example.attribution is not None:
        blocks.append(attribution_figure(example.attribution))
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
        for k in shown(example)
    ]
    return [heads, *rows]
