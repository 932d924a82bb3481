"""Who chooses: persons, each with one or several choice sets.

What belongs to a person, such as a latent class, has one value in all of the person's sets. So has what is said of a
person: the weight, and the columns that shares of classes depend on. Shapes: S sets, N persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Categorical, Numeric, raw
from pcmcnet.errors import InputError

By = Literal["person", "set"]


@dataclass(frozen=True)
class Persons:
    """The persons of some choice sets."""

    number: Ints  # (S,) of the person who chooses, from 0
    first: Ints  # (N,) first set of each person
    table: ChoiceData  # the first sets, with the individual columns that are the same in all sets of each person
    varying: Mapping[str, str]  # the other individual columns, each with the first set that differs from an earlier one

    @classmethod
    def of(cls, sets: ChoiceData, by: By) -> Persons:
        """Take the persons that the table declares, or every set for a person of its own."""
        groups = sets.groups(None if by == "person" else sets.schema.choice_set)
        _, first, number = np.unique(groups, return_index=True, return_inverse=True)
        found = {name: _differing(raw(column), first[number]) for name, column in sets.individual.items()}
        varying = {name: str(sets.set_ids[at[0]]) for name, at in found.items() if at.size}
        same = {name: column for name, column in sets.individual.items() if name not in varying}
        return cls(number, first, replace(sets, individual=same).subset(first), varying)

    @property
    def several(self) -> bool:
        """Whether some person has several sets."""
        return len(self.first) < len(self.number)

    def weights(self, sets: ChoiceData) -> Floats:
        """(N,) weights of the persons, whose sets all have the same."""
        self._require_one(sets, sets.weights, f"the weight in column {sets.schema.weight!r}")
        return sets.weights[self.first]

    def require_one_cluster(self, sets: ChoiceData, clusters: Ints, column: str) -> None:
        """Refuse clusters (S,) that cut through a person."""
        self._require_one(sets, clusters, f"the cluster in column {column!r}")

    def _require_one(self, sets: ChoiceData, values: Floats | Ints, what: str) -> None:
        differing = _differing(values, self.first[self.number])
        if differing.size:
            raise InputError(
                f"choice set {sets.set_ids[differing[0]]}: {what} is not that of the same person's earlier sets; "
                f"{differing.size} such sets. Give each person one, or fit with by='set'."
            )

    def require_same(self, names: list[str]) -> None:
        """Refuse columns of which a person has several values."""
        for name in names:
            if name in self.varying:
                raise InputError(
                    f"membership: column {name!r} varies within a person, first in choice set {self.varying[name]}, "
                    f"and a person is of one class in all sets: leave it out, or fit with by='set'."
                )


def _differing(values: Floats | Ints, first: Ints) -> Ints:  # (S,), (S,) first set of each set's person
    """Return the sets whose value is not that of the person's first one; a gap equals a gap."""
    before = values[first]
    return np.flatnonzero((values != before) & ((values == values) | (before == before)))


@dataclass(frozen=True, kw_only=True)
class ClassProfile:
    """Who is in a class: its share, and by column the mean of a number or the most frequent category."""

    share: float
    means: Mapping[str, str]


def class_profiles(people: ChoiceData, mass: Floats) -> tuple[ClassProfile, ...]:  # (N, C)
    """Describe who is in each class, by the weight that each person has in it."""
    profiles = []
    for weights in mass.T:
        total = float(weights.sum())
        means = {}
        for name, column in people.individual.items():
            if isinstance(column, Numeric):
                known = ~np.isnan(column.values)
                means[name] = f"{weights[known] @ column.values[known] / max(weights[known].sum(), 1e-300):.4g}"
            elif isinstance(column, Categorical):
                by_level = np.bincount(column.codes, weights, minlength=len(column.categories))
                top = int(by_level.argmax())
                means[name] = f"{column.categories[top]} {by_level[top] / max(total, 1e-300):.0%}"
        profiles.append(ClassProfile(share=total / float(mass.sum()), means=means))
    return tuple(profiles)
