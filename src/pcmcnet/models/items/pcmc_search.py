"""Fitting the rates of a chain of items to counts: L-BFGS on log-rates, or the original's SLSQP on rates.

Only the rates of pairs that some training set holds are searched: a vector of their log-rates (or rates) and, for
each padded batch of distinct sets, where its pairs are in that vector. The others keep their start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.layers import log_probabilities, solve_chain
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.models.items.lbfgs import Minimum, as_minimum, lbfgs, value_and_gradient
from pcmcnet.models.items.universe import DistinctSets

SLSQP_ITEMS = 12  # 132 rates; the cost of a step grows with the cube of their number
LEAST = 1e-6  # rate that SLSQP may come down to: a chain with zeros may fall apart
SPREAD = 1.0  # standard deviation of the log-rates of random starts around the first


class Settings(Protocol):
    """The options that a search reads; those of ``PCMCConfig``."""

    @property
    def method(self) -> str: ...  # noqa: D102
    @property
    def ridge(self) -> float: ...  # noqa: D102
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


def search(sets: DistinctSets, start: Floats, settings: Settings, rng: np.random.Generator) -> Found:
    """Minimise from the start and from random log-rates around it; keep the best."""
    n = len(start)
    pairs, blocks = pair_blocks(sets, n)
    prior = start.ravel()[pairs]
    minimise = _by_slsqp if settings.method == "slsqp" else _by_lbfgs
    tries = []
    for k in range(settings.restarts):
        begin = prior + (SPREAD * rng.standard_normal(len(pairs)) if k else 0.0)
        tries.append(minimise(blocks, prior, begin, pairs, n, settings))
    best = min(tries, key=lambda found: found.value)
    log_rates = start.copy()
    log_rates.ravel()[pairs] = best.at
    return Found(log_rates, best, [found.value for found in tries], len(pairs))


def pair_blocks(sets: DistinctSets, n: int) -> tuple[Ints, list[Block]]:
    """Return the pairs (P,) that some set holds, i n + j for (i, j), and the sets with places among them."""
    left, right = sets.pairs()
    pairs, blocks = np.unique(sets.items[left] * n + sets.items[right]), []
    for batch in sets.batches():
        real = batch.mask.unsqueeze(2) & batch.mask.unsqueeze(1)
        real.diagonal(dim1=1, dim2=2).fill_(False)
        cell = (batch.items.unsqueeze(2) * n + batch.items.unsqueeze(1)).numpy()
        place = torch.from_numpy(np.searchsorted(pairs, cell)).where(real, 0)
        blocks.append(Block(place, batch.mask, batch.counts))
    return pairs, blocks


def _by_lbfgs(blocks: list[Block], prior: Floats, begin: Floats, pairs: Ints, n: int, settings: Settings) -> Minimum:
    """Minimise over log-rates, with the ridge."""
    total, centre = sum(float(block.counts.sum()) for block in blocks), torch.from_numpy(prior)

    def objective(log_rates: Tensor) -> Tensor:  # (P,) -> ()
        terms = [_log_likelihood(chain_log_p(log_rates[b.place], b.mask), b) for b in blocks]
        penalty = settings.ridge / 2 * (log_rates - centre).square().sum()
        return (penalty - torch.stack(terms).sum()) / total

    return lbfgs(objective, begin, max_iter=settings.max_iter, tolerance=settings.tolerance)


def _by_slsqp(blocks: list[Block], prior: Floats, begin: Floats, pairs: Ints, n: int, settings: Settings) -> Minimum:
    """Minimise over rates with q_ij + q_ji >= 1, as published; the result is in log-rates too."""
    from scipy.optimize import minimize

    total = sum(float(block.counts.sum()) for block in blocks)
    back = np.searchsorted(pairs, pairs % n * n + pairs // n)  # (P,) place of the pair the other way round
    sums = (np.eye(len(pairs)) + np.eye(len(pairs))[back])[pairs // n < pairs % n]  # (P / 2, P)

    def objective(rates: Tensor) -> Tensor:  # (P,) -> ()
        q = rates.clamp(min=LEAST)
        laws = [log_probabilities(solve_chain(q[b.place], b.mask), b.mask) for b in blocks]
        return -torch.stack([_log_likelihood(law, b) for law, b in zip(laws, blocks, strict=True)]).sum() / total

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
