"""Functions that read .csv, .csv.gz, .parquet and .arrow files, and folders of Parquet files, into Arrow tables.

Only the requested columns are read. If a file cannot be read, the SchemaError names the file. Parquet files written by
pcmcnet have a checksum for every page, and pages with a checksum are verified.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from pcmcnet.data.columns.distinct import distinct, names
from pcmcnet.data.columns.wide_columns import recognise_wide, recognise_wide_feature
from pcmcnet.data.files.csv_files import BLOCK_BYTES, LINE_TOO_LONG, CsvFile
from pcmcnet.errors import ResourceError, SchemaError, did_you_mean, is_lack_of_resources

# -- File errors -------------------------------------------------------------------------------------------------------
ENDINGS = (".csv", ".csv.gz", ".parquet", ".arrow")
MAX_SIBLINGS = 1_000  # entries of a folder that are searched for a similar name


def ending(path: Path) -> str:
    """Return "folder" or the ending of a file, which determines its format.

    Raise SchemaError if the ending is unknown.
    """
    if path.is_dir():
        return "folder"
    for end in ENDINGS:
        if path.name.lower().endswith(end):
            return end
    remedy = " Save the sheet as CSV." if path.name.lower().endswith((".xlsx", ".xls", ".ods")) else ""
    expected = f"Expected {', '.join(ENDINGS)} or a folder of .parquet files"
    raise SchemaError(f"{path}: unknown file format. {expected}.{remedy}")


def require_columns(columns: Sequence[str], present: Sequence[str], *, where: str = "the table") -> None:
    """Raise SchemaError if a column is missing, or if several columns have the same name."""
    counts = Counter(present)
    for name in columns:
        if name not in counts:
            raise missing_column(name, present, where)
        if (times := counts[name]) > 1:
            raise SchemaError(f"{where} has {times} columns named {name!r}: rename all but one.")


def missing_column(name: str, present: Sequence[str], where: str) -> SchemaError:
    """Return the error for a missing column. If the table is wide, the error shows how to read it."""
    hint, problem = did_you_mean(name, present), f"{where} has no column {name!r}"
    parts = re.split(r"[\s,;+]+", name.strip())
    if len(parts) > 1 and {*parts} <= {*present}:
        return SchemaError(f"{problem}, but the columns {', '.join(map(repr, parts))}: separate names by commas.")
    wide = recognise_wide(present) or recognise_wide_feature(name, present)
    if wide is None or (name not in wide.features and hint.endswith("?")):
        return SchemaError(f"{problem}.{hint}")
    return wide.error(problem, present)


def one_line(error: Exception) -> str:
    """Return an error message as a single line, shortened and without the final full stop."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300].rstrip(".")


