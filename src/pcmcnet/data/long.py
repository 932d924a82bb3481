"""Long table + schema -> the parts of a ``ChoiceData``, every check on the way.

The order of checks is the order in which a person would want to hear of trouble: columns, sets,
availability, choices or ranks, labels, weights, persons, individuals, features. A column is freed once it is converted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.column_reader import ChunkContext, ColumnReader, categorical_inputs, require_exact
from pcmcnet.data.columns.arrays import Categorical, Column, array_to_numpy
from pcmcnet.data.columns.distinct import UNREADABLE, distinct, renumber_by_first_row
from pcmcnet.data.files.tabular import folder_of, read_table
from pcmcnet.data.kinds.contents import read_contents
from pcmcnet.data.outside import add_outside_rows, blank_outside_features
from pcmcnet.data.rankings import MUST_BE_AVAILABLE, explode, read_ranks
from pcmcnet.data.schema import Schema
from pcmcnet.errors import SchemaError

LIGHTEST, HEAVIEST = 1e-30, 1e30  # weights whose sums, and products with losses, float32 holds


@dataclass(frozen=True, slots=True)
class SetLayout:
    """The choice sets: their ids, and where each begins among the available alternatives."""

    ids: NDArray[Any]
    offsets: Ints
    begin: NDArray[np.bool_]  # whether an alternative is the first of its set

    @classmethod
    def of_sizes(cls, ids: NDArray[Any], sizes: Ints) -> SetLayout:
        """Lay the sets one after the other."""
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        begin = np.zeros(offsets[-1] + 1, np.bool_)  # the last entry is for empty sets at the end
        begin[offsets[:-1]] = True
        return cls(ids, offsets, begin[:-1])

    @property
    def starts(self) -> Ints:
        """First alternative of each set."""
        return self.offsets[:-1]

    def of(self, alternatives: Ints) -> Ints:
        """Sets that alternatives belong to."""
        return np.searchsorted(self.offsets, alternatives, side="right") - 1

    def first(self, sets: Ints) -> str:
        """Name the first few."""
        return ", ".join(str(self.ids[s]) for s in sets[:5])

    def error_at(self, sets: Ints, problem: str, remedy: str) -> SchemaError:
        """Build the error for some sets."""
        noun = "choice set" if len(sets) == 1 else "choice sets"
        more = f", ... ({len(sets)} in all)" if len(sets) > 5 else ""
        return SchemaError(f"{noun} {self.first(sets)}{more}: {problem}. {remedy}")


def read_long(
    table: Any, schema: Schema, part: ChunkContext | None = None, folder: Path | None = None
) -> dict[str, Any]:
    """Read and check a long table, or ``part`` of a larger one; returns the fields of ``ChoiceData``.

    Paths in the table count from ``folder``, or from that of the table's file.
    """
    # 1. Number the choice sets, and add rows of the outside option where there is one.
    folder = folder_of(table) if folder is None else folder
    arrow = read_table(table, schema.columns, text=schema.text_columns, ids=schema.id_columns, compact=True)
    require_not_empty(arrow.num_rows, schema)
    set_of_row, ids = _number_sets(arrow[schema.choice_set], name=schema.choice_set)
    everything = ColumnReader.of(arrow, name_set=lambda row: str(ids[set_of_row[row]]), part=part, folder=folder)
    n_rows = arrow.num_rows
    if schema.outside is not None:
        completed, set_of_row = add_outside_rows(everything, schema, set_of_row, ids)
        arrow = completed.replace_schema_metadata(arrow.schema.metadata)
        everything = ColumnReader.of(arrow, name_set=everything.name_set, folder=folder)
    del arrow  # its columns live on in the reader, until they are forgotten
    # 2. Put the rows of each set together.
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
        column = f"column {schema.available!r}: no alternative is available"
        raise sets.error_at(np.flatnonzero(sizes == 0), column, "Drop these sets or correct the column.")
    # 3. Read the columns that say what was chosen, by whom, and how much it counts.
    chosen = None if schema.chosen is None else _chosen(reader, everything.at(hidden), schema, sets)
    ranks = None if schema.rank is None else read_ranks(reader, everything.at(hidden), schema.rank, sets)
    labels = None if schema.alternative is None else _labels(reader, schema.alternative, sets)
    weights = _weights(reader, schema, sets)
    if schema.person is not None:
        persons = reader.categorical(schema.person, gap_remedy="Fill in the id of the person, or drop these rows.")
        _require_constant(persons.codes, sets, f"person in column {schema.person!r}", "Give each set to one person.")
    # 4. Read the columns that models see and those that are carried along, and free each as soon as it is read.
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
    # 5. A ranking becomes a sequence of choices.
    return fields if ranks is None else explode(fields, ranks)


def require_not_empty(n: int, schema: Schema) -> None:
    """Refuse a table without rows, unless it is only to be predicted: then there is nothing to predict."""
    if n == 0 and schema.choices is not None:
        raise SchemaError("the table is empty: expected at least one row.")


def _number_sets(column: pa.ChunkedArray, *, name: str) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Number the sets in the order of their first rows; also their ids."""
    try:
        codes, values = renumber_by_first_row(distinct(column))
        ids = array_to_numpy(values)
    except UNREADABLE as error:
        raise SchemaError(f"column {name!r} has the type {column.type}, which cannot name choice sets.") from error
    nothing = ids != ids  # NaN, which is an id of its own to Arrow
    gaps = np.flatnonzero(np.append(nothing, True)[codes]) if nothing.any() or (codes < 0).any() else codes[:0]
    if gaps.size:
        raise SchemaError(
            f"column {name!r}, row {gaps[0]}: expected the id of a choice set, got nothing; {gaps.size} such rows. "
            f"Drop them or fill in the id."
        )
    if ids.dtype.kind == "i":
        ids = ids.astype(np.int64)
    require_exact(ids, name)
    return codes, ids


