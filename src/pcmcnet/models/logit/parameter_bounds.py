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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError, InputError, did_you_mean

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
        """Find the parameters that options name; a name that no parameter has is refused.

        Parameters
        ----------
        names
            Of all parameters, as the summary shows them.
        fixed, bounds, start
            Values, bounds and starting values by name, as :func:`checked_control` returned them.
        begin
            (K,) starting values of those not named, moved within bounds; 0 if not given.
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
    """Refuse options that contradict themselves or each other; returns them with plain keys and values."""
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
    for option, values in (("fixed", fixed), ("start", start)):
        for name, value in values.items():
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


# -- Which columns of a design can have a coefficient at all -----------------------------------------------------------
# A coefficient multiplies differences within choice sets. A column without any, or one that is a linear combination of
# others within every set, leaves its coefficient undetermined: it is named, with the others, and never dropped
# silently.


# Squared sine of the angle between a column and the span of the others. Columns come from float32 numbers, whose
# rounding leaves exact combinations at 1e-14, or at more where numbers are large beside their differences.
_ALIKE = 1e-8


def require_identified(
    z: Floats, names: Sequence[str], within: Parameters | None = None
) -> None:  # (M, K) differences within sets
    """Refuse a design with columns that have no coefficient of their own; those that ``within`` fixes need none."""
    if within is not None and within.fixed.any():
        free = np.flatnonzero(~within.fixed[: len(names)]).tolist()
        z, names = z[:, free], [names[k] for k in free]
    lost = dependent_columns(z)
    still = [names[k] for k, others in lost if not others]
    if still:
        raise InputError(
            f"{still[0]!r} does not differ between the alternatives of any choice set, so it can have no "
            f"coefficient; {len(still)} such column{'s' * (len(still) > 1)}: {listed(still)}. "
            f"Leave {'them' if len(still) > 1 else 'it'} out of the formula."
        )
    if lost:
        column, others = lost[0]
        raise InputError(
            f"singular design: within every choice set {names[column]!r} is a linear combination of "
            f"{listed([names[j] for j in others])}, so their coefficients cannot be told apart; {len(lost)} such "
            f"column{'s' * (len(lost) > 1)}: {listed([names[k] for k, _ in lost])}. Leave one of each out."
        )


def dependent_columns(z: Floats) -> list[tuple[int, list[int]]]:  # (M, K)
    """Return the columns that are linear combinations of earlier ones, with those: none, for a column of zeros."""
    # 1. Columns of length 1, without those that are 0 everywhere.
    gram = z.T @ z
    length = np.sqrt(np.diag(gram))
    moves = np.flatnonzero(length > 0)
    lost: list[tuple[int, list[int]]] = [(k, []) for k in np.flatnonzero(length == 0).tolist()]
    gram = gram[np.ix_(moves, moves)] / np.outer(length[moves], length[moves])
    if not len(moves) or np.linalg.eigvalsh(gram)[0] > _ALIKE:  # no squared sine is smaller than this eigenvalue
        return lost
    # 2. Column by column: project on those kept so far. What is left of a dependent column is rounding.
    kept: list[int] = []
    for k in range(len(gram)):
        weights = np.linalg.solve(gram[np.ix_(kept, kept)], gram[kept, k]) if kept else np.zeros(0)
        if gram[k, k] - gram[kept, k] @ weights > _ALIKE:
            kept.append(k)
        else:
            others = [int(moves[j]) for j, w in zip(kept, weights, strict=True) if abs(w) > 1e-4]
            lost.append((int(moves[k]), others))
    return sorted(lost)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Quote names, the first few of many."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
