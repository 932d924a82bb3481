"""What a search minimises: options -> fit on the training part -> NLL of the validation part.

Networks stop early by the rule of their own options, on the validation part. The best options are fitted again to both
parts together; a network then trains for as many epochs as its best trial took, and does not stop early.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import InputError, PcmcNetError, TrainingError
from pcmcnet.evaluation.predictions import require_sets
from pcmcnet.evaluation.watch import log
from pcmcnet.models import load
from pcmcnet.models.base import ChoiceModel
from pcmcnet.training.config import require_number
from pcmcnet.training.progress import Report
from pcmcnet.tuning.result import Measured, TrialRecord


@dataclass(frozen=True)
class Parts:
    """What trials are fitted on, what they are measured on, and both together."""

    train: ChoiceData
    valid: ChoiceData
    both: ChoiceData

    @classmethod
    def cut(cls, data: Any, valid: Any, by: Any, seed: int) -> Parts:
        """Hold out a share of the data, or take the validation part given."""
        if not isinstance(data, ChoiceData):
            raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
        data.require_chosen("a search")
        if isinstance(valid, ChoiceData):
            if by is not None:
                raise InputError("by says how to cut the data; with a validation part given there is nothing to cut.")
            valid.require_chosen("a search")
            parts = cls(data, valid, data.concat(valid))
        else:
            require_number("valid", valid, low=0, high=1, open_low=True, open_high=True)
            train, held_out = data.split((1 - valid, valid), seed=seed, by=by)
            parts = cls(train, held_out, data)
        for part in (parts.train, parts.valid):
            require_sets(part)
        return parts


@dataclass(frozen=True)
class Objective:
    """Fits one kind of model, with the options of ``base`` where a trial has none of its own."""

    base: ChoiceModel
    parts: Parts
    seed: int
    device: str

    def __call__(self, options: Mapping[str, Any], on_epoch: Report) -> Measured:
        """Measure a configuration; ``on_epoch`` may end it."""
        model, parts = self._with(options), self.parts
        held_out = parts.valid if model.stops_early else None
        model.fit(parts.train, held_out, self.seed, self.device, progress=False, on_epoch=on_epoch)
        loss = -model.score(parts.valid)
        if not math.isfinite(loss):
            raise TrainingError(f"the validation part has NLL {loss}: some choices got probability 0.")
        return Measured(loss, model.training_.get("epochs"))

    def refit(self, best: TrialRecord, folder: Path | None) -> ChoiceModel:
        """Fit the best configuration to both parts and save it, unless the folder holds that model already."""
        epochs = {} if best.epochs is None else {"epochs": best.epochs}
        model = self._with({**best.options, **epochs})
        if folder is not None and folder.exists():
            saved = self._saved(model, folder)
            if saved is not None:
                return saved
            shutil.rmtree(folder)
        log.info("fitting the best options to training and validation part together")
        model.fit(self.parts.both, None, self.seed, self.device, progress=False)
        if folder is not None:
            model.save(folder)
        return model

    def _with(self, options: Mapping[str, Any]) -> ChoiceModel:
        """Return the model with a trial's options. A search fits the best again itself, so ``refit`` is off."""
        refit = {"refit": False} if "refit" in {f.name for f in fields(self.base.config)} else {}
        return type(self.base)(**{**asdict(self.base.config), **options, **refit}, **self.base.extras)

    def _saved(self, model: ChoiceModel, folder: Path) -> ChoiceModel | None:
        """Return the model of a folder if it is the one that a fit would give."""
        try:
            saved = load(folder, **model.extras)
        except PcmcNetError as error:
            log.info("the saved model is made again: %s", error)
            return None
        facts = (saved.training_.get("fingerprint"), saved.training_.get("seed"))
        same = saved.config == model.config and facts == (self.parts.both.fingerprint(), self.seed)
        return saved if same else None
