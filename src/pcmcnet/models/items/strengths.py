"""Models with one strength per item: the common part of the Bradley-Terry and Thurstone models.

The Bradley-Terry and Thurstone models give item i a strength s_i, and fix the strength of the most frequently chosen
item at 0. Both models maximise the log-likelihood of the counts of the distinct sets, minus ridge / 2 sum_i (s_i - mean
s)^2. Without a ridge, a unique finite maximum exists if and only if, for every division of the items into two groups,
some item of each group was chosen over an item of the other group (Ford, 1957). Additive smoothing ensures such a
maximum within each connected group of items, because every item then has a positive count in each of its sets. A ridge
also ensures a unique finite maximum, and replaces the smoothing.

Items that are not connected by a chain of choice sets form groups. The likelihood depends on differences within groups
only, so the level of a group is set by convention: all groups have the same mean strength. This is also the maximum
with a ridge, because the likelihood is constant along the level of a group. It does not depend on the number of choices
or on the item that is fixed at 0.
"""

from __future__ import annotations

import json
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.connected import connected_groups, sizes_text, strong_components
from pcmcnet.data.columns.ragged import log_softmax_by_set, spread, sum_by_set
from pcmcnet.data.subsets import take_sets
from pcmcnet.errors import ArtifactError, ConfigError, InputError, TrainingError
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FitRecord, FittedState, TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.items.universe import DistinctSets, Grid, Universe, first_item_names, require_informative_sets
from pcmcnet.reports.formats import Summary
from pcmcnet.selection import Descent, Fold, Trial, cross_folds, descend_ladder, held_out_groups, held_out_weights
from pcmcnet.storage import json_bytes

log = logging.getLogger("pcmcnet")

# -- Log-strengths of the logit of items, by Newton's method, with or without a ridge ----------------------------------
#   maximise   sum_S sum_i C_iS log P(i | S)  -  ridge / 2 sum_i s_i^2         P(i | S) = exp s_i / sum_{j in S} exp s_j
#
# The log-likelihood is concave in the log-strengths s. With n_S = sum_i C_iS its gradient is sum_S (C_iS - n_S p_iS)
# and minus its Hessian is sum_S n_S (diag p_S - p_S p_S'), so Newton's method needs only a few steps, and its Hessian
# gives the standard errors.

MAX_HALVINGS = 50  # of a Newton step
CENTRING_SHARE = 1e-6  # centring ridge, as a share of the largest count


class StrengthEstimate(NamedTuple):
    """Strengths (n,), the negative Hessian (n, n) of the objective at these strengths, and the status of the search."""

    strengths: Floats
    hessian: Floats
    iterations: int
    converged: bool


def fit_log_strengths(
    sets: DistinctSets,
    n: int,
    *,
    fixed: Ints | None = None,
    ridge: float = 0.0,
    start: Floats | None = None,
    max_iter: int = 200,
    tolerance: float = 1e-12,
) -> StrengthEstimate:
    """Fit the log-strengths of a logit by Newton's method, with a penalty of ridge / 2 times the sum of their squares.

    The log-strengths of the items ``fixed`` are fixed at 0. Without such items, the ridge centres the log-strengths of
    items that share sets; items that are in no set keep a log-strength of 0.
    """
    # 1. Compute the constants of the search: the choices from each set, and the cells of the Hessian.
    free = np.ones(n, bool)
    free[[] if fixed is None else fixed] = False
    offered = spread(sum_by_set(sets.counts, sets.offsets), sets.offsets)  # (M,) n_S
    left, right = sets.pairs()
    cell = sets.items[left] * n + sets.items[right]

    def value(s: Floats) -> float:
        return float(sets.counts @ log_softmax_by_set(s[sets.items], sets.offsets)) - ridge / 2 * float(s @ s)

    def derivatives(s: Floats) -> tuple[Floats, Floats]:
        p = np.exp(log_softmax_by_set(s[sets.items], sets.offsets))
        slope = np.bincount(sets.items, weights=sets.counts - offered * p, minlength=n) - ridge * s
        shared = np.bincount(cell, weights=offered[left] * p[left] * p[right], minlength=n * n)
        hessian: Floats = -shared.reshape(n, n).astype(np.float64)
        hessian[np.diag_indices(n)] = ridge - hessian.sum(1)  # the rows of the likelihood's Hessian sum to 0
        return slope, hessian

    # 2. Take Newton steps until the predicted gain is below the tolerance.
    strengths, total = np.zeros(n) if start is None else start, max(float(sets.counts.sum()), 1.0)
    for iteration in range(1, max_iter + 1):
        slope, hessian = derivatives(strengths)
        step = np.zeros(n)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], slope[free])
        gain = float(slope @ step)  # twice the gain of the quadratic approximation
        if gain <= tolerance * total:
            strengths = strengths + step  # the error after this step is of the order of its square
            return StrengthEstimate(strengths, derivatives(strengths)[1], iteration, True)
        current = value(strengths)
        for _ in range(MAX_HALVINGS):  # halve the step until it satisfies Armijo's condition
            if value(strengths + step) >= current + 1e-4 * float(slope @ step):
                break
            step = step / 2
        strengths = strengths + step
    return StrengthEstimate(strengths, derivatives(strengths)[1], max_iter, False)


