"""A logit whose coefficients are those of persons: whose they are, its columns and draws, and what it answers.

Probabilities, log-sums and derivatives are those of a person of whom no choice is known, means over draws that all sets
share (``simulation/population.py``). What is known of a person changes the shares of draws: see ``tastes.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import spread
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.interface.persons import Persons
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.design.individual_design import IndividualDesign
from pcmcnet.models.logits.estimation import Errors, LogitSets, Ratio
from pcmcnet.models.logits.estimation.mixed_likelihood import MixedSets
from pcmcnet.models.logits.logit_model import FittedLogit, LogitModel, LogitRecord
from pcmcnet.models.logits.mixed_config import MixedMNLConfig
from pcmcnet.models.logits.simulation.coefficients import Mixing
from pcmcnet.models.logits.simulation.draws import Draws, keys_of
from pcmcnet.models.logits.simulation.population import Population
from pcmcnet.models.logits.simulation.slopes import mixed_slopes
from pcmcnet.models.logits.tastes import Conditional, Tastes

_SHOWN, _KINDS = 4096, 100  # draws that stand for people, and kinds of people at most, where tastes are shown


@dataclass(frozen=True, kw_only=True)
class SimulationRecord:
    """How much the estimates depend on the draws: what a second set of draws says."""

    log_likelihood: float  # with the other draws, at the estimates
    largest_shift: float  # by which an estimate would move, in standard errors


@dataclass(frozen=True, kw_only=True)
class MixedRecord(LogitRecord):
    """Whose the coefficients are, and how exact the simulation is."""

    persons: int  # who have coefficients of their own: persons, or choice sets with by="set"
    simulation: SimulationRecord


@dataclass(frozen=True, kw_only=True)
class FittedMixture(FittedLogit):
    """A logit with random coefficients."""

    record: MixedRecord
    mixing: Mixing  # which coefficients are random, and how
    who: Mapping[str, IndividualDesign]  # columns that means of coefficients depend on, by coefficient


class MixedPredictions(LogitModel):
    """A logit with random coefficients, once they are specified and estimated."""

    config: MixedMNLConfig
    record_class = MixedRecord

    @property
    def _state(self) -> FittedMixture:
        return self._state_as(FittedMixture)

    @property
    def mixing_(self) -> Mixing:
        """Which coefficients are random, and how."""
        return self._state.mixing

    @property
    def who_(self) -> Mapping[str, IndividualDesign]:
        """The columns that means of random coefficients depend on, by coefficient."""
        return self._state.who

    def _persons(self, sets: ChoiceData, clusters: Ints | None) -> Persons:
        """Find whose coefficients they are; refuse persons that are asked for and not there."""
        if self.config.by == "person" and sets.schema.person is None:
            raise ConfigError("by='person' needs persons: read the table with person=<column>, or fit with by='set'.")
        persons = Persons.of(sets, "set" if self.config.by == "set" else "person")
        if clusters is not None and self.config.cluster is not None:
            persons.require_one_cluster(sets, clusters, self.config.cluster)
        return persons

    def _ids(self, sets: ChoiceData) -> NDArray[Any]:  # (S,)
        """Return what each set's draws belong to: the person's id, or the set's."""
        person = sets.schema.person
        return sets.set_ids if person is None or self.config.by == "set" else sets.keep[person].plain()

    def _who(self, table: ChoiceData) -> Floats:  # (S, G)
        """Return the numbers of individuals that means depend on."""
        return individual_numbers(self.who_, table)

    def _columns(self, data: ChoiceData) -> Floats:  # -> (N, K)
        """Return the columns of the utility."""
        return utility_columns(self.design_, self.mixing_, self.config.components, data)

    def _draws(self, mixing: Mixing, number: int, seed: int, device: torch.device) -> Draws:
        config = self.config
        return Draws(config.sequence, mixing.dimensions, number, seed, config.antithetic, device)

    @property
    def population_(self) -> Population:
        """The coefficients of people, in draws that stand for all of them."""
        draws = self._draws(self.mixing_, self.config.draws, self.table_.seed, torch.device("cpu"))
        return Population(self.mixing_, self.estimates_.values, draws)

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        found = self.population_.log_probabilities(self._columns(data), data.offsets, self._who(data))
        out: Floats = np.where(spread(data.sizes, data.offsets) == 1, 0.0, found)
        return out

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """Return the logits of the draws, which all sets share: see :meth:`ChoiceModel.as_logits`."""
        x, offsets = self._columns(data), data.offsets
        found = self.population_.log_probabilities_by_draw(x, offsets, self._who(data))
        return np.full((len(data), found.shape[1]), 1 / found.shape[1]), found

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        found = self.population_.log_sums(self._columns(data), data.offsets, self._who(data))
        return found, np.full_like(found, 1 / found.shape[1])

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        if not len(data) or any(column in design.codes for design in self.who_.values()):
            return None  # the means move as well: by differences
        if column not in self.design_.codes:
            return np.zeros(int((data.sizes**2 if column in data.features else data.sizes).sum()))
        return mixed_slopes(self.population_, self.design_, data, column, self._columns, self._who)

    def conditional(self, data: Any, cost: str | None = None) -> Conditional:
        """Return the random coefficients of each person given the choices: means and standard deviations.

        Parameters
        ----------
        data
            Choice data, or a table to be read by the model's schema, with choices and, where coefficients are those of
            persons, persons.
        cost
            Name of a coefficient: what one more unit of each column is worth in its units is given, minus the ratio of
            the coefficients.
        """
        sets = self._read(data, chosen=True)
        persons, mixing = self._persons(sets, None), self.mixing_
        chosen = sets.require_chosen("the coefficients of persons")
        whole = LogitSets.from_matrix(self._columns(sets), sets.offsets, chosen)
        ids = self._ids(sets)[persons.first]
        place = None if cost is None else self._cost(cost)
        who, draws = self._who(persons.table), self.population_.draws
        found = MixedSets.of(whole, persons.number, keys_of(ids), who, mixing, draws, 0.0)
        means, deviations = found.conditional(self.estimates_.values, place)
        kept = [d for d, r in enumerate(mixing.random) if r.column != place]
        names = [mixing.labels[mixing.random[d].column] for d in kept]
        names = names if cost is None else [f"wtp[{name}]" for name in names]
        return Conditional(ids, tuple(names), means[:, kept], deviations[:, kept])

    def willingness_to_pay(self, name: str, cost: str, errors: Errors | None = None) -> Ratio:
        """Return minus the ratio of two coefficients that are the same for all, or of the means of normal ones.

        See :meth:`LogitModel.willingness_to_pay`. Other random coefficients are refused: their parameters are no means.
        """
        laws = {self.mixing_.labels[r.column]: r.distribution.name for r in self.mixing_.random}
        for each in (name, cost):
            if laws.get(each, "normal") != "normal":
                raise InputError(
                    f"the coefficient of {each!r} is {laws[each]}, so it has no ratio to another's: "
                    f"conditional(data, cost={cost!r}) gives those of persons, and wtp_space={cost!r} estimates them."
                )
        return super().willingness_to_pay(name, cost, errors)

    def _cost(self, name: str) -> int:
        """Return the column of a cost, in whose units others are to be expressed."""
        columns = self.mixing_.columns[: self.mixing_.located]
        if name not in columns:
            raise InputError(f"no coefficient is called {name!r}." + did_you_mean(name, columns))
        if self.config.wtp_space is not None:
            raise InputError(f"the coefficients are worths in units of {self.config.wtp_space!r} already.")
        return columns.index(name)

    def tastes(self, data: Any = None) -> Tastes:
        """Return the distributions of the random coefficients over people; prints as a table.

        Where means depend on individuals, ``data`` has those that are meant.
        """
        mixing, people = self.mixing_, replace(self.population_, draws=replace(self.population_.draws, number=_SHOWN))
        if mixing.who and data is None:
            raise InputError(
                f"the tastes depend on {', '.join(mixing.who)}: give the data of the people who are meant."
            )
        h = self._who(self._read(data)) if mixing.who else np.zeros((1, 0))
        some = h[np.lexsort(h.T)][:: max(len(h) // _KINDS, 1)] if mixing.who else h
        random = [r.column for r in mixing.random]
        draws = people.worths(some)[:, random].transpose(0, 1).flatten(1).numpy()
        return Tastes.of([mixing.labels[k] for k in random], [str(r.distribution) for r in mixing.random], draws)

    def plot_distributions(self, name: str | None = None, *, data: Any = None, ax: Any = None) -> Any:
        """Draw the distribution of one random coefficient, and return its axes; of all of them, and return a figure.

        Parameters
        ----------
        name
            Which coefficient; all if not given.
        data
            See :meth:`tastes`.
        ax
            Axes of matplotlib to draw one coefficient into.
        """
        from pcmcnet.plots.effects import draw_tastes

        return draw_tastes(self.tastes(data), name, ax=ax)


def individual_numbers(who: Mapping[str, IndividualDesign], table: ChoiceData) -> Floats:  # (S, G)
    """Return the numbers of individuals that means of coefficients depend on, each once."""
    columns: dict[str, Floats] = {}
    for design in who.values():
        columns |= dict(zip(design.names[1:], design.matrix(table).T[1:], strict=True))
    return np.column_stack([*columns.values()]) if columns else np.zeros((len(table), 0))


def utility_columns(
    design: Design, mixing: Mixing, components: Mapping[str, str], data: ChoiceData
) -> Floats:  # (N, K)
    """Return the columns of the utility: those of the formula, then a mark of each nest of error components."""
    columns = design.matrix(data)
    if not components:
        return columns
    labels, nests = labels_of(data), mixing.columns[mixing.located :]
    table = np.array([[f"component[{components.get(label)}]" == nest for nest in nests] for label in labels])
    assert data.labels is not None
    return np.hstack([columns, table.reshape(len(labels), len(nests))[data.labels.codes]])


def labels_of(data: ChoiceData) -> tuple[str, ...]:
    """Return the labels of a table, by code."""
    if data.labels is None:
        raise InputError("components go by label: read the table with alternative=<column>.")
    return data.labels.categories
