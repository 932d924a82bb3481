"""The program and its commands, one module each."""

from __future__ import annotations

import typer

from pcmcnet.cli.compare import compare
from pcmcnet.cli.datasets import datasets
from pcmcnet.cli.evaluate import evaluate
from pcmcnet.cli.explain import explain
from pcmcnet.cli.export import export
from pcmcnet.cli.fit import fit
from pcmcnet.cli.leaderboard import leaderboard
from pcmcnet.cli.predict import predict
from pcmcnet.cli.reproduce import reproduce
from pcmcnet.cli.serve import serve
from pcmcnet.cli.simulate import simulate
from pcmcnet.cli.tune import tune

app = typer.Typer(
    name="pcmcnet",
    help="Context-aware discrete choice: fit a table of choice sets, predict, evaluate, compare.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (fit, predict, evaluate, compare, leaderboard, tune, explain, simulate, datasets):
    app.command()(command)
app.add_typer(reproduce)
app.command()(serve)
app.command()(export)


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    """Context-aware discrete choice: fit a table of choice sets, predict, evaluate, compare."""
    if version:
        from pcmcnet.models.saving.artifact import package_version

        typer.echo(f"pcmcnet {package_version('pcmcnet')}")
        raise typer.Exit