def centring_ridge(sets: DistinctSets, ridge: float = 0.0) -> float:
    """Return the ridge, raised if necessary to the small value that centres log-strengths without a reference."""
    return max(ridge, CENTRING_SHARE * max(float(sets.counts.max(initial=0.0)), 1.0))


# -- Minimisation of a smooth function by L-BFGS in float64, with gradients from torch ---------------------------------

Loss = Callable[[Tensor], Tensor]

LBFGS_MEMORY = 20  # pairs of steps and gradient differences stored
GRADIENT_TOLERANCE = 1e-8  # the search ends if no component of the gradient is larger


@dataclass(frozen=True)
class Minimum:
    """The point at which a search ended, and the value of the objective there."""

    x: Floats
    value: float
    iterations: int
    converged: bool


def value_and_gradient(loss: Loss) -> Callable[[Floats], tuple[float, Floats]]:
    """Convert a torch function into one that returns its value and gradient, as scipy expects."""

    def evaluate(x: Floats) -> tuple[float, Floats]:
        point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        value = loss(point)
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    return evaluate


def lbfgs(loss: Loss, start: Floats, *, max_iter: int, tolerance: float, bound: float | None = None) -> Minimum:
    """Minimise a function by L-BFGS.

    The search ends when a step lowers the value by less than ``tolerance`` times the larger of the value and 1. With
    ``bound``, every component stays within [-bound, bound].
    """
    from scipy.optimize import minimize  # slow to import

    result = minimize(
        value_and_gradient(loss),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=None if bound is None else [(-bound, bound)] * len(start),
        options={
            "maxiter": max_iter,
            "maxfun": 20 * max_iter,
            "maxcor": LBFGS_MEMORY,
            "ftol": tolerance,
            "gtol": GRADIENT_TOLERANCE,
        },
    )
    return require_finite_minimum(result)


def require_finite_minimum(result: Any) -> Minimum:
    """Convert a scipy result. Raise TrainingError if the objective is not finite."""
    if not np.isfinite(result.fun):
        raise TrainingError(f"the objective became {result.fun}: {result.message}.")
    return Minimum(np.asarray(result.x, np.float64), float(result.fun), int(result.nit), bool(result.success))


