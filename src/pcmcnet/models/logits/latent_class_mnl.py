"""Latent class logit (Greene & Hensher, 2003): persons are of one of C unknown classes, each with its own logit.

    P(i | S, I) = sum_c pi_c(I) P_c(i | S)        pi_c(I) = exp(g_c . h(I)) / sum_d exp(g_d . h(I))

A person's choices i_1, i_2, ... are those of one class: they have probability sum_c pi_c prod_t P_c(i_t | S_t).
Each class keeps independence of irrelevant alternatives; their mixture does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.ragged import log_softmax_by_set, log_sum_exp_by_set
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.latent_classes import LatentClasses
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logits.design.formula import quoted
from pcmcnet.models.logits.design.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logits.estimation import LogitSets, infer
from pcmcnet.models.logits.estimation.identification import require_identified
from pcmcnet.models.logits.estimation.latent_class_search import ClassSearch, Fitted, Problem
from pcmcnet.models.logits.estimation.mixture_likelihood import log_shares
from pcmcnet.models.logits.estimation.parallel import products_in_one_thread
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters
from pcmcnet.models.logits.latent_class_config import LatentClassMNLConfig
from pcmcnet.models.logits.logit_effects import class_slopes
from pcmcnet.models.logits.logit_model import LogitModel
from pcmcnet.models.logits.persons import Persons, profiles
from pcmcnet.storage.files import json_bytes

T = TypeVar("T")

_SAMPLE = 4_000  # choice sets with which a table of twice as many or more begins


class LatentClassMNL(LogitModel, LatentClasses):
    """Latent class multinomial logit.

    Options are those of :class:`LatentClassMNLConfig`. Classes are numbered by their shares, the largest first, unless
    ``fixed``, ``bounds`` or ``start`` name a coefficient of one of them ("class 2: price", "membership 2: income"). The
    name of a coefficient alone ("price") means that of every class.
    """

    name = "lc-mnl"
    config_class = LatentClassMNLConfig
    config: LatentClassMNLConfig
    control = True
    who_: IndividualDesign
    n_classes_: int
    profiles_: list[dict[str, Any]]
    persons_: int | None  # where some have several choice sets
    varying_: tuple[str, ...]  # individual columns that vary within a person

    @takes(LatentClassMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @products_in_one_thread()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        sets, chosen, clusters = self._prepare(train)
        persons = Persons.of(sets, self.config.by)
        self.design_ = self._learn_design(sets)
        self.who_ = self._learn_who(persons)
        problem = self._problem(sets, chosen, persons)
        require_identified(problem.sets.z, self.design_.names, self._of_all_classes())
        few = problem
        if len(sets) >= 2 * _SAMPLE and self.config.precision > 0:  # which keeps estimates finite on any sample
            rng, n = np.random.default_rng(settings.seed), len(persons.first)
            some = rng.choice(n, max(round(_SAMPLE * n / len(sets)), 1), replace=False)
            picked = np.flatnonzero(np.isin(persons.number, some))
            part = sets.subset(picked)
            few = self._problem(part, chosen[picked], Persons.of(part, self.config.by))
        search = ClassSearch(
            problem=problem,
            few=few,
            prior=self.config.precision,
            starts=self.config.starts,
            em_steps=self.config.em_steps,
            max_iter=self.config.max_iter,
            seed=settings.seed,
            within=self._within,
            ordered=not self._named_classes,
        )
        tried = (
            search.up_to(self.config.max_classes) if self.config.classes == "auto" else [search.of(self.config.classes)]
        )
        best = min(tried, key=lambda fitted: fitted.aic)
        self._keep(best, sets, persons, clusters)
        self._note()
        self.training_["em"] = best.em
        self.training_["aic"] = {str(f.mixture.classes): f.aic for f in tried}

    def _names(self, classes: int) -> list[str]:
        """Return the names of all parameters."""
        names = [f"class {c}: {name}" for c in range(1, classes + 1) for name in self.design_.names]
        return names + [f"membership {c}: {name}" for c in range(2, classes + 1) for name in self.who_.names]

    @property
    def _fixed(self) -> dict[str, float]:
        """What is fixed by name: as the options say, and the offset at 1."""
        offset = {} if self.config.offset is None else {quoted(self.config.offset): 1.0}
        return {**self.config.fixed, **offset}

    @property
    def _named_classes(self) -> list[str]:
        """Coefficients of single classes that options name."""
        options = (self.config.fixed, self.config.bounds or {}, self.config.start)
        return [name for named in options for name in named if name not in self.design_.names]

    def _of_all_classes(self) -> Parameters:
        """Return the parameters that every class has, as the options say that name no class."""
        if self.config.classes == "auto" and self._named_classes:
            raise ConfigError(
                f"{self._named_classes[0]!r} is no coefficient of every class, and how many classes there are is "
                f"searched for: say it, classes=2." + did_you_mean(self._named_classes[0], self.design_.names)
            )
        fixed = {name: value for name, value in self._fixed.items() if name in self.design_.names}
        return Parameters.of(self.design_.names, fixed=fixed, bounds={}, start={})

    def _within(self, classes: int) -> Parameters:
        """Return the parameters of so many classes; a start is NaN where the options say nothing of it."""

        def of_classes(named: Mapping[str, T]) -> dict[str, T]:
            shared = {name: value for name, value in named.items() if name in self.design_.names}
            each = {f"class {c}: {name}": v for c in range(1, classes + 1) for name, v in shared.items()}
            return each | {name: value for name, value in named.items() if name not in shared}

        names, fixed = self._names(classes), of_classes(self._fixed)
        start = {name: value for name, value in of_classes(self.config.start).items() if name not in fixed}
        anywhere, bounds = np.full(len(names), np.nan), of_classes(self.config.bounds or {})
        return Parameters.of(names, fixed=fixed, bounds=bounds, start=start, begin=anywhere)

    def _learn_who(self, persons: Persons) -> IndividualDesign:
        """Learn what the shares depend on, from one set of each person."""
        named, _ = parse_membership(self.config.membership)
        persons.require_same([factor.column for term in named for factor in term.factors])
        config = self.config
        return IndividualDesign.learn(config.membership, persons.table, least=config.min_chosen, base=config.base)

    def _problem(self, sets: ChoiceData, chosen: Ints, persons: Persons) -> Problem:
        logit = LogitSets.from_matrix(self.design_.matrix(sets), sets.offsets, chosen)
        return Problem(logit, persons.number, self.who_.matrix(persons.table), persons.weights(sets))

    def _keep(self, best: Fitted, sets: ChoiceData, persons: Persons, clusters: Ints | None) -> None:
        """Take the estimates, with the classes in the order of their shares."""
        mixture = best.mixture
        x = mixture.join(*best.by_share())
        ll, of_persons = mixture.objective(x)
        scores = np.zeros((len(sets), len(x)))
        scores[persons.first] = of_persons[:-1]  # a person's score counts once; the last is the prior's
        if clusters is not None:
            persons.require_one_cluster(sets, clusters, str(self.config.cluster))
        self.n_classes_ = mixture.classes
        self.estimates_ = infer(
            tuple(self._names(mixture.classes)),
            x,
            log_likelihood=float(mixture.weights @ ll[:-1]),
            hessian=mixture.hessian(x) + mixture.prior,  # of the log-likelihood alone
            scores=scores,
            weights=sets.weights,
            sizes=sets.sizes,
            steps=best.steps,
            clusters=clusters,
            spread=mixture.spread,
            constants_log_likelihood=self._constants_alone(mixture.sets, sets.weights),
            within=mixture.within,
        )
        self.profiles_ = profiles(persons.table, mixture.at(x).r * mixture.weights[:, None])
        self.persons_ = len(persons.first) if persons.several else None
        self.varying_ = tuple(persons.varying)

    def _split(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the classes (C, K) and of their shares (C, G)."""
        C, K, G = self.n_classes_, len(self.design_.names), len(self.who_.names)
        values = self.estimates_.values
        return values[: C * K].reshape(C, K), np.concatenate([np.zeros((1, G)), values[C * K :].reshape(C - 1, G)])

    def _log_membership(self, sets: ChoiceData) -> Floats:
        return log_shares(self.who_.matrix(sets), self._split()[1])

    def _class_log_p(self, data: ChoiceData) -> Floats:
        """Return the log-probabilities of the alternatives in each class, (N, C)."""
        v = self.design_.matrix(data) @ self._split()[0].T
        return np.column_stack([log_softmax_by_set(column, data.offsets) for column in v.T])

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        v = self.design_.matrix(data) @ self._split()[0].T
        sums = np.column_stack([log_sum_exp_by_set(column, data.offsets) for column in v.T])
        return sums, self.membership(data)

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        if column in self.who_.codes and column in data.individual:  # which moves the classes, too
            return None
        return class_slopes(self.design_, data, column, self._split()[0], self.membership(data))

    def _log_proba(self, data: ChoiceData) -> Floats:
        return self._mixed(data, self._log_membership(data)) if len(data) else np.zeros(0)

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """Return the logits of the classes: see :meth:`ChoiceModel.as_logits`."""
        return np.exp(log_shares(self.who_.matrix(data), self._split()[1])), self._class_log_p(data)

    @property
    def _advice(self) -> str:
        return "the data push it to infinity. Ask for fewer classes, raise prior, or leave the column out"

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        if self.persons_ is not None:
            facts["persons"] = f"{self.persons_:,}, each of one class in all choice sets"
        if self.config.precision:
            facts["prior"] = f"normal, precision {self.config.precision:g} by standardised column; not in the errors"
        facts["membership"] = self.config.membership
        why = {"adds nothing to the other columns": self.who_.left_out, "varies within a person": self.varying_}
        left_out = [f"{', '.join(names)}: {reason}" for reason, names in why.items() if names]
        if left_out:
            facts["left out of it"] = "; ".join(left_out)
        aic = self.training_["aic"]
        if len(aic) > 1:
            facts["AIC by classes"] = ", ".join(f"{c}: {value:.2f}" for c, value in aic.items())
        for c, profile in enumerate(self.profiles_, start=1):
            whose = "choices" if self.persons_ is None else "persons"
            parts = [f"{profile['share']:.1%} of the {whose}", *(f"{k} {v}" for k, v in profile["means"].items())]
            facts[f"class {c}"] = ", ".join(parts)
        return facts

    def _files(self) -> dict[str, bytes]:
        classes = {
            "classes": self.n_classes_,
            "who": self.who_.to_dict(),
            "profiles": self.profiles_,
            "persons": self.persons_,
            "varying": list(self.varying_),
        }
        return {**super()._files(), "classes.json": json_bytes(classes)}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        super()._restore(files)
        entries = json.loads(files["classes.json"])
        self.n_classes_ = C = int(entries["classes"])
        self.profiles_ = [{"share": float(p["share"]), "means": dict(p["means"])} for p in entries["profiles"]]
        self.persons_, self.varying_ = entries.get("persons"), tuple(entries.get("varying", ()))
        self.who_ = IndividualDesign.from_dict(entries["who"])
        self.who_.require_fit(Schema.from_dict(json.loads(files["schema.json"])))
        K, G = len(self.design_.names), len(self.who_.names)
        if len(self.estimates_.values) != C * K + (C - 1) * G or len(self.profiles_) != C:
            raise ValueError("the numbers of classes, columns and estimates do not fit each other")
