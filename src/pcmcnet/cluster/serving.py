"""Serve a model with Ray Serve: the same application as without Ray, with one replica per worker.

    pcmcnet serve MODEL --engine ray --workers 2             starts the service, and stops it at Ctrl+C
    serve run pcmcnet.cluster.serving:app model=MODEL        in an existing Ray Serve, with PCMCNET_TOKEN set

Each replica loads the model separately, forms batches from the requests it receives, and counts only these requests in
``/metrics``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pcmcnet.checks import require_number, require_word
from pcmcnet.cluster.engine import ray_connection, require_ray, silenced
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models import load
from pcmcnet.serving.settings import TOKEN_VARIABLE, ServeSettings, resolve_token

APPLICATION_NAME = "pcmcnet"
_ARGUMENTS = ("model", "baseline", "table", "workers", "token", "insecure")


def app(arguments: Mapping[str, str]) -> Any:
    """Build the application for ``serve run`` and ``serve deploy``.

    Parameters
    ----------
    arguments
        "model" is the folder of the model, accessible from all machines. "baseline" is the folder of a second model to
        compare with, and "table" a table of choice sets for the market simulator. "workers" is the number of replicas
        (default 1). "token" is the bearer token that requests must send (default: the environment variable
        PCMCNET_TOKEN). "insecure" is "true" to allow access without a token from any machine that can reach Ray Serve.

    Returns
    -------
    Application
        The application that ``serve run`` deploys.

    Raises
    ------
    ConfigError
        If an argument is unknown or invalid, or if there is neither a token nor insecure=true.
    """
    for name in arguments:
        if name not in _ARGUMENTS:
            raise ConfigError(f"unknown argument {name!r}." + did_you_mean(name, _ARGUMENTS))
    if "model" not in arguments:
        raise ConfigError("the model to serve is missing: add model=FOLDER.")
    count = str(arguments.get("workers", 1))
    if not count.isdecimal():
        raise ConfigError(f"workers must be a whole number of at least 1, got {count!r}.")
    insecure = str(arguments.get("insecure", "false")).lower()
    require_word("insecure", insecure, ("true", "false"))
    settings = ServeSettings(token=resolve_token(arguments.get("token")))
    if settings.token is None and insecure == "false":
        raise ConfigError(
            "without a token, any machine that can reach Ray Serve could use the model: set the environment variable "
            f"{TOKEN_VARIABLE}, or add insecure=true to allow it."
        )
    folders = [arguments.get(name) for name in ("baseline", "table")]
    return application(arguments["model"], folders[0], settings, table=folders[1], workers=int(count))


def application(
    model: str | Path,
    baseline: str | Path | None = None,
    settings: ServeSettings | None = None,
    *,
    table: str | Path | None = None,
    workers: int = 1,
) -> Any:
    """Build the Ray Serve application for a saved model, to be passed to ``ray.serve.run``.

    Parameters
    ----------
    model, baseline
        Folders of saved models, accessible from the machines of all replicas. The baseline is optional.
    settings
        Request limits and access control (default :class:`~pcmcnet.serving.settings.ServeSettings`).
    table
        Table of choice sets for the market simulator (default: none), accessible from the machines of all replicas.
    workers
        Number of replicas (default 1).

    Returns
    -------
    Application
        The application that ``ray.serve.run`` deploys.
    """
    require_ray()
    require_number("workers", workers, whole=True, low=1)
    folders = [None if folder is None else str(Path(folder).absolute()) for folder in (model, baseline)]
    for folder in folders:
        if folder is not None:
            load(folder)  # raise errors here, not in a replica
    market = None if table is None else str(Path(table).absolute())
    from ray import serve

    def build() -> Any:
        from pcmcnet.models import load
        from pcmcnet.serving.app import create_app

        main, second = (None if folder is None else load(folder) for folder in folders)
        assert main is not None
        return create_app(main, second, settings, market)

    deployment: Any = serve.deployment(name=APPLICATION_NAME, num_replicas=workers)(serve.ingress(build)())
    return deployment.bind()


@contextmanager
def ray_service(
    model: str | Path,
    baseline: str | Path | None = None,
    settings: ServeSettings | None = None,
    *,
    table: str | Path | None = None,
    workers: int = 1,
    host: str = "127.0.0.1",
    port: int = 8000,
) -> Iterator[str]:
    """Serve a model with Ray Serve inside the block, and yield its URL."""
    from pcmcnet.serving.server import bind, server_url

    with bind(host, port) as listening:  # raises if the port is taken, before anything is started
        address = server_url(listening)
        port = int(listening.getsockname()[1])
    with ray_connection(workers):
        from ray import serve

        deployment = application(model, baseline, settings, table=table, workers=workers)
        with silenced("ray.serve"):
            serve.start(http_options={"host": host, "port": port}, logging_config={"log_level": "ERROR"})
            try:
                serve.run(deployment, name=APPLICATION_NAME, route_prefix="/")
                yield address
            finally:
                serve.shutdown()  # type: ignore[no-untyped-call]


def run(on_start: Callable[[str], None], *arguments: Any, **options: Any) -> None:
    """Serve a model until Ctrl+C, with the arguments of :func:`ray_service`. Call ``on_start`` with the URL."""
    with ray_service(*arguments, **options) as address:
        on_start(address)
        threading.Event().wait()
