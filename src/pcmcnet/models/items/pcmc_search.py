"""Fitting the rates of a chain of items to counts: L-BFGS on log-rates, or the original's SLSQP on rates.

Only the rates of pairs that some training set holds are searched: a vector of their log-rates (or rates) and, for
each padded batch of distinct sets, where its pairs are in that vector. The others keep their start.

With t the log-rates and d_ij = t_ij - t0_ij their distance from the logit's chain t0, the penalty on L-BFGS's search is

    ridge / 2 sum_{i < j} [ (d_ij - d_ji)^2 + speeds (d_ij + d_ji)^2 ] / 2.

The difference moves the odds of a pair, the sum how fast it is compared. A chain whose pairs all have the logit's odds
has the logit's law whatever their speeds (detailed balance): speeds alone are no context, and are held less firmly.
With speeds = 1 the penalty is ridge / 2 sum_ij d_ij^2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.layers import log_probabilities, solve_chain
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.threads import threads_for
from pcmcnet.models.items.lbfgs import Minimum, as_minimum, lbfgs, value_and_gradient
from pcmcnet.models.items.universe import DistinctSets

SLSQP_ITEMS = 12  # 132 rates; the cost of a step grows with the cube of their number
LEAST = 1e-6  # rate that SLSQP may come down to: a chain with zeros may fall apart
PATH_TOLERANCE = 1e-7  # gain in the mean objective below which a fit on the way to another one ends
SPREAD = 1.0  # standard deviation of the log-rates of random starts around the first


class Settings(Protocol):
    """The options that a search reads; those of ``PCMCConfig``."""

    @property
    def method(self) -> str: ...  # noqa: D102
    @property
    def speeds(self) -> float: ...  # noqa: D102
    @property
    def restarts(self) -> int: ...  # noqa: D102
    @property
    def max_iter(self) -> int: ...  # noqa: D102
    @property
    def tolerance(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Found:
    """The best of all starts."""

    log_rates: Floats  # (n, n)
    best: Minimum
    objectives: list[float]  # of each start
    informed: int  # rates of pairs that some set holds


class Block(NamedTuple):
    """A padded batch of distinct sets, its pairs by their places in the vector of rates."""

    place: Tensor  # (B, J, J); 0 where there is no pair
    mask: Tensor  # (B, J)
    counts: Tensor  # (B, J)


def chain_log_p(scores: Tensor, mask: Tensor) -> Tensor:  # (B, J, J), (B, J) -> (B, J)
    """Log-probabilities of chains with these log-rates; padding gets -inf."""
    return log_probabilities(solve_chain(rates_of_scores(scores, mask, rate="exp", epsilon=0.0), mask), mask)


@dataclass(frozen=True, slots=True)
class Problem:
    """Distinct sets, the P ordered pairs that some of them hold, and the log-rates that these are pulled to."""

    start: Floats  # (n, n)
    pairs: Ints  # (P,) i n + j for (i, j)
    back: Ints  # (P,) place of the pair the other way round
    blocks: list[Block]

    @classmethod
    def of(cls, sets: DistinctSets, start: Floats) -> Problem:
        """Find the pairs of the sets."""
        n = len(start)
        left, right = sets.pairs()
        pairs = np.unique(sets.items[left] * n + sets.items[right])
        back = np.searchsorted(pairs, pairs % n * n + pairs // n)
        return cls(start, pairs, back, list(_blocks(sets, pairs, n)))

    @property
    def prior(self) -> Floats:
        """(P,) log-rates that the pairs are pulled to."""
        return self.start.ravel()[self.pairs]

    def log_rates(self, at: Floats) -> Floats:
        """Put log-rates (P,) of pairs among those of all, (n, n)."""
        found = self.start.copy()
        found.ravel()[self.pairs] = at
        return found

    def fit(self, begin: Floats, ridge: float, settings: Settings, tolerance: float | None = None) -> Minimum:
        """Minimise from log-rates (P,); an infinite ridge keeps the prior."""
        if ridge == np.inf:
            return Minimum(self.prior, float(self._mean_loss(torch.from_numpy(self.prior))), 0, True)
        if settings.method == "slsqp":
            return _by_slsqp(self, begin, settings)
        centre, back = torch.from_numpy(self.prior), torch.from_numpy(self.back)

        def objective(log_rates: Tensor) -> Tensor:  # (P,) -> ()
            d = log_rates - centre
            odds, speeds = (d - d[back]).square().sum(), (d + d[back]).square().sum()
            return self._mean_loss(log_rates) + ridge / 8 * (odds + settings.speeds * speeds) / self.total

        return lbfgs(objective, begin, max_iter=settings.max_iter, tolerance=tolerance or settings.tolerance)

    @property
    def total(self) -> float:
        """Number of choices, by weight."""
        return sum(float(block.counts.sum()) for block in self.blocks)

    def _mean_loss(self, log_rates: Tensor) -> Tensor:  # (P,) -> ()
        terms = [_log_likelihood(chain_log_p(log_rates[b.place], b.mask), b) for b in self.blocks]
        return -torch.stack(terms).sum() / self.total


@torch.no_grad()
def item_log_p(sets: DistinctSets, log_rates: Floats) -> Floats:  # (n, n) -> (M,)
    """Log-probabilities of the items of distinct sets."""
    out, t = np.zeros(len(sets.items)), torch.from_numpy(log_rates)
    with threads_for(0):
        for batch in sets.batches():
            scores = t[batch.items.unsqueeze(2), batch.items.unsqueeze(1)]
            out[batch.flat[batch.mask.numpy()]] = chain_log_p(scores, batch.mask)[batch.mask].numpy()
    return out


def search(
    sets: DistinctSets,
    start: Floats,
    ridge: float,
    settings: Settings,
    rng: np.random.Generator,
    path: Sequence[float] = (),
) -> Found:
    """Minimise from the start and from random log-rates around it; keep the best.

    The first start comes down a path of stronger ridges, if one is given.
    """
    problem = Problem.of(sets, start)
    begin, spread = problem.prior, len(problem.pairs)
    for stronger in path:
        begin = problem.fit(begin, stronger, settings, PATH_TOLERANCE).at
    others = settings.restarts - 1 if ridge < np.inf else 0
    begins = [begin, *(problem.prior + SPREAD * rng.standard_normal((others, spread)))]
    tries = [problem.fit(begin, ridge, settings) for begin in begins]
    best = min(tries, key=lambda found: found.value)
    return Found(problem.log_rates(best.at), best, [found.value for found in tries], spread)


def _blocks(sets: DistinctSets, pairs: Ints, n: int) -> Iterator[Block]:
    for batch in sets.batches():
        real = batch.mask.unsqueeze(2) & batch.mask.unsqueeze(1)
        real.diagonal(dim1=1, dim2=2).fill_(False)
        cell = (batch.items.unsqueeze(2) * n + batch.items.unsqueeze(1)).numpy()
        place = torch.from_numpy(np.searchsorted(pairs, cell)).where(real, 0)
        yield Block(place, batch.mask, batch.counts)


def _by_slsqp(problem: Problem, begin: Floats, settings: Settings) -> Minimum:
    """Minimise over rates with q_ij + q_ji >= 1, as published; the result is in log-rates too."""
    from scipy.optimize import minimize

    pairs, back, n = problem.pairs, problem.back, len(problem.start)
    sums = (np.eye(len(pairs)) + np.eye(len(pairs))[back])[pairs // n < pairs % n]  # (P / 2, P)

    def objective(rates: Tensor) -> Tensor:  # (P,) -> ()
        q = rates.clamp(min=LEAST)
        laws = [(log_probabilities(solve_chain(q[b.place], b.mask), b.mask), b) for b in problem.blocks]
        return -torch.stack([_log_likelihood(law, b) for law, b in laws]).sum() / problem.total

    rates = np.exp(begin) / (np.exp(begin) + np.exp(begin)[back])
    found = minimize(
        value_and_gradient(objective),
        rates.clip(LEAST),
        jac=True,
        method="SLSQP",
        bounds=[(LEAST, None)] * len(pairs),
        constraints={"type": "ineq", "fun": lambda q: sums @ q - 1, "jac": lambda _: sums},
        options={"maxiter": settings.max_iter, "ftol": settings.tolerance},
    )
    minimum = as_minimum(found)
    return Minimum(np.log(minimum.at.clip(LEAST)), minimum.value, minimum.iterations, minimum.converged)


def _log_likelihood(log_p: Tensor, block: Block) -> Tensor:  # (B, J) -> ()
    return (block.counts * log_p.masked_fill(~block.mask, 0)).sum()
