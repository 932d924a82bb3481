import contextlib
import io
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

import choice_tables
from choice_tables import logit_choices
from pcmcnet.cli import main
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import packaged
from pcmcnet.errors import ConfigError, DatasetError, InputError, NotFittedError, SchemaError
from pcmcnet.models import MNL, load
from pcmcnet.models.logit.standard_errors import infer


def simulated(sets: int, coefficients: dict[str, float], seed: int = 0, **options: Any) -> pa.Table:
    return pa.table(logit_choices(sets, coefficients, seed, **options))


def read(table: Any, *features: str, **roles: Any) -> ChoiceData:
    return choice_tables.read(table, features=features, **roles)


# -- exact values --------------------------------------------------------------------------------------------------


def test_two_alternatives_have_the_closed_form() -> None:
    """The chosen x is larger by 1 in 3 of 4 sets: exp(b) = 3, with information 4 (3/4) (1/4)."""
    table = {"trip": [0, 0, 1, 1, 2, 2, 3, 3], "took": [1, 0] * 4, "x": [1, 0, 1, 0, 1, 0, 0, 1]}
    model = MNL().fit(read(table, "x"))
    assert model.coefficients["x"] == pytest.approx(np.log(3), rel=1e-9)
    assert model.standard_errors()["x"] == pytest.approx(np.sqrt(4 / 3), rel=1e-9)
    assert model.estimates_.log_likelihood == pytest.approx(3 * np.log(3 / 4) + np.log(1 / 4), rel=1e-12)
    assert model.estimates_.null_log_likelihood == pytest.approx(-4 * np.log(2), rel=1e-12)
    np.testing.assert_allclose(model.predict_proba(read(table, "x")), [0.75, 0.25] * 3 + [0.25, 0.75], rtol=1e-9)


def test_constants_reproduce_the_shares() -> None:
    took = np.eye(3, dtype=int)[[0, 0, 0, 0, 0, 1, 1, 1, 2, 2]].ravel()
    table = {"trip": np.repeat(np.arange(10), 3), "mode": ["car", "bus", "walk"] * 10, "took": took}
    data = read(table, alternative="mode")
    model = MNL().fit(data)
    np.testing.assert_allclose(model.predict_proba(data).reshape(10, 3), [[0.5, 0.3, 0.2]] * 10, rtol=1e-12)
    assert model.coefficients == pytest.approx({"constant[bus]": np.log(0.6), "constant[walk]": np.log(0.4)}, rel=1e-12)
    expected = 5 * np.log(0.5) + 3 * np.log(0.3) + 2 * np.log(0.2)
    assert model.estimates_.log_likelihood == pytest.approx(expected, rel=1e-12)
    assert model.estimates_.constants_log_likelihood == pytest.approx(expected, rel=1e-12)


def test_the_constants_only_likelihood_is_that_of_constants_alone() -> None:
    data = read(simulated(300, {"x": 1.0}, constants=(0, 1, -1, 0.5)), "x", alternative="mode")
    alone = MNL(formula="|").fit(data)
    both = MNL().fit(data)
    assert both.estimates_.constants_log_likelihood == pytest.approx(alone.estimates_.log_likelihood, rel=1e-10)
    assert alone.estimates_.null_log_likelihood < alone.estimates_.log_likelihood < both.estimates_.log_likelihood
    assert MNL(formula="x | 0").fit(data).estimates_.constants_log_likelihood is None


def test_the_reference_changes_only_the_constants() -> None:
    data = read(simulated(300, {"x": 1.0}, constants=(0, 1, -1, 0.5)), "x", alternative="mode")
    one, other = MNL(reference="A").fit(data), MNL(reference="C").fit(data)
    np.testing.assert_allclose(one.predict_proba(data), other.predict_proba(data), rtol=1e-6)
    assert one.coefficients["constant[C]"] == pytest.approx(-other.coefficients["constant[A]"], rel=1e-6)
    assert one.summary().facts["reference"] == "A"


