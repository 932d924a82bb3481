"""Pictures: file paths, or the bytes of picture files, in any format that Pillow reads.

Paths are relative to the folder of the table's file, or to the working folder for a table in memory.

Each distinct picture is stored once, as its original bytes. A network gets an array (C, H, W) of numbers from 0 to 1,
with one channel if all training pictures are greyscale, otherwise three. If all training pictures have the same size,
the network gets pictures of this size, with height and width limited to 64. If training pictures differ in size, the
network gets 64 x 64 pictures. Pictures of other sizes are resized.
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

MAX_SIDE_PIXELS = 64  # height and width of a prepared picture
MAX_SAVED_BYTES = 2**20  # total of the sample pictures that are saved with a model; larger pictures are left out
_SIZE_SAMPLE = 20  # pictures from which the size of the others is estimated
_GREY_MODES = ("1", "L", "LA", "I", "I;16", "F")  # of Pillow
_DECODING = BoundedSemaphore(2)  # requests that decode pictures at a time: one picture may take hundreds of MB


@dataclass(frozen=True, slots=True)
class ImageCode:
    """Channels, height and width of prepared pictures."""

    name: str
    channels: int
    height: int
    width: int
    kind: ClassVar[str] = "image"
    dtype: ClassVar[type[np.generic]] = np.uint8

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared picture."""
        return (self.channels, self.height, self.width)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> ImageCode:
        """Learn the number of channels and the size of the pictures."""
        learner = _ImageLearner()
        learner.add(table)
        return learner.code(name)

    @classmethod
    def of(cls, name: str, sizes: set[tuple[int, int]], *, grey: bool) -> ImageCode:
        """Choose the number of channels and the size for pictures of the given sizes."""
        width, height = next(iter(sizes)) if len(sizes) == 1 else (MAX_SIDE_PIXELS, MAX_SIDE_PIXELS)
        return cls(name, 1 if grey else 3, min(height, MAX_SIDE_PIXELS), min(width, MAX_SIDE_PIXELS))

    def prepare(self, table: NDArray[Any]) -> NDArray[np.uint8]:
        """Prepare pictures: (U,) files -> (U, C, H, W) numbers from 0 to 255."""
        out = np.empty((len(table), self.height, self.width, self.channels), np.uint8)
        for k, content in enumerate(table):
            picture = _decode(content).convert("L" if self.channels == 1 else "RGB")
            if picture.size != (self.width, self.height):
                picture = picture.resize((self.width, self.height))
            out[k] = np.asarray(picture).reshape(out.shape[1:])
        return np.ascontiguousarray(out.transpose(0, 3, 1, 2))

    def is_valid(self) -> bool:
        """Return True if the fields, as read from a saved model, are valid."""
        has_size = all(isinstance(side, int) and 1 <= side <= MAX_SIDE_PIXELS for side in (self.height, self.width))
        return has_size and self.channels in (1, 3)


def size_and_grey(content: bytes) -> tuple[tuple[int, int], bool]:
    """Return the size (width, height) of a picture, and whether it is greyscale."""
    picture = _decode(content)
    return picture.size, picture.mode in _GREY_MODES


def _read_file(path: str, row: int, folder: Path | None) -> bytes:
    """Return the bytes of a picture file, or raise BadContentError for the row if the file cannot be read."""
    file = Path(path) if folder is None else folder / path
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):  # reading a pipe or a device may never end
            raise OSError("it is not a regular file")
        return file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        base = "the working folder" if folder is None else f"the table's folder, {folder}"
        remedy = f"Paths are relative to {base}: correct the path, or drop the row."
        raise BadContentError(row, f"the picture {path} cannot be read: {reason}.", remedy) from None


class BrokenPictureError(Exception):
    """Error for bytes that cannot be decoded as a picture."""


def _decode(content: bytes) -> Any:
    """Decode a picture."""
    from PIL import Image, UnidentifiedImageError  # imported here: it is slow to import and rarely needed

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(content))
            picture.load()
    except UnidentifiedImageError:
        raise BrokenPictureError(f"expected a picture, got {len(content):,} bytes of another format") from None
    except Exception as error:  # errors of Pillow depend on the format
        raise BrokenPictureError(f"the picture is damaged ({error})") from error
    return picture


