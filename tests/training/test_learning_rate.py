import math
from typing import Any

import pytest

from pcmcnet.training.config import TrainConfig, learning_rate


@pytest.mark.parametrize(
    ("progress", "expected"), [(0.0, 0.1), (0.1, 1.05), (0.2, 2.0), (0.4, 1 + math.sqrt(0.5)), (0.6, 1.0), (1.0, 0.0)]
)
def test_cosine_rises_from_a_twentieth_and_falls_to_zero(progress: float, expected: float) -> None:
    """lr 2, warmup 1/5: 2/20 at the start, 2 (1/20 + 19/40) half-way up, then 1 + cos of 0, 1/4, 1/2 and 1 of pi."""
    config = TrainConfig(lr=2.0, warmup=0.2, schedule="cosine")
    assert learning_rate(config, progress) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 0.1), (0.1, 1.05), (0.2, 2.0), (0.9, 2.0), (1.0, 2.0)])
def test_constant_stays_after_the_warm_up(progress: float, expected: float) -> None:
    config = TrainConfig(lr=2.0, warmup=0.2, schedule="constant")
    assert learning_rate(config, progress) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("schedule", "end"), [("constant", 2.0), ("cosine", 0.0)])
def test_the_warm_up_may_be_empty_or_the_whole_run(schedule: Any, end: float) -> None:
    assert learning_rate(TrainConfig(lr=2.0, warmup=0, schedule=schedule), 0.0) == 2.0
    everything = TrainConfig(lr=2.0, warmup=1, schedule=schedule)
    assert learning_rate(everything, 0.5) == pytest.approx(1.05, abs=1e-15)
    assert learning_rate(everything, 1.0) == end
