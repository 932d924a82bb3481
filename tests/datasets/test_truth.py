"""Drawing from known probabilities, and the loss that no model can beat."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.datasets import truth
from pcmcnet.errors import ConfigError, InputError


def test_best_losses_are_the_entropy_and_the_realised_loss() -> None:
    """Fair coin, certain event, quarter: entropies log 2, 0 and log 4 - 3/4 log 3; choices cost log 2, 0 and log 4."""
    table = pa.table(
        {"who": [7, 7, 3, 5, 5], "took": [1, 0, 1, 0, 1], "true_prob": [0.5, 0.5, 1.0, 0.75, 0.25]},
    )
    best = truth.best_nll(table, choice_set="who", chosen="took")
    assert best.expected == pytest.approx((math.log(2) + math.log(4) - 0.75 * math.log(3)) / 3, abs=1e-14)
    assert best.realised == pytest.approx((math.log(2) + math.log(4)) / 3, abs=1e-14)


def test_an_alternative_that_is_never_chosen_costs_nothing() -> None:
    table = pa.table({"choice_set": [0, 0], "chosen": [1, 0], "true_prob": [1.0, 0.0]})
    assert truth.best_nll(table) == (0, 0)


def test_scattered_sets_and_missing_columns_are_refused() -> None:
    table = pa.table({"choice_set": [0, 1, 0], "chosen": [1, 1, 0], "true_prob": [0.5, 1.0, 0.5]})
    with pytest.raises(InputError, match=r"'choice_set': expected adjacent rows .* got 2 sets in 3 runs of rows. Sort"):
        truth.best_nll(table)
    with pytest.raises(InputError, match=r"expected a column 'took', got .*'chosen'"):
        truth.best_nll(table, chosen="took")
    with pytest.raises(InputError, match="got 0 sets in 0 runs"):
        truth.best_nll(table.slice(0, 0))


def test_draws_follow_the_probabilities_within_each_set() -> None:
    n = 30_000
    p, offsets = np.tile([0.2, 0.0, 0.8, 1.0], n), np.arange(2 * n + 1) * 2
    offsets[1::2] += 1  # alternating sets of three and one
    rows = truth.sample(p, offsets, np.random.default_rng(0))
    assert ((rows >= offsets[:-1]) & (rows < offsets[1:])).all()
    assert (rows % 4 != 1).all()
    first = (rows[::2] % 4 == 0).sum()
    assert abs(first - 0.2 * n) < 4 * math.sqrt(n * 0.2 * 0.8)


@pytest.mark.parametrize("sets", [0, -3, 2.5, "many", 2**31, True])
def test_an_invalid_number_of_sets_is_refused(sets: Any) -> None:
    with pytest.raises(ConfigError, match=f"sets: expected a whole number from 1 to 2147483647, got {sets!r}"):
        truth.require_sets(sets)


@pytest.mark.parametrize("seed", [-1, None, 0.5, False])
def test_an_invalid_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ConfigError, match=f"seed: expected a whole number, 0 or above, got {seed!r}"):
        truth.require_seed(seed)
