"""Parameters of a mixed logit -> the coefficients of each person in each draw, with their derivatives.

The utility has K columns. D of them have a random coefficient, with standard draws x (D, R) for every person; the
others have one coefficient for all. For a person with individual numbers h, random coefficient d is a function of

    location a_d = m_d + sum_g h_g n_dg        index a_d + sum_l L_dl x_l        (see ``distributions.py``)

with L diagonal, but for a group of coefficients that are correlated, among which it is lower triangular: L L' is the
covariance of their indices. Every parameter p so belongs to one column, and the derivative of that column's coefficient
in it is slope x basis x who: basis is 1 or x_l, who is 1 or h_g. The tables ``column``, ``basis`` and ``who`` say which
(basis 0 is 1, basis 1 + l is x_l; likewise who). Columns of error components have no location: their mean is 0.

In willingness-to-pay space one column is a cost, and what is random for the other columns is their worth w in its
units (Train & Weeks, 2005): with c the coefficient of the cost, that of column k is -c w_k. ``in_utility`` makes the
coefficients of the utility, ``to_worths`` takes derivatives in those to derivatives in c and w. Error components stay
as they are.

Parameters (P,): locations, then means that depend on individuals, then spreads. A spread may come out negative, as the
draws' sign is arbitrary: ``mirrored`` turns the draws instead, and the likelihood stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.models.logits.simulation.distributions import Distribution


class Random(NamedTuple):
    """A random coefficient: the column it multiplies, and its distribution."""

    column: int
    distribution: Distribution


class Sampled(NamedTuple):
    """The random coefficients of some persons in every draw, and their derivatives."""

    value: Tensor  # (N, D, R)
    slope: Tensor | None  # (N, D, R) in the location; None for 1
    basis: Tensor  # (N, D, R) derivative in the spread over that in the location
    tilt: Tensor  # (N, D, R) and over the roots of second derivatives
    bends: dict[int, Tensor]  # (N, R) second derivatives in the location, of coefficients that have any


@dataclass(frozen=True)
class Mixing:
    """Which columns have random coefficients, how they are distributed, and what they depend on."""

    columns: tuple[str, ...]  # (K,)
    located: int  # the first columns, which have a location; the others are error components
    random: tuple[Random, ...]  # (D,)
    group: tuple[int, ...] = ()  # random coefficients that are correlated
    means: tuple[tuple[int, int], ...] = ()  # random coefficients whose mean depends on a number of the individual
    who: tuple[str, ...] = ()  # names of those numbers
    mirror: tuple[int, ...] = ()  # (D,) 1, or -1 where draws are turned
    cost: int | None = None  # the column in whose units the others are worth something, in willingness-to-pay space

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Mixing:
        """Build from plain values, as JSON has them."""
        # 1. The fields, each as its type.
        random = tuple(Random(int(column), Distribution(**law)) for column, law in entries["random"])
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

    def sample(self, locations: Tensor, triangle: Tensor, draws: Tensor) -> Sampled:  # (N, D), (D, D), (N, D, R)
        """Return the random coefficients, for standard draws."""
        # 1. The indices a + L x, which are the coefficients themselves of normal, uniform and triangular ones.
        spread = triangle @ draws if self.group else triangle.diagonal()[:, None] * draws
        index = spread.add_(locations[:, :, None])
        if all(r.distribution.name in ("normal", "uniform", "triangular") for r in self.random):
            return Sampled(index, None, draws, draws, {})
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
        return Sampled(value, slope, basis, tilt, bends)

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

    def signed(self, estimates: Floats) -> Mixing:  # (K0,)
        """Give the distributions that have none the sign of the estimates."""
        estimates, _ = self._in_units(estimates, np.ones(len(self.columns)))

        def known(r: Random) -> Random:
            sign = r.distribution.sign or (-1 if estimates[r.column] < 0 else 1)
            return Random(r.column, replace(r.distribution, sign=sign))

        return replace(self, random=tuple(map(known, self.random)))

    def mirrored(self, x: Floats) -> tuple[Mixing, Floats]:
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
