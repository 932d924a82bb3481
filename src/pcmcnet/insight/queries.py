"""Choice sets for querying a model, and the log-probabilities that the model returns.

An alternative is identified by its *flat index* (``place`` in the code), which is its index from 0 to N - 1 in the flat
columns of a table. All queries of the same kind are predicted in one call, which takes the flat indices of Q sets and
returns the log-probabilities of all sets in one array.
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
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.tables import number

# -- Expected signs ----------------------------------------------------------------------------------------------------


def sign_caveats(model: Predictor, *columns: str) -> tuple[str, ...]:
    """Return a sentence for each column that has an effect against its expected sign, or none because of it."""
    caveats = model.sign_caveats if isinstance(model, ChoiceModel) and model.fitted_ is not None else {}
    return tuple(caveats[column] for column in columns if column in caveats)


# -- Alternative names -------------------------------------------------------------------------------------------------
# The name of an alternative in a report: its label, or its number and the values that distinguish it within its set.
#
# Without labels, the name starts with the number of the alternative in its set, counted from 1 in the order of the
# table, followed by its first category. If other alternatives of the set share that category, the name also shows the
# column that distinguishes most of them, and a third column if two are not enough: #2 (A7/A7), #2 (A7/A7, 219 EUR),
# #2 (A7/A7, 219 EUR, stops 1). Without categorical columns the name shows numbers; without numeric columns it shows the
# start of a text. Units come from the schema. A unit replaces the column name only if no other column has that unit.

_MAX_CATEGORY_LENGTH = 24  # characters of a category that a name shows
_MAX_NAME_COLUMNS = 3  # columns that a name shows


def alternative_name(data: ChoiceData, place: int) -> str:
    """Return the name of the alternative with the given flat index."""
    if data.labels is not None:
        label: str = data.labels.categories[int(data.labels.codes[place])]
        return label
    inside = places_in_set(data, int(set_of(data, place)))
    first = f"#{place - int(inside[0]) + 1}"
    words = [_word(data, name, place) for name in distinguishing_columns(data, inside)]
    detail = ", ".join(word for word in words if word) or _text(data, place)
    return f"{first} ({detail})" if detail else first


def distinguishing_columns(data: ChoiceData, inside: Ints) -> list[str]:
    """Return the columns that distinguish the alternatives of a set, given their flat indices."""
    codes = {name: values for name in data.features if (values := _codes(data, name, inside)) is not None}
    chosen = [name for name in codes if isinstance(data.features[name], Categorical)][:1]
    groups = codes[chosen[0]] if chosen else np.zeros(len(inside), np.int64)
    # Add the column that splits the alternatives into the most groups, until all differ or no column helps.
    while len(chosen) < _MAX_NAME_COLUMNS and (not chosen or len(np.unique(groups)) < len(inside)):
        finer = {n: groups * (int(code.max()) + 1) + code for n, code in codes.items() if n not in chosen}
        best = max(finer, key=lambda name: len(np.unique(finer[name])), default=None)  # ties: the first column
        if best is None or (chosen and len(np.unique(finer[best])) == len(np.unique(groups))):
            break
        chosen, groups = [*chosen, best], finer[best]
    return chosen


def _codes(data: ChoiceData, name: str, inside: Ints) -> Ints | None:
    """Return a code for each value of a column in a set, or None for missing values and content columns."""
    column = data.features[name]
    if isinstance(column, Categorical):
        return column.codes[inside].astype(np.int64)
    if not isinstance(column, Numeric) or np.isnan(column.values[inside]).any():
        return None
    codes: Ints = np.unique(column.values[inside], return_inverse=True)[1]
    return codes


def _word(data: ChoiceData, name: str, place: int) -> str:
    """Return the value of one column as a word for an alternative's name."""
    column = data.features[name]
    if isinstance(column, Categorical):
        return _cut(column.categories[int(column.codes[place])])
    assert isinstance(column, Numeric)
    names, value = data.schema.names, number(float(column.values[place]))
    alone = sum(names.unit(other) == names.unit(name) for other in data.features) == 1
    return names.amount(name, value) if alone else f"{names[name]} {value} {names.unit(name)}".rstrip()


def _text(data: ChoiceData, place: int) -> str:
    """Return the beginning of the alternative's first text that is not missing, or an empty string."""
    for column in data.features.values():
        if isinstance(column, Contents) and KINDS[column.kind].is_name and column.codes[place] != MISSING_CODE:
            return _cut(str(column.table[column.codes[place]]))
    return ""


