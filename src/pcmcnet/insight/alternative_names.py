"""What an alternative is called in a report: its label, or what tells it apart from the others of its set.

In a table without labels it is called by its number among those on offer in its set, from 1 on in the order of the
table, and by its first category. Where others of the set have that category too, the column comes in that tells most of
them apart, and a third one where two do not suffice: #2 (A7/A7), #2 (A7/A7, 219 EUR), #2 (A7/A7, 219 EUR, stops 1). A
table without categories names numbers, and one without numbers the beginning of a text. Units are those of the schema;
one that several columns have does not stand for the name.
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import GAP, Categorical, Contents, Numeric
from pcmcnet.data.kinds import KINDS
from pcmcnet.reports.tables import number

_LONGEST = 24  # letters of a category in a name
_MOST = 3  # columns in a name


def name_of(data: ChoiceData, place: int) -> str:
    """Name an alternative, given by its place from 0 to N - 1 in the flat columns of a table."""
    if data.labels is not None:
        label: str = data.labels.categories[int(data.labels.codes[place])]
        return label
    position = int(np.searchsorted(data.offsets, place, side="right")) - 1
    inside = np.arange(data.offsets[position], data.offsets[position + 1])
    first = f"#{place - int(inside[0]) + 1}"
    words = [_word(data, name, place) for name in telling_columns(data, inside)]
    said = ", ".join(word for word in words if word) or _text(data, place)
    return f"{first} ({said})" if said else first


def telling_columns(data: ChoiceData, inside: Ints) -> list[str]:
    """Choose the columns that name the alternatives of a set, given by their places."""
    codes = {name: found for name in data.features if (found := _codes(data, name, inside)) is not None}
    named = [name for name in codes if isinstance(data.features[name], Categorical)]
    chosen = named[:1]
    groups = codes[chosen[0]] if chosen else np.zeros(len(inside), np.int64)
    while len(chosen) < _MOST and (not chosen or len(np.unique(groups)) < len(inside)):
        apart = {name: _joined(groups, codes[name]) for name in codes if name not in chosen}
        best = max(apart, key=lambda name: len(np.unique(apart[name])), default=None)  # the first of equals
        if best is None or (chosen and len(np.unique(apart[best])) == len(np.unique(groups))):
            break
        chosen, groups = [*chosen, best], apart[best]
    return chosen


def _codes(data: ChoiceData, name: str, inside: Ints) -> Ints | None:
    """Number the values of a column within a set; None where some are missing, or it holds contents."""
    column = data.features[name]
    if isinstance(column, Categorical):
        return column.codes[inside].astype(np.int64)
    if not isinstance(column, Numeric) or np.isnan(column.values[inside]).any():
        return None
    found: Ints = np.unique(column.values[inside], return_inverse=True)[1]
    return found


def _joined(groups: Ints, codes: Ints) -> Ints:
    return groups * (int(codes.max()) + 1) + codes


def _word(data: ChoiceData, name: str, place: int) -> str:
    column = data.features[name]
    if isinstance(column, Categorical):
        return _cut(column.categories[int(column.codes[place])])
    assert isinstance(column, Numeric)
    names, value = data.schema.names, number(float(column.values[place]))
    alone = sum(names.unit(other) == names.unit(name) for other in data.features) == 1
    return names.amount(name, value) if alone else f"{names[name]} {value} {names.unit(name)}".rstrip()


def _text(data: ChoiceData, place: int) -> str:
    """Return the beginning of the first text."""
    for column in data.features.values():
        if isinstance(column, Contents) and KINDS[column.kind].is_name and column.codes[place] != GAP:
            return _cut(str(column.table[column.codes[place]]))
    return ""


def _cut(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…"
