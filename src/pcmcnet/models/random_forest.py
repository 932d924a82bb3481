"""Random forest that treats alternatives as independent (Lhéritier et al., 2019).

A classifier predicts for each alternative separately whether it is chosen. The inputs are the individual's columns, the
alternative's features, and relative features x_i / min_j x_j that compare the alternative with the other alternatives
of its set:

    s_i = share of chosen alternatives in the leaf of i        (mean over the trees)
    p_i = (s_i + floor) / sum over the set of (s_j + floor)

The forest does not know that exactly one alternative of a choice set is chosen, so the s_i are scores that rank the
alternatives. The scores are normalised to sum to 1, and reports mark the result as scores. The inputs (N, K) are
computed by ``tree_inputs``.
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
# A skops file is a zip archive with `schema.json` and arrays. A forest of two classes needs two arrays per tree of M
# nodes; everything else follows from these and from the number of inputs:
#
#     nodes   (M,)       children, feature, threshold, ...; the children of a leaf are -1
#     values  (M, 1, 2)  shares of the alternatives in a node that were not chosen, and that were
#
# scikit-learn's compiled code does not check the indices in these arrays. They are therefore checked first: every node
# but the first is the child of exactly one earlier node, and every split uses an existing input. Nothing else is built
# from the file: no other class is created, and no module is imported.

FOREST_FILE = "forest.skops"
MAX_COMPRESSION, MAX_UNPACKED_BYTES = 100, 8 << 30  # of an archive: unpacked bytes per byte of the file, and in total
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CLASSES = 2  # not chosen, chosen
_ROUNDING = 1e-9
_LEAF, _UNUSED = -1, -2  # scikit-learn's values for the children and the feature of a leaf


def write_forest(forest: Any) -> bytes:
    """Return a forest as the bytes of a skops file."""
    try:
        skops_io = import_module("skops.io")
    except ImportError as error:
        raise ArtifactError("saving a forest needs the package skops: run `pip install skops`.") from error
    content: bytes = skops_io.dumps(forest, compression=zipfile.ZIP_DEFLATED)
    _open_archive(content)
    return content


def read_forest(content: bytes, *, inputs: int, trees: int) -> Any:
    """Build a forest from the bytes of a skops file. Raise ArtifactError unless its trees are valid."""
    try:
        archive = _open_archive(content)
        schema = json.loads(_read_entry(archive, "schema.json"))
        if schema["__class__"] != "RandomForestClassifier":
            raise ArtifactError(f"{FOREST_FILE} holds a {schema['__class__']}, expected a RandomForestClassifier.")
        members = _attribute(schema, "estimators_")["content"]
        if len(members) != trees:
            raise ArtifactError(f"{FOREST_FILE} holds {len(members)} trees, expected {trees}: fit the model again.")
        unread = set(archive.namelist())  # each array is read once: one used by many trees would multiply the memory
        return _forest([_tree(_attribute(member, "tree_"), archive, unread, inputs) for member in members], inputs)
    except ArtifactError:
        raise
    except Exception as error:  # damaged archives, JSON and arrays raise many types of errors
        raise ArtifactError(f"{FOREST_FILE} cannot be read ({error}): fit the model again.") from error


def _open_archive(content: bytes) -> zipfile.ZipFile:
    """Open the archive. Raise ArtifactError if the unpacked archive would be too large."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    size = sum(info.file_size for info in archive.infolist())
    if size > min(MAX_COMPRESSION * len(content), MAX_UNPACKED_BYTES):
        raise ArtifactError(
            f"{FOREST_FILE} has {len(content):,} bytes, and {size:,} when unpacked; the limits are {MAX_COMPRESSION} "
            f"times the packed size and {MAX_UNPACKED_BYTES >> 30} GiB. Fit a forest with fewer trees, or with larger "
            f"min_samples_leaf."
        )
    return archive


