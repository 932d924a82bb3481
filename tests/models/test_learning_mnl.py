from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.insight.queries import with_values
from pcmcnet.models import LearningMNL


def moved_by_a_unit(model: Any, data: ChoiceData, column: str) -> Any:
    """Return the change of the log-odds of the first two alternatives if the first has one unit more."""
    values = np.asarray(data.features[column].plain(), np.float64).copy()
    first = data.offsets[:-1]
    values[first] += 1
    log_p = [data.from_rows(model.predict_log_proba(d)) for d in (data, with_values(data, column, values))]
    shift = log_p[1] - log_p[0]
    return shift[first] - shift[first + 1]


def test_linear_columns_are_not_inputs_of_the_network(network_of: Callable[..., Any], journeys: ChoiceData) -> None:
    """A unit of price changes the log-odds by its coefficient in every set, a unit of minutes does not."""
    model = network_of("lmnl", spread=0.5, linear=["price"])
    assert set(model.coefficients) == {"price"}
    moved = moved_by_a_unit(model, journeys, "price")
    np.testing.assert_allclose(moved, model.coefficients["price"], atol=1e-4)  # differences of float32
    assert moved_by_a_unit(model, journeys, "minutes").std() > 1e-3


def test_all_numeric_features_are_linear_by_default(network_of: Callable[..., Any], journeys: ChoiceData) -> None:
    model = network_of("lmnl", spread=0.5)
    assert set(model.coefficients) == {"price", "minutes"}
    for name, value in model.coefficients.items():
        np.testing.assert_allclose(moved_by_a_unit(model, journeys, name), value, atol=1e-4)
    lines = str(model.summary()).splitlines()
    assert lines[-2].startswith("price")
    assert "network held fixed" in str(model.summary())


def test_collinear_columns_have_infinite_errors() -> None:
    rng = np.random.default_rng(0)
    price = rng.normal(size=60)
    table = {"s": np.repeat(np.arange(20), 3), "took": np.tile([1, 0, 0], 20), "price": price, "twice": 2 * price}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["price", "twice"])
    model = LearningMNL(epochs=1, weight_decay=1.0).fit(data, progress=False)
    assert set(model.standard_errors.values()) == {np.inf}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linear": "price"}, r"linear must be 'auto' or a list of features such as \('price',\)"),
        ({"linear": ["pric"]}, r"linear includes 'pric', which is not a numeric feature.* Did you mean 'price'"),
        ({"linear": ["income"]}, "linear includes 'income', an individual-level column"),
        ({"utility": "none"}, "needs utility='linear'"),
    ],
)
def test_invalid_linear_columns_are_refused(options: dict[str, Any], message: str, journeys: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=message):
        LearningMNL(weight_decay=1.0, **options).fit(journeys, progress=False)
