"""Where a wide table holds what the roles of its long form name; kept with the schema, so that others are read alike.

A mapping with the arguments of ``ChoiceData.from_wide`` that the long form has no words for: ``alternatives`` and
``features``, and perhaps ``chosen``, ``rank``, ``available`` and ``choice_set``. All values are plain ones, for JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from pcmcnet.errors import SchemaError, did_you_mean

Label = str | int
OWN = ("choice_set", "chosen", "rank", "alternative", "available")  # columns of the long form

_ENTRIES = ("alternatives", "features", "chosen", "rank", "available", "choice_set")


def wide_roles(value: Any) -> dict[str, Any]:
    """Take such a mapping with plain values, refusing anything else; {} for a long table.

    Examples
    --------
    >>> wide_roles({"alternatives": ["car", "bus"], "features": {"time": "{alternative}_time"}, "chosen": "mode"})
    {'alternatives': {'car': 'car', 'bus': 'bus'}, 'features': {'time': '{alternative}_time'}, 'chosen': 'mode'}
    """
    if not isinstance(value, Mapping):
        raise SchemaError(f"wide must say where the columns of each alternative are, got {value!r}.")
    for key in value:
        if key not in _ENTRIES:
            raise SchemaError(f"wide: unknown entry {key!r}." + did_you_mean(str(key), _ENTRIES))
    given = {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if not given:
        return {}
    for key in ("alternatives", "features"):
        if key not in given:
            raise SchemaError(f"wide: {key} is missing, which says where the columns of a wide table are.")
    if not isinstance(given["features"], Mapping):
        raise SchemaError(f"wide: features must map names to templates or columns, got {given['features']!r}.")
    return {**given, "alternatives": _plain(labels_of(given["alternatives"]))}


def long_roles(wide: Mapping[str, Any]) -> dict[str, Any]:
    """Return the roles that follow for the long form: its own columns, and the features."""
    own = {role: role for role in ("chosen", "rank", "available") if role in wide}
    return {"choice_set": "choice_set", "alternative": "alternative", "features": list(wide["features"]), **own}


def labels_of(alternatives: Sequence[Label] | Mapping[Any, Any]) -> dict[str, Any]:
    """Label -> its value in the chosen column; a whole number is a label as it is written."""
    given = [] if isinstance(alternatives, str) or not hasattr(alternatives, "__iter__") else list(alternatives)
    labels = [label_of(label) for label in given]
    if not labels or not all(isinstance(label, str) for label in labels) or len(set(labels)) < len(labels):
        raise SchemaError(
            f"alternatives must be a list of distinct labels or a mapping from labels, got {alternatives!r}."
        )
    codes = alternatives.values() if isinstance(alternatives, Mapping) else given
    return dict(zip(labels, codes, strict=True))


def label_of(label: Any) -> Any:
    """Take whole numbers, such as the codes of a survey, for names."""
    return str(label) if isinstance(label, Integral) and not isinstance(label, bool) else label


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {label_of(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value
