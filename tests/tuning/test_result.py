import json
from dataclasses import replace
from typing import Any

import pytest

from pcmcnet.models import PCMCNet
from pcmcnet.tuning.result import TrialRecord, Tuning, Verdict, best_of

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
    best = best_of(trials)
    return Tuning(PCMCNet(), best.options, 0.75, trials, {"hidden": 0.75, "lr": 0.25}, DESIGN, Verdict(3, 0.75, 0.125))


def test_the_best_is_the_first_complete_trial_of_least_loss(tuning: Tuning) -> None:
    assert tuning.best_trial.number == 3
    assert tuning.best == {"hidden": (16,), "lr": 0.01}


def test_it_prints_as_a_table_with_the_best_first(tuning: Tuning) -> None:
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
    assert lines[-1] == "Kept: trial 3: it is better than the defaults by 0.7500 (standard error 0.1250)."


def test_what_is_kept_may_be_the_defaults(tuning: Tuning) -> None:
    kept = replace(tuning, verdict=Verdict(1, 0.75, 0.5))
    assert (kept.kept_trial.number, kept.kept) == (1, {"hidden": (8,), "lr": 0.01})
    assert (
        kept.why == "Kept: the defaults: trial 3 is better by 0.7500 (standard error 0.5000) only, which may be chance."
    )
    assert kept.why in str(kept)
    assert kept.why in kept.to_markdown()
    assert "| hidden | 16 | 8 |" in kept.to_markdown()
    plain = kept.to_dict()
    assert (plain["kept"], plain["kept_trial"]) == ({"hidden": [8], "lr": 0.01}, 1)
    assert (plain["gain"], plain["standard_error"], plain["why"]) == (0.75, 0.5, kept.why)


def test_folds_are_told(tuning: Tuning) -> None:
    assert "validated on 4 folds; seed 3" in replace(tuning, design={**DESIGN, "folds": 4}).how


def test_its_markdown_has_the_best_the_importance_and_the_trials(tuning: Tuning) -> None:
    text = tuning.to_markdown()
    assert "| hidden | 16 | 16 |" in text
    assert "| hidden | 75% |" in text
    assert "| 3 | 0.7500 | complete | 4 | 1.2 | 16 | 0.01 |" in text
    assert "Trial 4 failed: the loss \\| is no\\_longer finite." in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith(("| 3", "| trial"))}
    assert widths == {8}


def test_it_is_plain_enough_for_json(tuning: Tuning) -> None:
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


def test_what_a_terminal_would_obey_is_written_out(tuning: Tuning) -> None:
    failed = replace(tuning.trials[3], message="odd\x1b[2J")
    odd = replace(tuning, trials=[*tuning.trials[:3], failed, tuning.trials[4]], design={**DESIGN, "by": "b\x9b2J"})
    for text in (str(odd), odd.to_markdown()):
        assert "x1b[2J" in text
        assert r"b\x9b2J" in text
        assert not {"\x1b", "\x9b"} & set(text)