# -- Penalties ---------------------------------------------------------------------------------------------------------
# The penalties of models of items are learnt from the table: held-out choice sets decide how far a model departs from
# the plain logit.
#
#     context penalty   inf -- 1000 -- 316 -- 100 -- ... -- 0.03 -- 0.01      from the logit to maximum likelihood
#     strength ridge    0 with smoothing   |   1000 -- 316 -- ... -- 0.03     without smoothing
#
# The choice sets are divided into five folds, and each is held out in turn; a person's sets stay in one fold. In each
# fold a path of fits goes down the ladder of penalties. Each fit starts where the previous one ended, and predicts
# the held-out sets. The first rung is the plain model. It is kept unless another rung predicts significantly better
# (`pcmcnet.selection.descend_ladder`), so context effects need evidence. A penalty is the precision of a normal prior
# for choices of weight 1; the ladder is therefore multiplied by the mean weight.
#
# The strength ridge belongs to models with one strength per item. Smoothing adds choices to every distinct set, so its
# effect grows with the number of distinct sets. A ridge shrinks the strengths themselves, as a normal prior does, and
# its variance is learnt from the table. The ridge of Thurstone's model is learnt with the logit, whose fits take only a
# few Newton steps. The errors of the logit have variance pi^2 / 6 and those of Thurstone's model 1, so the ridges of
# the two models are in that proportion.

Penalty = float | Literal["auto"]
HeldOutLosses = Callable[[float], Floats]  # penalty -> (H,) minus the log-probabilities of held-out choices

INFINITE_PENALTY = math.inf  # gives the plain logit
PENALTY_LADDER = (INFINITE_PENALTY, *(float(f"{10 ** (k / 2):.3g}") for k in range(6, -5, -1)))
COARSE_PENALTY_LADDER = (INFINITE_PENALTY, *PENALTY_LADDER[1::2])  # for slow fits
STRENGTH_RIDGES = (0.0, *PENALTY_LADDER[1:-1])
MAX_COPIES = 20_000  # choice sets into which a table of counts is expanded
FALLBACK_PENALTY = 1.0  # if there are too few choice sets to learn one
TRIAL_TOLERANCE = 1e-7  # gain in the mean objective below which a fit of the search ends


def require_penalty(name: str, value: object) -> None:
    """Raise ConfigError unless the value is "auto" or a number of at least 0."""
    if isinstance(value, str) and value != "auto":
        raise ConfigError(f"{name} must be 'auto' or a number of at least 0, got {value!r}.")
    if value != "auto":
        require_number(name, value, low=0)


# -- Records ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PenaltyRecord:
    """Record of a penalty that was learnt from held-out choice sets.

    Parameters
    ----------
    penalty
        Penalty for the final fit to all choice sets. An infinite penalty gives the plain logit.
    trials
        Penalties that were tried, in order. The tuple is empty if there are too few choice sets.
    held_out_sets
        Number of held-out choice sets that each trial predicted.
    strength_ridge
        Ridge on the strengths of the logit that a model with context effects starts from, or 0 if smoothing is used.
    """

    penalty: float
    trials: tuple[Trial, ...] = ()
    held_out_sets: int = 0
    strength_ridge: float = 0.0

    @classmethod
    def of(cls, descent: Descent) -> PenaltyRecord:
        """Build the record from a search, with its best penalty."""
        best, held_out_sets = descent.trials[descent.best], len(descent.losses[0])
        return cls(penalty=best.value, trials=descent.trials, held_out_sets=held_out_sets)

    @property
    def stronger(self) -> list[float]:
        """Trial penalties larger than the chosen one, which the final fit uses first, in the same order."""
        return [trial.value for trial in self.trials if trial.value > self.penalty]

    @property
    def facts(self) -> dict[str, str]:
        """Descriptions of the penalty and the trials, for a summary."""
        words = {INFINITE_PENALTY: "infinite: the plain logit", 0.0: "none: smoothing alone"}
        penalty = words.get(self.penalty, f"{self.penalty:g}")
        if not self.trials:
            return {"penalty": f"{penalty}: too few choice sets to learn it"}
        losses = ", ".join(f"{trial.value:g}: {trial.held_out_nll:.4f}" for trial in self.trials)
        facts = {"penalty": f"{penalty}, learnt from {self.held_out_sets:,} held-out sets (NLL {losses})"}
        if self.strength_ridge:
            facts["strengths"] = f"a ridge of {self.strength_ridge:g} instead of smoothing"
        return facts


