import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from choice_tables import PANEL, logit_choices, normal_tastes, panel, read
from pcmcnet import (
    MNL,
    Calibrated,
    Ensemble,
    LatentClassMNL,
    MixedMNL,
    PCMCNet,
    RankBy,
    bootstrap_errors,
    compare,
    evaluate,
    load,
)
from pcmcnet.data import ChoiceData
from pcmcnet.data.resampling import resample
from pcmcnet.errors import ArtifactError, ConfigError, InputError, NotFittedError
from pcmcnet.insight.elasticity import slopes
from pcmcnet.models import ChoiceModel
from pcmcnet.models.ensemble import log_mean_exp, log_odds, prediction_interval

MakeTrips = Callable[..., pa.Table]


@pytest.fixture(scope="module")
def ensemble(trips: ChoiceData, quick: dict[str, Any]) -> Ensemble:
    """A fitted ensemble that tests must not change."""
    fitted: Ensemble = Ensemble(PCMCNet(**quick), 3).fit(trips, seed=4, progress=False)
    return fitted


# -- members -------------------------------------------------------------------------------------------------------


def test_a_member_is_one_network_by_default() -> None:
    assert PCMCNet().config.members == "auto"
    assert Ensemble(PCMCNet())._inner().config.members == 1
    assert Ensemble("pcmcnet", options={"members": 3})._inner().config.members == 3


def test_members_are_fits_with_different_seeds(ensemble: Ensemble, trips: ChoiceData, quick: dict[str, Any]) -> None:
    seeds = ensemble.record_.seeds
    assert len(set(seeds)) == len(ensemble.members_) == 3
    assert ensemble.table_.seed == 4
    for seed, member in zip(seeds, ensemble.members_, strict=True):
        alone = PCMCNet(**quick).fit(trips, seed=seed, progress=False)
        np.testing.assert_array_equal(member.predict_log_proba(trips), alone.predict_log_proba(trips))


def test_the_first_members_do_not_depend_on_the_number_of_members(
    ensemble: Ensemble, trips: ChoiceData, quick: dict[str, Any]
) -> None:
    fewer = Ensemble(PCMCNet(**quick), 2).fit(trips, seed=4, progress=False)
    assert fewer.record_.seeds == ensemble.record_.seeds[:2]
    other = Ensemble(PCMCNet(**quick), 2).fit(trips, seed=5, progress=False)
    assert not {*other.record_.seeds} & {*ensemble.record_.seeds}


def test_probabilities_are_the_means_of_the_members(ensemble: Ensemble, trips: ChoiceData) -> None:
    each = np.stack([member.predict_proba(trips) for member in ensemble.members_])
    assert np.ptp(each, axis=0).max() > 0.01
    np.testing.assert_allclose(ensemble.predict_proba(trips), each.mean(axis=0), rtol=1e-12)
    assert ensemble.num_parameters == sum(member.num_parameters for member in ensemble.members_)


def test_a_model_and_its_name_with_options_are_the_same_ensemble(quick: dict[str, Any]) -> None:
    model = PCMCNet(**quick)
    assert Ensemble(model, 4).config == Ensemble("pcmcnet", 4, options=quick).config
    with_lists = json.loads(json.dumps(quick))
    assert Ensemble("pcmcnet", 4, options=with_lists).config == Ensemble(model, 4).config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"model": "pcmcnett"}, "Did you mean 'pcmcnet'"),
        ({"model": PCMCNet}, "got the class PCMCNet"),
        ({}, "got None"),
        ({"model": "mnl", "n": 1}, "n must be a whole number of at least 2"),
        ({"model": "mnl", "resample": "yes"}, "resample must be true or false"),
        ({"model": MNL(), "options": {}}, "a model object has its own"),
        ({"model": "mnl", "options": {"formulas": ""}}, "unknown option 'formulas'. Did you mean 'formula'"),
        ({"model": Ensemble("mnl")}, "cannot be ensembles"),
    ],
)
def test_objects_that_are_not_models_are_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Ensemble(**words)


