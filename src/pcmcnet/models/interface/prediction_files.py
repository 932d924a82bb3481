"""A table larger than memory -> the same table with the probability of each row, file by file.

    as it is read    chunks of whole sets  ->  their probabilities  ->  files with one more column, copied by a thread
    by a scan        shards of whole sets  ->  probabilities, each at its row's place on disk  ->  such files

The first way takes one look at the ids and one at the rows. It is for tables whose sets lie together, without contents,
and for those in which nothing is wrong: what a chunk cannot word, or predict, is left to the scan. Choice sets may go
across files. No file of the result is in its place before all are written.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.concurrency import results_in_order
from pcmcnet.data import ScannedData, Schema
from pcmcnet.data.chunks import CHUNK_ROWS, ChunkProblem, FileChunks
from pcmcnet.data.files.read_files import column_names
from pcmcnet.data.files.sources import CsvStream, TableStream, open_as_written, open_stream
from pcmcnet.data.files.write_files import parquet_appender
from pcmcnet.data.kinds.category import report_unseen_once
from pcmcnet.data.scan.cache import sources_of
from pcmcnet.data.scan.convert import row_bytes
from pcmcnet.data.scan.memory import bytes_of
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.prediction import shards_log_proba
from pcmcnet.storage import atomic_write, explain_write_errors, require_folder
from pcmcnet.training.device import default_torch_settings

log = logging.getLogger("pcmcnet")

SCAN_FOLDER = ".scan"  # in the folder of the result, until it is complete
ROWS_WRITTEN = 2**16  # written at once, at most
ROWS_SAMPLED = 256  # by which the size of the others is judged
COPY_SHARES = 16  # of the memory, one of which the rows that are written at once may take
CHUNK_SHARES = 32  # of the memory, one of which a chunk may take: several are in memory, and checks take copies


def predict_folder(
    model: ChoiceModel,
    table: Path,
    output: Path,
    *,
    column: str = "probability",
    cache: Path | None = None,
    memory: str | int = "1 GiB",
) -> int:
    """Write a table with the probability of each row as one more column, a Parquet file for each file of the table.

    Parameters
    ----------
    model
        A fitted model.
    table
        A folder of Parquet, or a file: see ``ChoiceData.scan``.
    output
        Folder of the result. Files keep their names and rows their order.
    column
        Name of the new column.
    cache, memory
        See ``ChoiceData.scan``; without a cache, a table is scanned only where it has to be, and the converted one
        removed at the end.

    Returns
    -------
    int
        Number of rows written.

    Raises
    ------
    SchemaError
        When the table does not fit the model, has such a column already, holds the folder of the result, or is changed
        meanwhile.
    InputError
        When the folder of the result holds other tables.
    """
    schema = model.schema.for_prediction()
    if output.resolve().is_relative_to(table.resolve()):
        raise SchemaError(f"{output} lies within the table: choose another folder for the result.")
    if column in column_names(table):
        raise SchemaError(f"{table} already has a column {column!r}: choose another name by --column.")
    allowed, before = bytes_of(memory), _sources(table)
    files = partial(_files, table, output, model.schema, allowed)
    _require_no_others(output, _places(table, output), column)
    scratch = require_folder(output) / SCAN_FOLDER
    changed = SchemaError(f"{table} was changed while it was read: try again.")
    try:
        with OutputFiles(files, column, scratch / "files") as copies:
            try:
                # 1. Predict the table as it is read, if its sets lie together and nothing is wrong with it.
                source = _file_chunks(model, table, allowed) if cache is None else None
                done = None if source is None else _predict_chunks(model, source, copies)
                # 2. Else scan it: that says what is wrong with the whole table.
                if done is None:
                    data = ScannedData.of(table, schema, cache=cache or scratch, memory=allowed)
                    done = _predict_shards(model, data, copies, scratch / "probabilities")
            except (InputError, SchemaError) as error:
                if _sources(table) != before:
                    raise changed from error
                raise
            # 3. Keep the result only if it is that of one table.
            if done is None or _sources(table) != before:
                raise changed
            copies.put_in_place()
        shutil.rmtree(scratch, ignore_errors=True)
    finally:
        with suppress(OSError):  # it holds a converted table, which another attempt finds
            scratch.rmdir()
    return done


def _sources(table: Path) -> list[dict[str, Any]]:
    """Say by what it is known that a table has changed."""
    return sources_of(open_stream(table, ()).files, table)


def _file_chunks(model: ChoiceModel, table: Path, memory: int) -> FileChunks | None:
    """Cut a table on disk into chunks; None if it has to be scanned, for its columns or for how its rows lie."""
    schema = model.schema.for_prediction()
    stream = open_stream(table, schema.columns)
    if schema.outside is not None or schema.contents or isinstance(stream, CsvStream):
        return None
    share = memory // (CHUNK_SHARES * model._parallel_chunks)
    rows = max(min(CHUNK_ROWS, share // row_bytes(stream, schema)), 1)
    return FileChunks.of(stream, schema.choice_set, rows, memory // 2)


@default_torch_settings()
def _predict_chunks(model: ChoiceModel, source: FileChunks, copies: OutputFiles) -> int | None:
    """Predict one chunk after the other, while a thread copies the rows of those before.

    Returns the number of rows; None if the table has to be scanned.
    """
    log.info("predicting %s as it is read", source.stream.path)
    with closing(source.chunks()) as chunks, closing(copies.written()) as writer, report_unseen_once() as unseen:
        tasks = (partial(_write, writer, log_p) for log_p in model._log_proba_of_chunks(chunks))
        *_, last = [next(writer), *results_in_order(tasks)]
        if last is True:
            return source.n_rows
        unseen.clear()  # the scan counts them again
    log.debug("%s: %s", source.stream.path, last.reason if last else "rows have come or gone")
    return None


def _write(writer: Generator[bool, Floats, None], log_p: Floats | ChunkProblem) -> bool | ChunkProblem:
    return log_p if isinstance(log_p, ChunkProblem) else writer.send(np.exp(log_p))


def _predict_shards(model: ChoiceModel, data: ScannedData, copies: OutputFiles, place: Path) -> int | None:
    """Put the probabilities of one shard after the other at the places of their rows, and then copy the files.

    Returns the number of rows; None where there are others now.
    """
    rows = data.n_rows
    with _room(place, rows), report_unseen_once():
        for table_rows, log_p in shards_log_proba(model, data):
            _opened(place, rows)[table_rows] = np.exp(log_p)
        with closing(copies.written()) as writer:
            complete = next(writer)
            for begin in range(0, rows, ROWS_WRITTEN):
                complete = writer.send(np.array(_opened(place, rows)[begin : begin + ROWS_WRITTEN]))
    return rows if complete else None


class CopiedFile(NamedTuple):
    """A file of a table, and the one that is made of it."""

    stream: TableStream
    target: Path
    at_once: int  # rows that are copied at a time


@dataclass
class OutputFiles:
    """Files of a table with one more column, made in a folder, which is removed at the end, and put in their places."""

    files: Callable[[], Iterable[CopiedFile]]
    column: str
    folder: Path
    made: list[tuple[Path, Path]] = field(default_factory=list)  # each file, and its place

    def __enter__(self) -> Self:
        require_folder(self.folder)
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder)

    def written(self) -> Generator[bool, Floats, None]:
        """Write all files as far as values of the new column are known, which are sent.

        Yields whether as many were sent as there are rows.
        """
        self.made.clear()
        values = np.empty(0)  # sent, and not written yet
        for k, (stream, target, at_once) in enumerate(self.files()):
            path = self.folder / str(k)
            with explain_write_errors(target), parquet_appender(path, stream.schema, self.column) as append:
                for batch in stream.batches(at_once):
                    while len(values) < batch.num_rows:
                        values = np.concatenate([values, (yield False)])
                    append(batch, values[: batch.num_rows])
                    values = values[batch.num_rows :]
            self.made.append((path, target))
        yield not len(values)
        while True:
            yield False

    def put_in_place(self) -> None:
        """Put all files in their places."""
        for path, target in self.made:
            with atomic_write(target) as beside:
                path.replace(beside)


def _require_no_others(output: Path, places: Mapping[Path, Path], column: str) -> None:
    """Refuse a folder with files that would be taken for a part of the result, or be lost to it."""
    for file, target in places.items():
        if target.exists() and target.samefile(file):
            raise SchemaError(f"{target} is the table itself: choose another folder for the result.")
    targets = set(places.values())
    for path in sorted(path for path in output.rglob("*.parquet") if not path.name.startswith(".")):
        if path not in targets or column not in column_names(path):
            raise InputError(f"{path} is no part of this result: choose another folder, or empty this one.")


@contextmanager
def _room(place: Path, rows: int) -> Iterator[None]:
    """Make room on the disk for a probability of each row, as long as it is needed.

    Else the system would end the process where the disk is full: to write to a map of a file cannot fail.
    """
    require_folder(place.parent)
    try:
        with explain_write_errors(place), place.open("wb") as file:
            if rows and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 8 * rows)
            file.truncate(8 * rows)
        yield
    finally:
        place.unlink(missing_ok=True)


def _opened(place: Path, rows: int) -> NDArray[np.float64]:
    """Map the file of probabilities into memory, for as long as it is used: pages in use count as memory."""
    return np.memmap(place, np.float64, "r+", shape=rows) if rows else np.empty(0)


def _places(table: Path, output: Path) -> dict[Path, Path]:
    """Return the files of a table, each with the place of its result."""
    if table.is_dir():
        return {file: output / file.relative_to(table) for file in open_stream(table, ()).files}
    return {table: (output / table.name.removesuffix(".gz")).with_suffix(".parquet")}


def _files(table: Path, output: Path, schema: Schema, memory: int) -> Iterator[CopiedFile]:
    """Open the table's files one by one, as they are written."""
    for file, target in _places(table, output).items():
        stream = open_as_written(file, schema.number_columns, schema.name_columns)
        yield CopiedFile(stream, target, max(min(ROWS_WRITTEN, memory // COPY_SHARES // _copied_bytes(stream)), 1))


def _copied_bytes(stream: TableStream) -> int:
    """Return about how many bytes a row takes, by the first ones."""
    some = next(stream.batches(ROWS_SAMPLED), None)
    return 1 if some is None else max(some.nbytes // max(some.num_rows, 1), 1)
