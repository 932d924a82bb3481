"""Free, fixed, bounded and equal parameters of a logit, and identification of its coefficients.

The log-likelihood is maximised over x (K,) with x_k fixed for some k and low_k <= x_k <= high_k for the others. A
Newton step d at x then maximises the quadratic model g . d - d' C d / 2, with the information matrix C, subject to

    low - x <= d <= high - x        and d_k = 0 if x_k is fixed.

This is a least-squares problem with bounds (Stark & Parker, 1995). The step stays within the bounds, and it does not
decrease the quadratic model, since d = 0 is feasible with value 0. The usual asymptotic theory does not apply to a
parameter on the boundary: such a parameter has no standard error, and the standard errors of the other parameters treat
it as known, like a fixed parameter.

Parameters may be constrained to be equal. With one value u_f for each group of equal parameters, x = T u, where T
(K, F) has a single 1 in each row. The likelihood as a function of u has the gradient T' g and the Hessian T' H T, and
the covariance matrix of the estimates of x is T V T', where V is that of u.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError, InputError, did_you_mean

Bounds = tuple[float | None, float | None]  # None: no bound
Equality = tuple[str, ...]  # names of equal parameters

T = TypeVar("T")

_BOUND_TOLERANCE = 1e-12  # relative distance to a bound that is rounding error


@dataclass(frozen=True)
class Parameters:
    """Names, starting values and bounds of all parameters, where both bounds of a fixed parameter are its value."""

    names: tuple[str, ...]
    start: Floats  # (K,)
    low: Floats  # (K,)
    high: Floats  # (K,)
    same_as: Ints | None = None  # (K,) index of the first parameter of each group of equal parameters; None: all differ

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        *,
        fixed: Mapping[str, float],
        bounds: Mapping[str, Bounds],
        start: Mapping[str, float],
        begin: Floats | None = None,
        equal: Sequence[Equality] = (),
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
        equal
            Groups of names of parameters with the same value, as returned by :func:`checked_equalities`. Default: none.

        Raises
        ------
        ConfigError
            If an option names an unknown parameter, or constraints of equal parameters contradict each other.
        """
        # 1. Every option must name a parameter.
        index = {name: k for k, name in enumerate(names)}
        options = (("fixed", fixed), ("bounds", bounds), ("start", start), ("equal", [n for g in equal for n in g]))
        for option, named in options:
            for name in named:
                if name not in index:
                    hint = did_you_mean(name, names)
                    raise ConfigError(f"{option}: {name!r} is not a coefficient of this model.{hint}")
        # 2. Options for one of several equal parameters apply to all of them.
        same_as = _first_of_equal(equal, index)
        if same_as is not None:
            for group in (same_as == k for k in np.unique(same_as)):
                members = [names[k] for k in np.flatnonzero(group).tolist()]
                if len(members) > 1:
                    fixed, bounds, start = _options_of_equal(members, fixed, bounds, start)
        # 3. Set bounds, then starting values; both bounds of a fixed parameter are its value.
        low, high = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        at = np.zeros(len(names)) if begin is None else np.array(begin, np.float64)
        for name, pair in bounds.items():
            low[index[name]], high[index[name]] = numeric_bounds(pair)
        for name, value in {**start, **fixed}.items():
            at[index[name]] = value
        for name, value in fixed.items():
            low[index[name]] = high[index[name]] = value
        at = at if same_as is None else at[same_as]
        return cls(tuple(names), np.clip(at, low, high), low, high, same_as)

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

    @property
    def n_free(self) -> int:
        """Number of different parameters that are not fixed."""
        free = ~self.fixed
        return int(free.sum()) if self.same_as is None else len(np.unique(self.same_as[free]))

    def head(self, number: int) -> Parameters:
        """Return the first parameters."""
        same_as = None if self.same_as is None else self.same_as[:number]
        if same_as is not None and (same_as == np.arange(number)).all():
            same_as = None
        return Parameters(self.names[:number], self.start[:number], self.low[:number], self.high[:number], same_as)

    # -- equal parameters: x = T u ------------------------------------------------------------------------------------

    @cached_property
    def distinct(self) -> Ints:  # (F,)
        """Indices of the first parameters of all groups of equal parameters."""
        return np.arange(len(self.names)) if self.same_as is None else np.unique(self.same_as)

    @cached_property
    def group(self) -> Ints:  # (K,)
        """Index of the group of each parameter, from 0 to F - 1."""
        if self.same_as is None:
            return np.arange(len(self.names))
        return np.searchsorted(self.distinct, self.same_as)

    @cached_property
    def expansion(self) -> Floats:
        """The matrix T (K, F)."""
        return np.eye(len(self.distinct))[self.group]

    @cached_property
    def reduced(self) -> Parameters:
        """The F different parameters, without equalities."""
        k = self.distinct
        return Parameters(tuple(self.names[i] for i in k), self.start[k], self.low[k], self.high[k])

    def reduced_scale(self, scale: Floats) -> Floats:  # (K,) -> (F,)
        """Return the change in each different parameter that changes a utility by about 1, given that in x."""
        sums: Floats = self.expansion.T @ scale**-2.0
        return 1 / np.sqrt(sums)

    # -- feasible values and steps ------------------------------------------------------------------------------------

    def clip(self, x: Floats) -> Floats:  # (..., K) -> (..., K)
        """Return the nearest feasible values, with values within rounding error of a bound set to the bound.

        The first of several equal parameters determines their value.
        """
        x = np.clip(x if self.same_as is None else x[..., self.same_as], self.low, self.high)
        for bound in (self.low, self.high):
            x = np.where(np.isfinite(bound) & (np.abs(x - bound) <= _BOUND_TOLERANCE * (1 + np.abs(bound))), bound, x)
        return x

    def at_bound(self, x: Floats) -> Bools:  # (K,) -> (K,)
        """Return True for each parameter that is not fixed and is on a bound."""
        return ~self.fixed & (np.equal(x, self.low) | np.equal(x, self.high))

    def blocked(self, x: Floats, gradient: Floats) -> Bools:  # (K,), (K,) -> (K,)
        """Return True for each parameter that is fixed, or on a bound that a step along the gradient would cross."""
        if self.same_as is not None:
            gradient = (self.expansion.T @ gradient)[self.group]
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


