"""``pcmcnet leaderboard``: compare all models, with their default options, on many public tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, Open, open_page, print_result, resume_hint_on_interrupt, written_files


def leaderboard(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")],
    tables: Annotated[
        str | None,
        typer.Option(help="Comma-separated tables.", show_default="all", autocompletion=arguments.complete_tables),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="Comma-separated models.", show_default="all", autocompletion=arguments.complete_contestants),
    ] = None,
    use: Annotated[
        str | None, typer.Option(help="Include only tables for this use: development, judged or simulated.")
    ] = None,
    lpmc: Annotated[
        Path | None,
        typer.Option(
            help="File of London Passenger Mode Choice, such as ltds.csv.gz. It adds the table lpmc, whose published "
            "split is used."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="Number of cross-validation folds per table.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the folds, the fits and the bootstrap.")] = 0,
    sets: Annotated[int, typer.Option(min=1, help="Sample larger tables down to about this many choice sets.")] = 5_000,
    seconds: Annotated[
        float, typer.Option(help="Time limit for each fit, in seconds. Slower models are reported as too slow.")
    ] = 600.0,
    device: arguments.Device = "auto",
    open_: Open = False,
    json_: Json = False,
) -> None:
    r"""Cross-validate all models with their default options on public and simulated tables, and rank them.

    The tables are read from installed packages (`pcmcnet datasets` lists them). If a package is missing, its tables are
    skipped and the command that installs it is printed. Each fold of each model is saved in the output folder as soon
    as it is done. After an interruption, run the same command again to continue. A repeated run may include additional
    tables and models. The results are written to leaderboard.json, .md, .html and .png.

    All models and tables, which takes several hours on two cores:

        pcmcnet leaderboard -o board

    Selected models and tables:

        pcmcnet leaderboard --tables mode-canada,mlba \
            --models mnl,mnl+individual,pcmcnet --folds 3 -o board
    """
    from pcmcnet.evaluation import leaderboard as rank_models
    from pcmcnet.plots import write_leaderboard_page
    from pcmcnet.training.device import resolve_device

    resolve_device(device)
    table_list, model_list = (None if text is None else arguments.comma_separated(text) for text in (tables, models))
    limits: dict[str, Any] = {"use": use, "lpmc": lpmc, "sets": sets, "seconds": seconds, "device": device}
    with resume_hint_on_interrupt(output):
        board = rank_models(table_list, model_list, folds, seed, **limits, folder=output)
    page = write_leaderboard_page(board, output / "leaderboard.html")
    files = [*(f for kind in ("json", "md", "png") if (f := output / f"leaderboard.{kind}").exists()), page]
    result = {**board.to_dict(), "files": [str(file) for file in files]}
    print_result((board, written_files(files)), result, as_json=json_, strong=[board.verdict])
    if open_:
        open_page(page)
    if not any(standing.measured for standing in board.standings()):
        raise typer.Exit(1)
