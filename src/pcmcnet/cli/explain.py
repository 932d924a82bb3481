"""``pcmcnet explain``: what a saved model makes of a table, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, Open, open_page, show, written


def explain(
    context: typer.Context,
    model: options.SavedModel,
    table: Annotated[Path, typer.Argument(help="Table with the columns of the training table, best with choices.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the report.")],
    sets: Annotated[int, typer.Option(min=1, help="Choice sets to draw for the costly parts.")] = 150,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    skip: Annotated[
        list[str] | None, typer.Option(help="Leave out a part, such as elasticities; repeatable.", show_default=False)
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            help="Models to cross-validate on TABLE beside, separated by commas; none for no others.",
            autocompletion=options.model_lists,
        ),
    ] = "uniform,mnl",
    open_: Open = False,
    json_: Json = False,
) -> None:
    """Write a report on MODEL and TABLE: fit, calibration, importance, elasticities, context effects, examples.

    The folder gets report.html, a page that needs nothing else, report.md with its tables, and explanation.json with
    all numbers. Where TABLE has no choices, the parts that need them are left out.

    The parts are table, model, fit, calibration, importance, elasticities, categories, trade_offs, context,
    axioms and examples.

    Example: `pcmcnet explain model test-trips.csv -o report --skip axioms --baseline uniform,mnl,rf`
    """
    from pcmcnet.cli.model_specs import read_models
    from pcmcnet.insight.explanation import explain as find_out
    from pcmcnet.models import load
    from pcmcnet.plots import write_explanation
    from pcmcnet.reports.formats import plotly_script
    from pcmcnet.storage import require_folder, sole_writer

    plotly_script()  # is it there? Better to know before the work than after
    others = {} if baseline == "none" else read_models(baseline, [], option="--baseline")
    estimator = load(model)
    context.with_resource(sole_writer(output))
    require_folder(output)
    title = f"{type(estimator).__name__} on {table.name}"
    found = find_out(estimator, table, seed, sets=sets, skip=skip or [], baselines=others, title=title)
    files = write_explanation(found, output)
    summary = found.summary()
    figures = {name: value for name, value in summary["found"].items() if name != "findings"}
    said = [f"- {finding.text}" for finding in found.findings]
    lines = [*said, *([""] if said else []), *(f"{name}: {_spoken(value)}" for name, value in figures.items())]
    lines += [f"left out: {name} ({why})" for name, why in summary["left_out"].items()]
    result = {**summary, "files": [str(file) for file in files]}
    show((title, "\n".join(lines), written(files)), result, as_json=json_, strong=[title])
    if open_:
        open_page(output / "report.html")


def _spoken(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.4f}" if isinstance(value, float) else "-" if value is None else str(value)
