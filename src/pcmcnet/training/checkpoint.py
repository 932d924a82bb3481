"""The state of a training run on disk: one safetensors file per run, replaced atomically after epochs.

Tensors: module/*, best/*, optimiser/<parameter>/*. Metadata: the epoch, how far the next one has come where it takes
long, the history, the stopping rule's state, the identity of the run (options, data, seed) and a hash over all of it.
Nothing in it is executed on reading.
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

from pcmcnet.data.ahead import begun
from pcmcnet.errors import ArtifactError
from pcmcnet.storage.diff import differences
from pcmcnet.storage.files import parse_json, write_bytes
from pcmcnet.training.data_parallel import Group, current_group
from pcmcnet.training.stopping import EarlyStopping

log = logging.getLogger("pcmcnet")

CHECKPOINT = "checkpoint.safetensors"  # the usual name of the file
PAUSE = 1.0  # seconds between states that are written: what a run that is killed loses beside an epoch. By choice

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Within:
    """How far an epoch has come: parts of the source and steps that are done, seconds, and sums over the steps."""

    parts: int = 0
    steps: int = 0
    seconds: float = 0.0
    totals: tuple[float, ...] = ()


@dataclass
class RunState:
    """Where a training run stands after an epoch, or within one."""

    epoch: int = 0  # the last that is done
    within: Within | None = None  # the next
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    stopping: EarlyStopping | None = None
    cooling: int | None = None  # the epoch after which the cool-down began
    module: Tensors = field(default_factory=dict)
    best: Tensors = field(default_factory=dict)
    optimiser: dict[int, Tensors] = field(default_factory=dict)

    def copied(self) -> RunState:
        """Return the state of now in the host's memory: the run goes on in the tensors that this one has."""
        copy = replace(
            self,
            history=list(self.history),
            stopping=None if self.stopping is None else replace(self.stopping),
            module=_on_host(self.module),
            best=_on_host(self.best),
            optimiser={i: _on_host(slot) for i, slot in self.optimiser.items()},
        )
        for device in {tensor.device for tensor in self.module.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()  # for all copies together
        return copy


@dataclass(frozen=True)
class Checkpoint:
    """A run's file and identity; ``identity`` is anything JSON that must be equal for a run to go on."""

    path: Path
    identity: Mapping[str, Any]
    resume: bool = False

    def write(self, state: RunState) -> None:
        """Replace the file by the new state."""
        tensors = {f"module/{k}": v for k, v in state.module.items()}
        tensors |= {f"best/{k}": v for k, v in state.best.items()}
        tensors |= {f"optimiser/{i}/{k}": v for i, slot in state.optimiser.items() for k, v in slot.items()}
        tensors = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
        text = json.dumps(
            {
                "identity": self.identity,
                "epoch": state.epoch,
                "within": None if state.within is None else asdict(state.within),
                "finished": state.finished,
                "history": state.history,
                "stopping": None if state.stopping is None else asdict(state.stopping),
                "cooling": state.cooling,
            }
        )
        content = save(tensors, {"state": text, "sha256": _digest(tensors, text)})
        write_bytes(self.path, content, named=f"checkpoint {self.path}")

    def read(self) -> RunState | None:
        """Return the state to go on from: None unless resuming and a file is there."""
        if not self.resume or not self.path.exists():
            return None
        tensors, text = self._load()
        try:
            entries = parse_json(text)
            found, state = entries["identity"], _state(entries, tensors)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(
                f"checkpoint {self.path} is damaged ({error!r}): delete it and train from the start."
            ) from error
        require_same_run(self.path, found, json.loads(json.dumps(self.identity)))
        return state

    def _load(self) -> tuple[Tensors, str]:
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


class Keeper:
    """Writes states of a run in a thread while the run goes on: the first, the last, and others once in a while.

    The run does not wait for the disk. What goes wrong there ends it at a later state. Of several processes the first
    writes every state, and waits until it has.
    """

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint if current_group().leads else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pcmcnet-checkpoint")
        self._newest: RunState | None = None  # while it is not written
        self._begun, self._writing = -math.inf, Future[None]()
        self._writing.set_result(None)

    def keep(self, state: RunState) -> None:
        """Replace the file by the new state, beside what follows, or let a later one do so."""
        if self._checkpoint is None:
            return
        self._newest = None  # which makes room for the copy
        self._newest = state.copied()
        if (group := current_group()) != Group():
            self.wait()
            group.kept()
        elif self._writing.done() and time.monotonic() - self._begun >= PAUSE:
            self._write()

    def wait(self) -> None:
        """Wait until the newest state is on the disk."""
        self._write()
        self._writing.result()

    def _write(self) -> None:
        self._writing.result()  # which tells what went wrong before
        if self._checkpoint is not None and self._newest is not None:
            self._begun, state, self._newest = time.monotonic(), self._newest, None
            self._writing = begun(self._thread, partial(self._checkpoint.write, state))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        with self._thread:
            try:
                self.wait()
            except Exception as lost:
                if kind is None:
                    raise
                if lost is not error:
                    log.warning("the last state of the run could not be kept: %s", lost)


def _on_host(tensors: Tensors) -> Tensors:
    """Begin to copy tensors to memory of the host, page-locked for those on a CUDA device."""
    return {k: v.detach().to("cpu", copy=True, non_blocking=v.is_cuda) for k, v in tensors.items()}


def _state(entries: Mapping[str, Any], tensors: Tensors) -> RunState:
    """Put a state together again."""
    parts: dict[str, Any] = {"module": {}, "best": {}, "optimiser": {}}
    for key, tensor in tensors.items():
        part, _, rest = key.partition("/")
        if part == "optimiser":
            index, _, name = rest.partition("/")
            parts[part].setdefault(int(index), {})[name] = tensor
        else:
            parts[part][rest] = tensor
    return RunState(
        epoch=entries["epoch"],
        within=None if entries.get("within") is None else Within(**entries["within"]),
        finished=entries["finished"],
        history=entries["history"],
        stopping=None if entries["stopping"] is None else EarlyStopping(**entries["stopping"]),
        cooling=entries["cooling"],
        **parts,
    )


def require_same_run(path: Path, found: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse what another run has left."""
    if found != ours:
        raise ArtifactError(
            f"{path} belongs to another run; what differs: {', '.join(differences(found, ours))}. "
            f"Resume with the same table, options and seed, or choose another folder."
        )


def _digest(tensors: Tensors, text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
