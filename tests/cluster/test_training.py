"""Workers that share each batch: the weights of one process, whatever happens to a worker on the way."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import torch

import pcmcnet as pn
from pcmcnet import cluster
from pcmcnet.data import ScannedData
from pcmcnet.errors import ConfigError, InputError, TrainingError

OPTIONS: dict[str, Any] = {"hidden": (16, 16), "dropout": 0.0, "epochs": 2, "batch_size": 16}
STEPS = 10  # in an epoch of 160 sets
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


class Doomed(pn.PCMCNet):
    """A network whose second worker is killed in the middle of the second epoch, unless a file is there."""

    marker = ""

    def _build(self, encoder: Any) -> Any:
        network, steps, marker = super()._build(encoder), [0], Path(self.marker)

        def count(module: Any, batch: Any) -> None:
            together = torch.distributed.is_initialized() and torch.distributed.get_rank() == 1
            steps[0] += together and module.training
            if steps[0] == STEPS * 3 // 2 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        network.register_forward_pre_hook(count)
        return network


@pytest.fixture
def doomed(tmp_path: Path) -> Doomed:
    model = Doomed(**OPTIONS)
    model.marker = str(tmp_path / "killed")
    return model


@pytest.mark.usefixtures("local_ray")
def test_weights_are_those_of_one_process_even_if_a_worker_is_killed_in_mid_epoch(
    data: pn.ChoiceData, doomed: Doomed, tmp_path: Path
) -> None:
    """20 steps in the same batches. The workers that are started again go on from the checkpoint of the first epoch."""
    train, valid = data.split((0.8, 0.2), seed=0)
    alone = pn.PCMCNet(**OPTIONS).fit(train, valid, seed=3, device="cpu", progress=False)
    shared = cluster.fit(doomed, train, valid, workers=2, seed=3, run_folder=tmp_path / "run", progress=False)
    assert shared is doomed
    assert Path(doomed.marker).exists()
    for name, value in shared.network_.state_dict().items():
        torch.testing.assert_close(value, alone.network_.state_dict()[name], rtol=0, atol=1e-5)
    for entry, known in zip(shared.history, alone.history, strict=True):
        assert entry["valid_loss"] == pytest.approx(known["valid_loss"], abs=1e-5)
    assert shared.training_["choice_sets"] == len(train)
    assert shared.schema == alone.schema


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_an_undisturbed_fit_and_one_that_lost_a_worker_end_in_the_same_weights(
    data: pn.ChoiceData, doomed: Doomed
) -> None:
    calm = cluster.fit(pn.PCMCNet(**OPTIONS), data, workers=2, progress=False)
    shaken = cluster.fit(doomed, data, workers=2, progress=False)
    for name, value in shaken.network_.state_dict().items():
        assert torch.equal(value, calm.network_.state_dict()[name])


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_a_breakdown_of_training_is_told_at_once(data: pn.ChoiceData, tmp_path: Path) -> None:
    """All workers come to it alike: to start them again would not help."""
    model = pn.PCMCNet(**{**OPTIONS, "lr": 1e30, "clip": 0.0})
    with pytest.raises(TrainingError, match="the loss is no longer finite"):
        cluster.fit(model, data, workers=2, run_folder=tmp_path / "run", progress=False)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_a_worker_that_dies_every_time_ends_the_fit_with_what_to_do(data: pn.ChoiceData, tmp_path: Path) -> None:
    class Hopeless(Doomed):
        def _build(self, encoder: Any) -> Any:
            Path(self.marker).unlink(missing_ok=True)
            return super()._build(encoder)

    options = {**OPTIONS, "epochs": 4}  # each start gets through one epoch
    model = Hopeless(**options)
    model.marker = str(tmp_path / "killed")
    folder = tmp_path / "run"
    with pytest.raises(TrainingError, match=r"workers failed more than 1 times.*go on with resume=True"):
        cluster.fit(model, data, workers=2, run_folder=folder, failures=1, progress=False)
    whole = cluster.fit(pn.PCMCNet(**options), data, workers=2, run_folder=folder, resume=True, progress=False)
    assert [entry["epoch"] for entry in whole.history] == [1, 2, 3, 4]


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_workers_read_a_table_part_by_part(
    table: pa.Table, data: pn.ChoiceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each opens the memory-mapped form for itself; parts of a few sets, and the same weights as one process."""
    pq.write_table(table, tmp_path / "trips.parquet")
    monkeypatch.chdir(tmp_path)
    scanned = ScannedData.of("trips.parquet", data.schema, cache="cache", memory="1 MiB")
    alone = pn.PCMCNet(**OPTIONS).fit(scanned, seed=3, device="cpu", progress=False)
    shared = cluster.fit(pn.PCMCNet(**OPTIONS), scanned, workers=2, seed=3, progress=False)
    for name, value in shared.network_.state_dict().items():
        torch.testing.assert_close(value, alone.network_.state_dict()[name], rtol=0, atol=1e-5)


def test_an_unfinished_run_is_not_overwritten(data: pn.ChoiceData, tmp_path: Path, local_ray: None) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="holds an unfinished run: go on with it"):
        cluster.fit(pn.PCMCNet(**OPTIONS), data, run_folder=tmp_path)


def test_what_does_not_train_in_epochs_is_refused(data: pn.ChoiceData) -> None:
    with pytest.raises(ConfigError, match="mnl is none: fit it in one process"):
        cluster.fit(pn.MNL(), data)


def test_going_on_needs_a_folder(data: pn.ChoiceData) -> None:
    with pytest.raises(InputError, match="resume=True needs the run_folder"):
        cluster.fit(pn.PCMCNet(), data, resume=True)
