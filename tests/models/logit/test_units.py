import numpy as np
import pytest

from choice_tables import read, trips
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.models.logit.design import Design, require_unit


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    table = trips(40, sizes=(3, 5))
    return read(table, alternative="mode", individual=["income"], features=["price", "minutes", "comfort"])


@pytest.mark.parametrize(
    ("formula", "name", "unit"),
    [
        ("price + minutes", "price", 1),
        ("price/100 + minutes", "price/100", 100),
        ("piecewise(price, 5)/10 + minutes", "piecewise(price, 5)/10[to 5]", 10),
        ("price[car,bus] + price[bike]", "price[bike]", 1),
        ("minutes | 1 | price", "price[car]", 1),
        ("price:comfort + minutes", "price:comfort[low]", 1),
    ],
)
def test_the_unit_is_the_divisor_in_the_formula(formula: str, name: str, unit: float, data: ChoiceData) -> None:
    assert require_unit(Design.learn(formula, data), data, name) == unit


def test_a_standardised_column_is_divided_by_its_scale(data: ChoiceData) -> None:
    price = data.features["price"].values.astype(float)  # type: ignore[union-attr]
    result = require_unit(Design.learn("standardise(price)/2", data), data, "standardise(price)/2")
    assert result == pytest.approx(2 * np.std(price), rel=1e-6)


@pytest.mark.parametrize("name", ["comfort[low]", "constant[bus]"])
def test_a_level_has_no_unit_but_a_willingness_to_pay(name: str, data: ChoiceData) -> None:
    design = Design.learn("price + comfort", data, reference="car", base={"comfort": "high"})
    assert require_unit(design, data, name, money=False) == 1
    with pytest.raises(
        InputError, match="has no unit in which to express willingness to pay: use the coefficient of a n"
    ):
        require_unit(design, data, name)


@pytest.mark.parametrize(
    ("formula", "name", "reason"),
    [
        ("log(price) + minutes", "log(price)", r"log\(price\) is not linear"),
        ("boxcox(price) + minutes", "boxcox(price)", r"boxcox\(price\) is not linear"),
        ("relative(price) + minutes", "relative(price)", r"relative\(price\) is not linear"),
        ("price:income", "price:income", "price:income is a product of numeric columns"),
        ("price + price:income", "price", "the term price:income also depends on it"),
        ("price + price[car,bus]", "price", r"the term price\[car,bus\] also depends on it"),
        ("price[car] + price[car,bus]", "price[car]", r"the term price\[car,bus\] also depends on it"),
        ("price | 1 | price", "price", "the term price also depends on it"),
    ],
)
def test_a_coefficient_that_is_not_a_marginal_utility_is_refused(
    formula: str, name: str, reason: str, data: ChoiceData
) -> None:
    with pytest.raises(InputError, match=f"is not the marginal utility of 'price': {reason}. pcmcnet.insight"):
        require_unit(Design.learn(formula, data), data, name)


def test_an_unknown_name_is_refused_with_a_suggestion(data: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"the utility has no coefficient 'prise'. Did you mean 'price'\?"):
        require_unit(Design.learn("price", data), data, "prise")
