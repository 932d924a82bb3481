"""The file of a random forest: written by skops, read as plain data.

A skops file is an archive of ``schema.json`` and of arrays. What a forest of two classes needs of it are two arrays for
each tree of M nodes; the rest follows from them and from the number of inputs:

    nodes   (M,)       children, feature, threshold, ...; the children of a leaf are -1
    values  (M, 1, 2)  shares of the alternatives in a node that were not chosen, and that were

scikit-learn's compiled code follows the indices in them wherever they lead. So they are checked before it sees any:
every node but the first is the child of one node, which stands before it, and every split asks for an input there is.
Nothing else is built from the file: no other class, no module that it names.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pcmcnet.errors import ArtifactError

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
