"""The minimum of a smooth function of some numbers, its gradient from torch, by L-BFGS in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.errors import TrainingError

Loss = Callable[[Tensor], Tensor]

CORRECTIONS = 20  # pairs of steps and gradients that L-BFGS remembers
FLAT = 1e-8  # largest component of a gradient that counts as none


@dataclass(frozen=True, slots=True)
class Minimum:
    """Where the search ended."""

    at: Floats
    value: float
    iterations: int
    converged: bool


def value_and_gradient(loss: Loss) -> Callable[[Floats], tuple[float, Floats]]:
    """Make a function of torch one that scipy can minimise."""

    def evaluate(x: Floats) -> tuple[float, Floats]:
        at = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        value = loss(at)
        (gradient,) = torch.autograd.grad(value, at)
        return float(value.detach()), gradient.numpy()

    return evaluate


def lbfgs(loss: Loss, start: Floats, *, max_iter: int, tolerance: float, bound: float | None = None) -> Minimum:
    """Minimise by L-BFGS until a step gains less than ``tolerance``, relative to the value where that is above 1.

    With ``bound`` no component leaves [-bound, bound].
    """
    from scipy.optimize import minimize  # slow to import

    found = minimize(
        value_and_gradient(loss),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=None if bound is None else [(-bound, bound)] * len(start),
        options={"maxiter": max_iter, "maxfun": 20 * max_iter, "maxcor": CORRECTIONS, "ftol": tolerance, "gtol": FLAT},
    )
    return as_minimum(found)


def as_minimum(found: Any) -> Minimum:
    """Take over what scipy found; a value that is no number is a breakdown."""
    if not np.isfinite(found.fun):
        raise TrainingError(f"the objective became {found.fun}: {found.message}.")
    return Minimum(np.asarray(found.x, np.float64), float(found.fun), int(found.nit), bool(found.success))
