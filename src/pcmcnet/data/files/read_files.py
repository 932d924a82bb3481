"""Files -> Arrow: .csv, .csv.gz, .parquet, .arrow (file or stream), a folder of parquet.

Only the columns asked for are read. A file that cannot be read becomes one sentence with its path. Parquet written here
carries a checksum of every page, and pages that have one are checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from pcmcnet.data.columns.distinct import distinct, names
from pcmcnet.data.files.csv_files import BLOCK, TOO_LONG, CsvFile
from pcmcnet.errors import SchemaError, did_you_mean

# -- File errors -------------------------------------------------------------------------------------------------------
ENDINGS = (".csv", ".csv.gz", ".parquet", ".arrow")


def ending(path: Path) -> str:
    """Name the format by the file's ending."""
    if path.is_dir():
        return "folder"
    for end in ENDINGS:
        if path.name.lower().endswith(end):
            return end
    raise SchemaError(f"{path}: unknown kind of file. Expected {', '.join(ENDINGS)} or a folder of .parquet files.")


def require_columns(wanted: Sequence[str], present: Sequence[str], *, where: str = "the table") -> None:
    """Refuse a column that is absent, or there more than once."""
    found = Counter(present)
    for name in wanted:
        if name not in found:
            raise SchemaError(f"{where} has no column {name!r}." + did_you_mean(name, present))
        if (times := found[name]) > 1:
            raise SchemaError(f"{where} has {times} columns named {name!r}: rename all but one.")


def one_line(error: Exception) -> str:
    """Fit what a library said into a sentence of ours."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300].rstrip(".")


@contextmanager
def as_schema_errors(path: Path) -> Iterator[None]:
    """Turn what a reader throws at a broken file into one sentence."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        if ending(path).startswith(".csv") and (isinstance(error, UnicodeDecodeError) or "UTF8" in str(error)):
            raise SchemaError(f"{path}: the file is not UTF-8 text. Save it as UTF-8.") from error
        if ending(path).startswith(".csv") and TOO_LONG in str(error):
            raise SchemaError(
                f"{path}: a line is longer than the {BLOCK // 2**20} MiB that are read at once. Close a quote that was "
                f"left open, shorten the values, or write the table as .parquet."
            ) from error
        raise SchemaError(
            f"{path}: cannot be read as {ending(path)} ({one_line(error)}). "
            f"The file may be truncated or of another kind: write it again."
        ) from error


# -- Views -------------------------------------------------------------------------------------------------------------
# Arrow's newer layouts -> the plain ones, which all of Arrow can read: text and bytes in views, as polars writes them,
# and columns that hold each run of equal values once.


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with plain text and bytes in place of views, and values in place of runs, at any depth of lists.

    Examples
    --------
    >>> plain_type(pa.dictionary(pa.int8(), pa.string_view()))
    DictionaryType(dictionary<values=large_string, indices=int8, ordered=0>)
    """
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()  # one batch may hold more than the 2 GiB of the smaller layout
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = plain_field(kind.value_field)
        if types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    if types.is_struct(kind):
        return pa.struct([plain_field(kind.field(k)) for k in range(kind.num_fields)])
    return kind


def plain_field(field: pa.Field) -> pa.Field:
    """Return a field of such a type."""
    kind = plain_type(field.type)
    return field if kind == field.type else field.with_type(kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema of such types."""
    return pa.schema([plain_field(field) for field in schema], schema.metadata)


