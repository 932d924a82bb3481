"""The default spaces: for each registered model, the options worth a search and how far to go.

"default" has what matters most for PCMC-Net, weight decay first: with a number there, a fit has none to learn and is
several times as fast. "paper" is the space of the paper's search. "wide" has more than both. Models that the paper does
not tune have one space under all names. The forms are those of ``pcmcnet.tuning.space``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = ("default", "paper", "wide")

_DECAY = (0.03, 64.0, "log")  # from a network left to itself to a logit
_DEFAULT = {
    "weight_decay": _DECAY,
    "lr": (1e-3, 2e-2, "log"),
    "layers": [1, 2, 3],
    "nodes": [16, 32, 64, 128],
    "dropout": (0.0, 0.5),
}
_PAPER = {
    "lr": [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1],
    "batch_size": [1, 2, 4, 8, 16],
    "layers": [1, 2, 3],
    "nodes": [32, 64, 128, 256, 512],
    "activation": ["relu", "sigmoid", "tanh", "leaky_relu"],
}
_WIDE = {
    "lr": (1e-4, 1e-1, "log"),
    "batch_size": [1, 2, 4, 8, 16, 32, 64, 128],
    "layers": [1, 2, 3],
    "nodes": [16, 32, 64, 128, 256, 512],
    "activation": ["relu", "sigmoid", "tanh", "leaky_relu", "silu", "gelu"],
    "dropout": (0.0, 0.5),
    "weight_decay": _DECAY,
    "rate": ["exp", "softplus"],
    "tails": ["bend", "keep"],
}
_POINTER = {
    "lr": (1e-4, 1e-1, "log"),
    "batch_size": [16, 32, 64, 128],
    "hidden": [8, 16, 32, 64, 128, 256],
    "layers": [1, 2],
    "bidirectional": [False, True],
    "dropout": (0.0, 0.5),
    "weight_decay": _DECAY,
}
_CONTEXT_LOGIT = {"weight_decay": _DECAY, "lr": (1e-3, 2e-2, "log")}
_SET_NETWORK = {**_DEFAULT, "activation": ["leaky_relu", "tanh", "silu"]}
_FOREST = {
    "min_samples_leaf": [1, 2, 5, 10, 20, 50],
    "max_features": ["sqrt", 0.25, 0.5, 0.75, 1.0],
    "max_depth": [None, 4, 8, 16],
    "floor": (1e-6, 1e-2, "log"),
}
_BOOSTED = {
    "lr": (0.02, 0.2, "log"),
    "leaves": [4, 8, 16, 32],
    "min_samples_leaf": [5, 10, 20, 50],
    "l2": (0.1, 30.0, "log"),
    "max_features": [0.25, 0.5, 0.75, 1.0],
}
_UTILITY_NETWORK = {
    "weight_decay": _DECAY,
    "lr": (1e-3, 2e-2, "log"),
    "layers": [1, 2, 3],
    "nodes": [16, 32, 64, 128],
}
_STRENGTHS = {"smoothing": (1e-3, 10.0, "log")}
_RIDGE = {"ridge": (1e-2, 1e3, "log")}
_POOLING = {"min_chosen": [1, 3, 10, 30, 100]}


def _same(space: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return dict.fromkeys(NAMES, space)


SPACES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "pcmcnet": {"default": _DEFAULT, "paper": _PAPER, "wide": _WIDE},
    "dpn": _same(_POINTER),
    "lcl": _same(_CONTEXT_LOGIT),
    "dlcl": _same(_CONTEXT_LOGIT),
    "fate": _same(_SET_NETWORK),
    "feta": _same(_SET_NETWORK),
    "tcnet": _same({**_SET_NETWORK, "layers": [1, 2], "width": [16, 32, 64], "blocks": [1, 2]}),
    "deephalo": _same({**_SET_NETWORK, "order": [2, 3, 4], "width": [8, 16, 32], "heads": [2, 4, 8]}),
    "rf": _same(_FOREST),
    "cdm": _same({**_STRENGTHS, **_RIDGE}),
    "boosted": _same(_BOOSTED),
    "lmnl": _same({**_UTILITY_NETWORK, "dropout": (0.0, 0.5)}),
    "reslogit": _same({"weight_decay": _DECAY, "lr": (1e-3, 2e-2, "log"), "layers": [1, 2, 4, 8, 16]}),
    "rumnet": _same({**_UTILITY_NETWORK, "samples": [2, 4, 8]}),
    "tastenet": _same({**_UTILITY_NETWORK, "dropout": (0.0, 0.5)}),
    "pcmc": _same({**_STRENGTHS, "ridge": (1e-3, 10.0, "log")}),
    "pcmc-linear": _same({"l2": (1e-4, 100.0, "log")}),
    "bradley-terry": _same(_RIDGE),
    "thurstone": _same(_RIDGE),
    "mnl": _same(_POOLING),
    "nested-mnl": _same(_POOLING),
    "cross-nested-mnl": _same(_POOLING),
    "mixed-mnl": _same({"prior": (1e-3, 10.0, "log"), **_POOLING}),
    "lc-mnl": _same({"classes": [1, 2, 3, 4, 5], "prior": (1e-3, 10.0, "log"), **_POOLING}),
}
