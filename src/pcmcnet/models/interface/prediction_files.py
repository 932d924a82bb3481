"""Compute predictions for a table larger than memory, and write copies of its files with a probability for each row.

    as it is read    chunks of whole sets  ->  their probabilities  ->  files with one more column, copied by a thread
    by a scan        shards of whole sets  ->  probabilities, each at its row's position on disk  ->  the same files

Prediction without a scan reads the ids once and the rows once, and requires that the rows of each choice set are
adjacent and that there are no content columns. If a chunk has an error, the table is scanned, since only a scan can
report on all rows. Choice sets may span several files. All files are written before the first one is moved to its final
location.
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
from pcmcnet.checks import bytes_of
from pcmcnet.concurrency import results_in_order
from pcmcnet.data import ScannedData, Schema
from pcmcnet.data.chunks import CHUNK_ROWS, ChunkProblem, FileChunks
from pcmcnet.data.files.read_files import column_names
from pcmcnet.data.files.sources import CsvStream, TableStream, open_as_written, open_stream
from pcmcnet.data.files.write_files import parquet_appender
from pcmcnet.data.kinds.category import report_unseen_once
from pcmcnet.data.scan.cache import sources_of
from pcmcnet.data.scan.convert import row_bytes
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.prediction import data_chunks_log_proba
from pcmcnet.storage import atomic_write, explain_write_errors, require_folder
from pcmcnet.training.torch_settings import default_torch_settings

log = logging.getLogger("pcmcnet")

SCAN_FOLDER = ".scan"  # temporary folder inside the output folder
MAX_ROWS_PER_WRITE = 2**16
SAMPLED_ROWS = 256  # first rows of a file, from which the bytes per row are estimated
COPY_SHARES = 16  # a write may take 1/16 of the memory limit
CHUNK_SHARES = 32  # a chunk may take 1/32 of the memory limit: several are in memory, and checks copy them


def predict_folder(
    model: ChoiceModel,
    table: Path,
    output: Path,
    *,
    column: str = "probability",
    cache: Path | None = None,
    memory: str | int = "1 GiB",
) -> int:
    """Write a table with the probability of each row as a new column, with one Parquet file per file of the table.

    Parameters
    ----------
    model
        A fitted model.
    table
        A folder of Parquet files, or a file: see ``ChoiceData.scan``.
    output
        Output folder. Files keep their names, and rows keep their order.
    column
        Name of the new column (default "probability").
    cache
        Folder for the converted table: see ``ChoiceData.scan``. If None (default), the table is scanned only if
        necessary, and the converted table is removed at the end.
    memory
        Memory limit (default "1 GiB"): see ``ChoiceData.scan``.

    Returns
    -------
    int
        Number of rows written.

    Raises
    ------
    SchemaError
        If the table does not fit the model, already has the column, contains the output folder, or changes while it is
        read.
    InputError
        If the output folder contains other tables.
    """
    schema = model.schema.for_prediction()
    if output.resolve().is_relative_to(table.resolve()):
        raise SchemaError(f"{output} is inside the table: choose another output folder.")
    if column in column_names(table):
        raise SchemaError(f"{table} already has a column {column!r}: choose another name with --column.")
    memory_bytes, before = bytes_of(memory), _sources(table)
    files = partial(_files, table, output, model.schema, memory_bytes)
    _require_no_other_files(output, _targets(table, output), column)
    scratch = require_folder(output) / SCAN_FOLDER
    changed = SchemaError(f"{table} was changed while it was read: try again.")
    try:
        with OutputFiles(files, column, scratch / "files") as outputs:
            try:
                # 1. Predict the table as it is read, if the rows of each set are adjacent and have no errors.
                source = _file_chunks(model, table, memory_bytes) if cache is None else None
                n_rows = None if source is None else _predict_chunks(model, source, outputs)
                # 2. Otherwise scan it, which reports errors for the whole table.
                if n_rows is None:
                    data = ScannedData.of(table, schema, cache=cache or scratch, memory=memory_bytes)
                    n_rows = _predict_shards(model, data, outputs, scratch / "probabilities")
            except (InputError, SchemaError) as error:
                if _sources(table) != before:
                    raise changed from error
                raise
            # 3. Keep the result only if the table did not change meanwhile.
            if n_rows is None or _sources(table) != before:
                raise changed
            outputs.move_to_targets()
        shutil.rmtree(scratch, ignore_errors=True)
    finally:
        with suppress(OSError):  # not empty: a failed attempt leaves the converted table for the next one
            scratch.rmdir()
    return n_rows


def _sources(table: Path) -> list[dict[str, Any]]:
    """Return the names, sizes, times and hashes of a table's files, which reveal changes to the table."""
    return sources_of(open_stream(table, ()).files, table)