def _read_entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read one file of the archive, up to its declared size. Raise ValueError if the file is shorter."""
    info = archive.getinfo(name)
    if info.compress_type not in _COMPRESSIONS:
        raise ValueError(f"{name} uses an unsupported compression")
    with archive.open(info) as file:
        content = file.read(info.file_size)
    if len(content) != info.file_size:
        raise ValueError(f"{name} is truncated")
    return content


def _attribute(node: Mapping[str, Any], name: str) -> Any:
    """Return an attribute of an object in a skops schema."""
    return node["content"]["content"][name]


def _tree(node: Mapping[str, Any], archive: zipfile.ZipFile, unread: set[str], inputs: int) -> Any:
    """Build one tree from its two arrays. Raise ArtifactError if the schema contradicts the arrays."""
    from sklearn.tree._tree import NODE_DTYPE, Tree

    # 1. Check the declared number of inputs and outputs.
    arguments = node["__reduce__"]["args"]["content"]  # inputs, classes of each output, outputs
    declared = [json.loads(arguments[k]["content"]) for k in (0, 2)]
    if declared != [inputs, 1]:
        raise ArtifactError(f"{FOREST_FILE} does not match the saved inputs: fit the model again.")
    # 2. Read the nodes and their values.
    arrays: list[NDArray[Any]] = []
    for name in ("nodes", "values"):
        file = _attribute(node, name)["file"]
        unread.remove(file)
        arrays.append(_array(_read_entry(archive, file)))
    saved, values = arrays
    nodes = np.zeros(len(saved), NODE_DTYPE)
    for name in NODE_DTYPE.names:
        nodes[name] = saved[name]
    # 3. Check them, and build scikit-learn's tree.
    depth = _checked_depth(nodes, values, inputs)
    declared = [json.loads(_attribute(node, name)["content"]) for name in ("node_count", "max_depth")]
    if declared != [len(nodes), depth]:
        raise ArtifactError(f"{FOREST_FILE} holds a damaged tree: fit the model again.")
    tree = Tree(inputs, np.array([_CLASSES], np.intp), 1)
    tree.__setstate__({"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": values})
    return tree


def _array(content: bytes) -> NDArray[Any]:
    """Read a NumPy array. Raise ValueError if the array is not numeric or is incomplete."""
    file = io.BytesIO(content)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("an array has an unsupported format")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    rest = content[file.tell() :]
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(rest):
        raise ValueError("an array is not numeric or is incomplete")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C")


def _checked_depth(nodes: NDArray[Any], values: NDArray[Any], inputs: int) -> int:
    """Return the depth of a tree. Raise ArtifactError if the nodes are not a tree or have impossible values."""
    # 1. Check that each node is a leaf or a split on an input, with later nodes as children, and has valid values.
    left, right = nodes["left_child"], nodes["right_child"]
    at = np.arange(len(nodes))
    leaf = (left == _LEAF) & (right == _LEAF)
    split = (left > at) & (left < len(nodes)) & (right > at) & (right < len(nodes))
    split &= (nodes["feature"] >= 0) & (nodes["feature"] < inputs) & np.isfinite(nodes["threshold"])
    is_valid = len(nodes) > 0 and bool((leaf | split).all())
    is_valid = is_valid and values.dtype == np.float64 and values.shape == (len(nodes), 1, _CLASSES)
    is_valid = is_valid and bool((values >= 0).all() and np.allclose(values.sum(-1), 1))
    weight, impurity = nodes["weighted_n_node_samples"], nodes["impurity"]
    is_valid = is_valid and bool(
        (weight > 0).all() and np.isfinite(weight).all() and weight.max() <= weight[0] * (1 + _ROUNDING)
    )
    is_valid = is_valid and bool((np.abs(impurity) <= 1).all())
    # 2. Check that every node but the root is the child of exactly one node.
    if is_valid:
        parent = np.zeros(len(nodes), np.int64)
        children = np.concatenate([left[split], right[split]])
        parent[children] = np.tile(at[split], 2)
        is_valid = np.array_equal(np.sort(children), at[1:])
    if not is_valid:
        raise ArtifactError(f"{FOREST_FILE} holds a damaged tree: fit the model again.")
    nodes["feature"][leaf] = _UNUSED
    # 3. Compute the depth by pointer doubling: ``steps`` is the distance to the ancestor ``parent``.
    steps = (at > 0).astype(np.int64)
    while parent.any():
        steps += steps[parent]
        parent = parent[parent]
    return int(steps.max())


def _forest(trees: list[Any], inputs: int) -> Any:
    """Build scikit-learn's forest from its trees, with the attributes of a fitted forest."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    fitted = {"n_features_in_": inputs, "n_outputs_": 1, "n_classes_": _CLASSES, "classes_": np.arange(_CLASSES)}
    forest = RandomForestClassifier(
        len(trees), n_jobs=1
    )  # with several threads, the order of the sum over trees would vary
    forest.estimators_ = [DecisionTreeClassifier() for _ in trees]
    for member, tree in zip(forest.estimators_, trees, strict=True):
        vars(member).update(fitted, tree_=tree, max_features_=inputs)
    vars(forest).update(fitted)
    return forest


