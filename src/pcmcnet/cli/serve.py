"""``pcmcnet serve``: a saved model behind HTTP, with a page."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli.engine import Engine, Workers, workers_of


def serve(
    model: Annotated[Path, typer.Argument(help="Folder written by `pcmcnet fit`.")],
    baseline: Annotated[
        Path | None, typer.Option(help="Folder of a second model to compare with, that reads no other columns.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="PCMCNET_TOKEN", help="Bearer token that requests must show.")
    ] = None,
    max_sets: Annotated[int, typer.Option(help="Choice sets in a request.")] = 1_000,
    max_alternatives: Annotated[int, typer.Option(help="Alternatives in a choice set.")] = 500,
    max_pairs: Annotated[int, typer.Option(help="Pairs of alternatives in a request, over all its sets.")] = 2_000_000,
    max_body: Annotated[int, typer.Option(help="Bytes in a request.")] = 4_000_000,
    max_pixels: Annotated[int, typer.Option(help="Pixels in the pictures of a request.")] = 25_000_000,
    queue: Annotated[int, typer.Option(help="Requests under way at once; more are turned away for a moment.")] = 256,
    engine: Engine = "local",
    workers: Workers = None,
) -> None:
    """Answer questions about MODEL over HTTP, and show a page to try it, until Ctrl+C.

    Example: `pcmcnet serve model --baseline logit --port 8000`

    By several processes, behind one address: `pcmcnet serve model --engine ray --workers 4`
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        from pcmcnet.errors import ConfigError

        raise ConfigError(f"serving needs {error.name}: pip install 'pcmcnet[serve]'.") from error
    many = workers_of(engine, workers)
    from pcmcnet.models import load
    from pcmcnet.serving.app import create_app
    from pcmcnet.serving.server import address_of, bind, own_names, run
    from pcmcnet.serving.settings import ServeSettings

    settings = ServeSettings(
        token=token,
        hosts=None if token else own_names(host),
        max_sets=max_sets,
        max_alternatives=max_alternatives,
        max_pairs=max_pairs,
        max_body=max_body,
        max_pixels=max_pixels,
        queue=queue,
    )
    if many:
        from pcmcnet.cluster.serving import run as run_replicas

        def started(where: str) -> None:
            typer.echo(f"serving {model} at {where} by {many} workers (Ctrl+C stops)", err=True)

        with suppress(KeyboardInterrupt):
            run_replicas(started, model, baseline, settings, workers=many, host=host, port=port)
        return
    app = create_app(load(model), None if baseline is None else load(baseline), settings)
    with bind(host, port) as listening, suppress(KeyboardInterrupt):
        where = address_of(listening)
        run(app, listening, on_start=lambda: typer.echo(f"serving {model} at {where} (Ctrl+C stops)", err=True))
