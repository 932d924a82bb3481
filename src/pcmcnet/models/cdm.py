"""CDM: the context-dependent random utility model over items (Seshadri, Peysakhovich & Ugander, 2019).

Each item of the set adds an effect to the utility of every other item:

    P(i | S) = exp v_i(S) / sum_{j in S} exp v_j(S)          v_i(S) = s_i + sum_{j in S, j != i} c_ij

The published form has the parameters u_ij = c_ij - s_j and the same probabilities: -sum_{j != i} s_j equals s_i minus a
term that is common to all items of the set. Adding a constant to all s_i changes no probability, and neither does
adding a constant to s_j and to all c_ij in column j. Hence n (n - 1) - 1 parameters are identified. Among equivalent
effects, the penalty on c selects the smallest, which have mean 0 in each column. The penalty shrinks the effects
towards 0, and thus the model towards the logit over items (Bradley-Terry). Effects of rank r are products c_ij = t_i .
k_j, where t_i contains r properties of item i as a target and k_j contains r properties of item j as a context.

Given the counts C_iS of the distinct sets, L-BFGS minimises the following function of the strengths s (n,) and the
effects c (n, n), which are 0 on the diagonal:

    - sum_S sum_{i in S} C_iS log P(i | S)  +  ridge / 2 sum_ij c_ij^2

The objective also has a ridge on s, which only centres s unless a larger ridge was learnt for the logit. The objective
is convex, because v is linear in s and c: every search ends at the same probabilities and, with a ridge, at the same
effects. As a function of t and k (n, r), the objective is not convex, and the search starts at the best rank-r
approximation of the full effects. An infinite ridge gives the logit without context effects.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import save as save_arrays
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import log_softmax_by_set
from pcmcnet.errors import InputError
from pcmcnet.layers.threads import one_thread_if_small
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.items.strengths import (
    INFINITE_PENALTY,
    TRIAL_TOLERANCE,
    CountedFold,
    HeldOutLosses,
    ItemRecord,
    Penalty,
    StrengthPrior,
    centring_ridge,
    fit_log_strengths,
    lbfgs,
    learn_penalty,
    require_penalty,
)
from pcmcnet.models.items.universe import (
    DistinctSets,
    PaddedSets,
    Universe,
    read_arrays,
    require_informative_sets,
    require_shapes,
)
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import json_bytes

log = logging.getLogger("pcmcnet")

MAX_ITEMS = 1000  # a million effects


@dataclass(frozen=True, kw_only=True)
class CDMConfig:
    """Options of CDM.

    Parameters
    ----------
    smoothing
        Additive smoothing: the number of choices added to each item of each distinct choice set.
    ridge
        Precision of a normal prior that shrinks the context effects towards 0. A ridge of 0 gives maximum likelihood.
        "auto" chooses a value on held-out choice sets; the value may be infinite, which gives the logit over items.
    rank
        Rank of the matrix of context effects. If None, the matrix has full rank.
    max_iter
        Maximum number of iterations of the search.
    tolerance
        The search ends when an iteration improves the mean objective by less than this value.
    """

    smoothing: float = 0.1
    ridge: Penalty = "auto"
    rank: int | None = None
    max_iter: int = 1000
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        require_number("smoothing", self.smoothing, low=0)
        require_penalty("ridge", self.ridge)
        if self.rank is not None:
            require_number("rank", self.rank, whole=True, low=1)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)


@dataclass(frozen=True, kw_only=True)
class FittedCDM(FittedState):
    """Fitted state of CDM: the items, their strengths and their context effects."""

    universe: Universe
    strengths: Floats  # (n,)
    context: Floats  # (n, n): effect of the column's item on the utility of the row's item; 0 on the diagonal
    record: ItemRecord


class CDM(ChoiceModel):
    """Logit over items with pairwise context effects: every other item of the set changes an item's utility.

    Items are identified by the labels of the alternatives (Seshadri, Peysakhovich & Ugander, 2019).

    Examples
    --------
    >>> CDM(rank=2).config.ridge
    'auto'
    """

    name = "cdm"
    config_class = CDMConfig
    config: CDMConfig
    _state: FittedCDM
    record_class = ItemRecord

    @takes(CDMConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedCDM:
        config, prior, penalty = self.config, StrengthPrior(self.config.smoothing), None
        # 1. Learn the items, and count the choices from each distinct set.
        part = require_informative_sets(_require_labels(train))
        universe = Universe.learn(part)
        n = _require_size(universe.size)
        sets = DistinctSets.of(part, universe.index(part))
        with one_thread_if_small(0):
            # 2. Learn the regularisation of the strengths, then the ridge on the context effects.
            if config.ridge == "auto":
                prior = StrengthPrior.learn(part, universe, smoothing=config.smoothing, seed=run.seed)
                path = partial(self._path, n, prior)
                penalty = learn_penalty(part, universe, path, smoothing=prior.smoothing, seed=run.seed)
                penalty = replace(penalty, strength_ridge=prior.ridge)
            # 3. Fit all sets, starting at the logit.
            ridge, smoothed = penalty.penalty if penalty else float(config.ridge), sets.smoothed(prior.smoothing)
            start = fit_without_context(smoothed, n, prior.ridge)
            effects = self._effects(smoothed, start, ridge, prior.ridge, config.tolerance)
        if not effects.converged:
            log.warning("the context effects did not converge within max_iter=%d iterations", config.max_iter)
        record = ItemRecord(
            converged=effects.converged,
            iterations=effects.iterations,
            nll=float(-(sets.counts @ cdm_log_p(sets, effects.strengths, effects.context)) / sets.counts.sum()),
            penalty=penalty,
            distinct_sets=len(sets.sizes),
        )
        return FittedCDM(universe=universe, strengths=effects.strengths, context=effects.context, record=record)

    def _effects(
        self, sets: DistinctSets, start: ItemEffects, ridge: float, strength_ridge: float, tolerance: float
    ) -> ItemEffects:
        """Fit the effects with a given ridge. ``start`` is the logit or the fit with a larger ridge."""
        if ridge == INFINITE_PENALTY:
            return start
        limits: dict[str, Any] = {"max_iter": self.config.max_iter, "tolerance": tolerance}
        return fit_effects(sets, start, ridge, strength_ridge, rank=self.config.rank, **limits)

    def _path(self, n: int, prior: StrengthPrior, fold: CountedFold) -> HeldOutLosses:
        """Return a function that maps a ridge to held-out losses; each fit starts where the previous one ended."""
        effects = fit_without_context(fold.train, n, prior.ridge)

        def losses(ridge: float) -> Floats:
            nonlocal effects
            effects = self._effects(fold.train, effects, ridge, prior.ridge, TRIAL_TOLERANCE)
            return -cdm_log_p(fold.held_out, effects.strengths, effects.context)[fold.chosen]

        return losses

    @property
    def universe_(self) -> Universe:
        """The items."""
        return self._state.universe

    @property
    def strengths_(self) -> Floats:
        """Strengths of the items (n,)."""
        return self._state.strengths

    @property
    def context_(self) -> Floats:
        """Effects (n, n) of the column's item on the utility of the row's item, with 0 on the diagonal."""
        return self._state.context

    def _log_proba(self, data: ChoiceData) -> Floats:
        sets = DistinctSets.of(data, self.universe_.index(data))
        return sets.to_alternatives(cdm_log_p(sets, self.strengths_, self.context_))

    @property
    def num_parameters(self) -> int:
        """Number of identified parameters: all strengths but one, and the effects up to a constant in each column."""
        n, rank = len(self.strengths_), self.config.rank
        full = n * (n - 1) - 1
        return full if rank is None else min(full, n - 1 + rank * (2 * n - 1 - rank))

    def summary(self) -> Summary:
        """Return a table of the items with their strengths, the strongest first, and their largest context effects."""
        record = self._state.record
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            **record.item_facts(self.table_.choice_sets),
            **record.penalty_facts,
            "parameters": f"{self.num_parameters:,}",
        }
        rows = tuple(self._row(k) for k in np.argsort(-self.strengths_, kind="stable"))
        return Summary(
            type(self).__name__, facts, ("item", "strength", "raised most by", "lowered most by"), rows, self.caveats
        )

    def _row(self, k: int) -> tuple[str, ...]:
        """Return the row of item k in the summary."""
        effects, items = self.context_[k], self.universe_.items
        extremes = ((j, effects[j]) for j in (int(effects.argmax()), int(effects.argmin())))
        cells = [f"{items[j]} {effect:+.4f}" if effect else "none" for j, effect in extremes]
        return (items[k], f"{self.strengths_[k]:.4f}", *cells)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        arrays = {"strengths": self.strengths_, "context": self.context_}
        return {"items.json": json_bytes(self.universe_.to_dict()), "weights.safetensors": save_arrays(arrays)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedCDM:
        universe = Universe.from_dict(json.loads(files["items.json"]))
        arrays, n = read_arrays(files["weights.safetensors"]), universe.size
        require_shapes(arrays, {"strengths": (n,), "context": (n, n)}, "items")
        strengths, context = (arrays[name].astype(np.float64) for name in ("strengths", "context"))
        return FittedCDM(universe=universe, strengths=strengths, context=context, record=record)


def _require_labels(data: ChoiceData) -> ChoiceData:
    """Return the table. Raise InputError if the table has no labels."""
    if data.labels is None:
        raise InputError(
            "CDM identifies alternatives by their labels, but the table was read without labels: declare "
            "alternative=<column> (--alternative), or use the linear context logit (lcl), whose context effects are "
            "functions of features."
        )
    return data


def _require_size(n: int) -> int:
    """Return the number of items. Raise InputError if there are too many items."""
    if n > MAX_ITEMS:
        raise InputError(
            f"CDM supports up to {MAX_ITEMS:,} items, got {n:,} with {n * (n - 1):,} context effects: leave rare items "
            f"out, or use PCMC-Net (pcmcnet), whose size does not depend on the number of items."
        )
    return n


# -- Estimation ---------------------------------------------------------------------------------------------------


class ItemEffects(NamedTuple):
    """Strengths (n,), context effects (n, n) of column items on row items, and the status of the search."""

    strengths: Floats
    context: Floats
    iterations: int = 0
    converged: bool = True


def cdm_log_p(sets: DistinctSets, strengths: Floats, context: Floats) -> Floats:  # -> (M,)
    """Return the log-probabilities of the items of all distinct sets."""
    if not len(sets.items):
        return np.empty(0)
    left, right = sets.pairs()
    effects = context[sets.items[left], sets.items[right]]
    v = strengths[sets.items] + np.bincount(left, weights=effects, minlength=len(sets.items))
    return log_softmax_by_set(v, sets.offsets)


def fit_without_context(sets: DistinctSets, n: int, strength_ridge: float = 0.0) -> ItemEffects:
    """Fit the logit without context effects, as with an infinite ridge."""
    logit = fit_log_strengths(sets, n, ridge=centring_ridge(sets, strength_ridge))
    return ItemEffects(logit.strengths, np.zeros((n, n)), logit.iterations, logit.converged)


def fit_effects(
    sets: DistinctSets,
    start: ItemEffects,
    ridge: float,
    strength_ridge: float,
    *,
    rank: int | None,
    max_iter: int,
    tolerance: float,
) -> ItemEffects:
    """Fit strengths and context effects from a starting point; ``rank=None`` means effects of full rank."""
    n, loss = len(start.strengths), penalised_loss(sets, len(start.strengths), ridge, strength_ridge)

    def fit(context: Callable[[Tensor], Tensor], strengths: Floats, parameters: Floats) -> ItemEffects:
        minimum = lbfgs(
            lambda x: loss(x[:n], context(x[n:])),
            np.concatenate([strengths, parameters.ravel()]),
            max_iter=max_iter,
            tolerance=tolerance,
        )
        c: Floats = context(torch.from_numpy(minimum.x[n:])).numpy() * (1 - np.eye(n))
        return ItemEffects(minimum.x[:n], c, minimum.iterations, minimum.converged)

    # 1. Fit effects of full rank, a convex problem.
    full = fit(lambda x: x.reshape(n, n), start.strengths, start.context)
    if rank is None:
        return full

    # 2. Fit effects of rank r, starting at the best rank-r approximation of the full effects.
    def product(x: Tensor) -> Tensor:  # (2 n r,) -> (n, n)
        targets, contexts = x.reshape(2, n, -1)
        effects: Tensor = targets @ contexts.T
        return effects

    u, d, v = np.linalg.svd(full.context)
    factors = np.stack([f[:, :rank] * np.sqrt(d[:rank]) for f in (u, v.T)])  # (2, n, r)
    return fit(product, full.strengths, factors)


def penalised_loss(
    sets: DistinctSets, n: int, ridge: float, strength_ridge: float = 0.0
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean objective per choice as a function of strengths (n,) and effects (n, n)."""
    batches, total = list(sets.batches()), float(sets.counts.sum())
    off_diagonal, centring = 1 - torch.eye(n, dtype=torch.float64), centring_ridge(sets, strength_ridge)

    def loss(s: Tensor, c: Tensor) -> Tensor:
        effects = c * off_diagonal
        likelihood = torch.stack([_log_likelihood(s, effects, batch) for batch in batches]).sum()
        penalty = ridge / 2 * effects.square().sum() + centring / 2 * s.square().sum()
        return (penalty - likelihood) / total

    return loss


def _log_likelihood(s: Tensor, effects: Tensor, batch: PaddedSets) -> Tensor:  # -> ()
    """Return the log-likelihood of the counts in a batch."""
    pairs = effects[batch.items.unsqueeze(2), batch.items.unsqueeze(1)]  # (B, J, J)
    v = s[batch.items] + (pairs * batch.mask.unsqueeze(1)).sum(2)
    log_p = torch.log_softmax(v.masked_fill(~batch.mask, -torch.inf), dim=1)
    return (batch.counts * log_p.masked_fill(~batch.mask, 0)).sum()
