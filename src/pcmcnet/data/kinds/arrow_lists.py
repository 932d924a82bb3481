"""Columns of lists, from Arrow or, in files without types, from text such as ``[0.5, 2]`` or ``["wifi", "pool"]``."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from pcmcnet.data.distinct import is_text
from pcmcnet.data.kinds.errors import BadContentError, BadTypeError


def as_lists(values: pa.ChunkedArray, item: str) -> pa.ChunkedArray:
    """Return a column of lists of ``item``, which names what is expected in them; gaps stay."""
    kind = values.type
    if is_text(kind):
        return pa.chunked_array([_parsed(values.to_pylist(), item)])
    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_null(kind)):
        raise BadTypeError(f"expected lists of {item}, or text such as '[1, 2]'")
    return values


def _parsed(texts: list[str | None], item: str) -> pa.Array:
    """Read each distinct text as JSON."""
    found: dict[str, Any] = {}
    for row, text in enumerate(texts):
        if text is not None and text not in found:
            found[text] = _list(text, row, item)
    try:
        return pa.array([None if text is None else found[text] for text in texts])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadTypeError(f"expected lists of {item}, all of one type") from error


def _list(text: str, row: int, item: str) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        shown = text if len(text) <= 40 else f"{text[:39]}…"
        raise BadContentError(row, f"expected a list of {item} such as '[1, 2]', got {shown!r}.", "Correct it.")
    return found