def _file_chunks(model: ChoiceModel, table: Path, memory: int) -> FileChunks | None:
    """Return the chunks of a table on disk, or None if a scan is needed.

    A scan is needed if a column cannot be read in chunks, or if the rows of a choice set are not adjacent.
    """
    schema = model.schema.for_prediction()
    stream = open_stream(table, schema.columns)
    if schema.outside is not None or schema.contents or isinstance(stream, CsvStream):
        return None
    share = memory // (CHUNK_SHARES * model._parallel_chunks)
    rows = max(min(CHUNK_ROWS, share // row_bytes(stream, schema)), 1)
    return FileChunks.of(stream, schema.choice_set, rows, memory // 2)


@default_torch_settings()
def _predict_chunks(model: ChoiceModel, source: FileChunks, outputs: OutputFiles) -> int | None:
    """Predict in chunks while a thread writes the rows, and return the number of rows, or None if a scan is needed."""
    log.info("predicting %s in chunks as it is read", source.stream.path)
    with closing(source.chunks()) as chunks, closing(outputs.writer()) as writer, report_unseen_once() as unseen:
        tasks = (partial(_write, writer, log_p) for log_p in model._log_proba_of_chunks(chunks))
        *_, last = [next(writer), *results_in_order(tasks)]
        if last is True:
            return source.n_rows
        unseen.clear()  # the scan counts them again
    log.debug("%s: %s", source.stream.path, last.reason if last else "the number of rows has changed")
    return None


def _write(writer: Generator[bool, Floats, None], log_p: Floats | ChunkProblem) -> bool | ChunkProblem:
    return log_p if isinstance(log_p, ChunkProblem) else writer.send(np.exp(log_p))


def _predict_shards(model: ChoiceModel, data: ScannedData, outputs: OutputFiles, file: Path) -> int | None:
    """Predict shard by shard, then write the files, and return the number of rows, or None if the table has changed."""
    rows = data.n_rows
    with _reserved_file(file, rows), report_unseen_once():
        # 1. Write each probability at the place of its row, since shards are not in the order of the table.
        for table_rows, log_p in data_chunks_log_proba(model, data):
            _probabilities(file, rows)[table_rows] = np.exp(log_p)
        # 2. Write the files with the probabilities in the order of the rows.
        with closing(outputs.writer()) as writer:
            complete = next(writer)
            for begin in range(0, rows, MAX_ROWS_PER_WRITE):
                complete = writer.send(np.array(_probabilities(file, rows)[begin : begin + MAX_ROWS_PER_WRITE]))
    return rows if complete else None


class CopiedFile(NamedTuple):
    """A file of the table, and its output file with an additional column."""

    stream: TableStream
    target: Path
    batch_rows: int  # rows that are copied at a time


@dataclass
class OutputFiles:
    """Copies of a table's files with an additional column, which are written to a temporary folder and then moved."""

    files: Callable[[], Iterable[CopiedFile]]
    column: str
    folder: Path
    moves: list[tuple[Path, Path]] = field(default_factory=list)  # temporary file, target

    def __enter__(self) -> Self:
        require_folder(self.folder)
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder)

    def writer(self) -> Generator[bool, Floats, None]:
        """Return a generator that receives values of the new column and writes the files.

        The generator yields True once it has received a value for every row of the table.
        """
        self.moves.clear()
        values = np.empty(0)  # sent but not written yet
        for k, (stream, target, batch_rows) in enumerate(self.files()):
            path = self.folder / str(k)
            with explain_write_errors(target), parquet_appender(path, stream.schema, self.column) as append:
                for batch in stream.batches(batch_rows):
                    while len(values) < batch.num_rows:
                        values = np.concatenate([values, (yield False)])
                    append(batch, values[: batch.num_rows])
                    values = values[batch.num_rows :]
            self.moves.append((path, target))
        yield not len(values)
        while True:
            yield False

    def move_to_targets(self) -> None:
        """Move all files to their final locations."""
        for path, target in self.moves:
            with atomic_write(target) as temporary:
                path.replace(temporary)


def _require_no_other_files(output: Path, targets: Mapping[Path, Path], column: str) -> None:
    """Raise an error if the output folder has files of another result, or if the table would be overwritten."""
    for file, target in targets.items():
        if target.exists() and target.samefile(file):
            raise SchemaError(f"{target} is the table itself: choose another output folder.")
    for path in sorted(path for path in output.rglob("*.parquet") if not path.name.startswith(".")):
        if path not in targets.values() or column not in column_names(path):
            raise InputError(f"{path} does not belong to this result: choose another output folder, or empty this one.")


@contextmanager
def _reserved_file(path: Path, rows: int) -> Iterator[None]:
    """Reserve disk space for the probabilities of all rows in a temporary file.

    Without this reservation, a full disk would kill the process, since a write to a memory map cannot raise an error.
    """
    require_folder(path.parent)
    try:
        with explain_write_errors(path), path.open("wb") as file:
            if rows and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 8 * rows)
            file.truncate(8 * rows)
        yield
    finally:
        path.unlink(missing_ok=True)


def _probabilities(path: Path, rows: int) -> NDArray[np.float64]:
    """Map the file of probabilities into memory. Callers must not keep the map, since its pages count as memory."""
    return np.memmap(path, np.float64, "r+", shape=rows) if rows else np.empty(0)


def _targets(table: Path, output: Path) -> dict[Path, Path]:
    """Return the files of a table, each with its output file."""
    if table.is_dir():
        return {file: output / file.relative_to(table) for file in open_stream(table, ()).files}
    return {table: (output / table.name.removesuffix(".gz")).with_suffix(".parquet")}


def _files(table: Path, output: Path, schema: Schema, memory: int) -> Iterator[CopiedFile]:
    """Yield the files of a table in order, opening each file only when it is written."""
    for file, target in _targets(table, output).items():
        stream = open_as_written(file, schema.number_columns, schema.name_columns)
        sample = next(stream.batches(SAMPLED_ROWS), None)
        bytes_per_row = 1 if sample is None else max(sample.nbytes // max(sample.num_rows, 1), 1)
        yield CopiedFile(stream, target, max(min(MAX_ROWS_PER_WRITE, memory // COPY_SHARES // bytes_per_row), 1))
