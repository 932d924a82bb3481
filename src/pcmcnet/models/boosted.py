"""Boosted utilities: trees fitted, one after another, to the gradient of the choice log-likelihood (Friedman, 2001).

    u_i = sum over trees t of  lr f_t(x_i),        p = softmax(u) over the set

The inputs x_i are the individual's columns, the alternative's features and label, and relative features x_i / min_j x_j
that compare the alternative with the other alternatives of its set. With y_i = 1 for the chosen alternative, each tree
takes a Newton step:

    g_i = w (y_i - p_i),  h_i = w p_i (1 - p_i)        gradient and diagonal of the Hessian
    splits     by the gain of the second-order expansion (:mod:`pcmcnet.models.tree_growth`)
    leaf value sum g / (sum h + l2)

The softmax is taken over the choice set, so the model, unlike the random forest, takes into account that exactly one
alternative is chosen. The number of leaves per tree and the number of trees are chosen on held-out choice sets
(:mod:`pcmcnet.selection`). All choice sets of a person are in the same fold. The final fit grows that number of trees
on all choice sets. Each tree is fitted to a random subset of the choice sets, and each split considers a random subset
of the inputs.

If a column has an expected sign, all trees are monotone in the column and in its relative form, and so is their sum.
The probability of an alternative is then monotone in its own value: see :mod:`pcmcnet.models.tree_growth` and
:mod:`pcmcnet.models.tree_inputs`.

The trees are stored as flat arrays, so that loading a saved file executes nothing. The M nodes of all trees are stored
one after another. A split sends x to node ``left`` if x[feature] <= threshold, else to node ``right``; both have larger
indices than the split. A leaf has feature -1 and a value. Shapes: inputs (N, K) -> utilities (N,).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
from pcmcnet.models.interface.directions import Direction, as_directions, directions_of
from pcmcnet.models.interface.fitted import FitRecord, TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.tree_growth import LEAF, Bins, Tree, as_bins, bin_edges, grow_tree, sum_trees
from pcmcnet.models.tree_inputs import (
    FittedTrees,
    Relative,
    TreeModel,
    as_relative,
    input_signs,
    read_inputs,
    relative_names,
    tree_inputs,
)
from pcmcnet.reports.formats import Summary
from pcmcnet.selection import SMALL_TABLE_SETS, best_number_of_steps, held_out_folds, walk_ladder

log = logging.getLogger("pcmcnet")

Inputs = Callable[[ChoiceData], NDArray[np.float32]]  # choice data -> inputs of the trees (N, K)

MAX_TREES = 2_000
PATIENCE = 50  # trees in a row without a lower held-out loss, after which the search ends
LEAVES = (4, 8, 16, 32, 64)  # numbers of leaves that the search may try
FIRST_LEAVES = (1, 2)  # positions in LEAVES where the search begins
MIN_SETS_FOR_LEAVES = (
    SMALL_TABLE_SETS  # with fewer choice sets, chosen leaves predict worse than 8 on four of seven tables
)
MAX_SEARCHED_SETS = 60_000  # choice sets that the search uses: trees grow quickly, and more sets allow larger trees
FALLBACK_TREES, FALLBACK_LEAVES = 50, 8  # if there are too few choice sets to hold some out
MIN_CURVATURE = 1e-6  # floor of p (1 - p), which bounds the steps for probabilities near 0 or 1
TREES_FILE = "trees.safetensors"


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
        Maximum number of leaves per tree. "auto" chooses 4, 8, 16, 32 or 64 on held-out choice sets, if there are at
        least 5,000 choice sets and the number of trees is also chosen. Otherwise "auto" means 8.
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
    monotone
        Mapping from numeric features to "decreasing" or "increasing", as in {"price": "decreasing"}: the direction in
        which the probability of an alternative changes with the feature's value, whatever the other inputs are. The
        signs that the table declares are obeyed by default; "free" ignores the sign of a feature.
    """

    trees: int | Literal["auto"] = "auto"
    lr: float = 0.05
    leaves: int | Literal["auto"] = "auto"
    min_samples_leaf: int = 20
    l2: float = 1.0
    subsample: float = 0.5
    max_features: float = 0.5
    labels: bool = True
    relative: Relative = "auto"
    monotone: Mapping[str, Direction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.trees != "auto":
            require_number("trees", self.trees, whole=True, low=1)
        require_number("lr", self.lr, low=0, high=1, open_low=True)
        if self.leaves != "auto":
            require_number("leaves", self.leaves, whole=True, low=2)
        require_number("min_samples_leaf", self.min_samples_leaf, whole=True, low=1)
        require_number("l2", self.l2, low=0)
        require_number("subsample", self.subsample, low=0, high=1, open_low=True)
        require_number("max_features", self.max_features, low=0, high=1, open_low=True)
        if not isinstance(self.labels, bool):
            raise ConfigError(f"labels must be true or false, got {self.labels!r}.")
        object.__setattr__(self, "relative", as_relative(self.relative))
        object.__setattr__(self, "monotone", as_directions(self.monotone))


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
    obeys_signs = True
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
        directions = directions_of(self.config.monotone, part.schema)
        signs = input_signs(encoder, relative, directions)
        inputs = partial(tree_inputs, encoder, relative, monotone=directions)
        # 2. Choose the size and the number of trees on held-out sets, unless they are given.
        leaves, count = self._size_and_number_of_trees(part, held_out, inputs, signs, run.seed)
        # 3. Grow the trees on all sets.
        sets = TreeSets.of(part, inputs(part), signs)
        grown = islice(grow_trees(sets, replace(self.config, leaves=leaves), run.seed), count)
        trees = UtilityTrees.from_trees(grown, sets.edges)
        return FittedBoosted(encoder=encoder, relative=relative, trees=trees, record=BoostedRecord(trees=count))

    def _size_and_number_of_trees(
        self, part: ChoiceData, valid: ChoiceData | None, inputs: Inputs, signs: Ints, seed: int
    ) -> tuple[int, int]:
        """Return the numbers of leaves and of trees, as given or with the lowest held-out loss."""
        config = self.config
        given = FALLBACK_LEAVES if config.leaves == "auto" else config.leaves
        if config.trees != "auto":
            return given, config.trees
        # 1. Hold out choice sets, and the validation part if there is one.
        held_out = valid if valid is not None and len(valid) else None
        folds = held_out_folds(part, held_out, seed, max_sets=MAX_SEARCHED_SETS)
        if not folds:
            return given, FALLBACK_TREES
        pairs = [(fold.train, reduce(ChoiceData.concat, fold.held_out)) for fold in folds]
        fitted = [TreeSets.of(train, inputs(train), signs) for train, _ in pairs]
        predicted = [
            TreeSets.of(sets, inputs(sets), signs, part.edges) for part, (_, sets) in zip(fitted, pairs, strict=True)
        ]
        weights = [float(sets.weights.sum()) for _, sets in pairs]
        counts: dict[int, int] = {}

        # 2. For a number of leaves, grow the trees of all folds in parallel, and average the held-out losses after each
        #    tree. Stop after PATIENCE trees without a lower loss.
        def best_loss(leaves: int) -> float:
            sized = replace(config, leaves=leaves)
            by_fold = [_losses(*parts, sized, seed) for parts in zip(fitted, predicted, strict=True)]
            losses = (float(np.average(values, weights=weights)) for values in zip(*by_fold, strict=True))
            counts[leaves], loss = best_number_of_steps(losses, largest=MAX_TREES, patience=PATIENCE)
            log.info("%d trees with up to %d leaves: held-out NLL %.4f", counts[leaves], leaves, loss)
            return loss

        # 3. Walk along the numbers of leaves, unless the number is given or the table is small.
        if config.leaves != "auto" or len(part) < MIN_SETS_FOR_LEAVES:
            best_loss(given)
            return given, counts[given]
        tried = walk_ladder(lambda rung: best_loss(LEAVES[rung]), FIRST_LEAVES, len(LEAVES))
        leaves = LEAVES[min(tried, key=tried.__getitem__)]
        return leaves, counts[leaves]

    @property
    def trees_(self) -> UtilityTrees:
        """The trees; the utility of an alternative is the sum of their values."""
        return self._state.trees

    def _inputs(self, data: ChoiceData) -> NDArray[np.float32]:
        directions = directions_of(self.config.monotone, self.schema)
        return tree_inputs(self.encoder_, self.relative_, data, monotone=directions)

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

    def _learnt_options(self) -> dict[str, Any]:
        return {"trees": self.record_.trees, "leaves": max(self.trees_.max_leaves, 2)}

    @property
    def num_parameters(self) -> int:
        """Number of nodes in all trees; each node has one parameter: a threshold in a split, a value in a leaf."""
        return len(self.trees_.feature)

    def summary(self) -> Summary:
        """Return a table of the inputs, sorted by the total gain of the splits that use each input."""
        gain = self.trees_.importance / max(self.trees_.importance.sum(), np.finfo(np.float64).tiny)
        size = f"{self.num_parameters:,} (nodes of all trees)"
        trees = f"{len(self.trees_.roots):,}, with up to {self.trees_.max_leaves} leaves"
        return self._summary(gain.tolist(), {"trees": trees, "parameters": size})

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
    """Choice sets in the form that trees are fitted to: binned inputs, choices and weights."""

    bins: Bins  # (K, N)
    edges: list[Floats]  # upper edges of the bins of each input
    offsets: Ints
    chosen: Ints  # (S,) row of each chosen alternative
    weights: Floats  # (S,) with mean 1
    signs: Ints  # (K,) 1 or -1 if the trees rise or fall with the input, else 0

    @classmethod
    def of(
        cls, data: ChoiceData, x: NDArray[np.float32], signs: Ints | None = None, edges: list[Floats] | None = None
    ) -> TreeSets:
        """Bin the inputs (N, K) of the trees, at given edges or at quantiles, and add the choices and weights."""
        chosen = data.offsets[:-1] + data.require_chosen("fitting")
        edges = bin_edges(x) if edges is None else edges
        signs = np.zeros(x.shape[1], np.int64) if signs is None else signs
        return cls(as_bins(x, edges), edges, data.offsets, chosen, data.weights / data.weights.mean(), signs)

    @property
    def n_rows(self) -> int:
        """Number of alternatives."""
        return int(self.bins.shape[1])

    def loss(self, utilities: Floats) -> float:
        """Return the mean negative log-likelihood for utilities (N,)."""
        return -float(self.weights @ log_softmax_by_set(utilities, self.offsets)[self.chosen]) / len(self.weights)


def grow_trees(sets: TreeSets, config: BoostedConfig, seed: int) -> Iterator[tuple[Tree, Floats]]:
    """Yield an endless sequence of trees, each with the values (nodes,) that it adds to the utilities."""
    assert config.leaves != "auto"
    rng = np.random.default_rng(seed)
    y, w = np.zeros(sets.n_rows), spread(sets.weights, sets.offsets)
    y[sets.chosen] = 1
    utilities: Floats = np.zeros(sets.n_rows)
    n = len(sets.weights)
    varying = np.array([k for k, edges in enumerate(sets.edges) if len(edges)] or [0])  # a constant cannot be split
    n_drawn = max(int(config.max_features * len(varying)), 1)
    while True:
        # 1. Compute the gradient and the diagonal of the Hessian at the current utilities.
        p = np.exp(log_softmax_by_set(utilities, sets.offsets))
        gradient, curvature = w * (y - p), w * np.maximum(p * (1 - p), MIN_CURVATURE)
        # 2. Draw a random part of the choice sets (whole sets, because the softmax is over a set), and the inputs on
        #    which each node may be split.
        selected = np.zeros(n, bool)
        selected[rng.permutation(n)[: max(round(config.subsample * n), 1)]] = True
        use = spread(selected, sets.offsets)
        drawn = rng.permuted(np.tile(varying, (2 * config.leaves - 1, 1)), axis=1)[:, :n_drawn]
        # 3. Grow the tree.
        tree = grow_tree(
            sets.bins,
            np.flatnonzero(use),
            gradient,
            curvature,
            drawn,
            leaves=config.leaves,
            min_rows=config.min_samples_leaf,
            l2=config.l2,
            signs=sets.signs,
        )
        # 4. Compute the values of the leaves, and add them to the utilities of all sets.
        leaf = tree.leaves(sets.bins)
        g, h = (np.bincount(leaf[use], values[use], len(tree.feature)) for values in (gradient, curvature))
        value: Floats = config.lr * g / np.maximum(h + config.l2, MIN_CURVATURE)
        value = np.clip(value, config.lr * tree.low, config.lr * tree.high)
        utilities += value[leaf]
        yield tree, value


def _losses(sets: TreeSets, held_out: TreeSets, config: BoostedConfig, seed: int) -> Iterator[float]:
    """Yield the held-out loss after each tree."""
    utilities: Floats = np.zeros(held_out.n_rows)
    for tree, value in grow_trees(sets, config, seed):
        utilities += value[tree.leaves(held_out.bins)]
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
    def from_trees(cls, trees: Iterable[tuple[Tree, Floats]], edges: Sequence[Floats]) -> UtilityTrees:
        """Concatenate trees, each given with the values (nodes,) of its leaves; ``edges`` are those of the bins."""
        pairs = list(trees)
        parts = [tree for tree, _ in pairs]
        # 1. Concatenate the arrays; children are numbered within their tree, so shift them to global indices.
        starts = np.cumsum([0, *(len(tree.feature) for tree in parts)])
        shift = np.repeat(starts[:-1], np.diff(starts))
        names = ("feature", "cut", "left", "right", "gain")
        feature, cut, left, right, gain = (np.concatenate([getattr(tree, name) for tree in parts]) for name in names)
        # 2. Translate the cuts into thresholds, and clear what a node does not use: leaves only have values.
        split = feature != LEAF
        threshold = np.zeros(len(feature))
        threshold[split] = [edges[k][at] for k, at in zip(feature[split], cut[split], strict=True)]
        return cls(
            roots=starts[:-1].astype(np.int64),
            feature=feature,
            threshold=threshold,
            left=np.where(split, left + shift, LEAF),
            right=np.where(split, right + shift, LEAF),
            value=np.where(split, 0.0, np.concatenate([value for _, value in pairs])),
            importance=np.bincount(feature[split], gain[split], len(edges)).astype(np.float64),
        )

    @property
    def max_leaves(self) -> int:
        """Number of leaves of the largest tree."""
        leaves = np.add.reduceat(self.feature == LEAF, self.roots) if len(self.roots) else np.zeros(1)
        return int(leaves.max())

    def __call__(self, x: NDArray[np.float32]) -> Floats:
        """Return the utilities (N,) of inputs (N, K)."""
        return sum_trees(x, self.roots, self.feature, self.threshold, self.left, self.right, self.value)

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
        for each in fields(self):
            array = getattr(self, each.name)
            kind = np.float64 if each.name in ("threshold", "value", "importance") else np.int64
            if array.shape != shapes.get(each.name, (m,)) or array.dtype != kind or not np.isfinite(array).all():
                return False
        # 2. Check that each node is a leaf, or a split on an input with two later nodes as children.
        leaf = self.feature == LEAF
        split = (self.feature >= 0) & (self.feature < inputs)
        for child in (self.left, self.right):
            split &= (child > at) & (child < m)
        return bool((leaf | split).all() and (self.roots >= 0).all() and (self.roots < m).all())