def test_a_member_that_fails_fails_the_ensemble(
    trips: ChoiceData, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[int] = []
    plain = PCMCNet._fit_unchecked

    def fit(self: PCMCNet, *words: Any, **more: Any) -> Any:
        fits.append(more["seed"])
        if len(fits) == 2:
            raise InputError("the second one has no luck")
        return plain(self, *words, **more)

    monkeypatch.setattr(PCMCNet, "_fit_unchecked", fit)
    model = Ensemble(PCMCNet(**quick), 3)
    with pytest.raises(InputError, match="no luck"):
        model.fit(trips, progress=False)
    assert len(fits) == 2
    with pytest.raises(NotFittedError):
        model.predict_proba(trips)


def test_a_ranking_stays_a_ranking(trips: ChoiceData) -> None:
    ensemble = Ensemble(RankBy("price"), 2).fit(trips)
    assert ensemble.gives == "ranking"
    np.testing.assert_array_equal(ensemble.predict(trips), RankBy("price").fit(trips).predict(trips))
    assert evaluate(ensemble, trips).nll is None


def test_an_ensemble_can_be_compared_with_others(trips: ChoiceData, quick: dict[str, Any]) -> None:
    models = {"one": PCMCNet(**quick), "three": Ensemble(PCMCNet(**quick), 3)}
    result = compare(models, trips, split=(0.7, 0.3), valid=0.2, resamples=0, progress=False)
    assert [row.error for row in result.rows] == [None, None]
    assert result.rows[1].model == "ensemble"


# -- intervals -----------------------------------------------------------------------------------------------------


def test_the_interval_contains_the_probability_within_0_and_1(ensemble: Ensemble, trips: ChoiceData) -> None:
    p = ensemble.predict_proba(trips)
    for level in (0.01, 0.9, 0.999):
        low, high = ensemble.predict_interval(trips, level)
        assert (low >= 0).all()
        assert (high <= 1).all()
        assert ((low <= p) & (p <= high)).all()
    assert ((high - low)[trips.rows][trips.sizes[trips.set_of_alternative] > 1] > 0.001).all()
    assert (low[trips.hidden_rows] == 0).all()
    assert (high[trips.hidden_rows] == 0).all()
    alone = trips.rows[trips.offsets[:-1][trips.sizes == 1]]
    assert (low[alone] == 1).all()
    assert (high[alone] == 1).all()


def test_equal_members_have_intervals_of_width_0(trips: ChoiceData, quick: dict[str, Any]) -> None:
    model = Ensemble(PCMCNet(**quick), 3).fit(trips, progress=False)
    alike = replace(model._state, members=(model.members_[0],) * 3)
    model.fitted_ = replace(model.require_fitted(), state=alike)
    low, high = model.predict_interval(trips)
    np.testing.assert_array_equal(low, high)
    np.testing.assert_array_equal(low, model.members_[0].predict_proba(trips))
    assert "all members are equal" in model.caveats[-1]


@pytest.mark.slow
def test_intervals_cover_other_fits(trips: ChoiceData, quick: dict[str, Any]) -> None:
    """At a level of 90 %, nine of ten probabilities of 12 other fits are covered. Those of one fit are correlated."""
    some, others = (Ensemble(PCMCNet(**{**quick, "epochs": 2}), n).fit(trips, seed=n, progress=False) for n in (6, 12))
    low, high = some.predict_interval(trips, 0.9)
    p = others.over(lambda model: model.predict_proba(trips)).values
    free = trips.rows[trips.sizes[trips.set_of_alternative] > 1]
    inside = ((low <= p) & (p <= high))[:, free].mean()
    # Rows of one table share their members, so the share varies: 0.81 to 0.93, mean 0.89, over ten pairs of seeds.
    assert 0.75 < inside < 0.97


def test_any_statistic_has_an_interval(ensemble: Ensemble, trips: ChoiceData) -> None:
    scores = [member.score(trips) for member in ensemble.members_]
    result = ensemble.over(lambda model: model.score(trips))
    assert result.values.tolist() == scores
    assert result.mean == pytest.approx(np.mean(scores), rel=1e-12)
    assert result.low < min(scores)
    assert result.high > max(scores)
    wide, narrow = (ensemble.over(lambda model: model.predict_proba(trips), level) for level in (0.99, 0.5))
    assert wide.mean.shape == (trips.n_rows,)
    assert (wide.high - wide.low >= narrow.high - narrow.low).all()


@pytest.mark.parametrize("column", ["price", "income"])
@pytest.mark.parametrize("wrapped", ["ensemble", "calibrated"])
def test_derivatives_agree_with_differences_of_probabilities(
    column: str, wrapped: str, trips: ChoiceData, quick: dict[str, Any]
) -> None:
    """The network is smooth, because a difference could step over a kink."""
    smooth = Ensemble(PCMCNet(**{**quick, "activation": "tanh"}), 2).fit(trips, progress=False)
    model = smooth if wrapped == "ensemble" else Calibrated(smooth, 1.7)
    exact, near = (slopes(model, trips, column, method=how, step=0.01) for how in ("derivatives", "differences"))
    # Networks compute in float32, whose rounding over a step of a hundredth of a price of 1 is 1e-5.
    np.testing.assert_allclose(exact, near, atol=1e-3 * np.abs(exact).max())
    assert np.abs(exact).max() > 0
    assert slopes(Ensemble("uniform", 2).fit(trips), trips, column).max() == 0  # by differences


def test_statistics_of_different_shapes_are_refused(ensemble: Ensemble) -> None:
    sizes = iter([1, 2, 3])
    with pytest.raises(InputError, match="same shape for all members"):
        ensemble.over(lambda _: np.zeros(next(sizes)))
    with pytest.raises(NotFittedError):
        Ensemble("mnl").over(lambda model: 1.0)


# -- resampled weights ---------------------------------------------------------------------------------------------


def logit_table(sets: int, seed: int) -> tuple[ChoiceData, Any]:
    """Return choices of a logit with coefficient -1, and the true probabilities."""
    table = logit_choices(sets, {"cost": -1.0}, seed, sizes=(3, 3))
    return read(table, features=["cost"]), table["probability"]


def test_deterministic_members_vary_only_by_resampled_weights() -> None:
    data, _ = logit_table(60, seed=0)
    plain = Ensemble(MNL(), 3).fit(data)
    assert plain.predict_interval(data)[0].tolist() == plain.predict_interval(data)[1].tolist()
    assert "all members are equal" in plain.caveats[-1]
    resampled = Ensemble(MNL(), 3, resample=True).fit(data)
    low, high = resampled.predict_interval(data)
    assert (high - low > 1e-3).mean() > 0.9
    assert resampled.caveats == ()
    again = Ensemble(MNL(), 3, resample=True).fit(data)
    np.testing.assert_array_equal(again.predict_log_proba(data), resampled.predict_log_proba(data))


def test_the_spread_of_resampled_logits_is_the_clustered_error() -> None:
    """Each choice is repeated four times as one person's, so errors by choice set are half of those by person.

    A standard deviation of 60 members is known to 1 / sqrt(120) = 9%, so 30% is more than three times that.
    """
    table = logit_choices(80, {"cost": -1.0}, 1, sizes=(3, 3))
    times = {name: np.concatenate([column] * 4) for name, column in table.items()}
    times["who"], times["trip"] = times["trip"], np.concatenate([table["trip"] + 1000 * k for k in range(4)])
    data = read(times, features=["cost"], person="who")
    clustered = MNL().fit(data).standard_errors("clustered")["cost"]
    assert clustered == pytest.approx(2 * MNL().fit(data).standard_errors("robust")["cost"], rel=0.02)  # n / (n - 1)
    ensemble = Ensemble(MNL(), 60, resample=True).fit(data, seed=0)
    spread = np.std([member.coefficients["cost"] for member in ensemble.members_], ddof=1)
    assert spread == pytest.approx(clustered, rel=0.3)


def test_members_and_bootstrap_errors_have_the_same_draws() -> None:
    data, _ = logit_table(60, seed=0)
    ensemble = Ensemble(MNL(), 3, resample=True).fit(data, seed=5)
    errors = bootstrap_errors(MNL().fit(data), data, draws=3, seed=5, progress=False)
    estimates = [member.estimates_.values for member in ensemble.members_]
    np.testing.assert_allclose(errors.samples, estimates, rtol=1e-8)  # two searches


def test_choices_of_a_ranking_have_one_weight() -> None:
    rows = [("abc"[k], trip, 1 + (k + trip) % 3) for trip in range(20) for k in range(3)]
    item, trip, rank = zip(*rows, strict=True)
    data = ChoiceData.from_long(
        {"trip": trip, "item": item, "rank": rank}, choice_set="trip", alternative="item", rank="rank"
    )
    weights = resample(data, np.random.SeedSequence(0)).weights.reshape(20, 2)
    np.testing.assert_array_equal(weights[:, 0], weights[:, 1])
    assert len(np.unique(weights)) == 20
    assert weights.mean() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    "model", [MixedMNL(random={"x": "normal"}, draws=10), LatentClassMNL(classes=2, starts=2)], ids=["mixed", "latent"]
)
def test_models_of_persons_are_resampled(model: ChoiceModel) -> None:
    data = read(panel(20, normal_tastes, sets=4), **PANEL)
    ensemble = Ensemble(model, 2, resample=True).fit(data, progress=False)
    first, second = (member.predict_proba(data) for member in ensemble.members_)
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.slow
def test_intervals_of_resampled_logits_cover_the_truth() -> None:
    """With one coefficient, nearly all intervals of a table cover the truth or nearly none, hence 40 tables."""
    hits = []
    for seed in range(40):
        data, truth = logit_table(60, seed)
        low, high = Ensemble(MNL(), 6, resample=True).fit(data, seed=seed).predict_interval(data, 0.9)
        hits.append(((low <= truth) & (truth <= high)).mean())
    # 0.9 with a standard deviation of sqrt(.9 .1 / 40) = 0.047.
    assert 0.78 < np.mean(hits) < 0.99


