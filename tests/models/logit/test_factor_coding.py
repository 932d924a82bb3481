import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.errors import SchemaError
from pcmcnet.models.logit.factor_coding import (
    LevelCode,
    NumberCode,
    factor_columns,
    learn_levels,
    learn_number,
    read_code,
)
from pcmcnet.models.logit.formula import Factor, parse_formula

TWO_SETS = np.array([0, 2, 4])
PLAIN = NumberCode(0.0, 1.0, False)


def numbers(*values: float) -> Numeric:
    return Numeric(np.array(values, np.float32))


def levels(*values: str) -> Categorical:
    categories = tuple(dict.fromkeys(values))
    return Categorical(np.array([categories.index(v) for v in values], np.int32), categories)


def factor(text: str) -> Factor:
    return parse_formula(text).generic[0].factors[0]


# -- numbers -------------------------------------------------------------------------------------------------------


def test_mean_scale_and_missing_values_of_numbers_are_learnt() -> None:
    assert learn_number(numbers(1, 3).values) == NumberCode(2.0, 1.0, False)
    assert learn_number(numbers(1, np.nan, 3).values) == NumberCode(2.0, 1.0, True)
    assert learn_number(numbers(5, 5).values) == NumberCode(5.0, 1.0, False)
    assert learn_number(numbers(np.nan).values) == NumberCode(0.0, 1.0, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", [1, 4, 9, 3]),
        ("x/2", [0.5, 2, 4.5, 1.5]),
        ("square(x)", [1, 16, 81, 9]),
        ("sqrt(x)", [1, 2, 3, np.sqrt(3)]),
        ("log(x)/2", [0, np.log(4) / 2, np.log(9) / 2, np.log(3) / 2]),
        ("standardise(x)", [-0.5, 1, 3.5, 0.5]),
        ("relative(x)", [1, 4, 3, 1]),
    ],
)
def test_transformations_have_the_values_found_by_hand(text: str, expected: list[float]) -> None:
    result, endings = factor_columns(
        factor(text), numbers(1, 4, 9, 3), NumberCode(2.0, 2.0, False), TWO_SETS, full=False
    )
    np.testing.assert_allclose(result[:, 0], expected, rtol=1e-15)
    assert result.shape == (4, 1)
    assert endings == [""]


def test_piecewise_splits_a_number_at_its_knots() -> None:
    result, endings = factor_columns(
        factor("piecewise(x, 10, 30)"), numbers(-5, 4, 10, 25, 100), PLAIN, np.array([0, 5]), full=False
    )
    assert result.tolist() == [[-5, 0, 0], [4, 0, 0], [10, 0, 0], [10, 15, 0], [10, 20, 70]]
    assert endings == ["[to 10]", "[10 to 30]", "[from 30]"]


@given(
    x=st.floats(-1e6, 1e6, width=32),
    knots=st.lists(st.integers(-1000, 1000), min_size=1, max_size=4, unique=True).map(sorted),
)
def test_piecewise_columns_sum_to_the_number(x: float, knots: list[int]) -> None:
    piecewise = Factor("x", "piecewise", tuple(map(float, knots)))
    result, endings = factor_columns(piecewise, numbers(x), PLAIN, np.array([0, 1]), full=False)
    assert result.sum() == pytest.approx(x, rel=1e-12, abs=1e-9)
    assert result.shape == (1, len(knots) + 1) == (1, len(endings))