def test_bounded_coefficients_agree_with_a_grid() -> None:
    """y is fixed and the bound excludes the maximum in x, so the likelihood on a grid is largest at the bound."""
    data = read(simulated(300, {"x": 1.0, "y": -0.5}), "x", "y")
    free = MNL(start={"x": 2.0}).fit(data)
    assert free.coefficients == pytest.approx(MNL().fit(data).coefficients, rel=1e-9)
    model = MNL(fixed={"y": -1.0}, bounds={"x": (0.2, 0.8)}).fit(data)
    grid = [MNL(fixed={"x": x, "y": -1.0}).fit(data).estimates_.log_likelihood for x in np.linspace(0.2, 0.8, 7)]
    assert model.coefficients == {"x": 0.8, "y": -1.0}
    assert model.estimates_.log_likelihood == pytest.approx(max(grid), rel=1e-12)
    assert grid == sorted(grid)
    assert (model.num_parameters, model.estimates_.fixed, model.estimates_.at_bound) == (1, ("y",), ("x",))
    assert [row[2] for row in model.summary().rows] == ["at its bound", "fixed"]
    y = simulated(300, {"x": 1.0, "y": -0.5}).drop_columns(["y"])
    idle = MNL(bounds={"x": (None, 3.0)}).fit(read(y, "x"))  # an inactive bound has no effect
    assert idle.estimates_.at_bound == ()
    assert idle.standard_errors() == pytest.approx(MNL().fit(read(y, "x")).standard_errors(), rel=1e-9)


