"""Known market shares: every kind of model reaches them, can be saved, and answers scenarios."""

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
def test_the_shares_are_reached_and_kept(model: ChoiceModel, data: ChoiceData, tmp_path: Path) -> None:
    model.fit(data, progress=False)
    before = model.predict_proba(data)
    found = calibrate_constants(model, data, SHARES)
    np.testing.assert_array_equal(model.predict_proba(data), before)  # it stays as it is
    after = scenario(load(found.save(tmp_path / "model")), data, "remove A where x > 0", intervals=False)
    assert {row.group: row.before for row in after.shares.rows} == pytest.approx(SHARES, abs=1e-7)
    assert after.shares["A"].after != after.shares["A"].before


def test_a_logit_has_other_constants_and_nothing_else(data: ChoiceData) -> None:
    model = pn.MNL().fit(data)
    found: Any = calibrate_constants(model, data, SHARES)
    assert isinstance(found, pn.MNL)
    changed = {name for name, value in found.coefficients.items() if value != model.coefficients[name]}
    assert changed == {name for name in model.coefficients if name.startswith("constant[")}
    assert found.standard_errors() == model.standard_errors()
    assert "calibrated to the shares A 0.15, B 0.35, C 0.3, D 0.2; measures of fit are those before calibration" in str(
        found.summary()
    )
    shown = {row[0]: row[2:] for row in found.summary().rows}
    assert shown["constant[B]"] == ("calibrated", "", "")
    assert shown["x"][0] != "calibrated"
    assert scenario(found, data, "x += 1 where mode == 'A'", cost="x").consumer_surplus.low is not None
    again: Any = calibrate_constants(found, data, SHARES)
    assert again.coefficients == pytest.approx(found.coefficients)


def test_in_a_logit_the_constants_are_those_of_the_wrapper(data: ChoiceData) -> None:
    """P(i) exp(d) / sum is the logit with d more in its constants."""
    model = pn.MNL().fit(data)
    wrapped = pn.WithConstants(pn.MNL(), SHARES).fit(data)
    found = calibrate_constants(model, data, SHARES)
    np.testing.assert_allclose(found.predict_proba(data), wrapped.predict_proba(data), atol=1e-9)


def test_what_has_no_constants_is_refused(data: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"the formula 'x \| 0' has no constants to shift: fit it with '\| 1'"):
        calibrate_constants(pn.MNL(formula="x | 0").fit(data), data, SHARES)
    with pytest.raises(InputError, match="RankBy returns a ranking"):
        calibrate_constants(pn.RankBy("x").fit(data), data, SHARES)
    with pytest.raises(InputError, match="expected a fitted model such as MNL, got int"):
        calibrate_constants(3, data, SHARES)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'Z' is not a label of the table"):
        calibrate_constants(pn.MNL().fit(data), data, {**SHARES, "Z": 0.1, "A": 0.05})


def test_moved_constants_are_no_estimates_in_any_class_and_after_loading(data: ChoiceData, tmp_path: Path) -> None:
    model = pn.LatentClassMNL(formula="x", classes=2, membership="1", starts=1).fit(data)
    found: Any = load(calibrate_constants(model, data, SHARES).save(tmp_path / "model"))
    assert model.calibrated_constants == ()
    assert found.calibrated_constants == tuple(name for name in model.coefficients if ": constant[" in name)
    assert len(found.calibrated_constants) == 6


def test_constants_in_willingness_to_pay_space_are_refused_for_what_they_are(data: ChoiceData) -> None:
    model = pn.MNL(formula="x + y", wtp_space="x").fit(data)
    with pytest.raises(InputError, match=r"in willingness-to-pay space, constants are multiplied by .* of 'x' and"):
        calibrate_constants(model, data, SHARES)
