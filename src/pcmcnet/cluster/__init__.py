"""Fit, predict, tune and scan with several processes or machines, using Ray.

The functions are imported on first access, and Ray is imported when one of them is called, because the process of the
progress board needs neither these functions nor PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcmcnet.cluster.prediction import predict, write_offers
    from pcmcnet.cluster.search import tune
    from pcmcnet.cluster.training import fit, scan

__all__ = ["fit", "predict", "scan", "tune", "write_offers"]
_HOMES = {**dict.fromkeys(("fit", "scan"), "training"), **dict.fromkeys(("predict", "write_offers"), "prediction")}
_HOMES |= {"tune": "search"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"pcmcnet.cluster.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'pcmcnet.cluster' has no attribute {name!r}")
