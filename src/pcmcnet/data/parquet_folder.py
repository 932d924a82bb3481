"""A folder of Parquet files, read as one table.

All files must have the columns asked for, of types that go together. Folders named column=value count as columns, and
must say the same as a column of that name inside the files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from pcmcnet.data.distinct import distinct, names
from pcmcnet.data.file_errors import one_line, one_sentence, require_columns
from pcmcnet.data.views import plain_schema
from pcmcnet.errors import SchemaError


class Folder:
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
        factory = pyarrow.dataset.FileSystemDatasetFactory(
            pyarrow.fs.LocalFileSystem(), files, _checked_parquet(), options
        )
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
        with one_sentence(Path(fragment.path)):
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
        self._require_one_answer(columns)

    def _require_in_all(self, columns: Sequence[str]) -> None:
        """Refuse a column that some of the files have and others lack: it would be read as gaps."""
        inside = {fragment.path: fragment.physical_schema.names for fragment in self.dataset.get_fragments()}
        in_files = [column for column in columns if any(column in names for names in inside.values())]
        for path, present in inside.items():
            require_columns(in_files, present, where=path)

    def _require_one_answer(self, columns: Sequence[str]) -> None:
        """Refuse a file that says something else of a column than the name of its folder does."""
        for path, said in self.named.items():
            for column in set(said).intersection(columns, pyarrow.parquet.read_schema(path).names):
                for found, expected in _beside(path, column, said[column]):
                    if found != expected:
                        raise SchemaError(
                            f"{path}: column {column!r} holds {found or 'nothing'}, and its folder is named "
                            f"{column}={said[column]}. Correct one of them, or rename the column in the files."
                        )


def _schema(file: str) -> pa.Schema:
    with one_sentence(Path(file)):
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
    with one_sentence(Path(path)), checked as file:
        for batch in file.iter_batches(columns=[column], use_threads=False):
            found = distinct(pa.chunked_array([batch.column(0)]))
            try:
                (expected,) = names(pa.array([said]).cast(found.values.type))
            except pa.ArrowException:
                expected = said
            yield from ((name, expected) for name in names(found.values))
            if (found.codes < 0).any():
                yield None, expected


def _checked_parquet() -> Any:
    """Parquet whose pages are checked where they carry a checksum, as those written here do."""
    import pyarrow.dataset

    options = pyarrow.dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
    return pyarrow.dataset.ParquetFileFormat(default_fragment_scan_options=options)


def is_hidden(file: Path) -> bool:
    """Tell what other programs keep beside a table, by their convention."""
    return any(part.startswith((".", "_")) for part in file.parts)
