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

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.subsets import fold_parts, generator, split_parts
from pcmcnet.errors import InputError, PcmcNetError, TrainingError
from pcmcnet.evaluation.metrics import nll
from pcmcnet.evaluation.predictions import predicted_log_p, require_sets
from pcmcnet.models import load
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.networks.mixture_model import one_network
from pcmcnet.progress import EpochCallback, log
from pcmcnet.selection import Fold, folds_from_parts, held_out_groups, held_out_weights
from pcmcnet.training.config import TrainConfig
from pcmcnet.tuning.result import FIRST_FOLD_STEP, Measurement, TrialRecord

# -- Held out ----------------------------------------------------------------------------------------------------------
# What the trials of a search are fitted to and measured on.
#
#     fewer than 2,000 sets    2 to 4 folds, each held out in turn: every set measures a trial once
#     more, or a part given    one validation part
#
# The noise of a mean over 100 sets is several times as large as what good options gain; all sets of a small table
# together tell more. Persons, or groups of `by`, are never cut. Losses are added up by blocks of whole groups, so that
# two trials can be compared block by block however large the table is.


SMALL_TABLE_SETS = 2_000  # choice sets below which folds take the place of one validation part
MAX_FOLDS = 4  # a trial is fitted to each of them
MAX_BLOCKS = 500  # tables of fewer groups have a block for each


@dataclass(frozen=True)
class HeldOut:
    """The folds that a trial goes through, whose groups are blocks.

    Parameters
    ----------
    folds
        Choice sets to fit and choice sets to measure; the groups of the latter are their blocks.
    whole
        All data together.
    n_folds
        Number of folds that the data were cut into; None for one validation part.
    """

    folds: tuple[Fold, ...]
    whole: ChoiceData
    n_folds: int | None

    @classmethod
    def cut(cls, data: Any, valid: Any, by: Any, seed: int) -> HeldOut:
        """Hold out a share of the data, or fold after fold of few, or take the validation part given."""
        if not isinstance(data, ChoiceData):
            raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
        data.require_chosen("a search")
        if isinstance(valid, ChoiceData):
            held_out = cls._given(data, valid, by)
        else:
            require_number("valid", valid, low=0, high=1, open_low=True, open_high=True)
            held_out = cls._drawn(data, float(valid), data.groups(by), seed)
        for fold in held_out.folds:
            for sets in (fold.train, *fold.held_out):
                require_sets(sets)
        return held_out

    @classmethod
    def _given(cls, data: ChoiceData, valid: ChoiceData, by: Any) -> HeldOut:
        if by is not None:
            raise InputError("by says how to cut the data; with a validation part given there is nothing to cut.")
        valid.require_chosen("a search")
        return cls((Fold(data, (valid,), _blocks(valid.groups())),), data.concat(valid), None)

    @classmethod
    def _drawn(cls, data: ChoiceData, valid: float, groups: Ints, seed: int) -> HeldOut:
        n_folds = number_of_folds(len(data), len(np.unique(groups)), valid)
        if n_folds is None:
            parts = split_parts(groups, (1 - valid, valid), generator(seed))[1:]
        else:
            parts = fold_parts(groups, n_folds, generator(seed))
        return cls(tuple(folds_from_parts(data, parts, _blocks(groups))), data, n_folds)

    def sum_by_block(self, values: list[Floats]) -> Floats:
        """Add up values of held-out sets (S,), fold by fold, within their blocks."""
        return np.bincount(held_out_groups(self.folds), np.concatenate(values)).astype(np.float64)

    @property
    def weights(self) -> Floats:
        """Weight of each block that is held out, 0 for others (blocks,)."""
        return self.sum_by_block([held_out_weights(self.folds)])


def number_of_folds(sets: int, groups: int, valid: float) -> int | None:
    """Return how many folds hold out about that share each, from 2 to 4; None where one part will do.

    >>> number_of_folds(500, 500, 0.2), number_of_folds(500, 500, 0.3), number_of_folds(2_000, 2_000, 0.2)
    (4, 3, None)
    """
    if sets >= SMALL_TABLE_SETS or groups < 2:
        return None
    return min(max(round(1 / valid), 2), MAX_FOLDS, groups)


def _blocks(groups: Ints) -> Ints:
    blocks: Ints = np.unique(groups, return_inverse=True)[1].reshape(-1) % MAX_BLOCKS
    return blocks


# -- Objective ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """Fits one kind of model, with the options of ``base`` where a trial has none of its own."""

    base: ChoiceModel
    data: HeldOut
    seed: int
    device: str

    def __call__(self, options: Mapping[str, Any], on_epoch: EpochCallback) -> Measurement:
        """Measure a configuration; ``on_epoch`` may end it, in the first part by its losses."""
        losses, records = [], []
        folds = self.data.folds
        # 1. Fit each fold and measure its held-out sets.
        for k, fold in enumerate(folds):
            model = self._with({**one_network(self.base.config), **options})  # the rule looks at what trials change
            held_out = fold.held_out[0] if _watches(model, self.data.n_folds) else None
            report = on_epoch if k == 0 else _without_loss(on_epoch)
            model.fit(fold.train, held_out, self.seed, self.device, progress=False, on_epoch=report)
            losses.append(_losses(model, fold))
            records.append(model.record_)
            if len(folds) > 1:
                first = float(losses[0].sum() / fold.weights.sum()) if k == 0 else None
                on_epoch({"epoch": FIRST_FOLD_STEP, "valid_loss": first})
        # 2. The mean loss, the mean number of epochs, and the geometric mean of the weight decays that folds learnt.
        blocks = self.data.sum_by_block(losses)
        epochs = [record.epochs for record in records if hasattr(record, "epochs")]
        learns = _learns_decay(self._with(options))
        return Measurement(
            loss=float(blocks.sum() / self.data.weights.sum()),
            epochs=math.ceil(sum(epochs) / len(epochs)) if epochs else None,
            decay=float(np.exp(np.mean(np.log([record.weight_decay for record in records])))) if learns else None,
            blocks=tuple(map(float, blocks)),
        )

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


def _without_loss(on_epoch: EpochCallback) -> EpochCallback:
    """Leave word without a loss: a worker learns by it that its trial is over."""
    return lambda _: on_epoch({"epoch": FIRST_FOLD_STEP, "valid_loss": None})


def _watches(model: ChoiceModel, n_folds: int | None) -> bool:
    """Tell a model that is shown the held-out sets while it is fitted."""
    if isinstance(model.config, TrainConfig) and model.config.min_delta == "noise":
        return n_folds is None and not _learns_decay(model)
    return model.stops_early


def _learns_decay(model: ChoiceModel) -> bool:
    """Tell a network whose fit learns its weight decay and goes through all epochs."""
    config = model.config
    return isinstance(config, TrainConfig) and (config.weight_decay, config.min_delta) == ("auto", "noise")


def _length(model: ChoiceModel, epochs: int | None) -> dict[str, int]:
    """Return the epochs of the last fit where a trial stopped before all of them."""
    config = model.config
    if epochs is None or not isinstance(config, TrainConfig) or _learns_decay(model):
        return {}
    epochs = max(epochs, config.patience)
    return {"epochs": epochs} if epochs < config.passes else {}
