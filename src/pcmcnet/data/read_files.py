"""Files -> Arrow: .csv, .csv.gz, .parquet, .arrow (file or stream), a folder of parquet.

Only the columns asked for are read. A file that cannot be read becomes one sentence with its path. Parquet written here
carries a checksum of every page, and pages that have one are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet

from pcmcnet.data.csv_file import Csv
from pcmcnet.data.file_errors import ending, one_sentence, require_columns
from pcmcnet.data.parquet_folder import Folder
from pcmcnet.data.views import without_views
from pcmcnet.errors import SchemaError

FOLDER = b"pcmcnet folder"  # notes where a table was read from; it is not written


class Source(Protocol):
    """A file of some format: the names of its columns at once, their values on demand."""

    names: list[str]

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read some columns, in the order asked for."""


def read_path(
    path: Path,
    columns: Sequence[str] | None,
    *,
    text: Collection[str] = (),
    ids: Collection[str] = (),
    compact: bool = False,
) -> pa.Table:
    """Read a file or folder; see ``tabular.read_table`` for ``text``, ``ids`` and ``compact``."""
    with one_sentence(path):
        source = open_source(path)
        wanted = source.names if columns is None else list(columns)
        require_columns(wanted, source.names, where=str(path))
        table = without_views(source.read(wanted, text, ids, compact))
    pa.default_memory_pool().release_unused()  # what the reader held in passing
    return table


def read_as_written(
    path: Path, numbers: Collection[str], needed: Sequence[str] = (), names: Collection[str] = ()
) -> pa.Table:
    """Read all columns for a copy.

    In a CSV, other columns than ``numbers`` stay text unless nothing is lost by it; ``names`` also unless all of them
    are whole numbers. In a folder, other columns than those ``needed`` may be in some of the files only: they are empty
    in the rows of the others.
    """
    with one_sentence(path):
        source = open_source(path)
        require_columns(source.names, source.names, where=str(path))
        if isinstance(source, Csv):
            return source.copy(numbers, names)
        if isinstance(source, Folder):
            return source.copy(needed)
        return without_views(source.read(source.names, (), (), False))


def column_names(path: str | Path) -> list[str]:
    """Return the names of a file's columns without reading its rows."""
    with one_sentence(Path(path)):
        return open_source(Path(path)).names


def open_source(path: Path) -> Source:
    """Open a file or folder by its ending."""
    require_path(path)
    return _SOURCES[ending(path)](path)


def require_path(path: Path) -> None:
    """Raise SchemaError if there is no such file or folder."""
    if not path.exists():
        raise SchemaError(f"{path}: no such file or folder.")


class Parquet:
    """One Parquet file; ``mapped``: its first rows are decoded before the last are read."""

    def __init__(self, path: Path, *, mapped: bool = False) -> None:
        self.file = pyarrow.parquet.ParquetFile(path, memory_map=mapped, page_checksum_verification=True)
        self.names = list(self.file.schema_arrow.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read some columns, in the order asked for."""
        return self.file.read(columns=columns).select(columns)


class Arrow:
    """One Arrow file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.OSFile(str(path)) as file:
            self.names = list(self.reader(file).schema.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read some columns, in the order asked for."""
        fields = [self.names.index(name) for name in columns]
        with pa.OSFile(str(self.path)) as file:
            table = self.reader(file, included_fields=sorted(fields)).read_all().select(columns)
        table.validate(full=True)  # lengths and offsets that a damaged file has wrong would be read beyond its end
        return table

    def reader(self, file: Any, **options: Any) -> Any:
        """Open what pyarrow calls a file, or what it calls a stream: both are written with this ending."""
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(file, options=pa.ipc.IpcReadOptions(**options))


_SOURCES: dict[str, Callable[[Path], Source]] = {
    ".csv": Csv,
    ".csv.gz": Csv,
    ".parquet": Parquet,
    ".arrow": Arrow,
    "folder": Folder,
}
