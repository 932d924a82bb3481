"""Workers that share each batch reach the weights of one process, even if a worker is killed."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import torch

import pcmcnet as pn
from pcmcnet import cluster
from pcmcnet.cluster.training import RayWorkers, SharedFolder
from pcmcnet.data import ScannedData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, TrainingError
from pcmcnet.layers.threads import one_thread_per_operation
from pcmcnet.models.networks.fitting import FittedNetwork
from pcmcnet.training.run_folder import CHECKPOINT, REFIT

OPTIONS: dict[str, Any] = {"hidden": (16, 16), "dropout": 0.0, "epochs": 2, "batch_size": 16, "weight_decay": 0.5}
STEPS = 10  # an epoch has 160 sets
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


class Doomed(pn.PCMCNet):
    """A network whose second worker is killed in the middle of the second epoch, unless a file exists."""

    marker = ""

    def _build(self, encoder: Any, spec: Any) -> Any:
        network, steps, marker = super()._build(encoder, spec), [0], Path(self.marker)

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
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_weights_equal_those_of_one_process_if_a_worker_is_killed(
    killed: bool, data: pn.ChoiceData, doomed: Doomed, tmp_path: Path, observed_addresses: set[tuple[str, str]]
) -> None:
    """20 steps in the same batches. Restarted workers continue from the checkpoint of the first epoch.

    No process can be reached from another machine.
    """
    if not killed:
        Path(doomed.marker).touch()
    train, valid = data.split((0.8, 0.2), seed=0)
    alone = pn.PCMCNet(**OPTIONS).fit(train, valid, seed=3, device="cpu", progress=False)
    shared = cluster.fit(doomed, train, valid, workers=2, seed=3, run_folder=tmp_path / "run", progress=False)
    assert shared is doomed
    assert Path(doomed.marker).exists()
    require_close(shared, alone)
    assert shared.table_.choice_sets == len(train)
    assert shared.schema == alone.schema
    assert not observed_addresses


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_losing_a_worker_does_not_change_the_weights(data: pn.ChoiceData, doomed: Doomed) -> None:
    calm = cluster.fit(pn.PCMCNet(**OPTIONS), data, workers=2, progress=False)
    shaken = cluster.fit(doomed, data, workers=2, progress=False)
    for name, value in shaken.network_.state_dict().items():
        assert torch.equal(value, calm.network_.state_dict()[name])


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_diverged_training_is_reported_without_a_restart(data: pn.ChoiceData, tmp_path: Path) -> None:
    """All workers diverge in the same way, so a restart would not help."""
    model = pn.PCMCNet(**{**OPTIONS, "lr": 1e30, "clip": 0.0})
    with pytest.raises(TrainingError, match="the loss is no longer finite"):
        cluster.fit(model, data, workers=2, run_folder=tmp_path / "run", progress=False)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_repeated_failures_end_the_fit_with_advice(data: pn.ChoiceData, tmp_path: Path) -> None:
    class Hopeless(Doomed):
        def _build(self, encoder: Any, spec: Any) -> Any:
            Path(self.marker).unlink(missing_ok=True)
            return super()._build(encoder, spec)

    options = {**OPTIONS, "epochs": 4}  # each start completes one epoch
    model = Hopeless(**options)
    model.marker = str(tmp_path / "killed")
    folder = tmp_path / "run"
    with pytest.raises(TrainingError, match=r"workers failed more than 1 times.*continue with resume=True"):
        cluster.fit(model, data, workers=2, run_folder=folder, failures=1, progress=False)
    whole = cluster.fit(pn.PCMCNet(**options), data, workers=2, run_folder=folder, resume=True, progress=False)
    assert [entry["epoch"] for entry in whole.history] == [1, 2, 3, 4]


class Witness(pn.PCMCNet):
    """A network whose workers record the names of the shards they read."""

    folder = ""

    def _fit(self, train: Any, valid: Any, run: Any) -> FittedNetwork:
        state = super()._fit(train, valid, run)
        if torch.distributed.is_initialized():
            shards = {"train": sorted(train.verified.seen), "valid": sorted(valid.verified.seen)}
            (Path(self.folder) / f"{torch.distributed.get_rank()}.json").write_text(json.dumps(shards))
        return state


@pytest.fixture
def scanned(table: pa.Table, data: pn.ChoiceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScannedData:
    """Return the table in shards, five to a buffer. Workers do not run in the folder of the relative path."""
    pq.write_table(table, tmp_path / "trips.parquet")
    monkeypatch.chdir(tmp_path)
    found = ScannedData.of("trips.parquet", data.schema, cache="cache", memory="1 MiB")
    return replace(found, memory=4 * 5 * max(shard.bytes for shard in found.manifest.shards))


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_workers_read_their_own_shards_and_reach_the_same_weights(scanned: ScannedData, tmp_path: Path) -> None:
    """20 steps in one epoch. Every shard is read by one worker; the first worker sends the initial weights to all."""
    train, valid = scanned.split((0.8, 0.2), seed=0)
    options = {**OPTIONS, "epochs": 1, "batch_size": 8}
    assert len(train.buffers()) > 2
    alone = pn.PCMCNet(**options).fit(train, valid, seed=3, device="cpu", progress=False)
    witness = Witness(**options)
    witness.folder = str(tmp_path)
    shared = cluster.fit(witness, train, valid, workers=2, seed=3, progress=False)
    require_close(shared, alone)
    names = {shard.name for shard in scanned.manifest.shards}
    opened = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    for part, common in {"train": {"shard-00000.arrow"}, "valid": set()}.items():
        first, second = (set(each[part]) for each in opened)
        assert first | second == names
        assert first & second == common


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_a_fit_resumes_with_another_number_of_workers(scanned: ScannedData, doomed: Doomed, tmp_path: Path) -> None:
    """Batches do not depend on the number of workers."""
    options = {**OPTIONS, "batch_size": len(scanned) // STEPS}
    doomed.config = replace(doomed.config, **options)
    alone = pn.PCMCNet(**options).fit(scanned, seed=3, device="cpu", progress=False)
    folder = tmp_path / "run"
    with pytest.raises(TrainingError, match="workers failed more than 0 times"):
        cluster.fit(doomed, scanned, workers=2, seed=3, run_folder=folder, failures=0, progress=False)
    assert Path(doomed.marker).exists()
    shared = cluster.fit(
        pn.PCMCNet(**options), scanned, workers=1, seed=3, run_folder=folder, resume=True, progress=False
    )
    require_close(shared, alone)


def require_close(found: pn.PCMCNet, expected: pn.PCMCNet) -> None:
    """Check that weights and losses are equal up to rounding."""
    for name, value in found.network_.state_dict().items():
        torch.testing.assert_close(value, expected.network_.state_dict()[name], rtol=0, atol=1e-4)
    for entry, known in zip(found.history, expected.history, strict=True):
        assert entry["train_loss"] == pytest.approx(known["train_loss"], abs=1e-5)
        assert entry["valid_loss"] == pytest.approx(known["valid_loss"], abs=1e-5)


@pytest.mark.usefixtures("local_ray")
def test_too_few_shards_for_the_workers_give_a_warning(
    scanned: ScannedData, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LocalWorkers(RayWorkers):
        map = staticmethod(map)  # the warning needs no process

    monkeypatch.setattr("pcmcnet.cluster.training.RayWorkers", LocalWorkers)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"")  # ends the fit after the warning
    with pytest.raises(InputError, match="holds an unfinished run"):
        cluster.fit(pn.PCMCNet(**OPTIONS), replace(scanned, memory=2**16), workers=2, run_folder=tmp_path)
    assert "a buffer has about 1 shards for 2 workers" in caplog.text


def test_an_unfinished_run_is_not_overwritten(data: pn.ChoiceData, tmp_path: Path, local_ray: None) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="holds an unfinished run: continue it"):
        cluster.fit(pn.PCMCNet(**OPTIONS), data, run_folder=tmp_path)


@pytest.mark.usefixtures("local_ray")
def test_a_stack_fitted_by_workers_is_the_stack_of_one_process(
    data: pn.ChoiceData, table: pa.Table, tmp_path: Path
) -> None:
    """The fits that predict held-out sets run on the workers; the saved stack predicts a folder with workers."""
    stack = pn.Stacking([pn.MNL(), pn.Boosted(trees=5), pn.PCMCNet(**OPTIONS, members=1)], folds=2)
    with one_thread_per_operation(0):
        alone = stack.__sklearn_clone__().fit(data, seed=3, device="cpu", progress=False)
        shared = cluster.fit(stack, data, workers=2, seed=3, run_folder=tmp_path / "run", progress=False)
    assert shared is stack
    np.testing.assert_allclose(shared.weights_, alone.weights_, rtol=0, atol=1e-6)  # networks compute in 32 bits
    np.testing.assert_allclose(shared.predict_proba(data), alone.predict_proba(data), rtol=0, atol=1e-6)
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "part.parquet")
    cluster.predict(pn.load(shared.save(tmp_path / "saved")), tmp_path / "in", tmp_path / "out", progress=False)
    written = pq.read_table(tmp_path / "out" / "part.parquet")
    np.testing.assert_allclose(written["probability"].to_numpy(), alone.predict_proba(table), rtol=0, atol=1e-6)


def test_workers_fit_stacks_on_cpus(data: pn.ChoiceData) -> None:
    with pytest.raises(ConfigError, match="workers fit stacking on CPUs: expected device 'auto' or 'cpu', got 'cuda'"):
        cluster.fit(pn.Stacking(["mnl"]), data, device="cuda")


@pytest.mark.parametrize("model", [pn.MNL(), pn.Boosted()], ids=lambda m: m.name)
def test_models_without_shared_work_are_rejected(model: Any, data: pn.ChoiceData) -> None:
    with pytest.raises(ConfigError, match=f"Ray workers cannot fit {model.name}.* in one process"):
        cluster.fit(model, data)


def test_ensembles_of_networks_share_batches() -> None:
    assert pn.Ensemble("pcmcnet").shares_batches
    assert not pn.Ensemble("boosted").shares_batches


def test_resuming_needs_a_folder(data: pn.ChoiceData) -> None:
    with pytest.raises(InputError, match="resume=True needs the run_folder"):
        cluster.fit(pn.PCMCNet(), data, resume=True)


# -- Run folder --------------------------------------------------------------------------------------------------------
# Checkpoints at an address: a folder or a file system of fsspec, here the one in memory.


@pytest.fixture(params=["path", "file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {"path": str(tmp_path / "a b[1]"), "file": f"file://{tmp_path}/run", "memory": f"memory://{tmp_path.name}"}
    return places[request.param]


def test_workers_share_checkpoints(address: str) -> None:
    with SharedFolder.with_temporary_copy(address) as first:
        assert not first.has_checkpoints()
        first.pull()  # the folder is still empty
        (first.local / "member-2").mkdir()
        (first.local / CHECKPOINT).write_bytes(b"one")
        (first.local / "member-2" / REFIT).write_bytes(b"two")
        (first.local / "other").write_bytes(b"not for others")
        first.push()
        assert first.has_checkpoints()
    assert not first.local.exists()
    with SharedFolder.with_temporary_copy(address) as second:
        second.pull()
        files = {str(file.relative_to(second.local)) for file in second.local.rglob("*") if file.is_file()}
        assert files == {CHECKPOINT, f"member-2/{REFIT}"}
        assert (second.local / CHECKPOINT).read_bytes() == b"one"
        (second.local / "new").write_bytes(b"newer")
        (second.local / "new").replace(second.local / CHECKPOINT)
        second.push()
    with SharedFolder.with_temporary_copy(address) as third:
        third.pull()
        assert (third.local / CHECKPOINT).read_bytes() == b"newer"


def test_an_unknown_address_is_rejected() -> None:
    with (
        pytest.raises(InputError, match="is not a valid shared folder"),
        SharedFolder.with_temporary_copy("nowhere://x"),
    ):
        pass


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with SharedFolder.with_temporary_copy(str(tmp_path / "file" / "run")) as folder:
        (folder.local / CHECKPOINT).write_bytes(b"one")
        with pytest.raises(ArtifactError, match=r"run/checkpoint\.safetensors cannot be written"):
            folder.push()
