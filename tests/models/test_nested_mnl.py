"""Nested logit: published estimates, recovery of simulated choices, boundaries, and invalid input."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pcmcnet.data import ChoiceData
from pcmcnet.datasets import packaged
from pcmcnet.errors import ArtifactError, ConfigError, DatasetError, InputError, NotFittedError, SchemaError
from pcmcnet.models import MNL, NestedMNL, load
from pcmcnet.models.interface.parse_options import parse_option
from pcmcnet.models.interface.saving import state_files
from pcmcnet.models.logit.maximum_likelihood import numerical_hessian
from pcmcnet.models.logit.nested_likelihood import NestedLikelihood, NestedRows
from pcmcnet.models.logit.standard_errors import infer
from pcmcnet.models.nested_mnl import NestedMNLConfig

MODES = np.array(["car", "bus", "metro", "train"])
NESTS = {"car": "private", "bus": "public", "metro": "public", "train": "rail"}


def simulate(sets: int = 400, logsum: float = 0.4, seed: int = 0, *, chosen: Any = None, **columns: Any) -> ChoiceData:
    return read(trips(sets, logsum, seed, chosen) | columns)


def trips(sets: int, logsum: float, seed: int, chosen: Any = None) -> dict[str, Any]:
    """Return choices of four modes. Bus and metro share a nest; the utility is -x, plus 0.5 for the car."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sets, 4)).astype(np.float32).astype(np.float64)
    if chosen is None:
        v, nest = (-x + [0.5, 0, 0, 0]).ravel(), np.tile([0, 1, 1, 2], sets)
        nests = NestedRows.find(nest, 4 * np.arange(sets + 1))
        p = np.exp(nests.log_probabilities(v, np.array([1, logsum, 1]))).reshape(sets, 4)
        chosen = (rng.random((sets, 1)) > p.cumsum(1)).sum(1)
    return {
        "trip": np.repeat(np.arange(sets), 4),
        "took": (np.asarray(chosen)[:, None] == np.arange(4)).ravel(),
        "mode": np.tile(MODES, sets),
        "x": x.ravel(),
        "group": np.tile([NESTS[m] for m in MODES], sets),
        "shared": np.tile([0, 1, 1, 0], sets),
        "person": np.repeat(np.arange(sets) // 4, 4),
        "weight": np.repeat(1 + np.arange(sets) % 3, 4),
    }


def read(table: dict[str, Any], **roles: Any) -> ChoiceData:
    roles = {"choice_set": "trip", "chosen": "took", "alternative": "mode", "keep": ["person"]} | roles
    return ChoiceData.from_long(table, **{"features": ["x", "group", "shared"], **roles})


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return simulate()


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> NestedMNL:
    fitted: NestedMNL = NestedMNL(nests=NESTS, formula="x", cluster="person").fit(data)
    return fitted


# -- known answers -------------------------------------------------------------------------------------------------


def swissmetro() -> ChoiceData:
    """Bierlaire's sample, with times and costs in hundreds and no cost for holders of a season ticket."""
    try:
        table = packaged.load("swissmetro")
    except DatasetError as error:
        pytest.skip(str(error))
    column = {name: table[name].to_numpy() for name in table.column_names}
    pays = column["GA"] != 1
    wide = {name: column[name] for name in ("CHOICE", "TRAIN_AV", "SM_AV", "CAR_AV")}
    for mode in ("TRAIN", "SM", "CAR"):
        wide[f"{mode}_TIME"] = column[f"{mode}_TT"] / 100
        wide[f"{mode}_COST"] = column[f"{mode}_CO"] * (pays | (mode == "CAR")) / 100
    return ChoiceData.from_wide(
        wide,
        chosen="CHOICE",
        alternatives={"TRAIN": 1, "SM": 2, "CAR": 3},
        features={"time": "{alternative}_TIME", "cost": "{alternative}_COST"},
        available="{alternative}_AV",
    )


def test_swissmetro_has_the_estimates_of_biogeme() -> None:
    """Biogeme 3.2.14 run on the same table; its documentation has the log-likelihood -5236.900 and mu of 2.05."""
    model = NestedMNL(nests={"TRAIN": "existing", "CAR": "existing", "SM": "new"}, errors="robust").fit(swissmetro())
    # Biogeme prints six decimals and stops its search slightly earlier.
    assert model.estimates_.log_likelihood == pytest.approx(-5236.900014, abs=1e-4)
    expected = {"time": -0.898664, "cost": -0.856665, "constant[TRAIN]": -0.511948, "constant[CAR]": -0.167156}
    errors = {"time": 0.107112, "cost": 0.060035, "constant[TRAIN]": 0.079114, "constant[CAR]": 0.054529}
    for name, value in expected.items():
        assert model.coefficients[name] == pytest.approx(value, abs=5e-6)
        assert model.standard_errors()[name] == pytest.approx(errors[name], abs=5e-6)
    for kind, error in (("classical", 0.117705), ("robust", 0.164204)):
        mu, spread = model.estimates_.delta(lambda b: 1 / b[-1], kind)  # type: ignore[arg-type]
        assert float(mu) == pytest.approx(2.054065, abs=5e-6)
        assert float(spread) == pytest.approx(error, abs=5e-6)
    assert model.logsums == {"existing": model.coefficients["logsum[existing]"], "new": 1.0}


def test_a_tree_has_the_estimates_of_biogeme() -> None:
    """Biogeme 3.2.14 with an explicit three-level formula, whose log-sums are not relative."""
    try:
        data = ChoiceData.from_schema(*packaged.long_form("mtc-work"))
    except DatasetError as error:
        pytest.skip(str(error))
    nests = {"car": {"alone": [1], "shared": [2, 3]}, "transit": [4], "slow": [5, 6]}
    model = NestedMNL(nests=nests, formula="totcost/100 + tottime/10", bounds=None).fit(data)
    # Biogeme prints six decimals, and our tables hold prices in float32.
    assert model.estimates_.log_likelihood == pytest.approx(-3607.192442, abs=1e-4)
    expected = {"totcost/100": -0.557928, "tottime/10": -0.528085, "constant[2]": -3.124714, "constant[6]": -0.747491}
    errors = {"totcost/100": 0.029508, "tottime/10": 0.032752, "constant[2]": 0.150965, "constant[6]": 0.139750}
    for name, value in expected.items():
        assert model.coefficients[name] == pytest.approx(value, abs=5e-6)
        assert model.standard_errors()[name] == pytest.approx(errors[name], abs=1e-5)
    logsums = {"car": 1.517696, "shared": 0.691312, "alone": 1.517696, "slow": 1.204674, "transit": 1.0}
    assert model.logsums == pytest.approx(logsums, abs=5e-6)
    relative = [model.estimates_.position(f"logsum[{nest}]") for nest in ("car", "shared")]
    _, error = model.estimates_.delta(lambda b: b[relative[0]] * b[relative[1]])
    assert float(error) == pytest.approx(0.106059, abs=1e-5)
    assert model.summary().facts["nests"] == (
        "car, car > alone (log-sum 1.518), car > shared (log-sum 0.6913), slow, transit"
    )


@pytest.mark.parametrize("logsum", [0.3, 0.8])
def test_a_simulated_log_sum_is_recovered(logsum: float) -> None:
    model = NestedMNL(nests=NESTS, formula="x").fit(simulate(4000, logsum, seed=1))
    truth = {"x": -1.0, "constant[car]": 0.5, "constant[bus]": 0, "constant[metro]": 0, "constant[train]": 0}
    reference = truth[f"constant[{model.design_.labels.reference}]"]
    errors = model.standard_errors()
    assert abs(model.logsums["public"] - logsum) < 3 * errors["logsum[public]"]
    for name, value in model.coefficients.items():
        if name in truth:
            shift = reference if name.startswith("constant") else 0
            assert abs(value - truth[name] + shift) < 3 * errors[name]
    assert errors["logsum[public]"] < 0.1


def test_probabilities_follow_the_formula(model: NestedMNL, data: ChoiceData) -> None:
    b, p = model.coefficients, model.predict_proba(data)[:4]
    x = data.features["x"].plain()[:4].astype(float)
    v = b["x"] * x + [b.get(f"constant[{m}]", 0.0) for m in MODES]
    lam = b["logsum[public]"]
    inside = np.exp(v[1:3] / lam)
    nests = np.array([np.exp(v[0]), inside.sum() ** lam, np.exp(v[3])])
    nests /= nests.sum()
    np.testing.assert_allclose(p, [nests[0], *(nests[1] * inside / inside.sum()), nests[2]], rtol=1e-10)


def test_the_derivative_of_the_log_sum_is_the_probability(model: NestedMNL, data: ChoiceData) -> None:
    """Williams, Daly and Zachary: d log-sum / d v_i = P(i); here for x of the bus, by differences."""
    part, b, step = data.subset(np.arange(50)), model.coefficients["x"], 2.0**-6
    table = trips(400, 0.4, 0)

    def log_sums_after(by: float) -> Any:
        x = table["x"] + by * (table["mode"] == "bus")
        return model._log_sums(read(table | {"x": x}).subset(np.arange(50)))[0][:, 0]

    slope = (log_sums_after(step) - log_sums_after(-step)) / (2 * step)
    p = model.predict_proba(part).reshape(-1, 4)[:, 1]
    np.testing.assert_allclose(slope, b * p, atol=1e-4)  # a step that float32 can represent


def test_an_offset_has_a_coefficient_of_1(data: ChoiceData) -> None:
    table = trips(400, 0.4, 0)
    wide = read(table | {"y": -0.5 * table["x"]}, features=["x", "y"])
    model = NestedMNL(nests=NESTS, formula="x", offset="y").fit(wide)
    plain = NestedMNL(nests=NESTS, formula="x").fit(wide)
    assert model.coefficients["y"] == 1
    assert model.coefficients["x"] - 0.5 == pytest.approx(plain.coefficients["x"], rel=1e-4)
    assert model.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, rel=1e-9)


