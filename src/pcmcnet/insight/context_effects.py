"""Context effects of a fitted model: measured on thirds that are given, searched for in a table, or drawn as a map.

Measured here: what adding a third alternative c to {a, b} does to the share of a against b,

    effect = P(a | {a, b, c}) / (P(a | {a, b, c}) + P(b | {a, b, c})) - P(a | {a, b}),

0 for a logit, whatever c is. By the kind of c, people show (Huber et al., 1982; Tversky, 1972; Simonson, 1989)

    attraction   c is worse than a, and not than b    effect > 0    c makes a look good
    similarity   c is as good as a and resembles it   effect < 0    c is chosen in place of a
    compromise   a is between b and an extreme c      effect > 0    a becomes the middle

``search`` finds the sets of a table in which an alternative matters most to two others, and ``preference_map_in_set``
lets a third move.
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
from pcmcnet.insight.removals import MIN_ALTERNATIVES, LogRatios, Removals, predict_removals, sample_removals, share
from pcmcnet.insight.table_summary import plain_values
from pcmcnet.reports.formats import ReportPartMixin, ToDictMixin, to_json
from pcmcnet.reports.tables import TableMixin, markdown_table, text_table

# -- Context search ----------------------------------------------------------------------------------------------------
# Where in a table does context matter: the sets in which one alternative changes the preference between two others.
#
# A case is a set, an alternative taken out of it, and the two others whose log P(i) / P(j) changes most by that; adding
# it back changes it by as much the other way. See `removals` for how all pairs are looked at in one batch.


@dataclass(frozen=True, slots=True)
class ContextCase(ToDictMixin):
    """A set in which one alternative changes the log-ratio of two others."""

    choice_set: Any  # its id
    removed: str  # alternatives by their names, as name_of makes them
    i: str
    j: str
    places: tuple[int, int, int]  # of removed, i and j
    log_ratio_with: float  # log P(i) / P(j) in the whole set
    log_ratio_without: float
    share_with: float  # P(i) / (P(i) + P(j))
    share_without: float
    _derived = ("by_removing", "by_adding")

    @property
    def by_removing(self) -> float:
        """Change of the log-ratio when the alternative leaves."""
        return self.log_ratio_without - self.log_ratio_with

    @property
    def by_adding(self) -> float:
        """Change of the log-ratio when it comes back."""
        return self.log_ratio_with - self.log_ratio_without


@dataclass(frozen=True, slots=True)
class ContextSearch(ToDictMixin):
    """The strongest cases, the strongest first, and what they were found among. Prints as a table."""

    model: str
    cases: tuple[ContextCase, ...]
    removals: int  # (set, removed) looked at
    pairs: int  # (set, removed, i, j)
    questions: int  # choice sets that the model was asked about
    mean: float  # of |change of the log-ratio| over all pairs
    least: float = 0.01  # probability below which alternatives were left out

    def to_markdown(self) -> str:
        """Return table and facts in Markdown."""
        return f"{markdown_table(self._cells())}\n\n{self._facts()}\n"

    def __str__(self) -> str:
        return f"{text_table(self._cells())}\n\n{self._facts()}"

    def _facts(self) -> str:
        return (
            f"{self.pairs:,} pairs, each alternative with a probability of at least {self.least:g}, in "
            f"{self.removals:,} sets with one alternative removed; mean |change of log P(i)/P(j)|: {self.mean:.3g}."
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
    """Look for sets in which one alternative changes the preference between two others most.

    Of each set and alternative removed, the pair whose log-ratio changes most is a case; i is the one that gains by
    the removal, and so loses by the alternative's presence.

    Parameters
    ----------
    model, data
        Any fitted model, and choice data or a table that its schema reads.
    limit
        Choice sets to ask about, at most: one for each set drawn, and one for each alternative removed from it. A
        table that needs no more is looked at as a whole.
    seed
        Which sets are drawn where the limit does not allow for all.
    top
        Cases to return.
    least
        Probability in the whole set below which an alternative is left out: the log-ratio of two that nobody chooses
        may change much and mean nothing.

    Raises
    ------
    InputError
        When no set has three alternatives, or none has two that are probable enough.
    """
    require_sampling(limit=limit, top=top, seed=seed)
    require_number("least", least, low=0, high=1, open_high=True)
    data = require_data(model, data)
    rng = np.random.default_rng(seed)
    drawn = draw_sets(data, least=MIN_ALTERNATIVES, most=None, rng=rng)
    if not drawn.size:
        raise InputError("no choice set has three alternatives and a weight above 0: there is no third to take out.")
    found = predict_removals(model, data, *sample_removals(data, drawn, limit=limit, rng=rng))
    ratios = found.log_ratios(least)
    if not ratios.cases.size:
        raise InputError(
            f"no case among {found.questions} questions: a set of three alternatives, two of them with probabilities "
            f"of at least {least:g} beside the one removed, is needed, and a limit of at least 4."
        )
    size = found.shift[ratios.up] - found.shift[ratios.down]
    first = np.argsort(-size, kind="stable")[:top]
    return ContextSearch(
        model=type(model).__name__,
        cases=tuple(_case(data, found, ratios, k) for k in first.tolist()),
        removals=len(found.removed),
        pairs=int(ratios.pairs.sum()),
        questions=found.questions,
        mean=float(ratios.sums.sum() / ratios.pairs.sum()),
        least=least,
    )


def _case(data: ChoiceData, found: Removals, ratios: LogRatios, k: int) -> ContextCase:
    """Describe the k-th case."""
    i, j = int(ratios.up[k]), int(ratios.down[k])
    places = int(found.removed[ratios.cases[k]]), int(found.places[i]), int(found.places[j])
    removed, first, second = (alternative_name(data, place) for place in places)
    return ContextCase(
        choice_set=set_id_of(data, places[0]),
        removed=removed,
        i=first,
        j=second,
        places=places,
        log_ratio_with=float(found.log_with[i] - found.log_with[j]),
        log_ratio_without=float(found.log_without[i] - found.log_without[j]),
        share_with=float(share(found.log_with[i], found.log_with[j])),
        share_without=float(share(found.log_without[i], found.log_without[j])),
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
    """What one third does to the share of a against b; alternatives are named by label, or by table row."""

    kind: Kind
    a: str
    b: str
    c: str
    share_without: float  # P(a | {a, b})
    share_with: float  # P(a) / (P(a) + P(b)) in {a, b, c}
    effect: float
    expected: int  # the sign that the kind is known for
    _derived = ("as_expected",)

    @property
    def as_expected(self) -> bool:
        """Whether the effect has the expected sign."""
        return self.effect * self.expected > 0


@dataclass(frozen=True, slots=True)
class ContextEffectTable(ToDictMixin, TableMixin):
    """Effects in the order in which their thirds were given. Prints as a table."""

    model: str
    effects: tuple[ContextEffectRow, ...]

    def __getitem__(self, kind: str) -> ContextEffectRow:
        """Return the first effect of a kind."""
        for effect in self.effects:
            if effect.kind == kind:
                return effect
        raise InputError(f"no third of the kind {kind!r} was given.")

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
    """Measure what each of several thirds does to the share of a against b.

    Parameters
    ----------
    model
        Any fitted model; also an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that the model's schema reads.
    a, b
        Places of two alternatives in the flat columns of ``data``; see :func:`pcmcnet.insight.queries.place_of`.
        The individual is that of the set of a.
    thirds
        Kind -> place of a third of that kind, or places of several. The kind is seen from a: a decoy of b is one of
        a where a and b are exchanged.

    Raises
    ------
    InputError
        When a place is none of the table's, or the model gives a and b probability 0.
    ConfigError
        When a kind is unknown.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> from pcmcnet.models import Uniform
    >>> table = {"trip": [1, 1, 1], "took": [0, 1, 0], "price": [3.0, 4.0, 9.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> found = measure(Uniform().fit(data), data, 0, 1, {"attraction": 2})
    >>> found["attraction"].share_with, found["attraction"].effect
    (0.5, 0.0)
    """
    data = require_data(model, data)
    a, b = require_place(data, a, "a"), require_place(data, b, "b")
    asked: list[tuple[Kind, int]] = []
    for kind, places in thirds.items():
        require_word("kind", kind, get_args(Kind))
        several = np.atleast_1d(np.asarray(places, dtype=object))
        asked += [(kind, require_place(data, place, kind)) for place in several]
    sets = [[a, b], *([a, b, c] for _, c in asked)]
    log_p = predict_sets(model, data, sets, np.full(len(sets), set_of(data, a)))
    starts = np.concatenate([[0], 2 + 3 * np.arange(len(asked))])
    log_a, log_b = log_p[starts], log_p[starts + 1]
    if np.isneginf(np.maximum(log_a, log_b)).any():
        raise InputError(f"{type(model).__name__} gives both a and b probability 0, so that neither has a share.")
    shares = share(log_a, log_b).tolist()
    names = alternative_name(data, a), alternative_name(data, b)
    effects = [
        ContextEffectRow(
            kind, *names, alternative_name(data, c), shares[0], with_c, with_c - shares[0], EXPECTED_SIGNS[kind]
        )
        for (kind, c), with_c in zip(asked, shares[1:], strict=True)
    ]
    return ContextEffectTable(type(model).__name__, tuple(effects))


# -- Context summary ---------------------------------------------------------------------------------------------------
# Where context matters most in a table, and a map of the strongest case.
#
# The case is the strongest one of `search`: an alternative c that changes the preference between i and j most. The map
# lets c move in the two most important numeric features, with all others of the set present, and shows the share of i
# against j. How many alternatives act together is looked at in a few sets (`order_effects`).

MAP_CELLS = 24
ORDER_EFFECT_SETS = 5  # whose log-odds are taken apart: up to 1,013 questions, or 4,000 where sets are large, for each


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextSummary(ReportPartMixin):
    """The strongest cases, and the map of the first."""

    search: ContextSearch
    alternatives: Mapping[str, tuple[Any, ...]]  # features of i, j and the one removed, in the strongest case
    features: tuple[str, str] | None = None  # of the map, along x and y
    map: PreferenceMap | None = None
    orders: OrderEffects | None = None

    def _short(self) -> str:
        return f"strongest change of a log-ratio {self.strongest:.2f}"

    @property
    def strongest(self) -> float:
        """The largest |change of a log-ratio|."""
        return max((abs(case.by_adding) for case in self.search.cases), default=0.0)

    @property
    def has_no_effects(self) -> bool:
        """Whether all changes are rounding."""
        return self.strongest <= ROUNDING_TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        drawn = None
        if self.map is not None:
            names = ("x", "y", "preference", "i", "j", "third", "without")
            drawn = {"features": self.features, **dict(zip(names, self.map, strict=True))}
        parts = {"search": self.search, "strongest": self.strongest, "map": drawn, "orders": self.orders}
        return {name: to_json(part) for name, part in parts.items()}


def context_summary(
    model: Predictor, data: ChoiceData, features: Sequence[str], *, limit: int = 2000, seed: int = 0
) -> ContextSummary:
    """Search for context effects, and map the strongest in the first two numeric features that admit it."""
    found = search(model, data, limit=limit, seed=seed)
    removed, i, j = found.cases[0].places
    named = plain_values(data.features, np.array([i, j, removed]))
    summary = ContextSummary(search=found, alternatives={name: tuple(values) for name, values in named.items()})
    if summary.has_no_effects:
        return summary
    with suppress(PcmcNetError):  # such as probabilities of 0: the cases stand alone
        summary = replace(summary, orders=order_effects(model, data, ORDER_EFFECT_SETS, seed))
    if len(features) >= 2:
        pair = (features[0], features[1])
        with suppress(PcmcNetError):  # such as a feature that is missing there: the cases stand without a map
            drawn = preference_map_in_set(model, data, i, j, removed, pair, others=True, cells=MAP_CELLS)
            summary = replace(summary, features=pair, map=drawn)
    return summary
