"""The bootstrap of a fitted model: intervals by hand, replicates of every model, failures, and interrupted runs."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choice_tables import PANEL, logit_choices, normal_tastes, panel, read
from pcmcnet import (
    MNL,
    MODELS,
    BootstrapResult,
    Calibrated,
    ChoiceData,
    Ensemble,
    LatentClassMNL,
    PCMCNet,
    RankBy,
    Stacking,
    WithConstants,
    bootstrap,
    bootstrap_errors,
    scenario,
)
from pcmcnet.data.resampling import fit_seed, resample
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.evaluation.model_bootstrap import statistic_values
from pcmcnet.models import ChoiceModel
from quick_models import QUICK

OPTIONS: dict[str, dict[str, Any]] = {
    **QUICK,
    "cross-nested-mnl": {"nests": {"x": ["A", "B"], "y": ["B", "C"]}},
    "nested-mnl": {"nests": {"A": "x", "B": "x", "C": "y"}},
    "rank-by": {"column": "x"},
}


def coefficients(model: Any) -> dict[str, float]:
    values: dict[str, float] = model.coefficients
    return values


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(logit_choices(80, {"x": 1.0, "y": 0.5}), features=["x", "y"], person="person")


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> MNL:
    return MNL().fit(data)


@pytest.fixture(scope="module")
def labelled() -> ChoiceData:
    table = logit_choices(60, {"x": 1.0, "y": 0.5}, constants=[0.0, 0.3, 0.6], sizes=(2, 3))
    return read(table, alternative="mode", features=["x", "y"])


def by_hand(draws: Any, values: Any, **options: Any) -> BootstrapResult:
    settings: dict[str, Any] = {"failures": {}, "unit": "persons", "n_units": 10**9, "level": 0.8, "seed": 0}
    arrays = {"draws": np.array(draws, float), "values": np.array(values, float)}
    return BootstrapResult(labels=("a",), **arrays, **{**settings, "kind": "percentile", **options})


# -- intervals ------------------------------------------------------------------------------------------------------


def test_intervals_have_their_values_by_hand() -> None:
    """Of the draws 1, ..., 9, the quantile 0.1 has the rank 0.1 (9 + 1) = 1, and the quantile 0.9 has the rank 9."""
    result = by_hand(np.arange(1.0, 10.0)[:, None], [4.0])
    assert result.intervals["a"] == pytest.approx((1.0, 9.0), rel=1e-6)  # 10^9 units are not infinitely many
    assert result.intervals_of("basic")["a"] == pytest.approx((8 - 9, 8 - 1), rel=1e-6)
    s = math.sqrt(7.5)  # the variance of 1, ..., 9 is 60 / 8
    assert result.standard_errors["a"] == pytest.approx(s, rel=1e-12)
    assert result.intervals_of("normal")["a"] == pytest.approx((4 - 1.2815515655 * s, 4 + 1.2815515655 * s), rel=1e-9)
    assert result.bias["a"] == 1.0
    assert result.covariance == pytest.approx(np.array([[7.5]]), rel=1e-12)
    assert result.intervals_of(level=0.6)["a"] == pytest.approx((2.0, 8.0), rel=1e-6)
    with pytest.raises(ConfigError, match="unknown kind 'bca'"):
        result.intervals_of("bca")  # type: ignore[arg-type]


def test_few_units_have_wider_intervals() -> None:
    draws = np.arange(1.0, 100.0)[:, None]
    wide, narrow = (by_hand(draws, [50.0], n_units=n).intervals["a"] for n in (5, 500))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_too_few_replicates_or_units_are_noted() -> None:
    """The quantile 0.1 of 8 replicates would have the rank 0.9, and that of 9 replicates has the rank 1."""
    few, enough = (str(by_hand(np.arange(float(n))[:, None], [1.0])) for n in (8, 10))
    assert "with fewer than 9 replicates, the intervals end at the smallest and largest replicate" in few
    assert "Caveat" not in enough
    assert "fewer than" not in str(by_hand(np.arange(8.0)[:, None], [1.0], kind="normal"))
    clusters = str(by_hand(np.arange(200.0)[:, None], [1.0], n_units=12))
    assert "tend to be too small with fewer than about 30 persons; this table has 12" in clusters


# -- replicates -----------------------------------------------------------------------------------------------------


def test_bootstrap_errors_of_a_logit_have_the_same_draws(model: MNL, data: ChoiceData) -> None:
    result = bootstrap(model, data, coefficients, replicates=4, seed=3, progress=False)
    errors = bootstrap_errors(model, data, draws=4, seed=3, progress=False)
    assert result.labels == errors.names
    np.testing.assert_array_equal(result.draws, errors.samples)
    assert (result.unit, result.n_units) == ("persons", 20)
    more = bootstrap(model, data, coefficients, replicates=6, seed=3, workers=2, progress=False)
    np.testing.assert_array_equal(more.draws[:4], result.draws)


def test_standard_errors_by_person_are_the_clustered_errors() -> None:
    """Choices are repeated four times as one person's. A standard deviation of 100 draws is known to 7%."""
    table = logit_choices(100, {"x": 1.0}, 1)
    times = {name: np.concatenate([column] * 4) for name, column in table.items()}
    times["who"], times["trip"] = times["trip"], np.concatenate([table["trip"] + 1000 * k for k in range(4)])
    data = read(times, features=["x"], person="who")
    model = MNL().fit(data)
    result = bootstrap(model, data, coefficients, progress=False)
    assert result.standard_errors["x"] == pytest.approx(model.standard_errors("clustered")["x"], rel=0.25)
    by_set = bootstrap(model, data, coefficients, by="trip", progress=False)
    assert by_set.unit == "choice sets"
    assert by_set.standard_errors["x"] == pytest.approx(result.standard_errors["x"] / 2, rel=0.3)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_replicates(name: str, labelled: ChoiceData) -> None:
    model = MODELS[name](**OPTIONS.get(name, {})).fit(labelled, progress=False)
    before = model.predict_proba(labelled)
    source = np.random.SeedSequence(1)
    first, again = (model._replicate(resample(labelled, source), fit_seed(source)) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(labelled), again.predict_proba(labelled))
    np.testing.assert_array_equal(model.predict_proba(labelled), before)
    assert type(first) is type(model)
    assert first.config == model.config
    if name not in ("rank-by", "uniform"):
        assert np.abs(first.predict_proba(labelled) - before).max() > 1e-4
    result = bootstrap(model, labelled, lambda m: m.score(labelled) if name != "rank-by" else 1.0, replicates=2)
    assert result.draws.shape == (2, 1)


