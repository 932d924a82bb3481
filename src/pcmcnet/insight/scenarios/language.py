"""The language of scenarios: text -> expressions of columns -> statements that change a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.errors import InputError, did_you_mean

# -- Expressions -------------------------------------------------------------------------------------------------------
# Expressions of columns -> a value for every alternative.
#
# None is executed as Python. A value is a number, a word or a truth for each of the N
# alternatives, or one for all of them. A column of words may be compared with a number, which is then read as a word:
# labels are words even where they look like numbers.

ValueKind = Literal["number", "word", "truth"]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
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
    kind: ValueKind


class LazyColumns(Mapping[str, Value]):
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
class ColumnReference:
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


Expression = Constant | ColumnReference | Operation


def evaluate_expression(expression: Expression, names: Mapping[str, Value]) -> Value:
    """Return what an expression is worth for every alternative."""
    match expression:
        case Constant(str(word)):
            return Value(np.asarray(word, object), "word")
        case Constant(number):
            return Value(np.asarray(number, np.float64), "number")
        case ColumnReference(name):
            if name not in names:
                quoted = f" A word stands in quotes: {name!r}." if name.isidentifier() else ""
                raise InputError(f"no column {name!r}." + did_you_mean(name, names) + quoted)
            return names[name]
        case Operation(sign, parts):
            return _apply(sign, parts, [evaluate_expression(part, names) for part in parts])


def _apply(sign: str, parts: tuple[Expression, ...], given: list[Value]) -> Value:
    if sign in _ARITHMETIC:
        _require(sign, "number", parts, given)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return Value(_ARITHMETIC[sign](*(value.values for value in given)), "number")
    if sign in COMPARISONS:
        return Value(_compared(sign, parts, given), "truth")
    if sign in ("in", "not in"):
        items = zip(parts[1:], given[1:], strict=True)
        inside = np.logical_or.reduce([_compared("==", (parts[0], part), [given[0], one]) for part, one in items])
        return Value(inside if sign == "in" else ~inside, "truth")
    _require(sign, "truth", parts, given)
    logic: dict[str, Callable[..., Any]] = {"not": np.logical_not, "and": np.logical_and, "or": np.logical_or}
    return Value(logic[sign](*(value.values for value in given)), "truth")


def _require(sign: str, kind: ValueKind, parts: tuple[Expression, ...], given: list[Value]) -> None:
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
    return np.asarray(COMPARISONS[sign](*(value.values.astype(kind) for value in (left, right))), np.bool_)


def _constant_word(value: Value) -> Value | None:
    """Read a constant number as a word, as labels such as 1 and 2 are."""
    return Value(np.asarray(f"{value.values:g}", object), "word") if value.values.ndim == 0 else None


# -- Expression parser -------------------------------------------------------------------------------------------------
# A small language of columns: text -> expressions.
#
#     price * 1.1 + 2            mode == 'car' and income < 30            origin in ('A', 'B') or not urban == 1
#
# Names are columns, in backticks where they are no plain words; words stand in quotes. From the loosest to the
# tightest: or; and; not; == != < <= > >= in, not in; + -; * /; unary minus; min(a, b), max(a, b), abs(a) and
# parentheses.

RESERVED_WORDS = ("where", "with", "and", "or", "not", "in")  # that are no names of columns, unless in backticks
_MAX_DEPTH = 40  # parentheses within each other
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<quotes>'[^']*'|\"[^\"]*\")|(?P<backticks>`[^`]+`)|(?P<name>[^\W\d][\w.]*)"
    r"|(?P<sign>[-+*/]=|[=!<>]=|[-+*/()\[\],<>=])|(?P<end>$))"
)


class Token(NamedTuple):
    """A word of the language: what kind it is of, itself, and where it begins."""

    kind: str
    text: str
    place: int


class Parser:
    """Reads a text from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at, self._depth = text, _tokens(text), 0, 0

    @property
    def next(self) -> Token:
        """The token that is not read yet."""
        return self.tokens[self.at]

    def take(self, *texts: str) -> bool:
        """Read the next token if it is one of these signs or words."""
        found = self.next.kind in ("sign", "name") and self.next.text in texts
        self.at += found
        return found

    def require(self, *texts: str) -> None:
        """Read one of these signs or words, or say what is there instead."""
        if not self.take(*texts):
            raise self.error(" or ".join(map(repr, texts)), texts)

    def error(self, expected: str, words: tuple[str, ...] = (), written: str | None = None) -> InputError:
        """Build the error that names the place; ``written``, or what is there, may be meant for one of the words."""
        kind, text, place = self.next
        found = "the end" if kind == "end" else f"{text!r} at character {place + 1}"
        hint = did_you_mean(written or text, words)
        hint = hint if "Did you mean" in hint else ""
        return InputError(f"change {self.text!r}: expected {expected}, found {found}.{hint}")

    def name(self) -> str | None:
        """Read the name of a column, if there is one."""
        kind, text, _ = self.next
        if kind == "backticks" or (kind == "name" and text not in RESERVED_WORDS):
            self.at += 1
            return text.strip("`")
        return None

    def expression(self) -> Expression:
        """Read an expression: ``or`` binds least."""
        return self._chain(lambda: self._chain(self._negation, "and"), "or")

    def _chain(self, part: Callable[[], Expression], *signs: str) -> Expression:
        found = part()
        while (sign := self.next.text) in signs and self.take(*signs):
            found = Operation(sign, (found, part()))
        return found

    def _negation(self) -> Expression:
        if self.take("not"):
            return Operation("not", (self._deeper(self._negation),))
        return self._comparison()

    def _comparison(self) -> Expression:
        left = self._sum()
        sign = self.next.text
        if self.next.kind == "sign" and self.take(*COMPARISONS):
            found: Expression = Operation(sign, (left, self._sum()))
            if self.next.kind == "sign" and self.next.text in COMPARISONS:
                raise self.error("one comparison, as in 1 < x and x < 5")
            return found
        negated = self.take("not")
        if self.take("in"):
            return Operation("not in" if negated else "in", (left, *self._list()))
        if negated:
            raise self.error("'in' after 'not'", ("in",))
        if self.next.kind == "sign" and self.next.text == "=":
            raise self.error("'==' to compare")
        return left

    def _list(self) -> list[Expression]:
        self.require("(", "[")
        items = [self._sum()]
        while self.take(",") and self.next.text not in (")", "]"):  # a comma may stand at the end
            items.append(self._sum())
        self.require(")", "]")
        return items

    def _sum(self) -> Expression:
        return self._chain(lambda: self._chain(self._factor, "*", "/"), "+", "-")

    def _factor(self) -> Expression:
        kind, text, _ = self.next
        if self.take("-"):
            return Operation("-", (Constant(0.0), self._deeper(self._factor)))
        if self.take("("):
            inside = self._deeper(self.expression)
            self.require(")")
            return inside
        if kind == "number":
            self.at += 1
            return Constant(float(text))
        if kind == "quotes":
            self.at += 1
            return Constant(text[1:-1])
        if kind == "name" and text in FUNCTIONS and self.tokens[self.at + 1].text == "(":
            self.at += 1
            return self._call(text)
        name = self.name()
        if name is None:
            raise self.error("a number, a word in quotes or the name of a column")
        return ColumnReference(name)

    def _call(self, name: str) -> Expression:
        self.require("(")
        parts = [self._deeper(self.expression)]
        while self.take(","):
            parts.append(self._deeper(self.expression))
        if len(parts) != FUNCTIONS[name]:
            raise self.error(f"{FUNCTIONS[name]} values in {name}(...), got {len(parts)}")
        self.require(")")
        return Operation(name, tuple(parts))

    def _deeper(self, part: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InputError(f"change {self.text[:60]!r}...: at most {_MAX_DEPTH} parentheses within each other.")
        found = part()
        self._depth -= 1
        return found


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while not found or found[-1].kind != "end":
        token = _TOKEN.match(text, at)
        if token is None:
            rest = text[at:].lstrip()
            what = "a quote without its end" if rest[:1] in "'\"`" else f"{rest[:1]!r}, which means nothing here"
            raise InputError(f"change {text!r}: {what}, at character {len(text) - len(rest) + 1}.")
        kind = str(token.lastgroup)
        found.append(Token(kind, token[kind], token.start(kind)))
        at = token.end()
    return found


# -- Changes language --------------------------------------------------------------------------------------------------
# What a scenario changes, as a person writes it -> statements.
#
#     price *= 1.1 where mode == 'car'                            a column, for all alternatives or for some
#     remove where mode == 'air'          remove air              alternatives that are no longer on offer
#     add tram like bus with price *= 1.2, time -= 10             a new alternative, made from one that is there
#     copy with price *= 0.9 where airline == 'A7'                likewise in a table without labels
#
# `where` and a condition end each of them. A change that begins with one of the
# words add, copy or remove, and goes on with a sign such as =, is one of a column of that name.

ASSIGNMENT_SIGNS = ("=", "*=", "+=", "-=", "/=")
VERBS = ("add", "copy", "remove")


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a column new values where the condition holds."""

    column: str
    value: Expression
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Take alternatives off the offer: those of a label, or those where the condition holds, or both."""

    label: str | None
    where: Expression | None


@dataclass(frozen=True, slots=True)
class Add:
    """Offer a copy of an alternative under another label, where the condition holds for the one that is copied."""

    label: str | None
    like: str | None
    changes: tuple[Assign, ...]
    where: Expression | None


Statement = Assign | Remove | Add


def parse_change(text: str) -> Statement:
    """Read one change; where the text is none, the error says what was expected, and where.

    Examples
    --------
    >>> read_change("price *= 1.1 where mode == 'car'")
    Assign(column='price', value=..., where=...)
    """
    if not text.strip():
        raise InputError("a change is empty: expected one such as \"price *= 1.1 where mode == 'car'\".")
    reader = Parser(text)
    is_column = reader.tokens[min(1, len(reader.tokens) - 1)].text in ASSIGNMENT_SIGNS
    first = reader.next.text
    if is_column or not reader.take(*VERBS):
        found = _assign(reader)
        statement: Statement = Assign(found.column, found.value, _where(reader))
    elif first == "remove":
        label = _label(reader)
        if label is not None and reader.next.text == ",":
            raise reader.error("one label; several are a condition, such as remove where mode in ('bus', 'train')")
        statement = Remove(label, _where(reader))
        if statement == Remove(None, None):
            raise reader.error("a label, or 'where' and a condition")
    else:
        label = like = None
        if first == "add":
            if (label := _label(reader)) is None:
                raise reader.error("the label of the new alternative")
            reader.require("like")
            if (like := _label(reader)) is None:
                raise reader.error("the label of the alternative that it is like")
        statement = Add(label, like, _with(reader), _where(reader))
    if reader.next.kind != "end":
        raise reader.error("'where' or the end", ("where", "with", "like"))
    return statement


def _assign(reader: Parser) -> Assign:
    """Read COLUMN SIGN EXPRESSION."""
    if (
        reader.next.kind == "name" and reader.tokens[reader.at + 1].text in ASSIGNMENT_SIGNS
    ):  # also where the name is a word
        column: str | None = reader.next.text
        reader.at += 1
    else:
        column = reader.name()
    if column is None:
        raise reader.error("a column, or one of the words add, copy and remove", VERBS)
    sign = reader.next.text
    if not reader.take(*ASSIGNMENT_SIGNS):
        raise reader.error(f"one of {' '.join(ASSIGNMENT_SIGNS)} after {column!r}", VERBS, written=column)
    value = reader.expression()
    return Assign(column, value if sign == "=" else Operation(sign[0], (ColumnReference(column), value)))


def _with(reader: Parser) -> tuple[Assign, ...]:
    if not reader.take("with"):
        return ()
    found = [_assign(reader)]
    while reader.take(","):
        found.append(_assign(reader))
    return tuple(found)


def _where(reader: Parser) -> Expression | None:
    return reader.expression() if reader.take("where") else None


def _label(reader: Parser) -> str | None:
    kind, text, _ = reader.next
    if kind in ("quotes", "backticks", "number") or (kind == "name" and text not in ("where", "with", "like")):
        reader.at += 1
        return text if kind in ("name", "number") else text[1:-1]
    return None


def columns_named_in(statement: Statement) -> Iterator[str]:
    """Yield the columns that a statement names."""
    match statement:
        case Assign(column, value, where):
            yield column
            yield from (name for part in (value, where) for name in _named(part))
        case Remove(_, where):
            yield from _named(where)
        case Add(_, _, changes, where):
            yield from (name for change in changes for name in columns_named_in(change))
            yield from _named(where)


def _named(expression: Expression | None) -> Iterator[str]:
    match expression:
        case ColumnReference(name):
            yield name
        case Operation(_, parts):
            yield from (name for part in parts for name in _named(part))
