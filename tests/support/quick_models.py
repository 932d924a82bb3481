"""Options that make models quick to fit, for tests over all registered models.

Options that a model would choose from the data, such as the weight decay, are fixed: a search needs many fits.
"""

from typing import Any

_SHORT: dict[str, Any] = {"epochs": 1, "batch_size": 16, "weight_decay": 1.0}
_FOREST: dict[str, Any] = {"trees": 10, "min_samples_leaf": 5}

NETWORKS: dict[str, dict[str, Any]] = {
    "deephalo": {"hidden": (4,), "width": 4, "heads": 2, **_SHORT},
    "dlcl": _SHORT,
    "fate": {"hidden": (4,), "set_hidden": (4,), **_SHORT},
    "feta": {"hidden": (4,), **_SHORT},
    "lcl": _SHORT,
    "tcnet": {"hidden": (4,), "width": 4, "heads": 2, **_SHORT},
}
QUICK: dict[str, dict[str, Any]] = {
    **NETWORKS,
    "boosted": _FOREST,
    "cdm": {"ridge": 1.0},
    "dpn": {"hidden": 4, **_SHORT},
    "hb-mnl": {"chains": 2, "burn_in": 20, "draws": 40, "thin": 1},
    "lc-mnl": {"classes": 2, "starts": 1},
    "lmnl": {"hidden": (4,), **_SHORT},
    "mixed-mnl": {"draws": 16},
    "pcmc": {"ridge": 1.0, "restarts": 1},
    "pcmc-linear": {"ridge": 1.0},
    "pcmcnet": {"hidden": (4,), **_SHORT},
    "reslogit": {"layers": 2, **_SHORT},
    "rf": _FOREST,
    "rumnet": {"hidden": (4,), "samples": 2, **_SHORT},
    "stacking": {"models": ("mnl", "pcmcnet"), "options": ({}, {"hidden": (4,), **_SHORT, "members": 1}), "folds": 2},
    "tastenet": {"hidden": (4,), **_SHORT},
}
