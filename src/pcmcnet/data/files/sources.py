"""Streams of rows from Parquet folders and Parquet, Arrow and CSV files, which are never read into memory as a whole.

Rows are in the order of the table, so that row numbers are the same as for a table in memory. All batches have the same
types: the types declared in the files or, for a CSV file, the narrowest types that fit the whole file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from pcmcnet.data.columns.distinct import ID_FORMATS, FormatDetector, NumberFormat, formats_for_copy
from pcmcnet.data.files.csv_files import CsvFile
from pcmcnet.data.files.read_files import (
    ArrowFile,
    ParquetFile,
    ParquetFolder,
    as_schema_errors,
    open_source,
    plain_schema,
    require_columns,
    without_views,
)

_CHECKED: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}
_BUFFERED: dict[str, Any] = {"buffer_size": 2**16, **_CHECKED}  # bytes read from a column at a time
Units = range | None  # consecutive units of a table, or all of them

_WIDER_TYPES = (pa.int64(), pa.float64(), pa.string())  # tried in turn if the first rows of a CSV column mislead


class TableStream(ABC):
    """Selected columns of a table, read in batches of rows."""

    def __init__(self, path: Path, source: Any, columns: Sequence[str]) -> None:
        self.path, self.source, self.columns = path, source, list(columns)

    @property
    def folder(self) -> Path:
        """The folder to which paths in the table are relative."""
        return self.path if self.path.is_dir() else self.path.parent

    def only(self, column: str) -> TableStream:
        """Return a stream of one of the columns, which is not supported for CSV files."""
        stream = copy(self)
        stream.columns = [column]
        return stream

    @property
    def files(self) -> list[Path]:
        """The files that hold the table."""
        return [self.path]

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def _declared(self) -> pa.Schema:
        """Names and types of the columns, as declared in the files."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return plain_schema(self._declared)

    @property
    def units(self) -> list[int]:
        """Number of rows in each unit that can be read separately. By default, the table is one unit."""
        return [self.rows]

    @abstractmethod
    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of about ``rows`` rows of all units, or of some consecutive units."""

    def batches(self, rows: int, units: Units = None, coded: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows in the order of the table.

        Parameters
        ----------
        rows
            Maximum number of rows per batch.
        units
            Consecutive units to read. If None (default), all units are read.
        coded
            Text columns that may be returned as dictionaries, possibly with unused entries (none by default).
        """
        with as_schema_errors(self.path):
            for batch in self._batches(rows, units, coded):
                for begin in range(0, batch.num_rows, rows):
                    yield without_views(batch.slice(begin, rows))


class FolderStream(TableStream):
    """A folder of Parquet files."""

    source: ParquetFolder

    def __init__(self, path: Path, source: ParquetFolder, columns: Sequence[str]) -> None:
        super().__init__(path, source, columns)
        source.require(self.columns)

    @property
    def files(self) -> list[Path]:  # noqa: D102 - documented in the base class
        return [Path(file) for file in self.source.dataset.files]

    @property
    def rows(self) -> int:  # noqa: D102
        return int(self.source.dataset.count_rows())

    @property
    def _declared(self) -> pa.Schema:
        return pa.schema([self.source.dataset.schema.field(name) for name in self.columns])

    @property
    def units(self) -> list[int]:
        """Number of rows in each row group of the files."""
        return [group.num_rows for fragment in self.source.dataset.get_fragments() for group in fragment.row_groups]

    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        begin = 0
        for fragment in self.source.dataset.get_fragments():
            groups = None
            if units is not None:
                end = begin + len(fragment.row_groups)
                groups = [k - begin for k in range(max(begin, units.start), min(end, units.stop))]
                begin = end
                if not groups:
                    continue
            with self.source.errors_of_file(fragment, self.columns):
                yield from self._of_file(fragment, rows, groups, coded)

    def _of_file(
        self, fragment: Any, rows: int, groups: list[int] | None, coded: Collection[str]
    ) -> Iterator[pa.RecordBatch]:
        """Read a file by row groups if no column must be cast, because Arrow's scanner needs far more memory."""
        from pyarrow.dataset import ParquetFragmentScanOptions

        schema = fragment.physical_schema
        if all(schema.get_all_field_indices(field.name) and schema.field(field.name) == field for field in self.schema):
            dictionaries = _plain_text(schema, coded)
            with pyarrow.parquet.ParquetFile(fragment.path, read_dictionary=dictionaries, **_BUFFERED) as file:
                yield from _decoded(file, rows, groups, self.columns, dictionaries)
            return
        lean = {"cache_metadata": False} if "cache_metadata" in (type(fragment).to_batches.__doc__ or "") else {}
        selected = fragment if groups is None else fragment.subset(row_group_ids=groups)
        yield from selected.to_batches(
            schema=self.source.dataset.schema,
            columns=self.columns,
            batch_size=rows,
            batch_readahead=1,  # batches read ahead take memory
            use_threads=False,
            fragment_scan_options=ParquetFragmentScanOptions(use_buffered_stream=True, **_CHECKED),
            **lean,
        )


