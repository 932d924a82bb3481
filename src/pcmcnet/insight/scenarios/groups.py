"""Groups of alternatives before and after a change: by label, by place or by a column.

An alternative stays in the group of the one it was in the first table, so that a group by a price that changes stays
what it was; labels alone may be new. Groups by a column of the choice sets are the labels within each of its segments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Bools, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import stretches
from pcmcnet.insight.scenarios.offers import Offer
from pcmcnet.insight.segments import segments

LABEL = "label"  # asks for groups by label, whatever their column is called
_NEW = "(new)"  # group of alternatives that were not there, in groups by a column or a place


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
        words = np.array(found.names, object)
        after = np.where(offer.origin >= 0, words[found.codes[offer.origin]], _NEW)
        names, *codes = _numbered(words[found.codes], after, found.names)
        segment, parts, spoken = np.zeros(len(first), np.int64), [""], str(by)
    else:
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
    every = tuple(f"{part}: {name}" if part else name for part in parts for name in names)
    return Groups(every, f"{by}, {spoken}" if B > 1 else spoken, old, new, np.repeat(np.arange(B), G), changed)


def _labels_or_places(first: ChoiceData, offer: Offer) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the label of each alternative before and after; its place in its set where there are no labels."""
    if first.labels is not None and offer.names is not None:
        return first.labels.plain(), offer.names
    place = np.array([f"#{k + 1}" for k in range(first.largest)], object)
    names = place[stretches(np.zeros(len(first), np.int64), first.sizes)]
    itself = np.zeros(len(offer.origin), np.bool_)  # the second one of an origin is a copy
    itself[np.unique(offer.origin, return_index=True)[1]] = True
    return names, np.where((offer.origin >= 0) & itself, names[offer.origin], _NEW)


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
