"""The best offer of a request: which alternatives of a set to show, for revenue or for the choice of one of them.

Alternatives that are not available now could be, so they take part. The worker asks the model how choices depend on the
offer; the search then goes on beside it, unless only the model itself can tell what an offer earns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.column_arrays import Numeric
from pcmcnet.decisions.constraints import Rows
from pcmcnet.decisions.local_search import climb, starting_offers
from pcmcnet.decisions.offer_value import AnyModel, OfferValue, earned
from pcmcnet.decisions.optimise_offer import prove
from pcmcnet.decisions.search import PROVEN, Search
from pcmcnet.decisions.structure import structure_of
from pcmcnet.errors import PcmcNetError, shown
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.grid import number_column, place_of, whole
from pcmcnet.serving.refusal import unusable

MOST, MOST_ASKED = 50, 15  # alternatives; the latter where the model is asked about every offer
_SECONDS = 1.0  # for the proof
_STARTS = 2  # local searches, beside the present offer


def without_availability(entry: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return a set of a request, all of whose alternatives are available."""
    alternatives = [{k: v for k, v in one.items() if k != schema.available} for one in entry["alternatives"]]
    return {**entry, "alternatives": alternatives}


@dataclass(frozen=True, slots=True)
class OfferQuestion:
    """The set, what each alternative earns, what is shown now, and what an offer must fulfil."""

    data: ChoiceData
    revenue: Floats  # (n,)
    now: Bools  # (n,)
    rows: Rows

    @classmethod
    def read(cls, asked: Mapping[str, Any], data: ChoiceData, now: Ints) -> OfferQuestion:
        """Check a request for an offer of the one set in ``data``, all of it available; ``now`` are places."""
        n = len(data.rows)
        if n > MOST:
            raise unusable(f"set: expected at most {MOST} alternatives for an offer, got {n}: leave some out.")
        if ("revenue" in asked) == ("target" in asked):
            raise unusable("the request: expected one of 'revenue', a column, and 'target', the place of one to sell.")
        keep = asked.get("keep", [])
        if not isinstance(keep, list):
            raise unusable(f"keep: expected a list of places, got {shown(keep)}.")
        always = np.zeros(n, np.bool_)
        always[[place_of(place, data, f"keep, entry {k}") for k, place in enumerate(keep)]] = True
        if "revenue" in asked:
            name = number_column(asked["revenue"], data, "revenue")
            column = data.features[name]
            assert isinstance(column, Numeric)
            revenue = column.values.astype(np.float64)
            if np.isnan(revenue).any():
                bad = int(np.argmax(np.isnan(revenue)))
                raise unusable(f"revenue: alternative {bad} has no {name!r}: give it, or leave the alternative out.")
        else:
            revenue = np.zeros(n)
            revenue[place_of(asked["target"], data, "target")] = 1.0
        least, most = (_size(asked, key, default, n) for key, default in (("least", 1), ("most", n)))
        if least > most or always.sum() > most:
            raise unusable(f"most: expected no less than 'least' and the places to keep, got {most}.")
        shown_now = np.zeros(n, np.bool_)
        shown_now[now] = True
        every = np.ones((1, n))
        matrix, upper = np.concatenate([every, -every]), np.array([most, -least], np.float64)
        return cls(data, revenue, shown_now, Rows(matrix, upper, ("most", "least"), always, np.zeros(n, np.bool_)))

    def ask(self, model: ChoiceModel) -> tuple[OfferValue, Search | None]:
        """Ask a model what offers earn; and search, where the model is needed for that."""
        value = structure_of(model, self.data, self.revenue)
        if not isinstance(value, AnyModel):
            return value, None
        if len(self.revenue) > MOST_ASKED:
            raise PcmcNetError(
                f"{type(model).__name__} has to be asked about every offer: expected at most {MOST_ASKED} "
                f"alternatives, got {len(self.revenue)}."
            )
        return value, self.search(value)

    def search(self, value: OfferValue) -> Search:
        """Search from a few offers, and prove the best one where that is possible in a second."""
        starts = starting_offers(self.rows, self.revenue, _STARTS, np.random.default_rng(0))
        if self.rows.allow(self.now[None])[0]:
            starts = np.concatenate([starts, self.now[None]])
        offers, values = climb(lambda there, _: earned(value, there), self.rows, starts)
        return prove(value, self.rows, offers[values.argmax()], deadline=time.monotonic() + _SECONDS)

    def answer(self, value: OfferValue, found: Search) -> dict[str, Any]:
        """Return the offer in places of the request."""
        p = value.probabilities(np.stack([found.offer, self.now]), np.zeros(2, np.int64))
        if not np.isfinite(p).all():
            raise unusable("the model has no answer for these values: they are too far from those it was trained on.")
        exact = found.gap < PROVEN
        return {
            "shown": np.flatnonzero(found.offer).tolist(),
            "probabilities": p[0].tolist(),
            "value": float(p[0] @ self.revenue),
            "current_value": float(p[1] @ self.revenue),
            "exact": exact,
            "gap": found.gap if (exact or found.nodes) and np.isfinite(found.gap) else None,
            "added": np.flatnonzero(found.offer & ~self.now).tolist(),
            "dropped": np.flatnonzero(self.now & ~found.offer).tolist(),
        }


def _size(asked: Mapping[str, Any], key: str, default: int, n: int) -> int:
    """Read how many alternatives are to be shown; more than there are is all of them."""
    given = asked.get(key, default)
    size = whole(given)
    if size is None or size < 1:
        raise unusable(f"{key}: expected a whole number above 0, got {shown(given)}.")
    return min(size, n)
