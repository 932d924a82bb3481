"""Models whose probabilities are the stationary law of a Markov chain, and which can show its rates.

``rates[i, j]`` is the rate of leaving alternative i for j. The law ignores the time scale, so that the rates of a set
are given with their largest at 1, and nothing stays in its place, so that the diagonal is 0. A mixture has a chain for
each class of people, and shares of the classes: the law of one chain alone is not what such a model predicts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.latent_classes import LatentClasses


class ChainModel(ChoiceModel):
    """A choice model made of rates; a subclass gives them in padded batches."""

    @abstractmethod
    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        """Yield positions (B,) of sets and rates (B, J, J), or (B, K, J, J) of the chains of K classes.

        Padding is last, and the diagonal is anything.
        """

    @property
    def n_chains(self) -> int:
        """How many chains a choice set has: one, or that of each class of a mixture."""
        return 1

    def rates(self, data: Any, of_class: int | None = None) -> list[Floats]:
        """Return the rates of each choice set: (n, n) arrays in the order of the sets and of their rows in the table.

        The largest rate of a set is 1 and the diagonal is 0; a set of one alternative has the rate 0 alone. The
        stationary law of the rates is what ``predict_proba`` gives, or, in a mixture, what the class ``of_class``
        contributes to it, from 1 on. Unavailable rows are not in the set.

        Raises
        ------
        InputError
            When the model is a mixture and no class is named, or one that is not there.
        """
        if of_class is None and self.n_chains > 1:
            raise InputError(
                f"this {type(self).__name__} is a mixture of {self.n_chains} chains, one for each class: name one, as "
                f"in of_class=1. The shares of the classes are those of membership."
            )
        return [rates[require_class(self, of_class)] for rates in self.class_rates(data)]

    def class_rates(self, data: Any) -> list[Floats]:
        """Return the rates of all classes, (K, n, n) for each choice set: see :meth:`rates`."""
        sets = self._read(data)
        return chains_of(sets, self._rates(sets), self.n_chains)

    def fixed_chains(self, data: ChoiceData) -> tuple[Floats, list[Floats]]:
        """Return chains whose rates do not depend on what else is in the set, and by which shares their laws are mixed.

        Shares are (S, K), rates (K, n, n) for each set: what is left of such a chain without some alternatives is the
        chain of the set without them.
        """
        return self.class_shares(data), self.class_rates(data)

    def class_shares(self, data: Any) -> Floats:
        """Return the shares by which the laws of the chains are mixed, (S, K): ``membership``, or 1 for one chain."""
        if isinstance(self, LatentClasses):
            return self.membership(data)
        return np.ones((len(self._read(data)), 1))


def chains_of(sets: ChoiceData, found: Iterable[tuple[Ints, Tensor]], chains: int) -> list[Floats]:
    """Collect padded rates (B, J, J) or (B, K, J, J) of sets as arrays (K, n, n), one for each set."""
    collected: list[Floats] = [np.zeros((chains, 1, 1))] * len(sets)
    for positions, padded in found:
        each = padded if padded.ndim == 4 else padded.unsqueeze(1)
        for s, rates in zip(positions, each.double().cpu().numpy(), strict=True):
            collected[s] = np.stack([_scaled(q[: sets.sizes[s], : sets.sizes[s]]) for q in rates])
    return collected


def require_class(model: ChainModel, of_class: int | None) -> int:
    """Return the position of a class, counted from 1; None stands for the only one."""
    number = 1 if of_class is None else of_class
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= model.n_chains:
        raise InputError(f"of_class: expected a class from 1 to {model.n_chains}, got {of_class!r}.")
    return number - 1


def _scaled(rates: Floats) -> Floats:
    """Set the diagonal to 0 and the largest rate to 1."""
    q = rates.copy()
    np.fill_diagonal(q, 0.0)
    return q / q.max() if len(q) > 1 else q
