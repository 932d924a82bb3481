"""Options that make networks quick to fit, for tests that go through all registered models."""

from typing import Any

_SHORT: dict[str, Any] = {"epochs": 1, "batch_size": 16, "weight_decay": 1.0}

NETWORKS: dict[str, dict[str, Any]] = {
    "deephalo": {"hidden": (4,), "width": 4, "heads": 2, **_SHORT},
    "dlcl": _SHORT,
    "fate": {"hidden": (4,), "set_hidden": (4,), **_SHORT},
    "feta": {"hidden": (4,), **_SHORT},
    "lcl": _SHORT,
    "tcnet": {"hidden": (4,), "width": 4, "heads": 2, **_SHORT},
}
