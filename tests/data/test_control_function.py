"""The first stage of a control function: by hand, against least squares, recovery of a true coefficient, and errors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import market
from pcmcnet.errors import InputError, SchemaError

ROLES: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["price", "cost"]}


def table(**columns: Any) -> dict[str, Any]:
    """Two sets of two alternatives with costs 0, 1, 2, 3 and prices 1, 3, 2, 4."""
    rows = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "cost": [0.0, 1.0, 2.0, 3.0], "price": [1.0, 3.0, 2.0, 4.0]}
    return rows | columns


def read(rows: dict[str, Any], **roles: Any) -> ChoiceData:
    return ChoiceData.from_long(rows, **{**ROLES, **roles})


def residuals(stage: pn.ControlFunction) -> list[float]:
    values: list[float] = stage.data.features["price_residual"].plain().tolist()
    return values


def test_a_first_stage_by_hand() -> None:
    """Costs 0, 1, 2, 3 and prices 1, 3, 2, 4: slope 4 / 5 = 0.8, intercept 2.5 - 0.8 * 1.5 = 1.3.

    The predictions are 1.3, 2.1, 2.9 and 3.7, the residuals -0.3, 0.9, -0.9 and 0.3, and R-squared is 1 - 1.8 / 5.
    """
    stage = pn.control_function(read(table()), "price", instruments=["cost"])
    np.testing.assert_allclose(stage.coefficients, [1.3, 0.8], rtol=1e-12)
    np.testing.assert_allclose(residuals(stage), [-0.3, 0.9, -0.9, 0.3], rtol=1e-6)  # stored in float32
    assert abs(stage.r_squared - (1 - 1.8 / 5)) < 1e-12
    assert stage.f_statistic > 1e6  # the scores of the two sets cancel out in the slope, so its variance is 0


def test_a_first_stage_by_hand_with_weights() -> None:
    """Weights 1 and 3 of the two sets, with means 11.5 / 8 ... the normal equations are solved by hand.

    Sums of weights, costs, squares, prices and products: 8, 1 + 15 = 16, 1 + 39 = 40, 4 + 18 = 22, 3 + 48 = 51. Slope
    (8 * 51 - 16 * 22) / (8 * 40 - 16^2) = 56 / 64 = 0.875, intercept (22 - 0.875 * 16) / 8 = 1.
    """
    stage = pn.control_function(read(table(w=[1, 1, 3, 3]), weight="w"), "price", instruments=["cost"])
    assert stage.names == ("constant", "cost")
    np.testing.assert_allclose(stage.coefficients, [1.0, 0.875], rtol=1e-12)
    np.testing.assert_allclose(residuals(stage), [0, 1.125, -0.75, 0.375], atol=1e-6)  # stored in float32
    # scores by set, (1.125, 1.125) and 3 (-0.375, -0.375); inverse of the normal matrix [[40, -16], [-16, 8]] / 64
    influence = np.array([[40, -16], [-16, 8]]) / 64 @ np.array([[1.125, -1.125], [1.125, -1.125]])
    np.testing.assert_allclose(stage.covariance, influence @ influence.T, rtol=1e-12)
    np.testing.assert_allclose(stage.f_statistic, 0.875**2 / (influence @ influence.T)[1, 1], rtol=1e-12)


def full_market(sets: int = 400, seed: int = 0) -> ChoiceData:
    return ChoiceData.from_long(market.simulate(sets, seed=seed), **market.ROLES)


def test_the_first_stage_is_least_squares_on_all_other_columns() -> None:
    data = full_market()
    stage = pn.control_function(data, "price", instruments=["cost"])
    assert data.labels is not None
    assert stage.names == ("constant", "product: a", "product: b", "advertising", "cost")
    dummies = (data.labels.codes[:, None] == np.arange(2)).astype(float)
    columns = [np.ones(len(data.rows)), *dummies.T, *(data.features[n].plain() for n in ("advertising", "cost"))]
    price = data.features["price"].plain().astype(float)
    expected = np.linalg.lstsq(np.column_stack(columns), price, rcond=None)[0]
    np.testing.assert_allclose(stage.coefficients, expected, rtol=1e-9)
    assert list(stage.data.features) == ["price", "advertising", "price_residual"]
    assert 0.6 < stage.r_squared < 0.7  # 0.6^2 + 0.3^2 of 0.7 is the variance of cost and advertisement
    assert stage.f_statistic > 1_000
    assert "F of the instruments" in str(stage)
    frame = stage.to_frame()
    assert frame["coefficient"].tolist() == stage.coefficients.tolist()
    np.testing.assert_allclose(frame["z"], stage.coefficients / np.sqrt(np.diag(stage.covariance)))


def test_categories_and_individual_columns_are_regressors() -> None:
    rng = np.random.default_rng(0)
    n = 60
    table = {
        "trip": np.repeat(np.arange(n), 2),
        "cost": rng.normal(size=2 * n),
        "price": rng.normal(size=2 * n),
        "kind": rng.choice(["x", "y"], 2 * n),
        "income": np.repeat(rng.normal(size=n), 2),
    }
    roles = {"choice_set": "trip", "features": ["price", "cost", "kind"], "individual": ["income"], "chosen": None}
    stage = pn.control_function(read(table, **roles), "price", instruments=["cost"])
    assert set(stage.names) == {"constant", "income", "cost"} | ({"kind: x", "kind: y"} & set(stage.names))
    assert sum(name.startswith("kind") for name in stage.names) == 1  # the other is 1 minus this one
    assert stage.f_statistic < 10
    assert "biased towards" in stage.caveats[0]


def test_new_tables_get_the_residual_of_the_same_first_stage() -> None:
    data = full_market()
    train, test = data.subset(np.arange(300)), data.subset(np.arange(300, 400))
    stage = pn.control_function(train, "price", instruments=["cost"])
    again = stage.apply(train)
    assert again.fingerprint() == stage.data.fingerprint()
    applied = stage.apply(test)
    assert applied.schema == stage.data.schema
    x = np.column_stack([test.features[n].plain() for n in ("advertising", "cost")])
    constants = stage.coefficients[0] + np.append(stage.coefficients[1:3], 0)[test.labels.codes]  # type: ignore[union-attr]
    expected = test.features["price"].plain() - constants - x @ stage.coefficients[3:]
    np.testing.assert_allclose(applied.features["price_residual"].plain(), expected, atol=1e-5)  # float32
    with pytest.raises(SchemaError, match="column 'cost' of the first stage is not in the table"):
        stage.apply(applied)


def test_outside_options_have_no_residual() -> None:
    rows = table(w=[1, 1, 3, 3], took=[1, 0, 0, 0])
    with_option = read(rows, weight="w", outside="none")
    without = read(table(w=[1, 1, 3, 3]), weight="w")
    first, second = (pn.control_function(data, "price", instruments=["cost"]) for data in (without, with_option))
    np.testing.assert_allclose(first.coefficients, second.coefficients, rtol=1e-12)
    assert np.isnan(residuals(second)).tolist() == [False, False, True, False, False, True]


@pytest.fixture(scope="module")
def stage() -> pn.ControlFunction:
    return pn.control_function(full_market(1_500), "price", instruments=["cost"])


def test_the_control_function_corrects_the_price_coefficient(stage: pn.ControlFunction) -> None:
    """The naive coefficient is about half of the true one; the corrected one is within three standard errors."""
    naive = pn.MNL(formula="price + advertising").fit(stage.source)
    model = pn.MNL(formula="price + advertising + price_residual").fit(stage.data)
    assert abs(naive.coefficients["price"] / market.PRICE - 0.5) < 0.1
    assert abs(model.coefficients["price"] - market.PRICE) < 3 * model.standard_errors()["price"]
    assert not model.sign_caveats  # the residual does not look like a price


def test_the_bootstrap_estimates_the_first_stage_too(stage: pn.ControlFunction) -> None:
    """The first replicate is the logit fitted to the residual of a first stage with the same random weights."""
    model = pn.MNL(formula="price + advertising + price_residual").fit(stage.data)
    options: dict[str, Any] = {"replicates": 2, "progress": False, "workers": 1}
    both = pn.bootstrap(model, stage.data, lambda m: m.coefficients, first_stage=stage, **options)
    second = pn.bootstrap(model, stage.data, lambda m: m.coefficients, **options)
    from pcmcnet.data.resampling import resample

    drawn = resample(stage.source, np.random.SeedSequence(0).spawn(1)[0])
    refitted = stage.refit(drawn.weights)
    np.testing.assert_allclose(
        refitted.coefficients, pn.control_function(drawn, "price", instruments=["cost"]).coefficients
    )
    expected = pn.MNL(formula="price + advertising + price_residual", reference="c").fit(refitted.data)
    np.testing.assert_allclose(both.draws[0], list(expected.coefficients.values()), rtol=1e-5)  # Newton's tolerance
    assert abs(both.draws[0] - second.draws[0]).max() > 1e-3
    with pytest.raises(InputError, match=r"fit it to first_stage\.data"):
        pn.bootstrap(
            model, stage.data, len, first_stage=pn.control_function(full_market(), "price", instruments=["cost"])
        )
    with pytest.raises(InputError, match="expected a ControlFunction, got int"):
        pn.bootstrap(model, stage.data, len, first_stage=3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_estimates_are_unbiased_over_many_markets() -> None:
    """Over ten markets, the mean is within 5% of the truth, and the naive mean is off by more than 30%."""
    naive, corrected = [], []
    for seed in range(10):
        stage = pn.control_function(full_market(1_500, seed), "price", instruments=["cost"])
        naive.append(pn.MNL(formula="price + advertising").fit(stage.source).coefficients["price"])
        model = pn.MNL(formula="price + advertising + price_residual").fit(stage.data)
        corrected.append(model.coefficients["price"])
    assert abs(np.mean(corrected) / market.PRICE - 1) < 0.05
    assert abs(np.mean(naive) / market.PRICE - 1) > 0.3


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"instruments": []}, InputError, "expected at least one column, got none. Name columns that change the price"),
        ({"instruments": "cost"}, InputError, r"write \['cost'\]"),
        ({"instruments": ["costs"]}, SchemaError, r"instruments: 'costs' is not a numeric feature.*mean 'cost'"),
        ({"instruments": ["price"]}, InputError, "is the price itself"),
        ({"instruments": ["cost"], "price": "prize"}, SchemaError, "price: 'prize' is not a numeric feature"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.control_function(read(table()), **{"price": "price", **arguments})


def test_tables_without_a_first_stage_are_refused() -> None:
    with pytest.raises(InputError, match="data: expected ChoiceData, got dict"):
        pn.control_function({}, "price", instruments=["cost"])  # type: ignore[arg-type]
    stage = pn.control_function(read(table()), "price", instruments=["cost"])
    with pytest.raises(InputError, match="data: expected ChoiceData, got dict: read the table as that of the first"):
        stage.apply(table())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the other columns of the table determine 'cost'"):
        pn.control_function(read(table(cost=[2.0] * 4)), "price", instruments=["cost"])
    with pytest.raises(InputError, match="the other columns determine 'price'"):
        pn.control_function(read(table(price=[0.0, 2.0, 4.0, 6.0])), "price", instruments=["cost"])
    with_residual = read(table(price_residual=[0.0] * 4), features=["price", "cost", "price_residual"])
    with pytest.raises(SchemaError, match="already has a column 'price_residual'"):
        pn.control_function(with_residual, "price", instruments=["cost"])
    with pytest.raises(SchemaError, match="'cost': a control function needs complete columns"):
        pn.control_function(read(table(cost=[0.0, None, 2.0, 3.0]), missing="indicator"), "price", instruments=["cost"])


def test_a_replicate_with_other_weights_keeps_its_sets(stage: pn.ControlFunction) -> None:
    other = stage.refit(stage.source.weights)
    assert other.data.fingerprint() == stage.data.fingerprint()
    doubled = stage.refit(2 * stage.source.weights)
    np.testing.assert_allclose(doubled.coefficients, stage.coefficients, rtol=1e-10)
    assert replace(doubled.data, weights=stage.data.weights).fingerprint() == stage.data.fingerprint()
