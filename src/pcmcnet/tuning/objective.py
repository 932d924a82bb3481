"""Objective of a hyperparameter search: options -> fits to the training part of each fold -> NLL of the held-out sets.

A network with a fixed ``min_delta`` uses the held-out sets for early stopping. Other networks do not use the held-out
sets in training if the table is small or the fit learns the weight decay; otherwise, the sets used to choose the
weights would also be used to evaluate them. With a single large validation part, networks report the validation loss
after each epoch, so that a trial can be pruned.

The final fit uses the chosen options and all data. Quantities that a fit learns, such as the weight decay, are learnt
again. A network that stopped early is trained for the mean number of epochs over the folds, but at least for as many
epochs as its patience.
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
from pcmcnet.evaluation.predictions import predicted_log_p, require_sets, require_weights
from pcmcnet.models import load
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.networks.mixture_model import one_network
from pcmcnet.progress import EpochCallback, log
from pcmcnet.selection import Fold, folds_from_parts, held_out_groups, held_out_weights
from pcmcnet.training.config import TrainConfig
from pcmcnet.tuning.result import FIRST_FOLD_STEP, Measurement, TrialRecord

# -- Held-out sets -----------------------------------------------------------------------------------------------------
# Training sets and held-out sets of the trials.
#
#     fewer than 2,000 sets          2 to 4 folds, each held out in turn: every set is predicted once
#     more, or a validation part     one validation part
#
# The noise of a mean over 100 sets is several times as large as the gain from good options, so a small table uses all
# of its sets. The sets of a person, or of a group of `by`, stay together. Losses are summed over blocks of whole
# groups, so that two trials can be compared block by block at any table size.


SMALL_TABLE_SETS = 2_000  # choice sets; smaller tables use folds instead of one validation part
MAX_FOLDS = 4  # a trial fits each of them
MAX_BLOCKS = 500  # a table with fewer groups has one block per group


@dataclass(frozen=True)
class HeldOut:
    """Folds of a search, with held-out sets grouped into blocks.

    Parameters
    ----------
    folds
        Training sets and held-out sets of each fold. The group number of a held-out set is its block number.
    whole
        All data.
    n_folds
        Number of folds, or None if there is a single validation part.
    """

    folds: tuple[Fold, ...]
    whole: ChoiceData
    n_folds: int | None

    @classmethod
    def cut(cls, data: Any, valid: Any, by: Any, seed: int) -> HeldOut:
        """Return folds: the given validation part, each fold of a small table in turn, or a share of a large table."""
        if not isinstance(data, ChoiceData):
            raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
        data.require_chosen("a search")
        if isinstance(valid, ChoiceData):
            held_out = cls._with_validation_part(data, valid, by)
        else:
            require_number("valid", valid, low=0, high=1, open_low=True, open_high=True)
            held_out = cls._random(data, float(valid), data.groups(by), seed)
        for fold in held_out.folds:
            require_weights(fold.train)
            for sets in fold.held_out:
                require_sets(sets)
        return held_out

    @classmethod
    def _with_validation_part(cls, data: ChoiceData, valid: ChoiceData, by: Any) -> HeldOut:
        if by is not None:
            raise InputError("by is not supported with validation data, because the data are not split: leave by out.")
        valid.require_chosen("a search")
        return cls((Fold(data, (valid,), _blocks(valid.groups())),), data.concat(valid), None)

    @classmethod
    def _random(cls, data: ChoiceData, valid: float, groups: Ints, seed: int) -> HeldOut:
        n_folds = number_of_folds(len(data), len(np.unique(groups)), valid)
        if n_folds is None:
            parts = split_parts(groups, (1 - valid, valid), generator(seed))[1:]
        else:
            parts = fold_parts(groups, n_folds, generator(seed))
        return cls(tuple(folds_from_parts(data, parts, _blocks(groups))), data, n_folds)

    def sum_by_block(self, values: list[Floats]) -> Floats:
        """Sum values over the held-out sets of each block, given one array (S,) per fold."""
        return np.bincount(held_out_groups(self.folds), np.concatenate(values)).astype(np.float64)

    @property
    def weights(self) -> Floats:
        """Total weight of the held-out sets of each block (blocks,), which may be 0."""
        return self.sum_by_block([held_out_weights(self.folds)])


def number_of_folds(sets: int, groups: int, valid: float) -> int | None:
    """Return the number of folds, 2 to 4, each with about the share ``valid`` of the sets, or None for a single split.

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
    """Callable that fits the model ``base`` with the options of a trial and returns the held-out loss."""

    base: ChoiceModel
    data: HeldOut
    seed: int
    device: str

    def __call__(self, options: Mapping[str, Any], on_epoch: EpochCallback) -> Measurement:
        """Measure the held-out loss; ``on_epoch``, which may end the trial, gets the losses of the first fold only."""
        losses, records = [], []
        folds = self.data.folds
        # 1. Fit each fold and measure its held-out sets.
        for k, fold in enumerate(folds):
            # members="auto" would depend on the options of the trial: use one network in every trial.
            model = self._with({**one_network(self.base.config), **options})
            held_out = fold.held_out[0] if _sees_held_out(model, self.data.n_folds) else None
            report = on_epoch if k == 0 else _without_loss(on_epoch)
            model.fit(fold.train, held_out, self.seed, self.device, progress=False, on_epoch=report)
            losses.append(_losses(model, fold))
            records.append(model.record_)
            if len(folds) > 1:
                first = float(losses[0].sum() / fold.weights.sum()) if k == 0 else None
                on_epoch({"epoch": FIRST_FOLD_STEP, "valid_loss": first})
        # 2. Average the loss, the number of epochs and (geometrically) the learnt weight decay over the folds.
        blocks = self.data.sum_by_block(losses)
        epochs = [record.epochs for record in records if hasattr(record, "epochs")]
        learns = _learns_decay(self._with(options))
        return Measurement(
            loss=float(blocks.sum() / self.data.weights.sum()),
            epochs=math.ceil(sum(epochs) / len(epochs)) if epochs else None,
            decay=float(np.exp(np.mean(np.log([record.weight_decay for record in records])))) if learns else None,
            blocks=tuple(map(float, blocks)),
        )

    def refit(self, trial: TrialRecord, folder: Path | None) -> ChoiceModel:
        """Fit the model to all data with the options of a trial, or load it if the folder already contains it."""
        model = self._with(trial.options)
        model = self._with({**trial.options, **_epochs_option(model, trial.epochs)})
        if folder is not None and folder.exists():
            saved = self._saved(model, folder)
            if saved is not None:
                return saved
            shutil.rmtree(folder)
        log.info("fitting %s to all data", "the defaults" if trial.defaults else "the best options")
        model.fit(self.data.whole, None, self.seed, self.device, progress=False)
        if folder is not None:
            model.save(folder)
        return model

    def _with(self, options: Mapping[str, Any]) -> ChoiceModel:
        """Return the model with the options of a trial and ``refit=False``, because the search refits to all data."""
        refit = {"refit": False} if "refit" in {f.name for f in fields(self.base.config)} else {}
        return type(self.base)(**{**asdict(self.base.config), **options, **refit}, **self.base.extras)

    def _saved(self, model: ChoiceModel, folder: Path) -> ChoiceModel | None:
        """Return the saved model if it has the same options, data and seed, otherwise None."""
        try:
            saved = load(folder, **model.extras)
        except PcmcNetError as error:
            log.info("the saved model cannot be loaded and is fitted again: %s", error)
            return None
        source = (saved.table_.fingerprint, saved.table_.seed)
        is_current = saved.config == model.config and source == (self.data.whole.fingerprint(), self.seed)
        return saved if is_current else None


