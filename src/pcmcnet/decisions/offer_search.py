"""Local searches for offers to some individuals: what one process, or one worker of many, does with a piece of a table.

A piece is searched from its own individuals alone, from starts that the seed gives, so that it does not matter who
searches it or what else is in the table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
from pcmcnet.data.tabular import read_table
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.constraints import Constraints, rows_of
from pcmcnet.decisions.local_search import climb, starting_offers
from pcmcnet.decisions.offer_value import earned
from pcmcnet.decisions.optimise_offer import Revenue
from pcmcnet.decisions.structure import structure_of
from pcmcnet.layers.threads import threads_for
from pcmcnet.models import ChoiceModel

TOGETHER = 1_000  # individuals of a piece
_STARTS = 2  # local searches for each individual

SCHEMA = pa.schema(
    [
        ("individual", pa.int64()),
        ("offer", pa.list_(pa.string())),
        ("probability", pa.list_(pa.float64())),
        ("expected_revenue", pa.float64()),
    ]
)


class Piece(NamedTuple):
    """Offers to some individuals: see :class:`~pcmcnet.decisions.optimise_offers.Offers`."""

    shown: Bools  # (P, n)
    probabilities: Floats  # (P, n)
    values: Floats  # (P,)

    def to_arrow(self, labels: tuple[str, ...], first: int) -> pa.Table:
        """Return a row for each individual, whose positions count from ``first``."""
        names = np.array(labels, object)
        columns = [
            np.arange(first, first + len(self.values)),
            [names[row].tolist() for row in self.shown],
            [p[row].tolist() for p, row in zip(self.probabilities, self.shown, strict=True)],
            self.values,
        ]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


class OfferSearch:
    """What is the same for all individuals: the model, the catalogue and the constraints."""

    def __init__(
        self,
        model: ChoiceModel,
        catalogue: Any,
        revenue: Revenue,
        outside: Any,
        constraints: Constraints,
        seed: int,
    ) -> None:
        require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
        self.model, self.revenue, self.outside, self.constraints, self.seed = model, revenue, outside, constraints, seed
        schema = model.schema
        self.catalogue = read_table(catalogue, text=schema.text_columns, ids=schema.id_columns)
        self.labels: tuple[str, ...] = ()

    def of(self, individuals: pa.Table) -> Piece:
        """Return the best offers that a few local searches find."""
        offered = Catalogue.read(self.model.schema, self.catalogue, individuals, self.outside)
        self.labels = offered.labels
        rows = rows_of(self.constraints, offered.labels, offered.columns, offered.outside)
        rows.require_possible()
        value = structure_of(self.model, offered.sets, offered.numbers(self.revenue, "revenue"))
        P = len(offered.sets)
        starts = starting_offers(rows, value.revenue, _STARTS, np.random.default_rng(self.seed))
        searches = np.tile(np.arange(P), len(starts))
        with threads_for(0):  # many small steps, between which threads would only wait
            offers, values = climb(
                lambda there, search: earned(value, there, searches[search]), rows, np.repeat(starts, P, axis=0)
            )
        best = values.reshape(len(starts), P).argmax(axis=0) * P + np.arange(P)
        shown, probabilities = offers[best], value.probabilities(offers[best], np.arange(P))
        if offered.outside is not None:
            shown[:, offered.outside] = False
        return Piece(shown, probabilities, values[best])
