"""Table -> shards: one pass that sorts rows onto piles, then pile by pile the same checks as in memory."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from pcmcnet.arrays import Ints
from pcmcnet.data import long
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.column_arrays import GAP, Contents
from pcmcnet.data.column_reader import Part
from pcmcnet.data.distinct import is_text
from pcmcnet.data.float32_resolution import Span
from pcmcnet.data.scan.cache import Checked, Entries, Manifest, ShardFile, Tally, describe_shard, making
from pcmcnet.data.scan.contents import loaded_bytes, row_bytes
from pcmcnet.data.scan.shards import write_shard
from pcmcnet.data.scan.sources import Stream, open_stream
from pcmcnet.data.scan.spill import Piles
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ConfigError, SchemaError

log = logging.getLogger("pcmcnet")

_SHARES = 32  # of the memory, one of which a shard's rows may take before they are checked, which takes some copies
_MOST = 512  # piles, each of which is an open file


def cached(table: Path, schema: Schema, *, cache: Path | None, memory: int) -> tuple[Checked, Manifest]:
    """Return the cache of a table, held, and its manifest; it is made now unless it is there."""
    stream = open_stream(table, schema.columns, schema.text_columns, schema.id_columns)
    root = cache if cache is not None else table.with_name(f"{table.name}.pcmcnet")
    entries = Entries.of(root, table, schema, stream.files)
    while True:
        found = entries.find(memory)
        if found is not None:
            checked = Checked(found[0])
            if Manifest.read(found[0]) == found[1]:  # it was not removed before it was held
                return checked, found[1]
            continue
        entry = entries.place(memory)
        log.info("converting %s to %s", table, entry)
        with making(entry) as folder:
            resolved, tally, shards = _convert(stream, schema, folder, memory)
            Manifest(
                identity=entries.identity, memory=memory, schema=resolved.to_dict(), tally=tally, shards=shards
            ).write(folder)
        entries.remove_former()


def _convert(stream: Stream, schema: Schema, folder: Path, memory: int) -> tuple[Schema, Tally, tuple[ShardFile, ...]]:
    width = row_bytes(stream, schema)
    count = _count_piles(stream.rows * width, memory)
    piles = Piles(folder, stream, schema.choice_set, count, contents=schema.contents)
    piles.fill(at_once=memory // _SHARES // width)
    long.require_rows(piles.rows, schema)
    for name in () if schema.categorical is not None else (*schema.individual, *schema.features):
        if name in schema.kinds or pa.types.is_dictionary(stream.schema.field(name).type):
            continue
        if name in piles.vocabularies:
            piles.vocabularies[name].require_plain(name, piles.set_of_row)
    resolved = replace(schema, categorical=_categorical(stream.schema, schema))
    return resolved, *_shards(piles, resolved, folder)


def _count_piles(size: int, memory: int) -> int:
    count = -(-size * _SHARES // memory)
    if count > 4 * _MOST:
        raise ConfigError(
            f"the table has about {size / 2**30:.1f} GiB of rows, too much for memory={memory / 2**20:.0f} MiB: "
            f"allow at least {size * _SHARES / (4 * _MOST) / 2**20:.0f} MiB."
        )
    return max(min(count, _MOST), 1)


def _categorical(found: pa.Schema, schema: Schema) -> tuple[str, ...]:
    """Which model inputs are categorical: as declared, or by dtype."""
    if schema.categorical is not None:
        return schema.categorical

    def is_category(kind: pa.DataType) -> bool:
        return bool(pa.types.is_dictionary(kind) or is_text(kind) or pa.types.is_boolean(kind))

    inputs = [name for name in (*schema.individual, *schema.features) if name not in schema.kinds]
    return tuple(name for name in inputs if is_category(found.field(name).type))


def _shards(piles: Piles, schema: Schema, folder: Path) -> tuple[Tally, tuple[ShardFile, ...]]:
    """Check each pile and write it as a shard; then judge what only all of them show."""
    shards: list[ShardFile] = []
    spans: dict[str, Span] = {}
    weighted, tally = schema.weight is None, Tally()
    sizes: dict[str, int] = {}
    for pile in range(piles.count):
        taken = piles.take(pile)
        if taken is None:
            continue
        table, numbers = taken
        try:
            data = ChoiceData(**long.read(table, schema, Part(numbers, spans), piles.stream.folder))
        except SchemaError as error:
            several = f" This is one of {piles.count} parts of the table: others may have more." * (piles.count > 1)
            raise SchemaError(f"{error}{several}") from error
        _require_one_size(data, numbers, sizes)
        del table, taken
        path = folder / f"shard-{pile:05d}.arrow"
        write_shard(path, data, numbers)
        shards.append(describe_shard(path, loaded_bytes(data)))
        tally += Tally.of(data)
        weighted = weighted or bool(data.weights.any())
        pa.default_memory_pool().release_unused()
    if not weighted:
        raise SchemaError(f"column {schema.weight!r}: all weights are 0, expected at least one above 0.")
    for name, span in spans.items():
        span.require_steps(name)
    return tally, tuple(shards)


def _require_one_size(data: ChoiceData, numbers: Ints, sizes: dict[str, int]) -> None:
    """Refuse vectors of another size than those of the parts before, which ``sizes`` has by column."""
    for rows, columns in ((data.rows, data.features), (data.rows[data.offsets[:-1]], data.individual)):
        for name, column in columns.items():
            if not isinstance(column, Contents) or column.table.ndim == 1 or not len(column.table):
                continue
            size = column.table.shape[1]
            if sizes.setdefault(name, size) != size:
                row = int(numbers[rows[column.codes != GAP]].min())
                raise SchemaError(
                    f"column {name!r}, row {row}: expected a vector of {sizes[name]} numbers as in other parts of the "
                    f"table, got {size} numbers. Give all vectors one size, or drop these rows."
                )
