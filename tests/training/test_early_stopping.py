from collections.abc import Sequence

import pytest

from pcmcnet.training.config import EarlyStopping


def run(losses: Sequence[float], *, patience: int, min_delta: float) -> tuple[int | None, int]:
    """Feed losses epoch by epoch; return the epoch that stops, if any, and the best epoch."""
    rule = EarlyStopping(patience, min_delta)
    for epoch, loss in enumerate(losses, 1):
        rule.update(epoch, loss)
        if rule.should_stop:
            return epoch, rule.best_epoch
    return None, rule.best_epoch


def test_clear_improvements_never_stop() -> None:
    assert run([1 - 0.02 * k for k in range(40)], patience=1, min_delta=0.01) == (None, 40)


def test_tiny_improvements_stop_and_keep_the_last_epoch() -> None:
    """Each epoch is better by .005 than the best before it, never by more than .01: epochs 2 to 6 count."""
    assert run([1 - 0.005 * k for k in range(40)], patience=5, min_delta=0.01) == (6, 6)


def test_improvements_are_measured_from_the_best_loss() -> None:
    """.987 improves on the first loss by .013, but on the best so far, .995, only by .008."""
    assert run([1.0, 0.995, 0.987], patience=2, min_delta=0.01) == (3, 3)


def test_the_best_loss_is_the_minimum_of_all_earlier_ones() -> None:
    """After .5, each of .8 to .55 improves on the loss before it, but not on the best."""
    assert run([1.0, 0.5, 0.8, 0.7, 0.6, 0.55], patience=4, min_delta=0.01) == (6, 2)


def test_a_clear_improvement_resets_the_count() -> None:
    losses = [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25]
    assert run(losses, patience=3, min_delta=0.1) == (10, 7)


def test_an_improvement_of_exactly_min_delta_does_not_count() -> None:
    """The numbers are exact in binary: 1 - 3/4 = 1/4."""
    assert run([1.0, 0.75], patience=1, min_delta=0.25) == (2, 2)
    assert run([1.0, 0.75 - 2**-53], patience=1, min_delta=0.25) == (None, 2)


def test_the_first_of_equal_losses_is_the_best() -> None:
    assert run([1.0, 0.5, 0.5, 0.5], patience=9, min_delta=0.0) == (None, 2)


@pytest.mark.parametrize("patience", [1, 2, 7])
def test_patience_counts_from_the_second_epoch(patience: int) -> None:
    assert run([1.0] * 20, patience=patience, min_delta=0.01) == (1 + patience, 1)


def test_update_returns_whether_to_keep_the_weights() -> None:
    rule = EarlyStopping(patience=5, min_delta=0.1)
    assert [rule.update(k, loss) for k, loss in enumerate([1.0, 0.99, 0.99, 0.995, 0.2], 1)] == [
        *(True, True, False, False, True)
    ]
