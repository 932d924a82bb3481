"""The service on Ray Serve: the same application, in as many replicas as there are workers.

    pcmcnet serve MODEL --engine ray --workers 2             starts it, and stops it at Ctrl+C
    serve run pcmcnet.cluster.serving:app model=MODEL        for those who run Ray Serve themselves, with PCMCNET_TOKEN

Every replica loads the model, gathers its own batches and counts its own requests in ``/metrics``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pcmcnet.checks import require_number, require_word
from pcmcnet.cluster.engine import connected, quiet, require_ray
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models import load
from pcmcnet.serving.settings import TOKEN, ServeSettings, token_of

NAME = "pcmcnet"
_ARGUMENTS = ("model", "baseline", "workers", "token", "insecure")


def app(arguments: Mapping[str, str]) -> Any:
    """Build the application for ``serve run`` and for the files of ``serve deploy``.

    Parameters
    ----------
    arguments
        model: folder of the model, seen by all machines; baseline: that of a second one; workers: number of replicas,
        1 by default; token: what requests must show, that of the environment variable PCMCNET_TOKEN by default;
        insecure: true to let everyone ask who can reach Ray Serve, which may be other machines.
    """
    for name in arguments:
        if name not in _ARGUMENTS:
            raise ConfigError(f"unknown argument {name!r}." + did_you_mean(name, _ARGUMENTS))
    if "model" not in arguments:
        raise ConfigError("say which model to serve: model=FOLDER.")
    count = str(arguments.get("workers", 1))
    if not count.isdecimal():
        raise ConfigError(f"workers must be a whole number of at least 1, got {count!r}.")
    insecure = str(arguments.get("insecure", "false")).lower()
    require_word("insecure", insecure, ("true", "false"))
    settings = ServeSettings(token=token_of(arguments.get("token")))
    if settings.token is None and insecure == "false":
        raise ConfigError(
            "without a token everyone who can reach Ray Serve could ask the model: set the environment variable "
            f"{TOKEN}, or say insecure=true if they may."
        )
    return application(arguments["model"], arguments.get("baseline"), settings, workers=int(count))


def application(
    model: str | Path, baseline: str | Path | None = None, settings: ServeSettings | None = None, *, workers: int = 1
) -> Any:
    """Build the Ray Serve application of a saved model; give it to ``ray.serve.run``.

    Parameters
    ----------
    model, baseline
        Folders of saved models, which the machines of all replicas must see.
    settings
        Limits and access.
    workers
        Number of replicas.
    """
    require_ray()
    require_number("workers", workers, whole=True, low=1)
    folders = [None if folder is None else str(Path(folder).absolute()) for folder in (model, baseline)]
    for folder in folders:
        if folder is not None:
            load(folder)  # what is wrong with it is better said here than by a replica
    from ray import serve

    def build() -> Any:
        from pcmcnet.models import load
        from pcmcnet.serving.app import create_app

        main, second = (None if folder is None else load(folder) for folder in folders)
        assert main is not None
        return create_app(main, second, settings)

    deployment: Any = serve.deployment(name=NAME, num_replicas=workers)(serve.ingress(build)())
    return deployment.bind()


@contextmanager
def served(
    model: str | Path,
    baseline: str | Path | None = None,
    settings: ServeSettings | None = None,
    *,
    workers: int = 1,
    host: str = "127.0.0.1",
    port: int = 8000,
) -> Iterator[str]:
    """Serve a model by Ray Serve within the block; yields its address."""
    from pcmcnet.serving.server import bind, server_url

    with bind(host, port) as listening:  # taken, or not to be had: said before anything is started
        address = server_url(listening)
        port = int(listening.getsockname()[1])
    with connected(workers):
        from ray import serve

        deployed = application(model, baseline, settings, workers=workers)
        with quiet("ray.serve"):
            serve.start(http_options={"host": host, "port": port}, logging_config={"log_level": "ERROR"})
            try:
                serve.run(deployed, name=NAME, route_prefix="/")
                yield address
            finally:
                serve.shutdown()  # type: ignore[no-untyped-call]


def run(on_start: Callable[[str], None], *given: Any, **options: Any) -> None:
    """Serve until Ctrl+C; see :func:`served`."""
    with served(*given, **options) as address:
        on_start(address)
        threading.Event().wait()