def test_wtp_space_has_the_likelihood_and_ratios_of_preference_space() -> None:
    data = simulate(shared=np.random.default_rng(1).normal(size=1600))
    options: dict[str, Any] = {"nests": NESTS, "reference": "car"}
    space = NestedMNL(formula="x + shared", wtp_space="x", **options).fit(data)
    plain = NestedMNL(formula="x + shared", **options).fit(data)
    assert space.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, rel=1e-10)
    wtp = plain.willingness_to_pay("shared", "x")
    assert space.coefficients["wtp[shared]"] == pytest.approx(wtp.value, rel=1e-4)
    assert space.standard_errors()["wtp[shared]"] == pytest.approx(wtp.error, rel=1e-3)
    assert space.logsums == pytest.approx(plain.logsums, rel=1e-4)
    np.testing.assert_allclose(space.predict_proba(data), plain.predict_proba(data), atol=1e-6)


def test_the_box_cox_exponent_agrees_with_a_grid(tmp_path: Path) -> None:
    table = trips(400, 0.4, 0)
    data = read(table | {"x": np.exp(table["x"])})  # the utility contains its logarithm
    model = NestedMNL(formula="boxcox(x)", nests=NESTS).fit(data)
    result = model.coefficients["lambda[x]"]
    assert result == pytest.approx(0, abs=3 * model.standard_errors()["lambda[x]"])
    fits = [NestedMNL(formula=f"boxcox(x, {result + d})", nests=NESTS).fit(data) for d in (-0.05, 0, 0.05)]
    low, best, high = (fit.estimates_.log_likelihood for fit in fits)
    assert best == pytest.approx(model.estimates_.log_likelihood, rel=1e-9)
    assert max(low, high) < best
    assert model.estimates_.null[model.estimates_.position("lambda[x]")] == 1
    back = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict_proba(data), model.predict_proba(data))


