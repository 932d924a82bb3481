"""Part-worth tables, willingness to pay of each person, and shares of products over people."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import PANEL, normal_tastes, panel, read
from pcmcnet.errors import InputError
from pcmcnet.insight.market_shares import market_shares
from pcmcnet.insight.part_worths import part_worth_table, willingness_to_pay_by_person
from pcmcnet.models import MNL, HierarchicalMNL, MixedMNL

QUICK: dict[str, Any] = {"chains": 2, "burn_in": 20, "draws": 40, "thin": 1}
FORMULA: dict[str, Any] = {"formula": "price + brand | 0", "base": {"brand": "A"}, "min_chosen": 0}


@pytest.fixture(scope="module")
def model() -> HierarchicalMNL:
    """Return a model with known part-worths of two persons: price, brand[B], brand[C], in two equal draws."""
    rng = np.random.default_rng(0)
    rows = 240
    table = {
        "trip": np.repeat(np.arange(rows // 3), 3),
        "took": np.tile([1, 0, 0], rows // 3),
        "price": rng.permutation(np.resize([1.0, 2.0, 5.0], rows)),
        "brand": rng.choice(["A", "B", "C"], rows),
        "person": np.repeat([1, 2], rows // 2),
    }
    data = read(table, features=["price", "brand"], person="person")
    fitted = HierarchicalMNL(**FORMULA, **QUICK).fit(data, progress=False)
    worths = np.array([[-1.0, 3.0, 0.0], [-0.5, -1.0, 2.0]], np.float32)
    assert fitted.part_worth_names_ == ("price", "brand[B]", "brand[C]")
    record = fitted.require_fitted()
    state = replace(record.state, part_worths=np.repeat(worths[:, :, None], 2, axis=2))
    fitted.fitted_ = replace(record, state=state)
    return fitted


PRODUCTS = {"price": [1.0, 2.0], "brand": ["A", "B"]}


# -- part-worths ---------------------------------------------------------------------------------------------------


def test_part_worths_are_zero_centred_by_hand(model: HierarchicalMNL) -> None:
    """Brands of person 1: 0, 3, 0 with mean 1, so -1, 2, -1; range 3. Price: 4 units at -1, range 4.

    Person 2: brands 0, -1, 2 with mean 1/3, range 3; price range 2. Importances of price: 4/7 and 2/5.
    """
    table = part_worth_table(model)
    assert [(row.attribute, row.level) for row in table.rows] == [
        ("price", "per unit"), ("brand", "A"), ("brand", "B"), ("brand", "C")
    ]  # fmt: skip
    np.testing.assert_allclose(table.values, [[-1, -1, 2, -1], [-0.5, -1 / 3, -4 / 3, 5 / 3]], atol=1e-6)
    np.testing.assert_allclose(table.importances, [[4 / 7, 3 / 7], [2 / 5, 3 / 5]], atol=1e-6)
    assert table.rows[0].mean == pytest.approx(-0.75)
    assert table.rows[0].importance == pytest.approx((4 / 7 + 2 / 5) / 2)
    assert table.by_person().column_names == ["person", "price: per unit", "brand: A", "brand: B", "brand: C"]
    assert table.importances_by_person().column_names == ["person", "price", "brand"]
    assert "importance" in str(table)


def test_rescaled_part_worths_have_a_mean_range_of_100(model: HierarchicalMNL) -> None:
    table = part_worth_table(model, rescaled=True)
    brands = np.ptp(table.values[:, 1:], axis=1)
    prices = 4 * np.abs(table.values[:, 0])
    np.testing.assert_allclose((brands + prices) / 2, 100, rtol=1e-6)


def test_interactions_and_transformed_columns_are_left_out() -> None:
    data = read(panel(20, normal_tastes), **PANEL)
    fitted = HierarchicalMNL(formula="x + y + x:y", **QUICK).fit(data, progress=False)
    table = part_worth_table(fitted)
    assert table.attributes == ("x", "y")
    assert table.left_out == ("x:y",)
    only = HierarchicalMNL(formula="x:y", **QUICK).fit(data, progress=False)
    with pytest.raises(InputError, match="no main effects"):
        part_worth_table(only)


def test_willingness_to_pay_by_hand(model: HierarchicalMNL) -> None:
    """Brand B is worth 3 / 1 to person 1, and -1 / 0.5 to person 2."""
    result = willingness_to_pay_by_person(model, "price")
    assert result.names == ("brand[B]", "brand[C]")
    np.testing.assert_allclose(result.medians, [[3, 0], [-2, 4]], atol=1e-6)
    assert result.to_arrow().column_names[:4] == ["person", "wtp[brand[B]]", "low[brand[B]]", "high[brand[B]]"]
    with pytest.raises(InputError, match="no coefficient 'cost'"):
        willingness_to_pay_by_person(model, "cost")
    with pytest.raises(InputError, match="has no unit"):
        willingness_to_pay_by_person(model, "brand[B]")


def test_a_cost_with_the_wrong_sign_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    fitted = HierarchicalMNL(**QUICK).fit(read(panel(20, normal_tastes), **PANEL), progress=False)
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        willingness_to_pay_by_person(fitted, "x")
    assert "the coefficient of 'x' is not negative" in caplog.text


# -- shares --------------------------------------------------------------------------------------------------------


def test_shares_by_hand(model: HierarchicalMNL) -> None:
    """Utilities of A at 1 and B at 2: -1 and 1 for person 1, -0.5 and -2 for person 2.

    Logit: P(A) = 1 / (1 + e^2) = 0.1192 and 1 / (1 + e^-1.5) = 0.8176; first choice: B and A.
    """
    logit = market_shares(model, PRODUCTS, names="brand", price="price")
    np.testing.assert_allclose(logit.by_person[:, 0], [0.11920292, 0.81757448], atol=1e-6)
    share = (0.11920292 + 0.81757448) / 2
    assert logit["A"].share == pytest.approx(share, abs=1e-6)
    assert logit["B"].revenue == pytest.approx(2 * (1 - share), abs=1e-6)
    assert logit.revenue == pytest.approx(share + 2 * (1 - share), abs=1e-6)
    first = market_shares(model, PRODUCTS, names="brand", rule="first-choice")
    np.testing.assert_array_equal(first.by_person, [[0, 1], [1, 0]])
    assert first.revenue is None
    assert "50.0%" in str(first)


def test_unknown_levels_of_products_are_refused(model: HierarchicalMNL) -> None:
    """A misspelt brand must not get the part-worth of the reference."""
    with pytest.raises(InputError, match=r"does not know the level 'Bb' of 'brand'. .*'B'"):
        market_shares(model, {"price": [1.0, 2.0], "brand": ["A", "Bb"]})


def test_ties_are_shared(model: HierarchicalMNL) -> None:
    first = market_shares(model, {"price": [1.0, 1.0], "brand": ["A", "A"]}, rule="first-choice")
    assert [row.share for row in first.rows] == [0.5, 0.5]
    assert [row.product for row in first.rows] == ["product 1", "product 2"]


def test_shares_are_calibrated_to_known_shares(model: HierarchicalMNL) -> None:
    known = {"A": 0.3, "B": 0.7}
    calibrated = market_shares(model, PRODUCTS, names="brand", known_shares=known)
    assert calibrated["A"].share == pytest.approx(0.3, abs=2e-6)  # the tolerance of the calibration
    assert calibrated.constants["A"] == 0
    with pytest.raises(InputError, match=r"a sum of 0\.8"):
        market_shares(model, PRODUCTS, names="brand", known_shares={"A": 0.3, "B": 0.5})
    with pytest.raises(InputError, match="a share for each of A, B"):
        market_shares(model, PRODUCTS, names="brand", known_shares={"A": 0.3, "C": 0.7})
    with pytest.raises(pn.PcmcNetError, match="do not reach the known shares"):
        market_shares(model, PRODUCTS, names="brand", known_shares=known, rule="first-choice")  # two people


def test_sensitivities_are_elasticities(model: HierarchicalMNL) -> None:
    """The elasticity of the share of A in its price is mean_n b_n p_n (1 - p_n) x / mean_n p_n; a step of .001."""
    shares = market_shares(model, PRODUCTS, names="brand")
    table = shares.sensitivity("price", change=0.001)
    p = shares.by_person[:, 0]
    expected = np.mean(np.array([-1, -0.5]) * p * (1 - p)) / p.mean()
    assert table.changed == ("A", "B")
    assert table.values[0, 0] == pytest.approx(expected, rel=2e-3)
    assert table.values[0, 1] > 0
    with pytest.raises(InputError, match="'brand' is not a numeric column"):
        shares.sensitivity("brand")


def test_new_people_are_draws_from_the_population() -> None:
    """Shares of new people are the predictions of the model."""
    data = read(panel(60, normal_tastes), outside="none", **PANEL)
    products = {"x": [0.5, -0.2], "y": [0.0, 1.0]}
    for fitted in (
        HierarchicalMNL(**QUICK).fit(data, progress=False),
        MixedMNL(draws=50, starts=1).fit(data, progress=False),
    ):
        shares = market_shares(fitted, products, people="new")
        assert shares.rows[0].low is None
        assert "95%" not in str(shares)
        assert [row.product for row in shares.rows] == ["product 1", "product 2", "none"]
        one_set = read({**products, "trip": [1, 1], "took": [1, 0], "person": [1, 1]}, outside="none", **PANEL)
        predicted = fitted.population_.log_probabilities(
            fitted.design_.matrix(one_set), one_set.offsets, np.zeros((1, 0))
        )
        np.testing.assert_allclose([row.share for row in shares.rows], np.exp(predicted), atol=1e-5)
    with pytest.raises(InputError, match="people='known' needs a hierarchical logit"):
        market_shares(fitted, products)


def test_products_that_do_not_fit_are_refused(model: HierarchicalMNL) -> None:
    with pytest.raises(InputError, match="at least one row"):
        market_shares(model, {"price": [], "brand": []})
    with pytest.raises(InputError, match="'brand'"):
        market_shares(model, {"price": [1.0, 2.0]})
    with pytest.raises(InputError, match="expected 2 different names"):
        market_shares(model, PRODUCTS, names=["A", "A"])
    with pytest.raises(InputError, match="no column 'cost'"):
        market_shares(model, PRODUCTS, price="cost")
    with pytest.raises(pn.PcmcNetError, match="rule"):
        market_shares(model, PRODUCTS, rule="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="hierarchical or mixed logit, got MNL"):
        market_shares(MNL(), PRODUCTS)  # type: ignore[arg-type]
