import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pcmcnet.models import PCMCNet
from pcmcnet.tuning.result import (
    TrialRecord,
    Tuning,
    Verdict,
    best_complete_trial,
    decide,
    paired_gain,
    required_standard_errors,
)

DESIGN: dict[str, Any] = {"model": "pcmcnet", "valid": 0.2, "by": None, "seed": 3, "options": {"bins": (1, 2)}}


@pytest.fixture
def tuning() -> Tuning:
    def record(number: int, state: Any, value: float | None, width: int, message: str | None = None) -> TrialRecord:
        options = {"hidden": (width,), "lr": 0.01}
        return TrialRecord(number, state, value, options, None if value is None else 4, 1.25, message, number == 1)

    trials = [
        record(1, "complete", 1.5, 8),
        record(2, "pruned", 0.5, 2, "after epoch 4"),
        record(3, "complete", 0.75, 16),
        record(4, "failed", None, 4, "the loss | is no_longer finite."),
        record(5, "complete", 0.75, 32),
    ]
    best = best_complete_trial(trials)
    return Tuning(PCMCNet(), best.options, 0.75, trials, {"hidden": 0.75, "lr": 0.25}, DESIGN, Verdict(3, 0.75, 0.125))


def test_the_best_trial_is_the_first_of_least_loss(tuning: Tuning) -> None:
    assert tuning.best_trial.number == 3
    assert tuning.best == {"hidden": (16,), "lr": 0.01}


def test_a_result_prints_as_a_table_with_the_best_first(tuning: Tuning) -> None:
    lines = str(tuning).splitlines()
    assert lines[0] == (
        "5 trials of pcmcnet (3 complete, 1 pruned, 1 failed); validated on 20% of the choice sets; seed 3."
    )
    assert lines[2].split() == ["trial", "NLL", "state", "epochs", "s", "hidden", "lr"]
    assert [line.split()[0] for line in lines[3:8]] == ["3", "5", "1", "2", "4"]
    assert lines[5].split()[:3] == ["1", "(defaults)", "1.5000"]
    assert lines[3].split() == ["3", "0.7500", "complete", "4", "1.2", "16", "0.01"]
    assert lines[7].split() == ["4", "-", "failed", "-", "1.2", "4", "0.01"]
    assert lines[9] == "trial 4 failed: the loss | is no_longer finite."
    assert lines[-2] == "best: trial 3, validation NLL 0.7500: hidden=16, lr=0.01"
    assert lines[-1] == "Kept: trial 3. It is better than the defaults by 0.7500 (standard error 0.1250)."


def test_the_defaults_may_be_kept(tuning: Tuning) -> None:
    with_defaults = replace(tuning, verdict=Verdict(1, 0.75, 0.5))
    assert (with_defaults.kept_trial.number, with_defaults.kept_options) == (1, {"hidden": (8,), "lr": 0.01})
    assert (
        with_defaults.why
        == "Kept: the defaults. Trial 3 is better by only 0.7500 (standard error 0.5000), which is not significant."
    )
    assert with_defaults.why in str(with_defaults)
    assert with_defaults.why in with_defaults.to_markdown()
    assert "| hidden | 16 | 8 |" in with_defaults.to_markdown()
    plain = with_defaults.to_dict()
    assert (plain["kept"], plain["kept_trial"]) == ({"hidden": [8], "lr": 0.01}, 1)
    assert (plain["gain"], plain["standard_error"], plain["why"]) == (0.75, 0.5, with_defaults.why)


def test_the_number_of_folds_is_shown(tuning: Tuning) -> None:
    assert "validated on 4 folds; seed 3" in replace(tuning, design={**DESIGN, "folds": 4}).how


def test_markdown_has_the_best_importance_and_trials(tuning: Tuning) -> None:
    text = tuning.to_markdown()
    assert "| hidden | 16 | 16 |" in text
    assert "| hidden | 75% |" in text
    assert "| 3 | 0.7500 | complete | 4 | 1.2 | 16 | 0.01 |" in text
    assert "Trial 4 failed: the loss \\| is no\\_longer finite." in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith(("| 3", "| trial"))}
    assert widths == {8}


def test_a_result_can_be_written_as_json(tuning: Tuning) -> None:
    plain = tuning.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["best"] == {"hidden": [16], "lr": 0.01}
    assert (plain["best_value"], plain["best_trial"]) == (0.75, 3)
    assert plain["trials"][3] == {
        "number": 4,
        "state": "failed",
        "value": None,
        "options": {"hidden": [4], "lr": 0.01},
        "epochs": None,
        "seconds": 1.25,
        "message": "the loss | is no_longer finite.",
        "defaults": False,
    }
    assert plain["design"]["options"] == {"bins": [1, 2]}


