"""Consumer surplus: a common change, classes, nests, and cases without a surplus."""

from collections.abc import Callable

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, LatentClassMNL, NestedMNL, scenario
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.errors import InputError
from pcmcnet.models import ChoiceModel

NESTS = {"car": "road", "bus": "road", "bike": "light", "train": "rail"}


def logits() -> list[ChoiceModel]:
    options = {"formula": "price + time"}
    return [
        MNL(**options),
        NestedMNL(**options, nests=NESTS),
        LatentClassMNL(**options, classes=2, membership="income", starts=1),
    ]


@pytest.mark.parametrize("model", logits(), ids=lambda model: model.name)
def test_a_price_rise_for_all_costs_exactly_its_amount(model: ChoiceModel, driven: ChoiceData) -> None:
    """If all alternatives cost 2 more, everyone loses 2 in every model, and no share changes."""
    result = scenario(model.fit(driven, progress=False), driven, "price += 2", cost="price", intervals=False)
    assert result.consumer_surplus.mean == pytest.approx(-2, rel=1e-5)  # columns are float32
    assert result.consumer_surplus.total == pytest.approx(-2 * driven.weights.sum(), rel=1e-5)
    assert all(row.change == pytest.approx(0, abs=1e-6) for row in result.shares.rows)


@pytest.mark.parametrize("model", logits(), ids=lambda model: model.name)
def test_a_small_price_rise_costs_its_share(model: ChoiceModel, driven: ChoiceData) -> None:
    """Roy's identity in each class: one more cent for the car costs a cent times its share there."""
    model.fit(driven, progress=False)
    result = scenario(model, driven, "price += 0.01 where mode == 'car'", cost="price", intervals=False)
    share = result.shares["car"]
    expected = -0.01 * (share.before + share.after) / 2
    assert result.consumer_surplus.mean == pytest.approx(expected, rel=1e-3)


def test_the_marginal_utility_of_money_may_vary(driven: ChoiceData) -> None:
    """With price:income, each set has its own marginal utility: surplus = (L1 - L0) / a_S."""
    model = MNL(formula="price + price:income + time").fit(driven)
    result = scenario(model, driven, "time -= 5 where mode == 'bus'", cost="price", intervals=False)
    income = driven.individual["income"]
    assert isinstance(income, Numeric)
    a = -(model.coefficients["price"] + model.coefficients["price:income"] * income.values.astype(float))
    time = driven.features["time"].values  # type: ignore[union-attr]
    bus = driven.labels.plain() == "bus"  # type: ignore[union-attr]
    v0 = model.utilities(driven)
    v1 = v0 - 5 * model.coefficients["time"] * bus
    assert len(time) == len(bus)
    sums = [np.log(np.add.reduceat(np.exp(v), driven.offsets[:-1])) for v in (v0, v1)]
    expected = np.average((sums[1] - sums[0]) / a, weights=driven.weights)
    assert result.consumer_surplus.mean == pytest.approx(expected, rel=1e-4)


def test_intervals_follow_the_delta_method(driven: ChoiceData) -> None:
    surplus = scenario(MNL(formula="price").fit(driven), driven, "price += 2", cost="price").consumer_surplus
    # The surplus does not depend on the coefficient.
    assert (surplus.low, surplus.high) == pytest.approx((-2, -2), rel=1e-4)


@pytest.mark.parametrize(
    ("formula", "cost", "change", "problem"),
    [
        ("price", None, "price += 1", "consumer surplus needs a cost column"),
        ("price", "time", "price += 1", "the utility of MNL does not depend on 'time'"),
        (
            "log(price)",
            "price",
            "price += 1",
            "the marginal utility of 'price' is not the same for all alternatives and amounts",
        ),
        (
            " | | price",
            "price",
            "price += 1",
            "the marginal utility of 'price' is not the same for all alternatives and amounts",
        ),
        (
            "price:income",
            "price",
            "income *= 2",
            "the marginal utility of 'price' is not the same for all alternatives and amounts",
        ),
        ("price + noise", "noise", "price += 1", "a higher 'noise' raises utility for 100.0% of the people"),
    ],
)
def test_without_a_negative_cost_coefficient_there_is_no_surplus(
    formula: str, cost: str | None, change: str, problem: str, make_driven: Callable[..., ChoiceData]
) -> None:
    data = make_driven(80, seed=3)
    model = MNL(formula=formula).fit(data)
    if cost == "noise":
        assert model.coefficients["noise"] > 0
    result = scenario(model, data, change, cost=cost, intervals=False)
    with pytest.raises(InputError, match=problem):
        _ = result.consumer_surplus
    assert cost is None or any(note.startswith("no consumer surplus: ") for note in result.notes)


def test_a_change_of_class_membership_is_rejected(driven: ChoiceData) -> None:
    model = LatentClassMNL(formula="price", classes=2, membership="income", starts=1).fit(driven, progress=False)
    result = scenario(model, driven, "income *= 2", cost="price", intervals=False)
    with pytest.raises(InputError, match="the change alters class membership"):
        _ = result.consumer_surplus
