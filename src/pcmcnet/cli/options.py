"""Options that several commands share: roles of columns, the engine, and the names that a shell completes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.errors import SchemaError

if TYPE_CHECKING:
    from pcmcnet.data import Schema

# -- Completion --------------------------------------------------------------------------------------------------------
# The names that a shell completes: of models, tables, simulators and kinds of columns.
#
# Help and completion do without the modules that define them, which load PyTorch: names of models are read out of their
# source, the others stand here as words. The tests compare all of them with the registries.


_NAME = re.compile(r'^    name = "([\w-]+)"$', re.MULTILINE)  # in the class of a model

BUILT = ("mnl+individual", "lc-mnl+individual")  # for each table of a leaderboard
TABLES = (
    *("itinerary", "mtc-work", "swissmetro", "mode-canada", "train", "modechoice", "optima", "mode", "electricity"),
    *("car", "heating", "hc", "vehicle", "fishing", "catsup", "cracker", "yogurt", "ketchup", "tuna"),
)
SIMULATORS = ("mlba", "airline", "rock-paper-scissors")
KINDS = ("vector", "datetime", "multi", "text", "image", "id", "piecewise", "spline")
SPACES = ("default", "paper", "wide")
_WRAPPERS = {"wrapper", "calibrated", "ensemble", "with_constants"}  # files of models that are no contestants


@cache
def models() -> tuple[str, ...]:
    """Return the names of the models."""
    files = (Path(__file__).parents[1] / "models").rglob("*.py")
    own = [file.read_text("utf-8") for file in files if file.stem not in _WRAPPERS]
    return tuple(sorted(name for text in own for name in _NAME.findall(text)))


def model_names(incomplete: str) -> list[str]:
    """Complete the name of a model."""
    return _beginning(incomplete, models())


def model_lists(incomplete: str) -> list[str]:
    """Complete the last of several models: ``uniform,Small=pcm``.

    Examples
    --------
    >>> model_lists("uniform,Small=pcmcn")
    ['uniform,Small=pcmcnet']
    """
    return _last(incomplete, models())


def contestant_lists(incomplete: str) -> list[str]:
    """Complete the last of several models of a leaderboard."""
    return _last(incomplete, (*models(), *BUILT))


def table_names(incomplete: str) -> list[str]:
    """Complete the name of a packaged table."""
    return _beginning(incomplete, TABLES)


def table_lists(incomplete: str) -> list[str]:
    """Complete the last of several tables of a leaderboard."""
    return _last(incomplete, (*TABLES, *SIMULATORS))


def simulator_names(incomplete: str) -> list[str]:
    """Complete the name of a simulator."""
    return _beginning(incomplete, SIMULATORS)


def space_names(incomplete: str) -> list[str]:
    """Complete the name of a space to search."""
    return _beginning(incomplete, SPACES)


def _beginning(incomplete: str, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _last(incomplete: str, names: tuple[str, ...]) -> list[str]:
    at = max(incomplete.rfind(","), incomplete.rfind("=")) + 1
    return [incomplete[:at] + name for name in _beginning(incomplete[at:], names)]


# -- Roles -------------------------------------------------------------------------------------------------------------
# The options that say what each column is, shared by the commands that read a training table.


_PANEL = "Columns"

SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="TOML file with the roles below.", rich_help_panel=_PANEL)
]
ChoiceSet = Annotated[str | None, typer.Option(help="Column with the id of the choice set.", rich_help_panel=_PANEL)]
Chosen = Annotated[str | None, typer.Option(help="Column 0/1: which alternative was chosen.", rich_help_panel=_PANEL)]
Rank = Annotated[
    str | None,
    typer.Option(
        help="In place of --chosen: column with the place in a ranking, 1 for the best.", rich_help_panel=_PANEL
    ),
]
Alternative = Annotated[str | None, typer.Option(help="Column with the alternative's label.", rich_help_panel=_PANEL)]
Person = Annotated[
    str | None, typer.Option(help="Column with the id of the person, whose sets stay together.", rich_help_panel=_PANEL)
]
Individual = Annotated[
    str | None, typer.Option(help="Columns constant within a set, separated by commas.", rich_help_panel=_PANEL)
]
Features = Annotated[
    str | None, typer.Option(help="Columns of the alternative, separated by commas.", rich_help_panel=_PANEL)
]
Categorical = Annotated[
    str | None, typer.Option(help="Which of those are categorical; by type if not given.", rich_help_panel=_PANEL)
]
Keep = Annotated[
    str | None, typer.Option(help="Columns carried along for grouping, not shown to the model.", rich_help_panel=_PANEL)
]
Outside = Annotated[
    str | None,
    typer.Option(help="Name of an alternative of every set without rows, such as none.", rich_help_panel=_PANEL),
]
Available = Annotated[str | None, typer.Option(help="Column 0/1: rows with 0 are left out.", rich_help_panel=_PANEL)]
Weight = Annotated[str | None, typer.Option(help="Column with the weight of the set.", rich_help_panel=_PANEL)]
Conflict = Annotated[
    str | None, typer.Option(help="error, or first: individual columns that vary in a set.", rich_help_panel=_PANEL)
]
Missing = Annotated[str | None, typer.Option(help="error, or indicator: missing values.", rich_help_panel=_PANEL)]

Kinds = Annotated[
    str | None,
    typer.Option(
        help=f"Kinds of other columns, as column=kind separated by commas: {', '.join(KINDS)}.", rich_help_panel=_PANEL
    ),
]

MEMORY = "1 GiB"
_LARGE = "Tables larger than memory"
Stream = Annotated[
    bool, typer.Option("--stream", help="Read the table part by part, not whole.", rich_help_panel=_LARGE)
]
Cache = Annotated[
    Path | None, typer.Option(help="Folder for the converted table.", show_default=False, rich_help_panel=_LARGE)
]
Memory = Annotated[
    str | None,
    typer.Option(help=f"What choice sets may take in memory; {MEMORY} if not given.", rich_help_panel=_LARGE),
]

_LISTS = ("individual", "features", "categorical", "keep")
_SINGLE = ("choice_set", "chosen", "rank", "alternative", "available", "weight", "person")
_ROLES = (*_SINGLE, *_LISTS, "outside", "conflict", "missing", "kinds")


def read_schema(file: str | Path | None, **roles: str | None) -> Schema:
    """Take the roles from a TOML file, if there is one, and from the options, which prevail; kinds column by column."""
    from pcmcnet.data import Schema

    entries: dict[str, Any] = {} if file is None else Schema.from_toml(file).to_dict()
    given = {role: _read(role, text) for role, text in roles.items() if text is not None}
    if "kinds" in given:
        given["kinds"] = {**entries.get("kinds", {}), **given["kinds"]}
    entries |= given
    if "choice_set" not in entries:
        raise SchemaError("say which column holds the id of the choice set: --choice-set COLUMN, or --schema FILE.")
    return Schema.from_dict(entries)


def of_command(params: Mapping[str, Any], purpose: str) -> Schema:
    """Take the roles out of the parameters of a command that needs the choices, ``context.params``."""
    found = read_schema(params["schema"], **{role: params[role] for role in _ROLES})
    if found.choices is None:
        raise SchemaError(f"{purpose} needs the choices: --chosen COLUMN, or --rank COLUMN.")
    return found


def keeping(schema: Schema, *columns: str | None) -> Schema:
    """Carry along columns that grouping asks for, where no role names them yet."""
    wanted = [c for c in columns if c is not None and c not in (schema.choice_set, *schema.individual, *schema.kept)]
    return replace(schema, keep=(*schema.keep, *dict.fromkeys(wanted)))


def _read(role: str, text: str) -> Any:
    if role != "kinds":
        return _split(text) if role in _LISTS else text
    pairs = [word.rpartition("=") for word in _split(text)]
    if not all(name and kind for name, _, kind in pairs):
        raise SchemaError(f"--kinds: expected column=kind separated by commas, got {text!r}.")
    kinds = {name.strip(): kind.strip() for name, _, kind in pairs}
    if len(kinds) < len(pairs):
        raise SchemaError(f"--kinds: expected each column once, got {text!r}.")
    return kinds


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


# -- Engine ------------------------------------------------------------------------------------------------------------
# The options that say how many processes or machines do the work.


_ENGINE_PANEL = "Several processes or machines"
WORKERS = 2

Engine = Annotated[
    str,
    typer.Option(
        help="local: this process. ray: workers of the Ray that RAY_ADDRESS names, or of one on this machine.",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help=f"Workers of --engine ray; {WORKERS} if not given.", show_default=False, rich_help_panel=_ENGINE_PANEL
    ),
]


def workers_of(engine: str, workers: int | None) -> int:
    """Return the number of workers: 0 for this process."""
    from pcmcnet.checks import require_number, require_word
    from pcmcnet.errors import ConfigError

    require_word("engine", engine, ("local", "ray"))
    if engine == "local":
        if workers is not None:
            raise ConfigError("--workers is for --engine ray: one process has no workers.")
        return 0
    from pcmcnet.cluster.engine import require_ray

    require_ray()  # before any table is read
    require_number("--workers", WORKERS if workers is None else workers, whole=True, low=1)
    return workers or WORKERS
