"""Vectors, instants, lists, texts, pictures and ids in a request -> contents, as a table with them would be read.

A picture comes as its bytes, in base64 or as a data URI. A text in its place is never taken for a path or an address:
no request makes the server open anything. Only formats that Pillow decodes by itself are taken, and pixels are counted
before any of them is decoded, over the whole request.
"""

from __future__ import annotations

import binascii
import io
import re
import warnings
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.data.columns import Contents
from pcmcnet.data.kinds.datetime import read_instants
from pcmcnet.data.kinds.errors import BadContentError
from pcmcnet.data.kinds.id import read_ids
from pcmcnet.data.kinds.image import read_images
from pcmcnet.data.kinds.multi import read_lists
from pcmcnet.data.kinds.previews import SHOWN
from pcmcnet.data.kinds.text import read_texts
from pcmcnet.data.kinds.vector import read_vectors
from pcmcnet.serving.refusal import RefusalError, shown, unusable

Where = Callable[[int], str]
FORMATS = ", ".join(SHOWN)
_DECODING = BoundedSemaphore(2)  # pictures at once, of all requests: each may take some hundred MB
_LARGEST = float(np.finfo(np.float32).max)
_URI = re.compile(r"data:image/[\w.+-]+(?:;[\w.+-]+=[\w.+-]*)*;base64,", re.IGNORECASE)
_READ: Mapping[str, Any] = {
    "vector": (read_vectors, pa.list_(pa.float64())),
    "datetime": (read_instants, pa.string()),
    "multi": (read_lists, pa.list_(pa.string())),
    "text": (read_texts, pa.string()),
    "image": (read_images, pa.binary()),
    "id": (read_ids, pa.int64()),
}


class Pixels:
    """How many more pixels the pictures of a request may have."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, count: int) -> None:
        """Count those of one picture; ValueError says that they are too many."""
        self.left -= count
        if self.left < 0:
            raise ValueError(f"expected at most {self.most:,} pixels in the pictures of a request: send smaller ones")


def contents_of(values: list[Any], kind: Any, at: Where, *, gaps: bool, size: int | None, pixels: Pixels) -> Contents:
    """Read one column; ``at(row)`` names a place and the column, ``size`` is that of vectors where it is known."""
    check = {
        "vector": lambda value: _vector(value, size),
        "datetime": lambda value: _text(value, "a date or a time such as '2024-05-17T09:30'"),
        "multi": _names,
        "text": lambda value: _text(value, "a text"),
        "image": lambda value: _picture(value, pixels),
        "id": _id,
    }[kind]
    given: list[Any] = []
    known: dict[str, Any] = {}
    for row, value in enumerate(values):
        if value is None and gaps and kind != "id":
            given.append(None)
            continue
        try:
            if kind == "image" and isinstance(value, str):  # copies of a picture are decoded once
                if value not in known:
                    known[value] = check(value)
                given.append(known[value])
            else:
                given.append(check(value))
        except ValueError as error:
            raise unusable(f"{at(row)}: {error}.") from None
    return _contents(given, kind, at)


def _contents(values: list[Any], kind: Any, at: Where) -> Contents:
    read, type_ = _READ[kind]
    try:
        with _DECODING if kind == "image" else nullcontext():
            codes, table = read(pa.chunked_array([pa.array(values, type_)]))
    except BadContentError as bad:
        problem = re.sub(r"; \d+ such rows", "", bad.problem)
        raise RefusalError(422, f"{at(bad.row)}: {problem}") from None
    return Contents(codes, table, kind)


def _vector(value: Any, size: int | None) -> list[float]:
    what = "numbers" if size is None else f"{size} numbers"
    if not isinstance(value, list):
        raise ValueError(f"expected a list of {what}, got {shown(value)}")
    if not value or (size is not None and len(value) != size):
        raise ValueError(f"expected a vector of {what}, as the model was trained with, got one of {len(value)}")
    for k, number in enumerate(value):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"expected {what}, got {shown(number)} at place {k}")
        if not abs(number) <= _LARGEST:
            raise ValueError(f"expected numbers below 3.4e38, got {shown(number)} at place {k}")
    return [float(number) for number in value]


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected {what}, got {shown(value)}")
    return value


def _names(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list of categories, got {shown(value)}")
    for name in value:
        if not isinstance(name, str | int | float):
            raise ValueError(f"expected a list of categories, got {shown(name)} in it")
        if isinstance(name, float) and not np.isfinite(name):
            raise ValueError("expected a list of categories, got a number that is not finite in it")
    return [str(name) for name in value]


def _id(value: Any) -> int:
    whole = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, float) and value.is_integer():
        whole = int(value)  # JSON may write 2.0
    if whole is None or not 0 <= whole < 2**63:
        raise ValueError(f"expected a whole number from 0, got {shown(value)}")
    return whole


def _picture(value: Any, pixels: Pixels) -> bytes:
    """Take the bytes of a picture, after looking at its first ones only."""
    from PIL import Image  # here, since loading it takes time that few need

    expected = "expected the bytes of a picture, in base64 or as a data URI (no path or address is opened)"
    if not isinstance(value, str):
        raise ValueError(f"{expected}, got {shown(value)}")
    found = _URI.match(value)
    try:
        content = b64decode(value[found.end() if found else 0 :], validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{expected}, got {shown(value)}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # counted here, with a lower bound
            width, height = Image.open(io.BytesIO(content), formats=list(SHOWN)).size
    except Image.DecompressionBombError:
        width = height = pixels.most
    except Exception as error:  # Pillow's readers raise what they meet, by format
        raise ValueError(f"{expected}, got {len(content):,} bytes that are none of {FORMATS}") from error
    pixels.take(width * height)
    return content
