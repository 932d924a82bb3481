"""Random coefficients of a mixed logit: distributions, parameters and options."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.schema import Sign
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.logit.design import Design, columns_of
from pcmcnet.models.logit.factor_coding import NumberCode

# -- Distributions -----------------------------------------------------------------------------------------------------
# A random coefficient is a function of a location a, a spread b and a standard draw x.
#
#     normal             a + b x                       x ~ N(0, 1)
#     uniform            a + b x                       x ~ U(-1, 1): b is half the width
#     triangular         a + b x                       x ~ triangular on (-1, 1): b is half the width
#     zbu, zbt           a (1 + x)                     x as in uniform, triangular: from 0 to 2 a, with mean a
#     lognormal          s exp(a + b x)                x ~ N(0, 1)
#     log-uniform        s exp(a + b x)                x ~ U(-1, 1)
#     johnson-sb(l, u)   l + (u - l) / (1 + exp(-(a + b x)))     x ~ N(0, 1)
#     truncated-normal   s (a + |b| x)                 x ~ N(0, 1) given a + |b| x > 0
#
# s is +1 or -1: "lognormal" has the sign of the multinomial logit estimate, "+lognormal" and "-lognormal" a given sign,
# and so have log-uniform and truncated-normal. All but the last are h(a + b x), so that with the index e = a + b x
# derivatives are h'(e) and h''(e) times those of e, even if indices are correlated or their means depend on the
# individual. The zero-bounded distributions zbu and zbt of mlogit have no spread: their index is a.
#
# For the truncated normal, with v uniform on (0, 1), r = a / |b|, and Phi and phi the standard normal distribution
# function and density,
#
#     x = -Phi^-1(v Phi(r))      x' = dx/dr = -m phi(r) / Phi(r)      m = (1 - Phi(x)) / phi(x)
#     x'' = lam (r + lam) m - lam (x m - 1) x'                        lam = phi(r) / Phi(r)
#
# and the coefficient is |b| (r + x). Its derivatives are 1 + x' in a and x - r x' in |b|; its second derivatives are
# x'' / |b| times (1, -r)(1, -r)'.

DISTRIBUTION_NAMES = (
    *("normal", "lognormal", "truncated-normal", "triangular", "uniform", "johnson-sb"),
    *("log-uniform", "zbu", "zbt"),
)
_SIGNED = ("lognormal", "log-uniform", "truncated-normal")
_ZERO_BOUNDED = ("zbu", "zbt")
_EXPONENTIAL = ("lognormal", "log-uniform")
_LINEAR = ("normal", "uniform", "triangular")
_SIGNIFICANT_Z = 1.96
_NORMAL_BASED = ("normal", "lognormal", "johnson-sb")
_COPULA = ("uniform", "triangular", "log-uniform")  # correlated by a Gaussian copula
CORRELATED = (*_NORMAL_BASED, *_COPULA)  # may be correlated
ZERO_INFLATED = "zero-inflated-"  # prefix of a distribution with a mass at 0
_FORM = re.compile(rf"\s*([+-]?)\s*({ZERO_INFLATED})?([a-z-]+?)\s*(?:\(([^,()]*),([^,()]*)\))?\s*")
_MIN_RATIO = -30.0  # least a / |b| of a truncated normal: float64 still represents Phi there
_ROOT_2 = math.sqrt(2)


class CoefficientCurve(NamedTuple):
    """Draws of a coefficient, with first and second derivatives with respect to its location and spread.

    The second derivatives are ``curvature`` times (1, lean)(1, lean)'. If ``slope`` is None, the slope is 1. If
    ``curvature`` is None, the curvature is 0.
    """

    value: Tensor
    slope: Tensor | None  # derivative in the location
    per_spread: Tensor  # derivative in the spread, divided by that in the location
    curvature: Tensor | None  # second derivative in the location
    lean: Tensor


@dataclass(frozen=True)
class Distribution:
    """Distribution of a random coefficient, whose ``sign`` is 0 until the multinomial logit determines it."""

    name: str
    sign: int = 1
    low: float = 0.0
    high: float = 1.0
    zero_inflated: bool = False  # whether the coefficient is 0 for a share of the people (`mixing_classes.py`)

    @classmethod
    def parse(cls, coefficient: str, text: object) -> Distribution:
        """Parse a distribution such as "normal", "-lognormal", "johnson-sb(-2, 0)" or "zero-inflated-normal".

        Error messages contain the name of the coefficient.
        """
        where = f"random[{coefficient!r}]"
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        if match is None or match[3] not in DISTRIBUTION_NAMES:
            names = (*DISTRIBUTION_NAMES, *(ZERO_INFLATED + name for name in DISTRIBUTION_NAMES))
            raise ConfigError(f"{where}: unknown distribution {text!r}." + did_you_mean(str(text), names))
        sign, mass_at_zero, name, low, high = match.groups()
        if sign and name not in _SIGNED:
            raise ConfigError(f"{where}: {name} takes no sign, got {text!r}; only {', '.join(_SIGNED)} do.")
        if (low is not None) != (name == "johnson-sb"):
            expected = "needs bounds, as in 'johnson-sb(-2, 0)'" if low is None else "takes no bounds"
            raise ConfigError(f"{where}: {name} {expected}; got {text!r}.")
        of_sign = {"+": 1, "-": -1}.get(sign, 0 if name in _SIGNED else 1)
        distribution = cls(name, of_sign, zero_inflated=mass_at_zero is not None)
        return distribution if low is None else distribution._with_bounds(where, low, high)

    def _with_bounds(self, where: str, low: str, high: str) -> Distribution:
        try:
            bounds = float(low), float(high)
        except ValueError:
            bounds = math.nan, math.nan
        if not (math.isfinite(bounds[0]) and math.isfinite(bounds[1]) and bounds[0] < bounds[1]):
            raise ConfigError(f"{where}: expected two numbers, the lower one first, got ({low}, {high}).")
        return replace(self, low=bounds[0], high=bounds[1])

    @property
    def by_index(self) -> bool:
        """Whether the coefficient is a function of the index a + b x."""
        return self.name != "truncated-normal"

    @property
    def is_linear(self) -> bool:
        """Whether the coefficient is its index, so that the location is a coefficient itself."""
        return self.name in _LINEAR

    def has_sign(self, sign: Sign) -> bool:
        """Return True if no value of the coefficient has the opposite sign."""
        if self.name == "johnson-sb":
            return self.high <= 0 if sign == "-" else self.low >= 0
        return self.name in _SIGNED and (self.sign < 0) == (sign == "-")

    @property
    def has_spread(self) -> bool:
        """Whether the distribution has a spread parameter."""
        return self.name not in _ZERO_BOUNDED

    @property
    def spread_name(self) -> str:
        """Name of the spread parameter: "spread" for distributions based on bounded draws, else "sd"."""
        return "spread" if self.name in ("uniform", "triangular", "log-uniform") else "sd"

    @property
    def variance_of_draws(self) -> float:
        """Variance of the standard draws of a distribution that is linear in them."""
        return {"normal": 1.0, "uniform": 1 / 3, "triangular": 1 / 6}[self.name]

    def __str__(self) -> str:
        bounds = f"({self.low:g}, {self.high:g})" if self.name == "johnson-sb" else ""
        return f"{'-' if self.sign < 0 else ''}{ZERO_INFLATED * self.zero_inflated}{self.name}{bounds}"

    def standard(self, t: Tensor) -> Tensor:
        """Transform uniform draws on (-1, 1) to standard draws."""
        if self.name in ("uniform", "truncated-normal", "log-uniform", "zbu"):
            return t
        if self.name in ("triangular", "zbt"):
            return t.sign() * (1 - (1 - t.abs()).sqrt())
        return t.erfinv() * _ROOT_2

    def of_index(self, index: Tensor, draw: Tensor) -> CoefficientCurve:
        """Return the coefficient, and its derivatives with respect to its index a + b x, where x is the ``draw``."""
        if self.name in _EXPONENTIAL:
            value = self.sign * index.exp()
            return CoefficientCurve(value, value, draw, value, draw)
        if self.name in _ZERO_BOUNDED:
            return CoefficientCurve(index * (1 + draw), 1 + draw, draw, None, draw)
        if self.name == "johnson-sb":
            share, width = index.sigmoid(), self.high - self.low
            slope = width * share * (1 - share)
            return CoefficientCurve(self.low + width * share, slope, draw, slope * (1 - 2 * share), draw)
        return CoefficientCurve(index, None, draw, None, draw)

    def of_spread(self, location: Tensor, spread: Tensor, t: Tensor) -> CoefficientCurve:  # (N, 1), (), (N, R)
        """Return draws of the truncated normal and their derivatives, which depend on its parameters."""
        # 1. r = a / |b| and lam = phi(r) / Phi(r), in logarithms: Phi(r) may be as small as Phi(-30).
        size = spread.abs().clamp_min(1e-12).double()
        ratio = (location.double() / size).clamp_min(_MIN_RATIO)
        log_mass = torch.special.log_ndtr(ratio)
        lam = (-0.5 * ratio**2 - 0.5 * math.log(2 * math.pi) - log_mass).exp()
        # 2. The draw x above -r and its derivatives in r (see the comment above); m by erfcx, which cannot underflow.
        x = -torch.special.ndtri(0.5 * (1 - t.double()) * log_mass.exp())
        mills = math.sqrt(math.pi / 2) * torch.special.erfcx(x / _ROOT_2)
        first = -lam * mills
        second = lam * (ratio + lam) * mills - lam * (x * mills - 1) * first
        # 3. Derivatives of |b| (r + x) in location and spread.
        slope = 1 + first
        curvature = self.sign * second / size
        per_spread = (x - ratio * first) / slope.clamp_min(1e-300) * spread.sign()
        lean = (-ratio * spread.sign()).expand_as(x)
        parts = (self.sign * size * (ratio + x), self.sign * slope, per_spread, curvature, lean)
        return CoefficientCurve(*(part.to(t.dtype) for part in parts))

    def start(self, estimate: float, scale: float) -> tuple[float, float]:
        """Return a starting location and spread, from the estimate of the multinomial logit."""
        near = max(self.sign * estimate, 0.1 * scale)
        if self.name in _EXPONENTIAL:
            return math.log(near), 0.5
        if self.name in _ZERO_BOUNDED:
            return estimate if abs(estimate) > 0.1 * scale else math.copysign(0.1 * scale, estimate), 0.0
        if self.name == "johnson-sb":
            share = min(max((estimate - self.low) / (self.high - self.low), 0.1), 0.9)
            return math.log(share / (1 - share)), 0.5
        if self.name == "truncated-normal":
            return near, 0.5 * near
        return estimate, max(0.25 * abs(estimate), 0.1 * scale)


def _uniform_of_normal(v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return g(v) = 2 Phi(v) - 1, a uniform number on (-1, 1) for a standard normal v, with g' and g''."""
    density = (-0.5 * v**2).exp() * (2 / math.sqrt(2 * math.pi))
    return (v / _ROOT_2).erf(), density, -v * density


