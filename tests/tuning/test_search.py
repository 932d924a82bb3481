import json
import logging
import math
import re
import signal
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import forked
import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, TrainingError
from pcmcnet.models import ChoiceModel
from pcmcnet.progress import StepReporter
from pcmcnet.tuning import tune
from pcmcnet.tuning.result import FIRST_FOLD_STEP, Measurement, TrialRecord
from pcmcnet.tuning.search import _with_progress

ROOT = Path(__file__).parents[2]
QUICK: dict[str, Any] = {"epochs": 2, "hidden": (4,), "weight_decay": 1.0}
NETWORK = {"lr": (1e-3, 1e-1, "log"), "layers": [1, 2], "nodes": [2, 4]}
MLBA = {"choice_set": "choice_set", "chosen": "chosen", "alternative": "alternative", "features": ["attr1", "attr2"]}


def rows(data: ChoiceData) -> set[int]:
    return set(data.set_ids.tolist())


def essence(tuning: pn.Tuning) -> list[dict[str, Any]]:
    """Return what two equal searches have in common, without times."""
    return [{k: v for k, v in trial.to_dict().items() if k != "seconds"} for trial in tuning.trials]


# -- results -------------------------------------------------------------------------------------------------------


def test_the_search_finds_the_slope_of_the_choices(slope: type[ChoiceModel], trips: ChoiceData) -> None:
    """Nothing is fitted, so the NLL over all folds is that of the table; a fine grid gives its minimum."""
    result = tune(slope(), trips, space={"slope": (-5.0, 5.0)}, trials=12, progress=False)
    grid = min(-slope(slope=s).fit(trips).score(trips) for s in np.linspace(-5, 5, 1001))
    assert result.best_value == pytest.approx(grid, abs=1e-3)  # twelve trials, not a thousand
    assert result.best_value == min(trial.value for trial in result.trials if trial.value is not None)
    assert result.best == result.kept_options == result.best_trial.options == {"slope": result.model.config.slope}
    assert result.importance == {"slope": 1.0}


def test_the_first_trial_is_the_given_model(slope: Any, trips: ChoiceData) -> None:
    result = tune(slope(slope=-1.0), trips, space={"slope": [0.5, 1.0], "colour": ["red"]}, progress=False)
    assert [trial.defaults for trial in result.trials] == [True, False, False]  # defaults, then the space
    assert result.trials[0].options == {"slope": -1.0, "colour": "red"}
    assert result.trials[0].value == pytest.approx(-slope(slope=-1.0).fit(trips).score(trips), abs=1e-12)
    assert "1 (defaults)" in str(result)


def test_defaults_in_the_space_are_tried_once(slope: Any, trips: ChoiceData) -> None:
    result = tune(slope(slope=1.0), trips, space={"slope": [0.5, 1.0, 2.0]}, progress=False)
    assert sorted(trial.options["slope"] for trial in result.trials) == [0.5, 1.0, 2.0]
    assert result.trials[0].options == {"slope": 1.0}


def test_the_best_is_kept_if_clearly_better_than_the_defaults(slope: Any, trips: ChoiceData) -> None:
    """The true slope is 2: 1.6 is not significantly worse, -2 is."""
    chance = tune(slope(slope=1.6), trips, space={"slope": [1.2, 1.9, 2.4]}, progress=False)
    assert not chance.best_trial.defaults
    assert chance.kept_trial.defaults
    assert chance.kept_options == {"slope": 1.6}
    assert chance.model.config.slope == 1.6
    assert re.search(r"Kept: the defaults\. Trial \d is better by only 0\.\d+ \(standard error 0\.\d+\)", str(chance))
    better = tune(slope(slope=-2.0), trips, space={"slope": [1.0, 2.0]}, progress=False)
    assert better.model.config.slope == better.best["slope"] > 0
    assert better.verdict is not None
    assert (better.verdict.gain or 0) > 2 * (better.verdict.standard_error or 0)
    assert f"trial {better.best_trial.number}. It is better than the defaults by" in better.why


