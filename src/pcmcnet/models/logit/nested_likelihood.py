"""Nested logits on ragged choice sets: log-probabilities and scores for a tree of nests.

A node g of the tree with children c and log-sum parameter l_g has the following inclusive value and probabilities:

    I_g = l_g log sum_c exp(I_c / l_g)        log P(c | g) = (I_c - I_g) / l_g

The inclusive value of an alternative is its utility. The root has l = 1, and log P(i) is the sum along the path from
the root to i. A node without available alternatives is left out. Let w_c be 1 for the nodes c on the chosen path and 0
elsewhere. The chain rule is applied from the root down. Let A_g be the derivative of log P with respect to I_g through
the nodes above g, which is 0 at the root:

    B_g = A_g - w_g / l_g                     A_c = w_c / l_g + P(c | g) B_g
    d log P / d l_g = -sum_c w_c log P(c | g) / l_g + B_g (I_g - sum_c P(c | g) I_c) / l_g

The score with respect to the coefficients b of v = x . b is sum_i A_i x_i. If several paths lead to the chosen
alternative, as in the cross-nested logit, w contains the probabilities of these paths given the choice.

A log-sum parameter is the product of the relative parameters r along the path: log l = C log r, where C[m, f] counts
the occurrences of r_f on the path from the root to node m. The bounds 0 < r <= 1 keep each l at or below the l of its
parent, as random utility theory requires.

The search parameter is t with r = log(1 + exp t), which is about exp t for small r and about t for large r, where
coefficients grow in proportion to r. Rows are sorted by set and path, so that the children of a node are adjacent.
Shapes: N rows, S sets, M nodes, F relative log-sums, K coefficients, P parameters.
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

_MIN_SHARE = 1e-10  # of an alternative in a nest; smaller shares have no effect


class _Level(NamedTuple):
    """The nodes at one depth of the tree in all choice sets."""

    offsets: Ints  # (T + 1,) first child of each node
    node: Ints  # (T,) index in the tree; -1 for a row whose path ends above this depth
    set_of: Ints  # (T,) choice set of each node


class _InclusiveValues(NamedTuple):
    """Inclusive values and conditional probabilities of one level."""

    lam: Floats  # (T,) log-sum parameters l
    value: Floats  # (T,) inclusive values I
    log_conditional: Floats  # log P(child | node), for each child
    child_value: Floats  # inclusive values of the children


class NestedRows(NamedTuple):
    """Rows sorted by choice set and path, with the nodes of each level."""

    order: Ints  # (N,) rows in sorted order
    sets: Ints  # (S + 1,) first row of each choice set
    levels: tuple[_Level, ...]  # the deepest first; the last one has the root of each choice set

    @classmethod
    def find(cls, paths: Ints, offsets: Ints) -> NestedRows:  # (N,) or (N, depth), (S + 1,)
        """Sort rows by choice set and path. A path lists nodes from the root down, padded with -1."""
        # 1. Sort by set, then by the nodes from the top down, so that the children of a node are adjacent.
        paths = paths.reshape(len(paths), -1)
        set_of = spread(np.arange(len(offsets) - 1), offsets)
        alone = paths.max(initial=0) + 1 + np.arange(len(paths))  # below the end of its path a row is its own node
        keys = np.column_stack([set_of, np.where(paths < 0, alone[:, None], paths)])
        order = np.lexsort(keys.T[::-1])
        keys, paths = keys[order], paths[order]
        # 2. A new node begins if its set, its own key or that of a node above it differs from the previous row. From
        #    the leaves up, record the first child of each node in the level below.
        changes = np.cumsum(keys[1:] != keys[:-1], axis=1) > 0  # some key so far differs from the previous row
        levels, below = [], np.arange(len(keys) + 1)
        for depth in reversed(range(keys.shape[1])):
            begins = np.flatnonzero(np.append(True, changes[:, depth]))
            node = paths[begins, depth - 1] if depth else np.full(len(begins), -1)
            cuts = np.append(begins, len(keys))
            levels.append(_Level(np.searchsorted(below, cuts), node, keys[begins, 0]))
            below = cuts
        return cls(order, offsets, tuple(levels))

    def has_two_children(self, n_nodes: int) -> Bools:
        """Return True for each node with two or more children in some choice set."""
        has_two = np.zeros(n_nodes + 1, bool)
        for offsets, node, _ in self.levels:
            has_two[node[np.diff(offsets) > 1]] = True
        return has_two[:-1]

    def log_probabilities(self, v: Floats, logsums: Floats) -> Floats:  # (N,), (M,) -> (N,)
        """Return the log-probabilities of the rows in their original order, at utilities v."""
        out = np.empty_like(v)
        out[self.order] = self.path_log_probabilities(self.values_by_level(v[self.order], logsums))
        return out

    def inclusive_values(self, v: Floats, logsums: Floats) -> Floats:  # (N,), (M,) -> (S,)
        """Return the inclusive value of each choice set, which is the inclusive value of the root."""
        return self.values_by_level(v[self.order], logsums)[-1].value

    def values_by_level(self, v: Floats, logsums: Floats) -> list[_InclusiveValues]:  # (N,), (M,)
        """Return the inclusive values of each level, with the deepest level first, for sorted utilities v."""
        of_node, value, levels = np.append(logsums, 1.0), v, []
        for offsets, node, _ in self.levels:
            lam = of_node[node]
            scaled = value / spread(lam, offsets)
            total = log_sum_exp_by_set(scaled, offsets)
            levels.append(_InclusiveValues(lam, lam * total, scaled - spread(total, offsets), value))
            value = levels[-1].value
        return levels

    def path_log_probabilities(self, values: list[_InclusiveValues]) -> Floats:  # -> (N,)
        """Return the sum of conditional log-probabilities from the root to each row, in sorted order."""
        log_p = np.zeros(len(values[-1].value))
        for (offsets, _, _), at in zip(reversed(self.levels), reversed(values), strict=True):
            log_p = spread(log_p, offsets) + at.log_conditional
        return log_p

    def slopes(self, values: list[_InclusiveValues], w: Floats, n_nodes: int) -> tuple[Floats, Floats]:
        """Return derivatives of log P with respect to v (N,) and log-sums (S, M), given weights (N,) of chosen rows."""
        # 1. From the rows up: the weight of the chosen path in each node.
        weights = [w]
        for offsets, _, _ in self.levels:
            weights.append(sum_by_set(weights[-1], offsets))
        # 2. From the root down: A_g of the nodes, and the derivatives in their log-sums (see the module header).
        above = np.zeros(len(weights[-1]))
        by_node = np.zeros((len(above), n_nodes + 1))
        for level in reversed(range(len(values))):
            (offsets, node, set_of), at = self.levels[level], values[level]
            share = np.exp(at.log_conditional)
            above = above - weights[level + 1] / at.lam  # B_g
            surprise = -sum_by_set(weights[level] * at.log_conditional, offsets)
            mean_value = sum_by_set(share * at.child_value, offsets)
            by_node[set_of, node] = (surprise + above * (at.value - mean_value)) / at.lam
            above = weights[level] / spread(at.lam, offsets) + share * spread(above, offsets)  # A_c of the children
        return above, by_node[:, :-1]


class Allocation(NamedTuple):
    """Allocation of alternatives to nests, where log alpha = base + own log s + rest log(1 - s) for each pair.

    An alternative in n nests has n - 1 parameters s in [0, 1]: the first nest has the share s_1, the second nest has
    the share s_2 of the remainder, and the last nest has the rest.
    """

    pair: Ints  # (N,) the pair of alternative and nest of each row
    base: Floats  # (A,) log alpha of pairs with a given share, 0 for the others
    own: Floats  # (A, G) 0 or 1
    rest: Floats  # (A, G) 0 or 1

    def logs(self, shares: Floats) -> Floats:  # (G,) -> (A,)
        """Return log alpha for each pair of alternative and nest."""
        s = np.clip(shares, _MIN_SHARE, 1 - _MIN_SHARE)
        logs: Floats = self.base + self.own @ np.log(s) + self.rest @ np.log1p(-s)
        return logs

    def slopes(self, shares: Floats) -> Floats:  # (G,) -> (A, G)
        """Return the derivatives of log alpha with respect to the shares."""
        s = np.clip(shares, _MIN_SHARE, 1 - _MIN_SHARE)
        return self.own / s - self.rest / (1 - s)


class NestedLikelihood:
    """Likelihood of a nested logit, and scores with respect to coefficients, relative log-sums and shares.

    Parameters
    ----------
    x
        Design matrix (N, K) of the utility.
    nests
        Positions of the rows in the tree.
    chosen
        True for the chosen row of each set (N,), or for all rows of a chosen alternative that is in several nests.
    counts
        Number of times (M, F) that each relative log-sum occurs on the path from the root to each node.
    allocation
        Allocation of alternatives that are in several nests. By default, each alternative is in one nest.
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
        """Convert search parameters to values of coefficients, log-sums and shares."""
        values = theta.copy()
        values[self.logsums] = np.logaddexp(0.0, theta[self.logsums])
        return values

    def search(self, values: Floats) -> Floats:  # (..., P) -> (..., P)
        """Convert values to search parameters."""
        theta = values.copy()
        theta[..., self.logsums] = np.log(np.expm1(values[..., self.logsums]))
        return theta

    @property
    def logsums(self) -> slice:
        """Slice of the relative log-sums among the values."""
        return slice(self.K, self.K + self.F)

    def objective(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return log-probabilities (S,) and scores (S, P) with respect to the search parameters (P,)."""
        values = self.values(theta)
        ll, scores = self.evaluate(values)
        scores[:, self.logsums] *= -np.expm1(-values[self.logsums])
        return ll, scores

    def evaluate(self, values: Floats) -> tuple[Floats, Floats]:
        """Return log-probabilities (S,) and scores (S, P) with respect to the values (P,)."""
        # 1. Log-sums of nodes, and utilities of rows, plus log alpha in the cross-nested logit.
        b, relative, shares = np.split(values, [self.K, self.K + self.F])
        logsums = np.prod(relative**self.counts, axis=1)
        v = self.x @ b
        if self.allocation is not None:
            pair = self.allocation.pair[self.nests.order]
            v += self.allocation.logs(shares)[pair]
        # 2. Log-probabilities of the chosen rows; the probabilities of rows of one alternative are summed.
        levels = self.nests.values_by_level(v, logsums)
        log_p = self.nests.path_log_probabilities(levels)[self.chosen]
        ll = log_sum_exp_by_set(log_p, self.choices)
        # 3. Derivatives in utilities and log-sums, weighted by the probability of each row given the choice.
        w = np.zeros(len(v))
        w[self.chosen] = np.exp(log_p - spread(ll, self.choices))
        by_row, by_node = self.nests.slopes(levels, w, len(logsums))
        # 4. The chain rule: v = x . b, log l = counts log r, and log alpha in the shares.
        scores = np.empty((len(ll), len(values)))
        scores[:, : self.K] = weighted_sum_by_set(by_row, self.x, self.nests.sets)
        scores[:, self.logsums] = (by_node * logsums) @ self.counts / relative
        if self.allocation is not None:
            by_pair = np.zeros((len(ll), len(self.allocation.base)))
            np.add.at(by_pair, (self.set_of, pair), by_row)
            scores[:, self.K + self.F :] = by_pair @ self.allocation.slopes(shares)
        return ll, scores


# -- Bounds of log-sums, and log-sums without a finite estimate --------------------------------------------------------
# Random utility theory needs 0 < logsum <= 1, and the search stays there unless `bounds` says otherwise. Shares of
# alternatives in nests stay between 0 and 1.
#
# If the choices within a nest are deterministic, the likelihood rises as its log-sum l goes to 0. If they do not depend
# on the utilities, it rises as l goes to infinity. The search then stops at a limit, and the value there is not an
# estimate. Nor are the coefficients b that diverge with l. To first order, with the Hessian H of the log-likelihood,
# they follow a change dl by
#
#     db = -H_bb^-1 H_bl dl        with dl = -l at the lower limit and l at the upper one, for all such log-sums,
#
# and those that change nearly in proportion diverge, too.


# Limits of a log-sum without other bounds. At the lower one the correlation within a nest is 1 - l^2 > .997: its
# alternatives are perfect substitutes. At the upper one choices within the nest hardly depend on the utilities.
MIN_LOGSUM, MAX_LOGSUM = 0.05, 100.0
_MIN_FIXED_LOGSUM = 1e-3  # least log-sum that can be fixed: utilities are divided by it
_NEAR_LIMIT = 1.5  # factor: with a flat likelihood the search stops before a limit
_PROPORTIONAL = 0.5  # relative change of a coefficient per relative change of a log-sum; 1 if proportional


def nest_bounds(
    logsums: Sequence[str], shares: Sequence[str], given: Mapping[str, Bounds] | None
) -> dict[str, tuple[float, float]]:
    """Return the bounds of log-sums and shares. ``given`` may narrow the bounds, or widen those of log-sums."""
    bounds = dict.fromkeys(logsums, (MIN_LOGSUM, MAX_LOGSUM if given is None else 1.0))
    bounds |= dict.fromkeys(shares, (0.0, 1.0))
    for name, (low, high) in (given or {}).items():
        if name in logsums:
            bounds[name] = (MIN_LOGSUM if low is None or low <= 0 else low, MAX_LOGSUM if high is None else high)
        if name in shares:
            bounds[name] = (max(low or 0.0, 0.0), 1.0 if high is None else min(high, 1.0))
    for name, (least, most) in bounds.items():
        if not least < most:
            allowed = "above 0" if name in logsums else "from 0 to 1"
            raise ConfigError(f"bounds[{name!r}] allow no value between {least:g} and {most:g}: it must be {allowed}.")
    return bounds


def require_within(
    usual: Mapping[str, tuple[float, float]],
    logsums: Collection[str],
    *,
    fixed: Mapping[str, float],
    start: Mapping[str, float],
) -> None:
    """Raise ConfigError if a starting value is outside the bounds of the search, or a fixed value is not feasible."""
    widest = {name: (_MIN_FIXED_LOGSUM, np.inf) if name in logsums else (0.0, 1.0) for name in usual}
    for option, values, limits in (("fixed", fixed, widest), ("start", start, usual)):
        for name in limits.keys() & values.keys():
            low, high = limits[name]
            if not low <= values[name] <= high:
                raise ConfigError(f"{option}[{name!r}] = {values[name]:g} is outside its bounds, {low:g} to {high:g}.")


def logsum_warnings(estimates: Estimates, logsums: Sequence[str]) -> list[str]:
    """Return warnings about log-sums without an estimate, or inconsistent with random utility maximisation."""
    problems: dict[str, list[str]] = {}
    for name in logsums:
        value = float(estimates.values[estimates.position(name)])
        if name in estimates.fixed:
            continue
        if name in estimates.unbounded and is_at_search_limit(value):
            problem = "no finite estimate, because "
            problem += (
                "the alternatives of the nest are perfect substitutes"
                if value < 1
                else "choices within the nest do not depend on the utilities"
            )
        elif name in estimates.at_bound and value == 1:
            problem = "on the boundary of 1, where the nest has no effect (bounds=None removes the bound)"
        elif value > 1:
            problem = "above 1, which is not consistent with random utility maximisation"
        else:
            continue
        problems.setdefault(problem, []).append(name)
    return [f"{', '.join(names)}: {problem}; try other nests" for problem, names in problems.items()]


def is_at_search_limit(logsum: float) -> bool:
    """Return True if a log-sum is near a limit of the search."""
    return not _NEAR_LIMIT * MIN_LOGSUM < logsum < MAX_LOGSUM / _NEAR_LIMIT


def mark_diverging_logsums(estimates: Estimates, hessian: Floats, logsums: Collection[str]) -> Estimates:
    """Mark log-sums at a limit of the search, and coefficients that diverge with them, as having no finite estimate.

    Parameters
    ----------
    estimates
        Estimates at the end of the search.
    hessian
        Hessian (K, K) of the log-likelihood at these estimates.
    logsums
        Names of the log-sums that have the default limits of the search, not bounds given by the user.
    """
    # 1. The log-sums at a limit of the search.
    names, values = estimates.names, estimates.values
    at_limit = [k for k, name in enumerate(names) if name in logsums and is_at_search_limit(values[k])]
    at_limit = [k for k in at_limit if names[k] not in estimates.fixed]
    if not at_limit:
        return estimates
    # 2. How the other coefficients follow a diverging log-sum, to first order: db = -H_bb^-1 H_bl dl.
    excluded = {*estimates.fixed, *estimates.at_bound, *(names[k] for k in at_limit)}
    free = [k for k, name in enumerate(names) if name not in excluded]
    change = values[at_limit] * np.where(values[at_limit] > 1, 1, -1)
    follow = np.linalg.pinv(hessian[np.ix_(free, free)]) @ (hessian[np.ix_(free, at_limit)] @ change)
    # 3. Coefficients that change nearly in proportion diverge with it.
    moved = np.abs(follow) > _PROPORTIONAL * np.abs(values[free])
    diverging = {names[k] for k in (*at_limit, *np.array(free, int)[moved])}
    return replace(
        estimates,
        at_bound=tuple(name for name in estimates.at_bound if name not in diverging),
        unbounded=tuple(name for name in names if name in diverging or name in estimates.unbounded),
    )
