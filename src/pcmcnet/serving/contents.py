"""Vectors, instants, lists, texts, pictures and ids in a request -> contents, as a table with them would be read.

What a value must look like is for its kind to say (:mod:`pcmcnet.data.kinds`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pcmcnet.data.column_arrays import Contents
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.errors import BadContentError
from pcmcnet.data.kinds.previews import Pixels
from pcmcnet.serving.refusal import RefusalError, unusable

Where = Callable[[int], str]


def contents_of(values: list[Any], kind: str, at: Where, *, gaps: bool, size: int | None, pixels: Pixels) -> Contents:
    """Read one column; ``at(row)`` names a place and the column, ``size`` is that of vectors where it is known."""
    given: list[Any] = []
    known: dict[str, Any] = {}  # copies of a text or a picture are looked at once
    for row, value in enumerate(values):
        try:
            if value is None and gaps and KINDS[kind].may_be_missing:
                given.append(None)
            elif isinstance(value, str) and value in known:
                given.append(known[value])
            else:
                given.append(KINDS[kind].posted(value, size=size, pixels=pixels))
                if isinstance(value, str):
                    known[value] = given[-1]
        except ValueError as error:
            raise unusable(f"{at(row)}: {error}.") from None
    try:
        codes, table = KINDS[kind].read_posted(given)
    except BadContentError as bad:
        problem = re.sub(r"; \d+ such rows", "", bad.problem)
        raise RefusalError(422, f"{at(bad.row)}: {problem}") from None
    return Contents(codes, table, kind)
