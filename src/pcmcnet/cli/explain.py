"""``pcmcnet explain``: a report on a saved model and a table, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, Open, open_page, print_result, written_files


def explain(
    context: typer.Context,
    model: arguments.SavedModel,
    table: Annotated[
        Path, typer.Argument(help="Table with the columns of the training table, preferably with choices.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the report.")],
    sets: Annotated[int, typer.Option(min=1, help="Number of choice sets to sample for the slow sections.")] = 150,
    seed: Annotated[int, typer.Option(min=0, help="Seed for all random draws.")] = 0,
    skip: Annotated[
        list[str] | None, typer.Option(help="Section to leave out, such as axioms; repeatable.", show_default=False)
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            help="Comma-separated baseline models to cross-validate on TABLE; 'none' for no baselines.",
            autocompletion=arguments.complete_models,
        ),
    ] = "uniform,mnl",
    open_: Open = False,
    json_: Json = False,
) -> None:
    r"""Write a report on MODEL and TABLE: fit, calibration, importance, elasticities, context effects, examples.

    The command writes report.html (one self-contained page), report.md (the same tables in Markdown) and
    explanation.json (all numbers) to the output folder. If TABLE has no choices, the sections that need them are left
    out.

    The sections are table, model, fit, calibration, importance, elasticities, categories, trade_offs, context,
    axioms and examples.

    For example:

        pcmcnet explain model test-trips.csv -o report

    Without the section on axioms, and with another baseline:

        pcmcnet explain model test-trips.csv --skip axioms \
            --baseline uniform,mnl,rf -o report
    """
    from pcmcnet.cli.model_specs import parse_models
    from pcmcnet.insight.explanation import explain as compute_explanation
    from pcmcnet.models import load
    from pcmcnet.plots import write_explanation
    from pcmcnet.reports.formats import plotly_script
    from pcmcnet.storage import require_folder, sole_writer

    plotly_script()  # raises now, not after the computation, if plotly is missing
    baselines = {} if baseline == "none" else parse_models(baseline, [], option="--baseline")
    estimator = load(model)
    context.with_resource(sole_writer(output))
    require_folder(output)
    title = f"{type(estimator).__name__} on {table.name}"
    explanation = compute_explanation(
        estimator, table, seed, sets=sets, skip=skip or [], baselines=baselines, title=title
    )
    files = write_explanation(explanation, output)
    summary = explanation.summary()
    figures = {name: value for name, value in summary["found"].items() if name != "findings"}
    findings = [f"- {finding.text}" for finding in explanation.findings]
    lines = [*findings, *([""] if findings else []), *(f"{name}: {_format(value)}" for name, value in figures.items())]
    lines += [f"left out: {name} ({reason})" for name, reason in summary["left_out"].items()]
    result = {**summary, "files": [str(file) for file in files]}
    print_result((title, "\n".join(lines), written_files(files)), result, as_json=json_, strong=[title])
    if open_:
        open_page(output / "report.html")


def _format(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.4f}" if isinstance(value, float) else "-" if value is None else str(value)
