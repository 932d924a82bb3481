"""Which numbers have a zero that means something, so that one per cent more of them does, too.

A price, a time on the way or a number of stops begins at nothing; a clock time, a calendar year or an identifier does
not: 1% more than 8 o'clock is no answer to any question. Such a column has no elasticity. What a column is, is known

    by its unit, where the schema declares one: "clock", "calendar year", "code" or "id" have no zero, all others have;
    else by its name and its values:

    identifier      whole numbers, and the name ends in id, code, nr, no, number, key or index
    calendar year   whole numbers from 1800 to 2200, and year is in the name
    clock time      0 to 24 hours, 1,440 minutes or 86,400 seconds, and the name speaks of the time or hour of a
                    departure, arrival, start or end, or of the day; not of a time before, until or since one
"""

from __future__ import annotations

import re

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Numeric

_UNITS = {"clock": "clock time", "calendar year": "calendar year", "code": "identifier", "id": "identifier"}
_WHY = {
    "clock time": "is a clock time: one per cent more of it means nothing",
    "calendar year": "is a calendar year: one per cent more of it means nothing",
    "identifier": "names something by a number: more of it means nothing",
}
_IDENTIFIERS = {"id", "code", "nr", "no", "number", "key", "index", "idx"}
_MOMENTS = {"dep", "departure", "arr", "arrival", "start", "begin", "end", "day", "clock"}
_CLOCKS = {"time", "hour", "clock"}
_SPANS = {"to", "until", "till", "before", "since", "from", "after", "duration", "delay", "lead", "days"}
_DAY = 86_400  # seconds
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def no_elasticity(data: ChoiceData, name: str) -> str | None:
    """Say why a numeric feature has no elasticity; None where it has one.

    Examples
    --------
    >>> table = {"trip": [1, 1], "price": [3.0, 4.5], "depTime": [480, 615]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", features=["price", "depTime"])
    >>> no_elasticity(data, "depTime"), no_elasticity(data, "price")
    ('is a clock time: one per cent more of it means nothing', None)
    """
    column = data.features[name]
    assert isinstance(column, Numeric)
    words = data.schema.named.get(name)
    unit = "" if words is None else words.unit.strip().lower()
    found = _UNITS.get(unit) if unit else _guess(name, column.values[~np.isnan(column.values)].astype(np.float64))
    return None if found is None else _WHY[found]


def _guess(name: str, values: Floats) -> str | None:
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or not len(values):
        return None
    whole = bool((values == np.round(values)).all())
    low, high = float(values.min()), float(values.max())
    if whole and words[-1] in _IDENTIFIERS:
        return "identifier"
    if whole and "year" in words and low >= 1800 and high <= 2200:
        return "calendar year"
    spoken = bool(_CLOCKS & set(words)) and bool(_MOMENTS & set(words)) and not _SPANS & set(words)
    return "clock time" if spoken and low >= 0 and high <= _DAY else None
