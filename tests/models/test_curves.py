"""Binned numbers: networks fit nonlinear effects with them; other models use the plain numbers."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, SchemaError
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.models import MNL, Ensemble, PCMCNet, PointerNetwork, RandomForest, load
from pcmcnet.models.networks.network_slopes import network_slopes

KINDS = {"hour": "piecewise", "age": "spline"}
SMALL: dict[str, Any] = {"hidden": (8,), "epochs": 6, "weight_decay": 0.0, "lr": 0.02, "batch_size": 16}


def table(sets: int = 300, n: int = 3, seed: int = 0) -> dict[str, Any]:
    """Departures are attractive or not in alternating intervals of three hours. Price matters less to old people."""
    rng = np.random.default_rng(seed)
    hour, price = rng.uniform(0, 24, (sets, n)), rng.normal(size=(sets, n))
    age = rng.uniform(20, 80, (sets, 1))
    utility = 3 * np.sin(2 * np.pi * hour / 6) - (age < 50) * price + rng.gumbel(size=(sets, n))
    return {
        "id": np.repeat(np.arange(sets), n),
        "y": (utility == utility.max(1, keepdims=True)).ravel().astype(int),
        "hour": hour.ravel(),
        "price": price.ravel(),
        "age": np.repeat(age, n),
    }


def read(values: dict[str, Any], kinds: Any = KINDS, **more: Any) -> ChoiceData:
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": ["hour", "price"], "individual": ["age"]}
    return ChoiceData.from_long(values, **roles, kinds=kinds, **more)


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(table())


@pytest.fixture(scope="module")
def fitted(data: ChoiceData) -> PCMCNet:
    return PCMCNet(**SMALL).fit(data, progress=False)


def test_bins_let_a_small_network_fit_an_oscillating_effect(fitted: PCMCNet) -> None:
    test = table(seed=1)
    plain = PCMCNet(**SMALL).fit(read(table(), kinds={}), progress=False)
    spline = PCMCNet(**SMALL).fit(read(table(), kinds={"hour": "spline"}), progress=False)
    assert fitted.score(read(test)) > plain.score(read(test, kinds={})) + 0.2
    assert spline.score(read(test, kinds={"hour": "spline"})) > plain.score(read(test, kinds={})) + 0.2


def test_a_saved_network_gives_the_same_probabilities(fitted: PCMCNet, data: ChoiceData, tmp_path: Path) -> None:
    again = load(fitted.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(data), fitted.predict_proba(data))
    assert again.schema.kinds == KINDS
    assert np.array_equal(again.predict_proba(table()), fitted.predict_proba(data))


@pytest.mark.parametrize("kind", [MNL, pytest.param(RandomForest, marks=pytest.mark.slow)])
def test_other_models_use_the_plain_number(kind: Any, data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        model = kind().fit(data, progress=False)
    assert not caplog.text
    plain = read(table(), kinds={})
    assert model.schema.features == ("hour", "price")
    assert np.array_equal(model.predict_proba(data), kind().fit(plain, progress=False).predict_proba(plain))


@pytest.mark.parametrize("kind", [PointerNetwork, lambda **o: Ensemble(PCMCNet(**o), 2)])
def test_other_networks_and_wrappers_use_bins(kind: Any, data: ChoiceData, tmp_path: Path) -> None:
    model = kind(epochs=1, weight_decay=1.0).fit(data, progress=False)
    assert np.array_equal(load(model.save(tmp_path / "model")).predict_proba(data), model.predict_proba(data))


def test_missing_numbers_are_treated_as_in_other_columns() -> None:
    gaps = table()
    gaps["hour"] = np.where(np.arange(900) % 7 == 0, np.nan, gaps["hour"])
    with pytest.raises(SchemaError, match="column 'hour', row 0"):
        read(gaps)
    data = read(gaps, missing="indicator")
    model = PCMCNet(**SMALL).fit(data, progress=False)
    assert "piecewise → 18" in model.diagram()
    assert np.isfinite(model.score(data))


def test_constant_columns_are_harmless() -> None:
    data = read(table() | {"hour": np.ones(900), "age": np.ones(900)})
    assert np.isfinite(PCMCNet(**SMALL).fit(data, progress=False).score(data))


def test_copies_of_an_alternative_share_its_probability(fitted: PCMCNet) -> None:
    rows = {"id": [0, 0], "hour": [3.0, 8.0], "price": [0.1, 0.2], "age": [30, 30]}
    copied = {"id": [0] * 4, "hour": [3.0, 3.0, 8.0, 8.0], "price": [0.1, 0.1, 0.2, 0.2], "age": [30] * 4}
    expected = np.repeat(fitted.predict_proba(rows) / 2, 2)
    np.testing.assert_allclose(fitted.predict_proba(copied), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("column", ["hour", "age", "price"])
def test_slopes_agree_with_differences(fitted: PCMCNet, column: str) -> None:
    values = {k: np.asarray(v[:12], np.float64) for k, v in table(seed=3).items()}
    data = read(values)
    slopes = network_slopes(fitted, data, column)
    step = 0.02
    high, low = (fitted.predict_log_proba(values | {column: values[column] + by}) for by in (step, -step))
    whole = (high - low) / (2 * step)  # all alternatives of a set change
    result = slopes if column == "age" else slopes.reshape(-1, 3, 3).sum(2).ravel()
    # differences of float32 log-probabilities, some of them across a knot
    assert np.quantile(np.abs(result - whole), 0.7) < 2e-3 * (1 + np.abs(whole).max())


def test_binned_columns_have_elasticities(fitted: PCMCNet, data: ChoiceData) -> None:
    assert np.isfinite(np.asarray(elasticity(fitted, data.subset(np.arange(20)), "hour").own)).all()


def test_custom_modules_are_for_contents_only() -> None:
    from torch import nn

    with pytest.raises(ConfigError, match="encoders includes 'hour', which is not a content column"):
        PCMCNet(encoders={"hour": nn.Identity()}).fit(read(table()), progress=False)


def test_numbers_in_an_untyped_file_are_read_as_numbers(tmp_path: Path) -> None:
    rows = table(4)
    lines = [
        ",".join(rows),
        *(",".join(map(str, row)) for row in zip(*(np.ravel(v) for v in rows.values()), strict=True)),
    ]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    data = read(tmp_path / "table.csv")  # type: ignore[arg-type]
    assert data.features["hour"].kind == "numeric"
    assert data.without_contents().schema.kinds == KINDS


def test_text_is_refused_as_a_number() -> None:
    with pytest.raises(SchemaError, match="column 'hour'"):
        read(table(2) | {"hour": ["a", "b", "c", "d", "e", "f"]})
