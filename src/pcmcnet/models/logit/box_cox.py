"""The transformation of Box and Cox (1964), and its derivative in the exponent.

    f(x, l) = (x^l - 1) / l,  log x at l = 0          df / dl = (x^l (u - 1) + 1) / l^2,  u = l log x

for x > 0. l = 1 is linear, l = 0 the logarithm. With u both are (log x)^(n+1) h_n(u) for n = 0, 1, where
h_0(u) = (e^u - 1) / u and h_1(u) = (e^u (u - 1) + 1) / u^2, which is 1/2 + u/3 + u^2/8 + u^3/30 + ... near 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import TrainingError

_SMALL = 1e-2  # of |u|: there the closed form loses digits, and six terms of the series lose none


def box_cox(x: Floats, exponent: float) -> Floats:
    """Return f(x, l); inf where it is too large for a number."""
    log_x = np.log(x)
    if exponent == 0:
        return log_x
    with np.errstate(over="ignore"):
        out: Floats = np.expm1(exponent * log_x) / exponent
    return out


def box_cox_slope(x: Floats, exponent: float) -> Floats:
    """Return df(x, l) / dl; inf where it is too large for a number."""
    log_x = np.log(x)
    u = exponent * log_x
    series = 1 / 2 + u / 3 + u**2 / 8 + u**3 / 30 + u**4 / 144 + u**5 / 840
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        closed = (np.expm1(u) * (u - 1) + u) / u**2
    return log_x**2 * np.where(np.abs(u) < _SMALL, series, closed)


# -- How the coefficients of the columns follow from the parameters of a utility ---------------------------------------
# A utility is v = X(lambda) b, with parameters theta = (beta, lambda). Mostly there is no lambda and b is beta.
# Otherwise
#
#     Box-Cox         the exponent lambda of a column boxcox(x) of X is a parameter          (Box & Cox, 1964)
#     WTP space       b_cost = beta_cost, and b_k = -beta_cost beta_k for the others         (Train & Weeks, 2005)
#
# so that in the space of willingness to pay v = beta_cost (cost - sum_k beta_k x_k), where beta_k is what a unit of x_k
# is worth in units of cost: more than 0 for what attracts, while cost repels. An offset keeps its coefficient of 1.
#
# Likelihoods know linear utilities alone. With D_j = dX / d lambda_j and M = [X, D_1 b, ..., D_J b], M c is v at c =
# (b, 0), and the derivative of v in theta is M G, with G = [[db / dbeta, 0], [0, 1]]. So a likelihood of the linear
# utility M c gives, at c = (b, 0), the value and, times G, the scores.


class LinearisedUtility(NamedTuple):
    """A utility near some parameters: M (N, L + J), c (L + J,) and G (L + J, K) as above."""

    matrix: Floats
    coefficients: Floats
    chain: Floats


class UtilityForm(NamedTuple):
    """L columns, the J columns of the table that have an exponent, and the cost of a WTP space, if it is one."""

    columns: tuple[str, ...]
    curves: tuple[str, ...] = ()
    cost: str | None = None
    offset: str | None = None

    @property
    def is_linear(self) -> bool:
        """Whether the parameters are the coefficients."""
        return not self.curves and self.cost is None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the K = L + J parameters."""
        own = (self.cost, self.offset)
        betas = (c if self.cost is None or c in own else f"wtp[{c}]" for c in self.columns)
        return (*betas, *(f"lambda[{curve}]" for curve in self.curves))

    @property
    def begin(self) -> Floats:
        """(K,) where parameters begin, and what they are tested against: coefficients of 0, exponents of 1."""
        return np.repeat([0.0, 1.0], [len(self.columns), len(self.curves)])

    def exponents(self, values: Floats) -> Floats:  # (K,) -> (J,)
        """Return lambda."""
        return values[len(self.columns) :]

    def coefficients(self, values: Floats) -> Floats:  # (K,) -> (L,)
        """Return b."""
        b = values[: len(self.columns)].copy()
        if self.cost is not None:
            at = self.columns.index(self.cost)
            others = self._others()
            b[others] *= -b[at]
        return b

    def parameters(self, coefficients: Floats, exponents: Floats) -> Floats:  # (L,), (J,) -> (K,)
        """Return theta: undo ``coefficients``."""
        beta = coefficients.copy()
        if self.cost is not None:
            at = self.columns.index(self.cost)
            if beta[at] == 0:
                raise TrainingError(f"the coefficient of {self.cost!r} is 0: nothing can be expressed in its units.")
            beta[self._others()] /= -beta[at]
        return np.concatenate([beta, exponents])

    def chain(self, values: Floats) -> Floats:  # (K,) -> (K, K)
        """Return G."""
        out = np.eye(len(values))
        if self.cost is not None:
            at, others = self.columns.index(self.cost), self._others()
            out[others, others] = -values[at]
            out[others, at] = -values[others]
        return out

    def _others(self) -> list[int]:
        """Return where the columns stand whose parameters are in units of cost."""
        return [k for k, column in enumerate(self.columns) if column not in (self.cost, self.offset)]
