"""Groups of items that choice sets connect.

Two items are connected if a chain of choice sets links them, where neighbouring sets share an item. If a model has one
constant per item, and only differences of constants within choice sets matter, the level of the constants in each group
is not identified.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pcmcnet.arrays import Ints

MAX_SHOWN_GROUPS = 8  # groups whose sizes a message lists


def connected_groups(items: Ints, offsets: Ints, n: int) -> Ints:  # (N,), (S + 1,) -> (n,)
    """Return the group of each of the n items: items of different groups are not connected by any chain of choice sets.

    Examples
    --------
    >>> connected_groups(np.array([0, 2, 2, 3, 1, 4]), np.array([0, 2, 4, 6]), 5)
    array([0, 1, 0, 0, 1])
    """
    first = np.repeat(items[offsets[:-1]], np.diff(offsets))  # linking all items of a set to its first one is enough
    return connected_components(first, items, n)


def connected_components(left: Ints, right: Ints, n: int) -> Ints:  # (E,), (E,) -> (n,)
    """Return the index of the connected component of each node, given the ends of the edges.

    Examples
    --------
    >>> connected_components(np.array([3, 4]), np.array([4, 1]), 5)
    array([0, 1, 2, 1, 1])
    """
    parent = np.arange(n)  # never larger than the node
    while True:
        a, b = parent[left], parent[right]
        if (a == b).all():
            break
        # 1. Attach the larger root of each edge to the smallest root that an edge connects it with.
        np.minimum.at(parent, np.maximum(a, b), np.minimum(a, b))
        # 2. Shorten all paths, so that the parent of each node is a root again.
        while not np.array_equal(grandparent := parent[parent], parent):
            parent = grandparent
    return np.unique(parent, return_inverse=True)[1].astype(np.int64, copy=False)


def strong_components(left: Ints, right: Ints, n: int) -> Ints:  # (E,), (E,) -> (n,)
    """Return the index of the strongly connected component of each node, given the start and end of each edge."""
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import connected_components as components_of

    graph = coo_array((np.ones(len(left)), (left, right)), shape=(n, n))
    _, components = components_of(graph, directed=True, connection="strong")
    return np.asarray(components, np.int64)


def sizes_text(sizes: Iterable[int]) -> str:
    """Return the sizes of groups as text, the largest first, with the number of further groups if there are many."""
    sizes = sorted(sizes, reverse=True)
    shown = ", ".join(map(str, sizes[:MAX_SHOWN_GROUPS]))
    return shown + (f" and {len(sizes) - MAX_SHOWN_GROUPS} more" if len(sizes) > MAX_SHOWN_GROUPS else "")