def test_a_log_sum_of_1_is_the_multinomial_logit(data: ChoiceData) -> None:
    plain = MNL(formula="x").fit(data)
    model = NestedMNL(nests=NESTS, formula="x").fit(data)
    assert model.estimates_.log_likelihood > plain.estimates_.log_likelihood
    model.estimates_.values[:] = [*plain.estimates_.values, 1.0]
    np.testing.assert_allclose(model.predict_proba(data), plain.predict_proba(data), rtol=1e-12)


def test_the_estimate_is_a_maximum_with_errors_from_the_hessian(model: NestedMNL, data: ChoiceData) -> None:
    nest = np.tile([0, 1, 1, 2], len(data))
    picked = np.isin(np.arange(data.offsets[-1]), data.offsets[:-1] + data.require_chosen("test"))
    sets = NestedLikelihood(
        model.design_.matrix(data), NestedRows.find(nest, data.offsets), picked, np.array([[0.0], [1], [0]])
    )
    values, ones = model.estimates_.values, np.ones(len(data))
    # Steps end where another would gain 1e-12 of the log-likelihood.
    np.testing.assert_allclose(ones @ sets.evaluate(values)[1], 0, atol=1e-3)
    covariance = np.linalg.inv(-numerical_hessian(sets.evaluate, values, ones))
    np.testing.assert_allclose(
        model.covariance("classical"), covariance, rtol=1e-5, atol=1e-8
    )  # two numerical Hessians
    assert model.score(data) * len(data) == pytest.approx(model.estimates_.log_likelihood, rel=1e-12)