def test_control_characters_are_escaped(tuning: Tuning) -> None:
    failed = replace(tuning.trials[3], message="odd\x1b[2J")
    odd = replace(tuning, trials=[*tuning.trials[:3], failed, tuning.trials[4]], design={**DESIGN, "by": "b\x9b2J"})
    for text in (str(odd), odd.to_markdown()):
        assert "x1b[2J" in text
        assert r"b\x9b2J" in text
        assert not {"\x1b", "\x9b"} & set(text)


# -- Decision ----------------------------------------------------------------------------------------------------------


def trials(*values: float | None, defaults: int = 1) -> list[TrialRecord]:
    def record(number: int, value: float | None) -> TrialRecord:
        state: Any = "failed" if value is None else "complete"
        return TrialRecord(number, state, value, {}, None, 1.0, None, number == defaults)

    return [record(k, value) for k, value in enumerate(values, 1)]


def test_gain_and_error_use_paired_differences() -> None:
    """Differences 1, 2, 3 of weight 1: mean 2, variance 1, error sqrt(1 / 3); common variation cancels."""
    shared = np.array([100.0, -50.0, 7.0])
    gain, error = paired_gain(shared + np.array([1.0, 2.0, 3.0]), shared, np.ones(3))
    assert gain == pytest.approx(2, abs=1e-12)
    assert error == pytest.approx(math.sqrt(1 / 3), abs=1e-12)


def test_blocks_are_weighted() -> None:
    """Means 1 and 3 of weights 3 and 1: mean 1.5; residuals -1.5 and 1.5, error sqrt(2 * 4.5) / 4."""
    gain, error = paired_gain(np.array([3.0, 3.0, 0.0]), np.zeros(3), np.array([3.0, 1.0, 0.0]))
    assert gain == pytest.approx(1.5, abs=1e-12)
    assert error == pytest.approx(0.75, abs=1e-12)


def test_one_block_gives_no_standard_error() -> None:
    ours, theirs = np.array([5.0]), np.array([1.0])
    assert paired_gain(ours, theirs, np.ones(1)) == (4.0, math.inf)
    verdict = decide(trials(5.0, 1.0), [ours, theirs], np.ones(1))
    assert verdict == (1, 4.0, None)
    assert "better by only 4.0000 (standard error unknown)" in verdict.in_words(trials(5.0, 1.0)[1])


@pytest.mark.parametrize(("spread", "kept"), [(1.0, 3), (4.0, 1)])
def test_only_a_significant_gain_replaces_the_defaults(spread: float, kept: int) -> None:
    """A gain of 1 over 16 blocks: differences of 1 +- spread have an error of about spread / 4."""
    noise = np.tile([-spread, spread], 8)
    losses = [np.full(16, 3.0), np.full(16, 9.0), np.full(16, 2.0) + noise]
    verdict = decide(trials(3.0, 9.0, 2.0), losses, np.ones(16))
    assert verdict.kept == kept
    assert verdict.gain == pytest.approx(1, abs=1e-12)
    assert verdict.standard_error == pytest.approx(spread / math.sqrt(15), abs=1e-12)


def test_more_trials_need_a_larger_gain() -> None:
    """2.5 standard errors are enough for the better of 2, but not for the best of 20."""
    noise = np.tile([-1.0, 1.0], 8) * math.sqrt(15) / 2.5
    losses = [np.full(16, 3.0), np.full(16, 2.0) + noise, *[np.full(16, 9.0)] * 19]
    few, many = trials(3.0, 2.0, 9.0), trials(3.0, 2.0, *[9.0] * 19)
    assert decide(few, losses, np.ones(16)) == pytest.approx((2, 1.0, 0.4), abs=1e-12)
    assert decide(many, losses, np.ones(16)) == pytest.approx((1, 1.0, 0.4), abs=1e-12)


def test_fewer_blocks_need_a_larger_gain() -> None:
    """Student's 0.975 quantile with 2 degrees of freedom is 4.3, and about 2 with many."""
    assert required_standard_errors(2, 3) == pytest.approx(4.3027, abs=1e-4)
    assert required_standard_errors(2, 10_000) == pytest.approx(1.96, abs=1e-3)


@pytest.mark.parametrize(("values", "kept"), [((1.0, 2.0), 1), ((None, 2.0, 1.0), 3)])
def test_no_decision_is_needed_if_defaults_are_best_or_failed(values: tuple[Any, ...], kept: int) -> None:
    assert decide(trials(*values), [np.ones(2)] * len(values), np.ones(2)) == (kept, None, None)
