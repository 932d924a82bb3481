"""Constants by label: a value by hand, shares that are reached, the saved form, and invalid input."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choice_tables import item_choices, logit_choices, read
from pcmcnet import (
    MNL,
    BradleyTerry,
    Calibrated,
    ChoiceData,
    Ensemble,
    RandomForest,
    Uniform,
    WithConstants,
    load,
)
from pcmcnet.errors import ArtifactError, ConfigError, InputError, TrainingError
from pcmcnet.insight.elasticity import slopes
from pcmcnet.models.with_constants import find_constants


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(logit_choices(80, {"x": -1.0}), alternative="mode", features=["x"])


def shares_of(model: Any, data: ChoiceData) -> dict[str, float]:
    p, labels = data.from_rows(model.predict_proba(data)), data.labels
    assert labels is not None
    mass = np.bincount(labels.codes, p * np.repeat(data.weights, data.sizes)) / data.weights.sum()
    return dict(zip(labels.categories, mass.tolist(), strict=True))


def test_the_constants_of_two_labels_are_those_found_by_hand() -> None:
    """Both are always available and equal. A share of 80% for a needs odds of 4, so a constant of log 4."""
    data = item_choices([("ab", "a"), ("ab", "b")])
    result = find_constants(Uniform().fit(data), data, {"b": 0.2, "a": 0.8})
    assert result == {"b": 0.0, "a": pytest.approx(math.log(4))}


@given(raw=st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4))
def test_all_feasible_shares_are_reached(raw: list[float]) -> None:
    """Sets of two and three of four items, so that availability differs; weights 1 to 3."""
    sets = ["abc", "bcd", "acd", "abd", "ab", "cd", "ad", "bc"] * 3
    data = item_choices([(s, s[k % len(s)]) for k, s in enumerate(sets)], [1 + k % 3 for k in range(len(sets))])
    logit = np.exp(np.array(raw) * 3)
    table = np.array([[label in s for label in "abcd"] for s in sets]) * logit
    target = np.average(table / table.sum(axis=1, keepdims=True), axis=0, weights=data.weights)
    shares = dict(zip("abcd", target.tolist(), strict=True))
    model = Uniform().fit(data)
    result = WithConstants(model, shares, constants=find_constants(model, data, shares))
    assert shares_of(result, data) == pytest.approx(shares, abs=1e-9)
    assert [result.constants_[x] - result.constants_["a"] for x in "abcd"] == pytest.approx(
        (3 * (np.array(raw) - raw[0])).tolist(), abs=1e-6
    )


def test_a_wrapper_is_fitted_saved_and_summarised(data: ChoiceData, tmp_path: Path) -> None:
    shares = {"A": 0.4, "B": 0.3, "C": 0.2, "D": 0.1}
    model = WithConstants(RandomForest(trees=5), shares).fit(data, progress=False)
    assert shares_of(model, data) == pytest.approx(shares, abs=1e-7)
    back = load(model.save(tmp_path / "model"))
    assert isinstance(back, WithConstants)
    assert back.config == model.config
    np.testing.assert_array_equal(back.predict_proba(data), model.predict_proba(data))
    assert str(model.summary()).startswith("RandomForest with constants\n")
    assert "A 0.4, B 0.3, C 0.2, D 0.1" in str(model.summary())
    assert model.num_parameters == model.model_.num_parameters + 3


def test_slopes_agree_with_differences(data: ChoiceData) -> None:
    inner = MNL(formula="x").fit(data)
    model = WithConstants(inner, {"A": 0.4, "B": 0.3, "C": 0.2, "D": 0.1}, constants={"A": 0, "B": 1, "C": -1, "D": 2})
    np.testing.assert_allclose(slopes(model, data, "x"), slopes(model, data, "x", method="differences"), atol=1e-3)
    forest = WithConstants(RandomForest(trees=5).fit(data), model.config.shares, constants=model.constants_)
    assert forest._slopes(data, "x") is None


@pytest.mark.parametrize(
    ("shares", "problem"),
    [
        ({}, "expected the known share of each label"),
        ({"A": 0.5, "B": 0.6}, "expected a sum of 1, got 1.1"),
        ({"A": 1.0, "B": 0.0}, "the share of 'B' must be a number above 0"),
    ],
)
def test_invalid_shares_are_refused(shares: dict[str, float], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        WithConstants("mnl", shares)


def test_infeasible_shares_and_unsupported_models_are_refused(data: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"shares: 'Z' is not a label of the table"):
        WithConstants("uniform", {"Z": 1.0}).fit(data)
    with pytest.raises(InputError, match="expected a share for each label of the table, got none for 'C', 'D'"):
        WithConstants("uniform", {"A": 0.5, "B": 0.5}).fit(data)
    with pytest.raises(InputError, match=r"a share of 0.97 for 'A' is not possible: .* available in only 0\.\d+"):
        WithConstants("uniform", {"A": 0.97, "B": 0.01, "C": 0.01, "D": 0.01}).fit(data)
    few = item_choices([("ab", "a"), ("ab", "a"), ("c", "c")])
    with pytest.raises(TrainingError, match="no constants reproduce these shares"):
        WithConstants("uniform", {"a": 0.4, "b": 0.4, "c": 0.2}).fit(few)
    plain = read(logit_choices(20, {"x": -1.0}), features=["x"])
    with pytest.raises(InputError, match="read the table with alternative"):
        WithConstants(MNL(), {"A": 1.0}).fit(plain)
    with pytest.raises(ConfigError, match="gives a ranking"):
        WithConstants("rank-by", {"A": 1.0}, options={"column": "x"})
    with pytest.raises(ConfigError, match="constants require a fitted model"):
        WithConstants("mnl", {"A": 1.0}, constants={"A": 0.0})
    model = WithConstants(MNL(formula="x | 0").fit(data), {"A": 0.5, "B": 0.5}, constants={"A": 0.0, "B": 1.0})
    with pytest.raises(InputError, match=r"the label 'C' has no constant"):
        model.predict_proba(data)


def test_altered_constants_are_refused(data: ChoiceData) -> None:
    model = WithConstants("uniform", {"A": 0.4, "B": 0.3, "C": 0.2, "D": 0.1}).fit(data)
    files = model._files()
    with pytest.raises(ArtifactError, match="the saved constants are not all finite numbers"):
        model._restore({**files, "constants.json": json.dumps({"A": "x"}).encode()}, model.record_, model.table_)


def test_a_wrapper_holds_options_and_one_record(data: ChoiceData) -> None:
    """Properties that other models declare in their class come from the inner model."""
    shares = {"A": 0.4, "B": 0.3, "C": 0.2, "D": 0.1}
    around: Any
    for around in (
        WithConstants("bradley-terry", shares),
        Ensemble("bradley-terry", 2),
        Calibrated(WithConstants("bradley-terry", shares)),
        Calibrated(BradleyTerry().fit(data), 2.0),
    ):
        around.fit(data, data if around.stops_early else None)
        assert set(vars(around)) == {"config", "fitted_", "_inner_extras"}
        assert (around.gives, around.order_matters, around.reads_contents) == ("probabilities", False, False)
    assert around.record_ == around.model_.record_ == BradleyTerry().fit(data).record_
    assert Ensemble("rf", 2).gives == "scores"
    assert WithConstants("boosted", shares).stops_early
    assert not WithConstants("uniform", shares).stops_early
