"""Mixed logit on ragged choice sets: simulated log-likelihood, scores of persons and Hessian in one pass.

Person n chooses from sets t, with coefficients b_r in draw r (``models/logit/random_coefficients.py``). Let z_j be the
differences between the alternatives that are not chosen and the chosen one, as in ``logit_likelihood.py``. Then

    log P_nr = -sum_t log(1 + sum_j exp(z_j . b_r))        log L_n = log mean_r P_nr            (Revelt & Train, 1998)

Let w_r = P_nr / sum_r P_nr be the weight of draw r given the choices, s_r the score of log P_nr, and H_r its Hessian:

    score    s = sum_r w_r s_r
    Hessian  sum_r w_r (H_r + s_r s_r') - s s'                                                   (Louis, 1982)

The derivative of the utility of row j with respect to parameter p, in draw r, is z_jk c_pr, where k is the column of
the parameter and c_pr is the derivative of that column's coefficient. Let p_j be the probabilities of the rows j of a
set. Then

    H_r = -c_p c_q sum_t [sum_j p_j z_jk z_jl - (sum_j p_j z_jk)(sum_j p_j z_jl)] + second derivatives of b.

If the utilities in a set of group g are multiplied by a scale mu_g, z_j stands for the scaled differences mu_g y_j. The
scale has a column of its own, z_jg = y_j . b_r in the sets of group g and 0 in the others, which depends on the draw.
The utility has the second derivative y_jk in mu_g and the coefficient of column k, so H_r has the further term
-sum_t sum_j p_j y_jk over the sets of group g.

If the columns depend on parameters lambda of transformations, such as Box-Cox exponents, each lambda has the column
z'_j . b_r, where z' is the derivative of z in lambda. Here the second derivatives of the utility are z'_jk in lambda
and the coefficient of column k, and z''_j . b_r in two such parameters.

Arrays (rows, R) are computed block by block (``models/logit/draws.py``). Products and exponentials are computed in
float32 or float64, as requested. Log-probabilities over draws and sums over persons are computed in float64.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.errors import TrainingError
from pcmcnet.layers.threads import run_in_threads
from pcmcnet.models.logit.draws import PersonBlock, PersonDraws, person_blocks
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import (
    SAME_MAXIMUM,
    Maximum,
    StartsRecord,
    diverges_without_prior,
    group_by_maximum,
    maximise,
)
from pcmcnet.models.logit.parameter_bounds import Parameters
from pcmcnet.models.logit.random_coefficients import MixingDistribution, SampledCoefficients

log = logging.getLogger("pcmcnet")

Precision = Literal["float32", "float64"]

T = TypeVar("T")
CurvesOf = Callable[[Floats], Floats]  # (J,) -> (M, K + J K + J J K): columns, then first and second derivatives

_ON_CPU, _ON_GPU = 2**17, 2**25  # elements of a block: enough to fit a CPU's cache, or to keep a GPU busy
_GRAM = 2**20  # elements of the products of a Hessian that are computed at a time on a CPU
_MAX_UTILITY = {torch.float32: 60.0, torch.float64: 600.0}  # exponentials of larger utilities may overflow


class BlockLikelihood(NamedTuple):
    """Log-likelihoods, scores and Hessian of a block of persons."""

    log_likelihoods: Floats  # (N,)
    scores: Floats | None  # (N, P)
    hessian: Floats | None  # (P, P)


class _EvaluatedBlock(NamedTuple):
    """A block evaluated at given parameters, with everything that its derivatives need."""

    block: PersonBlock
    z: Tensor  # (N, m, K) differences from the chosen alternative, multiplied by the scales of the sets
    extra: Tensor | None  # (E, N m, R) columns of scales and transformations, which depend on the draw; None without
    mixed: Tensor  # (E, N m, K) second derivatives of the utility in the parameter of such a column and a coefficient
    twice: Tensor | None  # (E, E, N m, R) second derivatives in two such parameters; None for 0
    covariates: Tensor  # (N, 1 + G) a 1, then the covariates of the individuals
    draws: SampledCoefficients
    e: Tensor  # (N m, R) exponentials of the utilities
    inverse: Tensor  # (T, R) factor that makes them probabilities
    w: Tensor  # (N, R) weights of the draws given the choices
    whole: Tensor | None  # (K, N, R) in WTP space, cost coefficient and willingness to pay; else None


@dataclass
class SimulatedLikelihood:
    """Simulated likelihood: the choice sets of persons, their draws and the mixing distribution."""

    z: Floats  # (M, K + S) differences from the chosen alternative; then 1 for the rows of each group with a scale
    offsets: Ints  # (T + 1,)
    person: Ints  # (T,) index of the person of each set
    keys: Ints  # (N,) keys of the persons' draws
    covariates: Floats  # (N, G)
    mixing: MixingDistribution
    draws: PersonDraws
    memory: float  # maximum bytes of draws to store between evaluations
    curves_of: CurvesOf | None = None  # columns as a function of the parameters of transformations, if there are any
    _stored: dict[int, Tensor] = field(default_factory=dict)
    _exponents: Floats | None = None  # (J,) the parameters of transformations of the current blocks

    @classmethod
    def of(
        cls,
        sets: LogitLikelihood,
        person: Ints,
        keys: Ints,
        covariates: Floats,
        mixing: MixingDistribution,
        draws: PersonDraws,
        memory: float,
        groups: Ints | None = None,
        curves_of: CurvesOf | None = None,
    ) -> SimulatedLikelihood:
        """Build the simulated likelihood from a logit's likelihood and the person (S,) of each choice set.

        ``groups`` (S,) contains the group of each choice set if the mixing distribution has scales: 0 for the
        reference, then 1, 2, ... ``curves_of`` returns the columns for given parameters of transformations.
        """
        z = sets.z
        if groups is not None:
            of_row = np.repeat(groups[sets.sets], np.diff(sets.offsets))
            z = np.hstack([z, of_row[:, None] == np.arange(1, 1 + len(mixing.scales))])
        return cls(z, sets.offsets, person[sets.sets], keys, covariates, mixing, draws, memory, curves_of)

    def __post_init__(self) -> None:
        device, D, R = self.draws.device, self.mixing.dimensions, self.draws.number
        self._max_rows = max((_ON_GPU if device.type == "cuda" else _ON_CPU) // R, 1)
        self.blocks = self._blocks(self.z)
        self._stores_draws = 4.0 * len(self.keys) * D * R <= self.memory

    @property
    def size(self) -> int:
        """Number of utilities in all draws."""
        return len(self.z) * self.draws.number

    def with_mixing(self, mixing: MixingDistribution) -> SimulatedLikelihood:
        """Return the likelihood of the same choices and draws with another mixing distribution.

        Both have the same columns and the same distributions, and share the stored draws if these are equal.
        """
        other = copy(self)
        other.mixing = mixing
        if mixing.mirror != self.mixing.mirror:
            other._stored = {}
        return other

    def _blocks(self, z: Floats) -> list[PersonBlock]:
        """Return blocks of persons with the given columns."""
        return list(person_blocks(z, self.offsets, self.person, self._max_rows, self.draws.device))

    def _move_to(self, x: Floats) -> None:
        """Compute the columns at other parameters of transformations, unless they are those of the current blocks."""
        exponents = self.mixing.exponents(x)
        if self.curves_of is None or (self._exponents is not None and (exponents == self._exponents).all()):
            return
        self.blocks, self._exponents = self._blocks(self.curves_of(exponents)), exponents.copy()

    def evaluate(
        self, x: Floats, precision: Precision, *, scores: bool = True, weights: Floats | None = None
    ) -> tuple[Floats, Floats, Floats | None]:
        """Return log-likelihoods (N,), scores (N, P) and, if weights (N,) are given, the Hessian (P, P)."""
        self._move_to(x)
        # 1. Evaluate the blocks, and sum their contributions to sum_r w_r (H_r + s_r s_r').
        ll, score, P = np.zeros(len(self.keys)), np.zeros((len(self.keys), len(x))), len(x)
        results = self.by_block(lambda block: self._evaluate(block, x, getattr(torch, precision), scores, weights))
        total = np.zeros((P, P))
        for block, result in zip(self.blocks, results, strict=True):
            ll[block.persons] = result.log_likelihoods
            if result.scores is not None:
                score[block.persons] = result.scores
            if result.hessian is not None:
                total += result.hessian
        # 2. Louis's formula: subtract the outer products s s' of the scores.
        return ll, score, None if weights is None else total - (score * weights[:, None]).T @ score

    def by_block(self, function: Callable[[PersonBlock], T]) -> list[T]:
        """Call a function for each block, in several threads if the device is a CPU."""
        if self.draws.device.type == "cpu":
            return run_in_threads(function, self.blocks)
        with torch.no_grad():
            return list(map(function, self.blocks))

    def coefficients(self, persons: Ints, x: Floats, dtype: torch.dtype) -> SampledCoefficients:
        """Return the random coefficients of the given persons."""
        locations = torch.from_numpy(self.mixing.locations(x, self.covariates[persons]))
        triangle, device = torch.from_numpy(self.mixing.triangle(x)), self.draws.device
        draws = self._standard(persons, dtype)
        return self.mixing.sample(locations.to(device, dtype), triangle.to(device, dtype), draws)

    def _standard(self, persons: Ints, dtype: torch.dtype) -> Tensor:  # -> (N, D, R)
        """Return the standard draws of a block's persons, which are cached if memory allows."""
        first = int(persons[0])
        standard = self._stored.get(first)
        if standard is None:
            standard = self.mixing.standard(self.draws.of(self.keys[persons]))
            if self._stores_draws:
                self._stored[first] = standard
        return standard.to(dtype)

    def evaluate_block(self, block: PersonBlock, x: Floats, dtype: torch.dtype) -> tuple[Tensor, _EvaluatedBlock]:
        """Return the log-likelihoods (N,) of a block's persons, and everything that their derivatives need."""
        # 1. Utilities (N, m, R). Columns with the same coefficient in all draws are multiplied once. In WTP space every
        #    coefficient is a product with the cost coefficient and varies over draws.
        draws, mixing, whole = self.coefficients(block.persons, x, dtype), self.mixing, None
        K = len(mixing.columns)
        z, groups = block.z[:, :, :K].to(dtype), block.z[:, :, K : K + len(mixing.scales)].to(dtype)
        random = [r.column for r in mixing.random]
        if mixing.cost is None:
            fixed = [k for k in range(mixing.located) if k not in random]
            common = (block.z[:, :, fixed] @ torch.from_numpy(x[fixed]).to(block.z)).to(dtype)  # (N, m)
            v = torch.baddbmm(common[:, :, None].expand(-1, -1, self.draws.number), z[:, :, random], draws.value)
        else:
            all_columns = mixing.whole(x, draws.value)
            v, whole = torch.bmm(z, mixing.in_utility(all_columns)), all_columns.transpose(0, 1)
        extra, mixed, twice = None, z.new_empty(0, z.shape[0] * z.shape[1], K), None
        if mixing.scales:
            by_group = groups.permute(2, 0, 1).reshape(len(mixing.scales), -1, 1)
            extra, mixed = by_group * v.view(-1, v.shape[-1]), by_group * z.reshape(-1, K)
            multiplier = 1 + groups @ (torch.from_numpy(mixing.multipliers(x)[1:]).to(z) - 1)  # (N, m)
            v, z = v * multiplier[:, :, None], z * multiplier[:, :, None]
        elif mixing.curves and block.z.shape[2] > K:
            # The K columns are followed by their first derivatives in each parameter, and by their second derivatives.
            J, b = len(mixing.curves), mixing.in_utility(mixing.whole(x, draws.value))  # (N, K, R)
            slopes = block.z[:, :, K:].to(dtype).view(*z.shape[:2], J + J * J, K).permute(2, 0, 1, 3)
            moved = torch.matmul(slopes, b).reshape(J + J * J, -1, b.shape[2])
            extra, twice, mixed = moved[:J], moved[J:].view(J, J, *moved.shape[1:]), slopes[:J].reshape(J, -1, K)
        # 2. Log-probabilities of the choices, summed over the sets of a person: log P_nr.
        log_p, e, inverse = _exponentials(v.view(-1, v.shape[-1]), block)
        joint = block.sum_sets(log_p).double()  # (N, R)
        # 3. The log of their mean over draws, in float64, and the weights w_r of draws given the choices.
        ll = joint.logsumexp(1)
        w = (joint - ll[:, None]).exp_().to(dtype)
        ones = np.ones((len(block.persons), 1))
        covariates = torch.from_numpy(np.hstack([ones, self.covariates[block.persons]])).to(v)
        evaluated = _EvaluatedBlock(block, z, extra, mixed, twice, covariates, draws, e, inverse, w, whole)
        return ll - math.log(self.draws.number), evaluated

    def conditional(self, x: Floats, cost: int | None = None) -> tuple[Floats, Floats]:  # -> (N, D), (N, D)
        """Return the means and standard deviations of each person's random coefficients, given the choices.

        If a ``cost`` column is given, return the means and standard deviations (N, K) of willingness to pay, which is
        minus the ratio of a coefficient to the cost coefficient, for all columns.
        """
        self._move_to(x)
        width = self.mixing.dimensions if cost is None else len(self.mixing.columns)
        mean, deviation = np.empty((2, len(self.keys), width))

        def moments(values: Tensor, w: Tensor) -> tuple[Floats, Floats]:  # (N, D, R), (N, R, 1)
            if cost is not None:
                whole = self.mixing.whole(x, values)
                values = -whole / whole[:, cost, None]
            middle = torch.bmm(values, w)
            width = torch.bmm((values - middle) ** 2, w).sqrt()
            return middle[:, :, 0].cpu().numpy(), width[:, :, 0].cpu().numpy()

        def conditional_moments(block: PersonBlock) -> tuple[Floats, Floats]:
            at = self.evaluate_block(block, x, torch.float64)[1]
            return moments(at.draws.value, at.w[:, :, None])

        # 1. Persons with choices: weight the draws by their probabilities given the choices.
        for block, result in zip(self.blocks, self.by_block(conditional_moments), strict=True):
            mean[block.persons], deviation[block.persons] = result
        # 2. Persons whose sets all have one alternative: weight the draws equally.
        chose = np.unique(self.person)
        for n in np.setdiff1d(np.arange(len(self.keys)), chose):
            values = self.coefficients(np.array([n]), x, torch.float64).value
            equal = torch.full_like(values[:, :1], 1 / values.shape[2]).mT
            mean[n], deviation[n] = (moment[0] for moment in moments(values, equal))
        return mean, deviation

    def _evaluate(
        self, block: PersonBlock, x: Floats, dtype: torch.dtype, scores: bool, weights: Floats | None
    ) -> BlockLikelihood:
        ll, at = self.evaluate_block(block, x, dtype)
        hessian = None
        if weights is not None:
            hessian = _hessian(at, self.mixing, torch.from_numpy(weights[block.persons]).to(at.w))
        return BlockLikelihood(ll.cpu().numpy(), _scores(at, self.mixing) if scores else None, hessian)


