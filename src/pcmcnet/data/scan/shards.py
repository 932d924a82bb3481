"""Choice sets <-> an Arrow file that is mapped into memory: one row per set, its alternatives as a list.

    set       id, key (its hash), first (of its rows in the table), chosen, weight, individual and kept columns
    shown     list of its alternatives: row (in the table), place (among the shard's rows), label, features
    hidden    list of those that are not available: row, place

Columns are known by their places in the schema, so that they may have any names. Categories and contents are
dictionaries: each distinct one is there once. Numbers are read where they lie, and only what is asked for is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.arrow_numbers import array_to_numpy
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.column_arrays import GAP, Categorical, Column, Columns, Contents, Numeric
from pcmcnet.data.file_errors import one_line
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.scan.id_hashes import Keys, keys_of, mixed, text_keys
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ArtifactError


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Some choice sets of a larger table, in the order of their first rows."""

    data: ChoiceData  # its rows are numbered from 0 in the table's order
    keys: Keys  # (S,)
    first: Ints  # (S,) row of the table where each set begins
    shown_rows: Ints  # (N,) row of the table of each alternative
    hidden_rows: Ints  # likewise of those that are not available

    @property
    def table_rows(self) -> Ints:
        """(n_rows,) the table's row of each of this part's rows."""
        rows = np.empty(self.data.n_rows, np.int64)
        rows[self.data.rows], rows[self.data.hidden_rows] = self.shown_rows, self.hidden_rows
        return rows

    def subset(self, mask: NDArray[np.bool_]) -> Shard:
        """Keep some of the sets."""
        if mask.all():
            return self
        return Shard(
            data=self.data.subset(mask),
            keys=self.keys[mask],
            first=self.first[mask],
            shown_rows=self.shown_rows[np.repeat(mask, self.data.sizes)],
            hidden_rows=self.hidden_rows[mask[self.data.hidden_sets]],
        )

    def keys_by(self, column: str | None) -> Keys:
        """Return a key for each set, equal for equal values of an individual or kept column."""
        if column is None:
            return self.keys
        self.data.groups(column)  # says what is wrong with the name
        found = {**self.data.individual, **self.data.keep}[column]
        if isinstance(found, Categorical):
            return text_keys(list(found.categories))[found.codes]
        assert isinstance(found, Numeric)  # ScannedData.split refuses others
        return mixed((found.values.astype(np.float64) + 0.0).view(np.uint64))


def write_shard(path: Path, data: ChoiceData, numbers: Ints) -> None:
    """Write the sets of a part of a table whose rows have these numbers there."""
    shown: dict[str, Any] = {"row": pa.array(numbers[data.rows]), "place": pa.array(data.rows)}
    if data.labels is not None:
        shown["label"] = _to_arrow(data.labels)
    shown |= {f"feature {k}": _to_arrow(column) for k, column in enumerate(data.features.values())}
    order = np.argsort(data.hidden_sets, kind="stable")
    hidden_rows = data.hidden_rows[order]
    hidden = {"row": pa.array(numbers[hidden_rows]), "place": pa.array(hidden_rows)}
    ends = np.cumsum(np.bincount(data.hidden_sets, minlength=len(data)))
    ids = pa.array(data.set_ids)
    first = numbers[data.rows[data.offsets[:-1]]]  # rows of a set are in table order
    np.minimum.at(first, data.hidden_sets, numbers[data.hidden_rows])
    sets: dict[str, Any] = {"id": ids, "key": pa.array(keys_of(ids)), "first": pa.array(first)}
    if data.chosen is not None:
        sets["chosen"] = pa.array(data.chosen)
    sets["weight"] = pa.array(data.weights)
    for role, columns in (("individual", data.individual), ("keep", data.keep)):
        sets |= {f"{role} {k}": _to_arrow(column) for k, column in enumerate(columns.values())}
    sets["shown"] = _lists(data.offsets, shown)
    sets["hidden"] = _lists(np.concatenate([[0], ends]), hidden)
    batch = pa.RecordBatch.from_arrays(list(sets.values()), list(sets))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_shard(path: Path, schema: Schema, *, contents: bool = True) -> Shard:
    """Map a shard into memory; texts, lists and pictures are read, unless the contents are to be left out."""
    try:
        with pa.memory_map(str(path)) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        return _shard(batch, schema, contents=contents)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise ArtifactError(
            f"{path} cannot be read ({one_line(error)}): delete the cache {path.parent} and scan again."
        ) from error


