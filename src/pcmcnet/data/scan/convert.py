"""Table -> shards: one pass that sorts rows onto piles, then pile by pile the same checks as in memory.

Workers share the pieces of the table in the first pass and the piles afterwards. What they find is put together in the
order of both, so that shards, and errors, are those of one worker.
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
from pcmcnet.data import long
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

_LOOKED = 256  # rows, by which the size of the others is judged
_SHARES = 32  # of the memory, one of which a shard's rows may take before they are checked, which takes some copies
_MOST = 512  # piles, each of which is an open file


def row_bytes(stream: TableStream, schema: Schema) -> int:
    """Return about how many bytes a row takes: 8 for a number or a category, and for contents by the first rows."""
    width = 8.0 * len(stream.columns) + 24
    kinds = {name: kind for name, kind in schema.contents.items() if name in stream.columns}
    batch = next(stream.batches(_LOOKED), None) if kinds else None
    if batch is None or not batch.num_rows:
        return int(width)
    for name, kind in kinds.items():
        column = batch.column(stream.columns.index(name))
        width += column.nbytes / batch.num_rows + KINDS[kind].file_bytes(column, stream.folder)
    return int(width)


def loaded_bytes(data: ChoiceData) -> int:
    """Return about how many bytes the distinct contents take once they are prepared for a network."""
    columns = [*data.features.values(), *data.individual.values()]
    found = [column for column in columns if isinstance(column, Contents) and len(column.table)]
    return sum(len(column.table) * KINDS[column.kind].prepared_bytes(column.table) for column in found)


def convert_or_reuse(
    table: Path, schema: Schema, *, cache: Path | None, memory: int, workers: Workers | int | None
) -> tuple[VerifiedShards, Manifest]:
    """Return the cache of a table, held, and its manifest; it is made now unless it is there."""
    opened = partial(open_stream, table, schema.columns, schema.text_columns, schema.id_columns)
    stream = opened()
    root = cache if cache is not None else table.with_name(f"{table.name}.pcmcnet")
    entries = CacheEntries.of(root, table, schema, stream.files)
    just_made: dict[str, FileState] = {}
    while True:
        found = entries.find(memory)
        if found is not None:
            verified = VerifiedShards(found[0], just_made)
            if Manifest.read(found[0]) == found[1]:  # it was not removed before it was held
                return verified, found[1]
            continue
        entry = entries.place(memory)
        log.info("converting %s to %s", table, entry)
        ready = usable_workers(workers, schema, stream.rows)
        with new_entry(entry) as folder, ready:
            resolved, tally, shards, just_made = _convert(stream, opened, schema, folder, memory, ready)
            roles = resolved.to_dict()
            Manifest(identity=entries.identity, memory=memory, schema=roles, tally=tally, shards=shards).write(folder)
        entries.remove_former()


def usable_workers(workers: Workers | int | None, schema: Schema, rows: int) -> Workers:
    """Return who can share a table: this process alone where a kind of contents is not the library's own."""
    if not all(type(KINDS[kind]).__module__.startswith("pcmcnet.") for kind in schema.contents.values()):
        return workers_for(1)
    if workers is None or isinstance(workers, int):
        return workers_for(workers, rows * len(schema.columns))
    return workers


