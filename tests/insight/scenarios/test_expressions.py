"""Values of expressions: numbers, words and conditions, and what cannot be combined."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.expression_parser import Parser
from pcmcnet.insight.scenarios.expressions import Names, Value, evaluate

COLUMNS = {
    "price": np.array([1.0, 2.5, 4.0]),
    "rate": np.float32([1.1, 2.2, 3.3]).astype(float),
    "mode": np.array(["car", "bus", "car"], object),
    "zone": np.array(["1", "2", "10"], object),
}
NAMES = Names(
    {k: lambda v=v: Value(v, "word" if v.dtype == object else "number") for k, v in COLUMNS.items()}  # type: ignore[misc]
)


def value(text: str) -> Any:
    return evaluate(Parser(text).expression(), NAMES).values.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price * 2 + 1", [3.0, 6.0, 9.0]),
        ("-price / 2", [-0.5, -1.25, -2.0]),
        ("max(price - 2, 0)", [0.0, 0.5, 2.0]),
        ("min(price, 2) + abs(0 - 1)", [2.0, 3.0, 3.0]),
        ("mode == 'car'", [True, False, True]),
        ("mode != 'car' or price > 3", [False, True, True]),
        ("not (mode == 'car' and price < 2)", [False, True, True]),
        ("mode in ('bus', 'tram')", [False, True, False]),
        ("price not in (1, 4)", [False, True, False]),
        ("zone == 2", [False, True, False]),  # labels are words, also where they look like numbers
        ("zone in (1, 10)", [True, False, True]),
        ("rate == 1.1", [True, False, False]),  # columns are float32
    ],
)
def test_values(text: str, expected: list[Any]) -> None:
    assert value(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prize * 2", "no column 'prize'. Did you mean 'price'"),
        ("mode == car", "no column 'car'.* A word stands in quotes: 'car'"),
        ("mode + 1", r"'\+' is for numbers, and mode is a word"),
        ("mode < 'bus'", "'<' is for numbers, and mode is a word: compare words by ==, != or in"),
        ("mode == price", "mode is a word and price is a number: they cannot be compared"),
        ("price and mode == 'car'", "'and' is for conditions, and price is a number"),
        ("not price", "'not' is for conditions, and price is a number"),
        ("(price > 1) == (price > 2)", "not for conditions: use and, or, not"),
    ],
)
def test_what_does_not_go_together_is_named(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        value(text)


@given(a=st.integers(-50, 50), b=st.integers(-50, 50), c=st.integers(1, 50))
def test_arithmetic_is_that_of_python(a: int, b: int, c: int) -> None:
    text = f"({a}) + ({b}) * {c} - ({a}) / {c}"
    assert value(text.replace("(", "(0 + ")) == pytest.approx(a + b * c - a / c)
