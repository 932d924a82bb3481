"""Random forest over alternatives as if they were independent (Lhéritier et al., 2019).

A classifier learns from each alternative alone whether it is the chosen one. Its inputs are the individual's columns,
the alternative's features, and relative features x_i / min_j x_j, by which a set's other alternatives come in:

    s_i = share of chosen alternatives, of the leaves that i falls into        (mean over the trees)
    p_i = (s_i + floor) / sum over the set of (s_j + floor)

That exactly one alternative of a set is chosen is unknown to the forest, so its s are scores that rank; made to sum
to 1 they are given as probabilities, and reports mark them. Inputs (N, K) are those of ``tree_inputs``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.ragged import spread, sum_by_set
from pcmcnet.errors import InputError
from pcmcnet.models.forests.tree_inputs import Relative, as_relative, input_names, relative_names, tree_inputs
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.fit_settings import FitRun
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.saving.forest_file import FOREST, read_forest, write_forest
from pcmcnet.reports.formats import Summary
from pcmcnet.storage.files import json_bytes


@dataclass(frozen=True, kw_only=True)
class RandomForestConfig:
    """Options of the forest.

    Parameters
    ----------
    trees
        Number of trees.
    max_depth
        Of each tree; none for no limit.
    min_samples_leaf
        Alternatives in a leaf, at least.
    max_features
        Share of the inputs tried at each split, or "sqrt" for the square root of their number.
    relative
        Features that also enter relative to the smallest value of the set; "auto" for all numeric ones that are
        positive throughout the training part.
    floor
        Added to every score, so that none is 0.
    """

    trees: int = 200
    max_depth: int | None = None
    min_samples_leaf: int = 10
    max_features: float | Literal["sqrt"] = "sqrt"
    relative: Relative = "auto"
    floor: float = 1e-4

    def __post_init__(self) -> None:
        require_number("trees", self.trees, whole=True, low=1)
        if self.max_depth is not None:
            require_number("max_depth", self.max_depth, whole=True, low=1)
        require_number("min_samples_leaf", self.min_samples_leaf, whole=True, low=1)
        if isinstance(self.max_features, str):
            require_word("max_features", self.max_features, ("sqrt",))
        else:
            require_number("max_features", self.max_features, low=0, high=1, open_low=True)
        require_number("floor", self.floor, low=0, open_low=True)
        object.__setattr__(self, "relative", as_relative(self.relative))


@dataclass(frozen=True, kw_only=True)
class FittedForest(FittedState):
    """How tables become inputs, and the forest."""

    encoder: Encoder
    relative: tuple[str, ...]
    forest: Any  # scikit-learn's


class RandomForest(ChoiceModel):
    """Scores of a random forest that looks at one alternative at a time, normalised within the set.

    Options are those of :class:`RandomForestConfig`; an unknown one is refused. Sets of one alternative take no
    part in training: there the choice says nothing.

    Examples
    --------
    >>> RandomForest(trees=50, relative=["price"]).config.relative
    ('price',)
    """

    name = "rf"
    config_class = RandomForestConfig
    gives = "scores"
    config: RandomForestConfig

    @takes(RandomForestConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedForest:
        from sklearn.ensemble import RandomForestClassifier

        # 1. The sets that offer a choice, as one case per alternative: chosen or not.
        part = train.subset((train.weights > 0) & (train.sizes > 1))
        if not part.features:
            raise InputError("a forest tells alternatives apart by their features: declare at least one in features.")
        if not len(part):
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        encoder = Encoder.learn(part)
        relative = relative_names(self.config.relative, part)
        chosen = np.zeros(len(part.rows), np.int8)
        chosen[part.offsets[:-1] + part.require_chosen("fitting")] = 1
        # 2. The forest; each case has the weight of its set.
        forest = RandomForestClassifier(
            self.config.trees,
            max_depth=self.config.max_depth,
            min_samples_leaf=self.config.min_samples_leaf,
            max_features=self.config.max_features,
            random_state=int(np.random.default_rng(run.seed).integers(2**32)),
            n_jobs=torch.get_num_threads(),  # trees have seeds of their own: the forest is the same
        )
        forest.fit(tree_inputs(encoder, relative, part), chosen, sample_weight=spread(part.weights, part.offsets))
        forest.set_params(n_jobs=1)  # sums over trees would depend on which is ready first
        return FittedForest(encoder=encoder, relative=relative, forest=forest)

    @property
    def _state(self) -> FittedForest:
        return self._state_as(FittedForest)

    @property
    def encoder_(self) -> Encoder:
        """How columns become numbers."""
        return self._state.encoder

    @property
    def relative_(self) -> tuple[str, ...]:
        """The features that also enter relative to the least of the set."""
        return self._state.relative

    @property
    def forest_(self) -> Any:
        """scikit-learn's forest."""
        return self._state.forest

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.empty(0)
        inputs = tree_inputs(self.encoder_, self.relative_, data)
        scores = self.forest_.predict_proba(inputs)[:, 1] + self.config.floor
        log_p: Floats = np.log(scores / spread(sum_by_set(scores, data.offsets), data.offsets))
        return log_p

    @property
    def num_parameters(self) -> int:
        """Number of nodes of all trees: a threshold for each split, a share for each leaf."""
        return sum(int(tree.tree_.node_count) for tree in self.forest_.estimators_)

    def summary(self) -> Summary:
        """List the inputs by their importance: the mean decrease in impurity that splits on them bring."""
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            "trained on": f"{self.table_.choice_sets:,} choice sets, {self.table_.alternatives:,} alternatives",
            "parameters": f"{self.num_parameters:,} (nodes of all trees)",
            "gives": "scores, made to sum to 1 within each set",
        }
        importances = dict(zip(input_names(self.encoder_, self.relative_), self._importances(), strict=True))
        ranked = sorted(importances.items(), key=lambda entry: -entry[1])
        rows = tuple((name, f"{value:.4f}") for name, value in ranked)
        return Summary("RandomForest", facts, ("input", "importance"), rows)

    def _importances(self) -> list[float]:
        return [float(value) for value in self.forest_.feature_importances_]

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        inputs = {"encoder": self.encoder_.to_dict(), "relative": list(self.relative_)}
        return {"inputs.json": json_bytes(inputs), FOREST: write_forest(self.forest_)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedForest:
        inputs = json.loads(files["inputs.json"])
        encoder, relative = Encoder.from_dict(inputs["encoder"]), tuple(map(str, inputs["relative"]))
        width = len(input_names(encoder, relative))
        forest = read_forest(files[FOREST], inputs=width, trees=self.config.trees)
        return FittedForest(encoder=encoder, relative=relative, forest=forest)
