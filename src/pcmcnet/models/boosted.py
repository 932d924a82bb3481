"""Boosted utilities: trees fitted, one after another, to the gradient of the choice log-likelihood (Friedman, 2001).

    u_i = sum over trees t of  lr f_t(x_i),        p = softmax(u) over the set

The inputs x_i are the individual's columns, the alternative's features and label, and relative features x_i / min_j x_j
that compare the alternative with the other alternatives of its set. With y_i = 1 for the chosen alternative, each tree
takes a Newton step:

    g_i = w (y_i - p_i),  h_i = w p_i (1 - p_i)        gradient and diagonal of the Hessian
    splits     regression of g / h with weights h, which has the gain of the second-order expansion
    leaf value sum g / (sum h + l2)

The softmax is taken over the choice set, so the model, unlike the random forest, takes into account that exactly one
alternative is chosen. The number of trees is chosen on held-out choice sets (:mod:`pcmcnet.selection`); all choice sets
of a person are in the same fold. The final fit grows that number of trees on all choice sets. Each tree is fitted to a
random subset of the choice sets, and each split considers a random subset of the inputs.

The trees are stored as flat arrays, so loading a saved file executes no code. The M nodes of all trees are stored one
after another. A split sends x to node ``left`` if x[feature] <= threshold, else to node ``right``. Both child nodes
have larger indices than the split. A leaf has feature -1 and a value. Shapes: inputs (N, K) -> utilities (N,).
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

Inputs = Callable[[ChoiceData], NDArray[np.float32]]  # choice data -> inputs of the trees (N, K)

MAX_TREES = 2_000
PATIENCE = 50  # trees in a row without a lower held-out loss, after which the search ends
FALLBACK_TREES = 50  # if there are too few choice sets to hold some out
MIN_CURVATURE = 1e-6  # floor of p (1 - p), which bounds the steps for probabilities near 0 or 1
TREES_FILE = "trees.safetensors"
_LEAF = -1


@dataclass(frozen=True, kw_only=True)
class BoostedConfig:
    """Options of the boosted trees.

    Parameters
    ----------
    trees
        Number of trees. "auto" chooses the number on held-out choice sets.
    lr
        Learning rate: the share of a Newton step that each tree takes.
    leaves
        Maximum number of leaves per tree.
    min_samples_leaf
        Minimum number of alternatives in a leaf.
    l2
        Penalty on the squared values of the leaves.
    subsample
        Share of the choice sets, drawn at random, to which each tree is fitted.
    max_features
        Share of the inputs, drawn at random, that each split considers.
    labels
        Whether the label of the alternative is an input, if the table declares labels.
    relative
        Features that are also used in relative form, divided by the smallest value of the choice set. "auto" uses all
        numeric features that are positive throughout the training part.
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
    """Record of a fit: the number of trees, which was either given as an option or learnt."""

    trees: int


@dataclass(frozen=True, kw_only=True)
class FittedBoosted(FittedTrees):
    """Fitted state of the boosted model: the input encoder and the trees."""

    trees: UtilityTrees
    record: BoostedRecord


