"""The mixed logit on ragged choice sets: simulated log-likelihood, scores of persons, Hessian, in one pass.

Person n chooses in sets t with coefficients b_r in draw r (``models/logit/random_coefficients.py``). With z_j the
differences of the alternatives not chosen to the chosen one, as in ``logit_likelihood.py``,

    log P_nr = -sum_t log(1 + sum_j exp(z_j . b_r))        log L_n = log mean_r P_nr            (Revelt & Train, 1998)

With w_r = P_nr / sum_r P_nr, the share of draw r given the choices, s_r the score of log P_nr and H_r its Hessian,

    score    s = sum_r w_r s_r
    Hessian  sum_r w_r (H_r + s_r s_r') - s s'                                                   (Louis, 1982)

Parameter p moves the utility of row j in draw r by z_jk c_pr, with k its column and c_pr the derivative of the
coefficient of that column. Then, with p_j the probabilities and the sum over j that over the rows of a set,

    H_r = -c_p c_q sum_t [sum_j p_j z_jk z_jl - (sum_j p_j z_jk)(sum_j p_j z_jl)] + second derivatives of b.

The work is in arrays (rows, R), made block by block: see ``models/logit/draws.py``. Products and exponentials are in
float32 or float64, as asked; logarithms of probabilities over draws, and all sums over persons, in float64.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.layers.threads import run_in_threads
from pcmcnet.models.logit.draws import PersonBlock, PersonDraws, blocks
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import Maximum, maximise
from pcmcnet.models.logit.parameter_bounds import Parameters
from pcmcnet.models.logit.random_coefficients import MixingDistribution, SampledCoefficients

log = logging.getLogger("pcmcnet")

Precision = Literal["float32", "float64"]

T = TypeVar("T")

_ON_CPU, _ON_GPU = 2**17, 2**25  # numbers of an array, at a time: what a processor's cache holds, what keeps a GPU busy
_GRAM = 2**20  # numbers of the products that make a Hessian, at a time, on a CPU
_LARGEST = {torch.float32: 60.0, torch.float64: 600.0}  # utilities whose exponentials can be summed


class BlockLikelihood(NamedTuple):
    """What a block of persons adds."""

    log_likelihoods: Floats  # (N,)
    scores: Floats | None  # (N, P)
    hessian: Floats | None  # (P, P)


class _Inside(NamedTuple):
    """A block at some parameters."""

    block: PersonBlock
    who: Tensor  # (N, 1 + G) numbers of the individuals, after a 1
    draws: SampledCoefficients
    e: Tensor  # (N m, R) exponentials of the rows' utilities
    inverse: Tensor  # (T, R) what they are multiplied by to be probabilities
    w: Tensor  # (N, R) shares of the draws given the choices
    whole: Tensor | None  # (K, N, R) coefficients, or cost and worths, of all columns: in willingness-to-pay space


@dataclass
class SimulatedLikelihood:
    """Choice sets of persons, the draws of each, and the coefficients these make."""

    z: Floats  # (M, K) differences to the chosen alternative
    offsets: Ints  # (T + 1,)
    person: Ints  # (T,) number of each set's person
    keys: Ints  # (N,) of the persons' draws
    who: Floats  # (N, G) numbers of the individuals
    mixing: MixingDistribution
    draws: PersonDraws
    memory: float  # bytes that draws may take to be kept
    _kept: dict[int, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sets: LogitLikelihood,
        person: Ints,
        keys: Ints,
        who: Floats,
        mixing: MixingDistribution,
        draws: PersonDraws,
        memory: float,
    ) -> SimulatedLikelihood:
        """Take the differences of choice sets, whose persons (S,) are numbered."""
        return cls(sets.z, sets.offsets, person[sets.sets], keys, who, mixing, draws, memory)

    def __post_init__(self) -> None:
        device, D, R = self.draws.device, self.mixing.dimensions, self.draws.number
        most = (_ON_GPU if device.type == "cuda" else _ON_CPU) // R
        self.blocks = list(blocks(self.z, self.offsets, self.person, max(most, 1), device))
        self._keeps = 4.0 * len(self.keys) * D * R <= self.memory

    def evaluate(
        self, x: Floats, precision: Precision, *, scores: bool = True, weights: Floats | None = None
    ) -> tuple[Floats, Floats, Floats | None]:
        """Return log-likelihoods (N,), their gradients (N, P) and, where weights (N,) are given, the Hessian (P, P)."""
        # 1. Each block adds the values of its own persons, and its part of sum_r w_r (H_r + s_r s_r').
        ll, score, P = np.zeros(len(self.keys)), np.zeros((len(self.keys), len(x))), len(x)
        parts = self.by_block(lambda block: self._part(block, x, getattr(torch, precision), scores, weights))
        total = np.zeros((P, P))
        for block, part in zip(self.blocks, parts, strict=True):
            ll[block.persons] = part.log_likelihoods
            if part.scores is not None:
                score[block.persons] = part.scores
            if part.hessian is not None:
                total += part.hessian
        # 2. Louis's formula needs the persons' own scores once more: less s s'.
        return ll, score, None if weights is None else total - (score * weights[:, None]).T @ score

    def by_block(self, function: Callable[[PersonBlock], T]) -> list[T]:
        """Call a function for every block; on a CPU each thread takes one at a time."""
        if self.draws.device.type == "cpu":
            return run_in_threads(function, self.blocks)
        with torch.no_grad():
            return list(map(function, self.blocks))

    def coefficients(self, persons: Ints, x: Floats, dtype: torch.dtype) -> SampledCoefficients:
        """Return the random coefficients of some persons."""
        locations = torch.from_numpy(self.mixing.locations(x, self.who[persons]))
        triangle, device = torch.from_numpy(self.mixing.triangle(x)), self.draws.device
        draws = self._standard(persons, dtype)
        return self.mixing.sample(locations.to(device, dtype), triangle.to(device, dtype), draws)

    def _standard(self, persons: Ints, dtype: torch.dtype) -> Tensor:  # -> (N, D, R)
        """Return the standard draws of a block's persons, kept from the first time on where there is room."""
        first = int(persons[0])
        found = self._kept.get(first)
        if found is None:
            found = self.mixing.standard(self.draws.of(self.keys[persons]))
            if self._keeps:
                self._kept[first] = found
        return found.to(dtype)

    def inside(self, block: PersonBlock, x: Floats, dtype: torch.dtype) -> tuple[Tensor, _Inside]:
        """Return the log-likelihoods of a block's persons (N,), and what is needed to differentiate them."""
        # 1. Utilities (N, m, R). Columns whose coefficient is the same for all are multiplied once, not in every draw;
        #    in willingness-to-pay space every coefficient is a product with that of the cost, so none is.
        draws, mixing, whole = self.coefficients(block.persons, x, dtype), self.mixing, None
        z, random = block.z.to(dtype), [r.column for r in mixing.random]
        if mixing.cost is None:
            still = [k for k in range(mixing.located) if k not in random]
            common = (block.z[:, :, still] @ torch.from_numpy(x[still]).to(block.z)).to(dtype)  # (N, m)
            v = torch.baddbmm(common[:, :, None].expand(-1, -1, self.draws.number), z[:, :, random], draws.value)
        else:
            every = mixing.whole(x, draws.value)
            v, whole = torch.bmm(z, mixing.in_utility(every)), every.transpose(0, 1)
        # 2. Log-probabilities of the choices, summed over a person's sets: log P_nr.
        log_p, e, inverse = _exponentials(v.view(-1, v.shape[-1]), block)
        joint = block.sum_sets(log_p).double()  # (N, R)
        # 3. Their log-mean over draws, in float64, and the shares w_r of draws given the choices.
        ll = joint.logsumexp(1)
        w = (joint - ll[:, None]).exp_().to(dtype)
        ones = np.ones((len(block.persons), 1))
        who = torch.from_numpy(np.hstack([ones, self.who[block.persons]])).to(v)
        return ll - math.log(self.draws.number), _Inside(block, who, draws, e, inverse, w, whole)

    def conditional(self, x: Floats, cost: int | None = None) -> tuple[Floats, Floats]:  # -> (N, D), (N, D)
        """Return means and standard deviations of each person's random coefficients, given the choices.

        With a column for ``cost``, those of willingness to pay: minus their ratios to its coefficient.
        """
        mean, deviation = np.empty((2, len(self.keys), self.mixing.dimensions))

        def moments(values: Tensor, w: Tensor) -> tuple[Floats, Floats]:  # (N, D, R), (N, R, 1)
            if cost is not None:
                values = -values / self.mixing.whole(x, values)[:, cost, None]
            middle = torch.bmm(values, w)
            width = torch.bmm((values - middle) ** 2, w).sqrt()
            return middle[:, :, 0].cpu().numpy(), width[:, :, 0].cpu().numpy()

        def given(block: PersonBlock) -> tuple[Floats, Floats]:
            at = self.inside(block, x, torch.float64)[1]
            return moments(at.draws.value, at.w[:, :, None])

        # 1. Persons with choices: draws weighted by their shares given the choices.
        for block, found in zip(self.blocks, self.by_block(given), strict=True):
            mean[block.persons], deviation[block.persons] = found
        # 2. Persons without a choice to make: all draws count alike.
        chose = np.unique(self.person)
        for n in np.setdiff1d(np.arange(len(self.keys)), chose):
            values = self.coefficients(np.array([n]), x, torch.float64).value
            alike = torch.full_like(values[:, :1], 1 / values.shape[2]).mT
            mean[n], deviation[n] = (part[0] for part in moments(values, alike))
        return mean, deviation

    def _part(
        self, block: PersonBlock, x: Floats, dtype: torch.dtype, scores: bool, weights: Floats | None
    ) -> BlockLikelihood:
        ll, inside = self.inside(block, x, dtype)
        hessian = None
        if weights is not None:
            hessian = _hessian(inside, self.mixing, torch.from_numpy(weights[block.persons]).to(inside.w))
        return BlockLikelihood(ll.cpu().numpy(), _scores(inside, self.mixing) if scores else None, hessian)


