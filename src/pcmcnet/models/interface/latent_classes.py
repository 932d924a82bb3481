"""Models in which everyone is of one of C unknown classes, each with probabilities of its own.

    P(i | S, I) = sum_c pi_c(I) P_c(i | S)

Where classes are those of persons, the choices of a person tell of which class the person may be:

    pi_c(I | i_1, i_2, ...)  proportional to  pi_c(I) prod_t P_c(i_t | S_t).

Shapes: S sets, N alternatives, C classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Numeric, stored_values
from pcmcnet.data.columns.ragged import spread
from pcmcnet.errors import InputError
from pcmcnet.models.interface.choice_model import ChoiceModel

# -- Who chooses: persons, each with one or several choice sets --------------------------------------------------------
# What belongs to a person, such as a latent class, has one value in all of the person's sets. So has what is said of a
# person: the weight, and the columns that shares of classes depend on. Shapes: S sets, N persons.

ClassesBy = Literal["person", "set"]


@dataclass(frozen=True)
class Persons:
    """The persons of some choice sets."""

    number: Ints  # (S,) of the person who chooses, from 0
    first: Ints  # (N,) first set of each person
    table: ChoiceData  # the first sets, with the individual columns that are the same in all sets of each person
    varying: Mapping[str, str]  # the other individual columns, each with the first set that differs from an earlier one

    @classmethod
    def of(cls, sets: ChoiceData, by: ClassesBy) -> Persons:
        """Take the persons that the table declares, or every set for a person of its own."""
        groups = sets.groups(None if by == "person" else sets.schema.choice_set)
        _, first, number = np.unique(groups, return_index=True, return_inverse=True)
        found = {name: _differing(stored_values(column), first[number]) for name, column in sets.individual.items()}
        varying = {name: str(sets.set_ids[at[0]]) for name, at in found.items() if at.size}
        same = {name: column for name, column in sets.individual.items() if name not in varying}
        return cls(number, first, replace(sets, individual=same).subset(first), varying)

    @property
    def has_several_sets(self) -> bool:
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

    def require_constant(self, names: list[str]) -> None:
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


class LatentClasses(ChoiceModel):
    """A mixture of classes; a subclass gives their shares and their probabilities."""

    @abstractmethod
    def _log_membership(self, sets: ChoiceData) -> Floats:
        """(S, C) logarithms of the shares of the classes, before any choice."""

    @abstractmethod
    def _class_log_p(self, data: ChoiceData) -> Floats:
        """(N, C) log-probabilities of the alternatives in each class."""

    @property
    def classes_by(self) -> ClassesBy:
        """Who is of a class: the "person", where the table declares persons, or the choice "set"."""
        by: ClassesBy = self.config.by
        return by

    def membership(self, data: Any) -> Floats:
        """Return the shares of the classes for each set's individual, before any choice: (S, C)."""
        return np.exp(self._log_membership(self._read(data)))

    def posterior(self, data: Any) -> Floats:
        """Return the shares of the classes given the choices, for each set: (S, C).

        Those of a person are given all of the person's choices in ``data``, and stand beside each of the sets.
        """
        return np.exp(self._log_posterior(self._read(data, chosen=True)))

    def predict_proba_given(self, data: Any, history: Any) -> Floats:
        """Return probabilities as :meth:`predict_proba` does, of people whose earlier choices are known.

        Parameters
        ----------
        data
            Choice data, or a table to be read by the model's schema, persons included.
        history
            Likewise, with choices. Whoever is in it has the shares of classes given these choices; all others have
            those before any choice.
        """
        schema, column = self.schema, self.schema.person
        if column is None or self.classes_by == "set":
            raise InputError("choices of a person tell of others only where classes are by person: read with person=.")
        with_person = replace(schema.for_prediction(), person=column)
        sets = data if isinstance(data, ChoiceData) else ChoiceData.from_schema(data, with_person)
        known = self._read(history, chosen=True)
        for part in (sets, known):
            if part.schema.person is None:
                raise InputError(f"the table says nothing of persons: read it with person={column!r}.")
        log_pi = self._log_membership(sets)
        place = dict(zip(known.keep[column].plain(), self._log_posterior(known), strict=True))
        for s, person in enumerate(sets.keep[column].plain()):
            log_pi[s] = place.get(person, log_pi[s])
        return sets.to_rows(np.exp(self._mix_classes(sets, log_pi)))

    def _log_posterior(self, sets: ChoiceData) -> Floats:
        picked = sets.offsets[:-1] + sets.require_chosen("the shares given the choices")
        persons = Persons.of(sets, self.classes_by)
        log_pi = self._log_membership(sets)
        joint = np.zeros((len(persons.first), log_pi.shape[1]))
        each = log_pi / np.bincount(persons.number)[persons.number, None]  # the mean, where they vary within a person
        np.add.at(joint, persons.number, each + self._class_log_p(sets)[picked])
        return (joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))[persons.number]

    def _mix_classes(self, data: ChoiceData, log_pi: Floats) -> Floats:
        """Mix the classes by their shares for each set, (S, C) -> (N,)."""
        log_p = np.logaddexp.reduce(self._class_log_p(data) + spread(log_pi, data.offsets), axis=1)
        out: Floats = np.where(spread(data.sizes, data.offsets) == 1, 0.0, log_p)  # shares sum to 1 up to rounding
        return out