def _exponentials(
    v: Tensor, block: PersonBlock
) -> tuple[Tensor, Tensor, Tensor]:  # (N m, R) -> (T, R), (N m, R), (T, R)
    """Return log-probabilities of the choices, and probabilities of the rows as two factors.

    The array v is overwritten.
    """
    # 1. Subtract the largest utility only if exponentials could overflow; the chosen alternative has utility 0.
    top = None
    if float(v.amax()) > _MAX_UTILITY[v.dtype]:
        top = block.largest(v).clamp_min_(0)
        v -= top[block.set_of_row]
    # 2. p_j = e_j / (1 + sum of e), and the choice has log-probability -log(1 + sum of e). Padding has e = 0.
    e = v.exp_()
    e.index_fill_(0, block.empty_rows, 0)
    total = block.sum_rows(e).add_(1 if top is None else (-top).exp())
    log_p = -total.log() if top is None else -total.log() - top
    return log_p, e, total.reciprocal_()


def _scores(at: _EvaluatedBlock, mixing: MixingDistribution) -> Floats:  # -> (N, P)
    """Return the gradient of each person's log-likelihood, and overwrite the exponentials."""
    z, (N, R), K, E = at.z, at.w.shape, at.z.shape[2], len(at.mixed)
    random = [r.column for r in mixing.random]
    # 1. Probabilities of the rows, times the weights of the draws.
    factor = at.inverse * at.w.index_select(0, at.block.person_of_set)
    p = at.e.mul_(factor.index_select(0, at.block.set_of_row)).view(N, -1, R)
    # 2. Sum p z over rows: in each draw for random coefficients, over all draws for the others. ``by_draw`` has the
    #    sums by column (second axis) and derivative (last axis): entry 0 for 1, entry 1 + l for draw l.
    by_draw = torch.zeros(N, K + E, 1 + at.draws.basis.shape[1], dtype=p.dtype, device=p.device)
    if at.whole is not None:
        all_columns = torch.bmm(z.mT, p).transpose(0, 1)  # (K, N, R)
        mixing.to_wtp_space(all_columns, at.whole)
        weighted, by_draw[:, :K, 0] = all_columns[random].transpose(0, 1), all_columns.sum(2).T
    else:
        weighted = torch.bmm(z[:, :, random].mT, p)  # (N, D, R)
        if len(random) < K:
            by_draw[:, :K, 0] = torch.bmm(z.mT, p.sum(2, keepdim=True))[:, :, 0]
    if at.extra is not None:
        by_draw[:, K:, 0] = (p * at.extra.view(E, *p.shape)).sum((2, 3)).T
    # 3. Multiply by the derivatives of nonlinear coefficients in their index.
    if at.draws.slope is not None:
        weighted = weighted * at.draws.slope
    by_draw[:, random, 0] = weighted.sum(2)
    by_draw[:, random, 1:] = torch.bmm(weighted, at.draws.basis.mT)
    # 4. The score of a parameter is the entry of its column and basis, times its covariate.
    score = -by_draw[:, mixing.column, mixing.basis] * at.covariates[:, mixing.individual]
    return score.double().cpu().numpy()


