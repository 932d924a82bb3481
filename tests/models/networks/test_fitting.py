"""How a network is fitted: options learnt from held-out sets, refits, averaged networks, and interrupted runs."""

import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from choice_tables import ROLES, logit_choices, read, trips
from pcmcnet import selection
from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, StopFit, TrainingError
from pcmcnet.models import PCMCNet, PointerNetwork, load
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.networks import averaged_members, trainer
from pcmcnet.models.networks.averaged_members import AUTO_MEMBERS, members_of
from pcmcnet.models.networks.fitting import (
    BIN_PERIODS,
    DECAYS,
    MAX_SHIFT,
    SMALL_TABLE_RUNGS,
    DecaySearch,
    ShortFits,
    average_nll,
    best_bin_period,
    choose_classes,
    choose_decay,
    shorter_length,
)
from pcmcnet.models.networks.network_config import NetworkConfig
from pcmcnet.models.networks.trainer import Trainer
from pcmcnet.selection import (
    MIN_GROUPS,
    SMALL_TABLE_SETS,
    Fold,
    Trial,
    TrialLog,
    held_out_folds,
    mean_gain,
    sample_sets,
)
from pcmcnet.training import compiled_steps, loop
from pcmcnet.training import config as training_config
from pcmcnet.training.data_parallel import ProcessGroup, training_in_group
from pcmcnet.training.run_folder import CHECKPOINT, SEARCH

LEARNING: dict[str, Any] = {"hidden": (4,), "epochs": 4, "batch_size": 16, "lr": 0.02, "dropout": 0.1, "members": 1}
AVERAGED: dict[str, Any] = {"hidden": (4,), "epochs": 2, "weight_decay": 0.1, "members": 3}
NEEDS_COMPILER = pytest.mark.skipif(
    compiled_steps.compiled_library() is None, reason="the package was built without a compiler"
)


class Interruption(KeyboardInterrupt):
    """Interrupts a run."""


def choices(sets: int, *, persons: int | None = None, weight: list[float] | None = None, seed: int = 0) -> ChoiceData:
    """Return sets of three with two features. The first determines the choice."""
    table = logit_choices(sets, {"x": 1.0, "y": 0.0}, seed, sizes=(3, 3))
    roles: dict[str, Any] = {"features": ["x", "y"]}
    if persons is not None:
        table["person"] = np.repeat(np.arange(sets) % persons, 3)
        roles["person"] = "person"
    if weight is not None:
        table["weight"] = np.repeat(weight, 3)
        roles["weight"] = "weight"
    return read(table, **roles)


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(trips(60, slope=-0.3), **{key: ROLES[key] for key in ("alternative", "individual", "features")})


def persons_of(data: ChoiceData) -> set[int]:
    return set(np.asarray(data.keep["person"].plain()).tolist())


def fold_of(train: ChoiceData, *held_out: ChoiceData) -> Fold:
    return Fold(train, held_out, np.arange(sum(map(len, held_out))))


def weights(model: PCMCNet) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.network_.state_dict().values()]


def facts(model: PCMCNet) -> tuple[Any, Any]:
    return model.record_, model.table_


class Scripted(ShortFits):
    """Short fits with given losses: by decay after each epoch, or of every choice by classes or bins."""

    def __init__(
        self,
        curve: Callable[[Fold, float], Sequence[float]] | None = None,
        choice_losses: Callable[[Fold, int, int], Sequence[float]] | None = None,
        *,
        folds: Sequence[Fold],
        share: float = 1.0,
        log: TrialLog | None = None,
    ) -> None:
        trainer: Any = SimpleNamespace(epochs=NetworkConfig().passes)
        super().__init__(trainer, folds, (), share, log or TrialLog(None, {}))
        object.__setattr__(self, "script", (curve, choice_losses))

    @property
    def _classes(self) -> int:
        return 1

    def _epoch_losses(self, k: int, decay: float) -> list[float]:
        return list(self.script[0](self.folds[k], decay))  # type: ignore[attr-defined]

    def _fold_losses(self, k: int, decay: float, classes: int, bins: int) -> list[float]:
        return list(self.script[1](self.folds[k], classes, bins))  # type: ignore[attr-defined]


def decay_of(losses: dict[float, float], **more: Any) -> tuple[NetworkConfig, DecaySearch, list[float]]:
    """Choose a decay by given losses. Return the options, the search, and the decays in the order of trials."""
    tried: list[float] = []
    part = choices(30)

    def curve(_: Fold, decay: float) -> list[float]:
        tried.append(decay)
        return [9.0, losses[decay]]

    config, search = choose_decay(NetworkConfig(epochs=8), Scripted(curve, folds=[fold_of(part, part)], **more))
    assert search is not None
    return config, search, tried


# -- weight decay ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "tried"),
    [
        ({4: 0.5, 1: 0.6, 16: 0.7}, [4, 1, 16]),  # the search starts at the bottom
        ({4: 0.5, 1: 0.6, 16: 0.4, 64: 0.3}, [4, 1, 16, 64]),  # to the top of the ladder
        ({4: 0.6, 1: 0.5, 0.25: 0.7}, [4, 1, 0.25]),
        ({4: 0.6, 1: 0.5, 0.25: 0.4, 0.0625: 0.45}, [4, 1, 0.25, 0.0625]),
        ({4: 0.6, 1: 0.5, 0.25: 0.4, 0.0625: 0.3}, [4, 1, 0.25, 0.0625]),  # to the last rung for a small table
        ({4: 0.5, 1: 0.5, 16: 0.5}, [4, 1, 16]),  # after an equal loss, the stronger decay is tried
        ({4: 0.6, 1: 0.5, 0.25: 0.5}, [4, 1, 0.25]),  # an equal loss ends the search
    ],
)
def test_the_search_continues_while_the_loss_falls(losses: dict[float, float], tried: list[float]) -> None:
    _, search, order = decay_of(losses)
    assert order == tried
    assert [trial.value for trial in search.trials] == sorted(tried, reverse=True)
    assert [trial.held_out_nll for trial in search.trials] == [losses[trial.value] for trial in search.trials]