# -- Pictures as text --------------------------------------------------------------------------------------------------
# A data URI, with the hash of the original picture, for pages, reports and requests:
#
#     data:image/jpeg;sha256=...;base64,...
#
# A small picture is embedded unchanged, a larger one as a reduced copy.
#
# A request sends the bytes of a picture, in base64 or as a data URI. Text is never treated as a path or an address, so
# no request makes the server open a file. Only formats that Pillow decodes without other programs are accepted, and the
# pixels of the whole request are counted before any picture is decoded.

BROWSER_FORMATS = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp"}  # shown by every browser
_MAX_EMBEDDED_BYTES = 4096  # of a picture that is embedded unchanged
_URI = re.compile(r"data:image/[\w.+-]+(?:;[\w.+-]+=[\w.+-]*)*;base64,", re.IGNORECASE)
_HASH = re.compile(r"data:image/\w+;sha256=([0-9a-f]{64});base64,")
FORMATS = ", ".join(BROWSER_FORMATS)


def picture_uri(content: bytes, side: int) -> str:
    """Return a picture as a data URI, scaled down to ``side`` pixels if it is large. Equal bytes give equal URIs."""
    from PIL import Image  # imported here: it is slow to import and rarely needed

    picture = Image.open(io.BytesIO(content))
    kind, preview = BROWSER_FORMATS.get(str(picture.format)), content
    if kind is None or len(content) > _MAX_EMBEDDED_BYTES or max(picture.size) > 4 * side:
        kind, preview = "jpeg", _reduced(picture, side)
    return f"data:image/{kind};sha256={hashlib.sha256(content).hexdigest()};base64,{b64encode(preview).decode()}"


def original_hash(uri: str) -> str | None:
    """Return the SHA-256 of the original picture that a data URI contains, or None if the text has no such hash."""
    match = _HASH.match(uri)
    return None if match is None else match[1]


def _reduced(picture: Any, side: int) -> bytes:
    """Return a smaller JPEG copy of a picture, in the colour mode of the network's input."""
    grey = len(picture.getbands()) <= 2 and not picture.mode.startswith("P")
    copy = picture.convert("L" if grey else "RGB")
    copy.thumbnail((side, side))
    file = io.BytesIO()
    copy.save(file, "JPEG", quality=90)
    return file.getvalue()


# -- Kind --------------------------------------------------------------------------------------------------------------


class _ImageLearner:
    """Collects the sizes of pictures and records whether all of them are greyscale."""

    def __init__(self) -> None:
        self.forms: set[tuple[tuple[int, int], bool]] = set()

    def add(self, table: NDArray[Any]) -> None:
        self.forms.update(map(size_and_grey, table))

    def code(self, name: str) -> ImageCode:
        return ImageCode.of(name, {size for size, _ in self.forms}, grey=all(grey for _, grey in self.forms))