def _cut(word: str) -> str:
    return word if len(word) <= _MAX_CATEGORY_LENGTH else f"{word[: _MAX_CATEGORY_LENGTH - 1]}…"


# -- What if -----------------------------------------------------------------------------------------------------------
# Choice sets that were never observed: alternatives of a table in new combinations, or with other values.
#
# `compose_sets` builds sets from any alternatives of a table, with copies if needed; `with_alternatives` changes the
# alternatives of all sets of a table, and `with_values` changes a column. The results are ordinary choice data, so
# every model can predict them. Their choices are unknown, except that `with_values` keeps the choices of the table.


def compose_sets(data: ChoiceData, sets: Sequence[ArrayLike], individuals: ArrayLike) -> ChoiceData:
    """Build choice sets from the alternatives of a table, with ids counted from 0.

    Parameters
    ----------
    data
        The table that contains the alternatives.
    sets
        For each new set, the flat indices of its alternatives. An index may occur more than once.
    individuals
        For each new set, the position of the original set that provides the individual, the kept columns and the
        weight.

    Returns
    -------
    ChoiceData
        The new sets, without choices.

    Raises
    ------
    InputError
        If a set is empty, a flat index or a position is out of range, or ``sets`` and ``individuals`` differ in length.

    Examples
    --------
    >>> table = {"trip": [1, 1, 1], "took": [0, 1, 0], "price": [3.0, 4.0, 9.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> pair = compose_sets(data, [[0, 2], [1, 1, 2]], [0, 0])
    >>> pair.sizes.tolist(), pair.features["price"].values.tolist()
    ([2, 3], [3.0, 9.0, 4.0, 4.0, 9.0])
    """
    positions = np.asarray(individuals, np.int64)
    set_places = [np.asarray(places, np.int64) for places in sets]
    if len(positions) != len(set_places):
        raise InputError(f"individuals: expected {len(set_places)} positions, one for each set, got {len(positions)}.")
    if any(places.size == 0 for places in set_places):
        raise InputError("a choice set needs at least one alternative.")
    flat = np.concatenate(set_places) if set_places else np.empty(0, np.int64)
    for name, index, end in (("places", flat, len(data.rows)), ("individuals", positions, len(data))):
        if index.size and not (index.min() >= 0 and index.max() < end):
            raise InputError(f"{name}: expected numbers from 0 to {end - 1}, got {index.min()} to {index.max()}.")
    people = replace(
        data,
        set_ids=np.arange(len(set_places)),
        weights=data.weights[positions],
        individual=take(data.individual, positions),
        keep=take(data.keep, positions),
    )
    return with_alternatives(people, flat, np.array([len(places) for places in set_places], np.int64))


def with_alternatives(data: ChoiceData, places: Ints, sizes: Ints) -> ChoiceData:
    """Replace the alternatives of every set: set s gets the next ``sizes[s]`` alternatives of ``places`` (M,).

    The sets keep their ids, individuals, kept columns and weights, but their choices become unknown.
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
    """Return the data with new values of a feature (N values) or of an individual-level column (S values).

    Categories that are not in the table are allowed, and a model treats them as unseen categories.
    """
    for role in ("features", "individual"):
        columns = getattr(data, role)
        if column in columns:
            changed: dict[str, Any] = {role: {**columns, column: _column(columns[column], np.asarray(values), column)}}
            return replace(data, **changed)
    names = [*data.features, *data.individual]
    raise InputError(f"there is no feature or individual-level column {column!r}." + did_you_mean(column, names))


def _column(before: Column, values: NDArray[Any], name: str) -> Column:
    """Return a column of the same kind with new values."""
    if values.shape != (len(before),):
        remedy = f" Write '{name} *= {values}' to change all values by a factor." if values.ndim == 0 else ""
        raise InputError(f"column {name!r}: expected {len(before)} values, got shape {values.shape}.{remedy}")
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


# -- Queries -----------------------------------------------------------------------------------------------------------


def predict_sets(model: Predictor, data: ChoiceData, sets: Sequence[ArrayLike], individuals: ArrayLike) -> Floats:
    """Return the log-probabilities, in float64, of the alternatives in sets built by :func:`compose_sets`."""
    return predicted_log_p(model, compose_sets(data, sets, individuals)) if len(sets) else np.empty(0)


def require_place(data: ChoiceData, place: object, what: str) -> int:
    """Return the flat index as an int, or raise InputError if it is out of range."""
    place = int(place) if isinstance(place, np.integer) else place
    last = len(data.rows) - 1
    if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place <= last:
        raise InputError(
            f"{what}: expected the flat index of an alternative, from 0 to {last}, got {place!r}: use place_of."
        )
    return place


def position_of(data: ChoiceData, choice_set: Any) -> int:
    """Return the position of the choice set with the given id, which can also be passed as a string."""
    positions = np.flatnonzero(data.set_ids == choice_set)
    if not positions.size:
        positions = np.flatnonzero(data.set_ids.astype(str) == str(choice_set))
    if positions.size != 1:
        examples = ", ".join(map(str, data.set_ids[:3].tolist()))
        raise InputError(
            f"choice set {plain_repr(choice_set)} is not in the table, which has {len(data)} choice sets with ids such "
            f"as {examples}."
        )
    return int(positions[0])


def place_of(data: ChoiceData, choice_set: Any, alternative: Any) -> int:
    """Return the flat index of an alternative, that is, its index in the flat columns of a table.

    Parameters
    ----------
    data
        The choice sets.
    choice_set
        The id of the set.
    alternative
        Label of the alternative or, in a table without labels, its row in the table, such as 3, or its name in a
        report, such as "#2".

    Returns
    -------
    int
        The flat index, from 0 to N - 1.

    Raises
    ------
    InputError
        If the set does not exist, or does not contain exactly one alternative with this label, row or name.

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
        matches = inside[np.arange(1, len(inside) + 1) == int(numbered[1])]
    else:
        matches = inside[names == alternative]
    if matches.size != 1:
        noun = "row" if data.labels is None else "label"
        raise InputError(
            f"choice set {plain_repr(choice_set)}: expected one alternative with the {noun} "
            f"{plain_repr(alternative)}, found {matches.size} among "
            f"{', '.join(map(str, names[:5].tolist()))}{', ...' if len(names) > 5 else ''}."
        )
    return int(matches[0])