def test_a_large_table_has_the_whole_ladder() -> None:
    tried: list[float] = []

    def curve(_: Fold, decay: float) -> list[float]:
        tried.append(decay)
        return [decay]

    for part in choices(SMALL_TABLE_SETS - 1), choices(SMALL_TABLE_SETS):
        choose_decay(NetworkConfig(), Scripted(curve, folds=[fold_of(part, part)]))
    assert tried == [*DECAYS[2:SMALL_TABLE_RUNGS], *DECAYS[2:]]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({4: 0.8, 1: 0.5, 0.25: 0.7}, 4**-0.1),  # .3 above and .2 below: (.3 - .2) / .5 / 2 = 1/10 of a step down
        ({16: 0.8, 4: 0.5, 1: 0.7}, 4 * 4**-0.1),
        ({16: 0.7, 4: 0.5, 1: 0.8}, 4 * 4**0.1),  # 1/10 of a step up
        ({4: 0.7, 1: 0.5, 0.25: 0.7}, 1.0),  # equal neighbours
        ({4: 0.7, 1: 0.5, 0.25: 0.5}, 4**-MAX_SHIFT),  # limited; otherwise half a step
        ({4: 0.5 + 1e-12, 1: 0.5, 0.25: 0.9}, 4**MAX_SHIFT),
        ({4: 0.5, 1: 0.6, 16: 0.4, 64: 0.3}, 64.0),  # at an end there is no parabola
        ({4: 0.6, 1: 0.5, 0.25: 0.4, 0.0625: 0.3}, 0.0625),
        ({16: 0.5, 4: 0.5, 1: 0.5}, 16.0),  # the first of equal losses has no neighbour above
    ],
)
def test_the_decay_is_at_the_minimum_of_a_parabola(losses: dict[float, float], expected: float) -> None:
    config, _, _ = decay_of(losses)
    assert config.decay == pytest.approx(expected, rel=1e-9)
    best = min(losses, key=losses.__getitem__)
    assert best / 2 < config.decay < best * 2


def test_a_parabola_is_interpolated_exactly() -> None:
    """Losses (log4 decay - 0.2)^2 have their minimum at 4^0.2."""
    config, _, _ = decay_of({decay: (math.log(decay, 4) - 0.2) ** 2 for decay in DECAYS})
    assert config.decay == pytest.approx(4**0.2, rel=1e-12)


def test_the_decay_of_a_sample_is_multiplied_by_its_share() -> None:
    """A given prior has a third of the weight against three times as many sets."""
    config, _, _ = decay_of({4: 0.7, 1: 0.5, 0.25: 0.7}, share=1 / 3)
    assert config.decay == pytest.approx(1 / 3, rel=1e-12)


def test_folds_are_weighted_by_their_held_out_sets() -> None:
    """Two folds have one set each, of weights 3 and 1 and losses 1 and 5: the mean is 2."""
    data = choices(4, weight=[3.0, 1.0, 3.0, 1.0])
    folds = [fold_of(data.subset([2, 3]), data.subset([0])), fold_of(data.subset([2]), data.subset([1]))]
    fits = Scripted(lambda fold, _: [9.0, 1.0 if fold.weights[0] == 3 else 5.0], folds=folds)
    assert fits.losses_by_epoch(4.0) == (9.0, 2.0)
    _, search = choose_decay(NetworkConfig(), fits)
    tried = tuple(Trial(value=decay, held_out_nll=2.0) for decay in (16.0, 4.0, 1.0))
    assert search == DecaySearch(trials=tried, fitted_sets=1, held_out_sets=2)


def test_a_decay_that_diverges_is_not_chosen() -> None:
    def curve(_: Fold, decay: float) -> list[float]:
        if decay > 1:
            raise TrainingError("epoch 1: the loss is no longer finite.")
        return [2.0, 1.0 + decay]

    part = choices(40)
    config, search = choose_decay(NetworkConfig(), Scripted(curve, folds=[fold_of(part, part)]))
    assert config.decay == DECAYS[SMALL_TABLE_RUNGS - 1]
    assert search is not None


def test_a_fit_fails_if_every_decay_diverges() -> None:
    def curve(_: Fold, decay: float) -> list[float]:
        raise TrainingError("epoch 1: the loss is no longer finite.")

    part = choices(40)
    with pytest.raises(TrainingError, match=r"diverged with every weight decay that was tried \(16, 4, 1\): lower lr"):
        choose_decay(NetworkConfig(), Scripted(curve, folds=[fold_of(part, part)]))


