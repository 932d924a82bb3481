"""Functions that split, select, join and hash choice data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.columns.arrays import Categorical, Column, Contents, concat, concat_column, take
from pcmcnet.data.columns.distinct import first_rows
from pcmcnet.errors import InputError, SchemaError

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData

# -- Splits ------------------------------------------------------------------------------------------------------------
# The sets of a group stay in one part. Functions that split take one group number per set and return sorted positions
# of sets.


def generator(seed: int) -> np.random.Generator:
    """Return a random generator, or raise InputError if the seed is not an integer of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"the seed must be a whole number of at least 0, got {seed!r}.")
    return np.random.default_rng(int(seed))


def number_groups(values: NDArray[Any]) -> Ints:
    """Return a group number for each value, so that equal values have equal numbers."""
    if values.dtype.kind == "O":
        numbers: dict[Any, int] = {}
        try:
            return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
        except TypeError as error:
            raise InputError("by: expected one number or string per choice set.") from error
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def split_parts(
    groups: Ints, parts: Sequence[float], rng: np.random.Generator, keys: NDArray[Any] | None = None
) -> list[Ints]:
    """Split choice sets into non-empty parts, whose shares are exact up to the size of one group.

    The groups are in random order or, given one key per set, ordered by their smallest key.
    """
    shares = require_shares(parts)
    # 1. Order the sets by a random order of their groups, and find where each group ends.
    _, dense, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if keys is None:
        rank = rng.permutation(len(counts))
    else:
        smallest = np.full(len(counts), keys.max(initial=0))
        np.minimum.at(smallest, dense, keys)
        rank = np.argsort(np.argsort(smallest, kind="stable"), kind="stable")
    order, ends = np.argsort(rank[dense], kind="stable"), np.cumsum(counts[np.argsort(rank)])
    if len(ends) < len(shares):
        raise InputError(f"{len(ends)} groups of choice sets are too few for {len(shares)} parts: one would be empty.")
    # 2. Cut after the groups that are nearest to the shares, and leave no part empty.
    targets = np.cumsum(shares)[:-1] * len(groups)
    last = np.searchsorted(ends, targets - 0.5)  # the first group that reaches the share ends the part
    part = np.arange(len(last))
    last = np.minimum(last, len(ends) - 1 - len(last) + part)  # leave a group for each later part
    last = np.maximum.accumulate(last - part) + part  # give each part at least one group
    bounds = [0, *ends[last].tolist(), len(groups)]
    return [np.sort(order[begin:end]) for begin, end in pairwise(bounds)]


def require_shares(parts: Sequence[float]) -> NDArray[np.float64]:
    """Return shares as an array, or raise InputError unless the shares are positive and add up to 1."""
    try:
        shares = np.asarray(parts, dtype=np.float64)
    except (TypeError, ValueError):
        shares = np.empty(0)
    if shares.ndim != 1 or not shares.size or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        problem = f"the parts must be positive shares that add up to 1, got {parts!r}. Write, for example,"
        raise InputError(f"{problem} (0.8, 0.2).", command_line=f"{problem} --shares 0.8,0.2.")
    return shares


def fold_parts(groups: Ints, k: int, rng: np.random.Generator) -> list[Ints]:
    """Split choice sets into k folds with nearly equal numbers of groups."""
    _, dense, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 2 <= k <= len(counts):
        raise InputError(
            f"the number of folds must be between 2 and {len(counts)}, the number of groups of choice sets; got {k!r}."
        )
    fold = (rng.permutation(len(counts)) % k)[dense]
    return [np.flatnonzero(fold == f) for f in range(k)]


# -- Selection ---------------------------------------------------------------------------------------------------------
# The fields of a `ChoiceData` with some of the choice sets of a table, or with those of two tables.


def set_positions(index: NDArray[Any], n_sets: int) -> Ints:
    """Return the positions that an index or a mask selects. Negative positions count from the end.

    Raises InputError if a position is out of range or repeated, or if the mask has the wrong shape.
    """
    if index.dtype == np.bool_:
        if index.shape != (n_sets,):
            raise InputError(f"expected a mask of {n_sets} choice sets, got shape {index.shape}.")
        return np.flatnonzero(index)
    if index.ndim == 0 and index.dtype.kind in "iu":
        raise InputError(
            f"data[{index}] is not supported, because there is no object for one choice set. Write data[[{index}]] for "
            f"choice data with this set, or data[:5] for the first five."
        )
    if index.ndim == 0 and index.dtype.kind in "US":
        raise InputError(
            f"choice data are indexed by choice sets, not by columns: write data.to_frame()[{str(index)!r}] for the "
            f"values of a column."
        )
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise InputError(
            f"expected a list of positions or a mask of choice sets, got {index.dtype} of shape {index.shape}."
        )
    if index.size and (index.min() < -n_sets or index.max() >= n_sets):
        raise InputError(
            f"positions must be between {-n_sets} and {n_sets - 1}, as there are {n_sets} choice sets; "
            f"got {index.min()} to {index.max()}."
        )
    sets = index.astype(np.int64)
    sets = np.where(sets < 0, sets + n_sets, sets)
    if len(np.unique(sets)) != len(sets):
        raise InputError("a choice set can be selected only once, but some positions are repeated.")
    return sets


