"""Offers for many individuals at once, by local search: personalised offers for a table of individuals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
from pcmcnet.data.tabular import read_table
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.constraints import Constraints, Rows, rows_of
from pcmcnet.decisions.local_search import climb, starting_offers
from pcmcnet.decisions.offer_value import earned
from pcmcnet.decisions.optimise_offer import Revenue
from pcmcnet.decisions.structure import structure_of
from pcmcnet.models import ChoiceModel
from pcmcnet.reports.data_frames import data_frame
from pcmcnet.storage.files import as_path, replacing

_TOGETHER = 1_000  # individuals whose offers are searched for at once
_STARTS = 2  # local searches for each individual


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
        names = np.array(self.labels, object)
        return pa.table(
            {
                "individual": np.arange(len(self)),
                "offer": [names[row].tolist() for row in self.shown],
                "probability": [p[row].tolist() for p, row in zip(self.probabilities, self.shown, strict=True)],
                "expected_revenue": self.values,
            }
        )

    def to_frame(self) -> Any:
        """Return the table of :meth:`to_arrow` as a pandas data frame."""
        return data_frame(self.to_arrow(), instead="to_arrow()")

    def write(self, path: str | Path) -> Path:
        """Write the table of :meth:`to_arrow` to a Parquet file."""
        with replacing(as_path(path)) as beside:
            pq.write_table(self.to_arrow(), beside)
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
    require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
    schema = model.schema
    who = read_table(individuals, text=schema.text_columns, ids=schema.id_columns)
    rows = None
    parts = []
    for part in _slices(who):
        offered = Catalogue.read(schema, catalogue, part, outside)
        if rows is None:
            rows = rows_of(constraints or Constraints(), offered.labels, offered.columns, offered.outside)
            rows.require_possible()
        parts.append(_search(model, offered, offered.numbers(revenue, "revenue"), rows, np.random.default_rng(seed)))
    shown, probabilities, values = (np.concatenate(found) for found in zip(*parts, strict=True))
    if offered.outside is not None:
        shown[:, offered.outside] = False
    return Offers(labels=offered.labels, shown=shown, probabilities=probabilities, values=values)


def _slices(who: pa.Table) -> Iterator[pa.Table]:
    for first in range(0, max(who.num_rows, 1), _TOGETHER):
        yield who.slice(first, _TOGETHER)


def _search(
    model: ChoiceModel, offered: Catalogue, revenue: Floats, rows: Rows, rng: np.random.Generator
) -> tuple[Bools, Floats, Floats]:
    """Return the best offers that a few local searches find, with probabilities and values."""
    value, P = structure_of(model, offered.sets, revenue), len(offered.sets)
    starts = starting_offers(rows, revenue, _STARTS, rng)
    searches = np.tile(np.arange(P), len(starts))
    offers, values = climb(
        lambda there, search: earned(value, there, searches[search]), rows, np.repeat(starts, P, axis=0)
    )
    best = values.reshape(len(starts), P).argmax(axis=0) * P + np.arange(P)
    return offers[best], value.probabilities(offers[best], np.arange(P)), values[best]
