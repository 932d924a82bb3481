"""A trainer stores nothing: the same arguments give the same network."""

from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.errors import InputError, TrainingError
from pcmcnet.models import PCMCNet
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.networks.trainer import TrainedNetwork, Trainer, network_log_proba


def trainer_of(trips: ChoiceData, quick: dict[str, Any], **run: Any) -> Trainer:
    return PCMCNet(**quick)._trainer(trips, None, FitRun(seed=3, device="cpu", progress=False, **run))


def weights(trained: TrainedNetwork) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in trained.network.state_dict().values()]


def test_the_same_arguments_give_the_same_network(trips: ChoiceData, quick: dict[str, Any]) -> None:
    trainer = trainer_of(trips, quick)
    first, other, second = (trainer.train(trips, (), replace(trainer.config, lr=lr)) for lr in (0.02, 0.5, 0.02))
    assert weights(first) == weights(second) != weights(other)
    assert first.network is not second.network
    assert first.encoder == second.encoder


def test_another_seed_gives_another_network(trips: ChoiceData, quick: dict[str, Any]) -> None:
    trainer = trainer_of(trips, quick)
    first, other = (t.train(trips, (), trainer.config) for t in (trainer, trainer.with_run(seed=4)))
    assert weights(first) != weights(other)
    assert trainer.run.seed == 3


def test_nothing_can_be_assigned_to_a_trainer(trips: ChoiceData, quick: dict[str, Any]) -> None:
    trainer = trainer_of(trips, quick)
    with pytest.raises(FrozenInstanceError):
        trainer.config = trainer.config  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        trainer.train(trips, (), trainer.config).epochs = 1  # type: ignore[misc]


def test_a_given_encoder_is_not_learnt(trips: ChoiceData, quick: dict[str, Any]) -> None:
    trainer, encoder = trainer_of(trips, quick), Encoder.learn(trips.subset(np.arange(10)), labels=True)
    assert trainer.train(trips, (), trainer.config, encoder=encoder).encoder is encoder


def test_the_network_has_the_given_number_of_classes(trips: ChoiceData, quick: dict[str, Any]) -> None:
    trainer = trainer_of(trips, quick)
    for classes in (1, 2):
        network: Any = trainer.train(trips, (), trainer.config, classes=classes).network
        assert network.classes == classes


def test_several_validation_tables_are_joined(trips: ChoiceData, quick: dict[str, Any]) -> None:
    train, valid = trips.split((0.6, 0.4), seed=0)
    trainer = trainer_of(train, quick)
    halves = valid.subset(np.arange(6)), valid.subset(np.arange(6, len(valid)))
    one, two = (trainer.train(train, tables, trainer.config) for tables in ((valid,), halves))
    assert weights(one) == weights(two)
    losses = [[entry["valid_loss"] for entry in trained.history] for trained in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_the_recorded_epochs_are_those_of_the_best_weights(trips: ChoiceData, quick: dict[str, Any]) -> None:
    train, valid = trips.split((0.6, 0.4), seed=0)
    trainer = trainer_of(train, quick)
    trained = trainer.train(train, (valid,), replace(trainer.config, epochs=6))
    losses = [entry["valid_loss"] for entry in trained.history]
    assert trained.epochs == 1 + int(np.argmin(losses))
    nll = trained.choice_nll(valid, 1_000)
    assert nll.shape == (len(valid),)
    assert np.average(nll, weights=valid.weights) == pytest.approx(min(losses), rel=1e-6)


def test_predictions_do_not_depend_on_batches(trips: ChoiceData, quick: dict[str, Any]) -> None:
    trainer = trainer_of(trips, quick)
    trained = trainer.train(trips, (), trainer.config)
    few, many = (network_log_proba(trained.network, trained.encoder, trips, budget) for budget in (1, 10**6))
    # Matrix products in float32 round differently for other shapes.
    np.testing.assert_allclose(few, many, rtol=1e-5, atol=1e-6)
    sums = np.add.reduceat(np.exp(many), trips.offsets[:-1])
    np.testing.assert_allclose(sums, 1, rtol=1e-6)


def test_a_quiet_trainer_reports_and_writes_nothing(trips: ChoiceData, quick: dict[str, Any], tmp_path: Path) -> None:
    def never(entry: dict[str, Any]) -> None:
        raise AssertionError

    quiet = trainer_of(trips, quick, run_folder=tmp_path, on_epoch=never).quiet
    quiet.train(trips, (), quiet.config, file="checkpoint.safetensors")
    assert not quiet.run.warn
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_is_resumed(trips: ChoiceData, quick: dict[str, Any], tmp_path: Path) -> None:
    def interrupt(entry: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    trainer = trainer_of(trips, quick, run_folder=tmp_path, on_epoch=interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(trips, (), trainer.config, file="a.safetensors")
    assert (tmp_path / "a.safetensors").exists()
    resumed = trainer.with_run(on_epoch=None, resume=True).train(trips, (), trainer.config, file="a.safetensors")
    whole = trainer_of(trips, quick).train(trips, (), trainer.config)
    assert weights(resumed) == weights(whole)


def test_training_that_diverges_is_an_error(trips: ChoiceData, quick: dict[str, Any]) -> None:
    trainer = trainer_of(trips, quick)
    with pytest.raises(TrainingError, match="the loss is no longer finite"):
        trainer.train(trips, (), replace(trainer.config, lr=1e30, clip=0.0))


def test_sets_of_one_alternative_are_refused(quick: dict[str, Any]) -> None:
    table = {"s": [0, 1, 2], "x": [1.0, 2.0, 3.0], "took": [1, 1, 1]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x"])
    trainer = trainer_of(data, quick)
    with pytest.raises(InputError, match="every choice set has a single alternative: there is nothing to learn"):
        trainer.train(data, (), trainer.config)


def test_the_random_state_of_the_caller_is_kept(trips: ChoiceData, quick: dict[str, Any]) -> None:
    trainer, before = trainer_of(trips, quick), torch.get_rng_state()
    trainer.train(trips, (), trainer.config)
    assert torch.equal(torch.get_rng_state(), before)
