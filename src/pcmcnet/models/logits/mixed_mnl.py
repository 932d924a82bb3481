"""Mixed logit (McFadden & Train, 2000): a multinomial logit whose coefficients differ from person to person.

Person n has coefficients b_n, drawn from distributions that are estimated, and chooses by a logit in all sets t,

    P(choices of n) = E_b prod_t exp(b . x_chosen,t) / sum_j exp(b . x_jt)

where the expectation is a mean over draws (``simulation/draws.py``). What varies with b is shared by the person's sets,
so that odds are no longer independent of other alternatives. Distributions are those of
``simulation/distributions.py``, the likelihood that of ``estimation/mixed_likelihood.py``. Predictions are for a person
of whom no choice is known: ``simulation/prediction.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.ragged import spread
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logits.design.formula import quoted
from pcmcnet.models.logits.design.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logits.estimation import Errors, LogitSets, Ratio, infer
from pcmcnet.models.logits.estimation.identification import require_identified
from pcmcnet.models.logits.estimation.mixed_likelihood import MixedSets
from pcmcnet.models.logits.estimation.mixed_search import Maximum, Search
from pcmcnet.models.logits.estimation.parallel import products_in_one_thread
from pcmcnet.models.logits.estimation.parameters import Parameters
from pcmcnet.models.logits.logit_model import LogitModel
from pcmcnet.models.logits.mixed_config import MixedMNLConfig
from pcmcnet.models.logits.persons import Persons
from pcmcnet.models.logits.simulation.coefficients import Mixing
from pcmcnet.models.logits.simulation.draws import Draws, keys_of
from pcmcnet.models.logits.simulation.prediction import Population
from pcmcnet.models.logits.simulation.slopes import mixed_slopes
from pcmcnet.models.logits.simulation.specification import require_moving, specify
from pcmcnet.models.logits.tastes import Conditional, Tastes
from pcmcnet.reports.drawing import draw
from pcmcnet.runtime.device import resolve_device
from pcmcnet.storage.files import json_bytes

_SHOWN, _KINDS = 4096, 100  # draws that stand for people, and kinds of people at most, where tastes are shown
_TOGETHER = 15  # Newton's steps of the logit where the search begins: its own maximum may be at infinity


class MixedMNL(LogitModel):
    """Mixed, or random parameters, multinomial logit.

    Options are those of :class:`MixedMNLConfig`.
    """

    name = "mixed-mnl"
    config_class = MixedMNLConfig
    config: MixedMNLConfig
    control = own_worths = True
    mixing_: Mixing
    who_: dict[str, IndividualDesign]

    @takes(MixedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @products_in_one_thread()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        sets, chosen, clusters = self._prepare(train)
        persons = self._persons(sets, clusters)
        self.design_ = self._learn_design(sets)
        plain = LogitSets.from_matrix(self.design_.matrix(sets), sets.offsets, chosen)
        self.who_ = self._learn_who(persons)
        mixing = self._specify(sets)
        alike = self._alike(mixing)
        require_identified(plain.z, self.design_.names, alike)
        whole = LogitSets.from_matrix(self._columns(sets, mixing), sets.offsets, chosen)
        require_moving(whole.z, mixing)
        b, _, _ = plain.maximise(sets.weights, within=alike, max_iter=_TOGETHER, settle=False)
        mixing = mixing.signed(b)
        scale = mixing.scale(whole.spread, b)
        within = self._parameters(mixing.names, mixing.start(b, 1 / whole.spread))
        keys, device = keys_of(self._ids(sets)[persons.first]), resolve_device(settings.device)
        who = self._who(persons.table)

        def make(number: int, which: int) -> MixedSets:
            draws = self._draws(mixing, number, settings.seed ^ (which << 32), device)
            memory = 0.0 if which else self.config.memory * 2**30  # the second set of draws is used once
            return MixedSets.of(whole, persons.number, keys, who, mixing, draws, memory)

        config = self.config
        search = Search(make, persons.weights(sets), scale, within, config.draws, config.prior, config.max_iter)
        found = search.maximum(self._starts(within.start, scale, settings.seed))
        self.mixing_, x = mixing.mirrored(found.x)
        turned = np.where(x == found.x, 1.0, -1.0)
        scores = np.zeros((len(sets), len(x)))
        scores[persons.first] = found.scores * turned  # those of a person stand at the first of its sets
        self.estimates_ = infer(
            mixing.names,
            x,
            log_likelihood=found.log_likelihood,
            hessian=found.hessian * np.outer(turned, turned),
            scores=scores,
            weights=sets.weights,
            sizes=sets.sizes,
            steps=found.steps,
            clusters=clusters,
            spread=1 / scale,
            constants_log_likelihood=self._constants_alone(plain, sets.weights),
            within=within,
        )
        self._keep(found, len(keys))
        self._note()

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

    def _learn_who(self, persons: Persons) -> dict[str, IndividualDesign]:
        """Learn the numbers of individuals that means depend on."""
        found = {}
        for name, text in self.config.means.items():
            for factor in (f for term in parse_membership(text)[0] for f in term.factors):
                if factor.column in persons.varying:
                    raise InputError(
                        f"means[{name!r}]: column {factor.column!r} varies within a person, first in choice set "
                        f"{persons.varying[factor.column]}: put {name}:{factor.column} into the formula, or fit with "
                        f"by='set'."
                    )
            found[name] = IndividualDesign.learn(text, persons.table, least=self.config.min_chosen)
        return found

    def _who(self, table: ChoiceData) -> Floats:  # (S, G)
        """Return the numbers of individuals that means depend on, each once."""
        columns: dict[str, Floats] = {}
        for design in self.who_.values():
            columns |= dict(zip(design.names[1:], design.matrix(table).T[1:], strict=True))
        return np.column_stack([*columns.values()]) if columns else np.zeros((len(table), 0))

    def _specify(self, sets: ChoiceData) -> Mixing:
        """Find the random coefficients that the options name."""
        config = self.config
        unknown = [label for label in config.components if label not in _labels(sets)] if config.components else []
        if unknown:
            raise ConfigError(
                f"components names {unknown[0]!r}, which is no alternative of the table."
                + did_you_mean(unknown[0], _labels(sets))
            )
        return specify(
            self.design_,
            self.design_.sources(sets),
            config.random,
            config.correlated,
            nests=sorted(set(config.components.values())),
            means={name: design.names[1:] for name, design in self.who_.items()},
            offset=None if config.offset is None else quoted(config.offset),
            cost=config.wtp_space,
        )

    def _alike(self, mixing: Mixing) -> Parameters:
        """Return the coefficients of a logit without random ones, fixed and bounded where the options mean those."""
        within, located = self._parameters(mixing.names), slice(mixing.located)
        low, high, at = within.low[located].copy(), within.high[located].copy(), within.start[located].copy()
        for column, _ in mixing.random:
            if column < mixing.located:  # its options are about a location, which may be no coefficient
                low[column], high[column], at[column] = -np.inf, np.inf, 0.0
        return Parameters(mixing.names[located], at, low, high)

    def _columns(self, data: ChoiceData, mixing: Mixing) -> Floats:  # -> (N, K)
        """Return the columns of the utility: those of the formula, then a mark of each nest."""
        design, components = self.design_.matrix(data), self.config.components
        if not components:
            return design
        labels, nests = _labels(data), mixing.columns[mixing.located :]
        table = np.array([[f"component[{components.get(label)}]" == nest for nest in nests] for label in labels])
        assert data.labels is not None
        return np.hstack([design, table.reshape(len(labels), len(nests))[data.labels.codes]])

    def _draws(self, mixing: Mixing, number: int, seed: int, device: torch.device) -> Draws:
        config = self.config
        return Draws(config.sequence, mixing.dimensions, number, seed, config.antithetic, device)

    def _starts(self, first: Floats, scale: Floats, seed: int) -> Floats:  # -> (A, P)
        """Begin near the multinomial logit, and around it."""
        others = np.random.default_rng(seed).standard_normal((self.config.starts - 1, len(first)))
        return np.vstack([first, first + others * np.maximum(0.5 * np.abs(first), 0.5 * scale)])

    def _keep(self, found: Maximum, persons: int) -> None:
        """Note how the draws matter."""
        errors = np.sqrt(np.maximum(np.diag(self.estimates_.covariance("classical")), 1e-300))
        moved = float(np.max(np.abs(found.shift) / errors, initial=0.0, where=errors > 1e-150))
        self.training_ |= {
            "persons": persons,
            "simulation": {"log_likelihood": found.other_log_likelihood, "largest_shift": moved},
        }

    def _facts(self) -> dict[str, str]:
        facts, config, mixing = super()._facts(), self.config, self.mixing_
        other = self.training_["simulation"]
        facts["random"] = ", ".join(f"{mixing.labels[r.column]}: {r.distribution}" for r in mixing.random)
        if config.wtp_space is not None:
            facts["wtp in units of"] = config.wtp_space
        n = self.training_["persons"]
        facts["coefficients of"] = "each choice set" if n == self.estimates_.n_sets else f"{n:,} persons"
        facts["draws"] = f"{config.draws:,} ({config.sequence}{', antithetic' * config.antithetic})"
        facts["with other draws"] = (
            f"log-likelihood {other['log_likelihood']:.3f}; estimates move by up to {other['largest_shift']:.2f} "
            f"standard errors"
        )
        return facts

    @property
    def population_(self) -> Population:
        """The coefficients of people, in draws that stand for all of them."""
        _ = self.schema
        draws = self._draws(self.mixing_, self.config.draws, self.training_["seed"], torch.device("cpu"))
        return Population(self.mixing_, self.estimates_.values, draws)

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        found = self.population_.log_probabilities(self._columns(data, self.mixing_), data.offsets, self._who(data))
        out: Floats = np.where(spread(data.sizes, data.offsets) == 1, 0.0, found)
        return out

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        if not len(data) or any(column in design.codes for design in self.who_.values()):
            return None  # the means move as well: by differences
        if column not in self.design_.codes:
            return np.zeros(int((data.sizes**2 if column in data.features else data.sizes).sum()))
        columns = partial(self._columns, mixing=self.mixing_)
        return mixed_slopes(self.population_, self.design_, data, column, columns, self._who)

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
        whole = LogitSets.from_matrix(self._columns(sets, mixing), sets.offsets, chosen)
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
        _ = self.schema
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
        _ = self.schema
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
        return draw("tastes", self.tastes(data), name, ax=ax)

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        found = self.population_.log_sums(self._columns(data, self.mixing_), data.offsets, self._who(data))
        return found, np.full_like(found, 1 / found.shape[1])

    def _files(self) -> dict[str, bytes]:
        mixing = asdict(self.mixing_) | {"random": [[r.column, asdict(r.distribution)] for r in self.mixing_.random]}
        who = {name: design.to_dict() for name, design in self.who_.items()}
        return {**super()._files(), "mixing.json": json_bytes({"mixing": mixing, "who": who})}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        super()._restore(files)
        entries = json.loads(files["mixing.json"])
        self.who_ = {str(name): IndividualDesign.from_dict(design) for name, design in entries["who"].items()}
        for design in self.who_.values():
            design.require_fit(Schema.from_dict(json.loads(files["schema.json"])))
        self.mixing_ = Mixing.from_dict(entries["mixing"])
        if self.mixing_.names != self.estimates_.names:
            raise ValueError("the random coefficients and the estimates do not fit each other")


def _labels(data: ChoiceData) -> tuple[str, ...]:
    """Return the labels of a table, by code."""
    if data.labels is None:
        raise InputError("components go by label: read the table with alternative=<column>.")
    return data.labels.categories
