import json
from typing import Any

import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import Calibrated, PCMCNet, RankBy
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import log_softmax_by_set
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.calibration import Calibration, calibrate, calibration, equal_bins
from pcmcnet.models import Uniform


class Logit(Uniform):
    """Utilities -cost times a factor; a factor above 1 makes the model overconfident."""

    sureness = 1.0

    def _log_proba(self, data: ChoiceData) -> Any:
        return log_softmax_by_set(-self.sureness * data.features["cost"].values.astype(np.float64), data.offsets)


def choices(sets: int, seed: int = 0) -> ChoiceData:
    """Draw choices of a logit with utilities -cost; costs have a standard deviation of 1.5."""
    table = logit_choices(sets, {"cost": -1.5}, seed)
    return read(table | {"cost": 1.5 * table["cost"]}, features=["cost"])


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return choices(2000)


def fitted(data: ChoiceData, sureness: float) -> Logit:
    model: Logit = Logit().fit(data)
    model.sureness = sureness
    return model


@pytest.fixture(scope="module")
def calibrated(data: ChoiceData) -> Calibration:
    return calibration(fitted(data, 1.0), data, resamples=400)


@pytest.fixture(scope="module")
def overconfident(data: ChoiceData) -> Calibration:
    return calibration(fitted(data, 3.0), data, resamples=400)


# -- curves --------------------------------------------------------------------------------------------------------


def test_the_curve_of_a_small_table_matches_values_by_hand() -> None:
    """Set 1 (weight 2): .2, chosen, and .8. Set 2 (weight 1): .4 and .6, chosen. Two bins of weight 3 each.

    Bin 1 holds .2 (chosen, weight 2) and .4 (weight 1): predicted .8/3, observed 2/3. Bin 2: .6 (chosen, 1), .8 (2).
    The favourites are .6 (weight 1, right) and .8 (weight 2, wrong).
    """

    class ColumnModel:
        def predict_log_proba(self, data: ChoiceData) -> Any:
            return np.log([0.2, 0.8, 0.4, 0.6])

    table = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "weight": [2, 2, 1, 1]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", weight="weight")
    found = calibration(ColumnModel(), data, bins=2, resamples=0)
    curve = found.alternatives
    np.testing.assert_allclose(curve.predicted, [0.8 / 3, 2.2 / 3], rtol=1e-12)
    np.testing.assert_allclose(curve.observed, [2 / 3, 1 / 3], rtol=1e-12)
    np.testing.assert_allclose(curve.share, [0.5, 0.5], rtol=1e-12)
    assert curve.error == pytest.approx(0.4, rel=1e-12)
    np.testing.assert_allclose(found.first.predicted, [0.6, 0.8], rtol=1e-12)
    assert found.first.observed.tolist() == [1.0, 0.0]
    assert found.first.error == pytest.approx((0.4 * 1 + 0.8 * 2) / 3, rel=1e-12)
    assert curve.low.tolist() == curve.high.tolist() == curve.observed.tolist()


def test_the_true_model_is_calibrated(calibrated: Calibration) -> None:
    for curve in (calibrated.alternatives, calibrated.first):
        inside = (curve.low <= curve.predicted) & (curve.predicted <= curve.high)
        assert inside.sum() >= 8  # of the ten intervals at 95 %
        # With 200 sets per bin, a share has a standard deviation of at most 0.035.
        assert curve.error < 0.04


def test_an_overconfident_model_is_detected(calibrated: Calibration, overconfident: Calibration) -> None:
    assert overconfident.alternatives.error > 3 * calibrated.alternatives.error
    assert overconfident.first.error > 0.1
    assert (overconfident.first.observed < overconfident.first.predicted)[-5:].all()
    assert (overconfident.first.high < overconfident.first.predicted)[-3:].all()


def test_bins_have_equal_weight_and_increase(calibrated: Calibration) -> None:
    # 6,000 alternatives are not divided exactly.
    np.testing.assert_allclose(calibrated.alternatives.share, 0.1, atol=0.001)
    assert (np.diff(calibrated.alternatives.predicted) > 0).all()
    assert calibrated.n_sets == 2000
    curve = calibrated.alternatives
    # Both sum to 1 in each set.
    assert curve.share @ curve.predicted == pytest.approx(curve.share @ curve.observed, rel=1e-9)


