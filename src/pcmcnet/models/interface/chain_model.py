"""Models whose probabilities are the stationary law of a Markov chain, and which can show its rates.

``rates[i, j]`` is the rate of leaving alternative i for j. The law ignores the time scale, so that the rates of a set
are given with their largest at 1, and nothing stays in its place, so that the diagonal is 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.models.interface.choice_model import ChoiceModel


class ChainModel(ChoiceModel):
    """A choice model made of rates; a subclass gives them in padded batches."""

    @abstractmethod
    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        """Yield positions (B,) of sets and their rates (B, J, J), padding last and the diagonal anything."""

    def rates(self, data: Any) -> list[Floats]:
        """Return the rates of each choice set: (n, n) arrays in the order of the sets and of their rows in the table.

        The largest rate of a set is 1 and the diagonal is 0; a set of one alternative has the rate 0 alone. The
        stationary law of the rates is what ``predict_proba`` gives. Unavailable rows are not in the set.
        """
        sets = self._read(data)
        found: list[Floats] = [np.zeros((1, 1))] * len(sets)
        for positions, padded in self._rates(sets):
            for s, rates in zip(positions, padded.double().cpu().numpy(), strict=True):
                found[s] = _scaled(rates[: sets.sizes[s], : sets.sizes[s]])
        return found


def _scaled(rates: Floats) -> Floats:
    """Set the diagonal to 0 and the largest rate to 1."""
    q = rates.copy()
    np.fill_diagonal(q, 0.0)
    return q / q.max() if len(q) > 1 else q
