"""Logits, with nests or without, of a utility that is not linear in its parameters.

At any parameters theta the utility is replaced by a linear one, M c with dc / dtheta = G, which has its value and its
derivatives: see ``design/box_cox_and_wtp_space.py``. With s the scores of a logit of M c, those in theta are s G,
exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.design.box_cox_and_wtp_space import Linearised
from pcmcnet.models.logits.estimation.logit_likelihood import LogitSets
from pcmcnet.models.logits.estimation.maximum_likelihood import Maximum, hessian, maximise
from pcmcnet.models.logits.estimation.nested_likelihood import Allocation, NestedSets, Nests
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters


class CurvedLogit:
    """Choices whose utilities are linearised anew at every point."""

    def __init__(self, linearise: Callable[[Floats], Linearised], offsets: Ints, chosen: Ints) -> None:
        self._linearise, self._offsets, self._chosen = linearise, offsets, chosen
        self._last: tuple[bytes, LogitSets, Linearised] | None = None

    def objective(self, theta: Floats) -> tuple[Floats, Floats]:
        """(K,) -> (S,), (S, K): log-probabilities of the choices and their scores; -inf beyond any number."""
        sets, near = self._at(theta)
        if not np.isfinite(sets.z).all():
            return np.full(sets.n_sets, -np.inf), np.zeros((sets.n_sets, len(theta)))
        ll, _, mean = sets.evaluate(near.coefficients)
        return sets.over_all_sets(ll), sets.over_all_sets(-mean) @ near.chain

    def spread(self, theta: Floats) -> Floats:  # (K,) -> (K,)
        """Return the size of what each parameter moves: root mean squares of the derivatives of utility differences."""
        sets, near = self._at(theta)
        rms = np.sqrt(np.mean((sets.z @ near.chain) ** 2, axis=0))
        return np.where(rms > 0, rms, 1.0)

    def _at(self, theta: Floats) -> tuple[LogitSets, Linearised]:
        """Linearise, once for calls at one point."""
        key = theta.tobytes()
        if self._last is None or self._last[0] != key:
            near = self._linearise(theta)
            with np.errstate(invalid="ignore"):  # inf - inf, far out
                self._last = key, LogitSets.from_matrix(near.matrix, self._offsets, self._chosen), near
        return self._last[1], self._last[2]


def curved_maximum(
    design: Design,
    sets: ChoiceData,
    problem: LogitSets,
    within: Parameters,
    named: Collection[str],
    max_iter: int,
) -> Maximum:
    """Find the maximum of a conditional logit whose utility is not linear.

    Parameters
    ----------
    design, sets
        The utility, and the choices.
    problem
        The utility at the exponents that ``within`` begins with, which is linear: its maximum is where the search
        begins, but for the parameters that are ``named``.
    within
        All parameters.
    max_iter
        Steps of either search, at most.
    """
    # 1. With the exponents held where they begin, the utility is linear: its logit has one maximum, found by Newton.
    form, weights = design.form, sets.weights
    known = {} if form.offset is None else {form.offset: 1.0}
    linear = Parameters.of(form.columns, fixed=known, bounds={}, start={})
    b, _, _ = problem.maximise(weights, within=linear, max_iter=max_iter)
    # 2. Start there, except for the parameters whose starting values are given.
    begin = form.parameters(b, form.exponents(within.start))
    begin = within.inside(np.where([name in named for name in form.names], within.start, begin))
    # 3. Climb with the utility linearised anew at each point, which gives exact scores.
    logit = CurvedLogit(partial(design.linearised, sets), sets.offsets, sets.require_chosen("fitting"))
    scale = 1 / logit.spread(begin)
    theta, steps = maximise(logit.objective, begin, weights, scale=scale, within=within, max_iter=max_iter)
    # 4. The Hessian there, in steps that suit the size of what each parameter moves at the maximum.
    ll, scores = logit.objective(theta)
    spread = logit.spread(theta)
    return Maximum(
        values=theta,
        log_likelihood=float(weights @ ll),
        scores=scores,
        hessian=hessian(logit.objective, theta, weights, scale=1 / spread),
        steps=steps,
        spread=spread,
    )


class CurvedNestedSets(NestedSets):
    """Choices in nested sets; utilities, as ``linearise`` gives them by row, are linearised anew at every point."""

    def __init__(
        self,
        linearise: Callable[[Floats], Linearised],
        n_parameters: int,
        nests: Nests,
        chosen: Bools,
        counts: Floats,
        allocation: Allocation | None = None,
    ) -> None:
        super().__init__(np.zeros((len(chosen), n_parameters)), nests, chosen, counts, allocation)
        self._linearise = linearise

    def evaluate(self, values: Floats) -> tuple[Floats, Floats]:
        """(P,) -> (S,), (S, P): log-probabilities and scores; -inf beyond any number."""
        near = self._linearise(values[: self.K])
        if not np.isfinite(near.matrix).all():
            n_sets = len(self.nests.sets) - 1
            return np.full(n_sets, -np.inf), np.zeros((n_sets, len(values)))
        self.x = near.matrix[self.nests.order]
        ll, scores = super().evaluate(np.concatenate([near.coefficients, values[self.K :]]))
        scores[:, : self.K] = scores[:, : self.K] @ near.chain
        return ll, scores
