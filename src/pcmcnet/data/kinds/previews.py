"""Pictures as text: a data URI that a page or a report can show and a request can carry, with the hash of the original.

    data:image/jpeg;sha256=...;base64,...

A picture of few bytes stands there as it is, a larger one as a copy of at most so many pixels a side.
"""

from __future__ import annotations

import hashlib
import io
import re
from base64 import b64encode
from typing import Any

SHOWN = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp"}  # what every browser shows
_FEW = 4096  # bytes
_HASH = re.compile(r"data:image/\w+;sha256=([0-9a-f]{64});base64,")


def picture_uri(content: bytes, side: int) -> str:
    """Write a picture as a data URI, the same for the same bytes."""
    from PIL import Image  # here, since loading it takes time that few need

    picture = Image.open(io.BytesIO(content))
    kind, shown = SHOWN.get(str(picture.format)), content
    if kind is None or len(content) > _FEW or max(picture.size) > 4 * side:
        kind, shown = "jpeg", _smaller(picture, side)
    return f"data:image/{kind};sha256={hashlib.sha256(content).hexdigest()};base64,{b64encode(shown).decode()}"


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
