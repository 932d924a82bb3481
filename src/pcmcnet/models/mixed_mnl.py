"""Mixed logit (McFadden & Train, 2000): a multinomial logit whose coefficients differ from person to person.

Person n has coefficients b_n, drawn from distributions that are estimated, and chooses by a logit in all sets t,

    P(choices of n) = E_b prod_t exp(b . x_chosen,t) / sum_j exp(b . x_jt)

where the expectation is a mean over draws (``models/logit/draws.py``). What varies with b is shared by the person's
sets, so that odds are no longer independent of other alternatives. Distributions are those of
``models/logit/random_coefficients.py``, the likelihood that of ``models/logit/mixed_likelihood.py``. Predictions are
for a person of whom no choice is known: ``models/logit/draws.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import spread
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.interface.latent_classes import Persons
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.draws import DrawSequence, PersonDraws, Population, hash_ids, mixed_slopes
from pcmcnet.models.logit.formula import quoted
from pcmcnet.models.logit.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.logit_model import (
    FittedLogit,
    LogitConfig,
    LogitModel,
    LogitRecord,
    read_design,
    read_estimates,
    read_schema,
)
from pcmcnet.models.logit.mixed_likelihood import SimulatedLikelihood, SimulatedMaximum, SimulatedSearch
from pcmcnet.models.logit.parameter_bounds import Parameters, require_identified
from pcmcnet.models.logit.random_coefficients import (
    Distribution,
    MixingDistribution,
    require_varying_columns,
    specify_mixing,
)
from pcmcnet.models.logit.standard_errors import Errors, Estimates, Ratio, infer
from pcmcnet.reports.formats import data_frame
from pcmcnet.reports.tables import Cells, TableMixin
from pcmcnet.storage import json_bytes
from pcmcnet.training.device import resolve_device

# -- Options of the mixed logit ----------------------------------------------------------------------------------------

_LEAST = 10  # draws


@dataclass(frozen=True, kw_only=True)
class MixedMNLConfig(LogitConfig):
    """Options of the mixed logit: those of the logit models, and which coefficients are random.

    Parameters
    ----------
    random
        Distribution of each random coefficient by name: "normal", "lognormal", "truncated-normal", "triangular",
        "uniform" or "johnson-sb(low, high)". A lognormal or truncated normal coefficient has the sign that the
        multinomial logit finds, or the one in "+lognormal" and "-lognormal". None makes those of all numeric features
        normal.
    correlated
        Whether random coefficients with a normal distribution behind them are correlated, or the names of those that
        are.
    components
        Error components: the nest of some labels, as in {"bus": "public", "train": "public"}. The alternatives of a
        nest share a normal random utility of mean 0.
    means
        What the location of a random coefficient depends on, by its name: a sum of individual columns such as "income +
        age".
    draws
        Draws of each person's coefficients; the search begins with fewer.
    sequence
        What draws are made of: "sobol", "halton", "mlhs" or "random".
    antithetic
        Whether half of the draws mirror the others.
    by
        Whose coefficients they are: those of a "person" in all sets, of every choice "set", or "auto" for persons where
        the table declares them.
    starts
        Where the search begins: near the multinomial logit, and from so many places in all around it.
    prior
        Precision of a normal prior around 0 on each parameter, in units that change a utility by about 1: a weak pull
        that keeps estimates finite. Standard errors are those of the likelihood, without it. 0 for none.
    memory
        GiB that draws may take to be kept between steps; beyond, they are made again at each.
    """

    random: Mapping[str, str] | None = None
    correlated: bool | tuple[str, ...] = False
    components: Mapping[str, str] = field(default_factory=dict)
    means: Mapping[str, str] = field(default_factory=dict)
    draws: int = 1000
    sequence: DrawSequence = "sobol"
    antithetic: bool = False
    by: Literal["auto", "person", "set"] = "auto"
    starts: int = 1
    prior: float = 0.001
    memory: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("random", "components", "means"):
            named = getattr(self, option)
            if named is not None:
                object.__setattr__(self, option, _words(option, named))
        for name, text in (self.random or {}).items():
            Distribution.parse(name, text)
        for text in self.means.values():
            parse_membership(text)
        if not isinstance(self.correlated, bool):
            names = self.correlated
            if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
                raise ConfigError(f"correlated must be True, False or names of coefficients, got {names!r}.")
            object.__setattr__(self, "correlated", tuple(names))
        require_number("draws", self.draws, whole=True, low=_LEAST, high=10**7)
        require_word("sequence", self.sequence, get_args(DrawSequence))
        require_word("by", self.by, ("auto", "person", "set"))
        require_number("starts", self.starts, whole=True, low=1)
        require_number("prior", self.prior, low=0)
        require_number("memory", self.memory, low=0)
        if not isinstance(self.antithetic, bool):
            raise ConfigError(f"antithetic must be True or False, got {self.antithetic!r}.")
        if self.antithetic and self.draws % 2:
            raise ConfigError(f"antithetic draws come in pairs: draws must be even, got {self.draws}.")


def _words(option: str, named: Any) -> dict[str, str]:
    """Refuse anything but words by name."""
    if not (isinstance(named, Mapping) and all(isinstance(word, str) for pair in named.items() for word in pair)):
        raise ConfigError(f"{option} must map names to words, got {named!r}.")
    return dict(named)


# -- Tastes ------------------------------------------------------------------------------------------------------------
# What a mixed logit says of tastes: their distribution over people, and those of each person given the choices.
#
# With w_r the share of draw r given the choices of a person (`models/logit/mixed_likelihood.py`), the coefficient of
# that person has mean sum_r w_r b_r, and the standard deviation of b_r under the same weights (Revelt & Train, 2000).
# It says how much the choices tell: that of the whole population if nothing.

_TAILS = (0.05, 0.5, 0.95)


class Taste(NamedTuple):
    """The distribution of one coefficient over people."""

    name: str
    distribution: str
    mean: float
    deviation: float
    low: float  # quantiles of 5, 50 and 95 per cent
    median: float
    high: float
    below_0: float  # share of people


@dataclass(frozen=True, eq=False)
class Tastes(TableMixin):
    """Distributions of random coefficients, and their correlations; prints as a table."""

    rows: tuple[Taste, ...]
    draws: Floats  # (D, R) coefficients of people
    correlations: Floats  # (D, D)

    @classmethod
    def of(cls, names: Sequence[str], distributions: Sequence[str], draws: Floats) -> Tastes:
        """Sum up draws (D, R) of coefficients."""
        rows = []
        for name, law, values in zip(names, distributions, draws, strict=True):
            low, median, high = np.quantile(values, _TAILS).tolist()
            share = float((values < 0).mean())
            rows.append(Taste(name, law, float(values.mean()), float(values.std()), low, median, high, share))
        spread = draws.std(axis=1)
        centred = (draws - draws.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)[:, None]
        return cls(tuple(rows), draws, centred @ centred.T / draws.shape[1])

    def __getitem__(self, name: str) -> Taste:
        return self.rows[self.position(name)]

    def position(self, name: str) -> int:
        """Return where a coefficient stands."""
        names = [row.name for row in self.rows]
        if name not in names:
            raise InputError(f"no random coefficient is called {name!r}." + did_you_mean(name, names))
        return names.index(name)

    def to_arrow(self) -> pa.Table:
        """Return the table with a row per coefficient."""
        return pa.table({field: [getattr(row, field) for row in self.rows] for field in Taste._fields})

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by name."""
        return data_frame(self.to_arrow(), index="name", instead="to_arrow()")

    def _cells(self) -> Cells:
        heads = ["coefficient", "distribution", "mean", "std dev", "5%", "median", "95%", "below 0"]
        return [
            heads,
            *([r.name, r.distribution, *(f"{v:.4g}" for v in r[2:7]), f"{r.below_0:.1%}"] for r in self.rows),
        ]


