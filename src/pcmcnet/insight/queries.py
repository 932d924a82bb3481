"""Which choice sets to ask a model about, and the answers.

An alternative is known by its *place*, from 0 to N - 1 in the flat columns of a table. All questions of a kind go to
the model in one call: places in sets (Q,) -> log-probabilities (sum of sizes,), set after set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import MISSING_CODE, Categorical, Column, Contents, Numeric, take
from pcmcnet.data.columns.ragged import spread
from pcmcnet.data.kinds import KINDS
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.predictions import Predictor, predicted_log_p
from pcmcnet.reports.tables import number

# -- Alternative names -------------------------------------------------------------------------------------------------
# What an alternative is called in a report: its label, or what tells it apart from the others of its set.
#
# In a table without labels it is called by its number among those on offer in its set, from 1 on in the order of the
# table, and by its first category. Where others of the set have that category too, the column comes in that tells most
# of them apart, and a third one where two do not suffice: #2 (A7/A7), #2 (A7/A7, 219 EUR), #2 (A7/A7, 219 EUR, stops
# 1). A table without categories names numbers, and one without numbers the beginning of a text. Units are those of the
# schema; one that several columns have does not stand for the name.

_MAX_CATEGORY_LENGTH = 24  # letters of a category in a name
_MAX_NAME_COLUMNS = 3  # columns in a name


def alternative_name(data: ChoiceData, place: int) -> str:
    """Name an alternative, given by its place from 0 to N - 1 in the flat columns of a table."""
    if data.labels is not None:
        label: str = data.labels.categories[int(data.labels.codes[place])]
        return label
    inside = places_in_set(data, int(set_of(data, place)))
    first = f"#{place - int(inside[0]) + 1}"
    words = [_word(data, name, place) for name in distinguishing_columns(data, inside)]
    said = ", ".join(word for word in words if word) or _text(data, place)
    return f"{first} ({said})" if said else first


def distinguishing_columns(data: ChoiceData, inside: Ints) -> list[str]:
    """Choose the columns that name the alternatives of a set, given by their places."""
    codes = {name: found for name in data.features if (found := _codes(data, name, inside)) is not None}
    named = [name for name in codes if isinstance(data.features[name], Categorical)]
    chosen = named[:1]
    groups = codes[chosen[0]] if chosen else np.zeros(len(inside), np.int64)
    while len(chosen) < _MAX_NAME_COLUMNS and (not chosen or len(np.unique(groups)) < len(inside)):
        apart = {n: groups * (int(code.max()) + 1) + code for n, code in codes.items() if n not in chosen}
        best = max(apart, key=lambda name: len(np.unique(apart[name])), default=None)  # the first of equals
        if best is None or (chosen and len(np.unique(apart[best])) == len(np.unique(groups))):
            break
        chosen, groups = [*chosen, best], apart[best]
    return chosen


def _codes(data: ChoiceData, name: str, inside: Ints) -> Ints | None:
    """Number the values of a column within a set; None where some are missing, or it holds contents."""
    column = data.features[name]
    if isinstance(column, Categorical):
        return column.codes[inside].astype(np.int64)
    if not isinstance(column, Numeric) or np.isnan(column.values[inside]).any():
        return None
    found: Ints = np.unique(column.values[inside], return_inverse=True)[1]
    return found


def _word(data: ChoiceData, name: str, place: int) -> str:
    column = data.features[name]
    if isinstance(column, Categorical):
        return _cut(column.categories[int(column.codes[place])])
    assert isinstance(column, Numeric)
    names, value = data.schema.names, number(float(column.values[place]))
    alone = sum(names.unit(other) == names.unit(name) for other in data.features) == 1
    return names.amount(name, value) if alone else f"{names[name]} {value} {names.unit(name)}".rstrip()


def _text(data: ChoiceData, place: int) -> str:
    """Return the beginning of the first text."""
    for column in data.features.values():
        if isinstance(column, Contents) and KINDS[column.kind].is_name and column.codes[place] != MISSING_CODE:
            return _cut(str(column.table[column.codes[place]]))
    return ""


def _cut(word: str) -> str:
    return word if len(word) <= _MAX_CATEGORY_LENGTH else f"{word[: _MAX_CATEGORY_LENGTH - 1]}…"


# -- What if -----------------------------------------------------------------------------------------------------------
# Choice sets that were never observed: a table's alternatives in other company, or with other values.
#
# `compose` takes alternatives out of sets, copies them, or puts them together anew; `with_alternatives` does so for all
# sets of a table at once, and `with_values` changes a column. The results are choice data like any other, of which
# every model can be asked. Their choices are unknown, but for `with_values`, which leaves them as they are.


def compose_sets(data: ChoiceData, sets: Sequence[ArrayLike], individuals: ArrayLike) -> ChoiceData:
    """Make choice sets out of the alternatives of a table; they are numbered from 0.

    For each new set, ``sets`` has the places of its alternatives, in which a place may occur more than once, and
    ``individuals`` the position of the set whose individual, kept columns and weight it gets.

    Examples
    --------
    >>> table = {"trip": [1, 1, 1], "took": [0, 1, 0], "price": [3.0, 4.0, 9.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> pair = compose_sets(data, [[0, 2], [1, 1, 2]], [0, 0])
    >>> pair.sizes.tolist(), pair.features["price"].values.tolist()
    ([2, 3], [3.0, 9.0, 4.0, 4.0, 9.0])
    """
    who = np.asarray(individuals, np.int64)
    parts = [np.asarray(part, np.int64) for part in sets]
    if len(who) != len(parts):
        raise InputError(f"expected an individual for each of {len(parts)} sets, got {len(who)}.")
    if any(part.size == 0 for part in parts):
        raise InputError("a choice set needs at least one alternative.")
    places = np.concatenate(parts) if parts else np.empty(0, np.int64)
    for what, index, most in (("places", places, len(data.rows)), ("individuals", who, len(data))):
        if index.size and not (index.min() >= 0 and index.max() < most):
            raise InputError(f"{what}: expected numbers from 0 to {most - 1}, got {index.min()} to {index.max()}.")
    people = replace(
        data,
        set_ids=np.arange(len(parts)),
        weights=data.weights[who],
        individual=take(data.individual, who),
        keep=take(data.keep, who),
    )
    return with_alternatives(people, places, np.array([len(part) for part in parts], np.int64))


def with_alternatives(data: ChoiceData, places: Ints, sizes: Ints) -> ChoiceData:
    """Offer other alternatives in each set: places (M,) in the flat columns, set after set, and how many in each (S,).

    The sets keep their ids, individuals, kept columns and weights; their choices are unknown.
    """
    return replace(
        data,
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        chosen=None,
        features=take(data.features, places),
        labels=None if data.labels is None else data.labels.take(places),
        rows=np.arange(len(places)),
        hidden_rows=np.empty(0, np.int64),
        hidden_sets=np.empty(0, np.int64),
    )


def with_values(data: ChoiceData, column: str, values: ArrayLike) -> ChoiceData:
    """Change one column: a feature, given for all N alternatives, or a column of the individual, for all S sets.

    Categories that the table does not know are as good as any: a model takes them for unseen.
    """
    for role in ("features", "individual"):
        columns = getattr(data, role)
        if column in columns:
            changed = _column(columns[column], np.asarray(values), column)
            new: dict[str, Any] = {role: {**columns, column: changed}}
            return replace(data, **new)
    known = [*data.features, *data.individual]
    raise InputError(f"no column {column!r} among features and individual columns." + did_you_mean(column, known))


def _column(before: Column, values: NDArray[Any], name: str) -> Column:
    if values.shape != (len(before),):
        raise InputError(f"column {name!r}: expected {len(before)} values, got shape {values.shape}.")
    if isinstance(before, Numeric):
        numbers = values.astype(np.float32)
        if not np.isfinite(numbers[~np.isnan(before.values)]).all():
            raise InputError(f"column {name!r}: expected finite numbers.")
        return Numeric(numbers)
    if isinstance(before, Contents):
        raise InputError(f"column {name!r} is of kind {before.kind}: only numbers and categories can be changed.")
    categories = tuple(dict.fromkeys([*before.categories, *map(str, values)]))
    place = {category: k for k, category in enumerate(categories)}
    codes: Ints = np.array([place[str(value)] for value in values], np.int64)
    return Categorical(codes.astype(np.int32), categories)


# -- Questions ---------------------------------------------------------------------------------------------------------


def predict_sets(model: Predictor, data: ChoiceData, sets: Sequence[ArrayLike], individuals: ArrayLike) -> Floats:
    """Return the log-probabilities of sets that :func:`compose_sets` makes, one for each place given, in float64."""
    return predicted_log_p(model, compose_sets(data, sets, individuals)) if len(sets) else np.empty(0)


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
        raise InputError(
            f"choice set {plain_repr(choice_set)}: not among the {len(data)} of the table, such as {some}."
        )
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
    inside = places_in_set(data, position_of(data, choice_set))
    names = data.rows[inside] if data.labels is None else data.labels.take(inside).plain()
    numbered = re.fullmatch(r"#(\d+)( .*)?", alternative) if isinstance(alternative, str) else None
    if data.labels is None and numbered is not None:
        there = inside[np.arange(1, len(inside) + 1) == int(numbered[1])]
    else:
        there = inside[names == alternative]
    if there.size != 1:
        noun = "row" if data.labels is None else "label"
        raise InputError(
            f"choice set {plain_repr(choice_set)}: expected one alternative with the {noun} {plain_repr(alternative)}, found "
            f"{there.size} among {', '.join(map(str, names[:5].tolist()))}{', ...' if len(names) > 5 else ''}."
        )
    return int(there[0])


def places_in_set(data: ChoiceData, position: int) -> Ints:
    """Places of the alternatives of a set, given by its position."""
    return np.arange(data.offsets[position], data.offsets[position + 1])


def set_of(data: ChoiceData, places: ArrayLike) -> Ints:
    """Positions of the sets that places belong to."""
    found: Ints = np.searchsorted(data.offsets, np.asarray(places, np.int64), side="right") - 1
    return found


def plain_repr(value: Any) -> str:
    """Write a value as Python does, a number of numpy's as a plain one."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def set_id_of(data: ChoiceData, place: int) -> Any:
    """Return the id of an alternative's choice set as a plain number or string."""
    value = data.set_ids[int(set_of(data, place))]
    return value.item() if isinstance(value, np.generic) else value


def draw_sets(data: ChoiceData, *, least: int, most: int | None, rng: np.random.Generator) -> Ints:
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


# -- Scales ------------------------------------------------------------------------------------------------------------
# Which numbers have a zero that means something, so that one per cent more of them does, too.
#
# A price, a time on the way or a number of stops begins at nothing; a clock time, a calendar year or an identifier does
# not: 1% more than 8 o'clock is no answer to any question. Such a column has no elasticity. What a column is, is known
#
#   by its unit, where the schema declares one: "clock", "calendar year", "code" or "id" have no zero, all others have;
#     else by its name and its values:
#
#     identifier      whole numbers, and the name ends in id, code, nr, no, number, key or index
#     calendar year   whole numbers from 1800 to 2200, and year is in the name
#     clock time      0 to 24 hours, 1,440 minutes or 86,400 seconds, and the name speaks of the time or hour of a
#                     departure, arrival, start or end, or of the day; not of a time before, until or since one

_UNITS = {"clock": "clock time", "calendar year": "calendar year", "code": "identifier", "id": "identifier"}
_WHY = {
    "clock time": "is a clock time: one per cent more of it means nothing",
    "calendar year": "is a calendar year: one per cent more of it means nothing",
    "identifier": "names something by a number: more of it means nothing",
}
_IDENTIFIERS = {"id", "code", "nr", "no", "number", "key", "index", "idx"}
_MOMENTS = {"dep", "departure", "arr", "arrival", "start", "begin", "end", "day", "clock"}
_CLOCKS = {"time", "hour", "clock"}
_SPANS = {"to", "until", "till", "before", "since", "from", "after", "duration", "delay", "lead", "days"}
_DAY = 86_400  # seconds
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def why_no_elasticity(data: ChoiceData, name: str) -> str | None:
    """Say why a numeric feature has no elasticity; None where it has one.

    Examples
    --------
    >>> table = {"trip": [1, 1], "price": [3.0, 4.5], "depTime": [480, 615]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", features=["price", "depTime"])
    >>> no_elasticity(data, "depTime"), no_elasticity(data, "price")
    ('is a clock time: one per cent more of it means nothing', None)
    """
    column = data.features[name]
    assert isinstance(column, Numeric)
    words = data.schema.named.get(name)
    unit = "" if words is None else words.unit.strip().lower()
    found = _UNITS.get(unit) if unit else _guess(name, column.values[~np.isnan(column.values)].astype(np.float64))
    return None if found is None else _WHY[found]


def _guess(name: str, values: Floats) -> str | None:
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or not len(values):
        return None
    whole = bool((values == np.round(values)).all())
    low, high = float(values.min()), float(values.max())
    if whole and words[-1] in _IDENTIFIERS:
        return "identifier"
    if whole and "year" in words and low >= 1800 and high <= 2200:
        return "calendar year"
    plain_repr = bool(_CLOCKS & set(words)) and bool(_MOMENTS & set(words)) and not _SPANS & set(words)
    return "clock time" if plain_repr and low >= 0 and high <= _DAY else None


# -- Segments ----------------------------------------------------------------------------------------------------------
# Groups of alternatives or of choice sets, by a column or by given values, and weighted figures of each group.
#
# Categories and numbers of few distinct values are groups as they are; other numbers are cut at their quartiles.

ALL_SEGMENT, MISSING_SEGMENT = "all", "(missing)"
_MAX_DISTINCT_NUMBERS = 8  # distinct numbers that are groups of their own


@dataclass(frozen=True, eq=False)
class Segments:
    """Groups by name, and the group of each alternative."""

    names: tuple[str, ...]
    codes: Ints  # (N,)
    of_sets: bool  # whether all alternatives of a set are in one group


def segments(data: ChoiceData, by: str | ArrayLike | None) -> Segments:
    """Group alternatives by a column of any role, or by a value for each choice set or alternative; in one if None.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2], "price": [3.0, 4.0, 9.0, 1.0], "purpose": ["work", "work", "fun", "fun"]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", individual=["purpose"], features=["price"])
    >>> found = segments(data, "purpose")
    >>> found.names, found.codes.tolist()
    (('fun', 'work'), [1, 1, 0, 0])
    """
    if by is None:
        return Segments((ALL_SEGMENT,), np.zeros(len(data.rows), np.int64), of_sets=True)
    values, of_sets = _values(data, by)
    names, codes = group_values(values)
    return Segments(names, spread(codes, data.offsets) if of_sets else codes, of_sets)


def set_segments(data: ChoiceData, by: str | ArrayLike | None) -> tuple[tuple[str, ...], Ints]:
    """Group choice sets: names, and the group of each set (S,)."""
    found = segments(data, by)
    if not found.of_sets:
        raise InputError(f"by={by!r} differs within choice sets: name a column of the individual, or a kept one.")
    return found.names, found.codes[data.offsets[:-1]]


def weighted_quantiles(values: Floats, weights: Floats, shares: ArrayLike) -> Floats:
    """Return the smallest values that at least such shares of the weight do not exceed.

    Examples
    --------
    >>> weighted_quantiles(np.array([5.0, 1.0, 3.0]), np.array([1.0, 1.0, 2.0]), [0.25, 0.5, 1.0])
    array([1., 3., 5.])
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    at = np.searchsorted(reached, np.asarray(shares, np.float64) - 1e-12)
    found: Floats = values[order][np.minimum(at, len(values) - 1)]
    return found


def table_column(data: ChoiceData, name: str) -> tuple[Column, bool]:
    """Find a column of any role, and tell whether it is one of choice sets."""
    if name == data.schema.alternative and data.labels is not None:
        return data.labels, False
    for columns, of_sets in ((data.features, False), (data.individual, True), (data.keep, True)):
        if name in columns:
            return columns[name], of_sets
    known = [*data.features, *data.individual, *data.keep, *([data.schema.alternative] if data.labels else [])]
    raise InputError(f"no column {name!r} in the table." + did_you_mean(name, [str(k) for k in known]))


def numeric_values(data: ChoiceData, name: str) -> tuple[Floats, bool]:
    """Return a numeric feature (N,), or a numeric column of the individual (S,), and whether it is the latter."""
    columns = {**data.individual, **data.features}
    if name not in columns:
        raise InputError(f"{name!r} is no feature and no column of the individual." + did_you_mean(name, columns))
    column = columns[name]
    if not isinstance(column, Numeric):
        raise InputError(f"column {name!r} is {column.kind}: expected a numeric one.")
    return column.values.astype(np.float64), name not in data.features


def _values(data: ChoiceData, by: str | ArrayLike) -> tuple[NDArray[Any], bool]:
    if isinstance(by, str):
        column, of_sets = table_column(data, by)
        if isinstance(column, Contents):
            raise InputError(f"by={by!r} is of kind {column.kind}: only numbers and categories make groups.")
        return column.plain(), of_sets
    values = np.asarray(by)
    if values.shape not in ((len(data),), (len(data.rows),)):
        raise InputError(
            f"by: expected a value for each of {len(data)} choice sets or of {len(data.rows)} alternatives, "
            f"got shape {values.shape}."
        )
    return values, values.shape == (len(data),)


def group_values(values: NDArray[Any]) -> tuple[tuple[str, ...], Ints]:
    """Group values: names of the groups, and the group of each value."""
    if values.dtype.kind not in "fiu":
        words, codes = np.unique(values.astype(str), return_inverse=True)
        return tuple(words.tolist()), codes.astype(np.int64)
    numbers = values.astype(np.float64)
    gaps = np.isnan(numbers)
    found, codes = np.unique(numbers[~gaps], return_inverse=True)
    names = [f"{value:g}" for value in found]
    if len(found) > _MAX_DISTINCT_NUMBERS:
        cuts = np.unique(np.quantile(numbers[~gaps], [0.25, 0.5, 0.75]))
        ends = [f"{cut:.4g}" for cut in cuts]
        names = [f"< {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f">= {ends[-1]}"]
        codes = np.searchsorted(cuts, numbers[~gaps], side="right")
    out = np.full(len(numbers), len(names), np.int64)
    out[~gaps] = codes
    return (*names, *([MISSING_SEGMENT] if gaps.any() else [])), out