def test_defaults_that_are_best_or_fail(slope: Any, trips: ChoiceData) -> None:
    unbeaten = tune(slope(slope=2.0), trips, space={"slope": [-2.0, -1.0]}, progress=False)
    assert unbeaten.kept_trial is unbeaten.best_trial is unbeaten.trials[0]
    assert unbeaten.why == "Kept: the defaults. No trial was better."
    failed = tune(slope(slope=9.0, fails_above=5.0), trips, space={"slope": [1.0]}, progress=False)
    assert [trial.state for trial in failed.trials] == ["failed", "complete"]
    assert failed.model.config.slope == 1.0
    assert failed.why == "Kept: trial 2. No trial with the defaults was completed for comparison."


def test_trials_use_folds_and_the_best_is_fitted_to_all_data(slope: Any, trips: ChoiceData) -> None:
    result = tune(slope(), trips, space={"slope": [0.5, 1.0]}, trials=3, valid=0.3, by="person", seed=4, progress=False)
    folds = trips.folds(3, seed=4, by="person")
    *trials, final = slope.fits
    assert [rows(model.parts[0]) for model in trials] == [rows(train) for train, _ in folds] * 3
    assert [rows(data) for data in slope.predicted] == [rows(valid) for _, valid in folds] * 3
    assert rows(final.parts[0]) == rows(trips)
    assert "validated on 3 folds, grouped by person" in result.how
    assert {model.parts[1] for model in slope.fits} == {None}  # a model without early stopping needs none
    assert {model.seed for model in slope.fits} == {4}


def test_trials_are_measured_on_a_given_validation_part(slope: Any, trips: ChoiceData, more_trips: ChoiceData) -> None:
    result = tune(slope(slope=1.0), trips, space={"slope": [0.5, 1.0]}, valid=more_trips, progress=False)
    *trials, final = slope.fits
    assert [len(model.parts[0]) for model in trials] == [60, 60]
    assert [len(data) for data in slope.predicted] == [40, 40]
    assert len(final.parts[0]) == 100
    measured = -slope(slope=result.best["slope"]).fit(trips).score(more_trips)
    assert result.best_value == pytest.approx(measured, abs=1e-12)
    assert "validated on the given validation data" in result.how


def test_other_rows_of_the_table_have_no_influence(trips: ChoiceData, more_trips: ChoiceData) -> None:
    """The same rows with and without a test part in their table give the same search and the same model."""
    whole = trips.concat(more_trips)
    part = whole.subset(np.arange(60))
    ours, theirs = (tune(pn.PCMCNet(**QUICK), data, space=NETWORK, trials=2, progress=False) for data in (trips, part))
    assert essence(ours) == essence(theirs)
    assert np.array_equal(ours.model.predict_proba(more_trips), theirs.model.predict_proba(more_trips))


def test_the_final_fit_uses_the_mean_epochs_of_the_trial(trips: ChoiceData) -> None:
    options: dict[str, Any] = {"epochs": 6, "min_delta": 0.0, "patience": 1, "weight_decay": 0.0, "tails": "keep"}
    result = tune(pn.PCMCNet(**options, refit=True), trips, space=NETWORK, trials=3, seed=1, progress=False)
    kept_trial = result.kept_trial
    fits = [
        pn.PCMCNet(**{**options, **result.kept_options}).fit(train, valid, seed=1, progress=False)
        for train, valid in trips.folds(4, seed=1)
    ]
    losses = [-fit.score(valid) * len(valid) for fit, (_, valid) in zip(fits, trips.folds(4, seed=1), strict=True)]
    assert kept_trial.value == pytest.approx(sum(losses) / 60, abs=1e-12)
    assert kept_trial.epochs == math.ceil(sum(fit.record_.epochs for fit in fits) / 4)
    final = pn.PCMCNet(**{**options, **result.kept_options, "epochs": kept_trial.epochs}).fit(
        trips, seed=1, progress=False
    )
    assert result.model.config == final.config
    assert np.array_equal(result.model.predict_proba(trips), final.predict_proba(trips))
    assert result.model.table_.fingerprint == trips.fingerprint()
    assert result.best.keys() == {"lr", "hidden"}


