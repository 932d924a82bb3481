"""Ray itself: whether it is there, which one is meant, and that none is left behind.

The Ray that this process is connected to serves; else the one that ``RAY_ADDRESS`` names; else one is started on this
machine, and stopped at the end.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from pcmcnet.errors import ConfigError
from pcmcnet.training.config import require_number

log = logging.getLogger("pcmcnet")


@contextmanager
def connected(workers: int) -> Iterator[Any]:
    """Yield the module ``ray``, connected to processes enough for so many workers.

    Raises
    ------
    ConfigError
        When Ray is not installed, cannot be reached, or has too few CPUs for the workers.
    """
    require_number("workers", workers, whole=True, low=1)
    ray = require_ray()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="ray")  # of its own use of old parts
        warnings.filterwarnings("ignore", category=FutureWarning, module="ray")  # about its coming versions
        ours = not ray.is_initialized()
        if ours:
            _start(ray, workers)
        try:
            _require_room(ray, workers)
            yield ray
        finally:
            if ours:
                ray.shutdown()


def wants_gpu(ray: Any, device: str, workers: int) -> bool:
    """Tell whether each worker gets a GPU: where one is asked for, or where there are enough and nothing is."""
    if device == "auto":
        return bool(ray.cluster_resources().get("GPU", 0) >= workers)
    return device.startswith("cuda")


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Keep the messages of a part of Ray from people, who get ours, and leave its logger as it was."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def require_ray() -> Any:
    """Return the module ``ray``, or say how to get it."""
    if find_spec("ray") is None:
        raise ConfigError("Ray is not installed, and this needs it: pip install 'pcmcnet[ray]'.")
    import ray

    return ray


def _start(ray: Any, workers: int) -> None:
    address = os.environ.get("RAY_ADDRESS")
    # Processes that wait need no core of their own, so a machine may have more workers than cores.
    local = {"address": "local", "num_cpus": max(os.cpu_count() or 1, workers), "include_dashboard": False}
    with _variable("RAY_BACKEND_LOG_LEVEL", "fatal"):
        try:
            ray.init(**({} if address else local), log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            where = f"the Ray that RAY_ADDRESS={address} names" if address else "a Ray on this machine"
            raise ConfigError(f"cannot connect to {where}: {reason}") from error
    log.info("using Ray at %s", address or "this machine")


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment, unless it is set, while the processes of Ray are started."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def _require_room(ray: Any, workers: int) -> None:
    """Refuse more workers than a single machine was declared to have room for: they would wait for ever."""
    cpus = ray.cluster_resources().get("CPU", 0)
    if len(ray.nodes()) == 1 and cpus < workers:
        raise ConfigError(f"{workers} workers need as many CPUs, and this Ray has {cpus:g}: ask for fewer workers.")
