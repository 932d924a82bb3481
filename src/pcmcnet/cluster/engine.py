"""Connect to Ray, or start it on this machine and stop it at the end.

An existing connection of this process is reused. Otherwise, the cluster at ``RAY_ADDRESS`` is used if this variable is
set, and if not, Ray is started on this machine. Any client of a Ray cluster can run code as the user who started the
cluster. A cluster started by this module therefore listens on the loopback interface only, and requires Ray's token,
which other users of the machine cannot read.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError, PcmcNetError

log = logging.getLogger("pcmcnet")


@contextmanager
def ray_connection(workers: int) -> Iterator[Any]:
    """Yield the module ``ray``, connected to a cluster with room for ``workers``.

    Raises
    ------
    ConfigError
        If Ray is not installed, cannot be reached, or has fewer CPUs than workers.
    """
    require_number("workers", workers, whole=True, low=1)
    ray = require_ray()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="ray")  # raised by Ray's own code
        warnings.filterwarnings("ignore", category=FutureWarning, module="ray")  # about future versions of Ray
        is_new = not ray.is_initialized()
        if is_new:
            _start(ray, workers)
        try:
            cpus = ray.cluster_resources().get("CPU", 0)
            if len(ray.nodes()) == 1 and cpus < workers:  # some workers would never start
                raise ConfigError(f"{workers} workers need {workers} CPUs, but Ray has {cpus:g}: use fewer workers.")
            yield ray
        finally:
            if is_new:
                ray.shutdown()


def has_gpu_per_worker(ray: Any, device: str, workers: int) -> bool:
    """Return True if each worker gets a GPU: always with "cuda", and with "auto" only if there are enough GPUs."""
    if device == "auto":
        return bool(ray.cluster_resources().get("GPU", 0) >= workers)
    return device.startswith("cuda")


@contextmanager
def silenced(name: str) -> Iterator[None]:
    """Silence one of Ray's loggers inside the block. Users get the messages of this package instead."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def require_ray() -> Any:
    """Return the module ``ray``. Raise ConfigError if Ray is not installed."""
    if find_spec("ray") is None:
        raise ConfigError("Ray is not installed: pip install 'pcmcnet[ray]'.")
    import ray

    return ray


def is_on_loopback(ray: Any) -> bool:
    """Return True if the cluster can be reached from this machine only."""
    return ip_address(ray.util.get_node_ip_address()).is_loopback


def start_local_ray(ray: Any, cpus: int, **options: Any) -> None:
    """Start Ray on this machine so that other machines cannot reach it.

    Raises
    ------
    ConfigError
        If this version of Ray still listens on other network interfaces.
    """
    ensure_private_token()
    with _loopback_only(ray):
        quietly: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address="local", num_cpus=cpus, job_config=_job_config(), **quietly, **options)
    if not is_on_loopback(ray):
        ray.shutdown()
        raise ConfigError(
            f"Ray {ray.__version__} would accept connections from other machines: install the version that pcmcnet was "
            f"tested with, or start Ray yourself behind a firewall and set RAY_ADDRESS."
        )


def ensure_private_token() -> None:
    """Create Ray's token file if it is missing.

    Only this user can read the file. If Ray created the file, its permissions would depend on the umask.
    """
    configured = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    if configured or os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return
    with suppress(OSError):  # Ray reports a token that cannot be written
        token_file = Path.home() / ".ray" / "auth_token"
        token_file.parent.mkdir(parents=True, exist_ok=True)
        if token_file.exists():
            if token_file.stat().st_mode & 0o077:
                token_file.chmod(0o600)
            return
        token_file.touch(0o600, exist_ok=False)
        token_file.write_text(secrets.token_hex(32), "ascii")


def _start(ray: Any, workers: int) -> None:
    address = os.environ.get("RAY_ADDRESS")
    with _environment(RAY_BACKEND_LOG_LEVEL=os.environ.get("RAY_BACKEND_LOG_LEVEL", "fatal")):
        try:
            if address:
                ray.init(job_config=_job_config(), log_to_driver=False, logging_level=logging.ERROR)
            else:  # waiting processes use no core, so more workers than cores are allowed
                start_local_ray(ray, max(os.cpu_count() or 1, workers))
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            if isinstance(error, ConfigError):
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            cluster = f"Ray at RAY_ADDRESS={address}" if address else "Ray on this machine"
            raise ConfigError(f"cannot connect to {cluster}: {reason}") from error
    log.info("using Ray at %s", address or "this machine")