def _first_of_equal(equal: Sequence[Equality], index: Mapping[str, int]) -> Ints | None:  # -> (K,)
    """Return the index of the first parameter of each group of equal parameters, or None if all may differ."""
    first = np.arange(len(index))
    for names in equal:
        groups = first[[index[name] for name in names]]
        first[np.isin(first, groups)] = groups.min()  # groups with a common parameter are one group
    return None if (first == np.arange(len(first))).all() else first


def _options_of_equal(
    members: Sequence[str], fixed: Mapping[str, float], bounds: Mapping[str, Bounds], start: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, Bounds], dict[str, float]]:
    """Return the options with the values and bounds of each of several equal parameters applied to all of them."""
    # 1. One fixed value and one starting value.
    values: list[dict[str, float]] = []
    for option, named in (("fixed", fixed), ("start", start)):
        different = {named[name]: name for name in members if name in named}
        if len(different) > 1:
            (a, first), (b, second) = list(different.items())[:2]
            raise ConfigError(
                f"{first!r} and {second!r} are equal, but {option} has the values {a:g} and {b:g}: use one value."
            )
        values.append({**named, **dict.fromkeys(members, next(iter(different)))} if different else dict(named))
    # 2. The bounds that all of them satisfy.
    pairs = [numeric_bounds(bounds[name]) for name in members if name in bounds]
    low, high = max((a for a, _ in pairs), default=-math.inf), min((b for _, b in pairs), default=math.inf)
    if not low < high:
        raise ConfigError(f"{listed(members)} are equal, but no interval satisfies their bounds: change bounds.")
    for option, named in zip(("fixed", "start"), values, strict=True):
        if members[0] in named and not low <= named[members[0]] <= high:
            raise ConfigError(
                f"{listed(members)} are equal, and {option} = {named[members[0]]:g} is outside their bounds, {low:g} "
                f"to {high:g}."
            )
    if {*members} <= {*values[0]}:  # a fixed parameter needs no start
        values[1] = {name: value for name, value in values[1].items() if name not in members}
    pair = (None if low == -math.inf else low, None if high == math.inf else high)
    return values[0], {**bounds, **(dict.fromkeys(members, pair) if pairs else {})}, values[1]


def checked_equalities(equal: object) -> tuple[Equality, ...]:
    """Return the option ``equal`` as tuples of names, or raise ConfigError.

    Examples
    --------
    >>> checked_equalities(["time[car] = time[bus]", ("cost", "toll")])
    (('time[car]', 'time[bus]'), ('cost', 'toll'))
    """
    expected = "equal must be a list of equations such as 'time[car] = time[bus]', or of tuples of names"
    if not isinstance(equal, list | tuple):
        raise ConfigError(f"{expected}, got {equal!r}.")
    groups = []
    for entry in equal:
        names = entry.split("=") if isinstance(entry, str) else entry
        if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
            raise ConfigError(f"{expected}, got {entry!r}.")
        group = tuple(name.strip() for name in names)
        if len({*group}) < max(len(group), 2) or not all(group):
            raise ConfigError(f"equal: expected at least two different names, got {entry!r}.")
        groups.append(group)
    return tuple(groups)


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
    """Raise InputError if a coefficient is not identified, ignoring coefficients that are fixed in ``within``.

    The columns of equal coefficients are added.
    """
    if within is not None and (within.fixed.any() or within.same_as is not None):
        of_columns = within.head(len(names))
        free = np.flatnonzero(~of_columns.reduced.fixed)
        z = z @ of_columns.expansion if of_columns.same_as is not None else z
        z, names = z[:, free], [names[k] for k in of_columns.distinct[free]]
    dependent = dependent_columns(z)
    constant = [names[k] for k, basis in dependent if not basis]
    if constant:
        raise InputError(
            f"{constant[0]!r} does not vary within any choice set, so its coefficient is not identified; "
            f"{len(constant)} such column{'s' * (len(constant) > 1)}: {listed(constant)}. "
            f"Leave {'them' if len(constant) > 1 else 'it'} out of the formula."
        )
    if dependent and len(z) < len(names):
        raise InputError(
            f"the training part has only {len(z)} alternatives that were not chosen, which cannot identify "
            f"{len(names)} coefficients: {listed(names)}. One choice set is never enough: fit to a table with many "
            f"more choice sets than coefficients, or to fewer columns."
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
