"""Feature-based pairwise choice Markov chains: fit them to a table of choices and predict probabilities.

The public names are listed in ``pcmcnet.api``. ``pcmcnet.api``, which needs PyTorch, is imported when one of its names
is first used, so ``pcmcnet --help`` and reading a table do not load PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcmcnet.api import *  # noqa: F403 - re-exports the whole list

    __version__: str
else:
    _LIGHT = {
        "pcmcnet.data": ("CatalogueData", "ChoiceData", "PairTable", "ScannedData", "Schema"),
        "pcmcnet.errors": ("PcmcNetError", "StopFit"),
    }

    def __getattr__(name: str) -> Any:
        # 1. Names that do not need PyTorch.
        for module, names in _LIGHT.items():
            if name in names:
                return getattr(import_module(module), name)
        # 2. All other names. Tools probe modules for special names such as __wrapped__; these do not load PyTorch.
        if not name.startswith("__") or name in ("__all__", "__version__"):
            for names in (vars(import_module("pcmcnet.api")), globals()):  # globals() has subpackages, such as plots
                if name in names:
                    return names[name]
        raise AttributeError(f"module 'pcmcnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, and the special names of every module. Subpackages are imported by their names."""
    special = {name for name in globals() if name.startswith("__")}
    return sorted({*special, *import_module("pcmcnet.api").__all__, "__version__"})
