"""Designs whose lowest D-error is known, for the tests and the benchmark of designs.

``TEXTBOOK``: without prior and with effects coding, the best tasks show each level once, or are fold-over pairs. All
levels once in J = L alternatives: a task has information X'X / L about an attribute, since the levels have mean 0. For
L = 3, X'X = [[2, 1], [1, 2]] with determinant 3, so N tasks have det(M) = 3 (N / 3)^2 per attribute and the D-error
det^(-1/2) = sqrt(3) / N: 0.192 for N = 9, as in Huber & Zwerina (1996). For L = 4, X'X = I + 1 1' has determinant 4,
and the D-error is 4 / (N 4^(1/3)). A fold-over pair has x_1 - x_2 = 2 z with z = +-1, so information z z' / 4 * 4 =
z z'; N pairs with orthogonal z have M = N I and the D-error 1 / N.

``EXHAUSTIVE``: so few designs are possible that all can be compared.
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.designs.attributes import profile_space


class TextbookDesign(NamedTuple):
    """A design of attributes with the same number of levels, and its lowest D-error."""

    levels: int
    attributes: int
    alternatives: int
    tasks: int
    lowest: float

    @property
    def space(self) -> dict[str, list[str]]:
        """The attributes w, x, ... with the levels a, b, ..."""
        return {name: list("abcd"[: self.levels]) for name in "wxyz"[: self.attributes]}

    @property
    def name(self) -> str:
        """The sizes of the design."""
        return f"{self.levels}^{self.attributes}, {self.tasks} tasks of {self.alternatives}"


class SmallDesign(NamedTuple):
    """A design of so few tasks that all can be compared, with the prior of its coefficients."""

    attributes: dict[str, list[Any]]
    alternatives: int
    tasks: int
    beta: list[float]

    @property
    def name(self) -> str:
        """The sizes of the design."""
        sizes = "x".join(str(len(levels)) for levels in self.attributes.values())
        return f"{sizes}, {self.tasks} tasks of {self.alternatives}"

    @property
    def prior(self) -> dict[str, float]:
        """The coefficients by name."""
        return dict(zip(profile_space(self.attributes).names, self.beta, strict=True))


TEXTBOOK = (
    TextbookDesign(2, 4, 2, 8, 1 / 8),
    TextbookDesign(3, 3, 3, 9, math.sqrt(3) / 9),
    TextbookDesign(4, 2, 4, 8, 1 / (2 * 4 ** (1 / 3))),
    TextbookDesign(4, 4, 4, 16, 1 / (4 * 4 ** (1 / 3))),  # the only slow one
)
EXHAUSTIVE = (
    SmallDesign({"x": [1, 2, 3], "y": [1, 2]}, 2, 3, [-0.8, 0.7]),
    SmallDesign({"x": ["a", "b", "c"], "y": [0, 1]}, 3, 3, [0.5, 1.0, -0.7]),
    SmallDesign({"x": ["a", "b", "c"], "y": [0, 1]}, 2, 4, [0.5, 1.0, -0.7]),
    SmallDesign({"x": [0, 1], "y": [0, 1], "z": [0, 1]}, 2, 4, [1.0, -0.5, 0.5]),
)


def exhaustive_optimum(design: SmallDesign) -> float:
    """Return the lowest D-error of all designs without repeated tasks."""
    space, b = profile_space(design.attributes), np.array(design.beta)
    profiles = np.array(list(itertools.product(*(range(len(levels)) for levels in design.attributes.values()))))
    sets = profiles[np.array(list(itertools.combinations(range(len(profiles)), design.alternatives)))]
    x = space.encode(sets)
    p = np.exp(x @ b)
    p /= p.sum(axis=1, keepdims=True)
    centred = x - (p[..., None] * x).sum(axis=1, keepdims=True)
    information = np.einsum("sj,sjp,sjq->spq", p, centred, centred)
    designs = itertools.combinations(range(len(sets)), design.tasks)
    return float(max(np.linalg.det(information[list(tasks)].sum(axis=0)) for tasks in designs) ** (-1 / len(b)))
