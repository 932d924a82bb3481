"""Find personalised offers for a table of individuals by local search.

    rows of the table  ->  chunks of fixed size  ->  offers for each chunk, local or on workers  ->  row groups

Each chunk of individuals is searched separately, from starting offers drawn with the seed, so its offers depend neither
on the worker nor on the rest of the table. Chunks do not depend on the row groups of a file, and only a few chunks are
in memory at once. The result is therefore identical, byte for byte, whether it is computed in one process, on workers,
or from a table in memory.
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
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data.files.sources import open_stream
from pcmcnet.data.files.tabular import read_table
from pcmcnet.decisions.branch_and_bound import SearchResult, local_search, starting_offers
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.constraints import ConstraintRows, Constraints, constraint_rows
from pcmcnet.decisions.factored_offers import MoveRevenue, factored_starts, improve_offer
from pcmcnet.decisions.offer_value import OfferValue, expected_revenue
from pcmcnet.decisions.optimise_offer import MAX_SEARCHED, Revenue, has_factored_search, structure_of, with_factors
from pcmcnet.errors import InputError
from pcmcnet.layers.threads import one_thread_if_small
from pcmcnet.models import ChoiceModel
from pcmcnet.reports.frames import data_frame
from pcmcnet.storage import as_path, atomic_write

INDIVIDUALS_PER_CHUNK = 1_000
_LOCAL_SEARCHES = 2  # per individual
_ROWS_PER_SEARCH = 2**20  # individuals times alternatives whose features or rates are in memory at once

OFFERS_SCHEMA = pa.schema(
    [
        ("individual", pa.int64()),
        ("offer", pa.list_(pa.string())),
        ("probability", pa.list_(pa.float64())),
        ("expected_revenue", pa.float64()),
    ]
)


class OfferSearch:
    """Local search for offers to any individuals, with a fixed model, catalogue and constraints."""

    def __init__(
        self, model: ChoiceModel, catalogue: Any, revenue: Revenue, outside: Any, constraints: Constraints, seed: int
    ) -> None:
        require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
        self.model, self.revenue, self.outside, self.constraints, self.seed = model, revenue, outside, constraints, seed
        schema = model.schema
        self.catalogue = read_table(catalogue, text=schema.text_columns, ids=schema.id_columns)

    def find_offers(self, individuals: pa.Table) -> Offers:
        """Return, for each individual, the best offer found by a few local searches."""
        each = max(_ROWS_PER_SEARCH // max(self.catalogue.num_rows, 1), 1)
        firsts = range(0, max(individuals.num_rows, 1), each)
        return _joined([self._find_offers(individuals.slice(first, each)) for first in firsts])

    def _find_offers(self, individuals: pa.Table) -> Offers:
        """Return the offers to a few individuals."""
        # 1. Read the catalogue and the constraints, and find the structure of the revenue function.
        offered = Catalogue.read(self.model.schema, self.catalogue, individuals, self.outside)
        rows = constraint_rows(self.constraints, offered.labels, offered.columns, offered.outside)
        rows.require_possible()
        value = structure_of(self.model, offered.sets, offered.numbers(self.revenue, "revenue"))
        P = len(offered.sets)
        # 2. In a large catalogue, search for one individual at a time.
        if len(value.revenue) > MAX_SEARCHED and has_factored_search(value):
            found = [self._find_offer(value.for_individual(one), rows) for one in range(P)]
            offers, values = np.stack([each.offer for each in found]), np.array([each.value for each in found])
            return self._offers(value, offered, offers, values)
        # 3. Search from the same starts for every individual, in one batch.
        starts = starting_offers(rows, value.revenue, _LOCAL_SEARCHES, np.random.default_rng(self.seed))
        searches = np.tile(np.arange(P), len(starts))
        with one_thread_if_small(0):  # many small steps, for which threads only add overhead
            offers, values = local_search(
                lambda offers, search: expected_revenue(value, offers, searches[search]),
                rows,
                np.repeat(starts, P, axis=0),
            )
        # 4. Keep the best result of each individual.
        best = values.reshape(len(starts), P).argmax(axis=0) * P + np.arange(P)
        return self._offers(value, offered, offers[best], values[best])

    def _find_offer(self, value: OfferValue, rows: ConstraintRows) -> SearchResult:
        """Return the best offer found by a local search for one individual, from the best of its starts."""
        revenues = MoveRevenue(with_factors(value))
        starts = list(factored_starts(revenues, rows, None, np.random.default_rng(self.seed)))
        best = max(starts, key=lambda start: revenues.of(np.flatnonzero(start)))
        return improve_offer(revenues, rows, best)

    def _offers(self, value: OfferValue, offered: Catalogue, shown: Bools, values: Floats) -> Offers:
        """Return the offers with labels and probabilities."""
        probabilities = value.probabilities(shown, np.arange(len(shown)))
        if offered.outside is not None:
            shown[:, offered.outside] = False
        notes = tuple(self.model.sign_caveats.values())
        return Offers(labels=offered.labels, shown=shown, probabilities=probabilities, values=values, notes=notes)


# -- Offer files -------------------------------------------------------------------------------------------------------

ChunkSearch = Callable[
    [OfferSearch, Iterator[pa.Table]], Iterable[pa.Table]
]  # chunks of individuals -> chunks of offers


class WrittenOffers(NamedTuple):
    """Result of :func:`write_offers`.

    Attributes
    ----------
    path
        Path of the file with the offers.
    individuals
        Number of individuals.
    mean_expected_revenue
        Mean over individuals of the expected revenue per choice.
    notes
        A sentence for each column whose effect in the model is against its expected sign (none for most models).
    """

    path: Path
    individuals: int
    mean_expected_revenue: float
    notes: tuple[str, ...] = ()


@suggests_arguments()
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
    """Find an offer for each individual in a table of any size, and write the offers to a Parquet file.

    Parameters
    ----------
    model
        A fitted model of any kind.
    catalogue
        Table with one row for each alternative that could be offered, with the model's features.
    individuals
        File or folder of Parquet files with the individual-level columns. The table can be larger than memory.
    path
        Parquet file to write, with the columns described in :meth:`Offers.to_arrow`.
    revenue
        Revenue of each alternative if it is chosen: a column of the catalogue ("revenue" by default), a list, or a
        mapping from labels to revenues.
    outside
        Label of the outside option. If None (the default), there is no outside option.
    constraints
        Constraints on each offer (none by default).
    seed
        Seed for the starting offers of local search (0 by default).

    Returns
    -------
    WrittenOffers
        The path, the number of individuals and their mean expected revenue.

    Raises
    ------
    InputError
        If a table is invalid or has no individuals, or no offer satisfies the constraints.
    ConfigError
        If the seed is out of range.
    """
    search = OfferSearch(model, catalogue, revenue, outside, constraints or Constraints(), seed)
    return write_offer_chunks(search, as_path(individuals), as_path(path), _in_this_process)


def write_offer_chunks(search: OfferSearch, individuals: Path, path: Path, searched: ChunkSearch) -> WrittenOffers:
    """Write an offer for each individual in a file. ``searched`` searches the chunks, in this process or on workers."""
    schema = search.model.schema
    stream = open_stream(individuals, schema.individual, text=schema.text_columns, ids=schema.id_columns)
    if not stream.rows:
        raise InputError(f"{individuals}: expected at least one individual, got none.")
    rows, total = write_chunks(searched(search, individual_chunks(stream.batches(INDIVIDUALS_PER_CHUNK))), path)
    return WrittenOffers(path, rows, total / rows, tuple(search.model.sign_caveats.values()))


def write_chunks(offers: Iterable[pa.Table], path: Path) -> tuple[int, float]:
    """Write each chunk as a row group, and return the number of individuals and the sum of their expected revenue."""
    rows, total = 0, 0.0
    with atomic_write(path) as temporary, pq.ParquetWriter(temporary, OFFERS_SCHEMA) as writer:
        for chunk in offers:
            writer.write_table(chunk, row_group_size=INDIVIDUALS_PER_CHUNK)
            rows, total = rows + chunk.num_rows, total + float(chunk["expected_revenue"].to_numpy().sum())
    return rows, total


def individual_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield chunks of individuals of a fixed size, regardless of the size of the batches."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        while sum(part.num_rows for part in pending) >= INDIVIDUALS_PER_CHUNK:
            table = pa.Table.from_batches(pending)
            yield table.slice(0, INDIVIDUALS_PER_CHUNK).combine_chunks()
            pending = table.slice(INDIVIDUALS_PER_CHUNK).to_batches()
    if pending and sum(part.num_rows for part in pending):
        yield pa.Table.from_batches(pending).combine_chunks()


def search_chunk(search: OfferSearch, number: int, individuals: pa.Table) -> pa.Table:
    """Return an offer for each individual in a chunk."""
    return search.find_offers(individuals)._rows(number * INDIVIDUALS_PER_CHUNK)


def _in_this_process(search: OfferSearch, individuals: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for number, chunk in enumerate(individuals):
        yield search_chunk(search, number, chunk)


# -- Optimise offers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Offers:
    """Result of :func:`optimise_offers`: offers to P individuals, found by local search and not proven to be optimal.

    Attributes
    ----------
    labels
        Labels of the catalogue, (n,).
    shown
        Mask (P, n) of the alternatives to show to each individual, without the outside option.
    probabilities
        Choice probabilities, (P, n).
    values
        Expected revenue per choice, (P,).
    notes
        A sentence for each column whose effect in the model is against its expected sign (none for most models).
    """

    labels: tuple[str, ...]
    shown: Bools
    probabilities: Floats
    values: Floats
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        sizes = self.shown.sum(axis=1)
        return (
            f"Offers({len(self):,} individuals, {sizes.min()} to {sizes.max()} of {len(self.labels)} alternatives; "
            f"mean expected revenue {self.values.mean():.4g}, heuristic)"
        )

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with a row for each individual.

        The columns are ``individual`` (its position), ``offer`` (the labels shown), ``probability`` (one for each label
        shown) and ``expected_revenue``.
        """
        return pa.concat_tables([*self._chunks()])

    def _chunks(self) -> Iterator[pa.Table]:
        """Yield the rows of the Arrow table in chunks of fixed size."""
        for first in range(0, len(self), INDIVIDUALS_PER_CHUNK):
            at = slice(first, first + INDIVIDUALS_PER_CHUNK)
            chunk = replace(self, shown=self.shown[at], probabilities=self.probabilities[at], values=self.values[at])
            yield chunk._rows(first)

    def _rows(self, first: int) -> pa.Table:
        """Return an Arrow table with a row for each individual, whose positions are counted from ``first``."""
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
        """Return the table from :meth:`to_arrow` as a pandas data frame."""
        return data_frame(self.to_arrow(), instead="to_arrow()")

    def write(self, path: str | Path) -> Path:
        """Write the table from :meth:`to_arrow` to a Parquet file.

        Parameters
        ----------
        path
            Path of the Parquet file to write.

        Returns
        -------
        Path
            The path of the file.
        """
        write_chunks(self._chunks(), as_path(path))
        return as_path(path)


