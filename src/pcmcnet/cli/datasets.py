"""``pcmcnet datasets``: the tables that ship inside installed packages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcmcnet.cli.output import Json, show


def datasets(
    name: Annotated[str | None, typer.Argument(help="A table; none lists them all.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the table here, in long form.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Write the roles of its columns here, as TOML.")] = None,
    json_: Json = False,
) -> None:
    """List the named tables, or write one of them to a file with the roles of its columns.

    Example: `pcmcnet datasets itinerary -o itinerary.parquet --schema itinerary.toml`, then
    `pcmcnet fit itinerary.parquet --schema itinerary.toml -o model`
    """
    from pcmcnet.data.files import require_table_path, write_bytes, write_table
    from pcmcnet.datasets import packaged

    if name is None:
        _list(as_json=json_)
        return
    if output is not None:
        require_table_path(output)
    table, roles = packaged.long_form(name)
    if output is not None:
        write_table(table, output)
    if schema is not None:
        write_bytes(schema, roles.to_toml().encode())
    text = (
        f"{name}: {packaged.TABLES[name].title}\n\n{table.num_rows:,} rows; roles of the columns:\n\n{roles.to_toml()}"
    )
    show(text.rstrip(), {"name": name, "rows": table.num_rows, "schema": roles.to_dict()}, as_json=json_)


def _list(*, as_json: bool) -> None:
    from pcmcnet.datasets import packaged
    from pcmcnet.errors import DatasetError

    states: dict[str, str] = {}
    for table in packaged.TABLES.values():
        try:
            states[table.name] = str(packaged.path(table.name))
        except DatasetError:
            states[table.name] = f"not installed: {table.install}"
    lines = [f"{n}\n    {packaged.TABLES[n].title}\n    {state}" for n, state in states.items()]
    show("\n".join(lines), states, as_json=as_json)
