import json
import logging
import warnings
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from pcmcnet.errors import ArtifactError, TrainingError
from pcmcnet.progress import EpochCallback
from pcmcnet.tuning.result import FIRST_FOLD_STEP, Measurement
from pcmcnet.tuning.space import Choice, Range, Space
from pcmcnet.tuning.study import (
    MIN_EPOCHS_BEFORE_PRUNING,
    STUDY_FILE,
    RunningTrial,
    block_losses,
    importance,
    open_study,
    run_trial,
    trial_records,
)

SPACE = Space({"x": Range(0.0, 1.0), "n": Choice((1, 2, 4))})
IDENTITY: dict[str, Any] = {"model": "a", "options": {"epochs": 3}, "space": SPACE.to_dict(), "seed": 0}


def parabola(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
    return Measurement((options["x"] - 0.3) ** 2, None)


def epochs(losses: list[float]) -> Any:
    """Return an objective with these validation losses, one per epoch."""

    def objective(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
        for k, loss in enumerate(losses, 1):
            on_epoch({"epoch": k, "valid_loss": loss})
        return Measurement(min(losses), losses.index(min(losses)) + 1)

    return objective


# -- trials --------------------------------------------------------------------------------------------------------


def test_a_trial_is_recorded_with_its_options_loss_and_epochs(tmp_path: Path) -> None:
    with open_study(tmp_path, IDENTITY, SPACE, 0) as study:
        record = run_trial(study, SPACE, epochs([3.0, 2.0, 2.5]))
        assert (record.number, record.state, record.value, record.epochs) == (1, "complete", 2.0, 2)
        assert record.options == SPACE.options(study.trials[0].params)
        assert record.options["n"] in (1, 2, 4)
        assert record.message is None
        assert record.seconds > 0
    with open_study(tmp_path, IDENTITY, SPACE, 0) as study:
        assert trial_records(study, SPACE) == [record]


def test_a_network_worse_than_the_median_is_pruned() -> None:
    """Five complete trials have medians 2, 1.5, 1 in three epochs; worse ones end after the grace period."""
    assert MIN_EPOCHS_BEFORE_PRUNING == 2
    with open_study(None, IDENTITY, SPACE, 0) as study:
        for shift in (-0.2, -0.1, 0.0, 0.1, 0.2):
            assert run_trial(study, SPACE, epochs([2 + shift, 1.5 + shift, 1 + shift])).state == "complete"
        bad = run_trial(study, SPACE, epochs([5.0, 4.0, 0.1]))
        late = run_trial(study, SPACE, epochs([1.9, 1.4, 1.39]))
        good = run_trial(study, SPACE, epochs([9.0, 1.4, 0.9]))
        assert (bad.state, bad.value, bad.epochs) == ("pruned", 4.0, 2)
        assert bad.message == "after epoch 2: the loss is above the median of the earlier trials."
        assert (late.state, late.value, late.epochs) == ("pruned", 1.39, 3)
        assert (good.state, good.value, good.epochs) == ("complete", 0.9, 3)


def test_epochs_without_validation_are_not_pruned() -> None:
    with open_study(None, IDENTITY, SPACE, 0) as study:

        def objective(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
            on_epoch({"epoch": 1, "valid_loss": None})
            return Measurement(1.0, 1)

        assert run_trial(study, SPACE, objective).state == "complete"
        assert study.trials[0].intermediate_values == {}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TrainingError("the loss is\nno longer finite."), "the loss is no longer finite."),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_failure_is_recorded_with_its_message(error: Exception, message: str) -> None:
    def broken(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
        raise error

    with open_study(None, IDENTITY, SPACE, 0) as study:
        record = run_trial(study, SPACE, broken)
        assert (record.state, record.value, record.message) == ("failed", None, message)
        assert run_trial(study, SPACE, parabola).number == 2


def test_an_interruption_keeps_the_finished_trials(tmp_path: Path) -> None:
    """The running trial is not counted, and its configuration is drawn again."""

    def interrupted(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
        raise KeyboardInterrupt

    with open_study(tmp_path, IDENTITY, SPACE, 0) as study:
        first = run_trial(study, SPACE, parabola)
        with pytest.raises(KeyboardInterrupt):
            run_trial(study, SPACE, interrupted)
    with open_study(tmp_path, IDENTITY, SPACE, 0) as study:
        assert trial_records(study, SPACE) == [first]
        second = run_trial(study, SPACE, parabola)
        assert second.number == 2
        assert [t.state for t in study.trials] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
        assert study.trials[1].params == study.trials[2].params


# -- the defaults --------------------------------------------------------------------------------------------------

WITH_DEFAULTS = SPACE.with_defaults({"x": 0.7, "n": 3})  # the second is not in the space


def test_the_first_trial_uses_the_defaults_without_a_draw(tmp_path: Path) -> None:
    def recording(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
        return Measurement(options["x"], 7, 0.5, (1.0, options["x"]))

    with open_study(tmp_path, IDENTITY, WITH_DEFAULTS, 0) as study:
        first, second = (run_trial(study, WITH_DEFAULTS, recording) for _ in range(2))
    assert (first.number, first.defaults, first.options, first.value) == (1, True, {"x": 0.7, "n": 3}, 0.7)
    assert (second.number, second.defaults) == (2, False)
    with open_study(tmp_path, IDENTITY, WITH_DEFAULTS, 0) as study:
        assert trial_records(study, WITH_DEFAULTS) == [first, second]
        assert [losses.tolist() for losses in block_losses(study)] == [[1.0, 0.7], [1.0, second.value]]
        assert study.trials[0].params == {}
        assert importance(study, 0) == {}  # a single draw has no importance


def test_the_defaults_are_never_pruned() -> None:
    """They end last, as with several workers, with losses for which others are pruned."""
    with open_study(None, IDENTITY, WITH_DEFAULTS, 0) as study:
        defaults = RunningTrial(study, WITH_DEFAULTS)
        for _ in range(5):
            assert not run_trial(study, WITH_DEFAULTS, epochs([2.0, 1.5, 1.0])).defaults
        assert run_trial(study, WITH_DEFAULTS, epochs([9.0, 9.0, 9.0])).state == "pruned"
        for epoch in (1, 2, 3):
            defaults.on_epoch({"epoch": epoch, "valid_loss": 9.0})
        assert defaults.end(Measurement(9.0, 3)).number == 1  # the first trial, although it ended last
        assert [trial.defaults for trial in trial_records(study, WITH_DEFAULTS)] == [True] + [False] * 6


def test_interrupted_defaults_are_measured_again(tmp_path: Path) -> None:
    with open_study(tmp_path, IDENTITY, WITH_DEFAULTS, 0) as study:
        RunningTrial(study, WITH_DEFAULTS)
        other = run_trial(study, WITH_DEFAULTS, parabola)
    with open_study(tmp_path, IDENTITY, WITH_DEFAULTS, 0) as study:
        record = run_trial(study, WITH_DEFAULTS, parabola)
        assert (record.defaults, record.number) == (True, 1)
        assert [trial.options for trial in trial_records(study, WITH_DEFAULTS)] == [{"x": 0.7, "n": 3}, other.options]


def test_a_trial_worse_than_the_median_is_pruned_after_the_first_fold() -> None:
    def folds(loss: float) -> Any:
        def objective(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
            on_epoch({"epoch": FIRST_FOLD_STEP, "valid_loss": loss})
            on_epoch({"epoch": FIRST_FOLD_STEP, "valid_loss": None})
            return Measurement(loss, None)

        return objective

    with open_study(None, IDENTITY, SPACE, 0) as study:
        for loss in (1.0, 2.0, 3.0, 4.0, 5.0):
            assert run_trial(study, SPACE, folds(loss)).state == "complete"
        pruned = run_trial(study, SPACE, folds(3.5))
        assert (pruned.state, pruned.value, pruned.epochs) == ("pruned", 3.5, None)
        assert pruned.message == "after the first fold: the loss is above the median of the earlier trials."
        assert run_trial(study, SPACE, folds(2.5)).state == "complete"


def test_losses_of_pruned_trials_are_adjusted_for_other_folds() -> None:
    """The first trial has 1 on the first fold and 1.5 on all: a pruned one with 3 counts as 3.5."""

    def folds(first: float, whole: float) -> Any:
        def objective(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
            on_epoch({"epoch": FIRST_FOLD_STEP, "valid_loss": first})
            return Measurement(whole, None)

        return objective

    with open_study(None, IDENTITY, SPACE, 0) as study:
        for _ in range(5):
            run_trial(study, SPACE, folds(1.0, 1.5))
        assert run_trial(study, SPACE, folds(3.0, 9.0)).value == 3.5


# -- the folder ----------------------------------------------------------------------------------------------------


def test_another_search_is_refused_with_its_differences(tmp_path: Path) -> None:
    with open_study(tmp_path, IDENTITY, SPACE, 0):
        pass
    other = {**IDENTITY, "options": {"epochs": 4}, "seed": 1, "table": "f" * 64}
    with (
        pytest.raises(ArtifactError, match="contains a search with different settings: ") as error,
        open_study(tmp_path, other, SPACE, 1),
    ):
        pass
    for part in ("options.epochs (3 there, 4 here)", "seed (0 there, 1 here)", "table"):
        assert part in str(error.value)
    assert "f" * 64 not in str(error.value)


def test_a_folder_without_a_search_is_refused(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("Dear diary")
    with pytest.raises(ArtifactError, match="exists but contains no search"), open_study(tmp_path, IDENTITY, SPACE, 0):
        pass
    with (
        pytest.raises(ArtifactError, match="exists but contains no search"),
        open_study(tmp_path / "diary.txt", IDENTITY, SPACE, 0),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / STUDY_FILE).write_bytes(b"not a database" * 100)
    with pytest.raises(ArtifactError, match=r"study\.db cannot be used"), open_study(tmp_path, IDENTITY, SPACE, 0):
        pass


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a study? 50%25 #1 é"
    with open_study(folder, IDENTITY, SPACE, 0) as study:
        run_trial(study, SPACE, parabola)
    assert [path.name for path in folder.iterdir()] == [STUDY_FILE]
    with open_study(folder, IDENTITY, SPACE, 0) as study:
        assert len(trial_records(study, SPACE)) == 1


def test_optuna_is_quiet_and_keeps_its_settings(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = optuna.logging.get_verbosity(), list(warnings.filters)
    with open_study(tmp_path, IDENTITY, SPACE, 0) as study:
        for _ in range(7):
            run_trial(study, SPACE, parabola)
    assert capfd.readouterr() == ("", "")
    assert (optuna.logging.get_verbosity(), list(warnings.filters)) == before
    assert logging.getLogger("optuna").handlers


# -- importance ----------------------------------------------------------------------------------------------------


def test_importance_shows_the_dimension_that_matters() -> None:
    """The loss depends only on x, so x has nearly all of the variance; shares add up to 1."""
    with open_study(None, IDENTITY, SPACE, 0) as study:
        for _ in range(12):
            run_trial(study, SPACE, parabola)
        shares = importance(study, 0)
        assert list(shares) == ["x", "n"]
        assert shares["x"] > 0.8
        assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
        assert importance(study, 0) == shares
        assert json.loads(json.dumps(shares)) == shares


def test_importance_is_empty_if_trials_do_not_vary() -> None:
    with open_study(None, IDENTITY, SPACE, 0) as study:
        assert importance(study, 0) == {}
        for _ in range(3):
            run_trial(study, SPACE, epochs([1.0]))
        assert importance(study, 0) == {}


def test_a_single_dimension_has_importance_1() -> None:
    space = Space({"x": Range(0.0, 1.0), "n": Choice((4,))})
    with open_study(None, IDENTITY, space, 0) as study:
        for _ in range(3):
            run_trial(study, space, parabola)
        assert importance(study, 0) == {"x": 1.0}
