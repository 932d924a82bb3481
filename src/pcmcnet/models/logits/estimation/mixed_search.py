"""The maximum of a simulated likelihood: few draws first, then all of them, then another set to see what they matter.

Newton's steps with the exact Hessian find the maximum with few draws, in float32, from each start. From the best of
them, with all draws, a few more find the maximum to float64's precision: the likelihood and its gradient are float64's,
the Hessian, which only leads the way there, float32's. The estimates still depend on the draws. How much is told by a
second set of them: the log-likelihood there, and one of Newton's steps towards its maximum.

A weak normal prior keeps the parameters finite where the data do not: each has mean 0 and the precision ``prior`` in
units that change a utility by about 1. It enters as one more person, of weight 1 and log-probability -prior u' u / 2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.models.logits.estimation.maximum_likelihood import Maximum, maximise
from pcmcnet.models.logits.estimation.mixed_likelihood import MixedSets, Precision
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters

log = logging.getLogger("pcmcnet")

_FEW = 100  # draws of the first search
_NEAR = 1e-5  # gain of a step, relative to the log-likelihood, that is still worth one with few draws
_SETTLED = 1e-12  # and with all of them
_SMALL = 2**20  # utilities in all draws up to which float64 throughout costs nothing that anyone notices

Make = Callable[[int, int], MixedSets]  # number of draws, and which set of them


@dataclass(frozen=True, kw_only=True)
class SimulatedMaximum(Maximum):
    """Where a simulated likelihood is largest, and how other draws would change it; all without the prior.

    ``scores`` (N, P) are those of persons.
    """

    other_log_likelihood: float  # with other draws, at the same values
    shift: Floats  # (P,) by which the estimates would move under other draws


@dataclass(frozen=True)
class Search:
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
        self, problem: MixedSets, start: Floats, precision: Precision, hessian: Precision, enough: float
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