def test_wrapped_models_have_replicates(labelled: ChoiceData) -> None:
    train, valid = labelled.split((0.7, 0.3), seed=0)
    network = {"hidden": (4,), "epochs": 1, "weight_decay": 1.0, "members": 1}
    calibrated = Calibrated("pcmcnet", options=network).fit(train, valid, progress=False)
    source = np.random.SeedSequence(0)
    replicate = calibrated._replicate(resample(train, source), 5)
    assert replicate.temperature_ == calibrated.temperature_
    assert np.abs(replicate.predict_proba(train) - calibrated.predict_proba(train)).max() > 1e-4
    shares = {"A": 0.5, "B": 0.3, "C": 0.2}
    moved = WithConstants("pcmcnet", shares, options=network).fit(train, progress=False)
    part = resample(train, source)
    p, mode = part.from_rows(moved._replicate(part, 5).predict_proba(part)), part.labels.plain()  # type: ignore[union-attr]
    weighted = np.repeat(part.weights, part.sizes) * p / part.weights.sum()
    for label, share in shares.items():
        assert weighted[mode == label].sum() == pytest.approx(share, abs=1e-6)  # the search for constants ends there
    ensemble = Ensemble("pcmcnet", 2, options=network).fit(train, progress=False)
    assert ensemble._replicate(part, 5).members_[0] is not ensemble.members_[0]


