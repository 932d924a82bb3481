"""Whether the log-probabilities of each choice set are those of a distribution."""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import sum_by_set
from pcmcnet.errors import InputError

ROUNDING = 1e-3  # by which the probabilities of a set may miss 1: networks of 32 bits, and thousands of alternatives


def require_probabilities(log_p: Floats, data: ChoiceData) -> None:
    """Refuse log-probabilities (N,) that do not sum to 1 in some set."""
    with np.errstate(over="ignore"):
        off = ~(np.abs(sum_by_set(np.exp(log_p), data.offsets) - 1) < ROUNDING)  # what is no number is off, too
    if off.any():
        raise InputError(
            f"{int(off.sum())} of {len(data)} choice sets have no probabilities, the first of them "
            f"{data.set_ids[int(np.argmax(off))]!s}: numbers of the model or of the table are too large. Correct "
            f"values that are far from those of training, or fit the model again."
        )
