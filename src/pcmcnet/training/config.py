"""The options of the training loop, and the two rules that follow from them: learning rate and early stopping.

The learning rate rises linearly, then stays, or falls to 0 along half a cosine; a cool-down brings it to 0 in a
straight line. Early stopping is the rule of the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError

Schedule = Literal["constant", "cosine"]

DEFAULT_EPOCHS = 20  # passes over the training part, unless they are given or learnt
DEFAULT_WEIGHT_DECAY = 1.0  # unless it is given or learnt


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Options of the training loop.

    Parameters
    ----------
    epochs
        Passes over the training part, at most; "auto" is 20, or fewer where a model's fit finds that these overfit.
    batch_size
        In choice sets, never in rows; "auto" is a 25th of the training sets, at least 8 and at most 64, so that small
        tables get enough steps in an epoch.
    lr, schedule, warmup
        Learning rate of Adam; kept, or brought down to 0 along half a cosine, after a linear rise over the
        first share ``warmup`` of the epochs.
    weight_decay
        Decoupled weight decay; "auto" is learnt from the table by a model's fit: see
        :mod:`pcmcnet.models.networks.fitting`. Weights to which a network gives a prior
        (``prior_weights``) have that instead.
    clip
        Largest norm of a gradient; 0 for no limit.
    patience, min_delta
        With a validation part: "noise" goes through all epochs and keeps the last weights, unless those of an earlier
        epoch are better by more than the noise of the validation part. With a number, stop after ``patience`` epochs in
        a row of which none was better than the best before it by more than ``min_delta``, and keep the best weights.
        Under "cosine" a cool-down of ``patience`` epochs follows, in which the learning rate falls to 0: stopped at a
        high rate, a network has yet to settle.
    refit
        With a validation part: afterwards train again on both parts, for as many epochs as the best took.
    pair_budget
        Ordered pairs of alternatives in a batch, at most; bounds the memory.
    """

    epochs: int | Literal["auto"] = "auto"
    batch_size: int | Literal["auto"] = "auto"
    lr: float = 0.005
    schedule: Schedule = "cosine"
    warmup: float = 0.05
    weight_decay: float | Literal["auto"] = "auto"
    clip: float = 1.0
    patience: int = 5
    min_delta: float | Literal["noise"] = "noise"
    refit: bool = False
    pair_budget: int = 1_000_000

    def __post_init__(self) -> None:
        if self.epochs != "auto":
            require_number("epochs", self.epochs, whole=True, low=1)
        if self.batch_size != "auto":
            require_number("batch_size", self.batch_size, whole=True, low=1)
        require_number("lr", self.lr, low=0, open_low=True)
        require_number("warmup", self.warmup, low=0, high=1)
        if self.weight_decay != "auto":
            require_number("weight_decay", self.weight_decay, low=0)
        require_number("clip", self.clip, low=0)
        require_number("patience", self.patience, whole=True, low=1)
        if self.min_delta != "noise":
            require_number("min_delta", self.min_delta, low=0)
        require_number("pair_budget", self.pair_budget, whole=True, low=1)
        require_word("schedule", self.schedule, get_args(Schedule))
        if not isinstance(self.refit, bool):
            raise ConfigError(f"refit must be true or false, got {self.refit!r}.")

    def sets_per_batch(self, sets: int) -> int:
        """Return the batch size for a number of training sets."""
        return min(max(sets // 25, 8), 64) if self.batch_size == "auto" else self.batch_size

    @property
    def passes(self) -> int:
        """Number of epochs, with the default in place of "auto"."""
        return DEFAULT_EPOCHS if self.epochs == "auto" else self.epochs

    @property
    def decay(self) -> float:
        """Weight decay, with the default in place of "auto": only a model's fit learns it."""
        return DEFAULT_WEIGHT_DECAY if self.weight_decay == "auto" else float(self.weight_decay)


# -- learning rate ------------------------------------------------------------------------------------------------


def learning_rate(config: TrainConfig, progress: float) -> float:
    """Return the learning rate when a share ``progress`` of the epochs is done."""
    # 1. A linear rise from a twentieth of lr.
    if progress < config.warmup:
        return config.lr * (0.05 + 0.95 * progress / config.warmup)
    # 2. Constant, or half a cosine over the rest of the epochs.
    if config.schedule == "constant":
        return config.lr
    left = (progress - config.warmup) / (1 - config.warmup) if config.warmup < 1 else 1.0
    return config.lr * 0.5 * (1 + math.cos(math.pi * left))


def cooling_rate(config: TrainConfig, done: float, *, since: int) -> float:
    """Return the learning rate after ``done`` epochs, if the cool-down began after epoch ``since``."""
    return learning_rate(config, since / config.passes) * max(1 - (done - since) / config.patience, 0.0)


# -- early stopping -----------------------------------------------------------------------------------------------


@dataclass
class EarlyStopping:
    """Stop after ``patience`` epochs in a row without an improvement above ``min_delta`` on the best so far.

    The best so far is the least loss of all earlier epochs, so many small improvements in a row do not count. The
    weights of the best epoch are those to keep.
    """

    patience: int
    min_delta: float
    best: float = math.inf
    best_epoch: int = 0
    waited: int = 0  # epochs since the last improvement above min_delta

    @classmethod
    def of(cls, config: TrainConfig) -> EarlyStopping:
        """Return the rule of a configuration; with min_delta="noise" it never stops the training."""
        if config.min_delta == "noise":
            return cls(patience=config.passes + 1, min_delta=0.0)
        return cls(config.patience, config.min_delta)

    def update(self, epoch: int, loss: float) -> bool:
        """Record the loss of an epoch; return whether it is the best so far."""
        self.waited = 0 if loss < self.best - self.min_delta else self.waited + 1
        is_best = loss < self.best
        if is_best:
            self.best, self.best_epoch = loss, epoch
        return is_best

    @property
    def stop(self) -> bool:
        """Whether patience has run out."""
        return self.waited >= self.patience
