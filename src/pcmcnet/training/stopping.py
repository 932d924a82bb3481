"""The paper's rule for early stopping."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class EarlyStopping:
    """Stop after ``patience`` epochs in a row without an improvement above ``min_delta`` on the best so far.

    The best so far is the least loss of all earlier epochs, however it was reached, so slow creeping counts as
    standing still. The weights of the best epoch are those to keep.
    """

    patience: int
    min_delta: float
    best: float = math.inf
    best_epoch: int = 0
    waited: int = 0

    def update(self, epoch: int, loss: float) -> bool:
        """Take in an epoch's loss; returns whether it is the best yet."""
        self.waited = 0 if loss < self.best - self.min_delta else self.waited + 1
        better = loss < self.best
        if better:
            self.best, self.best_epoch = loss, epoch
        return better

    @property
    def stop(self) -> bool:
        """Whether patience has run out."""
        return self.waited >= self.patience
