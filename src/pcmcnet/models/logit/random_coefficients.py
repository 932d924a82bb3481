"""Random coefficients of a mixed logit: their distributions, the coefficients they make, and which are random."""

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
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.factor_coding import NumberCode

# -- Distributions -----------------------------------------------------------------------------------------------------
# Distributions of a random coefficient, each a function of a location a, a spread b and a standard draw x.
#
#     normal             a + b x                       x ~ N(0, 1)
#     uniform            a + b x                       x ~ U(-1, 1): b is half the width
#     triangular         a + b x                       x ~ triangular on (-1, 1): b is half the width
#     lognormal          s exp(a + b x)                x ~ N(0, 1)
#     johnson-sb(l, u)   l + (u - l) / (1 + exp(-(a + b x)))     x ~ N(0, 1)
#     truncated-normal   s (a + |b| x)                 x ~ N(0, 1) given a + |b| x > 0
#
# s is +1 or -1: "lognormal" takes the sign that the multinomial logit finds, "+lognormal" and "-lognormal" a given one;
# likewise for the truncated normal. All but the last are h(a + b x), so that with the index e = a + b x derivatives are
# h'(e) and h''(e) times those of e, also where e has correlated parts or a mean of its own for everyone.
#
# For the truncated normal, with v in (0, 1) uniform, r = a / |b|, and Phi and phi the standard normal distribution and
# density,
#
#     x = -Phi^-1(v Phi(r))      x' = dx/dr = -m phi(r) / Phi(r)      m = (1 - Phi(x)) / phi(x)
#     x'' = lam (r + lam) m - lam (x m - 1) x'                        lam = phi(r) / Phi(r)
#
# and its value is |b| (r + x): derivatives 1 + x' in a, x - r x' in |b|; second ones x'' / |b| times (1, -r)(1, -r)'.

DISTRIBUTION_NAMES = ("normal", "lognormal", "truncated-normal", "triangular", "uniform", "johnson-sb")
_SIGNED = ("lognormal", "truncated-normal")
NORMAL_BASED = ("normal", "lognormal", "johnson-sb")  # which may be correlated
_FORM = re.compile(r"\s*([+-]?)\s*([a-z-]+?)\s*(?:\(([^,()]*),([^,()]*)\))?\s*")
_FAR = -30.0  # least a / b of a truncated normal: its tail is exponential there, and float64 still knows it
_ROOT_2 = math.sqrt(2)


class CoefficientCurve(NamedTuple):
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
        """Read "normal", "-lognormal", "johnson-sb(-2, 0)" for a coefficient, which errors name."""
        where = f"random[{coefficient!r}]"
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        if match is None or match[2] not in DISTRIBUTION_NAMES:
            raise ConfigError(f"{where}: unknown distribution {text!r}." + did_you_mean(str(text), DISTRIBUTION_NAMES))
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

    def of_index(self, index: Tensor, draw: Tensor) -> CoefficientCurve:
        """Return the coefficient at an index a + b x, where x is ``draw``; derivatives are those in the index."""
        if self.name == "lognormal":
            value = self.sign * index.exp()
            return CoefficientCurve(value, value, draw, value, draw)
        if self.name == "johnson-sb":
            share, width = index.sigmoid(), self.high - self.low
            slope = width * share * (1 - share)
            return CoefficientCurve(self.low + width * share, slope, draw, slope * (1 - 2 * share), draw)
        return CoefficientCurve(index, None, draw, None, draw)

    def of_spread(self, location: Tensor, spread: Tensor, t: Tensor) -> CoefficientCurve:  # (N, 1), (), (N, R)
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
        return CoefficientCurve(*(part.to(t.dtype) for part in parts))

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


# -- Parameters of a mixed logit -> the coefficients of each person in each draw, with their derivatives ---------------
# The utility has K columns. D of them have a random coefficient, with standard draws x (D, R) for every person; the
# others have one coefficient for all. For a person with individual numbers h, random coefficient d is a function of
#
#     location a_d = m_d + sum_g h_g n_dg        index a_d + sum_l L_dl x_l        (see `random_coefficients.py`)
#
# with L diagonal, but for a group of coefficients that are correlated, among which it is lower triangular: L L' is the
# covariance of their indices. Every parameter p so belongs to one column, and the derivative of that column's
# coefficient in it is slope x basis x who: basis is 1 or x_l, who is 1 or h_g. The tables `column`, `basis` and `who`
# say which (basis 0 is 1, basis 1 + l is x_l; likewise who). Columns of error components have no location: their mean
# is 0.
#
# In willingness-to-pay space one column is a cost, and what is random for the other columns is their worth w in its
# units (Train & Weeks, 2005): with c the coefficient of the cost, that of column k is -c w_k. `in_utility` makes the
# coefficients of the utility, `to_worths` takes derivatives in those to derivatives in c and w. Error components stay
# as they are.
#
# Parameters (P,): locations, then means that depend on individuals, then spreads. A spread may come out negative, as
# the draws' sign is arbitrary: `mirrored` turns the draws instead, and the likelihood stays as it is.


