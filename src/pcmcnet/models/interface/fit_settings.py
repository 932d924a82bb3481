"""How a fit runs: the arguments of ``ChoiceModel.fit`` except the data, checked, for the model's own ``_fit``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcmcnet.data import ChoiceData, ScannedData
from pcmcnet.errors import InputError
from pcmcnet.progress import Report


@dataclass(frozen=True, kw_only=True)
class FitRun:
    """How a fit runs, in addition to the model's options: see :meth:`ChoiceModel.fit`."""

    seed: int = 0
    device: str = "auto"
    progress: bool = True
    run_folder: Path | None = None
    resume: bool = False
    on_epoch: Report | None = None
    init: Any = None  # what to start from, as ``_start`` returned it
    fingerprint: str = ""  # of the training part, which takes a while to hash
    warn: bool = True  # whether to log warnings about the validation part

    @property
    def inner_arguments(self) -> dict[str, Any]:
        """The arguments for the ``fit`` of a model inside this one."""
        names = ("seed", "device", "progress", "run_folder", "resume", "on_epoch", "init")
        return {name: getattr(self, name) for name in names}


def require_part(part: Any, what: str) -> None:
    """Refuse what is no table of choices, or has none that counts; ``what`` names the argument."""
    if not isinstance(part, ChoiceData | ScannedData):
        raise InputError(f"{what}: expected ChoiceData, got {type(part).__name__}: see ChoiceData.from_long.")
    part.require_chosen("fitting")
    if not (part.weights.any() if isinstance(part, ChoiceData) else len(part.counted())):
        raise InputError(f"{what}: expected a choice set with a weight above 0, got none in {len(part)}.")