# -- nests ---------------------------------------------------------------------------------------------------------


def test_a_feature_and_a_mapping_define_the_same_nests(data: ChoiceData) -> None:
    by_label = NestedMNL(nests=NESTS, formula="x").fit(data)
    by_feature = NestedMNL(nests="group", formula="x").fit(data)
    assert by_feature.coefficients == by_label.coefficients
    assert by_feature.summary().facts["nests"] == "private, public, rail (by group)"
    assert by_label.summary().facts["nests"] == "private, public, rail"


def test_a_numeric_feature_defines_nests(data: ChoiceData) -> None:
    by_number = NestedMNL(nests="shared", formula="x").fit(data)
    others = {mode: "1" if nest == "public" else "0" for mode, nest in NESTS.items()}
    by_label = NestedMNL(nests=others, formula="x").fit(data)
    assert by_number.coefficients == by_label.coefficients
    assert set(by_number.logsums) == {"0", "1"}


def test_the_feature_that_defines_nests_is_not_in_the_utility() -> None:
    lean = read(trips(100, 0.4, 0), features=["x", "group"])
    assert not any("group" in name for name in NestedMNL(nests="group").fit(lean).coefficients)


def test_nests_of_one_alternative_have_no_parameter(model: NestedMNL) -> None:
    assert [name for name in model.coefficients if name.startswith("logsum")] == ["logsum[public]"]
    assert model.logsums["private"] == model.logsums["rail"] == 1.0
    assert model.num_parameters == 5


# -- log-sums on the boundary or without an estimate ---------------------------------------------------------------


def test_a_log_sum_at_its_bound_of_1_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    data = simulate(2000, logsum=2.0)
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        model = NestedMNL(nests=NESTS, formula="x").fit(data)
    assert model.logsums["public"] == 1
    assert model.estimates_.at_bound == ("logsum[public]",)
    assert np.isnan(model.standard_errors()["logsum[public]"])
    problem = "logsum[public]: on the boundary of 1, where the nest has no effect (bounds=None removes the bound)"
    assert problem in caplog.text
    assert problem in str(model.summary())
    assert ("logsum[public]", "1", "at its bound", "", "") in model.summary().rows
    plain = MNL(formula="x").fit(data)
    assert model.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(model.covariance()[:-1, :-1], plain.covariance(), rtol=1e-5)  # a numerical Hessian


