"""What offers earn: the expected revenue of one choice, V(S) = sum_i P(i | S) r_i, for many offers at once.

An offer is a row of a matrix (B, n) of the n alternatives of a catalogue, true where an alternative is shown, and it is
made to one of P individuals. How P(. | S) depends on S is known for two families, both as mixtures of C members with
weights w_c:

    chains    P_c(. | S) is the stationary distribution of the rates q^c_ij, i and j in S
    logits    P_c(i | S) = a^c_i / sum_{j in S} a^c_j

Of any other model every offer is asked as a choice set of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np
import torch

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.evaluation.predictions import Predictor
from pcmcnet.insight.queries import predict_sets
from pcmcnet.layers import stationary_distribution

CPU = torch.device("cpu")


class OfferValue(Protocol):
    """Expected revenue as a function of the offer, for each of P individuals."""

    @property
    def revenue(self) -> Floats:
        """(n,) revenue of each alternative, if it is chosen."""

    def probabilities(self, offers: Bools, who: Ints) -> Floats:
        """(B, n), (B,) -> (B, n) choice probabilities; 0 where an alternative is not shown."""

    def for_individual(self, individual: int) -> Self:
        """Return the same for one individual."""


def expected_revenue(value: OfferValue, offers: Bools, who: Ints | None = None) -> Floats:  # (B, n) -> (B,)
    """Return the expected revenue of each offer to an individual, the first one if not given."""
    to = np.zeros(len(offers), np.int64) if who is None else who
    total: Floats = value.probabilities(offers, to) @ value.revenue
    return total


class _Mixtures:
    """Mixtures: all arrays but that of the revenue have a row for each individual."""

    revenue: Floats

    def for_individual(self, individual: int) -> Self:
        """See :class:`OfferValue`."""
        arrays = {name: values for name, values in vars(self).items() if isinstance(values, np.ndarray)}
        rows = {name: values[[individual]] for name, values in arrays.items() if name != "revenue"}
        return replace(self, **rows)  # type: ignore[type-var]  # every subclass is a dataclass


@dataclass(frozen=True, eq=False)
class Chains(_Mixtures):
    """Mixtures of Markov chains: weights (P, C), rates (P, C, n, n), revenue (n,); chains are solved on ``device``."""

    weights: Floats
    rates: Floats
    revenue: Floats
    device: torch.device = CPU

    @cached_property
    def _there(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.weights).to(self.device), torch.from_numpy(self.rates).to(self.device)

    def probabilities(self, offers: Bools, who: Ints) -> Floats:
        """See :class:`OfferValue`; offers of one size are solved together, without padding."""
        weights, rates = self._there
        shown, to = (torch.from_numpy(array).to(self.device) for array in (offers, who))
        found, sizes = rates.new_zeros(offers.shape), shown.sum(1)
        for size in np.unique(offers.sum(axis=1)):
            rows = (sizes == size).nonzero()[:, 0]
            one, members = to[rows], shown[rows].nonzero()[:, 1].view(len(rows), size)  # (b,), (b, k)
            chains = rates[one[:, None, None], :, members[:, :, None], members[:, None, :]]  # (b, k, k, C)
            p = stationary_distribution(chains.movedim(3, 1))  # (b, C, k)
            found[rows[:, None], members] = torch.einsum("bc,bck->bk", weights[one], p)
        solved: Floats = found.cpu().numpy()
        return solved


@dataclass(frozen=True, eq=False)
class Logits(_Mixtures):
    """Mixtures of logits: weights (P, C), attraction (P, C, n), revenue (n,)."""

    weights: Floats
    attraction: Floats
    revenue: Floats

    def probabilities(self, offers: Bools, who: Ints) -> Floats:
        """See :class:`OfferValue`."""
        found = np.empty(offers.shape)
        order = np.argsort(who, kind="stable")
        everyone, first = np.unique(who[order], return_index=True)
        for one, rows in zip(everyone, np.split(order, first[1:]), strict=False):  # those of one individual
            weights, a = self.weights[one], self.attraction[one]  # (C,), (C, n)
            shown = offers[rows].astype(np.float64)
            found[rows] = shown * ((weights / (shown @ a.T)) @ a)
        return found


@dataclass(frozen=True, eq=False)
class BlackBoxModel:
    """A model of unknown structure; ``data`` has the catalogue as the choice set of each individual."""

    model: Predictor
    data: ChoiceData
    revenue: Floats

    def probabilities(self, offers: Bools, who: Ints) -> Floats:
        """See :class:`OfferValue`."""
        places = [
            int(first) + np.flatnonzero(offer) for first, offer in zip(self.data.offsets[who], offers, strict=True)
        ]
        found = np.zeros(offers.shape)
        found[offers] = np.exp(predict_sets(self.model, self.data, places, who))
        return found

    def for_individual(self, individual: int) -> BlackBoxModel:
        """See :class:`OfferValue`."""
        return BlackBoxModel(self.model, self.data.subset([individual]), self.revenue)