def _hessian(at: _EvaluatedBlock, mixing: MixingDistribution, weights: Tensor) -> Floats:  # (N,) -> (P, P)
    """Return the weighted sum of w_r (H_r + s_r s_r') over persons and draws r, in chunks that limit memory."""
    K, rows, R = at.z.shape[2], *at.e.shape
    total = torch.zeros(len(mixing.names), len(mixing.names), dtype=torch.float64, device=at.w.device)
    step = max((_GRAM if total.device.type == "cpu" else _ON_GPU) // (K * rows), 1)
    for begin in range(0, R, step):
        total += _curvature(at, mixing, weights, slice(begin, begin + step))
    return total.cpu().numpy()


def _curvature(at: _EvaluatedBlock, mixing: MixingDistribution, weights: Tensor, chunk: slice) -> Tensor:  # -> (P, P)
    """Return the weighted sum of w_r (H_r + s_r s_r') over persons and a chunk of draws."""
    # 1. H_r + s_r s_r' in the coefficients of the columns, or in WTP space, times the weights of persons and draws.
    w = at.w[:, chunk] * weights[:, None]
    score, second = _in_coefficients(at, chunk)
    if at.whole is not None:
        _in_wtp_space(score, second, at.whole[:, :, chunk], mixing)
    second *= w
    # 2. Chain rule: a parameter of column k multiplies the slope times a feature, which is 1, a draw or a covariate.
    #    One matrix product gives the row of a parameter.
    features = _features(at.draws.basis, at, chunk)  # (F, N, R)
    if at.draws.slope is not None:
        for d, (column, _) in enumerate(mixing.random):
            second[column] *= at.draws.slope[:, d, chunk]
            second[:, column] *= at.draws.slope[:, d, chunk]
    total = torch.empty(len(mixing.names), len(mixing.names), dtype=torch.float64, device=w.device)
    for k, (column, feature) in enumerate(zip(mixing.column, mixing.feature, strict=True)):
        products = (second[column] * features[feature]).flatten(1) @ features.flatten(1).T  # (K, F)
        total[k] = products[mixing.column, mixing.feature]
    # 3. Add the second derivatives of nonlinear coefficients in their index, times the score.
    for d, curve in at.draws.curvatures.items():
        parameters = np.flatnonzero(mixing.column == mixing.random[d].column)
        tilt = _features(at.draws.tilt, at, chunk)[mixing.feature[parameters]]
        weighted = (score[mixing.random[d].column] * w * curve[:, chunk]) * tilt  # (p, N, R)
        total[np.ix_(parameters, parameters)] += (weighted.flatten(1) @ tilt.flatten(1).T).double()
    # 4. Add the second derivatives of the indices that copulas correlate, in the entries of their rows of L.
    for d, copula in at.draws.copulas.items():
        rows = [mixing.dimensions + k for k, (e, _) in enumerate(mixing.copula_pairs) if e == d]
        parameters = np.flatnonzero(np.isin(mixing.basis, np.array(rows) + 1))
        weight = score[mixing.random[d].column] * w
        if at.draws.slope is not None:
            weight = weight * at.draws.slope[:, d, chunk]
        q = copula.q[:, :, chunk].transpose(0, 1)  # (l, N, R)
        bent = (weight * copula.bend[:, chunk] * q).flatten(1) @ q.flatten(1).T
        flat = (weight * copula.flat[:, chunk]).sum() * (
            torch.eye(len(copula.r)).to(q) - torch.outer(copula.r, copula.r)
        )
        total[np.ix_(parameters, parameters)] += (bent + flat).double()
    return total


def _in_coefficients(at: _EvaluatedBlock, chunk: slice) -> tuple[Tensor, Tensor]:  # -> (C, N, R), (C, C, N, R)
    """Return the scores s_r with respect to the coefficients of the columns and the scales, and H_r + s_r s_r'."""
    # 1. Probabilities of rows, means of columns in each set, and scores: minus the sums of means over a person's sets.
    block, (N, m, K), E = at.block, at.z.shape, len(at.mixed)
    z = at.z.permute(2, 0, 1)  # (K, N, m)
    p = at.e[:, chunk] * at.inverse[:, chunk].index_select(0, block.set_of_row)
    mean = block.sum_rows(z.reshape(K, -1, 1) * p)  # (K, T, R)
    extra = None if at.extra is None else at.extra[:, :, chunk]  # (E, N m, R)
    if extra is not None:
        mean = torch.cat([mean, block.sum_rows(extra * p)])
    score = -block.sum_sets(mean)
    out = p.new_empty(K + E, K + E, N, p.shape[1])
    # 2. Minus the covariances of the columns, summed over sets, plus the products of scores. The matrix is symmetric:
    #    compute one half.
    for k in range(K + E):
        between = block.sum_sets(mean[k] * mean[k:])
        if k < K:
            within = torch.bmm((z[k] * z[k:]).transpose(0, 1), p.view(N, m, -1)).transpose(0, 1)
        else:
            within = p.new_empty(0, N, p.shape[1])
        if extra is not None:
            # The columns of scales and transformations depend on the draw. Add the second derivatives of the utility.
            column = z[k].reshape(-1, 1) if k < K else extra[k - K]
            products = column * extra[max(k - K, 0) :]
            if k < K:
                products = products + at.mixed[:, :, k, None]
            elif at.twice is not None:
                products += at.twice[k - K, k - K :, :, chunk]
            within = torch.cat([within, (products * p).view(-1, N, m, p.shape[1]).sum(2)])
        out[k, k:] = between.sub_(within).addcmul_(score[k].expand_as(between), score[k:])
        out[k + 1 :, k] = out[k, k + 1 :]
    return score, out


def _in_wtp_space(score: Tensor, second: Tensor, whole: Tensor, mixing: MixingDistribution) -> None:
    """Transform scores and second derivatives to WTP space, in place.

    A coefficient -c w has the cross derivative -1 with respect to c and w, so the scores enter the second derivatives.
    """
    cross = score[mixing.wtp_columns].clone()
    mixing.to_wtp_space(score, whole)
    mixing.to_wtp_space(second, whole)  # columns
    mixing.to_wtp_space(second.transpose(0, 1), whole)  # rows
    second[mixing.wtp_columns, mixing.cost] -= cross
    second[mixing.cost, mixing.wtp_columns] -= cross


def _features(basis: Tensor, at: _EvaluatedBlock, chunk: slice) -> Tensor:  # (N, F, R) -> (1 + F + G, N, R)
    """Return the variables that the parameters of a coefficient multiply: 1, the draws and the covariates."""
    draws = basis[:, :, chunk].transpose(0, 1)
    covariates = at.covariates.T[:, :, None].expand(-1, -1, draws.shape[2])
    return torch.cat([covariates[:1], draws, covariates[1:]])


# -- Maximum simulated likelihood --------------------------------------------------------------------------------------
# First maximise with few draws, then with all draws, then evaluate with a second set of draws to measure the simulation
# error.
#
# From each start, Newton's method with the exact Hessian finds a maximum with few draws, in float32. The search then
# continues with all draws from each start whose maximum is among the best three so far. A few more iterations find the
# maximum to the precision of float64: the likelihood and its gradient are in float64, and the Hessian, which only sets
# the direction, in float32. The best maximum with few draws is often not the best with all draws: on swissmetro with
# four correlated normal coefficients, starts that end at -3498.6 and -3499.9 with 100 draws end at -3499.8 and -3493.3
# with 200. The starts that continue do so whatever starts follow, so more starts are never worse than fewer. Starts
# count as having ended at the same maximum only if their parameters agree, too: two starts of the same model end at
# -3504.46 and -3504.49 with 100 draws, and at -3481.5 and -3495.0 with 200.
#
# The estimates still depend on the draws. A second set of draws shows how much, by its log-likelihood at the estimates
# and the Newton step towards its maximum.
#
# A weak normal prior keeps the parameters finite if the data do not identify them: each has mean 0 and the precision
# `prior` in units that change a utility by about 1. It enters as one more person, of weight 1 and log-probability
# -prior u' u / 2.

_FIRST_DRAWS = 100  # draws of the first search
_FIRST_TOLERANCE = 1e-5  # least gain of a step, relative to the log-likelihood, with the first draws
_TOLERANCE = 1e-12  # ... and with all draws
_FINISHED = 3  # best maxima with few draws, among the starts so far, from which the search continues with all draws
_SMALL = 2**20  # utilities in all draws up to which the Hessian is in float64, at little cost


class SimulatedObjective(Protocol):
    """A simulated log-likelihood: that of a mixed logit, or of a mixture of mixed logits."""

    @property
    def size(self) -> int:
        """Number of utilities in all draws."""

    def evaluate(
        self, x: Floats, precision: Precision, *, scores: bool = True, weights: Floats | None = None
    ) -> tuple[Floats, Floats, Floats | None]:
        """See :meth:`SimulatedLikelihood.evaluate`."""


Make = Callable[[int, int], SimulatedObjective]  # number of draws, index of the set of draws -> likelihood


@dataclass(frozen=True, kw_only=True)
class SimulatedMaximum(Maximum):
    """Maximum of a simulated likelihood (without the prior), and its change with a second set of draws.

    ``scores`` (N, P) has a row for each person.
    """

    other_log_likelihood: float  # with a second set of draws, at the same values
    shift: Floats  # (P,) change of the estimates with the second set of draws
    starts: StartsRecord
    diverges: Bools  # (P,) True for parameters that only the prior keeps finite


class _StartRun(NamedTuple):
    """A start, and the maximum that it has reached."""

    value: float  # log-likelihood
    steps: int
    x: Floats  # (P,)
    start: int  # index of the start


def starts_to_finish(values: Sequence[float], tolerance: float, points: Floats) -> list[int]:
    """Return the starts from which the search continues with all draws, given their maxima with few draws.

    These are the starts of the best three different maxima of the first n starts, for every n. So the starts that
    continue still do so if there are more starts.

    Examples
    --------
    >>> starts_to_finish([-9, -8, -7, -6, -6.01, -9, -5], 0.1, np.zeros((7, 1)))
    [0, 1, 2, 3, 6]
    """
    finished: list[int] = []
    for n in range(1, len(values) + 1):
        groups = group_by_maximum(values[:n], tolerance, points)
        finished += [min(group) for group in groups[:_FINISHED] if not {*group} & {*finished}]
    return finished


@dataclass(frozen=True)
class SimulatedSearch:
    """Search for the maximum of a simulated likelihood."""

    make: Make
    weights: Floats  # (N,) weights of the persons
    scale: Floats  # (P,) change of each parameter that changes a utility by about 1
    within: Parameters  # fixed values and bounds
    draws: int
    prior: float
    max_iter: int
    comparable: Callable[[Floats], Floats] = np.abs  # makes equivalent parameters equal

    def maximum(self, starts: Floats) -> SimulatedMaximum:  # (A, P)
        """Return the best maximum that is reached from several starts."""
        # 1. Few draws, in float32: most of the way at a fraction of the cost.
        begin = [_StartRun(-math.inf, 0, x, k) for k, x in enumerate(starts)]
        first_draws = min(_FIRST_DRAWS, self.draws)
        few = self.make(first_draws, 0)
        runs, failed = self._search(few, first_draws, begin, ("float32", "float32"), _FIRST_TOLERANCE)
        values, tolerance = [run.value for run in runs], SAME_MAXIMUM - _FIRST_TOLERANCE * runs[0].value
        points = np.stack([self.comparable(run.x) for run in runs]) / self.scale  # spreads may have any sign
        # 2. All draws, from the best maxima: the last iterations, with the likelihood in float64. The Hessian only sets
        #    the direction.
        likelihood = self.make(self.draws, 0)
        hessian_precision: Precision = "float64" if likelihood.size <= _SMALL else "float32"
        finished = [runs[k] for k in starts_to_finish(values, tolerance, points)]
        precisions: tuple[Precision, Precision] = ("float64", hessian_precision)
        ends, failed_later = self._search(likelihood, self.draws, finished, precisions, _TOLERANCE)
        best, *others = group_by_maximum([end.value for end in ends])
        _, steps, x, _ = ends[best[0]]
        ended_at_best = {ends[k].start for k in best}
        groups = [{runs[k].start for k in group} for group in group_by_maximum(values, tolerance, points)]
        record = StartsRecord(
            starts=len(starts),
            at_maximum=sum(len(group) for group in groups if group & ended_at_best),
            next_best=ends[others[0][0]].value if others else None,
            failed=failed + failed_later,
        )
        # 3. Scores and Hessian for the standard errors, without the prior.
        hessian = self._hessian(likelihood, x, hessian_precision)
        ll, scores, _ = likelihood.evaluate(x, "float64")
        # 4. Parameters that only the prior keeps finite.
        diverges = diverges_without_prior(
            lambda x: likelihood.evaluate(x, "float64")[:2],
            lambda x: self._hessian(likelihood, x, hessian_precision),
            x,
            self.weights,
            scale=self.scale,
            within=self.within,
        )
        # 5. A second set of draws: the log-likelihood there, and the Newton step towards its maximum.
        other_ll, other_scores, _ = self.make(self.draws, 1).evaluate(x, "float32")
        shift = self._newton_step(x, hessian, self.weights @ other_scores)
        return SimulatedMaximum(
            values=x,
            log_likelihood=float(self.weights @ ll),
            scores=scores,
            hessian=hessian,
            steps=steps,
            spread=1 / self.scale,
            prior_score=-self.prior / self.scale**2 * x,
            other_log_likelihood=float(self.weights @ other_ll),
            shift=shift,
            starts=record,
            diverges=diverges,
        )

    def rough_maximum(self, start: Floats) -> Floats:  # (P,) -> (P,)
        """Return the maximum with few draws, in float32, that is reached from one start."""
        few = self.make(min(_FIRST_DRAWS, self.draws), 0)
        return self._maximise(few, start, "float32", "float32", _FIRST_TOLERANCE)[0]

    def _search(
        self,
        likelihood: SimulatedObjective,
        draws: int,
        starts: Sequence[_StartRun],
        precisions: tuple[Precision, Precision],
        enough: float,
    ) -> tuple[list[_StartRun], int]:
        """Maximise from each start, and return the maxima and the number of starts without one.

        The likelihood and the Hessian have the given precisions. If no start reaches a maximum, the error of the first
        is raised.
        """
        runs, errors = list[_StartRun](), list[TrainingError]()
        for run in starts:
            try:
                x, steps = self._maximise(likelihood, run.x, *precisions, enough)
            except TrainingError as error:
                log.info("start %d failed: %s", run.start + 1, error)
                errors.append(error)
                continue
            value = float(self.weights @ likelihood.evaluate(x, precisions[0], scores=False)[0])
            log.info("%d draws: log-likelihood %.3f after %d iterations", draws, value, steps)
            runs.append(_StartRun(value, run.steps + steps, x, run.start))
        if not runs:
            raise errors[0]
        return runs, len(errors)

    def _maximise(
        self, problem: SimulatedObjective, start: Floats, precision: Precision, hessian: Precision, enough: float
    ) -> tuple[Floats, int]:
        """Maximise by Newton's method, with the likelihood and the Hessian in the given precisions."""
        # The prior is one more person, of weight 1: it adds -precisions x^2 / 2 to the log-likelihood.
        precisions = self.prior / self.scale**2

        def objective(x: Floats) -> tuple[Floats, Floats]:
            ll, scores, _ = problem.evaluate(x, precision)
            return np.append(ll, -precisions @ x**2 / 2), np.vstack([scores, -precisions * x])

        def curvature(x: Floats) -> Floats:
            return self._hessian(problem, x, hessian) - np.diag(precisions)

        return maximise(
            objective,
            start,
            np.append(self.weights, 1.0),
            curvature=curvature,
            scale=self.scale,
            within=self.within,
            max_iter=self.max_iter,
            enough=enough,
        )

    def _hessian(self, problem: SimulatedObjective, x: Floats, precision: Precision) -> Floats:  # -> (P, P)
        """Return the Hessian of the log-likelihood, without the prior."""
        hessian = problem.evaluate(x, precision, weights=self.weights)[2]
        assert hessian is not None
        return hessian

    def _newton_step(self, x: Floats, hessian: Floats, gradient: Floats) -> Floats:  # (P,), (P, P), (P,) -> (P,)
        """Return the Newton step, with 0 for the parameters that are not free."""
        within, T = self.within.reduced, self.within.expansion
        free = np.flatnonzero(~(within.fixed | within.at_bound(x[self.within.distinct])))
        information, step = -(T.T @ hessian @ T), np.zeros(T.shape[1])
        step[free] = np.linalg.lstsq(information[np.ix_(free, free)], (gradient @ T)[free], rcond=1e-10)[0]
        return np.asarray(step[self.within.group])