def take_sets(data: ChoiceData, sets: Ints) -> dict[str, Any]:
    """Return the fields of the selected sets, in the order of ``sets``. The rows are renumbered in table order."""
    sizes = data.sizes[sets]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.arange(offsets[-1]) + np.repeat(data.offsets[sets] - offsets[:-1], sizes)
    new_set = np.full(len(data), -1)
    new_set[sets] = np.arange(len(sets))
    hidden = np.flatnonzero(new_set[data.hidden_sets] >= 0)
    rows = np.concatenate([data.rows[flat], data.hidden_rows[hidden]])
    places = np.empty(len(rows), np.int64)
    places[np.argsort(rows)] = np.arange(len(rows))
    return {
        "offsets": offsets,
        **_columns(data, sets, flat),
        "rows": places[: len(flat)],
        "added": int((data.rows[flat] >= data.n_rows - data.added).sum()),
        "hidden_rows": places[len(flat) :],
        "hidden_sets": new_set[data.hidden_sets[hidden]],
    }


def sets_between(data: ChoiceData, begin: int, end: int) -> dict[str, Any]:
    """Return the fields of the sets from ``begin`` to ``end`` - 1, without a copy. Row numbers do not change."""
    sets, flat = slice(begin, end), slice(int(data.offsets[begin]), int(data.offsets[end]))
    empty = np.empty(0, np.int64)
    return {
        "offsets": data.offsets[begin : end + 1] - data.offsets[begin],
        **_columns(data, sets, flat),
        "rows": data.rows[flat],
        "added": 0,
        "hidden_rows": empty,
        "hidden_sets": empty,
    }


def _columns(data: ChoiceData, sets: Ints | slice, flat: Ints | slice) -> dict[str, Any]:
    """Return the columns of the given sets and of their alternatives."""
    return {
        "set_ids": data.set_ids[sets],
        "chosen": None if data.chosen is None else data.chosen[sets],
        "weights": data.weights[sets],
        "features": take(data.features, flat),
        "labels": None if data.labels is None else data.labels.take(flat),
        "individual": take(data.individual, sets),
        "keep": take(data.keep, sets),
        "expansion": None if data.expansion is None else data.expansion[flat],
    }


def repeated_sets(fields: dict[str, Any], of: Ints, flat: Ints) -> dict[str, Any]:  # ..., (S',), (N',)
    """Return the fields of several choice sets made of each set, without their offsets, choices and weights.

    The id of a new set is the id of the set that it is made of, followed by ``/1``, ``/2`` and so on. The rows are
    renumbered, with one row per alternative of each new set.

    Parameters
    ----------
    fields
        The fields of a ``ChoiceData``.
    of
        Set that each new set is made of, in ascending order.
    flat
        Alternatives of the new sets.
    """
    number, labels = np.arange(len(of)) - np.searchsorted(of, of), fields["labels"]
    return fields | {
        "set_ids": np.array([f"{fields['set_ids'][s]}/{k + 1}" for s, k in zip(of, number, strict=True)], object),
        "features": take(fields["features"], flat),
        "labels": None if labels is None else labels.take(flat),
        "individual": take(fields["individual"], of),
        "keep": take(fields["keep"], of),
        "rows": np.arange(len(flat)),
        "hidden_rows": np.empty(0, np.int64),
        "hidden_sets": np.empty(0, np.int64),
        "added": 0,
    }