class Boosted(TreeModel):
    """Gradient-boosted trees: utilities are sums of trees, and a softmax over the choice set gives probabilities.

    Choice sets with a single alternative are not used in training.

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
        # 1. Select the sets with several alternatives, and learn the encoding of the inputs.
        part, held_out = (
            None if data is None else data.subset((data.weights > 0) & (data.sizes > 1)) for data in (train, valid)
        )
        assert part is not None
        if not len(part):
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        encoder = Encoder.learn(part, labels=self.config.labels)
        if not encoder.features:
            raise InputError(
                "boosted trees need features or labels to distinguish the alternatives: declare features, or declare "
                "an alternative column with labels that occur in several sets and keep labels=True."
            )
        relative = relative_names(self.config.relative, part)
        inputs = partial(tree_inputs, encoder, relative)
        # 2. Choose the number of trees on held-out sets, unless it is given, and grow them on all sets.
        count = self._number_of_trees(part, held_out, inputs, run.seed)
        grown = islice(grow_trees(TreeSets.of(part, inputs(part)), self.config, run.seed), count)
        trees = UtilityTrees.from_sklearn(grown, len(input_names(encoder, relative)))
        return FittedBoosted(encoder=encoder, relative=relative, trees=trees, record=BoostedRecord(trees=count))

    def _number_of_trees(self, part: ChoiceData, valid: ChoiceData | None, inputs: Inputs, seed: int) -> int:
        """Return the given number of trees or, if none is given, the number with the lowest held-out loss."""
        if self.config.trees != "auto":
            return self.config.trees
        # 1. Hold out choice sets; a validation part is held out too.
        folds = held_out_folds(part, valid if valid is not None and len(valid) else None, seed)
        if not folds:
            return FALLBACK_TREES
        # 2. Grow the trees of all folds in parallel, and average their held-out losses after each tree.
        pairs = [(fold.train, reduce(ChoiceData.concat, fold.held_out)) for fold in folds]
        encoded = [[TreeSets.of(data, inputs(data)) for data in pair] for pair in pairs]
        by_fold = [_losses(fitted, held_out, self.config, seed) for fitted, held_out in encoded]
        weights = [float(held_out.weights.sum()) for _, held_out in pairs]
        losses = (float(np.average(losses, weights=weights)) for losses in zip(*by_fold, strict=True))
        # 3. Stop after PATIENCE trees without a lower loss.
        count, loss = best_number_of_steps(losses, largest=MAX_TREES, patience=PATIENCE)
        log.info("%d trees: held-out NLL %.4f", count, loss)
        return count

    @property
    def trees_(self) -> UtilityTrees:
        """The trees; the utility of an alternative is the sum of their values."""
        return self._state.trees

    def utilities(self, data: ChoiceData) -> Floats:  # -> (N,)
        """Return the utility of each alternative.

        Parameters
        ----------
        data
            Choice sets.

        Returns
        -------
        ndarray
            Utilities (N,) of the available alternatives, ordered by choice set.
        """
        return self.trees_(self._inputs(data))

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_softmax_by_set(self.utilities(data), data.offsets) if len(data) else np.empty(0)

    @property
    def num_parameters(self) -> int:
        """Number of nodes in all trees; each node has one parameter: a threshold in a split, a value in a leaf."""
        return len(self.trees_.feature)

    def summary(self) -> Summary:
        """Return a table of the inputs, sorted by the total gain of the splits that use each input."""
        gain = self.trees_.importance / max(self.trees_.importance.sum(), np.finfo(np.float64).tiny)
        size = f"{self.num_parameters:,} (nodes of all trees)"
        return self._summary(gain.tolist(), {"trees": f"{len(self.trees_.roots):,}", "parameters": size})

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        return {**self._inputs_file(), TREES_FILE: self.trees_.to_bytes()}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedBoosted:
        encoder, relative, inputs = read_inputs(files)
        trees = UtilityTrees.from_bytes(files[TREES_FILE], inputs)
        return FittedBoosted(encoder=encoder, relative=relative, trees=trees, record=record)


# -- Growing trees ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TreeSets:
    """Choice sets as training data for trees: inputs, choices and weights."""

    x: NDArray[np.float32]  # (N, K)
    offsets: Ints
    chosen: Ints  # (S,) row of x of each chosen alternative
    weights: Floats  # (S,) with mean 1

    @classmethod
    def of(cls, data: ChoiceData, x: NDArray[np.float32]) -> TreeSets:
        """Combine the inputs (N, K) of the trees with the choices and weights in the data."""
        chosen = data.offsets[:-1] + data.require_chosen("fitting")
        return cls(x, data.offsets, chosen, data.weights / data.weights.mean())

    def loss(self, utilities: Floats) -> float:
        """Return the mean negative log-likelihood for utilities (N,)."""
        return -float(self.weights @ log_softmax_by_set(utilities, self.offsets)[self.chosen]) / len(self.weights)


def grow_trees(sets: TreeSets, config: BoostedConfig, seed: int) -> Iterator[tuple[Any, Floats]]:
    """Yield an endless sequence of trees, each with the values (nodes,) that it adds to the utilities."""
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(seed)
    y, w = np.zeros(len(sets.x)), spread(sets.weights, sets.offsets)
    y[sets.chosen] = 1
    utilities: Floats = np.zeros(len(sets.x))
    n = len(sets.weights)
    while True:
        # 1. Compute the gradient and the diagonal of the Hessian at the current utilities.
        p = np.exp(log_softmax_by_set(utilities, sets.offsets))
        gradient, curvature = w * (y - p), w * np.maximum(p * (1 - p), MIN_CURVATURE)
        # 2. Draw a random part of the choice sets; whole sets, because the softmax is over a set.
        drawn = np.zeros(n, bool)
        drawn[rng.permutation(n)[: max(round(config.subsample * n), 1)]] = True
        use = spread(drawn, sets.offsets)
        # 3. Find the splits by a weighted regression of the Newton steps.
        tree = DecisionTreeRegressor(
            max_leaf_nodes=config.leaves,
            min_samples_leaf=config.min_samples_leaf,
            max_features=config.max_features,
            random_state=int(rng.integers(2**31)),
        )
        tree.fit(sets.x[use], (gradient / curvature)[use], sample_weight=curvature[use])
        # 4. Compute the values of the leaves, and add them to the utilities of all sets.
        leaf = tree.apply(sets.x)
        g, h = (np.bincount(leaf[use], values[use], tree.tree_.node_count) for values in (gradient, curvature))
        value: Floats = config.lr * g / np.maximum(h + config.l2, MIN_CURVATURE)
        utilities += value[leaf]
        yield tree, value


def _losses(sets: TreeSets, held_out: TreeSets, config: BoostedConfig, seed: int) -> Iterator[float]:
    """Yield the held-out loss after each tree."""
    utilities: Floats = np.zeros(len(held_out.x))
    for tree, value in grow_trees(sets, config, seed):
        utilities += value[tree.apply(held_out.x)]
        yield held_out.loss(utilities)


# -- Trees as arrays ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class UtilityTrees:
    """Trees stored as flat arrays. The utility is the sum of the leaf values over all trees."""

    roots: Ints  # (T,)
    feature: Ints  # (M,)
    threshold: Floats  # (M,)
    left: Ints  # (M,)
    right: Ints  # (M,)
    value: Floats  # (M,)
    importance: Floats  # (K,) total gain of the splits on each input

    @classmethod
    def from_sklearn(cls, trees: Iterable[tuple[Any, Floats]], inputs: int) -> UtilityTrees:
        """Concatenate scikit-learn trees; each tree comes with an array (nodes,) of leaf values."""
        trees = list(trees)
        parts = [tree.tree_ for tree, _ in trees]
        # 1. Concatenate the arrays; children are numbered within their tree, so shift them to global indices.
        starts = np.cumsum([0, *(tree.node_count for tree in parts)])
        shift = np.repeat(starts[:-1], np.diff(starts))
        empty: tuple[Any, ...] = (np.empty(0),)
        left, right, feature, threshold = (
            np.concatenate([*(getattr(tree, name) for tree in parts), *empty])
            for name in ("children_left", "children_right", "feature", "threshold")
        )
        # 2. Clear what a node does not use: leaves only have values, and splits have none.
        leaf = left == _LEAF
        return cls(
            roots=starts[:-1].astype(np.int64),
            feature=np.where(leaf, _LEAF, feature).astype(np.int64),
            threshold=np.where(leaf, 0.0, threshold),
            left=np.where(leaf, _LEAF, left + shift).astype(np.int64),
            right=np.where(leaf, _LEAF, right + shift).astype(np.int64),
            value=np.where(leaf, np.concatenate([*(value for _, value in trees), *empty]), 0.0),
            importance=sum((tree.compute_feature_importances(normalize=False) for tree in parts), np.zeros(inputs)),
        )

    def __call__(self, x: NDArray[np.float32]) -> Floats:
        """Return the utilities (N,) of inputs (N, K)."""
        utility: Floats = np.zeros(len(x))
        rows = np.arange(len(x))
        for root in self.roots:
            node = np.full(len(x), root)
            while (inner := self.feature[node] != _LEAF).any():
                goes_left = x[rows, self.feature[node]] <= self.threshold[node]
                node = np.where(inner, np.where(goes_left, self.left[node], self.right[node]), node)
            utility += self.value[node]
        return utility

    def to_bytes(self) -> bytes:
        """Return the trees as the bytes of a safetensors file."""
        content: bytes = save_arrays({f.name: np.ascontiguousarray(getattr(self, f.name)) for f in fields(self)})
        return content

    @classmethod
    def from_bytes(cls, content: bytes, inputs: int) -> UtilityTrees:
        """Read the output of :meth:`to_bytes`, or raise ArtifactError if the trees do not fit this number of inputs."""
        try:
            trees = cls(**load_arrays(content))
        except (SafetensorError, TypeError) as error:
            raise ArtifactError(f"{TREES_FILE} cannot be read ({error}): fit the model again.") from error
        if not trees._is_valid(inputs):
            raise ArtifactError(f"{TREES_FILE} is damaged, or does not match the saved inputs: fit the model again.")
        return trees

    def _is_valid(self, inputs: int) -> bool:
        """Return True if every split uses an existing input and leads to later nodes, so that prediction terminates."""
        # 1. Check the shapes and types of the arrays, and that their values are finite.
        m, at = len(self.feature), np.arange(len(self.feature))
        shapes: Mapping[str, tuple[int, ...]] = {"roots": (self.roots.size,), "importance": (inputs,)}
        for field in fields(self):
            array = getattr(self, field.name)
            kind = np.float64 if field.name in ("threshold", "value", "importance") else np.int64
            if array.shape != shapes.get(field.name, (m,)) or array.dtype != kind or not np.isfinite(array).all():
                return False
        # 2. Check that each node is a leaf, or a split on an input with two later nodes as children.
        leaf = self.feature == _LEAF
        split = (self.feature >= 0) & (self.feature < inputs)
        for child in (self.left, self.right):
            split &= (child > at) & (child < m)
        return bool((leaf | split).all() and (self.roots >= 0).all() and (self.roots < m).all())
