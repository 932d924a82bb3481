from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet import Calibrated, Ensemble, PCMCNet, RankBy, Uniform, compare, evaluate, load
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, NotFittedError
from pcmcnet.models.calibrated import MAX_TEMPERATURE, Temperature, apply_temperature, find_temperature


def test_probabilities_are_raised_to_a_power_within_sets(trips: ChoiceData) -> None:
    """At T = 1/2: .25 and .75 become 1/16 : 9/16 = .1 and .9, and a set of one stays at 1."""
    table = {"trip": [1, 1, 2], "price": [1.0, 2.0, 3.0]}
    data = ChoiceData.from_long(table, choice_set="trip", features=["price"])
    log_p = np.log([0.25, 0.75, 1.0])
    np.testing.assert_allclose(np.exp(apply_temperature(log_p, data, 0.5)), [0.1, 0.9, 1.0], rtol=1e-12)
    assert apply_temperature(log_p, data, 3.0)[2] == 0


def test_temperature_1_changes_no_bit(fitted: PCMCNet, trips: ChoiceData) -> None:
    same = Calibrated(fitted, 1.0)
    np.testing.assert_array_equal(same.predict_log_proba(trips), fitted.predict_log_proba(trips))
    np.testing.assert_array_equal(same.predict(trips), fitted.predict(trips))
    assert same.score(trips) == fitted.score(trips)
    assert evaluate(same, trips, seed=1).to_dict() == evaluate(fitted, trips, seed=1).to_dict()


def test_a_temperature_keeps_the_order_and_the_sums(fitted: PCMCNet, trips: ChoiceData) -> None:
    hot, cold = Calibrated(fitted, 3.0), Calibrated(fitted, 0.4)
    np.testing.assert_array_equal(hot.predict(trips), fitted.predict(trips))
    for model in (hot, cold):
        sums = np.add.reduceat(trips.from_rows(model.predict_proba(trips)), trips.offsets[:-1])
        np.testing.assert_allclose(sums, 1, rtol=1e-12)
        assert (model.predict_proba(trips)[trips.hidden_rows] == 0).all()
    best = [np.maximum.reduceat(trips.from_rows(m.predict_proba(trips)), trips.offsets[:-1]) for m in (hot, cold)]
    assert (best[0] <= best[1]).all()
    assert hot.num_parameters == fitted.num_parameters + 1


def test_the_temperature_is_a_local_optimum(fitted: PCMCNet, trips: ChoiceData) -> None:
    result = find_temperature(fitted, trips)
    assert result.nll_before == pytest.approx(-fitted.score(trips), rel=1e-12)
    assert result.nll_after == pytest.approx(-Calibrated(fitted, result.value).score(trips), rel=1e-12)
    assert result.nll_after < result.nll_before  # type: ignore[operator]
    for factor in (0.5, 0.97, 1.03, 2.0):
        assert -Calibrated(fitted, result.value * factor).score(trips) > result.nll_after  # type: ignore[operator]


def test_a_uniform_model_keeps_temperature_1(trips: ChoiceData) -> None:
    result = find_temperature(Uniform().fit(trips), trips)
    assert result.value == 1
    assert result.nll_before == result.nll_after


def test_sets_of_weight_0_do_not_count(fitted: PCMCNet, trips: ChoiceData) -> None:
    half = np.arange(len(trips)) % 2 == 0
    object.__setattr__(muted := trips.subset(np.arange(len(trips))), "weights", trips.weights * half)
    assert find_temperature(fitted, muted).value == pytest.approx(
        find_temperature(fitted, trips.subset(half)).value, rel=1e-6
    )


def test_choices_of_probability_0_are_refused(trips: ChoiceData) -> None:
    class Sure(Uniform):
        def _log_proba(self, data: ChoiceData) -> Any:
            return np.where(np.arange(len(data.rows)) % 2 == 0, -np.inf, 0.0)

    with pytest.raises(InputError, match="of the choices have probability 0"):
        find_temperature(Sure().fit(trips), trips)


def test_a_fit_learns_the_temperature_from_the_validation_part(trips: ChoiceData, quick: dict[str, Any]) -> None:
    train, valid = trips.split((0.6, 0.4), seed=0)
    model = Calibrated(PCMCNet(**quick)).fit(train, valid, seed=3, progress=False)
    alone = PCMCNet(**quick).fit(train, valid, seed=3, progress=False)
    assert model.temperature_ == find_temperature(alone, valid)
    assert len(model.history) == len(alone.history)
    with pytest.raises(InputError, match="pass valid to fit"):
        Calibrated(PCMCNet(**quick)).fit(train, progress=False)
    models = {"plain": PCMCNet(**quick), "calibrated": Calibrated(PCMCNet(**quick))}
    rows = compare(models, trips, split=(0.7, 0.3), valid=0.3, resamples=0, progress=False).rows
    assert [row.error for row in rows] == [None, None]
    assert rows[0].values["top_1"] == rows[1].values["top_1"]
    assert rows[0].values["nll"] != rows[1].values["nll"]


@pytest.mark.parametrize("kind", ["network", "ensemble"])
def test_a_saved_model_is_loaded_unchanged(
    kind: str, fitted: PCMCNet, trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    inside = fitted if kind == "network" else Ensemble(PCMCNet(**quick), 2).fit(trips, progress=False)
    model = Calibrated(inside, Temperature(1.3, 0.9, 0.8))
    back = load(model.save(tmp_path / "model"))
    assert isinstance(back, Calibrated)
    assert back.temperature_ == model.temperature_
    assert back.config == model.config
    np.testing.assert_array_equal(back.predict_log_proba(trips), model.predict_log_proba(trips))
    assert str(back.summary()) == str(model.summary())
    assert "0.9000 before, 0.8000 after" in str(back.summary())


def test_an_invalid_temperature_is_refused(fitted: PCMCNet, trips: ChoiceData, tmp_path: Path) -> None:
    for wrong in (0.0, -1.0, float("nan"), "hot"):
        with pytest.raises(ConfigError, match="temperature must be a number above 0"):
            Calibrated(fitted, wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="requires a fitted model"):
        Calibrated("mnl", 2.0)
    with pytest.raises(ConfigError, match="gives a ranking"):
        Calibrated(RankBy("price"))
    with pytest.raises(NotFittedError, match="this PCMCNet is not fitted"):
        Calibrated(PCMCNet(), 2.0)
    with pytest.raises(NotFittedError, match="this Calibrated is not fitted"):
        Calibrated(PCMCNet()).predict_proba(trips)
    spoilt = Calibrated(fitted, 2.0)
    state: Any = spoilt.require_fitted().state
    spoilt.fitted_ = replace(spoilt.require_fitted(), state=replace(state, temperature=Temperature(-2.0)))
    folder = spoilt.save(tmp_path / "model")
    with pytest.raises(ArtifactError, match=r"temperature above 0, got -2.0"):
        load(folder)


def test_a_temperature_at_the_end_of_its_range_is_a_caveat(fitted: PCMCNet) -> None:
    assert Calibrated(fitted, 2.0).caveats == ()
    assert Calibrated(fitted, MAX_TEMPERATURE).caveats == ("the temperature is at a boundary of the search range",)
