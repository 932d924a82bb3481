"""Offers for many individuals at once, by local search: personalised offers for a table of individuals.

Individuals are taken in pieces of a fixed size, each searched by itself (``offer_search.py``). A table that is larger
than memory is read and written piece by piece (``offer_files.py``), with the same bytes as a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats
from pcmcnet.data.tabular import read_table
from pcmcnet.decisions.constraints import Constraints
from pcmcnet.decisions.offer_files import write_pieces
from pcmcnet.decisions.offer_search import TOGETHER, OfferSearch, Piece
from pcmcnet.decisions.optimise_offer import Revenue
from pcmcnet.models import ChoiceModel
from pcmcnet.reports.data_frames import data_frame
from pcmcnet.storage.files import as_path


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
        for first in range(0, len(self), TOGETHER):
            part = slice(first, first + TOGETHER)
            piece = Piece(self.shown[part], self.probabilities[part], self.values[part])
            yield piece.to_arrow(self.labels, first)

    def to_frame(self) -> Any:
        """Return the table of :meth:`to_arrow` as a pandas data frame."""
        return data_frame(self.to_arrow(), instead="to_arrow()")

    def write(self, path: str | Path) -> Path:
        """Write the table of :meth:`to_arrow` to a Parquet file."""
        write_pieces(self._pieces(), as_path(path))
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
    pieces = [search.of(who.slice(first, TOGETHER)) for first in range(0, max(who.num_rows, 1), TOGETHER)]
    shown, probabilities, values = (np.concatenate(found) for found in zip(*pieces, strict=True))
    return Offers(labels=search.labels, shown=shown, probabilities=probabilities, values=values)
