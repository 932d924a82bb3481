"""Models in which everyone is of one of C unknown classes, each with probabilities of its own.

    P(i | S, I) = sum_c pi_c(I) P_c(i | S)

Where classes are those of persons, the choices of a person tell of which class the person may be:

    pi_c(I | i_1, i_2, ...)  proportional to  pi_c(I) prod_t P_c(i_t | S_t).

Shapes: S sets, N alternatives, C classes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import spread
from pcmcnet.errors import InputError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.persons import By, Persons


class LatentClasses(ChoiceModel):
    """A mixture of classes; a subclass gives their shares and their probabilities."""

    @abstractmethod
    def _log_membership(self, sets: ChoiceData) -> Floats:
        """(S, C) logarithms of the shares of the classes, before any choice."""

    @abstractmethod
    def _class_log_p(self, data: ChoiceData) -> Floats:
        """(N, C) log-probabilities of the alternatives in each class."""

    @property
    def classes_by(self) -> By:
        """Who is of a class: the "person", where the table declares persons, or the choice "set"."""
        by: By = self.config.by
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
        schema = self.schema
        column = schema.person
        if column is None or self.classes_by == "set":
            raise InputError("choices of a person tell of others only where classes are by person: read with person=.")
        sets = (
            data
            if isinstance(data, ChoiceData)
            else ChoiceData.from_schema(data, replace(schema.for_prediction(), person=column))
        )
        known = self._read(history, chosen=True)
        for part in (sets, known):
            if part.schema.person is None:
                raise InputError(f"the table says nothing of persons: read it with person={column!r}.")
        log_pi = self._log_membership(sets)
        place = dict(zip(known.keep[column].plain(), self._log_posterior(known), strict=True))
        for s, person in enumerate(sets.keep[column].plain()):
            log_pi[s] = place.get(person, log_pi[s])
        return sets.to_rows(np.exp(self._mixed(sets, log_pi)))

    def _log_posterior(self, sets: ChoiceData) -> Floats:
        picked = sets.offsets[:-1] + sets.require_chosen("the shares given the choices")
        persons = Persons.of(sets, self.classes_by)
        log_pi = self._log_membership(sets)
        joint = np.zeros((len(persons.first), log_pi.shape[1]))
        each = log_pi / np.bincount(persons.number)[persons.number, None]  # the mean, where they vary within a person
        np.add.at(joint, persons.number, each + self._class_log_p(sets)[picked])
        return (joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))[persons.number]

    def _mixed(self, data: ChoiceData, log_pi: Floats) -> Floats:
        """Mix the classes by their shares for each set, (S, C) -> (N,)."""
        log_p = np.logaddexp.reduce(self._class_log_p(data) + spread(log_pi, data.offsets), axis=1)
        out: Floats = np.where(spread(data.sizes, data.offsets) == 1, 0.0, log_p)  # shares sum to 1 up to rounding
        return out
