"""``pcmcnet reproduce``: the experiments in the paper, one command for each."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.help import HelpfulGroup
from pcmcnet.cli.output import Json, print_result, written_files

if TYPE_CHECKING:
    from pcmcnet.experiments.report import ExperimentResult

reproduce = typer.Typer(
    name="reproduce",
    cls=HelpfulGroup,
    help="Repeat an experiment from the paper and print the results next to the published ones.",
)

Output = Annotated[Path, typer.Option("-o", "--output", help="Folder for the report.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed for the data and the fits.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Number of epochs for the networks.")]
Table = Annotated[
    Path | None,
    typer.Option(help="Training table (choice_set, alternative, attr1, attr2, chosen) instead of simulated choices."),
]


@reproduce.command("table1")
def table1(
    context: typer.Context,
    output: Output,
    data: Table = None,
    sets: Annotated[int, typer.Option(min=1, help="Number of choice sets to simulate for training.")] = 20_000,
    fresh: Annotated[int, typer.Option(min=1, help="Number of new choice sets to test on.")] = 10_000,
    seeds: Annotated[int, typer.Option(min=1, help="Number of times to fit each network.")] = 3,
    seed: Seed = 0,
    paper_settings: Annotated[
        bool, typer.Option("--paper-settings", help="Also fit PCMC-Net as published; each fit takes over an hour.")
    ] = False,
    epochs: Epochs = None,
    device: arguments.Device = "auto",
    json_: Json = False,
) -> None:
    """Table 1: divergence of each model from the true model on simulated context effects.

    The command writes report.md, report.html and result.json.

    For example:

        pcmcnet reproduce table1 -o table1
    """
    from pcmcnet.experiments.experiment1 import run_table1

    _run(context, run_table1)


@reproduce.command("figure2")
def figure2(
    context: typer.Context,
    output: Output,
    data: Table = None,
    sets: Annotated[int, typer.Option(min=1, help="Number of choice sets to simulate for training.")] = 20_000,
    cells: Annotated[
        int, typer.Option(min=2, help="Number of grid points for alternative c along each attribute.")
    ] = 128,
    seed: Seed = 0,
    epochs: Epochs = None,
    device: arguments.Device = "auto",
    json_: Json = False,
) -> None:
    """Figure 2: maps of the preference for a over b as a third alternative c moves.

    The command writes figure2.png, .pdf and .svg, report.md, report.html and result.json.

    For example:

        pcmcnet reproduce figure2 -o figure2
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
        bool,
        typer.Option(
            "--simulated", help="Use a simulated table with the same columns, for which the best possible NLL is known."
        ),
    ] = False,
    sets: Annotated[
        int | None, typer.Option(min=10, help="With --simulated: number of choice sets.  [default: 33,951]")
    ] = None,
    folds: Annotated[
        int | None, typer.Option(min=2, help="Number of cross-validation folds on the larch table.  [default: 5]")
    ] = None,
    seed: Seed = 0,
    paper_settings: Annotated[
        bool,
        typer.Option(
            "--paper-settings", help="Use PCMC-Net as published (2x512 units, dropout .5). Slow without a GPU."
        ),
    ] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Number of epochs for PCMC-Net.")] = None,
    device: arguments.Device = "auto",
    json_: Json = False,
) -> None:
    """Table 3: TOP 1, TOP 5 and NLL of eight models for airline itinerary choice.

    Without --data or --simulated, the models are cross-validated on the 615 bookings that ship with the package larch.
    Fitted models are saved in the output folder. After an interruption, run the same command again to continue.

    For example:

        pcmcnet reproduce table3 -o table3
    """
    from pcmcnet.experiments.experiment2 import run_table3

    _run(context, run_table3)


def _run(context: typer.Context, experiment: Callable[..., ExperimentResult]) -> None:
    """Run an experiment with the command's options. Print the result and the names of the files written."""
    from pcmcnet.storage import sole_writer
    from pcmcnet.training.device import resolve_device

    arguments = dict(context.params)
    output, as_json = Path(arguments.pop("output")), arguments.pop("json_")  # the context holds the path as text
    resolve_device(arguments["device"])
    context.with_resource(sole_writer(output))
    result = experiment(output, **arguments, command=shlex.join(["pcmcnet", *sys.argv[1:]]))
    files = [output / name for name in ("report.md", "report.html", "result.json")]
    files += [picture.file for picture in result.pictures]
    values = {**result.to_dict(), "files": [str(file) for file in files]}
    print_result((result, written_files(files)), values, as_json=as_json)
