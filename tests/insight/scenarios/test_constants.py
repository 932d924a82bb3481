"""Calibration to known market shares: models reach them, keep them when saved, and run scenarios."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import logit_choices, read
from pcmcnet import ChoiceData, calibrate_constants, load, scenario
from pcmcnet.errors import InputError
from pcmcnet.models import ChoiceModel

SHARES = {"A": 0.15, "B": 0.35, "C": 0.3, "D": 0.2}
NESTS = {"A": "one", "B": "one", "C": "two", "D": "two"}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    table = logit_choices(150, {"x": -1.0, "y": 0.5}, constants=[0.0, 0.5, -0.5, 1.0])
    return read(table, alternative="mode", features=["x", "y"])


def models() -> list[ChoiceModel]:
    return [
        pn.MNL(),
        pn.NestedMNL(nests=NESTS),
        pn.LatentClassMNL(classes=2, membership="1", starts=1),
        pn.MixedMNL(random={"x": "normal"}, draws=20),
        pn.PCMCNet(hidden=(8,), epochs=2, weight_decay=1.0),
        pn.RandomForest(trees=5),
        pn.BradleyTerry(),
        pn.Ensemble("mnl", n=2, resample=True),
    ]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_shares_are_reached_and_survive_saving(model: ChoiceModel, data: ChoiceData, tmp_path: Path) -> None:
    model.fit(data, progress=False)
    before = model.predict_proba(data)
    calibrated = calibrate_constants(model, data, SHARES)
    np.testing.assert_array_equal(model.predict_proba(data), before)  # the original is unchanged
    after = scenario(load(calibrated.save(tmp_path / "model")), data, "remove A where x > 0", intervals=False)
    assert {row.group: row.before for row in after.shares.rows} == pytest.approx(SHARES, abs=1e-7)
    assert after.shares["A"].after != after.shares["A"].before


def test_only_the_constants_of_a_logit_change(data: ChoiceData) -> None:
    model = pn.MNL().fit(data)
    calibrated: Any = calibrate_constants(model, data, SHARES)
    assert isinstance(calibrated, pn.MNL)
    changed = {name for name, value in calibrated.coefficients.items() if value != model.coefficients[name]}
    assert changed == {name for name in model.coefficients if name.startswith("constant[")}
    assert calibrated.standard_errors() == model.standard_errors()
    assert "calibrated to the shares A 0.15, B 0.35, C 0.3, D 0.2; measures of fit are those before calibration" in str(
        calibrated.summary()
    )
    shown = {row[0]: row[2:] for row in calibrated.summary().rows}
    assert shown["constant[B]"] == ("calibrated", "", "")
    assert shown["x"][0] != "calibrated"
    assert scenario(calibrated, data, "x += 1 where mode == 'A'", cost="x").consumer_surplus.low is not None
    again: Any = calibrate_constants(calibrated, data, SHARES)
    assert again.coefficients == pytest.approx(calibrated.coefficients)


def test_a_calibrated_logit_equals_the_wrapped_logit(data: ChoiceData) -> None:
    """P(i) exp(d) / sum is the logit with d added to its constants."""
    model = pn.MNL().fit(data)
    wrapped = pn.WithConstants(pn.MNL(), SHARES).fit(data)
    calibrated = calibrate_constants(model, data, SHARES)
    np.testing.assert_allclose(calibrated.predict_proba(data), wrapped.predict_proba(data), atol=1e-9)


def test_models_without_constants_are_rejected(data: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"the formula 'x \| 0' has no constants to shift: fit a formula with '\| 1'"):
        calibrate_constants(pn.MNL(formula="x | 0").fit(data), data, SHARES)
    with pytest.raises(InputError, match="RankBy returns a ranking"):
        calibrate_constants(pn.RankBy("x").fit(data), data, SHARES)
    with pytest.raises(InputError, match="expected a fitted model such as MNL, got int"):
        calibrate_constants(3, data, SHARES)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'Z' is not a label of the table"):
        calibrate_constants(pn.MNL().fit(data), data, {**SHARES, "Z": 0.1, "A": 0.05})


def test_all_classes_mark_their_calibrated_constants_after_loading(data: ChoiceData, tmp_path: Path) -> None:
    model = pn.LatentClassMNL(formula="x", classes=2, membership="1", starts=1).fit(data)
    calibrated: Any = load(calibrate_constants(model, data, SHARES).save(tmp_path / "model"))
    assert model.calibrated_constants == ()
    assert calibrated.calibrated_constants == tuple(name for name in model.coefficients if ": constant[" in name)
    assert len(calibrated.calibrated_constants) == 6


def test_constants_in_willingness_to_pay_space_are_rejected(data: ChoiceData) -> None:
    model = pn.MNL(formula="x + y", wtp_space="x").fit(data)
    with pytest.raises(InputError, match=r"in willingness-to-pay space, constants are multiplied by .* of 'x' and"):
        calibrate_constants(model, data, SHARES)
