"""Expressions of columns -> a value for every alternative.

``expression_parser.py`` reads them; none is executed as Python.
A value is a number, a word or a truth for each of the N alternatives, or one for all of them. A column of words may be
compared with a number, which is then read as a word: labels are words even where they look like numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.errors import InputError, did_you_mean

Kind = Literal["number", "word", "truth"]

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
}
FUNCTIONS = {"min": 2, "max": 2, "abs": 1}  # numbers of arguments


class Value(NamedTuple):
    """What an expression is worth."""

    values: NDArray[Any]  # (N,), or () for a constant
    kind: Kind


class Names(Mapping[str, Value]):
    """The columns that expressions may name, read when they are asked for."""

    def __init__(self, readers: Mapping[str, Callable[[], Value]]) -> None:
        self._readers = readers

    def __getitem__(self, name: str) -> Value:
        return self._readers[name]()

    def __iter__(self) -> Any:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True, slots=True)
class Constant:
    """A number or a word."""

    value: float | str

    def __str__(self) -> str:
        return repr(self.value) if isinstance(self.value, str) else f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Column:
    """The value of a column."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """A sign, or the name of a function, and what it is applied to."""

    sign: str
    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        if self.sign in FUNCTIONS or self.sign == "not" or len(self.parts) == 1:
            return f"{self.sign}({', '.join(map(str, self.parts))})"
        if self.sign in ("in", "not in"):
            return f"{self.parts[0]} {self.sign} ({', '.join(map(str, self.parts[1:]))})"
        return f"({f' {self.sign} '.join(map(str, self.parts))})"


Expression = Constant | Column | Operation


def evaluate(expression: Expression, names: Mapping[str, Value]) -> Value:
    """Return what an expression is worth for every alternative.

    Raises
    ------
    InputError
        When it names no column, or applies a sign to what it is not for.
    """
    match expression:
        case Constant(str(word)):
            return Value(np.asarray(word, object), "word")
        case Constant(number):
            return Value(np.asarray(number, np.float64), "number")
        case Column(name):
            if name not in names:
                quoted = f" A word stands in quotes: {name!r}." if name.isidentifier() else ""
                raise InputError(f"no column {name!r}." + did_you_mean(name, names) + quoted)
            return names[name]
        case Operation(sign, parts):
            return _apply(sign, parts, [evaluate(part, names) for part in parts])


def _apply(sign: str, parts: tuple[Expression, ...], given: list[Value]) -> Value:
    if sign in _ARITHMETIC:
        _require(sign, "number", parts, given)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return Value(_ARITHMETIC[sign](*(value.values for value in given)), "number")
    if sign in COMPARE:
        return Value(_compared(sign, parts, given), "truth")
    if sign in ("in", "not in"):
        among = [
            _compared("==", (parts[0], part), [given[0], one]) for part, one in zip(parts[1:], given[1:], strict=True)
        ]
        inside = np.logical_or.reduce(among)
        return Value(inside if sign == "in" else ~inside, "truth")
    _require(sign, "truth", parts, given)
    first, *others = (value.values for value in given)
    truth = (
        np.logical_not(first) if sign == "not" else {"and": np.logical_and, "or": np.logical_or}[sign](first, *others)
    )
    return Value(truth, "truth")


def _require(sign: str, kind: Kind, parts: tuple[Expression, ...], given: list[Value]) -> None:
    for part, value in zip(parts, given, strict=True):
        if value.kind != kind:
            noun = {"number": "numbers", "truth": "conditions"}[kind]
            raise InputError(f"{sign!r} is for {noun}, and {part} is a {value.kind}.")


def _compared(sign: str, parts: tuple[Expression, ...], given: list[Value]) -> NDArray[np.bool_]:
    left, right = given
    if {left.kind, right.kind} == {"word", "number"}:
        as_words = [value if value.kind == "word" else _constant_word(value) for value in given]
        if None in as_words:
            raise InputError(f"{parts[0]} is a {left.kind} and {parts[1]} is a {right.kind}: they cannot be compared.")
        left, right = as_words  # type: ignore[assignment]
    if left.kind == "word" and sign not in ("==", "!="):
        raise InputError(f"{sign!r} is for numbers, and {parts[0]} is a word: compare words by ==, != or in.")
    if "truth" in (left.kind, right.kind):
        raise InputError(f"{sign!r} is for numbers and words, not for conditions: use and, or, not.")
    kind = np.float32 if left.kind == "number" else object  # columns are float32: 1.1 is to equal what is read as 1.1
    found: NDArray[np.bool_] = np.asarray(
        COMPARE[sign](*(value.values.astype(kind) for value in (left, right))), np.bool_
    )
    return found


def _constant_word(value: Value) -> Value | None:
    """Read a constant number as a word, as labels such as 1 and 2 are."""
    return Value(np.asarray(f"{value.values:g}", object), "word") if value.values.ndim == 0 else None