def test_intervals_shrink_with_the_number_of_sets(data: ChoiceData) -> None:
    model = fitted(data, 1.0)
    few, many = (calibration(model, part, 5, resamples=200).alternatives for part in (data.subset(range(200)), data))
    # A tenth of the sets: about sqrt(10) = 3.2 times the width.
    assert 2 < np.mean(few.high - few.low) / np.mean(many.high - many.low) < 5


def test_equal_values_share_a_bin() -> None:
    assert equal_bins(np.array([0.5] * 6), np.ones(6), 3).tolist() == [0] * 6
    assert equal_bins(np.arange(6.0), np.ones(6), 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert equal_bins(np.arange(3.0), np.array([4.0, 1.0, 1.0]), 2).tolist() == [0, 1, 1]


def test_sets_of_one_alternative_or_weight_0_are_ignored(data: ChoiceData) -> None:
    part = data.subset(range(50))
    table = {"trip": [0, 1, 1], "took": [1, 1, 0], "cost": [1.0, 2.0, 1.0]}
    alone = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    model = fitted(data, 1.0)
    assert calibration(model, alone, resamples=0).n_sets == 1
    object.__setattr__(muted := part.subset(range(50)), "weights", (np.arange(50) < 30).astype(float))
    ours = calibration(model, muted, resamples=50)
    theirs = calibration(model, part.subset(range(30)), resamples=50)
    assert ours.to_dict() == theirs.to_dict()
    with pytest.raises(InputError, match="every choice set has a single alternative"):
        calibration(model, alone.subset([0]))


def test_a_calibration_survives_json_and_depends_on_its_seed(data: ChoiceData) -> None:
    model = fitted(data, 1.0)
    found = [calibration(model, data, 4, seed, resamples=100).to_dict() for seed in (0, 0, 1)]
    assert json.loads(json.dumps(found[0])) == found[0]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_models_that_cannot_be_calibrated_are_rejected(data: ChoiceData) -> None:
    ranking = RankBy("cost").fit(data)
    for ask in (calibration, calibrate):
        with pytest.raises(InputError, match="RankBy returns a ranking"):
            ask(ranking, data)  # type: ignore[operator]
    with pytest.raises(ConfigError, match="bins must be a whole number of at least 1"):
        calibration(fitted(data, 1.0), data, bins=0)
    with pytest.raises(InputError, match="expected a fitted model"):
        calibrate("mnl", data)  # type: ignore[arg-type]


# -- temperature ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sureness", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_the_scale_of_utilities(sureness: float, data: ChoiceData) -> None:
    """T = k corrects utilities that are k times too large."""
    found = calibrate(fitted(data, sureness), data).temperature_
    assert found.value == pytest.approx(sureness, rel=0.1)  # three standard errors of 2,000 sets
    assert found.nll_before is not None
    assert found.nll_after is not None
    assert found.nll_after <= found.nll_before


def test_calibration_corrects_an_overconfident_model(data: ChoiceData, overconfident: Calibration) -> None:
    part, other = data.split((0.5, 0.5), seed=0)
    model = fitted(data, 3.0)
    repaired = calibrate(model, part)
    assert repaired.temperature_.value > 1
    assert isinstance(repaired, Calibrated)
    assert repaired.model_ is model
    assert repaired.score(other) > model.score(other)
    assert calibration(repaired, other, resamples=0).first.error < 0.4 * overconfident.first.error


@pytest.mark.parametrize("seed", range(5))
def test_the_nll_of_the_calibration_part_never_rises(seed: int) -> None:
    data = choices(20, seed)
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0, batch_size=4).fit(data, seed=seed, progress=False)
    found = calibrate(model, data)
    assert found.score(data) >= model.score(data)


def test_a_table_is_read_by_the_models_schema(data: ChoiceData) -> None:
    table = {"trip": [0, 0, 1, 1], "took": [1, 0, 0, 1], "cost": [1.0, 2.0, 1.0, 3.0]}
    model = fitted(data, 1.0)
    direct = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    assert calibrate(model, table).temperature_ == calibrate(model, direct).temperature_
    assert calibration(model, table, resamples=0).to_dict() == calibration(model, direct, resamples=0).to_dict()