def test_kept_defaults_equal_a_plain_fit(trips: ChoiceData) -> None:
    """Weight decay and epochs are learnt again from all data."""
    base = pn.PCMCNet(hidden=(2,), batch_size=30)
    result = tune(base, trips, space={"lr": [1e-7]}, progress=False)
    plain = pn.PCMCNet(hidden=(2,), batch_size=30).fit(trips, progress=False)
    assert result.kept_trial.defaults
    assert result.model.config.weight_decay == result.model.config.epochs == "auto"
    assert np.array_equal(result.model.predict_proba(trips), plain.predict_proba(trips))


def test_slow_networks_are_pruned_in_the_first_fold(trips: ChoiceData) -> None:
    space = {"lr": [1e-6, 1e-5, 1e-4, 0.03, 0.05, 0.07, 0.1]}
    base = pn.PCMCNet(epochs=5, hidden=(4,), weight_decay=0.0, lr=1e-6, min_delta=0.0)
    result = tune(base, trips, space=space, trials=7, seed=3, progress=False)
    pruned = [trial for trial in result.trials if trial.state == "pruned"]
    assert pruned
    assert all(trial.epochs in (2, 3, 4, 5) for trial in pruned)
    assert result.trials[0].state == "complete"  # the defaults, although they are the slowest
    assert result.best["lr"] >= 0.03


def test_models_without_epochs_are_pruned_after_the_first_fold(slope: Any, trips: ChoiceData) -> None:
    space = {"slope": [1.0, 1.5, 2.0, 2.5, 3.0, -8.0]}
    result = tune(slope(slope=2.0), trips, space=space, seed=2, progress=False)
    pruned = [trial for trial in result.trials if trial.state == "pruned"]
    assert {trial.message for trial in pruned} <= {
        "after the first fold: the loss is above the median of the earlier trials."
    }
    assert [trial.epochs for trial in pruned] == [None] * len(pruned)
    assert len(slope.fits) == 4 * len(result.trials) - 3 * len(pruned) + 1


@pytest.mark.parametrize("name", ["pcmc-linear", "bradley-terry", "mnl", "rf"])
def test_other_models_have_their_own_space(name: str, trips: ChoiceData) -> None:
    options = {"trees": 5} if name == "rf" else {}
    result = tune(pn.MODELS[name](**options), trips, trials=2, progress=False)
    assert [trial.state for trial in result.trials] == ["complete"] * 2
    assert result.model.name == name
    assert all(getattr(result.model.config, option) == value for option, value in {**result.best, **options}.items())


def test_a_model_may_be_given_as_class_or_name(trips: ChoiceData) -> None:
    by_name, by_class = (
        tune(model, trips, space={"smoothing": [0.1, 1.0]}, progress=False)
        for model in ("bradley-terry", pn.BradleyTerry)
    )
    assert essence(by_name) == essence(by_class)
    assert len(by_name.trials) == 2  # the space has only two configurations


def test_the_given_model_is_not_changed(slope: Any, trips: ChoiceData) -> None:
    model = slope(slope=1.5)
    tune(model, trips, space={"slope": [0.5, 1.0]}, progress=False)
    assert model.config.slope == 1.5
    assert model.fitted_ is None