def test_a_fold_that_diverges_counts_in_every_epoch() -> None:
    part = choices(40)

    def curve(fold: Fold, _: float) -> list[float]:
        if len(fold.train) == 30:
            raise TrainingError("epoch 1: the loss is no longer finite.")
        return [1.0, 1.0]

    folds = [fold_of(part, part), fold_of(part.subset(np.arange(30)), part)]
    first, last = Scripted(curve, folds=folds).losses_by_epoch(4.0)
    assert first == last > 1e8


# -- epochs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ((1.0, 0.8, 0.7, 0.6), 20),  # still falling
        ((1.0, 0.5, 0.54, 0.549), 20),  # rises by less than .05, the noise of 100 sets
        ((1.0, 0.5, 0.54, 0.551), 10),  # rises by more: half of the epochs
        ((0.5, 0.6, 0.7, 0.8), 5),
    ],
)
def test_epochs_are_reduced_if_the_loss_rises_beyond_noise(curve: tuple[float, ...], expected: int) -> None:
    assert shorter_length(curve, 20, 100) == expected
    assert shorter_length(curve, 1, 100) == 1


def test_given_epochs_are_not_reduced() -> None:
    """The best trial had its lowest loss after a quarter of its epochs."""
    part = choices(2_000)
    fits = Scripted(lambda _, decay: [0.5, 0.7, 0.8, 0.6 + decay / 100], folds=[fold_of(part, part)])
    assert choose_decay(NetworkConfig(epochs=8), fits)[0].epochs == 8
    assert choose_decay(NetworkConfig(), fits)[0].epochs == 5
    assert choose_decay(NetworkConfig(), None)[0].passes == 20


# -- latent classes -------------------------------------------------------------------------------------------------


def classes_of(losses: Callable[[Fold, int, int], Sequence[float]], **more: Any) -> tuple[int, tuple[Trial, ...]]:
    part = choices(40)
    fits = Scripted(None, losses, folds=[fold_of(part, part)], **more)
    return choose_classes("auto", NetworkConfig(weight_decay=1.0), fits, None)


def test_classes_are_added_while_held_out_sets_gain() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 40)
    levels = {1: 1.0 + noise, 2: np.full(40, 0.8), 3: np.full(40, 0.8) + noise / 10, 4: np.full(40, 0.8)}
    number, trials = classes_of(lambda _, classes, __: levels[classes].tolist())
    assert [trial.value for trial in trials] == [1, 2, 3, 4]
    assert number == 2
    assert trials[1].gain == pytest.approx(0.2 + noise.mean())
    assert trials[1].standard_error == pytest.approx(noise.std() / np.sqrt(40))


def test_three_classes_are_tried_if_two_gain_nothing() -> None:
    """Two numbers in a row without a gain end the search; each is compared with the best number so far."""
    levels = {1: 1.0, 2: 1.0, 3: 0.5, 4: 0.6}
    noise = np.random.default_rng(0).normal(0, 0.01, (5, 40))
    number, trials = classes_of(lambda _, classes, __: (levels[classes] + noise[classes]).tolist())
    assert number == 3
    assert trials[2].gain == pytest.approx(0.5 + (noise[1] - noise[3]).mean())
    number, trials = classes_of(lambda _, classes, __: (1.0 + noise[classes]).tolist())
    assert [trial.value for trial in trials] == [1, 2, 3]
    assert number == 1


def test_a_gain_within_noise_adds_no_class() -> None:
    gains = np.tile([1.0, -0.9], 20)
    number, trials = classes_of(lambda _, classes, __: (1 - gains * (classes - 1)).tolist())
    assert trials[1].gain == pytest.approx(0.05)
    assert number == 1


def test_numbers_of_classes_that_diverge_are_not_chosen() -> None:
    def losses(_: Fold, classes: int, __: int) -> list[float]:
        if classes > 1:
            raise TrainingError("diverged")
        return [1.0] * 40

    assert classes_of(losses)[0] == 1


def test_a_resumed_run_repeats_no_trial_of_classes(tmp_path: Path) -> None:
    identity = {"model": "a"}
    first = classes_of(lambda *_: [1.0] * 40, log=TrialLog(tmp_path / SEARCH, identity))

    def never(*_: Any) -> list[float]:
        raise AssertionError

    again = classes_of(never, log=TrialLog.open(tmp_path / SEARCH, identity, resume=True))
    assert again == first
    assert [trial.value for trial in again[1]] == [1, 2, 3]


def test_losses_of_a_person_count_as_one_observation() -> None:
    """Ten persons with four equal gains each have the standard error of ten numbers."""
    gains = np.repeat(np.random.default_rng(0).normal(size=10), 4)
    mean, error = mean_gain(gains, np.ones(40), np.repeat(np.arange(10), 4))
    assert mean == pytest.approx(gains.mean())
    assert error == pytest.approx(gains[::4].std() / np.sqrt(10))
    assert error == pytest.approx(2 * mean_gain(gains, np.ones(40), np.arange(40))[1])


def test_a_given_number_of_classes_is_not_searched() -> None:
    never: Any = None
    assert choose_classes(3, NetworkConfig(), never, None) == (3, ())
    assert choose_classes("auto", NetworkConfig(), None, None) == (1, ())


def test_classes_are_learnt_with_a_given_decay() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(2, size=60)  # choices at random
    table = {"id": np.repeat(np.arange(60), 2), "y": np.stack([first, 1 - first], 1).ravel(), "x": rng.normal(size=120)}
    data = ChoiceData.from_long(table, choice_set="id", chosen="y", features=["x"])
    model = PCMCNet(classes="auto", weight_decay=1.0, epochs=2, hidden=(4,)).fit(data, progress=False)
    assert [trial.value for trial in model.record_.class_trials][:2] == [1, 2]
    assert model.n_classes_ == 1
    assert PCMCNet(**asdict(model.config)).fit(data, progress=False, init=model).n_classes_ == 1
    assert "gain in held-out NLL: 2 classes " in model.summary().facts["classes"]


