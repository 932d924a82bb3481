"""The program and its commands, one module per command.

Importing a command module loads only its options, so that help and shell completion are fast. Heavy libraries, PyTorch
above all, are imported when a command runs, after its options have been parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer

from pcmcnet.cli.check import check, split
from pcmcnet.cli.compare import compare
from pcmcnet.cli.datasets import datasets
from pcmcnet.cli.design import design
from pcmcnet.cli.evaluate import evaluate
from pcmcnet.cli.explain import explain
from pcmcnet.cli.fit import fit
from pcmcnet.cli.help import HelpfulCommand, HelpfulGroup
from pcmcnet.cli.leaderboard import leaderboard
from pcmcnet.cli.models import export, models
from pcmcnet.cli.optimise import optimise
from pcmcnet.cli.predict import predict
from pcmcnet.cli.reproduce import reproduce
from pcmcnet.cli.scenario import scenario
from pcmcnet.cli.serve import serve
from pcmcnet.cli.shares import shares
from pcmcnet.cli.show import show
from pcmcnet.cli.simulate import simulate
from pcmcnet.cli.tune import tune
from pcmcnet.concurrency import exit_on_interrupt
from pcmcnet.storage import package_version


class Command(HelpfulCommand):
    """A command that imports heavy libraries just before it runs. Ctrl-C during the import ends the program."""

    stage: ClassVar[str] = "pcmcnet.plots"  # imported first, together with the stages that it needs

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with exit_on_interrupt():
            import_module(self.stage)
        return super().invoke(ctx)


class LightCommand(Command):
    """A command that needs neither explanations nor plots."""

    stage = "pcmcnet.evaluation"


class DesignCommand(Command):
    """A command that designs experiments."""

    stage = "pcmcnet.designs"


class TableCommand(Command):
    """A command that only reads tables. Like the commands of logits, it runs without PyTorch."""

    stage = "pcmcnet.data"


class Program(HelpfulGroup):
    """The program, with its commands by topic."""

    topics: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Tables": ("check", "split", "datasets", "simulate", "design"),
        "Models": ("models", "fit", "tune", "compare", "leaderboard"),
        "A fitted model": (
            "show",
            "evaluate",
            "predict",
            "explain",
            "scenario",
            "shares",
            "optimise",
            "serve",
            "export",
        ),
        "The paper": ("reproduce",),
    }


app = typer.Typer(
    name="pcmcnet",
    cls=Program,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for light in (fit, show, predict, evaluate):
    app.command(cls=LightCommand)(light)
for command in (compare, leaderboard, tune, explain, scenario, shares, optimise, simulate):
    app.command(cls=Command)(command)
for table_command in (check, split, datasets, models):
    app.command(cls=TableCommand)(table_command)
app.command(cls=DesignCommand)(design)
for experiment in reproduce.registered_commands:
    experiment.cls = Command
app.add_typer(reproduce)
app.command(cls=Command)(serve)
app.command(cls=Command)(export)


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    r"""Fit choice models to a table of choice sets, predict with them, evaluate and compare them.

    A first session, with a table that has one row for each alternative of each choice set:

        pcmcnet check trips.csv
        pcmcnet fit trips.csv --choice-set trip --chosen took \
            --features time,cost -o model
        pcmcnet show model
        pcmcnet evaluate model new-trips.csv
    """
    if version:
        typer.echo(f"pcmcnet {package_version('pcmcnet')}")
        raise typer.Exit
