"""Functions of coefficients: values by hand, gradients, simulation, and names as in the summary."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choice_tables import PANEL, logit_choices, normal_tastes, panel, read
from pcmcnet import MNL, ChoiceData, LatentClassMNL, MixedMNL, NestedMNL, Uniform, calibrate_constants, delta
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.logit.coefficient_expression import CoefficientExpression
from pcmcnet.models.logit.logit_model import LogitModel

NAMES = (
    "time",
    "cost",
    "time[car]",
    "class 1: tt",
    "time/100",
    "`odd name`",
    "log(fare)",
    "cholesky[a, b]",
    "`x y`[a]",
)
VALUES = np.array([-2.0, -0.5, 3.0, 0.25, 7.0, 11.0, 13.0, 17.0, 19.0])


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(logit_choices(300, {"time": -1.0, "cost": -0.5}, 0), features=["time", "cost"], person="person")


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> MNL:
    return MNL().fit(data)


# -- expressions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("time / cost", 4.0),
        ("-time", 2.0),
        ("time[car] - time * 2 ** 2", 11.0),
        ("2 * time[car]^2 / 3", 6.0),
        ("`class 1: tt` * 8", 2.0),
        ("`time/100`-1e1", -3.0),
        ("time/100", -0.02),
        ("exp(0 * time) + sqrt(16) * abs(cost)", 3.0),
        ("log(exp(cost))", -0.5),
        ("(time + cost) * -.5", 1.25),
        ("`odd name` + 1", 12.0),
        ("`log(fare)` + 1", 14.0),
        ("cholesky[a, b]", 17.0),
        ("`x y`[a]", 19.0),
        ("```x y``[a]`", 19.0),
    ],
)
def test_expressions_have_their_values(text: str, value: float) -> None:
    expression = CoefficientExpression.parse(text, NAMES)
    assert expression.value_and_gradient(VALUES)[0] == pytest.approx(value, rel=1e-14)
    np.testing.assert_allclose(expression.at(np.stack([VALUES, VALUES])), [value, value], rtol=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected an expression such as 'time / cost'"),
        ("tme / cost", r"no coefficient 'tme'\. Did you mean 'time'"),
        ("time /", "not valid arithmetic"),
        ("time ** ", "not valid arithmetic"),
        ("time(2)", "not valid arithmetic"),
        ("exp(time, cost)", "unexpected ',' at character 9"),
        ("time == cost", "unexpected '=' at character 6"),
        ("'time'", 'unexpected "\'" at character 1'),
        ("`time", "unclosed backtick at character 1"),
        ("1 + 2", "names no coefficient"),
        ("log(fare)", "no coefficient 'fare'.* in backticks"),
        ("(" * 900 + "time" + ")" * 900, "not valid arithmetic"),
        ("time" * 1000, "expected an expression"),
        ("__import__", "no coefficient '__import__'"),
        ("2time", "not valid arithmetic"),
        ("2e1time / cost", "not valid arithmetic"),
        ("`time`2", "not valid arithmetic"),
        ("time`cost`", "not valid arithmetic"),
    ],
)
def test_invalid_expressions_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CoefficientExpression.parse(text, NAMES)


def test_the_logarithm_of_a_coefficient_is_not_the_coefficient_of_a_logarithm() -> None:
    """With the coefficients fare = 2 and log(fare) = 5, the text log(fare) may mean log 2 or 5."""
    names, values = ("fare", "log(fare)"), np.array([2.0, 5.0])
    with pytest.raises(InputError, match=r"'log\(fare\)' is a coefficient, but also a function .* `log\(fare\)`, or"):
        CoefficientExpression.parse("log(fare) / fare", names)
    for text, value in (("`log(fare)`", 5.0), ("log(1 * fare)", math.log(2)), ("log( fare )", math.log(2))):
        assert CoefficientExpression.parse(text, names).value_and_gradient(values)[0] == pytest.approx(value, rel=1e-14)


@given(st.lists(st.floats(0.5, 3.0), min_size=9, max_size=9))
def test_gradients_agree_with_differences(values: list[float]) -> None:
    expression = CoefficientExpression.parse("exp(-time / cost) * time[car] ** 2 + log(cost) * sqrt(`time/100`)", NAMES)
    at = np.array(values)
    _, gradient = expression.value_and_gradient(at)
    steps = 1e-6 * np.eye(9)
    # central differences of second order
    np.testing.assert_allclose(gradient, (expression.at(at + steps) - expression.at(at - steps)) / 2e-6, atol=1e-6)


# -- delta method ---------------------------------------------------------------------------------------------------


def test_a_ratio_has_its_standard_error_by_hand(model: MNL) -> None:
    """f = a / b has the gradient (1 / b, -a / b^2), so var f = (v_aa - 2 f v_ab + f^2 v_bb) / b^2."""
    (a, b), v = model.estimates_.values, model.covariance()
    f = a / b
    error = math.sqrt(v[0, 0] - 2 * f * v[0, 1] + f**2 * v[1, 1]) / abs(b)
    result = delta(model, "time / cost")
    assert (result.value, result.std_error) == pytest.approx((f, error), rel=1e-12)
    assert result.interval == pytest.approx((f - 1.959963985 * error, f + 1.959963985 * error), rel=1e-9)
    assert result.z == pytest.approx(f / error, rel=1e-12)
    assert result.p == pytest.approx(math.erfc(f / error / math.sqrt(2)), rel=1e-9)
    assert result.errors == "clustered"
    wtp = model.willingness_to_pay("time", "cost")
    assert delta(model, "-time / cost").std_error == pytest.approx(wtp.error, rel=1e-6)  # a numerical gradient
    for kind in ("classical", "robust"):
        assert delta(model, "time", errors=kind).std_error == pytest.approx(
            model.standard_errors(kind)["time"], rel=1e-12
        )


def test_several_expressions_have_a_covariance(model: MNL) -> None:
    """The rows 2 a and a - b have the covariance 2 (v_aa - v_ab)."""
    result = delta(model, {"double": "2 * time", "difference": "time - cost"}, level=0.9)
    v = model.covariance()
    assert result.covariance[0, 1] == pytest.approx(2 * (v[0, 0] - v[0, 1]), rel=1e-12)
    assert [row.name for row in result] == ["double", "difference"]
    assert delta(model, {1: "time"})["1"].value == model.coefficients["time"]  # type: ignore[dict-item]
    assert result["double"].value == 2 * model.coefficients["time"]
    with pytest.raises(InputError, match=r"no expression 'doubl'\. Did you mean 'double'"):
        result["doubl"]
    with pytest.raises(InputError, match="the result has 2 rows: select one"):
        _ = result.value


def test_simulation_agrees_with_the_delta_method_for_linear_functions(model: MNL) -> None:
    """10,000 draws give a standard deviation to 0.7% and an end of the interval to 0.03 standard errors."""
    exact, drawn = (delta(model, "time - 2 * cost", method=method) for method in ("delta", "krinsky-robb"))
    assert drawn.value == exact.value
    assert drawn.std_error == pytest.approx(exact.std_error, rel=0.03)
    assert drawn.interval == pytest.approx(exact.interval, abs=0.1 * exact.std_error)
    again = delta(model, "time - 2 * cost", method="krinsky-robb")
    assert again.interval == drawn.interval
    assert delta(model, "time - 2 * cost", method="krinsky-robb", seed=1).interval != drawn.interval


def test_percentiles_of_draws_follow_monotone_functions(model: MNL) -> None:
    """The quantiles of exp(b) are exp of the quantiles of b, so the interval is not symmetric."""
    linear, curved = (delta(model, text, method="krinsky-robb") for text in ("time", "exp(time)"))
    assert curved.interval == pytest.approx([math.exp(end) for end in linear.interval], rel=1e-3)  # interpolation


def test_a_denominator_near_0_has_a_note(data: ChoiceData) -> None:
    noise = np.random.default_rng(1).normal(size=len(data.rows))
    table = {**logit_choices(300, {"time": -1.0, "cost": -0.5}, 0), "noise": noise}
    model = MNL().fit(read(table, features=["time", "noise"]))
    z = abs(model.coefficients["noise"] / model.standard_errors()["noise"])
    assert 1 < z < 3
    note = rf"time / noise: the denominator is only {z:.1f} standard errors away from 0"
    (found_note,) = delta(model, ["time / noise", "noise / time"]).notes
    assert note in found_note
    assert "krinsky-robb" in found_note
    assert "standard errors away from 0" in delta(model, "time * noise ** -1").notes[0]
    assert "standard errors away from 0" in delta(model, "time / abs(noise)").notes[0]
    assert "standard errors away from 0" in delta(model, "time * noise ** -exp(0)").notes[0]
    assert delta(model, "time * noise ** 2").notes == ()
    simulated = delta(model, "time / noise", method="krinsky-robb")
    assert "use the interval" in simulated.notes[0]
    assert np.diff(simulated.interval) > np.diff(delta(model, "time / noise").interval)


def test_every_logit_has_functions_of_its_coefficients() -> None:
    trips = read(
        logit_choices(120, {"time": -1.0, "cost": -0.5}, 0, constants=[0.0, 0.3, 0.6], sizes=(3, 3)),
        alternative="mode",
        features=["time", "cost"],
    )
    nested = NestedMNL(nests={"A": "x", "B": "x", "C": "y"}, formula="time + cost").fit(trips)
    people = read(panel(40, normal_tastes, sets=4), **PANEL)
    mixed = MixedMNL(random={"x": "normal"}, draws=20).fit(people)
    latent = LatentClassMNL(classes=2, starts=2).fit(people)
    models: dict[str, LogitModel] = {"time / cost * logsum[x]": nested, "abs(sd[x]) / x": mixed}
    models["`class 1: x` - `class 2: x`"] = latent
    for text, model in models.items():
        result = delta(model, text)
        assert 0 < result.std_error < math.inf
    b = latent.coefficients
    assert delta(latent, "`class 1: x` - `class 2: x`").value == b["class 1: x"] - b["class 2: x"]


def test_fixed_and_unbounded_coefficients_are_reported() -> None:
    table = logit_choices(200, {"time": -1.0, "cost": -0.5}, 0)
    fixed = MNL(fixed={"cost": -0.5}).fit(read(table, features=["time", "cost"]))
    result = delta(fixed, "time / cost")
    assert result.notes == ("'cost' is fixed or at its bound, and is treated as known.",)
    assert result.std_error == pytest.approx(2 * fixed.standard_errors()["time"], rel=1e-12)
    for method in ("delta", "krinsky-robb"):
        known = delta(fixed, {"double": "2 * cost", "time": "time"}, method=method)
        assert known["double"].value == -1.0
        assert np.isnan(
            [known["double"].std_error, known["double"].z, known["double"].p, *known["double"].interval]
        ).all()
        assert known["time"].std_error > 0
        assert str(known).splitlines()[7].split() == ["double", "-1", "known"]
        assert known.to_dict()["rows"][0]["z"] is None
    table["never"] = np.where(table["took"] == 1, 0.0, 1.0)  # chosen alternatives never have it
    model = MNL().fit(read(table, features=["time", "never"]))
    assert model.estimates_.unbounded
    (row,) = delta(model, "time + never")
    assert (row.std_error, row.lower, row.upper, row.p) == (math.inf, -math.inf, math.inf, 1.0)
    json.dumps(delta(model, "time + never").to_dict(), allow_nan=False)


def test_results_are_printed_and_exported(model: MNL) -> None:
    pytest.importorskip("pandas")
    result = delta(model, ["time / cost", "time"])
    assert "time / cost" in str(result)
    assert result.to_frame().loc["time / cost", "std_error"] == result["time / cost"].std_error
    assert json.loads(json.dumps(result.to_dict()))["rows"][1]["name"] == "time"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "bootstrap"}, ConfigError, "unknown method 'bootstrap'"),
        ({"level": 1.0}, ConfigError, "level must be"),
        ({"draws": 5, "method": "krinsky-robb"}, ConfigError, "draws must be"),
        ({"expressions": []}, InputError, "expected an expression such as"),
        ({"expressions": 3}, InputError, "expected an expression such as"),
        ({"expressions": "log(time)"}, InputError, "is not a finite number at the estimates"),
        (
            {"expressions": "log(time + 1.2)", "method": "krinsky-robb"},
            InputError,
            "of 10,000 draws: use method='delta'",
        ),
    ],
)
def test_invalid_arguments_are_refused(
    model: MNL, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        delta(model, **{"expressions": "time", **options})


def test_other_models_are_referred_to_the_bootstrap(data: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"Uniform is not a logit: use pn\.bootstrap"):
        delta(Uniform().fit(data), "time")  # type: ignore[arg-type]
    labelled = read(
        logit_choices(100, {"time": -1.0}, 0, constants=[0.0, 0.5], sizes=(2, 2)), alternative="mode", features=["time"]
    )
    calibrated = calibrate_constants(MNL(formula="time").fit(labelled), labelled, {"A": 0.5, "B": 0.5})
    with pytest.raises(InputError, match="delta needs estimates, but the constants of this MNL were calibrated"):
        delta(calibrated, "time")
