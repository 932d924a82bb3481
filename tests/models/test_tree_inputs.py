import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import SchemaError
from pcmcnet.models.tree_inputs import positive_features, relative_columns, relative_to_least

OFFSETS = np.array([0, 3, 5])


def relative(values: list[float]) -> list[float]:
    return relative_to_least(np.array(values, np.float32), OFFSETS).tolist()


def test_each_value_is_divided_by_the_minimum_of_its_set() -> None:
    assert relative([2, 3, 4, 10, 5]) == [1, 1.5, 2, 2, 1]


@pytest.mark.parametrize("least", [0.0, -1.0])
def test_a_set_with_a_minimum_that_is_not_positive_has_no_ratio(least: float) -> None:
    assert relative([2, least, 4, 10, 5]) == [0, 0, 0, 2, 1]


@pytest.mark.parametrize("least", [0.0, -1.0])
def test_monotone_ratios_have_a_limit_where_the_minimum_is_not_positive(least: float) -> None:
    x = np.array([least, np.nan, 5.0, least], np.float32)
    ratios = relative_to_least(x, np.array([0, 4]), monotone=True)
    assert ratios.tolist() == [1, 0, np.finfo(np.float32).max, 1]


def test_missing_values_have_no_ratio_and_are_not_the_minimum() -> None:
    assert relative([2, np.nan, 4, np.nan, np.nan]) == [1, 0, 2, 0, 0]


def test_a_ratio_beyond_float32_is_finite() -> None:
    assert relative([1e-38, 1e38, 1e-38, 1, 1])[1] == pytest.approx(np.finfo(np.float32).max)


@pytest.fixture
def data() -> ChoiceData:
    table = {
        "s": [0, 0, 1],
        "took": [1, 0, 1],
        "price": [1.0, np.nan, 2.0],
        "delay": [0.0, 1.0, 2.0],
        "wind": [-1.0, 1.0, 2.0],
        "who": ["a", "b", "c"],
    }
    features = ["price", "delay", "wind", "who"]
    return ChoiceData.from_long(table, choice_set="s", chosen="took", features=features, missing="indicator")


def test_positive_features_are_numeric_with_values_above_0(data: ChoiceData) -> None:
    assert positive_features(data) == ("price",)


def test_columns_are_in_the_order_of_their_names(data: ChoiceData) -> None:
    assert relative_columns(data, ["wind", "price"]).tolist() == [[0, 1], [0, 0], [1, 1]]
    assert relative_columns(data, []).shape == (3, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [("prise", r"no feature 'prise'. Did you mean 'price'\?"), ("who", "got 'who', which is categorical")],
)
def test_columns_that_are_not_numeric_features_are_refused(name: str, message: str, data: ChoiceData) -> None:
    with pytest.raises(SchemaError, match=message):
        relative_columns(data, [name])
