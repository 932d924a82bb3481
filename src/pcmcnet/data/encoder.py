"""Encoding of columns as codes, learnt only from the training data.

Numbers are standardised (:mod:`pcmcnet.data.kinds.number`). The categories of the training vocabulary are numbered
1..c, and 0 denotes a category that is not in the vocabulary. If the schema allows missing values, missing numbers are
replaced by the mean (0 after standardisation), and each column with missing values gets a 0/1 indicator feature. Some
models also use the label of an alternative as a category. A rare label carries little information about other sets and
is treated as unseen.

Encoders are learnt from the parts of a table: a table in memory is one part, and a scanned table has one part per
shard. Only :mod:`pcmcnet.data.tensors`, which converts the codes to tensors, needs PyTorch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import Columns, Contents, Curve
from pcmcnet.data.kinds import ContentCode
from pcmcnet.data.kinds.category import MIN_SETS_OF_LABEL, CategoryCode, UnseenCounts, embedding_width
from pcmcnet.data.kinds.contents import code_from_dict, code_to_dict, learn_codes, prepare
from pcmcnet.data.kinds.number import (
    Each,
    NumericCode,
    Statistics,
    bin_codes,
    code_table,
    learn_knots,
    learn_numeric_codes,
    standardise,
)
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ArtifactError, ConfigError, SchemaError, did_you_mean

if TYPE_CHECKING:
    import torch

    from pcmcnet.data.batches import EncodedSets
    from pcmcnet.data.kinds.frozen import Frozen
    from pcmcnet.data.scan import ScannedData

U = TypeVar("U")

BLOCK_VALUES = 2**18  # numbers standardised at a time (smaller and larger blocks measured slower)


@dataclass(frozen=True, slots=True)
class SideEncoder:
    """Codes of the feature columns or of the individual-level columns."""

    numeric: tuple[NumericCode, ...]
    categorical: tuple[CategoryCode, ...]
    contents: tuple[ContentCode, ...] = ()

    @property
    def n_numeric(self) -> int:
        """Width of the numeric tensor: number of numeric codes plus number of missing-value indicators."""
        return len(self.numeric) + sum(code.indicator for code in self.numeric)

    def __bool__(self) -> bool:
        """Whether the encoded columns provide any input to a network."""
        return bool(self.numeric or any(self.cardinalities) or self.contents)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Size of the vocabulary of each categorical column."""
        return tuple(len(code.categories) for code in self.categorical)

    @property
    def embeddings(self) -> tuple[tuple[int, int], ...]:
        """Vocabulary size and embedding width of each categorical column."""
        return tuple((c, embedding_width(c)) for c in self.cardinalities)

    @classmethod
    def learn(
        cls,
        statistics: Statistics,
        each: Each,
        *,
        bend: bool = False,
        contents: bool = False,
        curves: Mapping[str, Curve] | None = None,
        frozen: Mapping[str, Frozen] | None = None,
        label: str | None = None,
    ) -> SideEncoder:
        """Learn the codes of the feature columns or of the individual-level columns.

        Parameters
        ----------
        statistics
            Moments of the numeric columns and counts of the categories, from a first pass over the training data.
        each
            Function that applies another function to the columns of each part, for further passes over the training
            data.
        bend
            Whether to transform numbers with a long right tail, False by default.
        contents
            Whether there may be content columns, such as texts or images (False by default).
        curves
            Kind of curve for each numeric column that has a curve (none by default).
        frozen
            User-supplied encoders of content columns, which are not trained (none by default).
        label
            Name of the label column, whose vocabulary leaves out rare labels. If None (default), labels are not used.
        """
        moments, vocabularies = statistics
        numeric = learn_numeric_codes(moments, each, bend=bend, curves=curves or {})
        if label is not None:
            vocabularies[label] = Counter(
                {word: n for word, n in vocabularies[label].items() if n >= MIN_SETS_OF_LABEL}
            )
        categorical = [
            CategoryCode(name, tuple(sorted(words)), common=name == label) for name, words in vocabularies.items()
        ]
        return cls(numeric, tuple(categorical), learn_codes(each(_contents), frozen) if contents else ())

    def raw_numbers(self, columns: Columns) -> list[NDArray[np.float32]]:
        """Return the numeric columns unchanged.

        Raises SchemaError for missing values in a column that had none in training, and for values that overflow
        float32 when standardised.
        """
        raw = [_find(columns, code.name, "numeric").values for code in self.numeric]
        if not raw or not len(raw[0]):
            return raw
        # 1. Find the minimum and maximum of each column; NaN shows that values are missing.
        ends = np.array([(column.min(), column.max()) for column in raw], np.float64)  # (K, 2)
        for k in np.flatnonzero(np.isnan(ends).any(1)).tolist():
            is_missing = np.isnan(raw[k])
            if not self.numeric[k].indicator:
                raise SchemaError(
                    f"column {self.numeric[k].name!r} has {int(is_missing.sum())} missing values, but had none when "
                    f"the model was trained: fill them in, or train on a table with missing values in this column and "
                    f"missing='indicator'."
                )
            present = raw[k][~is_missing]
            ends[k] = (present.min(), present.max()) if len(present) else np.nan
        # 2. Standardisation is monotone: if the minimum and maximum fit into float32, all values do.
        overflows = _overflows_float32(standardise(self.numeric, code_table(self.numeric), ends)[0]).any(1)
        for k in np.flatnonzero(overflows).tolist():
            count = int(_overflows_float32(self.numeric[k].standardise(raw[k].astype(np.float64))).sum())
            raise SchemaError(
                f"column {self.numeric[k].name!r}: {count} values are more than 3.4e38 training standard deviations "
                f"away from the training mean. Correct them, or train on a table with values of this size."
            )
        return raw

    def with_knots(self, each: Each) -> SideEncoder:
        """Return a copy whose numeric codes have knots at quantiles of the columns. Bins may end at these knots."""
        return replace(self, numeric=learn_knots(self.numeric, each))

    def with_bins(self, max_bins: int) -> SideEncoder:
        """Return a copy with further numeric codes: up to ``max_bins`` bins for each column with knots."""
        bins = (bin_code for code in self.numeric for bin_code in bin_codes(code, max_bins))
        return replace(self, numeric=(*self.numeric, *bins))

    def numbers(self, columns: Columns, length: int) -> NDArray[np.float32]:
        """Return the standardised values, followed by the missing-value indicators: (length, n_numeric)."""
        out = np.empty((length, self.n_numeric), np.float32)
        raw, table, width = self.raw_numbers(columns), code_table(self.numeric), len(self.numeric)
        step = max(BLOCK_VALUES // max(width, 1), 1)  # rows per block
        for begin in range(0, length if width else 0, step):
            rows = slice(begin, begin + step)
            block = np.array([column[rows] for column in raw], np.float64)  # (K, n)
            values, indicators = standardise(self.numeric, table, block)
            out[rows, :width], out[rows, width:] = values.T, indicators.T
        return out

    def codes(self, columns: Columns, unseen: UnseenCounts) -> list[NDArray[np.int32]]:
        """Return the vocabulary indices of each categorical column. Unseen categories are counted in ``unseen``."""
        indices = []
        for code in self.categorical:
            column = _find(columns, code.name, "categorical")
            indices.append(code.indices(column.categories)[column.codes])
            unseen.count(code, column, indices[-1])
        return indices

    def indices(self, columns: Columns, length: int, unseen: UnseenCounts | None = None) -> NDArray[np.int64]:
        """Return the vocabulary indices of all categorical columns: (length, C).

        Unseen categories are counted in ``unseen``. If ``unseen`` is None (default), the counts of unseen categories
        are logged.
        """
        out = np.zeros((length, len(self.categorical)), np.int64)
        counts = UnseenCounts() if unseen is None else unseen
        for k, codes in enumerate(self.codes(columns, counts)):
            out[:, k] = codes
        if unseen is None:
            counts.report()
        return out

    def prepared(self, columns: Columns) -> Iterator[tuple[Ints, NDArray[Any]]]:
        """Yield the codes and the prepared distinct values of each content column.

        Missing values are prepared as zeros.
        """
        return (prepare(code, _find(columns, code.name, code.kind)) for code in self.contents)

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as plain values, for JSON."""
        plain = {side: [asdict(code) for code in getattr(self, side)] for side in ("numeric", "categorical")}
        return plain | ({"contents": [code_to_dict(code) for code in self.contents]} if self.contents else {})


@dataclass(frozen=True, slots=True)
class Encoder:
    """The encoding of all columns, learnt from the training data and saved with the model.

    Parameters
    ----------
    schema
        Roles of the columns.
    features
        Codes of the feature columns.
    individual
        Codes of the individual-level columns.
    labels
        Whether the label of the alternative is one of the features (False by default).
    """

    schema: Schema
    features: SideEncoder
    individual: SideEncoder
    labels: bool = False

    @classmethod
    def learn(
        cls,
        data: ChoiceData | ScannedData,
        *,
        bend: bool = False,
        frozen: Mapping[str, Frozen] | None = None,
        labels: bool = False,
    ) -> Encoder:
        """Learn vocabularies, means and scales from the training data.

        Parameters
        ----------
        data
            Choice sets of the training data.
        bend
            Whether to transform numeric features with a long right tail, False by default.
        frozen
            User-supplied encoders of content columns, which are not trained (none by default).
        labels
            Whether to use the label of the alternative, if declared, as a feature (False by default).

        Returns
        -------
        Encoder
        """
        schema = data.schema
        label = label_column(schema) if labels else None
        options: dict[str, Any] = {"contents": bool(schema.contents), "curves": schema.curves, "frozen": frozen}
        # 1. Compute statistics of both sides in one pass: opening a shard takes as long as reading it.
        of_features, of_individual = partial(_feature_columns, label=label), attrgetter("individual")
        by_part = list(data.each(partial(_statistics_of_sides, (of_features, of_individual))))
        statistics = [Statistics.merge([part[side] for part in by_part]) for side in (0, 1)]
        # 2. Learn the codes of each side, which may need further passes.
        features = SideEncoder.learn(
            statistics[0], lambda f: data.each(partial(_apply, of_features, f)), bend=bend, label=label, **options
        )
        individual = SideEncoder.learn(statistics[1], lambda f: data.each(partial(_apply, of_individual, f)), **options)
        return cls(schema, features, individual, label is not None)

    def with_knots(self, data: ChoiceData | ScannedData) -> Encoder:
        """Return a copy with knots learnt from the training data by :meth:`SideEncoder.with_knots`."""
        features, individual = (
            getattr(self, side).with_knots(lambda f, side=attrgetter(side): data.each(partial(_apply, side, f)))
            for side in ("features", "individual")
        )
        return replace(self, features=features, individual=individual)

    @property
    def has_knots(self) -> bool:
        """Whether any column has knots and can therefore be cut into bins."""
        return any(code.knots for side in (self.features, self.individual) for code in side.numeric)

    def with_bins(self, max_bins: int) -> Encoder:
        """Return a copy with up to ``max_bins`` bins for each column with knots, from :meth:`SideEncoder.with_bins`."""
        features, individual = self.features.with_bins(max_bins), self.individual.with_bins(max_bins)
        return replace(self, features=features, individual=individual)

    def encode(self, data: ChoiceData, *, warn: bool = True, device: torch.device | None = None) -> EncodedSets:
        """Encode choice data as tensors.

        Parameters
        ----------
        data
            Choice sets with the same columns as the training data. Further columns are ignored.
        warn
            Whether to log categories that are not in the training vocabulary, True by default.
        device
            Device of the tensors. If None (default), the tensors are on the CPU.

        Returns
        -------
        EncodedSets

        Raises
        ------
        SchemaError
            If a column is missing, or if its kind differs from training.
        """
        from pcmcnet.data.tensors import encode_sets  # imported here because it needs PyTorch

        unseen = UnseenCounts()
        encoded = encode_sets(self, data, unseen, device)
        if warn:
            unseen.report()
        return encoded

    def feature_columns(self, data: ChoiceData) -> Columns:
        """Return the columns of the alternatives that are network inputs: the features, and also the labels if used."""
        return _feature_columns(data, self.schema.alternative if self.labels else None)

    def nbytes(self, data: ChoiceData) -> int:
        """Return the size in bytes of the encoded tensors of ``data``, without content columns."""
        features, individual = (4 * s.n_numeric + 8 * len(s.categorical) for s in (self.features, self.individual))
        return len(data.rows) * features + len(data) * (individual + 5 * 8)

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as plain values, for JSON."""
        sides = {"features": self.features.to_dict(), "individual": self.individual.to_dict()}
        return {"schema": self.schema.to_dict(), **sides, "labels": self.labels}

    @classmethod
    def from_dict(cls, entries: dict[str, Any], frozen: Mapping[str, Frozen] | None = None) -> Encoder:
        """Build an encoder from the result of :meth:`to_dict`.

        Parameters
        ----------
        entries
            Result of :meth:`to_dict`.
        frozen
            User-supplied encoders of content columns, which are not saved with the model (none by default).

        Returns
        -------
        Encoder

        Raises
        ------
        ArtifactError
            If an entry is missing or invalid.
        """
        try:
            schema, labels = Schema.from_dict(entries["schema"]), bool(entries.get("labels", False))
            features, individual = (_side(entries[side], frozen or {}) for side in ("features", "individual"))
            encoder = cls(schema, features, individual, labels)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, ArtifactError | ConfigError):
                raise
            raise ArtifactError(f"the saved encoder is incomplete ({error!r}): save the model again.") from error
        encoder._require_known()
        return encoder

    def _require_known(self) -> None:
        """Raise ArtifactError if the encoder has a column that is not in the schema."""
        features = (*self.schema.features, self.schema.alternative)
        for side, columns in ((self.features, features), (self.individual, self.schema.individual)):
            codes: tuple[Any, ...] = (*side.numeric, *side.categorical, *side.contents)
            for code in codes:
                if code.name not in columns:
                    raise ArtifactError(
                        f"the saved encoder has a column {code.name!r} that is not in the saved schema."
                    )


