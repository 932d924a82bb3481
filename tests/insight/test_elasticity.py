"""Elasticities: closed forms of the logit, homogeneity, averages by sample enumeration, and all models."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, MODELS, Boosted, ChoiceData, PCMCNet, Stacking, scenario
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.datasets import packaged
from pcmcnet.errors import ConfigError, DatasetError, InputError
from pcmcnet.evaluation.predictions import predicted_log_p
from pcmcnet.insight.calibration import calibrate
from pcmcnet.insight.demand import demand
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.queries import weighted_quantiles, with_values
from pcmcnet.insight.willingness_to_pay import trade_offs, willingness_to_pay
from pcmcnet.models import ChoiceModel


@pytest.fixture(scope="module")
def model(driven: ChoiceData) -> MNL:
    fitted: MNL = MNL(formula="price + time + price:income | 1").fit(driven)
    return fitted


@pytest.mark.parametrize("method", ["auto", "differences"])
def test_averages_agree_with_the_method_of_the_logit(model: MNL, driven: ChoiceData, method: Any) -> None:
    result = elasticity(model, driven, "price", method=method, step=1e-4).between()
    expected = model.elasticities(driven, "price")
    assert len(expected.entries) == result.values.size
    for entry in expected.entries:
        assert result[entry.of, entry.when] == pytest.approx(entry.value, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["mnl", "nested-mnl", "pcmcnet"])
def test_elasticities_are_finite_differences_of_predicted_shares(
    name: str, driven: ChoiceData, fitted: Callable[[str], ChoiceModel]
) -> None:
    """This includes alternatives that are not on offer in all sets: the sets have 2 to 4 modes."""
    model = fitted(name)
    result = elasticity(model, driven, "price").between()
    # Columns and networks are float32; the curvature adds the square of the step.
    step = 0.01 if name == "pcmcnet" else 0.001
    for when in result.names:
        for of in result.names:
            ends = demand(model, driven, "price", alternative=when, of=of, factors=[1 - step, 1 + step]).shares[0]
            slope = np.diff(np.log(ends))[0] / np.log((1 + step) / (1 - step))
            assert result[of, when] == pytest.approx(slope, abs=1e-4)


def test_averages_include_sets_without_the_alternative() -> None:
    """Car and plane from Montreal to Toronto: 1.059 by differences of shares; 1.444 only over sets with the plane."""
    try:
        data = ChoiceData.from_schema(*packaged.long_form("mode-canada"))
    except DatasetError as missing:
        pytest.skip(str(missing))
    model = MNL().fit(data)
    assert model.elasticities(data, "cost")["car", "air"].value == pytest.approx(1.0588, abs=1e-4)
    assert elasticity(model, data, "cost").between()["car", "air"] == pytest.approx(1.0588, abs=1e-4)


def test_own_and_cross_elasticities_work_without_labels(make_driven: Callable[..., ChoiceData]) -> None:
    data = make_driven(labels=False)
    model = MNL(formula="price + time").fit(data)
    (row,) = elasticity(model, data, "price").table().rows
    expected = model.elasticities(data, "price")
    assert row.own == pytest.approx(expected["own", "own"].value, rel=1e-8)
    assert row.other == pytest.approx(expected["other", "own"].value, rel=1e-8)
    assert row.share == pytest.approx(1)


def test_the_matrix_of_a_set_has_the_closed_form(model: MNL, driven: ChoiceData) -> None:
    """E_ij = b x_j (1{i = j} - p_j): off the diagonal, a column is constant."""
    result = elasticity(model, driven, "time")
    s = int(np.argmax(driven.sizes))
    inside = slice(driven.offsets[s], driven.offsets[s + 1])
    x = driven.features["time"].values[inside].astype(float)  # type: ignore[union-attr]
    p = driven.from_rows(model.predict_proba(driven))[inside]
    expected = model.coefficients["time"] * x * (np.eye(len(x)) - p)
    np.testing.assert_allclose(result.matrix(s), expected, rtol=1e-7)
    np.testing.assert_allclose(result.own[inside], np.diag(expected), rtol=1e-7)
    np.testing.assert_array_equal(result.matrix(s - len(driven)), result.matrix(s))


@pytest.mark.parametrize("kind", ["mnl", "pcmcnet"])
def test_probability_weighted_responses_sum_to_zero(
    kind: str, driven: ChoiceData, fitted: Callable[[str], ChoiceModel]
) -> None:
    """sum_i p_i d log p_i / d x_j = 0 in every model: probabilities sum to 1."""
    model = fitted(kind)
    marginal = elasticity(model, driven, "price", kind="marginal")
    for s in range(len(driven)):
        # A network's derivatives are float32.
        np.testing.assert_allclose(marginal.matrix(s).sum(axis=0), 0, atol=1e-6 if kind == "pcmcnet" else 1e-12)
    income = elasticity(model, driven, "income", kind="marginal")
    np.testing.assert_allclose(sum_by_set(income.values, driven.offsets), 0, atol=1e-6)


def test_a_logit_of_logs_is_homogeneous_of_degree_0(driven: ChoiceData) -> None:
    """With v = b log x, scaling all x changes nothing: the elasticities of a row sum to 0."""
    result = elasticity(MNL(formula="log(price) | 0").fit(driven), driven, "price")
    for s in range(len(driven)):
        np.testing.assert_allclose(result.matrix(s).sum(axis=1), 0, atol=1e-8)


def test_kinds_of_elasticity_differ_by_known_factors(model: MNL, driven: ChoiceData) -> None:
    x, p = driven.features["price"].values.astype(float), driven.from_rows(model.predict_proba(driven))  # type: ignore[union-attr]
    semi = elasticity(model, driven, "price", kind="semi").own
    np.testing.assert_allclose(elasticity(model, driven, "price").own, semi * x, rtol=1e-12)
    np.testing.assert_allclose(elasticity(model, driven, "price", kind="marginal").own, semi * p, rtol=1e-12)


def test_segments_are_averaged_with_weights_and_probabilities(model: MNL, driven: ChoiceData) -> None:
    result = elasticity(model, driven, "price")
    mass = spread(driven.weights, driven.offsets) * result.p
    for by, values in (
        ("comfort", driven.features["comfort"].plain()),
        ("purpose", np.repeat(driven.individual["purpose"].plain(), driven.sizes)),
    ):
        table = result.table(by)
        for row in table.rows:
            inside = values == row.segment
            assert row.own == pytest.approx(np.average(result.own[inside], weights=mass[inside]), rel=1e-12)
            assert row.share == pytest.approx(mass[inside].sum() / driven.weights.sum(), rel=1e-12)
            assert row.alternatives == inside.sum()
        assert sum(row.share for row in table.rows) == pytest.approx(1)
    marginal = elasticity(model, driven, "price", kind="marginal")
    plain = np.average(marginal.own, weights=spread(driven.weights, driven.offsets))
    assert marginal.table().rows[0].own == pytest.approx(plain, rel=1e-12)


class PriceLogit:
    """A logit of the price alone, with coefficient -1; a missing price counts as 0."""

    def predict_log_proba(self, data: ChoiceData) -> Any:
        score = np.exp(-np.nan_to_num(data.features["price"].values.astype(float)))  # type: ignore[union-attr]
        return data.to_rows(np.log(score / spread(sum_by_set(score, data.offsets), data.offsets)))


def test_an_alternative_without_a_value_affects_no_other() -> None:
    """E_ij = -x_j (1{i = j} - p_j), and 0 if x_j is missing; averages include that alternative."""
    table = {"trip": [1, 1, 2, 2], "mode": ["bus", "car"] * 2, "price": [2.0, None, 1.0, 3.0], "weight": [1, 1, 2, 2]}
    roles: dict[str, Any] = {"alternative": "mode", "features": ["price"], "weight": "weight", "missing": "indicator"}
    data = ChoiceData.from_long(table, choice_set="trip", **roles)
    result = elasticity(PriceLogit(), data, "price", step=1e-3)
    bus, car = 1 / (1 + np.exp(2)), 1 / (1 + np.exp(2))  # p of the bus in set 1, of the car in set 2
    first, second = [[-2 * (1 - bus), 0], [2 * bus, 0]], [[-car, 3 * car], [1 - car, -3 * (1 - car)]]
    # The error of differences is the square of the step, 1e-6.
    np.testing.assert_allclose(result.matrix(0), first, rtol=1e-5)
    np.testing.assert_allclose(result.matrix(1), second, rtol=1e-5)
    means = result.table("mode")
    mass = {"bus": [bus, 2 * (1 - car)], "car": [1 - bus, 2 * car]}
    for k, mode in enumerate(("bus", "car")):
        own = np.average([first[k][k], second[k][k]], weights=mass[mode])
        assert means[mode].own == pytest.approx(own, rel=1e-5)
    others = {"bus": ([first[1][0], second[1][0]], mass["car"]), "car": ([first[0][1], second[0][1]], mass["bus"])}
    for mode, (values, weights) in others.items():
        assert means[mode].other == pytest.approx(np.average(values, weights=weights), rel=1e-5)


def test_responses_to_individual_columns_print_without_labels(make_driven: Callable[..., ChoiceData]) -> None:
    data = make_driven(labels=False)
    result = elasticity(MNL(formula="price + price:income").fit(data), data, "income", kind="semi")
    assert str(result).startswith(f"semi, income: {len(data.rows)} alternatives, mean absolute value 0.")
    assert "table(by=...)" in str(result)


def test_responses_to_individual_columns_average_by_label(model: MNL, driven: ChoiceData) -> None:
    result = elasticity(model, driven, "income")
    mass = spread(driven.weights, driven.offsets) * result.p
    assert driven.labels is not None
    bus = driven.labels.plain() == "bus"
    table = result.table("mode")
    assert table["bus"].own == pytest.approx(np.average(result.own[bus], weights=mass[bus]), rel=1e-12)
    assert table["bus"].other is None
    assert str(result) == str(table)
    assert result.matrix(3).shape == (driven.sizes[3],)
    with pytest.raises(InputError, match=r"their average is 0\. Average by segments of alternatives: by='mode'"):
        result.table()
    with pytest.raises(InputError, match="has no cross effects"):
        result.between()


def test_elasticities_of_networks_refer_to_the_raw_column(make_driven: Callable[..., ChoiceData]) -> None:
    """The column has a long tail, so the network transforms it; elasticities still refer to the raw column."""
    data = make_driven(200)
    data = with_values(data, "price", data.features["price"].values ** 3)  # type: ignore[union-attr]
    model = PCMCNet(hidden=(8,), activation="tanh", epochs=3, weight_decay=0.0).fit(data, progress=False)
    price = {code.name: code for code in model.encoder_.features.numeric}["price"]
    assert price.bend > 0
    result = elasticity(model, data, "price").own
    expected = elasticity(model, data, "price", method="differences", step=0.003).own
    # float32 has log p to 1e-7, divided by a step of 0.3 %; the curvature adds the square of the step.
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_elasticities(name: str, driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    model = fitted(name)
    for column, kind in (("price", "elasticity"), ("noise", "semi"), ("income", "marginal")):
        result = elasticity(model, driven, column, kind=kind)  # type: ignore[arg-type]
        assert np.isfinite(result.values).all()
        assert (result.own[:1] == 0).all()  # a set of one alternative
        json.dumps(result.table("mode").to_dict())
        assert result.table("mode").to_markdown().startswith(f"| {kind}, {column} |")
    between = elasticity(model, driven, "price").between()
    json.dumps(between.to_dict())
    assert str(between).splitlines()[0].split()[-4:] == ["bike", "bus", "car", "train"]
    if name in ("mnl", "nested-mnl", "cross-nested-mnl", "lc-mnl"):
        assert (np.diag(between.values) < 0).all()
    if name in ("uniform", "bradley-terry", "thurstone", "pcmc", "cdm"):
        assert not between.values.any()


def test_invalid_arguments_are_rejected(model: MNL, driven: ChoiceData, make_driven: Callable[..., ChoiceData]) -> None:
    with pytest.raises(InputError, match=r"'noise' has \d+ negative values.*kind='semi'"):
        elasticity(model, driven, "noise")
    with pytest.raises(ConfigError, match="unknown kind"):
        elasticity(model, driven, "price", kind="cross")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="weight above 0"):
        elasticity(model, driven.subset([1]), "price")
    result = elasticity(model, driven, "price")
    with pytest.raises(InputError, match=r"no segment 'buss'\. Did you mean 'bus'"):
        result.table("mode")["buss"]
    with pytest.raises(InputError, match="no group 'buss'"):
        result.between()["buss", "car"]
    plain = make_driven(labels=False)
    with pytest.raises(InputError, match="the table has no labels"):
        elasticity(MNL(formula="price").fit(plain), plain, "price").between()


# -- kinks ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def round_prices() -> ChoiceData:
    """Choices between two modes whose prices are whole numbers, and so the ends of bins."""
    rng = np.random.default_rng(0)
    price = rng.integers(1, 11, (300, 2)).astype(float)
    table = {
        "trip": np.repeat(np.arange(300), 2),
        "mode": np.tile(["bus", "car"], 300),
        "price": price.ravel(),
        "time": rng.integers(1, 11, 600),
        "took": ((-0.4 * price + rng.gumbel(size=price.shape)).argmax(1)[:, None] == np.arange(2)).ravel(),
    }
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["price", "time"])


@pytest.fixture(scope="module")
def binned_network(round_prices: ChoiceData) -> PCMCNet:
    """Three networks, of which the third has bins."""
    options: dict[str, Any] = {"hidden": (8,), "epochs": 40, "weight_decay": 0.01, "members": 3, "lr": 0.02}
    model: PCMCNet = PCMCNet(**options).fit(round_prices, progress=False)
    assert model.spec_.bins == (0, 0, 8)
    return model


@pytest.mark.parametrize("wrapped", [False, True], ids=["network", "wrapped"])
def test_at_kinks_the_elasticity_is_the_difference_of_scenarios(
    binned_network: PCMCNet, round_prices: ChoiceData, wrapped: bool
) -> None:
    """Bus prices rise and fall by 0.1%: E = (log share(1.001 x) - log share(0.999 x)) / 0.002, to first order."""
    model = calibrate(binned_network, round_prices) if wrapped else binned_network
    up, down = (
        scenario(model, round_prices, f"price *= {factor} where mode == 'bus'").shares["bus"].after
        for factor in (1.001, 0.999)
    )
    expected = (np.log(up) - np.log(down)) / 0.002
    result = elasticity(model, round_prices, "price")
    # Log-probabilities are float32: an error of 1e-7 in each set, divided by the step, and then averaged.
    assert result.between()["bus", "bus"] == pytest.approx(expected, rel=2e-3)
    derivatives = elasticity(model, round_prices, "price", method="derivatives")
    assert np.abs(result.own - derivatives.own).max() > 0.05


def test_ratios_at_kinks_are_ratios_of_differences(binned_network: PCMCNet, round_prices: ChoiceData) -> None:
    default, differences, derivatives = (
        willingness_to_pay(binned_network, round_prices, "time", "price", method=method).ratios
        for method in ("auto", "differences", "derivatives")
    )
    np.testing.assert_array_equal(default, differences)
    assert np.abs(default - derivatives).max() > 0.01
    # The trade-offs of a report are quantiles of the same ratios, each weighted by the probability of its alternative.
    (row,) = trade_offs(binned_network, round_prices, ["time"], "price").rows
    weights = np.exp(predicted_log_p(binned_network, round_prices))
    medians = [weighted_quantiles(ratios, weights, [0.5]).item() for ratios in (differences, derivatives)]
    assert row.median == pytest.approx(medians[0], rel=1e-9)
    assert row.median != pytest.approx(medians[1], rel=1e-4)


def test_columns_without_bins_have_derivatives(make_driven: Callable[..., ChoiceData]) -> None:
    data = make_driven()
    model = PCMCNet(hidden=(4,), epochs=2, weight_decay=0.1, members=1).fit(data, progress=False)
    exact = elasticity(model, data, "price", method="derivatives").values
    np.testing.assert_array_equal(elasticity(model, data, "price").values, exact)
    curved = replace(data, schema=replace(data.schema, kinds={"price": "piecewise"}))
    model = PCMCNet(hidden=(4,), epochs=2, weight_decay=0.1, members=1).fit(curved, progress=False)
    default, differences = (elasticity(model, curved, "price", method=m).values for m in ("auto", "differences"))
    np.testing.assert_array_equal(default, differences)


# -- trees ----------------------------------------------------------------------------------------------------------


def test_elasticities_of_trees_use_a_large_step_and_report_values_that_are_far_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A step of a tenth reaches no other price. A step of .6 does, except from 5, which goes up to 8."""
    rng = np.random.default_rng(0)
    price = rng.choice([5.0, 10.0, 15.0, 20.0], (300, 2))
    table = {
        "trip": np.repeat(np.arange(300), 2),
        "price": price.ravel(),
        "time": rng.uniform(1, 10, 600),
        "took": ((-0.2 * price + rng.gumbel(size=price.shape)).argmax(1)[:, None] == np.arange(2)).ravel(),
    }
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price", "time"])
    trees = Boosted().fit(data, progress=False)
    logit = MNL(formula="price + time").fit(data)
    for model in (trees, Stacking(models=[MNL(), Boosted()]).fit(data, progress=False), calibrate(trees, data)):
        caplog.clear()
        default = elasticity(model, data, "price")
        assert "For 100% of the values, no other value is within the step of 0.1 times the value" in caplog.text
        np.testing.assert_array_equal(default.values, elasticity(model, data, "price", step=0.1).values)
        caplog.clear()
        for silent, column, step in ((model, "price", 0.6), (model, "time", None), (logit, "price", None)):
            elasticity(silent, data, column, step=step)
        assert caplog.text == ""
    near, far = (elasticity(trees, data, "price", step=step).table().rows[0].own for step in (0.1, 0.6))
    assert far < near - 0.1


def test_an_effect_against_the_expected_sign_is_a_caveat(driven: ChoiceData) -> None:
    """The probability rises with the price in this logit, and falls with the time."""
    model = MNL(formula="price + time", fixed={"price": 0.2, "time": -0.1}).fit(driven, progress=False)
    caveat = model.sign_caveats["price"]
    responses, quietly = elasticity(model, driven, "price"), elasticity(model, driven, "time")
    value = willingness_to_pay(model, driven, "time", "price")
    for result in (responses, responses.table(), responses.between(), value):
        assert result.caveats == (caveat,)
    for table in (responses.table(), responses.between(), value):
        assert str(table).endswith(f"\n\nCaveat: {caveat}.")
        assert table.to_markdown().count("Caveat") == 1
        assert "sampled choice sets" in table._repr_html_()
        assert table.to_dict()["caveats"] == [caveat]
    assert str(responses) == str(responses.table())
    assert quietly.caveats == ()
    assert "Caveat" not in str(quietly)
    assert "Caveat" not in quietly.table()._repr_html_()
