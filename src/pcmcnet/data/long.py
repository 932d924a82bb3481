"""Long table + schema -> the parts of a ``ChoiceData``, every check on the way.

The order of checks is the order in which a person would want to hear of trouble: columns, sets,
availability, choices, labels, individuals, features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.data.columns import Categorical, Column, Ints, Numeric, raw
from pcmcnet.data.schema import Schema
from pcmcnet.data.table import Reader, dictionary, read_table
from pcmcnet.errors import SchemaError


def read(table: Any, schema: Schema) -> dict[str, Any]:
    """Read and check a long table; returns the fields of ``ChoiceData``."""
    arrow = read_table(table, schema.columns)
    if arrow.num_rows == 0:
        raise SchemaError("the table is empty: expected at least one row.")
    set_of_row, ids = _number_sets(arrow[schema.choice_set], name=schema.choice_set)
    everything = Reader(
        arrow, rows=np.arange(arrow.num_rows), set_ids=lambda row: str(ids[int(set_of_row[row])].as_py())
    )
    available = None if schema.available is None else everything.flag(schema.available)
    rows, hidden = _order_rows(set_of_row, available)
    reader = Reader(arrow, rows=rows, set_ids=everything.set_ids)
    sets = set_of_row[rows]
    sizes = np.bincount(sets, minlength=len(ids))
    if not sizes.all():
        _raise_for_sets(np.flatnonzero(sizes == 0), ids, "no available alternative", "Drop them or correct the column.")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    labels = None if schema.alternative is None else _labels(reader, schema.alternative, sets, ids)
    resolved = replace(schema, categorical=_categorical(everything, schema))
    return {
        "schema": resolved,
        "offsets": offsets,
        "set_ids": ids.to_numpy(zero_copy_only=False),
        "chosen": None if schema.chosen is None else _chosen(everything, reader, schema, sets, offsets, ids, hidden),
        "weights": _weights(reader, schema, sets, offsets, ids),
        "features": {name: _column(reader, name, resolved) for name in schema.features},
        "labels": labels,
        "individual": _per_set(reader, schema.individual, resolved, sets, offsets, ids),
        "keep": _per_set(reader, schema.keep, resolved, sets, offsets, ids),
        "rows": rows,
        "hidden_rows": hidden,
        "hidden_sets": set_of_row[hidden],
    }


def _number_sets(column: pa.ChunkedArray, *, name: str) -> tuple[Ints, pa.Array]:
    """Number the sets in the order of their first rows; also their ids."""
    gaps = np.flatnonzero(column.is_null(nan_is_null=True).to_numpy())
    if gaps.size:
        raise SchemaError(
            f"column {name!r}, row {gaps[0]}: expected the id of a choice set, got nothing; {gaps.size} such rows. "
            f"Drop them or fill in the id."
        )
    encoded = dictionary(column)
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary


def _order_rows(set_of_row: Ints, available: NDArray[np.bool_] | None) -> tuple[Ints, Ints]:
    """Rows of available alternatives, set after set and in table order within a set; then the others."""
    if available is None:
        return np.argsort(set_of_row, kind="stable"), np.empty(0, np.int64)
    shown = np.flatnonzero(available)
    return shown[np.argsort(set_of_row[shown], kind="stable")], np.flatnonzero(~available)


def _raise_for_sets(sets: Ints, ids: pa.Array, problem: str, remedy: str) -> None:
    names = ", ".join(str(ids[int(s)].as_py()) for s in sets[:5])
    more = f", ... ({len(sets)} in all)" if len(sets) > 5 else ""
    noun = "choice set" if len(sets) == 1 else "choice sets"
    raise SchemaError(f"{noun} {names}{more}: {problem}. {remedy}")


def _chosen(
    everything: Reader, reader: Reader, schema: Schema, sets: Ints, offsets: Ints, ids: pa.Array, hidden: Ints
) -> Ints:
    """Position of the one chosen alternative of each set."""
    assert schema.chosen is not None
    flags = everything.flag(schema.chosen)
    if flags[hidden].any():
        row = int(hidden[flags[hidden]][0])
        raise everything.fail(
            schema.chosen,
            row,
            f"the chosen alternative is marked unavailable in column {schema.available!r}; "
            f"{int(flags[hidden].sum())} such rows.",
            "A chosen alternative must be available: correct one of the two columns.",
        )
    picked = flags[reader.rows]
    counts = np.bincount(sets, weights=picked, minlength=len(ids))
    column = f"column {schema.chosen!r}: expected exactly one chosen alternative"
    if (counts == 0).any():
        _raise_for_sets(np.flatnonzero(counts == 0), ids, f"{column}, found none", "Drop these sets or correct them.")
    if (counts > 1).any():
        worst = int(counts.max())
        _raise_for_sets(
            np.flatnonzero(counts > 1),
            ids,
            f"{column}, found up to {worst}",
            "Split a set with several choices into one set per choice.",
        )
    return np.flatnonzero(picked) - offsets[:-1]


def _labels(reader: Reader, column: str, sets: Ints, ids: pa.Array) -> Categorical:
    """Labels of the alternatives, unique within each set."""
    labels = reader.categorical(column)
    pairs = sets * len(labels.categories) + labels.codes
    unique, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    if len(unique) < len(pairs):
        again = np.flatnonzero(counts > 1)
        at = first[again[np.argmin(first[again])]]
        raise reader.fail(
            column,
            int(reader.rows[at]),
            f"the label {labels.categories[labels.codes[at]]!r} stands more than once in this set; "
            f"{len(again)} such labels in the table.",
            "Labels must be unique within a set: remove the duplicates, or leave out alternative.",
        )
    return labels


def _weights(reader: Reader, schema: Schema, sets: Ints, offsets: Ints, ids: pa.Array) -> NDArray[np.float64]:
    if schema.weight is None:
        return np.ones(len(ids))
    values = reader.numeric(schema.weight).values
    if (values < 0).any():
        at = int(np.flatnonzero(values < 0)[0])
        raise reader.fail(
            schema.weight,
            int(reader.rows[at]),
            f"expected a weight of at least 0, got {values[at]}; {int((values < 0).sum())} such rows.",
            "Correct them.",
        )
    if not values.any():
        raise SchemaError(f"column {schema.weight!r}: all weights are 0, expected at least one above 0.")
    varying = _varying(Numeric(values), sets, offsets)
    if varying.size:
        _raise_for_sets(
            varying, ids, f"the weight in column {schema.weight!r} varies within the set", "Give each set one weight."
        )
    return values[offsets[:-1]].astype(np.float64)


def _categorical(reader: Reader, schema: Schema) -> tuple[str, ...]:
    """Which model inputs are categorical: as declared, or by dtype."""
    if schema.categorical is not None:
        return schema.categorical
    return tuple(c for c in (*schema.individual, *schema.features) if reader.is_categorical_by_dtype(c))


def _column(reader: Reader, name: str, schema: Schema) -> Column:
    if name in (schema.categorical or ()):
        return reader.categorical(name, missing=schema.missing)
    return reader.numeric(name, missing=schema.missing)


def _per_set(
    reader: Reader, names: tuple[str, ...], schema: Schema, sets: Ints, offsets: Ints, ids: pa.Array
) -> dict[str, Column]:
    """One value per set of each column, refusing those that vary unless the first is wanted."""
    columns: dict[str, Column] = {}
    conflicts: list[str] = []
    for name in names:
        in_model = name in schema.individual
        column = _column(reader, name, schema) if in_model else reader.categorical(name)
        varying = _varying(column, sets, offsets)
        if varying.size and schema.conflict == "error":
            shown = ", ".join(str(ids[int(s)].as_py()) for s in varying[:5])
            conflicts.append(f"{name!r} varies within {varying.size} choice sets (first: {shown})")
        columns[name] = column.take(offsets[:-1])
    if conflicts:
        raise SchemaError(
            f"individual columns must be constant within a choice set, but {'; '.join(conflicts)}. "
            f"Declare them as features, or pass conflict='first' to take each set's first value."
        )
    return columns


def _varying(column: Column, sets: Ints, offsets: Ints) -> Ints:
    """Sets in which a column is not constant; a gap equals a gap."""
    values = raw(column)
    first = values[offsets[:-1]][sets]
    differs = (values != first) & ~((values != values) & (first != first))
    return np.unique(sets[differs])
