"""Some choice sets of a table, or those of two tables: the fields of the ``ChoiceData`` that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.column_arrays import concat, concat_column, take
from pcmcnet.errors import InputError, SchemaError

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData


def positions(index: NDArray[Any], n_sets: int) -> Ints:
    """Turn positions (negative ones count from the end) or a mask into positions, each once."""
    if index.dtype == np.bool_:
        if index.shape != (n_sets,):
            raise InputError(f"expected a mask of {n_sets} choice sets, got shape {index.shape}.")
        return np.flatnonzero(index)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise InputError(
            f"expected a list of positions or a mask of choice sets, got {index.dtype} of shape {index.shape}."
        )
    if index.size and (index.min() < -n_sets or index.max() >= n_sets):
        raise InputError(
            f"positions must lie between {-n_sets} and {n_sets - 1}, as there are {n_sets} choice sets; "
            f"got {index.min()} to {index.max()}."
        )
    sets = index.astype(np.int64)
    sets = np.where(sets < 0, sets + n_sets, sets)
    if len(np.unique(sets)) != len(sets):
        raise InputError("a choice set may be taken once only: the positions repeat.")
    return sets


def take_sets(data: ChoiceData, sets: Ints) -> dict[str, Any]:
    """Take sets in the order given; their rows are numbered anew, in table order."""
    sizes = data.sizes[sets]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.arange(offsets[-1]) + np.repeat(data.offsets[sets] - offsets[:-1], sizes)
    new_set = np.full(len(data), -1)
    new_set[sets] = np.arange(len(sets))
    hidden = np.flatnonzero(new_set[data.hidden_sets] >= 0)
    places = _ranks(np.concatenate([data.rows[flat], data.hidden_rows[hidden]]))
    return {
        "offsets": offsets,
        **_columns(data, sets, flat),
        "rows": places[: len(flat)],
        "added": int((data.rows[flat] >= data.n_rows - data.added).sum()),
        "hidden_rows": places[len(flat) :],
        "hidden_sets": new_set[data.hidden_sets[hidden]],
    }


def sets_between(data: ChoiceData, begin: int, end: int) -> dict[str, Any]:
    """Take the sets from one to before another, without a copy; their rows keep their numbers."""
    sets, flat = slice(begin, end), slice(int(data.offsets[begin]), int(data.offsets[end]))
    nothing = np.empty(0, np.int64)
    return {
        "offsets": data.offsets[begin : end + 1] - data.offsets[begin],
        **_columns(data, sets, flat),
        "rows": data.rows[flat],
        "added": 0,
        "hidden_rows": nothing,
        "hidden_sets": nothing,
    }


def _columns(data: ChoiceData, sets: Ints | slice, flat: Ints | slice) -> dict[str, Any]:
    """Take columns of some sets and of their alternatives."""
    return {
        "set_ids": data.set_ids[sets],
        "chosen": None if data.chosen is None else data.chosen[sets],
        "weights": data.weights[sets],
        "features": take(data.features, flat),
        "labels": None if data.labels is None else data.labels.take(flat),
        "individual": take(data.individual, sets),
        "keep": take(data.keep, sets),
    }


def join(first: ChoiceData, second: ChoiceData) -> dict[str, Any]:
    """Append sets; the rows of the second table follow those of the first."""
    if first.schema != second.schema:
        raise SchemaError("only choice data with equal schemas can be joined.")
    chosen = labels = None
    if first.chosen is not None and second.chosen is not None:
        chosen = np.concatenate([first.chosen, second.chosen])
    if first.labels is not None and second.labels is not None:
        labels = concat_column(first.labels, second.labels)
    return {
        "offsets": np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]]),
        "set_ids": np.concatenate([first.set_ids, second.set_ids]),
        "chosen": chosen,
        "weights": np.concatenate([first.weights, second.weights]),
        "features": concat(first.features, second.features),
        "labels": labels,
        "individual": concat(first.individual, second.individual),
        "keep": concat(first.keep, second.keep),
        "rows": np.concatenate(_joined_rows(first, second)),
        "added": first.added + second.added,
        "hidden_rows": np.concatenate([first.hidden_rows, first.n_rows - first.added + second.hidden_rows]),
        "hidden_sets": np.concatenate([first.hidden_sets, len(first) + second.hidden_sets]),
    }


def _joined_rows(first: ChoiceData, second: ChoiceData) -> tuple[Ints, Ints]:
    """Number the rows of both tables, then those that were added to the first, then those to the second."""
    ours, theirs = first.n_rows - first.added, second.n_rows - second.added
    return (
        np.where(first.rows < ours, first.rows, first.rows + theirs),
        np.where(second.rows < theirs, second.rows + ours, second.rows + ours + first.added),
    )


def _ranks(places: Ints) -> Ints:
    """Number distinct places from 0 in their own order."""
    ranks = np.empty(len(places), np.int64)
    ranks[np.argsort(places)] = np.arange(len(places))
    return ranks
