"""Options shared by several commands: models, seeds, devices, column roles, the engine.

Shell completion needs the names of tables, column kinds and search spaces, but the modules that define them are slow to
import. These names are therefore copied here. Tests compare them with the registries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.errors import SchemaError
from pcmcnet.models import MODELS

if TYPE_CHECKING:
    from pcmcnet.data import Schema

# -- Completion --------------------------------------------------------------------------------------------------------


LEADERBOARD_MODELS = ("mnl+individual", "lc-mnl+individual")  # variants that the leaderboard builds for each table
TABLES = (
    "intercity",
    *("itinerary", "mtc-work", "swissmetro", "mode-canada", "train", "modechoice", "optima", "mode", "electricity"),
    *("car", "heating", "hc", "vehicle", "fishing", "catsup", "cracker", "yogurt", "ketchup", "tuna"),
)
SIMULATORS = ("mlba", "airline", "rock-paper-scissors")
KINDS = ("vector", "datetime", "multi", "text", "image", "id", "piecewise", "spline")
SPACES = ("default", "paper", "wide")


def model_names() -> tuple[str, ...]:
    """Return the registry names of all models, sorted."""
    return tuple(sorted(MODELS))


def _completer(names: Callable[[], tuple[str, ...]], *, several: bool = False) -> Callable[[str], list[str]]:
    """Return a function that completes a name or, with ``several``, the last name in a list such as ``mnl,A=pcm``."""

    def complete(incomplete: str) -> list[str]:
        start = max(incomplete.rfind(","), incomplete.rfind("=")) + 1 if several else 0
        return [incomplete[:start] + name for name in names() if name.startswith(incomplete[start:])]

    return complete


complete_model = _completer(model_names)
complete_models = _completer(model_names, several=True)
complete_contestants = _completer(lambda: (*model_names(), *LEADERBOARD_MODELS), several=True)
complete_table = _completer(lambda: TABLES)
complete_tables = _completer(lambda: (*TABLES[1:], *SIMULATORS), several=True)
complete_simulator = _completer(lambda: SIMULATORS)
complete_space = _completer(lambda: SPACES)


# -- Models, tables and fits -------------------------------------------------------------------------------------------


Table = Annotated[
    Path, typer.Argument(help="CSV, Parquet or Arrow file, or folder of Parquet files; one row per alternative.")
]
SavedModel = Annotated[Path, typer.Argument(help="Folder written by `pcmcnet fit`.")]
ModelName = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Name of the model, as listed by `pcmcnet models`.", autocompletion=complete_model
    ),
]
By = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column that defines groups, which are held out as a whole.")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="Device to compute on: auto, cpu, cuda, ...")]
Top = Annotated[str, typer.Option(help="Report the top-N accuracy for these values of N.")]


# -- Roles -------------------------------------------------------------------------------------------------------------
# Options that declare the role of each column, for commands that read a training table.


_LISTS = ("individual", "features", "categorical", "keep")
_PAIRS = {"kinds", "signs"}  # roles that map columns to words
_ROLE_VALUES = {"outside": "NAME", "conflict": "WORD", "missing": "WORD", "kinds": "PAIRS", "signs": "PAIRS"}
_ROLES = {
    "choice_set": "Column with the id of the choice set.",
    "chosen": "Column that is 1 for the chosen alternative and 0 for the others.",
    "rank": "Instead of --chosen: column with the rank of the alternative, 1 for the best and -1 for the worst.",
    "counts": "Instead of --chosen: column with the number of choices of the alternative in a market.",
    "alternative": "Column with the label of the alternative.",
    "person": "Column with the id of the person. Choice sets of a person stay together in splits.",
    "individual": "Comma-separated columns that are constant within a choice set.",
    "features": "Comma-separated columns that describe the alternative.",
    "categorical": "Columns to treat as categories (default: text columns).",
    "available": "Column that is 0 for unavailable alternatives, which get probability 0.",
    "weight": "Column with the weight of the choice set.",
    "keep": "Comma-separated columns to keep for grouping; the model does not use them.",
    "outside": 'Name of an outside option, such as "none", that is in every choice set but has no row.',
    "conflict": "If an individual-level column varies within a choice set: 'error', or 'first' to use its first value.",
    "missing": "Missing values: 'error', or 'indicator' to add indicator features.",
    "kinds": f"Comma-separated column=kind pairs for columns such as texts and images; kinds: {', '.join(KINDS)}.",
    "signs": "Comma-separated column=sign pairs, such as price=-,comfort=+: whether the probability of an alternative "
    "falls or rises with its value.",
}


def with_role_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add options for the schema file and each column role to a command.

    The command reads these options with :func:`schema_of_command`.
    """
    # 1. Declare the options, in a separate panel of the help.
    file: Any = typer.Option("--schema", help="TOML file with the column roles below.", rich_help_panel="Columns")
    added = {"schema": Annotated[Path | None, file]}
    for role, meaning in _ROLES.items():
        value = _ROLE_VALUES.get(role, "COLUMNS" if role in _LISTS else "COLUMN")
        added[role] = Annotated[str | None, typer.Option(help=meaning, metavar=value, rich_help_panel="Columns")]
    # 2. Insert them after the required parameters of the command.
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    roles = [inspect.Parameter(name, parameters[0].kind, default=None, annotation=kind) for name, kind in added.items()]

    # 3. Call the command without them: it reads them from its context.
    @wraps(command)
    def run(**values: Any) -> None:
        command(**{parameter.name: values[parameter.name] for parameter in parameters})

    signature = inspect.Signature([*parameters[:required], *roles, *parameters[required:]])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


