"""Alternatives identified by their labels: the items of a universe, and the distinct sets of items with their counts.

An item-indexed model has parameters for each item, or each pair of items, of the training part. Such a model treats a
choice set only as a set S of items. Choice sets with the same items are therefore merged into one distinct set, and the
choices of each item are counted:

    C_iS = total weight of the choice sets with items S in which i was chosen,

The cost of computing the likelihood grows with the number D of distinct sets. The distinct sets are ragged: their items
are stored one set after another in flat arrays of length M, and ``offsets`` (D + 1,) marks where each set begins. An
element of these arrays, an item of a distinct set, is called an entry.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.batches import plan_batches
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.data.columns.ragged import spread
from pcmcnet.errors import ArtifactError, InputError, SchemaError, did_you_mean

PAIR_BUDGET = 200_000  # ordered pairs per padded batch; bounds the memory
MAX_NAMED_ITEMS = 5  # items listed in an error message


@dataclass(frozen=True)
class Universe:
    """Items of the training part, sorted by name."""

    items: tuple[str, ...]

    @classmethod
    def learn(cls, data: ChoiceData) -> Universe:
        """Learn the items: the labels of the training part."""
        labels = require_labels(data)
        return cls(tuple(sorted(labels.categories[k] for k in np.unique(labels.codes))))

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.items)

    def index(self, data: ChoiceData) -> Ints:
        """Return the item of each alternative (N,). Raise InputError for a label that is not in the training part."""
        labels = require_labels(data)
        place = {item: k for k, item in enumerate(self.items)}
        table = np.array([place.get(c, -1) for c in labels.categories], np.int64)
        items: Ints = table[labels.codes] if len(labels) else np.empty(0, np.int64)
        if (items < 0).any():
            self._raise_unseen(data, labels, np.flatnonzero(items < 0))
        return items

    def _raise_unseen(self, data: ChoiceData, labels: Categorical, unseen: Ints) -> None:
        """Raise InputError with the first unseen item, its choice set, and the number of unseen items."""
        names, sets = labels.plain()[unseen], data.set_of_alternative[unseen]
        raise InputError(
            f"item {names[0]!r} (choice set {data.set_ids[sets[0]]!s}) is not among the {len(self.items)} items of "
            f"the training data; {len(unseen)} such alternatives in {len(np.unique(sets))} choice sets, "
            f"{len(set(names))} distinct items. The model has no parameters for new items: train on a table "
            f"that includes them, or use PCMC-Net (pcmcnet), which predicts from features."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the items as JSON values."""
        return {"items": list(self.items)}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Universe:
        """Build the universe from the output of :meth:`to_dict`."""
        items = tuple(entries["items"])
        if not items or len(set(items)) != len(items) or not all(isinstance(item, str) for item in items):
            raise ArtifactError("the saved items are not distinct names: save the model again.")
        return cls(items)


def read_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """Read the arrays of a saved model of items."""
    try:
        arrays: dict[str, NDArray[Any]] = load_arrays(content)
    except SafetensorError as error:
        raise ArtifactError(f"the saved weights cannot be read ({error}): save the model again.") from error
    return arrays