class RandomCoefficient(NamedTuple):
    """A random coefficient: the column it multiplies, and its distribution."""

    column: int
    distribution: Distribution


class SampledCoefficients(NamedTuple):
    """The random coefficients of some persons in every draw, and their derivatives."""

    value: Tensor  # (N, D, R)
    slope: Tensor | None  # (N, D, R) in the location; None for 1
    basis: Tensor  # (N, D, R) derivative in the spread over that in the location
    tilt: Tensor  # (N, D, R) and over the roots of second derivatives
    bends: dict[int, Tensor]  # (N, R) second derivatives in the location, of coefficients that have any


@dataclass(frozen=True)
class MixingDistribution:
    """Which columns have random coefficients, how they are distributed, and what they depend on."""

    columns: tuple[str, ...]  # (K,)
    located: int  # the first columns, which have a location; the others are error components
    random: tuple[RandomCoefficient, ...]  # (D,)
    group: tuple[int, ...] = ()  # random coefficients that are correlated
    means: tuple[tuple[int, int], ...] = ()  # random coefficients whose mean depends on a number of the individual
    who: tuple[str, ...] = ()  # names of those numbers
    mirror: tuple[int, ...] = ()  # (D,) 1, or -1 where draws are turned
    cost: int | None = None  # the column in whose units the others are worth something, in willingness-to-pay space

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> MixingDistribution:
        """Build from plain values, as JSON has them."""
        # 1. The fields, each as its type.
        random = tuple(RandomCoefficient(int(column), Distribution(**law)) for column, law in entries["random"])
        found = cls(
            tuple(map(str, entries["columns"])),
            int(entries["located"]),
            random,
            tuple(map(int, entries["group"])),
            tuple((int(d), int(g)) for d, g in entries["means"]),
            tuple(map(str, entries["who"])),
            tuple(map(int, entries["mirror"])),
            None if entries["cost"] is None else int(entries["cost"]),
        )
        # 2. Places must be of columns, coefficients and numbers that are there.
        places = [r.column for r in random]
        if not (0 <= found.located <= len(found.columns) and {*places} <= {*range(len(found.columns))}):
            raise ValueError("random coefficients of columns that are not there")
        coefficients, numbers = {*range(len(random))}, {*range(len(found.who))}
        if not ({*found.group, *(d for d, _ in found.means)} <= coefficients and {*found.mirror} <= {1, -1}):
            raise ValueError("correlations or means of coefficients that are not random")
        if not {g for _, g in found.means} <= numbers or len(found.mirror) not in (0, len(random)):
            raise ValueError("means by numbers that are not there")
        if found.cost is not None and not 0 <= found.cost < found.located:
            raise ValueError("a cost that is no column with a location: those are not there")
        return found

    @property
    def worths(self) -> list[int]:
        """Columns that have a worth in units of the cost."""
        return [] if self.cost is None else [k for k in range(self.located) if k != self.cost]

    @property
    def dimensions(self) -> int:
        """Number of random coefficients."""
        return len(self.random)

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        """Entries of L that are parameters: row, column."""
        alone = [(d, d) for d in range(self.dimensions) if d not in self.group]
        below = [(d, c) for k, d in enumerate(self.group) for c in self.group[: k + 1]]
        return alone + below

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """(K,) names of what the parameters of each column are about: a coefficient, or a willingness to pay."""
        return tuple(f"wtp[{name}]" if k in self.worths else name for k, name in enumerate(self.columns))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """(P,) names of the parameters."""
        named = [self.labels[r.column] for r in self.random]
        found = list(self.labels[: self.located])
        found += [f"mean[{named[d]}]:{self.who[g]}" for d, g in self.means]
        for d, c in self._pairs:
            if d in self.group:
                found.append(f"cholesky[{named[d]}, {named[c]}]")
            elif self.random[d].column >= self.located:
                found.append(named[d])
            else:
                found.append(f"{self.random[d].distribution.spread_name}[{named[d]}]")
        return tuple(found)

    @cached_property
    def column(self) -> Ints:
        """(P,) column of the utility that each parameter belongs to."""
        places = [self.random[d].column for d, _ in (*self.means, *self._pairs)]
        return np.array([*range(self.located), *places], np.int64)

    @cached_property
    def basis(self) -> Ints:
        """(P,) 0, or 1 + the draw whose size the parameter sets."""
        return np.array([0] * (self.located + len(self.means)) + [1 + c for _, c in self._pairs], np.int64)

    @cached_property
    def individual(self) -> Ints:
        """(P,) 0, or 1 + the number of the individual that the parameter multiplies."""
        return np.array([0] * self.located + [1 + g for _, g in self.means] + [0] * len(self._pairs), np.int64)

    @cached_property
    def feature(self) -> Ints:
        """(P,) what the parameter multiplies, of 1, the draws and the numbers of the individual, in this order."""
        return np.where(self.individual > 0, self.dimensions + self.individual, self.basis)

    @property
    def spreads(self) -> Ints:
        """Places of the spreads, and of the entries of L, among the parameters."""
        return np.flatnonzero(self.basis)

    def standard(self, t: Tensor) -> Tensor:  # (N, D, R) -> (N, D, R)
        """Make standard draws of uniform ones on (-1, 1)."""
        signs = self.mirror or (1,) * self.dimensions
        parts = (r.distribution.standard(t[:, d] * signs[d]) for d, r in enumerate(self.random))
        return torch.stack(list(parts), dim=1)

    def triangle(self, x: Floats) -> Floats:  # (P,) -> (D, D)
        """Return L."""
        full = np.zeros((self.dimensions, self.dimensions))
        for (d, c), value in zip(self._pairs, x[len(x) - len(self._pairs) :], strict=True):
            full[d, c] = value
        return full

    def locations(self, x: Floats, h: Floats) -> Floats:  # (P,), (N, G) -> (N, D)
        """Return the location of each random coefficient for each person."""
        at = np.array([x[r.column] if r.column < self.located else 0.0 for r in self.random])
        found = np.tile(at, (len(h), 1))
        for k, (d, g) in enumerate(self.means):
            found[:, d] += x[self.located + k] * h[:, g]
        return found

    def sample(
        self, locations: Tensor, triangle: Tensor, draws: Tensor
    ) -> SampledCoefficients:  # (N, D), (D, D), (N, D, R)
        """Return the random coefficients, for standard draws."""
        # 1. The indices a + L x, which are the coefficients themselves of normal, uniform and triangular ones.
        spread = triangle @ draws if self.group else triangle.diagonal()[:, None] * draws
        index = spread.add_(locations[:, :, None])
        if all(r.distribution.name in ("normal", "uniform", "triangular") for r in self.random):
            return SampledCoefficients(index, None, draws, draws, {})
        # 2. Others are functions of their index, or, truncated normals, of location and spread.
        value, slope, basis, tilt = index, torch.ones_like(index), draws.clone(), draws.clone()
        bends = {}
        for d, (_, distribution) in enumerate(self.random):
            if distribution.by_index:
                curve = distribution.of_index(index[:, d], draws[:, d])
            else:
                curve = distribution.of_spread(locations[:, d, None], triangle[d, d], draws[:, d])
            value[:, d], basis[:, d], tilt[:, d] = curve.value, curve.per_spread, curve.lean
            if curve.slope is not None and curve.bend is not None:
                slope[:, d], bends[d] = curve.slope, curve.bend
        return SampledCoefficients(value, slope, basis, tilt, bends)

    def whole(self, x: Floats, random: Tensor) -> Tensor:  # (P,), (N, D, R) -> (N, K, R)
        """Return the coefficients, or the cost and the worths, of all columns."""
        out = random.new_zeros(random.shape[0], len(self.columns), random.shape[2])
        out[:, : self.located] = torch.from_numpy(x[: self.located]).to(out)[:, None]
        out[:, [r.column for r in self.random]] = random
        return out

    def in_utility(self, whole: Tensor) -> Tensor:  # (N, K, R) -> (N, K, R)
        """Return the coefficients of the utility."""
        if self.cost is None:
            return whole
        out = whole.clone()
        out[:, self.worths] *= -whole[:, self.cost, None]
        return out

    def to_worths(self, values: Tensor, whole: Tensor) -> None:  # (..., K, N, R), (K, N, R)
        """Take derivatives in coefficients, along the first of the last three axes, to those in cost and worths."""
        for k in self.worths:
            values[..., self.cost, :, :] -= whole[k] * values[..., k, :, :]
            values[..., k, :, :] *= -whole[self.cost]

    def start(self, estimates: Floats, scale: Floats) -> Floats:  # (K0,), (K,) -> (P,)
        """Return parameters to begin with, near the estimates of the logit without random coefficients."""
        # 1. Locations: the estimates, or the indices at which a distribution has about their size.
        x = np.zeros(len(self.names))
        estimates, scale = self._in_units(estimates, scale)
        x[: self.located] = estimates
        spread = np.zeros(self.dimensions)
        for d, (column, distribution) in enumerate(self.random):
            if column < self.located:
                x[column], spread[d] = distribution.start(float(estimates[column]), float(scale[column]))
            else:
                spread[d] = 0.5 * scale[column]
        # 2. Spreads on the diagonal of L; coefficients begin uncorrelated.
        for p, (d, c) in zip(self.spreads, self._pairs, strict=True):
            x[p] = spread[d] if d == c else 0.0
        return x

    def _in_units(self, estimates: Floats, scale: Floats) -> tuple[Floats, Floats]:  # (K0,), (K,)
        """Take coefficients, and changes of them that matter, to worths in units of the cost."""
        if self.cost is None:
            return estimates, scale
        price = estimates[self.cost] or scale[self.cost]
        worth, size = estimates.copy(), scale.copy()
        worth[self.worths] /= -price
        size[self.worths] /= abs(price)
        return worth, size

    def signed(self, estimates: Floats) -> MixingDistribution:  # (K0,)
        """Give the distributions that have none the sign of the estimates."""
        estimates, _ = self._in_units(estimates, np.ones(len(self.columns)))

        def known(r: RandomCoefficient) -> RandomCoefficient:
            sign = r.distribution.sign or (-1 if estimates[r.column] < 0 else 1)
            return RandomCoefficient(r.column, replace(r.distribution, sign=sign))

        return replace(self, random=tuple(map(known, self.random)))

    def mirrored(self, x: Floats) -> tuple[MixingDistribution, Floats]:
        """Turn draws so that the diagonal of L is not negative; returns the parameters for them."""
        # 1. Column c of L changes its sign with draw c: L x = (L S)(S x) for a diagonal S of signs.
        signs = np.where(np.diag(self.triangle(x)) < 0, -1, 1)
        turned = np.array([signs[c] for _, c in self._pairs])
        out = x.copy()
        out[len(x) - len(turned) :] *= turned
        # 2. Draws are mirrored likewise, except those of a distribution that takes the size of its spread alone.
        mirror = np.array(self.mirror or (1,) * self.dimensions)
        for d, r in enumerate(self.random):
            signs[d] = signs[d] if r.distribution.by_index else 1
        return replace(self, mirror=tuple((mirror * signs).tolist())), out

    def scale(self, sizes: Floats, estimates: Floats) -> Floats:  # (K,), (K0,) -> (P,)
        """Return by how much a parameter must change to change a utility by about 1.

        ``sizes`` are those of the columns; ``estimates`` are coefficients, by which an index counts that is no
        coefficient itself but its logarithm, or the like.
        """
        estimates, per = self._in_units(estimates, 1 / sizes)
        per = per.copy()
        for column, distribution in self.random:
            if distribution.name in ("lognormal", "johnson-sb"):
                per[column] = min(1.0, per[column] / max(abs(estimates[column]), 1e-300))
        return per[self.column]


