"""The memory that contents take: on the way to a shard, and ready for a network."""

from __future__ import annotations

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.column_arrays import Contents
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.scan.sources import Stream
from pcmcnet.data.schema import Schema

_LOOKED = 256  # rows, by which the size of the others is judged


def row_bytes(stream: Stream, schema: Schema) -> int:
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
