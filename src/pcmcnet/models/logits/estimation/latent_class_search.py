"""The search for the maximum of a mixture of logits, for one number of classes or for several.

EM from several starts, more and more like Newton's method, never lowers the likelihood and comes near a maximum;
Newton's steps on the exact Hessian finish. There are many maxima. A start divides a class at random: a single one, or
the largest of those found before for fewer classes, which tends to lead higher. In a large table only that one and the
best of the others, which begin on a sample of its persons, go on to the whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import TrainingError
from pcmcnet.models.logits.estimation.em import Run, Start, divide, em_steps, height
from pcmcnet.models.logits.estimation.logit_likelihood import LogitSets
from pcmcnet.models.logits.estimation.maximum_likelihood import maximise
from pcmcnet.models.logits.estimation.mixture_likelihood import Mixture, Point, log_shares
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters

log = logging.getLogger("pcmcnet")

_TOGETHER = 6  # Newton's steps for one class, where all starts begin: the maximum may be at infinity
_FIRST = 15  # EM steps from each start, before the best goes on
_FOLLOWED = 2  # starts that take such steps on the whole of a large table


class Problem(NamedTuple):
    """Choice sets and who chooses; see :class:`Mixture`."""

    sets: LogitSets
    persons: Ints  # (S,)
    who: Floats  # (N, G)
    weights: Floats  # (N,)


@dataclass(frozen=True)
class MixtureMaximum:
    """The maximum of the log-likelihood for one number of classes."""

    mixture: Mixture
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

    problem: Problem
    few: Problem  # the same, or a sample of its persons
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
        mixture = Mixture(*self.problem, classes, self.prior, limits=within)
        whole = self.few is self.problem
        sample = mixture if whole else Mixture(*self.few, classes, self.prior, limits=within, of=mixture)
        # 2. First EM steps from random divisions of one class, and from the maximum for fewer classes with one of its
        #    classes divided. Of a large table, only the best of the former go on to the whole.
        rng = np.random.default_rng([self.seed, classes])
        begun = self._begin(sample, self._starts(sample, rng))
        starts: list[Start] = [partial(divide, mixture, *fewer.by_share(), rng)] if fewer else []
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
        at, em = max(begun, key=height)
        x, em, steps = self._settle(mixture, at, em)
        value = float(mixture.weights @ mixture.at(x).log_p)
        log.info(
            "%d classes: log-likelihood %.3f after %d EM and %d further steps",
            mixture.classes,
            value,
            len(em) - 1,
            steps,
        )
        return MixtureMaximum(mixture, x, value, steps, em, self.ordered)

    def _settle(self, mixture: Mixture, at: Point, em: list[float]) -> tuple[Floats, list[float], int]:
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

    def _starts(self, mixture: Mixture, rng: np.random.Generator) -> list[Start]:
        """Divide a single class at random, several times."""
        together, _, _ = mixture.sets.maximise(mixture.weights[mixture.persons], max_iter=_TOGETHER, settle=False)
        one = together[None], np.zeros((1, mixture.who.shape[1]))
        return [partial(divide, mixture, *one, rng)] * (self.starts if mixture.classes > 1 else 1)

    def _begin(self, mixture: Mixture, starts: list[Start]) -> list[Run]:
        """Take the first steps from each start that leads anywhere; the highest comes first."""
        runs = []
        for start in starts:
            try:
                runs.append(em_steps(mixture, start(), [], min(_FIRST, self.em_steps)))
            except TrainingError as error:
                log.info("%d classes: a start is passed over: %s", mixture.classes, error)
        return sorted(runs, key=height, reverse=True)