def test_an_offset_corrects_for_the_sampling_of_alternatives() -> None:
    """Of 30 alternatives, the chosen one is kept, and others with a probability q that rises with x.

    Then P(sample | i) is proportional to 1 / q_i, and -log q belongs to the utility (McFadden, 1978).
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 30))
    took = np.zeros(x.shape, bool)
    took[np.arange(2000), (x + rng.gumbel(size=x.shape)).argmax(1)] = True
    q = 0.05 + 0.5 / (1 + np.exp(-2 * x))
    kept = took | (rng.random(x.shape) < q)
    trip = np.repeat(np.arange(2000), 30).reshape(x.shape)
    table = {"trip": trip[kept], "took": took[kept], "x": x[kept], "correction": -np.log(q)[kept]}
    data = read(table, "x", "correction")
    right, wrong = MNL(formula="x", offset="correction").fit(data), MNL(formula="x").fit(data)
    assert abs(right.coefficients["x"] - 1) < 3 * right.standard_errors()["x"]
    assert abs(wrong.coefficients["x"] - 1) > 10 * wrong.standard_errors()["x"]


def test_a_collinear_column_may_be_fixed() -> None:
    table = simulated(100, {"x": 1.0})
    data = read(table.append_column("twice", pa.array(2 * table["x"].to_numpy())), "x", "twice")
    with pytest.raises(InputError, match="singular design"):
        MNL().fit(data)
    alone = MNL(formula="x").fit(data).coefficients["x"]
    assert MNL(fixed={"twice": 0.1}).fit(data).coefficients["x"] == pytest.approx(alone - 0.2, rel=1e-9)


def test_bounds_do_not_hide_coefficients_without_finite_estimate() -> None:
    table = simulated(200, {"x": 1.0})
    table = table.append_column("sure", pa.array(table["took"].to_numpy() * 1.0))
    model = MNL(bounds={"x": (-1.0, 1.0)}).fit(read(table, "x", "sure"))
    assert "sure" in model.estimates_.unbounded


def test_a_weight_of_two_counts_a_set_twice() -> None:
    table = simulated(80, {"x": 1.0, "y": -0.5})
    w = np.random.default_rng(1).integers(1, 3, 80)[table["trip"].to_numpy()]
    twice = table.filter(pa.array(w == 2))
    twice = twice.set_column(0, "trip", pa.array(twice["trip"].to_numpy() + 1000))
    weighted = MNL().fit(read(table.append_column("w", pa.array(w)), "x", "y", weight="w"))
    repeated = MNL().fit(read(pa.concat_tables([table, twice]), "x", "y"))
    assert weighted.coefficients == pytest.approx(repeated.coefficients, rel=1e-6)
    assert weighted.estimates_.log_likelihood == pytest.approx(repeated.estimates_.log_likelihood, rel=1e-10)
    assert weighted.standard_errors("classical") == pytest.approx(repeated.standard_errors(), rel=1e-6)


@settings(max_examples=20)
@given(scale=st.floats(-6, 6), seed=st.integers(0, 100))
def test_scales_do_not_change_the_likelihood(scale: float, seed: int) -> None:
    table = simulated(100, {"x": 1.0, "y": -0.5}, seed)
    plain = MNL(formula="x + y").fit(read(table, "x", "y"))
    scaled = MNL(formula=f"x/{10**scale!r} + y/{10**-scale!r}").fit(read(table, "x", "y"))
    assert scaled.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, rel=1e-9)
    z, scaled_z = ([float(row[3]) for row in m.summary().rows] for m in (plain, scaled))
    assert z == pytest.approx(scaled_z, abs=0.011)  # two digits are printed
    assert not scaled.estimates_.unbounded


def test_columns_of_very_different_scales_are_estimated() -> None:
    table = simulated(500, {"x": 1.0, "y": -0.5})
    small, large = pa.array(table["x"].to_numpy() * 1e-6), pa.array(table["y"].to_numpy() * 1e6)
    plain = MNL().fit(read(table, "x", "y"))
    result = MNL().fit(read(table.set_column(3, "x", small).set_column(4, "y", large), "x", "y"))
    # The table's numbers are rounded to float32.
    assert result.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, rel=1e-6)
    assert result.coefficients["x"] == pytest.approx(1e6 * plain.coefficients["x"], rel=1e-5)


# -- known coefficients --------------------------------------------------------------------------------------------


def test_simulated_coefficients_are_recovered() -> None:
    """With 20,000 sets of different sizes, all six are within 3 standard errors."""
    true = {"x": 0.8, "y": -1.5, "z": 0.0}
    data = read(simulated(20_000, true, seed=7, constants=(0.0, 0.5, -0.5, 1.0)), *true, alternative="mode")
    model = MNL(reference="A").fit(data)
    expected = true | {"constant[B]": 0.5, "constant[C]": -0.5, "constant[D]": 1.0}
    for kind in ("classical", "robust"):
        errors = model.standard_errors(kind)
        for name, value in expected.items():
            assert abs(model.coefficients[name] - value) < 3 * errors[name], name
            assert 0.005 < errors[name] < 0.04
    # The model is correct, so both kinds of errors agree.
    assert model.standard_errors("robust") == pytest.approx(model.standard_errors("classical"), rel=0.05)


# -- singular designs ----------------------------------------------------------------------------------------------


def singular(**columns: Any) -> dict[str, Any]:
    table = simulated(60, {"x": 1.0, "y": -0.5})
    out = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    return out | {name: make(out) for name, make in columns.items()}


@pytest.mark.parametrize(
    ("formula", "make", "problem"),
    [
        ("x + c", lambda t: t["trip"] * 2.0, "'c' does not vary within any choice set"),
        ("x + c", lambda t: t["x"], "'c' is a linear combination of 'x'"),
        ("x + y + c", lambda t: t["x"] + t["y"], "'c' is a linear combination of 'x', 'y'"),
        ("x + y + c", lambda t: 0.1 * t["x"] - 7 * t["y"] + t["trip"], "'c' is a linear combination of 'x', 'y'"),
        ("x + c | 1", lambda t: (t["mode"] == "A") * 1.0, r"'constant\[.\]' is a linear combination of .*'c'"),
        ("c + square(c)", lambda t: (t["x"] > 0) * 1.0, r"'square\(c\)' is a linear combination of 'c'"),
        ("x + x:c", lambda t: np.array(["one"] * len(t["trip"])), ""),
        ("x || x", lambda t: t["x"], r"'x\[.\]' is a linear combination of 'x', 'x\[.\]'"),
    ],
)
def test_a_design_without_unique_coefficients_is_refused_by_name(formula: str, make: Any, problem: str) -> None:
    data = read(singular(c=make), "x", "y", "c", alternative="mode")
    model = MNL(formula=formula if "|" in formula else f"{formula} | 0")
    if problem:
        with pytest.raises(InputError, match=problem):
            model.fit(data)
    else:
        assert model.fit(data).num_parameters == 1  # one level has no column


# -- an independent optimiser --------------------------------------------------------------------------------------


def independent(x: Any, owner: Any, took: Any) -> tuple[float, Any, Any, Any]:
    """Return log-likelihood, coefficients, classical and robust errors, computed by scipy on padded arrays."""
    from scipy.optimize import minimize

    sets = [np.flatnonzero(owner == s) for s in np.unique(owner)]
    J, K = max(map(len, sets)), x.shape[1]
    padded, mask, chosen = np.zeros((len(sets), J, K)), np.zeros((len(sets), J), bool), np.zeros(len(sets), int)
    for s, rows in enumerate(sets):
        padded[s, : len(rows)], mask[s, : len(rows)] = x[rows], True
        chosen[s] = np.flatnonzero(took[rows])[0]

    def probabilities(b: Any) -> Any:
        v = np.where(mask, padded @ b, -np.inf)
        e = np.exp(v - v.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def loss(b: Any) -> float:
        return -float(np.log(probabilities(b)[np.arange(len(sets)), chosen]).sum())

    def scores(b: Any) -> Any:
        return padded[np.arange(len(sets)), chosen] - np.einsum("sj,sjk->sk", probabilities(b), padded)

    result = minimize(loss, np.zeros(K), jac=lambda b: -scores(b).sum(0), method="BFGS", options={"gtol": 1e-7})
    p, b = probabilities(result.x), result.x
    middle = padded - np.einsum("sj,sjk->sk", p, padded)[:, None]
    inverse = np.linalg.inv(np.einsum("sj,sjk,sjl->kl", p, middle, middle))
    meat = scores(b).T @ scores(b)
    return -result.fun, b, np.sqrt(np.diag(inverse)), np.sqrt(np.diag(inverse @ meat @ inverse))


def test_the_raw_itinerary_table_agrees_with_an_independent_optimiser() -> None:
    try:
        path = packaged.path("itinerary")
    except DatasetError as error:
        pytest.skip(str(error))
    columns = ("totalPrice", "totalTripDurationMinutes", "nFlights")
    model = MNL(formula="standardise(totalPrice) + standardise(totalTripDurationMinutes) + nFlights").fit(
        ChoiceData.from_long(path, choice_set="individual", chosen="choice", features=columns)
    )
    raw = pyarrow.csv.read_csv(path)
    x = np.column_stack([raw[name].to_numpy().astype(float) for name in columns])
    x[:, :2] = (x[:, :2] - x[:, :2].mean(0)) / x[:, :2].std(0)
    ll, b, classical, robust = independent(x, raw["individual"].to_numpy(), raw["choice"].to_numpy() == 1)
    assert model.estimates_.n_sets == 615
    assert model.estimates_.log_likelihood == pytest.approx(ll, abs=1e-4)
    # Prices are rounded to float32, and the other optimiser stops at gradients of 1e-7.
    np.testing.assert_allclose(list(model.coefficients.values()), b, rtol=1e-4)
    np.testing.assert_allclose(list(model.standard_errors().values()), classical, rtol=1e-3)
    np.testing.assert_allclose(list(model.standard_errors("robust").values()), robust, rtol=1e-3)


def test_bay_area_commutes_have_the_known_likelihood() -> None:
    """Cost, time, and income by alternative, the first model of larch's tests: -3626.18626, from -7309.60097."""
    try:
        table, schema = packaged.long_form("mtc-work")
    except DatasetError as error:
        pytest.skip(str(error))
    model = MNL(formula="totcost + tottime | hhinc", reference="1").fit(ChoiceData.from_schema(table, schema))
    assert model.estimates_.log_likelihood == pytest.approx(-3626.18626, abs=1e-4)
    assert model.estimates_.null_log_likelihood == pytest.approx(-7309.60097, abs=1e-4)
    assert model.num_parameters == 12