def test_labels_without_alternatives_are_reported(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        NestedMNL(nests=NESTS, formula="x").fit(data.subset(np.arange(200)))
        assert "nests contains" not in caplog.text
        model = NestedMNL(nests={**NESTS, "tram": "rail", "ferry": "sea"}, formula="x").fit(data)
        model.predict_proba(data)
    assert caplog.text.count("nests contains labels that are not in the table: 'tram', 'ferry'.") == 1


def test_a_free_log_sum_above_1_gives_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        model = NestedMNL(nests=NESTS, formula="x", bounds=None).fit(simulate(2000, logsum=2.0))
    assert abs(model.logsums["public"] - 2) < 3 * model.standard_errors()["logsum[public]"]
    problem = "logsum[public]: above 1, which is not consistent with random utility maximisation; try other nests"
    assert problem in caplog.text
    assert problem in str(model.summary())


def test_a_log_sum_below_1_gives_no_warning(model: NestedMNL, caplog: pytest.LogCaptureFixture) -> None:
    NestedMNL(nests=NESTS, formula="x").fit(simulate(100))
    assert not caplog.records
    assert "warning" not in model.summary().facts


@pytest.mark.parametrize(
    ("chosen", "reason", "follows"),
    [
        # Always the better of bus and metro: the nest acts as one alternative.
        (
            lambda x, rng: np.where(
                rng.random(len(x)) < 0.5, 1 + x[:, 1:3].argmin(1), 3 * rng.integers(2, size=len(x))
            ),
            "the alternatives of the nest are perfect substitutes",
            False,
        ),
        # Bus or metro at random, and nothing else: x has no effect, and its coefficient grows with the log-sum.
        (lambda x, rng: rng.integers(1, 3, len(x)), "choices within the nest do not depend on the utilities", True),
    ],
)
def test_a_log_sum_without_finite_estimate_is_reported(
    chosen: Any, reason: str, follows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    x = simulate(200).features["x"].plain().reshape(-1, 4)
    data = simulate(200, chosen=chosen(x, np.random.default_rng(0)))
    model = NestedMNL(nests=NESTS, formula="x | 0", bounds=None).fit(data)
    assert model.standard_errors()["logsum[public]"] == np.inf
    assert np.isinf(model.standard_errors()["x"]) == follows
    assert np.isfinite(model.predict_log_proba(data)).all()
    problem = f"logsum[public]: no finite estimate, because {reason}"
    assert problem in caplog.text
    assert problem in model.summary().facts["warning"]
    assert "nan" not in str(model.summary())


# (table, formula, nests): without bounds, log-sums diverged or the search did not converge.
HEATING = {"gc": "gas", "gr": "gas", "ec": "electric", "er": "electric", "hp": "electric"}
FISHING = {"beach": "shore", "pier": "shore", "boat": "boat", "charter": "boat"}
RUNAWAYS: list[tuple[str, str, Any, float, float]] = [
    ("heating", "installation_cost + operating_cost", HEATING, -1008.229, -1003.771),
    ("heating", "installation_cost + operating_cost | income", HEATING, -1005.889, -1001.512),
    ("heating", "installation_cost + operating_cost | rooms", HEATING, -1007.808, -1003.417),
    ("fishing", "price + catch_rate", FISHING, -1230.784, -1210.297),
    ("fishing", "price + catch_rate | income", FISHING, -1215.138, -1192.412),
    ("car", "price/10 + cost", "fuel", -7253.556, -7178.797),
]


@pytest.mark.parametrize(
    ("name", "formula", "nests", "bounded", "free"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case[1].endswith(("| rooms", "catch_rate")) else ())
        for case in RUNAWAYS
    ],
)
def test_fits_to_textbook_tables_converge(name: str, formula: str, nests: Any, bounded: float, free: float) -> None:
    """Without bounds, log-sums and the constants that grow with them have no finite error."""
    try:
        data = ChoiceData.from_schema(*packaged.long_form(name))
    except DatasetError as error:
        pytest.skip(str(error))
    model = NestedMNL(nests=nests, formula=formula).fit(data)
    assert model.estimates_.log_likelihood == pytest.approx(bounded, abs=1e-3)
    assert all(0 < value <= 1 for value in model.logsums.values())
    assert model.estimates_.at_bound
    assert not model.estimates_.unbounded
    loose = NestedMNL(nests=nests, formula=formula, bounds=None).fit(data)
    assert loose.estimates_.log_likelihood == pytest.approx(free, abs=1e-3)
    assert max(loose.logsums.values()) > 1
    errors = loose.standard_errors()
    runaway = [f"logsum[{nest}]" for nest, value in loose.logsums.items() if value > 95]
    for name in runaway:
        assert errors[name] == np.inf
    if runaway:
        assert any(errors[name] == np.inf for name in errors if name.startswith("constant"))
        assert np.isfinite(errors[loose.design_.names[0]])  # the choice of a nest identifies costs and prices


@pytest.mark.parametrize("sets", [3, 8])
@pytest.mark.parametrize("seed", range(6))
def test_a_few_sets_give_finite_results(sets: int, seed: int) -> None:
    data = simulate(sets, seed=seed)
    model = NestedMNL(nests=NESTS, formula="x").fit(data)
    assert np.isfinite(model.predict_proba(data)).all()
    unknown = {name for name, error in model.standard_errors().items() if np.isnan(error)}
    assert unknown == {*model.estimates_.at_bound}


# -- trees, a common log-sum, fixed and bounded parameters -----------------------------------------------------------


TREE = {"road": ["car"], "public": {"street": ["bus", "metro"], "track": ["train"]}}


def test_a_redundant_level_of_a_tree_has_no_effect(data: ChoiceData, model: NestedMNL) -> None:
    deep = NestedMNL(nests={"a": ["car"], "b": {"public": ["bus", "metro"]}, "rail": ["train"]}, formula="x").fit(data)
    np.testing.assert_allclose(deep.predict_proba(data), model.predict_proba(data), rtol=1e-5)
    assert deep.logsums["public"] == pytest.approx(model.logsums["public"], rel=1e-5)
    assert "logsum[b]" not in deep.coefficients  # it never has two children


def test_log_sums_of_a_tree_are_relative_to_the_nest_above(tmp_path: Path) -> None:
    data = simulate(2000, 0.3, seed=2)
    model = NestedMNL(nests=TREE, formula="x", fixed={"logsum[public]": 0.8}).fit(data)
    assert model.coefficients["logsum[public]"] == 0.8
    assert model.logsums["street"] == pytest.approx(0.8 * model.coefficients["logsum[street]"])
    assert model.logsums["track"] == 0.8
    free = NestedMNL(nests=TREE, formula="x").fit(data)
    assert free.logsums["street"] <= free.logsums["public"] <= 1
    assert free.estimates_.log_likelihood >= model.estimates_.log_likelihood
    back = load(model.save(tmp_path / "tree"))
    np.testing.assert_array_equal(back.predict_proba(data), model.predict_proba(data))
    assert back.summary().facts == model.summary().facts


def test_nests_can_share_one_log_sum(data: ChoiceData, tmp_path: Path) -> None:
    nests = {"car": "own", "bus": "public", "metro": "public", "train": "own"}
    separate = NestedMNL(nests=nests, formula="x").fit(data)
    model = NestedMNL(nests=nests, formula="x", common_logsum=True).fit(data)
    assert model.logsums == dict.fromkeys(("own", "public"), model.coefficients["logsum"])
    assert model.num_parameters == separate.num_parameters - 1
    assert model.estimates_.log_likelihood < separate.estimates_.log_likelihood
    equal = NestedMNL(
        nests=nests, formula="x", fixed={f"logsum[{m}]": model.coefficients["logsum"] for m in separate.logsums}
    )
    assert equal.fit(data).estimates_.log_likelihood == pytest.approx(model.estimates_.log_likelihood, rel=1e-9)
    back = load(model.save(tmp_path / "common"))
    np.testing.assert_array_equal(back.predict_proba(data), model.predict_proba(data))


def test_a_fixed_log_sum_of_1_is_the_multinomial_logit(data: ChoiceData) -> None:
    plain = MNL(formula="x").fit(data)
    model = NestedMNL(nests=NESTS, formula="x", fixed={"logsum[public]": 1}).fit(data)
    assert model.coefficients == pytest.approx(plain.coefficients | {"logsum[public]": 1.0}, rel=1e-6, abs=1e-9)
    assert model.num_parameters == plain.num_parameters
    assert "warning" not in model.summary().facts
    assert model.estimates_.constants_log_likelihood == plain.estimates_.constants_log_likelihood


def test_coefficients_can_be_fixed_and_bounded_by_name(data: ChoiceData, model: NestedMNL) -> None:
    held = NestedMNL(nests=NESTS, formula="x", fixed={"x": -0.5}).fit(data)
    assert held.coefficients["x"] == -0.5
    assert held.estimates_.log_likelihood < model.estimates_.log_likelihood
    narrow = NestedMNL(nests=NESTS, formula="x", bounds={"logsum[public]": (0.6, 0.7), "x": (-5, 0)}).fit(data)
    assert narrow.logsums["public"] == 0.6
    assert narrow.estimates_.at_bound == ("logsum[public]",)
    again = NestedMNL(nests=NESTS, formula="x", start=model.coefficients).fit(data)
    assert again.coefficients == pytest.approx(model.coefficients, rel=1e-4)
    assert again.estimates_.steps < model.estimates_.steps


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fixed": {"logsum[publik]": 1}}, r"fixed: 'logsum\[publik\]' .* Did you mean 'logsum\[public\]'"),
        ({"fixed": {"logsum[public]": 0}}, r"fixed\['logsum\[public\]'\] = 0 is outside its bounds, 0.001 to inf"),
        ({"start": {"logsum[public]": 1.5}}, r"start\['logsum\[public\]'\] = 1.5 is outside its bounds, 0.05 to 1"),
        (
            {"bounds": {"logsum[public]": (-3, 0)}},
            r"bounds\['logsum\[public\]'\] allow no value between 0.05 and 0: it must be above 0",
        ),
        ({"common_logsum": "yes"}, "common_logsum must be True or False, got 'yes'"),
    ],
)
def test_inconsistent_options_are_refused(options: Any, problem: str, data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=problem):
        NestedMNL(nests=NESTS, formula="x", **options).fit(data)


