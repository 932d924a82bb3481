"""The Berry inversion: by hand, against two-stage least squares, recovery of the truth, and errors."""

from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import market
from pcmcnet.errors import InputError, SchemaError

ROLES: dict[str, Any] = {"choice_set": "market", "counts": "sales", "alternative": "product"}
FEATURES = ["price", "advertising", "cost"]


def read(table: Any, **roles: Any) -> ChoiceData:
    return ChoiceData.from_long(table, **{**ROLES, "features": ["price", "cost"], **roles})


def small(**columns: Any) -> dict[str, Any]:
    """One product and nothing in three markets: mean utilities log(s_1 / s_0) = 0, log 2 and log 4."""
    rows = {
        "market": [1, 1, 2, 2, 3, 3],
        "product": ["a", "none"] * 3,
        "sales": [5, 5, 20, 10, 4, 1],
        "price": [3.0, 0.0, 2.0, 0.0, 2.5, 0.0],
        "cost": [2.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    }
    return rows | columns


def test_an_inversion_by_hand(caplog: Any) -> None:
    """With one instrument, the slope is cov(cost, y) / cov(cost, price).

    y = (0, 1, 2) log 2, and the costs 2, 1, 0 have the deviations 1, 0, -1: cov(cost, y) is proportional to -2 log 2,
    and cov(cost, price) to 3 - 2.5 = 0.5. The slope is -4 log 2. Least squares: the deviations of the prices are 0.5,
    -0.5 and 0, with the sum of squares 0.5, and their product with y is -0.5 log 2: slope -log 2. The constant is
    mean(y) + 4 log 2 * mean(price) = 11 log 2.
    """
    result = pn.berry_inversion(read(small()), instruments=["cost"])
    assert result.names == ("constant[a]", "price")
    np.testing.assert_allclose(result.mean_utilities, np.log([1, 2, 4]), rtol=1e-12)
    np.testing.assert_allclose(result.values, np.log(2) * np.array([11, -4]), rtol=1e-10)
    assert result.least_squares[1] == pytest.approx(-np.log(2), rel=1e-10)
    np.testing.assert_allclose(result.shares, [1 / 2, 2 / 3, 4 / 5], rtol=1e-12)
    elasticities = -4 * np.log(2) * np.array([3, 2, 2.5]) * [1 / 2, 1 / 3, 1 / 5]
    np.testing.assert_allclose(result.own_elasticities, elasticities, rtol=1e-10)
    np.testing.assert_allclose(result.residuals.sum(), 0, atol=1e-10)
    assert "fewer than about 30 markets; this table has 3" in caplog.text


def markets_of(n: int, seed: int = 0) -> ChoiceData:
    return read(market.simulate_shares(n, seed=seed), features=FEATURES)


def test_estimates_are_those_of_two_stage_least_squares() -> None:
    """Regress the price on the instruments, and the mean utilities on the predicted price."""
    result = pn.berry_inversion(markets_of(120), instruments=["cost"])
    table = market.simulate_shares(120, seed=0).to_pandas()
    none = table[table["product"] == "none"].set_index("market")["sales"]
    rows = table[table["product"] != "none"]
    y = np.log(rows["sales"].to_numpy() / none.loc[rows["market"]].to_numpy())
    dummies = np.stack([(rows["product"] == k).to_numpy(float) for k in "abc"], axis=1)
    float32 = {name: rows[name].to_numpy(np.float32).astype(float) for name in FEATURES}
    shared = np.column_stack([dummies, float32["advertising"]])
    z = np.column_stack([shared, float32["cost"]])
    predicted = z @ np.linalg.lstsq(z, float32["price"], rcond=None)[0]
    expected = np.linalg.lstsq(np.column_stack([shared, predicted]), y, rcond=None)[0]
    np.testing.assert_allclose(result.values, expected, rtol=1e-8)
    assert result.names == ("constant[a]", "constant[b]", "constant[c]", "advertising", "price")


def test_instruments_recover_the_price_coefficient() -> None:
    result = pn.berry_inversion(markets_of(400), instruments=["cost"])
    b, s = result.coefficients, result.standard_errors
    assert abs(b["price"] - market.PRICE) < 3 * s["price"]
    assert abs(b["advertising"] - market.ADVERTISING) < 3 * s["advertising"]
    assert abs(b["constant[b]"] - b["constant[a]"] - 0.5) < 0.3  # the difference of the constants
    assert result.least_squares[-1] > -1.5
    assert result.f_statistic > 100
    assert not result.caveats
    assert result.own_elasticities.mean() < 0
    assert result.to_frame().loc["price", "estimate"] == b["price"]
    assert "Berry inversion" in str(result)


@pytest.mark.slow
def test_intervals_cover_the_truth_in_most_simulations() -> None:
    """Of 40 intervals, 38 are expected to cover; fewer than 33 have a probability of 1 in 400."""
    hits = 0
    for seed in range(40):
        result = pn.berry_inversion(markets_of(150, seed), instruments=["cost"])
        hits += abs(result.coefficients["price"] - market.PRICE) <= 1.96 * result.standard_errors["price"]
    assert hits >= 33


def test_weak_instruments_have_a_caveat(caplog: Any) -> None:
    table = market.simulate_shares(60, seed=0)
    noise = np.random.default_rng(1).normal(size=table.num_rows)
    rows = {name: table[name].to_numpy() for name in table.column_names} | {"noise": noise}
    result = pn.berry_inversion(read(rows, features=["price", "noise"]), instruments=["noise"])
    assert result.f_statistic < 10
    assert "the instruments are weak" in caplog.text


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"instruments": []}, InputError, "expected at least one column, got none.*fit pn.MNL to the counts"),
        ({"instruments": "cost"}, InputError, r"write \['cost'\]"),
        ({"instruments": ["price"]}, InputError, "is the price itself"),
        ({"instruments": ["costs"]}, SchemaError, "Did you mean 'cost'"),
        ({"instruments": ["cost"], "price": "prize"}, SchemaError, "price: 'prize' is not a numeric feature"),
        ({"instruments": ["cost"], "outside": "non"}, InputError, "'non' is not a label. Did you mean 'none'"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.berry_inversion(read(small()), **arguments)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"market": [1, 1, 1, 1, 1, 1], "product": [*"abcde", "none"]}, "needs at least two markets, got one"),
        ({"sales": [5, 5, 0, 10, 4, 1]}, "market 2: expected a count above 0 for 'a', got 0"),
        ({"sales": [5, 5, 20, 0, 4, 1]}, "market 2: expected a count above 0 for the outside option 'none'; 1 in all"),
        ({"cost": [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]}, "determine an instrument: .* 'cost'"),
        ({"price": [2.0, 0.0, 2.0, 0.0, 2.0, 0.0]}, "not identified: .* 'price'"),
    ],
)
def test_tables_without_an_inversion_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pn.berry_inversion(read(small(**columns)), instruments=["cost"])


