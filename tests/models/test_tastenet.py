from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.insight.queries import with_values
from pcmcnet.models import TasteNet


def test_a_coefficient_is_the_change_of_log_odds_per_unit(network_of: Callable[..., Any], journeys: ChoiceData) -> None:
    """The first alternative of each set costs one unit more: its log-odds against the second change by b(I)."""
    model = network_of("tastenet", spread=0.3)
    result = model.coefficients(journeys)
    assert set(result) == {"price", "minutes"}
    assert result["price"].std() > 0.001  # individuals differ
    price = np.asarray(journeys.features["price"].plain(), np.float64).copy()
    first = journeys.offsets[:-1]
    price[first] += 1
    before, after = (
        journeys.from_rows(model.predict_log_proba(data)) for data in (journeys, with_values(journeys, "price", price))
    )
    moved = (after - before)[first] - (after - before)[first + 1]
    np.testing.assert_allclose(moved, result["price"], atol=1e-4)  # differences of float32


@given(seed=st.integers(0, 2**16), spread=st.floats(0.01, 5))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_signed_coefficient_has_its_sign_for_every_individual(
    seed: int, spread: float, network_of: Callable[..., Any], journeys: ChoiceData
) -> None:
    signs: Any = {"price": "decreasing", "minutes": "increasing"}
    model = network_of("tastenet", spread=spread, seed=seed, monotone=signs)
    result = model.coefficients(journeys)
    assert (result["price"] <= 1e-6).all()
    assert (result["minutes"] >= -1e-6).all()


def test_tastes_that_depend_on_income_are_recovered() -> None:
    """b = -2 for the poor and 0 for the rich; income is the only input of the network."""
    rng = np.random.default_rng(0)
    sets, n = 1000, 3
    rich, price = rng.integers(0, 2, sets), rng.normal(size=(sets, n))
    utility = np.where(rich, 0.0, -2.0)[:, None] * price + rng.gumbel(size=(sets, n))
    took = utility.argmax(1)[:, None] == np.arange(n)
    table = {"s": np.repeat(np.arange(sets), n), "took": took.ravel(), "price": price.ravel()}
    table["rich"] = np.repeat(rich, n)
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["price"], individual=["rich"])
    model = TasteNet(hidden=(8,), weight_decay=0.1).fit(data, progress=False)
    result = model.coefficients(data)["price"]
    assert result[rich == 0].mean() == pytest.approx(-2, abs=0.3)  # three standard errors
    assert result[rich == 1].mean() == pytest.approx(0, abs=0.3)


def test_tastes_are_equal_without_individual_columns() -> None:
    table = {"s": [1, 1, 2, 2], "took": [1, 0, 0, 1], "price": [1.0, 2.0, 3.0, 1.5]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["price"])
    model = TasteNet(epochs=2).fit(data, progress=False)
    assert len(set(model.coefficients(data)["price"])) == 1


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="direction of the monotone column 'price'"):
        TasteNet(monotone={"price": "down"})
    with pytest.raises(ConfigError, match="monotone must map columns"):
        TasteNet(monotone="price")
    with pytest.raises(ConfigError, match="needs utility='linear'"):
        TasteNet(utility="none")
