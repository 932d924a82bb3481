"""Estimation of chains of items: one chain by L-BFGS or SLSQP, and a mixture of chains by class of people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.layers import log_probabilities, solve_chain
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.threads import one_thread_if_small
from pcmcnet.models.interface.latent_classes import ClassesBy, Persons
from pcmcnet.models.items.strengths import (
    Minimum,
    centring_ridge,
    fit_log_strengths,
    lbfgs,
    require_finite_minimum,
    value_and_gradient,
)
from pcmcnet.models.items.universe import DistinctSets

Method = Literal["lbfgs", "slsqp"]

SMOOTHING = 0.1  # choices added for every item of every distinct set, by default
MAX_SLSQP_ITEMS = 12  # 132 rates; the cost of a step grows with the cube of their number
MIN_SLSQP_RATE = 1e-6  # a chain with zeros may fall apart
PATH_TOLERANCE = 1e-7  # gain in the mean objective below which a fit on the way to another one ends
START_DEVIATION = 1.0  # standard deviation of the log-rates of random starts around the first
CLASS_DEVIATION = 1.0  # standard deviation of the strengths of classes at the start, around those of all
FIRST_ITERATIONS = 30  # iterations from each start of a mixture, before the best goes on


@dataclass(frozen=True, kw_only=True)
class ChainOptions:
    """How rates are searched; the options of the same names of ``PCMCConfig``."""

    method: Method = "lbfgs"
    speeds: float = 0.1
    restarts: int = 8
    max_iter: int = 500
    tolerance: float = 1e-9


# -- One chain ----------------------------------------------------------------------------------------------------


def bradley_terry_chain(sets: DistinctSets, n: int, ridge: float = 0.0) -> Floats:  # -> (n, n)
    """Return the log-rates, q_ij + q_ji = 1, of the chain whose law on every set is Bradley-Terry's for the counts."""
    s = fit_log_strengths(sets, n, ridge=centring_ridge(sets, ridge)).strengths
    log_rates: Floats = -np.logaddexp(0.0, s[:, None] - s[None, :])
    np.fill_diagonal(log_rates, 0.0)
    return log_rates


def chain_log_p(scores: Tensor, mask: Tensor) -> Tensor:  # (B, J, J), (B, J) -> (B, J)
    """Return the log-probabilities of chains with these log-rates; padding gets -inf."""
    return log_probabilities(solve_chain(rates_of_scores(scores, mask, rate="exp", epsilon=0.0), mask), mask)


@torch.no_grad()
def item_log_p(sets: DistinctSets, log_rates: Floats) -> Floats:  # (n, n) -> (M,)
    """Return the log-probabilities of the items of distinct sets."""
    log_p, t = np.zeros(len(sets.items)), torch.from_numpy(log_rates)
    with one_thread_if_small(0):
        for batch in sets.batches():
            scores = t[batch.items.unsqueeze(2), batch.items.unsqueeze(1)]
            log_p[batch.flat[batch.mask.numpy()]] = chain_log_p(scores, batch.mask)[batch.mask].numpy()
    return log_p


@dataclass(frozen=True)
class FittedChain:
    """The best of all starts."""

    log_rates: Floats  # (n, n)
    minimum: Minimum
    objectives: tuple[float, ...]  # of each start
    informed_rates: int  # rates of pairs that some set holds


class PairBatch(NamedTuple):
    """A padded batch of distinct sets, its pairs by their places in the vector of rates."""

    place: Tensor  # (B, J, J); 0 where there is no pair
    mask: Tensor  # (B, J)
    counts: Tensor  # (B, J)


