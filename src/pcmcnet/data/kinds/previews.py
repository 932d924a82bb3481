"""Pictures as text: a data URI that a page or a report can show and a request can carry, with the hash of the original.

    data:image/jpeg;sha256=...;base64,...

A picture of few bytes stands there as it is, a larger one as a copy of at most so many pixels a side.

A request has a picture as its bytes, in base64 or as a data URI. A text in its place is never taken for a path or an
address: no request makes the server open anything. Only formats that Pillow decodes by itself are taken, and pixels
are counted before any of them is decoded, over the whole request.
"""

from __future__ import annotations

import binascii
import hashlib
import io
import re
import warnings
from base64 import b64decode, b64encode
from typing import Any

from pcmcnet.errors import shown

SHOWN = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp"}  # what every browser shows
_FEW = 4096  # bytes
_URI = re.compile(r"data:image/[\w.+-]+(?:;[\w.+-]+=[\w.+-]*)*;base64,", re.IGNORECASE)
_HASH = re.compile(r"data:image/\w+;sha256=([0-9a-f]{64});base64,")
FORMATS = ", ".join(SHOWN)


class Pixels:
    """How many more pixels the pictures of a request may have."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, count: int) -> None:
        """Count those of one picture; ValueError says that they are too many."""
        self.left -= count
        if self.left < 0:
            raise ValueError(f"expected at most {self.most:,} pixels in the pictures of a request: send smaller ones")


def picture_uri(content: bytes, side: int) -> str:
    """Write a picture as a data URI, the same for the same bytes."""
    from PIL import Image  # here, since loading it takes time that few need

    picture = Image.open(io.BytesIO(content))
    kind, shown = SHOWN.get(str(picture.format)), content
    if kind is None or len(content) > _FEW or max(picture.size) > 4 * side:
        kind, shown = "jpeg", _smaller(picture, side)
    return f"data:image/{kind};sha256={hashlib.sha256(content).hexdigest()};base64,{b64encode(shown).decode()}"


def posted_picture(value: Any, pixels: Pixels) -> bytes:
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


def original_hash(uri: str) -> str | None:
    """Return the SHA-256 of the picture that such a URI was made from; None where the text is none."""
    found = _HASH.match(uri)
    return None if found is None else found[1]


def _smaller(picture: Any, side: int) -> bytes:
    """Draw a smaller copy, in the colours that a network would see."""
    grey = len(picture.getbands()) <= 2 and not picture.mode.startswith("P")
    copy = picture.convert("L" if grey else "RGB")
    copy.thumbnail((side, side))
    file = io.BytesIO()
    copy.save(file, "JPEG", quality=90)
    return file.getvalue()
