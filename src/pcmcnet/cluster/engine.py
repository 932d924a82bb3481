"""Ray itself: whether it is there, which one is meant, and that none is left behind.

The Ray that this process is connected to serves; else the one that ``RAY_ADDRESS`` names; else one is started on this
machine, and stopped at the end. Whoever reaches a Ray can run code as the person who started it, so the one that is
started here listens on the loopback alone, and asks for Ray's token, which other people of the machine cannot read.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
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


def on_loopback(ray: Any) -> bool:
    """Tell whether a Ray can be reached from this machine alone."""
    return ip_address(ray.util.get_node_ip_address()).is_loopback


def start_local(ray: Any, cpus: int, **options: Any) -> None:
    """Start a Ray on this machine that nobody outside of it can reach.

    Raises
    ------
    ConfigError
        When this version of Ray listens to other machines all the same.
    """
    own_token()
    with _loopback_only(ray):
        quiet_: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address="local", num_cpus=cpus, **quiet_, **options)
    if not on_loopback(ray):
        ray.shutdown()
        raise ConfigError(
            f"Ray {ray.__version__} would listen to other machines: install the version that pcmcnet was tested with, "
            f"or start a Ray of your own behind a firewall and name it in RAY_ADDRESS."
        )


def own_token() -> None:
    """See that Ray's token is there, and that nobody else can read it: Ray leaves that to the umask."""
    given = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    if given or os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return
    with suppress(OSError):  # where no token can be written, Ray says so
        place = Path.home() / ".ray" / "auth_token"
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            if place.stat().st_mode & 0o077:
                place.chmod(0o600)
            return
        place.touch(0o600, exist_ok=False)
        place.write_text(secrets.token_hex(32), "ascii")


def _start(ray: Any, workers: int) -> None:
    address = os.environ.get("RAY_ADDRESS")
    with _environment(RAY_BACKEND_LOG_LEVEL=os.environ.get("RAY_BACKEND_LOG_LEVEL", "fatal")):
        try:
            if address:
                ray.init(log_to_driver=False, logging_level=logging.ERROR)
            else:  # processes that wait need no core of their own, so a machine may have more workers than cores
                start_local(ray, max(os.cpu_count() or 1, workers))
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            if isinstance(error, ConfigError):
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            where = f"the Ray that RAY_ADDRESS={address} names" if address else "a Ray on this machine"
            raise ConfigError(f"cannot connect to {where}: {reason}") from error
    log.info("using Ray at %s", address or "this machine")


@contextmanager
def _loopback_only(ray: Any) -> Iterator[None]:
    """Let a Ray that is started take the loopback for this machine's address, as it does on macOS and Windows.

    Every server of Ray follows that address. The connections of PyTorch between workers follow variables of their own.
    """
    constants = ray._private.ray_constants  # of this process, which may have imported Ray before
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
    """Set variables of the environment while the processes of Ray are started."""
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


def _require_room(ray: Any, workers: int) -> None:
    """Refuse more workers than a single machine was declared to have room for: they would wait for ever."""
    cpus = ray.cluster_resources().get("CPU", 0)
    if len(ray.nodes()) == 1 and cpus < workers:
        raise ConfigError(f"{workers} workers need as many CPUs, and this Ray has {cpus:g}: ask for fewer workers.")


# -- Workers -----------------------------------------------------------------------------------------------------------


T = TypeVar("T")
U = TypeVar("U")

_WAITING = 2  # items for each worker that are handed out at a time, so that memory is bounded


@dataclass(frozen=True)
class RayWorkers:
    """Workers of a Ray that this process is connected to."""

    ray: Any
    count: int
    retries: int = 3  # new starts of an item whose worker died; -1: without end

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        pass

    def map(self, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
        """Yield what a function makes of each item, in their order; what it raises is raised in its turn."""
        shared, task = self.ray.put(function), self.ray.remote(num_cpus=1, max_retries=self.retries)(_call)
        begun: deque[Any] = deque()
        try:
            for item in items:
                begun.append(task.remote(shared, item))
                if len(begun) >= _WAITING * self.count:
                    yield self._result(begun.popleft())
            while begun:
                yield self._result(begun.popleft())
        finally:
            for left in begun:
                self.ray.cancel(left)

    def _result(self, begun: Any) -> Any:
        result = self.ray.get(begun)
        if isinstance(result, PcmcNetError):
            raise result
        return result


def _call(function: Callable[[T], U], item: T) -> U | PcmcNetError:
    """Do a piece of the work; an error of ours is a result, as doing it again would not help."""
    from pcmcnet.data.scan.workers import keep_freed_memory  # which the process of a board does without

    keep_freed_memory()
    try:
        return function(item)
    except PcmcNetError as error:
        return error


# -- Progress actor ----------------------------------------------------------------------------------------------------
# A place where workers leave word of their epochs, and learn that they are to end.
#
# Ray keeps it in a process of its own. Whoever started the work takes what was left there.


class Board:
    """Messages by the name of the work; the order of each work's messages is kept."""

    def __init__(self) -> None:
        self.entries: dict[str, list[dict[str, Any]]] = {}
        self.ended: dict[str, str] = {}

    def leave(self, work: str, entry: dict[str, Any]) -> str | None:
        """Leave an epoch's entry of the history; returns why the work is to end, if it is."""
        self.entries.setdefault(work, []).append(entry)
        return self.ended.get(work)

    def take(self) -> dict[str, list[dict[str, Any]]]:
        """Return all entries since the last time."""
        taken, self.entries = self.entries, {}
        return taken

    def end(self, work: str, why: str) -> None:
        """Let a work end at its next entry."""
        self.ended[work] = why


def new_board(ray: Any) -> Any:
    """Start a board that takes no CPU from workers and outlives none of them."""
    return ray.remote(num_cpus=0)(Board).remote()
