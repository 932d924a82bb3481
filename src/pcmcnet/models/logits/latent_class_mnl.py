"""Latent class logit (Greene & Hensher, 2003): individuals are of one of C unknown classes, each with its own logit.

    P(i | S, I) = sum_c pi_c(I) P_c(i | S)        pi_c(I) = exp(g_c . h(I)) / sum_d exp(g_d . h(I))

EM from several starts, more and more like Newton's method, never lowers the likelihood and comes near a maximum;
Newton's steps on the exact Hessian finish. There are many maxima. A start divides a class at random: a single one, or
the largest of those found before for fewer classes, which tends to lead higher. In a large table only that one and the
best of the others, which begin on a sample of its sets, go on to the whole.
Each class keeps independence of irrelevant alternatives; their mixture does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.columns import Categorical, Numeric
from pcmcnet.data.ragged import log_softmax_by_set, spread
from pcmcnet.errors import TrainingError
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logits.design.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logits.estimation import LogitSets, infer, maximise
from pcmcnet.models.logits.estimation.em import Run, Start, divide, em_steps, height
from pcmcnet.models.logits.estimation.identification import require_identified
from pcmcnet.models.logits.estimation.mixture_likelihood import Mixture, Point, log_shares, posterior
from pcmcnet.models.logits.estimation.parallel import products_in_one_thread
from pcmcnet.models.logits.logit_model import LogitConfig, LogitModel, log
from pcmcnet.storage.files import json_bytes

_TOGETHER = 6  # Newton's steps for one class, where all starts begin: the maximum may be at infinity
_FIRST = 15  # EM steps from each start, before the best goes on
_FOLLOWED = 2  # starts that take such steps on the whole of a large table
_SAMPLE = 4_000  # choice sets with which a table of twice as many or more begins


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentClassMNLConfig(LogitConfig):
    """Options of the latent class logit: those of the logit models, which hold for every class, and the classes.

    Parameters
    ----------
    classes
        Number of classes; "auto" takes the one with the smallest AIC up to ``max_classes``.
    max_classes
        See ``classes``.
    membership
        What the shares of the classes depend on: a sum of individual columns such as "income + age", "." for all of
        them, or "1" for none.
    starts
        Random starts, the best of which goes on; with ``classes`` "auto" against one from the maximum for fewer.
    em_steps
        Steps of EM, or between EM's and Newton's, at most.
    prior
        Precision of a normal prior around 0 on each coefficient of a standardised column, and on how far classes are
        apart in those of membership: a weak pull that keeps estimates finite. 0 for the maximum likelihood itself.
    """

    classes: int | Literal["auto"] = "auto"
    max_classes: int = 4
    membership: str = "."
    starts: int = 5
    em_steps: int = 200
    prior: float = 0.1

    def __post_init__(self) -> None:
        super(LatentClassMNLConfig, self).__post_init__()  # slots make a new class, which super() misses
        if self.classes != "auto":
            require_number("classes", self.classes, whole=True, low=1)
        require_number("max_classes", self.max_classes, whole=True, low=1)
        require_number("starts", self.starts, whole=True, low=1)
        require_number("em_steps", self.em_steps, whole=True, low=1)
        require_number("prior", self.prior, low=0)
        parse_membership(self.membership)


class _Problem(NamedTuple):
    """Choice sets and who chooses."""

    sets: LogitSets
    who: Floats
    weights: Floats


@dataclass(frozen=True)
class _Fitted:
    """The maximum for one number of classes."""

    mixture: Mixture
    x: Floats
    log_likelihood: float
    steps: int
    em: list[float]  # what is maximised, after each EM step from the best start

    @property
    def aic(self) -> float:
        return 2 * self.mixture.n_parameters - 2 * self.log_likelihood

    def by_share(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the classes (C, K) and of their shares (C, G), the largest class first."""
        b, g = self.mixture.split(self.x)
        order = np.argsort(-(self.mixture.weights @ np.exp(log_shares(self.mixture.who, g))), kind="stable")
        return b[order], g[order]