def _exponentials(
    v: Tensor, block: PersonBlock
) -> tuple[Tensor, Tensor, Tensor]:  # (N m, R) -> (T, R), (N m, R), (T, R)
    """Return the log-probabilities of the choices, and the probabilities of the rows as products; v is overwritten."""
    # 1. The largest utility is taken out only if exponentials could overflow; the chosen alternative has utility 0.
    top = None
    if float(v.amax()) > _LARGEST[v.dtype]:
        top = block.largest(v).clamp_min_(0)
        v -= top[block.set_of_row]
    # 2. p_j = e_j / (1 + sum of e), and the choice has log-probability -log(1 + sum of e). Padded rows add nothing.
    e = v.exp_()
    e.index_fill_(0, block.empty_rows, 0)
    total = block.sum_rows(e).add_(1 if top is None else (-top).exp())
    log_p = -total.log() if top is None else -total.log() - top
    return log_p, e, total.reciprocal_()


def _scores(at: _Inside, mixing: MixingDistribution) -> Floats:  # -> (N, P)
    """Return the gradient of each person's log-likelihood; the exponentials are overwritten."""
    z, (N, R) = at.block.z.to(at.w), at.w.shape
    random = [r.column for r in mixing.random]
    # 1. Probabilities of the rows, times the shares of the draws.
    share = at.inverse * at.w.index_select(0, at.block.person_of_set)
    p = at.e.mul_(share.index_select(0, at.block.set_of_row)).view(N, -1, R)  # times the share of the draw
    # 2. Their sums with z, in every draw for random coefficients, over all draws for the others: column by column
    #    (first axis), for a derivative that is 1 (entry 0) or the draw of random coefficient l (entry 1 + l).
    by_draw = torch.zeros(N, z.shape[2], 1 + len(random), dtype=p.dtype, device=p.device)
    if at.whole is not None:
        every = torch.bmm(z.mT, p).transpose(0, 1)  # (K, N, R)
        mixing.to_worths(every, at.whole)
        weighted, by_draw[:, :, 0] = every[random].transpose(0, 1), every.sum(2).T
    else:
        weighted = torch.bmm(z[:, :, random].mT, p)  # (N, D, R)
        if z.shape[2] > len(random):
            by_draw[:, :, 0] = torch.bmm(z.mT, p.sum(2, keepdim=True))[:, :, 0]
    # 3. Derivatives of coefficients in their index, where they are no straight lines.
    if at.draws.slope is not None:
        weighted = weighted * at.draws.slope
    by_draw[:, random, 0] = weighted.sum(2)
    by_draw[:, random, 1:] = torch.bmm(weighted, at.draws.basis.mT)
    # 4. Each parameter takes the entry of its column and basis, times its number of the individual.
    score = -by_draw[:, mixing.column, mixing.basis] * at.who[:, mixing.individual]
    return score.double().cpu().numpy()


