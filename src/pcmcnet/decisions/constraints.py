"""Business constraints on an offer, as linear inequalities A x <= b for x in {0, 1}^n.

Alternatives that must or must not be shown are stored separately, because they need no row of A. Mixed-integer linear
programs are solved by HiGHS.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError, InputError, did_you_mean


def solve_integer_program(objective: Floats, **program: Any) -> Any:
    """Call :func:`scipy.optimize.milp` with the same arguments and result, but suppress the printed output of HiGHS."""
    from scipy.optimize import milp

    with _quiet():
        return milp(objective, **program)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress standard output so that messages printed by HiGHS do not mix with the results of a command."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        stdout = os.dup(1)
    except OSError:  # the process has no standard output
        yield
        return
    try:
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), 1)
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


# -- Constraints -------------------------------------------------------------------------------------------------------

_SLACK = 1e-9  # tolerance of an inequality, relative to its coefficients


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Constraints on an offer. The outside option is always available and does not count towards any constraint.

    Parameters
    ----------
    size
        Maximum number of alternatives shown, or a pair (minimum, maximum) in which either can be None. If None (the
        default), the size is not limited.
    capacity
        Mapping from columns of the catalogue to the maximum sum of the column over the offer, such as {"shelf": 120}.
    at_least, at_most
        Minimum or maximum number of alternatives shown with a given value in a column of the catalogue, such as
        {"airline": {"A5": 2}}.
    always, never
        Labels of alternatives that must, or must not, be shown.
    together
        Groups of labels that must be shown either all together or not at all.
    apart
        Groups of labels that exclude each other: at most one label of a group may be shown.

    Raises
    ------
    ConfigError
        If a constraint has an invalid form.

    Examples
    --------
    >>> Constraints(size=5, at_most={"brand": {"own": 2}}, apart=[("cola", "cola light")]).size
    5
    """

    size: int | tuple[int | None, int | None] | None = None
    capacity: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)
    at_most: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)
    always: Sequence[Any] = ()
    never: Sequence[Any] = ()
    together: Sequence[Sequence[Any]] = ()
    apart: Sequence[Sequence[Any]] = ()

    def __post_init__(self) -> None:
        bounds = self.size if isinstance(self.size, tuple) else (self.size, None)
        if len(bounds) != 2 or not all(bound is None or _is_count(bound) for bound in bounds):
            raise ConfigError(f"size: expected a whole number, or (minimum, maximum), got {self.size!r}.")
        least, most = self.sizes
        if least is not None and most is not None and least > most:
            raise ConfigError(f"size: expected a minimum not above the maximum, got {least} and {most}.")
        for name in ("always", "never", "together", "apart"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(f"{name}: expected a list, got the string {getattr(self, name)!r}.")
        for name in ("together", "apart"):
            for group in getattr(self, name):
                if isinstance(group, str) or len(group) < 2:
                    raise ConfigError(
                        f"{name}: expected groups of at least two labels, such as [('a', 'b')], got {group!r}."
                    )
        for column, limit in self.capacity.items():
            require_number(f"capacity of {column}", limit)
        for name in ("at_least", "at_most"):
            for column, counts in getattr(self, name).items():
                if not isinstance(counts, Mapping) or not all(map(_is_count, counts.values())):
                    form = f"{{{column!r}: {{'x': 2}}}}"
                    raise ConfigError(
                        f"{name}: expected a whole number for each value, such as {form}, got {counts!r}."
                    )

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """Minimum and maximum size, each None if there is no limit."""
        return self.size if isinstance(self.size, tuple) else (None, self.size)


class ConstraintRows(NamedTuple):
    """Linear constraints on offers of n alternatives."""

    matrix: Floats  # (m, n)
    upper: Floats  # (m,)
    names: tuple[str, ...]  # (m,) description of each row
    always: Bools  # (n,) alternatives that must be shown
    never: Bools  # (n,) alternatives that must not be shown

    @classmethod
    def unconstrained(cls, always: Bools) -> ConstraintRows:
        """Return constraints whose only requirement is that some alternatives are always shown."""
        return cls(np.zeros((0, len(always))), np.zeros(0), (), always, np.zeros(len(always), np.bool_))

    def allow(self, offers: Bools) -> Bools:  # (B, n) -> (B,)
        """Return a mask (B,) of the offers that satisfy all constraints."""
        inside = np.all(offers @ self.matrix.T <= self._limits, axis=1)
        allowed: Bools = inside & offers[:, self.always].all(axis=1) & ~offers[:, self.never].any(axis=1)
        return allowed

    def entering(self, offer: Bools) -> Ints:  # (n,) -> (m,)
        """Return the hidden alternatives each of which can be added, so that the offer satisfies all constraints."""
        sums = (self.matrix @ offer)[:, None] + self.matrix
        inside = (sums <= self._limits[:, None]).all(axis=0)
        return np.flatnonzero(inside & ~(offer | self.never))

    def leaving(self, offer: Bools) -> Ints:  # (n,) -> (m,)
        """Return the shown alternatives each of which can be removed, so that the offer satisfies all constraints."""
        sums = (self.matrix @ offer)[:, None] - self.matrix
        inside = (sums <= self._limits[:, None]).all(axis=0)
        return np.flatnonzero(inside & offer & ~self.always)

    @property
    def _limits(self) -> Floats:
        """Upper limits of the rows, with a tolerance for rounding errors."""
        limits: Floats = self.upper + _SLACK * (np.abs(self.matrix).sum(axis=1) + np.abs(self.upper))
        return limits

    def best(self, worth: Floats) -> Bools | None:  # (n,) -> (n,)
        """Return the feasible offer with the largest sum of ``worth``, or None if no offer is feasible."""
        least, most, further = self.sizes()
        if not len(further.upper):
            return self._best_of_size(worth, least, most)
        from scipy.optimize import Bounds, LinearConstraint

        rows = LinearConstraint(self.matrix, -np.inf, self.upper)
        bounds = Bounds(self.always.astype(float), 1.0 - self.never)
        scale = max(float(np.abs(worth).max()), np.finfo(float).tiny)  # HiGHS has absolute tolerances
        solution = solve_integer_program(
            -worth / scale, constraints=rows, bounds=bounds, integrality=np.ones(len(worth))
        )
        return None if solution.x is None else solution.x > 0.5

    def relaxed_best(self, worth: Floats) -> tuple[Floats, float] | None:  # (n,) -> (n,)
        """Return shares x, from 0 to 1, with the largest ``worth @ x``, and an upper bound on it for any offer.

        The shares are 0 or 1 if there are only limits on the number of alternatives shown. None is returned if there is
        no solution.
        """
        least, most, further = self.sizes()
        if not len(further.upper):
            offer = self._best_of_size(worth, least, most)
            return None if offer is None else (offer.astype(np.float64), float(worth[offer].sum()))
        from scipy.optimize import linprog

        lower, upper = self.always.astype(np.float64), 1.0 - self.never
        scale = max(float(np.abs(worth).max()), np.finfo(float).tiny)
        with _quiet():
            solution = linprog(
                -worth / scale, self.matrix, self.upper, bounds=np.stack([lower, upper], axis=1), method="highs"
            )
        if solution.x is None:
            return None
        # Any multipliers >= 0 of the rows give an upper bound, so the accuracy of the solution does not matter.
        prices = scale * np.maximum(-solution.ineqlin.marginals, 0.0)
        rest = worth - prices @ self.matrix
        bound = prices @ self.upper + np.maximum(rest, 0.0) @ upper + np.minimum(rest, 0.0) @ lower
        return solution.x, float(bound)

    def _best_of_size(self, worth: Floats, least: int, most: int) -> Bools | None:
        """Return the best offer if the only constraint is a limit on the number of alternatives shown."""
        free, fixed = np.flatnonzero(~(self.always | self.never)), int(self.always.sum())
        if not max(least, fixed) <= min(most, fixed + len(free)):
            return None
        free = free[np.argsort(-worth[free], kind="stable")]
        offer = self.always.copy()
        offer[free[: int(np.clip((worth[free] > 0).sum(), least - fixed, most - fixed))]] = True
        return offer

    def sizes(self) -> tuple[int, int, ConstraintRows]:
        """Return the minimum and maximum number of alternatives shown, and the rows with other constraints."""
        free, fixed = ~(self.always | self.never), int(self.always.sum())
        least, most = fixed, fixed + int(free.sum())
        further = np.ones(len(self.upper), np.bool_)
        for k, (row, upper) in enumerate(zip(self.matrix, self.upper, strict=True)):
            each = row[free][:1]
            if not each.any() or (row[free] != each).any():
                continue
            further[k] = False
            number = float(upper - row[self.always].sum()) / float(each[0])  # a maximum, or a minimum if each < 0
            if each[0] > 0:
                most = min(most, fixed + math.floor(number + _SLACK))
            else:
                least = max(least, fixed + math.ceil(number - _SLACK))
        names = tuple(name for name, is_further in zip(self.names, further, strict=True) if is_further)
        return least, most, self._replace(matrix=self.matrix[further], upper=self.upper[further], names=names)

    def require_possible(self) -> None:
        """Raise InputError, with the names of conflicting constraints, if no offer satisfies all constraints."""
        nothing = np.zeros(self.matrix.shape[1])
        if self.best(nothing) is not None:
            return
        guilty = [name for k, name in enumerate(self.names) if self._without(k).best(nothing) is not None]
        problem = f"dropping any one of these would help: {'; '.join(guilty)}" if guilty else "several of them conflict"
        raise InputError(f"no offer satisfies the constraints; {problem}. Relax a constraint.")

    def _without(self, k: int) -> ConstraintRows:
        """Return the constraints without row k."""
        rest = np.arange(len(self.upper)) != k
        names = tuple(name for j, name in enumerate(self.names) if j != k)
        return self._replace(matrix=self.matrix[rest], upper=self.upper[rest], names=names)


def constraint_rows(
    constraints: Constraints, labels: Sequence[str], columns: Mapping[str, Sequence[Any]], outside: int | None
) -> ConstraintRows:
    """Return the constraints on a catalogue as linear rows, given the position of the outside option."""
    n = len(labels)
    shown = (np.arange(n) != outside).astype(np.float64)  # 0 for the outside option, which does not count
    rows: list[tuple[str, Floats, float]] = []  # name, row of A, entry of b
    # 1. Limits on the number of alternatives shown.
    least, most = constraints.sizes
    available = int(shown.sum())
    if least is not None and least > available:
        raise InputError(f"size: expected a minimum of at most {available}, the size of the catalogue, got {least}.")
    least = least or int(outside is None)  # an offer without an outside option cannot be empty
    rows += [] if most is None else [(f"at most {most} alternatives", shown, most)]
    rows += [(f"at least {least} alternatives", -shown, -least)] if least else []
    # 2. Limits on sums of columns, and on numbers of alternatives with a value.
    for name, limit in constraints.capacity.items():
        rows.append((f"capacity of {name}: {limit:g}", _numbers(columns, name, outside, "capacity"), limit))
    for sign, word, limits in ((-1, "at least", constraints.at_least), (1, "at most", constraints.at_most)):
        for name, counts in limits.items():
            for value, count in counts.items():
                has = shown * _equals(columns, name, value, word.replace(" ", "_"))
                rows.append((f"{word} {count} with {name} = {value}", sign * has, sign * count))
    # 3. Groups: x_first = x_other as two rows for "together", sum x <= 1 for "apart".
    for group in constraints.together:
        first, *rest = _positions(group, labels, "together")
        for other in rest:
            name, row = f"{labels[first]} and {labels[other]} together", np.zeros(n)
            row[first], row[other] = 1.0, -1.0
            rows += [(name, row, 0.0), (name, -row, 0.0)]
    for group in constraints.apart:
        row = np.isin(np.arange(n), _positions(group, labels, "apart")).astype(np.float64)
        rows.append((f"{', '.join(map(str, group))} apart", row, 1.0))
    # 4. Alternatives that are always or never shown need no rows.
    always = np.isin(np.arange(n), _positions(constraints.always, labels, "always")) | (np.arange(n) == outside)
    never = np.isin(np.arange(n), _positions(constraints.never, labels, "never"))
    if (always & never).any():
        raise InputError(
            f"{labels[int(np.argmax(always & never))]!r} is in both always and never: remove it from one of them."
        )
    names = tuple(name for name, _, _ in rows)
    matrix = np.array([row for _, row, _ in rows]) if rows else np.zeros((0, n))
    return ConstraintRows(matrix, np.array([upper for _, _, upper in rows], np.float64), names, always, never)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _positions(names: Sequence[Any], labels: Sequence[str], what: str) -> list[int]:
    """Return the positions of labels, or raise InputError if a label is not in the catalogue."""
    place = {label: k for k, label in enumerate(labels)}
    for name in map(str, names):
        if name not in place:
            raise InputError(f"{what}: {name!r} is not in the catalogue." + did_you_mean(name, place))
    return [place[str(name)] for name in names]


def _column(columns: Mapping[str, Sequence[Any]], name: str, what: str) -> Sequence[Any]:
    """Return a column of the catalogue."""
    if name not in columns:
        raise InputError(f"{what}: the catalogue has no column {name!r}." + did_you_mean(name, columns))
    return columns[name]


def _numbers(columns: Mapping[str, Sequence[Any]], name: str, outside: int | None, what: str) -> Floats:
    """Return a numeric column of the catalogue, with 0 for the outside option."""
    column = _column(columns, name, what)
    try:
        values = np.array([np.nan if v is None else v for v in column], np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected numbers in column {name!r} of the catalogue.") from error
    if outside is not None:
        values[outside] = 0.0
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        where = f"{what}: column {name!r} of the catalogue, row {row}"
        raise InputError(f"{where}: expected a finite number, got {values[row]}.")
    return values


def _equals(columns: Mapping[str, Sequence[Any]], name: str, value: Any, what: str) -> Bools:
    """Return a mask of the alternatives with the given value in a column, or raise InputError if there are none."""
    has: Bools = np.array([str(v) == str(value) for v in _column(columns, name, what)], np.bool_)
    if not has.any():
        hint = did_you_mean(str(value), dict.fromkeys(map(str, columns[name])))
        raise InputError(f"{what}: no alternative of the catalogue has {name} = {value!r}." + hint)
    return has
