"""Alternatives known by their labels: the items of a universe, and the distinct sets of items with their choices.

An item-indexed model has parameters for each item, or each pair of items, of the training part. It sees a choice set
S as a set of items alone, so that sets with equal items are one case with counts

    C_iS = total weight of the choice sets with items S in which i was chosen,

and a likelihood costs as much as there are distinct sets. The distinct sets are ragged: the items of all of them lie
in flat arrays of length M, set after set, and ``offsets`` (D + 1,) says where each begins.
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

PAIR_BUDGET = 200_000  # ordered pairs of a padded batch; bounds the memory
SHOWN = 5  # items that a message names


@dataclass(frozen=True)
class Universe:
    """The items of the training part, by name in sorted order; item k has index k."""

    items: tuple[str, ...]

    @classmethod
    def learn(cls, data: ChoiceData) -> Universe:
        """Take the labels of the training part as items."""
        labels = require_labels(data)
        return cls(tuple(sorted(labels.categories[k] for k in np.unique(labels.codes))))

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.items)

    def index(self, data: ChoiceData) -> Ints:
        """(N,) item of each alternative; one that training did not have is refused."""
        labels = require_labels(data)
        place = {item: k for k, item in enumerate(self.items)}
        table = np.array([place.get(c, -1) for c in labels.categories], np.int64)
        items: Ints = table[labels.codes] if len(labels) else np.empty(0, np.int64)
        if (items < 0).any():
            self._refuse(data, labels, np.flatnonzero(items < 0))
        return items

    def _refuse(self, data: ChoiceData, labels: Categorical, unseen: Ints) -> None:
        """Name the first unseen item, its set and how many there are."""
        names, sets = labels.plain()[unseen], data.set_of_alternative[unseen]
        raise InputError(
            f"item {names[0]!r} (choice set {data.set_ids[sets[0]]!s}) is not among the {len(self.items)} items of "
            f"the training part; {len(unseen)} such alternatives in {len(np.unique(sets))} choice sets, "
            f"{len(set(names))} distinct items. A model of items has no parameters for new ones: train on a table that "
            f"holds them, or use PCMC-Net (pcmcnet), which needs features instead of identities."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"items": list(self.items)}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Universe:
        """Build from what :meth:`to_dict` returned."""
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
    """Refuse saved arrays that are not finite, or whose shapes are not those that ``what`` asks for."""
    for name, shape in shapes.items():
        if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
            raise ArtifactError(f"the saved {name} do not fit the saved {what}: save the model again.")


def require_labels(data: ChoiceData) -> Categorical:
    """Return the labels of the alternatives, or say how to get them."""
    if data.labels is None:
        raise InputError(
            "a model of items tells alternatives apart by their labels, and the table was read without any: declare "
            "alternative=<column> (--alternative), or use PCMC-Net (pcmcnet), which needs features instead."
        )
    return data.labels


def require_informative_sets(data: ChoiceData) -> ChoiceData:
    """Take the choice sets that have a weight, of which some must offer a choice."""
    part = data.subset(data.weights > 0)
    if (part.sizes < 2).all():
        raise InputError("every choice set has a single alternative: there is nothing to learn.")
    return part


def some_names(items: Sequence[str], index: Ints) -> str:
    """Name the first few of some items."""
    named = ", ".join(repr(items[int(k)]) for k in index[:SHOWN])
    return named + (f" and {len(index) - SHOWN} more" if len(index) > SHOWN else "")


@dataclass(frozen=True)
class DistinctSets:
    """The distinct sets of items among some choice sets, each with its counts.

    Attributes
    ----------
    items, offsets
        (M,) items of the distinct sets, ascending within a set; (D + 1,) where each set begins.
    counts
        (M,) total weight of the choices of an item from a set; 0 where the choices are unknown.
    place, copies
        (N,) where the item of each alternative is among the M, and how many alternatives of its choice set are
        that item: more than one only where several fall into one cell of a grid.
    """

    items: Ints
    offsets: Ints
    counts: Floats
    place: Ints
    copies: Ints

    @classmethod
    def of(cls, data: ChoiceData, index: Ints) -> DistinctSets:
        """Collect the distinct sets; ``index`` (N,) is the item of each alternative."""
        return cls.of_items(index, data.offsets, data.chosen, data.weights)

    @classmethod
    def of_items(cls, index: Ints, starts: Ints, chosen: Ints | None, weights: Floats) -> DistinctSets:
        """Collect the distinct sets among flat items; ``starts`` (S + 1,) says where each choice set begins."""
        # 1. Sort the items of each choice set; copies of an item in a set are one entry.
        of_set = np.repeat(np.arange(len(starts) - 1), np.diff(starts))  # (N,)
        order = np.lexsort((index, of_set))
        pairs = np.stack([of_set, index])[:, order]
        new = np.ones(len(order), bool)
        new[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(0)
        entry = np.empty(len(order), np.int64)  # (N,) the entry, set and item, of each alternative
        entry[order] = np.cumsum(new) - 1
        # 2. Choice sets with equal entries are one distinct set.
        sets, items = pairs[:, new]
        numbers, offsets, place = _number_sets(items, np.bincount(sets, minlength=len(starts) - 1))
        flat = place[entry]
        # 3. Count the choices of each item from each distinct set, by weight.
        counts = np.zeros(len(numbers))
        if chosen is not None:
            picked = flat[starts[:-1] + chosen]
            counts = np.bincount(picked, weights=weights, minlength=len(numbers)).astype(np.float64)
        return cls(numbers, offsets, counts, flat, np.bincount(entry, minlength=len(items))[entry])

    @property
    def sizes(self) -> Ints:
        """(D,) number of items of each distinct set."""
        return np.diff(self.offsets)

    def smoothed(self, alpha: float) -> DistinctSets:
        """Add ``alpha`` choices of every item of every distinct set."""
        return replace(self, counts=self.counts + alpha)

    def pairs(self) -> tuple[Ints, Ints]:
        """Return the ordered pairs of different entries (of the M) that share a set."""
        size = spread(self.sizes, self.offsets)
        left = np.repeat(np.arange(len(self.items)), size)
        first = np.cumsum(size) - size  # where the pairs of an entry begin
        right = np.arange(len(left)) - np.repeat(first - spread(self.offsets[:-1], self.offsets), size)
        apart = left != right
        return left[apart], right[apart]

    def batches(self) -> Iterator[PaddedSets]:
        """Go through all distinct sets in padded batches."""
        for flat, mask in padded_batches(self.offsets):
            counts = np.where(mask, self.counts[flat], 0.0)
            yield PaddedSets(torch.from_numpy(self.items[flat]), torch.from_numpy(mask), torch.from_numpy(counts), flat)

    def to_alternatives(self, log_p: Floats) -> Floats:
        """(M,) log-probabilities of items -> (N,) of alternatives: copies share their item's equally."""
        shared: Floats = log_p[self.place] - np.log(self.copies)
        return shared