class ImageKind(Kind):
    """Pictures."""

    name, code, stored = "image", ImageCode, pa.binary()
    arrow_type, page_field = pa.binary(), "image"
    learner_class = _ImageLearner

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read paths or bytes, check each distinct picture, and return codes (n,) and pictures (U,) as bytes."""
        types, kind = pa.types, values.type
        are_paths = is_text(kind)
        if not (are_paths or types.is_binary(kind) or types.is_large_binary(kind) or types.is_null(kind)):
            raise BadTypeError("expected paths of pictures, or their bytes")
        pictures: dict[Any, bytes] = {}
        column = values.to_pylist()
        for row, value in enumerate(column):
            if value is not None and value not in pictures:
                pictures[value] = _read_file(value, row, folder) if are_paths else value
                try:
                    _decode(pictures[value])
                except BrokenPictureError as error:
                    remedy = "Give a picture in a format such as PNG or JPEG, or drop the row."
                    raise BadContentError(row, f"{f'{value}: ' if are_paths else ''}{error}.", remedy) from None
        present = np.array([value is not None for value in column], np.bool_)
        return number_distinct(
            object_array([pictures[value] for value in column if value is not None]), present, len(column)
        )

    def file_bytes(self, values: pa.Array, folder: Path) -> float:
        """Return the mean size of the first picture files.

        Missing files are skipped here and reported by :meth:`read`.
        """
        if not is_text(values.type):
            return 0.0
        files: list[Path] = [folder / path for path in islice(filter(None, values.unique().to_pylist()), 50)]
        sizes = [path.stat().st_size for path in files if path.is_file()]
        return sum(sizes) / max(len(sizes), 1)

    def prepared_bytes(self, table: NDArray[Any]) -> int:
        """Return the number of bytes of a prepared picture, assuming colour and the sizes of the first pictures."""
        sizes = {size_and_grey(content)[0] for content in table[:_SIZE_SAMPLE]}
        return int(np.prod(ImageCode.of("", sizes, grey=False).shape))

    def encoder(self, code: Any) -> nn.Module:
        """Return a convolutional network."""
        from pcmcnet.data.kinds.networks import PictureEncoder

        return PictureEncoder(code.shape)

    def worth(self, code: Any) -> None:
        """Return None, because a linear utility of pixels would have no meaning."""

    def to_json(self, content: Any) -> str:
        """Return a picture as a data URI. A large picture is replaced by a smaller copy."""
        return picture_uri(content, MAX_SIDE_PIXELS)

    def content_key(self, content: Any) -> str:
        """Return the hash of the original picture, because the JSON value may hold a smaller copy."""
        return hashlib.sha256(content).hexdigest()

    def json_content_key(self, value: Any) -> str:
        """Return the hash of the original picture that a data URI contains."""
        return original_hash(str(value)) or repr(value)

    def to_saved(self, content: Any) -> str:
        """Return the bytes in base64."""
        return b64encode(content).decode()

    def from_saved(self, contents: list[Any]) -> NDArray[Any]:
        """Restore bytes from base64."""
        return object_array([b64decode(content) for content in contents])

    def choose_samples(self, table: NDArray[Any], max_samples: int) -> Ints:
        """Return the indices of the smallest pictures, up to ``MAX_SAVED_BYTES`` in total."""
        sizes = np.array([len(content) for content in table])
        order = np.argsort(sizes, kind="stable")
        chosen: Ints = order[np.cumsum(sizes[order]) <= MAX_SAVED_BYTES][:max_samples]
        return chosen

    def plain(self, content: Any) -> Any:
        """Return an RGB Pillow image."""
        from PIL import Image  # imported here: it is slow to import and rarely needed

        return Image.open(io.BytesIO(content)).convert("RGB")

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the JSON schema of a picture."""
        description = f"The bytes of a picture ({FORMATS}), in base64 or as a data URI. Paths and URLs are not opened."
        return {"type": "string", "description": description}

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> bytes:
        """Return the bytes of a picture. Only the picture's header is parsed, to count the pixels."""
        from PIL import Image  # imported here: it is slow to import and rarely needed

        expected = "expected the bytes of a picture, in base64 or as a data URI (paths and URLs are not opened)"
        if not isinstance(value, str):
            raise ValueError(f"{expected}, got {describe_value(value)}")
        prefix = _URI.match(value)
        try:
            content = b64decode(value[prefix.end() if prefix else 0 :], validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{expected}, got {describe_value(value)}") from None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the budget is a lower limit
                width, height = Image.open(io.BytesIO(content), formats=list(BROWSER_FORMATS)).size
        except Image.DecompressionBombError:
            width = height = pixels.max_pixels
        except Exception as error:  # errors of Pillow depend on the format
            raise ValueError(
                f"{expected}, got {len(content):,} bytes that match none of the formats {FORMATS}"
            ) from error
        pixels.spend(width * height)
        return content

    def read_posted(self, values: list[Any]) -> ReadContents:
        """Decode posted pictures, limiting the number of requests that do so at the same time."""
        with _DECODING:
            return super().read_posted(values)

    def label(self, code: Any) -> str:
        """Return the kind, height and width of the pictures."""
        return f"{self.name}, {code.height} × {code.width}"


register(ImageKind())