# -- bins -----------------------------------------------------------------------------------------------------------


def bin_period(data: ChoiceData, losses: dict[int, Floats]) -> int:
    """Choose how many members have bins by given losses for numbers of bins. Other fits diverge."""

    def choice_losses(_: Fold, classes: int, bins: int) -> list[float]:
        assert classes == 1
        if bins not in losses:
            raise TrainingError("the loss is no longer finite")
        return losses[bins].tolist()

    search = DecaySearch(trials=(Trial(value=4.0, held_out_nll=1.0),), fitted_sets=1, held_out_sets=1)
    return best_bin_period(Scripted(None, choice_losses, folds=[fold_of(data, data)]), search)


def test_held_out_sets_decide_how_many_members_have_bins(data: ChoiceData) -> None:
    plain = np.random.default_rng(0).uniform(0.5, 1.5, len(data))
    mixed = np.where(np.arange(len(data)) % 9 < 4, plain - 1.2, plain + 1.4)
    assert bin_period(data, {0: plain, 8: plain + 0.5}) == 0  # worse on each set
    assert bin_period(data, {0: plain, 8: plain - 0.5}) == 2  # better on each set
    assert bin_period(data, {0: plain, 8: mixed}) == 3  # much worse on some sets, better on others
    assert bin_period(data, {0: plain}) == 0  # fits with bins diverged


def test_bins_count_by_their_share_of_the_average() -> None:
    """Probabilities are .2 without and .5 with bins. None, a third or half of the members have bins."""
    plain, binned = np.full(4, -np.log(0.2)), np.full(4, -np.log(0.5))
    expected = {0: 0.2, 3: 0.2 * 2 / 3 + 0.5 / 3, 2: 0.35}
    assert set(expected) == set(BIN_PERIODS)
    for period, p in expected.items():
        np.testing.assert_allclose(np.exp(-average_nll(plain, binned, period)), p)


def test_a_table_without_numbers_has_no_bins() -> None:
    labels = read(trips(40), choice_set="trip", chosen="took", alternative="mode")
    model = PCMCNet(**AVERAGED).fit(labels, progress=False)
    assert model.spec_.bins == (0, 0, 0)
    assert "piecewise" not in str(model.summary())


# -- short fits -----------------------------------------------------------------------------------------------------


def short_fits(data: ChoiceData, valid: ChoiceData | None = None, **run: Any) -> ShortFits | None:
    model = PCMCNet(hidden=(4,), epochs=2, members=1)
    settings = FitRun(seed=0, device="cpu", **run)
    network_trainer: Trainer = model._trainer(data, valid, settings)
    return ShortFits.of(network_trainer, data, valid)