def test_a_timeout_ends_the_search_after_a_complete_trial(
    slope: Any, trips: ChoiceData, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pcmcnet"):
        result = tune(slope(), trips, space={"slope": (0.0, 1.0)}, trials=9, timeout=0)
    assert len(result.trials) == 1
    assert re.search(r"trial 1/9: the defaults, NLL \d\.\d{4}, best \d\.\d{4}, \d+\.\d s\n", caplog.text)
    assert "timeout after 1 of 9 trials" in caplog.text


# -- failures ------------------------------------------------------------------------------------------------------


def test_a_failed_trial_does_not_end_the_search(slope: Any, trips: ChoiceData) -> None:
    result = tune(slope(fails_above=1.0), trips, space={"slope": [0.5, 1.0, 2.0, 3.0]}, progress=False)
    failed = [trial for trial in result.trials if trial.state == "failed"]
    assert {trial.options["slope"]: trial.message for trial in failed} == {
        2.0: "slope 2.0 is too steep.",
        3.0: "slope 3.0 is too steep.",
    }
    assert result.best == {"slope": 1.0}
    assert "(3 complete, 2 failed)" in str(result)
    assert "slope 2.0 is too steep." in str(result)
    assert "slope 2.0 is too steep." in result.to_markdown()


def test_an_invalid_option_is_a_failed_trial(trips: ChoiceData) -> None:
    base = pn.PCMCNet(epochs=1, hidden=(2,), weight_decay=1.0)
    result = tune(base, trips, space={"rate": ["exp", "relu"]}, progress=False)
    (failed,) = (trial for trial in result.trials if trial.state == "failed")
    assert failed.options == {"rate": "relu"}
    assert "needs epsilon > 0" in (failed.message or "")


def test_an_infinite_loss_is_a_failed_trial(slope: Any, trips: ChoiceData) -> None:
    base = slope(slope=-math.inf, fails_above=math.inf)
    with pytest.raises(TrainingError, match=r"all 2 trials failed\. Error of the first trial: .* held-out sets is inf"):
        tune(base, trips, space={"slope": [-math.inf, math.inf]}, progress=False)


def test_only_failed_trials_raise_the_first_message(slope: Any, trips: ChoiceData) -> None:
    with pytest.raises(TrainingError, match=r"all 3 trials failed\. Error of the first trial: slope 0\.0 is too steep"):
        tune(slope(fails_above=-1.0), trips, space={"slope": [1.0, 2.0]}, progress=False)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": pn.Uniform()}, ConfigError, "uniform has no options: there is nothing to tune"),
        ({"model": pn.RankBy("x")}, ConfigError, "rank-by is not supported by tune"),
        ({"model": 3}, InputError, r"model: expected a model such as PCMCNet\(\), or the name of a model, got 3"),
        ({"model": "pcmnet"}, ConfigError, "Did you mean 'pcmcnet'"),
        ({"data": {}}, InputError, "data: expected ChoiceData, got dict"),
        ({"trials": 0}, ConfigError, "trials must be a whole number of at least 1"),
        ({"valid": 0}, ConfigError, "valid must be a number above 0 and below 1"),
        ({"valid": 1.0}, ConfigError, "valid must be a number above 0 and below 1"),
        ({"seed": -1}, ConfigError, "seed must be"),
        ({"timeout": -1}, ConfigError, "timeout must be a number of at least 0"),
        ({"device": "abacus"}, ConfigError, "device 'abacus' is not available"),
        ({"by": "home"}, InputError, "column 'home' is neither an individual-level nor a kept"),
        ({"space": "huge"}, ConfigError, "unknown space 'huge'"),
        ({"folder": 3}, InputError, "expected the path of a folder"),
    ],
)
def test_invalid_arguments_are_refused_before_any_fit(
    options: dict[str, Any], error: type[Exception], message: str, trips: ChoiceData
) -> None:
    arguments = {"model": "pcmcnet", "data": trips, "progress": False, **options}
    with pytest.raises(error, match=message):
        tune(arguments.pop("model"), arguments.pop("data"), **arguments)


def test_invalid_validation_parts_are_refused(trips: ChoiceData, more_trips: ChoiceData) -> None:
    with pytest.raises(InputError, match="by is not supported with validation data"):
        tune("pcmcnet", trips, valid=more_trips, by="person")
    table = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "x": [1, 2, 3, 4], "w": [0, 0, 1, 1]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"], weight="w")
    with pytest.raises(InputError, match="expected at least one choice set with a weight above 0, got none in 1"):
        tune("pcmcnet", data, valid=0.5)