def test_choices_of_the_first_fit_are_fixed() -> None:
    data = read(logit_choices(150, {"x": 1.0, "y": 0.5}, 4), features=["x", "y"])
    part = resample(data, np.random.SeedSequence(0))
    network = PCMCNet(hidden=(4,), epochs=2, members=3).fit(data, progress=False)
    replicate = network._replicate(part, 1)
    assert replicate.encoder_ == network.encoder_
    assert replicate.spec_ == network.spec_
    assert replicate.record_.weight_decay == network.record_.weight_decay
    assert len(replicate.history) == network.record_.epochs
    stack = Stacking(["mnl", "boosted"], options=[{}, {"trees": 5}]).fit(data, progress=False)
    np.testing.assert_array_equal(stack._replicate(part, 1).weights_, stack.weights_)
    trees = MODELS["boosted"]().fit(data, progress=False)
    assert trees._replicate(part, 1).record_.trees == trees.record_.trees


def test_replicates_that_repeat_the_search_are_fits_like_the_first_one(data: ChoiceData, tmp_path: Path) -> None:
    """The weight decay of each replicate is that of a new fit to the same resample, and not that of the model."""
    network = PCMCNet(hidden=(2,), epochs=4, members=1).fit(data, progress=False)
    decay = network.record_.weight_decay
    by_hand = []
    for source in np.random.SeedSequence(0).spawn(3):
        part = resample(data, source, data.groups())
        fit = PCMCNet(hidden=(2,), epochs=4, members=1).fit(part, seed=fit_seed(source), progress=False)
        by_hand.append([fit.record_.weight_decay])
    assert len({decay, *np.ravel(by_hand)}) > 1
    folder, options = tmp_path / "run", {"replicates": 3, "progress": False}

    def learnt(fitted: Any) -> float:
        return float(fitted.record_.weight_decay)

    repeated = bootstrap(network, data, learnt, repeat_search=True, run_folder=folder, **options)  # type: ignore[arg-type]
    assert repeated.draws.tolist() == by_hand
    assert repeated.summary().facts["search"] == "repeated in each replicate"
    assert bootstrap(network, data, learnt, **options).draws.tolist() == [[decay]] * 3  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match=r"with other arguments: .*repeat_search"):
        bootstrap(network, data, learnt, run_folder=folder, **options)  # type: ignore[arg-type]
    assert network.record_.weight_decay == decay


def test_classes_of_replicates_are_numbered_as_in_the_model() -> None:
    data = read(panel(60, normal_tastes, sets=6), **PANEL)
    model = LatentClassMNL(classes="auto", max_classes=2, starts=3).fit(data)
    result = bootstrap(model, data, coefficients, replicates=6, progress=False)
    assert result.labels == model.estimates_.names
    if model.n_classes_ == 2:
        assert (result["class 1: x"] > result["class 2: x"]).mean() in (0, 1)


# -- statistics -----------------------------------------------------------------------------------------------------


def test_results_of_a_statistic_have_names() -> None:
    pandas = pytest.importorskip("pandas")
    assert statistic_values(2) == (("value",), np.array([2.0]))
    labels, values = statistic_values(np.array([[1.0, 2.0]]))
    assert (labels, values.tolist()) == (("[0, 0]", "[0, 1]"), [1.0, 2.0])
    labels, values = statistic_values({("car", "bus"): 1.5, "train": {"own": 2.0}})
    assert (labels, values.tolist()) == (("car, bus", "train own"), [1.5, 2.0])
    frame = pandas.DataFrame({"share": [0.1, 0.2], "kind": ["x", "y"]}, index=["car", "bus"])
    labels, values = statistic_values(frame)
    assert (labels, values.tolist()) == (("car share", "bus share"), [0.1, 0.2])
    assert statistic_values(frame["share"]).labels == ("car", "bus")
    for result in ("text", {}, {"a": "b"}, None, object()):
        with pytest.raises(InputError, match="statistic: expected"):
            statistic_values(result)


def test_a_scenario_has_intervals(labelled: ChoiceData) -> None:
    model = MNL().fit(labelled)

    def change(fitted: ChoiceModel) -> float:
        return float(scenario(fitted, labelled, "x += 1 where mode == 'A'").shares["A"].change)

    result = bootstrap(model, labelled, change, replicates=40, progress=False)
    by_delta = scenario(model, labelled, "x += 1 where mode == 'A'", errors="robust").shares["A"]
    low, high = result.intervals["value"]
    assert low < change(model) < high
    assert high - low == pytest.approx(by_delta.high - by_delta.low, rel=0.5)  # quantiles of 40 draws


# -- failures -------------------------------------------------------------------------------------------------------