class ParquetStream(TableStream):
    """One Parquet file."""

    source: ParquetFile

    @property
    def rows(self) -> int:  # noqa: D102
        return int(self.source.file.metadata.num_rows)

    @property
    def _declared(self) -> pa.Schema:
        return pa.schema([self.source.file.schema_arrow.field(name) for name in self.columns])

    @property
    def units(self) -> list[int]:
        """Number of rows in each row group."""
        metadata = self.source.file.metadata
        return [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]

    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        groups, metadata = None if units is None else list(units), self.source.file.metadata
        dictionaries = _plain_text(self.source.file.schema_arrow, coded)
        with pyarrow.parquet.ParquetFile(
            self.path, metadata=metadata, read_dictionary=dictionaries, **_BUFFERED
        ) as file:
            yield from _decoded(file, rows, groups, self.columns, dictionaries)


class ArrowStream(TableStream):
    """One Arrow file, in the IPC file or stream format."""

    source: ArrowFile

    @property
    def rows(self) -> int:  # noqa: D102
        return sum(batch.num_rows for batch in self._each())

    @property
    def _declared(self) -> pa.Schema:
        with pa.OSFile(str(self.path)) as file:
            schema = self.source.reader(file).schema
        return pa.schema([schema.field(name) for name in self.columns])

    @property
    def units(self) -> list[int]:
        """Number of rows in each record batch."""
        return [batch.num_rows for batch in self._each()]

    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        for batch in self._each(units):
            batch.validate(full=True)  # offsets in a damaged file may point outside it
            yield batch

    def _each(self, units: Units = None) -> Iterator[pa.RecordBatch]:
        fields = sorted(self.source.names.index(name) for name in self.columns)
        # not memory-mapped: pages that were read would stay in memory
        with as_schema_errors(self.path), pa.OSFile(str(self.path)) as file:
            reader = self.source.reader(file, included_fields=fields)
            selected = slice(None) if units is None else slice(units.start, units.stop)
            batches: Iterator[pa.RecordBatch]
            if hasattr(reader, "num_record_batches"):  # the file format, with random access
                batches = map(reader.get_batch, range(reader.num_record_batches)[selected])
            else:
                batches = islice(reader, selected.start, selected.stop)
            for batch in batches:
                yield batch.select(self.columns)


