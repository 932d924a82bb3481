"""Hierarchical Bayes logit (Rossi, Allenby & McCulloch, 2005): a logit with part-worths of each person.

    b_n ~ N(D z_n, S)        P(i | S_t, n) = exp(c(b_n) . x_i) / sum_j exp(c(b_n) . x_j)

z_n are covariates of person n, the first of which is 1. A coefficient c_k is the part-worth b_k itself, or s exp(b_k)
if its sign s is constrained. The posterior distribution of D, S and all part-worths given the choices of all persons is
sampled (``logit/hierarchical_sampler.py``). The part-worths of a person with few choices shrink towards the
mean over people.

The probabilities of a new person are means over draws of D and S, with one draw of b from N(D z, S) for each. Those of
a known person are means over draws of the person's own part-worths. The mixed logit (``mixed_mnl.py``) has the same
utility, with point estimates of D and S.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical
from pcmcnet.data.columns.ragged import consecutive_indices, spread
from pcmcnet.data.kinds.category import UnseenCounts
from pcmcnet.data.outside import outside_rows
from pcmcnet.data.schema import Sign
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.interface.known_people import KnownPeople, persons_of
from pcmcnet.models.interface.latent_classes import Persons
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.sign_check import SignCheck
from pcmcnet.models.logit.conditional_part_worths import draw_part_worths
from pcmcnet.models.logit.design import Design, columns_of
from pcmcnet.models.logit.draws import mixed_slopes
from pcmcnet.models.logit.factor_coding import LevelCode
from pcmcnet.models.logit.fitted_hierarchy import (
    CovariateUnits,
    FittedHierarchy,
    HierarchicalRecord,
    PosteriorPopulation,
    signed_coefficients,
)
from pcmcnet.models.logit.formula import parse_formula
from pcmcnet.models.logit.hierarchical_checkpoint import sample_posterior
from pcmcnet.models.logit.hierarchical_results import (
    PARAMETER_HEADER,
    ChainReport,
    PartWorths,
    parameter_cells,
    population_traces,
)
from pcmcnet.models.logit.hierarchical_sampler import (
    CovariancePrior,
    HierarchicalSampler,
    PopulationPrior,
    SamplerSettings,
)
from pcmcnet.models.logit.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.logit_model import names_with
from pcmcnet.models.logit.maximum_likelihood import single_threaded_blas
from pcmcnet.models.logit.parameter_bounds import require_identified
from pcmcnet.models.logit.person_draws import mean_probabilities
from pcmcnet.models.logit.person_posterior import PersonChoices
from pcmcnet.models.logit.tastes import Tastes
from pcmcnet.reports.formats import Summary

log = logging.getLogger("pcmcnet")

MAX_RHAT = 1.02  # chains with a larger value have not mixed
_PERSON_DRAWS = 400  # part-worths of each person that are kept, over all chains
_DRAWS_OF_ONE_POPULATION = 250  # people drawn for predictions with one posterior draw
_TASTE_DRAWS = 4096  # draws that describe the distribution of part-worths over people
_TASTE_INDIVIDUALS = 100  # approximate number of individuals whose part-worths are combined
_NEGLIGIBLE = 0.01  # coefficient of constrained sign, in utility per typical difference of the column
_FIRST_LOGARITHM = -1.0  # first mean of the logarithm of a coefficient of constrained sign

# -- Options -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HierarchicalMNLConfig:
    """Options of the hierarchical Bayes logit.

    Parameters
    ----------
    formula
        Formula of the utility, as in the other logits: "cost + log(time) + cost:income | income | wait". Every
        coefficient differs between persons. Default ".": all features and, if alternatives have labels, constants.
    covariates
        Individual-level columns that the means of the part-worths depend on, as in "income + age"; "." means all.
        Default "1": none.
    signs
        Coefficients of one sign for everyone, as in {"price": "-"}: the logarithm of their size is normal. Signs that
        the table declares also apply to the coefficient of the column. Default: no others.
    reference
        Label of the alternative whose constant is 0. Default: the outside option if there is one, else the alternative
        chosen most often.
    min_chosen
        Levels of categorical features that are chosen fewer times than this are pooled into one level. Default 10.
    base
        Reference levels of categorical columns, as in {"comfort": "low"}. Default: the level chosen most often.
    prior
        Prior of the covariance of part-worths: "half-t" (half-t standard deviations and uniform correlations; Huang &
        Wand, 2013) or "inverse-wishart" with K + 3 degrees of freedom for K coefficients. Default "half-t".
    chains
        Number of chains, at least 2. Default 4.
    burn_in
        Number of sweeps of each chain that are discarded. Default 300.
    draws
        Number of draws that are kept, over all chains. Default 2000.
    thin
        Number of sweeps for each draw that is kept. Default 5.
    """

    formula: str = "."
    covariates: str = "1"
    signs: Mapping[str, Sign] = field(default_factory=dict)
    reference: str | None = None
    min_chosen: int = 10
    base: Mapping[str, str] = field(default_factory=dict)
    prior: CovariancePrior = "half-t"
    chains: int = 4
    burn_in: int = 300
    draws: int = 2000
    thin: int = 5

    def __post_init__(self) -> None:
        parse_formula(self.formula)
        parse_membership(self.covariates)
        if not (isinstance(self.signs, Mapping) and all(isinstance(name, str) for name in self.signs)):
            raise ConfigError(f"signs must map coefficients to signs, as in {{'price': '-'}}, got {self.signs!r}.")
        for name, sign in self.signs.items():
            require_word(f"signs[{name!r}]", sign, get_args(Sign))
        object.__setattr__(self, "signs", dict(self.signs))
        require_number("min_chosen", self.min_chosen, whole=True, low=0)
        require_word("prior", self.prior, get_args(CovariancePrior))
        require_number("chains", self.chains, whole=True, low=2, high=100)
        require_number("burn_in", self.burn_in, whole=True, low=10)
        require_number("draws", self.draws, whole=True, low=10 * self.chains)
        require_number("thin", self.thin, whole=True, low=1)
        if isinstance(self.reference, int) and not isinstance(self.reference, bool):
            object.__setattr__(self, "reference", str(self.reference))  # labels that are integers are stored as text
        if not (self.reference is None or isinstance(self.reference, str)):
            raise ConfigError(f"reference must be a string, got {self.reference!r}.")
        if not isinstance(self.base, Mapping):
            raise ConfigError(f"base must map columns to levels, got {self.base!r}.")
        object.__setattr__(self, "base", {str(column): str(level) for column, level in self.base.items()})

    @property
    def settings(self) -> SamplerSettings:
        """Number of sweeps and draws of each chain."""
        kept = math.ceil(self.draws / self.chains)
        person_draws = min(kept, math.ceil(_PERSON_DRAWS / self.chains))
        return SamplerSettings(
            chains=self.chains, burn_in=self.burn_in, kept=kept, thin=self.thin, person_draws=person_draws
        )


class HierarchicalMNL(KnownPeople):
    """Hierarchical Bayes multinomial logit, with part-worths of each person.

    For the options, see :class:`HierarchicalMNLConfig`. The mean of a part-worth over people has the name of the
    coefficient, ``sd[NAME]`` is the standard deviation, ``corr[NAME, NAME]`` a correlation, and ``mean[NAME]:COLUMN``
    the effect of a covariate on the mean. If the sign of a coefficient is constrained, these describe the logarithm of
    its size.
    """

    name = "hb-mnl"
    corrects_samples = "uniform"
    config_class = HierarchicalMNLConfig
    config: HierarchicalMNLConfig
    _state: FittedHierarchy
    record_class = HierarchicalRecord
    resumes = True

    @takes(HierarchicalMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    # -- fit -------------------------------------------------------------------------------------------------------

    @single_threaded_blas()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedHierarchy:
        config, began = self.config, time.perf_counter()
        # 1. Choice sets with positive weight, their persons, and the columns of the utility.
        sets = train if (train.weights > 0).all() else train.subset(train.weights > 0)
        if (sets.sizes < 2).all():
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        persons = Persons.of(sets, "person")
        if len(persons.first) < 2:
            raise InputError(
                f"column {sets.schema.group_column!r} has one person, so the variation over people is not identified: "
                f"expected at least two persons. Use mnl for one person."
            )
        design = self._learn_design(sets)
        covariates = self._learn_covariates(persons)
        # 2. Differences from the chosen alternatives, in units in which they are about 1.
        references = {row[0] for group in design.groups for row in group.columns}
        places = [k for k, name in enumerate(design.columns) if name not in references]
        names = tuple(design.columns[k] for k in places)
        signs = self._learn_signs(design, sets, names)
        x = design.matrix(sets)[:, places]
        chosen = sets.require_chosen("fitting")
        logit = LogitLikelihood.from_matrix(x, sets.offsets, chosen)
        require_identified(logit.z, names)
        scale = 1 / logit.spread
        choices = PersonChoices.of(
            logit.z * scale, logit.offsets, persons.number[logit.sets], len(persons.first), signs
        )
        # 3. Sample the posterior.
        weights = persons.weights(sets)
        units = CovariateUnits.of(covariates.matrix(persons.table))
        sampler = HierarchicalSampler(
            choices,
            units.standardised(covariates.matrix(persons.table)),
            weights / weights.mean(),
            PopulationPrior(config.prior, len(names)),
            config.settings,
        )
        first = np.where(signs == 0, 0.0, _FIRST_LOGARITHM)
        draws = sample_posterior(sampler, first, run, {"model": self.name, **self.identity})
        # 4. Draws in the units of the table.
        means, covariances = units.in_table_units(draws, scale, signs)
        B, C, N, K = draws.persons.shape
        b = draws.persons.transpose(2, 3, 0, 1).reshape(N, K, B * C)
        coefficients = signed_coefficients(b, signs)
        typical = np.median(np.abs(coefficients), axis=(0, 2))  # (K,) over persons and draws
        part_worths = np.ascontiguousarray(coefficients * scale[:, None], np.float32)
        report = ChainReport.of(population_traces(names, covariates.names, means, covariances))
        p = mean_probabilities(x, sets.offsets, part_worths.mean(2, dtype=np.float64)[..., None], persons.number)[
            sets.offsets[:-1] + chosen
        ]
        record = HierarchicalRecord(
            persons=N,
            median_sets=float(np.median(np.bincount(persons.number))),
            root_likelihood=float(np.exp(np.average(np.log(p), weights=sets.weights))),
            largest_rhat=report.worst.rhat,
            worst_parameter=report.worst.parameter,
            smallest_size=report.smallest_size,
            accepted=float(draws.accepted.mean()),
            population_accepted=draws.population_accepted,
            negligible=tuple(np.array(names)[(signs != 0) & (typical < _NEGLIGIBLE)].tolist()),
        )
        return FittedHierarchy(
            design=design,
            covariates=covariates,
            names=names,
            signs=tuple(signs.tolist()),
            means=means,
            covariances=covariances,
            part_worths=part_worths,
            persons=persons_of(sets)[persons.first],
            record=record,
            seconds=time.perf_counter() - began,
        )

    def _learn_design(self, sets: ChoiceData) -> Design:
        """Learn the columns of the utility, or raise ConfigError if its exponents are to be estimated."""
        config = self.config
        design = Design.learn(
            config.formula, sets, reference=config.reference, least=config.min_chosen, base=config.base
        )
        if not design.form.is_linear:
            raise ConfigError(
                "estimating Box-Cox exponents is not supported by HierarchicalMNL: fix them, as in boxcox(time, 0.5), "
                "or use mnl."
            )
        return design

    def _learn_covariates(self, persons: Persons) -> IndividualDesign:
        """Learn the covariates of the means, which must be constant for each person."""
        config = self.config
        for term in parse_membership(config.covariates)[0]:
            for column in (factor.column for factor in term.factors):
                if column in persons.varying:
                    raise InputError(
                        f"covariates: column {column!r} varies within a person, first in choice set "
                        f"{persons.varying[column]}, but a person has one set of part-worths: add an interaction with "
                        f"{column!r} to the formula."
                    )
        least, base = config.min_chosen, config.base
        return IndividualDesign.learn(config.covariates, persons.table, least=least, base=base, option="covariates")

    def _learn_signs(self, design: Design, sets: ChoiceData, names: Sequence[str]) -> Ints:  # -> (K,)
        """Return the constrained signs, by the option ``signs`` and the signs that the table declares."""
        sources, signs = design.sources(sets), dict.fromkeys(design.columns, 0)
        declared = {name: sign for name, sign in sets.schema.signs.items() if name in design.columns}
        for name, sign in {**declared, **self.config.signs}.items():
            for column in columns_of(name, design.columns, sources, "signs"):
                signs[design.columns[column]] = -1 if sign == "-" else 1
        return np.array([signs[name] for name in names], np.int64)

    # -- predictions -----------------------------------------------------------------------------------------------

    @property
    def design_(self) -> Design:
        """The columns of the utility, with their coding."""
        return self._state.design

    @property
    def part_worth_names_(self) -> tuple[str, ...]:
        """Names of the coefficients of the utility."""
        return self._state.names

    @property
    def population_(self) -> PosteriorPopulation:
        """The distribution of coefficients over people, as draws."""
        return self._state.population(self._state.prediction_draws, self.table_.seed)

    def _covariates(self, data: ChoiceData) -> Floats:  # (S, G - 1)
        """Return the covariates of the means, without the constant."""
        return self._state.covariates.matrix(data)[:, 1:]

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        log_p = self.population_.log_probabilities(self.design_.matrix(data), data.offsets, self._covariates(data))
        out: Floats = np.where(spread(data.sizes, data.offsets) == 1, 0.0, log_p)
        return out

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """Return the logit of each draw: see :meth:`ChoiceModel.as_logits`."""
        x = self.design_.matrix(data)
        log_p = self.population_.log_probabilities_by_draw(x, data.offsets, self._covariates(data))
        return np.full((len(data), log_p.shape[1]), 1 / log_p.shape[1]), log_p

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        sums = self.population_.log_sums(self.design_.matrix(data), data.offsets, self._covariates(data))
        return sums, np.full_like(sums, 1 / sums.shape[1])

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        if not len(data) or column in self._state.covariates.codes:
            return None  # means change, too: the caller uses finite differences
        if column not in self.design_.codes:
            return np.zeros(int((data.sizes**2 if column in data.features else data.sizes).sum()))
        return mixed_slopes(self.population_, self.design_, data, column, self.design_.matrix, self._covariates)

    def predict_proba_given(self, data: Any, history: Any = None) -> Floats:
        """Return choice probabilities for persons whose earlier choices are known.

        Parameters
        ----------
        data
            Choice sets to predict, or a table with the columns of the model's schema and the person column.
        history
            Earlier choice sets with known choices, as choice sets or as a table. Part-worths are then sampled given
            these choices and the fitted population. Default: the choices of the training table, whose part-worths the
            fit has sampled. In both cases, other persons are predicted as new people.

        Returns
        -------
        Probabilities (n_rows,) in the order of the rows, with 0 for unavailable rows.

        Raises
        ------
        InputError
            If a table has no person column.
        """
        if self.schema.person is None:
            raise InputError(
                "earlier choices can be used only if each person has one set of part-worths: read the table with "
                "person=<column>, and fit again."
            )
        sets = self._read_people(data)
        known = self.part_worths() if history is None else self.conditional(history)
        index = {person: n for n, person in enumerate(known.persons.tolist())}
        of_set = np.array([index.get(person, -1) for person in persons_of(sets).tolist()], np.int64)
        # 1. New people.
        out = np.exp(self._log_proba(sets))
        # 2. Known people: the mean over the draws of their part-worths.
        at = np.flatnonzero(of_set >= 0)
        later = sets.subset(at)
        x = self.design_.matrix(later)[:, self._state.places]
        p = mean_probabilities(x, later.offsets, known.draws.astype(np.float64), of_set[at])
        out[consecutive_indices(sets.offsets[at], sets.sizes[at])] = p
        return sets.to_rows(out)

    def posterior_models(self, number: int) -> tuple[HierarchicalMNL, ...]:
        """Return models whose populations are draws of the posterior distribution, for intervals of predictions.

        Parameters
        ----------
        number
            Number of models. Their draws are at equal distances among all draws.
        """
        require_number("number", number, whole=True, low=1)
        fitted, state = self.require_fitted(), self._state
        models = []
        for draw in np.linspace(0, state.means.shape[0] * state.means.shape[1] - 1, number).astype(int).tolist():
            model = type(self)(**self.get_params(deep=False))
            model.fitted_ = replace(fitted, state=state.at_draw(draw, _DRAWS_OF_ONE_POPULATION))
            models.append(model)
        return tuple(models)

    # -- part-worths -----------------------------------------------------------------------------------------------

    def part_worths(self, level: float = 0.9) -> PartWorths:
        """Return the part-worths of each person of the training table.

        Parameters
        ----------
        level
            Level of the intervals. Default 0.9.

        Returns
        -------
        PartWorths
            Posterior means, standard deviations and intervals by person, with ``to_frame()``, and draws.
        """
        require_number("level", level, low=0, high=1, open_low=True, open_high=True)
        state = self._state
        return PartWorths(state.persons, state.names, state.part_worths, level)

    def conditional(self, history: Any, level: float = 0.9) -> PartWorths:
        """Return the part-worths of persons given other choices than those of the training table.

        The part-worths are sampled given the choices and draws of the fitted population, which the choices do not
        change.

        Parameters
        ----------
        history
            Choice sets with known choices, as choice sets or as a table with the person column.
        level
            Level of the intervals. Default 0.9.

        Returns
        -------
        PartWorths
            Draws of the part-worths of each person in ``history``.

        Raises
        ------
        InputError
            If choices or persons are not known.
        """
        require_number("level", level, low=0, high=1, open_low=True, open_high=True)
        sets, state = self._read_history(history), self._state
        persons = Persons.of(sets, "person")
        x, chosen = self.design_.matrix(sets)[:, state.places], sets.require_chosen("the part-worths")
        logit = LogitLikelihood.from_matrix(x, sets.offsets, chosen)
        draws = draw_part_worths(state, logit, persons, self.table_.seed)
        return PartWorths(persons_of(sets)[persons.first], state.names, draws, level)

    def tastes(self, data: Any = None) -> Tastes:
        """Return the distribution of each coefficient over people, as an object that prints as a table.

        Parameters
        ----------
        data
            Choice data, or a table to read with the model's schema, with the individuals to describe. Required if the
            means depend on covariates, and ignored otherwise.

        Raises
        ------
        InputError
            If ``data`` is required and not given.
        """
        covariates, population = self._state.covariates, self._state.population(_TASTE_DRAWS, self.table_.seed)
        if len(covariates.names) > 1 and data is None:
            raise InputError(f"the part-worths depend on {', '.join(covariates.names[1:])}: pass data on individuals.")
        h = self._covariates(self._read(data)) if len(covariates.names) > 1 else np.zeros((1, 0))
        individuals = h[np.lexsort(h.T)][:: max(len(h) // _TASTE_INDIVIDUALS, 1)] if h.shape[1] else h
        draws = population.coefficients(individuals)[:, population.places].transpose(0, 1).flatten(1).numpy()
        kinds = {0: "normal", 1: "lognormal", -1: "-lognormal"}
        return Tastes.of(self._state.names, [kinds[sign] for sign in self._state.signs], draws)

    # -- diagnostics -----------------------------------------------------------------------------------------------

    def traces(self) -> dict[str, Floats]:
        """Return the draws (C, R) of each parameter of the population by chain: means, deviations, correlations."""
        state = self._state
        return population_traces(state.names, state.covariates.names, state.means, state.covariances)

    def chains(self) -> ChainReport:
        """Return the posterior of each parameter of the population, with R-hat and effective sample sizes."""
        return ChainReport.of(self.traces())

    def plot_traces(self, name: str, ax: Any = None) -> Any:
        """Plot the draws of a parameter, with a line for each chain.

        Parameters
        ----------
        name
            Parameter, as in :meth:`chains`.
        ax
            Matplotlib axes to draw on. By default, new axes are created.

        Raises
        ------
        InputError
            If the model has no such parameter.
        """
        traces = self.traces()
        if name not in traces:
            raise InputError(f"the model has no parameter {name!r}." + did_you_mean(name, traces))
        from pcmcnet.plots.effects import draw_traces

        return draw_traces(traces[name], name, ax=ax)

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the population: means, variances and covariances."""
        K, G = self._state.means.shape[2:]
        return int(K * G + K * (K + 1) // 2)

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Warnings about the fitted model: contradicted signs, chains that disagree, or too few choices."""
        record, K, caveats = self._state.record, len(self._state.names), []
        for name in record.negligible:
            sign = "-" if self._state.signs[self._state.names.index(name)] < 0 else "+"
            caveats.append(
                f"the coefficient of {name} is close to 0 for most persons: the sign {sign!r} may contradict the data. "
                f"Fit without it to see the effect that it prevents"
            )
        if not record.largest_rhat <= MAX_RHAT:
            caveats.append(
                f"the chains have not mixed: R-hat of {record.worst_parameter} is {record.largest_rhat:.3f}, above "
                f"{MAX_RHAT}. Raise burn_in and thin"
            )
        if record.persons <= 2 * K:
            caveats.append(
                f"{record.persons:,} persons are few for {K} coefficients: the covariance depends mainly on its prior"
            )
        if record.median_sets <= 1:
            caveats.append(
                "most persons have one choice set, so part-worths differ between persons almost only by the population "
                "that the model assumes"
            )
        return tuple(caveats)

    def _sign_remedy(self, check: SignCheck) -> str:
        """Return the sign to constrain if the column has coefficients of its own."""
        names = names_with(check.column, self._state.names)
        signs = {names[0] if names else check.column: check.sign}
        return f"constrain the sign, as in signs={signs}"

    def summary(self) -> Summary:
        """Return a summary: facts about the chains, then the posterior of means and standard deviations over people."""
        state, config, record = self._state, self.config, self._state.record
        traces = {name: draws for name, draws in self.traces().items() if not name.startswith("corr[")}
        facts = {
            "formula": config.formula,
            "choice sets": f"{self.table_.choice_sets:,} of {record.persons:,} persons, median {record.median_sets:g}",
            "parameters": f"{self.num_parameters:,} of the population, {len(state.names)} part-worths of each person",
            "chains": f"{config.chains}, {config.burn_in:,} + {config.settings.kept * config.thin:,} sweeps each",
            "draws kept": f"{config.settings.kept * config.chains:,}",
            "accepted steps": f"{record.accepted:.0%} of persons, {record.population_accepted:.0%} of the population",
            "largest R-hat": f"{record.largest_rhat:.3f} ({record.worst_parameter})",
            "smallest effective size": f"{record.smallest_size:,.0f}",
            "root likelihood": f"{record.root_likelihood:.4f} at the mean part-worths",
            "prior": config.prior,
            **self._sign_facts(),
        }
        if len(state.covariates.names) > 1:
            facts["covariates"] = config.covariates
        if any(state.signs):
            constrained = [f"{'-' if s < 0 else '+'}{n}" for n, s in zip(state.names, state.signs, strict=True) if s]
            facts["constrained signs"] = f"{', '.join(constrained)}; parameters of the logarithm of their size"
        if self.design_.labels is not None:
            facts["reference"] = self.design_.labels.reference
        rows = tuple(map(parameter_cells, ChainReport.of(traces).rows))
        return Summary(type(self).__name__, facts, PARAMETER_HEADER, rows, self.caveats)

    def _unseen_categories(self, data: ChoiceData) -> UnseenCounts:
        counts, outside = UnseenCounts(), outside_rows(data)
        for name, code in {**self._state.covariates.codes, **self.design_.codes}.items():
            column = data.features.get(name, data.individual.get(name))
            if not (isinstance(code, LevelCode) and isinstance(column, Categorical)):
                continue
            if outside is not None and name in data.features:  # the outside option has no features
                column = column.take(np.flatnonzero(~outside))
            code.count_unseen(name, column, counts)
        return counts

    # -- saving ----------------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        return self._state.files()

    def _restore(self, files: Mapping[str, bytes], record: HierarchicalRecord, table: TrainingTable) -> FittedHierarchy:
        return FittedHierarchy.of_files(files, record)
