"""Growth of regression trees on binned inputs, for boosted utilities.

Every input is divided at its quantiles into up to 256 bins, which all trees share. With gradients g and Hessians h of
the rows, the gain of a split of a node into a left and a right part is

    G_l² / (H_l + l2) + G_r² / (H_r + l2) - G² / (H + l2),        G, H: sums of g and h

which is twice the gain of the second-order expansion of the log-likelihood. A tree grows best-first: the leaf with the
largest gain is split until there are enough leaves. Each node may split on a random subset of the inputs.

Every node has a value, v = G / (H + l2), which a leaf adds to the utilities. The values must rise with an input of sign
1, and fall with an input of sign -1. Each node then has bounds for the values of all leaves below it. A value beyond a
bound is moved to the bound. The gain of a split is the sum of the following term over both parts, minus the term of the
node:

    2 G v - (H + l2) v²,        which is G² / (H + l2) if v is not moved.

A split on an input of sign 1 is only allowed if v_l <= v_r. Then (v_l + v_r) / 2 bounds all values on the left from
above and all values on the right from below; for sign -1, the other way round. Splits on other inputs pass the bounds
on. So two rows that differ only in signed inputs, with x <= x' for sign 1 and x >= x' for sign -1, reach the same leaf,
or separate at a split on a signed input, where the first row gets the smaller value: the tree is monotone everywhere.

The compiled library (``tree_growth.c``) and numpy give the same trees, bit for bit; without the library, growth takes
several times longer. Shapes: N rows, K inputs, M nodes.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.compiled import load_library
from pcmcnet.errors import InputError, TrainingError

LIBRARY_FILE = Path(__file__).with_name("libtrees.so")
VERSION = 2  # of the C interface; must equal the version in the C code
MAX_BINS = 256  # BINS in the C code: a bin is stored as one byte
LEAF = -1  # feature of a leaf

Bins = NDArray[np.uint8]  # (K, N)


@cache
def compiled_library() -> Any:
    """Return the compiled library, or None if it is missing or unusable."""
    library = load_library(
        LIBRARY_FILE, version_function="pcmcnet_trees_version", version=VERSION, fallback="trees grow in numpy"
    )
    if library is not None:
        library.pcmcnet_grow_tree.restype = ctypes.c_int64
    return library


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree: node 0 is the root. A split sends bins up to ``cut`` to the left."""

    feature: Ints  # (M,) input of a split; -1 for a leaf
    cut: Ints  # (M,)
    left: Ints  # (M,)
    right: Ints  # (M,)
    gain: Floats  # (M,) of a split; 0 for a leaf
    low: Floats  # (M,) bounds of the values of all leaves below a node
    high: Floats  # (M,)

    def leaves(self, bins: Bins) -> Ints:  # (K, N) -> (N,)
        """Return the leaf of each row."""
        if (library := compiled_library()) is not None:
            leaf = np.empty(bins.shape[1], np.int64)
            nodes = (self.feature, self.cut, self.left, self.right)
            library.pcmcnet_find_leaves(_address(bins), _count(bins.shape[1]), *map(_address, nodes), _address(leaf))
            return leaf
        node, rows = np.zeros(bins.shape[1], np.int64), np.arange(bins.shape[1])
        while (inner := self.feature[node] != LEAF).any():
            goes_left = bins[self.feature[node], rows] <= self.cut[node]
            node = np.where(inner, np.where(goes_left, self.left[node], self.right[node]), node)
        return node


def bin_edges(x: NDArray[np.float32]) -> list[Floats]:
    """Return the upper edges of the bins of each input (N, K), midway between values; at most 255 per input."""
    edges = []
    for column in x.T:
        values, counts = np.unique(column.astype(np.float64), return_counts=True)
        if len(values) > MAX_BINS:
            # A frequent value, such as 0, has a bin of its own; the others are divided at their quantiles.
            frequent = counts > len(column) / MAX_BINS
            others = np.repeat(values[~frequent], counts[~frequent])
            shares = np.linspace(0, 1, MAX_BINS - int(frequent.sum()))
            values = np.union1d(values[frequent], np.quantile(others, shares, method="nearest"))
        edges.append((values[:-1] + values[1:]) / 2)
    return edges