class PaddedSets(NamedTuple):
    """B distinct sets padded to J items."""

    items: Tensor  # (B, J) int64
    mask: Tensor  # (B, J) True for real items, which come first
    counts: Tensor  # (B, J) float64, 0 for padding
    flat: Ints  # (B, J) places of the items in the flat arrays


def padded_batches(offsets: Ints, pair_budget: int = PAIR_BUDGET) -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
    """Yield the places (B, J) in flat arrays of sets of like size, and the mask; padding repeats the first place."""
    sizes = np.diff(offsets)
    for sets in plan_batches(sizes, batch_size=max(len(sizes), 1), pair_budget=pair_budget):
        column = np.arange(sizes[sets].max())
        mask = column < sizes[sets][:, None]
        yield offsets[sets][:, None] + np.where(mask, column, 0), mask


def _number_sets(items: Ints, sizes: Ints) -> tuple[Ints, Ints, Ints]:
    """Sets of sorted items -> flat items and offsets of the distinct ones, and where each given entry is among them."""
    starts = np.cumsum(sizes) - sizes
    place = np.empty(len(items), np.int64)
    blocks, lengths, done = [np.empty(0, np.int64)], [np.zeros(1, np.int64)], 0
    for n in np.unique(sizes):  # sets of one size are rows of a matrix, whose distinct rows are numbered
        entries = starts[sizes == n][:, None] + np.arange(n)
        rows, number = np.unique(items[entries], axis=0, return_inverse=True)
        place[entries] = done + number.reshape(-1, 1) * n + np.arange(n)
        blocks.append(rows.ravel())
        lengths.append(np.full(len(rows), n))
        done += rows.size
    return np.concatenate(blocks), np.cumsum(np.concatenate(lengths)), place


# -- Numeric features -> items: each feature is cut into bins and every cell of the grid is an item --------------------
# For tables whose alternatives do not return under the same label. The bins of a feature have equal width between the
# least and the largest value that the binned alternatives have in training; values beyond go to the outermost bins.
# Alternatives whose label is *identified* keep an item of their own. Items: the identified ones in the order given,
# then the cells, the last feature counting fastest.
#
# The paper's first experiment cuts both attributes of the third alternative into 8 bins and identifies the other two: 8
# x 8 + 2 = 66 items. Two alternatives of a set that fall into one cell are copies of one item.


