"""The Box-Cox transformation (Box & Cox, 1964) with its derivative, and the parameters of a utility.

    f(x, l) = (x^l - 1) / l,  log x at l = 0          df / dl = (x^l (u - 1) + 1) / l^2,  u = l log x

The transformation is defined for x > 0. The exponent l = 1 gives a linear function, and l = 0 gives the logarithm. In
terms of u, f and df / dl are (log x)^(n+1) h_n(u) for n = 0, 1, with h_0(u) = (e^u - 1) / u and h_1(u) = (e^u (u - 1) +
1) / u^2. Near 0, h_1(u) = 1/2 + u/3 + u^2/8 + u^3/30 + ...
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import TrainingError

_SERIES_LIMIT = 1e-2  # |u| below which the closed form loses digits; six terms of the series are exact there


def box_cox(x: Floats, exponent: float) -> Floats:
    """Return the Box-Cox transformation f(x, l), or inf on overflow."""
    log_x = np.log(x)
    if exponent == 0:
        return log_x
    with np.errstate(over="ignore"):
        out: Floats = np.expm1(exponent * log_x) / exponent
    return out


def box_cox_slope(x: Floats, exponent: float) -> Floats:
    """Return the derivative df(x, l) / dl, or inf on overflow."""
    log_x = np.log(x)
    u = exponent * log_x
    series = 1 / 2 + u / 3 + u**2 / 8 + u**3 / 30 + u**4 / 144 + u**5 / 840
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        closed = (np.expm1(u) * (u - 1) + u) / u**2
    return log_x**2 * np.where(np.abs(u) < _SERIES_LIMIT, series, closed)


# -- From the parameters of a utility to the coefficients of its columns -----------------------------------------------
# A utility is v = X(lambda, mu) b, with parameters theta = (beta, lambda, mu). In a utility that is linear in its
# parameters there are no lambda and mu, and b = beta. Three specifications are nonlinear:
#
#     Box-Cox         the exponent lambda of a column boxcox(x) of X is a parameter          (Box & Cox, 1964)
#     user terms      a column f(x; lambda) of X has parameters that a user has named        (`user_terms.py`)
#     WTP space       b_cost = beta_cost, and b_k = -beta_cost beta_k for the others         (Train & Weeks, 2005)
#     scales          the rows of X in choice sets of group g are multiplied by mu_g         (Swait & Louviere, 1993)
#
# In WTP space v = beta_cost (cost - sum_k beta_k x_k), where beta_k is the willingness to pay for one unit of x_k, in
# units of cost. It is positive for attractive attributes if beta_cost < 0. An offset keeps its coefficient of 1.
#
# The likelihoods are written for linear utilities. With the derivatives D_j of X in lambda_j or mu_j, and
# M = [X, D_1 b, D_2 b, ...], the linear utility M c equals v at c = (b, 0), and the derivative of v in theta is M G
# with G = [[db / dbeta, 0], [0, 1]].
# Evaluated at c = (b, 0), the likelihood of M c is therefore that of v, and its scores times G are the scores in theta.


class LinearisedUtility(NamedTuple):
    """A utility linearised at given parameters: the arrays M (N, K), c (K,) and G (K, K)."""

    matrix: Floats
    coefficients: Floats
    chain: Floats


class UtilityForm(NamedTuple):
    """Description of how a utility depends on its parameters.

    The utility has L columns. ``curves`` lists the names of the J parameters of transformations, such as Box-Cox
    exponents, with their starting values (1 by default), and ``scales`` the names of the G scale parameters. In WTP
    space, ``cost`` is the column in whose units the other
    parameters are measured.
    """

    columns: tuple[str, ...]
    curves: tuple[str, ...] = ()
    cost: str | None = None
    offset: str | None = None
    scales: tuple[str, ...] = ()
    curve_starts: tuple[float, ...] = ()

    @property
    def is_linear(self) -> bool:
        """Whether the parameters are the coefficients of the columns."""
        return not self.curves and not self.scales and self.cost is None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the K = L + J + G parameters."""
        unchanged = (self.cost, self.offset)
        betas = (c if self.cost is None or c in unchanged else f"wtp[{c}]" for c in self.columns)
        return (*betas, *self.curves, *self.scales)

    @property
    def start_values(self) -> Floats:
        """Values (K,) at the start: 0 for coefficients, 1 for exponents and scales, and those of user terms."""
        starts = self.curve_starts or (1.0,) * len(self.curves)
        return np.array([*[0.0] * len(self.columns), *starts, *[1.0] * len(self.scales)])

    @property
    def null_values(self) -> Floats:
        """Values (K,) under the null hypothesis: 1 for Box-Cox exponents and scales, 0 for other parameters."""
        curves = [float(name.startswith("lambda[")) for name in self.curves]
        return np.array([*[0.0] * len(self.columns), *curves, *[1.0] * len(self.scales)])

    def exponents(self, values: Floats) -> Floats:  # (K,) -> (J,)
        """Return the exponents lambda."""
        return values[len(self.columns) : len(self.columns) + len(self.curves)]

    def multipliers(self, values: Floats) -> Floats:  # (K,) -> (G,)
        """Return the scales mu."""
        return values[len(self.columns) + len(self.curves) :]

    def coefficients(self, values: Floats) -> Floats:  # (K,) -> (L,)
        """Return the coefficients b of the columns."""
        b = values[: len(self.columns)].copy()
        if self.cost is not None:
            at = self.columns.index(self.cost)
            b[self._wtp_columns()] *= -b[at]
        return b

    def parameters(self, coefficients: Floats, others: Floats) -> Floats:  # (L,), (J + G,) -> (K,)
        """Return the parameters theta for given coefficients, exponents and scales; the inverse of ``coefficients``."""
        beta = coefficients.copy()
        if self.cost is not None:
            at = self.columns.index(self.cost)
            if beta[at] == 0:
                raise TrainingError(f"the coefficient of {self.cost!r} is 0, so willingness to pay is not defined.")
            beta[self._wtp_columns()] /= -beta[at]
        return np.concatenate([beta, others])

    def chain(self, values: Floats) -> Floats:  # (K,) -> (K, K)
        """Return the Jacobian G of the coefficients, exponents and scales with respect to theta."""
        out = np.eye(len(values))
        if self.cost is not None:
            at, wtp = self.columns.index(self.cost), self._wtp_columns()
            out[wtp, wtp] = -values[at]
            out[wtp, at] = -values[wtp]
        return out

    def _wtp_columns(self) -> list[int]:
        """Return the indices of the columns whose parameters are in units of the cost."""
        return [k for k, column in enumerate(self.columns) if column not in (self.cost, self.offset)]
