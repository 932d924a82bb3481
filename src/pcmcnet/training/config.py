"""Everything that a fit by gradient descent depends on, beside the network itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError

Schedule = Literal["constant", "cosine"]

EPOCHS, DECAY = 20, 1.0  # where nobody says or learns better


@dataclass(frozen=True, kw_only=True, slots=True)
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
        :mod:`pcmcnet.models.networks.decay_search`. Weights that a module gives a prior (``with_prior``) have that
        instead.
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
        """Batch size for so many training sets."""
        return min(max(sets // 25, 8), 64) if self.batch_size == "auto" else self.batch_size

    @property
    def passes(self) -> int:
        """Epochs, as a number."""
        return EPOCHS if self.epochs == "auto" else self.epochs

    @property
    def decay(self) -> float:
        """Weight decay, as a number: a middling one for whoever trains without a model that learns it."""
        return DECAY if self.weight_decay == "auto" else float(self.weight_decay)
