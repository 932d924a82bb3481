"""What a table looks like, in a few plain values: the range of each column, and some choice sets to show.

The description travels with a fitted model, so that a form can be filled in and a map can be drawn without the table.
Sets of weight 0 take no part. Plain values only, the same for the same table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.column_arrays import Column, Contents, Numeric
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.category import category_facts
from pcmcnet.data.kinds.kind import written
from pcmcnet.data.kinds.number import number_facts

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData

_SHOWN = 50  # alternatives of a set that is shown, where there is one so small
_MORE = 7  # further sets, of a table without contents such as pictures


def describe(data: ChoiceData) -> dict[str, Any]:
    """Describe each model input and the labels, and show some sets.

    Returns
    -------
    dict
        ``columns``: by name, for numbers ``min``, ``max`` and ``quartiles`` (None where there is no number at all), for
        categories ``categories`` (the most frequent ones, sorted), ``most`` (the most frequent) and ``distinct`` (how
        many there are), for contents their ``kind``, ``distinct`` and what their kind has (``size`` of vectors, ``min``
        and ``max`` of instants and ids, ``categories`` and ``words`` of lists); ``example``: the ``individual`` and
        the ``alternatives`` of a set of median size, and which of them was ``chosen``; ``more_examples``: up to seven
        others, from all over the table, unless it has contents such as pictures;
        ``offers_differ``: see :func:`offers_differ`.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> table = {"trip": [1, 1], "took": [0, 1], "price": [3.0, 4.5], "mode": ["bus", "car"]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["price"])
    >>> about = describe(data)
    >>> about["columns"]["price"]
    {'min': 3.0, 'max': 4.5, 'quartiles': [3.375, 3.75, 4.125]}
    >>> about["example"]
    {'individual': {}, 'alternatives': [{'mode': 'bus', 'price': 3.0}, {'mode': 'car', 'price': 4.5}], 'chosen': 1}
    """
    counted = data if data.weights.all() else data.subset(data.weights > 0)
    columns = {**_of_alternatives(counted), **counted.individual}
    return {
        "offers_differ": offers_differ(counted),
        "columns": {name: _column(column) for name, column in columns.items()},
        "example": _example(counted, at) if (at := _typical(counted)) is not None else None,
        "more_examples": [_example(counted, k) for k in _others(counted, at)],
    }


def offers_differ(data: ChoiceData) -> bool:
    """Tell whether some sets offer other alternatives than others: other labels, or another number without labels."""
    if data.labels is None:
        return bool((data.sizes != data.sizes[:1]).any())
    counts = np.bincount(data.labels.codes)
    return bool((counts[counts > 0] != len(data)).any())


def _of_alternatives(data: ChoiceData) -> dict[str, Column]:
    """Return features and labels, the labels first as in a table."""
    label = data.schema.alternative
    labels = {} if data.labels is None or label is None or label in data.individual else {label: data.labels}
    return {**labels, **data.features}


def _column(column: Column) -> dict[str, Any]:
    if isinstance(column, Contents):
        return content_facts(column.compact())
    return number_facts(column) if isinstance(column, Numeric) else category_facts(column)


def content_facts(column: Contents) -> dict[str, Any]:
    """Say of contents in use how many there are, and what a form needs to know of their kind."""
    return {"kind": column.kind, "distinct": len(column.table), **KINDS[column.kind].facts(column)}


def _typical(data: ChoiceData) -> int | None:
    """Return the position of the first set whose size is nearest to the median, or to what can be shown."""
    if not len(data):
        return None
    size = min(int(np.median(data.sizes)), _SHOWN)
    return int(np.argmin(np.abs(data.sizes - size)))


def _others(data: ChoiceData, typical: int | None) -> list[int]:
    """Return positions of other sets to show, at equal distances in the table."""
    fit = [k for k in np.flatnonzero((data.sizes > 1) & (data.sizes <= _SHOWN)).tolist() if k != typical]
    if not fit or data.schema.contents:
        return []
    return [fit[k] for k in np.unique(np.linspace(0, len(fit) - 1, _MORE).round().astype(int))]


def _example(data: ChoiceData, at: int) -> dict[str, Any]:
    """Show one set."""
    one = data.subset([at])
    individual = {name: json_values(column)[0] for name, column in one.individual.items()}
    columns = {name: json_values(column) for name, column in _of_alternatives(one).items()}
    alternatives = [{name: values[i] for name, values in columns.items()} for i in range(int(one.sizes[0]))]
    chosen = None if one.chosen is None else int(one.chosen[0])
    return {"individual": individual, "alternatives": alternatives, "chosen": chosen}


def json_values(column: Column) -> list[Any]:
    """Return numbers, names or contents as JSON has them; None where one is missing."""
    if isinstance(column, Numeric):
        return [None if np.isnan(value) else written(value) for value in column.values]
    plain: NDArray[Any] = column.plain()
    if isinstance(column, Contents):
        return [None if content is None else KINDS[column.kind].to_json(content) for content in plain]
    return [str(name) for name in plain]
