"""``pcmcnet design``: the tasks of a choice experiment, from a file that describes the attributes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from pcmcnet.cli.output import Json, print_result


def design(
    attributes: Annotated[Path, typer.Argument(help="TOML file with the attributes, and other options of a design.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .csv, .parquet or .arrow.")],
    alternatives: Annotated[int | None, typer.Option(help="Alternatives of a task, without none (default 3).")] = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks that a respondent answers (default 12).")] = None,
    versions: Annotated[int | None, typer.Option(help="Versions of the survey (default 1).")] = None,
    criterion: Annotated[str | None, typer.Option(metavar="WORD", help="D (default), Db, C or context.")] = None,
    cost: Annotated[
        str | None, typer.Option(metavar="ATTRIBUTE", help="Attribute in whose units criterion C measures ratios.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Saved model that is the prior, instead of values.")
    ] = None,
    dominated: Annotated[
        str | None, typer.Option(metavar="WORD", help="Dominated alternatives: allow (default), avoid or place.")
    ] = None,
    starts: Annotated[int | None, typer.Option(help="Random starts of the search (default 10).")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (default 0).")] = None,
    json_: Json = False,
) -> None:
    r"""Choose the tasks of a choice experiment for precise estimates, and write them as a table.

    The TOML file ATTRIBUTES has a table [attributes] with lines such as price = [10, 15, 20] and brand = ["A", "B"].
    A table [prior] may hold values such as price = -0.1, or means with standard deviations such as
    price = [-0.1, 0.03], and a table [signs] lines such as price = "-". Each table [[prohibited]] holds levels that are
    never combined. Other options are lines above the first table, such as tasks = 12, none = true or balance = false.
    The options below take precedence over the file.

    For example:

        pcmcnet design attributes.toml -o design.csv
        pcmcnet design attributes.toml --criterion Db --versions 3 -o design.csv
        pcmcnet design attributes.toml --criterion C --cost price -o design.csv
        pcmcnet design attributes.toml --criterion context -o design.csv

    With the estimates of a pilot study as the prior:

        pcmcnet design attributes.toml --model pilot -o design.csv
    """
    from pcmcnet.data.files.write_files import require_table_path
    from pcmcnet.designs import design as find_design
    from pcmcnet.designs import read_options
    from pcmcnet.errors import PcmcNetError
    from pcmcnet.models import load

    require_table_path(output)
    words = {"alternatives": alternatives, "tasks": tasks, "versions": versions, "criterion": criterion, "cost": cost}
    words |= {"dominated": dominated, "starts": starts, "seed": seed}
    options: dict[str, Any] = read_options(attributes)
    options |= {name: value for name, value in words.items() if value is not None}
    if model is not None:
        options["prior"] = load(model)
    try:
        plan = find_design(options.pop("attributes"), **options)
    except PcmcNetError as error:
        error.args = (in_toml(str(error)),)
        raise
    plan.save(output)
    result = {
        "output": str(output),
        "tasks": plan.tasks,
        "versions": plan.versions,
        "criterion": plan.criterion,
        "error": plan.error,
        "d_error": plan.d_error,
        "standard_errors": plan.standard_errors(),
        "level_counts": {
            name: {str(level): count for level, count in counts.items()} for name, counts in plan.level_counts().items()
        },
    }
    print_result(f"{plan}\n\nwritten: {output}", result, as_json=json_)


def in_toml(message: str) -> str:
    """Return a message of the library with its options as they are written in the file or on the command line.

    >>> in_toml("needs a prior, as in prior={'price': (-0.5, 0.2)}. Set balance=False, or use criterion='D'.")
    'needs a prior, as in [prior] price = [-0.5, 0.2]. Set balance = false, or use --criterion D.'
    """
    table = r"\b(prior|signs|effects)=\{'([^']+)': ([^{}]*)\}"
    brackets = str.maketrans("()'", '[]"')
    message = re.sub(table, lambda m: f"[{m[1]}] {m[2]} = {m[3].translate(brackets)}", message)
    message = re.sub(r"\b(balance|none)=(True|False)", lambda m: f"{m[1]} = {m[2].lower()}", message)
    message = re.sub(r"\beffects=\['(\w+)'\]", r'effects = ["\1"]', message)
    return re.sub(r"\b(criterion|dominated|cost)='(\w+)'", r"--\1 \2", message)
