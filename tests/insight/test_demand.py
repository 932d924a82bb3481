import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, MODELS, ChoiceData
from pcmcnet.data.columns.ragged import sum_by_set
from pcmcnet.errors import InputError
from pcmcnet.insight import elasticity as asking
from pcmcnet.insight.demand import demand
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.queries import with_values
from pcmcnet.models import ChoiceModel


@pytest.fixture(scope="module")
def model(driven: ChoiceData) -> MNL:
    fitted: MNL = MNL(formula="price + time + price:income | 1").fit(driven)
    return fitted


def bus_share(model: Any, data: ChoiceData, price: Any) -> float:
    """Compute the share by hand: change the table, predict, sum with weights."""
    assert data.labels is not None
    p = data.from_rows(model.predict_proba(with_values(data, "price", price)))
    share = sum_by_set(p * (data.labels.plain() == "bus"), data.offsets)
    return float(np.average(share, weights=data.weights))


def test_points_are_predicted_shares_of_changed_tables(model: MNL, driven: ChoiceData) -> None:
    assert driven.labels is not None
    bus, x = driven.labels.plain() == "bus", driven.features["price"].values  # type: ignore[union-attr]
    scaled = demand(model, driven, "price", alternative="bus", factors=[0.5, 2.0])
    assert scaled.scaled
    np.testing.assert_allclose(
        scaled.shares[0], [bus_share(model, driven, np.where(bus, f * x, x)) for f in (0.5, 2.0)], rtol=1e-6
    )
    fixed = demand(model, driven, "price", alternative="bus", values=[1.0, 7.0])
    assert not fixed.scaled
    expected = [bus_share(model, driven, np.where(bus, v, x)) for v in (1.0, 7.0)]
    np.testing.assert_allclose(fixed.shares[0], expected, rtol=1e-6)
    assert fixed.now[0] == pytest.approx(bus_share(model, driven, x), rel=1e-12)
    assert fixed.of == "bus"


def test_demand_falls_with_the_price_and_rivals_gain(model: MNL, driven: ChoiceData) -> None:
    income = driven.individual["income"].values  # type: ignore[union-attr]
    effect = model.coefficients["price"] + model.coefficients["price:income"] * income
    assert (effect < 0).all()
    bus = demand(model, driven, "price", alternative="bus")
    assert len(bus.points) == 11
    assert (np.diff(bus.shares[0]) < 0).all()
    cross = demand(model, driven, "price", alternative="bus", of="car")
    assert (np.diff(cross.shares[0]) > 0).all()
    assert (cross.changed, cross.of) == ("bus", "car")
    assert bus.shares[0][bus.points == 1] == pytest.approx(bus.now[0], rel=1e-12)


def test_the_slope_at_1_is_the_aggregate_elasticity(model: MNL, driven: ChoiceData) -> None:
    """d log share / d log price = sum w p E / sum w p, by the definition of sample enumeration."""
    step = 1e-3
    curve = demand(model, driven, "price", alternative="bus", factors=[1 - step, 1 + step])
    slope = np.diff(np.log(curve.shares[0]))[0] / (2 * step)
    expected = elasticity(model, driven, "price").table("mode")["bus"].own
    assert slope == pytest.approx(expected, rel=1e-4)  # in float32, a step of 0.1 % has a relative error of 1e-4


def test_segment_shares_use_the_sets_of_the_segment(model: MNL, driven: ChoiceData) -> None:
    curve = demand(model, driven, "price", alternative="bus", factors=[0.5, 1.0, 2.0], by="purpose")
    assert curve.segments == ("leisure", "work")
    for k, name in enumerate(curve.segments):
        part = driven.subset(driven.individual["purpose"].plain() == name)
        alone = demand(model, part, "price", alternative="bus", factors=[0.5, 1.0, 2.0])
        np.testing.assert_allclose(curve.shares[k], alone.shares[0], rtol=1e-12)
        assert curve.weights[k] == part.weights.sum()
    whole = demand(model, driven, "price", alternative="bus", factors=[0.5, 1.0, 2.0])
    np.testing.assert_allclose(curve.weights @ curve.shares / curve.weights.sum(), whole.shares[0], rtol=1e-12)


def test_alternatives_may_be_labels_masks_or_positions(model: MNL, driven: ChoiceData) -> None:
    assert driven.labels is not None
    bus = driven.labels.plain() == "bus"
    ways = [demand(model, driven, "price", alternative=a, factors=[2.0]) for a in ("bus", bus, np.flatnonzero(bus))]
    assert ways[0].shares.tolist() == ways[1].shares.tolist() == ways[2].shares.tolist()
    first = demand(model, driven, "price", alternative=0, factors=[2.0])
    mask = np.isin(np.arange(len(driven.rows)), driven.offsets[:-1])
    assert first.shares == demand(model, driven, "price", alternative=mask, factors=[2.0]).shares
    assert first.of == "place 0"


def test_an_individual_column_changes_for_all_alternatives(model: MNL, driven: ChoiceData) -> None:
    curve = demand(model, driven, "income", alternative="bus", values=[20.0, 40.0])
    assert (curve.changed, curve.of) == ("", "bus")
    assert driven.labels is not None
    bus = driven.labels.plain() == "bus"
    for value, share in zip((20.0, 40.0), curve.shares[0], strict=True):
        p = driven.from_rows(model.predict_proba(with_values(driven, "income", np.full(len(driven), value))))
        expected = np.average(sum_by_set(p * bus, driven.offsets), weights=driven.weights)
        assert share == pytest.approx(expected, rel=1e-12)


def test_chunk_size_does_not_change_curves(model: MNL, driven: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = demand(model, driven, "price", alternative="bus")
    monkeypatch.setattr(asking, "MAX_ROWS_PER_CALL", 50)
    np.testing.assert_allclose(demand(model, driven, "price", alternative="bus").shares, whole.shares, rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_demand_curve(name: str, driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    model = fitted(name)
    curve = demand(model, driven, "price", alternative="bus", factors=[0.5, 1.0, 1.5], by="purpose")
    assert ((curve.shares >= 0) & (curve.shares <= 1)).all()
    np.testing.assert_allclose(curve.shares[:, 1], curve.now, rtol=1e-5)  # float32 networks in other batches
    json.dumps(curve.to_dict())
    assert curve.to_markdown().startswith("| price times | leisure | work |")
    assert len(str(curve).splitlines()) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alternative": "buss"}, "alternative='buss': no choice set offers this alternative. Did you mean 'bus'"),
        ({"alternative": 9}, "alternative=9: no choice set offers"),
        ({"alternative": [True, False]}, "expected a label, a position within sets"),
        ({"alternative": [1e9]}, "expected a label, a position within sets"),
        ({"alternative": [10**6]}, "expected a label, a position within sets"),
        ({"alternative": "bus", "of": "kar"}, "of='kar'"),
        ({"alternative": "bus", "factors": [1.0], "values": [1.0]}, "got both"),
        ({"alternative": "bus", "factors": []}, "a list of finite numbers"),
        ({"alternative": "bus", "values": [np.nan]}, "a list of finite numbers"),
        ({"alternative": "bus", "by": "comfort"}, "varies within choice sets"),
    ],
)
def test_invalid_arguments_are_rejected(model: MNL, driven: ChoiceData, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        demand(model, driven, "price", **options)


def test_a_label_needs_labels(make_driven: Callable[..., ChoiceData]) -> None:
    data = make_driven(labels=False)
    with pytest.raises(InputError, match="the table has no labels"):
        demand(MNL(formula="price").fit(data), data, "price", alternative="bus")