@contextmanager
def as_schema_errors(path: Path) -> Iterator[None]:
    """Convert errors raised by file readers to a SchemaError that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        if is_lack_of_resources(error):  # also Arrow's own error, when it cannot start a thread
            reason = f"not enough memory or threads to read the file ({one_line(error)})"
            raise ResourceError(f"{path}: {reason}: raise the limits of this process.") from error
        if ending(path).startswith(".csv") and (isinstance(error, UnicodeDecodeError) or "UTF8" in str(error)):
            raise SchemaError(f"{path}: the file is not UTF-8 text. Save it as UTF-8.") from error
        if ending(path).startswith(".csv") and path.is_file() and path.stat().st_size == 0:
            raise SchemaError(f"{path}: the file is empty. Expected a header line and at least one row.") from error
        if ending(path).startswith(".csv") and LINE_TOO_LONG in str(error):
            raise SchemaError(
                f"{path}: a line is longer than {BLOCK_BYTES // 2**20} MiB. Close a quote that was left open, shorten "
                f"the values, or write the table as .parquet."
            ) from error
        raise SchemaError(
            f"{path}: cannot be read as {ending(path)} ({one_line(error)}). "
            f"The file may be truncated or have another format: write it again."
        ) from error


# -- Views -------------------------------------------------------------------------------------------------------------
# Arrow's newer layouts -> plain layouts, which all Arrow functions support. The newer ones are views of text and bytes,
# as polars writes them, and run-end encoded columns.


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with views and run-end encoding replaced by plain types, at any depth of nesting.

    Examples
    --------
    >>> plain_type(pa.dictionary(pa.int8(), pa.string_view()))
    DictionaryType(dictionary<values=large_string, indices=int8, ordered=0>)
    """
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()  # a batch may exceed the 2 GiB of pa.string()
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
    """Return a field whose type is converted with :func:`plain_type`."""
    kind = plain_type(field.type)
    return field if kind == field.type else field.with_type(kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose field types are converted with :func:`plain_type`."""
    return pa.schema([plain_field(field) for field in schema], schema.metadata)


def without_views(rows: Any) -> Any:
    """Return a table or a batch of rows with plain types. If all types are plain, the argument itself is returned."""
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
    except pa.ArrowNotImplementedError:  # old releases cannot cast views, and no release can cast runs
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([_cast(chunk, kind) for chunk in column.chunks], kind)
        if pa.types.is_dictionary(column.type):
            values = _cast(column.dictionary, kind.value_type)
            return pa.DictionaryArray.from_arrays(column.indices, values, ordered=kind.ordered)
        return pa.array(column.to_pylist(), kind)


# -- Parquet folder ----------------------------------------------------------------------------------------------------
# A folder is read as one table. All files must have the requested columns, of compatible types. Folders named
# column=value are columns, and must agree with a column of that name inside the files.


class ParquetFolder:
    """A folder with Parquet files at any depth, sorted by path. Subfolders named column=value define columns."""

    def __init__(self, path: Path) -> None:
        import pyarrow.dataset  # imported only for folders: it imports pandas if installed
        import pyarrow.fs

        files = sorted(str(file) for file in path.rglob("*.parquet") if not is_hidden(file.relative_to(path)))
        if not files:
            raise SchemaError(f"{path}: the folder contains no .parquet files.")
        self.named = {file: _columns_in_path(Path(file).relative_to(path).parent) for file in files}
        inside, self.conflicts = _unified_schema({file: _schema(file) for file in files})
        from_names = [field for field in _fields_of_names(self.named.values()) if field.name not in inside.names]
        options = pyarrow.dataset.FileSystemFactoryOptions(
            partition_base_dir=str(path), partitioning=pyarrow.dataset.HivePartitioning(pa.schema(from_names))
        )
        # verify the checksum of pages that have one
        checked = pyarrow.dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
        parquet = pyarrow.dataset.ParquetFileFormat(default_fragment_scan_options=checked)
        factory = pyarrow.dataset.FileSystemDatasetFactory(pyarrow.fs.LocalFileSystem(), files, parquet, options)
        self.dataset = factory.finish(pa.schema([*inside, *from_names]))
        self.names = list(self.dataset.schema.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read the given columns, in the given order."""
        self.require(columns)
        return self._read(columns)

    def copy(self, needed: Sequence[str]) -> pa.Table:
        """Read all columns.

        Columns that are not ``needed`` may be absent from some files, whose rows then have missing values.
        """
        self._require_in_all(needed)
        self._require_consistent(self.names)
        return self._read(self.names)

    def require(self, columns: Sequence[str]) -> None:
        """Raise SchemaError if columns are missing from some files or have incompatible types."""
        self._require_in_all(columns)
        self._require_consistent(columns)

    @contextmanager
    def errors_of_file(self, fragment: Any, columns: Sequence[str]) -> Iterator[None]:
        """Convert read errors to a SchemaError that names the file and the columns whose types differ."""
        with as_schema_errors(Path(fragment.path)):
            try:
                yield
            except pa.ArrowInvalid as error:
                schema, whole = plain_schema(fragment.physical_schema), self.dataset.schema
                types = [
                    (name, schema.field(name).type, whole.field(name).type) for name in columns if name in schema.names
                ]
                differing = [f"{name!r} {kind} (folder: {common})" for name, kind, common in types if kind != common]
                if not differing:
                    raise
                raise SchemaError(
                    f"{fragment.path}: column types differ from the rest of the folder, {', '.join(differing)}, "
                    f"and their values cannot be converted ({one_line(error)}). Write each column with the same type "
                    f"in all files."
                ) from error

    def _read(self, columns: list[str]) -> pa.Table:
        try:
            return self.dataset.to_table(columns=columns)
        except (pa.ArrowException, OSError):
            for fragment in self.dataset.get_fragments():
                with self.errors_of_file(fragment, columns):
                    fragment.to_table(schema=self.dataset.schema, columns=columns)
            raise

    def _require_consistent(self, columns: Sequence[str]) -> None:
        """Raise SchemaError if the types of a column are incompatible, or if its values contradict the folder names."""
        for column in columns:
            if column in self.conflicts:
                raise SchemaError(self.conflicts[column])
        for path, named in self.named.items():
            for column in set(named).intersection(columns, pyarrow.parquet.read_schema(path).names):
                for value, expected in _values_and_folder_value(path, column, named[column]):
                    if value != expected:
                        raise SchemaError(
                            f"{path}: column {column!r} holds {value or 'nothing'}, but its folder is named "
                            f"{column}={named[column]}. Correct one of them, or rename the column in the files."
                        )

    def _require_in_all(self, columns: Sequence[str]) -> None:
        """Raise SchemaError if only some files have a column, because the other files would have missing values."""
        inside = {fragment.path: fragment.physical_schema.names for fragment in self.dataset.get_fragments()}
        in_files = [column for column in columns if any(column in names for names in inside.values())]
        for path, present in inside.items():
            require_columns(in_files, present, where=path)


def _schema(file: str) -> pa.Schema:
    with as_schema_errors(Path(file)):
        return plain_schema(pyarrow.parquet.read_schema(file))


def _unified_schema(schemas: dict[str, pa.Schema]) -> tuple[pa.Schema, dict[str, str]]:
    """Return each column's common type over all files, and an error message for each column without a common type."""
    try:
        return pa.unify_schemas(list(schemas.values()), promote_options="permissive"), {}
    except pa.ArrowException:
        unified: dict[str, tuple[pa.Field, str]] = {}  # common field of each column, and the file it was first in
        conflicts: dict[str, str] = {}
    for file, schema in schemas.items():
        for field in schema:
            first, where = unified.setdefault(field.name, (field, file))
            try:
                both = pa.unify_schemas([pa.schema([first]), pa.schema([field])], promote_options="permissive")
                unified[field.name] = both.field(0), where
            except pa.ArrowException:
                conflicts.setdefault(
                    field.name,
                    f"{file}: column {field.name!r} has the type {field.type}, but the type {first.type} in {where}. "
                    f"Write each column with the same type in all files.",
                )
    return pa.schema([field for field, _ in unified.values()]), conflicts


def _columns_in_path(folder: Path) -> dict[str, str]:
    """Return the columns and values that folder names such as year=2023 define."""
    parts = [part.partition("=") for part in folder.parts if "=" in part]
    return {name: unquote(value) for name, _, value in parts}


def _fields_of_names(named: Iterable[dict[str, str]]) -> list[pa.Field]:
    """Return the fields of columns that folder names define.

    The type is int32 if all values of a column are integers, otherwise text.
    """
    values: dict[str, list[str]] = {}
    for name, value in {item for columns in named for item in columns.items()}:
        values.setdefault(name, []).append(value)
    return [
        pa.field(name, pa.int32() if _are_integers(texts) else pa.string()) for name, texts in sorted(values.items())
    ]


def _are_integers(texts: list[str]) -> bool:
    """Return True if all texts are integers, and distinct texts are distinct integers, unlike 7 and 007."""
    values = [text for text in texts if text != "__HIVE_DEFAULT_PARTITION__"]
    try:
        return len(pa.array(values, pa.string()).cast(pa.int32()).unique()) == len(values)
    except pa.ArrowInvalid:
        return False


def _values_and_folder_value(path: str, column: str, named: str) -> Iterator[tuple[str | None, str | None]]:
    """Yield each distinct value of a column in a Parquet file, together with the value in the folder name."""
    checked = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    with as_schema_errors(Path(path)), checked as file:
        for batch in file.iter_batches(columns=[column], use_threads=False):
            codes, values = distinct(pa.chunked_array([batch.column(0)]))
            try:
                (expected,) = names(pa.array([named]).cast(values.type))
            except pa.ArrowException:
                expected = named
            yield from ((name, expected) for name in names(values))
            if (codes < 0).any():
                yield None, expected


def is_hidden(file: Path) -> bool:
    """Return True if the file or one of its folders is hidden: the name begins with a dot or an underscore."""
    return any(part.startswith((".", "_")) for part in file.parts)


# -- Read files --------------------------------------------------------------------------------------------------------

FOLDER = b"pcmcnet folder"  # metadata key: the folder that a table was read from; it is not written to files


class TableFile(Protocol):
    """An open file or folder of any format, with its column names. Columns are read on demand."""

    names: list[str]

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read the given columns, in the given order."""


def read_path(
    path: Path,
    columns: Sequence[str] | None,
    *,
    text: Collection[str] = (),
    ids: Collection[str] = (),
    compact: bool = False,
) -> pa.Table:
    """Read a file or folder. ``text``, ``ids`` and ``compact`` are described in ``tabular.read_table``."""
    with as_schema_errors(path):
        source = open_source(path)
        requested = source.names if columns is None else list(columns)
        require_columns(requested, source.names, where=str(path))
        table = without_views(source.read(requested, text, ids, compact))
    pa.default_memory_pool().release_unused()  # temporary memory of the reader
    return table


def read_as_written(
    path: Path, numbers: Collection[str], needed: Sequence[str] = (), names: Collection[str] = ()
) -> pa.Table:
    """Read all columns, to write a copy of the table.

    Parameters
    ----------
    path
        A file or a folder of Parquet files.
    numbers
        Columns of a CSV file that are read as numbers. Any other column becomes numeric only if writing the numbers
        again gives the same text.
    needed
        Columns that all files of a folder must have (none by default). Other columns may be absent from some files,
        whose rows then have missing values.
    names
        Columns of a CSV file that hold names or ids (none by default). A column of names or ids is read as numbers only
        if all its values are integers.
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
    """Return the column names of a file or folder without reading its rows."""
    with as_schema_errors(Path(path)):
        return open_source(Path(path)).names


def open_source(path: Path) -> TableFile:
    """Open a file or folder. The ending determines the format."""
    require_path(path)
    return _SOURCES[ending(path)](path)


def require_path(path: Path) -> None:
    """Raise SchemaError if the path does not exist."""
    if not path.exists():
        near = did_you_mean(path.name, _siblings(path)) if path.parent.is_dir() else ""
        raise SchemaError(f"{path}: no such file or folder.{near if near.endswith('?') else ''}")


def _siblings(path: Path) -> list[str]:
    """Return the names of the tables and folders next to a path."""
    try:
        entries = list(islice(path.parent.iterdir(), MAX_SIBLINGS))
    except OSError:
        return []
    return [entry.name for entry in entries if entry.name.lower().endswith(ENDINGS) or entry.is_dir()]


class ParquetFile:
    """One Parquet file.

    If ``mapped`` is True, the file is memory-mapped, so decoding starts before it is fully read.
    """

    def __init__(self, path: Path, *, mapped: bool = False) -> None:
        self.file = pyarrow.parquet.ParquetFile(path, memory_map=mapped, page_checksum_verification=True)
        self.names = list(self.file.schema_arrow.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read the given columns, in the given order."""
        return self.file.read(columns=columns).select(columns)


class ArrowFile:
    """One Arrow file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.OSFile(str(path)) as file:
            self.names = list(self.reader(file).schema.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read the given columns, in the given order."""
        fields = [self.names.index(name) for name in columns]
        with pa.OSFile(str(self.path)) as file:
            table = self.reader(file, included_fields=sorted(fields)).read_all().select(columns)
        table.validate(full=True)  # wrong offsets in a damaged file would be read beyond its end
        return table

    def reader(self, file: Any, **options: Any) -> Any:
        """Return a reader of the IPC file format or the IPC stream format. Files of both formats end in .arrow."""
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
