"""``pcmcnet scenario``: the market effects of changes to a table, as predicted by a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_result

_ENDINGS = (".csv", ".parquet", ".arrow", ".md", ".json")


def scenario(
    context: typer.Context,
    model: arguments.SavedModel,
    table: Annotated[
        Path, typer.Argument(help="Table with the columns of the training table; choices are not needed.")
    ],
    change: Annotated[
        list[str], typer.Option(help="A change such as \"price *= 1.1 where mode == 'car'\"; repeatable.")
    ],
    by: Annotated[str | None, typer.Option(help="Column to group by (default: the labels of alternatives).")] = None,
    revenue: Annotated[str | None, typer.Option(help="Column with the revenue if the alternative is chosen.")] = None,
    unit_cost: Annotated[
        str | None,
        typer.Option(help="Column with the seller's cost of the alternative; the margin is revenue less it."),
    ] = None,
    cost: Annotated[str | None, typer.Option(help="Cost column; its unit is the unit of the consumer surplus.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    intervals: Annotated[bool, typer.Option(help="Compute intervals if the model supports them.")] = True,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write (.csv, .parquet, .arrow, .md or .json).")
    ] = None,
    json_: Json = False,
) -> None:
    r"""Use MODEL to predict shares, revenue, diversion and consumer surplus for TABLE before and after changes.

    Changes are applied in order. Put text values in quotes, and column names with spaces or symbols in backticks.

    Change a price:

        pcmcnet scenario model trips.csv --revenue price --cost price \
            --change "price += 5 where mode == 'car'"

    Remove a service, in all choice sets or in some of them:

        pcmcnet scenario model trips.csv --change "remove air"
        pcmcnet scenario model trips.csv \
            --change "remove where mode == 'air' and distance < 300"

    Add a service:

        pcmcnet scenario model trips.csv --change \
            "add tram like bus with minutes *= 0.7, price = price + 1"

    Results by group, written to a table:

        pcmcnet scenario model trips.csv --by purpose -o effects.csv \
            --change "minutes -= 5 where mode in ('bus', 'train')"
    """
    from pcmcnet.data.files.write_files import write_table
    from pcmcnet.errors import InputError
    from pcmcnet.insight.scenarios import scenario as compute_scenario
    from pcmcnet.models import load
    from pcmcnet.storage import json_bytes, sole_writer, write_bytes

    if output is not None:
        if output.suffix not in _ENDINGS:
            raise InputError(f"{output}: expected a file name that ends in {', '.join(_ENDINGS)}.")
        context.with_resource(sole_writer(output))
    columns = {"by": by, "revenue": revenue, "unit_cost": unit_cost, "cost": cost}
    settings: dict[str, Any] = {**columns, "level": level, "intervals": intervals}
    effects = compute_scenario(load(model), table, change, **settings)
    if output is not None:
        match output.suffix:
            case ".md":
                write_bytes(output, effects.to_markdown().encode())
            case ".json":
                write_bytes(output, json_bytes(effects.to_dict()))
            case _:
                write_table(effects.to_arrow(), output)
    footer = "" if output is None else f"\n\nwritten: {output}"
    print_result(f"{effects}{footer}", effects.to_dict(), as_json=json_)
