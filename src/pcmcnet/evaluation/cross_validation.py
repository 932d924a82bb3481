"""The cells of a comparison: one model, fitted on one training part and asked about one test part.

A fold is three lists of choice sets: those to fit on, those held out of them for early stopping, and those tested.
Everything that a model learns, scales and categories included, it learns from the first two; it is asked about the
third with the choices taken out.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.splits import fold_parts, generator, split_parts
from pcmcnet.errors import ConfigError, PcmcNetError
from pcmcnet.evaluation.per_set import model_metrics
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.storage.versions import package_version


class Parts(NamedTuple):
    """The choice sets of a fold."""

    train: ChoiceData
    valid: ChoiceData | None
    test: ChoiceData


@dataclass(frozen=True)
class Fold:
    """Sorted positions of the choice sets of each part."""

    train: Ints
    valid: Ints | None
    test: Ints

    def cut(self, data: ChoiceData) -> Parts:
        """Take the three parts out of the table."""
        valid = None if self.valid is None else data.subset(self.valid)
        return Parts(data.subset(self.train), valid, data.subset(self.test))


@dataclass(frozen=True)
class Cell:
    """What was measured: metrics (S,) by name over the sets of the test part, and what they cost."""

    metrics: dict[str, Floats]
    fit_seconds: float
    predict_seconds: float
    parameters: int
    where: str = ""  # machine and device
    caveats: tuple[str, ...] = ()  # of the fitted model


@dataclass(frozen=True)
class Failure:
    """Why there is nothing to measure."""

    kind: str  # the exception's class
    message: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Put an exception into one line; our own say all in their message, others also by their class."""
        text = " ".join(str(error).split())
        kind = type(error).__name__
        return cls(kind, text if isinstance(error, PcmcNetError) and text else f"{kind}: {text}".rstrip(": "))


def plan_folds(
    groups: Ints, *, folds: int | None, split: Sequence[float] | None, valid: float, seed: int
) -> list[Fold]:
    """Cut choice sets, given by their groups (S,), as ``ChoiceData.folds`` and ``ChoiceData.split`` do."""
    if folds is not None and split is not None:
        raise ConfigError(
            "folds and split exclude each other: give one number of folds, or two shares such as (.8, .2)."
        )
    require_number("valid", valid, low=0, high=1, open_high=True)
    if split is None:
        tests = fold_parts(groups, 5 if folds is None else folds, generator(seed))
    elif not isinstance(split, Sequence) or isinstance(split, str) or len(split) != 2:
        raise ConfigError(f"split must be two shares, to fit on and to test on, such as (.8, .2); got {split!r}.")
    else:
        tests = split_parts(groups, split, generator(seed))[1:]
    return [_fold(groups, test, valid, seed) for test in tests]


def _fold(groups: Ints, test: Ints, valid: float, seed: int) -> Fold:
    train = np.setdiff1d(np.arange(len(groups)), test)
    if not valid:
        return Fold(train, None, test)
    kept, held_out = split_parts(groups[train], (1 - valid, valid), generator(seed))
    return Fold(train[kept], train[held_out], test)


def fresh(model: ChoiceModel) -> ChoiceModel:
    """Return an unfitted model of the same class with the same options."""
    return type(model)(**asdict(model.config), **model.extras)


def model_identity(model: ChoiceModel) -> dict[str, Any]:
    """Return what a fit of the model depends on beside the data and the seed; survives JSON."""
    kind = type(model)
    return {"model": model.name, "class": f"{kind.__module__}.{kind.__qualname__}", **model.identity}


def measure(model: ChoiceModel, parts: Parts, *, top: Sequence[int], seed: int, device: str) -> Cell:
    """Fit a copy of the model and ask it about the test part."""
    chosen = parts.test.require_chosen("a comparison")
    question = replace(parts.test, chosen=None)  # no model can look at the answers
    fitted = fresh(model)
    began = time.perf_counter()
    train, valid = parts.train, parts.valid
    if valid is not None and not fitted.stops_early:
        train, valid = train.concat(valid), None  # nothing is held back from a model that has no use for it
    fitted.fit(train, valid, seed=seed, device=device, progress=False)
    between = time.perf_counter()
    per_set = model_metrics(fitted, question, chosen, top)
    done = time.perf_counter()
    where = f"{machine()}, torch {package_version('torch')}; device {device}"
    return Cell(per_set, between - began, done - between, int(fitted.num_parameters), where, fitted.caveats)


def machine() -> str:
    """Where it is measured: seconds mean nothing without it."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
