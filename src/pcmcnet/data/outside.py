"""The outside option: an alternative of every choice set without features of its own, such as buying nothing.

A table need not have rows of it. A set without a row of the option gets one, behind all rows of the table; a set
without a chosen row is one in which the option was chosen. Its features are missing, whatever its rows say, and what
belongs to the set (individual columns, weight, person) is that of the other rows. With labels, its own name is its
label; without, a feature of that name is 1 for the option and 0 for others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.arrays import Bools, Ints
from pcmcnet.data.column_reader import MISSING_CATEGORY, ColumnReader
from pcmcnet.data.columns.arrays import MISSING_CODE, Categorical, Column, Numeric
from pcmcnet.data.columns.distinct import is_text, value_type
from pcmcnet.data.schema import Schema
from pcmcnet.errors import SchemaError

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData

log = logging.getLogger("pcmcnet")


def add_outside_rows(
    everything: ColumnReader, schema: Schema, set_of_row: NDArray[np.int32], ids: NDArray[Any]
) -> tuple[pa.Table, NDArray[np.int32]]:
    """Complete a long table with rows of the outside option, at its end; returns their sets, too."""
    # 1. The first other alternative of each set: the rows of the option take its columns.
    n, label, outside = len(set_of_row), schema.alternative, str(schema.outside)
    names = None if label is None else everything.exact(label, categorical=True)
    own = np.zeros(n, np.bool_) if names is None else _is_label(names.values, names.categories or (), outside)
    offered = np.ones(n, np.bool_) if schema.available is None else everything.flag(schema.available)
    filler = np.full(len(ids), n)
    others = np.flatnonzero(offered & ~own)
    np.minimum.at(filler, set_of_row[others], others)
    if (filler == n).any():
        sets = np.flatnonzero(filler == n)
        raise SchemaError(
            f"choice set {ids[sets[0]]}: no alternative is available but the outside option {schema.outside!r}; "
            f"{len(sets)} such sets. Drop them: there is nothing to choose."
        )
    if schema.choices is not None:
        _note_unread(everything, schema, own & offered)
    # 2. Add a row to each set that has none of the option.
    added = np.setdiff1d(np.arange(len(ids)), set_of_row[own])
    rows = np.concatenate([np.arange(n), filler[added]])
    source = np.where(np.append(own, np.zeros(len(added), np.bool_)), filler[np.append(set_of_row, added)], rows)
    kept = {schema.choice_set, schema.available}
    columns = {name: column.take(rows if name in kept else source) for name, column in everything.columns.items()}
    # 3. Name the option in these rows; it is chosen where nothing else is, and has no rank.
    if label is not None and names is not None:
        everything.require_exact(label)
        words = [*dict.fromkeys([*(names.categories or ()), outside])]
        codes = np.append(names.values, np.full(len(added), words.index(outside))).astype(np.int32)
        columns[label] = pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(words, pa.string()))
    if schema.chosen is not None:
        everything.at(others).flag(schema.chosen)  # refuses what is no flag
        flags, taken = everything.is_set(schema.chosen), np.zeros(len(ids), np.bool_)
        taken[set_of_row[flags]] = True
        flags = flags | (own & offered & ~taken[set_of_row])
        columns[schema.chosen] = pa.array(np.append(flags, ~taken[added]).astype(np.int8))
    if schema.rank is not None:
        behind = pa.array(rows, mask=np.arange(len(rows)) >= n)
        columns[schema.rank] = everything.columns[schema.rank].take(behind)
    return pa.table(columns), np.append(set_of_row, added).astype(np.int32)


def _note_unread(everything: ColumnReader, schema: Schema, own: Bools) -> None:
    """Warn where rows of the option have features, which do not count: perhaps it is no outside option."""
    present = [name for name in schema.features if name in everything.columns]
    filled = {name: _is_filled(everything.columns[name]) & own for name in present}
    rows = np.any([*filled.values()], axis=0) if filled else own[:0]
    if rows.any():
        first = next(name for name, marks in filled.items() if marks.any())
        log.warning(
            "features of %s rows labelled %r are not read: outside=%r has no features, but column %r is filled there",
            *(f"{int(rows.sum()):,}", schema.outside, schema.outside, first),
        )


def _is_filled(column: pa.ChunkedArray) -> Bools:
    """Tell which values are there: neither gaps nor empty text."""
    if is_text(value_type(column.type)):
        return np.asarray(pc.binary_length(column.cast(pa.large_string())).fill_null(0).to_numpy() > 0)
    return np.asarray(~column.is_null(nan_is_null=True).to_numpy())


def blank_outside_features(fields: dict[str, Any], n_rows: int) -> dict[str, Any]:
    """Take the features from the option's rows, in the fields of a ``ChoiceData``; the table itself has ``n_rows``."""
    schema, rows, labels = fields["schema"], fields["rows"], fields["labels"]
    out = rows >= n_rows if labels is None else _is_label(labels.codes, labels.categories, schema.outside)
    features = {name: _blank(column, out) for name, column in fields["features"].items()}
    if schema.outside_feature is not None:
        features[schema.outside_feature] = Numeric(out.astype(np.float32))
        features = {name: features[name] for name in schema.features}
    return fields | {"features": features, "added": int((rows >= n_rows).sum())}


