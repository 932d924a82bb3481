import math
from typing import Any

import numpy as np
import pytest

from pcmcnet.tuning.decision import decide, errors_asked, paired_gain
from pcmcnet.tuning.result import TrialRecord


def trials(*values: float | None, defaults: int = 1) -> list[TrialRecord]:
    def record(number: int, value: float | None) -> TrialRecord:
        state: Any = "failed" if value is None else "complete"
        return TrialRecord(number, state, value, {}, None, 1.0, None, number == defaults)

    return [record(k, value) for k, value in enumerate(values, 1)]


def test_the_gain_and_its_error_are_those_of_the_paired_differences() -> None:
    """Differences 1, 2, 3 of weight 1: mean 2, variance 1, error sqrt(1 / 3); what both share cancels."""
    shared = np.array([100.0, -50.0, 7.0])
    gain, error = paired_gain(shared + np.array([1.0, 2.0, 3.0]), shared, np.ones(3))
    assert gain == pytest.approx(2, abs=1e-12)
    assert error == pytest.approx(math.sqrt(1 / 3), abs=1e-12)


def test_blocks_count_by_their_weight_and_those_of_weight_0_do_not() -> None:
    """Means 1 and 3 of weights 3 and 1: mean 1.5; residuals -1.5 and 1.5, error sqrt(2 * 4.5) / 4."""
    gain, error = paired_gain(np.array([3.0, 3.0, 0.0]), np.zeros(3), np.array([3.0, 1.0, 0.0]))
    assert gain == pytest.approx(1.5, abs=1e-12)
    assert error == pytest.approx(0.75, abs=1e-12)


def test_one_block_says_nothing_about_noise() -> None:
    ours, theirs = np.array([5.0]), np.array([1.0])
    assert paired_gain(ours, theirs, np.ones(1)) == (4.0, math.inf)
    verdict = decide(trials(5.0, 1.0), [ours, theirs], np.ones(1))
    assert verdict == (1, 4.0, None)
    assert "better by 4.0000 (standard error unknown) only" in verdict.in_words(trials(5.0, 1.0)[1])


@pytest.mark.parametrize(("spread", "kept"), [(1.0, 3), (4.0, 1)])
def test_the_best_replaces_the_defaults_where_chance_does_not_explain_it(spread: float, kept: int) -> None:
    """A gain of 1 over 16 blocks; differences 1 +- spread have an error of about spread / 4."""
    noise = np.tile([-spread, spread], 8)
    losses = [np.full(16, 3.0), np.full(16, 9.0), np.full(16, 2.0) + noise]
    verdict = decide(trials(3.0, 9.0, 2.0), losses, np.ones(16))
    assert verdict.kept == kept
    assert verdict.gain == pytest.approx(1, abs=1e-12)
    assert verdict.standard_error == pytest.approx(spread / math.sqrt(15), abs=1e-12)


def test_the_best_of_more_trials_is_asked_for_more() -> None:
    """2.5 standard errors are enough for the better of 2, and not for the best of 20."""
    noise = np.tile([-1.0, 1.0], 8) * math.sqrt(15) / 2.5
    losses = [np.full(16, 3.0), np.full(16, 2.0) + noise, *[np.full(16, 9.0)] * 19]
    few, many = trials(3.0, 2.0, 9.0), trials(3.0, 2.0, *[9.0] * 19)
    assert decide(few, losses, np.ones(16)) == pytest.approx((2, 1.0, 0.4), abs=1e-12)
    assert decide(many, losses, np.ones(16)) == pytest.approx((1, 1.0, 0.4), abs=1e-12)


def test_few_blocks_ask_for_more() -> None:
    """Student's 0.975 quantile with 2 degrees of freedom is 4.3, and about 2 with many."""
    assert errors_asked(2, 3) == pytest.approx(4.3027, abs=1e-4)
    assert errors_asked(2, 10_000) == pytest.approx(1.96, abs=1e-3)


@pytest.mark.parametrize(("values", "kept"), [((1.0, 2.0), 1), ((None, 2.0, 1.0), 3)])
def test_there_is_nothing_to_weigh_where_the_defaults_are_best_or_failed(values: tuple[Any, ...], kept: int) -> None:
    assert decide(trials(*values), [np.ones(2)] * len(values), np.ones(2)) == (kept, None, None)