def label_column(schema: Schema) -> str | None:
    """Return the label column, or None if there is none or if it is already a feature or individual-level column."""
    return schema.alternative if schema.alternative not in (*schema.features, *schema.individual) else None


def _feature_columns(data: ChoiceData, label: str | None) -> Columns:
    """Return the feature columns, and also the label column unless ``label`` is None."""
    if label is None:
        return data.features
    if data.labels is None:
        raise SchemaError(
            f"the model was trained with the labels of alternatives in column {label!r}, but this table declares no "
            f"labels: read it with alternative={label!r}, or train with labels=False."
        )
    return {**data.features, label: data.labels}


def _side(entries: dict[str, Any], frozen: Mapping[str, Frozen]) -> SideEncoder:
    return SideEncoder(
        tuple(NumericCode.from_dict(code) for code in entries["numeric"]),
        tuple(
            CategoryCode(str(code["name"]), tuple(map(str, code["categories"])), bool(code.get("common", False)))
            for code in entries["categorical"]
        ),
        tuple(code_from_dict(code, frozen) for code in entries.get("contents", ())),
    )


def learn_encoder(
    data: ChoiceData | ScannedData,
    *,
    bend: bool = False,
    labels: bool = False,
    frozen: Mapping[str, Frozen] | None = None,
) -> Encoder:
    """Learn an encoder with :meth:`Encoder.learn`. The encoder of a scanned table is cached next to its shards."""
    if isinstance(data, ChoiceData) or frozen:
        return Encoder.learn(data, bend=bend, labels=labels, frozen=frozen)
    from pcmcnet.data.scan.scanned import learn_or_load_encoder  # it imports this module

    return learn_or_load_encoder(data, bend=bend, labels=labels)


def _statistics_of_sides(sides: Sequence[Callable[[ChoiceData], Columns]], part: ChoiceData) -> list[Statistics]:
    return [Statistics.of(side(part)) for side in sides]


def _contents(columns: Columns) -> Columns:
    return {name: column.compact() for name, column in columns.items() if isinstance(column, Contents)}


def _apply(side: Callable[[ChoiceData], Columns], function: Callable[[Columns], U], part: ChoiceData) -> U:
    """Apply a function to some columns of a part. Unlike a lambda, ``_apply`` can be sent to other processes."""
    return function(side(part))


def _overflows_float32(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the values that overflow float32."""
    return np.abs(values) > np.finfo(np.float32).max


def _find(columns: Columns, name: str, kind: str) -> Any:
    if name not in columns:
        raise SchemaError(
            f"the model was trained with column {name!r}, which is not in this table." + did_you_mean(name, columns)
        )
    if columns[name].kind != kind:
        raise SchemaError(
            f"column {name!r}: expected {kind} as in training, got {columns[name].kind}: "
            f"read the table with the model's schema, or declare the same categorical columns and kinds."
        )
    return columns[name]
