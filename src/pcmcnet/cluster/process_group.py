"""How the workers of one machine find each other: by a file, so that none of them opens a port to other machines.

By itself, Ray Train lets workers meet at a TCP port of the first one, which PyTorch opens on every network interface
and to whoever connects. A file of its own: its classes are Ray's, and may be imported only where Ray is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
import torch.distributed
from ray.train.torch import TorchConfig


@dataclass
class OneMachine(TorchConfig):
    """Workers that all see one folder of their machine."""

    folder: str = ""

    @property
    def backend_cls(self) -> Any:
        """What starts the group, and ends it as Ray does."""
        return _ByFile


class _ByFile(TorchConfig().backend_cls):  # type: ignore[misc]  # Ray names the class by a property
    def on_start(self, worker_group: Any, backend_config: OneMachine) -> None:
        """Let all workers join a group; at each start in a new file, as the old one names dead workers."""
        gpu = worker_group.get_resources_per_worker().get("GPU", 0)
        place, size = str(Path(backend_config.folder) / uuid4().hex), len(worker_group)
        joined = [
            worker_group.execute_single_async(rank, _join, "nccl" if gpu else "gloo", place, rank, size)
            for rank in range(size)
        ]
        ray.get(joined)


def _join(backend: str, place: str, rank: int, size: int) -> None:
    store = torch.distributed.FileStore(place, size)  # type: ignore[attr-defined]  # public all the same
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size)