def as_bins(x: NDArray[np.float32], edges: list[Floats]) -> Bins:
    """Return the number of the bin of each value: the first one whose upper edge is not below the value."""
    bins = np.empty(x.shape[::-1], np.uint8)
    for k, column_edges in enumerate(edges):
        bins[k] = np.searchsorted(column_edges, x[:, k].astype(np.float64), side="left")
    return bins


def grow_tree(
    bins: Bins,
    rows: Ints,
    gradient: Floats,
    hessian: Floats,
    drawn: Ints,
    *,
    leaves: int,
    min_rows: int,
    l2: float,
    signs: Ints | None = None,
) -> Tree:
    """Return a tree that is grown on some rows.

    Parameters
    ----------
    bins
        (K, N) binned inputs.
    rows
        Rows to grow the tree on.
    gradient, hessian
        (N,) derivatives of the log-likelihood with respect to the utility of each row.
    drawn
        (2 ``leaves`` - 1, m) inputs on which each node may be split.
    leaves
        Maximum number of leaves.
    min_rows
        Minimum number of rows in a leaf.
    l2
        Penalty on the squared values of the leaves.
    signs
        (K,) 1 or -1 if the values of the leaves rise or fall with the input, else 0. If None (default), all are 0.
    """
    library = compiled_library()
    grow = _grow if library is None else _grow_compiled
    signs = np.zeros(len(bins), np.int64) if signs is None else signs
    return grow(bins, rows, gradient, hessian, drawn, leaves=leaves, min_rows=min_rows, l2=l2, signs=signs)


def _grow_compiled(
    bins: Bins, rows: Ints, g: Floats, h: Floats, drawn: Ints, *, leaves: int, min_rows: int, l2: float, signs: Ints
) -> Tree:
    if bins.shape[1] > np.iinfo(np.int32).max:
        raise InputError(f"expected at most {np.iinfo(np.int32).max:,} alternatives, got {bins.shape[1]:,}.")
    n_nodes = 2 * leaves - 1
    bins, g, h = np.ascontiguousarray(bins), np.ascontiguousarray(g), np.ascontiguousarray(h)
    feature, cut, left, right = (np.zeros(n_nodes, np.int64) for _ in range(4))
    gain, low, high = (np.zeros(n_nodes) for _ in range(3))
    used = np.ascontiguousarray(rows, np.int32)
    drawn, signs = np.ascontiguousarray(drawn, np.int64), np.ascontiguousarray(signs, np.int8)
    count = compiled_library().pcmcnet_grow_tree(
        *(_address(bins), _count(bins.shape[1]), _address(used), _count(len(used)), _address(g), _address(h)),
        *(_address(signs), _address(drawn), _count(drawn.shape[1]), _count(leaves), _count(min_rows)),
        *(ctypes.c_double(l2), *map(_address, (feature, cut, left, right, gain, low, high))),
    )
    if count < 0:
        raise TrainingError("not enough memory to grow a tree.")
    splits = [column[:count] for column in (feature, cut, left, right)]
    return Tree(splits[0], splits[1], splits[2], splits[3], gain[:count], low[:count], high[:count])


def _grow(
    bins: Bins, rows: Ints, g: Floats, h: Floats, drawn: Ints, *, leaves: int, min_rows: int, l2: float, signs: Ints
) -> Tree:
    # 1. Begin with a single leaf.
    nodes, bounds = [rows], [(-np.inf, np.inf)]
    splits = [_best_split(bins, rows, g, h, drawn[0], min_rows, l2, signs, bounds[0])]
    feature, cut, left, right, gain = [LEAF], [0], [0], [0], [0.0]
    while len(nodes) < 2 * leaves - 1:
        # 2. Select the leaf with the largest gain.
        gains = [split.gain if of == LEAF else 0.0 for split, of in zip(splits, feature, strict=True)]
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        # 3. Split the leaf; its children keep the order of the rows.
        split, (low, high) = splits[best], bounds[best]
        gain[best], feature[best], cut[best] = split.gain, split.feature, split.cut
        goes_left = bins[split.feature, nodes[best]] <= split.cut
        left[best], right[best] = len(nodes), len(nodes) + 1
        # 4. All values on one side of a split on a signed input are at most, and all others at least, ``between``.
        sign, between = signs[split.feature], split.between
        of_left = (between if sign < 0 else low, between if sign > 0 else high)
        of_right = (between if sign > 0 else low, between if sign < 0 else high)
        for child, limits in ((nodes[best][goes_left], of_left), (nodes[best][~goes_left], of_right)):
            splits.append(_best_split(bins, child, g, h, drawn[len(nodes)], min_rows, l2, signs, limits))
            nodes.append(child)
            bounds.append(limits)
            for column, empty in zip((feature, cut, left, right), (LEAF, 0, 0, 0), strict=True):
                column.append(empty)
            gain.append(0.0)
    columns = [np.array(column, np.int64) for column in (feature, cut, left, right)]
    limits_of_nodes = np.array(bounds)
    low_and_high = limits_of_nodes[:, 0], limits_of_nodes[:, 1]
    return Tree(columns[0], columns[1], columns[2], columns[3], np.array(gain), *low_and_high)


