"""Slopes by central differences agree with the closed form of the logit, for any size of sets and chunks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, PCMCNet, RankBy
from pcmcnet.data.columns.ragged import ordered_pairs, spread, sum_by_set
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight import elasticity as module
from pcmcnet.insight.elasticity import chunk_positions, slopes

FORMULA = "price + time + price:income"


@pytest.fixture(scope="module")
def model(driven: ChoiceData) -> MNL:
    fitted: MNL = MNL(formula=FORMULA).fit(driven)
    return fitted


def test_slopes_of_a_logit_have_their_closed_form(model: MNL, driven: ChoiceData) -> None:
    """d log p_i / d x_j = (1{i = j} - p_j) dv_j / dx_j."""
    b, p = model.coefficients, driven.from_rows(model.predict_proba(driven))
    income = spread(driven.individual["income"].values.astype(float), driven.offsets)  # type: ignore[union-attr]
    i, j = ordered_pairs(driven.offsets)
    expected = ((i == j) - p[j]) * (b["price"] + b["price:income"] * income)[j]
    for result in (slopes(model, driven, "price"), slopes(model, driven, "price", method="differences", step=1e-4)):
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-8)


def test_an_individual_column_changes_all_alternatives(model: MNL, driven: ChoiceData) -> None:
    """d log p_i / d income = b x_i - sum_m p_m b x_m."""
    p, x = driven.from_rows(model.predict_proba(driven)), driven.features["price"].values.astype(float)  # type: ignore[union-attr]
    u = model.coefficients["price:income"] * x
    expected = u - spread(sum_by_set(p * u, driven.offsets), driven.offsets)
    for result in (slopes(model, driven, "income"), slopes(model, driven, "income", method="differences", step=1e-4)):
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("column", ["price", "income"])
def test_chunk_size_does_not_change_differences(
    model: MNL, driven: ChoiceData, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = slopes(model, driven, column, method="differences")
    monkeypatch.setattr(module, "MAX_ROWS_PER_CALL", 40)
    np.testing.assert_allclose(slopes(model, driven, column, method="differences"), whole, rtol=0, atol=1e-12)


def test_chunks_contain_every_position_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS_PER_CALL", 10)
    parts = list(chunk_positions(np.array([4, 4, 4, 25, 1, 1, 9])))
    assert np.concatenate(parts).tolist() == list(range(7))
    assert len(parts) > 2
    assert list(chunk_positions(np.empty(0, np.int64))) == []


@pytest.mark.parametrize("labels", [True, False])
def test_slopes_of_a_network_agree_with_differences(make_driven: Callable[..., ChoiceData], labels: bool) -> None:
    data = make_driven(labels=labels)
    model = PCMCNet(hidden=(8, 8), activation="tanh", epochs=5, weight_decay=1.0).fit(data, progress=False)
    for column in ("price", "time", "income"):
        expected = slopes(model, data, column, method="differences", step=0.003)
        x = {**data.individual, **data.features}[column].values.mean()  # type: ignore[union-attr]
        result = slopes(model, data, column)
        # float32 has log p to 1e-7, divided by a step of 0.3 %; the curvature adds the square of the step.
        np.testing.assert_allclose(result * x, expected * x, rtol=1e-3, atol=1e-4)


def test_steps_at_0_depend_on_the_typical_size() -> None:
    table = {"s": [1, 1, 2, 2, 3, 3], "took": [1, 0, 0, 1, 0, 1], "x": [0.0, 2.0, 1.0, -3.0, 0.0, 0.5]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x"])
    model = MNL().fit(data)
    closed, p = slopes(model, data, "x"), model.predict_proba(data)
    i, j = ordered_pairs(data.offsets)
    np.testing.assert_allclose(closed, ((i == j) - p[j]) * model.coefficients["x"], rtol=1e-8)
    result = slopes(model, data, "x", method="differences", step=1e-4)
    np.testing.assert_allclose(result, closed, rtol=1e-6)


def test_missing_values_have_slope_0() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 5, 40)
    x[::7] = np.nan
    table = {"s": np.repeat(np.arange(20), 2), "took": np.tile([1, 0], 20), "x": x, "y": rng.random(40)}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x", "y"], missing="indicator")
    missing = np.isnan(x)[ordered_pairs(data.offsets)[1]]
    for model in (
        MNL(formula="x + y").fit(data),
        PCMCNet(hidden=(4,), epochs=2, weight_decay=0.0).fit(data, progress=False),
    ):
        for method in ("auto", "differences"):
            result = slopes(model, data, "x", method=method)  # type: ignore[arg-type]
            assert (result[missing] == 0).all()
            assert (result[~missing] != 0).any()


def test_slopes_of_a_ranking_are_differences_of_the_order() -> None:
    """Prices 1.0 and 1.05 swap their order within 10 %, so p goes from 1 to 0; 1 and 9 do not."""
    table = {"s": [1, 1, 2, 2], "took": [1, 0, 1, 0], "price": [1.0, 1.05, 1.0, 9.0]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["price"])
    result = slopes(RankBy("price").fit(data), data, "price")
    np.testing.assert_allclose(result, [-1 / 0.2, 1 / 0.21, 0, 0, 0, 0, 0, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "magic"}, ConfigError, "unknown method"),
        ({"step": 0.0}, ConfigError, "step must be"),
        ({"step": 1.0}, ConfigError, "step must be"),
        ({"method": "derivatives"}, InputError, "no derivatives: use method='differences'"),
    ],
)
def test_invalid_options_are_rejected(
    driven: ChoiceData, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        slopes(RankBy("price").fit(driven), driven, "price", **options)
