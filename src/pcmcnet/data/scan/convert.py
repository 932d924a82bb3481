"""Conversion of a table to shards: rows are distributed to partitions, which are checked like a table in memory.

Workers share the chunks of the table in the first pass and the partitions in the second pass. Results are combined in
the order of chunks and partitions, so shards and errors do not depend on the number of workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pcmcnet.arrays import Ints
from pcmcnet.data import read_long
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.column_reader import ChunkContext
from pcmcnet.data.columns.arrays import MISSING_CODE, Contents
from pcmcnet.data.columns.distinct import is_text
from pcmcnet.data.columns.statistics import Span, merge_spans
from pcmcnet.data.files.sources import TableStream, open_stream
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.scan.cache import (
    CacheEntries,
    FileState,
    Manifest,
    ShardFile,
    Tally,
    VerifiedShards,
    describe_shard,
    file_state,
    new_entry,
    write_shard,
)
from pcmcnet.data.scan.spill import Partitions, choice_set_of_row, spill_rows
from pcmcnet.data.scan.workers import Workers, workers_for
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ConfigError, SchemaError

log = logging.getLogger("pcmcnet")

_SIZE_SAMPLE_ROWS = 256  # from which the size of the others is estimated
_MEMORY_SHARES = 32  # the rows of a shard may take one share of the memory: checking them needs several copies
_MAX_PARTITIONS = 512  # each is an open file


def row_bytes(stream: TableStream, schema: Schema) -> int:
    """Return the approximate bytes per row: 8 per column, plus the size of contents, estimated from the first rows."""
    width = 8.0 * len(stream.columns) + 24
    kinds = {name: kind for name, kind in schema.contents.items() if name in stream.columns}
    batch = next(stream.batches(_SIZE_SAMPLE_ROWS), None) if kinds else None
    if batch is None or not batch.num_rows:
        return int(width)
    for name, kind in kinds.items():
        column = batch.column(stream.columns.index(name))
        width += column.nbytes / batch.num_rows + KINDS[kind].file_bytes(column, stream.folder)
    return int(width)


def loaded_bytes(data: ChoiceData) -> int:
    """Return the approximate number of bytes of the distinct content values prepared for a network."""
    columns = [*data.features.values(), *data.individual.values()]
    contents = [column for column in columns if isinstance(column, Contents) and len(column.table)]
    return sum(len(column.table) * KINDS[column.kind].prepared_bytes(column.table) for column in contents)


def convert_or_reuse(
    table: Path, schema: Schema, *, cache: Path | None, memory: int, workers: Workers | int | None
) -> tuple[VerifiedShards, Manifest]:
    """Return the shards of a table, locked against removal, and their manifest. Convert the table if necessary."""
    open_table = partial(open_stream, table, schema.columns, schema.text_columns, schema.id_columns)
    stream = open_table()
    root = cache if cache is not None else table.with_name(f"{table.name}.pcmcnet")
    entries = CacheEntries.of(root, table, schema, stream.files)
    new_states: dict[str, FileState] = {}
    while True:
        # 1. Use an existing entry. Lock it, then check that it was not removed before it was locked.
        existing = entries.find(memory)
        if existing is not None:
            entry, manifest = existing
            verified = VerifiedShards(entry, new_states)
            if Manifest.read(entry) == manifest:
                return verified, manifest
            continue
        # 2. Convert the table to a new entry, which the next round finds.
        entry = entries.place(memory)
        log.info("converting %s to %s", table, entry)
        pool = usable_workers(workers, schema, stream.rows)
        with new_entry(entry) as folder, pool:
            resolved, tally, shards, new_states = _convert(stream, open_table, schema, folder, memory, pool)
            roles = resolved.to_dict()
            Manifest(identity=entries.identity, memory=memory, schema=roles, tally=tally, shards=shards).write(folder)
        entries.remove_former()


def usable_workers(workers: Workers | int | None, schema: Schema, rows: int) -> Workers:
    """Return the workers of a scan.

    If a column kind is defined outside the library, only the current process is used, because other processes do not
    know the kind.
    """
    if not all(type(KINDS[kind]).__module__.startswith("pcmcnet.") for kind in schema.contents.values()):
        return workers_for(1)
    if workers is None or isinstance(workers, int):
        return workers_for(workers, rows * len(schema.columns))
    return workers


def _convert(
    stream: TableStream,
    open_table: Callable[[], TableStream],
    schema: Schema,
    folder: Path,
    memory: int,
    workers: Workers,
) -> tuple[Schema, Tally, tuple[ShardFile, ...], dict[str, FileState]]:
    # 1. Choose the number of partitions, so that each fits into its share of the memory.
    width = row_bytes(stream, schema)
    size = stream.rows * width
    count = -(-size * _MEMORY_SHARES // memory)
    if count > 4 * _MAX_PARTITIONS:
        raise ConfigError(
            f"the rows of the table take about {size / 2**30:.1f} GiB, too much for memory={memory / 2**20:.0f} MiB: "
            f"allow at least {size * _MEMORY_SHARES / (4 * _MAX_PARTITIONS) / 2**20:.0f} MiB."
        )
    # 2. Distribute the rows to partitions. Text among numbers can be detected only in the whole table: check it here.
    at_once = memory // _MEMORY_SHARES // width
    options: dict[str, Any] = {"contents": schema.contents, "at_once": at_once, "workers": workers}
    n_partitions = max(min(count, _MAX_PARTITIONS), 1)
    partitions = spill_rows(folder, stream, open_table, schema.choice_set, n_partitions, **options)
    read_long.require_not_empty(partitions.rows, schema)
    for name in () if schema.categorical is not None else (*schema.individual, *schema.features):
        declared = name in schema.kinds or pa.types.is_dictionary(stream.schema.field(name).type)
        if name in partitions.vocabularies and not declared:
            name_set = partial(choice_set_of_row, stream, schema.choice_set)
            partitions.vocabularies[name].require_no_stray_text(name, name_set)
    # 3. Resolve which inputs are categories, and write each partition as a shard.
    inputs = [name for name in (*schema.individual, *schema.features) if name not in schema.kinds]
    tests = (pa.types.is_dictionary, is_text, pa.types.is_boolean)
    by_type = tuple(name for name in inputs if any(test(stream.schema.field(name).type) for test in tests))
    resolved = replace(schema, categorical=by_type if schema.categorical is None else schema.categorical)
    return resolved, *_write_shards(Converter(partitions, resolved, stream.folder), workers)


class ConvertedShard(NamedTuple):
    """A new shard, with the statistics that are checked once all shards are written."""

    shard: ShardFile
    state: FileState
    tally: Tally
    weighted: bool  # whether a set has a weight above 0
    spans: dict[str, Span]
    sizes: dict[str, tuple[int, int]]  # by column of vectors: their size, and the first row that has one


@dataclass(frozen=True)
class Converter:
    """Checks a partition and writes it as a shard."""

    partitions: Partitions
    schema: Schema
    source: Path  # folder to which paths in the table are relative

    def __call__(self, partition: int) -> ConvertedShard:
        """Write the shard of a partition."""
        table, numbers = self.partitions.read(partition)
        context = ChunkContext(numbers)
        try:
            data = ChoiceData(**read_long.read_long(table, self.schema, context, self.source))
        except SchemaError as error:
            count = self.partitions.count
            hint = f" This is one of {count} parts of the table: the others may have more errors." * (count > 1)
            raise SchemaError(f"{error}{hint}") from error
        del table
        path = self.partitions.folder / f"shard-{partition:05d}.arrow"
        write_shard(path, data, numbers)
        shard = describe_shard(path, loaded_bytes(data))
        pa.default_memory_pool().release_unused()
        weighted, sizes = bool(data.weights.any()), _vector_sizes(data, numbers)
        return ConvertedShard(shard, file_state(path), Tally.of(data), weighted, context.spans, sizes)


def _write_shards(converter: Converter, workers: Workers) -> tuple[Tally, tuple[ShardFile, ...], dict[str, FileState]]:
    """Write each partition as a shard, then perform the checks that depend on the whole table."""
    schema, partitions = converter.schema, converter.partitions
    shards: list[ShardFile] = []
    states: dict[str, FileState] = {}
    spans: dict[str, Span] = {}
    weighted, tally = schema.weight is None, Tally()
    sizes: dict[str, int] = {}
    numbers = partitions.numbers
    for partition, converted in zip(numbers, workers.map(converter, numbers), strict=True):
        for name, (size, row) in converted.sizes.items():
            if sizes.setdefault(name, size) != size:
                raise SchemaError(
                    f"column {name!r}, row {row}: expected a vector of {sizes[name]} numbers, as in other rows, "
                    f"got {size} numbers. Give all vectors the same size, or drop these rows."
                )
        partitions.remove(partition)
        shards.append(converted.shard)
        states[converted.shard.name] = converted.state
        tally += converted.tally
        weighted = weighted or converted.weighted
        merge_spans(spans, converted.spans)
    if not weighted:
        raise SchemaError(f"column {schema.weight!r}: all weights are 0, expected at least one above 0.")
    for name, span in spans.items():
        span.require_float32_resolution(name)
    return tally, tuple(shards), states


def _vector_sizes(data: ChoiceData, numbers: Ints) -> dict[str, tuple[int, int]]:
    """Return the vector size of each column, and the first table row that has a vector."""
    sizes = {}
    for rows, columns in ((data.rows, data.features), (data.rows[data.offsets[:-1]], data.individual)):
        for name, column in columns.items():
            if isinstance(column, Contents) and column.table.ndim > 1 and len(column.table):
                sizes[name] = column.table.shape[1], int(numbers[rows[column.codes != MISSING_CODE]].min())
    return sizes
