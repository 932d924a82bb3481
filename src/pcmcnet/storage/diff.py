"""What a file says that it belongs to, beside what it should: the names of the entries that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_SHORT = 60  # a value longer than this, such as a hash, says nothing to a person


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any], *, prefix: str = "") -> list[str]:
    """Name what differs, entries of entries by their path, with both values where a person can tell them apart.

    Examples
    --------
    >>> differences({"seed": 0, "options": {"lr": 0.1, "hidden": [8]}}, {"seed": 1, "options": {"lr": 0.1}})
    ['seed (0 there, 1 here)', 'options.hidden ([8] there, null here)']
    """
    found: list[str] = []
    for name in {**ours, **theirs}:
        there, here = theirs.get(name), ours.get(name)
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            found += differences(there, here, prefix=f"{prefix}{name}.")
        elif there != here:
            values = [json.dumps(value) for value in (there, here)]
            both = "" if max(map(len, values)) > _SHORT else f" ({values[0]} there, {values[1]} here)"
            found.append(f"{prefix}{name}{both}")
    return found