@pytest.mark.parametrize(
    ("text", "values", "problem"),
    [
        ("log(x)", (1, 0, -2, 3), r"log\(x\): expected values > 0 in column 'x', got 0 in 1; 2 such values"),
        ("sqrt(x)", (1, 0, -2, 3), r"sqrt\(x\): expected values >= 0 in column 'x', got -2 in 2; 1 such"),
        ("relative(x)", (1, 2, 0, 3), r"relative\(x\): expected values > 0 in column 'x', got 0 in 2; 1 such"),
    ],
)
def test_numbers_outside_the_domain_are_refused(text: str, values: tuple[float, ...], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        factor_columns(factor(text), numbers(*values), PLAIN, TWO_SETS, full=False)


def test_missing_values_get_the_mean_and_an_indicator() -> None:
    code = NumberCode(4.0, 1.0, True)
    result, endings = factor_columns(factor("sqrt(x)"), numbers(1, np.nan, 9, 16), code, TWO_SETS, full=False)
    assert result.tolist() == [[1, 0], [2, 1], [3, 0], [4, 0]]
    assert endings == ["", "[missing]"]
    whole, _ = factor_columns(factor("sqrt(x)"), numbers(1, 4, 9, 16), code, TWO_SETS, full=False)
    assert whole.tolist() == [[1, 0], [2, 0], [3, 0], [4, 0]]


def test_missing_values_are_refused_if_training_had_none() -> None:
    with pytest.raises(
        SchemaError, match="column 'x' has 2 missing values, but had none in the training data: fill them in"
    ):
        factor_columns(factor("x"), numbers(1, np.nan, np.nan, 2), PLAIN, TWO_SETS, full=False)


def test_a_block_does_not_change_the_column() -> None:
    column = numbers(1, np.nan)
    factor_columns(factor("x/2"), column, NumberCode(4.0, 1.0, True), np.array([0, 2]), full=False)
    np.testing.assert_array_equal(column.values, [1, np.nan])


# -- levels --------------------------------------------------------------------------------------------------------


def learnt(chosen: dict[str, int], never: tuple[str, ...] = (), least: int = 0) -> LevelCode:
    """Learn levels from the number of choices of each. Every level also has one row that is not chosen."""
    rows = [level for level, times in chosen.items() for _ in range(times)]
    column = levels(*rows, *chosen, *never)
    return learn_levels(column, np.arange(len(rows)), least=least)


def test_the_reference_is_the_most_chosen_level_then_first_by_name() -> None:
    assert learnt({"b": 2, "c": 3, "a": 1}) == LevelCode("c", ("a", "b"), False)
    assert learnt({"b": 2, "a": 2}) == LevelCode("a", ("b",), False)


def test_rarely_chosen_levels_are_pooled() -> None:
    code = learnt({"a": 9, "b": 5, "c": 4, "d": 1}, least=5)
    assert code == LevelCode("a", ("b",), True, ("c", "d"), 2)
    assert code.pooling == "c, d with (other)"
    assert code.names == ("a", "b", "(other)")


def test_a_pool_that_is_too_small_joins_the_reference() -> None:
    assert learnt({"a": 9, "b": 5, "c": 3, "d": 1}, least=5) == LevelCode("a", ("b",), False, ("c", "d"), 2)
    alone = learnt({"a": 9}, never=("b",), least=1)
    assert alone == LevelCode("a", (), False, ("b",), 1)
    assert alone.pooling == "b with a"


def test_long_lists_of_pooled_levels_are_counted() -> None:
    code = learnt({"a": 99, **dict.fromkeys("bcdefghijk", 1)}, least=50)
    assert code.pooling == "b, c, d, e, f, g, h, i and 2 more with a"
    assert learnt({"a": 99, "b": 99}, least=50).pooling == ""


def test_the_base_level_can_be_a_rare_level() -> None:
    column = levels("a", "a", "b", "c")
    assert learn_levels(column, np.arange(4), least=0, base="c") == LevelCode("c", ("a", "b"), False)
    assert learn_levels(column, np.arange(4), least=2, base="c") == LevelCode("c", ("a",), False, ("b",), 1)


def test_pooled_levels_survive_json() -> None:
    code = LevelCode("a", ("b",), True, ("c", "d"), 2)
    assert read_code(json.loads(json.dumps(asdict(code)))) == code


def test_min_chosen_of_0_keeps_levels_that_are_never_chosen() -> None:
    assert learnt({"a": 9}, never=("b",), least=0) == LevelCode("a", ("b",), False)


def test_a_category_without_rows_is_not_a_level() -> None:
    column = Categorical(np.array([0, 2], np.int32), ("a", "ghost", "b"))
    assert learn_levels(column, np.array([0]), least=0) == LevelCode("a", ("b",), False)


def test_a_level_with_the_name_of_the_pool_belongs_to_it() -> None:
    assert learnt({"(other)": 9, "b": 5, "c": 2}, least=5).names == ("b", "(other)")
    assert learnt({"(other)": 9, "b": 5, "c": 2}).names == ("b", "c", "(other)")
    assert learnt({"(other)": 9}).names == ("(other)",)


@pytest.mark.parametrize(
    ("code", "endings", "unseen"),
    [
        (LevelCode("a", ("b",), True), ["[b]", "[(other)]"], [0, 1]),
        (LevelCode("a", ("b", "c"), False), ["[b]", "[c]"], [0, 0]),
    ],
)
def test_unseen_categories_belong_to_the_pool_or_the_reference(
    code: LevelCode, endings: list[str], unseen: list[int]
) -> None:
    result = factor_columns(factor("x"), levels("b", "new", "a", "a"), code, TWO_SETS, full=False)
    assert result[1] == endings
    assert result[0].tolist() == [[1, 0], unseen, [0, 0], [0, 0]]


def test_all_levels_can_have_a_column() -> None:
    code = LevelCode("a", ("b",), True)
    result, endings = factor_columns(factor("x"), levels("b", "new", "a", "a"), code, TWO_SETS, full=True)
    assert endings == ["[a]", "[b]", "[(other)]"]
    assert result.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]]