def _sorted_rows(set_of_row: NDArray[np.int32]) -> Ints:
    """Order rows set after set, and in table order within a set."""
    if (set_of_row[1:] >= set_of_row[:-1]).all():
        return np.arange(len(set_of_row))
    few = set_of_row.max() < 2**16
    return np.argsort(set_of_row.astype(np.uint16) if few else set_of_row, kind="stable")  # few are sorted by radix


def _chosen(reader: ColumnReader, hidden: ColumnReader, schema: Schema, sets: SetLayout) -> Ints:
    """Position of the one chosen alternative of each set."""
    assert schema.chosen is not None
    picked = np.flatnonzero(reader.flag(schema.chosen))
    problem = f"the chosen alternative is marked unavailable in column {schema.available!r}"
    hidden.require_valid(schema.chosen, hidden.is_set(schema.chosen), problem, f"A chosen {MUST_BE_AVAILABLE}")
    counts = np.bincount(sets.of(picked), minlength=len(sets.ids))
    column = f"column {schema.chosen!r}: expected exactly one chosen alternative"
    if (counts == 0).any():
        raise sets.error_at(np.flatnonzero(counts == 0), f"{column}, found none", "Drop these sets or correct them.")
    if (counts > 1).any():
        remedy = "Split a set with several choices into one set per choice."
        raise sets.error_at(np.flatnonzero(counts > 1), f"{column}, found up to {counts.max()}", remedy)
    return picked - sets.starts


