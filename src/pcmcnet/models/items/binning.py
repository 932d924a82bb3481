"""Numeric features -> items: each feature is cut into bins and every cell of the grid is an item.

For tables whose alternatives do not return under the same label. The bins of a feature have equal width between the
least and the largest value that the binned alternatives have in training; values beyond go to the outermost bins.
Alternatives whose label is *identified* keep an item of their own. Items: the identified ones in the order given,
then the cells, the last feature counting fastest.

The paper's first experiment cuts both attributes of the third alternative into 8 bins and identifies the other two:
8 x 8 + 2 = 66 items. Two alternatives of a set that fall into one cell are copies of one item.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Numeric
from pcmcnet.errors import ArtifactError, InputError, SchemaError, did_you_mean
from pcmcnet.models.items.universe import require_labels


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