# -- willingness to pay --------------------------------------------------------------------------------------------


def test_willingness_to_pay_has_the_error_of_the_closed_form() -> None:
    model = MNL(errors="robust").fit(read(simulated(400, {"time": -1.0, "cost": -0.5}), "time", "cost"))
    result = model.willingness_to_pay("time", "cost")
    t, c = model.coefficients["time"], model.coefficients["cost"]
    v = model.covariance("robust")
    r = t / c
    assert result.name == "time in cost"
    assert result.value == pytest.approx(-r)  # an extra minute has a negative value
    assert result.error == pytest.approx(np.sqrt(v[0, 0] - 2 * r * v[0, 1] + r**2 * v[1, 1]) / abs(c), rel=1e-7)
    assert model.willingness_to_pay("time", "cost", "classical").error != result.error
    with pytest.raises(InputError, match=r"has no coefficient 'costs'. Did you mean 'cost'\?"):
        model.willingness_to_pay("time", "costs")


def test_willingness_to_pay_is_in_units_of_the_table() -> None:
    """b_comfort = 1 and b_cost = -0.5 give 2 per unit of comfort, whatever the formula divides by."""
    data = read(simulated(2000, {"comfort": 1.0, "cost": -0.5}), "comfort", "cost", alternative="mode")
    result = MNL(formula="comfort + cost").fit(data).willingness_to_pay("comfort", "cost")
    assert result.value == pytest.approx(2, abs=3 * result.error)
    scaled = MNL(formula="comfort/100 + cost/7").fit(data).willingness_to_pay("comfort/100", "cost/7")
    assert (scaled.value, scaled.error) == pytest.approx((result.value, result.error), rel=1e-6)
    constant = MNL(formula="comfort + cost/7", reference="A").fit(data)
    b = constant.coefficients
    assert constant.willingness_to_pay("constant[B]", "cost/7").value == pytest.approx(
        -7 * b["constant[B]"] / b["cost/7"]
    )


