"""What a scenario changes, as a person writes it -> statements.

    price *= 1.1 where mode == 'car'                            a column, for all alternatives or for some
    remove where mode == 'air'          remove air              alternatives that are no longer on offer
    add tram like bus with price *= 1.2, time -= 10             a new alternative, made from one that is there
    copy with price *= 0.9 where airline == 'A7'                likewise in a table without labels

``where`` and a condition end each of them; expressions are those of ``expression_parser.py``. A change that begins with
one of the words add, copy or remove, and goes on with a sign such as =, is one of a column of that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.expression_parser import Parser
from pcmcnet.insight.scenarios.expressions import Column, Expression, Operation

ASSIGN = ("=", "*=", "+=", "-=", "/=")
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


def read_change(text: str) -> Statement:
    """Read one change.

    Raises
    ------
    InputError
        When the text is none; the message says what was expected, and where.

    Examples
    --------
    >>> read_change("price *= 1.1 where mode == 'car'")
    Assign(column='price', value=..., where=...)
    """
    if not text.strip():
        raise InputError("a change is empty: expected one such as \"price *= 1.1 where mode == 'car'\".")
    reader = Parser(text)
    is_column = reader.tokens[min(1, len(reader.tokens) - 1)].text in ASSIGN
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
        label = _label(reader) if first == "add" else None
        if first == "add" and label is None:
            raise reader.error("the label of the new alternative")
        like = None
        if first == "add":
            reader.require("like")
            like = _label(reader)
            if like is None:
                raise reader.error("the label of the alternative that it is like")
        statement = Add(label, like, _with(reader), _where(reader))
    if reader.next.kind != "end":
        raise reader.error("'where' or the end", ("where", "with", "like"))
    return statement


def _assign(reader: Parser) -> Assign:
    """Read COLUMN SIGN EXPRESSION."""
    if reader.next.kind == "name" and reader.tokens[reader.at + 1].text in ASSIGN:  # also where the name is a word
        column: str | None = reader.next.text
        reader.at += 1
    else:
        column = reader.name()
    if column is None:
        raise reader.error("a column, or one of the words add, copy and remove", VERBS)
    sign = reader.next.text
    if not reader.take(*ASSIGN):
        raise reader.error(f"one of {' '.join(ASSIGN)} after {column!r}", VERBS, written=column)
    value = reader.expression()
    return Assign(column, value if sign == "=" else Operation(sign[0], (Column(column), value)))


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


def columns_of(statement: Statement) -> Iterator[str]:
    """Yield the columns that a statement names."""
    match statement:
        case Assign(column, value, where):
            yield column
            yield from (name for part in (value, where) for name in _named(part))
        case Remove(_, where):
            yield from _named(where)
        case Add(_, _, changes, where):
            yield from (name for change in changes for name in columns_of(change))
            yield from _named(where)


def _named(expression: Expression | None) -> Iterator[str]:
    match expression:
        case Column(name):
            yield name
        case Operation(_, parts):
            yield from (name for part in parts for name in _named(part))