def failing(numbers: set[int]) -> Callable[[Any], float]:
    """Return a statistic that fails in some calls; call 0 is that of the model itself."""
    calls = iter(range(1000))

    def statistic(model: Any) -> float:
        call = next(calls)
        if call in numbers:
            raise InputError(f"call {call // 10} is one of those")
        return float(model.coefficients["x"])

    return statistic


def test_failed_replicates_are_counted(model: MNL, data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    result = bootstrap(model, data, failing({2, 5}), replicates=6, workers=1, progress=False)
    assert result.failures == {"InputError: call 0 is one of those": 2}
    assert (result.failed, len(result.draws)) == (2, 4)
    assert "2 of 6 replicates failed and are left out: InputError: call 0" in caplog.text
    assert "2 failed replicates are left out: InputError: call 0" in str(result)
    with pytest.raises(InputError, match="4 of 6 replicates failed, 4 of them with: InputError: call 0"):
        bootstrap(model, data, failing({1, 2, 3, 4}), replicates=6, workers=1, progress=False)


def test_statistics_that_are_not_finite_or_change_their_form_fail(model: MNL, data: ChoiceData) -> None:
    values = iter([1.0, math.inf, 2.0, 3.0])
    result = bootstrap(model, data, lambda m: next(values), replicates=3, workers=1, progress=False)
    assert result.failures == {"the statistic is not finite": 1}
    forms = iter([{"a": 1.0}, {"a": 1.0}, {"b": 1.0}, {"a": 2.0}])
    result = bootstrap(model, data, lambda m: next(forms), replicates=3, workers=1, progress=False)
    assert result.failures == {"the statistic has other names or another shape than for the model": 1}


def test_errors_of_the_program_are_not_counted_as_failures(model: MNL, data: ChoiceData) -> None:
    values = iter([1.0])
    with pytest.raises(RuntimeError, match="the statistic raised StopIteration"):
        bootstrap(model, data, lambda m: next(values), replicates=2, workers=1, progress=False)


def test_declared_persons_are_resampled_whatever_other_columns_are_called() -> None:
    """Here the column "person" is the number of persons of a party, and "id" says who chooses."""
    table = logit_choices(40, {"x": 1.0})
    table["id"], table["person"] = table["trip"] // 4, table["trip"] % 2
    data = read(table, features=["x"], individual=["person"], person="id")
    result = bootstrap(MNL().fit(data), data, coefficients, replicates=2, progress=False)
    assert (result.unit, result.n_units) == ("persons", 10)


def test_coefficients_without_a_finite_estimate_are_noted() -> None:
    """Alternative C is never chosen, so its constant decreases until the search stops, in every replicate alike."""
    table = logit_choices(60, {"x": 1.0}, constants=[0.0, 0.3, -50.0], sizes=(3, 3))
    data = read(table, alternative="mode", features=["x"])
    result = bootstrap(MNL(min_chosen=0).fit(data), data, coefficients, replicates=2, progress=False)
    assert result.caveats[0].startswith("no finite estimate for 'constant[C]'")
    assert result.caveats[0] in str(result)
    assert result.to_dict()["caveats"] == list(result.caveats)


def test_effects_against_the_expected_sign_are_noted(data: ChoiceData) -> None:
    """The probability rises with x, although the table declares that it falls."""
    signed = replace(data, schema=replace(data.schema, signs={"x": "-"}))
    model = MNL().fit(signed)
    result = bootstrap(model, signed, coefficients, replicates=2, progress=False)
    assert result.caveats == (model.sign_caveats["x"],)
    assert f"Caveat: {model.sign_caveats['x']}." in str(result)


# -- run folder -----------------------------------------------------------------------------------------------------


def test_an_interrupted_run_continues(model: MNL, data: ChoiceData, tmp_path: Path) -> None:
    whole = bootstrap(model, data, coefficients, replicates=5, progress=False)
    calls: list[int] = []

    def interrupted(fitted: Any) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 4:  # the model itself and two replicates are done
            raise KeyboardInterrupt
        return coefficients(fitted)

    folder = tmp_path / "run"
    options: dict[str, Any] = {"replicates": 5, "workers": 1, "run_folder": folder, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        bootstrap(model, data, interrupted, **options)
    assert sorted(path.name for path in folder.glob("replicate-*")) == ["replicate-1.json", "replicate-2.json"]
    (folder / "replicate-2.json").write_text("{", "utf-8")  # damaged
    calls.clear()
    calls.extend([1] * 10)
    resumed = bootstrap(model, data, interrupted, **options)
    assert len(calls) == 10 + 1 + 4
    np.testing.assert_array_equal(resumed.draws, whole.draws)
    with pytest.raises(ArtifactError, match=r"contains a bootstrap with other arguments: .*statistic"):
        bootstrap(model, data, lambda m: {"x": 1.0}, **options)
    with pytest.raises(ArtifactError, match=r"with other arguments: .*seed"):
        bootstrap(model, data, coefficients, **options, seed=1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ArtifactError, match="exists but contains no bootstrap"):
        bootstrap(model, data, coefficients, **{**options, "run_folder": tmp_path / "other"})


@pytest.mark.parametrize("name", ["pcmcnet", "stack", "ensemble"])
def test_a_run_continues_after_the_script_has_fitted_the_model_again(
    name: str, data: ChoiceData, tmp_path: Path
) -> None:
    """Two fits differ only in their durations."""
    net = PCMCNet(hidden=(2,), epochs=2, members=1, weight_decay=0.1)
    make: dict[str, Callable[[], ChoiceModel]] = {
        "pcmcnet": lambda: net,
        "stack": lambda: Stacking(models=[MNL(), net]),
        "ensemble": lambda: Ensemble(net, 2),
    }
    calls: list[int] = []

    def count(fitted: Any) -> float:
        calls.append(1)
        return float(fitted.score(data))

    for replicates in (2, 3):
        fitted = make[name]().fit(data, progress=False)
        bootstrap(fitted, data, count, replicates=replicates, run_folder=tmp_path / "run", progress=False)
    assert len(calls) == (1 + 2) + (1 + 1)
    other = PCMCNet(hidden=(2,), epochs=2, members=1, weight_decay=0.1).fit(data, seed=1, progress=False)
    with pytest.raises(ArtifactError, match="with other arguments"):
        bootstrap(other, data, count, replicates=2, run_folder=tmp_path / "run", progress=False)


# -- arguments and results ------------------------------------------------------------------------------------------


def test_invalid_arguments_are_refused(model: MNL, data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match="replicates must be a whole number of at least 2"):
        bootstrap(model, data, coefficients, replicates=1)
    with pytest.raises(InputError, match="expected the choice sets that the model was fitted to"):
        bootstrap(model, data.subset(np.arange(40)), coefficients)
    with pytest.raises(InputError, match="expected a fitted model, got str"):
        bootstrap("mnl", data, coefficients)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'value' is not finite"):
        bootstrap(model, data, lambda m: math.nan)
    with pytest.raises(InputError, match="at least two groups"):
        bootstrap(model, data, coefficients, by=np.zeros(len(data)))
    with pytest.raises(ConfigError, match="repeat_search must be true or false, got 'yes'"):
        bootstrap(model, data, coefficients, repeat_search="yes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"statistic: expected a function of a model, such as .*, got float"):
        bootstrap(model, data, 1.0)  # type: ignore[arg-type]
    ranking = RankBy("x").fit(data)
    assert bootstrap(ranking, data, lambda m: 1.0, replicates=2, progress=False).draws.tolist() == [[1.0], [1.0]]


def test_results_are_printed_plotted_and_exported(
    model: MNL, data: ChoiceData, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pandas")
    with caplog.at_level("INFO", logger="pcmcnet"):
        result = bootstrap(model, data, coefficients, replicates=3)
    assert "replicate 3: done" in caplog.text
    assert str(result).splitlines()[:3] == ["Bootstrap", "=" * 9, "replicates  3, by 20 persons"]
    assert result.to_frame().loc["x", "std_error"] == result.standard_errors["x"]
    assert json.loads(json.dumps(result.to_dict()))["intervals"]["x"] == list(result.intervals["x"])
    axes = result.plot()
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["x", "y"]
    assert "replicates" in result._repr_html_()
    with pytest.raises(InputError, match="no statistic 'z'"):
        result["z"]
