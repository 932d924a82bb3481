"""One strength per item: what Bradley-Terry's and Thurstone's models share.

Both give item i a strength s_i, fix that of the item chosen most often at 0, and maximise the likelihood of the
counts of the distinct sets of items, less ridge / 2 sum_i (s_i - mean s)^2. Without ridge there is a maximum, and only
one, exactly when for every division of the items into two groups someone chose an item of the first group over one of
the second, and the other way round (Ford, 1957). Additive smoothing sees to that within groups of items that share
choice sets, as every item is then chosen now and then from every set it is in. A ridge sees to it as well, and takes
the place of smoothing. Items that no chain of sets connects cannot be compared by any means.
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
from pcmcnet.data.columns.ragged import log_softmax_by_set, spread, sum_by_set
from pcmcnet.data.subsets import take_sets
from pcmcnet.errors import ArtifactError, ConfigError, InputError, TrainingError
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FitRecord, FittedState, TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.items.universe import DistinctSets, Grid, Universe, require_informative_sets, some_names
from pcmcnet.reports.formats import Summary
from pcmcnet.selection import Descent, Fold, Trial, cross_folds, descend_ladder, held_out_groups, held_out_weights
from pcmcnet.storage import json_bytes

log = logging.getLogger("pcmcnet")

# -- Log-strengths of the logit of items, by Newton's method, with or without a ridge ----------------------------------
#   maximise   sum_S sum_i C_iS log P(i | S)  -  ridge / 2 sum_i s_i^2         P(i | S) = exp s_i / sum_{j in S} exp s_j
#
# The log-likelihood is concave in the log-strengths s. With n_S = sum_i C_iS its gradient is sum_S (C_iS - n_S p_iS)
# and minus its Hessian is sum_S n_S (diag p_S - p_S p_S'), so Newton's method takes a few steps and gives the standard
# errors on the way.

HALVINGS = 50
CENTRING = 1e-6  # of the largest count


class StrengthEstimate(NamedTuple):
    """Strengths (n,), the Hessian (n, n) of minus the objective there, and how the search went."""

    strengths: Floats
    hessian: Floats
    iterations: int
    converged: bool


def fit_log_strengths(
    sets: DistinctSets,
    n: int,
    *,
    reference: int | None = None,
    ridge: float = 0.0,
    start: Floats | None = None,
    max_iter: int = 200,
    tolerance: float = 1e-12,
) -> StrengthEstimate:
    """Maximise the log-likelihood of the counts, less ridge / 2 times the squares of the log-strengths.

    The log-strength of ``reference`` stays 0. Without one, the ridge centres the log-strengths of items that share
    sets, and leaves items in no set at 0.
    """
    # 1. What does not change from step to step: choices from each set, and the cells of the Hessian.
    free = np.arange(n) != reference
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
        hessian[np.diag_indices(n)] = ridge - hessian.sum(1)  # rows of the likelihood's part sum to 0
        return slope, hessian

    # 2. Newton's steps.
    strengths, total = np.zeros(n) if start is None else start, max(float(sets.counts.sum()), 1.0)
    for iteration in range(1, max_iter + 1):
        slope, hessian = derivatives(strengths)
        step = np.zeros(n)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], slope[free])
        gain = float(slope @ step)  # twice what a quadratic would gain
        if gain <= tolerance * total:
            strengths = strengths + step  # Newton's last step squares the error
            return StrengthEstimate(strengths, derivatives(strengths)[1], iteration, True)
        now = value(strengths)  # halve a step that leads too far (Armijo)
        for _ in range(HALVINGS):
            if value(strengths + step) >= now + 1e-4 * float(slope @ step):
                break
            step = step / 2
        strengths = strengths + step
    return StrengthEstimate(strengths, derivatives(strengths)[1], max_iter, False)


def centring_ridge(sets: DistinctSets, ridge: float = 0.0) -> float:
    """Return a ridge that centres log-strengths without a reference, and does next to nothing else than was asked."""
    return max(ridge, CENTRING * max(float(sets.counts.max(initial=0.0)), 1.0))


# -- The minimum of a smooth function of some numbers, its gradient from torch, by L-BFGS in float64 -------------------

Loss = Callable[[Tensor], Tensor]

CORRECTIONS = 20  # pairs of steps and gradients that L-BFGS remembers
FLAT = 1e-8  # largest component of a gradient that counts as none


@dataclass(frozen=True)
class Minimum:
    """Where the search ended."""

    at: Floats
    value: float
    iterations: int
    converged: bool


def value_and_gradient(loss: Loss) -> Callable[[Floats], tuple[float, Floats]]:
    """Make a function of torch one that scipy can minimise."""

    def evaluate(x: Floats) -> tuple[float, Floats]:
        at = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        value = loss(at)
        (gradient,) = torch.autograd.grad(value, at)
        return float(value.detach()), gradient.numpy()

    return evaluate


def lbfgs(loss: Loss, start: Floats, *, max_iter: int, tolerance: float, bound: float | None = None) -> Minimum:
    """Minimise by L-BFGS until a step gains less than ``tolerance``, relative to the value where that is above 1.

    With ``bound`` no component leaves [-bound, bound].
    """
    from scipy.optimize import minimize  # slow to import

    found = minimize(
        value_and_gradient(loss),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=None if bound is None else [(-bound, bound)] * len(start),
        options={"maxiter": max_iter, "maxfun": 20 * max_iter, "maxcor": CORRECTIONS, "ftol": tolerance, "gtol": FLAT},
    )
    return require_finite_minimum(found)


def require_finite_minimum(found: Any) -> Minimum:
    """Take over what scipy found; a value that is no number is a breakdown."""
    if not np.isfinite(found.fun):
        raise TrainingError(f"the objective became {found.fun}: {found.message}.")
    return Minimum(np.asarray(found.x, np.float64), float(found.fun), int(found.nit), bool(found.success))


# -- Penalties ---------------------------------------------------------------------------------------------------------
# Penalties of models of items, learnt from the table: held-out choice sets decide how far to leave the plain model.
#
#     context penalty   inf -- 1000 -- 316 -- 100 -- ... -- 0.03 -- 0.01      from the logit to maximum likelihood
#     strength ridge    0 with smoothing   |   1000 -- 316 -- ... -- 0.03     without it
#
# Five folds of the choice sets are held out in turn, whole persons if persons are known. In each fold a path of fits
# goes down the ladder, every fit from where the one before ended, and predicts the held-out sets. The first rung is the
# plain model, which is kept unless another rung predicts better beyond noise (`pcmcnet.selection.descend_ladder`), so
# that context has to show before it is believed. A penalty is a precision, as of a normal prior, against choices of
# weight 1: the ladder is multiplied by the mean weight.
#
# The strength ridge is that of a model with one strength per item. Smoothing adds choices to every distinct set, so it
# is the stronger the more sets differ, whatever the choices say. A ridge shrinks the strengths themselves, as if they
# came from a normal distribution, and the table tells its variance. The logit learns it for Thurstone's model too: a
# fit takes Newton's method a few steps. Its errors have the variance pi^2 / 6 and a normal utility's 1, so strengths of
# equal meaning have variances in that proportion.

Penalty = float | Literal["auto"]
HeldOutLosses = Callable[[float], Floats]  # penalty -> (H,) minus the log-probabilities of held-out choices

INFINITE_PENALTY = math.inf  # the penalty of the plain logit
PENALTY_LADDER = (INFINITE_PENALTY, *(float(f"{10 ** (k / 2):.3g}") for k in range(6, -5, -1)))
COARSE_PENALTY_LADDER = (INFINITE_PENALTY, *PENALTY_LADDER[1::2])  # for fits that take long
STRENGTH_RIDGES = (0.0, *PENALTY_LADDER[1:-1])
MAX_COPIES = 20_000  # choice sets that a table of counts is written as
FALLBACK_PENALTY = 1.0  # if there are too few choice sets to learn one
TRIAL_TOLERANCE = 1e-7  # gain in the mean objective below which a fit of the search ends


def require_penalty(name: str, value: object) -> None:
    """Refuse anything but "auto" or a number of at least 0."""
    if isinstance(value, str) and value != "auto":
        raise ConfigError(f"{name} must be 'auto' or a number of at least 0, got {value!r}.")
    if value != "auto":
        require_number(name, value, low=0)


# -- Records ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PenaltyRecord:
    """A penalty that was learnt.

    Parameters
    ----------
    penalty
        The penalty to fit all choice sets with; infinite for the plain logit.
    trials
        The penalties that were tried, from the first rung on; none if there are too few choice sets.
    held_out_sets
        Number of choice sets that trials predicted.
    strength_ridge
        Ridge on the strengths that a model with context departs from; 0 for smoothing.
    """

    penalty: float
    trials: tuple[Trial, ...] = ()
    held_out_sets: int = 0
    strength_ridge: float = 0.0

    @classmethod
    def of(cls, descent: Descent) -> PenaltyRecord:
        """Return the best penalty of a search."""
        best, held_out_sets = descent.trials[descent.best], len(descent.losses[0])
        return cls(penalty=best.value, trials=descent.trials, held_out_sets=held_out_sets)

    @property
    def stronger(self) -> list[float]:
        """The larger penalties on the way to this one; the last fit goes the same way."""
        return [trial.value for trial in self.trials if trial.value > self.penalty]

    @property
    def facts(self) -> dict[str, str]:
        """The penalty and the trials in words."""
        words = {INFINITE_PENALTY: "infinite: the plain logit", 0.0: "none: smoothing alone"}
        penalty = words.get(self.penalty, f"{self.penalty:g}")
        if not self.trials:
            return {"penalty": f"{penalty}: choice sets are too few to learn it"}
        losses = ", ".join(f"{trial.value:g}: {trial.held_out_nll:.4f}" for trial in self.trials)
        facts = {"penalty": f"{penalty}, learnt from {self.held_out_sets:,} held-out sets (NLL {losses})"}
        if self.strength_ridge:
            facts["strengths"] = f"a ridge of {self.strength_ridge:g} in place of smoothing"
        return facts


@dataclass(frozen=True, kw_only=True)
class SearchRecord(FitRecord):
    """How the fit of a model of items went.

    Parameters
    ----------
    iterations
        Iterations of the search that ended at the estimates.
    nll
        Mean negative log-likelihood of the training choices.
    penalty
        How the penalty was learnt; None if it is an option.
    """

    iterations: int
    nll: float
    penalty: PenaltyRecord | None = None

    @property
    def facts(self) -> dict[str, str]:
        """The loss and the search in words."""
        end = "converged" if self.converged else "stopped by max_iter"
        return {"training NLL": f"{self.nll:.4f}", "search": f"{self.iterations} iterations, {end}"}

    @property
    def penalty_facts(self) -> dict[str, str]:
        """The penalty in words, if it was learnt."""
        return {} if self.penalty is None else self.penalty.facts


@dataclass(frozen=True, kw_only=True)
class ItemRecord(SearchRecord):
    """How the fit of a model of items alone went: choice sets with equal items are one case with counts."""

    distinct_sets: int

    def item_facts(self, choice_sets: int) -> dict[str, str]:
        """Say what the model was fitted to, and how well."""
        return {
            "trained on": f"{choice_sets:,} choice sets, {self.distinct_sets:,} of them distinct",
            **self.facts,
            "features": "not used: an alternative is known by its item",
        }


# -- Folds of items -----------------------------------------------------------------------------------------------


class CountedFold(NamedTuple):
    """A fold as counts of distinct sets, and where each held-out choice is among the entries of these."""

    train: DistinctSets
    held_out: DistinctSets
    chosen: Ints  # (H,)

    @classmethod
    def of(cls, fold: Fold, universe: Universe | Grid, smoothing: float) -> CountedFold:
        """Count the choices of a fold by distinct set, with smoothing of those that are fitted."""
        train = DistinctSets.of(fold.train, universe.index(fold.train)).smoothed(smoothing)
        return cls(train, *held_out_entries(fold, universe))


def held_out_entries(fold: Fold, universe: Universe | Grid) -> tuple[DistinctSets, Ints]:
    """Return the distinct sets of the held-out part and the entry (H,) that was chosen from each choice set."""
    (sets,) = fold.held_out
    distinct = DistinctSets.of(sets, universe.index(sets))
    return distinct, distinct.place[sets.offsets[:-1] + sets.require_chosen("fitting")]


def choice_folds(data: ChoiceData, seed: int) -> list[Fold]:
    """Return folds of the sets that offer a choice; none if there are too few."""
    return cross_folds(data.subset(data.sizes > 1), seed)


def item_folds(data: ChoiceData, universe: Universe | Grid, seed: int) -> list[Fold]:
    """Return folds of the sets that offer a choice, for a model of items; none if there are too few.

    A table in which each case, a distinct set and the item chosen, has one row with a weight is one of counts. Its
    choices are held out one by one, as no part of a case can be predicted without the rest of it.
    """
    # 1. Number the cases.
    cases = DistinctSets.of(data, universe.index(data)).place[data.offsets[:-1] + data.require_chosen("fitting")]
    several = data.sizes > 1
    sets = data.subset(several)
    # 2. A table of counts is written out, and each copy is a choice set of its own.
    if _are_counts(sets, cases[several]):
        sets = _written_out(sets)
        return cross_folds(sets, seed, groups=np.arange(len(sets)))
    return cross_folds(sets, seed)


def _are_counts(sets: ChoiceData, cases: Ints) -> bool:
    """Return True if no two choice sets are of one person or of one case, and weights say how often each occurred."""
    alone = len(np.unique(sets.groups())) == len(np.unique(cases)) == len(sets)
    return alone and float(sets.weights.sum()) > len(sets)


def _written_out(sets: ChoiceData) -> ChoiceData:
    """Return every set as often as its weight says, or in proportion if that would be very often."""
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
    """Learn the penalty of a model of items; ``path`` begins the fits to one fold."""
    folds = item_folds(data, universe, seed)
    if not folds:
        return fallback_penalty(data)
    paths = [path(CountedFold.of(fold, universe, smoothing)) for fold in folds]
    return PenaltyRecord.of(search_penalty(folds, paths))


def fallback_penalty(data: ChoiceData) -> PenaltyRecord:
    """Return the penalty if there are too few choice sets to learn one."""
    return PenaltyRecord(penalty=FALLBACK_PENALTY * float(data.weights.mean()))


def search_penalty(
    folds: Sequence[Fold],
    paths: Sequence[HeldOutLosses],
    ladder: Sequence[float] = PENALTY_LADDER,
    *,
    plain_is_apart: bool = False,
) -> Descent:
    """Go down the ladder; the path of a fold fits with one penalty after the other and returns held-out losses.

    If the plain model is apart, the other rungs do not lead away from it: they alone decide when to stop.
    """
    weights = held_out_weights(folds)
    mean_weight = float(weights.mean())
    return descend_ladder(
        [rung * mean_weight for rung in ladder],
        lambda penalty: np.concatenate([path(penalty) for path in paths]),
        weights,
        held_out_groups(folds),
        first_is_baseline=plain_is_apart,
    )


# -- Ridge on strengths -------------------------------------------------------------------------------------------


class StrengthPrior(NamedTuple):
    """How the strengths of the logit are held: by smoothing of counts, or by a ridge in place of it."""

    smoothing: float
    ridge: float = 0.0

    @classmethod
    def learn(cls, data: ChoiceData, universe: Universe | Grid, *, smoothing: float, seed: int) -> StrengthPrior:
        """Learn which, as the logit itself does."""
        ridge = learn_strength_ridge(data, universe, smoothing=smoothing, seed=seed).penalty
        return cls(0.0, ridge) if ridge else cls(smoothing)


def learn_strength_ridge(
    data: ChoiceData, universe: Universe | Grid, *, smoothing: float, precision: float = 1.0, seed: int
) -> PenaltyRecord:
    """Learn the ridge on strengths; 0 for smoothing alone, also if there are too few choice sets.

    ``precision`` is that of a utility's error, as a multiple of the logit's.
    """
    folds = item_folds(data, universe, seed)
    if not folds:
        return PenaltyRecord(penalty=0.0)
    paths = [_ridge_path(CountedFold.of(fold, universe, 0.0), universe.size, smoothing) for fold in folds]
    descent = search_penalty(folds, paths, STRENGTH_RIDGES, plain_is_apart=True)
    trials = tuple(replace(trial, value=trial.value * precision) for trial in descent.trials)
    return PenaltyRecord.of(replace(descent, trials=trials))


def _ridge_path(fold: CountedFold, n: int, smoothing: float) -> HeldOutLosses:
    """Return a path of logits down the ladder of ridges, each from where the one before ended."""
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
        Choices added for every item of every distinct choice set of the training part, where there is no ridge; 0 for
        plain maximum likelihood, which is refused where it has no finite maximum.
    ridge
        Pull of the strengths towards their mean, as if by a normal law of variance 1 / ridge, in place of smoothing; 0
        for smoothing alone. "auto" learns it from held-out choice sets (:mod:`pcmcnet.models.items.strengths`), none,
        which is smoothing alone, included.
    max_iter, tolerance
        Iterations at most, and the gain in mean log-likelihood below which the search ends.
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
    """Items with their strengths."""

    universe: Universe
    strengths: Floats  # (n,)
    errors: Floats  # (n,) standard errors; 0 for the reference
    reference: int  # the item whose strength is 0
    record: ItemRecord


class StrengthModel(ChoiceModel):
    """A model with one strength per item; a subclass says how strengths become probabilities."""

    config_class = StrengthConfig
    config: StrengthConfig
    _state: FittedStrengths
    record_class = ItemRecord
    precision: ClassVar[float] = 1.0  # of a utility's error, as a multiple of the logit's

    @takes(StrengthConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @abstractmethod
    def _estimate(self, sets: DistinctSets, n: int, reference: int, ridge: float) -> StrengthEstimate:
        """Maximise the likelihood of the counts, less the ridge's part, with the reference's strength at 0."""

    @abstractmethod
    def _item_log_p(self, sets: DistinctSets, strengths: Floats) -> Floats:
        """(M,) log-probabilities of the items of distinct sets."""

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedStrengths:
        config = self.config
        # 1. The items, and the distinct sets of items with their counts; some counts have no estimate.
        part = require_informative_sets(train)
        universe = Universe.learn(part)
        sets, n = DistinctSets.of(part, universe.index(part)), universe.size
        smoothed = sets.smoothed(config.smoothing)
        require_comparable(smoothed, universe.items, finite=config.ridge in ("auto", 0))
        reference = int(np.bincount(sets.items, weights=sets.counts, minlength=n).argmax())
        # 2. The ridge, from held-out sets if it is to be learnt.
        penalty = None
        if config.ridge == "auto":
            penalty = learn_strength_ridge(
                part, universe, smoothing=config.smoothing, precision=self.precision, seed=run.seed
            )
        ridge = penalty.penalty if penalty else float(config.ridge)
        # 3. The strengths and their errors; a ridge takes the place of smoothing.
        try:
            estimate = self._estimate(sets if ridge else smoothed, n, reference, ridge)
            errors = standard_errors(estimate.hessian, reference)
        except np.linalg.LinAlgError as error:
            raise TrainingError(
                f"some strengths are so far apart that the likelihood is flat ({error}): raise smoothing."
            ) from error
        if not estimate.converged:
            log.warning("the search for strengths was stopped by max_iter=%d before it converged", config.max_iter)
        record = ItemRecord(
            converged=estimate.converged,
            iterations=estimate.iterations,
            nll=float(-(sets.counts @ self._item_log_p(sets, estimate.strengths)) / sets.counts.sum()),
            penalty=penalty,
            distinct_sets=len(sets.sizes),
        )
        return FittedStrengths(
            universe=universe, strengths=estimate.strengths, errors=errors, reference=reference, record=record
        )

    @property
    def universe_(self) -> Universe:
        """The items."""
        return self._state.universe

    @property
    def strengths_(self) -> Floats:
        """(n,) strengths of the items; 0 for the reference."""
        return self._state.strengths

    @property
    def errors_(self) -> Floats:
        """(n,) standard errors of the strengths; 0 for the reference."""
        return self._state.errors

    @property
    def reference_(self) -> int:
        """The item whose strength is 0: the one chosen most often."""
        return self._state.reference

    def _log_proba(self, data: ChoiceData) -> Floats:
        sets = DistinctSets.of(data, self.universe_.index(data))
        return sets.to_alternatives(self._item_log_p(sets, self.strengths_))

    @property
    def num_parameters(self) -> int:
        """One strength per item but the reference."""
        return len(self.strengths_) - 1

    def summary(self) -> Summary:
        """List the items with estimate, standard error, z and p, the strongest first."""
        items, record = self.universe_.items, self._state.record
        rows = [self._row(k) for k in np.argsort(-self.strengths_, kind="stable")]
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            **record.item_facts(self.table_.choice_sets),
            **record.penalty_facts,
            "parameters": f"{self.num_parameters:,} (the strength of {items[self.reference_]!r} is 0)",
        }
        return Summary(type(self).__name__, facts, ("item", "estimate", "std err", "z", "p"), tuple(rows))

    def _row(self, k: int) -> tuple[str, ...]:
        estimate, error = float(self.strengths_[k]), float(self.errors_[k])
        if k == self.reference_:
            return (self.universe_.items[k], "0 (reference)", "", "", "")
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
        return {"items.json": json_bytes(entries)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedStrengths:
        entries = json.loads(files["items.json"])
        universe, reference = Universe.from_dict(entries), entries["reference"]
        strengths, errors = (np.array(entries[k], np.float64) for k in ("strengths", "standard_errors"))
        fits = all(x.shape == (universe.size,) and np.isfinite(x).all() for x in (strengths, errors))
        if not fits or reference not in range(universe.size):
            raise ArtifactError("the saved strengths do not fit the saved items: save the model again.")
        return FittedStrengths(
            universe=universe, strengths=strengths, errors=errors, reference=reference, record=record
        )


def standard_errors(hessian: Floats, reference: int) -> Floats:  # (n, n) -> (n,)
    """Roots of the diagonal of the inverse, without the reference, whose error is 0."""
    free = np.arange(len(hessian)) != reference
    variances = np.diag(np.linalg.inv(hessian[np.ix_(free, free)]))
    if not (np.isfinite(variances) & (variances > 0)).all():
        raise np.linalg.LinAlgError("the Hessian is not positive definite")
    errors = np.zeros(len(hessian))
    errors[free] = np.sqrt(variances)
    return errors


def require_comparable(sets: DistinctSets, items: tuple[str, ...], *, finite: bool = True) -> None:
    """Refuse counts for which strengths have no unique estimate, or, where that has to come from counts, no finite."""
    # 1. Items that some chain of sets connects can be compared.
    left, right = sets.pairs()
    beats = sets.counts[left] > 0
    groups = _groups(sets.items[left], sets.items[right], len(items), strong=False)
    if groups.max() > 0:
        raise InputError(
            f"no chain of choice sets connects {some_names(items, np.flatnonzero(groups == 0))} with "
            f"{some_names(items, np.flatnonzero(groups == 1))}: their strengths cannot be compared ({groups.max() + 1} "
            f"such groups of items). Fit a model to each group, or use PCMC-Net (pcmcnet), which compares features."
        )
    # 2. Estimates are finite if, besides, each item won and lost against any group of others (Ford, 1957).
    groups = _groups(sets.items[left[beats]], sets.items[right[beats]], len(items), strong=True)
    if finite and groups.max() > 0:
        odd = np.flatnonzero(groups == np.bincount(groups).argmin())
        raise InputError(
            f"the strengths have no finite estimate: {some_names(items, odd)} always won, or always lost, against the "
            f"other items ({groups.max() + 1} such groups; Ford, 1957). Set smoothing or ridge above 0, or leave them "
            f"out."
        )


def _groups(left: Ints, right: Ints, n: int, *, strong: bool) -> Ints:
    """(n,) number of the connected group that each item belongs to."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left)), (left, right)), shape=(n, n))
    _, groups = connected_components(graph, directed=strong, connection="strong")
    return np.asarray(groups, np.int64)
