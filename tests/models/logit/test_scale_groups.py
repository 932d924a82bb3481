"""Scales of utilities by group of choice sets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import likelihood_ratio
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.scenarios.scenario import scenario
from pcmcnet.models import MNL, LatentClassMNL, MixedMNL, NestedMNL, load
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.logit_model import LogitModel

NESTS = {"car": "road", "bus": "public", "train": "public"}
SCALE = 0.4  # of the stated choices
Columns = dict[str, Any]


def survey(persons: int = 60, seed: int = 0) -> Columns:
    """Choices of car, bus or train, six by each person: two revealed and four stated, with more noise.

    The train is unavailable in every seventh choice set, and persons have weights.
    """
    rng = np.random.default_rng(seed)
    sets = 6 * persons
    trip, person = np.repeat(np.arange(sets), 3), np.repeat(np.arange(persons), 18)
    stated = np.arange(sets) % 6 >= 2
    cost, time = rng.gamma(2, 1, (2, sets, 3))
    open_ = np.ones((sets, 3), bool)
    open_[::7, 2] = False
    taste = rng.normal(-1.2, 0.6, persons)[np.arange(sets) // 6]
    utility = np.array([0.0, -0.5, 0.3]) - cost + taste[:, None] * time
    noisy = np.where(stated, SCALE, 1.0)[:, None] * utility + rng.gumbel(size=(sets, 3))
    took = np.where(open_, noisy, -np.inf).argmax(1)[:, None] == np.arange(3)
    return {
        "trip": trip,
        "person": person,
        "mode": np.tile(["car", "bus", "train"], sets),
        "took": took.ravel(),
        "cost": cost.ravel(),
        "time": time.ravel(),
        "open": open_.ravel(),
        "survey": np.repeat(np.where(stated, "stated", "revealed"), 3),
        "wave": np.repeat(np.where(stated, 2, 1), 3),
        "weight": (1 + person % 2).astype(float),
    }


def read(table: Columns, **roles: Any) -> ChoiceData:
    usual = {
        "features": ["cost", "time"],
        "individual": ["survey", "wave"],
        "person": "person",
        "available": "open",
        "weight": "weight",
    }
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", **{**usual, **roles})


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(survey())


@pytest.fixture(scope="module")
def mnl(data: ChoiceData) -> MNL:
    return MNL(formula="cost + time", reference="car", scale="survey", base={"survey": "revealed"}).fit(data)


@pytest.fixture(scope="module")
def nested(data: ChoiceData) -> NestedMNL:
    return NestedMNL(formula="cost + time", scale="survey", base={"survey": "revealed"}, nests=NESTS, bounds=None).fit(
        data
    )


@pytest.fixture(scope="module")
def mixed(data: ChoiceData) -> MixedMNL:
    options: dict[str, Any] = {"random": {"time": "normal"}, "draws": 50, "starts": 1, "prior": 0.0}
    return MixedMNL(formula="cost + time", scale="survey", base={"survey": "revealed"}, **options).fit(data)


@pytest.fixture(params=["mnl", "nested", "mixed"])
def model(request: pytest.FixtureRequest) -> LogitModel:
    fitted: LogitModel = request.getfixturevalue(request.param)
    return fitted


def test_estimates_maximise_a_likelihood_written_by_hand(data: ChoiceData, mnl: MNL) -> None:
    x = np.column_stack([data.features["cost"].plain(), data.features["time"].plain()])
    labels = data.labels.plain()  # type: ignore[union-attr]
    x = np.column_stack([x, labels == "bus", labels == "train"]).astype(np.float64)
    stated = (data.individual["survey"].plain() == "stated")[data.set_of_alternative]
    chosen = data.offsets[:-1] + data.require_chosen("a test")

    def loss(theta: Floats) -> float:
        v = np.where(stated, theta[4], 1.0) * (x @ theta[:4])
        log_sums = np.log(np.add.reduceat(np.exp(v), data.offsets[:-1]))
        return -float(data.weights @ (v[chosen] - log_sums))

    found = minimize(loss, [0, 0, 0, 0, 1.0], method="BFGS", options={"gtol": 1e-6})
    assert mnl.estimates_.names == ("cost", "time", "constant[bus]", "constant[train]", "scale[stated]")
    assert mnl.estimates_.log_likelihood == pytest.approx(-found.fun, abs=1e-8)
    np.testing.assert_allclose(mnl.estimates_.values, found.x, atol=1e-4)  # BFGS with numerical gradients
    assert mnl.estimates_.n_parameters == 5


def plants(number: int = 400, seed: int = 0) -> Columns:
    """Choices of a technology by plants in three regimes, with errors of different sizes (the form of mlogit's NOx).

    The utility is -2 post - 1.5 burner - 0.4 vcost - 0.02 kcost - 0.02 kcost age, and the standard deviation of its
    error is that of regulated plants times 1.4 (deregulated) or 0.7 (public).
    """
    rng = np.random.default_rng(seed)
    n = 6
    post = np.tile([1.0, 1, 0, 0, 0, 0], number)
    burner = np.tile([0.0, 0, 1, 1, 0, 0], number)
    vcost, kcost = rng.gamma(3, 1, number * n), rng.gamma(4, 5, number * n) * (post + 0.3)
    age, regime = rng.uniform(0, 2, number), rng.integers(0, 3, number)
    open_ = np.ones((number, n), bool)
    open_[::5, 0] = False
    v = -2 * post - 1.5 * burner - 0.4 * vcost - 0.02 * kcost - 0.02 * kcost * np.repeat(age, n)
    noise = np.array([1.0, 1.4, 0.7])[regime][:, None] * rng.gumbel(size=(number, n))
    took = np.where(open_, v.reshape(number, n) + noise, -np.inf).argmax(1)[:, None] == np.arange(n)
    columns = {"post": post, "burner": burner, "vcost": vcost, "kcost": kcost, "age": np.repeat(age, n)}
    names = np.array(["regulated", "deregulated", "public"])[regime]
    return {
        "plant": np.repeat(np.arange(number), n),
        "took": took.ravel(),
        "open": open_.ravel(),
        "env": np.repeat(names, n),
        **columns,
    }


def test_scales_are_the_inverses_of_the_standard_deviations_of_mlogit() -> None:
    """mlogit divides utilities by 1 + sig_g for regime g, and by 1 in the reference: scale_g = 1 / (1 + sig_g)."""
    table = plants()
    data = ChoiceData.from_long(
        table,
        choice_set="plant",
        chosen="took",
        available="open",
        individual=["env", "age"],
        features=["post", "burner", "vcost", "kcost"],
    )
    model = MNL(formula="post + burner + vcost + kcost + kcost:age", scale="env", base={"env": "regulated"}).fit(data)
    x = np.column_stack([table[name] for name in ("post", "burner", "vcost", "kcost")])
    x = np.column_stack([x, table["kcost"] * table["age"]]).astype(np.float32).astype(np.float64)
    starts = np.arange(0, len(x), 6)

    def loss(theta: Floats) -> float:
        sigma = 1 + theta[5] * (table["env"] == "deregulated") + theta[6] * (table["env"] == "public")
        v = np.where(table["open"], x @ theta[:5] / sigma, -np.inf)
        return -float(v[table["took"]].sum() - np.log(np.add.reduceat(np.exp(v), starts)).sum())

    found = minimize(loss, np.zeros(7), method="BFGS", options={"gtol": 1e-5})
    assert model.estimates_.log_likelihood == pytest.approx(-found.fun, abs=1e-5)  # float32 columns
    names = ["post", "burner", "vcost", "kcost", "kcost:age"]
    np.testing.assert_allclose([model.coefficients[name] for name in names], found.x[:5], atol=2e-3)  # as above
    for name, sig, truth in (("deregulated", found.x[5], 1.4), ("public", found.x[6], 0.7)):
        scale, error = model.coefficients[f"scale[{name}]"], model.standard_errors()[f"scale[{name}]"]
        assert scale == pytest.approx(1 / (1 + sig), abs=2e-3)  # BFGS with numerical gradients
        assert abs(scale - 1 / truth) < 3 * error


def test_standard_errors_come_from_the_hessian_and_the_scores(data: ChoiceData, mnl: MNL) -> None:
    """Differences of log-probabilities of the choices give the scores, and second differences the Hessian."""
    at, weights = mnl.estimates_.values, data.weights
    chosen = data.offsets[:-1] + data.require_chosen("a test")
    step = 1e-4 * np.eye(5)

    def ll(theta: Floats) -> Floats:
        return mnl.with_values(theta)._log_proba(data)[chosen]

    scores = np.column_stack([(ll(at + e) - ll(at - e)) / 2e-4 for e in step])
    second = [
        [weights @ (ll(at + e + f) - ll(at + e - f) - ll(at - e + f) + ll(at - e - f)) for e in step] for f in step
    ]
    inverse = np.linalg.inv(-np.array(second) / 4e-8)
    sums = np.array([(scores * weights[:, None])[data.groups() == p].sum(0) for p in range(60)])
    clustered = 60 / 59 * inverse @ sums.T @ sums @ inverse
    # second differences with steps of 1e-4 have a relative error of about 1e-6
    np.testing.assert_allclose(mnl.covariance("classical"), inverse, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(mnl.covariance("clustered"), clustered, rtol=1e-4, atol=1e-8)


def test_the_scale_is_recovered_and_tested_against_1(model: LogitModel) -> None:
    row = model.estimates().loc["scale[stated]"]
    assert abs(row["estimate"] - SCALE) < 3 * row["std_error"]
    assert row["z"] == pytest.approx((row["estimate"] - 1) / row["std_error"])
    assert model.summary().facts["scales"] == "by survey, 1 for revealed; tested against 1"


def test_the_largest_group_is_the_reference_and_numbers_name_groups(data: ChoiceData, mnl: MNL) -> None:
    other = MNL(formula="cost + time", reference="car", scale="wave").fit(data)
    assert other.estimates_.names[-1] == "scale[1]"
    assert other.estimates_.log_likelihood == pytest.approx(mnl.estimates_.log_likelihood, abs=1e-9)
    assert other.coefficients["scale[1]"] == pytest.approx(1 / mnl.coefficients["scale[stated]"], rel=1e-6)
    cost = mnl.coefficients["cost"] * mnl.coefficients["scale[stated]"]
    assert other.coefficients["cost"] == pytest.approx(cost, rel=1e-6)


def test_predictions_and_scenarios_use_the_scale_of_the_rows_group(model: LogitModel) -> None:
    """The same trips as stated choices: log-odds are those of the revealed choices times the scale."""
    table = survey()
    tables = [{**table, "survey": np.full(len(table["trip"]), name)} for name in ("revealed", "stated")]
    revealed, stated = (read(each) for each in tables)
    change = "cost *= 2 where mode == 'car'"
    shares = [scenario(model, sets, change).shares["car"] for sets in (revealed, stated)]
    assert abs(shares[1].change) < abs(shares[0].change)
    if isinstance(model, MNL):
        log_p = [model.predict_log_proba(sets) for sets in (revealed, stated)]
        odds = [np.diff(revealed.from_rows(each)[2:5]) for each in log_p]  # of the second choice set
        np.testing.assert_allclose(odds[1], model.coefficients["scale[stated]"] * odds[0], rtol=1e-9)


def test_elasticities_agree_with_differences(data: ChoiceData, model: LogitModel) -> None:
    few = data.subset(range(40))
    exact, numeric = elasticity(model, few, "cost"), elasticity(model, few, "cost", method="differences")
    np.testing.assert_allclose(exact.own, numeric.own, rtol=1e-4, atol=1e-6)  # differences in float32 columns


def test_a_saved_model_predicts_the_same(model: LogitModel, data: ChoiceData, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))
    assert str(loaded.summary()) == str(model.summary())


def test_damaged_groups_are_refused(data: ChoiceData) -> None:
    entries = Design.learn("cost", data, scale="survey").to_dict()
    with pytest.raises(ArtifactError, match="groups of scales are not distinct"):
        Design.from_dict({**entries, "scale": {**entries["scale"], "levels": ["stated"]}})


def test_the_likelihood_of_persons_and_conditional_coefficients_use_scales(data: ChoiceData, mixed: MixedMNL) -> None:
    """With the scale fixed at 1, there is one conditional coefficient less to explain: the likelihoods differ."""
    options: dict[str, Any] = {"random": {"time": "normal"}, "draws": 50, "starts": 1, "prior": 0.0}
    plain = MixedMNL(formula="cost + time", **options).fit(data)
    fixed = MixedMNL(formula="cost + time", scale="survey", fixed={"scale[revealed]": 1.0}, **options).fit(data)
    assert fixed.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, abs=1e-6)
    test = likelihood_ratio(plain, mixed)
    gain = mixed.estimates_.log_likelihood - plain.estimates_.log_likelihood
    assert (test.statistic, test.degrees_of_freedom) == (pytest.approx(2 * gain), 1)
    np.testing.assert_allclose(fixed.conditional(data).means, plain.conditional(data).means, atol=1e-5)
    assert np.abs(mixed.conditional(data).means - plain.conditional(data).means).max() > 0.05


def test_an_offset_is_not_scaled(data: ChoiceData) -> None:
    design = Design.learn("cost", data, offset="time", scale="survey", base={"survey": "revealed"})
    values = np.array([{"cost": 2.0, "time": 1.0, "scale[stated]": 0.5}.get(name, 0.0) for name in design.names])
    cost, time = (data.features[name].plain().astype(float) for name in ("cost", "time"))
    stated = (data.individual["survey"].plain() == "stated")[data.set_of_alternative]
    np.testing.assert_allclose(design.utilities(data, values), np.where(stated, 0.5, 1.0) * 2 * cost + time)
    with pytest.raises(ConfigError, match="scale with an offset is not supported by MixedMNL"):
        MixedMNL(formula="cost", offset="time", scale="survey").fit(data)


def test_a_model_without_the_scale_does_not_contain_one_with_it(data: ChoiceData, mnl: MNL, mixed: MixedMNL) -> None:
    plain = MNL(formula="cost + time", reference="car").fit(data)
    test = likelihood_ratio(plain, mnl)
    assert (test.degrees_of_freedom, test.details["restricted"]) == (1, ["scale[stated]"])
    assert not any("nesting is assumed" in note for note in test.notes)
    laws = {"time": "normal", "cost": "normal"}
    without = MixedMNL(formula="cost + time", random=laws, draws=10, starts=1).fit(data)
    with pytest.raises(InputError, match=r"estimates 'scale\[stated\]', and the larger model has no scales"):
        likelihood_ratio(mnl, without)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scale": "cost"}, SchemaError, "expected an individual-level column, but 'cost' is a feature"),
        ({"scale": "surveys"}, SchemaError, "'surveys' is not in the table.*Did you mean 'survey'"),
        ({"scale": "number"}, InputError, "has 360 groups, but the limit is 100"),
        ({"scale": "one"}, InputError, "column 'one' has one group, 'a', in the choice sets with at least two"),
        ({"scale": "gaps"}, InputError, "column 'gaps' has 1 missing values, the first in choice set 0"),
        ({"scale": "survey", "base": {"survey": "state"}}, ConfigError, "'state' is not a group of 'survey'. Did you"),
        ({"scale": "survey", "fixed": {"scale[revealed]": 0.0}}, ConfigError, "expected positive values and bounds"),
        ({"scale": "survey", "bounds": {"scale[revealed]": (-1, 1)}}, ConfigError, "expected positive values and bo"),
        ({"scale": 3}, ConfigError, "scale must be a string, got 3"),
    ],
)
def test_bad_input_is_explained(options: Columns, error: type[Exception], message: str) -> None:
    table = survey()
    gaps = np.where(table["trip"] == 0, np.nan, table["wave"])
    table |= {"number": table["trip"], "one": np.full(len(gaps), "a"), "gaps": gaps}
    data = read(table, individual=["survey", "number", "one", "gaps"], missing="indicator")
    with pytest.raises(error, match=message):
        MNL(formula="cost + time", **options).fit(data)


def test_a_group_without_a_scale_is_named(mnl: MNL) -> None:
    table = survey()
    table["survey"] = np.where(table["trip"] == 3, "pilot", table["survey"])
    with pytest.raises(InputError, match=r"group 'pilot' of column 'survey' \(choice set 3\).*1 such choice sets\)"):
        mnl.predict_proba(read(table))


def test_latent_classes_refuse_scales(data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match="scale is not supported by LatentClassMNL: use mnl, nested-mnl or mixed-mnl"):
        LatentClassMNL(formula="cost + time", classes=2, scale="survey").fit(data)
