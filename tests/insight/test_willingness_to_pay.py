import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, MODELS, ChoiceData, MixedMNL, Uniform
from pcmcnet.errors import InputError
from pcmcnet.insight.willingness_to_pay import willingness_to_pay
from pcmcnet.models import ChoiceModel


@pytest.mark.parametrize("method", ["auto", "differences"])
def test_in_a_logit_it_is_a_ratio_of_coefficients(driven: ChoiceData, method: Any) -> None:
    model = MNL(formula="price + time | 0").fit(driven)
    result = willingness_to_pay(model, driven, "time", "price", by="purpose", method=method, step=1e-4)
    expected = model.willingness_to_pay("time", "price").value
    for row in result.rows:
        assert (row.low, row.median, row.high) == pytest.approx((expected,) * 3, rel=1e-5)  # steps of time in float32
        assert row.odd == 0
    assert result.ratios[result.weights > 0] == pytest.approx(expected, rel=1e-5)


def test_interactions_give_a_distribution_over_segments(driven: ChoiceData) -> None:
    """-b_time / (b_price + b_price:income income): the quartiles are those of income, weighted by sets."""
    model = MNL(formula="price + time + price:income | 0").fit(driven)
    b = model.coefficients
    many = driven.subset(driven.sizes > 1)
    income = many.individual["income"].values.astype(float)  # type: ignore[union-attr]
    worth = -b["time"] / (b["price"] + b["price:income"] * income)
    order = np.argsort(worth)
    reached = np.cumsum(many.weights[order]) / many.weights.sum()
    quartiles = [worth[order][np.searchsorted(reached, q)] for q in (0.25, 0.5, 0.75)]
    (row,) = willingness_to_pay(model, driven, "time", "price").rows
    assert [row.low, row.median, row.high] == pytest.approx(quartiles, rel=1e-6)
    assert row.left_out == pytest.approx(driven.weights[driven.sizes == 1].sum() / driven.weights.sum(), rel=1e-9)


def test_positive_price_effects_are_counted(driven: ChoiceData) -> None:
    model = MNL(formula="time + noise | 0").fit(driven)
    assert model.coefficients["time"] < 0
    sign = model.coefficients["noise"] > 0
    (row,) = willingness_to_pay(model, driven, "time", "noise").rows
    assert row.odd == float(sign)


def test_quartiles_do_not_show_how_tastes_differ() -> None:
    """100 persons choose four times between the same two routes: nine times in ten the one that they prefer.

    All sets are equal, and in a set of two both alternatives have the same ratio: that of p (1 - p) b_time to
    p (1 - p) b_price, each averaged over tastes. So there is one ratio, although tastes differ a great deal.
    """
    rng = np.random.default_rng(0)
    prefers_fast = np.repeat(np.arange(100) % 2 == 0, 4)
    fast = np.where(rng.random(400) < 0.9, prefers_fast, ~prefers_fast)
    columns = {
        "trip": np.repeat(np.arange(400), 2),
        "who": np.repeat(np.arange(400) // 4, 2),
        "time": np.tile([1.0, 2.0], 400),
        "price": np.tile([2.0, 1.0], 400),
        "taken": np.stack([fast, ~fast], axis=1).ravel(),
    }
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "taken", "features": ["time", "price"], "person": "who"}
    data = ChoiceData.from_long(columns, **roles)
    fixed = {"price": -1.0}
    model = MixedMNL(formula="time + price | 0", random={"time": "normal"}, fixed=fixed, draws=100).fit(data, seed=0)
    assert model.coefficients["sd[time]"] > 1
    (row,) = willingness_to_pay(model, data, "time", "price").rows
    assert (row.low, row.high) == pytest.approx((row.median,) * 2, rel=1e-6)


OF_LABELS_ALONE = ("uniform", "bradley-terry", "thurstone", "pcmc", "cdm")


@pytest.mark.parametrize("name", [n for n in MODELS if n not in OF_LABELS_ALONE])
def test_every_model_with_prices_has_a_willingness_to_pay(
    name: str, driven: ChoiceData, fitted: Callable[[str], ChoiceModel]
) -> None:
    model = fitted(name)
    result = willingness_to_pay(model, driven, "time", "price", by="mode")
    assert np.isfinite(result.ratios).all()
    assert result.rows
    json.dumps(result.to_dict())
    assert result.to_markdown().startswith("| time in price | quartile | median |")
    table, *caveats = str(result).split("\n\n")
    assert len(table.splitlines()) == 1 + len(result.rows)
    assert len(caveats) == bool(result.caveats)


def test_invalid_arguments_are_rejected(driven: ChoiceData) -> None:
    model = MNL(formula="price").fit(driven)
    with pytest.raises(InputError, match="'income' is an individual-level column"):
        willingness_to_pay(model, driven, "income", "price")
    with pytest.raises(InputError, match="no probability depends on 'price'"):
        willingness_to_pay(Uniform().fit(driven), driven, "time", "price")