class LatentClassMNL(LogitModel):
    """Latent class multinomial logit.

    Options are those of :class:`LatentClassMNLConfig`. Classes are numbered by their shares, the largest first.
    """

    name = "lc-mnl"
    config_class = LatentClassMNLConfig
    config: LatentClassMNLConfig
    who_: IndividualDesign
    n_classes_: int
    profiles_: list[dict[str, Any]]

    @takes(LatentClassMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @products_in_one_thread()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        sets, chosen, clusters = self._prepare(train)
        self.design_ = self._learn_design(sets)
        self.who_ = IndividualDesign.learn(self.config.membership, sets, least=self.config.min_chosen)
        problem = self._problem(sets, chosen)
        require_identified(problem.sets.z, self.design_.names)
        few = problem
        if len(sets) >= 2 * _SAMPLE and self.config.prior > 0:  # which keeps estimates finite on any sample
            picked = np.random.default_rng(settings.seed).choice(len(sets), _SAMPLE, replace=False)
            few = self._problem(sets.subset(np.sort(picked)), chosen[np.sort(picked)])
        tried = self._try(problem, few, settings.seed)
        best = min(tried, key=lambda fitted: fitted.aic)
        self._keep(best, sets, clusters)
        self._note()
        self.training_["em"] = best.em
        self.training_["aic"] = {str(f.mixture.classes): f.aic for f in tried}

    def _problem(self, sets: ChoiceData, chosen: Ints) -> _Problem:
        logit = LogitSets.from_matrix(self.design_.matrix(sets), sets.offsets, chosen)
        return _Problem(logit, self.who_.matrix(sets), sets.weights)

    def _try(self, problem: _Problem, few: _Problem, seed: int) -> list[_Fitted]:
        """Find the maximum for each number of classes asked for."""
        asked = self.config.classes
        found: list[_Fitted] = []
        for classes in range(1, self.config.max_classes + 1) if asked == "auto" else [asked]:
            try:
                found.append(self._climb(problem, few, classes, seed, found[-1] if found else None))
            except TrainingError as error:
                if asked != "auto" or not found:
                    raise
                log.warning("%d classes are not considered: %s", classes, error)
        return found

    def _climb(self, problem: _Problem, few: _Problem, classes: int, seed: int, fewer: _Fitted | None) -> _Fitted:
        """Find the maximum for one number of classes, where that for fewer may be known."""
        mixture = Mixture(*problem, classes, float(self.config.prior))
        sample = mixture if few is problem else Mixture(*few, classes, mixture.strength, of=mixture)
        rng = np.random.default_rng([seed, classes])
        begun = self._begin(sample, self._starts(sample, rng))
        starts: list[Start] = [partial(divide, mixture, *fewer.by_share(), rng)] if fewer else []
        if few is problem:
            begun += self._begin(mixture, starts)
        else:
            starts += [partial(mixture.at, at.x) for at, _ in begun[: _FOLLOWED - len(starts)]]
            begun = self._begin(mixture, starts)
        if not begun:
            raise TrainingError(
                f"no start with {classes} class{'es' * (classes > 1)} keeps the log-likelihood finite: use fewer "
                f"classes, or raise prior or min_chosen."
            )
        at, em = max(begun, key=height)
        x, em, steps = self._settle(mixture, at, em)
        value = float(mixture.weights @ mixture.at(x).log_p)
        log.info(
            "%d classes: log-likelihood %.3f after %d EM and %d further steps",
            mixture.classes,
            value,
            len(em) - 1,
            steps,
        )
        return _Fitted(mixture, x, value, steps, em)

    def _settle(self, mixture: Mixture, at: Point, em: list[float]) -> tuple[Floats, list[float], int]:
        """Go on with EM and then with Newton's steps; returns the maximum, the values climbed and the steps."""
        at, em = em_steps(mixture, at, em, self.config.em_steps - len(em) + 1)
        x, steps = maximise(
            mixture.objective,
            at.x,
            mixture.all_weights,
            curvature=mixture.hessian,
            scale=1 / mixture.spread,
            max_iter=self.config.max_iter,
        )
        return x, em, steps

    def _starts(self, mixture: Mixture, rng: np.random.Generator) -> list[Start]:
        """Divide a single class at random, several times."""
        together, _, _ = mixture.sets.maximise(mixture.weights, max_iter=_TOGETHER, settle=False)
        one = together[None], np.zeros((1, mixture.who.shape[1]))
        return [partial(divide, mixture, *one, rng)] * (self.config.starts if mixture.classes > 1 else 1)

    def _begin(self, mixture: Mixture, starts: list[Start]) -> list[Run]:
        """Take the first steps from each start that leads anywhere; the highest comes first."""
        runs = []
        for start in starts:
            try:
                runs.append(em_steps(mixture, start(), [], min(_FIRST, self.config.em_steps)))
            except TrainingError as error:
                log.info("%d classes: a start is passed over: %s", mixture.classes, error)
        return sorted(runs, key=height, reverse=True)

    def _keep(self, best: _Fitted, sets: ChoiceData, clusters: Ints | None) -> None:
        """Take the estimates, with the classes in the order of their shares."""
        mixture = best.mixture
        x = mixture.join(*best.by_share())
        ll, scores = mixture.objective(x)
        C = mixture.classes
        names = [f"class {c}: {name}" for c in range(1, C + 1) for name in self.design_.names]
        names += [f"membership {c}: {name}" for c in range(2, C + 1) for name in self.who_.names]
        self.n_classes_ = C
        self.estimates_ = infer(
            tuple(names),
            x,
            log_likelihood=float(mixture.weights @ ll[:-1]),
            hessian=mixture.hessian(x),
            scores=scores[:-1],  # the last is the prior's
            weights=mixture.weights,
            sizes=sets.sizes,
            steps=best.steps,
            clusters=clusters,
            spread=mixture.spread,
        )
        self.profiles_ = _profiles(sets, mixture.at(x).r * mixture.weights[:, None])

    def _split(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the classes (C, K) and of their shares (C, G)."""
        C, K, G = self.n_classes_, len(self.design_.names), len(self.who_.names)
        values = self.estimates_.values
        return values[: C * K].reshape(C, K), np.concatenate([np.zeros((1, G)), values[C * K :].reshape(C - 1, G)])

    def membership(self, data: Any) -> Floats:
        """Return the shares of the classes for each set's individual, before any choice: (S, C)."""
        sets = self._read(data)
        return np.exp(log_shares(self.who_.matrix(sets), self._split()[1]))

    def posterior(self, data: Any) -> Floats:
        """Return the shares of the classes given the choices of each set: (S, C)."""
        sets = self._read(data, chosen=True)
        picked = sets.offsets[:-1] + sets.require_chosen("the shares given the choices")
        log_pi = log_shares(self.who_.matrix(sets), self._split()[1])
        return posterior(log_pi + self._class_log_p(sets)[picked])[1]

    def _class_log_p(self, data: ChoiceData) -> Floats:
        """Return the log-probabilities of the alternatives in each class, (N, C)."""
        v = self.design_.matrix(data) @ self._split()[0].T
        return np.column_stack([log_softmax_by_set(column, data.offsets) for column in v.T])

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        log_pi = log_shares(self.who_.matrix(data), self._split()[1])
        log_p = np.logaddexp.reduce(self._class_log_p(data) + spread(log_pi, data.offsets), axis=1)
        out: Floats = np.where(spread(data.sizes, data.offsets) == 1, 0.0, log_p)  # shares sum to 1 up to rounding
        return out

    @property
    def _advice(self) -> str:
        return "the data push it to infinity. Ask for fewer classes, raise prior, or leave the column out"

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        facts["membership"] = self.config.membership
        if self.who_.left_out:
            facts["left out of it"] = f"{', '.join(self.who_.left_out)}: adds nothing to the other columns"
        aic = self.training_["aic"]
        if len(aic) > 1:
            facts["AIC by classes"] = ", ".join(f"{c}: {value:.2f}" for c, value in aic.items())
        for c, profile in enumerate(self.profiles_, start=1):
            parts = [f"{profile['share']:.1%} of the choices", *(f"{k} {v}" for k, v in profile["means"].items())]
            facts[f"class {c}"] = ", ".join(parts)
        return facts

    def _files(self) -> dict[str, bytes]:
        classes = {"classes": self.n_classes_, "who": self.who_.to_dict(), "profiles": self.profiles_}
        return {**super()._files(), "classes.json": json_bytes(classes)}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        super()._restore(files)
        entries = json.loads(files["classes.json"])
        self.n_classes_ = C = int(entries["classes"])
        self.profiles_ = [{"share": float(p["share"]), "means": dict(p["means"])} for p in entries["profiles"]]
        self.who_ = IndividualDesign.from_dict(entries["who"])
        self.who_.require_fit(Schema.from_dict(json.loads(files["schema.json"])))
        K, G = len(self.design_.names), len(self.who_.names)
        if len(self.estimates_.values) != C * K + (C - 1) * G or len(self.profiles_) != C:
            raise ValueError("the numbers of classes, columns and estimates do not fit each other")


def _profiles(sets: ChoiceData, mass: Floats) -> list[dict[str, Any]]:  # (S, C)
    """Describe who is in each class: its share, means of numbers and the most frequent category."""
    found = []
    for weights in mass.T:
        total = float(weights.sum())
        means = {}
        for name, column in sets.individual.items():
            if isinstance(column, Numeric):
                known = ~np.isnan(column.values)
                means[name] = f"{weights[known] @ column.values[known] / max(weights[known].sum(), 1e-300):.4g}"
            elif isinstance(column, Categorical):
                by_level = np.bincount(column.codes, weights, minlength=len(column.categories))
                top = int(by_level.argmax())
                means[name] = f"{column.categories[top]} {by_level[top] / max(total, 1e-300):.0%}"
        found.append({"share": total / float(mass.sum()), "means": means})
    return found
