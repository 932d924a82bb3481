"""Findings: sentences that summarise an explanation without statistical terms, each with the figures behind it.

The order is that of a reader who decides about the model first and about prices next:

    1. the verdict: better or worse than the best baseline, usually a logit
    2. effects against their expected sign
    3. the price: its elasticity, and the alternative whose share reacts most
    4. the columns with the largest effects, the response to the most important one, and trade-offs
    5. categories that gain or lose share, and context effects
    6. accuracy and calibration

A sentence is included only if it is supported: the model is better if the paired difference of the NLL is significant,
a share changes if it changes by at least 0.1 percentage points, a category gains or loses if the interval of its lift
excludes 1, a column has an effect if the interval of its importance is above 0, and context matters if its effect
exceeds rounding errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pcmcnet.data.columns.names import ColumnNames
from pcmcnet.insight.calibration import MODEL_LABEL, Calibration, FitQuality
from pcmcnet.insight.context_effects import ContextSummary
from pcmcnet.insight.demand import DemandCurve
from pcmcnet.insight.feature_effects import AllCategories, CategoryRow, NumericEffects
from pcmcnet.insight.importance import Importance
from pcmcnet.insight.willingness_to_pay import TradeOffs
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import number, percent

if TYPE_CHECKING:
    from pcmcnet.insight.explanation import Explanation, ModelSummary

_CALIBRATED_WITHIN = 0.02  # largest difference of predicted and observed shares that counts as calibrated
_LEAST_CHANGE = 0.001  # smallest change in a share that is reported
_MAX_ODD = 0.25  # largest share of alternatives with the opposite sign for which a trade-off is reported
_LOGITS = {"mnl": "a multinomial logit", "uniform": "random guessing"}


@dataclass(frozen=True, slots=True)
class Finding(ToDictMixin):
    """A sentence about the model, with the figures that support it.

    Attributes
    ----------
    text
        Text of the sentence.
    figures
        The figures that support the sentence.
    part
        The part of the explanation that contains the figures.
    warning
        True if the sentence questions the model, such as an effect against its expected sign.
    """

    text: str
    figures: str
    part: str
    warning: bool = False


def findings(explanation: Explanation) -> tuple[Finding, ...]:
    """Return the findings of an explanation, the most useful first."""
    names, effects, categories = explanation.names, explanation.elasticities, explanation.categories
    parts: list[tuple[Any, Callable[[Any], Iterator[Finding]]]] = [
        (explanation.fit, _verdict),
        (explanation.model, lambda part: _signs(part, names)),
        (effects, lambda part: _responses(part, part.price, names)),
        (explanation.importance, lambda part: _importance(part, names)),
        (effects, lambda part: _responses(part, _most_important(part), names)),
        (explanation.trade_offs, lambda part: _trade_offs(part, names)),
        (explanation.importance, lambda part: _all_categories(part, categories, names)),
        *((explanation.context, _context), (explanation.fit, _fit), (explanation.calibration, _calibration)),
    ]
    return tuple(finding for part, describe in parts if part is not None for finding in describe(part))


def _most_important(part: NumericEffects) -> str | None:
    """Return the most important numeric feature other than the price."""
    return next((table.column for table in part.tables if table.column != part.price), None)


def _verdict(part: FitQuality) -> Iterator[Finding]:
    """Yield a finding on whether the model predicts better than the best baseline."""
    if part.rival is None or part.baselines is None:
        return
    # 1. The paired difference of the model and its rival, one of which is the best of the comparison.
    own, rival = part.baselines[MODEL_LABEL], part.baselines[part.rival]
    other = _LOGITS.get(part.rival, part.rival)
    is_better = own.values["nll"] < rival.values["nll"]
    p_value = rival.p_value if is_better else own.p_value
    is_clear = p_value is not None and p_value < 1 - part.baselines.level
    # 2. In-sample scores support no verdict.
    scores = f"NLL {own.values['nll']:.3f}, {other} {rival.values['nll']:.3f} (lower is better)"
    p_text = "" if p_value is None else "; p < 0.001" if p_value < 0.001 else f"; p = {p_value:.3f}"
    folds = f"{other} is fitted to other parts of this table"
    if part.in_sample:
        if part.rival == "uniform":
            return
        text = f"Whether the model predicts better than {other} is unknown, because it was trained on these choices."
        yield Finding(text, f"in-sample {scores}; explain the model on other choices", "fit", warning=True)
    elif is_clear:
        text = f"The model predicts {'better' if is_better else 'worse'} than {other}."
        yield Finding(text, f"{scores}{p_text}; {folds}", "fit", warning=not is_better)
    else:
        yield Finding(
            f"The model predicts about as well as {other}: the difference is not significant.",
            f"{scores}{p_text}; {folds}",
            "fit",
        )


def _signs(part: ModelSummary, names: ColumnNames) -> Iterator[Finding]:
    """Yield findings on columns whose effect is against its expected sign."""
    for column, caveat in part.sign_caveats.items():
        figures = f"effect of a 10% increase in {names[column]}"
        yield Finding(f"{caveat[0].upper()}{caveat[1:]}.", figures, "model", warning=True)


def _responses(part: NumericEffects, column: str | None, names: ColumnNames) -> Iterator[Finding]:
    """Yield a finding on the response to one column, with the average response as its figures.

    The finding is about the alternative whose share changes most if its value rises by 10%. If shares at 10% more are
    not available, as for columns with negative values, it is about the average response to one more unit.
    """
    table = next((table for table in part.tables if table.column == column), None)
    if table is None:
        return
    own, other = table.rows[0].own, table.rows[0].other
    name, unit = names[table.column], names.unit(table.column) or "unit"
    changes = _changes(part.demand.get(table.column, {}))
    if changes:
        of, now, then = max(changes, key=lambda change: abs(change[2] - change[1]))
        size, verb = abs(then - now), "rises" if then > now else "falls"
        text = f"If the {name} of {of} rises by 10%, its share {verb} from {now:.1%} to {then:.1%}."
    elif table.kind == "elasticity":
        size = abs(own) / 10
        text = f"A 10% increase in {name} {_verb(own)} the share of an alternative by about {size:.1%} of its value."
    else:
        size = abs(own)
        text = f"One more {unit} of {name} {_verb(own)} the share of an alternative by about {size:.1%} of its value."
    if size >= _LEAST_CHANGE:
        kind = "elasticity" if table.kind == "elasticity" else "semi-elasticity"
        rivals = "" if other is None else f", for the other alternatives {number(other)}"
        figures = f"average {kind} {number(own)}{rivals}, over {part.sets:,} choice sets"
        yield Finding(text, figures, "elasticities")


def _verb(response: float) -> str:
    return "raises" if response > 0 else "lowers"


def _changes(curves: Mapping[str, DemandCurve]) -> list[tuple[str, float, float]]:
    """Return the share of each alternative now, and if its value rises by 10%."""
    return [
        (of, float(curve.now[0]), float(curve.shares[0, at]))
        for of, curve in curves.items()
        if curve.scaled
        for at in np.flatnonzero(np.isclose(curve.points, 1.1))
    ]


def _importance(part: Importance, names: ColumnNames) -> Iterator[Finding]:
    """Yield a finding on the columns with the largest effects."""
    significant = [row for row in part.rows if row.low > 0]
    if not significant:
        yield Finding(
            "No column has a significant effect: shuffling any one column hardly changes the predictions.",
            f"all 95% intervals include 0; {part.repeats} shuffles",
            "importance",
        )
        return
    first, *rest = significant
    next_columns = f", followed by {' and '.join(names[row.name] for row in rest[:2])}" if rest else ""
    loss = "NLL" if part.loss == "nll" else "misses"
    figures = ", ".join(f"{names[row.name]} {row.value:+.3f}" for row in significant[:3])
    yield Finding(
        f"{names[first.name]} has the largest effect{next_columns}.",
        f"increase in {loss} when shuffled: {figures}",
        "importance",
    )


def _all_categories(part: Importance, categories: AllCategories | None, names: ColumnNames) -> Iterator[Finding]:
    """Yield findings on the categories of significant columns, the most important column first."""
    tables = {table.column: table for table in (categories.tables if categories else ())}
    for row in part.rows:
        if row.low > 0 and row.name in tables:
            yield from _categories(names[row.name], tables[row.name].rows)


def _categories(column: str, rows: tuple[CategoryRow, ...]) -> Iterator[Finding]:
    """Yield a finding on the categories of one column that gain or lose significantly."""
    gains = [row for row in rows if row.is_significant and row.lift > 1][:2]
    loses = [row for row in rows[::-1] if row.is_significant and row.lift < 1][:2]
    if not gains and not loses:
        return
    parts = [
        f"{' and '.join(row.category for row in group)} {verb if len(group) > 1 else f'{verb}s'}"
        for group, verb in ((gains, "gain"), (loses, "lose"))
        if group
    ]
    figures = ", ".join(f"{r.category} {r.lift:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in (*gains, *loses))
    yield Finding(
        f"{column}: {', '.join(parts)}, all else equal.",
        f"share relative to an average category, with 95% intervals: {figures}",
        "categories",
    )


def _trade_offs(part: TradeOffs, names: ColumnNames) -> Iterator[Finding]:
    """Yield a finding on the most important trade-off with a clear sign."""
    # The members of an ensemble must agree on the sign; a single model has no interval.
    clear = [row for row in part.rows if row.odd < _MAX_ODD and (row.ends is None or row.ends[0] * row.ends[1] > 0)]
    if not clear:
        return
    row, reference = clear[0], part.reference
    unit, quantity = names.unit(row.column) or "unit", "less" if row.median < 0 else "more"
    size = f"{abs(row.median):.3g} {names.unit(reference)}".strip()
    ends = "" if row.ends is None else f"; {part.members} members: {number(row.ends[0])} to {number(row.ends[1])}"
    yield Finding(
        f"One {unit} {quantity} of {names[row.column]} is worth {size} of {names[reference]}.",
        f"median {number(row.median)}, quartiles {number(row.low)} to {number(row.high)}{ends}",
        "trade_offs",
    )


def _context(part: ContextSummary) -> Iterator[Finding]:
    """Yield a finding on whether the preference between two alternatives depends on the others."""
    search = part.search
    if part.has_no_effects:
        text = "The preference between two alternatives does not depend on the others, as in every logit (IIA)."
        figures = f"largest change in a log-ratio among {search.pairs:,} pairs: {part.strongest:.1g}"
    else:
        first = search.cases[0]
        text = (
            f"Preferences depend on the other alternatives on offer: in the strongest case, adding {first.removed} "
            f"changes the share of {first.i} against {first.j} from {first.share_without:.1%} to "
            f"{first.share_with:.1%}."
        )
        figures = (
            f"choice set {first.choice_set}; change in log-ratio {first.by_adding:+.2f} (mean absolute change over "
            f"{search.pairs:,} pairs: {search.mean:.3g})"
        )
    yield Finding(text, figures, "context")


def _fit(part: FitQuality) -> Iterator[Finding]:
    """Yield a finding on how often the most probable alternative is chosen."""
    right = part.report.top.get(1)
    if right is None:
        return
    chance = part.report.uniform["top_1"]
    in_sample = ", in-sample (on the training table)" if part.in_sample else ""
    yield Finding(
        f"People choose the model's favourite in {percent(right)} of the choice sets; random guessing would be "
        f"right in {percent(chance)}.",
        f"top-1 accuracy over {part.report.n_sets:,} choice sets{in_sample}",
        "fit",
    )


def _calibration(part: Calibration) -> Iterator[Finding]:
    """Yield a finding on whether the probabilities of the favourites are calibrated on average."""
    predicted, observed = (float(part.first.share @ v) for v in (part.first.predicted, part.first.observed))
    if abs(predicted - observed) <= _CALIBRATED_WITHIN:
        verdict = "The probabilities are well calibrated on average"
    elif predicted > observed:
        verdict = "The model is overconfident"
    else:
        verdict = "The model is underconfident"
    yield Finding(
        f"{verdict}: favourites have a mean probability of {percent(predicted)} and are chosen in "
        f"{percent(observed)} of the choice sets.",
        f"calibration error {100 * part.error:.1f} percentage points over {part.n_sets:,} choice sets",
        "calibration",
    )
