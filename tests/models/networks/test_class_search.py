"""How many classes: one more only where held-out sets gain beyond noise."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import TrainingError
from pcmcnet.models import PCMCNet
from pcmcnet.models.items.class_trials import best_number
from pcmcnet.models.items.penalty_search import mean_gain
from pcmcnet.models.networks.class_search import search_classes
from pcmcnet.models.networks.decay_search import Pair, SearchLog


def pair_of(sets: int = 40) -> Pair:
    table = {"id": np.repeat(np.arange(sets), 2), "y": np.tile([1, 0], sets), "x": np.arange(2.0 * sets)}
    data = ChoiceData.from_long(table, choice_set="id", chosen="y", features=["x"])
    return data, (data,)


def nowhere() -> SearchLog:
    return SearchLog(None, {})


def test_the_search_ends_with_the_first_class_that_gains_nothing_beyond_noise() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 40)
    levels = {1: 1.0 + noise, 2: np.full(40, 0.8), 3: np.full(40, 0.8) + noise / 10, 4: np.zeros(40)}
    asked: list[int] = []

    def run(pair: Pair, classes: int) -> Sequence[float]:
        asked.append(classes)
        return [float(x) for x in levels[classes]]

    trials = search_classes([pair_of()], run, nowhere())
    assert asked == [1, 2, 3]
    assert best_number(trials) == 2
    assert trials[1].gain == pytest.approx(0.2 + noise.mean())
    assert trials[1].error == pytest.approx(noise.std() / np.sqrt(40))


def test_one_class_stays_where_another_is_better_by_chance() -> None:
    gains = np.tile([1.0, -0.9], 20)
    trials = search_classes([pair_of()], lambda _, k: (1 - gains * (k - 1)).tolist(), nowhere())
    assert trials[1].gain == pytest.approx(0.05)
    assert best_number(trials) == 1


def test_the_sets_of_a_person_err_together() -> None:
    """Ten persons with four equal gains each: the error is that of ten numbers."""
    gains = np.repeat(np.random.default_rng(0).normal(size=10), 4)
    mean, error = mean_gain(gains, np.ones(40), np.repeat(np.arange(10), 4))
    assert mean == pytest.approx(gains.mean())
    assert error == pytest.approx(gains[::4].std() / np.sqrt(10))
    assert error == pytest.approx(2 * mean_gain(gains, np.ones(40), np.arange(40))[1])


def test_classes_that_diverge_are_not_taken() -> None:
    def run(pair: Pair, classes: int) -> Sequence[float]:
        if classes > 1:
            raise TrainingError("diverged")
        return [1.0] * 40

    assert best_number(search_classes([pair_of()], run, nowhere())) == 1


def test_a_search_that_goes_on_repeats_no_trial(tmp_path: Path) -> None:
    identity = {"model": "a"}
    search_classes([pair_of()], lambda _, k: [1.0] * 40, SearchLog(tmp_path / "search.json", identity))

    def never(pair: Pair, classes: int) -> Sequence[float]:
        raise AssertionError

    log = SearchLog.opened(tmp_path / "search.json", identity, resume=True)
    assert [trial.classes for trial in search_classes([pair_of()], never, log)] == [1, 2]


def test_a_model_learns_its_classes_with_a_given_decay() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(2, size=60)  # a coin decides
    table = {"id": np.repeat(np.arange(60), 2), "y": np.stack([first, 1 - first], 1).ravel(), "x": rng.normal(size=120)}
    data = ChoiceData.from_long(table, choice_set="id", chosen="y", features=["x"])
    model = PCMCNet(classes="auto", weight_decay=1.0, epochs=2, hidden=(4,)).fit(data, progress=False)
    tried = model.training_["class_trials"]
    assert [trial["classes"] for trial in tried][:2] == [1, 2]
    assert model.n_classes_ == 1
    assert PCMCNet(**asdict(model.config)).fit(data, progress=False, init=model).n_classes_ == 1
    assert "gain of held-out sets in NLL by 2: " in model.summary().facts["classes"]
