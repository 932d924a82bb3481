"""Free, fixed and bounded parameters of a logit, and identification of its coefficients.

The log-likelihood is maximised over x (K,) with x_k fixed for some k and low_k <= x_k <= high_k for the others. A
Newton step d at x then maximises the quadratic model g . d - d' C d / 2, with the information matrix C, subject to

    low - x <= d <= high - x        and d_k = 0 if x_k is fixed.

This is a least-squares problem with bounds (Stark & Parker, 1995). The step stays within the bounds, and it does not
decrease the quadratic model, since d = 0 is feasible with value 0. The usual asymptotic theory does not apply to a
parameter on the boundary: such a parameter has no standard error, and the standard errors of the other parameters treat
it as known, like a fixed parameter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError, InputError, did_you_mean

Bounds = tuple[float | None, float | None]  # None: no bound

_BOUND_TOLERANCE = 1e-12  # relative distance to a bound that is rounding error


@dataclass(frozen=True)
class Parameters:
    """Names, starting values and bounds of all parameters, where both bounds of a fixed parameter are its value."""

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
        """Build the parameters from options that refer to parameters by name.

        Parameters
        ----------
        names
            Names of all parameters, as the summary shows them.
        fixed, bounds, start
            Values, bounds and starting values by name, as returned by :func:`checked_control`.
        begin
            Starting values (K,) of parameters that are not in ``start``, which are clipped to their bounds. Default 0.

        Raises
        ------
        ConfigError
            If an option names an unknown parameter.
        """
        # 1. Every option must name a parameter.
        index = {name: k for k, name in enumerate(names)}
        for option, named in (("fixed", fixed), ("bounds", bounds), ("start", start)):
            for name in named:
                if name not in index:
                    hint = did_you_mean(name, names)
                    raise ConfigError(f"{option}: {name!r} is not a coefficient of this model.{hint}")
        # 2. Set bounds, then starting values; both bounds of a fixed parameter are its value.
        low, high = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        at = np.zeros(len(names)) if begin is None else np.array(begin, np.float64)
        for name, pair in bounds.items():
            low[index[name]], high[index[name]] = numeric_bounds(pair)
        for name, value in {**start, **fixed}.items():
            at[index[name]] = value
        for name, value in fixed.items():
            low[index[name]] = high[index[name]] = value
        return cls(tuple(names), np.clip(at, low, high), low, high)

    @classmethod
    def free(cls, start: Floats, names: Sequence[str] | None = None) -> Parameters:
        """Return parameters without constraints, with empty names by default."""
        return cls(tuple(names or [""] * len(start)), start, np.full(len(start), -np.inf), np.full(len(start), np.inf))

    @property
    def fixed(self) -> Bools:
        """True for each fixed parameter (K,)."""
        return np.equal(self.low, self.high)

    @property
    def is_unconstrained(self) -> bool:
        """Whether no parameter is fixed or bounded."""
        return bool(np.isneginf(self.low).all() and np.isposinf(self.high).all())

    def clip(self, x: Floats) -> Floats:  # (..., K) -> (..., K)
        """Return the nearest feasible values, with values within rounding error of a bound set to the bound."""
        x = np.clip(x, self.low, self.high)
        for bound in (self.low, self.high):
            x = np.where(np.isfinite(bound) & (np.abs(x - bound) <= _BOUND_TOLERANCE * (1 + np.abs(bound))), bound, x)
        return x

    def at_bound(self, x: Floats) -> Bools:  # (K,) -> (K,)
        """Return True for each parameter that is not fixed and is on a bound."""
        return ~self.fixed & (np.equal(x, self.low) | np.equal(x, self.high))

    def blocked(self, x: Floats, gradient: Floats) -> Bools:  # (K,), (K,) -> (K,)
        """Return True for each parameter that is fixed, or on a bound that a step along the gradient would cross."""
        crosses: Bools = ((x <= self.low) & (gradient < 0)) | ((x >= self.high) & (gradient > 0))
        return self.fixed | crosses

    def step_limits(self, x: Floats, scale: Floats) -> tuple[Floats, Floats]:  # (K,), (K,) -> (K,), (K,)
        """Return the largest feasible steps down and up, in units of ``scale``."""
        return (self.low - x) / scale, (self.high - x) / scale


def numeric_bounds(bounds: Bounds) -> tuple[float, float]:
    """Return bounds as numbers, with None replaced by -inf or inf."""
    low, high = bounds
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def checked_control(
    fixed: Mapping[str, float], bounds: Mapping[str, Bounds] | None, start: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, Bounds] | None, dict[str, float]]:
    """Return the options as plain dicts, or raise ConfigError if they are inconsistent."""
    # 1. Options map names to numbers or to pairs of numbers.
    for option, named in (("fixed", fixed), ("bounds", {} if bounds is None else bounds), ("start", start)):
        if not (isinstance(named, Mapping) and all(isinstance(name, str) for name in named)):
            raise ConfigError(f"{option} must map names of coefficients to values, got {named!r}.")
    for option, values in (("fixed", fixed), ("start", start)):
        for name, value in values.items():
            require_number(f"{option}[{name!r}]", value)
    within = {name: _checked_pair(name, pair) for name, pair in (bounds or {}).items()}
    # 2. Options must be consistent.
    for name in sorted({*fixed} & {*start}):
        raise ConfigError(f"{name!r} is in both fixed and start: remove it from one of them.")
    for option, values in (("fixed", fixed), ("start", start)):
        for name, value in values.items():
            low, high = numeric_bounds(within.get(name, (None, None)))
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
    if not numeric_bounds((low, high))[0] < numeric_bounds((low, high))[1]:
        remedy = f"use fixed={{{name!r}: {low:g}}} to fix it" if low == high and low is not None else "swap them"
        raise ConfigError(f"bounds[{name!r}] must have the lower bound first, got {pair!r}: {remedy}.")
    return (None if low is None else float(low)), (None if high is None else float(high))


# -- Identification ----------------------------------------------------------------------------------------------------
# A coefficient multiplies differences within choice sets. It is not identified if its column does not vary within any
# set, or is a linear combination of other columns within every set. Such columns are reported, not dropped silently.


# Squared sine of the angle between a column and the span of the others, below which they are collinear. Columns come
# from float32 numbers: rounding leaves exact combinations at 1e-14, or more if values are large compared with their
# differences.
_COLLINEAR = 1e-8


def require_identified(
    z: Floats, names: Sequence[str], within: Parameters | None = None
) -> None:  # (M, K) differences within sets
    """Raise InputError if a coefficient is not identified, ignoring coefficients that are fixed in ``within``."""
    if within is not None and within.fixed.any():
        free = np.flatnonzero(~within.fixed[: len(names)]).tolist()
        z, names = z[:, free], [names[k] for k in free]
    dependent = dependent_columns(z)
    constant = [names[k] for k, basis in dependent if not basis]
    if constant:
        raise InputError(
            f"{constant[0]!r} does not vary within any choice set, so its coefficient is not identified; "
            f"{len(constant)} such column{'s' * (len(constant) > 1)}: {listed(constant)}. "
            f"Leave {'them' if len(constant) > 1 else 'it'} out of the formula."
        )
    if dependent:
        column, basis = dependent[0]
        raise InputError(
            f"singular design: within every choice set {names[column]!r} is a linear combination of "
            f"{listed([names[j] for j in basis])}, so their coefficients are not identified; {len(dependent)} such "
            f"column{'s' * (len(dependent) > 1)}: {listed([names[k] for k, _ in dependent])}. "
            f"Leave out one column of each combination."
        )


def dependent_columns(z: Floats) -> list[tuple[int, list[int]]]:  # (M, K)
    """Return each column that is a linear combination of earlier columns, with a list of these columns.

    The list is empty for a column of zeros.
    """
    # 1. Scale columns to length 1; leave out columns of zeros.
    gram = z.T @ z
    length = np.sqrt(np.diag(gram))
    nonzero = np.flatnonzero(length > 0)
    dependent: list[tuple[int, list[int]]] = [(k, []) for k in np.flatnonzero(length == 0).tolist()]
    gram = gram[np.ix_(nonzero, nonzero)] / np.outer(length[nonzero], length[nonzero])
    if not len(nonzero) or np.linalg.eigvalsh(gram)[0] > _COLLINEAR:  # no squared sine is smaller than this eigenvalue
        return dependent
    # 2. Project each column on the independent columns before it. The residual of a dependent column is rounding error.
    free: list[int] = []
    for k in range(len(gram)):
        weights = np.linalg.solve(gram[np.ix_(free, free)], gram[free, k]) if free else np.zeros(0)
        if gram[k, k] - gram[free, k] @ weights > _COLLINEAR:
            free.append(k)
        else:
            basis = [int(nonzero[j]) for j, w in zip(free, weights, strict=True) if abs(w) > 1e-4]
            dependent.append((int(nonzero[k]), basis))
    return sorted(dependent)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return at most ``most`` names in quotes, separated by commas, and the number of remaining names."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
