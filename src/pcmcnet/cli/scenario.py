"""``pcmcnet scenario``: what changes of a table do to the market, by a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli import options
from pcmcnet.cli.output import Json, show

_ENDINGS = (".csv", ".parquet", ".arrow", ".md", ".json")


def scenario(
    context: typer.Context,
    model: options.SavedModel,
    table: Annotated[
        Path, typer.Argument(help="Table with the columns of the training table; choices are not needed.")
    ],
    change: Annotated[
        list[str], typer.Option(help="A change such as \"price *= 1.1 where mode == 'car'\"; repeatable.")
    ],
    by: Annotated[str | None, typer.Option(help="Column whose values are the groups; the labels if not given.")] = None,
    revenue: Annotated[str | None, typer.Option(help="Column with the revenue of an alternative.")] = None,
    cost: Annotated[str | None, typer.Option(help="Column in whose units the consumer surplus is.")] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    intervals: Annotated[bool, typer.Option(help="Compute intervals, where the model has any.")] = True,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write (.csv, .parquet, .arrow, .md or .json).")
    ] = None,
    json_: Json = False,
) -> None:
    """Print shares, revenue, diversion and consumer surplus of TABLE before and after some changes, by MODEL.

    Changes are applied one after the other. Words stand in quotes; a column that is no plain word stands in backticks.

    Example: `pcmcnet scenario model trips.csv --change "price += 5 where mode == 'car'" --revenue price --cost price`

    A service that closes: `pcmcnet scenario model trips.csv --change "remove air"`, or `--change "remove where mode ==
    'air' and distance < 300"`

    A new one: `pcmcnet scenario model trips.csv --change "add tram like bus with minutes *= 0.7, price = price + 1"`

    By groups of people, as a table: `pcmcnet scenario model trips.csv --change "minutes -= 5 where mode in ('bus',
    'train')" --by purpose -o effects.csv`
    """
    from pcmcnet.data.files.write_files import write_table
    from pcmcnet.errors import InputError
    from pcmcnet.insight.scenarios import scenario as ask
    from pcmcnet.models import load
    from pcmcnet.storage import json_bytes, sole_writer, write_bytes

    if output is not None:
        if output.suffix not in _ENDINGS:
            raise InputError(f"{output}: unknown kind of file. Expected a name that ends in {', '.join(_ENDINGS)}.")
        context.with_resource(sole_writer(output))
    found = ask(load(model), table, change, by=by, revenue=revenue, cost=cost, level=level, intervals=intervals)
    if output is not None:
        match output.suffix:
            case ".md":
                write_bytes(output, found.to_markdown().encode())
            case ".json":
                write_bytes(output, json_bytes(found.to_dict()))
            case _:
                write_table(found.to_arrow(), output)
    written = "" if output is None else f"\n\nwritten: {output}"
    show(f"{found}{written}", found.to_dict(), as_json=json_)
