"""The parts of an explanation -> what they say, in sentences that need no statistics, each with its figures.

A sentence is only said where its figures bear it: a category gains or loses where the interval of its lift leaves out
1, a column matters where the interval of its importance lies above 0, and context counts where it is no rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pcmcnet.data.column_names import ColumnNames
from pcmcnet.insight.calibration import Calibration
from pcmcnet.insight.category_effects import AllCategories, CategoryRow
from pcmcnet.insight.context_summary import ContextSummary
from pcmcnet.insight.demand import DemandCurve
from pcmcnet.insight.fit_quality import FitQuality
from pcmcnet.insight.importance import Importance
from pcmcnet.insight.numeric_effects import NumericEffects
from pcmcnet.insight.trade_offs import TradeOff, TradeOffs
from pcmcnet.reports.tables import number, percent

if TYPE_CHECKING:
    from pcmcnet.insight.explanation import Explanation

_FEW = 0.02  # points between predicted and chosen that nobody would notice


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, the figures behind it, and the part of the explanation where they come from."""

    text: str
    figures: str
    part: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        return asdict(self)


def findings(found: Explanation) -> tuple[Finding, ...]:
    """Say what was found, the most useful first."""
    names = found.names
    said: list[Finding] = []
    if found.elasticities is not None:
        said += _responses(found.elasticities, names)
    if found.importance is not None:
        said += _importance(found.importance, found.categories, names)
    if found.trade_offs is not None:
        said += _trade_offs(found.trade_offs, names)
    if found.context is not None:
        said += _context(found.context)
    if found.fit is not None:
        said += _fit(found.fit)
    if found.calibration is not None:
        said += _calibration(found.calibration)
    return tuple(said)


def _responses(part: NumericEffects, names: ColumnNames) -> Iterator[Finding]:
    """What one per cent more, and a tenth less, of the most important number does."""
    table = part.tables[0]
    own, other = table.rows[0].own, table.rows[0].other
    what = names[table.column]
    if table.kind != "elasticity":
        per = "raises" if own > 0 else "lowers"
        text = (
            f"One {names.unit(table.column) or 'unit'} more of {what} {per} the share of an alternative by {_by(own)}."
        )
    elif own < 0:
        text = f"A 1% rise of {what} costs an alternative {_by(own / 100)} of its share."
    else:
        text = f"A 1% rise of {what} gains an alternative {_by(own / 100)} of its share."
    kind = "elasticity" if table.kind == "elasticity" else "semi-elasticity"
    rivals = "" if other is None else f"; of its rivals {number(other)}"
    yield Finding(text, f"{kind} {number(own)}{rivals}; average over {part.sets:,} choice sets", "elasticities")
    of, curve = next(iter(part.curves.items()))
    changed = _tenth(curve)
    if changed is not None:
        now, less = changed
        side = "rises" if less > now else "falls"
        yield Finding(
            f"With 10% less {what}, the share of {of} {side} from {percent(now)} to {percent(less)}.",
            f"demand curve of {what}, at 0.9 of what it is",
            "elasticities",
        )


def _tenth(curve: DemandCurve) -> tuple[float, float] | None:
    """Return the share as it is, and with a tenth less; None where the curve has no such point."""
    at = np.flatnonzero(np.isclose(curve.points, 0.9)) if curve.scaled else np.empty(0, np.int64)
    return (float(curve.now[0]), float(curve.shares[0, at[0]])) if at.size else None


def _importance(part: Importance, categories: AllCategories | None, names: ColumnNames) -> Iterator[Finding]:
    """Which columns matter most; of a categorical one, who gains and who loses."""
    sure = [row for row in part.rows if row.low > 0]
    liked = {table.column: table for table in (categories.tables if categories else ())}
    if not sure:
        yield Finding(
            "No column matters for sure: predictions are hardly worse where one is shuffled.",
            f"all 95 % intervals reach 0; {part.repeats} shuffles",
            "importance",
        )
        return
    first, *others = sure
    then = f", then {' and '.join(names[row.name] for row in others[:2])}" if others else ""
    what = "NLL" if part.loss == "nll" else "misses"
    figures = ", ".join(f"{names[row.name]} {row.value:+.3f}" for row in sure[:3])
    yield Finding(
        f"{names[first.name]} matters most{then}.", f"increase of {what} when shuffled: {figures}", "importance"
    )
    for row in sure:
        if row.name in liked:
            yield from _liked(names[row.name], liked[row.name].rows)


