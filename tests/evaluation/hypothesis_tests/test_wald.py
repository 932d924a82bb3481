import numpy as np
import pytest

from choice_tables import PANEL, logit_choices, panel, read
from pcmcnet import MNL, ChoiceData, LatentClassMNL, MixedMNL, NestedMNL, Uniform, calibrate_constants
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests import wald


@pytest.fixture(scope="module")
def modes() -> ChoiceData:
    table = logit_choices(240, {"x": 1.0, "y": 0.6}, sizes=(3, 4), constants=[0.0, 0.5, -0.5, 0.2])
    return read(table, alternative="mode", features=["x", "y"], person="person")


@pytest.fixture(scope="module")
def model(modes: ChoiceData) -> MNL:
    return MNL(formula="x/10 + y", reference="A").fit(modes)


def test_one_hypothesis_has_the_square_of_the_z_statistic(model: MNL) -> None:
    """(1.1 - b) / se, where 1.1 is a hypothesis about y."""
    for errors in ("classical", "robust", "clustered"):
        test = wald(model, "y = 1.1", errors=errors)
        error = model.standard_errors(errors)["y"]
        assert test.statistic == pytest.approx(((model.coefficients["y"] - 1.1) / error) ** 2, rel=1e-10)
        assert test.degrees_of_freedom == 1
    assert wald(model, "y = 1.1").details["errors"] == "clustered"
    assert wald(model, "y = 0").p_value == pytest.approx(model.estimates().loc["y", "p"], rel=1e-8)


def test_joint_linear_hypotheses_have_the_quadratic_form_computed_by_hand(model: MNL) -> None:
    names = list(model.coefficients)
    R = np.zeros((2, len(names)))
    R[0, names.index("constant[B]")], R[0, names.index("constant[D]")] = 1, -1
    R[1, names.index("constant[C]")], R[1, names.index("y")] = 2, 1
    r = R @ model.estimates_.values - [0, 0.5]
    expected = r @ np.linalg.inv(R @ model.covariance("robust") @ R.T) @ r
    hypotheses = ["constant[B] = constant[D]", "2 * constant[C] + y - 0.5 = 0"]
    test = wald(model, hypotheses, errors="robust")
    assert test.statistic == pytest.approx(expected, rel=1e-10)
    assert (test.degrees_of_freedom, test.details["values"]) == (2, pytest.approx(r))
    assert test.p_value == pytest.approx(np.exp(-expected / 2), rel=1e-8)  # chi-squared with 2 degrees of freedom
    assert "The joint hypothesis 'constant[B] = constant[D]', '2 * constant[C] + y - 0.5 = 0' " in str(test)
    assert wald(model, hypotheses[::-1], errors="robust").statistic == pytest.approx(expected, rel=1e-10)


def test_a_whole_side_needs_no_backticks(model: MNL) -> None:
    """The coefficient of x/10 is named x/10, and would otherwise be read as x divided by 10."""
    plain, quoted = wald(model, "x/10 = y"), wald(model, "`x/10` == y")
    assert plain.statistic == quoted.statistic
    assert plain.statistic == pytest.approx(wald(model, "y - `x/10` = 0").statistic, rel=1e-12)
    with pytest.raises(InputError, match="the model has no coefficient 'x'"):
        wald(model, "x/10 + 1 = y")


def test_the_statistic_of_a_ratio_is_that_of_the_delta_method_with_a_note(model: MNL) -> None:
    test = wald(model, "constant[B] / y = 1")
    b, c = model.coefficients["constant[B]"], model.coefficients["y"]
    names = list(model.coefficients)
    gradient = np.zeros(len(names))
    gradient[names.index("constant[B]")], gradient[names.index("y")] = 1 / c, -b / c**2
    variance = gradient @ model.covariance() @ gradient
    assert test.statistic == pytest.approx((b / c - 1) ** 2 / variance, rel=1e-10)
    assert any("not linear in the coefficients" in note for note in test.notes)
    assert wald(model, "constant[B] = y").notes == ()


def test_other_logits_are_tested_and_variances_have_a_note(modes: ChoiceData) -> None:
    mixed = MixedMNL(formula="x + y", random={"x": "normal"}, draws=20, starts=1).fit(modes)
    test = wald(mixed, ["sd[x] = 0", "y = 0"])
    assert any("the variance of 'sd[x]' cannot be negative" in note for note in test.notes)
    two_tastes = panel(60, lambda rng, persons: np.where(rng.random((persons, 1)) < 0.6, [[2.0, 0.0]], [[-1.0, 1.0]]))
    classes = LatentClassMNL(classes=2, starts=2, membership="1").fit(read(two_tastes, **PANEL))
    assert wald(classes, "class 1: x = class 2: x").rejected
    nests = {"A": "one", "B": "one", "C": "two", "D": "two"}
    nested = NestedMNL(formula="x + y", nests=nests, bounds=None).fit(modes)
    row = nested.estimates().loc["logsum[one]"]
    assert wald(nested, "logsum[one] = 1").statistic == pytest.approx(row["z"] ** 2, rel=1e-8)


@pytest.mark.parametrize(
    ("hypotheses", "message"),
    [
        ("y", "expected a hypothesis such as .* got 'y'"),
        ("y = ", "expected a hypothesis such as"),
        ("y = 1 = x", "expected a hypothesis such as"),
        ([], "expected a hypothesis such as .* got none"),
        ([3], "expected a hypothesis such as .* got 3"),
        ("1 = 2", "names no coefficient of the model"),
        ("z = 2", "the model has no coefficient 'z'"),
        ("y = log(constant[C] - constant[C])", "is not a finite number at the estimates"),
        (
            ["y = 0", "constant[B] = 1", "constant[B] = 2*y"],
            "'constant\\[B\\] = 2\\*y' follows from the others, or cont",
        ),
    ],
)
def test_bad_hypotheses_are_explained(model: MNL, hypotheses: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wald(model, hypotheses)


def test_coefficients_without_errors_are_refused(modes: ChoiceData, model: MNL) -> None:
    fixed = MNL(formula="x + y", fixed={"x": 1.0}).fit(modes)
    with pytest.raises(InputError, match="'x = 1' concerns only coefficients that are fixed, at a bound"):
        wald(fixed, "x = 1")
    never = modes.subset(np.flatnonzero(modes.labels.plain()[modes.offsets[:-1] + modes.chosen] != "B"))  # type: ignore[union-attr]
    unbounded = MNL(formula="x + y", reference="A").fit(never)
    with pytest.raises(InputError, match=r"without a finite estimate: 'constant\[B\]'"):
        wald(unbounded, "constant[B] = constant[C]")
    assert wald(unbounded, "x = y").degrees_of_freedom == 1
    with pytest.raises(InputError, match="Uniform is not a logit"):
        wald(Uniform().fit(modes), "x = 0")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a Wald test needs estimates"):
        wald(calibrate_constants(model, modes, {"A": 0.4, "B": 0.3, "C": 0.2, "D": 0.1}), "y = 0")


def test_more_hypotheses_than_clusters_are_refused(modes: ChoiceData) -> None:
    table = logit_choices(60, {"x": 1.0, "y": 0.6}, sizes=(3, 3))
    table["region"] = table["trip"] % 2
    few = MNL(formula="x + y", cluster="region").fit(read(table, features=["x", "y"], keep=["region"]))
    with pytest.raises(
        InputError, match="a test of 2 hypotheses with clustered errors needs more than 2 clusters, got 2"
    ):
        wald(few, ["x = 1", "y = 1"])
