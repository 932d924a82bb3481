"""Latent class logit (Greene & Hensher, 2003): each person belongs to one of C latent classes, each with its own logit.

    P(i | S, I) = sum_c pi_c(I) P_c(i | S)        pi_c(I) = exp(g_c . h(I)) / sum_d exp(g_d . h(I))

A person belongs to the same class in all choices i_1, i_2, ..., so the joint probability of these choices is sum_c pi_c
prod_t P_c(i_t | S_t). Each class has the IIA property, but the mixture does not.

Coefficients may be shared between classes, and fixed in some of them. With all coefficients shared except those that a
class fixes at 0, the classes differ in the attributes that they ignore (attribute non-attendance; Scarpa et al., 2009).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.choice_based import sampling_strata
from pcmcnet.data.columns.ragged import log_softmax_by_set, log_sum_exp_by_set
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import TrainingTable, record_from_dict, record_to_dict
from pcmcnet.models.interface.latent_classes import ClassesBy, ClassProfile, LatentClasses, Persons, class_profiles
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logit.class_options import equal_in_classes, options_by_class
from pcmcnet.models.logit.design import Design, columns_of
from pcmcnet.models.logit.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logit.latent_class_likelihood import ClassSearch, MixtureData, MixtureMaximum, log_shares
from pcmcnet.models.logit.logit_effects import class_slopes
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood, equivalent_sizes
from pcmcnet.models.logit.logit_model import (
    FittedLogit,
    LogitConfig,
    LogitModel,
    LogitRecord,
    read_design,
    read_estimates,
    read_schema,
)
from pcmcnet.models.logit.maximum_likelihood import Maximum, StartsRecord, diverges_without_prior
from pcmcnet.models.logit.parameter_bounds import Parameters, require_identified
from pcmcnet.models.logit.standard_errors import Estimates, infer
from pcmcnet.storage import json_bytes

# Precision of the prior if the number of classes is given, and if it is selected. On the electricity table, on larch's
# artificial_long and on simulated tables, 0.001 changes estimates by less than a twentieth of their standard error.
# With up to 4 classes, the held-out log-likelihood of small tables is clearly better with 0.1 (itinerary, 615 sets:
# 2.47 against 2.77 nats).
_PRIOR_GIVEN, _PRIOR_SELECTED = 1e-3, 0.1


@dataclass(frozen=True, kw_only=True)
class LatentClassMNLConfig(LogitConfig):
    """Options of the latent class logit: the options of the logit in every class, and the options of the classes.

    Parameters
    ----------
    classes
        Number of classes. Default "auto": the number with the smallest AIC, up to ``max_classes``.
    max_classes
        Largest number of classes that ``classes="auto"`` considers. Default 4.
    shared
        Coefficients that are the same in all classes, as in ["time"]: names of coefficients, or terms of the formula,
        which stand for all their coefficients ("1" for the constants). A class in which ``fixed`` contains the
        coefficient, as in {"class 2: time": 0}, keeps the fixed value. Default: none.
    by
        Unit that is assigned to a class: each "person", with the same class in all choice sets, or each choice "set".
        Default "person"; if the table has no person column, each choice set is a unit.
    membership
        Covariates of the class shares: a sum of individual-level columns, as in "income + age". The default "." means
        all individual-level columns that do not vary within a person, and "1" means no covariates.
    starts
        Number of random starts for each number of classes; the fit returns the best maximum. Default "auto": 20 starts,
        and up to 50 as long as further maxima are expected; large tables have fewer starts, but at least 5. If
        ``classes`` is "auto", one more start divides a class of the maximum with one class fewer. The summary shows the
        number of starts.
    em_steps
        Maximum number of EM steps, which gradually become Newton steps. Default 200.
    prior
        Precision of a normal prior with mean 0 on each coefficient of a standardised column, and on the differences
        between classes in membership coefficients. The prior keeps the estimates finite and is not included in the
        standard errors. A value of 0 gives maximum likelihood. Default "auto": 0.001, which hardly changes the
        estimates, if ``classes`` is a number, and 0.1, which improves predictions, if ``classes`` is "auto".
    """

    classes: int | Literal["auto"] = "auto"
    max_classes: int = 4
    shared: tuple[str, ...] = ()
    by: ClassesBy = "person"
    membership: str = "."
    starts: int | Literal["auto"] = "auto"
    em_steps: int = 200
    prior: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes != "auto":
            require_number("classes", self.classes, whole=True, low=1)
        require_number("max_classes", self.max_classes, whole=True, low=1)
        if self.starts != "auto":
            require_number("starts", self.starts, whole=True, low=1)
        require_number("em_steps", self.em_steps, whole=True, low=1)
        if self.prior != "auto":
            require_number("prior", self.prior, low=0)
        require_word("by", self.by, get_args(ClassesBy))
        if not (isinstance(self.shared, list | tuple) and all(isinstance(name, str) for name in self.shared)):
            raise ConfigError(f"shared must be a list of names of coefficients, got {self.shared!r}.")
        object.__setattr__(self, "shared", tuple(self.shared))
        parse_membership(self.membership)

    @property
    def precision(self) -> float:
        """The precision of the prior."""
        if self.prior == "auto":
            return _PRIOR_SELECTED if self.classes == "auto" else _PRIOR_GIVEN
        return float(self.prior)

    @property
    def number_of_starts(self) -> int | None:
        """The number of random starts, or None if it depends on the maxima that they reach."""
        return None if self.starts == "auto" else self.starts


_SAMPLE = 4_000  # choice sets of the sample for random starts, in tables of at least twice as many


@dataclass(frozen=True, kw_only=True)
class LatentClassRecord(LogitRecord):
    """Facts about the fit of a latent class logit."""

    em: tuple[float, ...]  # log-likelihood plus log of the prior after each EM step, from the best start
    aic: Mapping[str, float]  # Akaike information criterion by number of classes
    starts: StartsRecord | None = None  # where the starts with the selected number of classes ended


@dataclass(frozen=True, kw_only=True)
class FittedClasses(FittedLogit):
    """A fitted latent class logit.

    The estimates are the coefficients of class 1, class 2, ..., then the membership coefficients of class 2, class 3,
    ...
    """

    record: LatentClassRecord
    membership_design: IndividualDesign  # covariates of the class shares
    classes: int
    profiles: tuple[ClassProfile, ...]  # (C,)
    persons: int | None  # number of persons, if some have several choice sets
    varying: tuple[str, ...]  # individual columns that vary within a person

    def split(self) -> tuple[Floats, Floats]:
        """Return class coefficients (C, K) and membership coefficients (C, G), which are 0 for the first class."""
        C, K, G = self.classes, len(self.design.names), len(self.membership_design.names)
        values = self.estimates.values
        return values[: C * K].reshape(C, K), np.concatenate([np.zeros((1, G)), values[C * K :].reshape(C - 1, G)])


class LatentClassMNL(LogitModel, LatentClasses):
    """Latent class multinomial logit.

    For the options, see :class:`LatentClassMNLConfig`. Classes are numbered by their shares, the largest first, unless
    ``fixed``, ``bounds`` or ``start`` contain a coefficient of a single class ("class 2: price", "membership 2:
    income"). A name without a class ("price") refers to the coefficients of all classes.
    """

    name = "lc-mnl"
    corrects_samples = "all"
    config_class = LatentClassMNLConfig
    config: LatentClassMNLConfig
    _state: FittedClasses
    record_class = LatentClassRecord
    advice = (
        "the likelihood has no maximum, for example because a level is never or always chosen in a class. Use fewer "
        "classes, raise min_chosen, or leave the column out"
    )

    @takes(LatentClassMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedClasses:
        config = self.config
        # 1. Choice sets with positive weight, their persons, and the columns of utility and membership.
        sets, chosen, clusters = self._prepare(train)
        persons = Persons.of(sets, config.by)
        if design is None:
            design = self._require_linear(self._learn_design(sets, wtp_space=config.wtp_space))
        membership = self._learn_membership(persons)
        problem = _mixture_data(design, membership, sets, chosen, persons)
        shared = self._shared(design, sets)
        require_identified(problem.sets.z, design.names, self._parameters_of_all_classes(design))
        # 2. In a large table, random starts use a sample of persons. The prior keeps estimates finite on any sample.
        few = problem
        if len(sets) >= 2 * _SAMPLE and config.precision > 0:
            few = _mixture_data(design, membership, *_sample_persons(sets, chosen, persons, config.by, run.seed))
        # 3. Maximise for each number of classes; select the number with the smallest AIC.
        search = ClassSearch(
            problem=problem,
            few=few,
            prior=config.precision,
            starts=config.number_of_starts,
            em_steps=config.em_steps,
            max_iter=config.max_iter,
            seed=run.seed,
            within=partial(self._parameters_of_classes, design, membership, shared),
            ordered=not self._named_classes(design),
        )
        maxima = search.up_to(config.max_classes) if config.classes == "auto" else [search.of(config.classes)]
        best = min(maxima, key=lambda maximum: maximum.aic)
        # 4. Its estimates, with the classes ordered by their shares.
        mixture = best.mixture
        x = mixture.join(*best.by_share())
        estimates = self._infer(design, best, x, sets, persons, clusters)
        self._warn_unbounded(estimates)
        return FittedClasses(
            design=design,
            estimates=estimates,
            record=LatentClassRecord(
                em=tuple(best.em), aic={str(m.mixture.classes): m.aic for m in maxima}, starts=best.starts
            ),
            membership_design=membership,
            classes=mixture.classes,
            profiles=class_profiles(persons.table, mixture.at(x).r * mixture.weights[:, None]),
            persons=len(persons.first) if persons.has_several_sets else None,
            varying=tuple(persons.varying),
        )

    def _learnt_options(self) -> dict[str, Any]:
        return {"classes": self.n_classes_, "prior": self.config.precision, "starts": 1}

    def _infer(
        self, design: Design, best: MixtureMaximum, x: Floats, sets: ChoiceData, persons: Persons, clusters: Ints | None
    ) -> Estimates:
        """Return the estimates at parameters x (P,), with standard errors that do not include the prior."""
        mixture = best.mixture
        ll, person_scores = mixture.objective(x)
        # The choices of a person are one observation, whose score is assigned to the first set. The last row is the
        # prior's.
        scores = np.zeros((len(sets), len(x)))
        scores[persons.first] = person_scores[:-1]
        if clusters is not None:
            persons.require_one_cluster(sets, clusters, str(self.config.cluster))
        curvature = mixture.hessian(x) + mixture.prior  # Hessian of the log-likelihood without the prior
        maximum = Maximum(
            x,
            float(mixture.weights @ ll[:-1]),
            scores,
            curvature,
            best.steps + len(best.em) - 1,
            mixture.spread,
            -(mixture.prior @ x),
        )
        constants = self._constants_log_likelihood(design, mixture.sets, sets.weights)
        within, sizes = mixture.within, equivalent_sizes(sets)
        rest = (clusters, None, constants, sampling_strata(sets))
        estimates = infer(maximum, within, sets.weights, sizes, *rest)
        # Find coefficients that the likelihood pushes to infinity and only the prior keeps finite.
        diverges = diverges_without_prior(
            mixture.objective,
            lambda x: mixture.hessian(x) + mixture.prior,
            x,
            np.append(mixture.weights, 0.0),
            scale=1 / mixture.spread,
            within=within,
        )
        return estimates.with_unbounded([name for name, is_true in zip(within.names, diverges, strict=True) if is_true])

    @property
    def _individual_designs(self) -> tuple[IndividualDesign, ...]:
        return (self.membership_design_,)

    def _named_classes(self, design: Design) -> list[str]:
        """Return the names in the options that refer to a coefficient of a single class."""
        config = self.config
        options = (
            config.fixed,
            config.bounds or {},
            config.start,
            [name for names in config.equalities for name in names],
        )
        return [name for named in options for name in named if name not in design.names]

    def _parameters_of_all_classes(self, design: Design) -> Parameters:
        """Return the parameters of the design, with the fixed values that apply to all classes."""
        named = self._named_classes(design)
        if self.config.classes == "auto" and named:
            raise ConfigError(
                f"{named[0]!r} is not a coefficient of all classes: set the number of classes, as in classes=2."
                + did_you_mean(named[0], design.names)
            )
        fixed = {
            name: value for name, value in self._fixed_values(design, design.names).items() if name in design.names
        }
        equal = [names for names in self.config.equalities if {*names} <= {*design.names}]
        return Parameters.of(design.names, fixed=fixed, bounds={}, start={}, equal=equal)

    def _shared(self, design: Design, sets: ChoiceData) -> list[str]:
        """Return the coefficients that the classes share."""
        names, sources = self.config.shared, design.sources(sets)
        columns = {k for name in names for k in columns_of(name, design.names, sources, "shared")}
        return [name for k, name in enumerate(design.names) if k in columns]

    def _parameters_of_classes(
        self, design: Design, membership: IndividualDesign, shared: list[str], classes: int
    ) -> Parameters:
        """Return the parameters of all classes; starting values are NaN unless the options specify them."""
        config, generic = self.config, design.names
        names = [f"class {c}: {name}" for c in range(1, classes + 1) for name in design.names]
        names += [f"membership {c}: {name}" for c in range(2, classes + 1) for name in membership.names]
        equal = equal_in_classes(config.equalities, generic, shared, config.fixed, classes)
        fixed = options_by_class(self._fixed_values(design, generic), generic, classes)
        start = {n: value for n, value in options_by_class(config.start, generic, classes).items() if n not in fixed}
        no_start, bounds = np.full(len(names), np.nan), options_by_class(config.bounds or {}, generic, classes)
        return Parameters.of(names, fixed=fixed, bounds=bounds, start=start, begin=no_start, equal=equal)

    def _learn_membership(self, persons: Persons) -> IndividualDesign:
        """Learn the covariates of the class shares from one choice set per person."""
        named, _ = parse_membership(self.config.membership)
        persons.require_constant([factor.column for term in named for factor in term.factors])
        config = self.config
        return IndividualDesign.learn(config.membership, persons.table, least=config.min_chosen, base=config.base)

    # -- the fitted model -------------------------------------------------------------------------------------------

    @property
    def n_classes_(self) -> int:
        """Number of classes."""
        return self._state.classes

    @property
    def membership_design_(self) -> IndividualDesign:
        """The covariates of the class shares."""
        return self._state.membership_design

    @property
    def profiles_(self) -> tuple[ClassProfile, ...]:
        """Share of each class, and the class means of the individual-level columns."""
        return self._state.profiles

    @property
    def persons_(self) -> int | None:
        """Number of persons, if some have several choice sets."""
        return self._state.persons

    @property
    def varying_(self) -> tuple[str, ...]:
        """Individual-level columns that vary within a person, which cannot be covariates of the class shares."""
        return self._state.varying

    def coefficient_shares(self) -> dict[str, list[tuple[float, float]]]:
        """Return the coefficient of each class and the share of the class in the training part, by coefficient."""
        b, shares = self._state.split()[0], [profile.share for profile in self.profiles_]
        return {name: list(zip(b[:, k].tolist(), shares, strict=True)) for k, name in enumerate(self.design_.names)}

    def _log_membership(self, sets: ChoiceData) -> Floats:
        return log_shares(self.membership_design_.matrix(sets), self._state.split()[1])

    def _class_log_p(self, data: ChoiceData) -> Floats:
        """Return the log-probabilities of the alternatives in each class, (N, C)."""
        v = self.design_.matrix(data) @ self._state.split()[0].T
        return np.column_stack([log_softmax_by_set(column, data.offsets) for column in v.T])

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        v = self.design_.matrix(data) @ self._state.split()[0].T
        sums = np.column_stack([log_sum_exp_by_set(column, data.offsets) for column in v.T])
        return sums, self.membership(data)

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        if column in self.membership_design_.codes and column in data.individual:
            return None  # class shares change, too: the caller uses finite differences
        return class_slopes(self.design_, data, column, self._state.split()[0], self.membership(data))

    def _log_proba(self, data: ChoiceData) -> Floats:
        return self._mix_classes(data, self._log_membership(data)) if len(data) else np.zeros(0)

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """Return the logit of each class: see :meth:`ChoiceModel.as_logits`."""
        return np.exp(log_shares(self.membership_design_.matrix(data), self._state.split()[1])), self._class_log_p(data)

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        if self.persons_ is not None:
            facts["persons"] = f"{self.persons_:,}, each in the same class in all choice sets"
        if self.config.precision:
            facts["prior"] = (
                f"normal, precision {self.config.precision:g} per standardised column; not included in standard errors"
            )
        if (starts := self._state.record.starts) is not None and self.n_classes_ > 1:
            facts["starts"] = str(starts)
        if self.config.shared and self.n_classes_ > 1:
            facts["shared by classes"] = ", ".join("constants" if name == "1" else name for name in self.config.shared)
        if not self.config.equal:
            facts.pop("equal", None)  # shared coefficients only
        facts["membership"] = self.config.membership
        reasons = {
            "not identified": self.membership_design_.left_out,
            "varies within a person": self.varying_,
        }
        left_out = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items() if names]
        if left_out:
            facts["left out of membership"] = "; ".join(left_out)
        aic = self._state.record.aic
        if len(aic) > 1:
            facts["AIC by classes"] = ", ".join(f"{c}: {value:.2f}" for c, value in aic.items())
        for c, profile in enumerate(self.profiles_, start=1):
            unit = "choices" if self.persons_ is None else "persons"
            parts = [f"{profile.share:.1%} of the {unit}", *(f"{k} {v}" for k, v in profile.means.items())]
            facts[f"class {c}"] = ", ".join(parts)
        return facts

    def _files(self) -> dict[str, bytes]:
        state = self._state
        classes = {
            "classes": state.classes,
            "who": state.membership_design.to_dict(),
            "profiles": record_to_dict(state.profiles),
            "persons": state.persons,
            "varying": list(state.varying),
        }
        return {**super()._files(), "classes.json": json_bytes(classes)}

    def _restore(self, files: Mapping[str, bytes], record: LatentClassRecord, table: TrainingTable) -> FittedClasses:
        entries = json.loads(files["classes.json"])
        state = FittedClasses(
            design=read_design(files),
            estimates=read_estimates(files),
            record=record,
            membership_design=IndividualDesign.from_dict(entries["who"]),
            classes=int(entries["classes"]),
            profiles=tuple(record_from_dict(ClassProfile, profile) for profile in entries["profiles"]),
            persons=None if entries["persons"] is None else int(entries["persons"]),
            varying=tuple(map(str, entries["varying"])),
        )
        state.membership_design.require_fit(read_schema(files))
        C, K, G = state.classes, len(state.design.names), len(state.membership_design.names)
        if len(state.estimates.values) != C * K + (C - 1) * G or len(state.profiles) != C:
            raise ValueError("the saved classes, columns and estimates do not match")
        return state


def _mixture_data(
    design: Design, membership: IndividualDesign, sets: ChoiceData, chosen: Ints, persons: Persons
) -> MixtureData:
    """Return the data that the mixture likelihood needs."""
    logit = LogitLikelihood.from_matrix(design.matrix(sets), sets.offsets, chosen, sets.expansion)
    return MixtureData(logit, persons.number, membership.matrix(persons.table), persons.weights(sets))


def _sample_persons(
    sets: ChoiceData, chosen: Ints, persons: Persons, by: ClassesBy, seed: int
) -> tuple[ChoiceData, Ints, Persons]:
    """Return the choice sets, choices and persons of a random sample of persons, with about ``_SAMPLE`` sets."""
    rng, n = np.random.default_rng(seed), len(persons.first)
    drawn = rng.choice(n, max(round(_SAMPLE * n / len(sets)), 1), replace=False)
    in_sample = np.flatnonzero(np.isin(persons.number, drawn))
    sample = sets.subset(in_sample)
    return sample, chosen[in_sample], Persons.of(sample, by)