def test_a_plain_trial_is_reused(data: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials with more classes or bins are not confused with it."""
    widths, train = [], trainer.train

    def noted(network: Any, *arguments: Any, **options: Any) -> Any:
        widths.append((network.classes, network.alternative.width))
        return train(network, *arguments, **options)

    monkeypatch.setattr(trainer, "train", noted)
    fits = short_fits(data)
    assert fits is not None
    assert len(fits.folds) == 2
    fits.losses_by_epoch(4.0)
    width = widths[0][1]
    assert widths == [(1, width)] * 2
    fits.choice_losses(4.0, classes=2)
    fits.choice_losses(4.0)
    assert widths == [(1, width)] * 2 + [(2, width)] * 2
    fits.choice_losses(4.0, bins=8)
    assert all(seen > width for _, seen in widths[4:])
    assert len(widths) == 6


def test_trials_leave_no_files_and_no_reports(data: ChoiceData, tmp_path: Path) -> None:
    def never(entry: dict[str, Any]) -> None:
        raise AssertionError

    fits = short_fits(data, run_folder=tmp_path, on_epoch=never)
    assert fits is not None
    fits.losses_by_epoch(4.0)
    assert [path.name for path in tmp_path.iterdir()] == [SEARCH]


def test_a_table_without_differences_has_no_trials() -> None:
    table = {"s": np.repeat(np.arange(40), 2), "x": np.repeat(np.arange(40.0), 2), "took": np.tile([1, 0], 40)}
    assert short_fits(ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x"])) is None


def test_a_trial_is_half_as_long_as_a_fit(data: ChoiceData) -> None:
    fits = short_fits(data)
    assert fits is not None
    assert len(fits.losses_by_epoch(1.0)) == 1
    assert fits.fitted_sets == 45
    assert fits.held_out_sets == 30


def test_signs_lengthen_the_fit_and_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit takes 1.25 * 8 = 10 epochs, and a trial half as many."""
    monkeypatch.setattr(training_config, "DEFAULT_EPOCHS", 8)
    model = PCMCNet(hidden=(4,), members=1, monotone={"x": "increasing"}, weight_decay=1.0)
    table = choices(60)
    fits = ShortFits.of(model._trainer(table, None, FitRun(seed=0, device="cpu")), table, None)
    assert fits is not None
    assert len(fits.losses_by_epoch(1.0)) == 5
    assert model.fit(table, progress=False).record_.epochs == 10


# -- held-out folds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sets", "quarters", "folds", "share"), [(100, 2, 2, 4), (100, 4, 4, 4), (200, 4, 1, 5)])
def test_some_quarters_are_held_out_of_a_small_table(
    sets: int, quarters: int, folds: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "SMALL_TABLE_SETS", 200)
    created = held_out_folds(choices(sets), None, seed=0, quarters=quarters)
    assert len(created) == folds
    ids = [set(fold.held_out[0].set_ids.tolist()) for fold in created]
    assert len(set.union(*ids)) == sum(map(len, ids)) == folds * sets // share
    for fold in created:
        assert sorted([*fold.train.set_ids, *fold.held_out[0].set_ids]) == list(range(sets))


@pytest.mark.parametrize(("rank", "held_out"), [(None, 50), (2, 100)])
def test_factored_networks_hold_out_all_quarters_of_a_small_table(rank: int | None, held_out: int) -> None:
    model = PCMCNet(hidden=(4,), rank=rank, epochs=1, members=1).fit(choices(100), seed=0, progress=False)
    search = model.record_.decay_search
    assert search is not None
    assert search.held_out_sets == held_out


def test_whole_persons_are_held_out() -> None:
    for fold in held_out_folds(choices(120, persons=30), None, seed=0):
        assert persons_of(fold.train) & persons_of(fold.held_out[0]) == set()
        assert len(persons_of(fold.held_out[0])) > 5


def test_single_sets_are_held_out_of_a_few_persons() -> None:
    folds = held_out_folds(choices(100, persons=MIN_GROUPS - 1), None, seed=0)
    assert [len(fold.held_out[0]) for fold in folds] == [25, 25]
    assert all(persons_of(fold.train) & persons_of(fold.held_out[0]) for fold in folds)


def test_a_validation_part_joins_the_held_out_sets() -> None:
    train, valid = choices(50), choices(30, seed=1)
    alone = held_out_folds(train, None, seed=0)
    for fold, plain in zip(held_out_folds(train, valid, seed=0), alone, strict=True):
        assert fold.train.fingerprint() == plain.train.fingerprint()
        expected = [plain.held_out[0].fingerprint(), valid.fingerprint()]
        assert [sets.fingerprint() for sets in fold.held_out] == expected


def test_too_few_sets_are_judged_by_the_validation_part_alone() -> None:
    train, valid = choices(MIN_GROUPS - 1), choices(30, seed=1)
    (fold,) = held_out_folds(train, valid, seed=0)
    assert fold.train.fingerprint() == train.fingerprint()
    assert [sets.fingerprint() for sets in fold.held_out] == [valid.fingerprint()]


def test_a_sample_of_a_large_table_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MAX_SEARCHED_SETS", 50)
    for fold in held_out_folds(choices(200), None, seed=0):
        assert len(fold.train) + len(fold.held_out[0]) == 50
    for fold in held_out_folds(choices(200), choices(90, seed=1), seed=0):
        assert (len(fold.train) + len(fold.held_out[0]), len(fold.held_out[1])) == (50, 10)
    model = PCMCNet(**LEARNING).fit(choices(200), progress=False)
    best = min(model.record_.decay_search.trials, key=lambda trial: trial.held_out_nll).value
    assert best / 2 < model.record_.weight_decay / (50 / 200) < best * 2


def test_a_sample_takes_whole_persons() -> None:
    data = choices(120, persons=30)
    drawn = sample_sets(data, 40, seed=0)
    assert len(drawn) == 40
    assert len(persons_of(drawn)) == 10
    assert sample_sets(data, 120, seed=0) is data


def test_a_sample_of_a_few_persons_takes_single_sets() -> None:
    assert len(sample_sets(choices(120, persons=1), 40, seed=0)) == 40


@pytest.mark.parametrize(("sets", "folds"), [(MIN_GROUPS - 1, 0), (MIN_GROUPS, 2)])
def test_too_few_sets_have_no_folds(sets: int, folds: int) -> None:
    assert len(held_out_folds(choices(sets), None, seed=0)) == folds


# -- trial log ------------------------------------------------------------------------------------------------------


def test_trials_in_the_log_are_not_repeated(tmp_path: Path) -> None:
    path, created = tmp_path / SEARCH, []

    def trial() -> list[float]:
        created.append(1)
        return [0.5, 0.25]

    first = TrialLog.open(path, {"seed": 3, "hidden": (4,)}, resume=False)
    assert first.run_once("1/0", trial) == first.run_once("1/0", trial) == [0.5, 0.25]
    again = TrialLog.open(path, {"seed": 3, "hidden": (4,)}, resume=True)
    assert again.run_once("1/0", trial) == [0.5, 0.25]
    assert len(created) == 1
    again.run_once("1/1", trial)
    assert set(json.loads(path.read_text())["losses"]) == {"1/0", "1/1"}


def test_trials_of_another_run_are_refused(tmp_path: Path) -> None:
    path = tmp_path / SEARCH
    TrialLog.open(path, {"seed": 3}, resume=False).run_once("1/0", lambda: [0.5])
    with pytest.raises(ArtifactError, match=rf"^{re.escape(str(path))} belongs to another run; differences: seed"):
        TrialLog.open(path, {"seed": 4}, resume=True)


def test_trials_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    (tmp_path / SEARCH).write_text("[" * 100_000)
    with pytest.raises(ArtifactError, match=r"nested too deeply.*delete it to repeat the trials"):
        TrialLog.open(tmp_path / SEARCH, {"seed": 4}, resume=True)


def test_a_new_run_repeats_its_trials(tmp_path: Path) -> None:
    path = tmp_path / SEARCH
    TrialLog.open(path, {"seed": 3}, resume=False).run_once("1/0", lambda: [0.5])
    assert TrialLog.open(path, {"seed": 3}, resume=False).run_once("1/0", lambda: [0.7]) == [0.7]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"identity": {"seed": 3}, "losses": {"1/0": ["x"]}}', "\xff"])
