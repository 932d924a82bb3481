"""Random forest over alternatives as if they were independent (Lhéritier et al., 2019).

A classifier learns from each alternative alone whether it is the chosen one. Its inputs are the individual's columns,
the alternative's features, and relative features x_i / min_j x_j, by which a set's other alternatives come in:

    s_i = share of chosen alternatives, of the leaves that i falls into        (mean over the trees)
    p_i = (s_i + floor) / sum over the set of (s_j + floor)

That exactly one alternative of a set is chosen is unknown to the forest, so its s are scores that rank; made to sum
to 1 they are given as probabilities, and reports mark them. Inputs (N, K) are those of ``tree_inputs``.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.tree_inputs import (
    FittedTrees,
    Relative,
    TreeModel,
    as_relative,
    read_inputs,
    relative_names,
    tree_inputs,
)
from pcmcnet.reports.formats import Summary

# -- The file of a random forest: written by skops, read as plain data -------------------------------------------------
# A skops file is an archive of `schema.json` and of arrays. What a forest of two classes needs of it are two arrays for
# each tree of M nodes; the rest follows from them and from the number of inputs:
#
#     nodes   (M,)       children, feature, threshold, ...; the children of a leaf are -1
#     values  (M, 1, 2)  shares of the alternatives in a node that were not chosen, and that were
#
# scikit-learn's compiled code follows the indices in them wherever they lead. So they are checked before it sees any:
# every node but the first is the child of one node, which stands before it, and every split asks for an input there is.
# Nothing else is built from the file: no other class, no module that it names.

FOREST = "forest.skops"
RATIO, UNPACKED = 100, 8 << 30  # of an archive: bytes for a byte of the file, and in all, at most
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CLASSES = 2  # alternatives that were not chosen, and that were
_ROUNDING = 1e-9
_LEAF, _UNUSED = -1, -2  # what scikit-learn writes in the place of children, and of a feature


def write_forest(forest: Any) -> bytes:
    """Return the content of the file."""
    try:
        skops_io = import_module("skops.io")
    except ImportError as error:
        raise ArtifactError("saved forests are written by skops: run `pip install skops`.") from error
    content: bytes = skops_io.dumps(forest, compression=zipfile.ZIP_DEFLATED)
    _opened(content)
    return content


def read_forest(content: bytes, *, inputs: int, trees: int) -> Any:
    """Build the forest that such a file describes, for so many inputs; refuses one that is not sound."""
    try:
        archive = _opened(content)
        schema = json.loads(_unpacked(archive, "schema.json"))
        if schema["__class__"] != "RandomForestClassifier":
            raise ArtifactError(f"{FOREST} holds a {schema['__class__']}, expected a RandomForestClassifier.")
        members = _entry(schema, "estimators_")["content"]
        if len(members) != trees:
            raise ArtifactError(f"{FOREST} holds {len(members)} trees, expected {trees}: fit the model again.")
        unread = set(archive.namelist())  # an array that stands for many would be many times as large
        return _forest([_tree(_entry(member, "tree_"), archive, unread, inputs) for member in members], inputs)
    except ArtifactError:
        raise
    except Exception as error:  # readers of archives, JSON and arrays raise what they meet
        raise ArtifactError(f"{FOREST} cannot be read ({error}): fit the model again.") from error


def _opened(content: bytes) -> zipfile.ZipFile:
    """Open the archive, unless it would fill the memory."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    size = sum(info.file_size for info in archive.infolist())
    if size > min(RATIO * len(content), UNPACKED):
        raise ArtifactError(
            f"{FOREST} has {len(content):,} bytes and {size:,} once unpacked; at most {RATIO} times as many, and "
            f"{UNPACKED >> 30} GiB, are read. Fit a forest with fewer trees, or with more alternatives in a leaf."
        )
    return archive


