"""The likelihood of a latent class logit, EM steps, and the search for its maximum."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import FLAT, eigh, map_in_threads, maximise, sizes
from pcmcnet.models.logit.parameter_bounds import Parameters

log = logging.getLogger("pcmcnet")

# -- Mixture likelihood ------------------------------------------------------------------------------------------------
# A mixture of conditional logits: log-likelihood, scores, Hessian, and steps between EM's and Newton's.
#
# Class c has coefficients b_c and, for an individual with numbers h (the first of them 1), the prior share pi_c =
# exp(g_c . h) / sum_d exp(g_d . h), with g_1 = 0. A person is of one class in all choice sets, so the choices of a
# person have probability sum_c pi_c P_c, where P_c is the product of their probabilities in class c. With r_c the share
# of class c given these choices, and s_c the score of log(pi_c P_c) in all parameters,
#
#     score    s = sum_c r_c s_c
#     Hessian  sum_c r_c (H_c + s_c s_c') - s s'                        (Louis, 1982)
#
# where s_c may leave out what all classes have in common, here -sum_d pi_d h of the shares.
#
# EM raises sum_c r_c log(pi_c P_c) with r held fixed. One of Newton's steps does: its gradient is that of the
# log-likelihood, so the step, shortened where it overshoots, raises the log-likelihood itself (Lange, 1995). But it
# takes the information of the M-step for that of the log-likelihood, which is smaller by what is lost as classes are
# unknown (`_missing`), and is slow where most is lost. A step in between counts that loss, down to a part `damping` of
# EM's information; the better such steps do, the smaller it becomes.
#
# A weak normal prior keeps the coefficients finite: in a mixture some class can nearly always be made to choose with
# certainty. Each coefficient of a column of spread 1 has mean 0 and the precision `strength`; so has the difference
# between two classes in a coefficient of their shares, so that it does not matter which class is the first. With the
# precision A (P, P) the prior enters as one more person, of weight 1 and log-probability -x' A x / 2.
#
# Shapes: S sets, R of them with a choice to make, N persons, C classes, K coefficients of a class, G of its share;
# parameters (P,) are the b_c, then the g_c of all classes but the first.

_TRIES = 30
_PACE = 4  # by which steps are damped more after one that brought less than expected, and less after others
_PERSONS = 2**11  # that a thread takes at a time


class MixturePoint(NamedTuple):
    """The mixture at some parameters."""

    x: Floats  # (P,)
    b: Floats  # (C, K)
    log_pi: Floats  # (N, C)
    log_p: Floats  # (N,) of the choices
    r: Floats  # (N, C) shares of the classes given the choices
    inside: list[tuple[Floats, Floats]]  # of each class: probabilities of the rows, zbar (R, K)
    value: float  # what is to be maximised: the weighted log-likelihood and the log of the prior


@dataclass(frozen=True)
class LatentClassLikelihood:
    """The choice sets, who chooses, and the number of classes."""

    sets: LogitLikelihood
    persons: Ints  # (S,) number of the person who chooses, from 0
    who: Floats  # (N, G), the first column 1
    weights: Floats  # (N,)
    classes: int
    strength: float  # precision of the prior on coefficients of columns of spread 1
    limits: Parameters | None = None  # what is fixed or bounded; starts are NaN where any will do
    of: LatentClassLikelihood | None = (
        None  # the whole, for a sample of it: columns that do not vary in a sample have its spread
    )

    @cached_property
    def spread(self) -> Floats:
        """(P,) size of what each parameter multiplies; 1 for constants and categories of individuals."""
        if self.of:
            return self.of.spread
        return np.concatenate([np.tile(self.sets.spread, self.classes), np.tile(self._who_spread, self.classes - 1)])

    @cached_property
    def _who_spread(self) -> Floats:
        if self.of:
            return self.of._who_spread
        deviation = self.who.std(axis=0)
        marks = ((self.who == 0) | (self.who == 1)).all(axis=0)
        return np.where(marks | (deviation == 0), 1.0, deviation)

    @cached_property
    def prior(self) -> Floats:
        """(P, P) precision of the prior; the constant of a share has none."""
        C, out = self.classes, np.diag(self.spread**2)
        of_share = np.diag(self._who_spread**2)
        of_share[0, 0] = 0.0
        tail = slice(C * self.sets.n_columns, None)
        out[tail, tail] = np.kron(2 * (np.eye(C) - 1 / C)[1:, 1:], of_share)
        return self.strength * out

    @property
    def all_weights(self) -> Floats:
        """(N + 1,) weights of the persons and of the prior."""
        return np.append(self.weights, 1.0)

    @property
    def n_parameters(self) -> int:
        """Number of parameters."""
        return len(self.spread)

    @cached_property
    def within(self) -> Parameters:
        """The parameters, some of which may be fixed or bounded."""
        return Parameters.free(np.full(self.n_parameters, np.nan)) if self.limits is None else self.limits

    def begin(self, x: Floats) -> Floats:  # (P,) -> (P,)
        """Move a start to where the options want it."""
        return self.within.inside(np.where(np.isnan(self.within.start), x, self.within.start))

    @cached_property
    def _of_persons(self) -> Any:
        """(N, R) sparse: 1 where a set with a choice to make is a person's."""
        from scipy.sparse import csr_array

        chooser = self.persons[self.sets.sets]
        return csr_array((np.ones(len(chooser)), (chooser, np.arange(len(chooser)))), (len(self.who), len(chooser)))

    def _by_person(self, values: Floats) -> Floats:  # (R, A) -> (N, A)
        """Sum over each person's sets."""
        sums: Floats = self._of_persons @ values
        return sums

    def _of_sets(self, r: Floats) -> Floats:  # (N, C) -> (R, C)
        """Return the weight that each set has in each class."""
        return (self.weights[:, None] * r)[self.persons[self.sets.sets]]

    def split(self, x: Floats) -> tuple[Floats, Floats]:
        """(P,) -> coefficients (C, K) and shares (C, G), the first of which is 0."""
        K, G, C = self.sets.n_columns, self.who.shape[1], self.classes
        return x[: C * K].reshape(C, K), np.concatenate([np.zeros((1, G)), x[C * K :].reshape(C - 1, G)])

    def join(self, b: Floats, g: Floats) -> Floats:
        """Undo ``split``; shares are made relative to the first class."""
        return np.concatenate([b.ravel(), (g[1:] - g[:1]).ravel()])

    def at(self, x: Floats) -> MixturePoint:
        """Evaluate everything that the steps below need."""
        # 1. Prior shares, and the logit of every class.
        b, g = self.split(x)
        log_pi = log_shares(self.who, g)
        found = [self.sets.evaluate(row) for row in b]
        # 2. log(pi_c P_c) of each person; their sum over classes, and the shares of classes given the choices.
        joint = log_pi + self._by_person(np.column_stack([ll for ll, _, _ in found]))
        log_p, r = posterior(joint)
        value = float(self.weights @ log_p - x @ self.prior @ x / 2)
        return MixturePoint(x, b, log_pi, log_p, r, [(p, mean) for _, p, mean in found], value)

    def objective(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the log-probabilities of the choices and of the prior (N + 1,), and their gradients (N + 1, P)."""
        at, pull = self.at(x), -(self.prior @ x)
        return np.append(at.log_p, pull @ x / 2), np.vstack([self._scores(at), pull])

    def _scores(self, at: MixturePoint) -> Floats:
        """Return the gradients of the log-probabilities of the choices (N, P)."""
        each = [at.r[:, c : c + 1] * self._by_person(-mean) for c, (_, mean) in enumerate(at.inside)]
        return np.concatenate([*each, _outer((at.r - np.exp(at.log_pi))[:, 1:], self.who)], axis=1)

    def hessian(self, x: Floats) -> Floats:
        """Return the Hessian (P, P) of what is to be maximised; add ``prior`` for that of the log-likelihood alone."""
        at = self.at(x)
        out = self._missing(at)
        for place, bend in zip(*self._bends(at, at.r), strict=True):
            out[place, place] -= bend
        return out

    def _missing(self, at: MixturePoint) -> Floats:
        """Return the information (P, P) that is lost as classes are unknown."""
        K, G, C = self.sets.n_columns, self.who.shape[1], self.classes
        slopes = [np.hstack([self._by_person(-mean), self.who]) for _, mean in at.inside]
        order = np.arange(C * (K + G)).reshape(C, K + G)
        order = np.concatenate([order[:, :K].ravel(), order[1:, K:].ravel()])
        out: Floats = covariance(slopes, at.r, self.weights)[np.ix_(order, order)]
        return out

    def _bends(self, at: MixturePoint, r: Floats) -> tuple[list[slice], list[Floats]]:
        """Return where each class's and the shares' parameters stand, and their information with r held fixed."""
        K, C = self.sets.n_columns, self.classes
        places = [slice(c * K, (c + 1) * K) for c in range(C)] + [slice(C * K, None)]
        weights = self._of_sets(r)
        blocks = [-self.sets.hessian(*at.inside[c], weights[:, c]) for c in range(C)]
        blocks.append(covariance([self.who] * (C - 1), np.exp(at.log_pi[:, 1:]), self.weights))
        return places, [block + self.prior[place, place] for place, block in zip(places, blocks, strict=True)]

    def _gradient(self, at: MixturePoint, r: Floats) -> Floats:
        """Return the gradient (P,) of what the M-step maximises; of the value itself, where r is that of the point."""
        weights = self._of_sets(r)
        slopes = [-(weights[:, c] @ mean) for c, (_, mean) in enumerate(at.inside)]
        slopes.append((self.weights[:, None] * (r - np.exp(at.log_pi))[:, 1:]).T @ self.who)
        gradient: Floats = np.concatenate([np.ravel(slope) for slope in slopes]) - self.prior @ at.x
        return gradient

    def direction(self, at: MixturePoint, r: Floats) -> Floats:
        """Return Newton's step (P,) of the M-step, each class and the shares by themselves, given the shares r."""
        roots = self._roots(*self._bends(at, r))
        return np.asarray(roots @ (roots.T @ self._gradient(at, r)))

    def _roots(self, places: list[slice], bends: list[Floats]) -> Floats:
        """Return W (P, P) with W W' the inverse of the blocks of information, eigenvalues floored as in ``sizes``.

        Rows of parameters that are fixed are 0, so that no step moves them.
        """
        out = np.zeros((self.n_parameters, self.n_parameters))
        for place, bend in zip(places, bends, strict=True):
            free = np.flatnonzero(~self.within.fixed[place])
            at, scale = np.arange(self.n_parameters)[place][free], 1 / self.spread[place][free]
            values, vectors = eigh(bend[np.ix_(free, free)] * np.outer(scale, scale))
            out[np.ix_(at, at)] = scale[:, None] * vectors / np.sqrt(sizes(values))
        return out

    def climb(self, at: MixturePoint, damping: float) -> tuple[MixturePoint, float]:
        """Take a step between those of EM (damping 1) and Newton (0); returns the damping of the next one, too.

        In units of EM's information the Hessian is lost - 1, where EM takes it for -1. No step is taken where none
        raises the value.
        """
        # 1. In units of EM's information (coordinates W^-1 dx), the axes of what is lost: along each, the likelihood
        #    bends by left = 1 - lost.
        roots = self._roots(*self._bends(at, at.r))
        lost, vectors = eigh(roots.T @ self._missing(at) @ roots)
        left, axes = 1 - lost, roots @ vectors
        size, slope = np.maximum(np.abs(left), FLAT), axes.T @ self._gradient(at, at.r)
        # 2. Divide the slope along each axis by its bend, at least ``damping``. A step that gains half of what the
        #    quadratic model expects makes the next one bolder, any other one more careful.
        for _ in range(_TRIES):
            step = slope / np.maximum(size, damping)
            there = self.at(self.within.inside(at.x + axes @ step))
            gain, expected = there.value - at.value, slope @ step - step @ (left * step) / 2
            if gain > expected / 2:
                return there, damping / _PACE
            damping = _PACE * max(damping, float(size.min(initial=1.0)))  # less makes no difference
            if gain >= 0:
                return there, damping
        return at, damping


def log_shares(who: Floats, g: Floats) -> Floats:  # (N, G), (C, G) -> (N, C)
    """Return log pi."""
    v = who @ g.T
    out: Floats = v - np.logaddexp.reduce(v, axis=1, keepdims=True)
    return out


def posterior(joint: Floats) -> tuple[Floats, Floats]:  # (N, C) -> (N,), (N, C)
    """Return log sum_c exp(joint) and the share that each class has in the sum."""
    total = np.logaddexp.reduce(joint, axis=1)
    return total, np.exp(joint - total[:, None])


def covariance(slopes: list[Floats], shares: Floats, weights: Floats) -> Floats:  # C x (N, A), (N, C), (N,)
    """Return sum_n w_n sum_cd p_c (1[c = d] - p_d) u_c u_d', the block (c, d) of (C A, C A); p may sum to less than 1.

    It is the Hessian of sum_n w_n log sum_c exp(u_c . x_c), p the shares in the sum.
    """
    # Parts of the persons, each a product of matrices by blocks of two classes; the matrix is symmetric.
    C, A = len(slopes), slopes[0].shape[1] if slopes else 0

    def sum_over_processes(rows: slice) -> Floats:
        out = np.empty((C, A, C, A))
        for c in range(C):
            for d in range(c + 1):
                mass = weights[rows] * shares[rows, c] * ((c == d) - shares[rows, d])
                out[c, :, d, :] = (slopes[c][rows].T * mass) @ slopes[d][rows]
                out[d, :, c, :] = out[c, :, d, :].T
        return out.reshape(C * A, C * A)

    parts = [slice(at, at + _PERSONS) for at in range(0, len(weights), _PERSONS)]
    return sum(map_in_threads(sum_over_processes, parts), np.zeros((C * A, C * A)))


def _outer(a: Floats, b: Floats) -> Floats:  # (N, A), (N, B) -> (N, A B)
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


# -- Steps of EM for a mixture of logits, from a start that divides classes at random ----------------------------------

_GAIN = 1e-7  # of the log-likelihood, relative to its size, that a step must bring for another one

Start = Callable[[], MixturePoint]
Run = tuple[MixturePoint, list[float]]  # where it has come to, and the values climbed


def split_largest_class(
    mixture: LatentClassLikelihood, b: Floats, g: Floats, rng: np.random.Generator
) -> MixturePoint:  # (B, K), (B, G), B <= C
    """Begin with B classes, the first of them divided in C - B + 1: what random shares of its sets would form."""
    # 1. D copies of the first class, which share its share: the likelihood is that of B classes.
    D = mixture.classes - len(b) + 1
    of = np.concatenate([np.zeros(D - 1, int), np.arange(len(b))])
    g = g[of]
    g[:D, 0] -= np.log(D)
    alike = mixture.at(mixture.begin(mixture.join(b[of], g)))
    if D == 1:
        return alike
    # 2. Copies are a saddle, where EM stands still. Random shares of the sets among them, and one M-step, lead off it.
    r = alike.r.copy()
    r[:, :D] = r[:, :D].sum(1, keepdims=True) * rng.dirichlet(np.ones(D), len(r))
    return mixture.at(mixture.begin(alike.x + mixture.direction(alike, r)))


def em_steps(mixture: LatentClassLikelihood, at: MixturePoint, before: list[float], steps: int) -> Run:
    """Take steps, the first one EM's, until they bring next to nothing; returns the values climbed, too."""
    values = before or [at.value]
    damping = 1.0
    for _ in range(steps):
        at, damping = mixture.climb(at, damping)
        values.append(at.value)
        if not np.isfinite(at.value):
            raise TrainingError("the log-likelihood is no longer finite: use fewer classes, or raise min_chosen.")
        if values[-1] - values[-2] <= _GAIN * abs(at.value):
            break
    return at, values


# -- The search for the maximum of a mixture of logits, for one number of classes or for several -----------------------
# EM from several starts, more and more like Newton's method, never lowers the likelihood and comes near a maximum;
# Newton's steps on the exact Hessian finish. There are many maxima. A start divides a class at random: a single one, or
# the largest of those found before for fewer classes, which tends to lead higher. In a large table only that one and
# the best of the others, which begin on a sample of its persons, go on to the whole.

_TOGETHER = 6  # Newton's steps for one class, where all starts begin: the maximum may be at infinity
_FIRST = 15  # EM steps from each start, before the best goes on
_FOLLOWED = 2  # starts that take such steps on the whole of a large table


class MixtureData(NamedTuple):
    """Choice sets and who chooses; see :class:`LatentClassLikelihood`."""

    sets: LogitLikelihood
    persons: Ints  # (S,)
    who: Floats  # (N, G)
    weights: Floats  # (N,)


@dataclass(frozen=True)
class MixtureMaximum:
    """The maximum of the log-likelihood for one number of classes."""

    mixture: LatentClassLikelihood
    x: Floats
    log_likelihood: float
    steps: int
    em: list[float]  # what is maximised, after each EM step from the best start
    ordered: bool = True  # whether classes may change their numbers

    @property
    def aic(self) -> float:
        """Akaike's criterion: smaller is better."""
        return 2 * int((~self.mixture.within.fixed).sum()) - 2 * self.log_likelihood

    def by_share(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the classes (C, K) and of their shares (C, G), the largest class first.

        Classes whose parameters have names of their own stay where they are.
        """
        b, g = self.mixture.split(self.x)
        if not self.ordered:
            return b, g
        order = np.argsort(-(self.mixture.weights @ np.exp(log_shares(self.mixture.who, g))), kind="stable")
        return b[order], g[order]


@dataclass(frozen=True, kw_only=True)
class ClassSearch:
    """A table, the part of it that starts begin with, and how long to search."""

    problem: MixtureData
    few: MixtureData  # the same, or a sample of its persons
    prior: float
    starts: int
    em_steps: int
    max_iter: int
    seed: int
    within: Callable[[int], Parameters] | None = None  # for a number of classes, what is fixed or bounded
    ordered: bool = True  # whether classes may change their numbers

    def up_to(self, most: int) -> list[MixtureMaximum]:
        """Find the maximum for each number of classes that has one."""
        found: list[MixtureMaximum] = []
        for classes in range(1, most + 1):
            try:
                found.append(self.of(classes, found[-1] if found else None))
            except TrainingError as error:
                if not found:
                    raise
                log.warning("%d classes are not considered: %s", classes, error)
        return found

    def of(self, classes: int, fewer: MixtureMaximum | None = None) -> MixtureMaximum:
        """Find the maximum for one number of classes, where that for fewer may be known."""
        # 1. The mixture on the whole table, and on the sample that starts begin with if the table is large.
        within = self.within(classes) if self.within else None
        mixture = LatentClassLikelihood(*self.problem, classes, self.prior, limits=within)
        whole = self.few is self.problem
        sample = mixture if whole else LatentClassLikelihood(*self.few, classes, self.prior, limits=within, of=mixture)
        # 2. First EM steps from random divisions of one class, and from the maximum for fewer classes with one of its
        #    classes divided. Of a large table, only the best of the former go on to the whole.
        rng = np.random.default_rng([self.seed, classes])
        begun = self._begin(sample, self._starts(sample, rng))
        starts: list[Start] = [partial(split_largest_class, mixture, *fewer.by_share(), rng)] if fewer else []
        if whole:
            begun += self._begin(mixture, starts)
        else:
            starts += [partial(mixture.at, at.x) for at, _ in begun[: _FOLLOWED - len(starts)]]
            begun = self._begin(mixture, starts)
        if not begun:
            raise TrainingError(
                f"no start with {classes} class{'es' * (classes > 1)} keeps the log-likelihood finite: use fewer "
                f"classes, or raise prior or min_chosen."
            )
        # 3. The highest run goes on: EM until it slows down, then Newton's steps.
        at, em = max(begun, key=lambda run: run[0].value)
        x, em, steps = self._settle(mixture, at, em)
        value = float(mixture.weights @ mixture.at(x).log_p)
        reached = "%d classes: log-likelihood %.3f after %d EM and %d further steps"
        log.info(reached, mixture.classes, value, len(em) - 1, steps)
        return MixtureMaximum(mixture, x, value, steps, em, self.ordered)

    def _settle(
        self, mixture: LatentClassLikelihood, at: MixturePoint, em: list[float]
    ) -> tuple[Floats, list[float], int]:
        """Go on with EM and then with Newton's steps; returns the maximum, the values climbed and the steps."""
        at, em = em_steps(mixture, at, em, self.em_steps - len(em) + 1)
        x, steps = maximise(
            mixture.objective,
            at.x,
            mixture.all_weights,
            curvature=mixture.hessian,
            scale=1 / mixture.spread,
            within=mixture.within,
            max_iter=self.max_iter,
        )
        return x, em, steps

    def _starts(self, mixture: LatentClassLikelihood, rng: np.random.Generator) -> list[Start]:
        """Divide a single class at random, several times."""
        together, _, _ = mixture.sets.maximise(mixture.weights[mixture.persons], max_iter=_TOGETHER, settle=False)
        one = together[None], np.zeros((1, mixture.who.shape[1]))
        return [partial(split_largest_class, mixture, *one, rng)] * (self.starts if mixture.classes > 1 else 1)

    def _begin(self, mixture: LatentClassLikelihood, starts: list[Start]) -> list[Run]:
        """Take the first steps from each start that leads anywhere; the highest comes first."""
        runs = []
        for start in starts:
            try:
                runs.append(em_steps(mixture, start(), [], min(_FIRST, self.em_steps)))
            except TrainingError as error:
                log.info("%d classes: a start is passed over: %s", mixture.classes, error)
        return sorted(runs, key=lambda run: run[0].value, reverse=True)
