"""The scenario language: parse text into statements that change a table, and evaluate expressions over its columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.errors import InputError, did_you_mean

# -- Expressions -------------------------------------------------------------------------------------------------------
# Evaluation of expressions: columns -> a value for every alternative.
#
# Nothing is executed as Python. A value is a number, a word or a condition for each of the N alternatives, or a single
# value for all of them. A column of words can be compared with a number, which is then treated as a word: labels are
# words even if they look like numbers.

ValueKind = Literal["number", "word", "condition"]

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
FUNCTIONS = {"min": 2, "max": 2, "abs": 1}  # name -> number of arguments


class Value(NamedTuple):
    """Value of an expression, for every alternative or as a constant."""

    values: NDArray[Any]  # (N,), or () for a constant
    kind: ValueKind


class LazyColumns(Mapping[str, Value]):
    """Columns that expressions can refer to, each read only when it is accessed."""

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
    """A constant number or word."""

    value: float | str

    def __str__(self) -> str:
        return repr(self.value) if isinstance(self.value, str) else f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """A reference to a column."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator or function with its arguments."""

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
    """Return the value of an expression for every alternative."""
    match expression:
        case Constant(str(word)):
            return Value(np.asarray(word, object), "word")
        case Constant(number):
            return Value(np.asarray(number, np.float64), "number")
        case ColumnReference(name):
            if name not in names:
                quoted = f" Put a word in quotes: {name!r}." if name.isidentifier() else ""
                raise InputError(f"there is no column {name!r}." + did_you_mean(name, names) + quoted)
            return names[name]
        case Operation(sign, parts):
            return _apply(sign, parts, [evaluate_expression(part, names) for part in parts])


def _apply(sign: str, parts: tuple[Expression, ...], arguments: list[Value]) -> Value:
    """Apply an operator or function to the values of its arguments."""
    if sign in _ARITHMETIC:
        _require(sign, "number", parts, arguments)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return Value(_ARITHMETIC[sign](*(value.values for value in arguments)), "number")
    if sign in COMPARISONS:
        return Value(_compared(sign, parts, arguments), "condition")
    if sign in ("in", "not in"):
        pairs = zip(parts[1:], arguments[1:], strict=True)
        is_in = np.logical_or.reduce(
            [_compared("==", (parts[0], part), [arguments[0], argument]) for part, argument in pairs]
        )
        return Value(is_in if sign == "in" else ~is_in, "condition")
    _require(sign, "condition", parts, arguments)
    logic: dict[str, Callable[..., Any]] = {"not": np.logical_not, "and": np.logical_and, "or": np.logical_or}
    return Value(logic[sign](*(value.values for value in arguments)), "condition")


def _require(sign: str, kind: ValueKind, parts: tuple[Expression, ...], arguments: list[Value]) -> None:
    """Raise InputError unless all arguments are of the required kind."""
    for part, value in zip(parts, arguments, strict=True):
        if value.kind != kind:
            noun = {"number": "numbers", "condition": "conditions"}[kind]
            raise InputError(f"{sign!r}: expected {noun}, but {part} is a {value.kind}.")


def _compared(sign: str, parts: tuple[Expression, ...], arguments: list[Value]) -> NDArray[np.bool_]:
    """Compare two values, and return the result for every alternative."""
    left, right = arguments
    if {left.kind, right.kind} == {"word", "number"}:
        as_words = [value if value.kind == "word" else _constant_word(value) for value in arguments]
        if None in as_words:
            raise InputError(f"cannot compare {parts[0]} (a {left.kind}) with {parts[1]} (a {right.kind}).")
        left, right = as_words  # type: ignore[assignment]
    if left.kind == "word" and sign not in ("==", "!="):
        raise InputError(f"{sign!r}: expected numbers, but {parts[0]} is a word: words support only ==, != and in.")
    if "condition" in (left.kind, right.kind):
        raise InputError(
            f"{sign!r}: expected numbers or words, got a condition: combine conditions with 'and', 'or' and 'not'."
        )
    kind = np.float32 if left.kind == "number" else object  # columns are float32: a stored 1.1 must equal the text 1.1
    return np.asarray(COMPARISONS[sign](*(value.values.astype(kind) for value in (left, right))), np.bool_)