@dataclass(frozen=True, kw_only=True)
class SearchRecord(FitRecord):
    """Record of the fit of a model of items.

    Parameters
    ----------
    iterations
        Number of iterations of the final search.
    nll
        Mean negative log-likelihood of the training choices.
    penalty
        Record of how the penalty was learnt, or None if the penalty was given as an option.
    """

    iterations: int
    nll: float
    penalty: PenaltyRecord | None = None

    @property
    def facts(self) -> dict[str, str]:
        """Descriptions of the loss and the search, for a summary."""
        end = "converged" if self.converged else "stopped by max_iter"
        return {"training NLL": f"{self.nll:.4f}", "search": f"{self.iterations} iterations, {end}"}

    @property
    def penalty_facts(self) -> dict[str, str]:
        """Descriptions of the penalty, if it was learnt, for a summary."""
        return {} if self.penalty is None else self.penalty.facts


@dataclass(frozen=True, kw_only=True)
class ItemRecord(SearchRecord):
    """Record of a fit to counts of distinct sets.

    Parameters
    ----------
    distinct_sets
        Number of distinct sets of items.
    """

    distinct_sets: int

    def item_facts(self, choice_sets: int) -> dict[str, str]:
        """Return descriptions of the training data, the loss and the search, for a summary."""
        return {
            "trained on": f"{choice_sets:,} choice sets, {self.distinct_sets:,} of them distinct",
            **self.facts,
            "features": "not used: alternatives are identified by their labels",
        }


# -- Folds of items -----------------------------------------------------------------------------------------------


class CountedFold(NamedTuple):
    """A fold as counts of distinct sets, with the entry of each held-out choice."""

    train: DistinctSets
    held_out: DistinctSets
    chosen: Ints  # (H,) entries of ``held_out``

    @classmethod
    def of(cls, fold: Fold, universe: Universe | Grid, smoothing: float) -> CountedFold:
        """Count the choices of a fold by distinct set, and smooth the training counts."""
        train = DistinctSets.of(fold.train, universe.index(fold.train)).smoothed(smoothing)
        return cls(train, *held_out_entries(fold, universe))


def held_out_entries(fold: Fold, universe: Universe | Grid) -> tuple[DistinctSets, Ints]:
    """Return the distinct sets of the held-out part, and the chosen entry of each held-out choice set (H,)."""
    (sets,) = fold.held_out
    distinct = DistinctSets.of(sets, universe.index(sets))
    return distinct, distinct.entry[sets.offsets[:-1] + sets.require_chosen("fitting")]


def choice_folds(data: ChoiceData, seed: int) -> list[Fold]:
    """Return folds of the choice sets with several alternatives, or an empty list if there are too few sets."""
    return cross_folds(data.subset(data.sizes > 1), seed)


def item_folds(data: ChoiceData, universe: Universe | Grid, seed: int) -> list[Fold]:
    """Return folds of the choice sets with several alternatives, or an empty list if there are too few sets.

    In a table of counts, each combination of a distinct set and a chosen item occurs once, with a weight. Such a table
    is expanded, and its choices are held out individually, because holding out a whole combination would leave no
    training data for it.
    """
    # 1. Number the combinations of a distinct set and a chosen item.
    cases = DistinctSets.of(data, universe.index(data)).entry[data.offsets[:-1] + data.require_chosen("fitting")]
    several = data.sizes > 1
    sets = data.subset(several)
    # 2. Expand a table of counts; each copy is then a separate choice set.
    if _are_counts(sets, cases[several]):
        sets = _expand_counts(sets)
        return cross_folds(sets, seed, groups=np.arange(len(sets)))
    return cross_folds(sets, seed)


def _are_counts(sets: ChoiceData, cases: Ints) -> bool:
    """Return True if no two choice sets share a person or a case, and the weights are counts."""
    is_unique = len(np.unique(sets.groups())) == len(np.unique(cases)) == len(sets)
    return is_unique and float(sets.weights.sum()) > len(sets)