def _triangular_of_normal(v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return g(v), a triangular number on (-1, 1) for a standard normal v, with g' and g''.

    With S = (2 Phi(-|v|))^(1/2), g = 1 - S for v > 0, g' = phi / S, g'' = -v g' + g'^2 / S, and g is odd.
    """
    size, sign = v.abs(), v.sign()
    log_tail = 0.5 * (math.log(2) + torch.special.log_ndtr(-size))
    root = log_tail.exp()
    slope = (-0.5 * size**2 - 0.5 * math.log(2 * math.pi) - log_tail).exp()
    return sign * (1 - root), slope, sign * (slope**2 / root.clamp_min(1e-30) - size * slope)


# -- Mixing distribution: from parameters to the coefficients of each person in each draw ------------------------------
# The utility has K columns. D of them have a random coefficient, with standard draws x (D, R) for each person; the
# others have one coefficient for all. For a person with covariates h, random coefficient d is a function of
#
#     location a_d = m_d + sum_g h_g n_dg        index a_d + sum_l L_dl x_l
#
# L is diagonal, except for a group of correlated coefficients, where it is lower triangular: L L' is the covariance of
# their indices, and L its Cholesky factor. In the group, a uniform or triangular draw is g(v) = F^-1(Phi(v)) of a
# normal v (Gaussian copula). With w = sum_l L_dl z_l, s = |L_d| and v = w / s, the index is a_d + s g(v). So the spread
# is s, and the correlations of the v are those of L L'. With r_l = L_dl / s and q_l = z_l - v r_l, its derivatives are
#
#     d / d L_dl            r_l (g - v g') + g' z_l
#     d^2 / d L_dl d L_dm   [(g - v g') (1[l = m] - r_l r_m) + g'' q_l q_m] / s
#
# Each parameter belongs to one column. The derivative of that column's coefficient in the parameter is slope x basis x
# covariate, where the basis is 1, x_l or, for an entry L_dl of a copula, the derivative above. The covariate is 1 or
# h_g. The arrays `column`, `basis` and `individual` say which: 0 stands for 1, 1 + l for x_l, the next numbers for the
# entries of copulas, and 1 + g for h_g. Columns of error components have no location: their mean is 0.
#
# In WTP space one column is a cost, and the random coefficient of each other column is its willingness to pay w, in
# units of the cost (Train & Weeks, 2005): with c the coefficient of the cost, that of column k is -c w_k. `in_utility`
# returns the coefficients of the utility, and `to_wtp_space` transforms derivatives in these to derivatives in c and w.
# Error components do not change.
#
# Scales of groups of choice sets (`scale_groups.py`) multiply all columns. The derivative of the utility in a scale is
# the utility before scaling, which is treated as one more column for each scale. So is the derivative in a parameter of
# a transformation, such as a Box-Cox exponent: the derivatives of the columns times the coefficients.
#
# Parameters (P,): locations, then effects of covariates on means, then spreads, then scales, then parameters of
# transformations. The sign of a spread is not identified, as the draws are symmetric: `mirrored` makes spreads positive
# by mirroring the draws, with the same likelihood.


class RandomCoefficient(NamedTuple):
    """A random coefficient: its column and its distribution."""

    column: int
    distribution: Distribution


class CopulaCurve(NamedTuple):
    """Index of a coefficient that a Gaussian copula correlates, with derivatives in the entries of its row of L."""

    deviation: Tensor  # (N, R) index minus location
    first: Tensor  # (N, l, R)
    flat: Tensor  # (N, R) (g - v g') / s
    bend: Tensor  # (N, R) g'' / s
    q: Tensor  # (N, l, R)
    r: Tensor  # (l,)


class SampledCoefficients(NamedTuple):
    """Random coefficients of N persons in R draws, and their derivatives.

    The D + Q rows of ``basis`` and ``tilt`` belong to the D draws and to the Q parameters of copulas.
    """

    value: Tensor  # (N, D, R)
    slope: Tensor | None  # (N, D, R) derivative in the location; None for 1
    basis: Tensor  # (N, D + Q, R) derivative in the spread, divided by that in the location
    tilt: Tensor  # (N, D + Q, R) ``lean`` of CoefficientCurve
    curvatures: dict[int, Tensor]  # (N, R) second derivatives in the location, for nonlinear coefficients
    copulas: dict[int, CopulaCurve]


@dataclass(frozen=True)
class MixingDistribution:
    """Mixing distribution: the columns with random coefficients, their distributions and covariates."""

    columns: tuple[str, ...]  # (K,)
    located: int  # number of columns with a location; the columns after them are error components
    random: tuple[RandomCoefficient, ...]  # (D,)
    group: tuple[int, ...] = ()  # correlated random coefficients
    means: tuple[tuple[int, int], ...] = ()  # pairs of a random coefficient and a covariate of its mean
    who: tuple[str, ...] = ()  # names of the covariates
    mirror: tuple[int, ...] = ()  # (D,) 1, or -1 for mirrored draws
    cost: int | None = None  # in WTP space, the column in whose units the others are
    scales: tuple[str, ...] = ()  # names of the scale parameters of groups of choice sets
    curves: tuple[str, ...] = ()  # names of the parameters of transformations, such as Box-Cox exponents
    zeros: tuple[int, ...] = ()  # random coefficients that are 0, whatever their parameters are

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> MixingDistribution:
        """Build the distribution from a dictionary read from JSON."""
        # 1. Convert the fields to their types.
        random = tuple(RandomCoefficient(int(column), Distribution(**fields)) for column, fields in entries["random"])
        mixing = cls(
            tuple(map(str, entries["columns"])),
            int(entries["located"]),
            random,
            tuple(map(int, entries["group"])),
            tuple((int(d), int(g)) for d, g in entries["means"]),
            tuple(map(str, entries["who"])),
            tuple(map(int, entries["mirror"])),
            None if entries["cost"] is None else int(entries["cost"]),
            tuple(map(str, entries.get("scales", ()))),
            tuple(map(str, entries.get("curves", ()))),
        )
        # 2. Indices must be those of existing columns, coefficients and covariates.
        columns = [r.column for r in random]
        if not (0 <= mixing.located <= len(mixing.columns) and {*columns} <= {*range(len(mixing.columns))}):
            raise ValueError("a random coefficient refers to a column that does not exist")
        coefficients, covariates = {*range(len(random))}, {*range(len(mixing.who))}
        if not ({*mixing.group, *(d for d, _ in mixing.means)} <= coefficients and {*mixing.mirror} <= {1, -1}):
            raise ValueError("a correlation or a mean refers to a coefficient that is not random")
        if not {g for _, g in mixing.means} <= covariates or len(mixing.mirror) not in (0, len(random)):
            raise ValueError("a mean depends on a covariate that does not exist")
        if mixing.cost is not None and not 0 <= mixing.cost < mixing.located:
            raise ValueError("the cost column has no location parameter")
        return mixing

    @property
    def wtp_columns(self) -> list[int]:
        """Columns whose coefficient is a willingness to pay."""
        return [] if self.cost is None else [k for k in range(self.located) if k != self.cost]

    @property
    def dimensions(self) -> int:
        """Number of random coefficients."""
        return len(self.random)

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        """Entries (row, column) of the Cholesky factor L that are parameters."""
        has_spread = [r.distribution.has_spread for r in self.random]
        alone = [(d, d) for d in range(self.dimensions) if d not in self.group and has_spread[d]]
        below = [(d, c) for k, d in enumerate(self.group) for c in self.group[: k + 1]]
        return alone + below

    @cached_property
    def copula_pairs(self) -> list[tuple[int, int]]:
        """Entries (row, column) of the Cholesky factor L of coefficients that a Gaussian copula correlates (Q,)."""
        return [(d, c) for d, c in self._pairs if d in self.group and self.random[d].distribution.name in _COPULA]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names (K,) of the coefficients, or of the willingness to pay, as the summary shows them."""
        return tuple(f"wtp[{name}]" if k in self.wtp_columns else name for k, name in enumerate(self.columns))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names (P,) of the parameters."""
        random = [self.labels[r.column] for r in self.random]
        names = list(self.labels[: self.located])
        names += [f"mean[{random[d]}]:{self.who[g]}" for d, g in self.means]
        for d, c in self._pairs:
            if d in self.group:
                names.append(f"cholesky[{random[d]}, {random[c]}]")
            elif self.random[d].column >= self.located:
                names.append(random[d])
            else:
                names.append(f"{self.random[d].distribution.spread_name}[{random[d]}]")
        return (*names, *self.scales, *self.curves)

    @property
    def n_extra(self) -> int:
        """Number of parameters that have a column of their own: scales, and parameters of transformations."""
        return len(self.scales) + len(self.curves)

    @cached_property
    def column(self) -> Ints:
        """Column (P,) of the utility that each parameter belongs to; scales and curves have columns after the K."""
        columns = [self.random[d].column for d, _ in (*self.means, *self._pairs)]
        extra = range(len(self.columns), len(self.columns) + self.n_extra)
        return np.array([*range(self.located), *columns, *extra], np.int64)

    @cached_property
    def basis(self) -> Ints:
        """For each parameter (P,), 1 + the index of its row of ``SampledCoefficients.basis``, or 0 if it has none."""
        before, after = self.located + len(self.means), self.n_extra
        of_copula = {pair: k for k, pair in enumerate(self.copula_pairs)}
        rows = [self.dimensions + of_copula[pair] if pair in of_copula else pair[1] for pair in self._pairs]
        return np.array([0] * before + [1 + row for row in rows] + [0] * after, np.int64)

    @cached_property
    def individual(self) -> Ints:
        """For each parameter (P,), 1 + the index of the covariate that it multiplies, or 0 if it multiplies none."""
        after = len(self._pairs) + self.n_extra
        return np.array([0] * self.located + [1 + g for _, g in self.means] + [0] * after, np.int64)

    @cached_property
    def feature(self) -> Ints:
        """Index (P,) of the variable that each parameter multiplies, in the list of 1, draws and covariates."""
        rows = self.dimensions + len(self.copula_pairs)
        return np.where(self.individual > 0, rows + self.individual, self.basis)

    @property
    def spreads(self) -> Ints:
        """Indices of the parameters that are entries of the Cholesky factor L, such as spreads."""
        return np.flatnonzero(self.basis)

    def standard(self, t: Tensor) -> Tensor:  # (N, D, R) -> (N, D, R)
        """Transform uniform draws on (-1, 1) to standard draws."""
        signs = self.mirror or (1,) * self.dimensions
        laws = [Distribution("normal") if d in self.group else r.distribution for d, r in enumerate(self.random)]
        return torch.stack([law.standard(t[:, d] * signs[d]) for d, law in enumerate(laws)], dim=1)

    def triangle(self, x: Floats) -> Floats:  # (P,) -> (D, D)
        """Return the Cholesky factor L."""
        full = np.zeros((self.dimensions, self.dimensions))
        for (d, c), value in zip(self._pairs, x[self.spreads], strict=True):
            full[d, c] = value
        return full

    def multipliers(self, x: Floats) -> Floats:  # (P,) -> (1 + G,)
        """Return the scales of all groups, with the 1 of the reference first."""
        first = len(x) - self.n_extra
        return np.append(1.0, x[first : first + len(self.scales)])

    def exponents(self, x: Floats) -> Floats:  # (P,) -> (J,)
        """Return the parameters of transformations."""
        return x[len(x) - len(self.curves) :]

    def locations(self, x: Floats, h: Floats) -> Floats:  # (P,), (N, G) -> (N, D)
        """Return the location of each random coefficient for each person."""
        base = np.array([x[r.column] if r.column < self.located else 0.0 for r in self.random])
        locations = np.tile(base, (len(h), 1))
        for k, (d, g) in enumerate(self.means):
            locations[:, d] += x[self.located + k] * h[:, g]
        return locations

    def sample(
        self, locations: Tensor, triangle: Tensor, draws: Tensor
    ) -> SampledCoefficients:  # (N, D), (D, D), (N, D, R)
        """Return the random coefficients for given standard draws."""
        # 1. The indices a + L x. Normal, uniform and triangular coefficients equal their index.
        spread = triangle @ draws if self.group else triangle.diagonal()[:, None] * draws
        index = spread.add_(locations[:, :, None])
        copulas = {d: self._copula(d, triangle[d], draws) for d in dict.fromkeys(d for d, _ in self.copula_pairs)}
        if copulas:
            for d, copula in copulas.items():
                index[:, d] = locations[:, d, None] + copula.deviation
            draws = torch.cat([draws, *(copula.first for copula in copulas.values())], dim=1)
        if all(r.distribution.is_linear for r in self.random) and not self.zeros:
            return SampledCoefficients(index, None, draws, draws, {}, copulas)
        # 2. Other coefficients are functions of their index; truncated normals, of location and spread.
        value, slope, basis, tilt = index, torch.ones_like(index), draws.clone(), draws.clone()
        curvatures = {}
        for d, (_, distribution) in enumerate(self.random):
            if distribution.by_index:
                curve = distribution.of_index(index[:, d], draws[:, d])
            else:
                curve = distribution.of_spread(locations[:, d, None], triangle[d, d], draws[:, d])
            value[:, d], basis[:, d], tilt[:, d] = curve.value, curve.per_spread, curve.lean
            if curve.slope is not None:
                slope[:, d] = curve.slope
            if curve.curvature is not None:
                curvatures[d] = curve.curvature
        # 3. A coefficient that is 0 has no derivatives.
        for d in self.zeros:
            value[:, d], slope[:, d] = 0, 0
            curvatures.pop(d, None)
        return SampledCoefficients(value, slope, basis, tilt, curvatures, copulas)

    def _copula(self, d: int, row: Tensor, draws: Tensor) -> CopulaCurve:  # (D,), (N, D, R)
        """Return the index of a coefficient that a copula correlates, given its row of L and normal draws."""
        # 1. The normal v, and the uniform or triangular draw g(v) with its derivatives.
        columns = [c for e, c in self.copula_pairs if e == d]
        z, entries = draws[:, columns], row[columns]
        s = entries.norm().clamp_min(1e-12)
        r = entries / s
        v = (z * r[:, None]).sum(1)
        g, slope, bend = (
            _uniform_of_normal(v) if "uniform" in self.random[d].distribution.name else _triangular_of_normal(v)
        )
        # 2. The index, and its derivatives in the entries of the row.
        flat = g - v * slope
        first = r[:, None] * flat[:, None] + slope[:, None] * z
        return CopulaCurve(s * g, first, flat / s, bend / s, z - v[:, None] * r[:, None], r)

    def whole(self, x: Floats, random: Tensor) -> Tensor:  # (P,), (N, D, R) -> (N, K, R)
        """Return the coefficients of all columns or, in WTP space, the cost coefficient and the willingness to pay."""
        out = random.new_zeros(random.shape[0], len(self.columns), random.shape[2])
        out[:, : self.located] = torch.from_numpy(x[: self.located]).to(out)[:, None]
        out[:, [r.column for r in self.random]] = random
        return out

    def in_utility(self, whole: Tensor) -> Tensor:  # (N, K, R) -> (N, K, R)
        """Return the coefficients of the utility."""
        if self.cost is None:
            return whole
        out = whole.clone()
        out[:, self.wtp_columns] *= -whole[:, self.cost, None]
        return out

    def to_wtp_space(self, values: Tensor, whole: Tensor) -> None:  # (..., K, N, R), (K, N, R)
        """Transform derivatives with respect to coefficients to derivatives in WTP space, in place."""
        for k in self.wtp_columns:
            values[..., self.cost, :, :] -= whole[k] * values[..., k, :, :]
            values[..., k, :, :] *= -whole[self.cost]

    def start(self, estimates: Floats, scale: Floats) -> Floats:  # (K0,), (K,) -> (P,)
        """Return starting values, from the estimates of the multinomial logit."""
        # 1. Locations: the estimates, or indices at which the distribution has about their size.
        x = np.zeros(len(self.names))
        estimates, scale = self._in_cost_units(estimates, scale)
        x[: self.located] = estimates
        spread = np.zeros(self.dimensions)
        for d, (column, distribution) in enumerate(self.random):
            if column < self.located:
                x[column], spread[d] = distribution.start(float(estimates[column]), float(scale[column]))
            else:
                spread[d] = 0.5 * scale[column]
        # 2. Spreads on the diagonal of L; coefficients start uncorrelated.
        for p, (d, c) in zip(self.spreads, self._pairs, strict=True):
            x[p] = spread[d] if d == c else 0.0
        # 3. Scales: 1. The caller sets the parameters of transformations.
        x[len(x) - self.n_extra :] = 1.0
        return x

    def _in_cost_units(self, estimates: Floats, scale: Floats) -> tuple[Floats, Floats]:  # (K0,), (K,)
        """Convert coefficients and their typical changes to WTP space."""
        if self.cost is None:
            return estimates, scale
        price = estimates[self.cost] or scale[self.cost]
        wtp, size = estimates.copy(), scale.copy()
        wtp[self.wtp_columns] /= -price
        size[self.wtp_columns] /= abs(price)
        return wtp, size

    def signed(self, estimates: Floats) -> MixingDistribution:  # (K0,)
        """Return the mixing distribution with unspecified signs replaced by the signs of the estimates."""
        estimates, _ = self._in_cost_units(estimates, np.ones(len(self.columns)))

        def with_sign(r: RandomCoefficient) -> RandomCoefficient:
            sign = r.distribution.sign or (-1 if estimates[r.column] < 0 else 1)
            return RandomCoefficient(r.column, replace(r.distribution, sign=sign))

        return replace(self, random=tuple(map(with_sign, self.random)))

    def contradicted_signs(self, estimates: Floats, z: Floats) -> list[RandomCoefficient]:  # (K0,), (K0,)
        """Return the random coefficients whose sign is opposite to a significant multinomial logit estimate.

        ``z`` contains the z-statistics of the multinomial logit.
        """
        estimates, _ = self._in_cost_units(estimates, np.ones(len(self.columns)))
        return [
            r
            for r in self.random
            if r.distribution.name in _SIGNED
            and r.distribution.sign * estimates[r.column] < 0
            and abs(z[r.column]) > _SIGNIFICANT_Z
        ]

    def mirrored(self, x: Floats) -> tuple[MixingDistribution, Floats]:
        """Mirror draws so that the diagonal of L is not negative, and return the new distribution and parameters."""
        # 1. Column c of L changes its sign with draw c: L x = (L S)(S x) for a diagonal matrix S of signs.
        signs = np.where(np.diag(self.triangle(x)) < 0, -1, 1)
        column_signs = np.array([signs[c] for _, c in self._pairs])
        out = x.copy()
        out[self.spreads] *= column_signs
        # 2. Mirror the draws, except those of the truncated normal, which depends only on the size of its spread.
        mirror = np.array(self.mirror or (1,) * self.dimensions)
        for d, r in enumerate(self.random):
            signs[d] = signs[d] if r.distribution.by_index else 1
        return replace(self, mirror=tuple((mirror * signs).tolist())), out

    def scale(self, sizes: Floats, estimates: Floats) -> Floats:  # (K,), (K0,) -> (P,)
        """Return the change in each parameter that changes a utility by about 1.

        ``sizes`` contains the scales of the columns. ``estimates`` contains the coefficients of the multinomial logit,
        which give the scale of an index that is not a coefficient itself, such as the logarithm of a coefficient.
        """
        plain = estimates
        estimates, per = self._in_cost_units(estimates, 1 / sizes)
        per = per.copy()
        for column, distribution in self.random:
            if distribution.name in (*_EXPONENTIAL, "johnson-sb"):
                per[column] = min(1.0, per[column] / max(abs(estimates[column]), 1e-300))
        # A scale multiplies utilities of about the root of the sum of squared effects of the columns.
        of_scale = 1 / max(float(np.linalg.norm(plain * sizes[: len(plain)])), 1.0)
        return np.append(per, np.full(self.n_extra, of_scale))[self.column]


# -- Specification of the mixing distribution by options ---------------------------------------------------------------
# Options name coefficients, as the summary shows them, or a term of the formula, which stands for all its coefficients.
# Error components are dummy variables of nests with a random coefficient of mean 0: the utilities of the alternatives
# of a nest are correlated (Brownstone & Train, 1999).


def specify_mixing(
    design: Design,
    sources: Sequence[str],
    random: Mapping[str, str] | None,
    correlated: bool | Sequence[str],
    *,
    nests: Sequence[str] = (),
    means: Mapping[str, Sequence[str]] | None = None,
    offset: str | None = None,
    cost: str | None = None,
    references: Sequence[str] = (),
) -> MixingDistribution:
    """Build the mixing distribution that the options specify.

    Parameters
    ----------
    design, sources
        Columns of the utility, and the term of each column.
    random
        Distribution of each random coefficient, by name. If None, the coefficients of all numeric features are normal,
        or those of all columns if no feature is numeric.
    correlated
        Whether all normal-based random coefficients are correlated, or the names of the correlated coefficients.
    nests
        Names of the nests with an error component. Default: none.
    means
        For each random coefficient by name, the names of the covariates of its mean. Default: none.
    offset
        Name of the column with a coefficient of 1. Default: none.
    cost
        In WTP space, name of the column in whose units the other coefficients are measured. Default: preference space.
    references
        Columns of the references of unconnected groups of labels, whose coefficients are 0 and not random. Default:
        none.

    Raises
    ------
    ConfigError
        If an option names an unknown coefficient, or coefficients that cannot be correlated.
    """
    # 1. Distributions by column; a name stands for one coefficient, or for all coefficients of a term.
    usual = [name for name in _numeric(design, sources, offset) if name not in references]
    named = dict.fromkeys(usual, "normal") if random is None else random
    distributions: dict[int, Distribution] = {}
    for name, text in named.items():
        if name in references:
            raise ConfigError(
                f"random includes {name!r}, which is 0 because its label is the reference of a group of alternatives "
                f"that are never offered with the others: remove it from random, or fix the coefficient of another "
                f"label of this group."
            )
        for column in columns_of(name, design.columns, sources, "random", references):
            if design.columns[column] == offset:
                raise ConfigError(
                    f"random includes {name!r}, but it is the offset, whose coefficient is 1: remove one of them."
                )
            distributions[column] = Distribution.parse(name, text)
    # 2. Error components come after the columns of the design.
    parts = [RandomCoefficient(column, distributions[column]) for column in sorted(distributions)]
    parts += [RandomCoefficient(len(design.columns) + k, Distribution("normal")) for k in range(len(nests))]
    if not parts:
        raise ConfigError(
            "random is empty: a mixed logit needs a random coefficient or an error component. Add one, or use mnl."
        )
    columns = (*design.columns, *(f"component[{nest}]" for nest in nests))
    # 3. Means that depend on individuals: pairs of a random coefficient and a covariate, which coefficients may share.
    index = {part.column: d for d, part in enumerate(parts)}
    covariates: dict[str, int] = {}
    pairs = []
    for name, columns_of_mean in (means or {}).items():
        for column in columns_of(name, design.columns, sources, "means", references):
            if column not in index:
                raise ConfigError(f"means includes {name!r}, which is not random: add {name}:COLUMN to the formula.")
            pairs += [(index[column], covariates.setdefault(each, len(covariates))) for each in columns_of_mean]
    group = _group(correlated, parts, design.columns, sources, references)
    unit = None if cost is None else _cost(cost, design.columns, sources, offset)
    return MixingDistribution(
        columns,
        len(design.columns),
        tuple(parts),
        group,
        tuple(pairs),
        tuple(covariates),
        cost=unit,
        scales=design.form.scales,
        curves=design.form.curves,
    )


def _numeric(design: Design, sources: Sequence[str], offset: str | None) -> list[str]:
    """Return the coefficients of numeric features, or all if no feature is numeric, without the offset."""
    numeric = {
        str(term)
        for term in design.terms.generic
        if all(isinstance(design.codes[f.column], NumberCode) for f in term.factors)
    }
    names = [(name, term) for name, term in zip(design.columns, sources, strict=True) if name != offset]
    return [name for name, term in names if term in numeric] or [name for name, _ in names]


def _cost(name: str, names: Sequence[str], sources: Sequence[str], offset: str | None) -> int:
    """Return the column of the cost."""
    columns = columns_of(name, names, sources, "wtp_space")
    if len(columns) > 1:
        raise ConfigError(f"wtp_space: {name!r} has {len(columns)} coefficients: choose one of them.")
    if offset is not None:
        raise ConfigError("wtp_space is not supported with an offset, whose coefficient is 1: remove one of them.")
    return columns[0]


def _group(
    correlated: bool | Sequence[str],
    parts: Sequence[RandomCoefficient],
    names: Sequence[str],
    sources: Sequence[str],
    references: Sequence[str],
) -> tuple[int, ...]:
    """Return the correlated random coefficients: none, or at least two."""
    if correlated is False:
        return ()
    index = {part.column: d for d, part in enumerate(parts) if part.column < len(names)}
    if correlated is True:
        group = [d for d in index.values() if parts[d].distribution.name in CORRELATED]
    else:
        group = []
        for name in correlated:
            for column in columns_of(name, names, sources, "correlated", references):
                if column not in index:
                    raise ConfigError(f"correlated includes {name!r}, which is not random: add it to random.")
                if parts[index[column]].distribution.name not in CORRELATED:
                    kind = parts[index[column]].distribution.name
                    raise ConfigError(
                        f"correlated includes {name!r}, which is {kind}: only {', '.join(CORRELATED)} can be "
                        f"correlated."
                    )
                group.append(index[column])
    if len(group) < 2:
        raise ConfigError(
            f"correlated needs at least two random coefficients of these distributions, got {len(group)}: "
            f"{', '.join(CORRELATED)}."
        )
    return tuple(sorted(set(group)))


def require_varying_columns(z: np.ndarray, mixing: MixingDistribution) -> None:  # (M, K) differences within sets
    """Raise InputError if the column of a random coefficient does not vary within any choice set."""
    constant = np.flatnonzero(~np.any(z, axis=0))
    names = [mixing.columns[r.column] for r in mixing.random if r.column in constant]
    if names:
        raise InputError(
            f"the random coefficient of {names[0]!r} is not identified: the column does not vary within any choice "
            f"set; {len(names)} such coefficients. Leave it out of random, or choose other nests."
        )