def test_meaningless_ratios_are_refused_or_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    table = simulated(200, {"time": -1.0, "cost": -0.5})
    table = table.set_column(table.column_names.index("cost"), "cost", pa.array(np.exp(table["cost"].to_numpy())))
    data = read(table, "time", "cost", alternative="mode")
    model = MNL(formula="time + log(cost)").fit(data)
    with pytest.raises(InputError, match=r"'log\(cost\)' is not the marginal utility of 'cost': .* is not linear"):
        model.willingness_to_pay("time", "log(cost)")
    with pytest.raises(InputError, match=r"'constant.*' has no unit in which to express willingness to pay"):
        model.willingness_to_pay("time", model.design_.names[-1])
    assert caplog.text == ""
    MNL(formula="time + cost", bounds={"cost": (0.1, None)}).fit(data).willingness_to_pay("time", "cost")
    assert "the coefficient of 'cost' is positive" in caplog.text


# -- nonlinear utilities ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def curved() -> ChoiceData:
    """v = -2 boxcox(time, 0.4) - cost + 0.5 [B], time between 0.2 and 5."""
    rng = np.random.default_rng(5)
    time, cost = rng.uniform(0.2, 5, (3000, 3)), rng.normal(size=(3000, 3))
    v = -2 * (time**0.4 - 1) / 0.4 - cost + [0, 0.5, 0]
    took = np.zeros(v.shape, np.int8)
    took[np.arange(3000), (v + rng.gumbel(size=v.shape)).argmax(1)] = 1
    table = {"trip": np.repeat(np.arange(3000), 3), "mode": ["A", "B", "C"] * 3000, "took": took.ravel()}
    return read(table | {"time": time.ravel(), "cost": cost.ravel()}, "time", "cost", alternative="mode")


def test_the_box_cox_exponent_agrees_with_a_grid_and_the_truth(curved: ChoiceData, tmp_path: Path) -> None:
    model = MNL(formula="boxcox(time) + cost", reference="A").fit(curved)
    truth = {"boxcox(time)": -2, "cost": -1, "constant[B]": 0.5, "constant[C]": 0, "lambda[time]": 0.4}
    for name, error in model.standard_errors().items():
        assert model.coefficients[name] == pytest.approx(truth[name], abs=3 * error), name
    result = model.coefficients["lambda[time]"]
    grid = {result + d: MNL(formula=f"boxcox(time, {result + d}) + cost").fit(curved) for d in (-0.02, 0.0, 0.02)}
    likelihoods = [other.estimates_.log_likelihood for other in grid.values()]
    assert max(likelihoods) == likelihoods[1] == pytest.approx(model.estimates_.log_likelihood, rel=1e-10)
    profile = (
        -(likelihoods[0] - 2 * likelihoods[1] + likelihoods[2]) / 0.02**2
    )  # the second derivative is -1 / variance
    assert model.standard_errors()["lambda[time]"] == pytest.approx(profile**-0.5, rel=0.01)
    held = MNL(formula="boxcox(time) + cost", fixed={"lambda[time]": 1.0}).fit(curved)
    assert held.estimates_.log_likelihood == pytest.approx(
        MNL(formula="time + cost").fit(curved).estimates_.log_likelihood, rel=1e-10
    )
    back = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict_proba(curved), model.predict_proba(curved))
    assert str(back.summary()) == str(model.summary())
    assert model.summary().facts["lambdas tested against"] == "1"


