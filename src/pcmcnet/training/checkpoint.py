"""Checkpoints of training runs: one safetensors file per run, which is replaced atomically after epochs.

The tensors are named module/*, best/* and optimiser/<parameter>/*. The metadata contain the epoch, the progress within
a long epoch, the history, the state of early stopping, the identity of the run (options, data, seed) and a hash of all
saved values. Reading the file executes no code.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pcmcnet.concurrency import submit_or_run
from pcmcnet.errors import ArtifactError
from pcmcnet.storage import parse_json, write_bytes
from pcmcnet.training.config import EarlyStopping
from pcmcnet.training.data_parallel import ProcessGroup, current_group
from pcmcnet.training.run_folder import require_same_run

log = logging.getLogger("pcmcnet")

JSON_FIELDS = (
    "epoch",
    "within",
    "finished",
    "history",
    "stopping",
    "cooling",
)  # fields of a state; the others are tensors
SECONDS_BETWEEN_WRITES = 1.0  # a killed run loses up to this much work and the current epoch. Not tuned

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class EpochProgress:
    """Progress within an epoch: finished parts of the source, finished steps, elapsed seconds, and totals so far."""

    parts: int = 0
    steps: int = 0
    seconds: float = 0.0
    totals: tuple[float, ...] = ()


@dataclass
class RunState:
    """State of a training run, after or within an epoch."""

    epoch: int = 0  # last complete epoch
    within: EpochProgress | None = None  # progress of the next epoch
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    stopping: EarlyStopping | None = None
    cooling: int | None = None  # the epoch after which the cool-down began
    module: Tensors = field(default_factory=dict)
    best: Tensors = field(default_factory=dict)
    optimiser: dict[int, Tensors] = field(default_factory=dict)

    def copy_to_host(self) -> RunState:
        """Return a copy of the state in host memory, because the run continues to change the tensors."""
        copy = replace(
            self,
            history=list(self.history),
            stopping=None if self.stopping is None else replace(self.stopping),
            module=_on_host(self.module),
            best=_on_host(self.best),
            optimiser={i: _on_host(slot) for i, slot in self.optimiser.items()},
        )
        for device in {tensor.device for tensor in self.module.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()  # waits for all copies
        return copy


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint file of a run, and the identity of the run.

    A run can only be resumed with the same ``identity``, which must be JSON-compatible.
    """

    path: Path
    identity: Mapping[str, Any]
    resume: bool = False

    def write(self, state: RunState) -> None:
        """Replace the checkpoint file with a new state."""
        # 1. Give each tensor a flat name.
        tensors = {f"module/{k}": v for k, v in state.module.items()}
        tensors |= {f"best/{k}": v for k, v in state.best.items()}
        tensors |= {f"optimiser/{i}/{k}": v for i, slot in state.optimiser.items() for k, v in slot.items()}
        tensors = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
        # 2. Write the other entries as JSON, and a hash over both.
        entries = {name: getattr(state, name) for name in JSON_FIELDS}
        text = json.dumps({"identity": self.identity, **entries}, default=asdict)
        content = save(tensors, {"state": text, "sha256": _digest(tensors, text)})
        # 3. Replace the file atomically: an error leaves the earlier one.
        write_bytes(self.path, content, named=f"checkpoint {self.path}")

    def read(self) -> RunState | None:
        """Return the state to resume from, or None if ``resume`` is False or the file does not exist."""
        if not self.resume or not self.path.exists():
            return None
        tensors, text = self._load()
        try:
            entries = parse_json(text)
            identity, state = entries["identity"], _state(entries, tensors)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(
                f"checkpoint {self.path} is damaged ({error!r}): delete it and train from the start."
            ) from error
        require_same_run(self.path, identity, json.loads(json.dumps(self.identity)))
        return state

    def _load(self) -> tuple[Tensors, str]:
        """Return the tensors and the JSON text of the file, or raise ArtifactError if it is damaged or was altered."""
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, OSError) as error:
            raise ArtifactError(
                f"checkpoint {self.path} is damaged ({error}): delete it and train from the start."
            ) from error
        text = metadata.get("state", "")
        if metadata.get("sha256") != _digest(tensors, text):
            raise ArtifactError(f"checkpoint {self.path} has been altered: delete it and train from the start.")
        return tensors, text


class CheckpointWriter:
    """Writer that saves the first, the last and some intermediate states of a run in a background thread.

    The run does not wait for the disk. An error in the thread is raised when a later state is saved. In a process
    group, the first process saves every state, and waits until the state is on disk.
    """

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint if current_group().is_first else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pcmcnet-checkpoint")
        self._newest: RunState | None = None  # not written yet
        self._last_write, self._writing = -math.inf, Future[None]()
        self._writing.set_result(None)

    def save(self, state: RunState) -> None:
        """Copy the state, and write it if the last write is done and ``SECONDS_BETWEEN_WRITES`` have passed."""
        if self._checkpoint is None:
            return
        # 1. The copy replaces an earlier unwritten state, whose memory is freed first.
        self._newest = None
        self._newest = state.copy_to_host()
        # 2. In a group, write it now: the other processes rely on it. Otherwise write it in the thread, now or later.
        if (group := current_group()) != ProcessGroup():
            self.wait()
            group.on_checkpoint()
        elif self._writing.done() and time.monotonic() - self._last_write >= SECONDS_BETWEEN_WRITES:
            self._write()

    def wait(self) -> None:
        """Wait until the newest state is on disk."""
        self._write()
        self._writing.result()

    def _write(self) -> None:
        """Start writing the newest state, if there is one."""
        self._writing.result()  # raises the error of the last write
        if self._checkpoint is not None and self._newest is not None:
            self._last_write, state, self._newest = time.monotonic(), self._newest, None
            self._writing = submit_or_run(self._thread, partial(self._checkpoint.write, state))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        with self._thread:
            try:
                self.wait()
            except Exception as failure:
                if kind is None:
                    raise
                if failure is not error:  # another error ends the run already: report this one only
                    log.warning("the last state of the run could not be saved: %s", failure)


def _on_host(tensors: Tensors) -> Tensors:
    """Copy tensors to the host, asynchronously from a CUDA device."""
    return {k: v.detach().to("cpu", copy=True, non_blocking=v.is_cuda) for k, v in tensors.items()}


def _state(entries: Mapping[str, Any], tensors: Tensors) -> RunState:
    """Return the state stored in the entries and tensors of a file."""
    # 1. Group the tensors by the first part of their name; those of the optimiser also by parameter.
    parts: dict[str, Any] = {"module": {}, "best": {}, "optimiser": {}}
    for key, tensor in tensors.items():
        part, _, rest = key.partition("/")
        if part == "optimiser":
            index, _, name = rest.partition("/")
            parts[part].setdefault(int(index), {})[name] = tensor
        else:
            parts[part][rest] = tensor
    # 2. Set the other fields from the JSON entries.
    state = RunState(**{name: entries[name] for name in JSON_FIELDS}, **parts)
    state.within = None if entries["within"] is None else EpochProgress(**entries["within"])
    state.stopping = None if entries["stopping"] is None else EarlyStopping(**entries["stopping"])
    return state


def _digest(tensors: Tensors, text: str) -> str:
    """Return a hash of the JSON text and of the names, dtypes, shapes and bytes of the tensors."""
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
