"""The names that a shell completes: of models, tables, simulators and kinds of columns.

Help and completion do without the modules that define them, which load PyTorch: names of models are read out of their
source, the others stand here as words. The tests compare all of them with the registries.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r'^    name = "([\w-]+)"$', re.MULTILINE)  # in the class of a model

BUILT = ("mnl+individual", "lc-mnl+individual")  # for each table of a leaderboard
TABLES = (
    *("itinerary", "mtc-work", "swissmetro", "mode-canada", "train", "modechoice", "optima", "mode", "electricity"),
    *("car", "heating", "hc", "vehicle", "fishing", "catsup", "cracker", "yogurt", "ketchup", "tuna"),
)
SIMULATORS = ("mlba", "airline", "rock-paper-scissors")
KINDS = ("vector", "datetime", "multi", "text", "image", "id", "piecewise", "spline")
SPACES = ("default", "paper", "wide")


@cache
def models() -> tuple[str, ...]:
    """Return the names of the models."""
    files = (Path(__file__).parents[1] / "models").rglob("*.py")
    own = [file.read_text("utf-8") for file in files if file.parent.name != "wrappers"]
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