def _losses(model: ChoiceModel, fold: Fold) -> Floats:
    """Return the weighted NLL of each held-out set (S,): 0 for a set with weight 0, even if its NLL is infinite."""
    (data,) = fold.held_out
    set_losses = nll(predicted_log_p(model, data), data.offsets, data.require_chosen("a search"))
    losses: Floats = np.where(data.weights > 0, set_losses, 0.0) * data.weights
    if not np.isfinite(losses).all():
        raise TrainingError(f"the NLL of the held-out sets is {losses.sum()}: some choices have probability 0.")
    return losses


def _without_loss(on_epoch: EpochCallback) -> EpochCallback:
    """Return a callback that reports no loss but lets a worker detect that its trial was cancelled."""
    return lambda _: on_epoch({"epoch": FIRST_FOLD_STEP, "valid_loss": None})


def _sees_held_out(model: ChoiceModel, n_folds: int | None) -> bool:
    """Return True if the fit uses the held-out sets as its validation part."""
    if isinstance(model.config, TrainConfig) and model.config.min_delta == "noise":
        return n_folds is None and not _learns_decay(model)
    return model.stops_early


def _learns_decay(model: ChoiceModel) -> bool:
    """Return True if the model is a network whose fit learns the weight decay and runs all epochs."""
    config = model.config
    return isinstance(config, TrainConfig) and (config.weight_decay, config.min_delta) == ("auto", "noise")


def _epochs_option(model: ChoiceModel, epochs: int | None) -> dict[str, int]:
    """Return the option ``epochs`` for the final fit if the trial stopped early, otherwise an empty dict."""
    config = model.config
    if epochs is None or not isinstance(config, TrainConfig) or _learns_decay(model):
        return {}
    epochs = max(epochs, config.patience)
    return {"epochs": epochs} if epochs < config.passes else {}
