"""Steps of EM for a mixture of logits, from a start that divides classes at random."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import TrainingError
from pcmcnet.models.logits.estimation.mixture_likelihood import Mixture, Point

_GAIN = 1e-7  # of the log-likelihood, relative to its size, that a step must bring for another one

Start = Callable[[], Point]
Run = tuple[Point, list[float]]  # where it has come to, and the values climbed


def divide(mixture: Mixture, b: Floats, g: Floats, rng: np.random.Generator) -> Point:  # (B, K), (B, G), B <= C
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


def height(run: Run) -> float:
    """Return what a run has climbed to."""
    return run[0].value


def em_steps(mixture: Mixture, at: Point, before: list[float], steps: int) -> Run:
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
