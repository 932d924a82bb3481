"""Models whose probabilities are the stationary distribution of a Markov chain, with access to its rates.

``rates[i, j]`` is the rate of leaving alternative i for j. The stationary distribution does not depend on the time
scale, so the largest rate of a choice set is set to 1. The diagonal of ``rates`` is 0. A mixture has a chain and a
share for each latent class. Its prediction is a weighted average of the stationary distributions of these chains.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import require_few_pairs
from pcmcnet.errors import InputError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.latent_classes import LatentClasses

if TYPE_CHECKING:
    from torch import Tensor


class ChainModel(ChoiceModel):
    """Base class of choice models with transition rates, which a subclass computes in padded batches."""

    @abstractmethod
    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        """Yield positions (B,) of sets and their rates (B, J, J), or (B, K, J, J) for the chains of K classes.

        Padded alternatives come last, and the diagonal may have any value.
        """

    @property
    def n_chains(self) -> int:
        """Number of chains per choice set: one for each latent class."""
        return 1

    def rates(self, data: Any, of_class: int | None = None) -> list[Floats]:
        """Return the transition rates of each choice set.

        Parameters
        ----------
        data
            Choice sets or a table: see :meth:`predict_log_proba`. Unavailable rows are left out.
        of_class
            Latent class of a mixture, counted from 1. A model with one chain needs no class (default None).

        Returns
        -------
        One (n, n) array per choice set, with rows and columns in the order of the set's rows in the table. The largest
        rate of a set is 1 and the diagonal is 0. A set with one alternative has the single rate 0. The stationary
        distribution of the chain with these rates is the prediction or, in a mixture, the prediction of one class.

        Raises
        ------
        InputError
            If the model is a mixture and ``of_class`` is None, if the model has no class with this number, or if the
            rates would take more than 2 GiB. :func:`pcmcnet.submarkets` needs no rates of all pairs.
        """
        if of_class is None and self.n_chains > 1:
            raise InputError(
                f"this {type(self).__name__} is a mixture of {self.n_chains} chains, one for each class: choose a "
                f"class, as in of_class=1. membership returns the class shares."
            )
        return [rates[require_class(self, of_class)] for rates in self.class_rates(data)]

    def class_rates(self, data: Any) -> list[Floats]:
        """Return the transition rates of all latent classes.

        Parameters
        ----------
        data
            Choice sets or a table: see :meth:`predict_log_proba`.

        Returns
        -------
        One (K, n, n) array per choice set, with the rates of each class as in :meth:`rates`.
        """
        sets = self._read(data)
        return collect_chains(sets, self._rates(sets), self.n_chains)

    def fixed_chains(self, data: ChoiceData) -> tuple[Floats, list[Floats]]:
        """Return chains whose rates between two alternatives do not depend on the rest of the set.

        Removing alternatives from such a chain gives the chain of the smaller set.

        Parameters
        ----------
        data
            Choice sets.

        Returns
        -------
        Weights (S, K) of the chains in the prediction, and one (K, n, n) array of rates per choice set.
        """
        return self.class_shares(data), self.class_rates(data)

    def class_shares(self, data: Any) -> Floats:
        """Return the weights of the chains in the prediction.

        Parameters
        ----------
        data
            Choice sets or a table: see :meth:`predict_log_proba`.

        Returns
        -------
        Shares (S, K) of the latent classes (``membership``), or 1 for a single chain.
        """
        if isinstance(self, LatentClasses):
            return self.membership(data)
        return np.ones((len(self._read(data)), 1))


def collect_chains(sets: ChoiceData, batches: Iterable[tuple[Ints, Tensor]], chains: int) -> list[Floats]:
    """Convert batches of padded rates (B, J, J) or (B, K, J, J) to one array (K, n, n) per choice set.

    Raise InputError before the first batch if the rates would not fit in memory.
    """
    remedy = ", as in data.subset([0]). pn.submarkets describes a PCMCNet with a rank without rates of all pairs"
    require_few_pairs("rates", sets.sizes, remedy, per_pair=chains)
    collected: list[Floats] = [np.zeros((chains, 1, 1))] * len(sets)
    for positions, padded in batches:
        each = padded if padded.ndim == 4 else padded.unsqueeze(1)
        for s, rates in zip(positions, each.double().cpu().numpy(), strict=True):
            collected[s] = np.stack([_scaled(q[: sets.sizes[s], : sets.sizes[s]]) for q in rates])
    return collected


def require_class(model: ChainModel, of_class: int | None) -> int:
    """Convert a class number, counted from 1, to an index, counted from 0, where None stands for the only class."""
    number = 1 if of_class is None else of_class
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= model.n_chains:
        raise InputError(f"of_class: expected a class from 1 to {model.n_chains}, got {of_class!r}.")
    return number - 1


def _scaled(rates: Floats) -> Floats:
    """Scale rates so that the largest rate is 1, and set the diagonal to 0."""
    q = rates.copy()
    np.fill_diagonal(q, 0.0)
    return q / q.max() if len(q) > 1 else q
