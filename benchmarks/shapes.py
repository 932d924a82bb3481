"""Shapes of the experiments, used by all benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet import ChoiceData

# The network of the paper, which scores all pairs, and no search for the weight decay: only training is timed.
NETWORK: dict[str, Any] = {"labels": False, "utility": "none", "rank": None, "weight_decay": 0.03}


@dataclass(frozen=True)
class Shape:
    """Choice sets of one experiment, after encoding: widths, sizes and the network's hidden layers."""

    name: str
    individual: int
    features: int
    hidden: tuple[int, ...]
    dropout: float
    paper_batch: int
    size: int | None = None  # alternatives of every set

    def sizes(self, sets: int, rng: np.random.Generator) -> np.ndarray:
        """Draw set sizes: all equal, or as in the itinerary table (mean 33, mean square about 1,340, at most 50)."""
        if self.size is not None:
            return np.full(sets, self.size)
        return np.where(rng.random(sets) < 0.3, 50, rng.integers(1, 50, sets))

    def table(self, sets: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Return a table of this shape, with choices drawn from a logit."""
        rng = np.random.default_rng(seed)
        sizes = self.sizes(sets, rng)
        owner = np.repeat(np.arange(sets), sizes)
        x = rng.standard_normal((len(owner), self.features)).astype(np.float32)
        individuals = rng.standard_normal((sets, self.individual)).astype(np.float32)
        utility = x @ rng.standard_normal(self.features) + rng.gumbel(size=len(owner))
        chosen = np.zeros(len(owner), np.int8)
        chosen[np.lexsort((-utility, owner))[np.concatenate([[0], np.cumsum(sizes)[:-1]])]] = 1
        columns = {name: x[:, k] for k, name in enumerate(self.roles["features"])}
        people = {name: individuals[owner, k] for k, name in enumerate(self.roles["individual"])}
        return {"set": owner, "chosen": chosen, **columns, **people}

    @property
    def roles(self) -> dict[str, Any]:
        """Roles of the columns of ``table``."""
        features, individual = [f"x{k}" for k in range(self.features)], [f"who{k}" for k in range(self.individual)]
        return {"choice_set": "set", "chosen": "chosen", "individual": individual, "features": features}

    def data(self, sets: int, seed: int = 0) -> ChoiceData:
        """Return choice data of this shape."""
        return ChoiceData.from_long(self.table(sets, seed), **self.roles)


MLBA = Shape("mlba", individual=0, features=2, hidden=(16, 16, 16), dropout=0.0, paper_batch=1, size=3)
AIRLINE = Shape("airline", individual=60, features=39, hidden=(512, 512), dropout=0.5, paper_batch=16)
WIDE = Shape("wide", individual=60, features=39, hidden=(512, 512), dropout=0.5, paper_batch=1, size=2_000)
