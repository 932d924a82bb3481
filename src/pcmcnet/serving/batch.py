"""The choice sets of several requests as one table, so that a model is asked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Categorical, Column, Contents, Numeric, concat_column


def together(parts: Sequence[ChoiceData]) -> ChoiceData:
    """Append the sets of choice data that were read by one schema; rows are the available alternatives alone."""
    first = parts[0]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.sizes for part in parts]))])
    labels = [part.labels for part in parts if part.labels is not None]
    return replace(
        first,
        offsets=offsets,
        set_ids=first.set_ids if len(parts) == 1 else np.arange(len(offsets) - 1),  # as its request counts them
        weights=np.concatenate([part.weights for part in parts]),
        features={name: _append([part.features[name] for part in parts]) for name in first.features},
        labels=_append_categories(labels) if labels else None,
        individual={name: _append([part.individual[name] for part in parts]) for name in first.individual},
        rows=np.arange(offsets[-1]),
        hidden_rows=np.empty(0, np.int64),
        hidden_sets=np.empty(0, np.int64),
    )


def _append(columns: Sequence[Column]) -> Column:
    numbers = [column.values for column in columns if isinstance(column, Numeric)]
    if numbers:
        return Numeric(np.concatenate(numbers))
    if isinstance(columns[0], Contents):
        return reduce(concat_column, columns)
    return _append_categories([column for column in columns if isinstance(column, Categorical)])


def _append_categories(columns: Sequence[Categorical]) -> Categorical:
    """Join the categories by name."""
    place: dict[str, int] = {}
    codes = []
    for column in columns:
        moved = np.array([place.setdefault(name, len(place)) for name in column.categories], np.int32)
        codes.append(moved[column.codes])
    return Categorical(np.concatenate(codes), tuple(place))
