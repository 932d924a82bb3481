"""``pcmcnet compare``: cross-validate several models on the same folds of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import (
    Json,
    Open,
    open_page,
    parse_integers,
    print_message,
    print_result,
    resume_hint_on_interrupt,
    written_files,
)

if TYPE_CHECKING:
    from pcmcnet.evaluation import Comparison


@arguments.with_role_options
def compare(
    context: typer.Context,
    table: arguments.Table,
    models: Annotated[
        str,
        typer.Option(
            help="Comma-separated models: name, name:value, or Label=name[:value].",
            autocompletion=arguments.complete_models,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")],
    folds: Annotated[int | None, typer.Option(help="Number of cross-validation folds.", show_default="5")] = None,
    split: Annotated[
        float | None, typer.Option(help="Test on this share of the choice sets instead of by cross-validation.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Column that defines groups. Folds and bootstrap samples keep groups whole.")
    ] = None,
    valid: Annotated[
        float, typer.Option(help="Share of each training part held out for early stopping; 0 for none.")
    ] = 0.0,
    top: arguments.Top = "1,5",
    seed: Annotated[int, typer.Option(min=0, help="Seed for the folds, the fits and the bootstrap.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Model option, as MODEL.option=value; repeatable.")
    ] = None,
    device: arguments.Device = "auto",
    open_: Open = False,
    json_: Json = False,
) -> None:
    r"""Cross-validate several models on the same folds of TABLE and test whether their differences are significant.

    Each fold of each model is saved in the output folder as soon as it is done. After an interruption, run the same
    command again to continue. A repeated run may include additional models. The results are written to comparison.json,
    .md, .html and .png.

    For example:

        pcmcnet compare trips.csv --choice-set trip --chosen took \
            --features time,cost --models uniform,mnl,pcmcnet -o comparison

    With labels, options for some of the models, and all trips of a person in the same fold:

        pcmcnet compare trips.csv --schema roles.toml \
            --models Cheapest=rank-by:cost,Small=pcmcnet,Large=pcmcnet \
            --set Large.hidden=256,256 --set pcmcnet.epochs=50 \
            --by person --folds 10 --valid 0.1 -o comparison
    """
    from pcmcnet.checks import require_number
    from pcmcnet.cli.model_specs import parse_models
    from pcmcnet.data import ChoiceData
    from pcmcnet.errors import ConfigError
    from pcmcnet.evaluation import compare as cross_validate
    from pcmcnet.storage import sole_writer
    from pcmcnet.training.device import resolve_device

    # 1. Check the options before any table is read.
    contestants = parse_models(models, set_ or [])
    top_sizes = parse_integers("--top", top)
    if folds is not None and split is not None:
        raise ConfigError("--folds and --split cannot be combined: use one of them.")
    if split is not None:
        require_number("--split", split, low=0, high=1, open_low=True, open_high=True)
    require_number("--valid", valid, low=0, high=1, open_high=True)
    resolve_device(device)
    schema = arguments.schema_of_command(context.params, "comparing")
    clusters = (getattr(model.config, "cluster", None) for model in contestants.values())
    schema = arguments.keep_columns(schema, by, *clusters)
    # 2. Read the table and cross-validate.
    context.with_resource(sole_writer(output))
    data = ChoiceData.from_schema(table, schema)
    print_message(f"read {data!r}")
    with resume_hint_on_interrupt(output):
        parts = None if split is None else (1 - split, split)
        settings: dict[str, Any] = {"by": by, "valid": valid, "top": top_sizes, "device": device, "folder": output}
        comparison = cross_validate(contestants, data, folds, seed, split=parts, **settings)
    # 3. Write the page and the picture, and print the table.
    files = _write(comparison, output, table.name)
    result = {**comparison.to_dict(), "files": [str(file) for file in files]}
    print_result((comparison, written_files(files)), result, as_json=json_, strong=[comparison.verdict])
    if open_:
        open_page(output / "comparison.html")
    if all(row.error is not None for row in comparison.rows):
        raise typer.Exit(1)


def _write(comparison: Comparison, output: Path, table: str) -> list[Path]:
    """Write the HTML page and the figure next to comparison.json and comparison.md. Return all four paths."""
    from pcmcnet.plots import comparison_chart, draw_comparison, write_comparison_page

    files = [output / "comparison.json", output / "comparison.md"]
    files.append(write_comparison_page(comparison, output / "comparison.html", title=f"Models on {table}"))
    picture = output / "comparison.png"
    if all(row.error is not None for row in comparison.rows):
        picture.unlink(missing_ok=True)  # remove the picture of an earlier run
        return files
    return [*files, draw_comparison(comparison_chart(comparison), picture, title=table)]