def test_elasticities_of_a_box_cox_column_use_its_exponent(curved: ChoiceData) -> None:
    model = MNL(formula="boxcox(time) + cost").fit(curved)
    part = curved.subset(np.arange(50))
    known_exponent = MNL(formula=f"boxcox(time, {model.coefficients['lambda[time]']!r}) + cost").fit(curved)
    ours, expected = model.elasticities(part, "time"), known_exponent.elasticities(part, "time")
    for entry, other in zip(ours.entries, expected.entries, strict=True):
        assert entry.value == pytest.approx(other.value, rel=1e-4)  # coefficients of two searches
        assert entry.error != other.error  # there, the exponent is not estimated


def test_box_cox_refuses_columns_that_are_not_positive(curved: ChoiceData) -> None:
    with pytest.raises(SchemaError, match=r"boxcox\(cost\): expected values > 0 .* in table row \d+ \(choice set"):
        MNL(formula="time + boxcox(cost)").fit(curved)


def test_wtp_space_has_the_likelihood_and_ratios_of_preference_space(curved: ChoiceData) -> None:
    """Estimates are -b_k / b_cost, and all kinds of errors are those of the delta method."""
    formula, options = "boxcox(time, 0.4) + cost", {"errors": "robust", "reference": "A"}
    space = MNL(formula=formula, wtp_space="cost", **options).fit(curved)  # type: ignore[arg-type]
    plain = MNL(formula=formula, **options).fit(curved)  # type: ignore[arg-type]
    assert space.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, rel=1e-12)
    assert [*space.coefficients] == ["wtp[boxcox(time, 0.4)]", "cost", "wtp[constant[B]]", "wtp[constant[C]]"]
    assert space.summary().facts["wtp in units of"] == "cost"
    for kind in ("classical", "robust"):
        result, b = space.standard_errors(kind), plain.estimates_
        for column, name in zip(plain.coefficients, space.coefficients, strict=True):
            at = b.position(column)
            value, error = b.delta(lambda v, at=at: v[1] if at == 1 else -v[at] / v[1], kind)  # type: ignore[misc]
            assert space.coefficients[name] == pytest.approx(float(value), rel=1e-6, abs=1e-9)
            assert result[name] == pytest.approx(float(error), rel=1e-5)
    np.testing.assert_allclose(space.predict_proba(curved), plain.predict_proba(curved), rtol=1e-7)
    ours, theirs = (model.willingness_to_pay("constant[B]", "cost") for model in (space, plain))
    assert (ours.value, ours.error) == pytest.approx((theirs.value, theirs.error), rel=1e-5)


def test_willingness_to_pay_can_be_fixed(curved: ChoiceData) -> None:
    """With the willingness to pay for B fixed at 1, v = -b (1[B] - cost) + ...: one column fewer."""
    model = MNL(
        formula="boxcox(time, 0.4) + cost", wtp_space="cost", reference="A", fixed={"wtp[constant[B]]": 1.0}
    ).fit(curved)
    less_b = curved.features["cost"].values - (curved.labels.plain() == "B")  # type: ignore[union-attr]
    table = {
        "trip": np.repeat(np.arange(3000), 3),
        "took": np.isin(np.arange(9000), curved.offsets[:-1] + curved.chosen),
        "curve": (curved.features["time"].values.astype(float) ** 0.4 - 1) / 0.4,  # type: ignore[union-attr]
        "less": less_b,
        "c": (curved.labels.plain() == "C").astype(float),  # type: ignore[union-attr]
    }
    expected = MNL(formula="curve + less + c").fit(read(table, "curve", "less", "c"))
    assert model.estimates_.log_likelihood == pytest.approx(expected.estimates_.log_likelihood, rel=1e-9)
    assert model.coefficients["cost"] == pytest.approx(expected.coefficients["less"], rel=1e-4)


