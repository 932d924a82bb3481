"""Expected revenue per choice, V(S) = sum_i P(i | S) r_i, for many offers S in one call.

Offers are the rows of a boolean matrix (B, n), whose entries are True for the alternatives of the catalogue that are
shown. Each offer is made to one of P individuals. P(. | S) is a known function of S for two families of models, which
are mixtures of C components with weights w_c:

    chains    P_c(. | S) is the stationary distribution of the rates q^c_ij, i and j in S, which may be given by factors
    logits    P_c(i | S) = a^c_i / sum_{j in S} a^c_j

For any other model, every offer is predicted as a separate choice set.
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
from pcmcnet.layers.factored import dense_rates, log_factored_distribution

CPU = torch.device("cpu")
_NUMBERS_PER_BATCH = 2**20  # of log u, for the factored chains that are solved together: 8 MiB


class OfferValue(Protocol):
    """Expected revenue as a function of the offer, for each of P individuals."""

    @property
    def revenue(self) -> Floats:
        """Revenue (n,) of each alternative if it is chosen."""

    def probabilities(self, offers: Bools, individuals: Ints) -> Floats:
        """Return choice probabilities (B, n) for offers (B, n) to individuals (B,), with 0 for hidden alternatives."""

    def for_individual(self, individual: int) -> Self:
        """Return the revenue function of one individual."""


def expected_revenue(value: OfferValue, offers: Bools, individuals: Ints | None = None) -> Floats:  # (B, n) -> (B,)
    """Return the expected revenue of each offer (B, n) to its individual (B,), by default the first individual."""
    individuals = np.zeros(len(offers), np.int64) if individuals is None else individuals
    total: Floats = value.probabilities(offers, individuals) @ value.revenue
    return total


class _Mixtures:
    """Base class of mixtures, in which all arrays except the revenue have a row for each individual."""

    revenue: Floats

    def for_individual(self, individual: int) -> Self:
        """Return the revenue function of one individual."""
        arrays = {name: values for name, values in vars(self).items() if isinstance(values, np.ndarray)}
        rows = {name: values[[individual]] for name, values in arrays.items() if name != "revenue"}
        return replace(self, **rows)  # type: ignore[type-var]  # every subclass is a dataclass


@dataclass(frozen=True, eq=False)
class Chains(_Mixtures):
    """Mixtures of Markov chains with weights (P, C), rates (P, C, n, n) and revenue (n,), solved on ``device``."""

    weights: Floats
    rates: Floats
    revenue: Floats
    device: torch.device = CPU

    @cached_property
    def _tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and rates on the device."""
        return torch.from_numpy(self.weights).to(self.device), torch.from_numpy(self.rates).to(self.device)

    def probabilities(self, offers: Bools, individuals: Ints) -> Floats:
        """Return choice probabilities (B, n). Offers of equal size are solved together, without padding."""
        weights, rates = self._tensors
        shown, to = (torch.from_numpy(array).to(self.device) for array in (offers, individuals))
        probabilities, sizes = rates.new_zeros(offers.shape), shown.sum(1)
        for size in np.unique(offers.sum(axis=1)):
            rows = (sizes == size).nonzero()[:, 0]
            one, states = to[rows], shown[rows].nonzero()[:, 1].view(len(rows), size)  # (b,), (b, k)
            chains = rates[one[:, None, None], :, states[:, :, None], states[:, None, :]]  # (b, k, k, C)
            p = stationary_distribution(chains.movedim(3, 1))  # (b, C, k)
            probabilities[rows[:, None], states] = torch.einsum("bc,bck->bk", weights[one], p)
        result: Floats = probabilities.cpu().numpy()
        return result