def without_views(rows: Any) -> Any:
    """Return a table or a batch of rows without views; one that has none as it is."""
    schema = plain_schema(rows.schema)
    if schema == rows.schema:
        return rows
    columns = [_cast(column, kind) for column, kind in zip(rows.columns, schema.types, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def _cast(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:  # old releases of Arrow cannot cast views, and none can cast runs
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([_cast(chunk, kind) for chunk in column.chunks], kind)
        if pa.types.is_dictionary(column.type):
            values = _cast(column.dictionary, kind.value_type)
            return pa.DictionaryArray.from_arrays(column.indices, values, ordered=kind.ordered)
        return pa.array(column.to_pylist(), kind)


# -- Parquet folder ----------------------------------------------------------------------------------------------------
# A folder is read as one table. All files must have the columns asked for, of types that go together. Folders named
# column=value count as columns, and must say the same as a column of that name inside the files.


class ParquetFolder:
    """Parquet files at any depth, in the order of their paths; folders named column=value count as columns."""

    def __init__(self, path: Path) -> None:
        import pyarrow.dataset  # loads pandas where it is installed: for folders only
        import pyarrow.fs

        files = sorted(str(file) for file in path.rglob("*.parquet") if not is_hidden(file.relative_to(path)))
        if not files:
            raise SchemaError(f"{path}: the folder holds no .parquet file.")
        self.named = {file: _named(Path(file).relative_to(path).parent) for file in files}
        inside, self.conflicts = _united({file: _schema(file) for file in files})
        own = [field for field in _fields_of_names(self.named.values()) if field.name not in inside.names]
        options = pyarrow.dataset.FileSystemFactoryOptions(
            partition_base_dir=str(path), partitioning=pyarrow.dataset.HivePartitioning(pa.schema(own))
        )
        # pages are checked where they carry a checksum, as those written here do
        checked = pyarrow.dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
        parquet = pyarrow.dataset.ParquetFileFormat(default_fragment_scan_options=checked)
        factory = pyarrow.dataset.FileSystemDatasetFactory(pyarrow.fs.LocalFileSystem(), files, parquet, options)
        self.dataset = factory.finish(pa.schema([*inside, *own]))
        self.names = list(self.dataset.schema.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read some columns, in the order asked for."""
        self.require(columns)
        return self._read(columns)

    def copy(self, needed: Sequence[str]) -> pa.Table:
        """Read all columns; those that are not needed are empty where a file lacks them."""
        self._require_in_all(needed)
        self._require_alike(self.names)
        return self._read(self.names)

    def require(self, columns: Sequence[str]) -> None:
        """Refuse columns that cannot be read from all files alike."""
        self._require_in_all(columns)
        self._require_alike(columns)

    @contextmanager
    def naming(self, fragment: Any, columns: Sequence[str]) -> Iterator[None]:
        """Say which file cannot be read, and by which types it should have been."""
        with as_schema_errors(Path(fragment.path)):
            try:
                yield
            except pa.ArrowInvalid as error:
                here, all_ = plain_schema(fragment.physical_schema), self.dataset.schema
                types = {name: (here.field(name).type, all_.field(name).type) for name in columns if name in here.names}
                other = [
                    f"{name!r} {own} (with the others: {kind})" for name, (own, kind) in types.items() if own != kind
                ]
                if not other:
                    raise
                raise SchemaError(
                    f"{fragment.path}: its columns have other types than in the other files, {', '.join(other)}, and "
                    f"its values do not fit ({one_line(error)}). Write all files with one type for each column."
                ) from error

    def _read(self, columns: list[str]) -> pa.Table:
        try:
            return self.dataset.to_table(columns=columns)
        except (pa.ArrowException, OSError):
            for fragment in self.dataset.get_fragments():
                with self.naming(fragment, columns):
                    fragment.to_table(schema=self.dataset.schema, columns=columns)
            raise

    def _require_alike(self, columns: Sequence[str]) -> None:
        """Refuse columns whose types, or whose values and names of folders, contradict each other."""
        for column in columns:
            if column in self.conflicts:
                raise SchemaError(self.conflicts[column])
        for path, said in self.named.items():
            for column in set(said).intersection(columns, pyarrow.parquet.read_schema(path).names):
                for found, expected in _beside(path, column, said[column]):
                    if found != expected:
                        raise SchemaError(
                            f"{path}: column {column!r} holds {found or 'nothing'}, and its folder is named "
                            f"{column}={said[column]}. Correct one of them, or rename the column in the files."
                        )

    def _require_in_all(self, columns: Sequence[str]) -> None:
        """Refuse a column that some of the files have and others lack: it would be read as gaps."""
        inside = {fragment.path: fragment.physical_schema.names for fragment in self.dataset.get_fragments()}
        in_files = [column for column in columns if any(column in names for names in inside.values())]
        for path, present in inside.items():
            require_columns(in_files, present, where=path)


def _schema(file: str) -> pa.Schema:
    with as_schema_errors(Path(file)):
        return plain_schema(pyarrow.parquet.read_schema(file))


def _united(schemas: dict[str, pa.Schema]) -> tuple[pa.Schema, dict[str, str]]:
    """Return the types that can hold each column of all files, and what is wrong with columns that have none."""
    try:
        return pa.unify_schemas(list(schemas.values()), promote_options="permissive"), {}
    except pa.ArrowException:
        found: dict[str, tuple[pa.Field, str]] = {}
        conflicts: dict[str, str] = {}
    for file, schema in schemas.items():
        for field in schema:
            first, where = found.setdefault(field.name, (field, file))
            try:
                both = pa.unify_schemas([pa.schema([first]), pa.schema([field])], promote_options="permissive")
                found[field.name] = both.field(0), where
            except pa.ArrowException:
                conflicts.setdefault(
                    field.name,
                    f"{file}: column {field.name!r} has the type {field.type}, and the type {first.type} in {where}. "
                    f"Write all files with one type for each column.",
                )
    return pa.schema([field for field, _ in found.values()]), conflicts


def _named(folder: Path) -> dict[str, str]:
    """Return the columns that names of folders such as year=2023 stand for."""
    parts = [part.partition("=") for part in folder.parts if "=" in part]
    return {name: unquote(value) for name, _, value in parts}


def _fields_of_names(named: Iterable[dict[str, str]]) -> list[pa.Field]:
    """Return their types: whole numbers where all are, and text otherwise."""
    values: dict[str, list[str]] = {}
    for name, value in {item for said in named for item in said.items()}:
        values.setdefault(name, []).append(value)
    return [pa.field(name, pa.int32() if _are_whole(found) else pa.string()) for name, found in sorted(values.items())]


def _are_whole(texts: list[str]) -> bool:
    """Tell whether distinct texts are distinct whole numbers: 7 and 007 are names."""
    named = [text for text in texts if text != "__HIVE_DEFAULT_PARTITION__"]
    try:
        return len(pa.array(named, pa.string()).cast(pa.int32()).unique()) == len(named)
    except pa.ArrowInvalid:
        return False


def _beside(path: str, column: str, said: str) -> Iterator[tuple[str | None, str | None]]:
    """Yield what a column of a Parquet file holds, some rows after the other, beside what its folder's name says."""
    checked = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    with as_schema_errors(Path(path)), checked as file:
        for batch in file.iter_batches(columns=[column], use_threads=False):
            found = distinct(pa.chunked_array([batch.column(0)]))
            try:
                (expected,) = names(pa.array([said]).cast(found.values.type))
            except pa.ArrowException:
                expected = said
            yield from ((name, expected) for name in names(found.values))
            if (found.codes < 0).any():
                yield None, expected


def is_hidden(file: Path) -> bool:
    """Tell what other programs keep beside a table, by their convention."""
    return any(part.startswith((".", "_")) for part in file.parts)


# -- Read files --------------------------------------------------------------------------------------------------------

FOLDER = b"pcmcnet folder"  # notes where a table was read from; it is not written


class TableFile(Protocol):
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
    with as_schema_errors(path):
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
    with as_schema_errors(path):
        source = open_source(path)
        require_columns(source.names, source.names, where=str(path))
        if isinstance(source, CsvFile):
            return source.copy(numbers, names)
        if isinstance(source, ParquetFolder):
            return source.copy(needed)
        return without_views(source.read(source.names, (), (), False))


def column_names(path: str | Path) -> list[str]:
    """Return the names of a file's columns without reading its rows."""
    with as_schema_errors(Path(path)):
        return open_source(Path(path)).names


def open_source(path: Path) -> TableFile:
    """Open a file or folder by its ending."""
    require_path(path)
    return _SOURCES[ending(path)](path)


def require_path(path: Path) -> None:
    """Raise SchemaError if there is no such file or folder."""
    if not path.exists():
        raise SchemaError(f"{path}: no such file or folder.")


class ParquetFile:
    """One Parquet file; ``mapped``: its first rows are decoded before the last are read."""

    def __init__(self, path: Path, *, mapped: bool = False) -> None:
        self.file = pyarrow.parquet.ParquetFile(path, memory_map=mapped, page_checksum_verification=True)
        self.names = list(self.file.schema_arrow.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read some columns, in the order asked for."""
        return self.file.read(columns=columns).select(columns)


class ArrowFile:
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


_SOURCES: dict[str, Callable[[Path], TableFile]] = {
    ".csv": CsvFile,
    ".csv.gz": CsvFile,
    ".parquet": ParquetFile,
    ".arrow": ArrowFile,
    "folder": ParquetFolder,
}
