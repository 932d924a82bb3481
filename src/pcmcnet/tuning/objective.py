"""What a search minimises: options -> fit on the training sets of each part -> NLL of the held-out sets.

A network that stops early by a number does so on the held-out sets. Any other is not shown them where sets are few, or
where it learns its weight decay: it would be measured on sets that chose its weights. Of one validation part of many
sets it sees the loss after each epoch, to be pruned. The options that are kept are fitted again to all data, and what a
fit learns by itself is learnt again. A network that stopped early is trained for the mean number of epochs over the
parts, and no fewer than its patience, within which it is not judged.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import PcmcNetError, TrainingError
from pcmcnet.evaluation.metrics import nll
from pcmcnet.evaluation.predictions import predicted_log_p
from pcmcnet.models import load
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.networks.pcmcnet import one_network
from pcmcnet.progress import Report, log
from pcmcnet.selection import Fold
from pcmcnet.training.config import TrainConfig
from pcmcnet.tuning.held_out import HeldOut
from pcmcnet.tuning.result import FOLD, Measured, TrialRecord


@dataclass(frozen=True)
class Objective:
    """Fits one kind of model, with the options of ``base`` where a trial has none of its own."""

    base: ChoiceModel
    data: HeldOut
    seed: int
    device: str

    def __call__(self, options: Mapping[str, Any], on_epoch: Report) -> Measured:
        """Measure a configuration; ``on_epoch`` may end it, in the first part by its losses."""
        losses, records = [], []
        folds = self.data.folds
        # 1. Fit each fold and measure its held-out sets.
        for k, fold in enumerate(folds):
            model = self._with({**one_network(self.base.config), **options})  # the rule looks at what trials change
            self._fit(model, fold, on_epoch if k == 0 else _sign_of_life(on_epoch))
            losses.append(_losses(model, fold))
            records.append(model.record_)
            if len(folds) > 1:
                first = float(losses[0].sum() / fold.weights.sum()) if k == 0 else None
                on_epoch({"epoch": FOLD, "valid_loss": first})
        # 2. The mean loss, and the losses of blocks, by which two trials are compared.
        blocks = self.data.sum_by_block(losses)
        return Measured(
            loss=float(blocks.sum() / self.data.weights.sum()),
            epochs=_mean_epochs(records),
            decay=_mean_decay(records) if _learns_decay(self._with(options)) else None,
            blocks=tuple(map(float, blocks)),
        )

    def _fit(self, model: ChoiceModel, fold: Fold, on_epoch: Report) -> None:
        held_out = fold.held_out[0] if _watches(model, self.data.n_folds) else None
        model.fit(fold.train, held_out, self.seed, self.device, progress=False, on_epoch=on_epoch)

    def refit(self, kept: TrialRecord, folder: Path | None) -> ChoiceModel:
        """Fit a trial's options to all data and save the model, unless the folder holds that model already."""
        model = self._with(kept.options)
        model = self._with({**kept.options, **_length(model, kept.epochs)})
        if folder is not None and folder.exists():
            saved = self._saved(model, folder)
            if saved is not None:
                return saved
            shutil.rmtree(folder)
        log.info("fitting %s to all data", "the defaults" if kept.defaults else "the best options")
        model.fit(self.data.whole, None, self.seed, self.device, progress=False)
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
        facts = (saved.table_.fingerprint, saved.table_.seed)
        same = saved.config == model.config and facts == (self.data.whole.fingerprint(), self.seed)
        return saved if same else None


def _losses(model: ChoiceModel, fold: Fold) -> Floats:
    """(S,) weighted NLL of the held-out sets; one of weight 0 takes no part, not even where its value is infinite."""
    (data,) = fold.held_out
    each = nll(predicted_log_p(model, data), data.offsets, data.require_chosen("a search"))
    losses: Floats = np.where(data.weights > 0, each, 0.0) * data.weights
    if not np.isfinite(losses).all():
        raise TrainingError(f"the held-out sets have NLL {losses.sum()}: some choices got probability 0.")
    return losses


def _sign_of_life(on_epoch: Report) -> Report:
    """Leave word without a loss: a worker learns by it that its trial is over."""
    return lambda _: on_epoch({"epoch": FOLD, "valid_loss": None})


def _watches(model: ChoiceModel, n_folds: int | None) -> bool:
    """Tell a model that is shown the held-out sets while it is fitted."""
    if isinstance(model.config, TrainConfig) and model.config.min_delta == "noise":
        return n_folds is None and not _learns_decay(model)
    return model.stops_early


def _learns_decay(model: ChoiceModel) -> bool:
    """Tell a network whose fit learns its weight decay and goes through all epochs."""
    config = model.config
    return isinstance(config, TrainConfig) and (config.weight_decay, config.min_delta) == ("auto", "noise")


def _mean_epochs(records: list[Any]) -> int | None:
    """Return the mean number of epochs over the folds; None for a model that does not train in epochs."""
    epochs = [record.epochs for record in records if hasattr(record, "epochs")]
    return math.ceil(sum(epochs) / len(epochs)) if epochs else None


def _mean_decay(records: list[Any]) -> float:
    """Return the geometric mean of the weight decays that the folds learnt."""
    return float(np.exp(np.mean(np.log([record.weight_decay for record in records]))))


def _length(model: ChoiceModel, epochs: int | None) -> dict[str, int]:
    """Return the epochs of the last fit where a trial stopped before all of them."""
    config = model.config
    if epochs is None or not isinstance(config, TrainConfig) or _learns_decay(model):
        return {}
    epochs = max(epochs, config.patience)
    return {"epochs": epochs} if epochs < config.passes else {}
