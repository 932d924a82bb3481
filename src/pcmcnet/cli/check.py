"""``pcmcnet check``: look at a table before a fit. ``pcmcnet split``: training and test tables."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.cli import arguments
from pcmcnet.cli.output import Json, print_result, written_files
from pcmcnet.cli.usage import with_options

if TYPE_CHECKING:
    from pcmcnet.data import ChoiceData, Schema

_MAX_LABELS = 12  # alternatives whose shares are listed
_PROBLEMS_FOUND = 2  # exit status, as for bad input


@arguments.with_role_options
def check(
    context: typer.Context,
    table: arguments.Table,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="TOML file to write the column roles to, for --schema.")
    ] = None,
    json_: Json = False,
) -> None:
    r"""Check TABLE before a fit: guess the column roles, count choice sets, and find mistakes.

    Roles that are not given are guessed from the values and the names of the columns. The result lists problems, which
    prevent a fit, and hints, such as labels that differ only in blanks. The exit status is 2 if there are problems.

    For example:

        pcmcnet check trips.csv
        pcmcnet check trips.csv --choice-set trip --chosen took \
            -o roles.toml
        pcmcnet fit trips.csv --schema roles.toml -o model
    """
    from pcmcnet.data.table_check import check_table
    from pcmcnet.storage import write_bytes

    # 1. Check the table with the given roles.
    result = check_table(table, **arguments.given_roles(context.params))
    schema, data = result.schema, result.data
    # 2. Print the roles, the counts, the findings and the next command.
    lines = [f"{table}: {result.rows:,} rows, {len(result.columns)} columns"]
    if schema is not None:
        lines += ["", "Roles of the columns:", *_role_lines(schema)]
    if data is not None:
        lines += ["", *_count_lines(data)]
    for title, texts in (("Problems:", result.problems), ("Hints:", result.hints)):
        lines += ["", title, *(f"  - {with_options(text.rstrip('.') + '.')}" for text in texts)] if texts else []
    if not (result.problems or result.hints):
        lines += ["", "No problems were found."]
    if schema is not None and output is not None:
        write_bytes(output, schema.to_toml().encode())
        lines += ["", written_files([output])]
    if schema is not None and data is not None:
        lines += ["", *_next_command(table, schema, output)]
    values = {
        "rows": result.rows,
        "columns": list(result.columns),
        "schema": None if schema is None else schema.to_dict(),
        "choice_sets": None if data is None else len(data),
        "alternatives": None if data is None else data.n_rows,
        "problems": list(result.problems),
        "hints": list(result.hints),
    }
    print_result("\n".join(lines), values, as_json=json_, strong=[lines[0], "Problems:"])
    if result.problems:
        raise typer.Exit(_PROBLEMS_FOUND)


def _role_lines(schema: Schema) -> list[str]:
    if schema.wide:
        features = ", ".join(f"{name} = {template}" for name, template in schema.wide["features"].items())
        lines = [f"  wide table; chosen: {schema.wide['chosen']}", f"  features: {features}"]
        return [*lines, f"  individual: {', '.join(schema.individual)}"] if schema.individual else lines
    roles = _role_options(schema)
    width = max(map(len, roles))
    return [f"  {option:<{width}}  {','.join(columns)}" for option, columns in roles.items()]


def _role_options(schema: Schema) -> dict[str, tuple[str, ...]]:
    """Return the options that declare the roles of a long table, with their columns."""
    single = ("choice_set", "chosen", "rank", "counts", "alternative", "person", "available", "weight")
    roles = {role: (getattr(schema, role),) for role in single if getattr(schema, role) is not None}
    roles |= {role: getattr(schema, role) for role in ("individual", "features") if getattr(schema, role)}
    return {f"--{role.replace('_', '-')}": columns for role, columns in roles.items()}


def _count_lines(data: ChoiceData) -> list[str]:
    """Return the number of sets, and how often each label is offered and chosen."""
    import numpy as np

    if data.schema.counts is not None:
        return _market_lines(data)
    sizes = data.sizes
    span = f"{sizes.min()} to {sizes.max()}" if sizes.min() < sizes.max() else sizes.max()
    lines = [f"{len(data):,} choice sets of {span} alternatives"]
    if data.schema.person is not None:
        lines[0] += f", by {data.groups().max() + 1:,} persons"
    labels = data.labels
    if labels is None or data.chosen is None or len(labels.categories) > _MAX_LABELS:
        return lines
    offered = np.bincount(labels.codes, minlength=len(labels.categories))
    chosen = np.bincount(labels.codes[data.offsets[:-1] + data.chosen], minlength=len(labels.categories))
    width = max(map(len, labels.categories))
    for label, n, times in zip(labels.categories, offered, chosen, strict=True):
        lines.append(f"  {label:<{width}}  offered in {n:,} sets, chosen in {times:,} ({times / max(n, 1):.0%})")
    return lines


def _market_lines(data: ChoiceData) -> list[str]:
    """Return the number of markets, and the counts of each label."""
    import numpy as np

    from pcmcnet.data.counts import markets

    firsts, counts = markets(data)
    lines = [f"{len(firsts):,} markets with {counts.sum():,g} choices"]
    labels = firsts.labels
    if labels is None or len(labels.categories) > _MAX_LABELS:
        return lines
    offered = np.bincount(labels.codes, minlength=len(labels.categories))
    chosen = np.bincount(labels.codes, counts, minlength=len(labels.categories))
    width = max(map(len, labels.categories))
    for label, n, times in zip(labels.categories, offered, chosen, strict=True):
        share = times / counts.sum()
        lines.append(f"  {label:<{width}}  offered in {n:,} markets, chosen {times:,g} times ({share:.0%})")
    return lines


def _next_command(table: Path, schema: Schema, output: Path | None) -> list[str]:
    """Return the commands that fit a model to the table."""
    name = shlex.quote(str(table))
    if output is not None:
        return ["Next:", f"    pcmcnet fit {name} --schema {shlex.quote(str(output))} -o model"]
    if schema.wide:
        commands = [f"    pcmcnet check {name} -o roles.toml", f"    pcmcnet fit {name} --schema roles.toml -o model"]
        return ["Next, write these roles to a file, and correct them if necessary:", *commands]
    words = [f"{option} {shlex.quote(','.join(columns))}" for option, columns in _role_options(schema).items()]
    return ["Next:", f"    pcmcnet fit {name} \\", *(f"        {word} \\" for word in words), "        -o model"]


def split(
    table: Annotated[Path, typer.Argument(help="CSV, Parquet or Arrow file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the parts.")],
    choice_set: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the id of the choice set, unless in --schema.")
    ] = None,
    person: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the id of the person, who stays in one part.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="TOML file with the column roles.")] = None,
    shares: Annotated[
        str,
        typer.Option(
            metavar="SHARES", help="Shares of the training and test parts, or of training, validation and test."
        ),
    ] = "0.8,0.2",
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column whose groups stay together, instead of the person.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column such as a date: the test part is the last in this order."),
    ] = None,
    seed: arguments.Seed = 0,
    json_: Json = False,
) -> None:
    r"""Split TABLE into a training table and a test table, without changing its rows.

    The rows of a choice set stay together, and so do the choice sets of a person. The files train and test, and valid
    if there are three shares, have the format of TABLE.

    For example:

        pcmcnet split trips.csv --choice-set trip --person traveller -o parts
        pcmcnet fit parts/train.csv --schema roles.toml -o model
        pcmcnet evaluate model parts/test.csv

    The last tenth by date is the test part:

        pcmcnet split trips.csv --choice-set trip --order date \
            --shares 0.9,0.1 -o parts
    """
    from pcmcnet.data.split_files import split_table
    from pcmcnet.errors import ConfigError
    from pcmcnet.storage import sole_writer

    roles = arguments.read_schema(schema, choice_set=choice_set, person=person)
    try:
        parts = [float(share) for share in shares.split(",")]
    except ValueError:
        raise ConfigError(f"--shares: expected numbers such as 0.8,0.2; got {shares!r}.") from None
    with sole_writer(output):
        files = split_table(table, output, roles, parts, seed=seed, by=by, order=order)
    lines = [f"{part.path}: {part.choice_sets:,} choice sets, {part.rows:,} rows" for part in files]
    lines += ["", "Next, fit a model to the training table, and evaluate it on the test table:"]
    lines += [f"    pcmcnet fit {shlex.quote(str(files[0].path))} ... -o model"]
    lines += [f"    pcmcnet evaluate model {shlex.quote(str(files[-1].path))}"]
    result: dict[str, Any] = {
        "parts": [{"path": str(p.path), "choice_sets": p.choice_sets, "rows": p.rows} for p in files]
    }
    print_result("\n".join(lines), result, as_json=json_)