def _convert(
    stream: TableStream, opened: Callable[[], TableStream], schema: Schema, folder: Path, memory: int, workers: Workers
) -> tuple[Schema, Tally, tuple[ShardFile, ...], dict[str, FileState]]:
    # 1. Choose how many piles there are, so that each fits into its share of the memory.
    width = row_bytes(stream, schema)
    size = stream.rows * width
    count = -(-size * _SHARES // memory)
    if count > 4 * _MOST:
        raise ConfigError(
            f"the table has about {size / 2**30:.1f} GiB of rows, too much for memory={memory / 2**20:.0f} MiB: "
            f"allow at least {size * _SHARES / (4 * _MOST) / 2**20:.0f} MiB."
        )
    # 2. Sort the rows onto piles, and refuse text among numbers, which only the whole table shows.
    options: dict[str, Any] = {"contents": schema.contents, "at_once": memory // _SHARES // width, "workers": workers}
    piles = spill_rows(folder, stream, opened, schema.choice_set, max(min(count, _MOST), 1), **options)
    long.require_not_empty(piles.rows, schema)
    for name in () if schema.categorical is not None else (*schema.individual, *schema.features):
        declared = name in schema.kinds or pa.types.is_dictionary(stream.schema.field(name).type)
        if name in piles.vocabularies and not declared:
            piles.vocabularies[name].require_plain(name, partial(choice_set_of_row, stream, schema.choice_set))
    # 3. Resolve which inputs are categories, and write the piles as shards.
    inputs = [name for name in (*schema.individual, *schema.features) if name not in schema.kinds]
    tests = (pa.types.is_dictionary, is_text, pa.types.is_boolean)
    by_type = tuple(name for name in inputs if any(test(stream.schema.field(name).type) for test in tests))
    resolved = replace(schema, categorical=by_type if schema.categorical is None else schema.categorical)
    return resolved, *_shards(Converter(piles, resolved, stream.folder), workers)


class ConvertedShard(NamedTuple):
    """A shard, and what of it only the whole table can be judged by."""

    shard: ShardFile
    state: FileState
    tally: Tally
    weighted: bool
    spans: dict[str, Span]
    sizes: dict[str, tuple[int, int]]  # of the vectors of each column, and the first row that has one


@dataclass(frozen=True)
class Converter:
    """Checks a pile and writes it as a shard."""

    piles: Partitions
    schema: Schema
    source: Path  # from which paths in the table count

    def __call__(self, pile: int) -> ConvertedShard:
        """Make the shard of a pile."""
        table, numbers = self.piles.take(pile)
        part = ChunkContext(numbers)
        try:
            data = ChoiceData(**long.read_long(table, self.schema, part, self.source))
        except SchemaError as error:
            count = self.piles.count
            several = f" This is one of {count} parts of the table: others may have more." * (count > 1)
            raise SchemaError(f"{error}{several}") from error
        del table
        path = self.piles.folder / f"shard-{pile:05d}.arrow"
        write_shard(path, data, numbers)
        shard = describe_shard(path, loaded_bytes(data))
        pa.default_memory_pool().release_unused()
        weighted, sizes = bool(data.weights.any()), _vector_sizes(data, numbers)
        return ConvertedShard(shard, file_state(path), Tally.of(data), weighted, part.spans, sizes)


def _shards(converter: Converter, workers: Workers) -> tuple[Tally, tuple[ShardFile, ...], dict[str, FileState]]:
    """Check each pile and write it as a shard; then judge what only all of them show."""
    schema, piles = converter.schema, converter.piles
    shards: list[ShardFile] = []
    states: dict[str, FileState] = {}
    spans: dict[str, Span] = {}
    weighted, tally = schema.weight is None, Tally()
    sizes: dict[str, int] = {}
    for pile, made in zip(piles.there, workers.map(converter, piles.there), strict=True):
        for name, (size, row) in made.sizes.items():
            if sizes.setdefault(name, size) != size:
                raise SchemaError(
                    f"column {name!r}, row {row}: expected a vector of {sizes[name]} numbers as in other parts of the "
                    f"table, got {size} numbers. Give all vectors one size, or drop these rows."
                )
        piles.remove(pile)
        shards.append(made.shard)
        states[made.shard.name] = made.state
        tally += made.tally
        weighted = weighted or made.weighted
        merge_spans(spans, made.spans)
    if not weighted:
        raise SchemaError(f"column {schema.weight!r}: all weights are 0, expected at least one above 0.")
    for name, span in spans.items():
        span.require_float32_resolution(name)
    return tally, tuple(shards), states


def _vector_sizes(data: ChoiceData, numbers: Ints) -> dict[str, tuple[int, int]]:
    """Return the sizes of vectors by column, each with the first row of the table that has one."""
    found = {}
    for rows, columns in ((data.rows, data.features), (data.rows[data.offsets[:-1]], data.individual)):
        for name, column in columns.items():
            if isinstance(column, Contents) and column.table.ndim > 1 and len(column.table):
                found[name] = column.table.shape[1], int(numbers[rows[column.codes != MISSING_CODE]].min())
    return found
