"""Choice sets that were never observed: a table's alternatives in other company, or with other values.

``compose`` takes alternatives out of sets, copies them, or puts them together anew; ``with_alternatives`` does so for
all sets of a table at once, and ``with_values`` changes a column. The results are choice data like any other, of which
every model can be asked. Their choices are unknown, but for ``with_values``, which leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Categorical, Column, Contents, Numeric, take
from pcmcnet.errors import InputError, did_you_mean


def compose(data: ChoiceData, sets: Sequence[ArrayLike], individuals: ArrayLike) -> ChoiceData:
    """Make choice sets out of the alternatives of a table.

    Parameters
    ----------
    data
        Where alternatives and individuals come from.
    sets
        For each new set the places of its alternatives in the flat columns of ``data``, from 0 to N - 1; a place may
        occur more than once.
    individuals
        For each new set the position of the set whose individual, kept columns and weight it gets.

    Returns
    -------
    ChoiceData
        Its sets are numbered from 0, its rows follow the places given.

    Examples
    --------
    >>> table = {"trip": [1, 1, 1], "took": [0, 1, 0], "price": [3.0, 4.0, 9.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> pair = compose(data, [[0, 2], [1, 1, 2]], [0, 0])
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
