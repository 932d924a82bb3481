"""Files -> a stream of rows: a folder of Parquet, one Parquet or Arrow file, or a CSV, never whole in memory.

Rows come in the order of the table, so that they can be counted from 0 as in memory. All batches have the same types:
those that the files declare, or, for a CSV, those that its whole text admits.
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

from pcmcnet.data.columns.distinct import ID_FORMATS, FormatDetector, NumberFormat, forms_for_copy
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
_BUFFERED: dict[str, Any] = {"buffer_size": 2**16, **_CHECKED}  # bytes of a column that are read at once
Units = range | None  # of neighbouring units of a table, or all

_WIDER = (pa.int64(), pa.float64(), pa.string())  # what a CSV's column may be where its first rows mislead


class TableStream(ABC):
    """Some columns of a table, as batches of rows."""

    def __init__(self, path: Path, source: Any, columns: Sequence[str]) -> None:
        self.path, self.source, self.columns = path, source, list(columns)

    @property
    def folder(self) -> Path:
        """Where paths in the table count from."""
        return self.path if self.path.is_dir() else self.path.parent

    def only(self, column: str) -> TableStream:
        """Return one of the columns of a table that is no CSV."""
        other = copy(self)
        other.columns = [column]
        return other

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
        """Names and types of the columns in the files."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return plain_schema(self._declared)

    @property
    def units(self) -> list[int]:
        """Numbers of rows of the units that can be read by themselves, in their order; by default there is one."""
        return [self.rows]

    @abstractmethod
    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of about so many rows at most, of all units or of some neighbouring ones."""

    def batches(self, rows: int, units: Units = None, coded: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield all rows, or those of some neighbouring units, in their order, no more than so many at once.

        Columns of text that are ``coded`` may come as dictionaries, with words that no row has: as a file has them.
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
    def files(self) -> list[Path]:  # noqa: D102 - as above
        return [Path(file) for file in self.source.dataset.files]

    @property
    def rows(self) -> int:  # noqa: D102
        return int(self.source.dataset.count_rows())

    @property
    def _declared(self) -> pa.Schema:
        return pa.schema([self.source.dataset.schema.field(name) for name in self.columns])

    @property
    def units(self) -> list[int]:
        """Row groups of the files."""
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
            with self.source.naming(fragment, self.columns):
                yield from self._of_file(fragment, rows, groups, coded)

    def _of_file(
        self, fragment: Any, rows: int, groups: list[int] | None, coded: Collection[str]
    ) -> Iterator[pa.RecordBatch]:
        """Read a file in pieces, which takes far less memory than a scanner does; the latter is for what is cast."""
        from pyarrow.dataset import ParquetFragmentScanOptions

        there = fragment.physical_schema
        if all(there.get_all_field_indices(field.name) and there.field(field.name) == field for field in self.schema):
            words = _plain_text(there, coded)
            with pyarrow.parquet.ParquetFile(fragment.path, read_dictionary=words, **_BUFFERED) as file:
                yield from _decoded(file, rows, groups, self.columns, words)
            return
        lean = {"cache_metadata": False} if "cache_metadata" in (type(fragment).to_batches.__doc__ or "") else {}
        part = fragment if groups is None else fragment.subset(row_group_ids=groups)
        yield from part.to_batches(
            schema=self.source.dataset.schema,
            columns=self.columns,
            batch_size=rows,
            batch_readahead=1,  # what is read ahead is held in memory
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
        """Row groups."""
        about = self.source.file.metadata
        return [about.row_group(k).num_rows for k in range(about.num_row_groups)]

    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        groups, known = None if units is None else list(units), self.source.file
        words = _plain_text(known.schema_arrow, coded)
        with pyarrow.parquet.ParquetFile(
            self.path, metadata=known.metadata, read_dictionary=words, **_BUFFERED
        ) as file:
            yield from _decoded(file, rows, groups, self.columns, words)


class ArrowStream(TableStream):
    """One Arrow file, of either kind."""

    source: ArrowFile

    @property
    def rows(self) -> int:  # noqa: D102
        return sum(batch.num_rows for batch in self._each())

    @property
    def _declared(self) -> pa.Schema:
        with pa.OSFile(str(self.path)) as file:
            found = self.source.reader(file).schema
        return pa.schema([found.field(name) for name in self.columns])

    @property
    def units(self) -> list[int]:
        """Record batches."""
        return [batch.num_rows for batch in self._each()]

    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        for batch in self._each(units):
            batch.validate(full=True)  # what is damaged may be said to lie outside the file
            yield batch

    def _each(self, units: Units = None) -> Iterator[pa.RecordBatch]:
        fields = sorted(self.source.names.index(name) for name in self.columns)
        # a memory map would stay in memory as far as it was read
        with as_schema_errors(self.path), pa.OSFile(str(self.path)) as file:
            reader = self.source.reader(file, included_fields=fields)
            whole = hasattr(reader, "num_record_batches")
            wanted = slice(None) if units is None else slice(units.start, units.stop)
            every = map(reader.get_batch, range(reader.num_record_batches)[wanted]) if whole else reader
            for batch in every if whole else islice(every, wanted.start, wanted.stop):
                yield batch.select(self.columns)


class CsvStream(TableStream):
    """A CSV, zipped or not; it is read once more to count its rows and to see whether the guessed types hold.

    ``forms`` are the ways in which numbers may be written where a column of text is to be read as such.
    """

    source: CsvFile

    def __init__(
        self,
        path: Path,
        source: CsvFile,
        columns: Sequence[str],
        text: Collection[str],
        forms: Mapping[str, Sequence[NumberFormat]],
        gaps: list[str] | None = None,
    ) -> None:
        super().__init__(path, source, columns)
        self.forms = {name: forms[name] for name in columns if name in forms}
        self.text = [name for name in columns if name in text or name in self.forms]
        self.gaps = gaps

    @property
    def rows(self) -> int:  # noqa: D102
        return self._looked[1]

    @property
    def _declared(self) -> pa.Schema:
        return pa.schema(list(self._looked[0].items()))

    @cached_property
    def _looked(self) -> tuple[dict[str, pa.DataType], int]:
        """Types of the columns, and number of rows."""
        guessed = {name: self.source.guess(name, pa.string(), compact=False) for name in self.columns}
        types = guessed | dict.fromkeys(self.text, pa.string())
        with as_schema_errors(self.path):
            if any(pa.types.is_binary(kind) for kind in types.values()):
                raise pa.ArrowInvalid("invalid UTF8 data")
            self.source.require_closed_quotes()
            try:
                return self._look(types)
            except pa.ArrowInvalid:
                return self._look(self._widened(types))

    def _look(self, types: dict[str, pa.DataType]) -> tuple[dict[str, pa.DataType], int]:
        """Go through the file by some types, and see which text may be read as numbers."""
        rows, written = 0, {name: FormatDetector(forms) for name, forms in self.forms.items()}
        for batch in self.source.batches(self.columns, types, self.gaps):
            rows += int(batch.num_rows)
            for name, writing in written.items():
                writing.look(batch.column(name))
        return types | {name: writing.type for name, writing in written.items()}, rows

    def _batches(self, rows: int, units: Units, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
        yield from self.source.batches(self.columns, self._looked[0], self.gaps)  # all of it is one unit

    def _widened(self, types: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
        """Return the narrowest types that the whole text admits."""
        left = {name: [types[name], *_WIDER] for name in self.columns if name not in self.text}
        for batch in self.source.batches(self.columns, dict.fromkeys(self.columns, pa.string()), self.gaps):
            for name, kinds in left.items():
                while not _is_read_as(batch.column(name), kinds[0]):
                    kinds.pop(0)
        return {name: left[name][0] if name in left else pa.string() for name in self.columns}


def _plain_text(there: pa.Schema, coded: Collection[str]) -> list[str]:
    """Return which of some columns a Parquet file has as text that can be left as it lies there: words and codes."""
    return [name for name in coded if there.field(name).type == pa.string()]


def _decoded(
    file: Any, rows: int, groups: list[int] | None, columns: list[str], words: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read a Parquet file, whose ``words`` come as dictionaries."""
    for batch in file.iter_batches(rows, groups, columns=columns, use_threads=False):
        for name in words:
            batch.column(name).validate(full=True)  # a damaged file may have codes of no word
        yield batch.select(columns)