@dataclass(frozen=True)
class Grid:
    """Bins of some features, by their inner edges, and the labels that keep an item of their own.

    A value equal to an edge belongs to the bin above it; a feature with k bins has k - 1 inner edges.
    """

    edges: Mapping[str, tuple[float, ...]]
    identified: tuple[str, ...] = ()

    @classmethod
    def learn(cls, data: ChoiceData, bins: Mapping[str, int], identified: tuple[str, ...] = ()) -> Grid:
        """Learn the edges from the alternatives of the training part that are not identified."""
        # 1. Labels that keep an item of their own are not binned.
        labelled = _labelled(data, identified)
        for label, rows in zip(identified, labelled, strict=True):
            if not rows.any():
                hint = did_you_mean(label, np.unique(require_labels(data).plain()).tolist())
                raise InputError(f"identified: no alternative of the training part is labelled {label!r}.{hint}")
        rest = ~labelled.any(0)
        if not rest.any():
            raise InputError("identified names every alternative of the training part, so none is left to be binned.")
        # 2. Bins of equal width between the least and the largest value of the others.
        edges = {}
        for name, k in bins.items():
            values = _numbers(data, name)[rest]
            low, high = float(values.min()), float(values.max())
            if low == high:
                raise InputError(f"bins: feature {name!r} is {low:g} throughout training: leave it out.")
            edges[name] = tuple(np.linspace(low, high, k + 1)[1:-1].tolist())
        return cls(edges, tuple(identified))

    @property
    def size(self) -> int:
        """Number of items, which may be beyond all memory if the grid was not learnt but read."""
        return len(self.identified) + math.prod(len(edges) + 1 for edges in self.edges.values())

    @property
    def items(self) -> tuple[str, ...]:
        """Names of the items."""
        sides = [[f"{name} {_interval(edges, k)}" for k in range(len(edges) + 1)] for name, edges in self.edges.items()]
        return (*self.identified, *(", ".join(cell) for cell in itertools.product(*sides)))

    def index(self, data: ChoiceData) -> Ints:
        """(N,) item of each alternative."""
        cell = np.zeros(len(data.rows), np.int64)
        for name, edges in self.edges.items():
            cell = cell * (len(edges) + 1) + np.searchsorted(np.array(edges), _numbers(data, name), side="right")
        cell += len(self.identified)
        for k, rows in enumerate(_labelled(data, self.identified)):
            cell[rows] = k
        return cell

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"edges": {name: list(e) for name, e in self.edges.items()}, "identified": list(self.identified)}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Grid:
        """Build from what :meth:`to_dict` returned."""
        edges = {name: tuple(float(e) for e in values) for name, values in entries["edges"].items()}
        for name, values in edges.items():
            if not all(map(math.isfinite, values)) or list(values) != sorted(values):
                raise ArtifactError(f"the saved edges of {name!r} are not ascending numbers: save the model again.")
        return cls(edges, tuple(map(str, entries["identified"])))


def _labelled(data: ChoiceData, labels: tuple[str, ...]) -> NDArray[np.bool_]:  # -> (labels, N)
    """Mark the alternatives with each label; a table without labels is refused only where they are asked for."""
    if not labels:
        return np.zeros((0, len(data.rows)), bool)
    column = require_labels(data)
    place = {category: k for k, category in enumerate(column.categories)}
    return np.stack([column.codes == place.get(label, -1) for label in labels])


def _numbers(data: ChoiceData, name: str) -> NDArray[np.float64]:
    """(N,) values of a numeric feature without gaps."""
    if name not in data.features:
        raise SchemaError(f"bins: the table has no feature {name!r}." + did_you_mean(name, data.features))
    column = data.features[name]
    if not isinstance(column, Numeric):
        raise SchemaError(f"bins: feature {name!r} is categorical, and only numbers can be cut into bins.")
    values = column.values.astype(np.float64)
    gaps = np.flatnonzero(np.isnan(values))
    if gaps.size:
        first = data.set_ids[data.set_of_alternative[gaps[0]]]
        raise SchemaError(
            f"bins: feature {name!r} has {gaps.size} missing values (first in choice set {first!s}), which belong to "
            f"no bin: fill them in."
        )
    return values


def _interval(edges: tuple[float, ...], k: int) -> str:
    """Write the k-th bin as an interval."""
    low = f"[{edges[k - 1]:.4g}" if k else "(-inf"
    high = f"{edges[k]:.4g})" if k < len(edges) else "inf)"
    return f"{low}, {high}"
