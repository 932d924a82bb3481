"""A small language of columns: text -> expressions.

    price * 1.1 + 2            mode == 'car' and income < 30            origin in ('A', 'B') or not urban == 1

Names are columns, in backticks where they are no plain words; words stand in quotes. From the loosest to the tightest:
or; and; not; == != < <= > >= in, not in; + -; * /; unary minus; min(a, b), max(a, b), abs(a) and parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.insight.scenarios.expressions import COMPARE, FUNCTIONS, Column, Constant, Expression, Operation

WORDS = ("where", "with", "and", "or", "not", "in")  # that are no names of columns, unless in backticks
_DEEPEST = 40  # parentheses within each other
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
    """Reads a text from left to right; a change reads its statement with it, see ``changes_language.py``."""

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
        if kind == "backticks" or (kind == "name" and text not in WORDS):
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
        if self.next.kind == "sign" and self.take(*COMPARE):
            found: Expression = Operation(sign, (left, self._sum()))
            if self.next.kind == "sign" and self.next.text in COMPARE:
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
        return Column(name)

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
        if self._depth > _DEEPEST:
            raise InputError(f"change {self.text[:60]!r}...: at most {_DEEPEST} parentheses within each other.")
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
