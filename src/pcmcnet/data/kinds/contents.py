"""Contents: columns of vectors, instants, lists, texts, pictures and ids, and their codes.

What all kinds have in common is here: reading with errors that name the row, learning from chunks, the form of codes in
JSON. What differs is in :mod:`pcmcnet.data.kinds`, one module per kind; frozen encoders are in ``frozen.py``.
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
    """Read a column at the reader's rows; refuse gaps unless they may be blank contents."""
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
        raise SchemaError(f"column {column!r} is declared as {kind} and has the type {values.type}: {bad}.") from None
    if missing == "error":
        problem = f"expected a content of kind {kind}"
        reader.require_valid(
            column, codes == MISSING_CODE, problem, "Drop them or declare missing='indicator'.", lambda _: "nothing"
        )
    return Contents(codes, table, kind)


# -- Learning ----------------------------------------------------------------------------------------------------------


class ColumnLearner:
    """Learns the code of one column from one part after the other; a single part is learnt from as it is."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.first: NDArray[Any] | None = None
        self.rest: CodeLearner | None = None

    def add(self, table: NDArray[Any]) -> None:
        """Take in the distinct contents of one part."""
        if self.first is None:
            self.first = table if len(table) else None
        elif len(table):
            if self.rest is None:
                self.rest = self.kind.learner()
                self.rest.add(self.first)
            self.rest.add(table)

    def code(self, name: str) -> Any:
        """Return the code of all parts."""
        if self.first is None:
            raise SchemaError(f"column {name!r} has no content at all in the training part: leave it out.")
        return self.kind.code.learn(name, self.first) if self.rest is None else self.rest.code(name)


# -- Samples -----------------------------------------------------------------------------------------------------------
# A few training contents with the vectors that a frozen encoder gave them, kept with a model. No code is saved, so a
# function is known by its name alone, and another may have the same. One that is given when the model is read is run on
# these contents: it must give the vectors that the model was fitted with, up to rounding.

MAX_SAMPLES = 3  # contents
_NEAR, _ROUNDING = 0.01, 1e-3  # of a training standard deviation, and of a number: what other processors may change


@dataclass(frozen=True, slots=True, eq=False)
class EncoderSamples:
    """(k, ...) contents of a kind and (k, W) their vectors."""

    kind: str
    contents: NDArray[Any]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, kind: str, table: NDArray[Any], vectors: NDArray[np.float32]) -> EncoderSamples:
        """Keep some of (U, ...) contents."""
        at = KINDS[kind].choose_samples(table, MAX_SAMPLES)
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
    def from_dict(cls, kind: str, entries: Mapping[str, Any]) -> EncoderSamples:
        """Build from what :meth:`to_dict` returned; TypeError or ValueError where it is amiss."""
        contents = KINDS[kind].from_saved(entries["contents"])
        vectors = np.array(entries["vectors"], np.float32)
        if len(contents) != len(vectors) or (len(vectors) and vectors.ndim != 2) or not np.isfinite(vectors).all():
            raise TypeError("contents and vectors that do not fit each other")
        return cls(kind, contents, vectors)


# -- Content codes -----------------------------------------------------------------------------------------------------
# A column with a frozen encoder has a code of its own: what the encoder gives, standardised like any vectors.


@dataclass(frozen=True, slots=True)
class FrozenCode:
    """Contents by a frozen encoder: what it is given of them, if not they themselves, and its vectors' scale."""

    name: str
    kind: str
    given: ContentCode | None
    scale: VectorCode
    identity: str  # of the encoder
    encoder: Frozen = field(compare=False, repr=False)
    samples: EncoderSamples | None = field(default=None, compare=False, repr=False)  # none in folders of older versions
    dtype: ClassVar[type[np.generic]] = np.float32

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a network gets for one content."""
        return self.scale.shape

    @classmethod
    def learn(cls, name: str, column: Contents, encoder: Frozen) -> FrozenCode:
        """Encode the distinct contents, and learn the scale of their vectors."""
        given = None if encoder.sees_contents else KINDS[column.kind].code.learn(name, column.table)
        identity = encoder.identity
        vectors = encoder.vectors(name, column.kind, column.table, given, identity=identity)
        samples = EncoderSamples.of(column.kind, column.table, vectors)
        return cls(name, column.kind, given, VectorCode.learn(name, vectors), identity, encoder, samples)

    def prepare(self, table: NDArray[Any]) -> NDArray[np.float32]:
        """(U, ...) contents -> (U, W) standardised vectors."""
        if self.encoder.identity != self.identity:
            raise ConfigError(
                f"column {self.name!r}: {self.encoder.label} has changed since the model was fitted, with which it "
                f"must not: freeze a copy of the module."
            )
        vectors = self.encoder.vectors(self.name, self.kind, table, self.given, identity=self.identity)
        return self.scale.prepare(vectors)

    def is_valid(self) -> bool:
        """Tell whether the values are such as were saved."""
        return self.kind in KINDS and self.scale.is_valid() and isinstance(self.identity, str)

    def require_same(self) -> None:
        """Refuse an encoder that gives other vectors than the one that the model was fitted with."""
        if self.samples is None or not len(self.samples.contents):
            return
        found = self.encoder.encoded(self.name, self.kind, self.samples.contents, self.given)
        if self.samples.differ(found, np.array(self.scale.scale)):
            raise ArtifactError(
                f"column {self.name!r}: the model was fitted with another {self.encoder.label} than this one, which "
                f"gives other vectors for contents of the training table: give the same one."
            )


def network_kind(code: ContentCode) -> Kind:
    """Return the kind whose modules map what the code prepares: a frozen encoder gives vectors."""
    return KINDS[VectorCode.kind if isinstance(code, FrozenCode) else code.kind]


def learn_codes(parts: Iterable[Columns], frozen: Mapping[str, Frozen] | None = None) -> tuple[ContentCode, ...]:
    """Learn the codes of the columns of contents, each from the distinct contents that all parts use."""
    encoders = frozen or {}
    found: dict[str, ColumnLearner] = {}
    whole: dict[str, Contents] = {}  # of frozen encoders, which are run on all contents
    for columns in parts:
        for name, column in columns.items():
            if isinstance(column, Contents):
                used = column.compact()
                found.setdefault(name, ColumnLearner(KINDS[column.kind])).add(used.table)
                if name in encoders:
                    joined = concat_column(whole[name], used) if name in whole else used
                    assert isinstance(joined, Contents)
                    whole[name] = joined
    return tuple(
        FrozenCode.learn(name, whole[name], encoders[name])
        if name in encoders and len(whole[name].table)
        else learner.code(name)
        for name, learner in found.items()
    )


def prepare(code: ContentCode, column: Contents) -> tuple[Ints, NDArray[Any]]:
    """Prepare each content in use once: (n,) codes, and (U, ...) what they stand for; a gap stands for zeros."""
    used = column.compact()
    table = code.prepare(used.table) if len(used.table) else np.zeros((0, *code.shape), code.dtype)
    if (used.codes == MISSING_CODE).any():
        table = np.concatenate([table, np.zeros((1, *table.shape[1:]), table.dtype)])
    return np.where(used.codes == MISSING_CODE, len(table) - 1, used.codes).astype(np.int64), table


def code_to_dict(code: ContentCode) -> dict[str, Any]:
    """Return plain values, for JSON."""
    if isinstance(code, FrozenCode):
        given = None if code.given is None else code_to_dict(code.given)
        plain = {"name": code.name, "of": code.kind, "identity": code.identity}
        kept = {} if code.samples is None else {"samples": code.samples.to_dict()}
        return {"kind": "frozen", **plain, "given": given, "scale": code_to_dict(code.scale), **kept}
    return {"kind": code.kind, **asdict(code)}  # type: ignore[call-overload]  # every code is a dataclass


def code_from_dict(entries: Mapping[str, Any], frozen: Mapping[str, Frozen] | None = None) -> ContentCode:
    """Build from what :func:`code_to_dict` returned; KeyError or TypeError where it is amiss."""
    if entries["kind"] == "frozen":
        return _frozen_from_dict(entries, (frozen or {})[entries["name"]])
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in entries.items() if k != "kind"}
    code: ContentCode = KINDS[entries["kind"]].code(**values)
    if not (isinstance(code.name, str) and code.is_valid()):
        raise TypeError(str(code))
    return code


def _frozen_from_dict(entries: Mapping[str, Any], encoder: Frozen) -> FrozenCode:
    """Refuse another encoder than the column was fitted with."""
    if entries["identity"] != encoder.identity:
        raise ArtifactError(
            f"column {entries['name']!r}: the model was fitted with another {encoder.label} than this one, or with "
            f"other weights: give the same one."
        )
    given = None if entries["given"] is None else code_from_dict(entries["given"])
    scale = code_from_dict(entries["scale"])
    if not isinstance(scale, VectorCode):
        raise TypeError(str(scale))
    samples = EncoderSamples.from_dict(entries["of"], entries["samples"]) if "samples" in entries else None
    code = FrozenCode(entries["name"], entries["of"], given, scale, entries["identity"], encoder, samples)
    if not code.is_valid():
        raise TypeError(str(code))
    code.require_same()
    return code