@dataclass(frozen=True, eq=False)
class ConditionalCoefficients:
    """Coefficients of each person given the choices: means and standard deviations."""

    persons: NDArray[Any]  # (N,) ids of persons, or of choice sets
    names: tuple[str, ...]  # (C,)
    means: Floats  # (N, C)
    deviations: Floats  # (N, C)

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per person: a column ``name`` and a column ``sd[name]`` for each coefficient."""
        columns = {"person": pa.array(self.persons.tolist())}
        for k, name in enumerate(self.names):
            columns |= {name: pa.array(self.means[:, k]), f"sd[{name}]": pa.array(self.deviations[:, k])}
        return pa.table(columns)

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by person."""
        return data_frame(self.to_arrow(), index="person", instead="to_arrow()")

    def __repr__(self) -> str:
        return f"Conditional({len(self.persons):,} persons; {', '.join(self.names)})"


# -- Mixed predictions -------------------------------------------------------------------------------------------------
# A logit whose coefficients are those of persons: whose they are, its columns and draws, and what it answers.
#
# Probabilities, log-sums and derivatives are those of a person of whom no choice is known, means over draws that all
# sets share (`models/logit/draws.py`). What is known of a person changes the shares of draws: see `mixed_mnl.py`.

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
    mixing: MixingDistribution  # which coefficients are random, and how
    who: Mapping[str, IndividualDesign]  # columns that means of coefficients depend on, by coefficient


