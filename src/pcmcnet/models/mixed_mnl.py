"""Mixed logit (McFadden & Train, 2000): a multinomial logit with random coefficients.

Person n has coefficients b_n, drawn from a mixing distribution, and chooses by a logit with these coefficients in all
sets t:

    P(choices of n) = E_b prod_t exp(b . x_chosen,t) / sum_j exp(b . x_jt)

The expectation is simulated by a mean over draws (``models/logit/draws.py``). The coefficients are the same in all
choice sets of a person, so a person's choices are correlated, and the model does not have the IIA property.
``models/logit/random_coefficients.py`` contains the distributions, and ``models/logit/mixed_likelihood.py`` the
simulated likelihood. Predictions are unconditional: they apply to a person whose choices are unknown.

The mixing distribution may be a mixture of distributions: latent classes with random coefficients, and coefficients
that are 0 for a share of the people (``models/logit/mixing_classes.py``).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.choice_based import sampling_strata
from pcmcnet.data.columns.ragged import consecutive_indices, spread
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import TrainingTable, record_from_dict, record_to_dict
from pcmcnet.models.interface.known_people import KnownPeople, persons_of
from pcmcnet.models.interface.latent_classes import ClassProfile, Persons, class_profiles
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.sign_check import SignCheck
from pcmcnet.models.logit.class_mixture_likelihood import ClassMixtureLikelihood
from pcmcnet.models.logit.class_options import equal_in_classes, options_by_class
from pcmcnet.models.logit.class_starts import ClassStarts, around, column_scales
from pcmcnet.models.logit.design import Design, columns_of
from pcmcnet.models.logit.draws import DrawSequence, PersonDraws, Population, hash_ids, mixed_slopes
from pcmcnet.models.logit.formula import backquoted
from pcmcnet.models.logit.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logit.latent_class_likelihood import MixtureData
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.logit_model import (
    FittedLogit,
    LogitConfig,
    LogitModel,
    LogitRecord,
    names_with,
    read_design,
    read_estimates,
    read_schema,
)
from pcmcnet.models.logit.maximum_likelihood import StartsRecord
from pcmcnet.models.logit.mixed_likelihood import CurvesOf, SimulatedLikelihood, SimulatedMaximum, SimulatedSearch
from pcmcnet.models.logit.mixing_classes import (
    SHARE_BOUNDS,
    MixingClasses,
    MixturePopulation,
)
from pcmcnet.models.logit.parameter_bounds import Bounds, Parameters, numeric_bounds, require_identified
from pcmcnet.models.logit.person_draws import mean_probabilities, posterior_weights
from pcmcnet.models.logit.random_coefficients import (
    CORRELATED,
    Distribution,
    MixingDistribution,
    require_varying_columns,
    specify_mixing,
)
from pcmcnet.models.logit.standard_errors import Errors, Estimates, Ratio, infer
from pcmcnet.models.logit.tastes import ConditionalCoefficients, TasteCovariance, Tastes, covariance_and_correlation
from pcmcnet.reports.tables import percent
from pcmcnet.storage import json_bytes
from pcmcnet.training.device import resolve_device

if TYPE_CHECKING:
    from pcmcnet.models.latent_class_mnl import LatentClassMNL

log = logging.getLogger("pcmcnet")

T = TypeVar("T")

# -- Options of the mixed logit ----------------------------------------------------------------------------------------

_MIN_DRAWS = 10
_STARTS = 5  # default number; on swissmetro with four correlated coefficients, one start ends up to 83 lower


@dataclass(frozen=True, kw_only=True)
class MixedMNLConfig(LogitConfig):
    """Options of the mixed logit: the options of all logit models, and the random coefficients.

    Parameters
    ----------
    random
        Distribution of each random coefficient, by name: "normal", "lognormal", "truncated-normal", "triangular",
        "uniform", "log-uniform", "johnson-sb(low, high)", "zbu" or "zbt" (uniform or triangular between 0 and twice the
        mean), as in {"time": "normal", "cost": "-lognormal"}. A lognormal, log-uniform or truncated normal coefficient
        has the sign of the multinomial logit estimate, or the sign in "+lognormal" or "-lognormal". With the prefix
        "zero-inflated-", as in "zero-inflated-normal", the coefficient is 0 for an estimated share of the people.
        Default: normal coefficients of all numeric features.
    correlated
        Whether the random coefficients are correlated, or the names of the correlated coefficients. A Gaussian copula
        correlates uniform, log-uniform and triangular coefficients; those of the distributions truncated-normal, zbu
        and zbt stay independent. Default False: independent.
    components
        Error components: a mapping from labels to nests, as in {"bus": "public", "train": "public"}. The alternatives
        of a nest share a normal random utility with mean 0. Default: none.
    means
        Covariates of the mean (location) of each random coefficient, by name: a sum of individual-level columns, as in
        {"cost": "income + age"}. Default: none.
    classes
        Number of latent classes, each with its own distribution of coefficients. Default 1.
    shared
        Coefficients that are the same in all classes, as in ["time"]: names of coefficients, or terms of the formula,
        which stand for all their coefficients ("1" for the constants). The spreads of these coefficients are shared,
        too. If ``fixed`` contains a parameter of one class, as in {"class 2: time": 0}, this class keeps the fixed
        value. Default: none.
    membership
        Covariates of the class shares: a sum of individual-level columns, as in "income + age". The default "." means
        all individual-level columns that do not vary within a person, and "1" means no covariates.
    draws
        Number of draws for each person, at least 10. The maximisation starts with at most 100 draws. Default 1000.
    sequence
        Type of draws: "sobol" (scrambled Sobol), "halton", "mlhs" (modified Latin hypercube) or "random"
        (pseudo-random). Default "sobol".
    antithetic
        Whether the second half of the draws mirrors the first half; ``draws`` must then be even. Default False.
    by
        Unit that has its own coefficients: a "person", with the same coefficients in all choice sets (panel), or each
        choice "set". Default "auto": persons if the table declares them, else choice sets.
    starts
        Number of starting points of the maximisation: one near the multinomial logit, and random points around it. With
        several classes, the first is near the latent class logit, the second divides the one class of a mixed logit
        into several, and the others are random points around these. A start continues with all draws if its maximum
        with few draws is among the best three so far, so more starts are never worse. Default "auto": 5, or 1 if
        ``start`` contains all parameters.
    prior
        Precision of a normal prior with mean 0 on each parameter, in units that change a utility by about 1. The prior
        keeps the estimates finite and is not included in the standard errors. A value of 0 means no prior. Default
        0.001.
    memory
        Memory, in GiB, for storing draws between iterations. If the draws need more memory, they are generated again in
        each iteration. Default 1.
    """

    random: Mapping[str, str] | None = None
    correlated: bool | tuple[str, ...] = False
    components: Mapping[str, str] = field(default_factory=dict)
    means: Mapping[str, str] = field(default_factory=dict)
    classes: int = 1
    shared: tuple[str, ...] = ()
    membership: str = "."
    draws: int = 1000
    sequence: DrawSequence = "sobol"
    antithetic: bool = False
    by: Literal["auto", "person", "set"] = "auto"
    starts: int | Literal["auto"] = "auto"
    prior: float = 0.001
    memory: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("random", "components", "means"):
            mapping = getattr(self, option)
            if mapping is not None:
                object.__setattr__(self, option, _checked_words(option, mapping))
        for name, text in (self.random or {}).items():
            Distribution.parse(name, text)
        for text in self.means.values():
            parse_membership(text)
        if not isinstance(self.correlated, bool):
            names = self.correlated
            if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
                raise ConfigError(f"correlated must be True, False or names of coefficients, got {names!r}.")
            object.__setattr__(self, "correlated", tuple(names))
        require_number("classes", self.classes, whole=True, low=1)
        if not (isinstance(self.shared, list | tuple) and all(isinstance(name, str) for name in self.shared)):
            raise ConfigError(f"shared must be a list of names of coefficients, got {self.shared!r}.")
        object.__setattr__(self, "shared", tuple(self.shared))
        if self.shared and self.classes == 1:
            raise ConfigError("shared needs several classes: set classes, as in classes=2, or leave shared out.")
        if self.membership != MixedMNLConfig.membership and self.classes == 1:
            raise ConfigError("membership needs several classes: set classes, as in classes=2, or leave it out.")
        parse_membership(self.membership)
        require_number("draws", self.draws, whole=True, low=_MIN_DRAWS, high=10**7)
        require_word("sequence", self.sequence, get_args(DrawSequence))
        require_word("by", self.by, ("auto", "person", "set"))
        if self.starts != "auto":
            require_number("starts", self.starts, whole=True, low=1)
        require_number("prior", self.prior, low=0)
        require_number("memory", self.memory, low=0)
        if not isinstance(self.antithetic, bool):
            raise ConfigError(f"antithetic must be True or False, got {self.antithetic!r}.")
        if self.antithetic and self.draws % 2:
            raise ConfigError(f"antithetic draws need an even number of draws, got {self.draws}.")


_EXAMPLES = {"random": "{'price': 'lognormal', 'time': 'normal'}"}


def _checked_words(option: str, mapping: Any) -> dict[str, str]:
    """Return the option as a dict. Raise ConfigError unless it maps strings to strings."""
    if not (isinstance(mapping, Mapping) and all(isinstance(word, str) for pair in mapping.items() for word in pair)):
        example = f", as in {_EXAMPLES[option]}" if option in _EXAMPLES else ""
        raise ConfigError(f"{option} must map names to strings{example}, got {mapping!r}.")
    return dict(mapping)


# -- Predictions -------------------------------------------------------------------------------------------------------
# Probabilities, log-sums and derivatives are unconditional: means over draws that all choice sets share
# (`models/logit/draws.py`). `conditional` weights the draws by the choices of a person.

_TASTE_DRAWS = 4096  # draws that describe the distribution of tastes
_TASTE_INDIVIDUALS = 100  # approximate number of individuals whose tastes are combined, if means depend on covariates


@dataclass(frozen=True, kw_only=True)
class SimulationRecord:
    """Simulation error of the estimates, measured with a second set of draws."""

    log_likelihood: float  # with the second set of draws, at the estimates
    largest_shift: float  # largest change of an estimate, in standard errors


@dataclass(frozen=True, kw_only=True)
class MixedRecord(LogitRecord):
    """Facts about the fit of a mixed logit."""

    persons: int  # number of persons with their own coefficients; of choice sets if by="set"
    simulation: SimulationRecord
    starts: StartsRecord | None = None  # where the starts ended


@dataclass(frozen=True, kw_only=True)
class FittedMixture(FittedLogit):
    """A fitted logit with random coefficients."""

    record: MixedRecord
    classes: MixingClasses
    mean_designs: Mapping[str, IndividualDesign]  # covariates of the means of random coefficients, by coefficient
    membership_design: IndividualDesign | None = None  # covariates of the class shares, if there are several classes
    profiles: tuple[ClassProfile, ...] = ()  # (C,) if there are several classes


class MixedPredictions(LogitModel, KnownPeople):
    """Base class of the mixed logit: predictions and tastes of a fitted model."""

    config: MixedMNLConfig
    _state: FittedMixture
    record_class = MixedRecord

    @property
    def _individual_designs(self) -> tuple[IndividualDesign, ...]:
        membership = self._state.membership_design
        return (*self.mean_designs_.values(), *([] if membership is None else [membership]))

    @property
    def mixing_(self) -> MixingDistribution:
        """The random coefficients and their distributions, which are those of the first of several latent classes."""
        return self._state.classes.distributions[0]

    @property
    def mixing_classes_(self) -> MixingClasses:
        """The mixing distributions of all latent classes."""
        return self._state.classes

    @property
    def n_classes_(self) -> int:
        """Number of latent classes."""
        return self._state.classes.number

    @property
    def profiles_(self) -> tuple[ClassProfile, ...]:
        """Share of each latent class, and the class means of the individual-level columns; empty for one class."""
        return self._state.profiles

    @property
    def _theta(self) -> Floats:
        """The parameters of the mixing distribution of the first class."""
        return self.mixing_classes_.theta(self.estimates_.values)

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
        sets = self._read(data)
        return np.exp(self.mixing_classes_.log_class_shares(self.estimates_.values, self._membership_columns(sets)))

    def posterior(self, data: Any) -> Floats:
        """Return the posterior shares of the latent classes, given the choices.

        Parameters
        ----------
        data
            Choice sets or a table with known choices: see :meth:`predict_log_proba`.

        Returns
        -------
        Shares (S, C) for each choice set, conditional on all choices of its person in ``data``.
        """
        sets = self._read(data, chosen=True)
        persons = self._persons(sets, None)
        likelihood = self._mixture_likelihood(sets, persons)
        return np.asarray(likelihood.class_posterior(self.estimates_.values)[persons.number])

    def _membership_columns(self, table: ChoiceData) -> Floats:  # (S, G)
        """Return the covariates of the class shares, the first of them 1."""
        design = self._state.membership_design
        return np.ones((len(table), 1)) if design is None else design.matrix(table)

    @property
    def mean_designs_(self) -> Mapping[str, IndividualDesign]:
        """The covariates of the means of random coefficients, by coefficient."""
        return self._state.mean_designs

    def _persons(self, sets: ChoiceData, clusters: Ints | None) -> Persons:
        """Return the persons or sets with their own coefficients. Raise ConfigError for by="person" without persons."""
        if self.config.by == "person" and sets.schema.person is None:
            raise ConfigError("by='person' needs persons: read the table with person=<column>, or use by='set'.")
        persons = Persons.of(sets, "set" if self.config.by == "set" else "person")
        if clusters is not None and self.config.cluster is not None:
            persons.require_one_cluster(sets, clusters, self.config.cluster)
        return persons

    def _ids(self, sets: ChoiceData) -> NDArray[Any]:  # (S,)
        """Return the id that the draws of each choice set depend on: the id of the person or of the set."""
        person = sets.schema.person
        return sets.set_ids if person is None or self.config.by == "set" else sets.keep[person].plain()

    def _covariates(self, table: ChoiceData) -> Floats:  # (S, G)
        """Return the covariates of the means of random coefficients, then those of the class shares."""
        return np.hstack([covariates_of_means(self.mean_designs_, table), self._membership_columns(table)[:, 1:]])

    def _columns(self, data: ChoiceData) -> Floats:  # -> (N, K)
        """Return the columns of the utility, multiplied by the scales of the choice sets."""
        design, scale = self._design_at_estimates, self.design_.scale
        columns = utility_columns(design, self.mixing_, self.config.components, data)
        if scale is None:
            return columns
        multipliers = self.mixing_.multipliers(self._theta)[scale.codes(data)]
        columns *= spread(multipliers, data.offsets)[:, None]
        return columns

    @property
    def _design_at_estimates(self) -> Design:
        """The design with the estimated parameters of transformations."""
        return design_at(self.design_, self.mixing_, self.mixing_.exponents(self._theta))

    def simulated_likelihood(self, data: ChoiceData, persons: Persons) -> SimulatedLikelihood | ClassMixtureLikelihood:
        """Return the simulated likelihood of the choices of persons, with the draws of the fit.

        Parameters
        ----------
        data
            Choice sets with known choices.
        persons
            Persons with their own coefficients.
        """
        likelihood = self._mixture_likelihood(data, persons)
        return likelihood if self.mixing_classes_.is_mixture else likelihood.likelihood

    def _mixture_likelihood(self, data: ChoiceData, persons: Persons) -> ClassMixtureLikelihood:
        """Return the simulated likelihood as that of a mixture, even if it has a single member."""
        columns = utility_columns(self._design_at_estimates, self.mixing_, self.config.components, data)
        sets = LogitLikelihood.from_matrix(columns, data.offsets, data.require_chosen("a simulated likelihood"))
        keys = hash_ids(self._ids(data)[persons.first])
        covariates = covariates_of_means(self.mean_designs_, persons.table)
        draws, groups = self.population_.draws, group_codes(self.design_, data)
        rest = (covariates, self.mixing_, draws, 0.0, groups)
        likelihood = SimulatedLikelihood.of(sets, persons.number, keys, *rest)
        return ClassMixtureLikelihood(likelihood, self.mixing_classes_, self._membership_columns(persons.table))

    def _draws(self, mixing: MixingDistribution, number: int, seed: int, device: torch.device) -> PersonDraws:
        config = self.config
        return PersonDraws(config.sequence, mixing.dimensions, number, seed, config.antithetic, device)

    @property
    def population_(self) -> Population | MixturePopulation:
        """The distribution of coefficients over people, as draws."""
        return self._population(self.config.draws, self.estimates_.values)

    def _population(self, number: int, x: Floats) -> Population | MixturePopulation:
        """Return the distribution of coefficients with given parameters (P,), as a number of draws of each member."""
        draws = self._draws(self.mixing_, number, self.table_.seed, torch.device("cpu"))
        if self.mixing_classes_.is_mixture:
            return MixturePopulation(self.mixing_classes_, x, draws)
        return Population(self.mixing_, x, draws)

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        log_p = self.population_.log_probabilities(self._columns(data), data.offsets, self._covariates(data))
        out: Floats = np.where(spread(data.sizes, data.offsets) == 1, 0.0, log_p)
        return out

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """Return the logit of each draw: see :meth:`ChoiceModel.as_logits`."""
        x, offsets, h, population = self._columns(data), data.offsets, self._covariates(data), self.population_
        return population.all_weights(h), population.log_probabilities_by_draw(x, offsets, h)

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        h, population = self._covariates(data), self.population_
        return population.log_sums(self._columns(data), data.offsets, h), population.all_weights(h)

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        if not len(data) or any(column in design.codes for design in self._individual_designs):
            return None  # means or class shares change, too: the caller uses finite differences
        if column not in self.design_.codes:
            return np.zeros(int((data.sizes**2 if column in data.features else data.sizes).sum()))
        design = self._design_at_estimates
        if design.scale is not None:
            design = replace(design, multipliers=self.mixing_.multipliers(self._theta)[1:])
        return mixed_slopes(self.population_, design, data, column, self._columns, self._covariates)

    def conditional(self, data: Any, cost: str | None = None) -> ConditionalCoefficients:
        """Return conditional means and standard deviations of each person's random coefficients, given the choices.

        Parameters
        ----------
        data
            Choice data, or a table to read with the model's schema. The data must include choices and, if each person
            has their own coefficients, a person column.
        cost
            Name of a cost coefficient (default: none). If given, the method returns willingness to pay instead of
            coefficients: minus the ratio of each random coefficient to the cost coefficient. If the cost coefficient
            is random, the ratios of fixed coefficients are included.

        Returns
        -------
        ConditionalCoefficients
            Means and standard deviations by person, or by choice set if by="set".

        Raises
        ------
        InputError
            If ``cost`` is not a coefficient, or the model is estimated in willingness-to-pay space.
        """
        sets = self._read(data, chosen=True)
        persons, mixing = self._persons(sets, None), self.mixing_
        ids = self._ids(sets)[persons.first]
        cost_column = None if cost is None else self._cost_column(cost)
        likelihood = self.simulated_likelihood(sets, persons)
        means, deviations = likelihood.conditional(self.estimates_.values, cost_column)
        random = [r.column for r in mixing.random]
        if cost_column is None:
            return ConditionalCoefficients(ids, tuple(mixing.labels[k] for k in random), means, deviations)
        if (share := self._share_above_0(cost_column)) > 0:
            log.warning(
                "the coefficient of %r is normal, and %s of its distribution is above 0: ratios to it have no mean. "
                "Use wtp_space=%r, or a lognormal cost",
                *(cost, percent(share), cost),
            )
        all_vary = cost_column in random
        shown = [k for k in range(len(mixing.columns)) if k != cost_column and (all_vary or k in random)]
        names = tuple(f"wtp[{mixing.labels[k]}]" for k in shown)
        return ConditionalCoefficients(ids, names, means[:, shown], deviations[:, shown])

    def _require_persons_of_model(self) -> None:
        if self.schema.person is None or self.config.by == "set":
            raise InputError(
                "earlier choices can be used only if each person has one set of coefficients: read the table with "
                "person=<column> and fit with by='person'."
            )

    def _proba_given(self, sets: ChoiceData, earlier: ChoiceData) -> Floats:
        # The draws of a person are weighted by the likelihood of the earlier choices, as in `conditional`.
        persons = self._persons(earlier, None)
        index = {person: n for n, person in enumerate(persons_of(earlier)[persons.first])}
        of_set = np.array([index.get(person, -1) for person in persons_of(sets)], np.int64)
        # 1. New people, whose draws have equal weights.
        out = np.exp(self._log_proba(sets))
        # 2. Known people: their own draws, weighted by the likelihood of their earlier choices.
        known = np.flatnonzero(of_set >= 0)
        later = sets.subset(known)
        coefficients = self._person_coefficients(earlier, persons)
        chosen = earlier.require_chosen("the earlier choices")
        prior = self.population_.weights(self._covariates(persons.table))
        x, offsets = self._columns(earlier), earlier.offsets
        weights = posterior_weights(x, offsets, chosen, coefficients, persons.number, prior)
        p = mean_probabilities(self._columns(later), later.offsets, coefficients, of_set[known], weights)
        out[consecutive_indices(sets.offsets[known], sets.sizes[known])] = p
        return out

    def _person_coefficients(self, sets: ChoiceData, persons: Persons) -> Floats:  # -> (P, K, R)
        """Return the draws of the coefficients of each person, as in the fit."""
        uniform = self.population_.draws.of(hash_ids(self._ids(sets)[persons.first]))
        covariates, coefficients = self._covariates(persons.table), []
        for member in self.mixing_classes_.members:
            mixing, x = member.mixing, self.estimates_.values[member.parameters]
            locations = torch.from_numpy(mixing.locations(x, covariates))
            standard = mixing.standard(uniform).double()
            random = mixing.sample(locations, torch.from_numpy(mixing.triangle(x)), standard).value
            coefficients.append(mixing.in_utility(mixing.whole(x, random)).numpy())
        return np.concatenate(coefficients, axis=2)

    def taste_covariance(self, data: Any = None, errors: Errors | None = None) -> TasteCovariance:
        """Return the covariances and correlations of the random coefficients over people, with standard errors.

        The covariances are exact if all random coefficients are normal, uniform or triangular. Otherwise, they are
        those of quasi-random draws. Standard errors are computed by the delta method.

        Parameters
        ----------
        data
            Choice data, or a table to read with the model's schema, with the individuals to describe. Required if the
            means of coefficients depend on individual-level columns, and ignored otherwise.
        errors
            Kind of standard errors: "classical", "robust" or "clustered". The option ``errors`` sets the default.

        Returns
        -------
        TasteCovariance
            A covariance and a correlation for each pair of random coefficients; the object prints as a table.

        Raises
        ------
        InputError
            If ``data`` is required and not given.
        """
        mixing, kind = self.mixing_, self._error_kind(errors)
        individuals = self._individuals(data)
        random, is_mixture = [r.column for r in mixing.random], self.mixing_classes_.is_mixture
        is_exact = (
            not is_mixture
            and not mixing.who
            and not mixing.copula_pairs
            and all(r.distribution.is_linear for r in mixing.random)
        )
        in_group = np.isin(np.arange(mixing.dimensions), mixing.group)
        has_own_means = bool(mixing.who) or self.n_classes_ > 1
        may_covary = np.outer(in_group, in_group) | np.eye(mixing.dimensions, dtype=bool) | has_own_means

        def moments(x: Floats) -> Floats:
            if is_exact:
                variances = np.array([r.distribution.variance_of_draws for r in mixing.random])
                triangle = mixing.triangle(x)
                return covariance_and_correlation((triangle * variances) @ triangle.T)
            population = self._population(_TASTE_DRAWS, x)
            draws = population.in_wtp_space(individuals)[:, random].transpose(0, 1).flatten(1).numpy()
            weights = population.weights(individuals)
            covariance = np.atleast_2d(np.cov(draws, bias=True, aweights=None if weights is None else weights.ravel()))
            return covariance_and_correlation(np.where(may_covary, covariance, 0.0))

        values, std_errors = self.estimates_.delta(moments, kind)
        return TasteCovariance(tuple(mixing.labels[k] for k in random), values, std_errors, kind)

    def _individuals(self, data: Any) -> Floats:  # -> (N, G)
        """Return the covariates of about ``_TASTE_INDIVIDUALS`` individuals, or raise InputError if data is missing."""
        names = (*self.mixing_.who, *self.mixing_classes_.covariates[1:])
        if not names:
            return np.zeros((1, 0))
        if data is None:
            raise InputError(f"the coefficients depend on {', '.join(names)}: pass data on the individuals.")
        h = self._covariates(self._read(data))
        return np.asarray(h[np.lexsort(h.T)][:: max(len(h) // _TASTE_INDIVIDUALS, 1)])

    def _share_above_0(self, column: int) -> float:
        """Return the share of the distribution of a normal coefficient that is above 0, or 0 if it is not normal.

        With several classes, this is the largest share of a class.
        """
        from scipy.special import ndtr

        mixing, classes = self.mixing_, self.mixing_classes_
        normal = [d for d, r in enumerate(mixing.random) if r.column == column and r.distribution.name == "normal"]
        shares = []
        for x in (classes.theta(self.estimates_.values, c) for c in range(classes.number)):
            deviation = float(np.linalg.norm(mixing.triangle(x)[normal]))
            shares.append(float(ndtr(x[column] / deviation)) if deviation > 0 else 0.0)
        return max(shares)

    def willingness_to_pay(self, name: str, cost: str, errors: Errors | None = None) -> Ratio:
        """Return the negative ratio of a coefficient to a cost coefficient that is the same for everyone.

        For a normal coefficient, this is the mean willingness to pay.

        Parameters
        ----------
        name, cost, errors
            See :meth:`LogitModel.willingness_to_pay`.

        Raises
        ------
        InputError
            If the ratio of the parameters is not the mean willingness to pay: the coefficient is random but not normal,
            the cost coefficient is random, or the mean of one of them depends on the person.
        """
        mixing, generic = self.mixing_, self._without_class(cost)
        of_class = cost.removesuffix(generic)  # such as "class 2: "
        remedy = f"use conditional(data, cost={generic!r}) for each person, or fit with wtp_space={generic!r}."
        for d, (column, distribution) in enumerate(mixing.random):
            label = mixing.labels[column]
            if label not in (self._without_class(name), generic):
                continue
            # 1. A mean that depends on the person has no single ratio.
            if covariates := [mixing.who[g] for random, g in mixing.means if random == d]:
                location, first = f"{of_class}{label}", f"{of_class}mean[{label}]:{covariates[0]}"
                raise InputError(
                    f"the mean of {label!r} depends on {', '.join(covariates)}, so willingness to pay differs between "
                    f"persons: use conditional(data, cost={generic!r}) for each person, or a ratio at given values "
                    f'that includes {first!r}, as in pcmcnet.delta(model, "-(`{location}` + `{first}`) / `{cost}`").'
                )
            # 2. The parameter of another distribution is not its mean.
            if distribution.name != "normal" or distribution.zero_inflated:
                kind = str(distribution).lstrip("-")
                raise InputError(f"the coefficient of {label!r} is {kind}, so its parameter is not its mean: {remedy}")
            # 3. A ratio with a normal denominator has no mean.
            if label == generic and (share := self._share_above_0(column)) > 0:
                raise InputError(
                    f"the coefficient of {generic!r} is normal, so the ratio has no mean: {percent(share)} of its "
                    f"distribution is above 0. Fit with wtp_space={generic!r}, or with a lognormal cost, as in "
                    f"random={{{generic!r}: '-lognormal'}}, and use conditional(data, cost={generic!r})."
                )
        return super().willingness_to_pay(name, cost, errors)

    def _without_class(self, name: str) -> str:
        """Return the name of a coefficient without its class, as in "price" for "class 2: price"."""
        return re.sub(r"^class \d+: ", "", name) if self.n_classes_ > 1 else name

    def _sign_remedy(self, check: SignCheck) -> str:
        """Return a distribution of one sign if the column has a random coefficient, else a bound."""
        mixing = self.mixing_
        for column, distribution in mixing.random:
            label = mixing.labels[column]
            if names_with(check.column, [label]) and not distribution.has_sign(check.sign):
                distributions = {label: f"{check.sign}lognormal"}
                return f"give its coefficient a distribution of one sign, as in random={distributions}"
        return super()._sign_remedy(check)

    def _cost_column(self, name: str) -> int:
        """Return the index of a cost column. Raise InputError if it is unknown, or if the model is in WTP space."""
        columns = self.mixing_.columns[: self.mixing_.located]
        if name not in columns:
            raise InputError(f"the model has no coefficient {name!r}." + did_you_mean(name, columns))
        if self.config.wtp_space is not None:
            raise InputError(f"the coefficients are already willingness to pay in units of {self.config.wtp_space!r}.")
        column = columns.index(name)
        if any(r.distribution.zero_inflated for r in self.mixing_.random if r.column == column):
            raise InputError(f"the coefficient of {name!r} is 0 for some people, so ratios to it have no mean.")
        return column

    def tastes(self, data: Any = None) -> Tastes:
        """Return the distributions of the random coefficients over people, as an object that prints as a table.

        Parameters
        ----------
        data
            Choice data, or a table to read with the model's schema, with the individuals to describe. Required if the
            means of coefficients depend on individual-level columns, and ignored otherwise.

        Raises
        ------
        InputError
            If ``data`` is required and not given.
        """
        mixing, population = self.mixing_, self._population(_TASTE_DRAWS, self.estimates_.values)
        individuals, random = self._individuals(data), [r.column for r in self.mixing_.random]
        draws = population.sample_in_wtp_space(individuals)[:, random].transpose(0, 1).flatten(1).numpy()
        return Tastes.of([mixing.labels[k] for k in random], [str(r.distribution) for r in mixing.random], draws)

    def plot_distributions(
        self, name: str | None = None, *, data: Any = None, ax: Any = None, classes: LatentClassMNL | None = None
    ) -> Any:
        """Plot the distribution of one random coefficient, or of all random coefficients.

        Parameters
        ----------
        name
            Name of a random coefficient. By default, all random coefficients are plotted.
        data
            Individuals whose coefficients are described (see :meth:`tastes`).
        ax
            Matplotlib axes to draw a single coefficient on. By default, new axes are created.
        classes
            A fitted latent class logit to compare with: the coefficient of each class is marked, with the share of the
            class in the population. Coefficients that it lacks have no marks. Default: none.

        Returns
        -------
        Matplotlib axes for a single coefficient, or a figure for all random coefficients.
        """
        from pcmcnet.plots.effects import draw_tastes

        return draw_tastes(
            self.tastes(data), name, ax=ax, classes={} if classes is None else classes.coefficient_shares()
        )


def covariates_of_means(designs: Mapping[str, IndividualDesign], table: ChoiceData) -> Floats:  # (S, G)
    """Return the distinct covariates of the means of random coefficients."""
    columns: dict[str, Floats] = {}
    for design in designs.values():
        columns |= dict(zip(design.names[1:], design.matrix(table).T[1:], strict=True))
    return np.column_stack([*columns.values()]) if columns else np.zeros((len(table), 0))


def utility_columns(
    design: Design, mixing: MixingDistribution, components: Mapping[str, str], data: ChoiceData
) -> Floats:  # (N, K)
    """Return the columns of the utility: the formula's columns, then a dummy variable for each error component."""
    columns = design.matrix(data)
    if not components:
        return columns
    labels, nests = labels_of(data), mixing.columns[mixing.located :]
    in_nest = np.array([[f"component[{components.get(label)}]" == nest for nest in nests] for label in labels])
    assert data.labels is not None
    return np.hstack([columns, in_nest.reshape(len(labels), len(nests))[data.labels.codes]])


