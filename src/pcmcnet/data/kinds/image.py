"""Pictures: files by their paths, or the bytes of such files, in any format that Pillow reads.

Paths count from the folder of the table's file, and those of a table in memory from the working folder.

The bytes are kept as they are, each distinct picture once. A network gets (C, H, W) numbers from 0 to 1: one channel
where all training pictures are grey and else three; the size of the training pictures where it is one, at most 64 a
side, and else 64 x 64. Pictures of other sizes are brought to it.
"""

from __future__ import annotations

import binascii
import hashlib
import io
import re
import warnings
from base64 import b64decode, b64encode
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.columns.distinct import is_text
from pcmcnet.data.kinds.kind import (
    BadContentError,
    BadTypeError,
    Kind,
    PixelBudget,
    ReadContents,
    number_distinct,
    object_array,
    register,
)
from pcmcnet.errors import describe_value

if TYPE_CHECKING:
    from torch import nn

MAX_SIDE_PIXELS = 64  # pixels of a side
MAX_SAVED_BYTES = 2**20  # bytes of pictures that are saved with a model; larger ones are left out
_SEEN = 20  # pictures, by which the size of the others is judged
_GREY = ("1", "L", "LA", "I", "I;16", "F")
_DECODING = BoundedSemaphore(2)  # pictures at once, of all requests: each may take some hundred MB


