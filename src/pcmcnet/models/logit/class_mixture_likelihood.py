"""Simulated likelihood of a mixture of mixed logits: latent classes with random coefficients, and zero inflation.

With the shares pi_m of the members of the mixture (``mixing_classes.py``) and their simulated likelihoods L_nm
(``mixed_likelihood.py``), L_n = sum_m pi_m L_nm. Let r_m = pi_m L_nm / L_n be the posterior share of member m, s_m the
score of log(pi_m L_nm) and H_m its Hessian. Then

    score    s = sum_m r_m s_m
    Hessian  sum_m r_m (H_m + s_m s_m') - s s'                        (Louis, 1982)

All members use the same draws of a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.models.logit.latent_class_likelihood import posterior
from pcmcnet.models.logit.mixed_likelihood import Precision, SimulatedLikelihood
from pcmcnet.models.logit.mixing_classes import MixingClasses


@dataclass(frozen=True)
class ClassMixtureLikelihood:
    """Simulated likelihood of a mixture of mixed logits."""

    likelihood: SimulatedLikelihood  # of the first class
    mixing: MixingClasses
    covariates: Floats  # (N, G) of the class shares, the first column 1

    @cached_property
    def parts(self) -> list[SimulatedLikelihood]:
        """The likelihood of each member (M,)."""
        return [self.likelihood.with_mixing(member.mixing) for member in self.mixing.members]

    @property
    def size(self) -> int:
        """Number of utilities in all draws."""
        return self.likelihood.size * len(self.parts)

    def _posterior(self, x: Floats, precision: Precision) -> tuple[Floats, Floats]:  # -> (N,), (N, M)
        """Return the log-likelihoods, and the shares of the members given the choices."""
        lls = [
            part.evaluate(x[member.parameters], precision, scores=False)[0]
            for part, member in zip(self.parts, self.mixing.members, strict=True)
        ]
        return posterior(self.mixing.log_member_shares(x, self.covariates) + np.column_stack(lls))

    def evaluate(
        self, x: Floats, precision: Precision, *, scores: bool = True, weights: Floats | None = None
    ) -> tuple[Floats, Floats, Floats | None]:
        """Return log-likelihoods (N,), scores (N, P) and, if weights (N,) are given, the Hessian (P, P)."""
        # 1. Posterior shares of the members, which are the weights of their Hessians.
        ll, r = self._posterior(x, precision)
        score, P = np.zeros((len(ll), len(x))), len(x)
        if not scores and weights is None:
            return ll, score, None
        # 2. The score of each member, and the sum of r_m (H_m + s_m s_m') if a Hessian is requested.
        total = np.zeros((P, P))
        of_shares = self.mixing.share_scores(x, self.covariates)
        for m, (part, member, of_member) in enumerate(zip(self.parts, self.mixing.members, of_shares, strict=True)):
            w, at = None if weights is None else weights * r[:, m], member.parameters
            _, of_coefficients, hessian = part.evaluate(x[at], precision, weights=w)
            of_member[:, at] += of_coefficients
            score += r[:, m, None] * of_member
            if w is not None and hessian is not None:
                total += (of_member * w[:, None]).T @ of_member
                total[np.ix_(at, at)] += hessian
        if weights is None:
            return ll, score, None
        # 3. Louis's formula, with the curvature of the shares.
        total += self.mixing.share_curvature(x, self.covariates, r, weights)
        return ll, score, total - (score * weights[:, None]).T @ score

    def class_posterior(self, x: Floats) -> Floats:  # -> (N, C)
        """Return the posterior shares of the classes, given the choices of each person."""
        r = self._posterior(x, "float64")[1]
        return np.asarray(r.reshape(len(r), self.mixing.number, -1).sum(2))

    def conditional(self, x: Floats, cost: int | None = None) -> tuple[Floats, Floats]:  # -> (N, D), (N, D)
        """Return the means and standard deviations of each person's coefficients, given the choices.

        See :meth:`SimulatedLikelihood.conditional`.
        """
        r = self._posterior(x, "float64")[1]
        pairs = [
            part.conditional(x[m.parameters], cost) for part, m in zip(self.parts, self.mixing.members, strict=True)
        ]
        means, deviations = (np.stack([pair[k] for pair in pairs], axis=1) for k in (0, 1))  # (N, M, D)
        mean = (r[:, :, None] * means).sum(1)
        variance = (r[:, :, None] * (deviations**2 + (means - mean[:, None]) ** 2)).sum(1)
        return mean, np.sqrt(variance)
