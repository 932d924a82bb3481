"""Latent class logit (Greene & Hensher, 2003): persons are of one of C unknown classes, each with its own logit.

    P(i | S, I) = sum_c pi_c(I) P_c(i | S)        pi_c(I) = exp(g_c . h(I)) / sum_d exp(g_d . h(I))

A person's choices i_1, i_2, ... are those of one class: they have probability sum_c pi_c prod_t P_c(i_t | S_t).
Each class keeps independence of irrelevant alternatives; their mixture does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import log_softmax_by_set, log_sum_exp_by_set
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import TrainingTable, record_from_dict, record_to_dict
from pcmcnet.models.interface.latent_classes import ClassesBy, ClassProfile, LatentClasses, Persons, class_profiles
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.formula import quoted
from pcmcnet.models.logit.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logit.latent_class_likelihood import ClassSearch, MixtureData, MixtureMaximum, log_shares
from pcmcnet.models.logit.logit_effects import class_slopes
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
from pcmcnet.models.logit.maximum_likelihood import Maximum
from pcmcnet.models.logit.parameter_bounds import Parameters, require_identified
from pcmcnet.models.logit.standard_errors import Estimates, infer
from pcmcnet.storage import json_bytes

# Precision of the prior. On the electricity table, larch's artificial_long and simulated ones 0.001 moves estimates by
# less than a twentieth of their standard error. With up to 4 classes, held-out likelihoods of small tables are clearly
# better with 0.1 (itinerary, 615 sets: 2.47 against 2.77 nats).
_GIVEN, _SEARCHED = 1e-3, 0.1


@dataclass(frozen=True, kw_only=True)
class LatentClassMNLConfig(LogitConfig):
    """Options of the latent class logit: those of the logit models, which hold for every class, and the classes.

    Parameters
    ----------
    classes
        Number of classes; "auto" takes the one with the smallest AIC up to ``max_classes``.
    max_classes
        See ``classes``.
    by
        Who is of a class: the "person", where the table declares persons, or the choice "set".
    membership
        What the shares of the classes depend on: a sum of individual columns such as "income + age", "." for all of
        them that are the same in all sets of each person, or "1" for none.
    starts
        Random starts, the best of which goes on; with ``classes`` "auto" against one from the maximum for fewer.
    em_steps
        Steps of EM, or between EM's and Newton's, at most.
    prior
        Precision of a normal prior around 0 on each coefficient of a standardised column, and on how far classes are
        apart in those of membership: a pull that keeps estimates finite. 0 for the maximum likelihood itself. "auto" is
        0.001 where the number of classes is given, which hardly moves estimates, and 0.1 where it is searched for,
        which predicts better. Standard errors are those of the likelihood, without the prior.
    """

    classes: int | Literal["auto"] = "auto"
    max_classes: int = 4
    by: ClassesBy = "person"
    membership: str = "."
    starts: int = 5
    em_steps: int = 200
    prior: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes != "auto":
            require_number("classes", self.classes, whole=True, low=1)
        require_number("max_classes", self.max_classes, whole=True, low=1)
        require_number("starts", self.starts, whole=True, low=1)
        require_number("em_steps", self.em_steps, whole=True, low=1)
        if self.prior != "auto":
            require_number("prior", self.prior, low=0)
        require_word("by", self.by, get_args(ClassesBy))
        parse_membership(self.membership)

    @property
    def precision(self) -> float:
        """The precision of the prior."""
        if self.prior == "auto":
            return _SEARCHED if self.classes == "auto" else _GIVEN
        return float(self.prior)


T = TypeVar("T")

_SAMPLE = 4_000  # choice sets with which a table of twice as many or more begins


@dataclass(frozen=True, kw_only=True)
class LatentClassRecord(LogitRecord):
    """How the search for classes went."""

    em: tuple[float, ...]  # log-likelihood and prior after each step of EM, from the best start
    aic: Mapping[str, float]  # Akaike's criterion by number of classes


@dataclass(frozen=True, kw_only=True)
class FittedClasses(FittedLogit):
    """Logits of classes, and what the shares of the classes depend on.

    The estimates are the coefficients of class 1, class 2, ..., then those of the shares of class 2, class 3, ...
    """

    record: LatentClassRecord
    who: IndividualDesign  # columns that the shares depend on
    classes: int
    profiles: tuple[ClassProfile, ...]  # (C,)
    persons: int | None  # their number, if some have several choice sets
    varying: tuple[str, ...]  # individual columns that vary within a person

    def split(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the classes (C, K) and of their shares (C, G), 0 for the first class."""
        C, K, G = self.classes, len(self.design.names), len(self.who.names)
        values = self.estimates.values
        return values[: C * K].reshape(C, K), np.concatenate([np.zeros((1, G)), values[C * K :].reshape(C - 1, G)])


