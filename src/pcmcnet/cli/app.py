"""The program and its commands, one module per command.

Importing a command module loads only its options, so that help and shell completion are fast. Heavy libraries, PyTorch
above all, are imported when a command runs, after its options have been parsed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

from pcmcnet.cli.compare import compare
from pcmcnet.cli.datasets import datasets
from pcmcnet.cli.evaluate import evaluate
from pcmcnet.cli.explain import explain
from pcmcnet.cli.fit import fit
from pcmcnet.cli.leaderboard import leaderboard
from pcmcnet.cli.models import export, models
from pcmcnet.cli.optimise import optimise
from pcmcnet.cli.predict import predict
from pcmcnet.cli.reproduce import reproduce
from pcmcnet.cli.scenario import scenario
from pcmcnet.cli.serve import serve
from pcmcnet.cli.simulate import simulate
from pcmcnet.cli.tune import tune
from pcmcnet.concurrency import exit_on_interrupt
from pcmcnet.storage import package_version


class Command(TyperCommand):
    """A command that imports heavy libraries just before it runs. Ctrl-C during the import ends the program."""

    stage: ClassVar[str] = "pcmcnet.plots"  # imported first, together with all stages before it

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with exit_on_interrupt():
            import_module(self.stage)
        return super().invoke(ctx)


class LightCommand(Command):
    """A command that imports fewer libraries, because it needs neither explanations nor plots."""

    stage = "pcmcnet.evaluation"


app = typer.Typer(
    name="pcmcnet",
    help="Context-aware discrete choice models: fit them to a table of choice sets, predict, evaluate and compare.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for light in (fit, predict, evaluate):
    app.command(cls=LightCommand)(light)
for command in (compare, leaderboard, tune, explain, scenario, optimise, simulate, datasets, models):
    app.command(cls=Command)(command)
for experiment in reproduce.registered_commands:
    experiment.cls = Command
app.add_typer(reproduce)
app.command(cls=Command)(serve)
app.command(cls=Command)(export)


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    """Context-aware discrete choice models: fit them to a table of choice sets, predict, evaluate and compare."""
    if version:
        typer.echo(f"pcmcnet {package_version('pcmcnet')}")
        raise typer.Exit
