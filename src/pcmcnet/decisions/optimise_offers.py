"""Personalised offers for a table of individuals, by local search.

    rows of the table  ->  chunks of a fixed size  ->  offers of each, here or by workers  ->  a row group each

A chunk is searched by itself, from starts that the seed gives: it does not matter who searches it or what else is in
the table. Chunks do not depend on how a file is cut into row groups, and no more than a few are in memory. So the bytes
of the result are the same in one process, by workers, and from a table in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
from pcmcnet.data.files.sources import open_stream
from pcmcnet.data.files.tabular import read_table
from pcmcnet.decisions.branch_and_bound import local_search, starting_offers
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.constraints import Constraints, constraint_rows
from pcmcnet.decisions.offer_value import expected_revenue
from pcmcnet.decisions.optimise_offer import Revenue, structure_of
from pcmcnet.errors import InputError
from pcmcnet.layers.threads import one_thread_if_small
from pcmcnet.models import ChoiceModel
from pcmcnet.reports.formats import data_frame
from pcmcnet.storage import as_path, atomic_write

INDIVIDUALS_PER_CHUNK = 1_000  # individuals of a piece
_LOCAL_SEARCHES = 2  # local searches for each individual

OFFERS_SCHEMA = pa.schema(
    [
        ("individual", pa.int64()),
        ("offer", pa.list_(pa.string())),
        ("probability", pa.list_(pa.float64())),
        ("expected_revenue", pa.float64()),
    ]
)


class OfferSearch:
    """What is the same for all individuals: the model, the catalogue and the constraints."""

    def __init__(
        self, model: ChoiceModel, catalogue: Any, revenue: Revenue, outside: Any, constraints: Constraints, seed: int
    ) -> None:
        require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
        self.model, self.revenue, self.outside, self.constraints, self.seed = model, revenue, outside, constraints, seed
        schema = model.schema
        self.catalogue = read_table(catalogue, text=schema.text_columns, ids=schema.id_columns)

    def of(self, individuals: pa.Table) -> Offers:
        """Return the best offers that a few local searches find."""
        # 1. Read the catalogue and the constraints, and how the revenue depends on the offer.
        offered = Catalogue.read(self.model.schema, self.catalogue, individuals, self.outside)
        rows = constraint_rows(self.constraints, offered.labels, offered.columns, offered.outside)
        rows.require_possible()
        value = structure_of(self.model, offered.sets, offered.numbers(self.revenue, "revenue"))
        # 2. Search from the same starts for every individual, all together.
        P = len(offered.sets)
        starts = starting_offers(rows, value.revenue, _LOCAL_SEARCHES, np.random.default_rng(self.seed))
        searches = np.tile(np.arange(P), len(starts))
        with one_thread_if_small(0):  # many small steps, between which threads would only wait
            offers, values = local_search(
                lambda there, search: expected_revenue(value, there, searches[search]),
                rows,
                np.repeat(starts, P, axis=0),
            )
        # 3. Take the best end of each individual.
        best = values.reshape(len(starts), P).argmax(axis=0) * P + np.arange(P)
        shown, probabilities = offers[best], value.probabilities(offers[best], np.arange(P))
        if offered.outside is not None:
            shown[:, offered.outside] = False
        return Offers(labels=offered.labels, shown=shown, probabilities=probabilities, values=values[best])


# -- Offer files -------------------------------------------------------------------------------------------------------

ChunkSearch = Callable[[OfferSearch, Iterator[pa.Table]], Iterable[pa.Table]]  # pieces of individuals -> of offers


class WrittenOffers(NamedTuple):
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
) -> WrittenOffers:
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
    return write_offer_chunks(search, as_path(individuals), as_path(path), _in_this_process)


def write_offer_chunks(search: OfferSearch, individuals: Path, path: Path, searched: ChunkSearch) -> WrittenOffers:
    """Write the offers to all individuals of a file, whoever searches for them."""
    schema = search.model.schema
    stream = open_stream(individuals, schema.individual, text=schema.text_columns, ids=schema.id_columns)
    if not stream.rows:
        raise InputError(f"{individuals}: expected at least one individual, got none.")
    rows, total = write_chunks(searched(search, individual_chunks(stream.batches(INDIVIDUALS_PER_CHUNK))), path)
    return WrittenOffers(path, rows, total / rows)


def write_chunks(offers: Iterable[pa.Table], path: Path) -> tuple[int, float]:
    """Write each piece as a row group; returns the number of individuals and the sum of their expected revenue."""
    rows, total = 0, 0.0
    with atomic_write(path) as beside, pq.ParquetWriter(beside, OFFERS_SCHEMA) as writer:
        for piece in offers:
            writer.write_table(piece, row_group_size=INDIVIDUALS_PER_CHUNK)
            rows, total = rows + piece.num_rows, total + float(piece["expected_revenue"].to_numpy().sum())
    return rows, total


def individual_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut rows into pieces that do not depend on the batches they come in."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        while sum(part.num_rows for part in held) >= INDIVIDUALS_PER_CHUNK:
            table = pa.Table.from_batches(held)
            yield table.slice(0, INDIVIDUALS_PER_CHUNK).combine_chunks()
            held = table.slice(INDIVIDUALS_PER_CHUNK).to_batches()
    if held and sum(part.num_rows for part in held):
        yield pa.Table.from_batches(held).combine_chunks()


def search_chunk(search: OfferSearch, number: int, individuals: pa.Table) -> pa.Table:
    """Return the offers to the individuals of a piece."""
    return search.of(individuals)._rows(number * INDIVIDUALS_PER_CHUNK)


def _in_this_process(search: OfferSearch, individuals: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for number, piece in enumerate(individuals):
        yield search_chunk(search, number, piece)


# -- Optimise offers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Offers:
    """Offers to P individuals, all heuristic.

    Attributes
    ----------
    labels
        (n,) the alternatives of the catalogue.
    shown
        (P, n) which of them to show to each individual; the outside option is not among them.
    probabilities
        (P, n) of being chosen.
    values
        (P,) expected revenue of one choice.
    """

    labels: tuple[str, ...]
    shown: Bools
    probabilities: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        sizes = self.shown.sum(axis=1)
        return (
            f"Offers({len(self):,} individuals, {sizes.min()} to {sizes.max()} of {len(self.labels)} alternatives; "
            f"mean expected revenue {self.values.mean():.4g}, heuristic)"
        )

    def to_arrow(self) -> pa.Table:
        """Return a row for each individual: its position, the labels shown, their probabilities, the revenue."""
        return pa.concat_tables([*self._pieces()])

    def _pieces(self) -> Iterator[pa.Table]:
        for first in range(0, len(self), INDIVIDUALS_PER_CHUNK):
            at = slice(first, first + INDIVIDUALS_PER_CHUNK)
            part = replace(self, shown=self.shown[at], probabilities=self.probabilities[at], values=self.values[at])
            yield part._rows(first)

    def _rows(self, first: int) -> pa.Table:
        """Return a row for each individual, whose positions count from ``first``."""
        names = np.array(self.labels, object)
        columns = [
            np.arange(first, first + len(self)),
            [names[row].tolist() for row in self.shown],
            [p[row].tolist() for p, row in zip(self.probabilities, self.shown, strict=True)],
            self.values,
        ]
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, OFFERS_SCHEMA, strict=True)], schema=OFFERS_SCHEMA
        )

    def to_frame(self) -> Any:
        """Return the table of :meth:`to_arrow` as a pandas data frame."""
        return data_frame(self.to_arrow(), instead="to_arrow()")

    def write(self, path: str | Path) -> Path:
        """Write the table of :meth:`to_arrow` to a Parquet file."""
        write_chunks(self._pieces(), as_path(path))
        return as_path(path)


def optimise_offers(
    model: ChoiceModel,
    catalogue: Any,
    individuals: Any,
    revenue: Revenue = "revenue",
    *,
    outside: Any = None,
    constraints: Constraints | None = None,
    seed: int = 0,
) -> Offers:
    """Find a good offer for each of many individuals, by local search.

    Parameters
    ----------
    individuals
        A table with the individual's columns, a row for each individual.
    model, catalogue, revenue, outside, constraints, seed
        As for :func:`optimise_offer`.

    Returns
    -------
    Offers
        In the order of the individuals.
    """
    schema = model.schema
    who = read_table(individuals, text=schema.text_columns, ids=schema.id_columns)
    search = OfferSearch(model, catalogue, revenue, outside, constraints or Constraints(), seed)
    chunks = [
        search.of(who.slice(first, INDIVIDUALS_PER_CHUNK))
        for first in range(0, max(who.num_rows, 1), INDIVIDUALS_PER_CHUNK)
    ]
    names = ("shown", "probabilities", "values")
    joined = {name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in names}
    return Offers(labels=chunks[0].labels, **joined)
