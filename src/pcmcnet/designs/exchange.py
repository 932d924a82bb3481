"""Coordinate exchange: improve random designs by changing one level, or by swapping two levels, at a time.

All designs are improved in parallel, as arrays (S, T, J, K) of level numbers for S starts, T tasks, J alternatives and
K attributes (Meyer & Nachtsheim, 1995; Huber & Zwerina, 1996, for the swaps):

    1. for each task, compare all designs that differ from the current one in one level of the task, and take the best;
    2. for each pair of tasks, compare all swaps of the levels that one attribute has in two alternatives;
    3. stop when neither changes any design.

Swaps keep the number of times that each level occurs, so that balanced designs stay balanced. Rules that a design has
to follow are penalties on the criterion, which is the logarithm of an error: ``PENALTY`` for each violation. A start
may break rules. The search first removes the violations, since no gain in the criterion outweighs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.designs.attributes import Directions, ProfileSpace
from pcmcnet.designs.information import Criterion, ScoreFunction

Dominated = Literal["allow", "avoid", "place"]

PENALTY = 1e4  # of a violated rule, on the scale of the criterion
REPEAT_PENALTY = 1.0  # of a repeated task, which may be unavoidable
MIN_GAIN = 1e-9  # smaller gains of the criterion are rounding errors
RIDGE = 1e-7  # relative to the mean information about a coefficient: keeps incomplete designs invertible
MAX_PASSES = 40
MAX_PAIRS_PER_TASK = 8  # pairs of tasks whose levels are swapped in a pass, for each task


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeProblem:
    """What is optimised: the size of the design, the scores of its tasks, the criterion, and the rules."""

    space: ProfileSpace
    tasks: int
    alternatives: int
    scores: ScoreFunction
    criterion: Criterion
    balance: bool
    dominated: Dominated
    directions: Directions

    # -- rules: each function returns the number of violations

    def violations(self, levels: Ints) -> Floats:  # (..., J, K) -> (...)
        """Return the violations within tasks: prohibited profiles, equal alternatives, and dominated profiles."""
        total: Floats = self.space.prohibited(levels).sum(axis=-1).astype(np.float64)
        equal = (levels[..., :, None, :] == levels[..., None, :, :]).all(axis=-1)
        total += (equal.sum(axis=(-1, -2)) - self.alternatives) / 2
        if self.dominated == "avoid":
            total += self.directions.dominates(levels).sum(axis=(-1, -2))
        elif self.dominated == "place":
            total += ~has_decoy(self.directions.dominates(levels))
        return total

    def imbalance(self, counts: Ints) -> Floats:  # (..., K, L) -> (...)
        """Return the distance of level counts from the whole numbers next to equal counts."""
        if not self.balance:
            return np.zeros(counts.shape[:-2])
        equal = self.tasks * self.alternatives / self.space.sizes[:, None]
        too_many = np.maximum(counts - np.ceil(equal), 0)
        too_few = np.maximum(np.floor(equal) - counts, 0)
        real = np.arange(counts.shape[-1]) < self.space.sizes[:, None]
        excess: Floats = ((too_many + too_few) * real).sum(axis=(-1, -2))
        return excess

    def task_scores(self, levels: Ints) -> Floats:  # (..., J, K) -> (..., R, J, P)
        """Return the scores of tasks with any leading axes."""
        scores = self.scores(levels.reshape(-1, *levels.shape[-2:]))
        return scores.reshape(*levels.shape[:-2], *scores.shape[1:])

    def counts(self, levels: Ints) -> Ints:  # (..., J, K) -> (..., K, L)
        """Return how often each level of each attribute occurs in tasks."""
        n_levels = int(self.space.sizes.max())
        counts: Ints = (levels[..., None] == np.arange(n_levels)).sum(axis=-3)
        return counts


def has_decoy(dominates: Bools) -> Bools:  # (..., J, J) -> (...)
    """Return True for tasks with an alternative that is dominated by some, but not by all, of the others."""
    n_dominating = dominates.sum(axis=-2)
    found: Bools = ((n_dominating > 0) & (n_dominating < dominates.shape[-1] - 1)).any(axis=-1)
    return found


class ExchangeState:
    """The designs of all starts, with the scores of their tasks, their information and their level counts."""

    def __init__(self, problem: ExchangeProblem, levels: Ints) -> None:
        self.problem = problem
        self.levels = levels  # (S, T, J, K)
        self.active = np.arange(len(levels))  # the designs that may still improve, (A,)
        self.changed = np.zeros(len(levels), dtype=np.bool_)  # in the current pass
        self.weights = np.random.default_rng(0).integers(1, 2**60, problem.alternatives)  # of the keys of tasks
        self.refresh()
        p = self.information.shape[-1]
        mean_information = np.trace(self.information, axis1=-2, axis2=-1).mean() / p
        self.ridge = RIDGE * mean_information * np.eye(p)

    def refresh(self) -> None:
        """Compute everything from the levels, without accumulated rounding errors."""
        self.scores = self.problem.task_scores(self.levels)  # (S, T, R, J, P)
        self.information = (self.scores.swapaxes(-1, -2) @ self.scores).sum(axis=1)  # (S, R, P, P)
        self.counts = self.problem.counts(self.levels).sum(axis=1)  # (S, K, L)
        self.keys = self.keys_of(self.levels)  # (S, T)
        self.broken = self.problem.violations(self.levels)  # (S, T)

    def keys_of(self, levels: Ints) -> Ints:  # (..., J, K) -> (...)
        """Return a number that is equal for tasks with the same alternatives, in any order."""
        profiles = np.zeros(levels.shape[:-1], dtype=np.int64)
        for k, size in enumerate(self.problem.space.sizes):
            profiles = profiles * size + levels[..., k]
        with np.errstate(over="ignore"):
            keys: Ints = (np.sort(profiles, axis=-1) * self.weights).sum(axis=-1)
        return keys

    def try_candidates(self, tasks: Ints, candidates: Ints) -> bool:  # (m,), (A, C, m, J, K)
        """Replace m tasks by the best of C candidates in each active design that this improves.

        The first candidate is the current design. Returns True if a design has changed.
        """
        problem, active = self.problem, self.active
        # 1. The rest of each design: without these tasks.
        before = self.scores[np.ix_(active, tasks)]  # (A, m, R, J, P)
        rest = self.information[active] - (before.swapaxes(-1, -2) @ before).sum(axis=1) + self.ridge
        counts = self.counts[active] - problem.counts(self.levels[np.ix_(active, tasks)]).sum(axis=1)
        others = np.delete(self.keys[active], tasks, axis=1)
        # 2. Violated rules. A candidate that violates more of them than each design does now cannot be the best.
        violated = problem.violations(candidates).sum(axis=-1)
        violated += problem.imbalance(counts[:, None] + problem.counts(candidates).sum(axis=2))
        useful = (violated <= violated[:, :1]).any(axis=0)
        if useful.sum() == 1:
            return False
        candidates, violated = candidates[:, useful], violated[:, useful]
        keys = self.keys_of(candidates)  # (A, C, m)
        repeats = (keys[..., None] == others[:, None, None]).any(axis=-1).sum(axis=-1)
        if len(tasks) == 2:
            repeats = repeats + (keys[..., 0] == keys[..., 1])
        # 3. The criterion of each candidate, with the alternatives of all m tasks as rows.
        scores = problem.task_scores(candidates)  # (A, C, m, R, J, P)
        rows = np.moveaxis(scores, 3, 1)
        values = problem.criterion.with_rows(rest, rows.reshape(*rows.shape[:3], -1, rows.shape[-1]))  # (A, C)
        values = values + PENALTY * violated + REPEAT_PENALTY * repeats
        # 4. Accept the best candidate of each design.
        best = values.argmin(axis=1)
        better = np.flatnonzero(values[np.arange(len(active)), best] < values[:, 0] - MIN_GAIN)
        for a in better:
            s, c = active[a], best[a]
            self.information[s] += (scores[a, c].swapaxes(-1, -2) @ scores[a, c]).sum(axis=0)
            self.information[s] -= (before[a].swapaxes(-1, -2) @ before[a]).sum(axis=0)
            self.counts[s] = counts[a] + problem.counts(candidates[a, c]).sum(axis=0)
            self.levels[s, tasks], self.scores[s, tasks] = candidates[a, c], scores[a, c]
            self.keys[s, tasks] = keys[a, c]
        self.changed[active[better]] = True
        return bool(better.size)


def random_designs(problem: ExchangeProblem, starts: int, rng: np.random.Generator) -> Ints:  # -> (S, T, J, K)
    """Return random designs in which the levels of each attribute occur equally often, up to one."""
    n = problem.tasks * problem.alternatives
    columns = []
    for size in problem.space.sizes:
        order = np.argsort(rng.random((starts, size)), axis=1)  # the levels that occur once more are random, too
        filled = order[:, np.arange(n) % size]
        columns.append(rng.permuted(filled, axis=1))
    return np.stack(columns, axis=-1).reshape(starts, problem.tasks, problem.alternatives, -1)


def improve(problem: ExchangeProblem, levels: Ints, rng: np.random.Generator) -> tuple[Ints, Floats, Floats]:
    """Improve designs (S, T, J, K) until no exchange and no swap helps.

    Returns the designs, their criteria (S,) and the number of rules that each still violates (S,).
    """
    state = ExchangeState(problem, levels.copy())
    for _ in range(MAX_PASSES):
        state.changed[:] = False
        for task in rng.permutation(problem.tasks):
            here = np.array([task])
            while state.try_candidates(here, _level_changes(state.levels[state.active, task], problem.space.sizes)):
                pass
        for pair in _task_pairs(problem.tasks, rng):
            state.try_candidates(pair, _level_swaps(state.levels[np.ix_(state.active, pair)]))
        state.refresh()
        state.active = np.flatnonzero(state.changed)  # the others have reached an optimum
        if not state.active.size:
            break
    values = problem.criterion.value(state.information)
    broken = state.broken.sum(axis=1) + problem.imbalance(state.counts)
    return state.levels, values, broken


def _level_changes(task: Ints, sizes: Ints) -> Ints:  # (S, J, K) -> (S, C, 1, J, K)
    """Return the task, followed by all tasks that differ from it in one level."""
    S, J, K = task.shape
    moves = [(j, k, step) for j in range(J) for k in range(K) for step in range(1, sizes[k])]
    candidates = np.repeat(task[:, None], 1 + len(moves), axis=1)
    for c, (j, k, step) in enumerate(moves, start=1):
        candidates[:, c, j, k] = (task[:, j, k] + step) % sizes[k]
    return candidates.reshape(S, -1, 1, J, K)


def _level_swaps(tasks: Ints) -> Ints:  # (S, 2, J, K) -> (S, C, 2, J, K)
    """Return two tasks, followed by all pairs after a swap of the levels of one attribute in two alternatives.

    The two alternatives may also be in the first task.
    """
    _, _, J, K = tasks.shape
    across = [((0, i), (1, j), k) for i in range(J) for j in range(J) for k in range(K)]
    within = [((0, i), (0, j), k) for i in range(J) for j in range(i) for k in range(K)]
    moves = across + within
    candidates = np.repeat(tasks[:, None], 1 + len(moves), axis=1)
    for c, ((t, i), (u, j), k) in enumerate(moves, start=1):
        candidates[:, c, t, i, k] = tasks[:, u, j, k]
        candidates[:, c, u, j, k] = tasks[:, t, i, k]
    return candidates


def _task_pairs(tasks: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Yield pairs of tasks in random order: all pairs of a small design, a sample of those of a large one."""
    first, second = np.triu_indices(tasks, 1)
    order = rng.permutation(len(first))[: MAX_PAIRS_PER_TASK * tasks]
    for number in order:
        pair = np.array([first[number], second[number]])
        yield pair if rng.random() < 0.5 else pair[::-1]


def split_into_versions(
    space: ProfileSpace, levels: Ints, versions: int, rng: np.random.Generator
) -> Ints:  # (T, J, K) -> (T,)
    """Return the version of each task, such that the levels occur about equally often in each version.

    Tasks of two versions are swapped as long as the squared deviations of the level counts fall.
    """
    n_levels = int(space.sizes.max())
    counts = (levels[..., None] == np.arange(n_levels)).sum(axis=1).reshape(len(levels), -1)  # (T, K L)
    version = rng.permutation(np.arange(len(levels)) % versions)
    mean = counts.sum(axis=0) / versions
    improved = versions > 1
    while improved:
        improved = False
        for t in range(len(levels)):
            # the change of the cost if task t changes places with each other task u
            totals = np.stack([counts[version == v].sum(axis=0) for v in range(versions)]) - mean
            moved = counts - counts[t]  # what the version of t gains
            change = 2 * (moved * (totals[version[t]] - totals[version]) + moved**2).sum(axis=1)
            change[version == version[t]] = 0
            if change.min() < -MIN_GAIN:
                u = int(change.argmin())
                version[[t, u]] = version[[u, t]]
                improved = True
    return version
