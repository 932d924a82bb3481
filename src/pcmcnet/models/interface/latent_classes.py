"""Latent class models: each decision maker belongs to one of C unknown classes, which differ in their probabilities.

    P(i | S, I) = sum_c pi_c(I) P_c(i | S)

If each person belongs to one class, the choices of a person update the class shares for that person:

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
from pcmcnet.models.interface.known_people import KnownPeople, persons_of

# -- Persons with one or several choice sets --------------------------------------------------------------------------
# A person has one latent class in all choice sets. So the weight of a person, and the columns that the shares of the
# classes depend on, must be the same in all sets of the person. Shapes: S sets, N persons.

ClassesBy = Literal["person", "set"]


@dataclass(frozen=True)
class Persons:
    """The persons in a table of choice sets.

    Parameters
    ----------
    number
        Index (S,) of the person of each set, counted from 0.
    first
        Index (N,) of the first set of each person.
    table
        The first set of each person, with the individual-level columns that are constant within every person.
    varying
        The other individual-level columns, each with the id of the first set that differs from an earlier set of the
        same person.
    """

    number: Ints
    first: Ints
    table: ChoiceData
    varying: Mapping[str, str]

    @classmethod
    def of(cls, sets: ChoiceData, by: ClassesBy) -> Persons:
        """Return the persons of the table, where each choice set is a separate person if ``by`` is "set".

        In a table of markets, the customers of a market are different persons.
        """
        groups = sets.groups(None if by == "person" else sets.schema.choice_set)
        if sets.schema.counts is not None and (by == "set" or sets.schema.person is None):
            groups = np.arange(len(sets))
        _, first, number = np.unique(groups, return_index=True, return_inverse=True)
        differing = {name: _differing(stored_values(column), first[number]) for name, column in sets.individual.items()}
        varying = {name: str(sets.set_ids[at[0]]) for name, at in differing.items() if at.size}
        constant = {name: column for name, column in sets.individual.items() if name not in varying}
        return cls(number, first, replace(sets, individual=constant).subset(first), varying)

    @property
    def has_several_sets(self) -> bool:
        """Whether any person has several choice sets."""
        return len(self.first) < len(self.number)

    def weights(self, sets: ChoiceData) -> Floats:
        """Return the weights (N,) of the persons, or raise InputError if a person has several different weights."""
        if sets.schema.weight is None and _differing(sets.weights, self.first[self.number]).size:
            raise InputError(
                "the choices of a person have different weights, for example because of rankings with a worst "
                "alternative among four or more, or of pn.wesml: this model needs equal weights for each person. Read "
                "the best choices only, or full rankings, or leave out the weights."
            )
        self._require_one(sets, sets.weights, f"the weight in column {sets.schema.weight!r}")
        return sets.weights[self.first]

    def require_one_cluster(self, sets: ChoiceData, clusters: Ints, column: str) -> None:
        """Raise InputError if the sets of a person are in different clusters (S,)."""
        self._require_one(sets, clusters, f"the cluster in column {column!r}")

    def _require_one(self, sets: ChoiceData, values: Floats | Ints, subject: str) -> None:
        differing = _differing(values, self.first[self.number])
        if differing.size:
            raise InputError(
                f"choice set {sets.set_ids[differing[0]]}: {subject} differs from the same person's earlier sets; "
                f"{differing.size} such sets. Use one value per person, or fit with by='set'."
            )

    def require_constant(self, names: list[str]) -> None:
        """Raise InputError if one of these columns varies within a person."""
        for name in names:
            if name in self.varying:
                raise InputError(
                    f"membership: column {name!r} varies within a person, first in choice set {self.varying[name]}, "
                    f"but a person has one class in all sets: leave the column out, or fit with by='set'."
                )


def _differing(values: Floats | Ints, first: Ints) -> Ints:  # (S,), (S,) first set of each set's person
    """Return the sets whose value differs from that in the person's first set, where missing values count as equal."""
    before = values[first]
    return np.flatnonzero((values != before) & ((values == values) | (before == before)))


@dataclass(frozen=True, kw_only=True)
class ClassProfile:
    """Profile of a latent class: its share, and the mean or the most frequent category of each column."""

    share: float
    means: Mapping[str, str]