def _labels(reader: ColumnReader, column: str, sets: SetLayout) -> Categorical:
    """Labels of the alternatives, unique within each set."""
    reader.require_exact(column)
    labels = reader.categorical(column, gap_remedy="Name these alternatives, or drop their rows.")
    if (sets.begin[1:] | (labels.codes[1:] > labels.codes[:-1])).all():  # most tables list them in one order
        return labels
    pairs = sets.of(np.arange(len(labels))) * len(labels.categories) + labels.codes
    unique, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    if len(unique) < len(pairs):
        again = first[counts > 1]
        label = labels.categories[labels.codes[again.min()]]
        problem = f"the label {label!r} stands more than once in this set; {len(again)} such labels in the table."
        remedy = "Labels must be unique within a set: remove the duplicates, or leave out alternative."
        raise reader.error_at(column, int(reader.rows[again.min()]), problem, remedy)
    return labels


def _weights(reader: ColumnReader, schema: Schema, sets: SetLayout) -> NDArray[np.float64]:
    if schema.weight is None:
        return np.ones(len(sets.ids))
    values = reader.weight(schema.weight)
    least = values.min(initial=0)
    reader.require_valid(schema.weight, values < 0, "expected a weight of at least 0", "Correct them.", lambda _: least)
    beyond = ((values > 0) & (values < LIGHTEST)) | (values > HEAVIEST)
    if beyond.any():
        exact = reader.exact(schema.weight, categorical=False).values
        problem = f"expected a weight of 0 or from {LIGHTEST:g} to {HEAVIEST:g}"
        remedy = "Multiply all weights by the same number, or set tiny ones to 0."
        reader.require_valid(schema.weight, beyond, problem, remedy, lambda at: f"{exact[at]:g}")
    if len(values) and not values.any() and reader.part is None:
        raise SchemaError(f"column {schema.weight!r}: all weights are 0, expected at least one above 0.")
    _require_constant(values, sets, f"weight in column {schema.weight!r}", "Give each set one weight.")
    return values[sets.starts].astype(np.float64)


def _features(reader: ColumnReader, schema: Schema) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    categorical, rich = frozenset(schema.categorical or ()), schema.contents  # a table may have thousands of columns
    for name in schema.table_features:
        if name in rich:
            columns[name] = read_contents(reader, name, rich[name], missing=schema.missing)
        else:
            read_long = reader.categorical if name in categorical else reader.numeric
            columns[name] = read_long(name, missing=schema.missing)
        reader.forget(name)
    return columns


def _per_set(reader: ColumnReader, names: tuple[str, ...], schema: Schema, sets: SetLayout) -> dict[str, Column]:
    """One value per set of each column, refusing those that vary unless the first is wanted."""
    columns: dict[str, Column] = {}
    conflicts: list[str] = []
    numeric, rich = {*schema.individual, *schema.features}.difference(schema.categorical or ()), schema.contents
    for name in names:
        if name in rich:
            contents = read_contents(reader, name, rich[name], missing=schema.missing)
            varying = _varying(contents.codes, sets)
            columns[name] = contents.take(sets.starts)
        else:
            if name in schema.kept_columns:
                reader.require_exact(name)
            exact = reader.exact(name, categorical=name not in numeric)
            varying = _varying(exact.values, sets)
            columns[name] = reader.checked(exact.take(sets.starts), schema.missing)
        if varying.size and schema.conflict == "error":
            conflicts.append(f"{name!r} varies within {varying.size} choice sets (first: {sets.first(varying)})")
    if conflicts:
        raise SchemaError(
            f"individual columns must be constant within a choice set, but {'; '.join(conflicts)}. "
            f"Declare them as features, or pass conflict='first' to take each set's first value."
        )
    return columns


def _require_constant(values: NDArray[Any], sets: SetLayout, what: str, remedy: str) -> None:
    varying = _varying(values, sets)
    if varying.size:
        raise sets.error_at(varying, f"the {what} varies within the set", remedy)


def _varying(values: NDArray[Any], sets: SetLayout) -> Ints:
    """Sets in which a column is not constant; a gap equals a gap."""
    change = np.flatnonzero((values[1:] != values[:-1]) & ~sets.begin[1:]) + 1
    before, after = values[change - 1], values[change]
    return np.unique(sets.of(change[(before == before) | (after == after)]))
