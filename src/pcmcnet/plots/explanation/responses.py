"""Sections on how probabilities respond: to numbers, to categories, and what makes up for what."""

from __future__ import annotations

from pcmcnet.data.column_names import PLAIN, ColumnNames
from pcmcnet.insight.category_effects import AllCategories
from pcmcnet.insight.numeric_effects import NumericEffects
from pcmcnet.insight.trade_offs import LEVEL, TradeOffs
from pcmcnet.plots.explanation.page_figures import category_figure, demand_figure
from pcmcnet.reports.sections import Block, Section, Table, Text, note
from pcmcnet.reports.tables import number

_RESPONSES = {"elasticity": "elasticity", "semi": "semi-elasticity", "marginal": "marginal effect"}


def elasticities_section(part: NumericEffects, names: ColumnNames = PLAIN) -> Section:
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
        one = len(part.others) == 1
        blocks.append(
            note(
                f"{', '.join(names[name] for name in part.others)} {'is' if one else 'are'} not among them: only "
                f"numbers rise by a unit. Their importance is in the section before."
            )
        )
    blocks += [note(f"No elasticity for {names[name]}: it {why}.") for name, why in part.left_out.items()]
    drawn = [demand_figure(curves, names) for curves in part.demand.values()]
    return Section(name="elasticities", title="How it responds to numbers", blocks=(*blocks, *drawn))


def categories_section(part: AllCategories, names: ColumnNames = PLAIN) -> Section:
    """Which categories are liked, a figure for each column."""
    sets = part.tables[0].sets
    text = (
        f"One alternative of each of {sets:,} choice sets is drawn and given one category after the other; everything "
        f"else stays as it is. A category at 2 is chosen twice as often as an average one would be."
    )
    drawn = [category_figure(table, names) for table in part.tables]
    return Section(name="categories", title="Which categories are liked", blocks=(Text(text), *drawn))


def trade_offs_section(part: TradeOffs, names: ColumnNames = PLAIN) -> Section:
    """What makes up for one unit more of a feature."""
    reference = names.label(part.reference)
    heads = ["one more of", f"made up for by {reference}", "quartiles over alternatives", "share of other sign"]
    rows = [
        [names.label(r.column), _change(r.median), f"{number(r.low)} to {number(r.high)}", f"{r.odd:.1%}"]
        for r in part.rows
    ]
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


def _change(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(value)}"
