"""The transformation of Box and Cox (1964), and its derivative in the exponent.

    f(x, l) = (x^l - 1) / l,  log x at l = 0          df / dl = (x^l (u - 1) + 1) / l^2,  u = l log x

for x > 0. l = 1 is linear, l = 0 the logarithm. With u both are (log x)^(n+1) h_n(u) for n = 0, 1, where
h_0(u) = (e^u - 1) / u and h_1(u) = (e^u (u - 1) + 1) / u^2, which is 1/2 + u/3 + u^2/8 + u^3/30 + ... near 0.
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Floats

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
