"""Measure, search for and map the context effects of a fitted model.

``measure`` computes how adding a third alternative c to {a, b} changes the share of a relative to b:

    effect = P(a | {a, b, c}) / (P(a | {a, b, c}) + P(b | {a, b, c})) - P(a | {a, b}).

The effect is 0 for a logit, regardless of c. Studies of human choices report these effects (Huber et al. 1982, Tversky
1972, Simonson 1989):

    attraction   c is worse than a but not than b     effect > 0    c makes a look good
    similarity   c is as good as a and resembles it   effect < 0    c is chosen instead of a
    compromise   a is between b and an extreme c      effect > 0    a becomes the middle option

``search`` finds the sets of a table in which one alternative has the largest effect on the preference between two
others, and ``preference_map_in_set`` maps this preference as the features of a third alternative vary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError, PcmcNetError
from pcmcnet.evaluation.predictions import Predictor, require_data
from pcmcnet.insight.axioms import ROUNDING_TOLERANCE
from pcmcnet.insight.order_effects import OrderEffects, order_effects
from pcmcnet.insight.preference_map import PreferenceMap, preference_map_in_set
from pcmcnet.insight.queries import (
    alternative_name,
    draw_sets,
    place_of,
    predict_sets,
    require_place,
    require_sampling,
    set_id_of,
    set_of,
)
from pcmcnet.insight.removals import (
    MIN_ALTERNATIVES,
    LogRatios,
    Removals,
    pair_share,
    predict_removals,
    sample_removals,
)
from pcmcnet.insight.table_summary import plain_values
from pcmcnet.reports.formats import ReportPartMixin, ToDictMixin, to_json
from pcmcnet.reports.frames import FrameMixin
from pcmcnet.reports.tables import TableMixin, markdown_table, text_table

# -- Context search ----------------------------------------------------------------------------------------------------
# The sets of a table in which one alternative changes the preference between two others.
#
# A case consists of a set, an alternative removed from it, and the two others whose log P(i) / P(j) changes most;
# adding the alternative back reverses the change. `removals` compares all pairs in one batch.


@dataclass(frozen=True, slots=True)
class ContextCase(ToDictMixin):
    """A choice set in which one alternative changes the log-ratio of two others.

    Attributes
    ----------
    choice_set
        Id of the set.
    removed, i, j
        Names of the removed alternative and of the two others.
    places
        Flat indices of the removed alternative, i and j in the columns of the table.
    log_ratio_with, log_ratio_without
        log P(i) / P(j) in the whole set, and without the removed alternative.
    share_with, share_without
        P(i) / (P(i) + P(j)) in the whole set, and without the removed alternative.
    """

    choice_set: Any
    removed: str
    i: str
    j: str
    places: tuple[int, int, int]
    log_ratio_with: float
    log_ratio_without: float
    share_with: float
    share_without: float
    _derived = ("by_removing", "by_adding")

    @property
    def by_removing(self) -> float:
        """Change in log P(i) / P(j) when the third alternative is removed."""
        return self.log_ratio_without - self.log_ratio_with

    @property
    def by_adding(self) -> float:
        """Change in log P(i) / P(j) when the third alternative is added."""
        return self.log_ratio_with - self.log_ratio_without


@dataclass(frozen=True, slots=True)
class ContextSearch(ToDictMixin, FrameMixin):
    """Result of :func:`search`: the strongest context effects in a table of choices.

    Attributes
    ----------
    model
        Name of the model class.
    cases
        The strongest cases in descending order.
    removals
        Number of removals examined, each of one alternative from one set.
    pairs
        Number of pairs (i, j) examined over all removals.
    questions
        Number of choice sets predicted.
    mean
        Mean absolute change in the log-ratio over all pairs.
    least
        Minimum probability: less probable alternatives were left out.
    """

    model: str
    cases: tuple[ContextCase, ...]
    removals: int
    pairs: int
    questions: int
    mean: float
    least: float = 0.01

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in case.to_dict().items() if name != "places"} for case in self.cases]

    def to_markdown(self) -> str:
        """Return the table and the summary line in Markdown."""
        return f"{markdown_table(self._cells())}\n\n{self._facts()}\n"

    def __str__(self) -> str:
        return f"{text_table(self._cells())}\n\n{self._facts()}"

    def _facts(self) -> str:
        return (
            f"{self.pairs:,} pairs of alternatives with a probability of at least {self.least:g}, in {self.removals:,} "
            f"sets with one alternative removed; mean |change in log P(i)/P(j)|: {self.mean:.3g}."
        )

    def _cells(self) -> list[list[str]]:
        heads = ["choice set", "removed", "i", "j", "log P(i)/P(j) with", "without", "by adding", "share of i with"]
        rows = [[*heads, "without"]]
        for c in self.cases:
            ratios = [f"{ratio:+.3f}" for ratio in (c.log_ratio_with, c.log_ratio_without, c.by_adding)]
            shares = [f"{share:.3f}" for share in (c.share_with, c.share_without)]
            rows.append([str(c.choice_set), c.removed, c.i, c.j, *ratios, *shares])
        return rows


def search(
    model: Predictor, data: Any, *, limit: int = 2000, seed: int = 0, top: int = 10, least: float = 0.01
) -> ContextSearch:
    """Find the sets in which one alternative has the largest effect on the preference between two others.

    For each set and removed alternative, a case is the pair (i, j) whose log-ratio changes most, ordered so that i
    gains from the removal relative to j.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    limit
        Maximum number of choice sets to predict (2,000 by default). A set that is drawn needs one prediction, plus one
        for each alternative removed from it. A table that needs fewer predictions is examined completely.
    seed
        Seed for drawing a sample of sets if ``limit`` is too small for all sets (0 by default).
    top
        Number of cases to return (10 by default).
    least
        Minimum probability in the whole set (0.01 by default): less probable alternatives are left out. The log-ratio
        of two alternatives that are hardly ever chosen can change a lot without any practical meaning.

    Returns
    -------
    ContextSearch
        The strongest cases in descending order.

    Raises
    ------
    InputError
        If no set has three alternatives, or no set has two alternatives with a probability of at least ``least``.
    ConfigError
        If a number is out of range.
    """
    require_sampling(limit=limit, top=top, seed=seed)
    require_number("least", least, low=0, high=1, open_high=True)
    data = require_data(model, data)
    rng = np.random.default_rng(seed)
    drawn = draw_sets(data, least=MIN_ALTERNATIVES, most=None, rng=rng)
    if not drawn.size:
        raise InputError("expected a choice set with at least three alternatives and a positive weight, found none.")
    removals = predict_removals(model, data, *sample_removals(data, drawn, limit=limit, rng=rng))
    ratios = removals.log_ratios(least)
    if not ratios.cases.size:
        raise InputError(
            f"no context effect can be measured in the {removals.questions} predicted sets: expected a set in which "
            f"two alternatives, besides the removed one, have probabilities of at least {least:g}. Pass a "
            f"smaller least, or a limit of at least 4."
        )
    size = removals.shift[ratios.up] - removals.shift[ratios.down]
    first = np.argsort(-size, kind="stable")[:top]
    return ContextSearch(
        model=type(model).__name__,
        cases=tuple(_case(data, removals, ratios, k) for k in first.tolist()),
        removals=len(removals.removed),
        pairs=int(ratios.pairs.sum()),
        questions=removals.questions,
        mean=float(ratios.sums.sum() / ratios.pairs.sum()),
        least=least,
    )


def _case(data: ChoiceData, removals: Removals, ratios: LogRatios, k: int) -> ContextCase:
    """Return the k-th case of the search."""
    i, j = int(ratios.up[k]), int(ratios.down[k])
    places = int(removals.removed[ratios.cases[k]]), int(removals.places[i]), int(removals.places[j])
    removed, first, second = (alternative_name(data, place) for place in places)
    return ContextCase(
        choice_set=set_id_of(data, places[0]),
        removed=removed,
        i=first,
        j=second,
        places=places,
        log_ratio_with=float(removals.log_with[i] - removals.log_with[j]),
        log_ratio_without=float(removals.log_without[i] - removals.log_without[j]),
        share_with=float(pair_share(removals.log_with[i], removals.log_with[j])),
        share_without=float(pair_share(removals.log_without[i], removals.log_without[j])),
    )


# -- Context effects ---------------------------------------------------------------------------------------------------

__all__ = [
    "ContextCase",
    "ContextEffectRow",
    "ContextEffectTable",
    "ContextSearch",
    "PreferenceMap",
    "measure",
    "place_of",
    "preference_map_in_set",
    "search",
]

Kind = Literal["attraction", "similarity", "compromise"]
EXPECTED_SIGNS: Mapping[Kind, int] = {"attraction": 1, "similarity": -1, "compromise": 1}


@dataclass(frozen=True, slots=True)
class ContextEffectRow(ToDictMixin):
    """Effect of a third alternative c on the share of a relative to b.

    Attributes
    ----------
    kind
        Kind of effect: "attraction", "similarity" or "compromise".
    a, b, c
        Names of the alternatives.
    share_without
        Share of a in {a, b}: P(a | {a, b}).
    share_with
        Share of a relative to b in {a, b, c}: P(a) / (P(a) + P(b)).
    effect
        Effect of c: ``share_with`` minus ``share_without``.
    expected
        Sign of the effect reported in the literature for this kind: 1 or -1.
    """

    kind: Kind
    a: str
    b: str
    c: str
    share_without: float
    share_with: float
    effect: float
    expected: int
    _derived = ("as_expected",)

    @property
    def as_expected(self) -> bool:
        """True if the effect has the expected sign."""
        return self.effect * self.expected > 0


@dataclass(frozen=True, slots=True)
class ContextEffectTable(ToDictMixin, TableMixin):
    """Result of :func:`measure`. For example, ``effects["attraction"]`` is the first row of the kind "attraction".

    Attributes
    ----------
    model
        Name of the model class.
    effects
        One row per third alternative, in the order of the input.
    """

    model: str
    effects: tuple[ContextEffectRow, ...]

    def __getitem__(self, kind: str) -> ContextEffectRow:
        """Return the first row with the given kind."""
        for effect in self.effects:
            if effect.kind == kind:
                return effect
        raise InputError(f"no effect of kind {kind!r} was measured.")

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [effect.to_dict() for effect in self.effects]

    def _cells(self) -> list[list[str]]:
        heads = ["kind", "a", "b", "c", "share of a without c", "with c", "effect", "expected"]
        rows = []
        for e in self.effects:
            figures = [f"{e.share_without:.4f}", f"{e.share_with:.4f}", f"{e.effect:+.4f}"]
            expected = ("+" if e.expected > 0 else "-") + (", yes" if e.as_expected else ", no")
            rows.append([e.kind, e.a, e.b, e.c, *figures, expected])
        return [heads, *rows]


def measure(
    model: Predictor, data: Any, a: int, b: int, thirds: Mapping[Kind, int] | Mapping[Kind, Sequence[int]]
) -> ContextEffectTable:
    """Measure the effect of third alternatives on the share of a relative to b.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    a, b
        Flat indices of two alternatives, as returned by :func:`pcmcnet.insight.queries.place_of`. The individual is
        taken from the choice set of a.
    thirds
        Mapping from each kind to the flat index of a third alternative of that kind, or to a list of such indices. The
        kind describes the third alternative relative to a: to measure a decoy for b, exchange a and b.

    Returns
    -------
    ContextEffectTable
        One row per third alternative.

    Raises
    ------
    InputError
        If an index is not in the table, or the model gives both a and b probability 0.
    ConfigError
        If a kind is unknown.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> from pcmcnet.models import Uniform
    >>> table = {"trip": [1, 1, 1], "took": [0, 1, 0], "price": [3.0, 4.0, 9.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> effects = measure(Uniform().fit(data), data, 0, 1, {"attraction": 2})
    >>> effects["attraction"].share_with, effects["attraction"].effect
    (0.5, 0.0)
    """
    data = require_data(model, data)
    a, b = require_place(data, a, "a"), require_place(data, b, "b")
    third_places: list[tuple[Kind, int]] = []
    for kind, places in thirds.items():
        require_word("kind", kind, get_args(Kind))
        several = np.atleast_1d(np.asarray(places, dtype=object))
        third_places += [(kind, require_place(data, place, kind)) for place in several]
    sets = [[a, b], *([a, b, c] for _, c in third_places)]
    log_p = predict_sets(model, data, sets, np.full(len(sets), set_of(data, a)))
    starts = np.concatenate([[0], 2 + 3 * np.arange(len(third_places))])
    log_a, log_b = log_p[starts], log_p[starts + 1]
    if np.isneginf(np.maximum(log_a, log_b)).any():
        raise InputError(f"{type(model).__name__} gives both a and b probability 0, so their shares are undefined.")
    shares = pair_share(log_a, log_b).tolist()
    names = alternative_name(data, a), alternative_name(data, b)
    effects = [
        ContextEffectRow(
            kind, *names, alternative_name(data, c), shares[0], with_c, with_c - shares[0], EXPECTED_SIGNS[kind]
        )
        for (kind, c), with_c in zip(third_places, shares[1:], strict=True)
    ]
    return ContextEffectTable(type(model).__name__, tuple(effects))


# -- Context summary ---------------------------------------------------------------------------------------------------
# The strongest context effects in a table, and a map of the strongest case.
#
# The map shows the strongest case of `search`, in which an alternative c changes the preference between i and j most.
# The two most important numeric features of c vary while all other alternatives of the set are present; the map shows
# the share of i relative to j. `order_effects` examines in a few sets how many alternatives act jointly.

MAP_CELLS = 24
ORDER_EFFECT_SETS = 5  # each needs up to 1,013 predictions, or 4,000 if the set is large


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextSummary(ReportPartMixin):
    """The strongest context effects in a table, with a map of the strongest effect.

    Attributes
    ----------
    search
        The strongest cases.
    alternatives
        Features of i, j and the removed alternative in the strongest case.
    features
        The two features that vary along the x and y axes of the map.
    map
        Map of the strongest case, or None if the map cannot be computed.
    orders
        Context effects by order, or None if they cannot be computed.
    """

    search: ContextSearch
    alternatives: Mapping[str, tuple[Any, ...]]
    features: tuple[str, str] | None = None
    map: PreferenceMap | None = None
    orders: OrderEffects | None = None

    def _frame_rows(self) -> list[dict[str, Any]]:
        return self.search._frame_rows()

    def _short(self) -> str:
        return f"strongest change in a log-ratio {self.strongest:.2f}"

    @property
    def strongest(self) -> float:
        """Largest absolute change in a log-ratio."""
        return max((abs(case.by_adding) for case in self.search.cases), default=0.0)

    @property
    def has_no_effects(self) -> bool:
        """True if all changes in log-ratios are within rounding error."""
        return self.strongest <= ROUNDING_TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON-compatible values."""
        map_values = None
        if self.map is not None:
            names = ("x", "y", "preference", "i", "j", "third", "without")
            map_values = {"features": self.features, **dict(zip(names, self.map, strict=True))}
        parts = {"search": self.search, "strongest": self.strongest, "map": map_values, "orders": self.orders}
        return {name: to_json(part) for name, part in parts.items()}


def context_summary(
    model: Predictor, data: ChoiceData, features: Sequence[str], *, limit: int = 2000, seed: int = 0
) -> ContextSummary:
    """Search for context effects, and map the strongest one over the first two features."""
    result = search(model, data, limit=limit, seed=seed)
    removed, i, j = result.cases[0].places
    values_by_column = plain_values(data.features, np.array([i, j, removed]))
    summary = ContextSummary(search=result, alternatives={name: tuple(v) for name, v in values_by_column.items()})
    if summary.has_no_effects:
        return summary
    with suppress(PcmcNetError):  # for example probabilities of 0; the search result is still useful
        summary = replace(summary, orders=order_effects(model, data, ORDER_EFFECT_SETS, seed))
    if len(features) >= 2:
        pair = (features[0], features[1])
        with suppress(PcmcNetError):  # for example a missing value; the search result is still useful
            preferences = preference_map_in_set(model, data, i, j, removed, pair, others=True, cells=MAP_CELLS)
            summary = replace(summary, features=pair, map=preferences)
    return summary
