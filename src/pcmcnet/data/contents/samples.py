"""A few training contents with the vectors that a frozen encoder gave them, kept with a model.

No code is saved, so a function is known by its name alone, and another may have the same. One that is given when the
model is read is run on these contents: it must give the vectors that the model was fitted with, up to rounding.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.columns import ContentKind

KEPT = 3  # contents
LARGEST = 2**20  # bytes of pictures that are kept; larger ones are left out
_NEAR, _ROUNDING = 0.01, 1e-3  # of a training standard deviation, and of a number: what other processors may change


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """(k, ...) contents of a kind and (k, W) their vectors."""

    kind: ContentKind
    contents: NDArray[Any]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, kind: ContentKind, table: NDArray[Any], vectors: NDArray[np.float32]) -> Samples:
        """Keep some of (U, ...) contents: of pictures the smallest, of others the first, the last and one between."""
        if kind == "image":
            sizes = np.array([len(content) for content in table])
            order = np.argsort(sizes, kind="stable")
            at = order[np.cumsum(sizes[order]) <= LARGEST][:KEPT]
        else:
            at = np.unique(np.linspace(0, len(table) - 1, KEPT).round().astype(np.int64))
        return cls(kind, table[at], vectors[at])

    def differ(self, vectors: NDArray[np.float32], scale: NDArray[np.float64]) -> bool:
        """Tell whether an encoder gave other vectors; ``scale`` (W,) is their standard deviation in training."""
        if vectors.shape != self.vectors.shape:
            return True
        apart = np.abs(vectors.astype(np.float64) - self.vectors)
        return bool((apart > _NEAR * scale + _ROUNDING * np.abs(self.vectors))[:, scale > 0].any())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        vectors = [[float(str(number)) for number in vector] for vector in self.vectors]
        return {"contents": [_written(content) for content in self.contents], "vectors": vectors}

    @classmethod
    def from_dict(cls, kind: ContentKind, entries: Mapping[str, Any]) -> Samples:
        """Build from what :meth:`to_dict` returned; TypeError or ValueError where it is amiss."""
        contents = _read(kind, entries["contents"])
        vectors = np.array(entries["vectors"], np.float32)
        if len(contents) != len(vectors) or (len(vectors) and vectors.ndim != 2) or not np.isfinite(vectors).all():
            raise TypeError("contents and vectors that do not fit each other")
        return cls(kind, contents, vectors)


def _written(content: Any) -> Any:
    """Write a content as JSON has it, so that it can be read again."""
    if isinstance(content, bytes):
        return b64encode(content).decode()
    if isinstance(content, np.datetime64):
        return str(content)
    return content.tolist() if isinstance(content, np.generic | np.ndarray) else content


def _read(kind: ContentKind, contents: list[Any]) -> NDArray[Any]:
    """Read contents as a column of their kind has them."""
    if kind == "datetime":
        return np.array(contents, "datetime64[us]")
    if kind in ("vector", "id"):
        return np.array(contents, np.float32 if kind == "vector" else np.int64)
    plain: dict[str, Callable[[Any], Any]] = {"text": str, "image": b64decode, "multi": tuple}
    table = np.empty(len(contents), object)
    table[:] = [plain[kind](content) for content in contents]
    return table