def _constant_word(value: Value) -> Value | None:
    """Return a constant number as a word, because labels such as 1 and 2 are words, or None for a column."""
    return Value(np.asarray(f"{value.values:g}", object), "word") if value.values.ndim == 0 else None


# -- Expression parser -------------------------------------------------------------------------------------------------
# Parser: text -> expressions.
#
#     price * 1.1 + 2            mode == 'car' and income < 30            origin in ('A', 'B') or not urban == 1
#
# Names refer to columns; a name that is not a plain identifier is in backticks. Words are in quotes. Operators from the
# lowest to the highest precedence: or; and; not; == != < <= > >= in, not in; + -; * /; unary minus; min(a, b),
# max(a, b), abs(a) and parentheses.

RESERVED_WORDS = ("where", "with", "and", "or", "not", "in")  # column names only in backticks
_MAX_DEPTH = 40  # of nested parentheses
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<quotes>'[^']*'|\"[^\"]*\")|(?P<backticks>`[^`]+`)|(?P<name>[^\W\d][\w.]*)"
    r"|(?P<sign>[-+*/]=|[=!<>]=|[-+*/()\[\],<>=])|(?P<end>$))"
)


class Token(NamedTuple):
    """A token: its kind, its text and its position in the input."""

    kind: str
    text: str
    place: int


class Parser:
    """Recursive-descent parser for one change."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at, self._depth = text, _tokens(text), 0, 0

    @property
    def next(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def accept(self, *texts: str) -> bool:
        """Consume the next token if it is one of the given signs or words, and return whether it was consumed."""
        matches = self.next.kind in ("sign", "name") and self.next.text in texts
        self.at += matches
        return matches

    def expect(self, *texts: str) -> None:
        """Consume the next token, or raise InputError if it is not one of the given signs or words."""
        if not self.accept(*texts):
            raise self.error(" or ".join(map(repr, texts)), texts)

    def error(
        self, expected: str, words: tuple[str, ...] = (), written: str | None = None, remedy: str = ""
    ) -> InputError:
        """Return a syntax error, with a hint if ``written`` or the next token resembles one of ``words``."""
        kind, text, place = self.next
        token = "the end of the text" if kind == "end" else f"{text!r} at character {place + 1}"
        hint = did_you_mean(written or text, words)
        hint = hint if "Did you mean" in hint else ""
        return InputError(f"change {self.text!r}: expected {expected}, found {token}.{remedy or hint}")

    def name(self) -> str | None:
        """Read a column name, or return None if the next token is not a name."""
        kind, text, _ = self.next
        if kind == "backticks" or (kind == "name" and text not in RESERVED_WORDS):
            self.at += 1
            return text.strip("`")
        return None

    def expression(self) -> Expression:
        """Parse an expression, starting with ``or``, the operator of lowest precedence."""
        return self._chain(lambda: self._chain(self._negation, "and"), "or")

    def _chain(self, part: Callable[[], Expression], *signs: str) -> Expression:
        """Parse subexpressions that are joined by left-associative operators."""
        expression = part()
        while (sign := self.next.text) in signs and self.accept(*signs):
            expression = Operation(sign, (expression, part()))
        return expression

    def _negation(self) -> Expression:
        if self.accept("not"):
            return Operation("not", (self._nested(self._negation),))
        return self._comparison()

    def _comparison(self) -> Expression:
        left = self._sum()
        sign = self.next.text
        if self.next.kind == "sign" and self.accept(*COMPARISONS):
            comparison: Expression = Operation(sign, (left, self._sum()))
            if self.next.kind == "sign" and self.next.text in COMPARISONS:
                raise self.error("a single comparison, as in 1 < x and x < 5")
            return comparison
        negated = self.accept("not")
        if self.accept("in"):
            return Operation("not in" if negated else "in", (left, *self._list()))
        if negated:
            raise self.error("'in' after 'not'", ("in",))
        if self.next.kind == "sign" and self.next.text == "=":
            raise self.error("'==' to compare, as in mode == 'train'")
        return left

    def _list(self) -> list[Expression]:
        self.expect("(", "[")
        items = [self._sum()]
        while self.accept(",") and self.next.text not in (")", "]"):  # a trailing comma is allowed
            items.append(self._sum())
        self.expect(")", "]")
        return items

    def _sum(self) -> Expression:
        return self._chain(lambda: self._chain(self._factor, "*", "/"), "+", "-")

    def _factor(self) -> Expression:
        kind, text, _ = self.next
        if self.accept("-"):
            return Operation("-", (Constant(0.0), self._nested(self._factor)))
        if self.accept("("):
            inside = self._nested(self.expression)
            self.expect(")")
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
            raise self.error("a number, a word in quotes or a column name")
        return ColumnReference(name)

    def _call(self, name: str) -> Expression:
        self.expect("(")
        parts = [self._nested(self.expression)]
        while self.accept(","):
            parts.append(self._nested(self.expression))
        if len(parts) != FUNCTIONS[name]:
            raise self.error(f"{FUNCTIONS[name]} arguments of {name}(...), not {len(parts)}")
        self.expect(")")
        return Operation(name, tuple(parts))

    def _nested(self, part: Callable[[], Expression]) -> Expression:
        """Parse a nested subexpression, or raise InputError if the nesting is too deep."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InputError(f"change {self.text[:60]!r}...: expected at most {_MAX_DEPTH} nested parentheses.")
        expression = part()
        self._depth -= 1
        return expression


