"""The language of changes: what binds tighter, and what is said of a text that is none."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.expression_parser import Parser


def read(text: str) -> str:
    parser = Parser(text)
    found = str(parser.expression())
    if parser.next.kind != "end":
        raise parser.error("the end")
    return found


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
        ("travel.time + max", "(travel.time + max)"),  # a function is one only before a parenthesis
    ],
)
def test_signs_bind_as_in_arithmetic(text: str, meaning: str) -> None:
    assert read(text) == meaning


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a +", "expected a number, a word in quotes or the name of a column, found the end"),
        ("a = 1", "expected '==' to compare, found '=' at character 3"),
        ("1 < a < 3", "expected one comparison, as in 1 < x and x < 5, found '<' at character 7"),
        ("a not 3", "expected 'in' after 'not', found '3'"),
        ("(a", r"expected '\)', found the end"),
        ("min(a)", r"expected 2 values in min\(...\), got 1"),
        ("a in b", r"expected '\(' or '\[', found 'b' at character 6"),
        ("'car", "a quote without its end, at character 1"),
        ("a § b", "'§', which means nothing here, at character 3"),
        ("__import__('os')", r"expected the end, found '\(' at character 11"),
    ],
)
def test_what_is_no_expression_is_named(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read(text)


def test_depth_is_limited() -> None:
    with pytest.raises(InputError, match="at most 40 parentheses within each other"):
        read("(" * 5000 + "a" + ")" * 5000)


@given(st.text("ab1.'\"`()[]<>=!+-*/, notiwhere", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InputError):
        Parser(text).expression()
