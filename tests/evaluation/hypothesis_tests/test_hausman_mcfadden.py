from dataclasses import replace

import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, ChoiceData, NestedMNL, calibrate_constants
from pcmcnet.datasets import packaged
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests import hausman_mcfadden
from pcmcnet.models.logit.standard_errors import Errors


@pytest.fixture(scope="module")
def travel() -> ChoiceData:
    """Greene's 210 travellers between Sydney and Melbourne, with the household income as a feature of the flight."""
    rows = packaged.load("modechoice")
    table = {name: rows[name].to_numpy() for name in rows.column_names}
    table["mode"] = np.array(["", "air", "train", "bus", "car"])[table["mode"].astype(int)]
    table["flyer"] = np.where(table["mode"] == "air", table["hinc"], 0)
    return ChoiceData.from_long(
        table, choice_set="individual", chosen="choice", alternative="mode", features=["gc", "ttme", "flyer"]
    )


@pytest.fixture(scope="module")
def iia() -> ChoiceData:
    table = logit_choices(800, {"x": 1.0, "y": -0.5}, 3, sizes=(3, 4), constants=[0.0, 0.5, -0.5, 0.2])
    return read(table, alternative="mode", features=["x", "y"], person="person")


def test_the_statistic_agrees_with_statsmodels(travel: ChoiceData) -> None:
    """ConditionalLogit of statsmodels 0.15.0, fitted to all modes and to the ground modes; d' (V_r - V_f)^-1 d."""
    test = hausman_mcfadden(MNL(formula="gc + ttme + flyer", reference="car").fit(travel), travel, "air")
    assert test.statistic == pytest.approx(33.3366817790075, rel=1e-6)  # two optimisers
    assert test.degrees_of_freedom == 4
    assert test.details["coefficients"] == ["gc", "ttme", "constant[bus]", "constant[train]"]
    assert test.details["choice_sets"] == 152
    assert test.details["restricted"] == pytest.approx([-0.063682, -0.069878, 3.104744, 4.463668], abs=1e-6)
    assert test.rejected
    assert "without 'air': chi-squared = 33.337 with 4 degrees of freedom, p < 0.001" in str(test)


@pytest.mark.parametrize("errors", ["classical", "robust"])
def test_the_reference_alternative_can_be_left_out(iia: ChoiceData, errors: Errors) -> None:
    """The result does not depend on the reference. If it is left out, another alternative takes its place."""
    models = [MNL(reference=reference).fit(iia) for reference in ("A", "B", "D")]
    results = [hausman_mcfadden(model, iia, "B", errors=errors) for model in models]
    assert [test.statistic for test in results] == pytest.approx([results[0].statistic] * 3, rel=1e-6)  # three searches
    assert {test.degrees_of_freedom for test in results} == {4}


def test_iia_is_not_rejected_if_it_holds(iia: ChoiceData) -> None:
    model = MNL(errors="clustered", cluster="person").fit(iia)
    for without in ("A", ["A", "B"]):
        assert not hausman_mcfadden(model, iia, without, significance=0.01).rejected
    classical = hausman_mcfadden(model, iia, "A", errors="classical")
    assert "choices of a person are independent" in classical.notes[-1]


def test_a_difference_that_is_not_positive_definite_is_noted(travel: ChoiceData) -> None:
    test = hausman_mcfadden(MNL(formula="gc + ttme + flyer", reference="car").fit(travel), travel, "bus")
    assert test.degrees_of_freedom == 2
    assert test.notes[0].endswith("3 of 5 directions are left out of its generalised inverse")
    assert test.statistic >= 0
    whole = hausman_mcfadden(MNL(formula="gc + ttme + flyer").fit(travel), travel, "bus", errors="robust")
    assert whole.degrees_of_freedom == 5


