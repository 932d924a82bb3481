"""The language of changes: columns, removals, additions."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.language import (
    Add,
    Assign,
    LazyColumns,
    Parser,
    Remove,
    Value,
    columns_named_in,
    evaluate_expression,
    parse_change,
)


@pytest.mark.parametrize(
    ("text", "value", "where"),
    [
        ("price *= 1.1 where mode == 'car'", "(price * 1.1)", "(mode == 'car')"),
        ("price = price - 5", "(price - 5)", "None"),
        ("price += 2 where a == 'b' and c > 1", "(price + 2)", "((a == 'b') and (c > 1))"),
        ("price /= 1 + 1", "(price / (1 + 1))", "None"),
    ],
)
def test_a_column_gets_a_value(text: str, value: str, where: str) -> None:
    parsed = parse_change(text)
    assert isinstance(parsed, Assign)
    assert (parsed.column, str(parsed.value), str(parsed.where)) == ("price", value, where)


def test_alternatives_are_removed_and_added() -> None:
    assert parse_change("remove air") == parse_change("remove 'air'") == Remove("air", None)
    assert str(parse_change("remove where mode == 'air'").where) == "(mode == 'air')"
    parsed = parse_change("add 'night tram' like bus with price *= 2, minutes = 10 where urban == 1")
    assert isinstance(parsed, Add)
    assert (parsed.label, parsed.like, str(parsed.where)) == ("night tram", "bus", "(urban == 1)")
    assert [(c.column, str(c.value)) for c in parsed.changes] == [("price", "(price * 2)"), ("minutes", "10")]
    assert parse_change("copy with price = 1") == Add(None, None, (parse_change("price = 1"),), None)  # type: ignore[arg-type]


def test_a_column_may_have_the_name_of_a_verb() -> None:
    parsed = parse_change("add = add + 1")
    assert isinstance(parsed, Assign)
    assert parsed.column == "add"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (" ", "expected a change such as .* got an empty string"),
        (
            "price *= 1.1 wher mode == 'car'",
            "expected 'where' or the end of the text, found 'wher' at character 14. Did you mean 'where'",
        ),
        ("price 1.1", r"expected one of = \*= \+= -= /= after 'price', found '1.1' at character 7"),
        ("rmove where a == 1", "after 'rmove', found 'where' at character 7. Did you mean 'remove'"),
        ("1 = price", "expected a column name, 'add', 'copy' or 'remove', found '1'"),
        ("remove bus, air", r"for several labels, use a condition: remove where mode in \('bus', 'train'\), found ','"),
        ("remove", "expected a label, or 'where' and a condition, found the end"),
        ("add tram lik bus", "expected 'like', found 'lik' at character 10. Did you mean 'like'"),
        ("add like bus", "expected the label of the new alternative, found 'like'"),
        ("add tram like", "expected the label of the alternative to copy, found the end"),
        ("add tram like bus with where a == 1", "expected a column"),
    ],
)
def test_invalid_changes_are_explained(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_change(text)


def test_columns_of_a_change_are_listed() -> None:
    assert list(columns_named_in(parse_change("a = b + 1 where c == 'x'"))) == ["a", "b", "c"]
    assert list(columns_named_in(parse_change("remove where c in (d, 2)"))) == ["c", "d"]
    assert list(columns_named_in(parse_change("add x like y with a = 1, b = e where c == 1"))) == ["a", "b", "e", "c"]


# -- Expression parser -------------------------------------------------------------------------------------------------
# Precedence of operators, and messages for texts that are not expressions.


def read(text: str) -> str:
    parser = Parser(text)
    parsed = str(parser.expression())
    if parser.next.kind != "end":
        raise parser.error("the end")
    return parsed


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a + b * c - 2", "((a + (b * c)) - 2)"),
        ("(a + b) / -c", "((a + b) / (0 - c))"),
        ("a < 1 or not b == 'x' and c >= .5", "((a < 1) or (not((b == 'x')) and (c >= 0.5)))"),
        ("mode in ('car', \"bus\")", "mode in ('car', 'bus')"),
        ("mode not in [1, 2]", "mode not in (1, 2)"),
        ("mode in ('car',)", "mode in ('car')"),
        ("max(a - 5, 0) + abs(b)", "(max((a - 5), 0) + abs(b))"),
        ("`total price` * 1e2", "(total price * 100)"),
        ("travel.time + max", "(travel.time + max)"),  # a name is a function only before a parenthesis
    ],
)
def test_operators_have_the_usual_precedence(text: str, meaning: str) -> None:
    assert read(text) == meaning


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a +", "expected a number, a word in quotes or a column name, found the end"),
        ("a = 1", "expected '==' to compare, as in mode == 'train', found '=' at character 3"),
        ("1 < a < 3", "expected a single comparison, as in 1 < x and x < 5, found '<' at character 7"),
        ("a not 3", "expected 'in' after 'not', found '3'"),
        ("(a", r"expected '\)', found the end"),
        ("min(a)", r"expected 2 arguments of min\(...\), not 1"),
        ("a in b", r"expected '\(' or '\[', found 'b' at character 6"),
        ("'car", "unclosed quote at character 1"),
        ("a § b", "unexpected '§' at character 3"),
        ("__import__('os')", r"expected the end, found '\(' at character 11"),
    ],
)
def test_invalid_expressions_are_explained(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read(text)


def test_depth_is_limited() -> None:
    with pytest.raises(InputError, match="at most 40 nested parentheses"):
        read("(" * 5000 + "a" + ")" * 5000)


@given(st.text("ab1.'\"`()[]<>=!+-*/, notiwhere", max_size=40))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with suppress(InputError):
        Parser(text).expression()


# -- Expressions -------------------------------------------------------------------------------------------------------
# Values of expressions: numbers, words and conditions, and operands that cannot be combined.


COLUMNS = {
    "price": np.array([1.0, 2.5, 4.0]),
    "rate": np.float32([1.1, 2.2, 3.3]).astype(float),
    "mode": np.array(["car", "bus", "car"], object),
    "zone": np.array(["1", "2", "10"], object),
}
NAMES = LazyColumns(
    {k: lambda v=v: Value(v, "word" if v.dtype == object else "number") for k, v in COLUMNS.items()}  # type: ignore[misc]
)


def value(text: str) -> Any:
    return evaluate_expression(Parser(text).expression(), NAMES).values.tolist()


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
        ("zone == 2", [False, True, False]),  # labels are words even if they look like numbers
        ("zone in (1, 10)", [True, False, True]),
        ("rate == 1.1", [True, False, False]),  # columns are float32
    ],
)
def test_expressions_have_the_expected_values(text: str, expected: list[Any]) -> None:
    assert value(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prize * 2", "no column 'prize'. Did you mean 'price'"),
        ("mode == car", "no column 'car'.* Put a word in quotes: 'car'"),
        ("mode + 1", r"'\+': expected numbers, but mode is a word"),
        ("mode < 'bus'", "'<': expected numbers, but mode is a word: words support only ==, != and in"),
        ("mode == price", "cannot compare mode \\(a word\\) with price \\(a number\\)"),
        ("price and mode == 'car'", "'and': expected conditions, but price is a number"),
        ("not price", "'not': expected conditions, but price is a number"),
        ("(price > 1) == (price > 2)", "got a condition: combine conditions with 'and', 'or' and 'not'"),
    ],
)
def test_incompatible_operands_are_explained(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        value(text)


@given(a=st.integers(-50, 50), b=st.integers(-50, 50), c=st.integers(1, 50))
def test_arithmetic_agrees_with_python(a: int, b: int, c: int) -> None:
    text = f"({a}) + ({b}) * {c} - ({a}) / {c}"
    assert value(text.replace("(", "(0 + ")) == pytest.approx(a + b * c - a / c)