def places_in_set(data: ChoiceData, position: int) -> Ints:
    """Return the flat indices of the alternatives in the choice set at the given position."""
    return np.arange(data.offsets[position], data.offsets[position + 1])


def set_of(data: ChoiceData, places: ArrayLike) -> Ints:
    """Return the positions of the sets that contain the alternatives with the given flat indices."""
    positions: Ints = np.searchsorted(data.offsets, np.asarray(places, np.int64), side="right") - 1
    return positions


def plain_repr(value: Any) -> str:
    """Return the repr of a value, with numpy numbers written as Python numbers."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def set_id_of(data: ChoiceData, place: int) -> Any:
    """Return the id of the choice set that contains an alternative, as a Python number or string."""
    value = data.set_ids[int(set_of(data, place))]
    return value.item() if isinstance(value, np.generic) else value


def draw_sets(data: ChoiceData, *, least: int, most: int | None, rng: np.random.Generator) -> Ints:
    """Return up to ``most`` random positions of sets with at least ``least`` alternatives and positive weight."""
    return rng.permutation(np.flatnonzero((data.sizes >= least) & (data.weights > 0)))[:most]


def require_sampling(**counts: object) -> None:
    """Raise ConfigError unless the counts are whole numbers above 0 and the seed is a whole number of at least 0."""
    for name, count in counts.items():
        if name == "seed":
            require_number(name, count, whole=True, low=0, high=2**63 - 1)
        else:
            require_number(name, count, whole=True, low=1)


# -- Scales ------------------------------------------------------------------------------------------------------------
# Which numeric columns are on a ratio scale, so that a 1% increase is meaningful.
#
# A price, a travel time or a number of stops has a true zero. A clock time, a calendar year or an identifier does not:
# "1% more than 8 o'clock" means nothing. Such a column has no elasticity. The scale of a column follows
#
#   from its unit if the schema declares one: "clock", "calendar year", "code" and "id" have no true zero, all other
#     units do; otherwise from its name and values:
#
#     identifier      whole numbers, and the name ends in id, code, nr, no, number, key or index
#     calendar year   whole numbers from 1800 to 2200, and the name contains year
#     clock time      0 to 24 hours, 1,440 minutes or 86,400 seconds, and the name mentions the time or hour of a
#                     departure, arrival, start or end, or of the day, but no time before, until or since one

_UNITS = {"clock": "clock time", "calendar year": "calendar year", "code": "identifier", "id": "identifier"}
_WHY = {
    "clock time": "is a clock time: a 1% increase has no meaning",
    "calendar year": "is a calendar year: a 1% increase has no meaning",
    "identifier": "is an identifier: an increase has no meaning",
}
_IDENTIFIERS = {"id", "code", "nr", "no", "number", "key", "index", "idx"}
_MOMENTS = {"dep", "departure", "arr", "arrival", "start", "begin", "end", "day", "clock"}
_CLOCKS = {"time", "hour", "clock"}
_SPANS = {"to", "until", "till", "before", "since", "from", "after", "duration", "delay", "lead", "days"}
_DAY = 86_400  # seconds
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def why_no_elasticity(data: ChoiceData, name: str) -> str | None:
    """Return the reason why a numeric column has no elasticity, or None if it has one.

    Examples
    --------
    >>> table = {"trip": [1, 1], "price": [3.0, 4.5], "depTime": [480, 615]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", features=["price", "depTime"])
    >>> why_no_elasticity(data, "depTime"), why_no_elasticity(data, "price")
    ('is a clock time: a 1% increase has no meaning', None)
    """
    column = data.features[name] if name in data.features else data.individual[name]
    assert isinstance(column, Numeric)
    words = data.schema.named.get(name)
    unit = "" if words is None else words.unit.strip().lower()
    scale = _UNITS.get(unit) if unit else _guess(name, column.values[~np.isnan(column.values)].astype(np.float64))
    return None if scale is None else _WHY[scale]


def _guess(name: str, values: Floats) -> str | None:
    """Guess the scale of a column without a true zero from its name and values, or return None for a ratio scale."""
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
# Groups of alternatives or of choice sets, by a column or by values from the caller.
#
# Each category is a group. Each number is a group if there are few distinct ones; otherwise quartiles are the cuts.

ALL_SEGMENT, MISSING_SEGMENT = "all", "(missing)"
_MAX_DISTINCT_NUMBERS = 8  # distinct numbers up to which each is its own group


@dataclass(frozen=True, eq=False)
class Segments:
    """Names of the groups of alternatives, and the group of each alternative."""

    names: tuple[str, ...]
    codes: Ints  # (N,)
    of_sets: bool  # True if all alternatives of a set are in the same group


def segments(data: ChoiceData, by: str | ArrayLike | None) -> Segments:
    """Group alternatives by a column, or by a value for each choice set or alternative.

    If ``by`` is None, all alternatives form one group. A numeric column can have limits: ``"distance: 300, 600"`` has
    the groups below 300, from 300 to below 600, and from 600 on.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2], "price": [3.0, 4.0, 9.0, 1.0], "purpose": ["work", "work", "fun", "fun"]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", individual=["purpose"], features=["price"])
    >>> groups = segments(data, "purpose")
    >>> groups.names, groups.codes.tolist()
    (('fun', 'work'), [1, 1, 0, 0])
    """
    if by is None:
        return Segments((ALL_SEGMENT,), np.zeros(len(data.rows), np.int64), of_sets=True)
    column, limits = column_and_limits(data, by) if isinstance(by, str) else (by, None)
    values, of_sets = _values(data, column)
    names, codes = group_values(values) if limits is None else _groups_between(values, limits, str(by))
    return Segments(names, spread(codes, data.offsets) if of_sets else codes, of_sets)


_LIMITS = re.compile(r"\s*:[\s\d.,eE+-]*$")  # of a grouping, after its column


def column_of_grouping(by: str) -> str:
    """Return the column of a grouping without its limits. Unlike :func:`column_and_limits`, this needs no table."""
    return _LIMITS.sub("", by)


def column_and_limits(data: ChoiceData, by: str) -> tuple[str, tuple[float, ...] | None]:
    """Return the column of a grouping, and its limits if it has any.

    Examples
    --------
    >>> table = {"trip": [1, 1], "price": [3.0, 4.0], "km": [250, 250]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", individual=["km"], features=["price"])
    >>> column_and_limits(data, "km: 300, 600"), column_and_limits(data, "km")
    (('km', (300.0, 600.0)), ('km', None))
    """
    column, colon, text = by.rpartition(":")
    if not colon or any(by in columns for columns in (data.features, data.individual, data.keep)):
        return by, None
    try:
        limits = tuple(float(word) for word in text.split(","))
    except ValueError:
        limits = ()
    if not limits or not np.isfinite(limits).all() or not (np.diff(limits) > 0).all():
        raise InputError(f"by={by!r}: expected a numeric column with ascending limits, such as 'distance: 300, 600'.")
    return column.strip(), limits


def _groups_between(values: NDArray[Any], limits: Sequence[float], by: str) -> tuple[tuple[str, ...], Ints]:
    """Group numbers between limits, and return the names of the groups and the group of each value."""
    if values.dtype.kind not in "fiu":
        raise InputError(f"by={by!r}: only a numeric column can have limits.")
    ends = [f"{limit:.12g}" for limit in limits]
    names = [f"< {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f">= {ends[-1]}"]
    rounded = np.array(limits, values.dtype if values.dtype.kind == "f" else np.float64)  # 0.7 is not 0.7 in float32
    missing = np.isnan(values.astype(np.float64))
    codes = np.where(missing, len(names), np.searchsorted(rounded, values, side="right"))
    return (*names, *([MISSING_SEGMENT] if missing.any() else [])), codes


def set_segments(data: ChoiceData, by: str | ArrayLike | None) -> tuple[tuple[str, ...], Ints]:
    """Group choice sets, and return the names of the groups and the group of each set (S,)."""
    groups = segments(data, by)
    if not groups.of_sets:
        raise InputError(f"by={by!r} varies within choice sets: use an individual-level column or a kept column.")
    return groups.names, groups.codes[data.offsets[:-1]]


def weighted_quantiles(values: Floats, weights: Floats, shares: ArrayLike) -> Floats:
    """Return weighted quantiles: the smallest values at which the cumulative weight reaches the given shares.

    Examples
    --------
    >>> weighted_quantiles(np.array([5.0, 1.0, 3.0]), np.array([1.0, 1.0, 2.0]), [0.25, 0.5, 1.0])
    array([1., 3., 5.])
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    at = np.searchsorted(reached, np.asarray(shares, np.float64) - 1e-12)
    quantiles: Floats = values[order][np.minimum(at, len(values) - 1)]
    return quantiles


def table_column(data: ChoiceData, name: str) -> tuple[Column, bool]:
    """Return a column of any role, and whether it has one value per choice set."""
    if name == data.schema.alternative and data.labels is not None:
        return data.labels, False
    for columns, of_sets in ((data.features, False), (data.individual, True), (data.keep, True)):
        if name in columns:
            return columns[name], of_sets
    names = [*data.features, *data.individual, *data.keep, *([data.schema.alternative] if data.labels else [])]
    raise InputError(f"the table has no column {name!r}." + did_you_mean(name, [str(k) for k in names]))


def numeric_values(data: ChoiceData, name: str) -> tuple[Floats, bool]:
    """Return a numeric feature (N,) or individual-level column (S,), and whether it is an individual-level column."""
    columns = {**data.individual, **data.features}
    if name not in columns:
        raise InputError(f"there is no feature or individual-level column {name!r}." + did_you_mean(name, columns))
    column = columns[name]
    if not isinstance(column, Numeric):
        raise InputError(f"column {name!r}: expected a numeric column, got a {column.kind} column.")
    return column.values.astype(np.float64), name not in data.features


def _values(data: ChoiceData, by: str | ArrayLike) -> tuple[NDArray[Any], bool]:
    """Return the values to group by, and whether there is one value per choice set."""
    if isinstance(by, str):
        column, of_sets = table_column(data, by)
        if isinstance(column, Contents):
            raise InputError(f"by={by!r} is of kind {column.kind}: only numbers and categories can define groups.")
        return column.plain(), of_sets
    values = np.asarray(by)
    if values.shape not in ((len(data),), (len(data.rows),)):
        raise InputError(
            f"by: expected one value for each of {len(data)} choice sets or {len(data.rows)} alternatives, "
            f"got shape {values.shape}."
        )
    return values, values.shape == (len(data),)


def group_values(values: NDArray[Any]) -> tuple[tuple[str, ...], Ints]:
    """Group equal or similar values, and return the names of the groups and the group of each value."""
    if values.dtype.kind not in "fiu":
        words, codes = np.unique(values.astype(str), return_inverse=True)
        return tuple(words.tolist()), codes.astype(np.int64)
    numbers = values.astype(np.float64)
    missing = np.isnan(numbers)
    distinct, codes = np.unique(numbers[~missing], return_inverse=True)
    names = [f"{value:g}" for value in distinct]
    if len(distinct) > _MAX_DISTINCT_NUMBERS:
        cuts = np.unique(np.quantile(numbers[~missing], [0.25, 0.5, 0.75]))
        ends = [f"{cut:.4g}" for cut in cuts]
        names = [f"< {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f">= {ends[-1]}"]
        codes = np.searchsorted(cuts, numbers[~missing], side="right")
    out = np.full(len(numbers), len(names), np.int64)
    out[~missing] = codes
    return (*names, *([MISSING_SEGMENT] if missing.any() else [])), out
