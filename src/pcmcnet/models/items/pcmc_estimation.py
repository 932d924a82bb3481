"""Estimation of Markov chains over items: one chain, by L-BFGS or SLSQP, or a mixture of chains, one per latent class.

Each *distinct set* of items is stored once, with the counts of its choices. An *entry* is an item of a distinct set;
the M entries of all distinct sets are numbered 0, ..., M - 1.
"""

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

SMOOTHING = 0.1  # default number of choices added to every item of every distinct set
MAX_SLSQP_ITEMS = 12  # 132 rates; the cost of a step grows with the cube of their number
MIN_SLSQP_RATE = 1e-6  # rates of 0 may disconnect the chain
PATH_TOLERANCE = 1e-7  # gain in the mean objective below which an intermediate fit of a path ends
START_DEVIATION = 1.0  # standard deviation of the log-rates of random starts, around the first start
CLASS_DEVIATION = 1.0  # standard deviation of the classes' initial strengths, around those of a single class
ITERATIONS_PER_START = 30  # iterations from each start of a mixture; only the best start continues


@dataclass(frozen=True, kw_only=True)
class ChainOptions:
    """Options of the search for rates, as in ``PCMCConfig``."""

    method: Method = "lbfgs"
    speeds: float = 0.1
    restarts: int = 8
    max_iter: int = 500
    tolerance: float = 1e-9


# -- One chain ----------------------------------------------------------------------------------------------------


def bradley_terry_chain(sets: DistinctSets, n: int, ridge: float = 0.0) -> Floats:  # -> (n, n)
    """Return the log-rates of a chain with q_ij + q_ji = 1 and the Bradley-Terry probabilities on every set."""
    s = fit_log_strengths(sets, n, ridge=centring_ridge(sets, ridge)).strengths
    log_rates: Floats = -np.logaddexp(0.0, s[:, None] - s[None, :])
    np.fill_diagonal(log_rates, 0.0)
    return log_rates


def chain_log_p(scores: Tensor, mask: Tensor) -> Tensor:  # (B, J, J), (B, J) -> (B, J)
    """Return the log of each chain's stationary distribution, given log-rates, with -inf for padding."""
    return log_probabilities(solve_chain(rates_of_scores(scores, mask, rate="exp", epsilon=0.0), mask), mask)


@torch.no_grad()
def item_log_p(sets: DistinctSets, log_rates: Floats) -> Floats:  # (n, n) -> (M,)
    """Return the log-probabilities of all entries."""
    log_p, t = np.zeros(len(sets.items)), torch.from_numpy(log_rates)
    with one_thread_if_small(0):
        for batch in sets.batches():
            scores = t[batch.items.unsqueeze(2), batch.items.unsqueeze(1)]
            log_p[batch.flat[batch.mask.numpy()]] = chain_log_p(scores, batch.mask)[batch.mask].numpy()
    return log_p


@dataclass(frozen=True)
class FittedChain:
    """The fit with the lowest objective over all starts."""

    log_rates: Floats  # (n, n)
    minimum: Minimum
    objectives: tuple[float, ...]  # of each start
    informed_rates: int  # rates of pairs that are together in at least one set


class PairBatch(NamedTuple):
    """A padded batch of distinct sets, with the index of each pair in the vector of rates."""

    pair: Tensor  # (B, J, J); 0 on the diagonal and for padding
    mask: Tensor  # (B, J)
    counts: Tensor  # (B, J)


