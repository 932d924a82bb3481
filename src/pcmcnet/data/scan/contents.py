"""Distinct contents <-> Arrow, and the memory that contents take: on the way to a shard, and ready for a network."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns import ContentKind, Contents
from pcmcnet.data.distinct import is_text
from pcmcnet.data.kinds.image import LARGEST, size_and_grey
from pcmcnet.data.kinds.text import LONGEST
from pcmcnet.data.scan.sources import Stream
from pcmcnet.data.schema import Schema

_LOOKED = 256  # rows, by which the size of the others is judged
_SEEN = 20  # pictures, likewise


def contents_to_arrow(column: Contents) -> pa.Array:
    """Write the distinct contents of a column, each a value."""
    table = column.table
    if column.kind == "vector":
        return pa.FixedSizeListArray.from_arrays(pa.array(table.ravel(), pa.float32()), max(table.shape[1], 1))
    kinds = {"text": pa.string(), "image": pa.binary(), "multi": pa.list_(pa.string())}
    if column.kind in kinds:
        return pa.array(list(map(list, table)) if column.kind == "multi" else table.tolist(), kinds[column.kind])
    return pa.array(table)


def contents_from_arrow(values: pa.Array, kind: ContentKind) -> NDArray[Any]:
    """Read distinct contents: numbers where they lie, others as objects."""
    if kind == "vector":
        flat = values.flatten().to_numpy(zero_copy_only=True)
        return np.asarray(flat.reshape(len(values), values.type.list_size))
    if kind in ("datetime", "id"):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    out = np.empty(len(values), object)
    out[:] = list(map(tuple, values.to_pylist())) if kind == "multi" else values.to_pylist()
    return out


def row_bytes(stream: Stream, schema: Schema) -> int:
    """Return about how many bytes a row takes: 8 for a number or a category, and for contents by the first rows."""
    width = 8.0 * len(stream.columns) + 24
    kinds = {name: kind for name, kind in schema.contents.items() if name in stream.columns}
    batch = next(stream.batches(_LOOKED), None) if kinds else None
    if batch is None or not batch.num_rows:
        return int(width)
    for name, kind in kinds.items():
        column = batch.column(stream.columns.index(name))
        width += column.nbytes / batch.num_rows
        if kind == "image" and is_text(column.type):
            width += _file_bytes(column, stream.folder)
    return int(width)


def _file_bytes(paths: pa.Array, folder: Path) -> float:
    """Return the mean size of some files; what is wrong with a path is told when it is read."""
    found: list[Path] = [folder / path for path in islice(filter(None, paths.unique().to_pylist()), 50)]
    sizes = [path.stat().st_size for path in found if path.is_file()]
    return sum(sizes) / max(len(sizes), 1)


def loaded_bytes(data: ChoiceData) -> int:
    """Return about how many bytes the distinct contents take once they are prepared for a network."""
    columns = [*data.features.values(), *data.individual.values()]
    return sum(len(c.table) * _prepared(c) for c in columns if isinstance(c, Contents) and len(c.table))


def _prepared(column: Contents) -> int:
    """Bytes of one content."""
    match column.kind:
        case "vector":
            return 4 * int(column.table.shape[1])
        case "datetime":
            return 4 * 7
        case "multi":
            return 8 * max(map(len, column.table))
        case "text":
            return 16 * min(max(map(len, column.table)) // 2 + 1, LONGEST)  # no more words than every other letter
        case "image":
            sizes = {size_and_grey(content)[0] for content in column.table[:_SEEN]}
            width, height = next(iter(sizes)) if len(sizes) == 1 else (LARGEST, LARGEST)
            return 3 * min(width, LARGEST) * min(height, LARGEST)
        case "id":
            return 8
