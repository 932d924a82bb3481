"""Fitting K chains of items to the choices of people who are each of one unknown class, by L-BFGS.

    P(i | S) = sum_c pi_c P_c(i | S)          likelihood of a person: sum_c pi_c prod_t P_c(i_t | S_t)

P_c is the law of the chain with log-rates t_c. Every chain is held to a logit of its own, whose strengths s_c are free:
with t0(s)_ij = s_j - log(e^{s_i} + e^{s_j}) and d_c = t_c - t0(s_c), the penalty on d_c is that of a single chain
(:mod:`pcmcnet.models.items.pcmc_search`). An infinite ridge is the mixture of logits of items, and every search begins
there: at the best of several random divisions of Bradley-Terry's strengths. Smoothing counts for all classes in equal
parts, and one more person in each class keeps every share above 0.
Shapes: K classes, n items, P ordered pairs, M entries (an item of a distinct set), N persons, U (person, entry) cases.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.models.interface.persons import By, Persons
from pcmcnet.models.items.lbfgs import Minimum, lbfgs
from pcmcnet.models.items.newton import centring_ridge, newton
from pcmcnet.models.items.pcmc_search import PATH_TOLERANCE, Problem, Settings, chain_log_p
from pcmcnet.models.items.universe import DistinctSets

APART = 1.0  # standard deviation of the strengths of classes at the start, around those of all
FIRST = 30  # iterations from each start, before the best goes on


class Choosers(NamedTuple):
    """Who chose what: N persons with weights, and U cases of a person and an entry."""

    weights: Floats  # (N,)
    person: Ints  # (U,)
    entry: Ints  # (U,)
    times: Floats  # (U,) that the person chose so

    @classmethod
    def of(cls, number: Ints, entries: Ints, weights: Floats) -> Choosers:
        """Collect the sets of persons; (S,) person and entry chosen, (N,) weights of the persons."""
        cases, times = np.unique(np.stack([number, entries]), axis=1, return_counts=True)
        return cls(weights, cases[0], cases[1], times.astype(np.float64))

    @classmethod
    def of_sets(cls, entries: Ints, weights: Floats) -> Choosers:
        """Let every set have a person of its own: those who chose alike are one case with a weight."""
        found, place = np.unique(entries, return_inverse=True)
        return cls(
            np.bincount(place, weights=weights).astype(np.float64), np.arange(len(found)), found, np.ones(len(found))
        )


def choosers_of(data: ChoiceData, entries: Ints, by: By) -> Choosers:
    """Collect who chose from sets (S,) with these entries chosen: persons, or every set for a person of its own."""
    persons = Persons.of(data, by)
    if not persons.several:
        return Choosers.of_sets(entries, data.weights)
    return Choosers.of(persons.number, entries, persons.weights(data))


class Chains(NamedTuple):
    """Log-rates of the classes and their shares, the largest first."""

    log_rates: Floats  # (K, n, n)
    shares: Floats  # (K,)


class ClassProblem:
    """The search for K chains: distinct sets, who chose from them, and the options of PCMC."""

    def __init__(
        self, sets: DistinctSets, choosers: Choosers, n: int, *, classes: int, smoothing: float, settings: Settings
    ) -> None:
        smoothed = sets.smoothed(smoothing)
        self.n, self.classes, self.smoothing, self.settings = n, classes, smoothing, settings
        self.centring = centring_ridge(smoothed)
        self.strengths = newton(smoothed, n, ridge=self.centring).strengths
        self.pairs = Problem.of(smoothed, np.zeros((n, n)))
        places = [batch.flat[batch.mask.numpy()] for batch in sets.batches()]
        self.order = torch.from_numpy(np.argsort(np.concatenate(places)))  # (M,) place of an entry in the batches
        self.weights, self.person, self.entry, self.times = (torch.from_numpy(part) for part in choosers)
        self.total = float((self.weights[self.person] * self.times).sum())

    def logits(self, rng: np.random.Generator, starts: int) -> Floats:
        """Find the mixture of logits: from random divisions of one class, the best of which goes on."""
        K, n = self.classes, self.n
        fixed = torch.zeros(K, len(self.pairs.pairs), dtype=torch.float64)

        def search(x: Floats, most: int, tolerance: float) -> Minimum:
            return lbfgs(lambda x: self._objective(x, fixed, 0.0), x, max_iter=most, tolerance=tolerance)

        apart = APART * rng.standard_normal((starts if K > 1 else 1, K, n)) * (K > 1)
        begins = [np.concatenate([np.zeros(K), (self.strengths + off).ravel()]) for off in apart]
        best = min((search(x, FIRST, PATH_TOLERANCE) for x in begins), key=lambda found: found.value)
        found = search(best.at, self.settings.max_iter, PATH_TOLERANCE)
        return np.concatenate([found.at, fixed.numpy().ravel()])

    def fit(self, x: Floats, ridge: float, tolerance: float) -> Minimum:
        """Minimise from a start; with an infinite ridge the start is the mixture of logits itself."""
        head = self.classes * (1 + self.n)

        def objective(x: Tensor) -> Tensor:
            return self._objective(x[:head], x[head:].reshape(self.classes, -1), ridge)

        if ridge == np.inf:
            return Minimum(x, float(self._objective(*self._parts(x), 0.0)), 0, True)
        return lbfgs(objective, x, max_iter=self.settings.max_iter, tolerance=tolerance)

    def chains(self, x: Floats) -> Chains:
        """Return what was found."""
        head, d = self._parts(x)
        found = self._log_rates(head, d).numpy()
        found[:, np.arange(self.n), np.arange(self.n)] = 0.0
        shares = torch.softmax(head[: self.classes], 0).numpy()
        order = np.argsort(-shares, kind="stable")
        return Chains(found[order], shares[order])

    def _parts(self, x: Floats) -> tuple[Tensor, Tensor]:
        head = self.classes * (1 + self.n)
        return torch.from_numpy(x[:head]), torch.from_numpy(x[head:]).reshape(self.classes, -1)

    def _log_rates(self, head: Tensor, d: Tensor) -> Tensor:  # -> (K, n, n)
        """The logits' chains, and what the classes add for pairs that some set holds."""
        s = head[self.classes :].reshape(self.classes, self.n)
        base = -softplus(s.unsqueeze(2) - s.unsqueeze(1)).flatten(1)
        at = torch.from_numpy(self.pairs.pairs).expand(self.classes, -1)
        return base.scatter_add(1, at, d).view(self.classes, self.n, self.n)

    def _log_p(self, log_rates: Tensor) -> Tensor:  # (K, n, n) -> (K, M)
        """Log-probabilities of all entries in each class."""
        of_pairs = log_rates.flatten(1)[:, torch.from_numpy(self.pairs.pairs)]  # (K, P)
        found = []
        for block in self.pairs.blocks:
            scores, mask = of_pairs[:, block.place], block.mask.expand(self.classes, -1, -1)
            log_p = chain_log_p(scores.flatten(0, 1), mask.flatten(0, 1)).view(mask.shape)
            found.append(log_p[:, block.mask])
        return torch.cat(found, 1)[:, self.order]

    def _objective(self, head: Tensor, d: Tensor, ridge: float) -> Tensor:
        """Minus the mean log-likelihood of the choices, with smoothing and penalties."""
        log_shares = torch.log_softmax(head[: self.classes], 0)
        log_p = self._log_p(self._log_rates(head, d))
        cases = log_p[:, self.entry] * self.times
        of_person = log_p.new_zeros(self.classes, len(self.weights)).index_add(1, self.person, cases)
        likelihood = self.weights @ torch.logsumexp(log_shares.unsqueeze(1) + of_person, 0)
        prior = self.weights.mean() * log_shares.sum() + self.smoothing / self.classes * log_p.sum()
        s, back = head[self.classes :], torch.from_numpy(self.pairs.back)
        odds, speeds = (d - d[:, back]).square().sum(), (d + d[:, back]).square().sum()
        penalty = ridge / 8 * (odds + self.settings.speeds * speeds) + self.centring / 2 * s.square().sum()
        return (penalty - likelihood - prior) / self.total