# -- Options of a mixed logit and a training table -> which coefficients are random, and how ---------------------------
# Names are those of coefficients, as the summary shows them, or of a term of the formula for all coefficients that it
# has. Error components are columns that mark the alternatives of a nest: their random coefficient has mean 0, so that
# alternatives of one nest go together (Brownstone & Train, 1999).


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
) -> MixingDistribution:
    """Find the coefficients that options name; unknown names and impossible correlations are refused.

    Parameters
    ----------
    design, sources
        Columns of the utility, and the term that each comes from.
    random
        Distribution by name; None for normal coefficients of all numeric features, or of all columns where there are
        none.
    correlated
        Whether all random coefficients that a normal distribution lies behind are correlated, or which ones.
    nests
        Names of the nests that error components are for.
    means
        Names of the individual's numbers that the mean of a coefficient depends on, by its name.
    offset
        Name of the column whose coefficient is 1.
    cost
        Name of the column in whose units the others are worth something, in willingness-to-pay space.
    """
    # 1. Distributions by column; a name stands for one coefficient, or for all of a term.
    named = dict.fromkeys(_numeric(design, sources, offset), "normal") if random is None else random
    found: dict[int, Distribution] = {}
    for name, text in named.items():
        for column in columns_of(name, design.names, sources, "random"):
            if design.names[column] == offset:
                raise ConfigError(f"random names {name!r}, the offset, whose coefficient is 1: leave it out of one.")
            found[column] = Distribution.parse(name, text)
    # 2. Error components come after the columns of the design.
    parts = [RandomCoefficient(column, found[column]) for column in sorted(found)]
    parts += [RandomCoefficient(len(design.names) + k, Distribution("normal")) for k in range(len(nests))]
    if not parts:
        raise ConfigError("random names no coefficient: a mixed logit needs one, or nests; else use mnl.")
    columns = (*design.names, *(f"component[{nest}]" for nest in nests))
    # 3. Means that depend on individuals: pairs of a random coefficient and a number, which several may share.
    place = {part.column: d for d, part in enumerate(parts)}
    who: dict[str, int] = {}
    pairs = []
    for name, numbers in (means or {}).items():
        for column in columns_of(name, design.names, sources, "means"):
            if column not in place:
                raise ConfigError(f"means names {name!r}, which is not random: put {name}:COLUMN into the formula.")
            pairs += [(place[column], who.setdefault(number, len(who))) for number in numbers]
    group = _group(correlated, parts, design.names, sources)
    unit = None if cost is None else _cost(cost, design.names, sources, offset)
    return MixingDistribution(columns, len(design.names), tuple(parts), group, tuple(pairs), tuple(who), cost=unit)


