import json
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from pcmcnet.errors import ArtifactError
from pcmcnet.training.checkpoint import Checkpoint, CheckpointWriter, RunState, _digest
from pcmcnet.training.config import EarlyStopping
from pcmcnet.training.run_folder import CHECKPOINT

IDENTITY = {"model": "toy", "options": {"lr": 0.1, "hidden": (4, 4)}, "seed": 0}


def a_state() -> RunState:
    """Return a run after two epochs, with numbers that text would round and a parameter without gradient."""
    odd = torch.tensor([1 / 3, -0.0, 1e-45, 3.4e38])
    return RunState(
        epoch=2,
        history=[{"epoch": 1, "train_loss": 0.1 + 0.2, "valid_loss": None}, {"epoch": 2, "train_loss": 1 / 3}],
        stopping=EarlyStopping(patience=5, min_delta=0.01, best=2 / 3, best_epoch=1, waited=1),
        module={"layer.weight": odd, "half": odd.bfloat16(), "whole": torch.tensor(7), "empty": torch.zeros(0, 3)},
        best={"layer.weight": odd + 1},
        optimiser={0: {"step": torch.tensor(2.0), "exp_avg": odd / 7}, 2: {"step": torch.tensor(2.0)}},
    )


def bits(state: RunState) -> dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]:
    """Return the bits of every tensor of a state."""
    parts: dict[str, dict[str, Tensor]] = {"module": state.module, "best": state.best}
    parts |= {f"optimiser/{k}": slot for k, slot in state.optimiser.items()}
    return {
        f"{part}/{name}": (t.dtype, tuple(t.shape), t.reshape(-1).view(torch.uint8).numpy().tobytes())
        for part, tensors in parts.items()
        for name, t in tensors.items()
    }


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "run" / CHECKPOINT, IDENTITY, resume=True)


@pytest.mark.parametrize("stopping", [EarlyStopping(3, 0.5), EarlyStopping(3, 0.5, best=1 / 3, waited=2), None])
def test_a_state_is_restored_bit_for_bit(checkpoint: Checkpoint, stopping: EarlyStopping | None) -> None:
    state = replace(a_state(), stopping=stopping)
    checkpoint.write(state)
    restored = checkpoint.read()
    assert restored is not None
    assert bits(restored) == bits(state)
    assert (restored.epoch, restored.finished, restored.history, restored.stopping) == (
        2,
        False,
        state.history,
        stopping,
    )


def test_a_restored_state_can_be_written_again(checkpoint: Checkpoint) -> None:
    checkpoint.write(a_state())
    first = checkpoint.read()
    assert first is not None
    checkpoint.write(first)
    second = checkpoint.read()
    assert second is not None
    assert bits(second) == bits(a_state())
    assert second.history == a_state().history


def test_a_new_state_replaces_the_old_one(checkpoint: Checkpoint) -> None:
    checkpoint.write(a_state())
    checkpoint.write(replace(a_state(), epoch=3, finished=True))
    restored = checkpoint.read()
    assert restored is not None
    assert (restored.epoch, restored.finished) == (3, True)
    assert [p.name for p in checkpoint.path.parent.iterdir()] == [CHECKPOINT]


class Slow(Checkpoint):
    """A checkpoint that waits for the run to continue before it writes."""

    go_on = Event()

    def write(self, state: RunState) -> None:
        assert self.go_on.wait(60)
        super().write(state)


def test_a_state_does_not_change_while_the_run_continues(checkpoint: Checkpoint) -> None:
    state, slow = a_state(), Slow(checkpoint.path, IDENTITY)
    with CheckpointWriter(slow) as keeper:
        keeper.save(state)
        state.module["layer.weight"].zero_()
        state.history.append({"epoch": 3})
        slow.go_on.set()
    restored = checkpoint.read()
    assert restored is not None
    assert bits(restored) == bits(a_state())
    assert restored.history == a_state().history


