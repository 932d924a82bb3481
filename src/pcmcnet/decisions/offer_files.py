"""A table of individuals on disk -> a Parquet file of offers, piece by piece.

    rows of the table  ->  pieces of a fixed size  ->  offers of each, here or by workers  ->  a row group each

No more than a few pieces are in memory. Pieces do not depend on how the file is cut into row groups, so the bytes of
the result are the same in one process, by workers, and from a table in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pcmcnet.data.scan.sources import open_stream
from pcmcnet.decisions.constraints import Constraints
from pcmcnet.decisions.offer_search import SCHEMA, TOGETHER, OfferSearch
from pcmcnet.decisions.optimise_offer import Revenue
from pcmcnet.errors import InputError
from pcmcnet.models import ChoiceModel
from pcmcnet.storage.files import as_path, replacing

Searched = Callable[[OfferSearch, Iterator[pa.Table]], Iterable[pa.Table]]  # pieces of individuals -> of offers


class Written(NamedTuple):
    """What came of it."""

    path: Path
    individuals: int
    mean_expected_revenue: float


def write_offers(
    model: ChoiceModel,
    catalogue: Any,
    individuals: str | Path,
    path: str | Path,
    revenue: Revenue = "revenue",
    *,
    outside: Any = None,
    constraints: Constraints | None = None,
    seed: int = 0,
) -> Written:
    """Find an offer for each individual of a table that may be larger than memory, and write them to a Parquet file.

    Parameters
    ----------
    individuals
        A file, or a folder of Parquet files, with the individual's columns.
    path
        The file to write: see :meth:`Offers.to_arrow` for its columns.
    model, catalogue, revenue, outside, constraints, seed
        As for :func:`optimise_offers`.

    Returns
    -------
    Written
        The path, the number of individuals and their mean expected revenue.
    """
    search = OfferSearch(model, catalogue, revenue, outside, constraints or Constraints(), seed)
    return write_searched(search, as_path(individuals), as_path(path), _in_this_process)


def write_searched(search: OfferSearch, individuals: Path, path: Path, searched: Searched) -> Written:
    """Write the offers to all individuals of a file, whoever searches for them."""
    schema = search.model.schema
    stream = open_stream(individuals, schema.individual, text=schema.text_columns, ids=schema.id_columns)
    if not stream.rows:
        raise InputError(f"{individuals}: expected at least one individual, got none.")
    rows, total = write_pieces(searched(search, pieces(stream.batches(TOGETHER))), path)
    return Written(path, rows, total / rows)


def write_pieces(offers: Iterable[pa.Table], path: Path) -> tuple[int, float]:
    """Write each piece as a row group; returns the number of individuals and the sum of their expected revenue."""
    rows, total = 0, 0.0
    with replacing(path) as beside, pq.ParquetWriter(beside, SCHEMA) as writer:
        for piece in offers:
            writer.write_table(piece, row_group_size=TOGETHER)
            rows, total = rows + piece.num_rows, total + float(piece["expected_revenue"].to_numpy().sum())
    return rows, total


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut rows into pieces that do not depend on the batches they come in."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        while sum(part.num_rows for part in held) >= TOGETHER:
            table = pa.Table.from_batches(held)
            yield table.slice(0, TOGETHER).combine_chunks()
            held = table.slice(TOGETHER).to_batches()
    if held and sum(part.num_rows for part in held):
        yield pa.Table.from_batches(held).combine_chunks()


def searched_piece(search: OfferSearch, number: int, individuals: pa.Table) -> pa.Table:
    """Return the offers to the individuals of a piece."""
    found = search.of(individuals)
    return found.to_arrow(search.labels, number * TOGETHER)


def _in_this_process(search: OfferSearch, individuals: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for number, piece in enumerate(individuals):
        yield searched_piece(search, number, piece)
