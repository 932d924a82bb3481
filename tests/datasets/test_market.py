"""Simulated markets: their columns, the endogeneity of prices, and the sums of sales."""

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.datasets import market
from pcmcnet.errors import ConfigError


def test_purchases_are_choice_data_of_households() -> None:
    data = pn.ChoiceData.from_long(market.simulate(23, seed=0), **market.ROLES)
    assert (len(data), set(data.sizes.tolist()), data.groups().max() + 1) == (23, {3}, 5)
    assert market.simulate(23, seed=0).equals(market.simulate(23, seed=0))


def test_prices_follow_the_quality_that_the_residual_contains() -> None:
    """The residual of the price given cost and advertisement is half of the quality."""
    table = market.simulate(4_000, seed=0)
    quality = table["quality"].to_numpy()
    data = pn.ChoiceData.from_long(table, **market.ROLES)
    stage = pn.control_function(data, "price", instruments=["cost"])
    residual = stage.data.features["price_residual"].plain()
    # 4 standard errors of the first stage: 4 sqrt(0.5^2 / 12,000) for each of four regressors of size 1 to 3
    np.testing.assert_allclose(residual, quality / market.RESIDUAL, atol=0.1)
    assert np.corrcoef(table["price"].to_numpy(), quality)[0, 1] > 0.5
    assert abs(np.corrcoef(table["cost"].to_numpy(), quality)[0, 1]) < 0.05


def test_sales_of_a_market_sum_to_its_customers() -> None:
    table = market.simulate_shares(40, customers=500, seed=1)
    sales = table["sales"].to_numpy().reshape(40, 4)
    assert (sales.sum(axis=1) == 500).all()
    assert table["product"].to_pylist()[:4] == ["a", "b", "c", "none"]
    assert 0.2 < sales[:, 3].mean() / 500 < 0.8
    assert (table["price"].to_numpy().reshape(40, 4)[:, 3] == 0).all()


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="sets"):
        market.simulate(0, seed=0)
    with pytest.raises(ConfigError, match="customers"):
        market.simulate_shares(1, customers=0, seed=0)
