"""Predict log-probabilities of the rows of a table, either in memory or in chunks.

    in memory    table  ->  ChoiceData, with all checks  ->  ``model._log_proba``  ->  in the order of the rows
    in chunks    chunks of whole choice sets, read in a thread  ->  checked or encoded in threads  ->  predicted
                 ->  in the order of the rows

:func:`log_proba` uses chunks for scanned tables and catalogues, and if a GPU computes predictions faster than a thread
reads the table. :mod:`~pcmcnet.models.interface.prediction_files` uses chunks for predictions that are written to
files. Chunks are read by :mod:`pcmcnet.data.chunks`, or are the shards of a scanned table or the choice sets of a
catalogue, which have already been checked.

Error messages state the number of bad rows in the whole table, which is not known from a single chunk. A chunk that may
contain an error therefore ends prediction in chunks with a :class:`~pcmcnet.data.chunks.ChunkProblem`. The caller then
reads or scans the whole table, which either raises the error or returns the probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.concurrency import results_in_order
from pcmcnet.data import ChoiceData, ChunkedData
from pcmcnet.data import read_long as long_table
from pcmcnet.data.chunked_data import DataChunk
from pcmcnet.data.chunks import Chunk, ChunkProblem, ChunkSource, chunk_source, open_table, too_fine_columns
from pcmcnet.data.column_reader import ChunkContext
from pcmcnet.data.columns.ragged import sum_by_set
from pcmcnet.data.columns.statistics import Span
from pcmcnet.data.kinds.category import report_unseen_once
from pcmcnet.data.schema import Schema
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.training.torch_settings import default_torch_settings

if TYPE_CHECKING:
    from pcmcnet.models.interface.choice_model import ChoiceModel

T = TypeVar("T")
MAX_MISS = 1e-3  # tolerance for sums of probabilities: float32 networks with thousands of alternatives


@default_torch_settings()
def log_proba(model: ChoiceModel, data: Any) -> Floats:
    """Return log-probabilities in row order, for any data that ``ChoiceModel.predict_log_proba`` accepts."""
    schema = model.schema.for_prediction()
    if isinstance(data, ChunkedData):
        with report_unseen_once():
            return data.by_row(data_chunks_log_proba(model, data))
    if not isinstance(data, ChoiceData) and model._encodes_chunks:
        data = open_table(data, schema)
        source = chunk_source(data, schema)
        log_p = None if source is None else table_log_proba(model, source)
        if isinstance(log_p, np.ndarray):
            return log_p
        # Else the table is small, cannot be cut into chunks, or has an error that the whole table must report.
    sets = model._read(data)
    return in_row_order(sets, model._checked_log_proba(sets), data)


def in_row_order(sets: ChoiceData, values: Floats, data: Any) -> Floats:
    """Return values in the order of the rows of ``data``, without outside options that have no row in a table."""
    ordered: Floats = sets.to_rows(values, fill=-np.inf)
    return ordered if isinstance(data, ChoiceData) else ordered[: sets.n_rows - sets.added]


def table_log_proba(model: ChoiceModel, source: ChunkSource) -> Floats | ChunkProblem:
    """Return the log-probabilities (n_rows,) of a table that is read in chunks, or the first problem."""
    out, done = np.empty(source.n_rows), 0
    with closing(source.chunks()) as chunks:
        for log_p in model._log_proba_of_chunks(chunks):
            if isinstance(log_p, ChunkProblem):
                return log_p
            out[done : done + len(log_p)] = log_p
            done += len(log_p)
    return out


def chunks_log_proba(model: ChoiceModel, chunks: Iterable[Chunk | ChunkProblem]) -> Iterator[Floats | ChunkProblem]:
    """Yield the log-probabilities of the rows of each chunk, with -inf for unavailable rows.

    While a chunk is predicted, a thread checks the next one. If there is a problem, it is yielded as the last value.
    """
    reader = ChunkReader(model.schema.for_prediction())
    with closing(results_in_order(partial(reader.read, chunk) for chunk in chunks)) as checked:
        yield from _in_threads(model, (partial(_chunk_log_proba, model, data) for data in checked))
    yield from too_fine_columns(reader.spans)


def data_chunks_log_proba(model: ChoiceModel, data: ChunkedData) -> Iterator[tuple[Ints, Floats]]:
    """Yield the row numbers of each chunk of checked data and their log-probabilities, -inf for unavailable rows."""
    return _in_threads(model, (partial(_data_chunk_log_proba, model, chunk) for chunk in data.chunks()))


def _in_threads(model: ChoiceModel, tasks: Iterator[Callable[[], T]]) -> Iterator[T]:
    """Yield the results of tasks in order, running several tasks at the same time if the model allows it."""
    n_threads = model._parallel_chunks
    return results_in_order(tasks, n_threads) if n_threads > 1 else (task() for task in tasks)


def _chunk_log_proba(model: ChoiceModel, data: ChoiceData | ChunkProblem) -> Floats | ChunkProblem:
    """Return the log-probabilities of the rows of a chunk, or a problem if the model raises an error."""
    if isinstance(data, ChunkProblem):
        return data
    try:
        return in_row_order(data, model._checked_log_proba(data), data)
    except (InputError, SchemaError) as error:
        return ChunkProblem(str(error))


def _data_chunk_log_proba(model: ChoiceModel, chunk: DataChunk) -> tuple[Ints, Floats]:
    return chunk.table_rows, in_row_order(chunk.data, model._checked_log_proba(chunk.data), chunk.data)


class ChunkReader:
    """Convert consecutive chunks to choice data, with the same checks as for a table in memory."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.rows, self.spans = schema, 0, dict[str, Span]()

    def read(self, chunk: Chunk | ChunkProblem) -> ChoiceData | ChunkProblem:
        """Return the next chunk as choice data, or a problem if a check fails."""
        if isinstance(chunk, ChunkProblem):
            return chunk
        begin, self.rows = self.rows, self.rows + int(chunk.sizes.sum())
        try:
            part = ChunkContext(np.arange(begin, self.rows), self.spans)
            return ChoiceData(**long_table.read_long(chunk.rows, self.schema, part))
        except SchemaError as error:
            return ChunkProblem(str(error))


def require_probabilities(log_p: Floats, data: ChoiceData) -> None:
    """Raise InputError unless log-probabilities (N,) sum to 1 in each set."""
    with np.errstate(over="ignore"):
        off = ~(np.abs(sum_by_set(np.exp(log_p), data.offsets) - 1) < MAX_MISS)  # True for NaN, too
    if off.any():
        raise InputError(
            f"{int(off.sum())} of {len(data)} choice sets have probabilities that do not sum to 1 (the first is choice "
            f"set {data.set_ids[int(np.argmax(off))]!s}): values in the table or in the model overflow. Check for "
            f"values far outside the range of the training table, or fit the model again."
        )