class MixedPredictions(LogitModel):
    """A logit with random coefficients, once they are specified and estimated."""

    config: MixedMNLConfig
    _state: FittedMixture
    record_class = MixedRecord

    @property
    def mixing_(self) -> MixingDistribution:
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

    def _draws(self, mixing: MixingDistribution, number: int, seed: int, device: torch.device) -> PersonDraws:
        config = self.config
        return PersonDraws(config.sequence, mixing.dimensions, number, seed, config.antithetic, device)

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

    def conditional(self, data: Any, cost: str | None = None) -> ConditionalCoefficients:
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
        whole = LogitLikelihood.from_matrix(self._columns(sets), sets.offsets, chosen)
        ids = self._ids(sets)[persons.first]
        place = None if cost is None else self._cost(cost)
        who, draws = self._who(persons.table), self.population_.draws
        found = SimulatedLikelihood.of(whole, persons.number, hash_ids(ids), who, mixing, draws, 0.0)
        means, deviations = found.conditional(self.estimates_.values, place)
        kept = [d for d, r in enumerate(mixing.random) if r.column != place]
        names = [mixing.labels[mixing.random[d].column] for d in kept]
        names = names if cost is None else [f"wtp[{name}]" for name in names]
        return ConditionalCoefficients(ids, tuple(names), means[:, kept], deviations[:, kept])

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
    design: Design, mixing: MixingDistribution, components: Mapping[str, str], data: ChoiceData
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


_TOGETHER = 15  # Newton's steps of the logit where the search begins: its own maximum may be at infinity