class _ImportPath(list[str]):
    """Folders that Ray's workers import from. Ray adds the working folder; it is added only if this process uses it."""

    def extend(self, folders: Iterable[str]) -> None:
        used = {str(Path(folder).absolute()) for folder in sys.path}  # an empty entry is the working folder
        super().extend(folder for folder in folders if folder in used)


def _job_config() -> Any:
    """Return the settings of a Ray job whose workers import only from folders that this process imports from.

    Otherwise, the workers of a command would run a file ``json.py`` or ``pcmcnet.py`` in the working folder.
    """
    from ray.job_config import JobConfig

    config = JobConfig()
    config._py_driver_sys_path = _ImportPath()
    return config


@contextmanager
def _loopback_only(ray: Any) -> Iterator[None]:
    """Make Ray use the loopback address for this machine, as it does on macOS and Windows.

    All Ray servers then use the loopback address. Separate environment variables control PyTorch's connections between
    workers.
    """
    constants = ray._private.ray_constants  # set here too, since Ray may have been imported before
    before = constants.ENABLE_RAY_CLUSTER
    names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    interface = {f"{library}_SOCKET_IFNAME": name for library in ("GLOO", "NCCL") for name in names}
    constants.ENABLE_RAY_CLUSTER = False
    try:
        with _environment(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", **interface):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# -- Workers -----------------------------------------------------------------------------------------------------------


T = TypeVar("T")
U = TypeVar("U")

_TASKS_PER_WORKER = 2  # submitted at a time, so that memory is bounded


@dataclass(frozen=True)
class RayWorkers:
    """Workers of the Ray cluster that this process is connected to."""

    ray: Any
    count: int
    retries: int = 3  # restarts of an item whose worker died; -1 for no limit

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        pass

    def map(self, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
        """Yield ``function(item)`` for each item, in order, and raise the first error."""
        shared, task = self.ray.put(function), self.ray.remote(num_cpus=1, max_retries=self.retries)(_call)
        pending: deque[Any] = deque()
        try:
            for item in items:
                pending.append(task.remote(shared, item))
                if len(pending) >= _TASKS_PER_WORKER * self.count:
                    yield self._result(pending.popleft())
            while pending:
                yield self._result(pending.popleft())
        finally:
            for reference in pending:
                self.ray.cancel(reference)

    def _result(self, reference: Any) -> Any:
        result = self.ray.get(reference)
        if isinstance(result, PcmcNetError):
            raise result
        return result


def _call(function: Callable[[T], U], item: T) -> U | PcmcNetError:
    """Call a function on a worker. A PcmcNetError is returned, not raised, because a retry by Ray cannot help."""
    from pcmcnet.data.scan.workers import keep_freed_memory  # imported late: the progress board does not need it

    keep_freed_memory()
    try:
        return function(item)
    except PcmcNetError as error:
        return error


# -- Progress actor ----------------------------------------------------------------------------------------------------
# Workers post the epochs of their jobs on a board, and find out from it that a job must stop. The board is a Ray actor
# in its own process; the process that started the jobs collects the entries.


class ProgressBoard:
    """History entries of each training job, by job name, in the order in which they were posted."""

    def __init__(self) -> None:
        self.entries: dict[str, list[dict[str, Any]]] = {}
        self.stop_reasons: dict[str, str] = {}

    def post(self, job: str, entry: dict[str, Any]) -> str | None:
        """Add the history entry of an epoch. Return the reason why the job must stop, or None if it may continue."""
        self.entries.setdefault(job, []).append(entry)
        return self.stop_reasons.get(job)

    def collect(self) -> dict[str, list[dict[str, Any]]]:
        """Return all entries since the last call, and clear the board."""
        collected, self.entries = self.entries, {}
        return collected

    def stop(self, job: str, reason: str) -> None:
        """Stop a job at its next entry."""
        self.stop_reasons[job] = reason


def start_board(ray: Any) -> Any:
    """Start a progress board that takes no CPU from the workers and stops when this process ends."""
    return ray.remote(num_cpus=0)(ProgressBoard).remote()
