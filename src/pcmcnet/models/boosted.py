"""Boosted utilities: trees fitted, one after another, to the gradient of the choice log-likelihood (Friedman, 2001).

    u_i = sum over trees t of  lr f_t(x_i),        p = softmax(u) over the set

x_i are the individual's columns, the alternative's features and label, and relative features x_i / min_j x_j, by which
a set's other alternatives come in. With y_i = 1 for the alternative chosen, each tree takes a Newton step:

    g_i = w (y_i - p_i),  h_i = w p_i (1 - p_i)        gradient and, of the Hessian, the diagonal
    splits     as a regression of g / h with weights h, which has the gain of the second-order expansion
    leaf value sum g / (sum h + l2)

The softmax is over the set, so that exactly one alternative is chosen, unlike in the random forest. Held-out choice
sets say how many trees there are (:mod:`pcmcnet.selection`), persons kept together. Then all sets are fitted with so
many. Each tree sees some of the sets and, at every split, some of the inputs.

The trees are kept as flat arrays, so that a saved file builds no classes and executes nothing. The M nodes of all trees
stand one after another. A split sends x to ``left`` where x[feature] <= threshold, else to ``right``; both stand behind
it. A leaf has feature -1 and a value. Shapes: inputs (N, K) -> utilities (N,).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial, reduce
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.columns.ragged import log_softmax_by_set, spread
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import FitRecord, TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.tree_inputs import (
    FittedTrees,
    Relative,
    TreeModel,
    as_relative,
    input_names,
    read_inputs,
    relative_names,
    tree_inputs,
)
from pcmcnet.reports.formats import Summary
from pcmcnet.selection import best_number_of_steps, held_out_folds

log = logging.getLogger("pcmcnet")

Inputs = Callable[[ChoiceData], NDArray[np.float32]]  # what trees see of some sets (N, K)

MAX_TREES = 2_000
PATIENCE = 50  # trees in a row without a better loss of held-out sets
FALLBACK_TREES = 50  # if there are too few choice sets to hold some out
MIN_CURVATURE = 1e-6  # of p (1 - p): where the model is sure, a step would be without bound
TREES = "trees.safetensors"
_LEAF = -1


@dataclass(frozen=True, kw_only=True)
class BoostedConfig:
    """Options of the boosted trees.

    Parameters
    ----------
    trees
        Number of trees; "auto" is learnt from held-out choice sets.
    lr
        Share of a Newton step that each tree takes.
    leaves
        Of each tree, at most.
    min_samples_leaf
        Alternatives in a leaf, at least.
    l2
        Penalty on squared values of leaves.
    subsample
        Share of the choice sets that each tree sees.
    max_features
        Share of the inputs tried at each split.
    labels
        Whether trees see the label of an alternative, where labels are declared.
    relative
        Features that also enter relative to the smallest value of the set; "auto" for all numeric ones that are
        positive throughout the training part.
    """

    trees: int | Literal["auto"] = "auto"
    lr: float = 0.05
    leaves: int = 8
    min_samples_leaf: int = 20
    l2: float = 1.0
    subsample: float = 0.5
    max_features: float = 0.5
    labels: bool = True
    relative: Relative = "auto"

    def __post_init__(self) -> None:
        if self.trees != "auto":
            require_number("trees", self.trees, whole=True, low=1)
        require_number("lr", self.lr, low=0, high=1, open_low=True)
        require_number("leaves", self.leaves, whole=True, low=2)
        require_number("min_samples_leaf", self.min_samples_leaf, whole=True, low=1)
        require_number("l2", self.l2, low=0)
        require_number("subsample", self.subsample, low=0, high=1, open_low=True)
        require_number("max_features", self.max_features, low=0, high=1, open_low=True)
        if not isinstance(self.labels, bool):
            raise ConfigError(f"labels must be true or false, got {self.labels!r}.")
        object.__setattr__(self, "relative", as_relative(self.relative))


@dataclass(frozen=True, kw_only=True)
class BoostedRecord(FitRecord):
    """The number of trees, given or learnt."""

    trees: int


@dataclass(frozen=True, kw_only=True)
class FittedBoosted(FittedTrees):
    """How tables become inputs, and the trees."""

    trees: UtilityTrees
    record: BoostedRecord


class Boosted(TreeModel):
    """Gradient-boosted trees whose sum is the utility of an alternative.

    Options are those of :class:`BoostedConfig`; an unknown one is refused. Sets of one alternative take no part in
    training: there the choice says nothing.

    Examples
    --------
    >>> Boosted(trees=100, relative=["price"]).config.relative
    ('price',)
    """

    name = "boosted"
    config_class = BoostedConfig
    stops_early = True
    config: BoostedConfig
    _state: FittedBoosted
    record_class = BoostedRecord

    @takes(BoostedConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedBoosted:
        # 1. The sets that offer a choice, and how trees see them.
        part, held_out = (
            None if data is None else data.subset((data.weights > 0) & (data.sizes > 1)) for data in (train, valid)
        )
        assert part is not None
        if not len(part):
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        encoder = Encoder.learn(part, labels=self.config.labels)
        if not encoder.features:
            raise InputError(
                "boosted trees tell alternatives apart by their features and labels: declare a feature, or "
                "alternative, with labels that return in several sets, and leave labels=True."
            )
        relative = relative_names(self.config.relative, part)
        inputs = partial(tree_inputs, encoder, relative)
        # 2. The number of trees, from held-out sets if it is to be learnt; then as many trees of all sets.
        count = self._number_of_trees(part, held_out, inputs, run.seed)
        grown = islice(grow_trees(TreeSets.of(part, inputs(part)), self.config, run.seed), count)
        trees = UtilityTrees.joined(grown, len(input_names(encoder, relative)))
        return FittedBoosted(encoder=encoder, relative=relative, trees=trees, record=BoostedRecord(trees=count))

    def _number_of_trees(self, part: ChoiceData, valid: ChoiceData | None, inputs: Inputs, seed: int) -> int:
        """Return the number of trees: the one given, or the one with the least loss of held-out sets."""
        if self.config.trees != "auto":
            return self.config.trees
        # 1. Hold out sets of the table; a validation part joins them.
        folds = held_out_folds(part, valid if valid is not None and len(valid) else None, seed)
        if not folds:
            return FALLBACK_TREES
        # 2. Grow the trees of all folds in step, and average their losses.
        pairs = [(fold.train, reduce(ChoiceData.concat, fold.held_out)) for fold in folds]
        seen = [[TreeSets.of(data, inputs(data)) for data in pair] for pair in pairs]
        by_fold = [_losses(fitted, held_out, self.config, seed) for fitted, held_out in seen]
        weights = [float(held_out.weights.sum()) for _, held_out in pairs]
        losses = (float(np.average(losses, weights=weights)) for losses in zip(*by_fold, strict=True))
        # 3. Stop once the loss has not been better for a while.
        count, loss = best_number_of_steps(losses, largest=MAX_TREES, patience=PATIENCE)
        log.info("%d trees: held-out NLL %.4f", count, loss)
        return count

    @property
    def trees_(self) -> UtilityTrees:
        """The trees, which sum to a utility."""
        return self._state.trees

    def utilities(self, data: ChoiceData) -> Floats:  # -> (N,)
        """Return the utility of each alternative, set after set."""
        return self.trees_(self._inputs(data))

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_softmax_by_set(self.utilities(data), data.offsets) if len(data) else np.empty(0)

    @property
    def num_parameters(self) -> int:
        """Number of nodes of all trees: a threshold for each split, a value for each leaf."""
        return len(self.trees_.feature)

    def summary(self) -> Summary:
        """List the inputs by what splits on them gained."""
        gain = self.trees_.importance / max(self.trees_.importance.sum(), np.finfo(np.float64).tiny)
        size = f"{self.num_parameters:,} (nodes of all trees)"
        return self._summary(gain.tolist(), {"trees": f"{len(self.trees_.roots):,}", "parameters": size})

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        return {**self._inputs_file(), TREES: self.trees_.to_bytes()}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedBoosted:
        encoder, relative, inputs = read_inputs(files)
        trees = UtilityTrees.from_bytes(files[TREES], inputs)
        return FittedBoosted(encoder=encoder, relative=relative, trees=trees, record=record)


# -- Growing trees ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TreeSets:
    """Choice sets as trees see them."""

    x: NDArray[np.float32]  # (N, K)
    offsets: Ints
    chosen: Ints  # (S,) places of the alternatives chosen
    weights: Floats  # (S,) of mean 1

    @classmethod
    def of(cls, data: ChoiceData, x: NDArray[np.float32]) -> TreeSets:
        """Take choices and weights from the data."""
        chosen = data.offsets[:-1] + data.require_chosen("fitting")
        return cls(x, data.offsets, chosen, data.weights / data.weights.mean())

    def loss(self, utilities: Floats) -> float:
        """Mean negative log-likelihood at utilities (N,)."""
        return -float(self.weights @ log_softmax_by_set(utilities, self.offsets)[self.chosen]) / len(self.weights)


def grow_trees(sets: TreeSets, config: BoostedConfig, seed: int) -> Iterator[tuple[Any, Floats]]:
    """Yield tree after tree, without end, with the values (nodes,) that they add to utilities."""
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(seed)
    y, w = np.zeros(len(sets.x)), spread(sets.weights, sets.offsets)
    y[sets.chosen] = 1
    utilities: Floats = np.zeros(len(sets.x))
    n = len(sets.weights)
    while True:
        # 1. Gradient and curvature of the likelihood at the utilities so far.
        p = np.exp(log_softmax_by_set(utilities, sets.offsets))
        gradient, curvature = w * (y - p), w * np.maximum(p * (1 - p), MIN_CURVATURE)
        # 2. Some of the sets, whole ones: the softmax is over a set.
        drawn = np.zeros(n, bool)
        drawn[rng.permutation(n)[: max(round(config.subsample * n), 1)]] = True
        use = spread(drawn, sets.offsets)
        # 3. Splits, as a weighted regression of the Newton steps.
        tree = DecisionTreeRegressor(
            max_leaf_nodes=config.leaves,
            min_samples_leaf=config.min_samples_leaf,
            max_features=config.max_features,
            random_state=int(rng.integers(2**31)),
        )
        tree.fit(sets.x[use], (gradient / curvature)[use], sample_weight=curvature[use])
        # 4. The values of the leaves, and what they add to the utilities of all sets.
        leaf = tree.apply(sets.x)
        up, down = (np.bincount(leaf[use], each[use], tree.tree_.node_count) for each in (gradient, curvature))
        value: Floats = config.lr * up / np.maximum(down + config.l2, MIN_CURVATURE)
        utilities += value[leaf]
        yield tree, value


def _losses(sets: TreeSets, held_out: TreeSets, config: BoostedConfig, seed: int) -> Iterator[float]:
    """Yield the loss of held-out sets after each tree."""
    utilities: Floats = np.zeros(len(held_out.x))
    for tree, value in grow_trees(sets, config, seed):
        utilities += value[tree.apply(held_out.x)]
        yield held_out.loss(utilities)


# -- Trees as arrays ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class UtilityTrees:
    """All trees; their values are added."""

    roots: Ints  # (T,)
    feature: Ints  # (M,)
    threshold: Floats  # (M,)
    left: Ints  # (M,)
    right: Ints  # (M,)
    value: Floats  # (M,)
    importance: Floats  # (K,) what splits on each input have gained, in all

    @classmethod
    def joined(cls, trees: Iterable[tuple[Any, Floats]], inputs: int) -> UtilityTrees:
        """Put together scikit-learn's trees with the values (nodes,) of their leaves."""
        trees = list(trees)
        parts = [tree.tree_ for tree, _ in trees]
        # 1. Where the nodes of each tree begin: children are numbered within their tree.
        begins = np.cumsum([0, *(tree.node_count for tree in parts)])
        shift = np.repeat(begins[:-1], np.diff(begins))
        none: tuple[Any, ...] = (np.empty(0),)
        left, right, feature, threshold = (
            np.concatenate([*(getattr(tree, name) for tree in parts), *none])
            for name in ("children_left", "children_right", "feature", "threshold")
        )
        # 2. Leaves have values, and splits all else.
        leaf = left == _LEAF
        return cls(
            roots=begins[:-1].astype(np.int64),
            feature=np.where(leaf, _LEAF, feature).astype(np.int64),
            threshold=np.where(leaf, 0.0, threshold),
            left=np.where(leaf, _LEAF, left + shift).astype(np.int64),
            right=np.where(leaf, _LEAF, right + shift).astype(np.int64),
            value=np.where(leaf, np.concatenate([*(value for _, value in trees), *none]), 0.0),
            importance=sum((tree.compute_feature_importances(normalize=False) for tree in parts), np.zeros(inputs)),
        )

    def __call__(self, x: NDArray[np.float32]) -> Floats:
        """(N, K) -> (N,)."""
        utility: Floats = np.zeros(len(x))
        rows = np.arange(len(x))
        for root in self.roots:
            node = np.full(len(x), root)
            while (inner := self.feature[node] != _LEAF).any():
                down = x[rows, self.feature[node]] <= self.threshold[node]
                node = np.where(inner, np.where(down, self.left[node], self.right[node]), node)
            utility += self.value[node]
        return utility

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        content: bytes = save_arrays({f.name: np.ascontiguousarray(getattr(self, f.name)) for f in fields(self)})
        return content

    @classmethod
    def from_bytes(cls, content: bytes, inputs: int) -> UtilityTrees:
        """Read such a file for so many inputs; refuses what is not sound."""
        try:
            trees = cls(**load_arrays(content))
        except (SafetensorError, TypeError) as error:
            raise ArtifactError(f"{TREES} cannot be read ({error}): fit the model again.") from error
        if not trees._sound(inputs):
            raise ArtifactError(f"{TREES} holds damaged trees, or does not fit the saved inputs: fit the model again.")
        return trees

    def _sound(self, inputs: int) -> bool:
        """Whether every split asks for an input there is, and leads to nodes behind it, so that every walk ends."""
        # 1. Arrays of the right sizes and types, with finite values.
        m, at = len(self.feature), np.arange(len(self.feature))
        shapes: Mapping[str, tuple[int, ...]] = {"roots": (self.roots.size,), "importance": (inputs,)}
        for field in fields(self):
            array = getattr(self, field.name)
            kind = np.float64 if field.name in ("threshold", "value", "importance") else np.int64
            if array.shape != shapes.get(field.name, (m,)) or array.dtype != kind or not np.isfinite(array).all():
                return False
        # 2. Nodes are leaves, or splits on an input with both children behind them.
        leaf = self.feature == _LEAF
        split = (self.feature >= 0) & (self.feature < inputs)
        for child in (self.left, self.right):
            split &= (child > at) & (child < m)
        return bool((leaf | split).all() and (self.roots >= 0).all() and (self.roots < m).all())
