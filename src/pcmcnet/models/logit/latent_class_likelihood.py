"""Latent class logit: likelihood, scores, Hessian, EM algorithm, and search for the maximum."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data.columns.ragged import SPARSE_PRODUCT
from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import (
    FLAT,
    StartsRecord,
    eigh,
    group_by_maximum,
    magnitudes,
    map_in_threads,
    maximise,
)
from pcmcnet.models.logit.parameter_bounds import Parameters

log = logging.getLogger("pcmcnet")

# -- Likelihood --------------------------------------------------------------------------------------------------------
# A mixture of conditional logits. Class c has coefficients b_c and, for an individual with covariates h (the first of
# them 1), the share pi_c = exp(g_c . h) / sum_d exp(g_d . h), with g_1 = 0. A person belongs to one class in all choice
# sets, so the choices of a person have probability sum_c pi_c P_c, where P_c is the product of their probabilities in
# class c. With r_c the posterior share of class c given the choices, and s_c the score of log(pi_c P_c) in all
# parameters,
#
#     score    s = sum_c r_c s_c
#     Hessian  sum_c r_c (H_c + s_c s_c') - s s'                        (Louis, 1982)
#
# where terms that are equal for all classes may be left out of s_c, here -sum_d pi_d h.
#
# The EM algorithm increases sum_c r_c log(pi_c P_c) with r fixed. A single Newton step is enough: its gradient is that
# of the log-likelihood, so with step halving it increases the log-likelihood itself (Lange, 1995). But its information
# matrix is that of the complete data, which exceeds the observed information by the missing information
# (`_missing_information`), as classes are not observed. EM is therefore slow if much information is missing. A damped
# Newton step subtracts the missing information, down to a fraction `damping` of the complete-data information:
# damping 1 is EM, 0 is Newton. It is reduced after successful steps.
#
# A weak normal prior keeps the coefficients finite: in a mixture, the choices of some class can nearly always be made
# certain. Each coefficient of a column of scale 1 has mean 0 and precision `strength`. So has the difference between
# two classes in a membership coefficient, so that the result does not depend on which class is the first. With the
# precision matrix A (P, P), the prior enters as one more person, of weight 1 and log-probability -x' A x / 2.
#
# Shapes: S choice sets, R of them with at least two alternatives, N persons, C classes, K coefficients of a class, G
# membership coefficients; parameters (P,) are the b_c, then the g_c of all classes except the first.

_MAX_TRIES = 30  # dampings of one step
_DAMPING_FACTOR = 4  # by which damping rises after a step that gains less than expected, and falls after others
_PERSONS = 2**11  # persons of a chunk, the unit of work of a thread


class MixturePoint(NamedTuple):
    """The mixture evaluated at given parameters."""

    x: Floats  # (P,)
    b: Floats  # (C, K)
    log_pi: Floats  # (N, C)
    log_p: Floats  # (N,) log-probabilities of the choices
    r: Floats  # (N, C) posterior shares of the classes
    inside: list[tuple[Floats, Floats]]  # for each class: probabilities of the rows, zbar (R, K)
    value: float  # the objective: weighted log-likelihood plus log of the prior


@dataclass(frozen=True)
class LatentClassLikelihood:
    """Likelihood of a latent class logit with a given number of classes."""

    sets: LogitLikelihood
    persons: Ints  # (S,) index of the person of each choice set
    covariates: Floats  # (N, G), the first column 1
    weights: Floats  # (N,)
    classes: int
    strength: float  # precision of the prior on coefficients of columns of scale 1
    limits: Parameters | None = None  # fixed values and bounds; starting values are NaN if not given
    whole: LatentClassLikelihood | None = None  # for a sample: the whole table, whose scales of columns it uses

    @cached_property
    def spread(self) -> Floats:
        """Scale (P,) of each parameter's variable, which is 1 for constants and individual-level dummies."""
        if self.whole:
            return self.whole.spread
        of_shares = np.tile(self._covariate_spread, self.classes - 1)
        return np.concatenate([np.tile(self.sets.spread, self.classes), of_shares])

    @cached_property
    def _covariate_spread(self) -> Floats:
        if self.whole:
            return self.whole._covariate_spread
        deviation = self.covariates.std(axis=0)
        is_dummy = ((self.covariates == 0) | (self.covariates == 1)).all(axis=0)
        return np.where(is_dummy | (deviation == 0), 1.0, deviation)

    @cached_property
    def prior(self) -> Floats:
        """Precision matrix (P, P) of the prior, with 0 for the constants of class membership."""
        C, out = self.classes, np.diag(self.spread**2)
        of_share = np.diag(self._covariate_spread**2)
        of_share[0, 0] = 0.0
        if self.within.same_as is not None:  # a coefficient that several classes share has the prior of one coefficient
            out /= np.bincount(self.within.group)[self.within.group]
        tail = slice(C * self.sets.n_columns, None)
        out[tail, tail] = np.kron(2 * (np.eye(C) - 1 / C)[1:, 1:], of_share)
        return self.strength * out

    @property
    def all_weights(self) -> Floats:
        """Weights (N + 1,) of the persons and of the prior."""
        return np.append(self.weights, 1.0)

    @property
    def n_parameters(self) -> int:
        """Number of parameters."""
        return len(self.spread)

    @cached_property
    def within(self) -> Parameters:
        """The parameters, with fixed values and bounds."""
        return Parameters.free(np.full(self.n_parameters, np.nan)) if self.limits is None else self.limits

    def feasible_start(self, x: Floats) -> Floats:  # (P,) -> (P,)
        """Return a feasible starting point that uses the starting values of the options."""
        return self.within.clip(np.where(np.isnan(self.within.start), x, self.within.start))

    @cached_property
    def _of_persons(self) -> Any:
        """Sparse incidence matrix (N, R) of persons and choice sets."""
        from scipy.sparse import csr_array

        chooser = self.persons[self.sets.sets]
        shape = len(self.covariates), len(chooser)
        return csr_array((np.ones(len(chooser)), (chooser, np.arange(len(chooser)))), shape)

    @cached_property
    def _is_one_set_each(self) -> bool:
        """Whether set r is the only one of person r."""
        return np.array_equal(self.persons[self.sets.sets], np.arange(len(self.covariates)))

    def _by_person(self, values: Floats) -> Floats:  # (R, A) -> (N, A)
        """Return the sum over the choice sets of each person."""
        if self._is_one_set_each:
            return values
        if values.size < SPARSE_PRODUCT:
            chooser, n = self.persons[self.sets.sets], len(self.covariates)
            return np.column_stack([np.bincount(chooser, column, n) for column in values.T])
        sums: Floats = self._of_persons @ values
        return sums

    def _set_weights(self, r: Floats) -> Floats:  # (N, C) -> (R, C)
        """Return the weight of each choice set in each class."""
        return (self.weights[:, None] * r)[self.persons[self.sets.sets]]

    def split(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the coefficients of the classes (C, K) and of membership (C, G), which are 0 for the first class."""
        K, G, C = self.sets.n_columns, self.covariates.shape[1], self.classes
        return x[: C * K].reshape(C, K), np.concatenate([np.zeros((1, G)), x[C * K :].reshape(C - 1, G)])

    def join(self, b: Floats, g: Floats) -> Floats:
        """Return the parameters (P,), as the inverse of ``split``, with membership relative to the first class."""
        return np.concatenate([b.ravel(), (g[1:] - g[:1]).ravel()])

    def at(self, x: Floats) -> MixturePoint:
        """Evaluate the mixture at parameters (P,)."""
        # 1. Shares of the classes, and the logit of each class.
        b, g = self.split(x)
        log_pi = log_shares(self.covariates, g)
        logits = [self.sets.evaluate(row) for row in b]
        # 2. log(pi_c P_c) of each person, their log-sum over classes, and the posterior shares of the classes.
        joint = log_pi + self._by_person(np.column_stack([ll for ll, _, _ in logits]))
        log_p, r = posterior(joint)
        value = float(self.weights @ log_p - x @ self.prior @ x / 2)
        return MixturePoint(x, b, log_pi, log_p, r, [(p, mean) for _, p, mean in logits], value)

    def objective(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the log-probabilities of the choices and of the prior (N + 1,), and their scores (N + 1, P)."""
        at, prior_score = self.at(x), -(self.prior @ x)
        return np.append(at.log_p, prior_score @ x / 2), np.vstack([self._scores(at), prior_score])

    def _scores(self, at: MixturePoint) -> Floats:
        """Return the scores of the log-probabilities of the choices (N, P)."""
        each = [at.r[:, c : c + 1] * self._by_person(-mean) for c, (_, mean) in enumerate(at.inside)]
        return np.concatenate([*each, _outer((at.r - np.exp(at.log_pi))[:, 1:], self.covariates)], axis=1)

    def hessian(self, x: Floats) -> Floats:
        """Return the Hessian (P, P) of the objective. Adding ``prior`` gives the Hessian of the log-likelihood."""
        at = self.at(x)
        out = self._missing_information(at)
        for block, information in zip(*self._complete_information(at, at.r), strict=True):
            out[block, block] -= information
        return out

    def _missing_information(self, at: MixturePoint) -> Floats:
        """Return the information (P, P) that is missing because classes are not observed."""
        K, G, C = self.sets.n_columns, self.covariates.shape[1], self.classes
        slopes = [np.hstack([self._by_person(-mean), self.covariates]) for _, mean in at.inside]
        order = np.arange(C * (K + G)).reshape(C, K + G)
        order = np.concatenate([order[:, :K].ravel(), order[1:, K:].ravel()])
        out: Floats = covariance(slopes, at.r, self.weights)[np.ix_(order, order)]
        return out

    def _complete_information(self, at: MixturePoint, r: Floats) -> tuple[list[slice], list[Floats]]:
        """Return a block of parameters per class and one for membership, with their information matrices, given r."""
        K, C = self.sets.n_columns, self.classes
        blocks = [slice(c * K, (c + 1) * K) for c in range(C)] + [slice(C * K, None)]
        weights = self._set_weights(r)
        information = [-self.sets.hessian(*at.inside[c], weights[:, c]) for c in range(C)]
        information.append(covariance([self.covariates] * (C - 1), np.exp(at.log_pi[:, 1:]), self.weights))
        return blocks, [each + self.prior[block, block] for block, each in zip(blocks, information, strict=True)]

    def _gradient(self, at: MixturePoint, r: Floats) -> Floats:
        """Return the gradient (P,) of the M-step, given r. If r is ``at.r``, this is the gradient of the objective."""
        weights = self._set_weights(r)
        slopes = [-(weights[:, c] @ mean) for c, (_, mean) in enumerate(at.inside)]
        slopes.append((self.weights[:, None] * (r - np.exp(at.log_pi))[:, 1:]).T @ self.covariates)
        gradient: Floats = np.concatenate([np.ravel(slope) for slope in slopes]) - self.prior @ at.x
        return gradient

    def direction(self, at: MixturePoint, r: Floats) -> Floats:
        """Return the Newton step (P,) of the M-step, block by block, given posterior shares r."""
        gradient = self._gradient(at, r)
        roots = self._roots(*self._complete_information(at, r), self.within.blocked(at.x, gradient))
        return np.asarray(roots @ (roots.T @ gradient))

    def _roots(self, blocks: list[slice], information: list[Floats], blocked: Bools) -> Floats:
        """Return W (P, P) such that W W' is the inverse of the block-diagonal information.

        Eigenvalues are treated as in ``magnitudes``. Rows of blocked parameters are 0, so that no step changes them. If
        parameters are equal, x = T u with F different values u. The result is then T W (P, F), where W W' is the
        inverse of the information on u, which need not be block-diagonal.
        """
        P, scale, within = self.n_parameters, 1 / self.spread, self.within
        if within.same_as is not None:
            whole = np.zeros((P, P))
            for block, each in zip(blocks, information, strict=True):
                whole[block, block] = each
            reduced, scale = within.expansion.T @ whole @ within.expansion, within.reduced_scale(scale)
            return np.asarray(within.expansion @ _inverse_root(reduced, scale, ~blocked[within.distinct]))
        out = np.zeros((P, P))
        for block, each in zip(blocks, information, strict=True):
            out[block, block] = _inverse_root(each, scale[block], ~blocked[block])
        return out

    def step(self, at: MixturePoint, damping: float) -> tuple[MixturePoint, float]:
        """Take a step between EM (damping 1) and Newton (damping 0), and return the new point and the next damping.

        If no step increases the objective, the point does not change.
        """
        # 1. In units of the complete-data information (coordinates W^-1 dx), find the eigenvectors of the missing
        #    information. Along each, the observed information is 1 - missing; EM takes it to be 1. A parameter stays on
        #    a bound that it would cross: after clipping, a step that moves it may not gain anything.
        gradient = self._gradient(at, at.r)
        roots = self._roots(*self._complete_information(at, at.r), self.within.blocked(at.x, gradient))
        missing, vectors = eigh(roots.T @ self._missing_information(at) @ roots)
        observed, axes = 1 - missing, roots @ vectors
        size, slope = np.maximum(np.abs(observed), FLAT), axes.T @ gradient
        # 2. Divide the slope along each eigenvector by its information, at least ``damping``. After a step that gains
        #    more than half of what the quadratic model expects, reduce the damping; else increase it.
        for _ in range(_MAX_TRIES):
            step = slope / np.maximum(size, damping)
            next_at = self.at(self.within.clip(at.x + axes @ step))
            gain, expected = next_at.value - at.value, slope @ step - step @ (observed * step) / 2
            if gain > expected / 2:
                return next_at, damping / _DAMPING_FACTOR
            damping = _DAMPING_FACTOR * max(damping, float(size.min(initial=1.0)))  # a smaller one has no effect
            if gain >= 0:
                return next_at, damping
        return at, damping


def log_shares(covariates: Floats, g: Floats) -> Floats:  # (N, G), (C, G) -> (N, C)
    """Return the logarithms of the class shares pi."""
    v = covariates @ g.T
    out: Floats = v - np.logaddexp.reduce(v, axis=1, keepdims=True)
    return out


def posterior(joint: Floats) -> tuple[Floats, Floats]:  # (N, C) -> (N,), (N, C)
    """Return log sum_c exp(joint), and the share of each class in this sum."""
    total = np.logaddexp.reduce(joint, axis=1)
    return total, np.exp(joint - total[:, None])


def covariance(slopes: list[Floats], shares: Floats, weights: Floats) -> Floats:  # C x (N, A), (N, C), (N,)
    """Return the matrix (C A, C A) with blocks sum_n w_n p_c (1[c = d] - p_d) u_c u_d'.

    This matrix is the Hessian of sum_n w_n log sum_c exp(u_c . x_c), where the shares p may sum to less than 1.
    """
    # Sum over chunks of persons; each block of two classes is a matrix product, and the matrix is symmetric.
    C, A = len(slopes), slopes[0].shape[1] if slopes else 0

    def chunk_sum(rows: slice) -> Floats:
        out = np.empty((C, A, C, A))
        for c in range(C):
            for d in range(c + 1):
                mass = weights[rows] * shares[rows, c] * ((c == d) - shares[rows, d])
                out[c, :, d, :] = (slopes[c][rows].T * mass) @ slopes[d][rows]
                out[d, :, c, :] = out[c, :, d, :].T
        return out.reshape(C * A, C * A)

    chunks = [slice(at, at + _PERSONS) for at in range(0, len(weights), _PERSONS)]
    return sum(map_in_threads(chunk_sum, chunks), np.zeros((C * A, C * A)))


def _inverse_root(information: Floats, scale: Floats, free: Bools) -> Floats:  # (A, A), (A,), (A,) -> (A, A)
    """Return W such that W W' is the inverse of the information on the free parameters, and 0 for the others."""
    out, at = np.zeros_like(information), np.flatnonzero(free)
    values, vectors = eigh(information[np.ix_(at, at)] * np.outer(scale[at], scale[at]))
    out[np.ix_(at, at)] = scale[at][:, None] * vectors / np.sqrt(magnitudes(values))
    return out


def _outer(a: Floats, b: Floats) -> Floats:  # (N, A), (N, B) -> (N, A B)
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


# -- EM algorithm, from starts that split a class at random ------------------------------------------------------------

_MIN_GAIN = 1e-7  # least gain of a step, relative to the log-likelihood

Start = Callable[[], MixturePoint]
Run = tuple[MixturePoint, list[float]]  # last point, and the objective after each step


def split_largest_class(
    mixture: LatentClassLikelihood, b: Floats, g: Floats, rng: np.random.Generator
) -> MixturePoint:  # (B, K), (B, G), B <= C
    """Return a starting point with C classes: the first of B classes is split at random into C - B + 1 classes."""
    # 1. Make D copies of the first class with equal shares: the likelihood is that of B classes.
    D = mixture.classes - len(b) + 1
    original = np.concatenate([np.zeros(D - 1, int), np.arange(len(b))])
    g = g[original]
    g[:D, 0] -= np.log(D)
    copies = mixture.at(mixture.feasible_start(mixture.join(b[original], g)))
    if D == 1:
        return copies
    # 2. Copies are a saddle point, which EM does not leave. Random posterior shares and one M-step do.
    r = copies.r.copy()
    r[:, :D] = r[:, :D].sum(1, keepdims=True) * rng.dirichlet(np.ones(D), len(r))
    return mixture.at(mixture.feasible_start(copies.x + mixture.direction(copies, r)))


def em_steps(mixture: LatentClassLikelihood, at: MixturePoint, before: list[float], steps: int) -> Run:
    """Take steps, beginning with EM, until the gains are negligible, and return the last point and all objectives."""
    values = before or [at.value]
    damping = 1.0
    for _ in range(steps):
        at, damping = mixture.step(at, damping)
        values.append(at.value)
        if not np.isfinite(at.value):
            raise TrainingError("the log-likelihood is not finite: use fewer classes, or raise min_chosen.")
        if values[-1] - values[-2] <= _MIN_GAIN * abs(at.value):
            break
    return at, values


# -- Search for the maximum, for one number of classes or for several --------------------------------------------------
# There are many local maxima. From each start, EM steps, gradually replaced by Newton steps, never decrease the
# likelihood and come near a maximum, mostly in 10 to 20 steps. Newton's method with the exact Hessian completes the
# best run. A start splits a class at random: the only class of the multinomial logit, or the largest class of the
# maximum for fewer classes. In a large table, the random starts use a sample of persons. The best maxima on the sample,
# and the start from fewer classes, then continue on the whole table.
#
# The default number of starts depends on what the starts find. With w different maxima after n starts, the expected
# number of all maxima is w (n - 1) / (n - w - 2) (Boender & Rinnooy Kan, 1987). After the first 20 starts, the search
# ends as soon as this is less than w + 1/2, and after 50 starts in any case. A start reaches the best maximum with
# probability .29 on swissmetro with 3 classes, .10 with 4 classes, and .35 on electricity with 3 classes (100 starts):
# 5 starts would miss it in 18%, 59% and 12% of all searches, and 20 starts in .1%, 12% and .02%.

_ONE_CLASS_STEPS = 6  # Newton steps of the one-class model that random starts split; its maximum may be at infinity
_START_STEPS = 50  # steps of each start, of which most converge in fewer
_FULL_TABLE_STARTS = 3  # starts that continue on the whole of a large table
_FIRST_STARTS, _MAX_STARTS = 20, 50  # default numbers of starts
_MIN_STARTS = 5  # starts of a search whose steps are expensive
_MAX_WORK = 2 * 10**7  # rows x parameters of all starts together, about 3 s on one thread


class MixtureData(NamedTuple):
    """Choice sets, persons and covariates of a :class:`LatentClassLikelihood`."""

    sets: LogitLikelihood
    persons: Ints  # (S,)
    covariates: Floats  # (N, G)
    weights: Floats  # (N,)


@dataclass(frozen=True)
class MixtureMaximum:
    """The maximum of the log-likelihood for one number of classes."""

    mixture: LatentClassLikelihood
    x: Floats
    log_likelihood: float
    steps: int
    em: list[float]  # objective after each EM step from the best start
    starts: StartsRecord
    ordered: bool = True  # whether classes are numbered by their shares

    @property
    def aic(self) -> float:
        """Akaike information criterion, where smaller is better."""
        return 2 * self.mixture.within.n_free - 2 * self.log_likelihood

    def by_share(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the classes (C, K) and of membership (C, G), with the largest class first.

        The classes keep their order if options refer to the parameters of individual classes.
        """
        b, g = self.mixture.split(self.x)
        if not self.ordered:
            return b, g
        order = np.argsort(-(self.mixture.weights @ np.exp(log_shares(self.mixture.covariates, g))), kind="stable")
        return b[order], g[order]


@dataclass(frozen=True, kw_only=True)
class ClassSearch:
    """Search for the maximum likelihood of latent class logits."""

    problem: MixtureData
    few: MixtureData  # the data of the random starts: the same, or a sample of persons
    prior: float
    starts: int | None  # random starts; if None, the number depends on the maxima that they reach
    em_steps: int
    max_iter: int
    seed: int
    within: Callable[[int], Parameters] | None = None  # number of classes -> parameters with fixed values and bounds
    ordered: bool = True  # whether classes are numbered by their shares

    def up_to(self, most: int) -> list[MixtureMaximum]:
        """Return the maximum for each number of classes up to ``most`` for which the search succeeds."""
        maxima: list[MixtureMaximum] = []
        for classes in range(1, most + 1):
            try:
                maxima.append(self.of(classes, maxima[-1] if maxima else None))
            except TrainingError as error:
                if not maxima:
                    raise
                log.warning("models with %d classes are skipped: %s", classes, error)
        return maxima

    def of(self, classes: int, fewer: MixtureMaximum | None = None) -> MixtureMaximum:
        """Return the maximum for one number of classes. The maximum ``fewer`` for fewer classes is another start."""
        # 1. The likelihood of the whole table and, if the table is large, of the sample for random starts.
        within = self.within(classes) if self.within else None
        mixture = LatentClassLikelihood(*self.problem, classes, self.prior, limits=within)
        is_small, sample = self.few is self.problem, mixture
        if not is_small:
            sample = LatentClassLikelihood(*self.few, classes, self.prior, limits=within, whole=mixture)
        # 2. EM from random starts, and from the maximum for fewer classes with its largest class split. In a large
        #    table, the best maxima of the random starts continue on the whole table.
        rng = np.random.default_rng([self.seed, classes])
        runs, failed = self._run_starts(sample, self._random_starts(sample, rng), self._numbers_of_starts(sample))
        split: list[Start] = [partial(split_largest_class, mixture, *fewer.by_share(), rng)] if fewer else []
        if is_small:
            more, failures = self._run_starts(mixture, split)
            runs, failed = runs + more, failed + failures
        record = _starts_record(sample, runs, failed, None if is_small else sample.sets.n_sets)
        if not is_small:
            best = [runs[group[0]][0] for group in group_by_maximum([at.value for at, _ in runs])]
            split += [partial(mixture.at, at.x) for at in best[: _FULL_TABLE_STARTS - len(split)]]
            runs, _ = self._run_starts(mixture, split)
        if not runs:
            raise TrainingError(
                f"the log-likelihood is not finite from any start with {classes} class{'es' * (classes > 1)}: use "
                f"fewer classes, or raise prior or min_chosen."
            )
        # 3. The best run continues with EM until it slows down, then with Newton's method.
        at, em = max(runs, key=lambda run: run[0].value)
        x, em, steps = self._finish(mixture, at, em)
        value = float(mixture.weights @ mixture.at(x).log_p)
        message = "%d classes: log-likelihood %.3f after %d EM steps and %d Newton steps; %s"
        log.info(message, mixture.classes, value, len(em) - 1, steps, record)
        return MixtureMaximum(mixture, x, value, steps, em, record, self.ordered)

    def _finish(
        self, mixture: LatentClassLikelihood, at: MixturePoint, em: list[float]
    ) -> tuple[Floats, list[float], int]:
        """Run EM, then Newton's method, and return the maximum, the EM objectives and the number of Newton steps."""
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

    def _random_starts(self, mixture: LatentClassLikelihood, rng: np.random.Generator) -> Iterator[Start]:
        """Yield starting points that split the only class of a one-class model at random."""
        weights = mixture.weights[mixture.persons]
        b, _, _ = mixture.sets.maximise(weights, max_iter=_ONE_CLASS_STEPS, settle=False)
        one = b[None], np.zeros((1, mixture.covariates.shape[1]))
        return repeat(partial(split_largest_class, mixture, *one, rng))

    def _numbers_of_starts(self, mixture: LatentClassLikelihood) -> tuple[int, int]:
        """Return the smallest and the largest number of random starts."""
        if mixture.classes == 1 or not np.isnan(mixture.within.start).any():
            return 1, 1  # all starts would be the same
        if self.starts is not None:
            return self.starts, self.starts
        affordable = max(_MAX_WORK // max(mixture.sets.z.shape[0] * mixture.n_parameters, 1), _MIN_STARTS)
        return min(affordable, _FIRST_STARTS), min(affordable, _MAX_STARTS)

    def _run_starts(
        self, mixture: LatentClassLikelihood, starts: Iterable[Start], numbers: tuple[int, int] | None = None
    ) -> tuple[list[Run], int]:
        """Run EM from each start, and return the successful runs and the number of failed starts.

        With ``numbers``, at least the first number of starts is run, and at most the second.
        """
        runs: list[Run] = []
        failed = 0
        for number, start in enumerate(starts, start=1):
            try:
                runs.append(em_steps(mixture, start(), [], min(_START_STEPS, self.em_steps)))
            except TrainingError as error:
                failed += 1
                log.info("%d classes: a start failed: %s", mixture.classes, error)
            if numbers and (number >= numbers[1] or (number >= numbers[0] and _all_maxima_reached(runs))):
                break
        return runs, failed


def _all_maxima_reached(runs: list[Run]) -> bool:
    """Return True if no other maximum is expected, given the number of starts that ended at each maximum."""
    n, w = len(runs), len(group_by_maximum([at.value for at, _ in runs]))
    return n > w + 2 and w * (n - 1) / (n - w - 2) < w + 0.5


def _starts_record(mixture: LatentClassLikelihood, runs: list[Run], failed: int, sample: int | None) -> StartsRecord:
    """Return how many runs ended at the best maximum, and the log-likelihood of the next best."""
    groups = group_by_maximum([at.value for at, _ in runs])
    next_best = float(mixture.weights @ runs[groups[1][0]][0].log_p) if len(groups) > 1 else None
    at_maximum = len(groups[0]) if groups else 0
    return StartsRecord(
        starts=len(runs) + failed, at_maximum=at_maximum, next_best=next_best, failed=failed, sample=sample
    )