@dataclass(frozen=True, eq=False)
class FactoredChains(_Mixtures):
    """Mixtures of chains with factored rates: weights (P, C), log u and log v (P, C, n, r), and revenue (n,)."""

    weights: Floats
    log_u: Floats
    log_v: Floats
    revenue: Floats
    device: torch.device = CPU

    @cached_property
    def _tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Weights, log u and log v on the device."""
        weights, log_u, log_v = (
            torch.from_numpy(each).to(self.device) for each in (self.weights, self.log_u, self.log_v)
        )
        return weights, log_u, log_v

    def probabilities(self, offers: Bools, individuals: Ints) -> Floats:
        """Return choice probabilities (B, n). Offers of equal size are solved together, without padding."""
        weights, log_u, log_v = self._tensors
        C, r = log_u.shape[1], log_u.shape[3]
        shown, to = (torch.from_numpy(array).to(self.device) for array in (offers, individuals))
        p, sizes = log_u.new_zeros(offers.shape), offers.sum(axis=1)
        for size in np.unique(sizes).tolist():
            same_size = torch.from_numpy(np.flatnonzero(sizes == size)).to(self.device)
            for rows in torch.split(same_size, max(_NUMBERS_PER_BATCH // (C * size * r), 1)):
                one, states = to[rows], shown[rows].nonzero()[:, 1].view(len(rows), size)  # (b,), (b, k)
                at = one[:, None, None], torch.arange(C, device=self.device)[:, None], states[:, None]
                parts = log_u[at].flatten(0, 1), log_v[at].flatten(0, 1)  # (b C, k, r)
                every = torch.ones(parts[0].shape[:2], dtype=torch.bool, device=self.device)
                shares = log_factored_distribution(*parts, every).exp().view(len(rows), C, size)
                p[rows[:, None], states] = torch.einsum("bc,bck->bk", weights[one], shares)
        result: Floats = p.cpu().numpy()
        return result

    def with_all_pairs(self) -> Chains:
        """Return the same chains as rates (P, C, n, n) of all pairs, for small catalogues."""
        P, C, n, _ = self.log_u.shape
        log_u, log_v = (torch.from_numpy(each).flatten(0, 1) for each in (self.log_u, self.log_v))
        rates = dense_rates(log_u, log_v, torch.ones((P * C, n), dtype=torch.bool))
        return Chains(self.weights, rates.view(P, C, n, n).numpy(), self.revenue, self.device)


@dataclass(frozen=True, eq=False)
class Logits(_Mixtures):
    """Mixtures of logits with weights (P, C), attractions (P, C, n) and revenue (n,)."""

    weights: Floats
    attraction: Floats
    revenue: Floats

    def probabilities(self, offers: Bools, individuals: Ints) -> Floats:
        """Return choice probabilities (B, n) for offers (B, n) to individuals (B,)."""
        probabilities = np.empty(offers.shape)
        order = np.argsort(individuals, kind="stable")
        distinct, first = np.unique(individuals[order], return_index=True)
        for one, rows in zip(distinct, np.split(order, first[1:]), strict=False):  # the offers to one individual
            weights, a = self.weights[one], self.attraction[one]  # (C,), (C, n)
            shown = offers[rows].astype(np.float64)
            probabilities[rows] = shown * ((weights / (shown @ a.T)) @ a)
        return probabilities


@dataclass(frozen=True, eq=False)
class BlackBoxModel:
    """A model of unknown structure. In ``data``, the choice set of every individual is the whole catalogue."""

    model: Predictor
    data: ChoiceData
    revenue: Floats

    def probabilities(self, offers: Bools, individuals: Ints) -> Floats:
        """Return choice probabilities (B, n) for offers (B, n) to individuals (B,)."""
        places = [
            int(first) + np.flatnonzero(offer)
            for first, offer in zip(self.data.offsets[individuals], offers, strict=True)
        ]
        probabilities = np.zeros(offers.shape)
        probabilities[offers] = np.exp(predict_sets(self.model, self.data, places, individuals))
        return probabilities

    def for_individual(self, individual: int) -> BlackBoxModel:
        """Return the revenue function of one individual."""
        return BlackBoxModel(self.model, self.data.subset([individual]), self.revenue)
