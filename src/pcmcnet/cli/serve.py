"""``pcmcnet serve``: a saved model behind HTTP, with a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import say


def serve(
    model: options.SavedModel,
    baseline: Annotated[
        Path | None, typer.Option(help="Folder of a second model to compare with, that reads no other columns.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="PCMCNET_TOKEN", help="Bearer token that requests must show.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without a token, let everyone ask who can reach --host.")
    ] = False,
    max_sets: Annotated[int, typer.Option(help="Choice sets in a request.")] = 1_000,
    max_alternatives: Annotated[int, typer.Option(help="Alternatives in a choice set.")] = 500,
    max_pairs: Annotated[int, typer.Option(help="Pairs of alternatives in a request, over all its sets.")] = 2_000_000,
    max_body: Annotated[int, typer.Option(help="Bytes in a request.")] = 4_000_000,
    max_values: Annotated[int, typer.Option(help="Values in a request, lists and objects among them.")] = 400_000,
    max_pixels: Annotated[int, typer.Option(help="Pixels in the pictures of a request.")] = 25_000_000,
    queue: Annotated[int, typer.Option(help="Requests under way at once; more are turned away for a moment.")] = 256,
    deadline: Annotated[float, typer.Option(help="Seconds within which there is an answer, or none any more.")] = 30,
    drain: Annotated[float, typer.Option(help="Seconds that requests under way have to finish at the end.")] = 20,
    engine: options.Engine = "local",
    workers: options.Workers = None,
) -> None:
    """Answer questions about MODEL over HTTP, and show a page to try it, until Ctrl+C or SIGTERM.

    Example: `pcmcnet serve model --baseline logit --port 8000`

    By several processes, behind one address: `pcmcnet serve model --engine ray --workers 4`
    """
    from pcmcnet.errors import ConfigError

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}: pip install 'pcmcnet[serve]'.") from error
    from pcmcnet.models import load
    from pcmcnet.serving.app import create_app
    from pcmcnet.serving.server import bind, own_names, require_guarded, run, server_url, until_stopped
    from pcmcnet.serving.settings import ServeSettings, token_of

    token, many = token_of(token), options.workers_of(engine, workers)
    settings = ServeSettings(
        token=token,
        hosts=None if token else own_names(host),
        max_sets=max_sets,
        max_alternatives=max_alternatives,
        max_pairs=max_pairs,
        max_body=max_body,
        max_values=max_values,
        max_pixels=max_pixels,
        queue=queue,
        deadline=deadline,
        drain=drain,
        title=model.resolve().name,
    )
    require_guarded(host, token, insecure=insecure)
    if many:
        from pcmcnet.cluster.serving import run as run_replicas

        def started(where: str) -> None:
            say(f"serving {model} at {where} by {many} workers (Ctrl+C stops)")

        with until_stopped():
            run_replicas(started, model, baseline, settings, workers=many, host=host, port=port)
        return
    app = create_app(load(model), None if baseline is None else load(baseline), settings)
    with bind(host, port) as listening, until_stopped():
        where = server_url(listening)
        run(app, listening, on_start=lambda: say(f"serving {model} at {where} (Ctrl+C stops)"))
