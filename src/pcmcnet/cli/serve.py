"""``pcmcnet serve``: serve a saved model over HTTP, with a web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import print_message


def serve(
    model: arguments.SavedModel,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Folder of a second model for comparison; MODEL must use all columns of the second model."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(help="Table of choice sets that represent the market, for the market simulator of the page."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all network interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="PCMCNET_TOKEN", help="Bearer token that must be sent with every request.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow unauthenticated access from any machine that can reach --host."),
    ] = False,
    max_sets: Annotated[int, typer.Option(help="Maximum number of choice sets in a request.")] = 1_000,
    max_alternatives: Annotated[int, typer.Option(help="Maximum number of alternatives in a choice set.")] = 500,
    max_pairs: Annotated[
        int, typer.Option(help="Maximum number of pairs of alternatives in a request, summed over its choice sets.")
    ] = 2_000_000,
    max_body: Annotated[int, typer.Option(help="Maximum size of a request body, in bytes.")] = 4_000_000,
    max_values: Annotated[
        int, typer.Option(help="Maximum number of JSON values in a request, counting lists and objects.")
    ] = 400_000,
    max_pixels: Annotated[int, typer.Option(help="Maximum number of pixels in the images of a request.")] = 25_000_000,
    max_market_bytes: Annotated[
        int, typer.Option(help="Maximum size of a request for a market, in bytes.")
    ] = 16_000_000,
    max_market_rows: Annotated[
        int, typer.Option(help="Maximum number of alternatives in a market, summed over its scenarios.")
    ] = 1_000_000,
    max_market_pairs: Annotated[
        int, typer.Option(help="Maximum number of pairs of alternatives in a market, summed over its scenarios.")
    ] = 40_000_000,
    queue: Annotated[
        int, typer.Option(help="Maximum number of requests in progress; further requests get status 503.")
    ] = 256,
    deadline: Annotated[float, typer.Option(help="Timeout per request, in seconds.")] = 30,
    drain: Annotated[float, typer.Option(help="Time for requests in progress to finish on shutdown, in seconds.")] = 20,
    engine: arguments.Engine = "local",
    workers: arguments.Workers = None,
) -> None:
    """Serve MODEL over HTTP, with a web page to try it, until Ctrl+C or SIGTERM.

    For example:

        pcmcnet serve model --baseline logit --port 8000

    A market simulator on the page:

        pcmcnet serve model --table survey.csv

    Several processes behind one address:

        pcmcnet serve model --engine ray --workers 4
    """
    from pcmcnet.errors import ConfigError

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}: pip install 'pcmcnet[serve]'.") from error
    from pcmcnet.models import load
    from pcmcnet.serving.app import create_app
    from pcmcnet.serving.server import bind, loopback_names, require_token, run, server_url, stop_on_signal
    from pcmcnet.serving.settings import ServeSettings, resolve_token

    token, many = resolve_token(token), arguments.worker_count(engine, workers)
    settings = ServeSettings(
        token=token,
        hosts=None if token else loopback_names(host),
        max_sets=max_sets,
        max_alternatives=max_alternatives,
        max_pairs=max_pairs,
        max_body=max_body,
        max_values=max_values,
        max_pixels=max_pixels,
        max_market_bytes=max_market_bytes,
        max_market_rows=max_market_rows,
        max_market_pairs=max_market_pairs,
        queue=queue,
        deadline=deadline,
        drain=drain,
        title=model.resolve().name,
    )
    require_token(host, token, insecure=insecure)
    if many:
        from pcmcnet.cluster.serving import run as run_replicas

        def on_start(url: str) -> None:
            print_message(f"serving {model} at {url} with {many} workers (Ctrl+C stops)")

        with stop_on_signal():
            run_replicas(on_start, model, baseline, settings, table=table, workers=many, host=host, port=port)
        return
    app = create_app(load(model), None if baseline is None else load(baseline), settings, table)
    with bind(host, port) as listening, stop_on_signal():
        url = server_url(listening)
        run(app, listening, on_start=lambda: print_message(f"serving {model} at {url} (Ctrl+C stops)"))