@pytest.mark.parametrize("pause", [0.0, 3600.0], ids=["slow disk", "short epochs"])
def test_a_run_does_not_wait_for_the_disk(
    pause: float, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcmcnet.training.checkpoint.SECONDS_BETWEEN_WRITES", pause)
    written: list[int] = []
    go_on = Event()

    class Noting(Checkpoint):
        def write(self, state: RunState) -> None:
            assert go_on.wait(60)
            written.append(state.epoch)

    with CheckpointWriter(Noting(checkpoint.path, IDENTITY)) as keeper:
        for epoch in range(1, 5):
            keeper.save(replace(a_state(), epoch=epoch))
        go_on.set()
    assert written == [1, 4]


def test_states_are_written_at_most_once_per_pause(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("pcmcnet.training.checkpoint.time.monotonic", lambda: now)
    epochs_on_disk = []
    with CheckpointWriter(checkpoint) as keeper:
        for epoch in range(1, 8):
            keeper.save(replace(a_state(), epoch=epoch))
            keeper._thread.submit(int).result()  # wait for earlier writes
            restored = checkpoint.read()
            assert restored is not None
            epochs_on_disk.append(restored.epoch)
            now += 0.4
    assert epochs_on_disk == [1, 1, 1, 4, 4, 4, 7]


def test_the_last_state_is_written_after_an_error(checkpoint: Checkpoint) -> None:
    def run() -> None:
        with CheckpointWriter(checkpoint) as keeper:
            for epoch in (1, 2, 3):
                keeper.save(replace(a_state(), epoch=epoch))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    restored = checkpoint.read()
    assert restored is not None
    assert restored.epoch == 3


def test_a_write_error_ends_the_run_at_the_next_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pcmcnet.training.checkpoint.SECONDS_BETWEEN_WRITES", 0.0)
    (tmp_path / "file").touch()

    def run() -> None:
        with CheckpointWriter(Checkpoint(tmp_path / "file" / "a", {})) as keeper:
            keeper.save(a_state())
            keeper._thread.submit(int).result()  # wait for the first write
            keeper.save(a_state())
            pytest.fail("it went on")

    with pytest.raises(ArtifactError, match="cannot be written"):
        run()
    assert not caplog.text  # the error says it already


def test_an_unwritable_state_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ArtifactError, match="cannot be written"),
        CheckpointWriter(Checkpoint(tmp_path / "file" / "a", {})) as keeper,
    ):
        keeper.save(a_state())


def test_a_run_starts_over_without_a_file_or_resume(checkpoint: Checkpoint) -> None:
    assert checkpoint.read() is None
    checkpoint.write(a_state())
    assert replace(checkpoint, resume=False).read() is None


def test_a_truncated_file_is_refused(checkpoint: Checkpoint) -> None:
    checkpoint.write(a_state())
    whole = checkpoint.path.read_bytes()
    for length in range(len(whole)):
        checkpoint.path.write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match=r"checkpoint .* is damaged \(.*\): delete it and train from the start"):
            checkpoint.read()


def test_any_changed_byte_is_detected(checkpoint: Checkpoint) -> None:
    checkpoint.write(a_state())
    whole = checkpoint.path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        checkpoint.path.write_bytes(changed)
        with pytest.raises(ArtifactError, match=r"(is damaged|has been altered).* delete it and train from the start"):
            checkpoint.read()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, r"seed \(0 there, 1 here\)"),
        ({"options": {"lr": 0.2, "hidden": (4, 4)}}, r"options\.lr \(0\.1 there, 0\.2 here\)"),
        ({"options": {"lr": 0.1, "hidden": (4, 4, 4)}, "model": "other"}, r"model \(.*\), options\.hidden \(.*\)"),
        ({"table": "another entry"}, r"table \(null there, \"another entry\" here\)"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(checkpoint: Checkpoint, change: dict[str, Any], named: str) -> None:
    checkpoint.write(a_state())
    other = replace(checkpoint, identity=IDENTITY | change)
    with pytest.raises(
        ArtifactError, match=rf"belongs to another run; differences: {named}\. Resume with the same table"
    ):
        other.read()


@pytest.mark.parametrize("text", ["[" * 100_000, "no json", "[]", '{"identity": {}, "epoch": 1}'])
def test_a_checkpoint_with_impossible_entries_is_damaged(checkpoint: Checkpoint, text: str) -> None:
    """The hash is correct, as an attacker could make it."""
    checkpoint.path.parent.mkdir()
    tensors = {"module/weight": torch.zeros(2)}
    checkpoint.path.write_bytes(save(tensors, {"state": text, "sha256": _digest(tensors, text)}))
    with pytest.raises(ArtifactError, match=r"is damaged .*: delete it and train from the start"):
        checkpoint.read()


def test_an_unwritable_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    checkpoint = Checkpoint(tmp_path / "file" / CHECKPOINT, IDENTITY)
    with pytest.raises(ArtifactError, match=rf"checkpoint .*file/{CHECKPOINT} cannot be written: "):
        checkpoint.write(a_state())


def test_the_file_contains_only_tensors_and_json(checkpoint: Checkpoint) -> None:
    checkpoint.write(a_state())
    with safe_open(checkpoint.path, framework="pt") as file:
        assert json.loads(file.metadata()["state"])["epoch"] == 2
        assert "optimiser/0/exp_avg" in set(file.keys())


@pytest.mark.parametrize(("by", "told"), [(ZeroDivisionError, True), (ArtifactError, False)])
def test_another_error_is_raised_and_the_lost_state_logged(
    by: type[Exception], told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    def run() -> None:
        with CheckpointWriter(Checkpoint(tmp_path / "file" / "a", {})) as keeper:
            keeper.save(a_state())
            if by is ZeroDivisionError:
                raise by
            keeper.wait()  # its error is raised here

    with caplog.at_level("WARNING", logger="pcmcnet"), pytest.raises(by):
        run()
    assert ("could not be saved" in caplog.text) == told
