"""Which coefficients are worths of one unit: b / u is the derivative of the utility in a column of the table.

u is what the formula divides the column by. A level of a category, a constant or a mark of gaps has u = 1: it is worth
so much beside its reference. A coefficient of log(x), of a product of numbers, or of a column that other terms hold as
well is no worth of a unit: what one more unit brings then depends on the alternative, or on who chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.logits.design.factor_coding import NumberCode
from pcmcnet.models.logits.design.formula import Factor, Term

if TYPE_CHECKING:
    from pcmcnet.models.logits.design.design import Design

_STRAIGHT = (None, "standardise", "piecewise")


def require_unit(design: Design, data: ChoiceData, name: str, *, money: bool = True) -> float:
    """Return u for a column of the design; ``data`` may be without rows.

    Raises
    ------
    InputError
        When no such column exists, or its coefficient is no worth of a unit, with the reason; with ``money``, also for
        what has no unit: levels and constants.
    """
    # 1. The term of the coefficient, and its numbers. Without any, it belongs to a level or a constant.
    if name not in design.columns:
        raise InputError(f"the utility has no coefficient {name!r}." + did_you_mean(name, design.columns))
    term = design.owners(data)[design.columns.index(name)]
    numbers = [] if term is None else [f for f in term.factors if isinstance(design.codes[f.column], NumberCode)]
    if term is None or not numbers or "[missing]" in name:
        if money:
            raise InputError(
                f"{name!r} has no unit in which others could be expressed: name the coefficient of a number."
            )
        return 1.0
    # 2. What a unit is worth must be one number: the coefficient over what the formula divides the column by.
    reason = _reason(design, term, numbers)
    if reason:
        raise InputError(
            f"the coefficient {name!r} is not what one unit of {numbers[0].column!r} is worth: {reason}. "
            f"pcmcnet.insight.willingness_to_pay gives the distribution over the alternatives of a table."
        )
    (factor,) = numbers
    code = design.codes[factor.column]
    assert isinstance(code, NumberCode)
    return factor.divisor * (code.scale if factor.function == "standardise" else 1.0)


def _reason(design: Design, term: Term, numbers: list[Factor]) -> str:
    """Say why a unit has no worth of its own; nothing, if it has."""
    if len(numbers) > 1:
        return f"{term} is a product of numbers"
    if numbers[0].function not in _STRAIGHT:
        return f"{numbers[0]} is no straight line"
    for other in design.terms.terms:
        shared = any(factor.column == numbers[0].column for factor in other.factors)
        apart = term.labels and other.labels and not {*term.labels} & {*other.labels}
        if other is not term and shared and not apart:
            return f"the term {other} depends on it as well"
    return ""
