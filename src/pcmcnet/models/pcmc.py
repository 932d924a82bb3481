"""PCMC: the pairwise choice Markov chain over items (Ragain & Ugander, 2016).

Every ordered pair of items has a rate q_ij of leaving i for j. The choice probabilities of a set S are the stationary
distribution of the chain on S with these rates. A universe of n items has n (n - 1) rates, however many sets there are.
With the counts C_iS of the distinct sets, the smoothing a and log-rates t = log q, the fit minimises the penalised
negative log-likelihood:

    - sum_S sum_{i in S} (C_iS + a) log P(i | S)  +  ridge / 2 sum_ij (t_ij - t0_ij)^2.

Here t0 = log q0 are the log-rates of a chain with the probabilities of the Bradley-Terry model for the same counts,
q0_ij = e^{s_j} / (e^{s_i} + e^{s_j}). The likelihood identifies neither the scale of the rates nor, if only a few sets
contain a pair, both rates of that pair. Moreover, the log-likelihood is not concave. The ridge identifies the rates and
reduces the number of local minima. Pairs of items that never occur together in training keep the rates q0. Items that
never occur in training have s = 0, the mean. The model therefore gives probabilities for any set of items of the
universe.

With K latent classes, each class has its own chain, and P(i | S) = sum_c pi_c P_c(i | S). Copies of an item share its
probability in each class, and so in the mixture (uniform expansion). Contractibility does not carry over in general:
the total probability of a group of items depends only on their number if they are equivalent in every class, but not
if they are equivalent in some classes only.

For each number of classes 1, 2, ..., a sequence of fits with decreasing penalties starts at a mixture of logits
(:mod:`pcmcnet.models.items.strengths`). Classes are added as long as held-out choices are predicted better
(:func:`pcmcnet.selection.grow_while_better`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from safetensors.numpy import save as save_arrays
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.threads import one_thread_if_small
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.models.interface.latent_classes import ClassesBy, LatentClasses
from pcmcnet.models.interface.options import takes
from pcmcnet.models.items.pcmc_estimation import (
    MAX_SLSQP_ITEMS,
    PATH_TOLERANCE,
    SMOOTHING,
    ChainOptions,
    ChainProblem,
    Choosers,
    ClassChains,
    ClassProblem,
    Method,
    bradley_terry_chain,
    fit_chain,
    item_log_p,
)
from pcmcnet.models.items.strengths import (
    PENALTY_LADDER,
    CountedFold,
    HeldOutLosses,
    ItemRecord,
    Minimum,
    Penalty,
    PenaltyRecord,
    StrengthPrior,
    fallback_penalty,
    held_out_entries,
    item_folds,
    learn_penalty,
    require_penalty,
    search_penalty,
)
from pcmcnet.models.items.universe import (
    DistinctSets,
    Grid,
    Universe,
    padded_batches,
    read_arrays,
    require_informative_sets,
    require_shapes,
)
from pcmcnet.reports.formats import Summary
from pcmcnet.selection import Descent, Fold, Trial, best_number, grow_while_better, held_out_groups, held_out_weights
from pcmcnet.storage import json_bytes

log = logging.getLogger("pcmcnet")

MAX_ITEMS = 2000  # 4 million rates
MAX_CLASSES = 4  # largest number of classes that a search tries
TRIAL_STARTS = 3  # random starts of a mixture in a trial
SHARE_TOLERANCE = 1e-6  # largest deviation from 1 of the sum of saved shares


@dataclass(frozen=True, kw_only=True)
class PCMCConfig:
    """Options of PCMC.

    Parameters
    ----------
    smoothing
        Additive smoothing: the number of choices added to each item of each distinct choice set.
    method
        "lbfgs" searches over log-rates. "slsqp", the method of the original paper, searches over rates with q_ij + q_ji
        >= 1, and supports no ridge and at most 12 items.
    ridge
        Precision of a normal prior on the log-rates, centred at the chain of the Bradley-Terry model. A ridge of 0
        gives maximum likelihood. "auto" chooses a value on held-out choice sets; the value may be infinite, which gives
        the Bradley-Terry model itself. The method "slsqp" ignores the ridge.
    speeds
        Share of the ridge that applies to the product q_ij q_ji, which measures how fast the chain moves between two
        items. The full ridge applies to the odds q_ij / q_ji.
    restarts
        Number of starts of the search: the Bradley-Terry chain first, then random log-rates around it. The fit with
        the lowest objective is kept.
    max_iter
        Maximum number of iterations from each start.
    tolerance
        A search ends when an iteration improves the mean objective by less than this value.
    bins
        Mapping from features to numbers of bins. The items are then the cells of the resulting grid. If the mapping is
        empty, the items are the labels.
    identified
        Labels of alternatives that are separate items and are not binned. This option requires ``bins``.
    classes
        Number of latent classes, each with its own chain. "auto" chooses the number on held-out choice sets: a class is
        added only if it improves the predictions significantly.
    by
        Unit that is assigned to a class: each "person" (if the table has a person column), or each choice "set".
    """

    smoothing: float = SMOOTHING
    method: Method = "lbfgs"
    ridge: Penalty = "auto"
    speeds: float = 0.1
    restarts: int = 8
    max_iter: int = 500
    tolerance: float = 1e-9
    bins: Mapping[str, int] = field(default_factory=dict)
    identified: tuple[str, ...] = ()
    classes: int | Literal["auto"] = 1
    by: ClassesBy = "person"

    def __post_init__(self) -> None:
        require_word("method", self.method, get_args(Method))
        require_word("by", self.by, get_args(ClassesBy))
        if self.classes != "auto":
            require_number("classes", self.classes, whole=True, low=1)
        if self.classes != 1 and self.method == "slsqp":
            raise ConfigError("method='slsqp' does not support latent classes: use method='lbfgs', or classes=1.")
        require_penalty("ridge", self.ridge)
        for name in ("smoothing", "speeds"):
            require_number(name, getattr(self, name), low=0)
        for name in ("restarts", "max_iter"):
            require_number(name, getattr(self, name), whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)
        if not isinstance(self.bins, Mapping):
            raise ConfigError(f"bins must map features to numbers of bins, such as {{'price': 8}}, got {self.bins!r}.")
        for name, number in self.bins.items():
            require_number(f"bins of {name!r}", number, whole=True, low=1)
        object.__setattr__(self, "bins", dict(self.bins))
        object.__setattr__(self, "identified", _labels(self.identified))
        if self.identified and not self.bins:
            raise ConfigError("identified is only used with bins, but bins is empty: leave identified out.")

    @property
    def chain_options(self) -> ChainOptions:
        """Options of the search for rates."""
        return ChainOptions(**{option.name: getattr(self, option.name) for option in fields(ChainOptions)})


def _labels(value: Any) -> tuple[str, ...]:
    """Return the labels as a tuple. Raise ConfigError unless they are distinct strings."""
    labels = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
    if not all(isinstance(label, str) for label in labels) or len(set(labels)) != len(labels):
        raise ConfigError(f"identified must be a list of distinct labels such as ('a', 'b'), got {value!r}.")
    return labels


@dataclass(frozen=True, kw_only=True)
class PCMCRecord(ItemRecord):
    """Record of the fit of PCMC.

    Parameters
    ----------
    informed_rates
        Number of rates between items that occur together in at least one choice set of the training part.
    objectives
        Final objective of each start.
    class_trials
        Trials of different numbers of classes, or None if the number was given as an option.
    """

    informed_rates: int
    objectives: tuple[float, ...]
    class_trials: tuple[Trial, ...] | None = None

    @property
    def class_facts(self) -> dict[str, str]:
        """Description of the numbers of classes that were tried, for a summary."""
        losses = ", ".join(f"{trial.value:g}: {trial.held_out_nll:.4f}" for trial in self.class_trials or ())
        return {"classes tried": losses} if losses else {}


@dataclass(frozen=True, kw_only=True)
class FittedPCMC(FittedState):
    """Fitted state of PCMC: the items, the chain of each class, and how often each item was offered and chosen."""

    universe: Universe | Grid
    chains: ClassChains
    offered: Floats  # (n,) total weight of the training sets with an item
    chosen: Floats  # (n,) total weight of the training sets in which it was chosen
    record: PCMCRecord


class PCMC(LatentClasses, ChainModel):
    """Pairwise choice Markov chain with a rate for every ordered pair of items (Ragain & Ugander, 2016).

    Items are the labels of the alternatives or, with ``bins``, the cells of a grid of features. The choice
    probabilities of a set are the stationary distribution of the chain on its items.

    Examples
    --------
    >>> PCMC(bins={"attr1": 8, "attr2": 8}, identified=["0", "1"]).config.identified
    ('0', '1')
    """

    name = "pcmc"
    config_class = PCMCConfig
    config: PCMCConfig
    _state: FittedPCMC
    record_class = PCMCRecord

    @takes(PCMCConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedPCMC:
        config = self.config
        # 1. Learn the items, and count the choices from each distinct set.
        part = require_informative_sets(train)
        universe = Grid.learn(part, config.bins, config.identified) if config.bins else Universe.learn(part)
        n = self._require_size(universe)
        sets = DistinctSets.of(part, universe.index(part))
        if (sets.sizes < 2).all():
            raise InputError("all alternatives of every choice set are in the same cell: use more bins.")
        with one_thread_if_small(0):
            # 2. Choose the number of classes on held-out sets, unless it is given.
            search, classes, trials = ChainSearch(part, universe, config, run.seed), config.classes, None
            if classes == "auto":
                trials = search.try_classes()
                classes = best_number(trials)
            # 3. Fit the rates of the chains, with the penalty given or learnt.
            rates = search.fit_one(sets) if classes == 1 else search.fit_classes(classes)
        if not rates.minimum.converged:
            log.warning("the rates did not converge within max_iter=%d iterations", config.max_iter)
        # 4. Count how often each item was offered and chosen, for the summary.
        offered = spread(sum_by_set(sets.counts, sets.offsets), sets.offsets)
        times_offered, times_chosen = (
            np.bincount(sets.items, weights=weight, minlength=n).astype(np.float64) for weight in (offered, sets.counts)
        )
        record = PCMCRecord(
            converged=rates.minimum.converged,
            iterations=rates.minimum.iterations,
            nll=float(-(sets.counts @ rates.chains.log_p(sets)) / sets.counts.sum()),
            penalty=rates.penalty,
            distinct_sets=len(sets.sizes),
            informed_rates=rates.informed_rates,
            objectives=rates.objectives,
            class_trials=trials,
        )
        return FittedPCMC(
            universe=universe, chains=rates.chains, offered=times_offered, chosen=times_chosen, record=record
        )

    def _require_size(self, universe: Universe | Grid) -> int:
        """Return the number of items. Raise ConfigError or InputError if there are too many items."""
        n = len(universe.items)
        if self.config.method == "slsqp" and n > MAX_SLSQP_ITEMS:
            raise ConfigError(f"method='slsqp' supports up to {MAX_SLSQP_ITEMS} items, got {n}: use 'lbfgs'.")
        if n > MAX_ITEMS:
            raise InputError(
                f"PCMC supports up to {MAX_ITEMS:,} items, got {n:,} with {n * (n - 1):,} rates: use fewer bins, or "
                f"PCMC-Net (pcmcnet), whose size does not depend on the number of items."
            )
        return n

    @property
    def universe_(self) -> Universe | Grid:
        """The items."""
        return self._state.universe

    @property
    def log_rates_(self) -> Floats:
        """Log-rates (n, n), or (K, n, n) with several classes; the diagonal is 0 and has no meaning."""
        log_rates = self._state.chains.log_rates
        return log_rates[0] if len(log_rates) == 1 else log_rates

    @property
    def rates_(self) -> Floats:
        """Rates q_ij of leaving item i for j, (n, n), or (K, n, n) with several classes; 0 on the diagonal."""
        return np.exp(self.log_rates_) * (1 - np.eye(self.log_rates_.shape[-1]))

    @property
    def shares_(self) -> Floats:
        """Shares of the classes (K,), the largest first."""
        return self._state.chains.shares

    @property
    def offered_(self) -> Floats:
        """Total weight of the training choice sets that contain each item (n,)."""
        return self._state.offered

    @property
    def chosen_(self) -> Floats:
        """Total weight of the training choice sets in which each item was chosen (n,)."""
        return self._state.chosen

    def _log_proba(self, data: ChoiceData) -> Floats:
        if self.n_classes_ == 1:
            return self._class_log_p(data)[:, 0]
        return self._mix_classes(data, self._log_membership(data)) if len(data) else np.zeros(0)

    # -- classes ----------------------------------------------------------------------------------------------

    @property
    def n_classes_(self) -> int:
        """Number of latent classes, each with its own chain."""
        return len(self.shares_)

    @property
    def n_chains(self) -> int:
        """Number of chains: one per class."""
        return self.n_classes_

    def _log_membership(self, sets: ChoiceData) -> Floats:
        return np.tile(np.log(self.shares_), (len(sets), 1))

    def _class_log_p(self, data: ChoiceData) -> Floats:
        sets = DistinctSets.of(data, self.universe_.index(data))
        return np.column_stack([sets.to_alternatives(item_log_p(sets, t)) for t in self._state.chains.log_rates])

    @torch.no_grad()
    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        """Yield the rates of batches of sets, (B, K, J, J).

        The rate into an item is divided equally among its copies. The rates between copies equal the largest rate of
        the set.
        """
        # 1. Find the item of each alternative and its number of copies in the set.
        index = self.universe_.index(data)
        items, copies = torch.from_numpy(index), torch.from_numpy(DistinctSets.of(data, index).copies).double()
        chains = torch.from_numpy(self._state.chains.log_rates)
        for flat, mask in padded_batches(data.offsets):
            # 2. Compute the rates of each class: divide those into an item by its number of copies, and set those
            # between copies to 1, the largest rate.
            left, entered = items[flat].unsqueeze(2), items[flat].unsqueeze(1)  # (B, J, 1), (B, 1, J)
            rates_by_class = []
            for log_rates in chains:
                scores = log_rates[left, entered] - copies[flat].log().unsqueeze(1)
                scores = scores.masked_fill(left == entered, -torch.inf)
                rates = rates_of_scores(scores, torch.from_numpy(mask), rate="exp", epsilon=0.0)
                rates_by_class.append(rates.masked_fill(left == entered, 1.0))
            yield data.set_of_alternative[flat[:, 0]], torch.stack(rates_by_class, dim=1)

    @property
    def num_parameters(self) -> int:
        """Number of rates, one per ordered pair of items and class, plus the shares of all classes but one."""
        K, n = self.n_classes_, self.universe_.size
        return K * n * (n - 1) + K - 1

    def summary(self) -> Summary:
        """Return a table that shows how often each item was offered and chosen in training."""
        state, record = self._state, self._state.record
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            **record.item_facts(self.table_.choice_sets),
            **record.penalty_facts,
            **record.class_facts,
            "objective of each start": ", ".join(f"{value:.6f}" for value in record.objectives),
            "parameters": f"{self.num_parameters:,} ({record.informed_rates:,} for pairs seen in training)",
        }
        if self.n_classes_ > 1:
            facts["class shares"] = ", ".join(f"{share:.1%}" for share in self.shares_)
        if self.config.bins:
            facts["features"] = f"{', '.join(self.config.bins)}, binned; other features are not used"
        rows = [
            (item, f"{offered:g}", f"{chosen:g}", f"{chosen / offered:.4f}" if offered else "never seen")
            for item, offered, chosen in zip(state.universe.items, state.offered, state.chosen, strict=True)
        ]
        return Summary(type(self).__name__, facts, ("item", "offered", "chosen", "share"), tuple(rows), self.caveats)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        state = self._state
        arrays = {**state.chains._asdict(), "offered": state.offered, "chosen": state.chosen}
        return {"items.json": json_bytes(state.universe.to_dict()), "weights.safetensors": save_arrays(arrays)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedPCMC:
        # 1. Read the items and the arrays.
        entries = json.loads(files["items.json"])
        universe = Grid.from_dict(entries) if self.config.bins else Universe.from_dict(entries)
        arrays = read_arrays(files["weights.safetensors"])
        # 2. Check that the arrays fit the items and each other.
        shares, n = arrays["shares"], universe.size
        if shares.ndim != 1 or not (shares > 0).all() or abs(shares.sum() - 1) > SHARE_TOLERANCE:
            raise ArtifactError("the saved class shares do not add up to 1: save the model again.")
        require_shapes(arrays, {"log_rates": (len(shares), n, n), "offered": (n,), "chosen": (n,)}, "items")
        return FittedPCMC(
            universe=universe,
            chains=ClassChains(arrays["log_rates"].astype(np.float64), shares),
            offered=arrays["offered"],
            chosen=arrays["chosen"],
            record=record,
        )


# -- The search for rates, penalties and numbers of classes -------------------------------------------------------


@dataclass(frozen=True)
class FittedRates:
    """Fitted chains of all classes, with the status of the search."""

    chains: ClassChains
    minimum: Minimum
    objectives: tuple[float, ...]  # of each start
    informed_rates: int  # rates of pairs that are together in at least one set
    penalty: PenaltyRecord | None  # None if the penalty was given


@dataclass(frozen=True)
class ChainSearch:
    """Search that chooses the number of classes and the penalty, and fits the rates to one table."""

    data: ChoiceData
    universe: Universe | Grid
    config: PCMCConfig
    seed: int

    # One chain

    def fit_one(self, sets: DistinctSets) -> FittedRates:
        """Fit a single chain to the counts of all sets."""
        config, prior, penalty = self.config, StrengthPrior(self.config.smoothing), None
        # 1. Learn the regularisation of the Bradley-Terry strengths, then the ridge towards their chain.
        if config.ridge == "auto" and config.method != "slsqp":
            prior = StrengthPrior.learn(self.data, self.universe, smoothing=config.smoothing, seed=self.seed)
            path = partial(self._path, prior)
            penalty = learn_penalty(self.data, self.universe, path, smoothing=prior.smoothing, seed=self.seed)
            penalty = replace(penalty, strength_ridge=prior.ridge)
        ridge = penalty.penalty if penalty else float(config.ridge) if config.ridge != "auto" else 0.0
        # 2. Fit all sets along the same path of penalties as in the trials.
        smoothed = sets.smoothed(prior.smoothing)
        start = bradley_terry_chain(smoothed, self.universe.size, prior.ridge)
        rng, stronger = np.random.default_rng(self.seed), penalty.stronger if penalty else ()
        chain = fit_chain(smoothed, start, ridge, config.chain_options, rng, stronger)
        chains = ClassChains(chain.log_rates[None], np.ones(1))
        return FittedRates(chains, chain.minimum, chain.objectives, chain.informed_rates, penalty)

    def _path(self, prior: StrengthPrior, fold: CountedFold) -> HeldOutLosses:
        """Return a function that maps a ridge to held-out losses; each fit starts where the previous one ended."""
        start = bradley_terry_chain(fold.train, self.universe.size, prior.ridge)
        problem = ChainProblem.of(fold.train, start)
        x = problem.prior

        def losses(ridge: float) -> Floats:
            nonlocal x
            x = problem.fit(x, ridge, self.config.chain_options, PATH_TOLERANCE).x
            return -item_log_p(fold.held_out, problem.log_rates(x))[fold.chosen]

        return losses

    # Several classes

    def try_classes(self) -> tuple[Trial, ...]:
        """Try 1, 2, ... classes while held-out predictions improve. Return () if there are too few choice sets."""
        folds = item_folds(self.data, self.universe, self.seed)
        if not folds:
            return ()

        def losses(classes: int) -> Floats:
            descent = self._descend(folds, classes)
            return descent.losses[descent.best]

        weights, groups = held_out_weights(folds), held_out_groups(folds)
        return grow_while_better(losses, weights, groups, largest=MAX_CLASSES, what="classes")

    def fit_classes(self, classes: int) -> FittedRates:
        """Fit a mixture of ``classes`` chains to the whole table, with a given or learnt penalty."""
        # 1. Choose the penalty on held-out sets, unless it is given.
        config, penalty = self.config, None
        if config.ridge == "auto":
            folds = item_folds(self.data, self.universe, self.seed)
            penalty = PenaltyRecord.of(self._descend(folds, classes)) if folds else fallback_penalty(self.data)
        ridge = penalty.penalty if penalty else float(config.ridge)
        # 2. Start at a mixture of logits, and follow the same path of penalties as in the trials.
        problem = self._problem(self.data, classes)
        x = problem.logits(np.random.default_rng(self.seed), config.restarts)
        for stronger in penalty.stronger if penalty else ():
            x = problem.fit(x, stronger, PATH_TOLERANCE).x
        minimum = problem.fit(x, ridge, config.tolerance)
        informed = classes * len(problem.pairs.pairs)
        return FittedRates(problem.chains(minimum.x), minimum, (minimum.value,), informed, penalty)

    def _descend(self, folds: Sequence[Fold], classes: int) -> Descent:
        """Try a sequence of penalties, or only the penalty given as an option."""
        paths, ridge = [self._class_path(fold, classes) for fold in folds], self.config.ridge
        mean_weight = float(held_out_weights(folds).mean())
        return search_penalty(folds, paths, PENALTY_LADDER if ridge == "auto" else (ridge / mean_weight,))

    def _class_path(self, fold: Fold, classes: int) -> HeldOutLosses:
        """Return a function that maps a ridge to held-out losses; each fit starts where the previous one ended."""
        problem = self._problem(fold.train, classes)
        held_out, chosen = held_out_entries(fold, self.universe)
        x = problem.logits(np.random.default_rng(self.seed), TRIAL_STARTS)

        def losses(ridge: float) -> Floats:
            nonlocal x
            x = problem.fit(x, ridge, PATH_TOLERANCE).x
            return -problem.chains(x).log_p(held_out)[chosen]

        return losses

    def _problem(self, data: ChoiceData, classes: int) -> ClassProblem:
        """Return the likelihood of a mixture of ``classes`` chains on some choice sets."""
        sets = DistinctSets.of(data, self.universe.index(data))
        entries = sets.entry[data.offsets[:-1] + data.require_chosen("fitting")]
        choosers, config = Choosers.of(data, entries, self.config.by), self.config
        return ClassProblem(
            sets,
            choosers,
            self.universe.size,
            classes=classes,
            smoothing=config.smoothing,
            options=config.chain_options,
        )
