"""Columns -> codes: what is learnt from the training part, and nothing else, before the network.

Numbers are standardised (:mod:`pcmcnet.data.kinds.number`). Categories are numbered 1..c in the training vocabulary; 0
is reserved for those never seen. Where the schema admits missing numbers, they become the mean (0 once standardised)
and each column with gaps gets a 0/1 indicator feature. The label of an alternative is a category like others, for
models that want it; one that hardly ever returns says nothing of other sets, and counts as never seen.

All of it is learnt from one part of the table after the other: a table in memory is one part. Tensors are made of it
in :mod:`pcmcnet.data.tensors`, which alone needs PyTorch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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

BLOCK_VALUES = 2**18  # numbers that are standardised at a time (measured: fewer and more take longer)


@dataclass(frozen=True, slots=True)
class SideEncoder:
    """The codes of one side: the alternatives' columns, or the individual's."""

    numeric: tuple[NumericCode, ...]
    categorical: tuple[CategoryCode, ...]
    contents: tuple[ContentCode, ...] = ()

    @property
    def n_numeric(self) -> int:
        """Width of the numeric tensor: columns plus indicators."""
        return len(self.numeric) + sum(code.indicator for code in self.numeric)

    def __bool__(self) -> bool:
        """Whether there is anything to see."""
        return bool(self.numeric or any(self.cardinalities) or self.contents)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of known categories of each categorical column."""
        return tuple(len(code.categories) for code in self.categorical)

    @property
    def embeddings(self) -> tuple[tuple[int, int], ...]:
        """Number of known categories of each categorical column, and the width of its embedding."""
        return tuple((c, embedding_width(c)) for c in self.cardinalities)

    @classmethod
    def learn(
        cls,
        seen: Statistics,
        each: Each,
        *,
        bend: bool = False,
        contents: bool = False,
        curves: Mapping[str, Curve] | None = None,
        frozen: Mapping[str, Frozen] | None = None,
        label: str | None = None,
    ) -> SideEncoder:
        """Learn the codes of the columns that were looked at; ``contents`` says that there may be columns of them.

        Of the column ``label`` only words that are common are known.
        """
        moments, vocabularies = seen
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
        """Return the columns of numbers as they are; refuse gaps that training had not, and what becomes infinite."""
        raw = [_find(columns, code.name, "numeric").values for code in self.numeric]
        if not raw or not len(raw[0]):
            return raw
        # 1. The least and the largest number of each column, which is NaN where there are gaps.
        ends = np.array([(column.min(), column.max()) for column in raw], np.float64)  # (K, 2)
        for k in np.flatnonzero(np.isnan(ends).any(1)).tolist():
            gaps = np.isnan(raw[k])
            if not self.numeric[k].indicator:
                raise SchemaError(
                    f"column {self.numeric[k].name!r} has {int(gaps.sum())} missing values, but had none when the "
                    f"model was trained: fill them in, or train on a table with such gaps and missing='indicator'."
                )
            ends[k] = (raw[k][~gaps].min(), raw[k][~gaps].max()) if not gaps.all() else np.nan
        # 2. Standardised numbers never fall as numbers rise: none is further out than these.
        beyond = _is_beyond_float32(standardise(self.numeric, code_table(self.numeric), ends)[0]).any(1)
        for k in np.flatnonzero(beyond).tolist():
            far = int(_is_beyond_float32(self.numeric[k].standardise(raw[k].astype(np.float64))).sum())
            raise SchemaError(
                f"column {self.numeric[k].name!r}: {far} values lie more than 3.4e38 training standard deviations from "
                f"the training mean. Correct them, or train on a table with values of this size."
            )
        return raw

    def with_knots(self, each: Each) -> SideEncoder:
        """Return the same codes, with knots at quantiles of the columns, from which pieces can be made."""
        return replace(self, numeric=learn_knots(self.numeric, each))

    def with_bins(self, most: int) -> SideEncoder:
        """Return the same codes, and so many pieces at most of each column with knots, as further numbers."""
        pieces = (piece for code in self.numeric for piece in bin_codes(code, most))
        return replace(self, numeric=(*self.numeric, *pieces))

    def numbers(self, columns: Columns, length: int) -> NDArray[np.float32]:
        """(length, n_numeric) standardised values, then indicators; some rows at a time."""
        out = np.empty((length, self.n_numeric), np.float32)
        raw, table, width = self.raw_numbers(columns), code_table(self.numeric), len(self.numeric)
        step = max(BLOCK_VALUES // max(width, 1), 1)
        for begin in range(0, length if width else 0, step):
            rows = slice(begin, begin + step)
            block = np.array([column[rows] for column in raw], np.float64)  # (K, n)
            values, gaps = standardise(self.numeric, table, block)
            out[rows, :width], out[rows, width:] = values.T, gaps.T
        return out

    def codes(self, columns: Columns, unseen: UnseenCounts) -> list[NDArray[np.int32]]:
        """Return each column of categories as positions in its vocabulary; count what is in none."""
        indices = []
        for code in self.categorical:
            column = _find(columns, code.name, "categorical")
            indices.append(code.indices(column.categories)[column.codes])
            unseen.count(code, column, indices[-1])
        return indices

    def indices(self, columns: Columns, length: int, unseen: UnseenCounts | None = None) -> NDArray[np.int64]:
        """(length, C) positions in the vocabularies; what is in none is counted, or else logged."""
        out = np.zeros((length, len(self.categorical)), np.int64)
        counted = UnseenCounts() if unseen is None else unseen
        for k, codes in enumerate(self.codes(columns, counted)):
            out[:, k] = codes
        if unseen is None:
            counted.report()
        return out

    def prepared(self, columns: Columns) -> Iterator[tuple[Ints, NDArray[Any]]]:
        """Prepare each distinct content once: codes, and what they stand for; a gap stands for a blank one."""
        return (prepare(code, _find(columns, code.name, code.kind)) for code in self.contents)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = {side: [asdict(code) for code in getattr(self, side)] for side in ("numeric", "categorical")}
        return plain | ({"contents": [code_to_dict(code) for code in self.contents]} if self.contents else {})


@dataclass(frozen=True, slots=True)
class Encoder:
    """Everything learnt from the training table's columns; saved with the model."""

    schema: Schema
    features: SideEncoder
    individual: SideEncoder
    labels: bool = False  # whether the label is one of the features

    @classmethod
    def learn(
        cls,
        data: ChoiceData | ScannedData,
        *,
        bend: bool = False,
        frozen: Mapping[str, Frozen] | None = None,
        labels: bool = False,
    ) -> Encoder:
        """Learn vocabularies, means and scales from the training part; ``bend`` features with a long right tail.

        ``frozen`` names encoders of one's own that are not trained. With ``labels`` the label of the alternative, where
        there is one, is a feature.
        """
        schema = data.schema
        label = label_column(schema) if labels else None
        options: dict[str, Any] = {"contents": bool(schema.contents), "curves": schema.curves, "frozen": frozen}
        # 1. Look at the columns of both sides at once: to open a shard takes as long as to look at it.
        seen, own = partial(_seen, label=label), attrgetter("individual")
        looks = list(data.each(partial(_look_at_both, seen, own)))
        of_seen, of_own = (Statistics.merge([look[side] for look in looks]) for side in (0, 1))
        # 2. Learn the codes of each side, which may take further looks.
        features = SideEncoder.learn(
            of_seen, lambda f: data.each(partial(_after, seen, f)), bend=bend, label=label, **options
        )
        individual = SideEncoder.learn(of_own, lambda f: data.each(partial(_after, own, f)), **options)
        return cls(schema, features, individual, label is not None)

    def with_knots(self, data: ChoiceData | ScannedData) -> Encoder:
        """Return the same, with knots learnt from the training part: see :meth:`SideEncoder.with_knots`."""
        features, individual = (
            getattr(self, side).with_knots(lambda f, of=attrgetter(side): data.each(partial(_after, of, f)))
            for side in ("features", "individual")
        )
        return replace(self, features=features, individual=individual)

    @property
    def has_knots(self) -> bool:
        """Whether pieces can be made of any column."""
        return any(code.knots for side in (self.features, self.individual) for code in side.numeric)

    def with_bins(self, most: int) -> Encoder:
        """Return the same, and numbers as curves: see :meth:`SideEncoder.with_bins`."""
        return replace(self, features=self.features.with_bins(most), individual=self.individual.with_bins(most))

    def encode(self, data: ChoiceData, *, warn: bool = True, device: torch.device | None = None) -> EncodedSets:
        """Turn choice data into tensors on a device, or on the CPU; extra columns are ignored, missing ones refused.

        ``tell`` of categories never seen in training.
        """
        from pcmcnet.data.tensors import encode_sets  # here, since it needs PyTorch

        unseen = UnseenCounts()
        encoded = encode_sets(self, data, unseen, device)
        if warn:
            unseen.report()
        return encoded

    def seen(self, data: ChoiceData) -> Columns:
        """Return the columns of the alternatives that a network sees."""
        return _seen(data, self.schema.alternative if self.labels else None)

    def nbytes(self, data: ChoiceData) -> int:
        """Bytes of the tensors of numbers, categories and sets that choice data becomes."""
        features, individual = (4 * s.n_numeric + 8 * len(s.categorical) for s in (self.features, self.individual))
        return len(data.rows) * features + len(data) * (individual + 5 * 8)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        sides = {"features": self.features.to_dict(), "individual": self.individual.to_dict()}
        return {"schema": self.schema.to_dict(), **sides, "labels": self.labels}

    @classmethod
    def from_dict(cls, entries: dict[str, Any], frozen: Mapping[str, Frozen] | None = None) -> Encoder:
        """Build from what :meth:`to_dict` returned, and the frozen encoders, which are not saved."""
        try:
            features, who = (_side(entries[side], frozen or {}) for side in ("features", "individual"))
            encoder = cls(Schema.from_dict(entries["schema"]), features, who, bool(entries.get("labels", False)))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, ArtifactError | ConfigError):
                raise
            raise ArtifactError(f"the saved encoder is incomplete ({error!r}): save the model again.") from error
        encoder._require_known()
        return encoder

    def _require_known(self) -> None:
        """Refuse codes of columns that the schema does not have."""
        features = (*self.schema.features, self.schema.alternative)
        for side, known in ((self.features, features), (self.individual, self.schema.individual)):
            codes: tuple[Any, ...] = (*side.numeric, *side.categorical, *side.contents)
            for code in codes:
                if code.name not in known:
                    raise ArtifactError(f"the saved encoder has a column {code.name!r}, and the saved schema none.")