def test_a_damaged_log_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / SEARCH
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ArtifactError, match=rf"{SEARCH} is damaged .*: delete it to repeat the trials"):
        TrialLog.open(path, {"seed": 3}, resume=True)


def test_a_log_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TrialLog.open(None, {}, resume=False).run_once("1/0", lambda: [0.5])
    assert not list(tmp_path.iterdir())


# -- a fit with a learnt decay --------------------------------------------------------------------------------------


def test_a_fit_learns_its_decay_and_reports_it(tmp_path: Path) -> None:
    model = PCMCNet(**LEARNING).fit(choices(60), progress=False)
    search = model.record_.decay_search
    assert (search.fitted_sets, search.held_out_sets) == (45, 30)
    tried = {trial.value: trial.held_out_nll for trial in search.trials}
    assert {4.0, 1.0} < set(tried) <= set(DECAYS)
    best = min(tried, key=tried.__getitem__)
    assert best / 2 < model.record_.weight_decay < best * 2
    text = str(model.summary())
    assert f"{model.record_.weight_decay:.3g}, learnt from 30 held-out sets (NLL " in text
    assert f"1: {tried[1.0]:.4f}" in text
    folder = model.save(tmp_path / "model")
    assert "learnt from 30 held-out sets" in (folder / "README.md").read_text("utf-8")
    loaded = load(folder)
    assert (loaded.record_, loaded.table_) == facts(model)


def test_a_fit_with_the_learnt_decay_has_the_same_weights() -> None:
    data = choices(60)
    learnt = PCMCNet(**LEARNING).fit(data, progress=False)
    with_decay = PCMCNet(**LEARNING, weight_decay=learnt.record_.weight_decay).fit(data, progress=False)
    assert weights(with_decay) == weights(learnt)
    assert len(with_decay.history) == LEARNING["epochs"]
    assert learnt.config.weight_decay == "auto"  # the option is unchanged


def test_the_same_seed_gives_the_same_search() -> None:
    first, second, other = (PCMCNet(**LEARNING).fit(choices(60), seed=s, progress=False) for s in (1, 1, 2))
    assert weights(first) == weights(second)
    assert facts(first) == facts(second)
    assert other.record_.decay_search.trials != first.record_.decay_search.trials


def test_a_given_decay_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("searched")

    monkeypatch.setattr(ShortFits, "of", never)
    model = PCMCNet(**LEARNING, weight_decay=0.3).fit(choices(60), progress=False)
    assert model.record_.weight_decay == 0.3
    assert model.record_.decay_search is None
    assert model.summary().facts["weight decay"] == "0.3"


def test_too_few_sets_get_a_medium_decay() -> None:
    model = PCMCNet(**LEARNING).fit(choices(MIN_GROUPS - 1), progress=False)
    assert model.record_.weight_decay == 1.0
    assert model.record_.decay_search is None


def test_a_validation_part_helps_to_learn_the_decay() -> None:
    model = PCMCNet(**LEARNING).fit(choices(60), choices(40, seed=1), progress=False)
    search = model.record_.decay_search
    assert (search.fitted_sets, search.held_out_sets) == (45, 2 * (15 + 40))


def test_a_validation_part_may_have_other_columns() -> None:
    model = PCMCNet(**LEARNING).fit(choices(60), choices(40, seed=1, persons=8), progress=False)
    assert model.record_.decay_search is not None


def test_sets_of_weight_0_are_not_used_in_trials() -> None:
    model = PCMCNet(**LEARNING).fit(choices(60, weight=[1.0] * 40 + [0.0] * 20), progress=False)
    search = model.record_.decay_search
    assert (search.fitted_sets, search.held_out_sets) == (30, 20)


def test_a_pointer_network_learns_its_decay() -> None:
    assert PointerNetwork(hidden=4, epochs=2).fit(choices(60), progress=False).record_.decay_search is not None


def test_trials_do_not_report_epochs() -> None:
    shown: list[int] = []
    PCMCNet(**LEARNING).fit(choices(60), progress=False, on_epoch=lambda entry: shown.append(entry["epoch"]))
    assert shown == [1, 2, 3, 4]


# -- averaged networks ----------------------------------------------------------------------------------------------


def n_members(model: PCMCNet) -> int:
    assert model.spec_.members == len(members_of(model.network_))
    return model.spec_.members


