"""Which parameters of a logit are free, which are fixed, and which must stay within bounds.

The log-likelihood is maximised over x (K,) with x_k fixed for some k and low_k <= x_k <= high_k for the others. A step
d of Newton's method at x is then the maximum of the quadratic model g . d - d' C d / 2, C the information, within

    low - x <= d <= high - x        and d_k = 0 where x_k is fixed,

a least-squares problem with bounds (Stark & Parker, 1995). It leads uphill, as d = 0 is within those bounds and worth
0, and no part of it leads out. A parameter that ends at a bound is not where the likelihood is largest: it has no
standard error by the usual theory, and the errors of the others take it as given, as they take those that are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError, did_you_mean

Bounds = tuple[float | None, float | None]  # None where there is no bound

_NEAR = 1e-12  # of a bound, relative: rounding alone keeps a parameter from it


@dataclass(frozen=True)
class Parameters:
    """Names, starting values and bounds of all parameters; a fixed one has its value as both bounds."""

    names: tuple[str, ...]
    start: Floats  # (K,)
    low: Floats  # (K,)
    high: Floats  # (K,)

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        *,
        fixed: Mapping[str, float],
        bounds: Mapping[str, Bounds],
        start: Mapping[str, float],
        begin: Floats | None = None,
    ) -> Parameters:
        """Find the parameters that options name.

        Parameters
        ----------
        names
            Of all parameters, as the summary shows them.
        fixed, bounds, start
            Values, bounds and starting values by name, as :func:`checked_control` returned them.
        begin
            (K,) starting values of those not named, moved within bounds; 0 if not given.

        Raises
        ------
        ConfigError
            For a name that no parameter has.
        """
        # 1. Every option must name a parameter.
        place = {name: k for k, name in enumerate(names)}
        for option, named in (("fixed", fixed), ("bounds", bounds), ("start", start)):
            for name in named:
                if name not in place:
                    known = did_you_mean(name, names)
                    raise ConfigError(f"{option} names {name!r}, which is no coefficient of this model.{known}")
        # 2. Bounds first, then starting values; a fixed parameter is one whose bounds meet at its value.
        low, high = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        at = np.zeros(len(names)) if begin is None else np.array(begin, np.float64)
        for name, (least, most) in bounds.items():
            low[place[name]], high[place[name]] = ends((least, most))
        for name, value in {**start, **fixed}.items():
            at[place[name]] = value
        for name, value in fixed.items():
            low[place[name]] = high[place[name]] = value
        return cls(tuple(names), np.clip(at, low, high), low, high)

    @classmethod
    def free(cls, start: Floats, names: Sequence[str] | None = None) -> Parameters:
        """Return parameters that may have any value; their names are empty if none are given."""
        return cls(tuple(names or [""] * len(start)), start, np.full(len(start), -np.inf), np.full(len(start), np.inf))

    @property
    def fixed(self) -> Bools:
        """(K,) whether each is fixed."""
        return np.equal(self.low, self.high)

    @property
    def anywhere(self) -> bool:
        """Whether every parameter may have any value."""
        return bool(np.isneginf(self.low).all() and np.isposinf(self.high).all())

    def inside(self, x: Floats) -> Floats:  # (..., K) -> (..., K)
        """Move values to the nearest ones allowed; to a bound where rounding alone keeps them from it."""
        x = np.clip(x, self.low, self.high)
        for bound in (self.low, self.high):
            x = np.where(np.isfinite(bound) & (np.abs(x - bound) <= _NEAR * (1 + np.abs(bound))), bound, x)
        return x

    def at_bound(self, x: Floats) -> Bools:  # (K,) -> (K,)
        """Tell which parameters that are not fixed have come to a bound."""
        return ~self.fixed & (np.equal(x, self.low) | np.equal(x, self.high))

    def room(self, x: Floats, scale: Floats) -> tuple[Floats, Floats]:  # (K,), (K,) -> (K,), (K,)
        """Return how far a step may lead down and up, in units of ``scale``."""
        return (self.low - x) / scale, (self.high - x) / scale


def ends(bounds: Bounds) -> tuple[float, float]:
    """Return bounds as numbers, infinite where there is none."""
    low, high = bounds
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def checked_control(
    fixed: Mapping[str, float], bounds: Mapping[str, Bounds] | None, start: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, Bounds] | None, dict[str, float]]:
    """Refuse options that contradict themselves or each other; returns them with plain keys and values.

    Raises
    ------
    ConfigError
        For anything but numbers by name; bounds without a value between them; a fixed value or a start out of bounds.
    """
    # 1. Options map names to numbers, or to pairs of them.
    for option, named in (("fixed", fixed), ("bounds", {} if bounds is None else bounds), ("start", start)):
        if not (isinstance(named, Mapping) and all(isinstance(name, str) for name in named)):
            raise ConfigError(f"{option} must map names of coefficients to values, got {named!r}.")
    for option, values in (("fixed", fixed), ("start", start)):
        for name, value in values.items():
            require_number(f"{option}[{name!r}]", value)
    within = {name: _checked_pair(name, pair) for name, pair in (bounds or {}).items()}
    # 2. They do not contradict each other.
    for name in sorted({*fixed} & {*start}):
        raise ConfigError(f"{name!r} is fixed, so that it has no start: leave it out of one of them.")
    for option, name, value in _pairs(fixed=fixed, start=start):
        low, high = ends(within.get(name, (None, None)))
        if not low <= value <= high:
            raise ConfigError(f"{option}[{name!r}] = {value:g} is outside its bounds, {low:g} to {high:g}.")
    plain = {name: float(v) for name, v in fixed.items()}, {name: float(v) for name, v in start.items()}
    return plain[0], None if bounds is None else within, plain[1]


def _checked_pair(name: str, pair: object) -> Bounds:
    if not (isinstance(pair, list | tuple) and len(pair) == 2):
        raise ConfigError(f"bounds[{name!r}] must be a pair such as (None, 0), got {pair!r}.")
    low, high = (None if value == side else value for value, side in zip(pair, (-math.inf, math.inf), strict=True))
    for value in (low, high):
        if value is not None:
            require_number(f"bounds[{name!r}]", value)
    if not ends((low, high))[0] < ends((low, high))[1]:
        remedy = f"fixed={{{name!r}: {low:g}}} holds a coefficient" if low == high and low is not None else "swap them"
        raise ConfigError(f"bounds[{name!r}] must have the lower bound first, got {pair!r}: {remedy}.")
    return (None if low is None else float(low)), (None if high is None else float(high))


def _pairs(**options: Mapping[str, float]) -> Iterable[tuple[str, str, float]]:
    return ((option, name, value) for option, named in options.items() for name, value in named.items())
