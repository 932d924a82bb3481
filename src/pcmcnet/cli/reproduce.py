"""``pcmcnet reproduce``: the paper's experiments, one command each."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, show, written

if TYPE_CHECKING:
    from pcmcnet.experiments.report import ExperimentResult

reproduce = typer.Typer(
    name="reproduce",
    help="Repeat an experiment of the paper and print its figures beside the published ones.",
    no_args_is_help=True,
)

Output = Annotated[Path, typer.Option("-o", "--output", help="Folder for the report.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of data and fits.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Epochs of the networks, other than their defaults.")]
Table = Annotated[
    Path | None,
    typer.Option(help="Learn from this table (choice_set, alternative, attr1, attr2, chosen), not simulated sets."),
]


@reproduce.command("table1")
def table1(
    context: typer.Context,
    output: Output,
    data: Table = None,
    sets: Annotated[int, typer.Option(min=1, help="Choice sets to simulate and learn from.")] = 20_000,
    fresh: Annotated[int, typer.Option(min=1, help="Fresh choice sets to test on.")] = 10_000,
    seeds: Annotated[int, typer.Option(min=1, help="Fits of each network.")] = 3,
    seed: Seed = 0,
    paper_settings: Annotated[
        bool, typer.Option("--paper-settings", help="Also PCMC-Net as published: slow, more than an hour a fit.")
    ] = False,
    epochs: Epochs = None,
    device: options.Device = "auto",
    json_: Json = False,
) -> None:
    """Models of simulated context effects: divergence from the true model, beside table 1.

    Writes report.md, report.html and result.json.

    Example: `pcmcnet reproduce table1 -o table1`
    """
    from pcmcnet.experiments.experiment1 import run_table1

    _run(context, run_table1)


@reproduce.command("figure2")
def figure2(
    context: typer.Context,
    output: Output,
    data: Table = None,
    sets: Annotated[int, typer.Option(min=1, help="Choice sets to simulate and learn from.")] = 20_000,
    cells: Annotated[int, typer.Option(min=2, help="Places of c along each attribute.")] = 128,
    seed: Seed = 0,
    epochs: Epochs = None,
    device: options.Device = "auto",
    json_: Json = False,
) -> None:
    """Maps of the preference for a over b as a third alternative moves, as in figure 2.

    Writes figure2.png, .pdf and .svg, report.md, report.html and result.json.

    Example: `pcmcnet reproduce figure2 -o figure2`
    """
    from pcmcnet.experiments.experiment1 import run_figure2

    _run(context, run_figure2)


@reproduce.command("table3")
def table3(
    context: typer.Context,
    output: Output,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the paper's files data_{train,dev,test}_50alternatives-....csv.")
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="On a simulated table of the same columns, whose best NLL is known.")
    ] = False,
    sets: Annotated[int | None, typer.Option(min=10, help="With --simulated: choice sets.  [default: 33,951]")] = None,
    folds: Annotated[int | None, typer.Option(min=2, help="Folds over larch's table.  [default: 5]")] = None,
    seed: Seed = 0,
    paper_settings: Annotated[
        bool, typer.Option("--paper-settings", help="PCMC-Net as published: 2x512, dropout .5. Slow without a GPU.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of PCMC-Net, other than its default.")] = None,
    device: options.Device = "auto",
    json_: Json = False,
) -> None:
    """Eight models of airline itinerary choice: TOP 1, TOP 5 and NLL, beside table 3.

    Without --data or --simulated, the 615 bookings that ship with the package larch are cross-validated. What has
    been fitted is kept in the output folder: after an interruption, the same command goes on.

    Example: `pcmcnet reproduce table3 -o table3`
    """
    from pcmcnet.experiments.experiment2 import run_table3

    _run(context, run_table3)


def _run(context: typer.Context, experiment: Callable[..., ExperimentResult]) -> None:
    """Run an experiment, whose options are those of the command; print the result, and where it was written."""
    from pcmcnet.storage import sole_writer
    from pcmcnet.training.device import resolve_device

    given = dict(context.params)
    output, as_json = Path(given.pop("output")), given.pop("json_")  # not yet a path in the context
    resolve_device(given["device"])
    context.with_resource(sole_writer(output))
    result = experiment(output, **given, command=shlex.join(["pcmcnet", *sys.argv[1:]]))
    files = [output / name for name in ("report.md", "report.html", "result.json")]
    files += [picture.file for picture in result.pictures]
    show((result, written(files)), {**result.to_dict(), "files": [str(file) for file in files]}, as_json=as_json)
