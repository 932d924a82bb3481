"""A table -> what trials are fitted on and what they are measured on.

    fewer than 2,000 sets    2 to 4 folds, each held out in turn: every set measures a trial once
    more, or a part given    one validation part

The noise of a mean over 100 sets is several times as large as what good options gain; all sets of a small table
together tell more. Persons, or groups of ``by``, are never cut. Losses are added up by blocks of whole groups, so that
two trials can be compared block by block however large the table is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.splits import fold_parts, generator, split_parts
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import require_sets

FEW = 2_000  # sets below which folds take the place of one validation part
FOLDS = 4  # at most: a trial is fitted to each of them
BLOCKS = 500  # at most; tables of fewer groups have a block for each


@dataclass(frozen=True)
class Part:
    """Sets to fit, sets to measure, and the blocks (S,) of the latter."""

    train: ChoiceData
    valid: ChoiceData
    blocks: Ints


@dataclass(frozen=True)
class HeldOut:
    """The parts that a trial goes through, all data together, and how many folds there are, if any."""

    parts: tuple[Part, ...]
    whole: ChoiceData
    folds: int | None

    @classmethod
    def cut(cls, data: Any, valid: Any, by: Any, seed: int) -> HeldOut:
        """Hold out a share of the data, or fold after fold of few, or take the validation part given."""
        if not isinstance(data, ChoiceData):
            raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
        data.require_chosen("a search")
        if isinstance(valid, ChoiceData):
            found = cls._given(data, valid, by)
        else:
            require_number("valid", valid, low=0, high=1, open_low=True, open_high=True)
            found = cls._drawn(data, float(valid), data.groups(by), seed)
        for part in found.parts:
            require_sets(part.train)
            require_sets(part.valid)
        return found

    @classmethod
    def _given(cls, data: ChoiceData, valid: ChoiceData, by: Any) -> HeldOut:
        if by is not None:
            raise InputError("by says how to cut the data; with a validation part given there is nothing to cut.")
        valid.require_chosen("a search")
        return cls((Part(data, valid, _blocks(valid.groups())),), data.concat(valid), None)

    @classmethod
    def _drawn(cls, data: ChoiceData, valid: float, groups: Ints, seed: int) -> HeldOut:
        folds = number_of_folds(len(data), len(np.unique(groups)), valid)
        if folds is None:
            tests = split_parts(groups, (1 - valid, valid), generator(seed))[1:]
        else:
            tests = fold_parts(groups, folds, generator(seed))
        blocks, everything = _blocks(groups), np.arange(len(data))
        parts = (Part(data.subset(np.setdiff1d(everything, at)), data.subset(at), blocks[at]) for at in tests)
        return cls(tuple(parts), data, folds)

    @property
    def weights(self) -> Floats:
        """Weight of each block that is held out, 0 for others (blocks,)."""
        return sum_by_block([part.valid.weights for part in self.parts], self.parts)


def number_of_folds(sets: int, groups: int, valid: float) -> int | None:
    """Return how many folds hold out about that share each, from 2 to 4; None where one part will do.

    >>> number_of_folds(500, 500, 0.2), number_of_folds(500, 500, 0.3), number_of_folds(2_000, 2_000, 0.2)
    (4, 3, None)
    """
    if sets >= FEW or groups < 2:
        return None
    return min(max(round(1 / valid), 2), FOLDS, groups)


def sum_by_block(values: list[Floats], parts: tuple[Part, ...]) -> Floats:
    """Add up values of held-out sets, part by part (S,), within their blocks."""
    blocks = np.concatenate([part.blocks for part in parts])
    return np.bincount(blocks, np.concatenate(values)).astype(np.float64)


def _blocks(groups: Ints) -> Ints:
    blocks: Ints = np.unique(groups, return_inverse=True)[1].reshape(-1) % BLOCKS
    return blocks