def _expand_counts(sets: ChoiceData) -> ChoiceData:
    """Repeat each choice set in proportion to its weight, up to MAX_COPIES sets in total."""
    share = min(1.0, MAX_COPIES / float(sets.weights.sum()))
    copies = np.maximum(np.round(sets.weights * share), 1).astype(np.int64)
    each = replace(sets, weights=sets.weights / copies)
    return replace(each, **take_sets(each, np.repeat(np.arange(len(sets)), copies)))


# -- Penalty on context -------------------------------------------------------------------------------------------


def learn_penalty(
    data: ChoiceData,
    universe: Universe | Grid,
    path: Callable[[CountedFold], HeldOutLosses],
    *,
    smoothing: float,
    seed: int,
) -> PenaltyRecord:
    """Learn the penalty of an item model. ``path(fold)`` returns a function from a penalty to held-out losses."""
    folds = item_folds(data, universe, seed)
    if not folds:
        return fallback_penalty(data)
    paths = [path(CountedFold.of(fold, universe, smoothing)) for fold in folds]
    return PenaltyRecord.of(search_penalty(folds, paths))


def fallback_penalty(data: ChoiceData) -> PenaltyRecord:
    """Return the penalty for a table with too few choice sets to learn one."""
    return PenaltyRecord(penalty=FALLBACK_PENALTY * float(data.weights.mean()))


def search_penalty(
    folds: Sequence[Fold],
    paths: Sequence[HeldOutLosses],
    ladder: Sequence[float] = PENALTY_LADDER,
    *,
    first_is_baseline: bool = False,
) -> Descent:
    """Try a sequence of penalties. ``paths`` contains one function per fold, from a penalty to held-out losses.

    With ``first_is_baseline``, the first penalty is not a limit of the others, and the stopping rule ignores it.
    """
    weights = held_out_weights(folds)
    mean_weight = float(weights.mean())
    return descend_ladder(
        [rung * mean_weight for rung in ladder],
        lambda penalty: np.concatenate([path(penalty) for path in paths]),
        weights,
        held_out_groups(folds),
        first_is_baseline=first_is_baseline,
    )


# -- Ridge on strengths -------------------------------------------------------------------------------------------


class StrengthPrior(NamedTuple):
    """Regularisation of the strengths of a logit: either smoothing of the counts or a ridge."""

    smoothing: float
    ridge: float = 0.0

    @classmethod
    def learn(cls, data: ChoiceData, universe: Universe | Grid, *, smoothing: float, seed: int) -> StrengthPrior:
        """Choose a ridge, or smoothing if it predicts better, on held-out choice sets."""
        ridge = learn_strength_ridge(data, universe, smoothing=smoothing, seed=seed).penalty
        return cls(0.0, ridge) if ridge else cls(smoothing)


def learn_strength_ridge(
    data: ChoiceData, universe: Universe | Grid, *, smoothing: float, precision: float = 1.0, seed: int
) -> PenaltyRecord:
    """Learn the ridge on strengths. A ridge of 0, also used for very small tables, means smoothing only.

    ``precision`` is the precision of the utility's error term, relative to its precision in the logit.
    """
    folds = item_folds(data, universe, seed)
    if not folds:
        return PenaltyRecord(penalty=0.0)
    paths = [_ridge_path(CountedFold.of(fold, universe, 0.0), universe.size, smoothing) for fold in folds]
    descent = search_penalty(folds, paths, STRENGTH_RIDGES, first_is_baseline=True)
    trials = tuple(replace(trial, value=trial.value * precision) for trial in descent.trials)
    return PenaltyRecord.of(replace(descent, trials=trials))


def _ridge_path(fold: CountedFold, n: int, smoothing: float) -> HeldOutLosses:
    """Return a function that maps a ridge to a logit's held-out losses; each fit starts at the previous estimate."""
    smoothed, last = fold.train.smoothed(smoothing), None

    def losses(ridge: float) -> Floats:
        nonlocal last
        if ridge:
            s = last = fit_log_strengths(fold.train, n, ridge=ridge, start=last, tolerance=TRIAL_TOLERANCE).strengths
        else:
            s = fit_log_strengths(smoothed, n, ridge=centring_ridge(smoothed)).strengths
        return -log_softmax_by_set(s[fold.held_out.items], fold.held_out.offsets)[fold.chosen]

    return losses


