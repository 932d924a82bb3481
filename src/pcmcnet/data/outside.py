"""The outside option, such as buying nothing: an alternative without features that is in every choice set.

A table need not have rows for the outside option. Each set without an outside-option row gets one, which is added after
all rows of the table. If no row of a set is marked as chosen, the outside option counts as chosen. The features of the
outside option are treated as missing, even if its rows hold values. The individual-level columns, weight and person of
an outside option are taken from the other rows of the set. If the table has labels, the label of the outside option is
its name. Without labels, a feature with the name of the outside option is 1 for the outside option and 0 for other
alternatives.
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
    """Return the table with an outside-option row for each set, and the set number of each row."""
    # 1. Find the first other alternative of each set: rows of the outside option copy its columns.
    n, label, outside = len(set_of_row), schema.alternative, str(schema.outside)
    labels = None if label is None else everything.exact(label, categorical=True)
    is_outside = np.zeros(n, np.bool_) if labels is None else _is_label(labels.values, labels.categories or (), outside)
    available = np.ones(n, np.bool_) if schema.available is None else everything.flag(schema.available)
    filler = np.full(len(ids), n)
    other_rows = np.flatnonzero(available & ~is_outside)
    np.minimum.at(filler, set_of_row[other_rows], other_rows)
    if (filler == n).any():
        sets = np.flatnonzero(filler == n)
        raise SchemaError(
            f"choice set {ids[sets[0]]}: no alternative is available except the outside option {schema.outside!r}; "
            f"{len(sets)} such sets. Drop these sets: they offer no choice."
        )
    if schema.choices is not None:
        _warn_about_ignored_features(everything, schema, is_outside & available)
    # 2. Add a row to each set that has no row for the option.
    added = np.setdiff1d(np.arange(len(ids)), set_of_row[is_outside])
    rows = np.concatenate([np.arange(n), filler[added]])
    is_option = np.append(is_outside, np.zeros(len(added), np.bool_))
    source = np.where(is_option, filler[np.append(set_of_row, added)], rows)
    unchanged = {schema.choice_set, schema.available}
    columns = {name: column.take(rows if name in unchanged else source) for name, column in everything.columns.items()}
    # 3. Label the option in these rows. It is chosen if no other alternative is, and it has no rank.
    if label is not None and labels is not None:
        everything.require_exact_ids(label)
        words = [*dict.fromkeys([*(labels.categories or ()), outside])]
        codes = np.append(labels.values, np.full(len(added), words.index(outside))).astype(np.int32)
        columns[label] = pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(words, pa.string()))
    if schema.chosen is not None:
        everything.at(other_rows).flag(schema.chosen)  # raises SchemaError for values other than flags
        is_chosen, has_choice = everything.is_flagged(schema.chosen), np.zeros(len(ids), np.bool_)
        has_choice[set_of_row[is_chosen]] = True
        is_chosen = is_chosen | (is_outside & available & ~has_choice[set_of_row])
        columns[schema.chosen] = pa.array(np.append(is_chosen, ~has_choice[added]).astype(np.int8))
    if schema.rank is not None:
        unranked = pa.array(rows, mask=np.arange(len(rows)) >= n)
        columns[schema.rank] = everything.columns[schema.rank].take(unranked)
    return pa.table(columns), np.append(set_of_row, added).astype(np.int32)


def _warn_about_ignored_features(everything: ColumnReader, schema: Schema, is_outside: Bools) -> None:
    """Log a warning if outside-option rows have feature values, because these values are ignored."""
    present = [name for name in schema.features if name in everything.columns]
    filled = {name: _is_filled(everything.columns[name]) & is_outside for name in present}
    rows = np.any([*filled.values()], axis=0) if filled else is_outside[:0]
    if rows.any():
        first = next(name for name, marks in filled.items() if marks.any())
        log.warning(
            "features of %s rows labelled %r are ignored: the outside option %r has no features, but column %r "
            "has values",
            *(f"{int(rows.sum()):,}", schema.outside, schema.outside, first),
        )


def _is_filled(column: pa.ChunkedArray) -> Bools:
    """Return True for values that are neither missing nor empty text."""
    if is_text(value_type(column.type)):
        return np.asarray(pc.binary_length(column.cast(pa.large_string())).fill_null(0).to_numpy() > 0)
    return np.asarray(~column.is_null(nan_is_null=True).to_numpy())


def blank_outside_features(fields: dict[str, Any], n_rows: int) -> dict[str, Any]:
    """Set the features of outside options to missing in the fields of a ``ChoiceData`` with ``n_rows`` table rows."""
    schema, rows, labels = fields["schema"], fields["rows"], fields["labels"]
    is_outside = rows >= n_rows if labels is None else _is_label(labels.codes, labels.categories, schema.outside)
    features = {name: _blank(column, is_outside) for name, column in fields["features"].items()}
    if schema.outside_feature is not None:
        features[schema.outside_feature] = Numeric(is_outside.astype(np.float32))
        features = {name: features[name] for name in schema.features}
    return fields | {"features": features, "added": int((rows >= n_rows).sum())}


def _is_label(codes: Ints | NDArray[np.int32], categories: Sequence[str], name: str) -> Bools:
    """Return True for rows with the label ``name``. The code -1 marks a missing label."""
    return np.append([category == name for category in categories], False).astype(np.bool_)[codes]


def _blank(column: Column, rows: Bools) -> Column:
    """Return a copy in which the values of the given rows are missing."""
    if isinstance(column, Numeric):
        return Numeric(np.where(rows, np.float32(np.nan), column.values))
    if not isinstance(column, Categorical):
        return replace(column, codes=np.where(rows, np.int32(MISSING_CODE), column.codes))
    categories = tuple(dict.fromkeys([*column.categories, MISSING_CATEGORY]))
    return Categorical(np.where(rows, np.int32(categories.index(MISSING_CATEGORY)), column.codes), categories)


def with_filled_outside_features(data: ChoiceData) -> ChoiceData:
    """Copy features from the first other alternative of a set to its outside option, so that no feature is missing."""
    is_outside = outside_rows(data)
    if is_outside is None or not len(data):
        return data
    position = np.arange(len(is_outside))
    other = np.minimum.reduceat(np.where(is_outside, len(is_outside), position), data.offsets[:-1])
    alone = other == len(is_outside)  # the only alternative has probability 1, so any features will do
    other[alone] = np.append(np.flatnonzero(~is_outside), 0)[0]
    source = np.where(is_outside, other[data.set_of_alternative], position)
    mark = data.schema.outside_feature
    columns = {name: column if name == mark else column.take(source) for name, column in data.features.items()}
    if is_outside.all():
        numeric = {name: column for name, column in columns.items() if isinstance(column, Numeric)}
        columns |= {name: Numeric(np.nan_to_num(column.values)) for name, column in numeric.items()}
    return replace(data, features=columns)


def with_blank_outside_features(data: ChoiceData) -> ChoiceData:
    """Set the features of outside options to missing again, after :func:`with_filled_outside_features`."""
    is_outside = outside_rows(data)
    if is_outside is None:
        return data
    mark = data.schema.outside_feature
    columns = {name: column if name == mark else _blank(column, is_outside) for name, column in data.features.items()}
    return replace(data, features=columns)


def outside_rows(data: ChoiceData) -> Bools | None:
    """Return the mask (N,) of outside options, or None if the table declares no outside option."""
    schema = data.schema
    if schema.outside is None:
        return None
    if schema.outside_feature is not None:
        return np.asarray(data.features[schema.outside_feature].plain() == 1)
    labels = data.labels
    return None if labels is None else _is_label(labels.codes, labels.categories, schema.outside)
