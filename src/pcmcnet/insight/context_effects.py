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
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from pcmcnet.checks import require_word
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, require_data
from pcmcnet.insight.alternative_names import name_of
from pcmcnet.insight.context_search import Case, Search, search
from pcmcnet.insight.preference_map import PreferenceMap, preference_map_in_set
from pcmcnet.insight.questions import ask, place_of, require_place, set_of
from pcmcnet.insight.removals import share
from pcmcnet.reports.tables import PrintsAsTable

__all__ = [
    "Case",
    "Effect",
    "Effects",
    "PreferenceMap",
    "Search",
    "measure",
    "place_of",
    "preference_map_in_set",
    "search",
]

Kind = Literal["attraction", "similarity", "compromise"]
EXPECTED: Mapping[Kind, int] = {"attraction": 1, "similarity": -1, "compromise": 1}


@dataclass(frozen=True, slots=True)
class Effect:
    """What one third does to the share of a against b; alternatives are named by label, or by table row."""

    kind: Kind
    a: str
    b: str
    c: str
    share_without: float  # P(a | {a, b})
    share_with: float  # P(a) / (P(a) + P(b)) in {a, b, c}
    effect: float
    expected: int  # the sign that the kind is known for

    @property
    def as_expected(self) -> bool:
        """Whether the effect has the expected sign."""
        return self.effect * self.expected > 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "as_expected": self.as_expected}


@dataclass(frozen=True, slots=True)
class Effects(PrintsAsTable):
    """Effects in the order in which their thirds were given. Prints as a table."""

    model: str
    effects: tuple[Effect, ...]

    def __getitem__(self, kind: str) -> Effect:
        """Return the first effect of a kind."""
        for effect in self.effects:
            if effect.kind == kind:
                return effect
        raise InputError(f"no third of the kind {kind!r} was given.")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        return {"model": self.model, "effects": [effect.to_dict() for effect in self.effects]}

    def _cells(self) -> list[list[str]]:
        heads = ["kind", "a", "b", "c", "share of a without c", "with c", "effect", "expected"]
        rows = [
            [e.kind, e.a, e.b, e.c, f"{e.share_without:.4f}", f"{e.share_with:.4f}", f"{e.effect:+.4f}", _sign(e)]
            for e in self.effects
        ]
        return [heads, *rows]


def measure(
    model: Predictor, data: Any, a: int, b: int, thirds: Mapping[Kind, int] | Mapping[Kind, Sequence[int]]
) -> Effects:
    """Measure what each of several thirds does to the share of a against b.

    Parameters
    ----------
    model
        Any fitted model; also an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that the model's schema reads.
    a, b
        Places of two alternatives in the flat columns of ``data``; see :func:`pcmcnet.insight.questions.place_of`.
        The individual is that of the set of a.
    thirds
        Kind -> place of a third of that kind, or places of several. The kind is seen from a: a decoy of b is one of
        a where a and b are exchanged.

    Returns
    -------
    Effects

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
    log_p = ask(model, data, sets, np.full(len(sets), set_of(data, a)))
    starts = np.concatenate([[0], 2 + 3 * np.arange(len(asked))])
    log_a, log_b = log_p[starts], log_p[starts + 1]
    if np.isneginf(np.maximum(log_a, log_b)).any():
        raise InputError(f"{type(model).__name__} gives both a and b probability 0, so that neither has a share.")
    shares = share(log_a, log_b).tolist()
    names = name_of(data, a), name_of(data, b)
    effects = [
        Effect(kind, *names, name_of(data, c), shares[0], with_c, with_c - shares[0], EXPECTED[kind])
        for (kind, c), with_c in zip(asked, shares[1:], strict=True)
    ]
    return Effects(type(model).__name__, tuple(effects))


def _sign(effect: Effect) -> str:
    return ("+" if effect.expected > 0 else "-") + (", yes" if effect.as_expected else ", no")
