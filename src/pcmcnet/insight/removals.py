"""What taking one alternative out of a set does to the others: the cases that both search and audit look at.

For a set S, an alternative r taken out of it and every other i:

    shift_i = log P(i | S - r) - log P(i | S),        change of log P(i) / P(j) = shift_i - shift_j,

so that the pair whose log-ratio changes most is that of the largest and the smallest shift, and the mean over all m
(m - 1) / 2 pairs follows from the sorted shifts: 2 sum_k (2 k - m + 1) shift_(k) / (m (m - 1)), k from 0. A logit has
the same shift, -log(1 - P(r | S)), for all. An alternative with probability 0 in either set has no shift.
Shapes: C cases (set, r); M = sum over cases of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.evaluation.predictions import Predictor
from pcmcnet.insight.questions import ask, members

SMALLEST = 3  # alternatives of a set, so that two are left to be compared


@dataclass(frozen=True, eq=False)
class Removals:
    """Cases and their answers."""

    position: Ints  # (C,) of the set
    removed: Ints  # (C,) place of the alternative taken out
    offsets: Ints  # (C + 1,) where each case begins in what follows
    places: Ints  # (M,) of the others
    log_with: Floats  # (M,) log P(i | S)
    log_without: Floats  # (M,) log P(i | S - r)
    questions: int  # choice sets that were asked about

    @property
    def case(self) -> Ints:
        """(M,) the case that each entry belongs to."""
        return np.repeat(np.arange(len(self.removed)), np.diff(self.offsets))

    @cached_property
    def shift(self) -> Floats:
        """(M,) change of log P by the removal; NaN where one of the two is 0."""
        there = np.isfinite(self.log_with) & np.isfinite(self.log_without)
        shift: Floats = np.full(len(there), np.nan)
        shift[there] = self.log_without[there] - self.log_with[there]
        return shift

    def log_ratios(self, least: float = 0.0) -> LogRatios:
        """Compare the others of each case in pairs, leaving out those less probable than ``least`` in the whole set."""
        kept = np.flatnonzero(~np.isnan(self.shift) & (self.log_with >= (np.log(least) if least > 0 else -np.inf)))
        case = self.case[kept]
        order = kept[np.lexsort((self.shift[kept], case))]  # case after case, each sorted by its shift
        m = np.bincount(case, minlength=len(self.removed))
        ends = np.cumsum(m)
        k = np.arange(len(order)) - np.repeat(ends - m, m)
        terms = (2 * k - np.repeat(m, m) + 1) * self.shift[order]
        sums: Floats = np.bincount(np.repeat(np.arange(len(m)), m), terms, minlength=len(m)).astype(np.float64)
        several = np.flatnonzero(m >= 2)
        down, up = order[(ends - m)[several]], order[ends[several] - 1]
        pairs = m * (m - 1) // 2
        size = self.case_sizes
        return LogRatios(several, up, down, sums, pairs, int((size * (size - 1) // 2 - pairs).sum()))

    @property
    def case_sizes(self) -> Ints:
        """(C,) number of the others."""
        return np.diff(self.offsets)


class LogRatios(NamedTuple):
    """Changes of log-ratios by case; K cases have a pair."""

    cases: Ints  # (K,)
    up: Ints  # (K,) entry, among M, of the alternative whose log P rises most
    down: Ints  # (K,) entry of the one whose log P rises least, or falls most
    sums: Floats  # (C,) sum over pairs of |change|
    pairs: Ints  # (C,)
    left_out: int  # pairs with an alternative of probability 0, or one less probable than asked for


def sample_removals(data: ChoiceData, sets: Ints, *, limit: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return cases: all removals of sets in the order given, until ``limit`` questions are used up; (C,) and (C,).

    A set costs one question for itself and one for each removal. The last one may have only some, drawn at random.
    """
    drawn = sets[data.sizes[sets] >= SMALLEST]
    cost = np.cumsum(data.sizes[drawn] + 1)
    used = int(np.searchsorted(cost, limit, side="right"))  # sets that fit as a whole
    left = limit - (int(cost[used - 1]) if used else 0)
    parts = [members(data, s) for s in drawn[:used]]
    if used < len(drawn) and left >= 2:
        parts.append(np.sort(rng.permutation(members(data, drawn[used]))[: left - 1]))
    removed = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return np.repeat(drawn[: len(parts)], [len(part) for part in parts]), removed


def ask_removals(model: Predictor, data: ChoiceData, position: Ints, removed: Ints) -> Removals:
    """Ask about every set once, and about it without each of the alternatives to be taken out, in one batch."""
    whole, at = np.unique(position, return_inverse=True)
    inside = [members(data, s) for s in whole]
    others = [inside[k][inside[k] != r] for k, r in zip(at, removed, strict=True)]
    log_p = ask(model, data, [*inside, *others], np.concatenate([whole, position]))
    places = np.concatenate(others) if others else np.empty(0, np.int64)
    sizes = np.array([len(part) for part in others], np.int64)
    begins = np.cumsum(data.sizes[whole]) - data.sizes[whole]  # of each whole set among the answers
    with_r = np.repeat(begins[at] - data.offsets[position], sizes) + places
    log_without = log_p[len(log_p) - len(places) :]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    questions = len(whole) + len(removed)
    return Removals(position, removed, offsets, places, log_p[with_r], log_without, questions)


def share(log_i: NDArray[np.float64], log_j: NDArray[np.float64]) -> Floats:
    """P(i) / (P(i) + P(j)) from log-probabilities, exact where both are tiny."""
    with np.errstate(over="ignore"):
        found: Floats = 1 / (1 + np.exp(log_j - log_i))
    return found
