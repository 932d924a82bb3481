"""Which choice sets to ask a model about, and the answers.

An alternative is known by its *place*, from 0 to N - 1 in the flat columns of a table. All questions of a kind go to
the model in one call: places in sets (Q,) -> log-probabilities (sum of sizes,), set after set. What it is called in a
report is found in ``alternative_names``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, predicted_log_p
from pcmcnet.insight.what_if import compose


def ask(model: Predictor, data: ChoiceData, sets: Sequence[ArrayLike], individuals: ArrayLike) -> Floats:
    """Return the log-probabilities of sets that :func:`compose` makes, one for each place given, in float64."""
    return predicted_log_p(model, compose(data, sets, individuals)) if len(sets) else np.empty(0)


def ask_alike(model: Predictor, data: ChoiceData, sets: Ints, individuals: Ints) -> Floats:
    """Ask about sets of one size: places (Q, n) -> log-probabilities (Q, n)."""
    return ask(model, data, list(sets), individuals).reshape(sets.shape)


def require_place(data: ChoiceData, place: object, what: str) -> int:
    """Return the place of an alternative, refusing what is none."""
    place = int(place) if isinstance(place, np.integer) else place
    most = len(data.rows) - 1
    if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place <= most:
        raise InputError(
            f"{what}: expected the place of an alternative, from 0 to {most}, got {place!r}; see place_of."
        )
    return place


def position_of(data: ChoiceData, choice_set: Any) -> int:
    """Find the position of a choice set by its id, which may have been read as text."""
    found = np.flatnonzero(data.set_ids == choice_set)
    if not found.size:
        found = np.flatnonzero(data.set_ids.astype(str) == str(choice_set))
    if found.size != 1:
        some = ", ".join(map(str, data.set_ids[:3].tolist()))
        raise InputError(f"choice set {spoken(choice_set)}: not among the {len(data)} of the table, such as {some}.")
    return int(found[0])


def place_of(data: ChoiceData, choice_set: Any, alternative: Any) -> int:
    """Find the place of an alternative by the id of its set and its label.

    In a table without labels it is found by its row in the table, such as 3, or its name in a report, such as "#2".

    Examples
    --------
    >>> table = {"trip": [8, 8, 9, 9], "mode": ["car", "bus", "car", "bus"], "price": [3.0, 4.0, 9.0, 2.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", alternative="mode", features=["price"])
    >>> place_of(data, 9, "bus")
    3
    """
    inside = members(data, position_of(data, choice_set))
    names = data.rows[inside] if data.labels is None else data.labels.take(inside).plain()
    numbered = re.fullmatch(r"#(\d+)( .*)?", alternative) if isinstance(alternative, str) else None
    if data.labels is None and numbered is not None:
        there = inside[np.arange(1, len(inside) + 1) == int(numbered[1])]
    else:
        there = inside[names == alternative]
    if there.size != 1:
        noun = "row" if data.labels is None else "label"
        raise InputError(
            f"choice set {spoken(choice_set)}: expected one alternative with the {noun} {spoken(alternative)}, found "
            f"{there.size} among {', '.join(map(str, names[:5].tolist()))}{', ...' if len(names) > 5 else ''}."
        )
    return int(there[0])


def members(data: ChoiceData, position: int) -> Ints:
    """Places of the alternatives of a set, given by its position."""
    return np.arange(data.offsets[position], data.offsets[position + 1])


def set_of(data: ChoiceData, places: ArrayLike) -> Ints:
    """Positions of the sets that places belong to."""
    found: Ints = np.searchsorted(data.offsets, np.asarray(places, np.int64), side="right") - 1
    return found


def spoken(value: Any) -> str:
    """Write a value as Python does, a number of numpy's as a plain one."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def id_of(data: ChoiceData, place: int) -> Any:
    """Return the id of an alternative's choice set as a plain number or string."""
    value = data.set_ids[int(set_of(data, place))]
    return value.item() if isinstance(value, np.generic) else value


def some_sets(data: ChoiceData, *, least: int, most: int | None, rng: np.random.Generator) -> Ints:
    """Draw up to ``most`` sets of at least ``least`` alternatives and a weight above 0; positions in random order."""
    fit = np.flatnonzero((data.sizes >= least) & (data.weights > 0))
    return rng.permutation(fit)[:most]


def require_sampling(**counts: object) -> None:
    """Refuse numbers of questions, sets or cases that are no whole numbers above 0, and a seed below 0."""
    for name, count in counts.items():
        if name == "seed":
            require_number(name, count, whole=True, low=0, high=2**63 - 1)
        else:
            require_number(name, count, whole=True, low=1)