def label_column(schema: Schema) -> str | None:
    """Return the column of labels where there is one that is not declared as a feature or of the individual anyway."""
    return schema.alternative if schema.alternative not in (*schema.features, *schema.individual) else None


def _seen(data: ChoiceData, label: str | None) -> Columns:
    """Return the columns of the alternatives that a network sees."""
    if label is None:
        return data.features
    if data.labels is None:
        raise SchemaError(
            f"the model was trained with the labels of alternatives, column {label!r}, which this table does not "
            f"declare: read it with alternative={label!r}, or train with labels=False."
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
    """Learn an encoder by :meth:`Encoder.learn`; from a table on disk only once, as it is kept beside the shards."""
    if isinstance(data, ChoiceData) or frozen:
        return Encoder.learn(data, bend=bend, labels=labels, frozen=frozen)
    from pcmcnet.data.scan.scanned import learn_or_load_encoder  # which builds on this module

    return learn_or_load_encoder(data, bend=bend, labels=labels)


def _look_at_both(
    seen: Callable[[ChoiceData], Columns], own: Callable[[ChoiceData], Columns], part: ChoiceData
) -> tuple[Statistics, Statistics]:
    return Statistics.of(seen(part)), Statistics.of(own(part))


def _contents(columns: Columns) -> Columns:
    return {name: column.compact() for name, column in columns.items() if isinstance(column, Contents)}


def _after(side: Callable[[ChoiceData], Columns], function: Callable[[Columns], U], part: ChoiceData) -> U:
    """Call a function for one side's columns of a part."""
    return function(side(part))


def _is_beyond_float32(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell what would become infinite."""
    return np.abs(values) > np.finfo(np.float32).max


def _find(columns: Columns, name: str, kind: str) -> Any:
    if name not in columns:
        raise SchemaError(
            f"the model was trained with column {name!r}, which the table does not have." + did_you_mean(name, columns)
        )
    if columns[name].kind != kind:
        raise SchemaError(
            f"column {name!r} was {kind} when the model was trained and is {columns[name].kind} now: "
            f"read the table by the model's schema, or declare the same categorical columns and kinds."
        )
    return columns[name]
