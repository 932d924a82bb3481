"""Functions for content columns of all kinds (vectors, timestamps, lists, texts, pictures, ids) and for their codes.

This module reads content columns, learns codes chunk by chunk, and converts codes to JSON. If a value cannot be read,
the error names the row. Each kind has a separate module in :mod:`pcmcnet.data.kinds`. Frozen encoders are in
``frozen.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.columns.arrays import MISSING_CODE, Columns, Contents, concat_column
from pcmcnet.data.kinds import KINDS, ContentCode, Kind
from pcmcnet.data.kinds.kind import BadContentError, BadTypeError, CodeLearner
from pcmcnet.data.kinds.vector import VectorCode
from pcmcnet.errors import ArtifactError, ConfigError, SchemaError

if TYPE_CHECKING:
    from pcmcnet.data.column_reader import ColumnReader
    from pcmcnet.data.kinds.frozen import Frozen
    from pcmcnet.data.schema import Missing

# -- Reading -----------------------------------------------------------------------------------------------------------


def read_contents(reader: ColumnReader, column: str, kind: str, *, missing: Missing) -> Contents:
    """Read the values of a content column. Raise SchemaError for missing values unless ``missing`` is "indicator"."""
    values = reader.columns[column]
    if not reader.in_order:
        values = values.take(pa.array(reader.rows))
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        codes, table = KINDS[kind].read(values, reader.folder)
    except BadContentError as bad:
        raise reader.error_at(column, int(reader.rows[bad.row]), bad.problem, bad.remedy) from None
    except BadTypeError as bad:
        raise SchemaError(f"column {column!r} is declared as {kind} but has type {values.type}: {bad}.") from None
    if missing == "error":
        problem = f"expected a value of kind {kind}"
        reader.require_valid(
            column, codes == MISSING_CODE, problem, "Drop them or declare missing='indicator'.", lambda _: "nothing"
        )
    return Contents(codes, table, kind)


# -- Learning ----------------------------------------------------------------------------------------------------------


class ColumnLearner:
    """Learns the code of one column chunk by chunk. If there is only one chunk, nothing is merged."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.first: NDArray[Any] | None = None
        self.learner: CodeLearner | None = None  # from the second chunk on

    def add(self, table: NDArray[Any]) -> None:
        """Add the distinct values of one chunk."""
        if self.first is None:
            self.first = table if len(table) else None
        elif len(table):
            if self.learner is None:
                self.learner = self.kind.learner()
                self.learner.add(self.first)
            self.learner.add(table)

    def code(self, name: str) -> Any:
        """Return the code learnt from all chunks."""
        if self.first is None:
            raise SchemaError(f"column {name!r} has no values in the training data: leave it out.")
        return self.kind.code.learn(name, self.first) if self.learner is None else self.learner.code(name)


# -- Samples -----------------------------------------------------------------------------------------------------------
# A few training values with the vectors that a frozen encoder gave them, saved with a model. The Python code of the
# encoder is not saved: a function is identified by its name, which another function may share. The encoder given at
# loading time is run on these values and must return the same vectors up to rounding.