def test_as_many_coefficients_as_shares_are_refused() -> None:
    """Two markets of two products have four shares; three constants and slopes leave one, four leave none."""
    table = {
        "market": [1, 1, 1, 2, 2, 2],
        "product": ["a", "b", "none"] * 2,
        "sales": [5, 4, 9, 3, 7, 8],
        "price": [2.0, 3.0, 0.0, 1.0, 4.0, 0.0],
        "quality": [1.0, 5.0, 0.0, 2.0, 3.0, 0.0],
        "cost": [1.0, 1.5, 0.0, 0.5, 2.5, 0.0],
    }
    roles = {"choice_set": "market", "counts": "sales", "alternative": "product"}
    data = ChoiceData.from_long(table, **roles, features=["price", "quality", "cost"])
    with pytest.raises(InputError, match=r"4 products in 2 markets have at most as many shares as .* .4.,"):
        pn.berry_inversion(data, instruments=["cost"])


def test_tables_of_single_choices_are_refused() -> None:
    with pytest.raises(SchemaError, match="read the table with counts=<column> and alternative=<column>"):
        pn.berry_inversion(read(small(), counts=None), instruments=["cost"])
    with pytest.raises(InputError, match="expected ChoiceData, got dict"):
        pn.berry_inversion({}, instruments=["cost"])  # type: ignore[arg-type]
    rows = read(small(brand=["x"] * 6), features=["price", "cost", "brand"])
    with pytest.raises(SchemaError, match="'brand' is categorical"):
        pn.berry_inversion(rows, instruments=["cost"])