class CsvStream(TableStream):
    """A CSV file, plain or gzipped. A first pass counts the rows and checks the guessed types.

    ``formats`` are the number formats that allow a text column to be read as numbers. ``null_words`` are the texts that
    mean a missing value. If ``null_words`` is None, Arrow's default list is used. Columns in ``may_be_bytes`` are read
    as bytes if they are not UTF-8 text.
    """

    source: CsvFile

    def __init__(
        self,
        path: Path,
        source: CsvFile,
        columns: Sequence[str],
        text: Collection[str],
        formats: Mapping[str, Sequence[NumberFormat]],
        null_words: list[str] | None = None,
        may_be_bytes: Collection[str] = (),
    ) -> None:
        super().__init__(path, source, columns)
        self.may_be_bytes = frozenset(may_be_bytes)
        self.formats = {name: formats[name] for name in columns if name in formats}
        self.text = [name for name in columns if name in text or name in self.formats]
        self.null_words = null_words

    @property
    def rows(self) -> int:  # noqa: D102
        return self._types_and_rows[1]

    @property
    def _declared(self) -> pa.Schema:
        return pa.schema(list(self._types_and_rows[0].items()))

    @cached_property
    def _types_and_rows(self) -> tuple[dict[str, pa.DataType], int]:
        """Types of the columns, and number of rows."""
        guessed = {name: self.source.guess(name, pa.string(), compact=False) for name in self.columns}
        types = guessed | dict.fromkeys(self.text, pa.string())
        with as_schema_errors(self.path):
            if any(pa.types.is_binary(kind) for kind in types.values()):
                raise pa.ArrowInvalid("invalid UTF8 data")
            self.source.require_closed_quotes()
            try:
                return self._first_pass(types)
            except pa.ArrowInvalid:
                binary = self.source.columns_of_bytes() & self.may_be_bytes if self.may_be_bytes else set()
                return self._first_pass(self._widened_types(types, binary))

    def _first_pass(self, types: dict[str, pa.DataType]) -> tuple[dict[str, pa.DataType], int]:
        """Read the file once. Return the final types (numbers instead of text if possible) and the number of rows."""
        texts = {name: formats for name, formats in self.formats.items() if types[name] == pa.string()}
        rows, detectors = 0, {name: FormatDetector(formats) for name, formats in texts.items()}
        for batch in self.source.batches(self.columns, types, self.null_words):
            rows += int(batch.num_rows)
            for name, detector in detectors.items():
                detector.update(batch.column(name))
        return types | {name: detector.type for name, detector in detectors.items()}, rows

    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        yield from self.source.batches(self.columns, self._types_and_rows[0], self.null_words)  # the file is one unit

    def _widened_types(self, types: dict[str, pa.DataType], binary: Collection[str]) -> dict[str, pa.DataType]:
        """Return the narrowest types that fit the whole file, and the binary type of the columns in ``binary``."""
        candidates = {name: [types[name], *_WIDER_TYPES] for name in self.columns if name not in self.text}
        texts = {name: pa.binary() if name in binary else pa.string() for name in self.columns}
        for batch in self.source.batches(self.columns, texts, self.null_words):
            for name, kinds in candidates.items():
                while not _can_cast(batch.column(name), kinds[0]):
                    kinds.pop(0)
        return {name: candidates[name][0] if name in candidates else texts[name] for name in self.columns}


def _plain_text(schema: pa.Schema, coded: Collection[str]) -> list[str]:
    """Return the ``coded`` columns that a Parquet file declares as plain text and Arrow can read as dictionaries."""
    return [name for name in coded if schema.field(name).type == pa.string()]


def _decoded(
    file: Any, rows: int, groups: list[int] | None, columns: list[str], dictionaries: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a Parquet file in which the columns in ``dictionaries`` are dictionary-encoded."""
    for batch in file.iter_batches(rows, groups, columns=columns, use_threads=False):
        for name in dictionaries:
            batch.column(name).validate(full=True)  # codes in a damaged file may be out of range
        yield batch.select(columns)


def _can_cast(values: pa.Array, kind: pa.DataType) -> bool:
    try:
        values.cast(kind)
    except pa.ArrowException:
        return False
    return True


_STREAMS: dict[type, type[TableStream]] = {
    ParquetFolder: FolderStream,
    ParquetFile: ParquetStream,
    ArrowFile: ArrowStream,
}


def open_stream(
    path: Path, columns: Sequence[str], text: Collection[str] = (), ids: Collection[str] = ()
) -> TableStream:
    """Return a stream of some columns of a file or folder. ``tabular.read_table`` describes ``text`` and ``ids``."""
    with as_schema_errors(path):
        source = open_source(path)
        require_columns(columns, source.names, where=str(path))
        if isinstance(source, CsvFile):
            return CsvStream(path, source, columns, text, dict.fromkeys(ids, ID_FORMATS))
        return _STREAMS[type(source)](path, source, columns)


def open_as_written(path: Path, numbers: Collection[str], names: Collection[str] = ()) -> TableStream:
    """Return a stream of all columns of a file, read in the same way as by ``read_files.read_as_written``."""
    with as_schema_errors(path):
        source = open_source(path)
        require_columns(source.names, source.names, where=str(path))
        if isinstance(source, CsvFile):
            formats = formats_for_copy(source.names, numbers, names)
            may_be_bytes = {*source.names} - {*numbers, *names}
            return CsvStream(path, source, source.names, (), formats, null_words=[""], may_be_bytes=may_be_bytes)
        return _STREAMS[type(source)](path, source, source.names)