def _unpacked(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read one file of the archive, never more than it is said to hold."""
    info = archive.getinfo(name)
    if info.compress_type not in _PACKED:
        raise ValueError(f"{name} is packed in an unknown way")
    with archive.open(info) as file:
        content = file.read(info.file_size)
    if len(content) != info.file_size:
        raise ValueError(f"{name} is cut short")
    return content


def _entry(node: Mapping[str, Any], name: str) -> Any:
    """Return what an object has under a name."""
    return node["content"]["content"][name]


def _tree(node: Mapping[str, Any], archive: zipfile.ZipFile, unread: set[str], inputs: int) -> Any:
    """Build one tree from its two arrays, and see that what else is said of it is true."""
    from sklearn.tree._tree import NODE_DTYPE, Tree

    arguments = node["__reduce__"]["args"]["content"]  # inputs, classes of each output, outputs
    said = [json.loads(arguments[k]["content"]) for k in (0, 2)]
    if said != [inputs, 1]:
        raise ArtifactError(f"{FOREST} does not fit the saved inputs: fit the model again.")
    found: list[NDArray[Any]] = []
    for name in ("nodes", "values"):
        file = _entry(node, name)["file"]
        unread.remove(file)
        found.append(_array(_unpacked(archive, file)))
    saved, values = found
    nodes = np.zeros(len(saved), NODE_DTYPE)
    for name in NODE_DTYPE.names:
        nodes[name] = saved[name]
    depth = _depth(nodes, values, inputs)
    claims = [json.loads(_entry(node, name)["content"]) for name in ("node_count", "max_depth")]
    if claims != [len(nodes), depth]:
        raise ArtifactError(f"{FOREST} holds a damaged tree: fit the model again.")
    tree = Tree(inputs, np.array([_CLASSES], np.intp), 1)
    tree.__setstate__({"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": values})
    return tree


def _array(content: bytes) -> NDArray[Any]:
    """Read an array of numbers that has all its bytes."""
    file = io.BytesIO(content)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("an array of an unknown format")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    rest = content[file.tell() :]
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(rest):
        raise ValueError("an array without all its numbers")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C")


def _depth(nodes: NDArray[Any], values: NDArray[Any], inputs: int) -> int:
    """Return the depth of a tree, or refuse what is none, or has numbers that no forest has learnt."""
    left, right = nodes["left_child"], nodes["right_child"]
    at = np.arange(len(nodes))
    leaf = (left == _LEAF) & (right == _LEAF)
    split = (left > at) & (left < len(nodes)) & (right > at) & (right < len(nodes))
    split &= (nodes["feature"] >= 0) & (nodes["feature"] < inputs) & np.isfinite(nodes["threshold"])
    sound = len(nodes) > 0 and bool((leaf | split).all())
    sound = sound and values.dtype == np.float64 and values.shape == (len(nodes), 1, _CLASSES)
    sound = sound and bool((values >= 0).all() and np.allclose(values.sum(-1), 1))
    weight, impurity = nodes["weighted_n_node_samples"], nodes["impurity"]
    sound = sound and bool(
        (weight > 0).all() and np.isfinite(weight).all() and weight.max() <= weight[0] * (1 + _ROUNDING)
    )
    sound = sound and bool((np.abs(impurity) <= 1).all())
    if sound:
        parent = np.zeros(len(nodes), np.int64)
        children = np.concatenate([left[split], right[split]])
        parent[children] = np.tile(at[split], 2)
        sound = np.array_equal(np.sort(children), at[1:])
    if not sound:
        raise ArtifactError(f"{FOREST} holds a damaged tree: fit the model again.")
    nodes["feature"][leaf] = _UNUSED
    steps = (at > 0).astype(np.int64)  # up to the ancestor that is looked at
    while parent.any():
        steps += steps[parent]
        parent = parent[parent]
    return int(steps.max())


def _forest(trees: list[Any], inputs: int) -> Any:
    """Put trees together, with what scikit-learn asks of a fitted forest."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    fitted = {"n_features_in_": inputs, "n_outputs_": 1, "n_classes_": _CLASSES, "classes_": np.arange(_CLASSES)}
    forest = RandomForestClassifier(len(trees), n_jobs=1)  # sums over trees would depend on which is ready first
    forest.estimators_ = [DecisionTreeClassifier() for _ in trees]
    for member, tree in zip(forest.estimators_, trees, strict=True):
        vars(member).update(fitted, tree_=tree, max_features_=inputs)
    vars(forest).update(fitted)
    return forest


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
class FittedForest(FittedTrees):
    """How tables become inputs, and the forest."""

    forest: Any  # scikit-learn's


class RandomForest(TreeModel):
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
    _state: FittedForest

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
    def forest_(self) -> Any:
        """scikit-learn's forest."""
        return self._state.forest

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.empty(0)
        scores = self.forest_.predict_proba(self._inputs(data))[:, 1] + self.config.floor
        log_p: Floats = np.log(scores / spread(sum_by_set(scores, data.offsets), data.offsets))
        return log_p

    @property
    def num_parameters(self) -> int:
        """Number of nodes of all trees: a threshold for each split, a share for each leaf."""
        return sum(int(tree.tree_.node_count) for tree in self.forest_.estimators_)

    def summary(self) -> Summary:
        """List the inputs by their importance: the mean decrease in impurity that splits on them bring."""
        size = f"{self.num_parameters:,} (nodes of all trees)"
        facts = {"parameters": size, "gives": "scores, made to sum to 1 within each set"}
        return self._summary(self.forest_.feature_importances_.tolist(), facts)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        return {**self._inputs_file(), FOREST: write_forest(self.forest_)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedForest:
        encoder, relative, inputs = read_inputs(files)
        forest = read_forest(files[FOREST], inputs=inputs, trees=self.config.trees)
        return FittedForest(encoder=encoder, relative=relative, forest=forest)
