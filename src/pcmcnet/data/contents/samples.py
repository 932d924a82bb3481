"""A few training contents with the vectors that a frozen encoder gave them, kept with a model.

No code is saved, so a function is known by its name alone, and another may have the same. One that is given when the
model is read is run on these contents: it must give the vectors that the model was fitted with, up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.kinds import KINDS

KEPT = 3  # contents
_NEAR, _ROUNDING = 0.01, 1e-3  # of a training standard deviation, and of a number: what other processors may change


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """(k, ...) contents of a kind and (k, W) their vectors."""

    kind: str
    contents: NDArray[Any]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, kind: str, table: NDArray[Any], vectors: NDArray[np.float32]) -> Samples:
        """Keep some of (U, ...) contents."""
        at = KINDS[kind].choose(table, KEPT)
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
        return {"contents": [KINDS[self.kind].to_saved(content) for content in self.contents], "vectors": vectors}

    @classmethod
    def from_dict(cls, kind: str, entries: Mapping[str, Any]) -> Samples:
        """Build from what :meth:`to_dict` returned; TypeError or ValueError where it is amiss."""
        contents = KINDS[kind].from_saved(entries["contents"])
        vectors = np.array(entries["vectors"], np.float32)
        if len(contents) != len(vectors) or (len(vectors) and vectors.ndim != 2) or not np.isfinite(vectors).all():
            raise TypeError("contents and vectors that do not fit each other")
        return cls(kind, contents, vectors)
