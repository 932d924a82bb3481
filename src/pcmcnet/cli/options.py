"""Options that several commands share, each declared once: models, seeds, devices, roles of columns, the engine.

Help and completion load none of the modules that define the names a shell completes, since these load PyTorch: names of
models are read out of their source, the others stand here as words. The tests compare all of them with the registries.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcmcnet.errors import SchemaError

if TYPE_CHECKING:
    from pcmcnet.data import Schema

# -- Completion --------------------------------------------------------------------------------------------------------


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
    texts = [file.read_text("utf-8") for file in files if file.stem not in _WRAPPERS]
    return tuple(sorted(name for text in texts for name in _NAME.findall(text)))


def _completing(names: Callable[[], tuple[str, ...]], *, several: bool = False) -> Callable[[str], list[str]]:
    """Return what completes one of the names, or the last of several: ``uniform,Small=pcm``."""

    def complete(incomplete: str) -> list[str]:
        at = max(incomplete.rfind(","), incomplete.rfind("=")) + 1 if several else 0
        return [incomplete[:at] + name for name in names() if name.startswith(incomplete[at:])]

    return complete


model_names = _completing(models)
model_lists = _completing(models, several=True)
contestant_lists = _completing(lambda: (*models(), *BUILT), several=True)
table_names = _completing(lambda: TABLES)
table_lists = _completing(lambda: (*TABLES, *SIMULATORS), several=True)
simulator_names = _completing(lambda: SIMULATORS)
space_names = _completing(lambda: SPACES)


# -- Models, tables and fits -------------------------------------------------------------------------------------------


Table = Annotated[
    Path, typer.Argument(help="CSV, Parquet or Arrow file, or a folder of Parquet; a row per alternative.")
]
SavedModel = Annotated[Path, typer.Argument(help="Folder written by `pcmcnet fit`.")]
ModelName = Annotated[str, typer.Option(help="Kind of model; `pcmcnet models` lists them.", autocompletion=model_names)]
By = Annotated[str | None, typer.Option(help="Column whose groups stay whole when sets are held out.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Top = Annotated[str, typer.Option(help="Report the accuracy within the first N, for these N.")]


# -- Roles -------------------------------------------------------------------------------------------------------------
# The options that say what each column is, for the commands that read a training table.


_LISTS = ("individual", "features", "categorical", "keep")
_ROLES = {
    "choice_set": "Column with the id of the choice set.",
    "chosen": "Column 0/1: which alternative was chosen.",
    "rank": "In place of --chosen: column with the place in a ranking, 1 for the best.",
    "alternative": "Column with the alternative's label.",
    "person": "Column with the id of the person, whose sets stay together.",
    "individual": "Columns constant within a set, separated by commas.",
    "features": "Columns of the alternative, separated by commas.",
    "categorical": "Which of those are categorical; by type if not given.",
    "available": "Column 0/1: rows with 0 are left out.",
    "weight": "Column with the weight of the set.",
    "keep": "Columns carried along for grouping, not shown to the model.",
    "outside": "Name of an alternative of every set without rows, such as none.",
    "conflict": "error, or first: individual columns that vary in a set.",
    "missing": "error, or indicator: missing values.",
    "kinds": f"Kinds of other columns, as column=kind separated by commas: {', '.join(KINDS)}.",
}


def with_roles(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for the schema file and for each role to a command, which reads them by :func:`of_command`."""
    # 1. Options of text in a panel of their own.
    file: Any = typer.Option("--schema", help="TOML file with the roles below.", rich_help_panel="Columns")
    added = {"schema": Annotated[Path | None, file]}
    for role, meaning in _ROLES.items():
        added[role] = Annotated[str | None, typer.Option(help=meaning, rich_help_panel="Columns")]
    # 2. They stand behind the parameters that a command cannot do without.
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    needed = sum(parameter.default is parameter.empty for parameter in own)
    roles = [inspect.Parameter(name, own[0].kind, default=None, annotation=kind) for name, kind in added.items()]

    # 3. The command itself is called without them: they are in its context.
    @wraps(command)
    def run(**values: Any) -> None:
        command(**{parameter.name: values[parameter.name] for parameter in own})

    run.__signature__ = inspect.Signature([*own[:needed], *roles, *own[needed:]])  # type: ignore[attr-defined]
    return run


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
    wanted = [
        c for c in columns if c is not None and c not in (schema.choice_set, *schema.individual, *schema.kept_columns)
    ]
    return replace(schema, keep=(*schema.keep, *dict.fromkeys(wanted)))


def _read(role: str, text: str) -> Any:
    if role != "kinds":
        return words(text) if role in _LISTS else text
    pairs = [word.rpartition("=") for word in words(text)]
    if not all(name and kind for name, _, kind in pairs):
        raise SchemaError(f"--kinds: expected column=kind separated by commas, got {text!r}.")
    kinds = {name.strip(): kind.strip() for name, _, kind in pairs}
    if len(kinds) < len(pairs):
        raise SchemaError(f"--kinds: expected each column once, got {text!r}.")
    return kinds


def words(text: str) -> list[str]:
    """Return what stands between the commas of a text."""
    return [word.strip() for word in text.split(",") if word.strip()]


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