@suggests_arguments()
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
    """Find a good offer for each of many individuals by local search.

    Parameters
    ----------
    model
        A fitted model of any kind.
    catalogue
        Table with one row for each alternative that could be offered, with the model's features.
    individuals
        Table with the individual-level columns and one row per individual.
    revenue
        Revenue of each alternative if it is chosen: a column of the catalogue ("revenue" by default), a list, or a
        mapping from labels to revenues.
    outside
        Label of the outside option. If None (the default), there is no outside option.
    constraints
        Constraints on each offer (none by default).
    seed
        Seed for the starting offers of local search (0 by default).

    Returns
    -------
    Offers
        The offers, in the order of the individuals.

    Raises
    ------
    InputError
        If a table is invalid or has no individuals, or no offer satisfies the constraints.
    ConfigError
        If the seed is out of range.
    """
    schema = model.schema
    people = read_table(individuals, text=schema.text_columns, ids=schema.id_columns)
    search = OfferSearch(model, catalogue, revenue, outside, constraints or Constraints(), seed)
    firsts = range(0, max(people.num_rows, 1), INDIVIDUALS_PER_CHUNK)
    return _joined([search.find_offers(people.slice(first, INDIVIDUALS_PER_CHUNK)) for first in firsts])


def _joined(chunks: list[Offers]) -> Offers:
    """Return the offers of all chunks of individuals."""
    names = ("shown", "probabilities", "values")
    arrays = {name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in names}
    return Offers(labels=chunks[0].labels, notes=chunks[0].notes, **arrays)
