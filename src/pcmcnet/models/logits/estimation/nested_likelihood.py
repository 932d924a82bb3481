"""The nested logit on ragged choice sets: log-probabilities, and scores in coefficients and log-sum parameters.

With utilities v = x . b, nests m and log-sum parameters l_m, for an alternative i of nest m

    L_m = log sum_{j in m} exp(v_j / l_m)         log P(i) = v_i / l_m - L_m + l_m L_m - log sum_k exp(l_k L_k)

With xbar_m and vbar_m the means of x and v by P(. | m), and Q_k = P(nest k), its gradient is

    in b      x_i / l_m + (1 - 1 / l_m) xbar_m - sum_k Q_k xbar_k
    in l_k    [k = m] ((vbar_m - v_i) / l_m^2 + D_m) - Q_k D_k,       D_k = d(l_k L_k) / d l_k = L_k - vbar_k / l_k

Rows are sorted by set and nest, so that both are stretches of rows. Shapes: N rows, S sets, T (set, nest) pairs,
M nests, F of them with a log-sum to estimate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data.ragged import log_softmax_by_set, log_sum_exp_by_set, spread, sum_by_set

FURTHEST = 4.0  # of log l from 0: there a nest is one alternative, or its alternatives are chosen blindly
_AT_BOUND = 0.01  # of log l: nearer to the bound than this, it is the bound that holds an estimate


class Nests(NamedTuple):
    """Where sets and nests lie in rows sorted by set and nest."""

    order: Ints  # (N,) rows in the new order
    rows: Ints  # (T + 1,) where each (set, nest) pair begins among the rows
    pairs: Ints  # (S + 1,) where each set begins among the pairs
    nest: Ints  # (T,) which nest each pair is of

    @classmethod
    def find(cls, nest: Ints, offsets: Ints) -> Nests:
        """Sort rows by set and nest."""
        set_of = spread(np.arange(len(offsets) - 1), offsets)
        order = np.lexsort((nest, set_of))
        key = np.column_stack([set_of[order], nest[order]])
        begins = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]).any(1)])
        pairs = np.searchsorted(key[begins, 0], np.arange(len(offsets)))
        return cls(order, np.r_[begins, len(nest)], pairs, key[begins, 1])

    def with_two(self, n_nests: int) -> Bools:
        """Tell which nests ever have two alternatives in a set."""
        found = np.zeros(n_nests, bool)
        found[self.nest[np.diff(self.rows) > 1]] = True
        return found

    def log_probabilities(self, v: Floats, logsums: Floats) -> Floats:  # (N,), (M,) -> (N,)
        """Return the log-probabilities of the rows in their own order, at their utilities."""
        of_pair = logsums[self.nest]
        scaled = v[self.order] / spread(of_pair, self.rows)
        inside = log_softmax_by_set(scaled, self.rows)
        between = log_softmax_by_set(of_pair * log_sum_exp_by_set(scaled, self.rows), self.pairs)
        out = np.empty_like(v)
        out[self.order] = inside + spread(between, self.rows)
        return out


class NestedSets:
    """Choices in nested sets: log-probabilities and scores in the coefficients, then in the free log-sums."""

    def __init__(self, x: Floats, nests: Nests, picked: Ints, free: Bools) -> None:
        self.x, self.nests, self.free = x[nests.order], nests, free
        back = np.empty(len(x), np.int64)
        back[nests.order] = np.arange(len(x))
        self.picked = back[picked]  # (S,) the chosen rows in the new order
        self.pair = np.searchsorted(nests.rows, self.picked, side="right") - 1  # (S,) the chosen (set, nest) pairs
        self.set_of_pair = spread(np.arange(len(picked)), nests.pairs)  # (T,)

    def values(self, theta: Floats) -> Floats:
        """Turn parameters that may be any numbers into coefficients and log-sums: log l = B tanh(theta / B)."""
        K = self.x.shape[1]
        return np.concatenate([theta[:K], np.exp(FURTHEST * np.tanh(theta[K:] / FURTHEST))])

    def objective(self, theta: Floats) -> tuple[Floats, Floats]:
        """(K + F,) -> (S,), (S, K + F): log-probabilities and scores in those parameters."""
        K, values = self.x.shape[1], self.values(theta)
        ll, scores = self.evaluate(values)
        scores[:, K:] *= values[K:] * (1 - np.tanh(theta[K:] / FURTHEST) ** 2)
        return ll, scores

    def evaluate(self, values: Floats) -> tuple[Floats, Floats]:
        """(K + F,) -> (S,), (S, K + F): log-probabilities and scores in coefficients and log-sums."""
        K, (_, rows, pairs, nest) = self.x.shape[1], self.nests
        logsums = np.ones(len(self.free))
        logsums[self.free] = values[K:]
        lam = logsums[nest]  # (T,)
        v = self.x @ values[:K]
        scaled = v / spread(lam, rows)
        big = log_sum_exp_by_set(scaled, rows)  # (T,) L
        inside = np.exp(scaled - spread(big, rows))  # (N,) P(i | m)
        log_between = log_softmax_by_set(lam * big, pairs)  # (T,) log Q
        between = np.exp(log_between)
        mean_x = sum_by_set(inside[:, None] * self.x, rows)  # (T, K)
        mean_v = sum_by_set(inside * v, rows)  # (T,)
        slope = big - mean_v / lam  # (T,) D

        picked, pair = self.picked, self.pair
        own = lam[pair]  # (S,)
        scores = np.empty((len(picked), len(values)))
        scores[:, :K] = (self.x[picked] + (own - 1)[:, None] * mean_x[pair]) / own[:, None]
        scores[:, :K] -= sum_by_set(between[:, None] * mean_x, pairs)
        by_nest = np.zeros((len(picked), len(self.free)))
        by_nest[self.set_of_pair, nest] = -between * slope
        by_nest[np.arange(len(picked)), nest[pair]] += (mean_v[pair] - v[picked]) / own**2 + slope[pair]
        scores[:, K:] = by_nest[:, self.free]
        return scaled[picked] - big[pair] + log_between[pair], scores


def at_bound(logsum: float) -> bool:
    """Tell whether a log-sum runs as far as it may."""
    return abs(math.log(logsum)) > FURTHEST - _AT_BOUND