def _is_label(codes: Ints | NDArray[np.int32], categories: Sequence[str], name: str) -> Bools:
    """Return which rows have a label; the code of a gap is -1."""
    return np.append([category == name for category in categories], False).astype(np.bool_)[codes]


def _blank(column: Column, out: Bools) -> Column:
    """Make values missing."""
    if isinstance(column, Numeric):
        return Numeric(np.where(out, np.float32(np.nan), column.values))
    if not isinstance(column, Categorical):
        return replace(column, codes=np.where(out, np.int32(MISSING_CODE), column.codes))
    categories = tuple(dict.fromkeys([*column.categories, MISSING_CATEGORY]))
    return Categorical(np.where(out, np.int32(categories.index(MISSING_CATEGORY)), column.codes), categories)


def with_filled_outside_features(data: ChoiceData) -> ChoiceData:
    """Give the option the features of the first other alternative of its set, for those who can do without gaps."""
    out = outside_rows(data)
    if out is None or not len(data):
        return data
    place = np.arange(len(out))
    other = np.minimum.reduceat(np.where(out, len(out), place), data.offsets[:-1])
    alone = other == len(out)  # a set of the option alone, which has a probability of 1 whatever its features are
    other[alone] = np.append(np.flatnonzero(~out), 0)[0]
    source = np.where(out, other[data.set_of_alternative], place)
    mark = data.schema.outside_feature
    columns = {name: column if name == mark else column.take(source) for name, column in data.features.items()}
    if out.all():
        numeric = {name: column for name, column in columns.items() if isinstance(column, Numeric)}
        columns |= {name: Numeric(np.nan_to_num(column.values)) for name, column in numeric.items()}
    return replace(data, features=columns)


def with_blank_outside_features(data: ChoiceData) -> ChoiceData:
    """Take the features from the option again, where somebody gave it some."""
    out = outside_rows(data)
    if out is None:
        return data
    mark = data.schema.outside_feature
    columns = {name: column if name == mark else _blank(column, out) for name, column in data.features.items()}
    return replace(data, features=columns)


def outside_rows(data: ChoiceData) -> Bools | None:
    """(N,) which alternatives are the outside option; None where the table declares none."""
    schema = data.schema
    if schema.outside is None:
        return None
    if schema.outside_feature is not None:
        return np.asarray(data.features[schema.outside_feature].plain() == 1)
    labels = data.labels
    return None if labels is None else _is_label(labels.codes, labels.categories, schema.outside)
