"""What an offer must fulfil, in words of a retailer, as linear rows: A x <= b for x in {0, 1}^n.

Alternatives that must or must not be shown are kept apart from the rows, since they need no row. Mixed integer linear
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

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError, InputError, did_you_mean


def solve_integer_program(objective: Floats, **program: Any) -> Any:
    """Minimise; see :func:`scipy.optimize.milp`, which takes the same words and gives this result."""
    from scipy.optimize import milp

    with _quiet():
        return milp(objective, **program)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what HiGHS prints off standard output, where results go that programs read."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


# -- Constraints -------------------------------------------------------------------------------------------------------

_SLACK = 1e-9  # by which a row may be exceeded, relative to its numbers


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Constraints on an offer; the outside option, which is always there, counts in none of them.

    Parameters
    ----------
    size
        Alternatives shown: at most this many, or (at least, at most), either of which may be None.
    capacity
        For columns of the catalogue, how large their sum over the offer may be: {"shelf": 120}.
    at_least, at_most
        For columns of the catalogue, how many alternatives with a value: {"airline": {"A5": 2}}.
    always, never
        Labels of alternatives that must, or must not, be shown.
    together, apart
        Groups of labels of which all or none, or at most one, may be shown.

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
            raise ConfigError(f"size must be a whole number, or (at least, at most); got {self.size!r}.")
        least, most = self.sizes
        if least is not None and most is not None and least > most:
            raise ConfigError(f"size asks for at least {least} and at most {most} alternatives: no offer has both.")
        for name in ("always", "never", "together", "apart"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} must be a list, got the word {getattr(self, name)!r}.")
        for name in ("together", "apart"):
            for group in getattr(self, name):
                if isinstance(group, str) or len(group) < 2:
                    raise ConfigError(f"{name} must be groups of two labels or more, as [('a', 'b')]; got {group!r}.")
        for column, limit in self.capacity.items():
            require_number(f"capacity of {column}", limit)
        for name in ("at_least", "at_most"):
            for column, counts in getattr(self, name).items():
                if not isinstance(counts, Mapping) or not all(map(_is_count, counts.values())):
                    form = f"{{{column!r}: {{'x': 2}}}}"
                    raise ConfigError(f"{name} must be whole numbers by value, as {form}; got {counts!r}.")

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """The least and the largest size asked for."""
        return self.size if isinstance(self.size, tuple) else (None, self.size)


class ConstraintRows(NamedTuple):
    """Linear constraints on offers of n alternatives."""

    matrix: Floats  # (m, n)
    upper: Floats  # (m,)
    names: tuple[str, ...]  # (m,) what each row says
    always: Bools  # (n,)
    never: Bools  # (n,)

    @classmethod
    def unconstrained(cls, always: Bools) -> ConstraintRows:
        """Return no constraints but for the alternatives that are always there."""
        return cls(np.zeros((0, len(always))), np.zeros(0), (), always, np.zeros(len(always), np.bool_))

    def allow(self, offers: Bools) -> Bools:  # (B, n) -> (B,)
        """Tell which offers fulfil all constraints."""
        slack = _SLACK * (np.abs(self.matrix).sum(axis=1) + np.abs(self.upper))
        inside: Bools = (offers @ self.matrix.T <= self.upper + slack).all(axis=1)
        return inside & offers[:, self.always].all(axis=1) & ~offers[:, self.never].any(axis=1)

    def best(self, worth: Floats) -> Bools | None:  # (n,) -> (n,)
        """Return the offer with the largest sum of worths, or None where no offer fulfils the constraints."""
        from scipy.optimize import Bounds, LinearConstraint

        least, most, others = self.sizes()
        if not len(others.upper):
            return self._best_of_size(worth, least, most)
        rows = LinearConstraint(self.matrix, -np.inf, self.upper)
        bounds = Bounds(self.always.astype(float), 1.0 - self.never)
        found = solve_integer_program(-worth, constraints=rows, bounds=bounds, integrality=np.ones(len(worth)))
        return None if found.x is None else found.x > 0.5

    def _best_of_size(self, worth: Floats, least: int, most: int) -> Bools | None:
        """Return the best offer where nothing but the number shown is limited."""
        free, fixed = np.flatnonzero(~(self.always | self.never)), int(self.always.sum())
        if not max(least, fixed) <= min(most, fixed + len(free)):
            return None
        free = free[np.argsort(-worth[free], kind="stable")]
        offer = self.always.copy()
        offer[free[: int(np.clip((worth[free] > 0).sum(), least - fixed, most - fixed))]] = True
        return offer

    def sizes(self) -> tuple[int, int, ConstraintRows]:
        """Return the least and the largest number shown, with what is always shown, and the rows that say more."""
        free, fixed = ~(self.always | self.never), int(self.always.sum())
        least, most = fixed, fixed + int(free.sum())
        others = np.ones(len(self.upper), np.bool_)
        for k, (row, upper) in enumerate(zip(self.matrix, self.upper, strict=True)):
            each = row[free][:1]
            if not each.any() or (row[free] != each).any():
                continue
            others[k] = False
            number = float(upper - row[self.always].sum()) / float(each[0])  # at most, or at least where each < 0
            if each[0] > 0:
                most = min(most, fixed + math.floor(number + _SLACK))
            else:
                least = max(least, fixed + math.ceil(number - _SLACK))
        names = tuple(name for name, kept in zip(self.names, others, strict=True) if kept)
        return least, most, self._replace(matrix=self.matrix[others], upper=self.upper[others], names=names)

    def require_possible(self) -> None:
        """Refuse constraints that no offer fulfils, naming those that stand in the way."""
        nothing = np.zeros(self.matrix.shape[1])
        if self.best(nothing) is not None:
            return
        guilty = [name for k, name in enumerate(self.names) if self._without(k).best(nothing) is not None]
        told = f"without any one of these there would be: {'; '.join(guilty)}" if guilty else "several contradict"
        raise InputError(f"no offer fulfils the constraints; {told}. Relax one of them.")

    def _without(self, k: int) -> ConstraintRows:
        kept = np.arange(len(self.upper)) != k
        names = tuple(name for j, name in enumerate(self.names) if j != k)
        return self._replace(matrix=self.matrix[kept], upper=self.upper[kept], names=names)


def constraint_rows(
    constraints: Constraints, labels: Sequence[str], columns: Mapping[str, Sequence[Any]], outside: int | None
) -> ConstraintRows:
    """Write constraints on the labels and columns of a catalogue as rows; ``outside`` is the outside option's place."""
    n = len(labels)
    shown = (np.arange(n) != outside).astype(np.float64)  # what counts: all but the outside option
    found: list[tuple[str, Floats, float]] = []  # name, row of A, entry of b
    # 1. How many alternatives are shown.
    least, most = constraints.sizes
    there = int(shown.sum())
    if least is not None and least > there:
        raise InputError(f"size asks for at least {least} alternatives: the catalogue has {there} that can be shown.")
    least = least or int(outside is None)  # something must be there to be chosen
    found += [] if most is None else [(f"at most {most} alternatives", shown, most)]
    found += [(f"at least {least} alternatives", -shown, -least)] if least else []
    # 2. Sums of columns, and numbers of alternatives with a value.
    for name, limit in constraints.capacity.items():
        found.append((f"capacity of {name}: {limit:g}", _numbers(columns, name, outside, "capacity"), limit))
    for sign, word, wanted in ((-1, "at least", constraints.at_least), (1, "at most", constraints.at_most)):
        for name, counts in wanted.items():
            for value, count in counts.items():
                has = shown * _equals(columns, name, value, word.replace(" ", "_"))
                found.append((f"{word} {count} with {name} = {value}", sign * has, sign * count))
    # 3. Groups: x_first = x_other as two rows, and sum x <= 1.
    unit = np.eye(n)
    for group in constraints.together:
        first, *others = _positions(group, labels, "together")
        for other in others:
            name, row = f"{labels[first]} and {labels[other]} together", unit[first] - unit[other]
            found += [(name, row, 0.0), (name, -row, 0.0)]
    for group in constraints.apart:
        row = np.isin(np.arange(n), _positions(group, labels, "apart")).astype(np.float64)
        found.append((f"{', '.join(map(str, group))} apart", row, 1.0))
    # 4. What is shown always or never, without rows.
    always = np.isin(np.arange(n), _positions(constraints.always, labels, "always")) | (np.arange(n) == outside)
    never = np.isin(np.arange(n), _positions(constraints.never, labels, "never"))
    if (always & never).any():
        raise InputError(f"{labels[int(np.argmax(always & never))]!r} is to be shown always and never: keep one.")
    names = tuple(name for name, _, _ in found)
    matrix = np.array([row for _, row, _ in found]) if found else np.zeros((0, n))
    return ConstraintRows(matrix, np.array([upper for _, _, upper in found], np.float64), names, always, never)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _positions(names: Sequence[Any], labels: Sequence[str], what: str) -> list[int]:
    place = {label: k for k, label in enumerate(labels)}
    for name in map(str, names):
        if name not in place:
            raise InputError(f"{what}: {name!r} is not in the catalogue." + did_you_mean(name, place))
    return [place[str(name)] for name in names]


def _column(columns: Mapping[str, Sequence[Any]], name: str, what: str) -> Sequence[Any]:
    if name not in columns:
        raise InputError(f"{what}: the catalogue has no column {name!r}." + did_you_mean(name, columns))
    return columns[name]


def _numbers(columns: Mapping[str, Sequence[Any]], name: str, outside: int | None, what: str) -> Floats:
    column = _column(columns, name, what)
    try:
        values = np.array([np.nan if v is None else v for v in column], np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: column {name!r} of the catalogue: expected numbers.") from error
    if outside is not None:
        values[outside] = 0.0
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        where = f"{what}: column {name!r} of the catalogue, row {row}"
        raise InputError(f"{where}: expected a finite number, got {values[row]}.")
    return values


def _equals(columns: Mapping[str, Sequence[Any]], name: str, value: Any, what: str) -> Bools:
    has: Bools = np.array([str(v) == str(value) for v in _column(columns, name, what)], np.bool_)
    if not has.any():
        hint = did_you_mean(str(value), dict.fromkeys(map(str, columns[name])))
        raise InputError(f"{what}: no alternative of the catalogue has {name} = {value!r}." + hint)
    return has
