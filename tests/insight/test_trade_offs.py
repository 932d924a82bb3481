"""Trade-offs between features."""

from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, RankBy
from pcmcnet.errors import InputError
from pcmcnet.insight.willingness_to_pay import choose_reference, main_trade_offs, trade_offs
from pcmcnet.models.ensemble import Ensemble


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    rng = np.random.default_rng(0)
    price, time, comfort = rng.uniform(1, 9, 120), rng.uniform(10, 60, 120), rng.normal(size=120)
    u = (-0.6 * price - 0.05 * time + 0.4 * comfort + rng.gumbel(size=120)).reshape(60, 2)
    table: dict[str, Any] = {
        "trip": np.repeat(np.arange(60), 2),
        "took": (np.arange(2) == u.argmax(1)[:, None]).astype(int).ravel(),
        "time": time,
        "price": price,
        "comfort": comfort,
    }
    return ChoiceData.from_long(
        table,
        choice_set="trip",
        chosen="took",
        features=["time", "price", "comfort"],
        columns={"price": {"unit": "EUR"}},
    )


def test_in_a_logit_trade_offs_are_ratios_of_coefficients(data: ChoiceData) -> None:
    """With b_time, b_price < 0, a longer ride is offset by a lower price: -b_time / b_price < 0."""
    model = MNL(formula="price + time + comfort").fit(data)
    b = dict(zip(("price", "time", "comfort"), (float(row[1]) for row in model.summary().rows), strict=True))
    result = trade_offs(model, data, ["time", "comfort"], "price")
    for row in result.rows:
        expected = -b[row.column] / b["price"]
        # The summary has rounded numbers.
        assert (row.low, row.median, row.high) == pytest.approx((expected,) * 3, rel=2e-2)
        assert row.high - row.low == pytest.approx(0, abs=1e-9)
        assert (row.odd, row.ends) == (0.0, None)
    assert result.rows[0].median < 0 < result.rows[1].median
    assert result.members == 0
    assert "is offset by price" in str(result)


def test_an_ensemble_gives_an_interval_of_the_median(data: ChoiceData) -> None:
    model = Ensemble(MNL(formula="price + time"), n=3, resample=True).fit(data, progress=False)
    (row,) = trade_offs(model, data, ["time"], "price").rows
    medians = [trade_offs(member, data, ["time"], "price").rows[0].median for member in model.members_]
    assert row.ends is not None
    middle = np.mean(medians)
    assert sum(row.ends) / 2 == pytest.approx(middle, rel=1e-9)
    assert row.ends[0] < min(medians) < max(medians) < row.ends[1]


def test_trade_offs_are_expressed_in_money(data: ChoiceData) -> None:
    assert choose_reference(data, ["time", "price", "comfort"]) == "price"
    assert choose_reference(data, ["time", "comfort"]) == "time"
    result = main_trade_offs(MNL(formula="price + time + comfort").fit(data), data, ["time", "price", "comfort"])
    assert result.reference == "price"
    assert [row.column for row in result.rows] == ["time", "comfort"]
    assert result.sets == 60
    assert result.to_dict()["rows"][0]["ends"] is None


def test_models_without_trade_offs_are_rejected(data: ChoiceData) -> None:
    model = MNL(formula="time").fit(data)
    with pytest.raises(InputError, match="no probability depends on 'price'"):
        trade_offs(model, data, ["time"], "price")
    with pytest.raises(InputError, match="at least two numeric features"):
        main_trade_offs(model, data, ["time"])
    with pytest.raises(InputError, match="returns a ranking"):
        trade_offs(RankBy(column="price").fit(data), data, ["time"], "price")
