"""Regression trees as flat arrays, which sum to a utility: no classes to be built from a file, nothing to execute.

The M nodes of all trees stand one after another. A split sends x to ``left`` where x[feature] <= threshold, else to
``right``; both stand behind it. A leaf has feature -1 and a value. Shapes: inputs (N, K) -> utilities (N,).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import ArtifactError

TREES = "trees.safetensors"
_LEAF = -1


@dataclass(frozen=True, eq=False, slots=True)
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
        found = [tree.tree_ for tree, _ in trees]
        begins = np.cumsum([0, *(tree.node_count for tree in found)])
        shift = np.repeat(begins[:-1], np.diff(begins))
        none: tuple[Any, ...] = (np.empty(0),)
        left, right, feature, threshold = (
            np.concatenate([*(getattr(tree, name) for tree in found), *none])
            for name in ("children_left", "children_right", "feature", "threshold")
        )
        leaf = left == _LEAF
        return cls(
            roots=begins[:-1].astype(np.int64),
            feature=np.where(leaf, _LEAF, feature).astype(np.int64),
            threshold=np.where(leaf, 0.0, threshold),
            left=np.where(leaf, _LEAF, left + shift).astype(np.int64),
            right=np.where(leaf, _LEAF, right + shift).astype(np.int64),
            value=np.where(leaf, np.concatenate([*(value for _, value in trees), *none]), 0.0),
            importance=sum((tree.compute_feature_importances(normalize=False) for tree in found), np.zeros(inputs)),
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
        m, at = len(self.feature), np.arange(len(self.feature))
        shapes: Mapping[str, tuple[int, ...]] = {"roots": (self.roots.size,), "importance": (inputs,)}
        for field in fields(self):
            array = getattr(self, field.name)
            kind = np.float64 if field.name in ("threshold", "value", "importance") else np.int64
            if array.shape != shapes.get(field.name, (m,)) or array.dtype != kind or not np.isfinite(array).all():
                return False
        leaf = self.feature == _LEAF
        split = (self.feature >= 0) & (self.feature < inputs)
        for child in (self.left, self.right):
            split &= (child > at) & (child < m)
        return bool((leaf | split).all() and (self.roots >= 0).all() and (self.roots < m).all())