@dataclass(frozen=True)
class ChainProblem:
    """Distinct sets, the P ordered pairs that some of them hold, and the log-rates that these are pulled to."""

    start: Floats  # (n, n)
    pairs: Ints  # (P,) i n + j for (i, j)
    reverse: Ints  # (P,) place of the pair the other way round
    batches: list[PairBatch]

    @classmethod
    def of(cls, sets: DistinctSets, start: Floats) -> ChainProblem:
        """Collect the pairs of the sets."""
        n = len(start)
        left, right = sets.pairs()
        pairs = np.unique(sets.items[left] * n + sets.items[right])
        reverse = np.searchsorted(pairs, pairs % n * n + pairs // n)
        return cls(start, pairs, reverse, list(_pair_batches(sets, pairs, n)))

    @property
    def prior(self) -> Floats:
        """(P,) log-rates that the pairs are pulled to."""
        return self.start.ravel()[self.pairs]

    @property
    def total(self) -> float:
        """Number of choices, by weight."""
        return sum(float(batch.counts.sum()) for batch in self.batches)

    def log_rates(self, at: Floats) -> Floats:
        """Put log-rates (P,) of pairs among those of all, (n, n)."""
        log_rates = self.start.copy()
        log_rates.ravel()[self.pairs] = at
        return log_rates

    def fit(self, start: Floats, ridge: float, options: ChainOptions, tolerance: float | None = None) -> Minimum:
        """Minimise from log-rates (P,); an infinite ridge keeps the prior."""
        if ridge == np.inf:
            return Minimum(self.prior, float(self._mean_loss(torch.from_numpy(self.prior))), 0, True)
        if options.method == "slsqp":
            return _fit_by_slsqp(self, start, options)
        centre, reverse = torch.from_numpy(self.prior), torch.from_numpy(self.reverse)

        def objective(log_rates: Tensor) -> Tensor:  # (P,) -> ()
            d = log_rates - centre
            odds, speeds = (d - d[reverse]).square().sum(), (d + d[reverse]).square().sum()
            return self._mean_loss(log_rates) + ridge / 8 * (odds + options.speeds * speeds) / self.total

        return lbfgs(objective, start, max_iter=options.max_iter, tolerance=tolerance or options.tolerance)

    def _mean_loss(self, log_rates: Tensor) -> Tensor:  # (P,) -> ()
        terms = [_log_likelihood(chain_log_p(log_rates[b.place], b.mask), b) for b in self.batches]
        return -torch.stack(terms).sum() / self.total


def fit_chain(
    sets: DistinctSets,
    prior: Floats,
    ridge: float,
    options: ChainOptions,
    rng: np.random.Generator,
    path: Sequence[float] = (),
) -> FittedChain:
    """Minimise from the prior (n, n) and from random log-rates around it; return the best.

    The first start comes down a path of stronger ridges, if one is given.
    """
    problem = ChainProblem.of(sets, prior)
    # 1. Follow the path: the objective is not convex, and the way from the logit leads to a good minimum.
    first, n_pairs = problem.prior, len(problem.pairs)
    for stronger in path:
        first = problem.fit(first, stronger, options, PATH_TOLERANCE).at
    # 2. Draw the other starts; an infinite ridge has one answer.
    n_random = options.restarts - 1 if ridge < np.inf else 0
    starts = [first, *(problem.prior + START_DEVIATION * rng.standard_normal((n_random, n_pairs)))]
    # 3. Fit from each start and keep the least objective.
    minima = [problem.fit(start, ridge, options) for start in starts]
    best = min(minima, key=lambda minimum: minimum.value)
    return FittedChain(problem.log_rates(best.at), best, tuple(minimum.value for minimum in minima), n_pairs)


def _pair_batches(sets: DistinctSets, pairs: Ints, n: int) -> Iterator[PairBatch]:
    for batch in sets.batches():
        real = batch.mask.unsqueeze(2) & batch.mask.unsqueeze(1)
        real.diagonal(dim1=1, dim2=2).fill_(False)
        cell = (batch.items.unsqueeze(2) * n + batch.items.unsqueeze(1)).numpy()
        place = torch.from_numpy(np.searchsorted(pairs, cell)).where(real, 0)
        yield PairBatch(place, batch.mask, batch.counts)


def _fit_by_slsqp(problem: ChainProblem, start: Floats, options: ChainOptions) -> Minimum:
    """Minimise over rates with q_ij + q_ji >= 1, as published; the result is in log-rates too."""
    from scipy.optimize import minimize

    # 1. The constraints: one row for each pair of items, with a 1 for either of its rates.
    pairs, reverse, n = problem.pairs, problem.reverse, len(problem.start)
    sums = (np.eye(len(pairs)) + np.eye(len(pairs))[reverse])[pairs // n < pairs % n]  # (P / 2, P)

    def objective(rates: Tensor) -> Tensor:  # (P,) -> ()
        q = rates.clamp(min=MIN_SLSQP_RATE)
        laws = [(log_probabilities(solve_chain(q[b.place], b.mask), b.mask), b) for b in problem.batches]
        return -torch.stack([_log_likelihood(law, b) for law, b in laws]).sum() / problem.total

    # 2. Start on the constraints, with the odds of the log-rates, and minimise.
    rates = np.exp(start) / (np.exp(start) + np.exp(start)[reverse])
    result = minimize(
        value_and_gradient(objective),
        rates.clip(MIN_SLSQP_RATE),
        jac=True,
        method="SLSQP",
        bounds=[(MIN_SLSQP_RATE, None)] * len(pairs),
        constraints={"type": "ineq", "fun": lambda q: sums @ q - 1, "jac": lambda _: sums},
        options={"maxiter": options.max_iter, "ftol": options.tolerance},
    )
    # 3. Back to log-rates.
    minimum = require_finite_minimum(result)
    return Minimum(np.log(minimum.at.clip(MIN_SLSQP_RATE)), minimum.value, minimum.iterations, minimum.converged)


def _log_likelihood(log_p: Tensor, batch: PairBatch) -> Tensor:  # (B, J) -> ()
    return (batch.counts * log_p.masked_fill(~batch.mask, 0)).sum()


# -- Chains of classes --------------------------------------------------------------------------------------------


class ClassChains(NamedTuple):
    """Log-rates of the classes and their shares, the largest first."""

    log_rates: Floats  # (K, n, n)
    shares: Floats  # (K,)

    def log_p(self, sets: DistinctSets) -> Floats:  # -> (M,)
        """Return the log-probabilities of the items of distinct sets, of all classes together."""
        each = [np.log(share) + item_log_p(sets, t) for share, t in zip(self.shares, self.log_rates, strict=True)]
        log_p: Floats = np.logaddexp.reduce(each, axis=0)
        return log_p


class Choosers(NamedTuple):
    """Who chose what: N persons with weights, and U cases of a person and an entry."""

    weights: Floats  # (N,)
    person: Ints  # (U,)
    entry: Ints  # (U,)
    times: Floats  # (U,) that the person chose so

    @classmethod
    def of(cls, data: ChoiceData, entries: Ints, by: ClassesBy) -> Choosers:
        """Collect who chose from sets (S,) with these entries chosen: persons, or every set for a person of its own."""
        persons = Persons.of(data, by)
        if not persons.has_several_sets:
            return cls.of_sets(entries, data.weights)
        return cls.of_persons(persons.number, entries, persons.weights(data))

    @classmethod
    def of_persons(cls, number: Ints, entries: Ints, weights: Floats) -> Choosers:
        """Collect the sets of persons; (S,) person and entry chosen, (N,) weights of the persons."""
        cases, times = np.unique(np.stack([number, entries]), axis=1, return_counts=True)
        return cls(weights, cases[0], cases[1], times.astype(np.float64))

    @classmethod
    def of_sets(cls, entries: Ints, weights: Floats) -> Choosers:
        """Let every set have a person of its own: those who chose alike are one case with a weight."""
        cases, place = np.unique(entries, return_inverse=True)
        return cls(
            np.bincount(place, weights=weights).astype(np.float64), np.arange(len(cases)), cases, np.ones(len(cases))
        )


class ClassProblem:
    """The search for K chains: distinct sets, who chose from them, and how to search.

    A vector x of parameters holds K logits of the shares, K n strengths, and K P distances from the logits' log-rates.
    """

    def __init__(
        self, sets: DistinctSets, choosers: Choosers, n: int, *, classes: int, smoothing: float, options: ChainOptions
    ) -> None:
        smoothed = sets.smoothed(smoothing)
        self.n, self.classes, self.smoothing, self.options = n, classes, smoothing, options
        # 1. Bradley-Terry's strengths of all choices: classes start around them.
        self.centring = centring_ridge(smoothed)
        self.strengths = fit_log_strengths(smoothed, n, ridge=self.centring).strengths
        # 2. The pairs whose rates are searched, and where batches of sets have each entry.
        self.pairs = ChainProblem.of(smoothed, np.zeros((n, n)))
        places = [batch.flat[batch.mask.numpy()] for batch in sets.batches()]
        self.order = torch.from_numpy(np.argsort(np.concatenate(places)))  # (M,) place of an entry in the batches
        # 3. The cases of the likelihood.
        self.weights, self.person, self.entry, self.times = (torch.from_numpy(part) for part in choosers)
        self.total = float((self.weights[self.person] * self.times).sum())

    def logits(self, rng: np.random.Generator, starts: int) -> Floats:
        """Return the mixture of logits: from random divisions of one class, the best of which goes on."""
        K, n = self.classes, self.n
        fixed = torch.zeros(K, len(self.pairs.pairs), dtype=torch.float64)

        def search(x: Floats, max_iter: int) -> Minimum:
            return lbfgs(lambda x: self._objective(x, fixed, 0.0), x, max_iter=max_iter, tolerance=PATH_TOLERANCE)

        # 1. Divide the strengths at random; one class has nothing to divide.
        apart = CLASS_DEVIATION * rng.standard_normal((starts if K > 1 else 1, K, n)) * (K > 1)
        begins = [np.concatenate([np.zeros(K), (self.strengths + off).ravel()]) for off in apart]
        # 2. A few iterations tell the starts apart, and the best goes on to the end.
        best = min((search(x, FIRST_ITERATIONS) for x in begins), key=lambda minimum: minimum.value)
        minimum = search(best.at, self.options.max_iter)
        return np.concatenate([minimum.at, fixed.numpy().ravel()])

    def fit(self, x: Floats, ridge: float, tolerance: float) -> Minimum:
        """Minimise from a start; with an infinite ridge the start is the mixture of logits itself."""
        head = self.classes * (1 + self.n)

        def objective(x: Tensor) -> Tensor:
            return self._objective(x[:head], x[head:].reshape(self.classes, -1), ridge)

        if ridge == np.inf:
            return Minimum(x, float(self._objective(*self._parts(x), 0.0)), 0, True)
        return lbfgs(objective, x, max_iter=self.options.max_iter, tolerance=tolerance)

    def chains(self, x: Floats) -> ClassChains:
        """Return the chains of a vector of parameters, the largest class first."""
        head, d = self._parts(x)
        log_rates = self._log_rates(head, d).numpy()
        log_rates[:, np.arange(self.n), np.arange(self.n)] = 0.0
        shares = torch.softmax(head[: self.classes], 0).numpy()
        order = np.argsort(-shares, kind="stable")
        return ClassChains(log_rates[order], shares[order])

    def _parts(self, x: Floats) -> tuple[Tensor, Tensor]:
        head = self.classes * (1 + self.n)
        return torch.from_numpy(x[:head]), torch.from_numpy(x[head:]).reshape(self.classes, -1)

    def _log_rates(self, head: Tensor, d: Tensor) -> Tensor:  # -> (K, n, n)
        """Return the logits' chains, and what the classes add for pairs that some set holds."""
        s = head[self.classes :].reshape(self.classes, self.n)
        base = -softplus(s.unsqueeze(2) - s.unsqueeze(1)).flatten(1)
        at = torch.from_numpy(self.pairs.pairs).expand(self.classes, -1)
        return base.scatter_add(1, at, d).view(self.classes, self.n, self.n)

    def _log_p(self, log_rates: Tensor) -> Tensor:  # (K, n, n) -> (K, M)
        """Return the log-probabilities of all entries in each class."""
        of_pairs = log_rates.flatten(1)[:, torch.from_numpy(self.pairs.pairs)]  # (K, P)
        parts = []
        for batch in self.pairs.batches:
            scores, mask = of_pairs[:, batch.place], batch.mask.expand(self.classes, -1, -1)
            log_p = chain_log_p(scores.flatten(0, 1), mask.flatten(0, 1)).view(mask.shape)
            parts.append(log_p[:, batch.mask])
        return torch.cat(parts, 1)[:, self.order]

    def _objective(self, head: Tensor, d: Tensor, ridge: float) -> Tensor:
        """Return minus the mean log-likelihood of the choices, with smoothing and penalties."""
        # 1. The likelihood of every person, mixed over the classes.
        log_shares = torch.log_softmax(head[: self.classes], 0)
        log_p = self._log_p(self._log_rates(head, d))
        cases = log_p[:, self.entry] * self.times
        of_person = log_p.new_zeros(self.classes, len(self.weights)).index_add(1, self.person, cases)
        likelihood = self.weights @ torch.logsumexp(log_shares.unsqueeze(1) + of_person, 0)
        # 2. One more person in each class, and the smoothing of counts in equal parts.
        prior = self.weights.mean() * log_shares.sum() + self.smoothing / self.classes * log_p.sum()
        # 3. The penalty on the distances from the logits, and the ridge that centres strengths.
        s, reverse = head[self.classes :], torch.from_numpy(self.pairs.reverse)
        odds, speeds = (d - d[:, reverse]).square().sum(), (d + d[:, reverse]).square().sum()
        penalty = ridge / 8 * (odds + self.options.speeds * speeds) + self.centring / 2 * s.square().sum()
        return (penalty - likelihood - prior) / self.total