def columns_of(name: str, names: Sequence[str], sources: Sequence[str], option: str) -> list[int]:
    """Return the columns of a coefficient, or of a term."""
    found = [k for k, each in enumerate(names) if each == name] or [k for k, term in enumerate(sources) if term == name]
    if not found:
        known = [*names, *(term for term in sources if term != "1")]
        raise ConfigError(
            f"{option} names {name!r}, which is no coefficient of this model." + did_you_mean(name, known)
        )
    return found


def _numeric(design: Design, sources: Sequence[str], offset: str | None) -> list[str]:
    """Return the coefficients of numeric features; all, where there are none. An offset has none."""
    numeric = {
        str(term)
        for term in design.terms.generic
        if all(isinstance(design.codes[f.column], NumberCode) for f in term.factors)
    }
    names = [(name, term) for name, term in zip(design.names, sources, strict=True) if name != offset]
    return [name for name, term in names if term in numeric] or [name for name, _ in names]


def _cost(name: str, names: Sequence[str], sources: Sequence[str], offset: str | None) -> int:
    """Return the column of the cost."""
    found = columns_of(name, names, sources, "wtp_space")
    if len(found) > 1:
        raise ConfigError(f"wtp_space names {name!r}, which has {len(found)} coefficients: name a single one.")
    if offset is not None:
        raise ConfigError("wtp_space makes worths of all coefficients, and that of an offset is 1: leave one out.")
    return found[0]


