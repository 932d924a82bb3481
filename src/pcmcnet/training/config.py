"""Options of the training loop, and the two rules that they define: learning-rate schedule and early stopping.

The learning rate rises linearly, then stays constant or falls to 0 along half a cosine. A cool-down lowers the learning
rate linearly to 0. Early stopping follows the rule of the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError

Schedule = Literal["constant", "cosine"]

DEFAULT_EPOCHS = 20  # passes over the training data, unless set by the user or learnt
DEFAULT_WEIGHT_DECAY = 1.0  # unless set by the user or learnt


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Options of the training loop.

    Parameters
    ----------
    epochs
        Maximum number of passes over the training data. Default "auto": 20 epochs, or fewer if trials on held-out sets
        show that 20 epochs overfit.
    batch_size
        Number of choice sets per batch. Default "auto": 1/25 of the training sets, but at least 8 and at most 64, so
        that small tables get enough steps per epoch.
    lr
        Learning rate of Adam. Default 0.005.
    schedule
        Learning rate after the warm-up: "constant", or "cosine" (default), which falls to 0 along half a cosine.
    warmup
        Share of the epochs in which the learning rate rises linearly, from a twentieth of ``lr``. Default 0.05.
    weight_decay
        Decoupled weight decay. Default "auto": learnt from held-out sets when a model is fitted
        (:mod:`pcmcnet.models.networks.fitting`), and 1 elsewhere. Weights with a prior (``prior_weights`` of the
        network) have no weight decay.
    clip
        Maximum norm of the gradient. If 0, the gradient is not clipped. Default 1.
    patience
        Number of epochs without improvement after which training stops, if ``min_delta`` is a number. The cool-down
        also lasts this number of epochs. Default 5.
    min_delta
        Rule that uses the validation data to stop training and to select the weights. Default "noise": run all epochs
        and keep the last weights, unless the weights of an earlier epoch are better by more than the noise in the
        validation loss. If ``min_delta`` is a number: stop after ``patience`` consecutive epochs that improve the best
        validation loss by no more than ``min_delta``, and keep the best weights. With schedule="cosine", a cool-down of
        ``patience`` epochs follows, in which the learning rate falls to 0, because weights trained at a high learning
        rate have not converged.
    refit
        Whether to train again on the training and validation data together, for the best number of epochs. Default
        False.
    pair_budget
        Maximum number of ordered pairs of alternatives in a batch, which limits memory. Default 1,000,000.

    Raises
    ------
    ConfigError
        If an option has an invalid value.
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
        """Number of epochs, where "auto" stands for the default number."""
        return DEFAULT_EPOCHS if self.epochs == "auto" else self.epochs

    @property
    def decay(self) -> float:
        """Weight decay, where "auto" stands for the default value."""
        return DEFAULT_WEIGHT_DECAY if self.weight_decay == "auto" else float(self.weight_decay)


# -- learning rate ------------------------------------------------------------------------------------------------


def learning_rate(config: TrainConfig, progress: float) -> float:
    """Return the learning rate after the share ``progress`` of all epochs."""
    # 1. Rise linearly from a twentieth of lr.
    if progress < config.warmup:
        return config.lr * (0.05 + 0.95 * progress / config.warmup)
    # 2. Stay constant, or follow half a cosine over the remaining epochs.
    if config.schedule == "constant":
        return config.lr
    elapsed = (progress - config.warmup) / (1 - config.warmup) if config.warmup < 1 else 1.0
    return config.lr * 0.5 * (1 + math.cos(math.pi * elapsed))


def cooling_rate(config: TrainConfig, done: float, *, since: int) -> float:
    """Return the learning rate after ``done`` epochs in a cool-down that started after epoch ``since``."""
    return learning_rate(config, since / config.passes) * max(1 - (done - since) / config.patience, 0.0)


# -- early stopping -----------------------------------------------------------------------------------------------


@dataclass
class EarlyStopping:
    """Rule that stops training after ``patience`` consecutive epochs without an improvement above ``min_delta``.

    The best loss is the smallest of all earlier epochs, so that a series of small improvements does not count as an
    improvement. The weights of the best epoch are kept.
    """

    patience: int
    min_delta: float
    best: float = math.inf
    best_epoch: int = 0
    waited: int = 0  # epochs since the last improvement above min_delta

    @classmethod
    def of(cls, config: TrainConfig) -> EarlyStopping:
        """Return the rule for a configuration, which never stops training if ``min_delta`` is "noise"."""
        if config.min_delta == "noise":
            return cls(patience=config.passes + 1, min_delta=0.0)
        return cls(config.patience, config.min_delta)

    def update(self, epoch: int, loss: float) -> bool:
        """Record the loss of an epoch, and return True if it is the smallest so far."""
        self.waited = 0 if loss < self.best - self.min_delta else self.waited + 1
        is_best = loss < self.best
        if is_best:
            self.best, self.best_epoch = loss, epoch
        return is_best

    @property
    def should_stop(self) -> bool:
        """Whether ``patience`` epochs have passed without an improvement."""
        return self.waited >= self.patience
