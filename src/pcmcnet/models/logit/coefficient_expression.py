"""Expressions over the coefficients of a logit, such as ``time / cost`` or ``exp(class_2) * time[car]``.

Names are written as in the summary. A name that is not a plain word, possibly followed by brackets as in ``time[car]``,
is written in backticks: ```time/100` / `cost/100```. The operators are + - * / and ** (or ^) with the usual precedence;
the functions are exp, log, sqrt and abs. An expression is parsed by Python's own parser, but only these operations are
evaluated, as tensors in double precision. Gradients are exact, by automatic differentiation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError, did_you_mean

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: torch.add,
    ast.Sub: torch.sub,
    ast.Mult: torch.mul,
    ast.Div: torch.div,
    ast.Pow: torch.pow,
    ast.USub: torch.neg,
    ast.UAdd: torch.clone,
}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
}
_TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<function>(?:exp|log|sqrt|abs)(?=\s*\())"
    r"|(?P<name>(?:`(?:[^`]|``)+`|[^\W\d][\w.]*)(?:\[[^\[\]]*\])?)"
    r"|(?P<sign>\*\*|[-+*/^()]|\s)"
)
_MAX_LENGTH = 2_000  # characters of an expression
_EXAMPLE = "an expression such as 'time / cost'"


@dataclass(frozen=True)
class CoefficientExpression:
    """A parsed expression over coefficients.

    Parameters
    ----------
    text
        The expression as written.
    positions
        Index of each coefficient that the expression names, by placeholder.
    tree
        The syntax tree, in which placeholders stand for the coefficients.
    """

    text: str
    positions: dict[str, int]
    tree: ast.expr

    @classmethod
    def parse(cls, text: str, names: Sequence[str]) -> CoefficientExpression:
        """Parse an expression over the coefficients ``names``, or raise InputError."""
        if not isinstance(text, str) or not text.strip() or len(text) > _MAX_LENGTH:
            raise InputError(f"expected {_EXAMPLE}, got {repr(text)[:60]}.")
        # 1. Replace the names of coefficients by placeholders, which Python can parse.
        source, at = "", 0
        positions: dict[str, int] = {}
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                problem = "unclosed backtick" if text[at] == "`" else f"unexpected {text[at]!r}"
                raise InputError(
                    f"expression {text!r}: {problem} at character {at + 1}; expected numbers, names of coefficients, "
                    f"+ - * / ** and {', '.join(_FUNCTIONS)}."
                )
            if match["function"] is not None:
                _require_unambiguous(text, at, match[0], names)
            if match["name"] is not None:
                k = _position(match["name"], names, text)
                positions[f"_{k}"] = k
                source += f" _{k} "  # blanks: in "2time", the number and the placeholder must not become one token
            else:
                source += "**" if match[0] == "^" else " " if match[0].isspace() else match[0]
            at = match.end()
        # 2. Parse the result, and refuse everything but arithmetic.
        try:
            tree = ast.parse(source.strip(), mode="eval").body
            require_arithmetic(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InputError(f"expression {text!r} is not valid arithmetic: expected {_EXAMPLE}.") from error
        if not positions:
            raise InputError(f"expression {text!r} names no coefficient of the model, such as {names[0]!r}.")
        return cls(text, positions, tree)

    def __call__(self, values: Tensor) -> Tensor:  # (..., K) -> (...)
        """Return the value of the expression at the coefficients ``values``."""
        return self._evaluate(self.tree, values)

    def value_and_gradient(self, values: Floats) -> tuple[float, Floats]:  # (K,) -> (), (K,)
        """Return the value of the expression and its gradient in the coefficients."""
        with torch.enable_grad():
            leaf = torch.tensor(values, dtype=torch.float64, requires_grad=True)
            value = self(leaf)
            (gradient,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), gradient.numpy()

    def at(self, values: Floats) -> Floats:  # (..., K) -> (...)
        """Return the values of the expression at several vectors of coefficients."""
        with torch.no_grad():
            out: Floats = self(torch.from_numpy(np.ascontiguousarray(values))).numpy()
        return out

    def denominators(self) -> Iterator[CoefficientExpression]:
        """Yield the expressions that this expression divides by and that depend on coefficients."""
        for node in ast.walk(self.tree):
            match node:
                case ast.BinOp(op=ast.Div(), right=divisor):
                    pass
                case ast.BinOp(left=divisor, op=ast.Pow(), right=power) if self._is_negative_number(power):
                    pass
                case _:
                    continue
            if used := self._placeholders(divisor):
                positions = {name: self.positions[name] for name in used}
                yield CoefficientExpression(ast.unparse(divisor), positions, divisor)

    def _placeholders(self, node: ast.expr) -> set[str]:
        """Return the placeholders of the coefficients in a part of the expression."""
        return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in self.positions}

    def _is_negative_number(self, node: ast.expr) -> bool:
        """Return True for a part of the expression that contains no coefficient and is negative."""
        return not self._placeholders(node) and float(self._evaluate(node, torch.empty(0))) < 0

    def _evaluate(self, node: ast.expr, values: Tensor) -> Tensor:
        match node:
            case ast.Constant(value=number):
                return torch.tensor(float(number), dtype=torch.float64)  # type: ignore[arg-type]
            case ast.Name(id=placeholder):
                return values[..., self.positions[placeholder]]
            case ast.UnaryOp(op=sign, operand=part):
                result: Tensor = _OPERATORS[type(sign)](self._evaluate(part, values))
            case ast.BinOp(left=left, op=sign, right=right):
                result = _OPERATORS[type(sign)](self._evaluate(left, values), self._evaluate(right, values))
            case ast.Call(func=ast.Name(id=function), args=[argument]):
                result = _FUNCTIONS[function](self._evaluate(argument, values))
            case _:
                raise AssertionError("the parser refuses other nodes")
        return result


def require_arithmetic(node: ast.expr) -> None:
    """Raise ValueError unless the tree contains only numbers, placeholders, operators and functions of one argument."""
    match node:
        case ast.Constant() | ast.Name():
            return
        case ast.UnaryOp(op=sign, operand=part) if type(sign) in _OPERATORS:
            require_arithmetic(part)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            require_arithmetic(left)
            require_arithmetic(right)
        case ast.Call(func=ast.Name(id=function), args=[argument], keywords=[]) if function in _FUNCTIONS:
            require_arithmetic(argument)
        case _:
            raise ValueError(ast.dump(node))


def _require_unambiguous(text: str, at: int, function: str, names: Sequence[str]) -> None:
    """Raise InputError if ``log(x)`` is a coefficient and may also be the logarithm of the coefficient ``x``."""
    for name in names:
        if text.startswith(name, at) and name.endswith(")") and name[len(function) + 1 : -1] in names:
            raise InputError(
                f"expression {text!r}: {name!r} is a coefficient, but also a function of another coefficient. Put the "
                f"coefficient in backticks, as in `{name}`, or write {function}(1 * {name[len(function) + 1 :]} for "
                f"the function."
            )


def _position(written: str, names: Sequence[str], text: str) -> int:
    """Return the index of a coefficient, given its name as written in an expression."""
    # The summary itself shows names of columns that are not plain words in backticks: `travel time`[car].
    quoted = written.startswith("`") and written.endswith("`")
    plain = written[1:-1].replace("``", "`") if quoted else written
    for name in (plain, written):
        if name in names:
            return names.index(name)
    hint = did_you_mean(plain, names)
    raise InputError(
        f"expression {text!r}: the model has no coefficient {plain!r}.{hint} Put a name that is not a plain word in "
        f"backticks, as in `time/100`."
    )