def _group(
    correlated: bool | Sequence[str], parts: Sequence[RandomCoefficient], names: Sequence[str], sources: Sequence[str]
) -> tuple[int, ...]:
    """Return the random coefficients that are correlated: none, or at least two."""
    if correlated is False:
        return ()
    own = {part.column: d for d, part in enumerate(parts) if part.column < len(names)}
    if correlated is True:
        group = [d for d in own.values() if parts[d].distribution.name in NORMAL_BASED]
    else:
        group = []
        for name in correlated:
            for column in columns_of(name, names, sources, "correlated"):
                if column not in own:
                    raise ConfigError(f"correlated names {name!r}, which is not random: name it in random, too.")
                if parts[own[column]].distribution.name not in NORMAL_BASED:
                    kind = parts[own[column]].distribution.name
                    raise ConfigError(
                        f"correlated names {name!r}, which is {kind}: only {', '.join(NORMAL_BASED)} can be correlated."
                    )
                group.append(own[column])
    if len(group) < 2:
        raise ConfigError(f"correlated needs two random coefficients with a normal distribution, found {len(group)}.")
    return tuple(sorted(set(group)))


def require_varying_columns(z: np.ndarray, mixing: MixingDistribution) -> None:  # (M, K) differences within sets
    """Refuse a random coefficient of a column that never differs within a set: it has no effect on any choice."""
    still = np.flatnonzero(~np.any(z, axis=0))
    lost = [mixing.columns[r.column] for r in mixing.random if r.column in still]
    if lost:
        raise InputError(
            f"the random coefficient of {lost[0]!r} has no effect: within every choice set the column is the same for "
            f"all alternatives; {len(lost)} such. Leave it out of random, or choose other nests."
        )