def _hessian(at: _Inside, mixing: MixingDistribution, weights: Tensor) -> Floats:  # (N,) -> (P, P)
    """Return the weighted sum over persons of sum_r w_r (H_r + s_r s_r'), in stretches of draws that bound memory."""
    K, rows, R = at.block.z.shape[2], *at.e.shape
    total = torch.zeros(len(mixing.names), len(mixing.names), dtype=torch.float64, device=at.w.device)
    step = max((_GRAM if total.device.type == "cpu" else _ON_GPU) // (K * rows), 1)
    for begin in range(0, R, step):
        total += _curvature(at, mixing, weights, slice(begin, begin + step))
    return total.cpu().numpy()


def _curvature(at: _Inside, mixing: MixingDistribution, weights: Tensor, part: slice) -> Tensor:  # -> (P, P)
    """Return the weighted sum over persons and some draws of w_r (H_r + s_r s_r')."""
    # 1. H_r + s_r s_r' in the coefficients of the columns, or in cost and worths, times weights and shares.
    w = at.w[:, part] * weights[:, None]
    score, bend = _in_coefficients(at, part)
    if at.whole is not None:
        _in_worths(score, bend, at.whole[:, :, part], mixing)
    bend *= w
    # 2. To the parameters: that of column k multiplies slope times a feature, which is 1, a draw or a number of the
    #    individual. One product of matrices gives the row of a parameter.
    features = _features(at.draws.basis, at, part)  # (F, N, R)
    if at.draws.slope is not None:
        for d, (column, _) in enumerate(mixing.random):
            bend[column] *= at.draws.slope[:, d, part]
            bend[:, column] *= at.draws.slope[:, d, part]
    total = torch.empty(len(mixing.names), len(mixing.names), dtype=torch.float64, device=w.device)
    for k, (column, feature) in enumerate(zip(mixing.column, mixing.feature, strict=True)):
        moved = (bend[column] * features[feature]).flatten(1) @ features.flatten(1).T  # (K, F)
        total[k] = moved[mixing.column, mixing.feature]
    # 3. The second derivatives of coefficients that bend in their index, times the score in them.
    for d, curve in at.draws.bends.items():
        mine = np.flatnonzero(mixing.column == mixing.random[d].column)
        tilt = _features(at.draws.tilt, at, part)[mixing.feature[mine]]
        weighted = (score[mixing.random[d].column] * w * curve[:, part]) * tilt  # (p, N, R)
        total[np.ix_(mine, mine)] += (weighted.flatten(1) @ tilt.flatten(1).T).double()
    return total


def _in_coefficients(at: _Inside, part: slice) -> tuple[Tensor, Tensor]:  # -> (K, N, R), (K, K, N, R)
    """Return the scores s_r in the coefficients of the columns, and H_r + s_r s_r'."""
    # 1. Probabilities of rows, means of columns in each set, and scores: minus the sums of these over a person's sets.
    block, (N, m, K) = at.block, at.block.z.shape
    z = block.z.to(at.w).permute(2, 0, 1)  # (K, N, m)
    p = at.e[:, part] * at.inverse[:, part].index_select(0, block.set_of_row)
    mean = block.sum_rows(z.reshape(K, -1, 1) * p)  # (K, T, R)
    score = -block.sum_sets(mean)
    out = p.new_empty(K, K, N, p.shape[1])
    # 2. Minus the covariances of the columns, summed over sets, plus the products of scores; half of it, as it is
    #    symmetric.
    for k in range(K):
        between = block.sum_sets(mean[k] * mean[k:])
        within = torch.bmm((z[k] * z[k:]).transpose(0, 1), p.view(N, m, -1)).transpose(0, 1)
        out[k, k:] = between.sub_(within).addcmul_(score[k].expand_as(between), score[k:])
        out[k + 1 :, k] = out[k, k + 1 :]
    return score, out


def _in_worths(score: Tensor, bend: Tensor, whole: Tensor, mixing: MixingDistribution) -> None:
    """Take both to derivatives in the cost and in worths; second derivatives of their products are scores."""
    crossed = score[mixing.worths].clone()
    mixing.to_worths(score, whole)
    mixing.to_worths(bend, whole)  # the columns, then the rows
    mixing.to_worths(bend.transpose(0, 1), whole)
    bend[mixing.worths, mixing.cost] -= crossed
    bend[mixing.cost, mixing.worths] -= crossed


def _features(basis: Tensor, at: _Inside, part: slice) -> Tensor:  # (N, D, R) -> (1 + D + G, N, R)
    """Return what derivatives of a coefficient are multiples of: 1, the draws, the numbers of the individual."""
    some = basis[:, :, part].transpose(0, 1)
    who = at.who.T[:, :, None].expand(-1, -1, some.shape[2])
    return torch.cat([who[:1], some, who[1:]])


# -- Mixed search ------------------------------------------------------------------------------------------------------
# The maximum of a simulated likelihood: few draws first, then all of them, then another set to see what they matter.
#
# Newton's steps with the exact Hessian find the maximum with few draws, in float32, from each start. From the best of
# them, with all draws, a few more find the maximum to float64's precision: the likelihood and its gradient are
# float64's, the Hessian, which only leads the way there, float32's. The estimates still depend on the draws. How much
# is told by a second set of them: the log-likelihood there, and one of Newton's steps towards its maximum.
#
# A weak normal prior keeps the parameters finite where the data do not: each has mean 0 and the precision `prior` in
# units that change a utility by about 1. It enters as one more person, of weight 1 and log-probability -prior u' u / 2.

_FEW = 100  # draws of the first search
_NEAR = 1e-5  # gain of a step, relative to the log-likelihood, that is still worth one with few draws
_SETTLED = 1e-12  # and with all of them
_SMALL = 2**20  # utilities in all draws up to which float64 throughout costs nothing that anyone notices

Make = Callable[[int, int], SimulatedLikelihood]  # number of draws, and which set of them


@dataclass(frozen=True, kw_only=True)
class SimulatedMaximum(Maximum):
    """Where a simulated likelihood is largest, and how other draws would change it; all without the prior.

    ``scores`` (N, P) are those of persons.
    """

    other_log_likelihood: float  # with other draws, at the same values
    shift: Floats  # (P,) by which the estimates would move under other draws


@dataclass(frozen=True)
class SimulatedSearch:
    """What is to be maximised, and how far to go."""

    make: Make
    weights: Floats  # (N,) of the persons
    scale: Floats  # (P,) change of each parameter that changes a utility by about 1
    within: Parameters  # which are fixed or bounded
    draws: int
    prior: float
    max_iter: int

    def maximum(self, starts: Floats) -> SimulatedMaximum:  # (A, P)
        """Find the maximum near the best of some starts."""
        # 1. Few draws, float32: most of the way at a fraction of the cost.
        x, steps = self._near(starts)
        # 2. All draws: the last steps, on a likelihood exact to float64. The Hessian only leads the way.
        many = self.make(self.draws, 0)
        small = len(many.z) * self.draws <= _SMALL
        x, more = self._climb(many, x, "float64", "float64" if small else "float32", _SETTLED)
        # 3. What standard errors need, without the prior.
        _, _, bend = many.evaluate(x, "float64" if small else "float32", weights=self.weights)
        ll, scores, _ = many.evaluate(x, "float64")
        assert bend is not None
        value = float(self.weights @ ll)
        log.info("%d draws: log-likelihood %.3f after %d further steps", self.draws, value, more)
        # 4. Draws of another seed: the log-likelihood there, and the step towards its own maximum.
        there, slope, _ = self.make(self.draws, 1).evaluate(x, "float32")
        shift = self._newton_step(x, bend, self.weights @ slope)
        return SimulatedMaximum(
            values=x,
            log_likelihood=value,
            scores=scores,
            hessian=bend,
            steps=steps + more,
            spread=1 / self.scale,
            other_log_likelihood=float(self.weights @ there),
            shift=shift,
        )

    def _near(self, starts: Floats) -> tuple[Floats, int]:
        """Come near the maximum with few draws; returns the parameters and the number of steps."""
        few, runs = self.make(min(_FEW, self.draws), 0), []
        for start in starts:
            x, steps = self._climb(few, start, "float32", "float32", _NEAR)
            value = float(self.weights @ few.evaluate(x, "float32", scores=False)[0])
            log.info("%d draws: log-likelihood %.3f after %d steps", few.draws.number, value, steps)
            runs.append((value, steps, x))
        _, steps, x = max(runs, key=lambda run: run[0])
        return x, steps

    def _climb(
        self, problem: SimulatedLikelihood, start: Floats, precision: Precision, hessian: Precision, enough: float
    ) -> tuple[Floats, int]:
        """Take Newton's steps, with likelihood and Hessian in some precision, as long as there is enough to gain."""
        # The prior is one more person, of weight 1: it adds -pull x^2 / 2 to the log-likelihood.
        pull = self.prior / self.scale**2

        def objective(x: Floats) -> tuple[Floats, Floats]:
            ll, scores, _ = problem.evaluate(x, precision)
            return np.append(ll, -pull @ x**2 / 2), np.vstack([scores, -pull * x])

        def curvature(x: Floats) -> Floats:
            found = problem.evaluate(x, hessian, weights=self.weights)[2]
            assert found is not None
            return found - np.diag(pull)

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

    def _newton_step(self, x: Floats, bend: Floats, gradient: Floats) -> Floats:  # (P,), (P, P), (P,) -> (P,)
        """Return the step of the parameters that are free; 0 for others."""
        free = np.flatnonzero(~(self.within.fixed | self.within.at_bound(x)))
        step = np.zeros_like(x)
        step[free] = np.linalg.lstsq(-bend[np.ix_(free, free)], gradient[free], rcond=1e-10)[0]
        return step
