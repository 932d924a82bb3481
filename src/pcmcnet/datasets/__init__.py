"""Data sets: an example table, simulators with known choice probabilities, and tables from installed packages.

A module is imported when it is first used: the list of tables needs none of the simulators.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcmcnet.datasets import airline, catalogue, intercity, lpmc, market, markov, mlba, packaged, truth

__all__ = ["airline", "catalogue", "intercity", "lpmc", "market", "markov", "mlba", "packaged", "truth"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