# -- weights, clusters, saved form ---------------------------------------------------------------------------------


def test_weights_count_like_copies() -> None:
    """A set of weight 3 counts as three sets."""
    table = trips(150, 0.4, 0)
    row = np.concatenate([np.arange(600)[table["weight"] > k] for k in range(3)])
    copies = {name: values[row] for name, values in table.items()}
    copies["trip"] = np.repeat(np.arange(len(row) // 4), 4)
    weighted, longer = read(table, weight="weight"), read(copies)
    assert len(longer) == 300
    one, other = (NestedMNL(nests=NESTS, formula="x").fit(part) for part in (weighted, longer))
    # Sums in another order may stop the search one step earlier.
    np.testing.assert_allclose(one.estimates_.values, other.estimates_.values, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(one.covariance("classical"), other.covariance("classical"), rtol=1e-3)
    assert one.estimates_.log_likelihood == pytest.approx(other.estimates_.log_likelihood, rel=1e-9)


def test_three_kinds_of_errors_are_available(model: NestedMNL) -> None:
    kinds = [model.standard_errors(kind)["logsum[public]"] for kind in ("classical", "robust", "clustered")]
    assert len(set(kinds)) == 3
    assert all(0.01 < error < 1 for error in kinds)
    assert model.summary("clustered").facts["standard errors"] == "clustered, 100 clusters by person"
    row = next(row for row in model.summary().rows if row[0] == "logsum[public]")
    z = (model.logsums["public"] - 1) / model.standard_errors()["logsum[public]"]
    assert row[3] == f"{z:.2f}"


def test_a_saved_model_is_loaded_unless_it_was_altered(model: NestedMNL, data: ChoiceData, tmp_path: Path) -> None:
    back = load(model.save(tmp_path / "model"))
    assert isinstance(back, NestedMNL)
    assert back.logsums == model.logsums
    np.testing.assert_array_equal(back.predict_proba(data), model.predict_proba(data))
    other = replace(model.record_, nests=("private", "rail"))
    with pytest.raises(ValueError, match="the saved nests and log-sums do not match"):
        model._restore(state_files(model), other, model.table_)
    (tmp_path / "model" / "estimates.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"estimates.json was truncated or altered"):
        load(tmp_path / "model")


# -- invalid input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nests", "kind", "problem"),
    [
        ("", ConfigError, "nests is required: pass the name of a feature, or a nest for each label"),
        ({}, ConfigError, "nests is required"),
        ("grupo", SchemaError, "nests: 'grupo' is not a feature. Did you mean 'group'"),
        ({"car": "a", "bus": "a"}, InputError, "no nest to 2 alternatives: 'metro', 'train'. Give each label"),
        (dict.fromkeys(MODES, "all"), InputError, "all alternatives belong to the same nest"),
        ({m: m for m in MODES}, InputError, "no nest has two alternatives in any choice set"),
    ],
)
def test_invalid_nests_are_refused(nests: Any, kind: type[Exception], problem: str, data: ChoiceData) -> None:
    with pytest.raises(kind, match=problem):
        NestedMNL(nests=nests, formula="x").fit(data)


def test_nests_are_a_column_name_or_a_mapping() -> None:
    with pytest.raises(
        ConfigError, match="nests must be the name of a feature, or a mapping from labels to nests; got 3"
    ):
        NestedMNL(nests=3)
    with pytest.raises(ConfigError, match=r"use nests=pathlib.Path\('tree.toml'\)"):
        NestedMNL(nests="tree.toml")
    assert NestedMNL(nests={1: 2}).config.nests == {"1": "2"}


def test_nests_are_read_from_the_command_line() -> None:
    assert parse_option(NestedMNLConfig, "nests=car:road,bus:road") == ("nests", {"car": "road", "bus": "road"})
    assert parse_option(NestedMNLConfig, "nests=group") == ("nests", "group")


def test_nests_are_read_from_a_file(tmp_path: Path, data: ChoiceData) -> None:
    file = tmp_path / "nests.toml"
    file.write_text('road = ["car"]\n[public]\nstreet = ["bus", "metro"]\ntrack = ["train"]\n')
    name, nests = parse_option(NestedMNLConfig, f"nests={file}")
    model = NestedMNL(**{name: nests}, formula="x").fit(data)
    assert model.config.nests == TREE
    assert model.coefficients == NestedMNL(nests=TREE, formula="x").fit(data).coefficients


def test_nests_by_label_need_labels() -> None:
    with pytest.raises(InputError, match="the table has no labels"):
        NestedMNL(nests=NESTS, formula="x").fit(read(trips(20, 0.4, 0), alternative=None))


def test_a_missing_value_is_refused_as_a_nest() -> None:
    shared = np.tile([0.0, 1, 1, 0], 20)
    shared[3] = np.nan
    table = {"s": np.repeat(np.arange(20), 4), "y": np.tile([1, 0, 0, 0], 20), "n": shared, "x": np.arange(80.0) % 7}
    data = ChoiceData.from_long(table, choice_set="s", chosen="y", features=["x", "n"], missing="indicator")
    with pytest.raises(InputError, match="nests: column 'n' has 1 missing values: every alternative needs a nest"):
        NestedMNL(nests="n").fit(data)


def test_unseen_nests_and_labels_are_refused(model: NestedMNL, data: ChoiceData) -> None:
    by_group = NestedMNL(nests="group", formula="x").fit(data)
    other = simulate(5, group=np.tile(["private", "water", "public", "rail"], 5))
    with pytest.raises(
        InputError, match=r"nest 'water' was not in the training data, .*: expected one of private, public, rail"
    ):
        by_group.predict_proba(other)
    with pytest.raises(InputError, match="nests assigns no nest to 1 alternative: 'ferry'"):
        model.predict_proba(simulate(5, mode=np.tile(["car", "ferry", "metro", "train"], 5)))


def test_an_unfitted_model_has_no_log_sums() -> None:
    with pytest.raises(NotFittedError):
        _ = NestedMNL(nests=NESTS).logsums


def test_matrix_products_use_one_thread_during_a_fit(data: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last products, those of the errors, are checked. Sums in several threads would round differently."""
    seen = []

    def note(*arguments: Any, **more: Any) -> Any:
        seen.append({library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"})
        return infer(*arguments, **more)

    monkeypatch.setattr("pcmcnet.models.logit.nests.infer", note)
    with threadpool_limits(2, user_api="blas"):
        NestedMNL(nests=NESTS, formula="x").fit(data)
    assert seen == [{1}]
