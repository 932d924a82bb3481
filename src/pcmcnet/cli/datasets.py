"""``pcmcnet datasets``: the example tables that ship inside installed Python packages."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_result, written_files


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a table. Without a name, list all tables.", autocompletion=arguments.complete_table
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the table to this file, in long form.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="Write the column roles to this TOML file.")] = None,
    json_: Json = False,
) -> None:
    r"""List the example tables, or write one of them and its column roles to files.

    For example:

        pcmcnet datasets
        pcmcnet datasets itinerary -o itinerary.parquet \
            --schema itinerary.toml
        pcmcnet fit itinerary.parquet --schema itinerary.toml -o model
    """
    from pcmcnet.data.files.write_files import require_table_path, write_table
    from pcmcnet.datasets import packaged
    from pcmcnet.storage import write_bytes

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
    entry = packaged.TABLES[name]
    text = (
        f"{name}: {entry.title}\n\nuse: {entry.use}\nsource: {entry.source}\nlicence of the data: {entry.licence}\n\n"
        f"{table.num_rows:,} rows; column roles:\n\n{roles.to_toml()}"
    )
    if written := [file for file in (output, schema) if file is not None]:
        text = f"{text.rstrip()}\n\n{written_files(written)}"
    result = {**_about(name), "rows": table.num_rows, "schema": roles.to_dict()}
    print_result(text.rstrip(), result, as_json=json_)


def _list(*, as_json: bool) -> None:
    from pcmcnet.datasets.packaged import TABLES

    about = {name: _about(name) for name in TABLES}
    lines = [f"{'name':<11}  {'use':<11}  {'sets':>6}  {'licence':<13}  source"]
    lines += [f"{t.name:<11}  {t.use:<11}  {t.sets:>6,}  {t.licence:<13}  {t.source}" for t in TABLES.values()]
    absent = [t for t in TABLES.values() if about[t.name]["path"] is None]
    for command in dict.fromkeys(t.install for t in absent):
        names = ", ".join(t.name for t in absent if t.install == command)
        lines.append(f"\nNot installed: {names}\n    {command}")
    print_result("\n".join(lines), about, as_json=as_json)


def _about(name: str) -> dict[str, Any]:
    """Return the catalogue entry of a table with its path, which is None if the package is not installed."""
    from pcmcnet.datasets import packaged
    from pcmcnet.errors import DatasetError

    about = {**packaged.TABLES[name].to_dict(), "path": None}
    with suppress(DatasetError):
        about["path"] = str(packaged.path(name))
    return about
