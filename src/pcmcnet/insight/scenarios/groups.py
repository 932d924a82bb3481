"""Groups of alternatives before and after a change: by label, by place or by a column.

Groups by a feature are by its values in each table: an alternative that a change gives another value is in another
group afterwards. Groups by a column of the choice sets are the labels within each of its segments, which are of the
same sets before and after; a column of them that the change itself changes is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Bools, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import stretches
from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.offers import Offer
from pcmcnet.insight.segments import column_of, grouped, segments

LABEL = "label"  # asks for groups by label, whatever their column is called
_NEW = "(new)"  # group of alternatives that were not there, in groups by a place


class Groups(NamedTuple):
    """G groups, by name."""

    names: tuple[str, ...]
    by: str  # what they are
    before: Ints  # (N0,) group of each alternative
    after: Ints  # (N,)
    segment: Ints  # (G,) segment of choice sets that each group lies in
    changed: Bools  # (G,) whether the change is of an alternative of the group


def group(first: ChoiceData, offer: Offer, by: str | None) -> Groups:
    """Group the alternatives of the first table and those of the offer."""
    label = first.schema.alternative
    found = None if by is None or by in (LABEL, label) else segments(first, by)
    if found is not None and not found.of_sets:
        order, before, after = _values(first, offer, str(by))
        names, *codes = _numbered(before, after, order)
        segment, parts, spoken = np.zeros(len(first), np.int64), [""], str(by)
    else:
        if found is not None:
            _require_kept(first, offer, str(by))
        before, after = _labels_or_places(first, offer)
        names, *codes = _numbered(before, after, sorted(set(before), key=_natural))
        segment = np.zeros(len(first), np.int64) if found is None else found.codes[first.offsets[:-1]]
        parts, spoken = ([""] if found is None else list(found.names)), label or "place"
    G, B = len(names), len(parts)
    old, new = (
        code + G * segment[data.set_of_alternative] for code, data in zip(codes, (first, offer.data), strict=True)
    )
    changed = np.zeros(G * B, np.bool_)
    changed[new[offer.touched]] = True
    changed[old[offer.lost]] = True
    changed[old[offer.origin[offer.touched & _themselves(offer)]]] = True
    every = tuple(f"{part}: {name}" if part else name for part in parts for name in names)
    return Groups(every, f"{by}, {spoken}" if B > 1 else spoken, old, new, np.repeat(np.arange(B), G), changed)


def _labels_or_places(first: ChoiceData, offer: Offer) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the label of each alternative before and after; its place in its set where there are no labels."""
    if first.labels is not None and offer.names is not None:
        return first.labels.plain(), offer.names
    place = np.array([f"#{k + 1}" for k in range(first.largest)], object)
    names = place[stretches(np.zeros(len(first), np.int64), first.sizes)]
    return names, np.where(_themselves(offer), names[offer.origin], _NEW)


def _themselves(offer: Offer) -> Bools:
    """(N,) which alternatives are those of the first table: the second one of an origin is a copy."""
    itself = np.zeros(len(offer.origin), np.bool_)
    itself[np.unique(offer.origin, return_index=True)[1]] = True
    return itself & (offer.origin >= 0)


def _values(first: ChoiceData, offer: Offer, by: str) -> tuple[tuple[str, ...], NDArray[Any], NDArray[Any]]:
    """Return the groups by a feature in their order, and the group of each alternative before and after."""
    before, after = (column_of(data, by)[0].plain() for data in (first, offer.data))
    same = (offer.origin >= 0).all() and np.array_equal(after.astype(str), before[offer.origin].astype(str))
    names, codes = grouped(before if same else np.concatenate([before, after]))  # one scale for both tables
    words = np.array(names, object)[codes]
    return names, words[: len(before)], words[offer.origin] if same else words[len(before) :]


def _require_kept(first: ChoiceData, offer: Offer, by: str) -> None:
    """Refuse segments by a column that the change changes."""
    before, after = (column_of(data, by)[0].plain().astype(str) for data in (first, offer.data))
    if not np.array_equal(before, after):
        raise InputError(
            f"by={by!r}: the change itself changes this column, so its segments are not of the same choice sets before "
            f"and after. Group by another, such as a copy of it in the table that keep=[...] names."
        )


def _numbered(before: NDArray[Any], after: NDArray[Any], order: Any) -> tuple[list[str], Ints, Ints]:
    """Number the names in use, those of the first table first and in this order."""
    used = set(before)
    names = [name for name in order if name in used]
    names += [name for name in dict.fromkeys(after) if name not in used]
    place = {name: k for k, name in enumerate(names)}
    first, second = (np.array([place[name] for name in part], np.int64) for part in (before, after))
    return names, first, second


def _natural(name: str) -> tuple[int, str]:
    """Sort #2 before #10."""
    return (int(name[1:]), "") if name.startswith("#") and name[1:].isdigit() else (0, name)
