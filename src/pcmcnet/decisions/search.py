"""Where a search for the best offer ended."""

from __future__ import annotations

from typing import NamedTuple

from pcmcnet.arrays import Bools

PROVEN = 1e-6  # relative gap below which an offer is called exact


class Search(NamedTuple):
    """The best offer found, and what no offer can exceed."""

    offer: Bools  # (n,)
    value: float
    bound: float
    nodes: int  # offers decided in part, or rounds

    @property
    def gap(self) -> float:
        """How far the bound lies above the value, relative to it."""
        return max(self.bound - self.value, 0.0) / max(abs(self.value), 1e-300)
