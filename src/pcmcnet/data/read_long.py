"""Conversion of a long table and its schema to the fields of a ``ChoiceData``, with all checks.

Checks run from general to specific: columns, sets, availability, choices or ranks, labels, weights, persons,
individuals, features. Each column is freed from memory once it is converted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.column_reader import ChunkContext, ColumnReader, categorical_inputs, require_exact_ids
from pcmcnet.data.columns.arrays import Categorical, Column, array_to_numpy
from pcmcnet.data.columns.distinct import UNREADABLE, distinct, renumber_by_first_row, similar_values
from pcmcnet.data.counts import choices_of_counts, read_counts
from pcmcnet.data.files.tabular import folder_of, read_table
from pcmcnet.data.kinds.contents import read_contents
from pcmcnet.data.outside import add_outside_rows, blank_outside_features
from pcmcnet.data.rankings import MUST_BE_AVAILABLE, explode, read_ranks
from pcmcnet.data.schema import Schema
from pcmcnet.errors import SchemaError, such_rows

log = logging.getLogger("pcmcnet")

MIN_WEIGHT, MAX_WEIGHT = 1e-30, 1e30  # range of weights whose sums, and products with losses, fit into float32


@dataclass(frozen=True, slots=True)
class SetLayout:
    """Ids of the choice sets, and the position of each set among the available alternatives."""

    ids: NDArray[Any]
    offsets: Ints
    begin: NDArray[np.bool_]  # True for the first alternative of each set

    @classmethod
    def of_sizes(cls, ids: NDArray[Any], sizes: Ints) -> SetLayout:
        """Return the layout of consecutive sets of the given sizes."""
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        begin = np.zeros(offsets[-1] + 1, np.bool_)  # the last entry is for empty sets at the end
        begin[offsets[:-1]] = True
        return cls(ids, offsets, begin[:-1])

    @property
    def starts(self) -> Ints:
        """First alternative of each set."""
        return self.offsets[:-1]

    def of(self, alternatives: Ints) -> Ints:
        """Return the sets that alternatives belong to."""
        return np.searchsorted(self.offsets, alternatives, side="right") - 1

    def first(self, sets: Ints) -> str:
        """Return the ids of the first five of the given sets, as text."""
        return ", ".join(str(self.ids[s]) for s in sets[:5])

    def error_at(self, sets: Ints, problem: str, remedy: str) -> SchemaError:
        """Return a SchemaError that names the given sets."""
        noun = "choice set" if len(sets) == 1 else "choice sets"
        more = f", ... ({len(sets)} in all)" if len(sets) > 5 else ""
        return SchemaError(f"{noun} {self.first(sets)}{more}: {problem}. {remedy}")


def read_long(
    table: Any, schema: Schema, context: ChunkContext | None = None, folder: Path | None = None
) -> dict[str, Any]:
    """Read and check a long table.

    Parameters
    ----------
    table
        The table, or a chunk of a larger table.
    schema
        Roles of the columns.
    context
        Row numbers of a chunk in the larger table, or None (default) if the table is not a chunk.
    folder
        Folder to which paths in the table are relative. The default is the folder of the table's file.

    Returns
    -------
    dict
        The fields of a ``ChoiceData``.

    Raises
    ------
    SchemaError
        If the table does not fit the schema.
    """
    # 1. Number the choice sets, and add rows for outside options.
    folder = folder_of(table) if folder is None else folder
    arrow = read_table(table, schema.columns, text=schema.text_columns, ids=schema.id_columns, compact=True)
    require_not_empty(arrow.num_rows, schema)
    set_of_row, ids = _number_sets(arrow[schema.choice_set], name=schema.choice_set)
    everything = ColumnReader.of(arrow, name_set=lambda row: str(ids[set_of_row[row]]), context=context, folder=folder)
    n_rows = arrow.num_rows
    if schema.outside is not None:
        completed, set_of_row = add_outside_rows(everything, schema, set_of_row, ids)
        arrow = completed.replace_schema_metadata(arrow.schema.metadata)
        everything = ColumnReader.of(arrow, name_set=everything.name_set, folder=folder)
    del arrow  # the reader holds the columns and releases them one by one
    # 2. Group the rows by set.
    if schema.available is None:
        rows, hidden = _sorted_rows(set_of_row), np.empty(0, np.int64)
    else:
        available = everything.flag(schema.available)
        shown, hidden = np.flatnonzero(available), np.flatnonzero(~available)
        rows = shown[_sorted_rows(set_of_row[shown])]
    reader = everything.at(rows)
    sizes = np.bincount(set_of_row[rows], minlength=len(ids))
    sets = SetLayout.of_sizes(ids, sizes)
    if not sizes.all():
        problem = f"column {schema.available!r}: no alternative is available"
        raise sets.error_at(np.flatnonzero(sizes == 0), problem, "Drop these sets or correct the column.")
    # 3. Read choices, ranks, labels, weights and persons.
    chosen = None if schema.chosen is None else _chosen(reader, everything.at(hidden), schema, sets)
    ranks = None if schema.rank is None else read_ranks(reader, everything.at(hidden), schema.rank, sets)
    counts = None if schema.counts is None else read_counts(reader, everything.at(hidden), schema.counts, sets)
    labels = None if schema.alternative is None else _labels(reader, schema.alternative, sets)
    weights = _weights(reader, schema, sets)
    if schema.person is not None:
        persons = reader.categorical(schema.person, missing_remedy="Fill in the id of the person, or drop these rows.")
        _require_constant(persons.codes, sets, f"person in column {schema.person!r}", "Each set needs one person.")
    # 4. Read model inputs and kept columns; release each column once it is read.
    resolved = replace(schema, categorical=categorical_inputs(everything, schema))
    reader.keep_only({*schema.individual, *schema.kept_columns, *schema.features})
    individual = _per_set(reader, schema.individual, resolved, sets)
    reader.keep_only({*schema.kept_columns, *schema.features})
    keep = _per_set(reader, schema.kept_columns, resolved, sets)
    fields = {
        "schema": resolved,
        "offsets": sets.offsets,
        "set_ids": ids,
        "chosen": chosen,
        "weights": weights,
        "features": _features(reader, resolved),
        "labels": labels,
        "individual": individual,
        "keep": keep,
        "rows": rows,
        "hidden_rows": hidden,
        "hidden_sets": set_of_row[hidden].astype(np.int64),
    }
    if schema.outside is not None:
        fields = blank_outside_features(fields, n_rows)
    # 5. A ranking becomes a sequence of choices, and a market one choice set for each chosen alternative.
    if counts is not None:
        return choices_of_counts(fields, counts)
    return fields if ranks is None else explode(fields, ranks)


def require_not_empty(n: int, schema: Schema) -> None:
    """Raise SchemaError if a table with choices is empty. A table for prediction may be empty."""
    if n == 0 and schema.choices is not None:
        raise SchemaError("the table is empty: expected at least one row.")


def _number_sets(column: pa.ChunkedArray, *, name: str) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the set number of each row, and the ids of the sets. Sets are numbered by their first rows."""
    try:
        codes, values = renumber_by_first_row(distinct(column))
        ids = array_to_numpy(values)
    except UNREADABLE as error:
        raise SchemaError(
            f"column {name!r}: choice-set ids of type {column.type} are not supported. Convert the column to text or "
            f"integers."
        ) from error
    is_nan = ids != ids  # Arrow counts NaN as an id
    missing = np.flatnonzero(np.append(is_nan, True)[codes]) if is_nan.any() or (codes < 0).any() else codes[:0]
    if missing.size:
        raise SchemaError(
            f"column {name!r}, row {missing[0]}: expected the id of a choice set, got nothing; "
            f"{such_rows(missing.size)}. Drop them or fill in the id."
        )
    if ids.dtype.kind == "i":
        ids = ids.astype(np.int64)
    require_exact_ids(ids, name)
    return codes, ids