def take_alternatives(data: ChoiceData, flat: Ints, offsets: Ints, chosen: Ints) -> dict[str, Any]:
    """Return the fields of the same sets with only some of their alternatives, as if the table had only their rows.

    Parameters
    ----------
    data
        Choice sets.
    flat
        Positions of the alternatives to keep (M,), set after set.
    offsets
        Start of each set in ``flat`` (S + 1,).
    chosen
        Position of the chosen alternative within each smaller set (S,).
    """
    rows = np.empty(len(flat), np.int64)
    rows[np.argsort(data.rows[flat])] = np.arange(len(flat))
    empty = np.empty(0, np.int64)
    return {
        "offsets": offsets,
        **_columns(data, slice(None), flat),
        "chosen": chosen,
        "rows": rows,
        "added": int((data.rows[flat] >= data.n_rows - data.added).sum()),
        "hidden_rows": empty,
        "hidden_sets": empty,
    }


def join(first: ChoiceData, second: ChoiceData) -> dict[str, Any]:
    """Return the joined fields of two tables. The rows of the second table follow the rows of the first."""
    if first.schema != second.schema:
        raise SchemaError("only choice data with equal schemas can be joined.")
    chosen = labels = None
    if first.chosen is not None and second.chosen is not None:
        chosen = np.concatenate([first.chosen, second.chosen])
    if first.labels is not None and second.labels is not None:
        labels = concat_column(first.labels, second.labels)
    expansion = None
    if first.expansion is not None or second.expansion is not None:
        both = (np.ones(len(d.rows)) if d.expansion is None else d.expansion for d in (first, second))
        expansion = np.concatenate(list(both))
    # number the rows of both tables, then those added to the first, then those added to the second
    n_first, n_second = first.n_rows - first.added, second.n_rows - second.added
    rows_of_first = np.where(first.rows < n_first, first.rows, first.rows + n_second)
    rows_of_second = np.where(second.rows < n_second, second.rows + n_first, second.rows + n_first + first.added)
    return {
        "offsets": np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]]),
        "set_ids": np.concatenate([first.set_ids, second.set_ids]),
        "chosen": chosen,
        "weights": np.concatenate([first.weights, second.weights]),
        "features": concat(first.features, second.features),
        "labels": labels,
        "individual": concat(first.individual, second.individual),
        "keep": concat(first.keep, second.keep),
        "rows": np.concatenate([rows_of_first, rows_of_second]),
        "added": first.added + second.added,
        "hidden_rows": np.concatenate([first.hidden_rows, n_first + second.hidden_rows]),
        "hidden_sets": np.concatenate([first.hidden_sets, len(first) + second.hidden_sets]),
        "expansion": expansion,
    }


# -- Fingerprint -------------------------------------------------------------------------------------------------------
# A hash of the model inputs and choices of a table; it does not depend on the file or library they came from.


def fingerprint(data: ChoiceData) -> str:
    """Return a SHA-256 hash of roles, sizes, choices, weights, features, labels, individual columns and persons."""
    digest = hashlib.sha256(repr(sorted(data.schema.without_names.to_dict().items())).encode())
    for name, array in (("offsets", data.offsets), ("chosen", data.chosen), ("weights", data.weights)):
        _add(digest, name, array)
    if data.expansion is not None:
        _add(digest, "expansion", data.expansion)
    columns: dict[str, Column] = {f"features/{name}": column for name, column in data.features.items()}
    columns |= {f"individual/{name}": column for name, column in data.individual.items()}
    if data.labels is not None:
        columns["labels"] = data.labels
    if data.schema.group_column is not None:
        columns["person"] = data.keep[data.schema.group_column]
    for name, column in columns.items():
        if isinstance(column, Categorical):
            # number the categories in use by their first rows, so that a subset hashes like an equal table
            first = first_rows(column.codes, len(column.categories))
            order = np.argsort(first, kind="stable")[: int((first < len(column.codes)).sum())]
            codes = np.zeros(len(column.categories), np.int32)
            codes[order] = np.arange(len(order), dtype=np.int32)
            digest.update(repr([column.categories[k] for k in order]).encode())
            _add(digest, name, codes[column.codes])
        elif isinstance(column, Contents):
            used = column.compact()
            _add(digest, name, used.codes)
            if used.table.dtype.kind in "fiM":  # hash numbers and datetimes by their bytes, objects by their repr
                _add(digest, "contents", used.table.view(np.int64) if used.table.dtype.kind == "M" else used.table)
            else:
                for content in used.table:
                    plain = content if isinstance(content, bytes) else repr(content).encode()
                    digest.update(hashlib.sha256(plain).digest())
        else:
            _add(digest, name, column.values)
    return digest.hexdigest()


def _add(digest: Any, name: str, array: NDArray[Any] | None) -> None:
    digest.update(f"{name}:{None if array is None else (array.dtype.str, array.shape)}".encode())
    if array is not None:
        digest.update(np.ascontiguousarray(array).data)