class LatentClassMNL(LogitModel, LatentClasses):
    """Latent class multinomial logit.

    Options are those of :class:`LatentClassMNLConfig`. Classes are numbered by their shares, the largest first, unless
    ``fixed``, ``bounds`` or ``start`` name a coefficient of one of them ("class 2: price", "membership 2: income"). The
    name of a coefficient alone ("price") means that of every class.
    """

    name = "lc-mnl"
    config_class = LatentClassMNLConfig
    config: LatentClassMNLConfig
    _state: FittedClasses
    record_class = LatentClassRecord
    advice = "the data push it to infinity. Ask for fewer classes, raise prior, or leave the column out"

    @takes(LatentClassMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedClasses:
        config = self.config
        # 1. The sets that count and who chooses; what utilities and the shares of classes depend on.
        sets, chosen, clusters = self._prepare(train)
        persons = Persons.of(sets, config.by)
        if design is None:
            design = self._require_linear(self._learn_design(sets, wtp_space=config.wtp_space))
        who = self._learn_who(persons)
        problem = _problem(design, who, sets, chosen, persons)
        require_identified(problem.sets.z, design.names, self._parameters_of_all_classes(design))
        # 2. Of a large table, starts begin on a sample of persons. The prior keeps estimates finite on any sample.
        few = problem
        if len(sets) >= 2 * _SAMPLE and config.precision > 0:
            few = _problem(design, who, *_sampled(sets, chosen, persons, config.by, run.seed))
        # 3. The maximum for each number of classes that is considered; the one with the smallest AIC is taken.
        search = ClassSearch(
            problem=problem,
            few=few,
            prior=config.precision,
            starts=config.starts,
            em_steps=config.em_steps,
            max_iter=config.max_iter,
            seed=run.seed,
            within=partial(self._parameters_of_classes, design, who),
            ordered=not self._named_classes(design),
        )
        tried = search.up_to(config.max_classes) if config.classes == "auto" else [search.of(config.classes)]
        best = min(tried, key=lambda maximum: maximum.aic)
        # 4. Its estimates, with the classes in the order of their shares.
        mixture = best.mixture
        x = mixture.join(*best.by_share())
        estimates = self._infer(design, best, x, sets, persons, clusters)
        self._warn_unbounded(estimates)
        return FittedClasses(
            design=design,
            estimates=estimates,
            record=LatentClassRecord(em=tuple(best.em), aic={str(m.mixture.classes): m.aic for m in tried}),
            who=who,
            classes=mixture.classes,
            profiles=class_profiles(persons.table, mixture.at(x).r * mixture.weights[:, None]),
            persons=len(persons.first) if persons.has_several_sets else None,
            varying=tuple(persons.varying),
        )

    def _infer(
        self, design: Design, best: MixtureMaximum, x: Floats, sets: ChoiceData, persons: Persons, clusters: Ints | None
    ) -> Estimates:
        """Return the estimates at parameters x (P,), with errors of the likelihood alone."""
        mixture = best.mixture
        ll, of_persons = mixture.objective(x)
        # A person's choices are one observation: its score counts once, at the first set. The last row is the prior's.
        scores = np.zeros((len(sets), len(x)))
        scores[persons.first] = of_persons[:-1]
        if clusters is not None:
            persons.require_one_cluster(sets, clusters, str(self.config.cluster))
        curvature = mixture.hessian(x) + mixture.prior  # of the log-likelihood alone
        maximum = Maximum(x, float(mixture.weights @ ll[:-1]), scores, curvature, best.steps, mixture.spread)
        constants = self._constants_log_likelihood(design, mixture.sets, sets.weights)
        within, weights = mixture.within, sets.weights
        return infer(maximum, within, weights, sets.sizes, clusters, constants_log_likelihood=constants)

    @property
    def _fixed(self) -> dict[str, float]:
        """What is fixed by name: as the options say, and the offset at 1."""
        offset = {} if self.config.offset is None else {quoted(self.config.offset): 1.0}
        return {**self.config.fixed, **offset}

    def _named_classes(self, design: Design) -> list[str]:
        """Return the coefficients of single classes that options name."""
        options = (self.config.fixed, self.config.bounds or {}, self.config.start)
        return [name for named in options for name in named if name not in design.names]

    def _parameters_of_all_classes(self, design: Design) -> Parameters:
        """Return the parameters that every class has, as the options say that name no class."""
        named = self._named_classes(design)
        if self.config.classes == "auto" and named:
            raise ConfigError(
                f"{named[0]!r} is no coefficient of every class, and how many classes there are is "
                f"searched for: say it, classes=2." + did_you_mean(named[0], design.names)
            )
        fixed = {name: value for name, value in self._fixed.items() if name in design.names}
        return Parameters.of(design.names, fixed=fixed, bounds={}, start={})

    def _parameters_of_classes(self, design: Design, who: IndividualDesign, classes: int) -> Parameters:
        """Return the parameters of so many classes; a start is NaN where the options say nothing of it."""

        def of_classes(named: Mapping[str, T]) -> dict[str, T]:
            shared = {name: value for name, value in named.items() if name in design.names}
            each = {f"class {c}: {name}": v for c in range(1, classes + 1) for name, v in shared.items()}
            return each | {name: value for name, value in named.items() if name not in shared}

        names = [f"class {c}: {name}" for c in range(1, classes + 1) for name in design.names]
        names += [f"membership {c}: {name}" for c in range(2, classes + 1) for name in who.names]
        fixed = of_classes(self._fixed)
        start = {name: value for name, value in of_classes(self.config.start).items() if name not in fixed}
        anywhere, bounds = np.full(len(names), np.nan), of_classes(self.config.bounds or {})
        return Parameters.of(names, fixed=fixed, bounds=bounds, start=start, begin=anywhere)

    def _learn_who(self, persons: Persons) -> IndividualDesign:
        """Learn what the shares depend on, from one set of each person."""
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
        """The columns that the shares of the classes depend on."""
        return self._state.who

    @property
    def profiles_(self) -> tuple[ClassProfile, ...]:
        """Who is in each class."""
        return self._state.profiles

    @property
    def persons_(self) -> int | None:
        """Number of persons, if some have several choice sets."""
        return self._state.persons

    @property
    def varying_(self) -> tuple[str, ...]:
        """Individual columns that vary within a person, on which shares cannot depend."""
        return self._state.varying

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
        if column in self.membership_design_.codes and column in data.individual:  # which moves the classes, too
            return None
        return class_slopes(self.design_, data, column, self._state.split()[0], self.membership(data))

    def _log_proba(self, data: ChoiceData) -> Floats:
        return self._mix_classes(data, self._log_membership(data)) if len(data) else np.zeros(0)

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """Return the logits of the classes: see :meth:`ChoiceModel.as_logits`."""
        return np.exp(log_shares(self.membership_design_.matrix(data), self._state.split()[1])), self._class_log_p(data)

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        if self.persons_ is not None:
            facts["persons"] = f"{self.persons_:,}, each of one class in all choice sets"
        if self.config.precision:
            facts["prior"] = f"normal, precision {self.config.precision:g} by standardised column; not in the errors"
        facts["membership"] = self.config.membership
        why = {
            "adds nothing to the other columns": self.membership_design_.left_out,
            "varies within a person": self.varying_,
        }
        left_out = [f"{', '.join(names)}: {reason}" for reason, names in why.items() if names]
        if left_out:
            facts["left out of it"] = "; ".join(left_out)
        aic = self._state.record.aic
        if len(aic) > 1:
            facts["AIC by classes"] = ", ".join(f"{c}: {value:.2f}" for c, value in aic.items())
        for c, profile in enumerate(self.profiles_, start=1):
            whose = "choices" if self.persons_ is None else "persons"
            parts = [f"{profile.share:.1%} of the {whose}", *(f"{k} {v}" for k, v in profile.means.items())]
            facts[f"class {c}"] = ", ".join(parts)
        return facts

    def _files(self) -> dict[str, bytes]:
        state = self._state
        classes = {
            "classes": state.classes,
            "who": state.who.to_dict(),
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
            who=IndividualDesign.from_dict(entries["who"]),
            classes=int(entries["classes"]),
            profiles=tuple(record_from_dict(ClassProfile, profile) for profile in entries["profiles"]),
            persons=None if entries["persons"] is None else int(entries["persons"]),
            varying=tuple(map(str, entries["varying"])),
        )
        state.who.require_fit(read_schema(files))
        C, K, G = state.classes, len(state.design.names), len(state.who.names)
        if len(state.estimates.values) != C * K + (C - 1) * G or len(state.profiles) != C:
            raise ValueError("the numbers of classes, columns and estimates do not fit each other")
        return state


def _problem(design: Design, who: IndividualDesign, sets: ChoiceData, chosen: Ints, persons: Persons) -> MixtureData:
    """Return what the likelihood of a mixture is made of."""
    logit = LogitLikelihood.from_matrix(design.matrix(sets), sets.offsets, chosen)
    return MixtureData(logit, persons.number, who.matrix(persons.table), persons.weights(sets))


def _sampled(
    sets: ChoiceData, chosen: Ints, persons: Persons, by: ClassesBy, seed: int
) -> tuple[ChoiceData, Ints, Persons]:
    """Return the sets of a random sample of persons, about ``_SAMPLE`` sets."""
    rng, n = np.random.default_rng(seed), len(persons.first)
    drawn = rng.choice(n, max(round(_SAMPLE * n / len(sets)), 1), replace=False)
    picked = np.flatnonzero(np.isin(persons.number, drawn))
    part = sets.subset(picked)
    return part, chosen[picked], Persons.of(part, by)