def _sorted_rows(set_of_row: NDArray[np.int32]) -> Ints:
    """Return the rows sorted by set, and in table order within a set."""
    if (set_of_row[1:] >= set_of_row[:-1]).all():
        return np.arange(len(set_of_row))
    fits_16_bits = set_of_row.max() < 2**16  # NumPy sorts 16-bit integers by radix sort, several times faster
    return np.argsort(set_of_row.astype(np.uint16) if fits_16_bits else set_of_row, kind="stable")


def _chosen(reader: ColumnReader, hidden: ColumnReader, schema: Schema, sets: SetLayout) -> Ints:
    """Return the position of the chosen alternative in each set."""
    assert schema.chosen is not None
    chosen = np.flatnonzero(reader.flag(schema.chosen))
    problem = f"the chosen alternative is marked unavailable in column {schema.available!r}"
    hidden.require_valid(schema.chosen, hidden.is_flagged(schema.chosen), problem, f"A chosen {MUST_BE_AVAILABLE}")
    counts = np.bincount(sets.of(chosen), minlength=len(sets.ids))
    expected = f"column {schema.chosen!r}: expected exactly one chosen alternative"
    if (counts == 0).any():
        raise sets.error_at(np.flatnonzero(counts == 0), f"{expected}, got none", "Drop these sets or correct them.")
    if (counts > 1).any():
        if len(counts) == 1 and counts[0] > 2:
            raise SchemaError(
                f"{expected} in each choice set, got {counts[0]}: all rows have the same id in column "
                f"{schema.choice_set!r}. Name a column with one id for each choice set."
            )
        remedy = "Remove rows that occur twice, or split a set with several choices into one set per choice."
        raise sets.error_at(np.flatnonzero(counts > 1), f"{expected}, got up to {counts.max()}", remedy)
    return chosen - sets.starts


