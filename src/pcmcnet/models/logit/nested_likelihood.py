"""Logits whose alternatives are the leaves of a tree of nests, on ragged choice sets: log-probabilities and scores.

A node g of the tree, with children c and log-sum parameter l_g, is worth

    I_g = l_g log sum_c exp(I_c / l_g)        log P(c | g) = (I_c - I_g) / l_g,

and an alternative its utility; the root has l = 1, and log P(i) is the sum along the path from the root to i. A node
without available alternatives is left out. With w_c the weight of the chosen path (1 on it, 0 elsewhere), the chain
rule runs from the root down. With A_g the derivative of log P in I_g by all that is above g, and 0 at the root,

    B_g = A_g - w_g / l_g                     A_c = w_c / l_g + P(c | g) B_g
    d log P / d l_g = -sum_c w_c log P(c | g) / l_g + B_g (I_g - sum_c P(c | g) I_c) / l_g

and the score in the coefficients b of v = x . b is sum_i A_i x_i. Where a choice may have come by several paths, as in
the cross-nested logit, w holds their probabilities given the choice.

Log-sums are products of the relative ones r along the path: log l = C log r, with C[m, f] how often r_f occurs from the
root to node m; 0 < r <= 1 keeps each l below that of its parent, as random utilities need.

The search goes by t with r = log(1 + exp t), which is about exp t where r is small and t where it is large: there
coefficients grow with r, and the way is straight. Rows are sorted by set and path, so that a node is a stretch of its
children. Shapes: N rows, S sets, M nodes, F relative log-sums, K coefficients, P parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data.columns.ragged import log_sum_exp_by_set, spread, sum_by_set, weighted_sum_by_set
from pcmcnet.errors import ConfigError
from pcmcnet.models.logit.parameter_bounds import Bounds
from pcmcnet.models.logit.standard_errors import Estimates

_LEAST_SHARE = 1e-10  # of an alternative in a nest: less is no different


class _Level(NamedTuple):
    """The nodes of one depth that sets offer."""

    offsets: Ints  # (T + 1,) where each begins among its children
    node: Ints  # (T,) which node of the tree; -1 for none, where a path ends above this depth
    set_of: Ints  # (T,) whose


class _Worth(NamedTuple):
    """A level at some utilities."""

    lam: Floats  # (T,) l
    value: Floats  # (T,) I
    inside: Floats  # log P(child | node), by child
    below: Floats  # I of the children


class NestedRows(NamedTuple):
    """Where sets and nodes lie in rows sorted by set and path."""

    order: Ints  # (N,) rows in the new order
    sets: Ints  # (S + 1,) where each set begins among the rows
    levels: tuple[_Level, ...]  # the deepest first; the last one holds the root of each set

    @classmethod
    def find(cls, paths: Ints, offsets: Ints) -> NestedRows:  # (N,) or (N, depth), (S + 1,)
        """Sort rows by set and path: the nodes from the top down, then -1 where a path is shorter."""
        # 1. Sort by set, then by the nodes from the top down, so that the children of a node are neighbours.
        paths = paths.reshape(len(paths), -1)
        set_of = spread(np.arange(len(offsets) - 1), offsets)
        alone = paths.max(initial=0) + 1 + np.arange(len(paths))  # beneath the end of its path a row is a node itself
        keys = np.column_stack([set_of, np.where(paths < 0, alone[:, None], paths)])
        order = np.lexsort(keys.T[::-1])
        keys, paths = keys[order], paths[order]
        # 2. A node begins where its set, or a node above it or itself, differs from the row before. Level by level from
        #    the leaves up, note where each begins among the nodes of the level below.
        changes = np.cumsum(keys[1:] != keys[:-1], axis=1) > 0  # some node so far differs from the row above
        levels, below = [], np.arange(len(keys) + 1)
        for depth in reversed(range(keys.shape[1])):
            begins = np.flatnonzero(np.append(True, changes[:, depth]))
            node = paths[begins, depth - 1] if depth else np.full(len(begins), -1)
            cuts = np.append(begins, len(keys))
            levels.append(_Level(np.searchsorted(below, cuts), node, keys[begins, 0]))
            below = cuts
        return cls(order, offsets, tuple(levels))

    def with_two(self, n_nodes: int) -> Bools:
        """Tell which nodes ever have two children in a set."""
        found = np.zeros(n_nodes + 1, bool)
        for offsets, node, _ in self.levels:
            found[node[np.diff(offsets) > 1]] = True
        return found[:-1]

    def log_probabilities(self, v: Floats, logsums: Floats) -> Floats:  # (N,), (M,) -> (N,)
        """Return the log-probabilities of the rows in their own order, at their utilities."""
        out = np.empty_like(v)
        out[self.order] = self.descend(self.climb(v[self.order], logsums))
        return out

    def inclusive_values(self, v: Floats, logsums: Floats) -> Floats:  # (N,), (M,) -> (S,)
        """Return what each set is worth: I of its root."""
        return self.climb(v[self.order], logsums)[-1].value

    def climb(self, v: Floats, logsums: Floats) -> list[_Worth]:  # (N,), (M,)
        """Return what nodes are worth, level by level; utilities in the sorted order."""
        of_node, value, found = np.append(logsums, 1.0), v, []
        for offsets, node, _ in self.levels:
            lam = of_node[node]
            scaled = value / spread(lam, offsets)
            total = log_sum_exp_by_set(scaled, offsets)
            found.append(_Worth(lam, lam * total, scaled - spread(total, offsets), value))
            value = found[-1].value
        return found

    def descend(self, worth: list[_Worth]) -> Floats:  # -> (N,)
        """Sum log-probabilities from the root to the rows, in the sorted order."""
        log_p = np.zeros(len(worth[-1].value))
        for (offsets, _, _), at in zip(reversed(self.levels), reversed(worth), strict=True):
            log_p = spread(log_p, offsets) + at.inside
        return log_p

    def slopes(self, worth: list[_Worth], w: Floats, n_nodes: int) -> tuple[Floats, Floats]:
        """(N,) weights of the chosen rows -> (N,), (S, M): derivatives of log P in utilities and log-sums."""
        # 1. From the rows up: the weight of the chosen path in every node.
        weights = [w]
        for offsets, _, _ in self.levels:
            weights.append(sum_by_set(weights[-1], offsets))
        # 2. From the root down: A_g of the nodes, and the derivatives in their log-sums, as in the header.
        above = np.zeros(len(weights[-1]))
        by_node = np.zeros((len(above), n_nodes + 1))
        for level in reversed(range(len(worth))):
            (offsets, node, set_of), at = self.levels[level], worth[level]
            share = np.exp(at.inside)
            above = above - weights[level + 1] / at.lam  # B_g
            surprise = -sum_by_set(weights[level] * at.inside, offsets)
            by_node[set_of, node] = (surprise + above * (at.value - sum_by_set(share * at.below, offsets))) / at.lam
            above = weights[level] / spread(at.lam, offsets) + share * spread(above, offsets)  # A_c of the children
        return above, by_node[:, :-1]


class Allocation(NamedTuple):
    """How alternatives are shared out among nests: log alpha = base + own log s + rest log(1 - s), by pairs of both.

    An alternative in n nests has n - 1 parameters s in [0, 1]: the first nest takes s_1 of it, the second s_2 of what
    is left, and the last one the rest.
    """

    pair: Ints  # (N,) which pair of an alternative and a nest each row is
    base: Floats  # (A,) log alpha of the pairs that are given, 0 for the others
    own: Floats  # (A, G) 0 or 1
    rest: Floats  # (A, G) 0 or 1

    def logs(self, shares: Floats) -> Floats:  # (G,) -> (A,)
        """Return log alpha of each pair."""
        s = np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
        logs: Floats = self.base + self.own @ np.log(s) + self.rest @ np.log1p(-s)
        return logs

    def slopes(self, shares: Floats) -> Floats:  # (G,) -> (A, G)
        """Return the derivatives of log alpha."""
        s = np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
        return self.own / s - self.rest / (1 - s)


class NestedLikelihood:
    """Choices in nested sets: log-probabilities and scores in coefficients, relative log-sums and shares.

    Parameters
    ----------
    x
        (N, K) what the coefficients multiply, by row.
    nests
        Where the rows lie.
    chosen
        (N,) whether a row is chosen: one of a set, or all those of the chosen alternative where it has several.
    counts
        (M, F) how often each relative log-sum occurs from the root to each node.
    allocation
        How alternatives with several rows are shared out.
    """

    def __init__(
        self, x: Floats, nests: NestedRows, chosen: Bools, counts: Floats, allocation: Allocation | None = None
    ) -> None:
        self.x, self.nests, self.counts, self.allocation = x[nests.order], nests, counts, allocation
        self.chosen = np.flatnonzero(chosen[nests.order])  # (Q,)
        self.choices = np.searchsorted(self.chosen, nests.sets)  # (S + 1,)
        self.set_of = spread(np.arange(len(nests.sets) - 1), nests.sets)  # (N,)
        self.K, self.F = x.shape[1], counts.shape[1]

    def values(self, theta: Floats) -> Floats:
        """Turn parameters of the search into values."""
        values = theta.copy()
        values[self.logsums] = np.logaddexp(0.0, theta[self.logsums])
        return values

    def search(self, values: Floats) -> Floats:  # (..., P) -> (..., P)
        """Turn values into parameters of the search."""
        theta = values.copy()
        theta[..., self.logsums] = np.log(np.expm1(values[..., self.logsums]))
        return theta

    @property
    def logsums(self) -> slice:
        """Where the relative log-sums stand among the values."""
        return slice(self.K, self.K + self.F)

    def objective(self, theta: Floats) -> tuple[Floats, Floats]:
        """(P,) -> (S,), (S, P): log-probabilities and scores in the parameters of the search."""
        values = self.values(theta)
        ll, scores = self.evaluate(values)
        scores[:, self.logsums] *= -np.expm1(-values[self.logsums])
        return ll, scores

    def evaluate(self, values: Floats) -> tuple[Floats, Floats]:
        """(P,) -> (S,), (S, P): log-probabilities and scores in coefficients, relative log-sums and shares."""
        # 1. Log-sums of nodes, and utilities of rows, with log alpha where an alternative is shared out.
        b, relative, shares = np.split(values, [self.K, self.K + self.F])
        logsums = np.prod(relative**self.counts, axis=1)
        v = self.x @ b
        if self.allocation is not None:
            pair = self.allocation.pair[self.nests.order]
            v += self.allocation.logs(shares)[pair]
        # 2. Log-probabilities of the chosen rows; those of one choice are summed.
        worth = self.nests.climb(v, logsums)
        log_p = self.nests.descend(worth)[self.chosen]
        ll = log_sum_exp_by_set(log_p, self.choices)
        # 3. Derivatives in utilities and log-sums, by the probability of each row given the choice.
        w = np.zeros(len(v))
        w[self.chosen] = np.exp(log_p - spread(ll, self.choices))
        by_row, by_node = self.nests.slopes(worth, w, len(logsums))
        # 4. The chain rule: v = x . b, log l = counts log r, and log alpha in the shares.
        scores = np.empty((len(ll), len(values)))
        scores[:, : self.K] = weighted_sum_by_set(by_row, self.x, self.nests.sets)
        scores[:, self.logsums] = (by_node * logsums) @ self.counts / relative
        if self.allocation is not None:
            by_pair = np.zeros((len(ll), len(self.allocation.base)))
            np.add.at(by_pair, (self.set_of, pair), by_row)
            scores[:, self.K + self.F :] = by_pair @ self.allocation.slopes(shares)
        return ll, scores


# -- Bounds of log-sums: within which they are searched, and those at an end, which are no estimates -------------------
# Random utilities need 0 < logsum <= 1, and the search stays there unless `bounds` say otherwise. Shares of
# alternatives in nests stay between 0 and 1.
#
# The choices within a nest may hold no surprise, and its log-sum l then goes to 0; or be blind to what differs, and l
# grows without limit. The search ends somewhere, and what it ended with is no estimate. Nor are coefficients b that go
# on with l. To first order, with the Hessian H of the log-likelihood, they follow a change dl by
#
#     db = -H_bb^-1 H_bl dl        with dl = l or -l, by the end, for all such log-sums together,
#
# and those that change nearly in proportion are pushed to infinity or 0 as well.


# Of a log-sum that has no other bounds: there the correlation within a nest is 1 - l^2 > .997, which makes it one
# alternative; or alternatives are chosen blindly.
MIN_LOGSUM, MAX_LOGSUM = 0.05, 100.0
_POSITIVE = 1e-3  # the least log-sum that can be given: utilities are divided by it
_NEAR_END = 1.5  # factor: where the likelihood is flat, the search stops short of an end
_FOLLOWS = 0.5  # change of a coefficient with a log-sum, both relative; 1 where it is proportional


def nest_bounds(
    logsums: Sequence[str], shares: Sequence[str], given: Mapping[str, Bounds] | None
) -> dict[str, tuple[float, float]]:
    """Return the bounds of log-sums and shares; those that are given may narrow them, or widen those of log-sums."""
    bounds = dict.fromkeys(logsums, (MIN_LOGSUM, MAX_LOGSUM if given is None else 1.0)) | dict.fromkeys(
        shares, (0.0, 1.0)
    )
    for name, (low, high) in (given or {}).items():
        if name in logsums:
            bounds[name] = (MIN_LOGSUM if low is None or low <= 0 else low, MAX_LOGSUM if high is None else high)
        if name in shares:
            bounds[name] = (max(low or 0.0, 0.0), 1.0 if high is None else min(high, 1.0))
    for name, (least, most) in bounds.items():
        if not least < most:
            allowed = "above 0" if name in logsums else "from 0 to 1"
            raise ConfigError(f"bounds[{name!r}] leave no value between {least:g} and {most:g}: it must be {allowed}.")
    return bounds


def require_within(
    usual: Mapping[str, tuple[float, float]],
    logsums: Collection[str],
    *,
    fixed: Mapping[str, float],
    start: Mapping[str, float],
) -> None:
    """Refuse a start outside the bounds of the search, and a fixed value that no model can have."""
    widest = {name: (_POSITIVE, np.inf) if name in logsums else (0.0, 1.0) for name in usual}
    for option, values, limits in (("fixed", fixed, widest), ("start", start, usual)):
        for name in limits.keys() & values.keys():
            low, high = limits[name]
            if not low <= values[name] <= high:
                raise ConfigError(f"{option}[{name!r}] = {values[name]:g} is outside its bounds, {low:g} to {high:g}.")


def logsum_warnings(found: Estimates, logsums: Sequence[str]) -> list[str]:
    """Say which log-sums are no estimates, and which are no log-sums of random utilities."""
    problems: dict[str, list[str]] = {}
    for name in logsums:
        value = float(found.values[found.position(name)])
        if name in found.fixed:
            continue
        if name in found.unbounded and is_at_search_limit(value):
            problem = "without limit, as alternatives are chosen as if they were "
            problem += "one" if value < 1 else "all the same, however they differ"
        elif name in found.at_bound and value == 1:
            problem = "at the bound of 1, where a nest makes no difference (bounds=None would free it)"
        elif value > 1:
            problem = "above 1: no random utilities lie behind the model"
        else:
            continue
        problems.setdefault(problem, []).append(name)
    return [f"{', '.join(names)}: {problem}; try other nests" for problem, names in problems.items()]


def is_at_search_limit(logsum: float) -> bool:
    """Tell whether a log-sum runs as far as it may."""
    return not _NEAR_END * MIN_LOGSUM < logsum < MAX_LOGSUM / _NEAR_END


def mark_diverging_logsums(found: Estimates, bend: Floats, logsums: Collection[str]) -> Estimates:
    """Say of log-sums at the ends of the search, and of all that goes with them, that they have no finite estimate.

    Parameters
    ----------
    found
        What the search ended with.
    bend
        (K, K) Hessian of the log-likelihood there.
    logsums
        Names of the log-sums whose ends are those of the search, not bounds that somebody gave.
    """
    # 1. The log-sums at an end of the search.
    ended = [k for k, name in enumerate(found.names) if name in logsums and is_at_search_limit(found.values[k])]
    ended = [k for k in ended if found.names[k] not in found.fixed]
    if not ended:
        return found
    # 2. How the other coefficients follow a log-sum that goes on, to first order: db = -H_bb^-1 H_bl dl.
    given = {*found.fixed, *found.at_bound, *(found.names[k] for k in ended)}
    free = [k for k, name in enumerate(found.names) if name not in given]
    onward = found.values[ended] * np.where(found.values[ended] > 1, 1, -1)
    follow = np.linalg.pinv(bend[np.ix_(free, free)]) @ (bend[np.ix_(free, ended)] @ onward)
    # 3. Those that change nearly in proportion go on with it.
    moved = np.abs(follow) > _FOLLOWS * np.abs(found.values[free])
    lost = {found.names[k] for k in (*ended, *np.array(free, int)[moved])}
    return replace(
        found,
        at_bound=tuple(name for name in found.at_bound if name not in lost),
        unbounded=tuple(name for name in found.names if name in lost or name in found.unbounded),
    )