def _shard(batch: pa.RecordBatch, schema: Schema, *, contents: bool) -> Shard:
    kinds: dict[str, str | None] = dict(schema.contents) if contents else dict.fromkeys(schema.contents)
    shown, hidden = batch.column("shown"), batch.column("hidden")
    fields, away = _fields(shown), _fields(hidden)
    offsets = _numbers(shown.offsets).astype(np.int64)
    has_chosen = "chosen" in batch.schema.names
    data = ChoiceData(
        schema=schema,
        offsets=offsets,
        set_ids=array_to_numpy(batch.column("id")),
        chosen=_numbers(batch.column("chosen")) if has_chosen else None,
        weights=_numbers(batch.column("weight")),
        features=_columns({name: fields[f"feature {k}"] for k, name in enumerate(schema.features)}, kinds),
        labels=_categorical(fields["label"]) if "label" in fields else None,
        individual=_columns(_of_sets(batch, "individual", schema.individual), kinds),
        keep=_columns(_of_sets(batch, "keep", schema.kept), kinds),
        rows=_numbers(fields["place"]),
        hidden_rows=_numbers(away["place"]),
        hidden_sets=np.repeat(np.arange(batch.num_rows), np.diff(_numbers(hidden.offsets))),
    )
    return Shard(
        data=data,
        keys=_numbers(batch.column("key")),
        first=_numbers(batch.column("first")),
        shown_rows=_numbers(fields["row"]),
        hidden_rows=_numbers(away["row"]),
    )


def joined(shards: list[Shard]) -> ChoiceData:
    """Put all sets of some shards into one table, with sets and rows in the order of the larger one."""
    parts = [shard.data for shard in shards]
    while len(parts) > 1:
        pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
        parts = [pair[0].concat(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    whole = parts[0]
    rank = np.empty(whole.n_rows, np.int64)
    rank[np.argsort(np.concatenate([shard.table_rows for shard in shards]))] = np.arange(whole.n_rows)
    whole = replace(whole, rows=rank[whole.rows], hidden_rows=rank[whole.hidden_rows])
    return whole.subset(np.argsort(np.concatenate([shard.first for shard in shards])))


def _lists(offsets: Ints, fields: dict[str, Any]) -> pa.ListArray:
    values = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _fields(lists: pa.ListArray) -> dict[str, pa.Array]:
    values = lists.values
    return {field.name: values.field(field.name) for field in values.type}


def _of_sets(batch: pa.RecordBatch, role: str, names: tuple[str, ...]) -> dict[str, pa.Array]:
    return {name: batch.column(f"{role} {k}") for k, name in enumerate(names)}


def _columns(arrays: dict[str, pa.Array], kinds: dict[str, str | None]) -> Columns:
    """Read columns; those whose kind is None are left out."""
    there = {name: array for name, array in arrays.items() if kinds.get(name, "plain") is not None}
    return {name: _from_arrow(array, kinds.get(name)) for name, array in there.items()}


def _to_arrow(column: Column) -> pa.Array:
    if isinstance(column, Numeric):
        return pa.array(column.values)
    if isinstance(column, Contents):
        used = column.compact()
        codes = pa.array(used.codes, mask=used.codes == GAP)
        return pa.DictionaryArray.from_arrays(codes, KINDS[used.kind].to_arrow(used.table))
    counts = np.bincount(column.codes, minlength=len(column.categories))  # some may not be used here
    words = pa.array([column.categories[k] for k in np.flatnonzero(counts)], pa.string())
    codes = (np.cumsum(counts > 0) - 1).astype(np.int32)[column.codes]
    return pa.DictionaryArray.from_arrays(pa.array(codes), words)


def _from_arrow(values: pa.Array, kind: str | None) -> Column:
    if kind is not None:
        codes = array_to_numpy(values.indices.fill_null(GAP)).astype(np.int32)
        return Contents(codes, KINDS[kind].from_arrow(values.dictionary), kind)
    return _categorical(values) if pa.types.is_dictionary(values.type) else Numeric(_numbers(values))


def _categorical(values: pa.DictionaryArray) -> Categorical:
    return Categorical(_numbers(values.indices), tuple(values.dictionary.to_pylist()))


def _numbers(values: pa.Array) -> NDArray[Any]:
    """Numbers where they lie; there are no gaps."""
    return np.from_dlpack(values)