def _tokens(text: str) -> list[Token]:
    """Split the text of a change into tokens."""
    tokens: list[Token] = []
    at = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].lstrip()
            problem = "unclosed quote" if rest[:1] in "'\"`" else f"unexpected {rest[:1]!r}"
            remedy = " For a change of +10%, write COLUMN *= 1.1." if rest.startswith("%") else ""
            raise InputError(f"change {text!r}: {problem} at character {len(text) - len(rest) + 1}.{remedy}")
        kind = str(match.lastgroup)
        tokens.append(Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return tokens


# -- Changes language --------------------------------------------------------------------------------------------------
# The changes of a scenario -> statements.
#
#     price *= 1.1 where mode == 'car'                            change a column, for all alternatives or for some
#     remove where mode == 'air'          remove air              remove alternatives
#     add tram like bus with price *= 1.2, time -= 10             add an alternative that is like another
#     copy with price *= 0.9 where airline == 'A7'                add an alternative in a table without labels
#
# Every change can end with `where` and a condition. If add, copy or remove is followed by an assignment sign such as =,
# it is the name of a column.

ASSIGNMENT_SIGNS = ("=", "*=", "+=", "-=", "/=")
VERBS = ("add", "copy", "remove")


@dataclass(frozen=True, slots=True)
class Assign:
    """Statement that assigns new values to a column where the condition holds."""

    column: str
    value: Expression
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Statement that removes the alternatives with a label, or those that satisfy a condition, or both."""

    label: str | None
    where: Expression | None


@dataclass(frozen=True, slots=True)
class Add:
    """Statement that copies the alternatives with the label ``like`` that satisfy a condition, under a new label."""

    label: str | None
    like: str | None
    changes: tuple[Assign, ...]
    where: Expression | None


Statement = Assign | Remove | Add


def parse_change(text: str) -> Statement:
    """Parse one change.

    Parameters
    ----------
    text
        The change, for example ``"price *= 1.1 where mode == 'car'"``.

    Returns
    -------
    Assign, Remove or Add
        The parsed statement.

    Raises
    ------
    InputError
        If the text is not a valid change. The error message names the expected token and its position.

    Examples
    --------
    >>> parse_change("price *= 1.1 where mode == 'car'")
    Assign(column='price', value=..., where=...)
    """
    if not text.strip():
        raise InputError("expected a change such as \"price *= 1.1 where mode == 'car'\", got an empty string.")
    parser = Parser(text)
    is_column = parser.tokens[min(1, len(parser.tokens) - 1)].text in ASSIGNMENT_SIGNS
    first = parser.next.text
    if is_column or not parser.accept(*VERBS):
        assignment = _assign(parser)
        statement: Statement = Assign(assignment.column, assignment.value, _where(parser))
    elif first == "remove":
        label = _label(parser)
        if label is not None and parser.next.text == ",":
            raise parser.error("one label; for several labels, use a condition: remove where mode in ('bus', 'train')")
        statement = Remove(label, _where(parser))
        if statement == Remove(None, None):
            raise parser.error("a label, or 'where' and a condition")
    else:
        label = like = None
        if first == "add":
            if (label := _label(parser)) is None:
                raise parser.error("the label of the new alternative")
            parser.expect("like")
            if (like := _label(parser)) is None:
                raise parser.error("the label of the alternative to copy")
        statement = Add(label, like, _with(parser), _where(parser))
    if parser.next.kind != "end":
        raise parser.error("'where' or the end of the text", ("where", "with", "like"), remedy=_remedy_at(parser))
    return statement


_REMEDIES = {  # what other languages write, in lower case
    **dict.fromkeys(["is", "equals", "eq", "="], " For equality, write ==, as in where mode == 'train'."),
    **dict.fromkeys(["if", "when", "for"], " Write a condition after where, as in where mode == 'train'."),
    **dict.fromkeys(["&", "&&"], " Join conditions with 'and'."),
    ",": " Write a decimal point, as in 1.1. Write several changes separately.",
}


def _remedy_at(parser: Parser) -> str:
    """Return what to write instead of the next token, or no text."""
    return _REMEDIES.get(parser.next.text.lower(), "")


def _assign(parser: Parser) -> Assign:
    """Parse an assignment of the form COLUMN SIGN EXPRESSION."""
    if parser.next.kind == "name" and parser.tokens[parser.at + 1].text in ASSIGNMENT_SIGNS:  # also a reserved word
        column: str | None = parser.next.text
        parser.at += 1
    else:
        column = parser.name()
    if column is None:
        raise parser.error("a column name, 'add', 'copy' or 'remove'", VERBS)
    sign = parser.next.text
    if not parser.accept(*ASSIGNMENT_SIGNS):
        raise parser.error(f"one of {' '.join(ASSIGNMENT_SIGNS)} after {column!r}", VERBS, written=column)
    value = parser.expression()
    return Assign(column, value if sign == "=" else Operation(sign[0], (ColumnReference(column), value)))


def _with(parser: Parser) -> tuple[Assign, ...]:
    """Read the assignments after ``with``, if any."""
    if not parser.accept("with"):
        return ()
    assignments = [_assign(parser)]
    while parser.accept(","):
        assignments.append(_assign(parser))
    return tuple(assignments)


def _where(parser: Parser) -> Expression | None:
    """Read the condition after ``where``, if any."""
    return parser.expression() if parser.accept("where") else None


def _label(parser: Parser) -> str | None:
    """Read a label, or return None if the next token is not a label."""
    kind, text, _ = parser.next
    if kind in ("quotes", "backticks", "number") or (kind == "name" and text not in ("where", "with", "like")):
        parser.at += 1
        return text if kind in ("name", "number") else text[1:-1]
    return None


def columns_named_in(statement: Statement) -> Iterator[str]:
    """Yield the columns that a statement refers to."""
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
    """Yield the columns that an expression refers to."""
    match expression:
        case ColumnReference(name):
            yield name
        case Operation(_, parts):
            yield from (name for part in parts for name in _named(part))
