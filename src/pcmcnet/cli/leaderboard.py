"""``pcmcnet leaderboard``: every model with its defaults on many public tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, Open, kept_when_interrupted, open_page, show, written


def leaderboard(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")],
    tables: Annotated[
        str | None,
        typer.Option(help="Tables, separated by commas.  [default: all]", autocompletion=options.table_lists),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="Models, separated by commas.  [default: all]", autocompletion=options.contestant_lists),
    ] = None,
    use: Annotated[str | None, typer.Option(help="Keep tables of this use: development, judged, simulated.")] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation of each table.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds, fits and resamples.")] = 0,
    sets: Annotated[int, typer.Option(min=1, help="Cut larger tables to about so many choice sets.")] = 5_000,
    seconds: Annotated[float, typer.Option(help="What a fit may take; a slower model is reported as such.")] = 600.0,
    device: options.Device = "auto",
    open_: Open = False,
    json_: Json = False,
) -> None:
    """Measure every model with its defaults on public and simulated tables, and rank them.

    Tables come from installed packages (`pcmcnet datasets` lists them); one that is not installed is skipped with the
    command that installs it. Each model and fold is kept in the output folder as soon as it is measured: after an
    interruption the same command goes on; tables and models may be added. The result is leaderboard.json, .md, .html
    and .png.

    Example: `pcmcnet leaderboard -o board`, which takes about an hour on two cores

    Some models on some tables: `pcmcnet leaderboard --tables mode-canada,mlba --models mnl,mnl+individual,pcmcnet
    --folds 3 -o board`
    """
    from pcmcnet.evaluation import leaderboard as measure
    from pcmcnet.plots import write_leaderboard_page
    from pcmcnet.training.device import resolve_device

    resolve_device(device)
    on, contestants = (None if text is None else options.words(text) for text in (tables, models))
    limits: dict[str, Any] = {"use": use, "sets": sets, "seconds": seconds, "device": device}
    with kept_when_interrupted(output):
        board = measure(on, contestants, folds, seed, **limits, folder=output)
    page = write_leaderboard_page(board, output / "leaderboard.html")
    files = [*(f for kind in ("json", "md", "png") if (f := output / f"leaderboard.{kind}").exists()), page]
    result = {**board.to_dict(), "files": [str(file) for file in files]}
    show((board, written(files)), result, as_json=json_, strong=[board.verdict])
    if open_:
        open_page(page)
    if not any(standing.measured for standing in board.standings()):
        raise typer.Exit(1)