@dataclass(frozen=True, slots=True)
class ImageCode:
    """Number of channels, height and width."""

    name: str
    channels: int
    height: int
    width: int
    kind: ClassVar[str] = "image"
    dtype: ClassVar[type[np.generic]] = np.uint8

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a network gets for one picture."""
        return (self.channels, self.height, self.width)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> ImageCode:
        """Learn channels and size."""
        found = [size_and_grey(content) for content in table]
        return cls.of(name, {size for size, _ in found}, grey=all(grey for _, grey in found))

    @classmethod
    def of(cls, name: str, sizes: set[tuple[int, int]], *, grey: bool) -> ImageCode:
        """Choose channels and size for pictures of these sizes."""
        width, height = next(iter(sizes)) if len(sizes) == 1 else (MAX_SIDE_PIXELS, MAX_SIDE_PIXELS)
        return cls(name, 1 if grey else 3, min(height, MAX_SIDE_PIXELS), min(width, MAX_SIDE_PIXELS))

    def prepare(self, table: NDArray[Any]) -> NDArray[np.uint8]:
        """(U,) files -> (U, C, H, W) numbers from 0 to 255."""
        out = np.empty((len(table), self.height, self.width, self.channels), np.uint8)
        for k, content in enumerate(table):
            picture = _opened(content).convert("L" if self.channels == 1 else "RGB")
            if picture.size != (self.width, self.height):
                picture = picture.resize((self.width, self.height))
            out[k] = np.asarray(picture).reshape(out.shape[1:])
        return np.ascontiguousarray(out.transpose(0, 3, 1, 2))

    def is_valid(self) -> bool:
        """Tell whether the values are such as were saved."""
        whole = all(isinstance(side, int) and 1 <= side <= MAX_SIDE_PIXELS for side in (self.height, self.width))
        return whole and self.channels in (1, 3)


def size_and_grey(content: bytes) -> tuple[tuple[int, int], bool]:
    """Return the width and height of a picture, and whether it has no colours."""
    picture = _opened(content)
    return picture.size, picture.mode in _GREY


def _file(path: str, row: int, folder: Path | None) -> bytes:
    file = Path(path) if folder is None else folder / path
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):  # a pipe or a device may never end
            raise OSError("it is no file")
        return file.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        start = "the working folder" if folder is None else f"the table's folder, {folder}"
        remedy = f"Paths count from {start}: correct the path, or drop the row."
        raise BadContentError(row, f"the picture {path} cannot be read: {why}.", remedy) from None


class BrokenPictureError(Exception):
    """Bytes that are no picture."""


def _opened(content: bytes) -> Any:
    """Decode a picture."""
    from PIL import Image, UnidentifiedImageError  # here, since loading it takes time that few need

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(content))
            picture.load()
    except UnidentifiedImageError:
        raise BrokenPictureError(f"expected a picture, got {len(content):,} bytes that are none") from None
    except Exception as error:  # Pillow's readers raise what they meet, by format
        raise BrokenPictureError(f"the picture is broken ({error})") from error
    return picture


# -- Pictures as text --------------------------------------------------------------------------------------------------
# A data URI that a page or a report can show and a request can carry, with the hash of the original.
#
#     data:image/jpeg;sha256=...;base64,...
#
# A picture of few bytes stands there as it is, a larger one as a copy of at most so many pixels a side.
#
# A request has a picture as its bytes, in base64 or as a data URI. A text in its place is never taken for a path or an
# address: no request makes the server open anything. Only formats that Pillow decodes by itself are taken, and pixels
# are counted before any of them is decoded, over the whole request.

BROWSER_FORMATS = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp"}  # what every browser shows
_FEW = 4096  # bytes
_URI = re.compile(r"data:image/[\w.+-]+(?:;[\w.+-]+=[\w.+-]*)*;base64,", re.IGNORECASE)
_HASH = re.compile(r"data:image/\w+;sha256=([0-9a-f]{64});base64,")
FORMATS = ", ".join(BROWSER_FORMATS)


def picture_uri(content: bytes, side: int) -> str:
    """Write a picture as a data URI, the same for the same bytes."""
    from PIL import Image  # here, since loading it takes time that few need

    picture = Image.open(io.BytesIO(content))
    kind, preview = BROWSER_FORMATS.get(str(picture.format)), content
    if kind is None or len(content) > _FEW or max(picture.size) > 4 * side:
        kind, preview = "jpeg", _smaller(picture, side)
    return f"data:image/{kind};sha256={hashlib.sha256(content).hexdigest()};base64,{b64encode(preview).decode()}"


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


# -- Kind --------------------------------------------------------------------------------------------------------------


class _ImageLearner:
    """The sizes found so far, and whether all are grey."""

    def __init__(self) -> None:
        self.found: set[tuple[tuple[int, int], bool]] = set()

    def add(self, table: NDArray[Any]) -> None:
        self.found.update(map(size_and_grey, table))

    def code(self, name: str) -> ImageCode:
        return ImageCode.of(name, {size for size, _ in self.found}, grey=all(grey for _, grey in self.found))


class ImageKind(Kind):
    """Pictures."""

    name, code, stored = "image", ImageCode, pa.binary()
    arrow_type, page_field = pa.binary(), "image"
    learner_class = _ImageLearner

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read paths or bytes, and look into each distinct picture: (n,) codes and (U,) the bytes of distinct ones."""
        types, kind = pa.types, values.type
        named = is_text(kind)
        if not (named or types.is_binary(kind) or types.is_large_binary(kind) or types.is_null(kind)):
            raise BadTypeError("expected paths of pictures, or their bytes")
        known: dict[Any, bytes] = {}
        column = values.to_pylist()
        for row, given in enumerate(column):
            if given is not None and given not in known:
                known[given] = _file(given, row, folder) if named else given
                try:
                    _opened(known[given])
                except BrokenPictureError as error:
                    remedy = "Give a picture in a format such as PNG or JPEG, or drop the row."
                    raise BadContentError(row, f"{f'{given}: ' if named else ''}{error}.", remedy) from None
        present = np.array([given is not None for given in column], np.bool_)
        return number_distinct(
            object_array([known[given] for given in column if given is not None]), present, len(column)
        )

    def file_bytes(self, values: pa.Array, folder: Path) -> float:
        """Return the mean size of some files; what is wrong with a path is told when it is read."""
        if not is_text(values.type):
            return 0.0
        found: list[Path] = [folder / path for path in islice(filter(None, values.unique().to_pylist()), 50)]
        sizes = [path.stat().st_size for path in found if path.is_file()]
        return sum(sizes) / max(len(sizes), 1)

    def prepared_bytes(self, table: NDArray[Any]) -> int:
        """Return the bytes of a picture with colours, of the size of the first ones."""
        sizes = {size_and_grey(content)[0] for content in table[:_SEEN]}
        return int(np.prod(ImageCode.of("", sizes, grey=False).shape))

    def encoder(self, code: Any) -> nn.Module:
        """Look at the pixels by convolutions."""
        from pcmcnet.data.kinds.networks import PictureEncoder

        return PictureEncoder(code.shape)

    def worth(self, code: Any) -> None:
        """Give none: no sum of pixels is of worth."""

    def to_json(self, content: Any) -> str:
        """Write a picture as a data URI, perhaps of a smaller copy."""
        return picture_uri(content, MAX_SIDE_PIXELS)

    def content_key(self, content: Any) -> str:
        """Return the hash of a picture, of which JSON may have a smaller copy."""
        return hashlib.sha256(content).hexdigest()

    def json_content_key(self, value: Any) -> str:
        """Return the hash of the picture that a data URI was made from."""
        return original_hash(str(value)) or repr(value)

    def to_saved(self, content: Any) -> str:
        """Write the bytes in base64."""
        return b64encode(content).decode()

    def from_saved(self, contents: list[Any]) -> NDArray[Any]:
        """Read bytes."""
        return object_array([b64decode(content) for content in contents])

    def choose_samples(self, table: NDArray[Any], most: int) -> Ints:
        """Choose the smallest pictures."""
        sizes = np.array([len(content) for content in table])
        order = np.argsort(sizes, kind="stable")
        chosen: Ints = order[np.cumsum(sizes[order]) <= MAX_SAVED_BYTES][:most]
        return chosen

    def plain(self, content: Any) -> Any:
        """Return an RGB image of Pillow."""
        from PIL import Image  # here, since loading it takes time that few need

        return Image.open(io.BytesIO(content)).convert("RGB")

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the schema of a picture."""
        what = f"The bytes of a picture ({FORMATS}), in base64 or as a data URI. No path or address is opened."
        return {"type": "string", "description": what}

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> bytes:
        """Take the bytes of a picture, after looking at its first ones only."""
        from PIL import Image  # here, since loading it takes time that few need

        expected = "expected the bytes of a picture, in base64 or as a data URI (no path or address is opened)"
        if not isinstance(value, str):
            raise ValueError(f"{expected}, got {describe_value(value)}")
        found = _URI.match(value)
        try:
            content = b64decode(value[found.end() if found else 0 :], validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{expected}, got {describe_value(value)}") from None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # counted here, with a lower bound
                width, height = Image.open(io.BytesIO(content), formats=list(BROWSER_FORMATS)).size
        except Image.DecompressionBombError:
            width = height = pixels.most
        except Exception as error:  # Pillow's readers raise what they meet, by format
            raise ValueError(f"{expected}, got {len(content):,} bytes that are none of {FORMATS}") from error
        pixels.take(width * height)
        return content

    def read_posted(self, values: list[Any]) -> ReadContents:
        """Decode few pictures at a time."""
        with _DECODING:
            return super().read_posted(values)

    def label(self, code: Any) -> str:
        """Say how high and wide the pictures are."""
        return f"{self.name}, {code.height} × {code.width}"


register(ImageKind())