@dataclass(frozen=True, kw_only=True)
class StrengthConfig:
    """Options of a model with one strength per item.

    Parameters
    ----------
    smoothing
        Additive smoothing: the number of choices added to each item of each distinct choice set if there is no ridge. A
        value of 0 gives plain maximum likelihood, and the fit then raises InputError if there is no finite maximum.
    ridge
        Precision of a normal prior that shrinks the strengths towards their mean. A ridge above 0 replaces the
        smoothing, and a ridge of 0 means that only smoothing is used. "auto" chooses a value, which may be 0, on
        held-out choice sets.
    max_iter
        Maximum number of iterations of the search.
    tolerance
        The search ends when an iteration improves the mean log-likelihood by less than this value.
    """

    smoothing: float = 0.1
    ridge: Penalty = "auto"
    max_iter: int = 200
    tolerance: float = 1e-12

    def __post_init__(self) -> None:
        require_number("smoothing", self.smoothing, low=0)
        require_penalty("ridge", self.ridge)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)


@dataclass(frozen=True, kw_only=True)
class FittedStrengths(FittedState):
    """Fitted state of a strength model: the items and their estimated strengths."""

    universe: Universe
    strengths: Floats  # (n,)
    errors: Floats  # (n,) standard errors; 0 for the reference
    reference: int  # the item whose strength is 0
    groups: Ints  # (n,) unconnected group of each item
    record: ItemRecord

    @property
    def group_sizes(self) -> Ints:
        """Number of items of each group, the largest first."""
        return np.sort(np.bincount(self.groups))[::-1]


