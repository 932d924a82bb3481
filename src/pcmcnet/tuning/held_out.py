"""What the trials of a search are fitted to and measured on.

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
from pcmcnet.selection import Fold, folds_of, held_out_groups, held_out_weights

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
        return cls(tuple(folds_of(data, parts, _blocks(groups))), data, n_folds)

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