MAX_SAMPLES = 3  # contents
# Tolerances for other processors: in training standard deviations, and relative to the number.
_SCALE_TOLERANCE, _RELATIVE_TOLERANCE = 0.01, 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class EncoderSamples:
    """Sample values of a content column (k, ...) and their vectors (k, W)."""

    kind: str
    contents: NDArray[Any]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, kind: str, table: NDArray[Any], vectors: NDArray[np.float32]) -> EncoderSamples:
        """Choose samples from distinct values (U, ...) with their vectors (U, W)."""
        chosen = KINDS[kind].choose_samples(table, MAX_SAMPLES)
        return cls(kind, table[chosen], vectors[chosen])

    def differ(self, vectors: NDArray[np.float32], scale: NDArray[np.float64]) -> bool:
        """Return True if vectors differ from the saved vectors by more than a tolerance, given their ``scale`` (W,)."""
        if vectors.shape != self.vectors.shape:
            return True
        error = np.abs(vectors.astype(np.float64) - self.vectors)
        tolerance = _SCALE_TOLERANCE * scale + _RELATIVE_TOLERANCE * np.abs(self.vectors)
        return bool((error > tolerance)[:, scale > 0].any())

    def to_dict(self) -> dict[str, Any]:
        """Return the object as plain values, for JSON."""
        vectors = [[float(str(number)) for number in vector] for vector in self.vectors]
        return {"contents": [KINDS[self.kind].to_saved(content) for content in self.contents], "vectors": vectors}

    @classmethod
    def from_dict(cls, kind: str, entries: Mapping[str, Any]) -> EncoderSamples:
        """Build samples from the result of :meth:`to_dict`, or raise TypeError or ValueError if it is not valid."""
        contents = KINDS[kind].from_saved(entries["contents"])
        vectors = np.array(entries["vectors"], np.float32)
        if len(contents) != len(vectors) or (len(vectors) and vectors.ndim != 2) or not np.isfinite(vectors).all():
            raise TypeError("contents and vectors do not match")
        return cls(kind, contents, vectors)


# -- Content codes -----------------------------------------------------------------------------------------------------
# The code of a column with a frozen encoder: the encoder's vectors, standardised like other vectors.