@dataclass(frozen=True)
class ChainProblem:
    """The P ordered pairs of items that occur together in a distinct set, and the prior mean of their log-rates."""

    start: Floats  # (n, n) log-rates of the prior
    pairs: Ints  # (P,) i n + j for (i, j)
    reverse: Ints  # (P,) index of (j, i)
    batches: list[PairBatch]

    @classmethod
    def of(cls, sets: DistinctSets, start: Floats) -> ChainProblem:
        """Build the problem from distinct sets and the prior's log-rates (n, n)."""
        n = len(start)
        left, right = sets.pairs()
        pairs = np.unique(sets.items[left] * n + sets.items[right])
        reverse = np.searchsorted(pairs, pairs % n * n + pairs // n)
        return cls(start, pairs, reverse, list(_pair_batches(sets, pairs, n)))

    @property
    def prior(self) -> Floats:
        """Prior mean of the log-rates of the pairs, (P,)."""
        return self.start.ravel()[self.pairs]

    @property
    def total(self) -> float:
        """Total weight of the choices."""
        return sum(float(batch.counts.sum()) for batch in self.batches)

    def log_rates(self, of_pairs: Floats) -> Floats:
        """Return all log-rates (n, n): the given log-rates (P,) of the pairs, and the prior mean for other pairs."""
        log_rates = self.start.copy()
        log_rates.ravel()[self.pairs] = of_pairs
        return log_rates

    def fit(self, start: Floats, ridge: float, options: ChainOptions, tolerance: float | None = None) -> Minimum:
        """Minimise the objective, starting at log-rates (P,). An infinite ridge returns the prior mean."""
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
        terms = [_log_likelihood(chain_log_p(log_rates[b.pair], b.mask), b) for b in self.batches]
        return -torch.stack(terms).sum() / self.total


def fit_chain(
    sets: DistinctSets,
    prior: Floats,
    ridge: float,
    options: ChainOptions,
    rng: np.random.Generator,
    path: Sequence[float] = (),
) -> FittedChain:
    """Fit log-rates from the prior (n, n) and from random starts around it, and return the best fit.

    ``path`` is a sequence of stronger ridges. The first start follows this sequence: each fit begins where the previous
    one ended.
    """
    problem = ChainProblem.of(sets, prior)
    # 1. Follow the path. The objective is not convex, and starting from the logit leads to a good local minimum.
    first, n_pairs = problem.prior, len(problem.pairs)
    for stronger in path:
        first = problem.fit(first, stronger, options, PATH_TOLERANCE).x
    # 2. Draw the other starts. With an infinite ridge the minimum is unique.
    n_random = options.restarts - 1 if ridge < np.inf else 0
    starts = [first, *(problem.prior + START_DEVIATION * rng.standard_normal((n_random, n_pairs)))]
    # 3. Fit from each start and keep the fit with the lowest objective.
    minima = [problem.fit(start, ridge, options) for start in starts]
    best = min(minima, key=lambda minimum: minimum.value)
    return FittedChain(problem.log_rates(best.x), best, tuple(minimum.value for minimum in minima), n_pairs)


def _pair_batches(sets: DistinctSets, pairs: Ints, n: int) -> Iterator[PairBatch]:
    """Yield padded batches of distinct sets with the index of each of their pairs in ``pairs``."""
    for batch in sets.batches():
        real = batch.mask.unsqueeze(2) & batch.mask.unsqueeze(1)
        real.diagonal(dim1=1, dim2=2).fill_(False)
        cell = (batch.items.unsqueeze(2) * n + batch.items.unsqueeze(1)).numpy()
        pair = torch.from_numpy(np.searchsorted(pairs, cell)).where(real, 0)
        yield PairBatch(pair, batch.mask, batch.counts)


def _fit_by_slsqp(problem: ChainProblem, start: Floats, options: ChainOptions) -> Minimum:
    """Minimise over rates with q_ij + q_ji >= 1, as published, and return the minimum as log-rates."""
    from scipy.optimize import minimize

    # 1. The constraints: one row per unordered pair of items, with a 1 for each of its two rates.
    pairs, reverse, n = problem.pairs, problem.reverse, len(problem.start)
    sums = (np.eye(len(pairs)) + np.eye(len(pairs))[reverse])[pairs // n < pairs % n]  # (P / 2, P)

    def objective(rates: Tensor) -> Tensor:  # (P,) -> ()
        q = rates.clamp(min=MIN_SLSQP_RATE)
        log_p = [log_probabilities(solve_chain(q[b.pair], b.mask), b.mask) for b in problem.batches]
        terms = [_log_likelihood(p, b) for p, b in zip(log_p, problem.batches, strict=True)]
        return -torch.stack(terms).sum() / problem.total

    # 2. Minimise from rates with the same odds that satisfy q_ij + q_ji = 1.
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
    # 3. Convert the rates to log-rates.
    minimum = require_finite_minimum(result)
    return Minimum(np.log(minimum.x.clip(MIN_SLSQP_RATE)), minimum.value, minimum.iterations, minimum.converged)


def _log_likelihood(log_p: Tensor, batch: PairBatch) -> Tensor:  # (B, J) -> ()
    """Return the log-likelihood of the counts in a batch."""
    return (batch.counts * log_p.masked_fill(~batch.mask, 0)).sum()


# -- Chains of classes --------------------------------------------------------------------------------------------


class ClassChains(NamedTuple):
    """Log-rates and shares of the latent classes, in descending order of the shares."""

    log_rates: Floats  # (K, n, n)
    shares: Floats  # (K,)

    def log_p(self, sets: DistinctSets) -> Floats:  # -> (M,)
        """Return the log-probabilities of all entries, mixed over the classes."""
        terms = [np.log(share) + item_log_p(sets, t) for share, t in zip(self.shares, self.log_rates, strict=True)]
        log_p: Floats = np.logaddexp.reduce(terms, axis=0)
        return log_p


class Choosers(NamedTuple):
    """Choices of N persons, as counts of the U distinct pairs of a person and a chosen entry."""

    weights: Floats  # (N,)
    person: Ints  # (U,)
    entry: Ints  # (U,)
    times: Floats  # (U,) choices of this entry by this person

    @classmethod
    def of(cls, data: ChoiceData, entries: Ints, by: ClassesBy) -> Choosers:
        """Group the choices by person, or treat each choice set as a separate person, depending on ``by``.

        ``entries`` (S,) is the entry chosen from each choice set.
        """
        persons = Persons.of(data, by)
        if not persons.has_several_sets:
            return cls.of_sets(entries, data.weights)
        return cls.of_persons(persons.number, entries, persons.weights(data))

    @classmethod
    def of_persons(cls, number: Ints, entries: Ints, weights: Floats) -> Choosers:
        """Group choices by person, given the person and chosen entry of each set (S,) and the person weights (N,)."""
        cases, times = np.unique(np.stack([number, entries]), axis=1, return_counts=True)
        return cls(weights, cases[0], cases[1], times.astype(np.float64))

    @classmethod
    def of_sets(cls, entries: Ints, weights: Floats) -> Choosers:
        """Treat each choice set as a separate person, and merge persons who made the same choice."""
        cases, case = np.unique(entries, return_inverse=True)
        total = np.bincount(case, weights=weights).astype(np.float64)
        return cls(total, np.arange(len(cases)), cases, np.ones(len(cases)))


class ClassProblem:
    """The likelihood of a mixture of K chains, and its maximisation.

    The parameter vector x contains the K logits of the shares, the K n strengths of the classes' logits, and the K P
    deviations of the log-rates from the log-rates of these logits.
    """

    def __init__(
        self, sets: DistinctSets, choosers: Choosers, n: int, *, classes: int, smoothing: float, options: ChainOptions
    ) -> None:
        smoothed = sets.smoothed(smoothing)
        self.n, self.classes, self.smoothing, self.options = n, classes, smoothing, options
        # 1. Fit Bradley-Terry strengths to all choices: the classes start around them.
        self.centring = centring_ridge(smoothed)
        self.strengths = fit_log_strengths(smoothed, n, ridge=self.centring).strengths
        # 2. Collect the pairs with a free rate, and the position of each entry in the concatenated batches.
        self.pairs = ChainProblem.of(smoothed, np.zeros((n, n)))
        entries = [batch.flat[batch.mask.numpy()] for batch in sets.batches()]
        self.order = torch.from_numpy(np.argsort(np.concatenate(entries)))  # (M,)
        # 3. Convert the choices to tensors.
        self.weights, self.person, self.entry, self.times = (torch.from_numpy(part) for part in choosers)
        self.total = float((self.weights[self.person] * self.times).sum())

    def logits(self, rng: np.random.Generator, starts: int) -> Floats:
        """Fit a mixture of logits from random starts and return its parameters x.

        Each start runs for a few iterations, and only the best start continues to convergence.
        """
        K, n = self.classes, self.n
        fixed = torch.zeros(K, len(self.pairs.pairs), dtype=torch.float64)

        def search(x: Floats, max_iter: int) -> Minimum:
            return lbfgs(lambda x: self._objective(x, fixed, 0.0), x, max_iter=max_iter, tolerance=PATH_TOLERANCE)

        # 1. Draw strengths of the classes around those of all choices; a single class needs no deviation.
        deviations = CLASS_DEVIATION * rng.standard_normal((starts if K > 1 else 1, K, n)) * (K > 1)
        x_starts = [np.concatenate([np.zeros(K), (self.strengths + d).ravel()]) for d in deviations]
        # 2. Run a few iterations from each start, then continue with the best.
        best = min((search(x, ITERATIONS_PER_START) for x in x_starts), key=lambda minimum: minimum.value)
        minimum = search(best.x, self.options.max_iter)
        return np.concatenate([minimum.x, fixed.numpy().ravel()])

    def fit(self, x: Floats, ridge: float, tolerance: float) -> Minimum:
        """Minimise the objective, starting at x. With an infinite ridge, return x, a mixture of logits."""
        head = self.classes * (1 + self.n)

        def objective(x: Tensor) -> Tensor:
            return self._objective(x[:head], x[head:].reshape(self.classes, -1), ridge)

        if ridge == np.inf:
            return Minimum(x, float(self._objective(*self._parts(x), 0.0)), 0, True)
        return lbfgs(objective, x, max_iter=self.options.max_iter, tolerance=tolerance)

    def chains(self, x: Floats) -> ClassChains:
        """Return the chains that the parameters x describe, in descending order of the class shares."""
        head, d = self._parts(x)
        log_rates = self._log_rates(head, d).numpy()
        log_rates[:, np.arange(self.n), np.arange(self.n)] = 0.0
        shares = torch.softmax(head[: self.classes], 0).numpy()
        order = np.argsort(-shares, kind="stable")
        return ClassChains(log_rates[order], shares[order])

    def _parts(self, x: Floats) -> tuple[Tensor, Tensor]:
        """Return the parameters of the mixture of logits (K + K n,) and the deviations (K, P)."""
        head = self.classes * (1 + self.n)
        return torch.from_numpy(x[:head]), torch.from_numpy(x[head:]).reshape(self.classes, -1)

    def _log_rates(self, head: Tensor, d: Tensor) -> Tensor:  # -> (K, n, n)
        """Return the log-rates of the logits' chains plus the deviations d (K, P) of the pairs."""
        s = head[self.classes :].reshape(self.classes, self.n)
        base = -softplus(s.unsqueeze(2) - s.unsqueeze(1)).flatten(1)
        cells = torch.from_numpy(self.pairs.pairs).expand(self.classes, -1)
        return base.scatter_add(1, cells, d).view(self.classes, self.n, self.n)

    def _log_p(self, log_rates: Tensor) -> Tensor:  # (K, n, n) -> (K, M)
        """Return the log-probabilities of all entries, by class."""
        of_pairs = log_rates.flatten(1)[:, torch.from_numpy(self.pairs.pairs)]  # (K, P)
        parts = []
        for batch in self.pairs.batches:
            scores, mask = of_pairs[:, batch.pair], batch.mask.expand(self.classes, -1, -1)
            log_p = chain_log_p(scores.flatten(0, 1), mask.flatten(0, 1)).view(mask.shape)
            parts.append(log_p[:, batch.mask])
        return torch.cat(parts, 1)[:, self.order]

    def _objective(self, head: Tensor, d: Tensor, ridge: float) -> Tensor:
        """Return the negative mean log-likelihood, plus the smoothing and penalty terms."""
        # 1. Mix the likelihood of each person over the classes.
        log_shares = torch.log_softmax(head[: self.classes], 0)
        log_p = self._log_p(self._log_rates(head, d))
        cases = log_p[:, self.entry] * self.times
        of_person = log_p.new_zeros(self.classes, len(self.weights)).index_add(1, self.person, cases)
        likelihood = self.weights @ torch.logsumexp(log_shares.unsqueeze(1) + of_person, 0)
        # 2. Add one pseudo-person to each class, and divide the smoothing equally among the classes.
        prior = self.weights.mean() * log_shares.sum() + self.smoothing / self.classes * log_p.sum()
        # 3. Add the penalty on the deviations from the logits, and the ridge that centres the strengths.
        s, reverse = head[self.classes :], torch.from_numpy(self.pairs.reverse)
        odds, speeds = (d - d[:, reverse]).square().sum(), (d + d[:, reverse]).square().sum()
        penalty = ridge / 8 * (odds + self.options.speeds * speeds) + self.centring / 2 * s.square().sum()
        return (penalty - likelihood - prior) / self.total