def design_at(design: Design, mixing: MixingDistribution, exponents: Floats) -> Design:  # (J,)
    """Return the design with given parameters of transformations, such as Box-Cox exponents."""
    if not mixing.curves:
        return design
    return replace(design, exponents=dict(zip(mixing.curves, exponents.tolist(), strict=True)))


def curved_columns(
    design: Design, mixing: MixingDistribution, components: Mapping[str, str], sets: ChoiceData, chosen: Ints
) -> CurvesOf | None:
    """Return the columns and their derivatives as a function of the J parameters of transformations, if there are any.

    First derivatives are exact. Second derivatives are central differences of them.
    """
    if not mixing.curves:
        return None
    width = len(mixing.columns) - len(design.columns)  # error components do not depend on the parameters

    def slopes(exponents: Floats) -> list[Floats]:  # -> J x (N, K)
        at = design_at(design, mixing, exponents)
        return [np.pad(at.matrix(sets, curve), ((0, 0), (0, width))) for curve in mixing.curves]

    def columns_at(exponents: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # the likelihood is then -inf
            columns = utility_columns(design_at(design, mixing, exponents), mixing, components, sets)
            steps = _CURVE_STEP * np.maximum(np.abs(exponents), 1.0)
            pairs = [(slopes(exponents + h), slopes(exponents - h)) for h in np.diag(steps)]
            second = [
                (ahead[i] - behind[i]) / (2 * step)
                for i in range(len(exponents))
                for step, (ahead, behind) in zip(steps, pairs, strict=True)
            ]
            x = np.hstack([columns, *slopes(exponents), *second])
        return LogitLikelihood.from_matrix(x, sets.offsets, chosen).z

    return columns_at


def group_codes(design: Design, data: ChoiceData) -> Ints | None:  # -> (S,)
    """Return the scale group of each choice set, or None if all choice sets have the same scale."""
    return None if design.scale is None else design.scale.codes(data)


def labels_of(data: ChoiceData) -> tuple[str, ...]:
    """Return the labels of a table, indexed by code. Raise InputError if the table has no labels."""
    if data.labels is None:
        raise InputError("components need labels: read the table with alternative=<column>.")
    return data.labels.categories


def _report_specification(
    mixing: MixingDistribution, b: Floats, hessian: Floats, *, correlates_all: bool
) -> None:  # (K0,), (K0, K0)
    """Log random coefficients that correlated=True leaves out, and signs that contradict the multinomial logit."""
    independent = [r for d, r in enumerate(mixing.random) if d not in mixing.group and r.column < mixing.located]
    if correlates_all and independent:
        log.warning(
            "correlated=True: %s independent, because only these distributions can be correlated: %s",
            ", ".join(f"{mixing.labels[r.column]!r} ({r.distribution})" for r in independent)
            + (" is" if len(independent) == 1 else " are"),
            ", ".join(CORRELATED),
        )
    # The pseudo-inverse of the information, in units in which its diagonal is 1.
    scale = 1 / np.sqrt(np.maximum(-np.diag(hessian), 1e-300))
    variance = np.diag(np.linalg.pinv(-hessian * np.outer(scale, scale), hermitian=True))
    z = b / (scale * np.sqrt(np.maximum(variance, 1e-300)))
    for column, distribution in mixing.contradicted_signs(b, z):
        name, sign = mixing.labels[column], "+" if distribution.sign > 0 else "-"
        log.warning(
            "random[%r]: the sign of '%s%s' is opposite to that of the multinomial logit (z = %.1f), so the "
            "coefficient may be estimated close to 0 for everyone: check the sign",
            *(name, sign, distribution.name, z[column]),
        )


def _require_no_equal_cholesky(equal: Sequence[Sequence[str]]) -> None:
    """Raise ConfigError if entries of a Cholesky factor are constrained to be equal."""
    for name in (name for names in equal for name in names):
        if name.startswith("cholesky["):
            raise ConfigError(
                f"equal: {name!r} is not supported, because the signs of the columns of a Cholesky factor are not "
                f"identified: remove it, or leave the coefficient out of correlated."
            )


_MAX_SHIFT = 0.5  # standard errors by which estimates may change with other draws, without a caveat
_CURVE_STEP = 1e-5  # step of central differences, relative to the parameter
_MNL_STEPS = 15  # Newton steps of the multinomial logit at the start: its own maximum may be at infinity


class MixedMNL(MixedPredictions):
    """Mixed (random parameters) multinomial logit.

    For the options, see :class:`MixedMNLConfig`. The location parameter of a random coefficient has the name of the
    coefficient. ``sd[NAME]`` or ``spread[NAME]`` is the spread of the coefficient, and ``mean[NAME]:COLUMN`` is the
    effect of an individual-level column on its mean. ``cholesky[NAME, NAME]`` is an entry of the Cholesky factor of
    correlated coefficients, and ``component[NEST]`` is the standard deviation of an error component.
    """

    name = "mixed-mnl"
    uses_device = True
    corrects_samples = "uniform"
    config_class = MixedMNLConfig

    @takes(MixedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedMixture:
        config, is_first_fit = self.config, design is None
        # 1. Choice sets with positive weight, their persons, and the columns of the utility. In WTP space the mixing
        #    distribution, not the design, makes the parameters willingness to pay.
        sets, chosen, clusters = self._prepare(train)
        persons = self._persons(sets, clusters)
        if design is None:
            design = self._require_supported(self._learn_design(sets, wtp_space=None))
        plain = LogitLikelihood.from_matrix(design.matrix(sets), sets.offsets, chosen)
        # 2. The mixing distribution. All coefficients must be identified.
        mean_designs, membership = self._learn_mean_designs(persons), self._learn_membership(persons)
        mixing = self._specify(design, mean_designs, sets)
        _require_no_equal_cholesky(config.equalities)
        classes = MixingClasses((mixing,) * config.classes, membership.names if membership else ("constant",))
        mnl_parameters = self._mnl_parameters(design, classes)
        require_identified(plain.z, design.columns, mnl_parameters)
        columns = utility_columns(design, mixing, config.components, sets)
        whole = LogitLikelihood.from_matrix(columns, sets.offsets, chosen)
        require_varying_columns(whole.z, mixing)
        # 3. Start near the multinomial logit, which also determines the signs of lognormal coefficients.
        b, hessian, _ = plain.maximise(sets.weights, within=mnl_parameters, max_iter=_MNL_STEPS, settle=False)
        mixing = mixing.signed(b)
        classes = replace(classes, distributions=(mixing,) * config.classes)
        if is_first_fit:
            _report_specification(mixing, b, hessian, correlates_all=config.correlated is True)
        share_columns = membership.matrix(persons.table) if membership else np.ones((len(persons.first), 1))
        theta = mixing.start(b, 1 / whole.spread)
        theta[len(theta) - len(mixing.curves) :] = design.form.curve_starts
        within = self._class_parameters(design, classes, sets, classes.start(np.tile(theta, (config.classes, 1))))
        # 4. Maximise the simulated likelihood. The draws of a person depend only on the seed and the person's id.
        keys, device = hash_ids(self._ids(sets)[persons.first]), resolve_device(run.device)
        covariates, groups = covariates_of_means(mean_designs, persons.table), group_codes(design, sets)
        curves = curved_columns(design, mixing, config.components, sets, chosen)

        def make(number: int, which: int, of: MixingClasses = classes) -> SimulatedLikelihood | ClassMixtureLikelihood:
            draws = self._draws(mixing, number, run.seed ^ (which << 32), device)
            memory = 0.0 if which else config.memory * 2**30  # the second set of draws is used only once
            rest = (mixing, draws, memory, groups, curves)
            likelihood = SimulatedLikelihood.of(whole, persons.number, keys, covariates, *rest)
            if not of.is_mixture:
                return likelihood
            return ClassMixtureLikelihood(likelihood, of, share_columns if of.number > 1 else share_columns[:, :1])

        weights, of_theta = persons.weights(sets), mixing.scale(whole.spread, b)
        scale = classes.scale(of_theta, column_scales(share_columns))
        search = SimulatedSearch(make, weights, scale, within, config.draws, config.prior, config.max_iter)
        is_named = bool(self._named_classes(classes))
        order = partial(classes.order, h=share_columns, weights=weights, is_named=is_named)
        if classes.number == 1:
            starts = self._starts(classes, within.start, scale, run.seed)
        else:
            one, named = classes.one_class(), options_by_class(config.start, classes.class_names, classes.number)
            of_one_class = replace(
                search,
                make=partial(make, of=one),
                scale=one.scale(of_theta, np.ones(1)),
                within=self._one_class_parameters(design, classes, one.start(theta[None])),
            )
            starts = ClassStarts(
                classes=classes,
                within=within,
                scale=scale,
                size=1 / whole.spread,
                named=[name in named for name in within.names],
                data=MixtureData(plain, persons.number, share_columns, weights),
                one_class=of_one_class,
            ).points(self._number_of_starts(within.names), run.seed)
            search = replace(search, comparable=lambda x: np.abs(classes.normalise(x, order(x))[1] @ x))
        maximum = search.maximum(starts)
        # 5. Order the classes by their shares, and make negative spreads positive by mirroring the draws. Scores and
        #    Hessian change accordingly. The score of a person is assigned to the first of its choice sets.
        profiles: tuple[ClassProfile, ...] = ()
        if classes.number > 1 and isinstance(likelihood := make(config.draws, 0), ClassMixtureLikelihood):
            mass = likelihood.class_posterior(maximum.values)[:, order(maximum.values)]
            profiles = class_profiles(persons.table, mass * weights[:, None])
        classes, matrix = classes.normalise(maximum.values, order(maximum.values))
        best = _transformed(maximum, matrix)
        scores = np.zeros((len(sets), len(matrix)))
        scores[persons.first] = best.scores
        best = replace(best, scores=scores)
        constants = self._constants_log_likelihood(design, plain, sets.weights)
        is_one = [name in mixing.scales or name.startswith("lambda[") for name in within.names]
        null = np.array(is_one, np.float64)
        rest = (clusters, null, constants, sampling_strata(sets))
        estimates = infer(best, within, sets.weights, sets.sizes, *rest)
        estimates = estimates.with_unbounded([within.names[k] for k in np.flatnonzero(best.diverges)])
        self._warn_unbounded(estimates)
        record = MixedRecord(persons=len(keys), simulation=_simulation_record(best, estimates), starts=maximum.starts)
        return FittedMixture(
            design=design,
            estimates=estimates,
            record=record,
            classes=classes,
            mean_designs=mean_designs,
            membership_design=membership,
            profiles=profiles,
        )

    def _require_supported(self, design: Design) -> Design:
        """Return the design, or raise ConfigError if the mixed logit does not support it."""
        if design.scale is not None and design.offset is not None:
            raise ConfigError("scale with an offset is not supported by MixedMNL: remove one of them, or use mnl.")
        if design.scale is not None and design.form.curves:
            raise ConfigError(
                f"scale with {design.form.curves[0]!r} is not supported by MixedMNL: fix the exponent, as in "
                f"boxcox(time, 0.5), or use mnl."
            )
        if self.config.classes > 1 and (design.scale is not None or design.form.curves):
            option = "scale" if design.scale is not None else f"estimating {design.form.curves[0]!r}"
            remedy = "leave scale out" if design.scale is not None else "fix it, as in boxcox(time, 0.5)"
            raise ConfigError(f"{option} is not supported with several classes: {remedy}, or use classes=1.")
        return design

    def _learn_membership(self, persons: Persons) -> IndividualDesign | None:
        """Learn the covariates of the class shares from one choice set per person, if there are several classes."""
        if self.config.classes == 1:
            return None
        named, _ = parse_membership(self.config.membership)
        persons.require_constant([factor.column for term in named for factor in term.factors])
        least, base = self.config.min_chosen, self.config.base
        return IndividualDesign.learn(self.config.membership, persons.table, least=least, base=base)

    def _learn_mean_designs(self, persons: Persons) -> dict[str, IndividualDesign]:
        """Learn the covariates of the means of random coefficients."""
        designs = {}
        for name, text in self.config.means.items():
            for factor in (f for term in parse_membership(text)[0] for f in term.factors):
                if factor.column in persons.varying:
                    raise InputError(
                        f"means[{name!r}]: column {factor.column!r} varies within a person, first in choice set "
                        f"{persons.varying[factor.column]}: add {name}:{factor.column} to the formula, or fit with "
                        f"by='set'."
                    )
            option, least = f"means[{name!r}]", self.config.min_chosen
            designs[name] = IndividualDesign.learn(text, persons.table, least=least, option=option)
        return designs

    def _specify(
        self, design: Design, mean_designs: Mapping[str, IndividualDesign], sets: ChoiceData
    ) -> MixingDistribution:
        """Return the mixing distribution that the options specify."""
        config = self.config
        unknown = [label for label in config.components if label not in labels_of(sets)] if config.components else []
        if unknown:
            raise ConfigError(
                f"components includes {unknown[0]!r}, which is not an alternative of the table."
                + did_you_mean(unknown[0], labels_of(sets))
            )
        mixing = specify_mixing(
            design,
            design.sources(sets),
            config.random,
            config.correlated,
            nests=sorted(set(config.components.values())),
            means={name: columns.names[1:] for name, columns in mean_designs.items()},
            offset=None if config.offset is None else backquoted(config.offset),
            cost=config.wtp_space,
            references=self._group_references(design),
        )
        if any(r.distribution.zero_inflated for r in mixing.random if r.column == mixing.cost):
            raise ConfigError(
                f"wtp_space={config.wtp_space!r}: the cost coefficient is 0 for some people, so their willingness to "
                f"pay is not defined: use a distribution without zero-inflated-."
            )
        if mixing.cost is not None and mixing.cost not in {r.column for r in mixing.random}:
            self._require_cost(mixing.names[mixing.cost])
        return mixing

    def _mnl_parameters(self, design: Design, classes: MixingClasses) -> Parameters:
        """Return the multinomial logit's parameters; fixed values and bounds apply to non-random coefficients."""
        mixing = classes.distributions[0]
        within = self._one_class_parameters(design, classes).head(mixing.located)
        low, high, at = within.low.copy(), within.high.copy(), within.start.copy()
        same_as = None if within.same_as is None else within.same_as.copy()
        for column, distribution in mixing.random:
            if column < mixing.located:  # options refer to its location, which may not be a coefficient
                low[column], high[column], at[column] = -np.inf, np.inf, 0.0
                if same_as is not None and not distribution.is_linear:
                    same_as[same_as == same_as[column]] = np.flatnonzero(same_as == same_as[column])
        return replace(within, start=at, low=low, high=high, same_as=same_as)

    def _one_class_parameters(self, design: Design, classes: MixingClasses, begin: Floats | None = None) -> Parameters:
        """Return the parameters of one class, with the options that apply to all classes."""
        generic, bounds = classes.class_names, self._bounds_with_shares(classes)
        if classes.number == 1:
            return self._parameters(design, generic, begin, bounds)

        def of_all(named: Mapping[str, T]) -> dict[str, T]:
            return {name: value for name, value in named.items() if name in generic}

        equal = [names for names in self.config.equalities if {*names} <= {*generic}]
        fixed = of_all(self._fixed_values(design, generic))
        return Parameters.of(generic, fixed=fixed, bounds=of_all(bounds), start={}, begin=begin, equal=equal)

    def _class_parameters(self, design: Design, classes: MixingClasses, sets: ChoiceData, begin: Floats) -> Parameters:
        """Return the parameters of all classes, with the options that apply to all or to one of them."""
        if classes.number == 1:
            return self._one_class_parameters(design, classes, begin)
        generic, C, config = classes.class_names, classes.number, self.config
        # 1. Parameters that the classes share: all those of the shared columns.
        sources = design.sources(sets)
        columns = {k for name in config.shared for k in columns_of(name, design.columns, sources, "shared")}
        shared = [name for name, k in zip(generic, classes.columns_of_class, strict=True) if k in columns]
        equal = equal_in_classes(config.equalities, generic, shared, config.fixed, C)
        # 2. Options by class.
        fixed = options_by_class(self._fixed_values(design, generic), generic, C)
        start = {n: value for n, value in options_by_class(config.start, generic, C).items() if n not in fixed}
        bounds = options_by_class(self._bounds_with_shares(classes), generic, C)
        return Parameters.of(classes.names, fixed=fixed, bounds=bounds, start=start, begin=begin, equal=equal)

    def _bounds_with_shares(self, classes: MixingClasses) -> dict[str, Bounds]:
        """Return the bounds of the options, and 0 and 1 for shares. Raise ConfigError for values that are no shares."""
        config, bounds = self.config, {**dict.fromkeys(classes.zero_names, SHARE_BOUNDS), **(self.config.bounds or {})}
        values = [(name, value) for named in (config.fixed, config.start) for name, value in named.items()]
        values += [(name, value) for name, pair in bounds.items() for value in numeric_bounds(pair)]
        for name, value in values:
            if name.removeprefix(name.partition("zero[")[0]) in classes.zero_names and not 0 <= value <= 1:
                raise ConfigError(f"{name!r} is a share of the people: expected values and bounds from 0 to 1.")
        return bounds

    def _named_classes(self, classes: MixingClasses) -> list[str]:
        """Return the names in the options that refer to a parameter of a single class."""
        config = self.config
        equal = [name for names in config.equalities for name in names]
        named = (*config.fixed, *(config.bounds or {}), *config.start, *equal)
        return [name for name in named if name not in classes.class_names]

    def _number_of_starts(self, names: Sequence[str]) -> int:
        """Return the number of starts, given the names of all parameters."""
        if self.config.starts != "auto":
            return self.config.starts
        return 1 if {*names} <= {*self.config.start, *self.config.fixed} else _STARTS

    def _starts(
        self, classes: MixingClasses, first: Floats, scale: Floats, seed: int
    ) -> Floats:  # (P,), (P,) -> (A, P)
        """Return the starting points: one near the multinomial logit, and random points around it."""
        number = self._number_of_starts(classes.names)
        noise = np.random.default_rng(seed).standard_normal((number - 1, len(first)))
        return np.vstack([first, classes.inside_shares(around(first, noise, scale))])

    def _facts(self) -> dict[str, str]:
        facts, config, mixing, record = super()._facts(), self.config, self.mixing_, self._state.record
        facts["random"] = ", ".join(f"{mixing.labels[r.column]}: {r.distribution}" for r in mixing.random)
        if config.wtp_space is not None:
            facts["wtp in units of"] = config.wtp_space
        facts |= self._class_facts()
        if not facts.get("equal", "1"):
            facts.pop("equal")  # shared coefficients only
        by_set = record.persons == self.estimates_.n_sets
        facts["coefficients of"] = "each choice set" if by_set else f"{record.persons:,} persons"
        facts["draws"] = f"{config.draws:,} ({config.sequence}{', antithetic' * config.antithetic})"
        if config.prior:
            facts["prior"] = (
                f"normal, precision {config.prior:g} per unit of utility; not included in the log-likelihood and the "
                f"standard errors"
            )
        if record.starts is not None:
            facts["starts"] = str(record.starts)
        facts["with other draws"] = (
            f"log-likelihood {record.simulation.log_likelihood:.3f}; estimates change by up to "
            f"{record.simulation.largest_shift:.2f} standard errors"
        )
        return facts

    def _class_facts(self) -> dict[str, str]:
        """Return the entries of the summary about the latent classes, if there are several."""
        if self.n_classes_ == 1:
            return {}
        facts, config = {"membership": self.config.membership}, self.config
        if config.shared:
            facts["shared by classes"] = ", ".join("constants" if name == "1" else name for name in config.shared)
        if not config.equal:
            facts["equal"] = ""
        unit = "choices" if self._state.record.persons == self.estimates_.n_sets else "persons"
        for c, profile in enumerate(self.profiles_, start=1):
            parts = [f"{profile.share:.1%} of the {unit}", *(f"{k} {v}" for k, v in profile.means.items())]
            facts[f"class {c}"] = ", ".join(parts)
        return facts

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Warnings about the fitted model, as for every logit, and about a large simulation error."""
        caveats, shift = super().fit_caveats, self._state.record.simulation.largest_shift
        if shift <= _MAX_SHIFT:
            return caveats
        note = (
            f"with other draws, estimates would change by up to {shift:.2f} standard errors, which the standard errors "
            f"do not include: use more than {self.config.draws:,} draws"
        )
        return (*caveats, note)

    def _files(self) -> dict[str, bytes]:
        state = self._state
        mixing = asdict(self.mixing_) | {"random": [[r.column, asdict(r.distribution)] for r in self.mixing_.random]}
        designs = {name: design.to_dict() for name, design in self.mean_designs_.items()}
        entries: dict[str, Any] = {"mixing": mixing, "who": designs}
        if state.membership_design is not None:
            entries["classes"] = {
                "mirrors": [list(each.mirror) for each in state.classes.distributions],
                "membership": state.membership_design.to_dict(),
                "profiles": record_to_dict(state.profiles),
            }
        return {**super()._files(), "mixing.json": json_bytes(entries)}

    def _restore(self, files: Mapping[str, bytes], record: MixedRecord, table: TrainingTable) -> FittedMixture:
        entries, schema = json.loads(files["mixing.json"]), read_schema(files)
        designs = {str(name): IndividualDesign.from_dict(design) for name, design in entries["who"].items()}
        mixing, estimates = MixingDistribution.from_dict(entries["mixing"]), read_estimates(files)
        classes, membership, profiles = MixingClasses((mixing,)), None, tuple[ClassProfile, ...]()
        if (of_classes := entries.get("classes")) is not None:
            membership = IndividualDesign.from_dict(of_classes["membership"])
            mirrors = [tuple(map(int, mirror)) for mirror in of_classes["mirrors"]]
            is_valid = [len(mirror) in (0, mixing.dimensions) and {*mirror} <= {1, -1} for mirror in mirrors]
            if not (is_valid and all(is_valid)):
                raise ValueError("the saved classes do not match the random coefficients")
            classes = MixingClasses(tuple(replace(mixing, mirror=mirror) for mirror in mirrors), membership.names)
            profiles = tuple(record_from_dict(ClassProfile, profile) for profile in of_classes["profiles"])
        for design in (*designs.values(), *([] if membership is None else [membership])):
            design.require_fit(schema)
        if classes.names != estimates.names or (membership is not None and len(profiles) != classes.number):
            raise ValueError("the saved random coefficients and estimates do not match")
        return FittedMixture(
            design=read_design(files),
            estimates=estimates,
            record=record,
            classes=classes,
            mean_designs=designs,
            membership_design=membership,
            profiles=profiles,
        )


def _transformed(maximum: SimulatedMaximum, matrix: Floats) -> SimulatedMaximum:  # ..., (P, P)
    """Return the maximum in the parameters x' = A x, for an invertible matrix A of signs, orders and differences."""
    inverse = np.linalg.inv(matrix)
    return replace(
        maximum,
        values=matrix @ maximum.values,
        scores=maximum.scores @ inverse,
        hessian=inverse.T @ maximum.hessian @ inverse,
        shift=matrix @ maximum.shift,
        prior_score=None if maximum.prior_score is None else maximum.prior_score @ inverse,
        diverges=np.abs(matrix) @ maximum.diverges > 0,
    )


def _simulation_record(maximum: SimulatedMaximum, estimates: Estimates) -> SimulationRecord:
    """Return the log-likelihood with a second set of draws, and the largest change in an estimate."""
    errors = np.sqrt(np.maximum(np.diag(estimates.covariance("classical")), 1e-300))
    shift = float(np.max(np.abs(maximum.shift) / errors, initial=0.0, where=errors > 1e-150))
    return SimulationRecord(log_likelihood=maximum.other_log_likelihood, largest_shift=shift)
