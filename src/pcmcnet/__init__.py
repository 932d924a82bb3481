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
        hint = "" if name.startswith("_") else _instead_of(name)
        raise AttributeError(f"module 'pcmcnet' has no attribute {name!r}.{hint}")

    def _instead_of(name: str) -> str:
        """Return the remedy for a name that pcmcnet does not have."""
        from pcmcnet.errors import did_you_mean

        other = {
            **dict.fromkeys(["read-csv", "read-table", "from-long", "read", "dataset"], "ChoiceData.from_long"),
            **dict.fromkeys(["from-wide"], "ChoiceData.from_wide"),
            **dict.fromkeys(["train-test-split", "split"], "ChoiceData.split"),
            **dict.fromkeys(["logit", "mnlogit", "conditionallogit", "multinomiallogit", "mlogit", "clogit"], "MNL"),
            **dict.fromkeys(["mixedlogit", "mixl", "mxl"], "MixedMNL"),
            **dict.fromkeys(["nestedlogit", "nl"], "NestedMNL"),
            **dict.fromkeys(["latentclass", "latentclasslogit", "lcm"], "LatentClassMNL"),
            **dict.fromkeys(["optimize-prices"], "optimise_prices"),
            **dict.fromkeys(["optimize-offer"], "optimise_offer"),
            **dict.fromkeys(["cross-validate", "cross-val-score"], "compare"),
            **dict.fromkeys(["fit", "model", "pcmc-net"], "PCMCNet"),
        }
        public = [*import_module("pcmcnet.api").__all__, "ChoiceData.from_long", "ChoiceData.from_wide"]
        hint = did_you_mean(name, [*public, "ChoiceData.split"], other)
        return hint if hint.endswith("?") else ""


def __dir__() -> list[str]:
    """Return the public names, and the special names of every module. Subpackages are imported by their names."""
    special = {name for name in globals() if name.startswith("__")}
    return sorted({*special, *import_module("pcmcnet.api").__all__, "__version__"})
