import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError
from pcmcnet.training.config import TrainConfig


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("epochs", 0, "epochs must be a whole number of at least 1, got 0."),
        ("epochs", 2.0, "epochs must be a whole number of at least 1, got 2.0."),
        ("epochs", "many", "epochs must be a whole number of at least 1, got 'many'."),
        ("epochs", True, "epochs must be a whole number of at least 1, got True."),
        ("batch_size", 0, "batch_size must be a whole number of at least 1, got 0."),
        ("lr", 0.0, "lr must be a number above 0, got 0.0."),
        ("lr", -0.1, "lr must be a number above 0, got -0.1."),
        ("lr", math.nan, "lr must be a number above 0, got nan."),
        ("lr", math.inf, "lr must be a number above 0, got inf."),
        ("lr", "0.1", "lr must be a number above 0, got '0.1'."),
        ("warmup", -0.1, "warmup must be a number of at least 0 and at most 1, got -0.1."),
        ("warmup", 1.1, "warmup must be a number of at least 0 and at most 1, got 1.1."),
        ("weight_decay", -1, "weight_decay must be a number of at least 0, got -1."),
        ("weight_decay", "some", "weight_decay must be a number of at least 0, got 'some'."),
        ("clip", -1.0, "clip must be a number of at least 0, got -1.0."),
        ("patience", 0, "patience must be a whole number of at least 1, got 0."),
        ("min_delta", -0.01, "min_delta must be a number of at least 0, got -0.01."),
        ("min_delta", "nose", "min_delta must be a number of at least 0, got 'nose'."),
        ("pair_budget", 0, "pair_budget must be a whole number of at least 1, got 0."),
        ("schedule", "cosin", "unknown schedule 'cosin'. Did you mean 'cosine'?"),
        ("schedule", "staircase", "unknown schedule 'staircase'. Known: constant, cosine."),
        ("refit", 1, "refit must be true or false, got 1."),
    ],
)
def test_an_invalid_value_is_refused_by_name(option: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**{option: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("epochs", 1), ("batch_size", 1), ("warmup", 0), ("warmup", 1), ("weight_decay", 0), ("clip", 0)],
        *[("epochs", "auto"), ("weight_decay", "auto"), ("min_delta", "noise")],
        *[("patience", 1), ("min_delta", 0), ("pair_budget", 1), ("lr", 1e-30), ("schedule", "constant")],
    ],
)
def test_the_ends_of_each_range_are_valid(option: str, value: Any) -> None:
    assert getattr(TrainConfig(**{option: value}), option) == value


def test_options_are_keyword_only_and_frozen() -> None:
    with pytest.raises(TypeError, match="positional"):
        TrainConfig(3)  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        TrainConfig().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(("weight_decay", "expected"), [(0.1, 0.1), (0, 0.0), ("auto", 1.0)])
def test_automatic_weight_decay_has_a_default(weight_decay: Any, expected: float) -> None:
    assert TrainConfig(weight_decay=weight_decay).decay == expected


@pytest.mark.parametrize(("epochs", "expected"), [(3, 3), ("auto", 20)])
def test_automatic_epochs_default_to_twenty(epochs: Any, expected: int) -> None:
    assert TrainConfig(epochs=epochs).passes == expected


@pytest.mark.parametrize(
    ("batch_size", "sets", "expected"), [(7, 1000, 7), ("auto", 50, 8), ("auto", 500, 20), ("auto", 20_000, 64)]
)
def test_automatic_batches_are_a_25th_of_the_sets_within_bounds(batch_size: Any, sets: int, expected: int) -> None:
    assert TrainConfig(batch_size=batch_size).sets_per_batch(sets) == expected


@pytest.mark.parametrize(("value", "fine"), [(0, False), (1, True), (1.5, True), (2, False)])
def test_open_ends_are_excluded(value: float, fine: bool) -> None:
    if fine:
        require_number("share", value, low=0, high=2, open_low=True, open_high=True)
        return
    with pytest.raises(ConfigError, match="share must be a number above 0 and below 2, got"):
        require_number("share", value, low=0, high=2, open_low=True, open_high=True)


@pytest.mark.parametrize("name", ["epochs", "batch_size", "patience", "pair_budget"])
def test_absurdly_large_counts_are_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"{name} must be .* of at least 1 and at most 1,000,000,000,000, got 10{22 * '0'}"
    ):
        TrainConfig(**{name: 10**23})
    TrainConfig(**{name: 10**12})


def test_an_explicit_bound_replaces_the_general_one() -> None:
    require_number("seed", 2**63 - 1, whole=True, low=0, high=2**63 - 1)
    with pytest.raises(ConfigError, match="at most 9,223,372,036,854,775,807, got 9223372036854775808"):
        require_number("seed", 2**63, whole=True, low=0, high=2**63 - 1)


@pytest.mark.parametrize("value", [10**400, -(10**400), math.nan, math.inf])
def test_numbers_beyond_the_float_range_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="lr must be a number"):
        require_number("lr", value)


def test_only_known_words_are_accepted() -> None:
    require_word("fruit", "pear", ("apple", "pear"))
    with pytest.raises(ConfigError, match=r"unknown fruit 'peer'. Did you mean 'pear'\?"):
        require_word("fruit", "peer", ("apple", "pear"))
