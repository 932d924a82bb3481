"""Consumer surplus: the value of a common change, classes, nests, and when there is none."""

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
def test_a_sum_of_money_for_everybody_is_worth_itself(model: ChoiceModel, driven: ChoiceData) -> None:
    """If all alternatives cost 2 more, everybody loses 2, whatever the model, and no share changes."""
    found = scenario(model.fit(driven, progress=False), driven, "price += 2", cost="price", intervals=False)
    assert found.consumer_surplus.mean == pytest.approx(-2, rel=1e-5)  # columns are float32
    assert found.consumer_surplus.total == pytest.approx(-2 * driven.weights.sum(), rel=1e-5)
    assert all(row.change == pytest.approx(0, abs=1e-6) for row in found.shares.rows)


@pytest.mark.parametrize("model", logits(), ids=lambda model: model.name)
def test_a_small_change_is_worth_its_share(model: ChoiceModel, driven: ChoiceData) -> None:
    """Roy's identity in each class: one more cent for the car costs a cent times its share there."""
    model.fit(driven, progress=False)
    found = scenario(model, driven, "price += 0.01 where mode == 'car'", cost="price", intervals=False)
    share = found.shares["car"]
    expected = -0.01 * (share.before + share.after) / 2
    assert found.consumer_surplus.mean == pytest.approx(expected, rel=1e-3)


def test_the_value_of_money_may_differ_between_people(driven: ChoiceData) -> None:
    """With price:income the marginal utility is that of each set: surplus = (L1 - L0) / a_S."""
    model = MNL(formula="price + price:income + time").fit(driven)
    found = scenario(model, driven, "time -= 5 where mode == 'bus'", cost="price", intervals=False)
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
    assert found.consumer_surplus.mean == pytest.approx(expected, rel=1e-4)


def test_intervals_are_those_of_the_delta_method(driven: ChoiceData) -> None:
    surplus = scenario(MNL(formula="price").fit(driven), driven, "price += 2", cost="price").consumer_surplus
    assert (surplus.low, surplus.high) == pytest.approx((-2, -2), rel=1e-4)  # it does not depend on the coefficient


@pytest.mark.parametrize(
    ("formula", "cost", "change", "problem"),
    [
        ("price", None, "price += 1", "consumer surplus needs a cost column"),
        ("price", "time", "price += 1", "the utility of MNL does not depend on 'time'"),
        (
            "log(price)",
            "price",
            "price += 1",
            "the marginal utility of 'price' differs between alternatives or amounts",
        ),
        (
            " | | price",
            "price",
            "price += 1",
            "the marginal utility of 'price' differs between alternatives or amounts",
        ),
        (
            "price:income",
            "price",
            "income *= 2",
            "the marginal utility of 'price' differs between alternatives or amounts",
        ),
        ("price + noise", "noise", "price += 1", "a higher 'noise' raises the utility of 100.0% of the people"),
    ],
)
def test_without_a_value_of_money_there_is_none(
    formula: str, cost: str | None, change: str, problem: str, make_driven: Callable[..., ChoiceData]
) -> None:
    data = make_driven(80, seed=3)
    model = MNL(formula=formula).fit(data)
    if cost == "noise":
        assert model.coefficients["noise"] > 0
    found = scenario(model, data, change, cost=cost, intervals=False)
    with pytest.raises(InputError, match=problem):
        _ = found.consumer_surplus
    assert cost is None or any(note.startswith("no consumer surplus: ") for note in found.notes)


def test_people_must_stay_in_their_classes(driven: ChoiceData) -> None:
    model = LatentClassMNL(formula="price", classes=2, membership="income", starts=1).fit(driven, progress=False)
    found = scenario(model, driven, "income *= 2", cost="price", intervals=False)
    with pytest.raises(InputError, match="the change moves people between classes"):
        _ = found.consumer_surplus