class _Split(NamedTuple):
    """The best split of a node; the gain is 0 if there is none."""

    gain: float = 0.0
    feature: int = LEAF
    cut: int = 0
    between: float = 0.0  # midpoint of the values of the two parts


def _best_split(
    bins: Bins,
    rows: Ints,
    g: Floats,
    h: Floats,
    drawn: Ints,
    min_rows: int,
    l2: float,
    signs: Ints,
    limits: tuple[float, float],
) -> _Split:
    """Return the best split of a node whose values have the given limits."""
    best = _Split()
    for k in drawn:
        # 1. Sum gradients and Hessians of the rows in each bin.
        bin_of = bins[k, rows]
        sums = [np.bincount(bin_of, weights, MAX_BINS) for weights in (g[rows], h[rows])]
        counts = np.cumsum(np.bincount(bin_of, minlength=MAX_BINS))
        # 2. Try every cut between two bins.
        left_g, left_h = (np.asarray(np.cumsum(values), np.float64) for values in sums)
        G, H = left_g[-1:], left_h[-1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            left, of_left = _best_values(left_g, left_h + l2, limits)
            right, of_right = _best_values(G - left_g, H - left_h + l2, limits)
            gains = of_left + of_right - _best_values(G, H + l2, limits)[1]
            is_ordered = signs[k] * (right - left) >= 0
        is_small = (counts < min_rows) | (len(rows) - counts < min_rows)
        gains[~is_ordered | is_small | (left_h + l2 <= 0) | (H - left_h + l2 <= 0)] = 0.0
        cut = int(np.argmax(gains[:-1]))
        if gains[cut] > best.gain:
            best = _Split(float(gains[cut]), int(k), cut, float((left[cut] + right[cut]) / 2))
    return best


def _best_values(g: Floats, h: Floats, limits: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return the values within limits that maximise 2 g v - h v², and these maxima."""
    free = g / h
    value = np.clip(free, *limits)
    return value, np.where(value == free, g**2 / h, value * (2 * g - h * value))


def sum_trees(
    x: NDArray[np.float32],
    roots: Ints,
    feature: Ints,
    threshold: Floats,
    left: Ints,
    right: Ints,
    value: Floats,
) -> Floats:
    """Return the utilities (N,) of inputs (N, K): the sum of the values of the leaves that a row reaches.

    The nodes of all trees are in the same arrays; ``roots`` are the positions of their first nodes.
    """
    utility: Floats = np.zeros(len(x))
    library, x = compiled_library(), np.ascontiguousarray(x, np.float32)
    if library is not None:
        nodes = (np.ascontiguousarray(array) for array in (feature, threshold, left, right, value))
        roots = np.ascontiguousarray(roots)
        counts = (_count(len(x)), _count(x.shape[1]))
        held = list(nodes)  # the arrays must exist until the call returns
        library.pcmcnet_sum_trees(
            _address(x), *counts, _address(roots), _count(len(roots)), *map(_address, held), _address(utility)
        )
        return utility
    rows = np.arange(len(x))
    for root in roots:
        node = np.full(len(x), root)
        while (inner := feature[node] != LEAF).any():
            goes_left = x[rows, feature[node]] <= threshold[node]
            node = np.where(inner, np.where(goes_left, left[node], right[node]), node)
        utility += value[node]
    return utility


def _address(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return the address of an array, valid as long as the array is referenced."""
    return ctypes.c_void_p(array.ctypes.data)


def _count(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)
