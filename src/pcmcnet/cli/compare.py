"""``pcmcnet compare``: models side by side on identical folds of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, Open, kept_when_interrupted, open_page, say, show, whole_numbers, written

if TYPE_CHECKING:
    from pcmcnet.evaluation import Comparison


@options.with_roles
def compare(
    context: typer.Context,
    table: options.Table,
    models: Annotated[
        str,
        typer.Option(
            help="Models, separated by commas: name, name:value, or Label=name[:value].",
            autocompletion=options.model_lists,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")],
    folds: Annotated[int | None, typer.Option(help="Folds of the cross-validation.  [default: 5]")] = None,
    split: Annotated[float | None, typer.Option(help="Instead of folds: test on this share, fit on the rest.")] = None,
    by: Annotated[str | None, typer.Option(help="Column whose groups stay whole and are resampled together.")] = None,
    valid: Annotated[float, typer.Option(help="Share of each training part held out to stop early; 0: none.")] = 0.0,
    top: options.Top = "1,5",
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds, fits and resamples.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Option of a model, as MODEL.option=value; repeatable.")
    ] = None,
    device: options.Device = "auto",
    open_: Open = False,
    json_: Json = False,
) -> None:
    """Fit and test several models on identical folds of TABLE, and say how sure their differences are.

    Each model and fold is kept in the output folder as soon as it is measured: after an interruption, the same
    command goes on; models may be added. The result is comparison.json, .md, .html and .png.

    Example: `pcmcnet compare trips.csv --choice-set trip --chosen took --features time,cost
    --models uniform,rank-by:cost,pcmcnet -o comparison`

    With labels, options of single models, and the trips of one person kept together:
    `pcmcnet compare trips.csv --schema roles.toml --models Cheapest=rank-by:cost,Small=pcmcnet,Large=pcmcnet
    --set Large.hidden=256,256 --set pcmcnet.epochs=50 --by person --folds 10 --valid 0.1 -o comparison`
    """
    from pcmcnet.checks import require_number
    from pcmcnet.cli.model_specs import read_models
    from pcmcnet.data import ChoiceData
    from pcmcnet.errors import ConfigError
    from pcmcnet.evaluation import compare as measure
    from pcmcnet.storage import sole_writer
    from pcmcnet.training.device import resolve_device

    contestants = read_models(models, set_ or [])
    sizes = whole_numbers("--top", top)
    if folds is not None and split is not None:
        raise ConfigError("--folds and --split exclude each other: give one of them.")
    if split is not None:
        require_number("--split", split, low=0, high=1, open_low=True, open_high=True)
    require_number("--valid", valid, low=0, high=1, open_high=True)
    resolve_device(device)
    found = options.of_command(context.params, "comparing")
    found = options.keeping(found, by, *(getattr(model.config, "cluster", None) for model in contestants.values()))
    context.with_resource(sole_writer(output))
    data = ChoiceData.from_schema(table, found)
    say(f"read {data!r}")
    with kept_when_interrupted(output):
        parts = None if split is None else (1 - split, split)
        settings: dict[str, Any] = {"by": by, "valid": valid, "top": sizes, "device": device, "folder": output}
        comparison = measure(contestants, data, folds, seed, split=parts, **settings)
    files = _write(comparison, output, table.name)
    result = {**comparison.to_dict(), "files": [str(file) for file in files]}
    show((comparison, written(files)), result, as_json=json_, strong=[comparison.verdict])
    if open_:
        open_page(output / "comparison.html")
    if all(row.error is not None for row in comparison.rows):
        raise typer.Exit(1)


def _write(comparison: Comparison, output: Path, table: str) -> list[Path]:
    """Write page and picture beside what the comparison has written; return all files."""
    from pcmcnet.plots import comparison_chart, draw_comparison, write_comparison_page

    files = [output / "comparison.json", output / "comparison.md"]
    files.append(write_comparison_page(comparison, output / "comparison.html", title=f"Models on {table}"))
    picture = output / "comparison.png"
    if all(row.error is not None for row in comparison.rows):
        picture.unlink(missing_ok=True)  # that of an earlier run
        return files
    return [*files, draw_comparison(comparison_chart(comparison), picture, title=table)]