@dataclass(frozen=True, kw_only=True)
class RandomForestConfig:
    """Options of the random forest.

    Parameters
    ----------
    trees
        Number of trees.
    max_depth
        Maximum depth of each tree. If None, the depth is not limited.
    min_samples_leaf
        Minimum number of alternatives in a leaf.
    max_features
        Share of the inputs that each split considers, or "sqrt" for the square root of their number.
    relative
        Features that are also used in relative form, divided by the smallest value of the choice set. "auto" uses all
        numeric features that are positive throughout the training part.
    floor
        Constant added to every score, so that no probability is 0.
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
    """Fitted state of the random forest: the input encoder and the trees."""

    forest: Any  # a RandomForestClassifier


class RandomForest(TreeModel):
    """Random forest that scores each alternative separately and normalises the scores within each choice set.

    Choice sets with a single alternative are not used in training.

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

        # 1. Turn the sets with several alternatives into one case per alternative: chosen or not.
        part = train.subset((train.weights > 0) & (train.sizes > 1))
        if not part.features:
            raise InputError("a random forest needs features to distinguish the alternatives: declare at least one.")
        if not len(part):
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        encoder = Encoder.learn(part)
        relative = relative_names(self.config.relative, part)
        chosen = np.zeros(len(part.rows), np.int8)
        chosen[part.offsets[:-1] + part.require_chosen("fitting")] = 1
        # 2. Fit the forest; each case has the weight of its choice set.
        forest = RandomForestClassifier(
            self.config.trees,
            max_depth=self.config.max_depth,
            min_samples_leaf=self.config.min_samples_leaf,
            max_features=self.config.max_features,
            random_state=int(np.random.default_rng(run.seed).integers(2**32)),
            n_jobs=torch.get_num_threads(),  # each tree has its own seed: the forest does not depend on the threads
        )
        forest.fit(tree_inputs(encoder, relative, part), chosen, sample_weight=spread(part.weights, part.offsets))
        forest.set_params(n_jobs=1)  # with several threads, the order of the sum over trees would vary
        return FittedForest(encoder=encoder, relative=relative, forest=forest)

    @property
    def forest_(self) -> Any:
        """The fitted ``sklearn.ensemble.RandomForestClassifier``."""
        return self._state.forest

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.empty(0)
        scores = self.forest_.predict_proba(self._inputs(data))[:, 1] + self.config.floor
        log_p: Floats = np.log(scores / spread(sum_by_set(scores, data.offsets), data.offsets))
        return log_p

    @property
    def num_parameters(self) -> int:
        """Number of nodes in all trees; each node has one parameter: a threshold in a split, a share in a leaf."""
        return sum(int(tree.tree_.node_count) for tree in self.forest_.estimators_)

    def summary(self) -> Summary:
        """Return a table of the inputs, sorted by importance: the mean decrease in impurity."""
        size = f"{self.num_parameters:,} (nodes of all trees)"
        facts = {"parameters": size, "gives": "scores, normalised to sum to 1 within each set"}
        return self._summary(self.forest_.feature_importances_.tolist(), facts)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        return {**self._inputs_file(), FOREST_FILE: write_forest(self.forest_)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedForest:
        encoder, relative, inputs = read_inputs(files)
        forest = read_forest(files[FOREST_FILE], inputs=inputs, trees=self.config.trees)
        return FittedForest(encoder=encoder, relative=relative, forest=forest)
