from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pcmcnet import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.queries import numeric_values, segments, set_segments, weighted_quantiles


def test_columns_of_every_role_can_define_groups(driven: ChoiceData) -> None:
    assert segments(driven, "mode").names == ("bike", "bus", "car", "train")
    assert segments(driven, "comfort").names == ("high", "low")
    assert not segments(driven, "comfort").of_sets
    purpose = segments(driven, "purpose")
    assert purpose.of_sets
    plain = driven.individual["purpose"].plain()
    assert [purpose.names[k] for k in purpose.codes] == list(np.repeat(plain, driven.sizes))
    assert segments(driven, None).names == ("all",)


def test_numbers_are_cut_at_quartiles_unless_few_are_distinct(driven: ChoiceData) -> None:
    result = segments(driven, "price")
    assert len(result.names) == 4
    counts = np.bincount(result.codes)
    assert counts.max() - counts.min() <= 1
    x = driven.features["price"].values  # type: ignore[union-attr]
    ends = [(x[result.codes == k].min(), x[result.codes == k].max()) for k in range(4)]
    assert all(a[1] < b[0] for a, b in pairwise(ends))
    assert segments(driven, np.arange(len(driven)) % 3).names == ("0", "1", "2")


def test_missing_numbers_are_a_group(make_driven: Callable[..., ChoiceData]) -> None:
    table = {"s": [1, 1, 2, 2], "x": [1.0, np.nan, 2.0, 1.0]}
    data = ChoiceData.from_long(table, choice_set="s", features=["x"], missing="indicator")
    result = segments(data, "x")
    assert result.names == ("1", "2", "(missing)")
    assert result.codes.tolist() == [0, 2, 1, 0]


def test_set_segments_need_values_that_are_constant_in_a_set(driven: ChoiceData) -> None:
    names, codes = set_segments(driven, np.arange(len(driven)) < 3)
    assert names == ("False", "True")
    assert codes.tolist() == [1] * 3 + [0] * (len(driven) - 3)
    with pytest.raises(InputError, match="varies within choice sets"):
        set_segments(driven, "comfort")


def test_quantiles_are_weighted() -> None:
    values, weights = np.array([2.0, 4.0, 7.0, 9.0]), np.array([1.0, 3.0, 2.0, 0.0])
    assert weighted_quantiles(values, weights, [0.1, 0.5, 1.0]).tolist() == [2.0, 4.0, 7.0]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda data: segments(data, "purpse"), "the table has no column 'purpse'. Did you mean 'purpose'"),
        (lambda data: segments(data, [1, 2]), "expected one value for each of 40 choice sets"),
        (lambda data: numeric_values(data, "pric"), "no feature or individual-level column .*Did you mean 'price'"),
        (lambda data: numeric_values(data, "comfort"), "categorical"),
    ],
)
def test_invalid_segments_are_rejected(driven: ChoiceData, ask: Callable[[ChoiceData], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(driven)


def test_contents_cannot_define_groups() -> None:
    table = {"s": [1, 1, 2, 2], "about": ["a", "b", "c", "d"]}
    data = ChoiceData.from_long(table, choice_set="s", features=["about"], kinds={"about": "text"})
    with pytest.raises(InputError, match="by='about' is of kind text: only numbers and categories can define groups"):
        segments(data, "about")


def test_a_numeric_column_can_have_limits() -> None:
    """A limit belongs to the group above it; a missing number has its own group."""
    table = {"s": [1, 2, 3, 4, 5], "km": [100.0, 300.0, 299.0, 700.0, np.nan], "x": [1.0] * 5, "word": list("abcde")}
    data = ChoiceData.from_long(table, choice_set="s", individual=["km", "word"], features=["x"], missing="indicator")
    result = segments(data, "km: 300, 600")
    assert result.names == ("< 300", "300 to 600", ">= 600", "(missing)")
    assert result.codes.tolist() == [0, 1, 0, 2, 3]
    assert segments(data, "km:1000000.5").names[0] == "< 1000000.5"
    for by in ("km: 600, 300", "km: ", "km: 3, x", "km: nan"):
        with pytest.raises(InputError, match="ascending limits, such as 'distance: 300, 600'"):
            segments(data, by)
    with pytest.raises(InputError, match="only a numeric column can have limits"):
        segments(data, "word: 3")
    with pytest.raises(InputError, match="no column 'miles'"):
        segments(data, "miles: 3")


def test_a_number_at_a_limit_belongs_to_the_group_above_it() -> None:
    """Columns are float32, and 0.7 in float32 is less than 0.7."""
    table = {"s": [1, 2, 3], "km": [0.7, 0.1, 0.69], "x": [1.0] * 3}
    data = ChoiceData.from_long(table, choice_set="s", individual=["km"], features=["x"])
    result = segments(data, "km: 0.1, 0.7")
    assert result.names == ("< 0.1", "0.1 to 0.7", ">= 0.7")
    assert result.codes.tolist() == [2, 1, 1]


def test_a_column_may_contain_a_colon() -> None:
    data = ChoiceData.from_long({"s": [1, 1], "a: 3": [1.0, 2.0]}, choice_set="s", features=["a: 3"])
    assert segments(data, "a: 3").names == ("1", "2")