class MixedMNL(MixedPredictions):
    """Mixed, or random parameters, multinomial logit.

    Options are those of :class:`MixedMNLConfig`.
    """

    name = "mixed-mnl"
    config_class = MixedMNLConfig

    @takes(MixedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedMixture:
        config = self.config
        # 1. The sets that count, whose coefficients they tell of, and the columns of utilities. In willingness-to-pay
        #    space it is the random coefficients that are worths, not the parameters of the design.
        sets, chosen, clusters = self._prepare(train)
        persons = self._persons(sets, clusters)
        if design is None:
            design = self._require_linear(self._learn_design(sets, wtp_space=None))
        plain = LogitLikelihood.from_matrix(design.matrix(sets), sets.offsets, chosen)
        # 2. Which coefficients are random; each must have an effect on some choice.
        who = self._learn_who(persons)
        mixing = self._specify(design, who, sets)
        alike = self._alike(mixing)
        require_identified(plain.z, design.names, alike)
        columns = utility_columns(design, mixing, config.components, sets)
        whole = LogitLikelihood.from_matrix(columns, sets.offsets, chosen)
        require_varying_columns(whole.z, mixing)
        # 3. The search begins near the logit in which all have the same coefficients; it gives lognormals their signs.
        b, _, _ = plain.maximise(sets.weights, within=alike, max_iter=_TOGETHER, settle=False)
        mixing = mixing.signed(b)
        scale = mixing.scale(whole.spread, b)
        within = self._parameters(mixing.names, mixing.start(b, 1 / whole.spread))
        # 4. The maximum of the simulated likelihood. A person's draws depend on seed and id alone.
        keys, device = hash_ids(self._ids(sets)[persons.first]), resolve_device(run.device)
        numbers = individual_numbers(who, persons.table)

        def make(number: int, which: int) -> SimulatedLikelihood:
            draws = self._draws(mixing, number, run.seed ^ (which << 32), device)
            memory = 0.0 if which else config.memory * 2**30  # the second set of draws is used once
            return SimulatedLikelihood.of(whole, persons.number, keys, numbers, mixing, draws, memory)

        search = SimulatedSearch(
            make, persons.weights(sets), scale, within, config.draws, config.prior, config.max_iter
        )
        maximum = search.maximum(self._starts(within.start, scale, run.seed))
        # 5. Negative spreads become positive by mirrored draws; scores and Hessian change their signs likewise. A
        #    person's score stands at the first of its sets.
        mixing, x = mixing.mirrored(maximum.values)
        turned = np.where(x == maximum.values, 1.0, -1.0)
        scores = np.zeros((len(sets), len(x)))
        scores[persons.first] = maximum.scores * turned
        turned_hessian = maximum.hessian * np.outer(turned, turned)
        best = replace(maximum, values=x, scores=scores, hessian=turned_hessian)
        constants = self._constants_log_likelihood(design, plain, sets.weights)
        estimates = infer(best, within, sets.weights, sets.sizes, clusters, constants_log_likelihood=constants)
        self._warn_unbounded(estimates)
        record = MixedRecord(persons=len(keys), simulation=_simulation_record(maximum, estimates))
        return FittedMixture(design=design, estimates=estimates, record=record, mixing=mixing, who=who)

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

    def _specify(self, design: Design, who: Mapping[str, IndividualDesign], sets: ChoiceData) -> MixingDistribution:
        """Find the random coefficients that the options name."""
        config = self.config
        unknown = [label for label in config.components if label not in labels_of(sets)] if config.components else []
        if unknown:
            raise ConfigError(
                f"components names {unknown[0]!r}, which is no alternative of the table."
                + did_you_mean(unknown[0], labels_of(sets))
            )
        mixing = specify_mixing(
            design,
            design.sources(sets),
            config.random,
            config.correlated,
            nests=sorted(set(config.components.values())),
            means={name: columns.names[1:] for name, columns in who.items()},
            offset=None if config.offset is None else quoted(config.offset),
            cost=config.wtp_space,
        )
        if mixing.cost is not None and mixing.cost not in {r.column for r in mixing.random}:
            self._require_cost(mixing.names[mixing.cost])
        return mixing

    def _alike(self, mixing: MixingDistribution) -> Parameters:
        """Return the coefficients of a logit without random ones, fixed and bounded where the options mean those."""
        within, located = self._parameters(mixing.names), slice(mixing.located)
        low, high, at = within.low[located].copy(), within.high[located].copy(), within.start[located].copy()
        for column, _ in mixing.random:
            if column < mixing.located:  # its options are about a location, which may be no coefficient
                low[column], high[column], at[column] = -np.inf, np.inf, 0.0
        return Parameters(mixing.names[located], at, low, high)

    def _starts(self, first: Floats, scale: Floats, seed: int) -> Floats:  # -> (A, P)
        """Begin near the multinomial logit, and around it."""
        others = np.random.default_rng(seed).standard_normal((self.config.starts - 1, len(first)))
        return np.vstack([first, first + others * np.maximum(0.5 * np.abs(first), 0.5 * scale)])

    def _facts(self) -> dict[str, str]:
        facts, config, mixing, record = super()._facts(), self.config, self.mixing_, self._state.record
        facts["random"] = ", ".join(f"{mixing.labels[r.column]}: {r.distribution}" for r in mixing.random)
        if config.wtp_space is not None:
            facts["wtp in units of"] = config.wtp_space
        by_set = record.persons == self.estimates_.n_sets
        facts["coefficients of"] = "each choice set" if by_set else f"{record.persons:,} persons"
        facts["draws"] = f"{config.draws:,} ({config.sequence}{', antithetic' * config.antithetic})"
        facts["with other draws"] = (
            f"log-likelihood {record.simulation.log_likelihood:.3f}; estimates move by up to "
            f"{record.simulation.largest_shift:.2f} standard errors"
        )
        return facts

    def _files(self) -> dict[str, bytes]:
        mixing = asdict(self.mixing_) | {"random": [[r.column, asdict(r.distribution)] for r in self.mixing_.random]}
        who = {name: design.to_dict() for name, design in self.who_.items()}
        return {**super()._files(), "mixing.json": json_bytes({"mixing": mixing, "who": who})}

    def _restore(self, files: Mapping[str, bytes], record: MixedRecord, table: TrainingTable) -> FittedMixture:
        entries, schema = json.loads(files["mixing.json"]), read_schema(files)
        who = {str(name): IndividualDesign.from_dict(design) for name, design in entries["who"].items()}
        for columns in who.values():
            columns.require_fit(schema)
        mixing, estimates = MixingDistribution.from_dict(entries["mixing"]), read_estimates(files)
        if mixing.names != estimates.names:
            raise ValueError("the random coefficients and the estimates do not fit each other")
        return FittedMixture(design=read_design(files), estimates=estimates, record=record, mixing=mixing, who=who)


def _simulation_record(maximum: SimulatedMaximum, estimates: Estimates) -> SimulationRecord:
    """Return how far other draws would move the log-likelihood and the estimates."""
    errors = np.sqrt(np.maximum(np.diag(estimates.covariance("classical")), 1e-300))
    shift = float(np.max(np.abs(maximum.shift) / errors, initial=0.0, where=errors > 1e-150))
    return SimulationRecord(log_likelihood=maximum.other_log_likelihood, largest_shift=shift)