def test_the_number_of_members_is_automatic(data: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    def number(**options: Any) -> int:
        return n_members(PCMCNet(epochs=1, hidden=(4,), **options).fit(data, progress=False))

    assert number() == AUTO_MEMBERS == 6
    assert number(dropout=0.5) == AUTO_MEMBERS  # in PyTorch
    assert number(weight_decay=0.1) == 1
    assert number(classes=2) == 1
    assert number(members=2) == 2
    assert number(members=2, dropout=0.5, weight_decay=0.1) == 2
    monkeypatch.setattr(averaged_members, "AUTO_MEMBERS_SECONDS", 0.0)
    assert number() == 1
    with pytest.raises(ConfigError, match="members=2 needs classes=1"):
        PCMCNet(members=2, classes=2)
    with pytest.raises(ConfigError, match="members"):
        PCMCNet(members=0)


def test_a_group_of_processes_averages_only_on_request(data: ChoiceData) -> None:
    with training_in_group(ProcessGroup()):
        assert n_members(PCMCNet(epochs=1, hidden=(4,), members=2).fit(data, progress=False)) == 2
    network = PCMCNet(**AVERAGED).fit(data, progress=False)
    with training_in_group(ProcessGroup(0, 2)):
        assert averaged_members.automatic_members(data, members_of(network.network_)[0], network.config) == 1
    assert averaged_members.automatic_members(data, members_of(network.network_)[0], network.config) == AUTO_MEMBERS


def test_as_many_members_are_trained_as_fit_into_the_nominal_time(
    data: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled: passes x weights x pairs / 2e10 seconds. PyTorch: half the speed, and 3 ms per batch."""
    model = PCMCNet(epochs=3, batch_size=20, hidden=(4,), weight_decay=0.1, members=1).fit(data, progress=False)
    network, pairs = members_of(model.network_)[0], float((data.sizes**2.0).sum())
    weights = sum(parameter.numel() for parameter in network.parameters())
    compiled = 3 * weights * pairs / 2e10
    assert averaged_members.nominal_seconds(data, network, model.config) == pytest.approx(compiled, rel=1e-12)
    monkeypatch.setattr(averaged_members, "AUTO_MEMBERS_SECONDS", 2.5 * compiled)
    assert averaged_members.automatic_members(data, network, model.config) == 3
    monkeypatch.setattr(type(network), "compiled_form", None)
    in_pytorch = 2 * compiled + 3 * len(data) / 20 * 0.003
    assert averaged_members.nominal_seconds(data, network, model.config) == pytest.approx(in_pytorch, rel=1e-12)


def test_a_stopped_fit_trains_all_members_for_as_many_epochs(data: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, train = [], trainer.train

    def noted(*arguments: Any, **options: Any) -> Any:
        outcome = train(*arguments, **options)
        lengths.append(len(outcome.history))
        return outcome

    monkeypatch.setattr(trainer, "train", noted)

    def stop(entry: dict[str, Any]) -> None:
        raise StopFit

    model = PCMCNet(**AVERAGED | {"epochs": 3}).fit(data, on_epoch=stop, progress=False)
    assert lengths == [1, 1, 1]
    assert n_members(model) == 3


def test_epochs_of_all_members_are_reported(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pcmcnet")
    reported: list[tuple[int, int]] = []
    model = PCMCNet(**AVERAGED)
    model.fit(data, on_epoch=lambda entry: reported.append((entry.get("network", 1), entry["epoch"])))
    assert reported == [(network, epoch) for network in (1, 2, 3) for epoch in (1, 2)]
    assert [line.split(": ")[0] for line in caplog.messages] == [
        "epoch 1/2",
        "epoch 2/2",
        "training 2 further networks, to be averaged with the first",
        "network 2 of 3",
        "network 3 of 3",
    ]


def test_a_resumed_fit_continues_the_interrupted_member(data: ChoiceData, tmp_path: Path) -> None:
    def fit(last: int, **how: Any) -> tuple[PCMCNet, list[int]]:
        reported: list[int] = []

        def on_epoch(entry: dict[str, Any]) -> None:
            reported.append(entry.get("network", 1))
            if reported[-1] == last:
                raise KeyboardInterrupt

        return PCMCNet(**AVERAGED).fit(data, on_epoch=on_epoch, progress=False, **how), reported

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(3, run_folder=folder)
    assert (folder / "network-3-checkpoint.safetensors").exists()
    again, reported = fit(0, run_folder=folder, resume=True)
    assert reported == [3]  # the second of its two epochs
    np.testing.assert_array_equal(again.predict_proba(data), fit(0)[0].predict_proba(data))
    again.save(folder)
    assert not list(folder.glob("*checkpoint*"))


def test_members_of_a_refit_are_trained_on_both_parts(data: ChoiceData, tmp_path: Path) -> None:
    train, valid = data.split((0.7, 0.3), seed=0)
    options = AVERAGED | {"refit": True}
    model = PCMCNet(**options).fit(train, valid, progress=False, run_folder=tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").glob("*checkpoint*")}
    refits = {f"{name}refit-{CHECKPOINT}" for name in ("", "network-2-", "network-3-")}
    assert files == {CHECKPOINT, *refits}
    direct = PCMCNet(**AVERAGED | {"epochs": model.record_.epochs}).fit(train.concat(valid), progress=False)
    assert weights(model) == weights(direct)
    assert model.table_.fingerprint == direct.table_.fingerprint
    assert model.table_.choice_sets == len(data)
    assert model.record_.refit


@NEEDS_COMPILER
def test_parallel_members_equal_sequential_members(
    data: ChoiceData, threads: Callable[[int], None], tmp_path: Path
) -> None:
    """With a callback, members are trained in the calling thread; without one, in several threads."""
    fit, names = PCMCNet(hidden=(6,), epochs=2, weight_decay=4.0, members=4).fit, set()
    fit(data, progress=False, on_epoch=lambda entry: names.add(threading.current_thread().name))
    one_by_one = PCMCNet(hidden=(6,), epochs=2, weight_decay=4.0, members=4)
    one_by_one.fit(data, progress=False, on_epoch=lambda entry: None)
    assert names == {threading.current_thread().name}
    threads(3)
    parallel = fit(data, progress=False, run_folder=tmp_path / "run")
    assert weights(parallel) == weights(one_by_one)
    assert weights(fit(data, progress=False, run_folder=tmp_path / "run", resume=True)) == weights(one_by_one)


@NEEDS_COMPILER
def test_a_member_that_fails_is_named_and_the_others_are_cancelled(
    data: ChoiceData, threads: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, started = trainer.train, threading.Event()

    def fail(network: Any, sets: Any, config: Any, *, on_epoch: Any, **more: Any) -> Any:
        def noted(entry: dict[str, Any]) -> None:
            started.set()
            on_epoch(entry)

        file = more["checkpoint"].path.name
        if file.startswith("network-2"):
            assert started.wait(timeout=30)
            raise TrainingError("it broke down.")
        if file.startswith("network-3"):
            return train(network, sets, replace(config, epochs=1_000_000), on_epoch=noted, **more)
        return train(network, sets, config, on_epoch=on_epoch, **more)

    threads(2)
    monkeypatch.setattr(trainer, "train", fail)
    model = PCMCNet(**AVERAGED)
    with pytest.raises(TrainingError, match="network 2 of 3: it broke down"):
        model.fit(data, progress=False, run_folder=tmp_path / "run")
    assert model.fitted_ is None
    with safe_open(tmp_path / "run" / "network-3-checkpoint.safetensors", framework="pt") as file:
        assert not json.loads(file.metadata()["state"])["finished"]


# -- interrupted runs -----------------------------------------------------------------------------------------------


def counting(left: list[int]) -> Any:
    """Return a progress display that interrupts the fit after ``left[0]`` reports, or counts reports below 0."""

    @contextmanager
    def watch(epochs: int, *, show: bool) -> Iterator[Any]:
        def report(entry: dict[str, Any]) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Interruption

        yield report

    return watch


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["half", "all"])
@pytest.mark.parametrize("with_valid", [False, True], ids=["no-valid", "valid"])
def test_a_run_interrupted_anywhere_resumes_to_the_same_weights(
    everywhere: bool, with_valid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are interrupted within a trial, between trials and in the fit. Finished trials are not repeated.

    The quick tests cover half of the points with a validation part, and the other half without one.
    """
    train, valid = choices(60), choices(40, seed=1) if with_valid else None
    options, left = {**LEARNING, "members": 1}, [0]
    monkeypatch.setattr(loop, "show_epochs", counting(left))
    whole = PCMCNet(**options).fit(train, valid, progress=False)
    reports, each = -left[0], 2  # epochs of a trial: half of the 4 epochs of a fit
    trials = len(whole.record_.decay_search.trials) * 2
    assert reports == trials * each + LEARNING["epochs"]
    places = (1, each, each + 1, trials * each, trials * each + 1, reports)
    for number in places if everywhere else places[with_valid::2]:
        folder = tmp_path / str(number)
        left[0] = number
        with pytest.raises(Interruption):
            PCMCNet(**options).fit(train, valid, progress=False, run_folder=folder)
        assert (folder / CHECKPOINT).exists() == (number > trials * each)
        if number > each:
            with pytest.raises(InputError, match="holds an unfinished run"):
                PCMCNet(**options).fit(train, valid, progress=False, run_folder=folder)
        left[0] = 0
        resumed = PCMCNet(**options).fit(train, valid, progress=False, run_folder=folder, resume=True)
        done = number if number > trials * each else (number - 1) // each * each
        assert -left[0] == reports - done
        assert weights(resumed) == weights(whole)
        assert facts(resumed) == facts(whole)


def test_a_saved_run_leaves_no_trials_behind(tmp_path: Path) -> None:
    model = PCMCNet(**LEARNING).fit(choices(60), progress=False, run_folder=tmp_path / "run")
    assert (tmp_path / "run" / SEARCH).exists()
    model.save(tmp_path / "run")
    assert not (tmp_path / "run" / SEARCH).exists()
    assert weights(load(tmp_path / "run")) == weights(model)  # type: ignore[arg-type]


def test_a_resumed_fit_with_members_and_bins_equals_a_whole_fit(data: ChoiceData, tmp_path: Path) -> None:
    """A fit that is interrupted in the last member repeats no trials of bins."""
    options: dict[str, Any] = {"hidden": (4,), "epochs": 2}

    def interrupt(entry: dict[str, Any]) -> None:
        if entry.get("network") == AUTO_MEMBERS:
            raise Interruption

    whole = PCMCNet(**options).fit(data, progress=False, on_epoch=lambda entry: None)
    with pytest.raises(Interruption):
        PCMCNet(**options).fit(data, progress=False, run_folder=tmp_path, on_epoch=interrupt)
    names = set(json.loads((tmp_path / SEARCH).read_bytes())["losses"])
    assert {"0 bins, fold 0", "8 bins, fold 1", "weight decay 4, fold 0"} <= names
    resumed = PCMCNet(**options).fit(data, progress=False, run_folder=tmp_path, resume=True)
    assert weights(resumed) == weights(whole)
    assert facts(resumed) == facts(whole)
    assert torch.equal(*(torch.from_numpy(m.predict_proba(data)) for m in (resumed, whole)))
