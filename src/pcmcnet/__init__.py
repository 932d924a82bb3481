"""Feature-based pairwise choice Markov chains: fit a table, ask for probabilities.

The public names are listed in ``pcmcnet.api``, which is loaded, PyTorch and all, when one of them is first asked for:
the command line answers ``--help`` without it, and tables are read without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcmcnet.api import *  # noqa: F403 - the list itself

    __version__: str
else:
    _LIGHT = {"pcmcnet.data": ("ChoiceData", "ScannedData", "Schema"), "pcmcnet.errors": ("PcmcNetError", "StopFit")}

    def __getattr__(name: str) -> Any:
        for module, names in _LIGHT.items():
            if name in names:
                return getattr(import_module(module), name)
        if not name.startswith("__") or name in ("__all__", "__version__"):  # tools ask any module for other ones
            for names in (vars(import_module("pcmcnet.api")), globals()):  # the latter: plots, for example
                if name in names:
                    return names[name]
        raise AttributeError(f"module 'pcmcnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("pcmcnet.api").__all__, "__version__"})
