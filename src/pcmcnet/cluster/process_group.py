"""Connect the workers of one machine through a file, so that none of them opens a port to other machines.

By default, Ray Train connects workers through a TCP port of the first worker, which PyTorch opens on all network
interfaces without authentication. This is a separate module because it can be imported only if Ray is installed.
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
class SingleMachineConfig(TorchConfig):
    """Configuration of Ray Train for workers that share a folder on one machine."""

    folder: str = ""

    @property
    def backend_cls(self) -> Any:
        """The class that starts and ends the process group."""
        return _FileBackend


class _FileBackend(TorchConfig().backend_cls):  # type: ignore[misc]  # Ray exposes the class as a property
    def on_start(self, worker_group: Any, backend_config: SingleMachineConfig) -> None:
        """Connect all workers through a new file, because after a restart the old file still lists dead workers."""
        gpu = worker_group.get_resources_per_worker().get("GPU", 0)
        file, size = str(Path(backend_config.folder) / uuid4().hex), len(worker_group)
        joined = [
            worker_group.execute_single_async(rank, _join, "nccl" if gpu else "gloo", file, rank, size)
            for rank in range(size)
        ]
        ray.get(joined)


def _join(backend: str, file: str, rank: int, size: int) -> None:
    store = torch.distributed.FileStore(file, size)  # type: ignore[attr-defined]  # public, but missing in the stubs
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size)
