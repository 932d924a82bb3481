r"""Distributions of a random coefficient, each a function of a location a, a spread b and a standard draw x.

    normal             a + b x                       x ~ N(0, 1)
    uniform            a + b x                       x ~ U(-1, 1): b is half the width
    triangular         a + b x                       x ~ triangular on (-1, 1): b is half the width
    lognormal          s exp(a + b x)                x ~ N(0, 1)
    johnson-sb(l, u)   l + (u - l) / (1 + exp(-(a + b x)))     x ~ N(0, 1)
    truncated-normal   s (a + |b| x)                 x ~ N(0, 1) given a + |b| x > 0

s is +1 or -1: "lognormal" takes the sign that the multinomial logit finds, "+lognormal" and "-lognormal" a given one;
likewise for the truncated normal. All but the last are h(a + b x), so that with the index e = a + b x derivatives are
h'(e) and h''(e) times those of e, also where e has correlated parts or a mean of its own for everyone.

For the truncated normal, with v in (0, 1) uniform, r = a / |b|, and Phi and phi the standard normal distribution and
density,

    x = -Phi^-1(v Phi(r))      x' = dx/dr = -m phi(r) / Phi(r)      m = (1 - Phi(x)) / phi(x)
    x'' = lam (r + lam) m - lam (x m - 1) x'                        lam = phi(r) / Phi(r)

and its value is |b| (r + x): derivatives 1 + x' in a, x - r x' in |b|; second ones x'' / |b| times (1, -r)(1, -r)'.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pcmcnet.errors import ConfigError, did_you_mean

NAMES = ("normal", "lognormal", "truncated-normal", "triangular", "uniform", "johnson-sb")
_SIGNED = ("lognormal", "truncated-normal")
NORMAL_BASED = ("normal", "lognormal", "johnson-sb")  # which may be correlated
_FORM = re.compile(r"\s*([+-]?)\s*([a-z-]+?)\s*(?:\(([^,()]*),([^,()]*)\))?\s*")
_FAR = -30.0  # least a / b of a truncated normal: its tail is exponential there, and float64 still knows it
_ROOT_2 = math.sqrt(2)


class Curve(NamedTuple):
    """A coefficient's draws with their derivatives: in its location, in its spread, and the second ones.

    Second derivatives in location and spread are ``bend`` times (1, lean)(1, lean)'; None stands for 1 of ``slope``,
    0 of ``bend``.
    """

    value: Tensor
    slope: Tensor | None
    per_spread: Tensor  # derivative in the spread over that in the location
    bend: Tensor | None
    lean: Tensor


@dataclass(frozen=True)
class Distribution:
    """A distribution by name; ``sign`` is 0 until it is known."""

    name: str
    sign: int = 1
    low: float = 0.0
    high: float = 1.0

    @classmethod
    def parse(cls, coefficient: str, text: object) -> Distribution:
        """Read "normal", "-lognormal", "johnson-sb(-2, 0)".

        Raises
        ------
        ConfigError
            Naming the coefficient, what was found and what is known.
        """
        where = f"random[{coefficient!r}]"
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        if match is None or match[2] not in NAMES:
            raise ConfigError(f"{where}: unknown distribution {text!r}." + did_you_mean(str(text), NAMES))
        sign, name, low, high = match.groups()
        if sign and name not in _SIGNED:
            raise ConfigError(f"{where}: {name} has no sign, got {text!r}; {' and '.join(_SIGNED)} have.")
        if (low is not None) != (name == "johnson-sb"):
            wanted = "needs its bounds, as in 'johnson-sb(-2, 0)'" if low is None else "has no bounds"
            raise ConfigError(f"{where}: {name} {wanted}; got {text!r}.")
        known = cls(name, {"+": 1, "-": -1}.get(sign, 0 if name in _SIGNED else 1))
        return known if low is None else known._between(where, low, high)

    def _between(self, where: str, low: str, high: str) -> Distribution:
        try:
            ends = float(low), float(high)
        except ValueError:
            ends = math.nan, math.nan
        if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
            raise ConfigError(f"{where}: expected two numbers, the lower one first, got ({low}, {high}).")
        return replace(self, low=ends[0], high=ends[1])

    @property
    def by_index(self) -> bool:
        """Whether the coefficient is a function of a + b x."""
        return self.name != "truncated-normal"

    @property
    def spread_name(self) -> str:
        """What the spread is called: "sd" of a normal, "spread" of the others."""
        return "spread" if self.name in ("uniform", "triangular") else "sd"

    def __str__(self) -> str:
        bounds = f"({self.low:g}, {self.high:g})" if self.name == "johnson-sb" else ""
        return f"{'-' if self.sign < 0 else ''}{self.name}{bounds}"

    def standard(self, t: Tensor) -> Tensor:
        """Make standard draws of uniform ones on (-1, 1)."""
        if self.name in ("uniform", "truncated-normal"):
            return t
        if self.name == "triangular":
            return t.sign() * (1 - (1 - t.abs()).sqrt())
        return t.erfinv() * _ROOT_2

    def of_index(self, index: Tensor, draw: Tensor) -> Curve:
        """Return the coefficient at an index a + b x, where x is ``draw``; derivatives are those in the index."""
        if self.name == "lognormal":
            value = self.sign * index.exp()
            return Curve(value, value, draw, value, draw)
        if self.name == "johnson-sb":
            share, width = index.sigmoid(), self.high - self.low
            slope = width * share * (1 - share)
            return Curve(self.low + width * share, slope, draw, slope * (1 - 2 * share), draw)
        return Curve(index, None, draw, None, draw)

    def of_spread(self, location: Tensor, spread: Tensor, t: Tensor) -> Curve:  # (N, 1), (), (N, R)
        """Return the truncated normal, whose draws depend on its parameters; derivatives are those in its own sign."""
        # 1. r = a / |b| and lam = phi(r) / Phi(r), by logarithms: Phi(r) may be as small as Phi(-30).
        size = spread.abs().clamp_min(1e-12).double()
        ratio = (location.double() / size).clamp_min(_FAR)
        log_mass = torch.special.log_ndtr(ratio)
        lam = (-0.5 * ratio**2 - 0.5 * math.log(2 * math.pi) - log_mass).exp()
        # 2. The draw x above -r, and its derivatives in r, as in the header; m by erfcx, which cannot underflow.
        x = -torch.special.ndtri(0.5 * (1 - t.double()) * log_mass.exp())
        mills = math.sqrt(math.pi / 2) * torch.special.erfcx(x / _ROOT_2)
        first = -lam * mills
        second = lam * (ratio + lam) * mills - lam * (x * mills - 1) * first
        # 3. Derivatives of |b| (r + x) in location and spread.
        slope = 1 + first
        bend = self.sign * second / size
        per_spread = (x - ratio * first) / slope.clamp_min(1e-300) * spread.sign()
        lean = (-ratio * spread.sign()).expand_as(x)
        parts = (self.sign * size * (ratio + x), self.sign * slope, per_spread, bend, lean)
        return Curve(*(part.to(t.dtype) for part in parts))

    def start(self, estimate: float, scale: float) -> tuple[float, float]:
        """Return a location and a spread to begin with, near the estimate of a logit without random coefficients."""
        near = max(self.sign * estimate, 0.1 * scale)
        if self.name == "lognormal":
            return math.log(near), 0.5
        if self.name == "johnson-sb":
            share = min(max((estimate - self.low) / (self.high - self.low), 0.1), 0.9)
            return math.log(share / (1 - share)), 0.5
        if self.name == "truncated-normal":
            return near, 0.5 * near
        return estimate, max(0.25 * abs(estimate), 0.1 * scale)
