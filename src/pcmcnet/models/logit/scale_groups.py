"""Scales of utilities by group of choice sets, as for surveys with different amounts of noise.

The utility in a choice set of group g is mu_g v, with mu = 1 for a reference group (Swait & Louviere, 1993). The error
terms of a logit have the variance pi^2 / (6 mu_g^2), so a group with a smaller scale has noisier choices, and ratios of
coefficients are the same in all groups. An offset is a correction of probabilities, not a part of the utility, and is
not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean

MAX_SCALE_GROUPS = 100


def scale_name(group: str) -> str:
    """Return the name of the scale parameter of a group."""
    return f"scale[{group}]"


@dataclass(frozen=True)
class ScaleGroups:
    """Groups of choice sets with their own scale: the values of an individual-level column."""

    column: str
    reference: str  # the group with a scale of 1
    levels: tuple[str, ...]  # (G,) the other groups

    @classmethod
    def learn(cls, column: str, data: ChoiceData, reference: str | None) -> ScaleGroups:
        """Learn the groups from choice sets; by default, the reference is the largest group.

        Raises
        ------
        SchemaError
            If the column is not an individual-level column with numbers or categories.
        ConfigError
            If ``reference`` is not a group.
        InputError
            If values are missing, or there is one group, or more than ``MAX_SCALE_GROUPS`` groups.
        """
        # 1. Only sets with at least two alternatives are informative about a scale.
        codes, names = _groups(column, data)
        counts = np.bincount(codes[data.sizes > 1], minlength=len(names))
        present = [name for name, count in zip(names, counts, strict=True) if count]
        if len(present) < 2:
            raise InputError(
                f"scale: column {column!r} has one group, {present[0]!r}, in the choice sets with at least two "
                f"alternatives: a scale is relative to another group. Remove the option scale."
            )
        if len(present) > MAX_SCALE_GROUPS:
            raise InputError(
                f"scale: column {column!r} has {len(present):,} groups, but the limit is {MAX_SCALE_GROUPS}: use a "
                f"column with a few groups, such as a survey or a segment."
            )
        # 2. The reference.
        if reference is None:
            reference = min(present, key=lambda name: (-counts[names.index(name)], name))
        elif reference not in present:
            raise ConfigError(f"base: {reference!r} is not a group of {column!r}." + did_you_mean(reference, present))
        return cls(column, reference, tuple(sorted({*present} - {reference})))

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> ScaleGroups:
        """Build the groups from a dictionary read from JSON, or raise ValueError if it is inconsistent."""
        column, reference = str(entries["column"]), str(entries["reference"])
        levels = tuple(map(str, entries["levels"]))
        if not levels or len({reference, *levels}) != 1 + len(levels):
            raise ValueError("the groups of scales are not distinct")
        return cls(column, reference, levels)

    @property
    def names(self) -> tuple[str, ...]:
        """Names (G,) of the scale parameters."""
        return tuple(map(scale_name, self.levels))

    def codes(self, data: ChoiceData) -> Ints:  # -> (S,)
        """Return the group of each choice set: 0 for the reference, then 1 to G.

        Raises
        ------
        InputError
            If a choice set belongs to a group that was not in the training part, or has no group.
        """
        codes, names = _groups(self.column, data)
        index = {name: k for k, name in enumerate((self.reference, *self.levels))}
        places = np.array([index.get(name, -1) for name in names], np.int64)[codes]
        if (places < 0).any():
            at = int(np.argmax(places < 0))
            raise InputError(
                f"scale: group {names[codes[at]]!r} of column {self.column!r} (choice set {data.set_ids[at]!s}) was "
                f"not in the training data, so it has no scale ({int((places < 0).sum())} such choice sets): expected "
                f"one of {', '.join(index)}."
            )
        return places

    def multipliers(self, data: ChoiceData, scales: Floats) -> Floats:  # (G,) -> (S,)
        """Return the scale of each choice set."""
        return np.append(1.0, scales)[self.codes(data)]


def _groups(column: str, data: ChoiceData) -> tuple[Ints, list[str]]:
    """Return the code of each choice set's group, and the names of the groups."""
    if column not in data.individual:
        kind = " is a feature of the alternatives" if column in data.features else " is not in the table"
        hint = "" if column in data.features else did_you_mean(column, data.individual)
        raise SchemaError(
            f"scale: expected an individual-level column, but {column!r}{kind}: read the table with "
            f"individual=[{column!r}].{hint}"
        )
    values = data.individual[column]
    if isinstance(values, Categorical):
        return values.codes.astype(np.int64), list(values.categories)
    if not isinstance(values, Numeric):
        raise SchemaError(f"scale: expected a column of numbers or categories, but {column!r} is {values.kind}.")
    missing = np.isnan(values.values)
    if missing.any():
        raise InputError(
            f"scale: column {column!r} has {int(missing.sum())} missing values, the first in choice set "
            f"{data.set_ids[int(missing.argmax())]!s}: every choice set needs a group."
        )
    numbers, codes = np.unique(values.values, return_inverse=True)
    return codes.astype(np.int64), [f"{number:.9g}" for number in numbers]  # all digits of a float32