DEFAULT_MEMORY = "1 GiB"
_LARGE = "Tables larger than memory"
Stream = Annotated[
    bool,
    typer.Option(
        "--stream", help="Read the table in chunks instead of loading it into memory.", rich_help_panel=_LARGE
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder in which to cache the converted table.", show_default=False, rich_help_panel=_LARGE),
]
Memory = Annotated[
    str | None,
    typer.Option(help=f"Memory limit for choice sets (default: {DEFAULT_MEMORY}).", rich_help_panel=_LARGE),
]


def given_roles(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the roles in a command's parameters and its schema file, which need not be complete."""
    from pcmcnet.data import Schema

    entries: dict[str, Any] = {} if params["schema"] is None else Schema.from_toml(params["schema"]).to_dict()
    overrides = {role: _parse_role(role, params[role]) for role in _ROLES if params[role] is not None}
    return {role: value for role, value in {**entries, **overrides}.items() if value not in (None, [], {})}


def read_schema(file: str | Path | None, **roles: str | None) -> Schema:
    """Return the schema from a TOML file and command-line options. Command-line options override the file."""
    from pcmcnet.data import Schema

    entries: dict[str, Any] = {} if file is None else Schema.from_toml(file).to_dict()
    overrides = {role: _parse_role(role, text) for role, text in roles.items() if text is not None}
    for role in _PAIRS & overrides.keys():  # override the entries of single columns
        overrides[role] = {**entries.get(role, {}), **overrides[role]}
    entries |= overrides
    if "choice_set" not in entries:
        raise SchemaError(
            "no column with choice-set ids was given: add --choice-set COLUMN or --schema FILE. The command "
            "'pcmcnet check TABLE' guesses the columns."
        )
    return Schema.from_dict(entries)


def schema_of_command(params: Mapping[str, Any], purpose: str) -> Schema:
    """Return the schema in a command's parameters. Raise SchemaError if no column is declared to hold the choices."""
    schema = read_schema(params["schema"], **{role: params[role] for role in _ROLES})
    if schema.choices is None:
        raise SchemaError(f"{purpose} needs the choices: add --chosen COLUMN, --rank COLUMN or --counts COLUMN.")
    return schema


def keep_columns(schema: Schema, *columns: str | None) -> Schema:
    """Add grouping columns to the schema, unless the schema already keeps them."""
    added = [
        c for c in columns if c is not None and c not in (schema.choice_set, *schema.individual, *schema.kept_columns)
    ]
    return replace(schema, keep=(*schema.keep, *dict.fromkeys(added)))


def _parse_role(role: str, text: str) -> Any:
    if role in _LISTS and text.lstrip().startswith(("[", "(", "{")):
        raise SchemaError(f"--{role}: write names separated by commas, without brackets and quotes, as in price,time.")
    if role not in _PAIRS:
        return comma_separated(text) if role in _LISTS else text
    pairs = [word.rpartition("=") for word in comma_separated(text)]
    if not all(name and value for name, _, value in pairs):
        raise SchemaError(f"--{role}: expected comma-separated column={role.removesuffix('s')}, got {text!r}.")
    entries = {name.strip(): value.strip() for name, _, value in pairs}
    if len(entries) < len(pairs):
        raise SchemaError(f"--{role}: expected each column once, got {text!r}.")
    return entries


def comma_separated(text: str) -> list[str]:
    """Return the non-empty entries of a comma-separated list, stripped."""
    return [word.strip() for word in text.split(",") if word.strip()]


# -- Engine ------------------------------------------------------------------------------------------------------------
# Options for distributing the work over processes or machines.


_ENGINE_PANEL = "Several processes or machines"
DEFAULT_WORKERS = 2

Engine = Annotated[
    str,
    typer.Option(
        help="local: run in this process. ray: use workers of the Ray cluster at RAY_ADDRESS, or of a new cluster "
        "on this machine.",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help=f"Number of workers with --engine ray (default: {DEFAULT_WORKERS}).",
        show_default=False,
        rich_help_panel=_ENGINE_PANEL,
    ),
]


def worker_count(engine: str, workers: int | None) -> int:
    """Return the number of workers, which is 0 for ``--engine local``. Raise ConfigError if the options conflict."""
    from pcmcnet.checks import require_number, require_word
    from pcmcnet.errors import ConfigError

    require_word("engine", engine, ("local", "ray"))
    if engine == "local":
        if workers is not None:
            raise ConfigError("--workers needs --engine ray.")
        return 0
    from pcmcnet.cluster.engine import require_ray

    require_ray()  # raises before any table is read
    require_number("--workers", DEFAULT_WORKERS if workers is None else workers, whole=True, low=1)
    return workers or DEFAULT_WORKERS