@pytest.mark.parametrize(
    ("formula", "cost", "problem"),
    [
        ("time + cost", "coost", r"the utility has no coefficient 'coost'. Did you mean 'cost'\?"),
        ("log(time) + cost", "log(time)", r"is not the marginal utility of 'time': log\(time\) is not linear"),
        ("time + cost", "constant[B]", "has no unit in which to express willingness to pay"),
    ],
)
def test_an_invalid_cost_of_wtp_space_is_refused(formula: str, cost: str, problem: str, curved: ChoiceData) -> None:
    with pytest.raises(InputError, match=problem):
        MNL(formula=formula, wtp_space=cost, reference="A").fit(curved)


def test_a_cost_fixed_at_0_is_refused(curved: ChoiceData) -> None:
    with pytest.raises(ConfigError, match="wtp_space='cost': this coefficient is fixed at 0, so willingness to pay"):
        MNL(formula="time + cost", wtp_space="cost", fixed={"cost": 0}).fit(curved)
    space = MNL(formula="time + cost", wtp_space="cost", fixed={"cost": -1}).fit(curved)
    assert space.coefficients["cost"] == -1


def test_wtp_space_does_not_change_the_offset(curved: ChoiceData) -> None:
    space = MNL(formula="cost | 1", offset="time", wtp_space="cost").fit(curved)
    plain = MNL(formula="cost | 1", offset="time").fit(curved)
    assert space.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, rel=1e-10)
    assert (space.coefficients["time"], space.estimates_.fixed) == (1.0, ("time",))


def test_utilities_can_be_computed_at_other_coefficients() -> None:
    data = read(simulated(20, {"x": 1.0, "y": -0.5}), "x", "y")
    model = MNL().fit(data)
    x, y = (data.features[name].values for name in "xy")  # type: ignore[union-attr]
    np.testing.assert_allclose(model.utilities(data, np.array([2.0, 1.0])), 2.0 * x + y.astype(float), rtol=1e-12)
    expected = x.astype(float) * model.coefficients["x"] + y.astype(float) * model.coefficients["y"]
    np.testing.assert_allclose(model.utilities(data), expected, rtol=1e-12)
    with pytest.raises(NotFittedError):
        MNL().utilities(data)
    with pytest.raises(NotFittedError):
        MNL().willingness_to_pay("x", "y")


def test_an_unseen_level_is_predicted_as_the_reference() -> None:
    table = {
        "trip": [0, 0, 1, 1, 2, 2, 3, 3],
        "took": [1, 0] * 4,
        "x": [1.0, 0, 1, 0, 1, 0, 0, 1],
        "level": ["a", "b", "b", "a", "a", "b", "b", "a"],
    }
    model = MNL(min_chosen=0).fit(read(table, "x", "level"))
    new = {"trip": [0, 0], "x": [1.0, 1.0], "level": ["new", "a"]}
    np.testing.assert_allclose(model.predict_proba(new), [0.5, 0.5], rtol=1e-12)  # both are the reference


def test_the_command_line_fits_saves_and_prints_the_table(tmp_path: Path) -> None:
    table = simulated(200, {"time": -1.0, "cost": -0.5})
    price = pa.array(np.exp(table["cost"].to_numpy()))
    pyarrow.csv.write_csv(table.append_column("price", price), tmp_path / "trips.csv")
    words = [
        "fit",
        "trips.csv",
        "--choice-set",
        "trip",
        "--chosen",
        "took",
        "--features",
        "price,time",
        "--model",
        "mnl",
    ]
    words += ["--set", "formula=log(price) + time", "--set", "errors=robust", "-o", "model"]
    out = io.StringIO()
    with (
        contextlib.chdir(tmp_path),
        mock.patch.object(sys, "argv", ["pcmcnet", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    assert not stop.value.code, out.getvalue()
    model = load(tmp_path / "model")
    assert isinstance(model, MNL)
    assert list(model.coefficients) == ["log(price)", "time"]
    assert str(model.summary()) in out.getvalue()
    assert "standard errors       robust" in out.getvalue()


def test_matrix_products_use_one_thread_during_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last products, those of the errors, are checked. Sums in several threads would round differently."""
    seen = []

    def note(*arguments: Any, **more: Any) -> Any:
        seen.append({library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"})
        return infer(*arguments, **more)

    monkeypatch.setattr("pcmcnet.models.mnl.infer", note)
    with threadpool_limits(2, user_api="blas"):
        MNL().fit(read(simulated(50, {"x": 1.0}), "x"))
    assert seen == [{1}]
