"""Where context matters most in a table, and a map of the strongest case.

The case is that of ``context_search``: an alternative c whose presence changes the preference between two others, i and
j, more than any other does in the sets looked at. The map lets c move in the two most important numeric features, with
all others of the set present, and shows the share of i against j. How many alternatives act together is looked at in
a few sets (``order_effects``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.errors import PcmcNetError
from pcmcnet.evaluation.predictions import Predictor
from pcmcnet.insight.axioms import TOLERANCE
from pcmcnet.insight.context_search import Search, search
from pcmcnet.insight.example_sets import plain_values
from pcmcnet.insight.order_effects import OrderEffects, order_effects
from pcmcnet.insight.preference_map import PreferenceMap, preference_map_in_set
from pcmcnet.reports.notebook import PartOfReport

CELLS = 24
SETS = 5  # whose log-odds are taken apart: up to 1,013 questions, or 4,000 where sets are large, for each


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextSummary(PartOfReport):
    """The strongest cases, and the map of the first."""

    search: Search
    alternatives: Mapping[str, tuple[Any, ...]]  # features of i, j and the one removed, in the strongest case
    features: tuple[str, str] | None = None  # of the map, along x and y
    map: PreferenceMap | None = None
    orders: OrderEffects | None = None

    def _short(self) -> str:
        return f"strongest change of a log-ratio {self.strongest:.2f}"

    @property
    def strongest(self) -> float:
        """The largest |change of a log-ratio|."""
        return max((abs(case.by_adding) for case in self.search.cases), default=0.0)

    @property
    def none(self) -> bool:
        """Whether all changes are rounding."""
        return self.strongest <= TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        found: dict[str, Any] = {"search": self.search.to_dict(), "strongest": self.strongest, "map": None}
        found["orders"] = None if self.orders is None else self.orders.to_dict()
        if self.map is not None and self.features is not None:
            x, y, preference, a, b, c, without = self.map
            found["map"] = {
                "features": list(self.features),
                "x": x.tolist(),
                "y": y.tolist(),
                "preference": preference.tolist(),
                "i": list(a),
                "j": list(b),
                "third": None if c is None else list(c),
                "without": without,
            }
        return found


def context_summary(
    model: Predictor, data: ChoiceData, features: Sequence[str], *, limit: int = 2000, seed: int = 0
) -> ContextSummary:
    """Search for context effects, and map the strongest in the first two numeric features that admit it."""
    found = search(model, data, limit=limit, seed=seed)
    removed, i, j = found.cases[0].places
    named = plain_values(data.features, np.array([i, j, removed]))
    summary = ContextSummary(search=found, alternatives={name: tuple(values) for name, values in named.items()})
    if summary.none:
        return summary
    with suppress(PcmcNetError):  # such as probabilities of 0: the cases stand alone
        summary = replace(summary, orders=order_effects(model, data, SETS, seed))
    if len(features) >= 2:
        pair = (features[0], features[1])
        with suppress(PcmcNetError):  # such as a feature that is missing there: the cases stand without a map
            drawn = preference_map_in_set(model, data, i, j, removed, pair, others=True, cells=CELLS)
            summary = replace(summary, features=pair, map=drawn)
    return summary