def test_a_missing_optuna_gives_the_install_command(trips: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.tuning.search.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs Optuna, which is not installed: pip install 'pcmcnet\[tune\]'"):
        tune("pcmcnet", trips)


# -- the folder ----------------------------------------------------------------------------------------------------


def test_a_folder_stores_the_search_and_more_trials_continue_it(trips: ChoiceData, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"space": NETWORK, "progress": False, "folder": tmp_path}
    base = pn.PCMCNet(**QUICK)
    first = tune(base, trips, trials=2, **settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "study.db", "tuning.json", "tuning.md"]
    assert json.loads((tmp_path / "tuning.json").read_text()) == first.to_dict()
    assert first.to_markdown() in (tmp_path / "tuning.md").read_text()
    written = (tmp_path / "model" / "model.json").stat().st_mtime_ns
    again = tune(base, trips, trials=2, **settings)
    assert again.to_dict() == first.to_dict()  # including times: nothing was measured again
    assert (tmp_path / "model" / "model.json").stat().st_mtime_ns == written
    more = tune(base, trips, trials=4, **settings)
    assert more.trials[:2] == first.trials
    assert essence(more) == essence(tune(base, trips, trials=4, space=NETWORK, progress=False))
    saved = pn.load(tmp_path / "model")
    assert saved.config == more.model.config
    assert np.array_equal(saved.predict_proba(trips), more.model.predict_proba(trips))
    fewer = tune(base, trips, trials=1, **settings)
    assert fewer.trials == more.trials  # no trial is lost


def test_a_damaged_or_outdated_model_is_fitted_again(trips: ChoiceData, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"space": {"smoothing": [0.1, 1.0]}, "progress": False, "folder": tmp_path}
    result = tune("bradley-terry", trips, **settings)
    (tmp_path / "model" / "config.json").write_text("{}")
    tune("bradley-terry", trips, **settings)
    assert pn.load(tmp_path / "model").config == result.model.config
    for file in (tmp_path / "model").iterdir():
        file.unlink()
    (tmp_path / "model").rmdir()
    pn.BradleyTerry(smoothing=7.0).fit(trips).save(tmp_path / "model")
    tune("bradley-terry", trips, **settings)
    assert pn.load(tmp_path / "model").config == result.model.config


def test_the_folder_of_another_search_is_refused(slope: Any, trips: ChoiceData, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"space": {"slope": (0.0, 1.0)}, "trials": 1, "progress": False, "folder": tmp_path}
    tune(slope(), trips, **settings)
    for model, data, change, differs in (
        (slope(), trips, {"seed": 1}, r"seed \(0 there, 1 here\)"),
        (slope(), trips, {"valid": 0.3}, r"valid \(0.2 there, 0.3 here\)"),
        (slope(), trips, {"by": "person"}, r"by \(null there, \"person\" here\)"),
        (slope(), trips, {"space": {"slope": (0.0, 2.0)}}, r"space\.slope"),
        (slope(slope=0.5), trips, {}, r"options\.slope \(0.0 there, 0.5 here\)"),
        (slope(colour="blue"), trips, {}, r"options\.colour \(\"red\" there, \"blue\" here\)"),
        (slope(), trips.subset(np.arange(59)), {}, "table"),
    ):
        with pytest.raises(ArtifactError, match=f"contains a search with different settings: .*{differs}"):
            tune(model, data, **{**settings, **change})


KILLED = """
    import os, signal
    import numpy as np
    import pcmcnet as pn

    from pcmcnet.models.networks.pairwise_network import PCMCNetwork

    prepare, seen = PCMCNetwork.prepare, []

    def mortal(self, *args):
        seen.append(self)
        if len(seen) == {fit}:
            os.kill(os.getpid(), signal.SIGKILL)
        prepare(self, *args)

    PCMCNetwork.prepare = mortal
    data = pn.ChoiceData.from_long(
        "trips.parquet", choice_set="trip", chosen="took", alternative="mode", features=["x", "y"], keep=["person"]
    )
    pn.tune(pn.PCMCNet(**{options!r}), data, space={space!r}, trials=7, folder="study", device="cpu")
"""


@pytest.mark.parametrize(
    "fit",
    [
        pytest.param(2, id="during the defaults", marks=pytest.mark.slow),
        pytest.param(7, id="during random draws", marks=pytest.mark.slow),
        pytest.param(25, id="during proposals"),
        pytest.param(29, id="during the final fit", marks=pytest.mark.slow),
    ],
)
def test_a_killed_search_resumes_to_the_same_result(
    fit: int, trips: ChoiceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a real SIGKILL during a fit, no finished trial is lost or repeated, and the others are the same."""
    monkeypatch.chdir(tmp_path)
    table = {name: column.values for name, column in trips.features.items()}
    assert trips.labels is not None
    chosen = np.zeros(len(trips.rows), int)
    chosen[trips.offsets[:-1] + trips.require_chosen("test")] = 1
    of = trips.set_of_alternative
    table |= {"trip": trips.set_ids[of], "mode": trips.labels.plain(), "took": chosen, "person": of // 4}
    pyarrow.parquet.write_table(pa.table(table), "trips.parquet")
    died = forked.run(textwrap.dedent(KILLED).format(fit=fit, space=NETWORK, options=QUICK))
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert not Path("study/model").exists()
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "alternative": "mode", "features": ["x", "y"]}
    data = ChoiceData.from_long("trips.parquet", keep=["person"], **roles)
    settings: dict[str, Any] = {"space": NETWORK, "trials": 7, "progress": False}
    resumed = tune(pn.PCMCNet(**QUICK), data, folder="study", **settings)
    whole = tune(pn.PCMCNet(**QUICK), data, **settings)
    assert [trial.number for trial in resumed.trials] == list(range(1, 8))
    assert essence(resumed) == essence(whole)
    assert np.array_equal(pn.load("study/model").predict_proba(data), whole.model.predict_proba(data))


# -- on the paper's first experiment -------------------------------------------------------------------------------


@pytest.mark.slow
def test_twelve_trials_on_mlba_data_beat_random_draws() -> None:
    """A part of the paper's space; the search has to beat the four initial random draws."""
    path = ROOT.parent / "shared" / "data" / "mlba_train.parquet"
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of the repository")
    data = ChoiceData.from_long(path, **MLBA).subset(np.arange(2_000))
    space = {
        "lr": [1e-5, 1e-4, 1e-3, 1e-2],
        "batch_size": [8, 16, 64],
        "layers": [1, 2, 3],
        "nodes": [4, 16],
        "activation": ["relu", "sigmoid", "tanh", "leaky_relu"],
    }
    result = tune(pn.PCMCNet(epochs=5, weight_decay=0.1), data, space=space, trials=12, progress=False)
    random = sorted(trial.value or np.inf for trial in result.trials[1:5])
    assert result.best_value < random[2]
    assert result.best_value < random[-1] - 0.1
    test = ChoiceData.from_long(path, **MLBA).subset(np.arange(2_000, 6_000))
    worst = max(result.trials[1:5], key=lambda trial: trial.value or 0)
    poor = pn.PCMCNet(epochs=5, weight_decay=0.1, **worst.options).fit(data, progress=False)
    assert result.model.score(test) > poor.score(test) + 0.05


def test_progress_shows_options_epochs_and_the_best_loss() -> None:
    notes: list[str] = []

    class RecordingReporter(StepReporter):
        def note(self, text: str) -> None:
            notes.append(text)

    def objective(options: Any, on_epoch: Any) -> Measurement:
        for epoch in (1, FIRST_FOLD_STEP):
            on_epoch({"epoch": epoch, "valid_loss": 0.5})
        return Measurement(0.5, 1)

    entries: list[Any] = []
    records = [TrialRecord(1, "complete", 0.8, {}, 3, 1.0), TrialRecord(2, "pruned", 0.1, {}, 3, 1.0)]
    watched = _with_progress(objective, RecordingReporter(), records)  # type: ignore[arg-type]
    assert watched({"hidden": (8, 8), "lr": 0.01}, entries.append) == Measurement(0.5, 1)
    assert notes == [
        "best so far 0.8000; hidden=8,8 lr=0.01",
        "epoch 1; best so far 0.8000; hidden=8,8 lr=0.01",
    ]
    assert [entry["epoch"] for entry in entries] == [1, FIRST_FOLD_STEP]
