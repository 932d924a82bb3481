"""Boosted utilities: trees fitted, one after another, to the gradient of the choice log-likelihood (Friedman, 2001).

    u_i = sum over trees t of  lr f_t(x_i),        p = softmax(u) over the set

x_i are the individual's columns, the alternative's features and label, and relative features x_i / min_j x_j, by which
a set's other alternatives come in. With y_i = 1 for the alternative chosen, each tree takes a Newton step:

    g_i = w (y_i - p_i),  h_i = w p_i (1 - p_i)        gradient and, of the Hessian, the diagonal
    splits     as a regression of g / h with weights h, which has the gain of the second-order expansion
    leaf value sum g / (sum h + l2)

The softmax is over the set, so that exactly one alternative is chosen, unlike in the random forest. Held-out choice
sets say how many trees there are: those of the decay search of networks (``decay_search``), persons kept together.
Then all sets are fitted with so many. Each tree sees some of the sets and, at every split, some of the inputs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial, reduce
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.ragged import log_softmax_by_set, spread
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.forests.tree_inputs import Relative, as_relative, input_names, relative_names, tree_inputs
from pcmcnet.models.forests.utility_trees import TREES, UtilityTrees
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.decay_search import held_out_parts
from pcmcnet.reports.formats import Summary
from pcmcnet.storage.files import json_bytes

log = logging.getLogger("pcmcnet")
See = Callable[[ChoiceData], NDArray[np.float32]]  # what trees see of some sets (N, K)

MOST, PATIENCE = 2_000, 50  # trees, and trees in a row without a better loss of held-out sets, at most
FEW_SETS = 50  # trees where sets are too few to hold some out
LEAST_CURVATURE = 1e-6  # of p (1 - p): where the model is sure, a step would be without bound


@dataclass(frozen=True, kw_only=True, slots=True)
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


class Boosted(ChoiceModel):
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
    encoder_: Encoder
    relative_: tuple[str, ...]
    trees_: UtilityTrees

    @takes(BoostedConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
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
        see = partial(tree_inputs, encoder, relative)
        count = self._count(part, held_out, see, settings.seed)
        grown = islice(grow(TreeSets.of(part, see(part)), self.config, settings.seed), count)
        self.encoder_, self.relative_ = encoder, relative
        self.trees_ = UtilityTrees.joined(grown, len(input_names(encoder, relative)))
        self.training_ = {"trees": count}

    def _count(self, part: ChoiceData, valid: ChoiceData | None, see: See, seed: int) -> int:
        """Return the number of trees: the one given, or the one with the least loss of held-out sets."""
        if self.config.trees != "auto":
            return self.config.trees
        pairs = held_out_parts(part, valid if valid is not None and len(valid) else None, seed)
        if not pairs:
            return FEW_SETS
        joined = [(fitted, reduce(ChoiceData.concat, held)) for fitted, held in pairs]
        seen = [[TreeSets.of(data, see(data)) for data in pair] for pair in joined]
        trials = [_losses(fitted, held, self.config, seed) for fitted, held in seen]
        weights = [float(held.weights.sum()) for _, held in joined]
        losses: list[float] = []
        for found in islice(zip(*trials, strict=True), MOST):
            losses.append(float(np.average(found, weights=weights)))
            if len(losses) - int(np.argmin(losses)) > PATIENCE:
                break
        count = int(np.argmin(losses)) + 1
        log.info("%d trees: held-out NLL %.4f", count, losses[count - 1])
        return count

    def utilities(self, data: ChoiceData) -> Floats:  # -> (N,)
        """Return the utility of each alternative, set after set."""
        _ = self.schema
        return self.trees_(tree_inputs(self.encoder_, self.relative_, data))

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_softmax_by_set(self.utilities(data), data.offsets) if len(data) else np.empty(0)

    @property
    def num_parameters(self) -> int:
        """Number of nodes of all trees: a threshold for each split, a value for each leaf."""
        _ = self.schema
        return len(self.trees_.feature)

    def summary(self) -> Summary:
        """List the inputs by what splits on them gained."""
        _ = self.schema
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            "trained on": "{choice_sets:,} choice sets, {alternatives:,} alternatives".format(**self.training_),
            "trees": f"{len(self.trees_.roots):,}",
            "parameters": f"{self.num_parameters:,} (nodes of all trees)",
        }
        gain = self.trees_.importance / max(self.trees_.importance.sum(), np.finfo(np.float64).tiny)
        named = zip(input_names(self.encoder_, self.relative_), gain.tolist(), strict=True)
        ranked = sorted(named, key=lambda entry: -entry[1])
        return Summary("Boosted", facts, ("input", "importance"), tuple((name, f"{x:.4f}") for name, x in ranked))

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        inputs = {"encoder": self.encoder_.to_dict(), "relative": list(self.relative_)}
        return {"inputs.json": json_bytes(inputs), TREES: self.trees_.to_bytes()}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        inputs = json.loads(files["inputs.json"])
        self.encoder_ = Encoder.from_dict(inputs["encoder"])
        self.relative_ = tuple(map(str, inputs["relative"]))
        self.trees_ = UtilityTrees.from_bytes(files[TREES], len(input_names(self.encoder_, self.relative_)))


@dataclass(frozen=True, eq=False, slots=True)
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


def grow(sets: TreeSets, config: BoostedConfig, seed: int) -> Iterator[tuple[Any, Floats]]:
    """Yield tree after tree, without end, with the values (nodes,) that they add to utilities."""
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(seed)
    y, w = np.zeros(len(sets.x)), spread(sets.weights, sets.offsets)
    y[sets.chosen] = 1
    utilities: Floats = np.zeros(len(sets.x))
    n = len(sets.weights)
    while True:
        p = np.exp(log_softmax_by_set(utilities, sets.offsets))
        gradient, curvature = w * (y - p), w * np.maximum(p * (1 - p), LEAST_CURVATURE)
        drawn = np.zeros(n, bool)
        drawn[rng.permutation(n)[: max(round(config.subsample * n), 1)]] = True
        use = spread(drawn, sets.offsets)
        tree = DecisionTreeRegressor(
            max_leaf_nodes=config.leaves,
            min_samples_leaf=config.min_samples_leaf,
            max_features=config.max_features,
            random_state=int(rng.integers(2**31)),
        )
        tree.fit(sets.x[use], (gradient / curvature)[use], sample_weight=curvature[use])
        leaf = tree.apply(sets.x)
        up, down = (np.bincount(leaf[use], each[use], tree.tree_.node_count) for each in (gradient, curvature))
        value: Floats = config.lr * up / np.maximum(down + config.l2, LEAST_CURVATURE)
        utilities += value[leaf]
        yield tree, value


def _losses(sets: TreeSets, held_out: TreeSets, config: BoostedConfig, seed: int) -> Iterator[float]:
    """Yield the loss of held-out sets after each tree."""
    utilities: Floats = np.zeros(len(held_out.x))
    for tree, value in grow(sets, config, seed):
        utilities += value[tree.apply(held_out.x)]
        yield held_out.loss(utilities)