def require_shapes(arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Raise ArtifactError if a saved array is not finite, or its shape does not match the saved ``what``."""
    for name, shape in shapes.items():
        if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
            raise ArtifactError(f"the saved array {name} does not match the saved {what}: save the model again.")


def require_labels(data: ChoiceData) -> Categorical:
    """Return the labels of the alternatives. Raise InputError if the table has no labels."""
    if data.labels is None:
        raise InputError(
            "this model identifies alternatives by their labels, but the table was read without labels: declare "
            "alternative=<column> (--alternative), or use PCMC-Net (pcmcnet), which predicts from features."
        )
    return data.labels


def require_informative_sets(data: ChoiceData) -> ChoiceData:
    """Return the choice sets with positive weight. Raise InputError if none has several alternatives."""
    part = data.subset(data.weights > 0)
    if (part.sizes < 2).all():
        raise InputError("every choice set has a single alternative: there is nothing to learn.")
    return part


def first_item_names(items: Sequence[str], index: Ints) -> str:
    """Return the names of the first few items in ``index`` as one string."""
    names = ", ".join(repr(items[int(k)]) for k in index[:MAX_NAMED_ITEMS])
    return names + (f" and {len(index) - MAX_NAMED_ITEMS} more" if len(index) > MAX_NAMED_ITEMS else "")


@dataclass(frozen=True)
class DistinctSets:
    """The distinct sets of items that occur in some choice sets, with the counts of the choices.

    Attributes
    ----------
    items
        Items (M,) of the distinct sets, in ascending order within a set.
    offsets
        Index (D + 1,) of the first entry of each distinct set, with M at the end.
    counts
        Total weight of the choices of each entry (M,), or 0 if the choices are unknown.
    entry
        Index of each alternative's entry (N,).
    copies
        Number of alternatives of the same choice set with the same item (N,). The number is above 1 only if several
        alternatives of a set are in the same cell of a grid.
    """

    items: Ints
    offsets: Ints
    counts: Floats
    entry: Ints
    copies: Ints

    @classmethod
    def of(cls, data: ChoiceData, index: Ints) -> DistinctSets:
        """Build the distinct sets of choice data, given the item ``index`` (N,) of each alternative."""
        return cls.of_items(index, data.offsets, data.chosen, data.weights)

    @classmethod
    def of_items(cls, index: Ints, starts: Ints, chosen: Ints | None, weights: Floats) -> DistinctSets:
        """Build the distinct sets of flat items (N,), given the ``starts`` (S + 1,) of the choice sets."""
        # 1. Sort the items of each choice set, and merge copies of an item.
        of_set = np.repeat(np.arange(len(starts) - 1), np.diff(starts))  # (N,)
        order = np.lexsort((index, of_set))
        pairs = np.stack([of_set, index])[:, order]
        new = np.ones(len(order), bool)
        new[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(0)
        merged = np.empty(len(order), np.int64)  # (N,) number of each alternative's pair of choice set and item
        merged[order] = np.cumsum(new) - 1
        # 2. Merge choice sets with the same items.
        sets, items = pairs[:, new]
        distinct_items, offsets, entry_of_pair = _number_sets(items, np.bincount(sets, minlength=len(starts) - 1))
        entry = entry_of_pair[merged]
        # 3. Sum the weights of the choices of each entry.
        counts = np.zeros(len(distinct_items))
        if chosen is not None:
            picked = entry[starts[:-1] + chosen]
            counts = np.bincount(picked, weights=weights, minlength=len(counts)).astype(np.float64)
        return cls(distinct_items, offsets, counts, entry, np.bincount(merged, minlength=len(items))[merged])

    @property
    def sizes(self) -> Ints:
        """Number of items of each distinct set, (D,)."""
        return np.diff(self.offsets)

    def smoothed(self, alpha: float) -> DistinctSets:
        """Return a copy with ``alpha`` added to every count."""
        return replace(self, counts=self.counts + alpha)

    def pairs(self) -> tuple[Ints, Ints]:
        """Return all ordered pairs of different entries of the same set, as two index arrays."""
        size = spread(self.sizes, self.offsets)
        left = np.repeat(np.arange(len(self.items)), size)
        first = np.cumsum(size) - size  # where the pairs of an entry begin
        right = np.arange(len(left)) - np.repeat(first - spread(self.offsets[:-1], self.offsets), size)
        apart = left != right
        return left[apart], right[apart]

    def batches(self) -> Iterator[PaddedSets]:
        """Yield all distinct sets in padded batches."""
        for flat, mask in padded_batches(self.offsets):
            counts = np.where(mask, self.counts[flat], 0.0)
            yield PaddedSets(torch.from_numpy(self.items[flat]), torch.from_numpy(mask), torch.from_numpy(counts), flat)

    def to_alternatives(self, log_p: Floats) -> Floats:
        """Convert log-probabilities of entries (M,) to alternatives (N,). Copies of an item share its probability."""
        shared: Floats = log_p[self.entry] - np.log(self.copies)
        return shared


class PaddedSets(NamedTuple):
    """B distinct sets padded to J items."""

    items: Tensor  # (B, J) int64
    mask: Tensor  # (B, J) True for items, False for the padding at the end
    counts: Tensor  # (B, J) float64, 0 for padding
    flat: Ints  # (B, J) entries


def padded_batches(offsets: Ints, pair_budget: int = PAIR_BUDGET) -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
    """Yield batches of sets of similar size, as flat indices (B, J) and masks (B, J).

    Padding repeats the first index of a set.
    """
    sizes = np.diff(offsets)
    for sets in plan_batches(sizes, batch_size=max(len(sizes), 1), pair_budget=pair_budget):
        column = np.arange(sizes[sets].max())
        mask = column < sizes[sets][:, None]
        yield offsets[sets][:, None] + np.where(mask, column, 0), mask


def _number_sets(items: Ints, sizes: Ints) -> tuple[Ints, Ints, Ints]:
    """Merge equal sets of sorted items. Return the items and offsets of distinct sets, and the entry of each item."""
    starts = np.cumsum(sizes) - sizes
    entry = np.empty(len(items), np.int64)
    blocks, lengths, done = [np.empty(0, np.int64)], [np.zeros(1, np.int64)], 0
    for n in np.unique(sizes):  # sets of one size form a matrix, whose distinct rows are numbered
        cells = starts[sizes == n][:, None] + np.arange(n)
        rows, number = np.unique(items[cells], axis=0, return_inverse=True)
        entry[cells] = done + number.reshape(-1, 1) * n + np.arange(n)
        blocks.append(rows.ravel())
        lengths.append(np.full(len(rows), n))
        done += rows.size
    return np.concatenate(blocks), np.cumsum(np.concatenate(lengths)), entry


# -- Numeric features -> items: each feature is cut into bins and every cell of the grid is an item --------------------
# For tables without recurring labels. The bins of a feature have equal width between the smallest and
# the largest training value of the binned alternatives; values outside this range belong to the outermost bins.
# Alternatives with an *identified* label are items by themselves. The items are the identified labels in the given
# order, then the cells in row-major order.
#
# The paper's first experiment cuts both attributes of the third alternative into 8 bins and identifies the other two: 8
# x 8 + 2 = 66 items. Two alternatives of a set in the same cell are copies of one item.


@dataclass(frozen=True)
class Grid:
    """Grid of binned features, given by the inner edges of the bins, and the labels that are separate items.

    A feature with k bins has k - 1 inner edges. A value equal to an edge belongs to the bin above it.
    """

    edges: Mapping[str, tuple[float, ...]]
    identified: tuple[str, ...] = ()

    @classmethod
    def learn(cls, data: ChoiceData, bins: Mapping[str, int], identified: tuple[str, ...] = ()) -> Grid:
        """Learn the edges from the alternatives of the training part that have no identified label."""
        # 1. Find the alternatives to bin: those without an identified label.
        labelled = _labelled(data, identified)
        for label, rows in zip(identified, labelled, strict=True):
            if not rows.any():
                hint = did_you_mean(label, np.unique(require_labels(data).plain()).tolist())
                raise InputError(f"identified: no alternative in the training data is labelled {label!r}.{hint}")
        rest = ~labelled.any(0)
        if not rest.any():
            raise InputError("identified includes every alternative in the training data, so none is left to bin.")
        # 2. Cut the range of each feature into bins of equal width.
        edges = {}
        for name, k in bins.items():
            values = _numeric_values(data, name)[rest]
            low, high = float(values.min()), float(values.max())
            if low == high:
                raise InputError(f"bins: feature {name!r} has the single value {low:g} in training: leave it out.")
            edges[name] = tuple(np.linspace(low, high, k + 1)[1:-1].tolist())
        return cls(edges, tuple(identified))

    @property
    def size(self) -> int:
        """Number of items. A grid read from a damaged file may have more items than fit into memory."""
        return len(self.identified) + math.prod(len(edges) + 1 for edges in self.edges.values())

    @property
    def items(self) -> tuple[str, ...]:
        """Names of the items."""
        sides = [[f"{name} {_interval(edges, k)}" for k in range(len(edges) + 1)] for name, edges in self.edges.items()]
        return (*self.identified, *(", ".join(cell) for cell in itertools.product(*sides)))

    def index(self, data: ChoiceData) -> Ints:
        """Return the item of each alternative (N,)."""
        cell = np.zeros(len(data.rows), np.int64)
        for name, edges in self.edges.items():
            cell = cell * (len(edges) + 1) + np.searchsorted(np.array(edges), _numeric_values(data, name), side="right")
        cell += len(self.identified)
        for k, rows in enumerate(_labelled(data, self.identified)):
            cell[rows] = k
        return cell

    def to_dict(self) -> dict[str, Any]:
        """Return the edges and the identified labels as JSON values."""
        return {"edges": {name: list(e) for name, e in self.edges.items()}, "identified": list(self.identified)}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Grid:
        """Build the grid from the output of :meth:`to_dict`."""
        edges = {name: tuple(float(e) for e in values) for name, values in entries["edges"].items()}
        for name, values in edges.items():
            if not all(map(math.isfinite, values)) or list(values) != sorted(values):
                raise ArtifactError(f"the saved bin edges of {name!r} are not ascending numbers: save the model again.")
        return cls(edges, tuple(map(str, entries["identified"])))


def _labelled(data: ChoiceData, labels: tuple[str, ...]) -> NDArray[np.bool_]:  # -> (labels, N)
    """Return a mask of alternatives per label. Unless ``labels`` is empty, a table without labels raises InputError."""
    if not labels:
        return np.zeros((0, len(data.rows)), bool)
    column = require_labels(data)
    place = {category: k for k, category in enumerate(column.categories)}
    return np.stack([column.codes == place.get(label, -1) for label in labels])


def _numeric_values(data: ChoiceData, name: str) -> NDArray[np.float64]:
    """Return the values (N,) of a numeric feature. Raise SchemaError if values are missing."""
    if name not in data.features:
        raise SchemaError(f"bins: the table has no feature {name!r}." + did_you_mean(name, data.features))
    column = data.features[name]
    if not isinstance(column, Numeric):
        raise SchemaError(f"bins: expected a numeric feature, got {name!r}, which is categorical.")
    values = column.values.astype(np.float64)
    missing = np.flatnonzero(np.isnan(values))
    if missing.size:
        first = data.set_ids[data.set_of_alternative[missing[0]]]
        raise SchemaError(
            f"bins: feature {name!r} has {missing.size} missing values (first in choice set {first!s}), which belong "
            f"to no bin: fill them in."
        )
    return values


def _interval(edges: tuple[float, ...], k: int) -> str:
    """Format the k-th bin as an interval."""
    low = f"[{edges[k - 1]:.4g}" if k else "(-inf"
    high = f"{edges[k]:.4g})" if k < len(edges) else "inf)"
    return f"{low}, {high}"
