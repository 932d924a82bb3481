"""Models that predict the choices of people whose earlier choices are known.

The probabilities of ``predict_proba`` are for new people. A person's earlier choices are evidence of the
person's latent class or coefficients, so ``predict_proba_given`` uses the posterior distribution given them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, read_chunked
from pcmcnet.errors import InputError
from pcmcnet.models.interface.choice_model import ChoiceModel


class KnownPeople(ChoiceModel):
    """Base class of models that predict people whose earlier choices are known."""

    def predict_proba_given(self, data: Any, history: Any) -> Floats:
        """Return choice probabilities for persons whose earlier choices are known.

        Parameters
        ----------
        data
            Choice sets to predict, or a table with the columns of the model's schema and the person column.
        history
            Earlier choice sets with known choices, as choice sets or as a table. Persons without earlier choices are
            predicted as new people.

        Returns
        -------
        Probabilities (n_rows,) in the order of the rows, with 0 for unavailable rows.

        Raises
        ------
        InputError
            If the model has no persons, or a table has no person column.
        """
        self._require_persons_of_model()
        sets, earlier = self._read_people(data), self._read_history(history)
        return sets.to_rows(self._proba_given(sets, earlier))

    def _require_persons_of_model(self) -> None:
        """Raise InputError unless a person has the same class or coefficients in all choice sets."""

    def _proba_given(self, sets: ChoiceData, earlier: ChoiceData) -> Floats:  # -> (N,)
        """Return the probabilities of all alternatives, given earlier choice sets of the same persons."""
        raise NotImplementedError

    def _read_people(self, data: Any) -> ChoiceData:
        """Return choice sets to predict with the column of persons, or raise InputError if there is none."""
        column = self.schema.person
        with_person = replace(self.schema.for_prediction(), person=column)
        data = read_chunked(data)
        sets = data if isinstance(data, ChoiceData) else ChoiceData.from_schema(data, with_person)
        return _require_persons(sets, column)

    def _read_history(self, history: Any) -> ChoiceData:
        """Return earlier choice sets with their choices and persons, or raise InputError if they are unknown."""
        earlier = _require_persons(self._read(history, chosen=True), self.schema.person)
        earlier.require_chosen("the earlier choices")
        return earlier


def persons_of(sets: ChoiceData) -> NDArray[Any]:  # -> (S,)
    """Return the person of each choice set, or the id of the choice set if the table has no persons."""
    person = sets.schema.person
    return sets.set_ids if person is None else sets.keep[person].plain()


def _require_persons(sets: ChoiceData, column: str | None) -> ChoiceData:
    if sets.schema.person is None:
        raise InputError(f"the table has no person column: read it with person={column!r}.")
    return sets