class StrengthModel(ChoiceModel):
    """Base class of models with one strength per item. Subclasses turn strengths into probabilities."""

    config_class = StrengthConfig
    config: StrengthConfig
    _state: FittedStrengths
    record_class = ItemRecord
    precision: ClassVar[float] = 1.0  # of the utility's error term, relative to that of the logit

    @takes(StrengthConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @abstractmethod
    def _estimate(self, sets: DistinctSets, n: int, fixed: Ints, ridge: float) -> StrengthEstimate:
        """Maximise the log-likelihood of the counts minus the ridge penalty, with the fixed items' strengths at 0."""

    @abstractmethod
    def _item_log_p(self, sets: DistinctSets, strengths: Floats) -> Floats:
        """Return the log-probabilities of all entries (M,)."""

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedStrengths:
        config = self.config
        # 1. Count the choices from each distinct set, and check that estimates exist.
        part = require_informative_sets(train)
        universe = Universe.learn(part)
        sets, n = DistinctSets.of(part, universe.index(part)), universe.size
        smoothed = sets.smoothed(config.smoothing)
        groups = connected_groups(sets.items, sets.offsets, n)
        if config.ridge in ("auto", 0):
            require_finite_strengths(smoothed, universe.items, groups)
        choices = np.bincount(sets.items, weights=sets.counts, minlength=n)
        references = np.array([members[choices[members].argmax()] for members in _members(groups)])
        reference = int(references[choices[references].argmax()])
        # 2. Choose the ridge on held-out sets, unless it is given.
        penalty = None
        if config.ridge == "auto":
            penalty = learn_strength_ridge(
                part, universe, smoothing=config.smoothing, precision=self.precision, seed=run.seed
            )
        ridge = penalty.penalty if penalty else float(config.ridge)
        # 3. Estimate the strengths and their standard errors; a ridge replaces the smoothing, and compares groups.
        fixed = np.array([reference]) if ridge else references
        try:
            estimate = self._estimate(sets if ridge else smoothed, n, fixed, ridge)
            errors = standard_errors(estimate.hessian, reference, fixed, groups)
        except np.linalg.LinAlgError as error:
            raise TrainingError(
                f"the likelihood is flat because some strengths differ too much ({error}): raise smoothing."
            ) from error
        if not estimate.converged:
            log.warning("the strengths did not converge within max_iter=%d iterations", config.max_iter)
        # 4. Give all groups the same mean strength.
        strengths = with_equal_means(estimate.strengths, groups, reference)
        if len(references) > 1:
            log.warning(
                "%d groups of items are not connected by choice sets (sizes %s): all groups get the same mean strength "
                "by convention, and probabilities of items from several groups follow this convention",
                len(references),
                sizes_text(np.bincount(groups)),
            )
        record = ItemRecord(
            converged=estimate.converged,
            iterations=estimate.iterations,
            nll=float(-(sets.counts @ self._item_log_p(sets, strengths)) / sets.counts.sum()),
            penalty=penalty,
            distinct_sets=len(sets.sizes),
        )
        return FittedStrengths(
            universe=universe, strengths=strengths, errors=errors, reference=reference, groups=groups, record=record
        )

    @property
    def universe_(self) -> Universe:
        """The items."""
        return self._state.universe

    @property
    def strengths_(self) -> Floats:
        """Strengths (n,) of the items, with 0 for the reference item."""
        return self._state.strengths

    @property
    def errors_(self) -> Floats:
        """Standard errors (n,) of the strengths, with 0 for the reference item.

        Without a ridge, the errors of items that are not connected with the reference item assume that the convention
        of equal mean strengths holds exactly.
        """
        return self._state.errors

    @property
    def reference_(self) -> int:
        """Index of the reference item, which is the most frequently chosen item and has a strength of 0."""
        return self._state.reference

    @property
    def groups_(self) -> Ints:
        """Group (n,) of each item. Items of different groups are not connected by any chain of choice sets."""
        return self._state.groups

    def _log_proba(self, data: ChoiceData) -> Floats:
        sets = DistinctSets.of(data, self.universe_.index(data))
        return sets.to_alternatives(self._item_log_p(sets, self.strengths_))

    @property
    def num_parameters(self) -> int:
        """Number of strengths: one per item, except one item of each unconnected group of items."""
        return len(self.strengths_) - len(self._state.group_sizes)

    def summary(self) -> Summary:
        """Return a table of the items with estimate, standard error, z and p-value, the strongest item first."""
        items, record = self.universe_.items, self._state.record
        rows = [self._row(k) for k in np.argsort(-self.strengths_, kind="stable")]
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            **record.item_facts(self.table_.choice_sets),
            **record.penalty_facts,
            "parameters": f"{self.num_parameters:,} (the strength of {items[self.reference_]!r} is 0)",
            **self._group_facts(),
        }
        return Summary(type(self).__name__, facts, ("item", "estimate", "std err", "z", "p"), tuple(rows), self.caveats)

    def _group_facts(self) -> dict[str, str]:
        """Return a description of unconnected groups, for a summary; empty if all items are connected."""
        sizes = self._state.group_sizes
        if len(sizes) == 1:
            return {}
        return {
            "unconnected groups": f"{len(sizes)} (of {sizes_text(sizes)} items): all have the same mean strength by "
            f"convention, and probabilities of items from several groups follow this convention"
        }

    def _row(self, k: int) -> tuple[str, ...]:
        """Return the row of item k in the summary, without a test if no data compare it with the reference."""
        estimate, error = float(self.strengths_[k]), float(self.errors_[k])
        if k == self.reference_:
            return (self.universe_.items[k], "0 (reference)", "", "", "")
        if self.groups_[k] != self.groups_[self.reference_]:
            return (self.universe_.items[k], f"{estimate:.4f}", f"{error:.4f}", "", "")
        z = estimate / error
        p = math.erfc(abs(z) / math.sqrt(2))
        return (self.universe_.items[k], f"{estimate:.4f}", f"{error:.4f}", f"{z:.2f}", f"{p:.3g}")

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        entries = {
            **self.universe_.to_dict(),
            "reference": self.reference_,
            "strengths": self.strengths_.tolist(),
            "standard_errors": self.errors_.tolist(),
        }
        if len(self._state.group_sizes) > 1:
            entries["groups"] = self.groups_.tolist()
        return {"items.json": json_bytes(entries)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedStrengths:
        entries = json.loads(files["items.json"])
        universe, reference = Universe.from_dict(entries), entries["reference"]
        strengths, errors = (np.array(entries[k], np.float64) for k in ("strengths", "standard_errors"))
        fits = all(x.shape == (universe.size,) and np.isfinite(x).all() for x in (strengths, errors))
        groups = np.array(entries.get("groups", [0] * universe.size))
        fits = (
            fits and groups.shape == (universe.size,) and set(groups.tolist()) == set(range(len(set(groups.tolist()))))
        )
        if not fits or reference not in range(universe.size):
            raise ArtifactError("the saved strengths do not match the saved items: save the model again.")
        return FittedStrengths(
            universe=universe, strengths=strengths, errors=errors, reference=reference, groups=groups, record=record
        )


def standard_errors(hessian: Floats, reference: int, fixed: Ints, groups: Ints) -> Floats:  # (n, n) -> (n,)
    """Return standard errors of the differences from the reference, given the Hessian (n, n) and the groups (n,).

    If one item of each group is fixed, differences are those of strengths with equal group means.
    """
    # 1. Invert the Hessian of the free items.
    free = np.setdiff1d(np.arange(len(hessian)), fixed)
    covariance = np.zeros_like(hessian)
    covariance[np.ix_(free, free)] = np.linalg.inv(hessian[np.ix_(free, free)])
    variances = np.diag(covariance)[free]
    if not (np.isfinite(variances) & (variances > 0)).all():
        raise np.linalg.LinAlgError("the Hessian is not positive definite")
    # 2. If several items are fixed, take the covariance of deviations from the mean of the group.
    if len(fixed) > 1:
        is_same = (groups[:, None] == groups).astype(np.float64)
        centre = np.eye(len(hessian)) - is_same / is_same.sum(1)
        covariance = centre @ covariance @ centre.T
    # 3. Take the variance of the differences from the reference, which is one of the fixed items.
    differences = np.diag(covariance) + covariance[reference, reference] - 2 * covariance[reference]
    errors = np.sqrt(np.maximum(differences, 0))
    errors[reference] = 0.0
    return np.asarray(errors, np.float64)


def with_equal_means(strengths: Floats, groups: Ints, reference: int) -> Floats:
    """Shift the strengths (n,) of each group so that all groups have the same mean and the reference is at 0."""
    if not groups.any():
        return strengths
    centred = strengths - (np.bincount(groups, weights=strengths) / np.bincount(groups))[groups]
    return np.asarray(centred - centred[reference], np.float64)


def require_finite_strengths(sets: DistinctSets, items: tuple[str, ...], groups: Ints) -> None:
    """Raise InputError if the strengths have no finite estimate within the connected groups."""
    # Estimates are finite if the directed graph of wins is strongly connected within each group (Ford, 1957).
    left, right = sets.pairs()
    wins = sets.counts[left] > 0
    strong = strong_components(sets.items[left[wins]], sets.items[right[wins]], len(items))
    sizes = np.bincount(strong)
    is_whole = sizes[strong] == np.bincount(groups)[groups]
    if not is_whole.all():
        apart = np.flatnonzero(~is_whole)
        smallest = first_item_names(items, np.flatnonzero(strong == strong[apart[sizes[strong[apart]].argmin()]]))
        raise InputError(
            f"the strengths have no finite estimate: {smallest} always won, or always lost, against the other items "
            f"({len(np.unique(strong[apart]))} such groups; Ford, 1957). Set smoothing or ridge above 0, or leave "
            f"these items out."
        )


def _members(groups: Ints) -> list[Ints]:
    """Return the items of each group."""
    return [np.flatnonzero(groups == k) for k in range(int(groups.max()) + 1)]