@dataclass(frozen=True, slots=True)
class FrozenCode:
    """Code of a content column whose values a frozen encoder maps to vectors.

    ``preparation`` prepares the values for a module, and is None if the encoder takes the original values.
    """

    name: str
    kind: str
    preparation: ContentCode | None
    scale: VectorCode
    identity: str  # hash of the encoder
    encoder: Frozen = field(compare=False, repr=False)
    samples: EncoderSamples | None = field(default=None, compare=False, repr=False)  # None in folders of older versions
    dtype: ClassVar[type[np.generic]] = np.float32

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared value."""
        return self.scale.shape

    @classmethod
    def learn(cls, name: str, column: Contents, encoder: Frozen) -> FrozenCode:
        """Encode the distinct values and learn the scale of their vectors."""
        preparation = None if encoder.sees_contents else KINDS[column.kind].code.learn(name, column.table)
        identity = encoder.identity
        vectors = encoder.vectors(name, column.kind, column.table, preparation, identity=identity)
        samples = EncoderSamples.of(column.kind, column.table, vectors)
        return cls(name, column.kind, preparation, VectorCode.learn(name, vectors), identity, encoder, samples)

    def prepare(self, table: NDArray[Any]) -> NDArray[np.float32]:
        """Encode and standardise values: (U, ...) -> (U, W)."""
        if self.encoder.identity != self.identity:
            raise ConfigError(
                f"column {self.name!r}: {self.encoder.label} has changed since the model was fitted: freeze a copy of "
                f"the module."
            )
        vectors = self.encoder.vectors(self.name, self.kind, table, self.preparation, identity=self.identity)
        return self.scale.prepare(vectors)

    def is_valid(self) -> bool:
        """Return True if the fields, as read from a saved model, are valid."""
        return self.kind in KINDS and self.scale.is_valid() and isinstance(self.identity, str)

    def require_same(self) -> None:
        """Raise ArtifactError if the encoder does not return the same vectors as during the fit."""
        if self.samples is None or not len(self.samples.contents):
            return
        vectors = self.encoder.encode_batch(self.name, self.kind, self.samples.contents, self.preparation)
        if self.samples.differ(vectors, np.array(self.scale.scale)):
            raise ArtifactError(
                f"column {self.name!r}: the model was fitted with another {self.encoder.label}: this encoder returns "
                f"different vectors for the training values. Pass the same encoder."
            )


def network_kind(code: ContentCode) -> Kind:
    """Return the kind whose modules take the prepared values. For a frozen encoder, this is the vector kind."""
    return KINDS[VectorCode.kind if isinstance(code, FrozenCode) else code.kind]


def learn_codes(parts: Iterable[Columns], frozen: Mapping[str, Frozen] | None = None) -> tuple[ContentCode, ...]:
    """Learn the codes of all content columns from the distinct values of all chunks."""
    encoders = frozen or {}
    learners: dict[str, ColumnLearner] = {}
    frozen_columns: dict[str, Contents] = {}  # a frozen encoder is run on the contents of all chunks
    for columns in parts:
        for name, column in columns.items():
            if isinstance(column, Contents):
                used = column.compact()
                learners.setdefault(name, ColumnLearner(KINDS[column.kind])).add(used.table)
                if name in encoders:
                    joined = concat_column(frozen_columns[name], used) if name in frozen_columns else used
                    assert isinstance(joined, Contents)
                    frozen_columns[name] = joined
    return tuple(
        FrozenCode.learn(name, frozen_columns[name], encoders[name])
        if name in encoders and len(frozen_columns[name].table)
        else learner.code(name)
        for name, learner in learners.items()
    )


def prepare(code: ContentCode, column: Contents) -> tuple[Ints, NDArray[Any]]:
    """Prepare each distinct value of a column once.

    Return the codes (n,) and the prepared values (U, ...), which are zeros for a missing value.
    """
    used = column.compact()
    table = code.prepare(used.table) if len(used.table) else np.zeros((0, *code.shape), code.dtype)
    if (used.codes == MISSING_CODE).any():
        table = np.concatenate([table, np.zeros((1, *table.shape[1:]), table.dtype)])
    return np.where(used.codes == MISSING_CODE, len(table) - 1, used.codes).astype(np.int64), table


def code_to_dict(code: ContentCode) -> dict[str, Any]:
    """Return the object as plain values, for JSON."""
    if isinstance(code, FrozenCode):
        preparation = None if code.preparation is None else code_to_dict(code.preparation)
        plain = {"name": code.name, "of": code.kind, "identity": code.identity}
        samples = {} if code.samples is None else {"samples": code.samples.to_dict()}
        return {"kind": "frozen", **plain, "given": preparation, "scale": code_to_dict(code.scale), **samples}
    return {"kind": code.kind, **asdict(code)}  # type: ignore[call-overload]  # every code is a dataclass


def code_from_dict(entries: Mapping[str, Any], frozen: Mapping[str, Frozen] | None = None) -> ContentCode:
    """Build a code from the result of :func:`code_to_dict`, or raise KeyError or TypeError if it is not valid."""
    if entries["kind"] == "frozen":
        return _frozen_from_dict(entries, (frozen or {})[entries["name"]])
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in entries.items() if k != "kind"}
    code: ContentCode = KINDS[entries["kind"]].code(**values)
    if not (isinstance(code.name, str) and code.is_valid()):
        raise TypeError(str(code))
    return code


def _frozen_from_dict(entries: Mapping[str, Any], encoder: Frozen) -> FrozenCode:
    """Build the code of a frozen encoder, or raise ArtifactError if the model was fitted with a different encoder."""
    if entries["identity"] != encoder.identity:
        raise ArtifactError(
            f"column {entries['name']!r}: the model was fitted with another {encoder.label}, or with other weights: "
            f"pass the same encoder."
        )
    preparation = None if entries["given"] is None else code_from_dict(entries["given"])
    scale = code_from_dict(entries["scale"])
    if not isinstance(scale, VectorCode):
        raise TypeError(str(scale))
    samples = EncoderSamples.from_dict(entries["of"], entries["samples"]) if "samples" in entries else None
    code = FrozenCode(entries["name"], entries["of"], preparation, scale, entries["identity"], encoder, samples)
    if not code.is_valid():
        raise TypeError(str(code))
    code.require_same()
    return code