def _labels(reader: ColumnReader, column: str, sets: SetLayout) -> Categorical:
    """Return the labels of the alternatives, or raise SchemaError if a label is repeated within a set."""
    reader.require_exact_ids(column)
    labels = reader.categorical(column, missing_remedy="Name these alternatives, or drop their rows.")
    similar = similar_values(labels.categories) if reader.context is None and len(labels.categories) <= 1_000 else None
    if similar is not None:
        log.warning("column %r: the labels %s. Correct the table if they are the same alternative.", column, similar)
    if (sets.begin[1:] | (labels.codes[1:] > labels.codes[:-1])).all():  # sorted within each set, as in most tables
        return labels
    pairs = sets.of(np.arange(len(labels))) * len(labels.categories) + labels.codes
    unique, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    if len(unique) < len(pairs):
        repeated = first[counts > 1]
        label = labels.categories[labels.codes[repeated.min()]]
        problem = f"the label {label!r} occurs more than once in this set; {len(repeated)} such labels in the table."
        remedy = "Labels must be unique within a set: remove the duplicates, or read the table without alternative."
        raise reader.error_at(column, int(reader.rows[repeated.min()]), problem, remedy)
    return labels


def _weights(reader: ColumnReader, schema: Schema, sets: SetLayout) -> NDArray[np.float64]:
    if schema.weight is None:
        return np.ones(len(sets.ids))
    values = reader.weight(schema.weight)
    least = values.min(initial=0)
    reader.require_valid(schema.weight, values < 0, "expected a weight of at least 0", "Correct them.", lambda _: least)
    out_of_range = ((values > 0) & (values < MIN_WEIGHT)) | (values > MAX_WEIGHT)
    if out_of_range.any():
        exact = reader.exact(schema.weight, categorical=False).values
        problem = f"expected a weight of 0 or from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        remedy = "Multiply all weights by the same number, or set tiny ones to 0."
        reader.require_valid(schema.weight, out_of_range, problem, remedy, lambda at: f"{exact[at]:g}")
    if len(values) and not values.any() and reader.context is None:
        raise SchemaError(f"column {schema.weight!r}: all weights are 0, expected at least one above 0.")
    _require_constant(values, sets, f"weight in column {schema.weight!r}", "Each set needs one weight.")
    return values[sets.starts].astype(np.float64)


def _features(reader: ColumnReader, schema: Schema) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    categorical, contents = frozenset(schema.categorical or ()), schema.contents  # computed once for all columns
    for name in schema.table_features:
        if name in contents:
            columns[name] = read_contents(reader, name, contents[name], missing=schema.missing)
        else:
            read = reader.categorical if name in categorical else reader.numeric
            columns[name] = read(name, missing=schema.missing)
        reader.release(name)
    return columns


def _per_set(reader: ColumnReader, names: tuple[str, ...], schema: Schema, sets: SetLayout) -> dict[str, Column]:
    """Return columns with one value per set.

    Raise SchemaError if values differ within a set, unless ``conflict`` is "first".
    """
    columns: dict[str, Column] = {}
    conflicts: list[str] = []
    numeric, kinds = {*schema.individual, *schema.features}.difference(schema.categorical or ()), schema.contents
    for name in names:
        if name in kinds:
            contents = read_contents(reader, name, kinds[name], missing=schema.missing)
            varying = _varying(contents.codes, sets)
            columns[name] = contents.take(sets.starts)
        else:
            if name in schema.kept_columns:
                reader.require_exact_ids(name)
            exact = reader.exact(name, categorical=name not in numeric)
            varying = _varying(exact.values, sets)
            columns[name] = reader.checked(exact.take(sets.starts), schema.missing)
        if varying.size and schema.conflict == "error":
            conflicts.append(f"{name!r} varies within {varying.size} choice sets (first: {sets.first(varying)})")
    if conflicts:
        raise SchemaError(
            f"individual-level columns must be constant within a choice set, but {'; '.join(conflicts)}. "
            f"Declare them as features, or declare conflict='first' to use the first value of each set."
        )
    return columns


def _require_constant(values: NDArray[Any], sets: SetLayout, subject: str, remedy: str) -> None:
    varying = _varying(values, sets)
    if varying.size:
        raise sets.error_at(varying, f"the {subject} varies within the set", remedy)


def _varying(values: NDArray[Any], sets: SetLayout) -> Ints:
    """Return the sets in which a column is not constant. Two missing values count as equal."""
    change = np.flatnonzero((values[1:] != values[:-1]) & ~sets.begin[1:]) + 1
    before, after = values[change - 1], values[change]
    return np.unique(sets.of(change[(before == before) | (after == after)]))
