"""The names that a shell completes: of models, tables, simulators and kinds of columns.

They stand here as words, so that help and completion need none of the modules that define them: those load PyTorch.
The tests compare them with the registries.
"""

from __future__ import annotations

MODELS = (
    *("bradley-terry", "pcmc-linear", "mnl", "lc-mnl", "nested-mnl", "pcmc", "pcmcnet", "dpn", "rf", "rank-by"),
    *("thurstone", "uniform", "cross-nested-mnl"),
)
BUILT = ("mnl+individual", "lc-mnl+individual")  # for each table of a leaderboard
TABLES = (
    *("itinerary", "mtc-work", "swissmetro", "mode-canada", "train", "modechoice", "optima", "mode", "electricity"),
    *("car", "heating", "hc", "vehicle", "fishing", "catsup", "cracker", "yogurt", "ketchup", "tuna"),
)
SIMULATORS = ("mlba", "airline", "rock-paper-scissors")
KINDS = ("vector", "datetime", "multi", "text", "image", "id", "piecewise", "spline")
SPACES = ("default", "paper", "wide")


def model_names(incomplete: str) -> list[str]:
    """Complete the name of a model."""
    return _beginning(incomplete, MODELS)


def model_lists(incomplete: str) -> list[str]:
    """Complete the last of several models: ``uniform,Small=pcm``.

    Examples
    --------
    >>> model_lists("uniform,Small=pcmcn")
    ['uniform,Small=pcmcnet']
    """
    return _last(incomplete, MODELS)


def contestant_lists(incomplete: str) -> list[str]:
    """Complete the last of several models of a leaderboard."""
    return _last(incomplete, (*MODELS, *BUILT))


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