def _liked(column: str, rows: tuple[CategoryRow, ...]) -> Iterator[Finding]:
    gains = [row for row in rows if row.is_sure and row.lift > 1][:2]
    loses = [row for row in rows[::-1] if row.is_sure and row.lift < 1][:2]
    if not gains and not loses:
        return
    parts = [_clause(group, verb) for group, verb in ((gains, "gain"), (loses, "lose")) if group]
    figures = ", ".join(f"{r.category} {r.lift:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in (*gains, *loses))
    yield Finding(
        f"{column}: {', '.join(parts)}, all else equal.",
        f"times the share of an average one, with 95 % intervals: {figures}",
        "categories",
    )


def _clause(rows: list[CategoryRow], verb: str) -> str:
    return f"{' and '.join(row.category for row in rows)} {verb if len(rows) > 1 else f'{verb}s'}"


def _trade_offs(part: TradeOffs, names: ColumnNames) -> Iterator[Finding]:
    """What makes up for one more of the most important other feature, where the sign is clear."""
    clear = [row for row in part.rows if row.odd < 0.25 and _signed(row)]
    if not clear:
        return
    row, reference = clear[0], part.reference
    unit = names.unit(row.column) or "unit"
    size = f"{number(abs(row.median))} {names.unit(reference)}".strip()
    less = "less" if row.median < 0 else "more"
    ends = "" if row.ends is None else f"; {part.members} members say {number(row.ends[0])} to {number(row.ends[1])}"
    yield Finding(
        f"One {unit} more of {names[row.column]} is made up for by {size} {less} of {names[reference]}.",
        f"median {number(row.median)}, quartiles {number(row.low)} to {number(row.high)}{ends}",
        "trade_offs",
    )


def _signed(row: TradeOff) -> bool:
    """Whether the members of an ensemble agree on the sign; a single model has none to ask."""
    return row.ends is None or row.ends[0] * row.ends[1] > 0


def _context(part: ContextSummary) -> Iterator[Finding]:
    found = part.search
    if part.none:
        text = "What else is on offer never changes the preference between two alternatives, as in every logit."
        figures = f"largest change of a log-ratio among {found.pairs:,} pairs: {part.strongest:.1g}"
    else:
        first = found.cases[0]
        text = (
            f"What else is on offer changes preferences: at most from {first.share_without:.1%} to "
            f"{first.share_with:.1%} for one alternative against another."
        )
        figures = (
            f"choice set {first.choice_set}: {first.i} against {first.j}, without and with {first.removed}; change of "
            f"the log-ratio {first.by_adding:+.2f}, on average {found.mean:.3g} over {found.pairs:,} pairs"
        )
    yield Finding(text, figures, "context")


def _fit(part: FitQuality) -> Iterator[Finding]:
    right = part.report.top.get(1)
    if right is None:
        return
    chance = part.report.uniform["top_1"]
    where = ", measured on its own training table" if part.in_sample else ""
    yield Finding(
        f"The model's favourite is what people choose in {percent(right)} of the sets; a blind guess is right in "
        f"{percent(chance)}.",
        f"top-1 accuracy over {part.report.n_sets:,} choice sets{where}",
        "fit",
    )


def _calibration(part: Calibration) -> Iterator[Finding]:
    said, happened = (float(part.first.share @ v) for v in (part.first.predicted, part.first.observed))
    if abs(said - happened) <= _FEW:
        verdict = "On average its probabilities can be taken at their word"
    elif said > happened:
        verdict = "It is surer than it should be"
    else:
        verdict = "It is less sure than it could be"
    yield Finding(
        f"{verdict}: favourites get {percent(said)} on average, and are chosen in {percent(happened)}.",
        f"calibration error {100 * part.error:.1f} points over {part.n_sets:,} choice sets",
        "calibration",
    )


def _by(change: float) -> str:
    return percent(abs(change))