def test_classical_errors_of_weighted_sets_are_noted(travel: ChoiceData) -> None:
    """Weights times 4 multiply the classical statistic by 4, but not the robust one."""
    tests: dict[Errors, list[float]] = {"classical": [], "robust": []}
    for weight in (1.0, 4.0):
        sets = replace(travel, weights=np.full(len(travel), weight))
        model = MNL(formula="gc + ttme + flyer", reference="car").fit(sets)
        for errors, statistics in tests.items():
            test = hausman_mcfadden(model, sets, "air", errors=errors)
            statistics.append(test.statistic)
            noted = any("classical errors are not valid for expansion weights" in note for note in test.notes)
            assert noted == (errors == "classical" and weight == 4)
    assert tests["classical"][1] == pytest.approx(4 * tests["classical"][0], rel=1e-6)  # the search ends at 1e-7
    assert tests["robust"][1] == pytest.approx(tests["robust"][0], rel=1e-6)


def test_a_test_of_more_coefficients_than_clusters_is_refused(iia: ChoiceData) -> None:
    """Four clusters determine at most three directions of four coefficients."""
    coarse = replace(iia, keep={**iia.keep, "region": iia.keep["person"].take(np.arange(800) % 4 * 4)})
    model = MNL(cluster="region").fit(coarse)
    with pytest.raises(InputError, match="a test of 4 coefficients needs more than 4 clusters, got 4"):
        hausman_mcfadden(model, coarse, "B")


def test_unsupported_tests_are_refused(iia: ChoiceData) -> None:
    model = MNL().fit(iia)
    with pytest.raises(InputError, match=r"no alternative has the label 'E'. Known: A, B, C, D"):
        hausman_mcfadden(model, iia, "E")
    with pytest.raises(InputError, match="without 'A', 'B', 'C', no choice set contains both its chosen"):
        hausman_mcfadden(model, iia, ["A", "B", "C"])
    with pytest.raises(InputError, match="expected the choice sets that the model was fitted to"):
        hausman_mcfadden(model, iia.subset(np.arange(400)), "A")
    with pytest.raises(InputError, match="needs a utility that is linear in its parameters"):
        hausman_mcfadden(MNL(formula="x", wtp_space="x").fit(iia), iia, "A")
    with pytest.raises(InputError, match="fixed, at a bound or equal to others: 'x'"):
        hausman_mcfadden(MNL(fixed={"x": 1.0}).fit(iia), iia, "A")
    nests = {"A": "one", "B": "one", "C": "two", "D": "two"}
    with pytest.raises(InputError, match=r"the test supports the multinomial logit \(MNL\) only, got NestedMNL"):
        hausman_mcfadden(NestedMNL(nests=nests).fit(iia), iia, "A")
    plain = read(logit_choices(50, {"x": 1.0}), features=["x"])
    with pytest.raises(InputError, match="labels are needed to leave alternatives out"):
        hausman_mcfadden(MNL().fit(plain), plain, "A")
    alone = read(logit_choices(50, {"x": 1.0}, sizes=(3, 3)), alternative="mode", features=["x"])
    with pytest.raises(InputError, match="clustered errors need clusters"):
        hausman_mcfadden(MNL().fit(alone), alone, "A", errors="clustered")


def test_a_nonlinear_utility_is_refused() -> None:
    table = logit_choices(200, {"x": 1.0, "y": -0.5}, sizes=(3, 3))
    data = read({**table, "x": np.exp(table["x"])}, alternative="mode", features=["x", "y"])
    model = MNL(formula="boxcox(x) + y").fit(data)
    with pytest.raises(InputError, match="the test needs a utility that is linear in its parameters"):
        hausman_mcfadden(model, data, "A")


def test_empty_without_and_calibrated_constants_are_refused(iia: ChoiceData) -> None:
    model = MNL().fit(iia)
    with pytest.raises(InputError, match="without: expected one or more labels"):
        hausman_mcfadden(model, iia, [])
    calibrated = calibrate_constants(model, iia, {"A": 0.4, "B": 0.3, "C": 0.2, "D": 0.1})
    with pytest.raises(
        InputError, match=r"the constants of this MNL were calibrated to known shares: use the model from before"
    ):
        hausman_mcfadden(calibrated, iia, "A")