def class_profiles(people: ChoiceData, mass: Floats) -> tuple[ClassProfile, ...]:  # (N, C)
    """Return the profile of each class, with persons weighted by their probability mass (N, C) in the class."""
    profiles = []
    for weights in mass.T:
        total = float(weights.sum())
        means = {}
        for name, column in people.individual.items():
            if isinstance(column, Numeric):
                present = ~np.isnan(column.values)
                means[name] = f"{weights[present] @ column.values[present] / max(weights[present].sum(), 1e-300):.4g}"
            elif isinstance(column, Categorical):
                by_level = np.bincount(column.codes, weights, minlength=len(column.categories))
                top = int(by_level.argmax())
                means[name] = f"{column.categories[top]} {by_level[top] / max(total, 1e-300):.0%}"
        profiles.append(ClassProfile(share=total / float(mass.sum()), means=means))
    return tuple(profiles)


class LatentClasses(KnownPeople):
    """Base class of models with latent classes. A subclass computes the class shares and the probabilities."""

    @abstractmethod
    def _log_membership(self, sets: ChoiceData) -> Floats:
        """Return the logarithms (S, C) of the prior class shares."""

    @abstractmethod
    def _class_log_p(self, data: ChoiceData) -> Floats:
        """Return the log-probabilities (N, C) of the alternatives in each class."""

    @property
    def classes_by(self) -> ClassesBy:
        """The unit that belongs to a class: "person" or "set". Without a person column, the unit is the choice set."""
        by: ClassesBy = self.config.by
        return by

    def membership(self, data: Any) -> Floats:
        """Return the prior shares of the latent classes.

        Parameters
        ----------
        data
            Choice sets or a table: see :meth:`predict_log_proba`.

        Returns
        -------
        Shares (S, C) for the individual of each choice set, before any choice is known.
        """
        return np.exp(self._log_membership(self._read(data)))

    def posterior(self, data: Any) -> Floats:
        """Return the posterior shares of the latent classes, given the choices.

        Parameters
        ----------
        data
            Choice sets or a table with known choices: see :meth:`predict_log_proba`.

        Returns
        -------
        Shares (S, C) for each choice set. If each person belongs to one class, the shares are conditional on all
        choices of the person in ``data``, and are the same for all sets of the person.
        """
        return np.exp(self._log_posterior(self._read(data, chosen=True)))

    def _require_persons_of_model(self) -> None:
        if self.schema.person is None or self.classes_by == "set":
            raise InputError(
                "earlier choices can be used only if each person belongs to one latent class: read the table with "
                "person=<column> and fit with by='person'."
            )

    def _proba_given(self, sets: ChoiceData, earlier: ChoiceData) -> Floats:
        # Persons with earlier choices get the posterior class shares given these choices, others the prior shares.
        log_pi = self._log_membership(sets)
        log_posterior = dict(zip(persons_of(earlier), self._log_posterior(earlier), strict=True))
        for s, person in enumerate(persons_of(sets)):
            log_pi[s] = log_posterior.get(person, log_pi[s])
        return np.exp(self._mix_classes(sets, log_pi))

    def _log_posterior(self, sets: ChoiceData) -> Floats:
        picked = sets.offsets[:-1] + sets.require_chosen("the shares given the choices")
        persons = Persons.of(sets, self.classes_by)
        log_pi = self._log_membership(sets)
        joint = np.zeros((len(persons.first), log_pi.shape[1]))
        each = log_pi / np.bincount(persons.number)[persons.number, None]  # their sum over a person is the mean
        np.add.at(joint, persons.number, each + self._class_log_p(sets)[picked])
        return (joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))[persons.number]

    def _mix_classes(self, data: ChoiceData, log_pi: Floats) -> Floats:
        """Return the log-probabilities (N,) of the mixture, given the logarithms (S, C) of the class shares."""
        log_p = np.logaddexp.reduce(self._class_log_p(data) + spread(log_pi, data.offsets), axis=1)
        out: Floats = np.where(spread(data.sizes, data.offsets) == 1, 0.0, log_p)  # without rounding
        return out