def _is_read_as(values: pa.Array, kind: pa.DataType) -> bool:
    try:
        values.cast(kind)
    except pa.ArrowException:
        return False
    return True


_TYPED: dict[type, type[TableStream]] = {
    ParquetFolder: FolderStream,
    ParquetFile: ParquetStream,
    ArrowFile: ArrowStream,
}


def open_stream(
    path: Path, columns: Sequence[str], text: Collection[str] = (), ids: Collection[str] = ()
) -> TableStream:
    """Open a file or folder for some of its columns; see ``tabular.read_table`` for ``text`` and ``ids``."""
    with as_schema_errors(path):
        source = open_source(path)
        require_columns(columns, source.names, where=str(path))
        if isinstance(source, CsvFile):
            return CsvStream(path, source, columns, text, dict.fromkeys(ids, ID_FORMATS))
        return _TYPED[type(source)](path, source, columns)


def open_as_written(path: Path, numbers: Collection[str], names: Collection[str] = ()) -> TableStream:
    """Open a file for a copy of all its columns; see ``formats.read_as_written``."""
    with as_schema_errors(path):
        source = open_source(path)
        require_columns(source.names, source.names, where=str(path))
        if isinstance(source, CsvFile):
            forms = forms_for_copy(source.names, numbers, names)
            return CsvStream(path, source, source.names, (), forms, gaps=[""])
        return _TYPED[type(source)](path, source, source.names)