# -- on disk -------------------------------------------------------------------------------------------------------


def test_a_saved_ensemble_is_loaded_unchanged(ensemble: Ensemble, trips: ChoiceData, tmp_path: Path) -> None:
    folder = ensemble.save(tmp_path / "model")
    back = load(folder)
    assert isinstance(back, Ensemble)
    assert (back.record_, back.table_) == (ensemble.record_, ensemble.table_)
    for ours, theirs in zip(ensemble.predict_interval(trips), back.predict_interval(trips), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours_, theirs_ in zip(ensemble.members_, back.members_, strict=True):
        assert ours_.history == theirs_.history
        assert str(ours_.summary()) == str(theirs_.summary())


@pytest.mark.parametrize("name", ["member-2-weights.safetensors", "member-3-kind.json"])
def test_a_damaged_or_missing_member_is_refused(name: str, ensemble: Ensemble, tmp_path: Path) -> None:
    folder = ensemble.save(tmp_path / "model")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-3])
    with pytest.raises(ArtifactError, match=f"{name} was truncated or altered"):
        load(folder)
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=f"{name} is missing"):
        load(folder)


class Stopped(Exception):  # noqa: N818 - no error, but what stops a run here
    pass


def test_an_interrupted_ensemble_resumes_to_the_same_model(
    ensemble: Ensemble, trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    """The fit stops after the second epoch of the second member. The first member is not refitted."""
    folder, model = tmp_path / "run", Ensemble(PCMCNet(**quick), 3)

    def stop(entry: dict[str, Any]) -> None:
        if (entry["member"], entry["epoch"]) == (2, 2):
            raise Stopped

    with pytest.raises(Stopped):
        model.fit(trips, seed=4, progress=False, run_folder=folder, on_epoch=stop)
    with pytest.raises(InputError, match="holds an unfinished run"):
        model.fit(trips, seed=4, progress=False, run_folder=folder)
    with pytest.raises(ArtifactError, match="holds an unfinished run, not a model"):
        load(folder)
    seen: list[tuple[int, int]] = []
    model.fit(
        trips,
        seed=4,
        progress=False,
        run_folder=folder,
        resume=True,
        on_epoch=lambda entry: seen.append((entry["member"], entry["epoch"])),
    )
    assert seen == [(2, 3), (3, 1), (3, 2), (3, 3)]
    model.save(folder)
    assert all(path.is_file() for path in folder.iterdir())
    np.testing.assert_array_equal(load(folder).predict_log_proba(trips), ensemble.predict_log_proba(trips))


def test_a_run_killed_before_its_first_file_can_be_repeated(
    ensemble: Ensemble, trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    (folder / "member-1").mkdir(parents=True)
    (folder / ".member-1.lock").touch()
    model = Ensemble(PCMCNet(**quick), 3).fit(trips, seed=4, progress=False, run_folder=folder, resume=True)
    model.save(folder)
    np.testing.assert_array_equal(load(folder).predict_log_proba(trips), ensemble.predict_log_proba(trips))


def test_a_run_folder_with_a_foreign_member_is_refused(
    ensemble: Ensemble, trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    Ensemble(PCMCNet(**quick), 2).fit(trips, progress=False, run_folder=folder)
    (folder / "member-1" / "letters.txt").write_text("dear")
    with pytest.raises(ArtifactError, match="exists and is not empty"):
        ensemble.save(folder)
    assert (folder / "member-1" / "letters.txt").read_text() == "dear"


def test_a_run_that_fails_immediately_leaves_no_folder(
    make_trips: MakeTrips, roles: dict[str, Any], tmp_path: Path
) -> None:
    data = ChoiceData.from_long(make_trips(), **{**roles, "features": [], "individual": []})
    model: ChoiceModel = Ensemble(PCMCNet(labels=False), 2)
    with pytest.raises(InputError, match="declare features, or declare an alternative"):
        model.fit(data, progress=False, run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- Ensemble interval -------------------------------------------------------------------------------------------------


def test_the_interval_of_three_values_is_that_of_the_textbook() -> None:
    """1, 2, 3: mean 2, sd 1, t at 2 degrees of freedom and 95 % is 4.302653, sqrt(4/3) = 1.154701."""
    low, high = prediction_interval(np.array([1.0, 2.0, 3.0]), 0.95)
    np.testing.assert_allclose([low, high], [2 - 4.968275, 2 + 4.968275], atol=1e-6)


@pytest.mark.parametrize("n", [2, 5, 20])
def test_a_new_value_is_covered_at_the_nominal_level(n: int) -> None:
    rng = np.random.default_rng(n)
    values, another = rng.normal(3.0, 2.0, (n, 40_000)), rng.normal(3.0, 2.0, 40_000)
    low, high = prediction_interval(values, 0.9)
    # The share of 40,000 draws has a standard deviation of 0.0015.
    assert np.mean((low <= another) & (another <= high)) == pytest.approx(0.9, abs=0.006)


def test_equal_values_have_an_interval_of_width_0() -> None:
    low, high = prediction_interval(np.array([[0.1, -np.inf, 1.0]] * 7), 0.9)
    assert low.tolist() == high.tolist() == [0.1, -np.inf, 1.0]


def test_nan_values_and_invalid_levels_are_refused() -> None:
    with pytest.raises(InputError, match="finite numbers from every member, got nan"):
        prediction_interval(np.array([1.0, np.nan]), 0.9)
    with pytest.raises(InputError, match="got inf"):
        prediction_interval(np.array([1.0, np.inf]), 0.9)
    for level in (0.0, 1.0, 90):
        with pytest.raises(ConfigError, match="level must be a number above 0 and below 1"):
            prediction_interval(np.array([1.0, 2.0]), level)


def test_the_mean_of_probabilities_is_computed_in_logs() -> None:
    """(1/4 + 3/4) / 2 = 1/2; e^-1000 and 3 e^-1000 have the mean 2 e^-1000, although both are 0 in float64."""
    logs = np.array([[np.log(0.25), -1000.0, -np.inf, 0.0], [np.log(0.75), np.log(3.0) - 1000.0, -np.inf, 0.0]])
    result = log_mean_exp(logs)
    np.testing.assert_allclose(result[:2], [np.log(0.5), np.log(2.0) - 1000.0], rtol=1e-15)
    assert result[2:].tolist() == [-np.inf, 0.0]
    same = np.full((5, 3), -np.pi)
    assert (log_mean_exp(same) == -np.pi).all()


def test_log_odds_are_finite_at_both_ends() -> None:
    result = log_odds(np.array([-np.inf, np.log(0.2), -1e-20, 0.0]))
    np.testing.assert_allclose(result, [-745.0, np.log(0.25), 37.0, 37.0])
