"""Columns -> tensors: what is learnt from the training part, and nothing else, before the network.

Numbers are standardised (:mod:`pcmcnet.data.numbers`). Categories are numbered 1..c in the training vocabulary; 0 is
reserved for those never seen. Where the schema admits missing numbers, they become the mean (0 once standardised) and
each column with gaps gets a 0/1 indicator feature.

All of it is learnt from one part of the table after the other: a table in memory is one part.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcmcnet.data.batches import Coded, EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns import Categorical, Columns, Curve, Kind, Numeric
from pcmcnet.data.contents import ContentCode, Frozen, code_from_dict, code_to_dict, learn_codes, prepare
from pcmcnet.data.moments import Moments
from pcmcnet.data.numbers import NumericCode, Parts, learn_numbers
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ArtifactError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from pcmcnet.data.scan import ScannedData

log = logging.getLogger("pcmcnet")

UNSEEN = 0  # the reserved index of every vocabulary
_ROWS = 2**14  # that are encoded at a time


@dataclass(frozen=True, slots=True)
class CategoryCode:
    """Vocabulary of one column; category k has the index k + 1."""

    name: str
    categories: tuple[str, ...]


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

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of known categories of each categorical column."""
        return tuple(len(code.categories) for code in self.categorical)

    @classmethod
    def learn(
        cls,
        parts: Parts,
        *,
        bend: bool = False,
        contents: bool = False,
        curves: Mapping[str, Curve] | None = None,
        frozen: Mapping[str, Frozen] | None = None,
    ) -> SideEncoder:
        """Learn the codes of the columns, in their order; ``contents`` says that there may be columns of them."""
        moments, vocabularies = _look(parts)
        numeric = learn_numbers(moments, parts, bend=bend, curves=curves or {})
        categorical = [CategoryCode(name, tuple(sorted(words))) for name, words in vocabularies.items()]
        return cls(numeric, tuple(categorical), learn_codes(parts(), frozen) if contents else ())

    def numbers(self, columns: Columns, length: int) -> NDArray[np.float32]:
        """(length, n_numeric) standardised values, then indicators.

        Some rows at a time, of which all columns are written while they are in the processor's cache.
        """
        out = np.zeros((length, self.n_numeric), np.float32)
        found = [_find(columns, code.name, "numeric").values for code in self.numeric]
        for begin in range(0, length, _ROWS):
            rows = slice(begin, begin + _ROWS)
            extra = len(self.numeric)
            for k, (code, column) in enumerate(zip(self.numeric, found, strict=True)):
                values = column[rows].astype(np.float64)
                gaps = np.isnan(values)
                if code.indicator:
                    out[rows, extra] = gaps
                    extra += 1
                elif gaps.any():
                    raise SchemaError(
                        f"column {code.name!r} has {int(np.isnan(column).sum())} missing values, but had none when the "
                        f"model was trained: fill them in, or train on a table with such gaps and missing='indicator'."
                    )
                if code.scale > 0:
                    scaled = code.standardise(values)
                    if code.indicator:
                        scaled[gaps] = 0.0
                    _require_float32(scaled, code, column)
                    out[rows, k] = scaled
        return out

    def indices(self, columns: Columns, length: int) -> NDArray[np.int64]:
        """(length, C) positions in the vocabularies."""
        out = np.zeros((length, len(self.categorical)), np.int64)
        for k, code in enumerate(self.categorical):
            column = _find(columns, code.name, "categorical")
            known = {category: i + 1 for i, category in enumerate(code.categories)}
            table = np.array([known.get(c, UNSEEN) for c in column.categories], np.int64)
            out[:, k] = table[column.codes]
            if (table == UNSEEN).any():
                _report_unseen(column, out[:, k] == UNSEEN, code.name)
        return out

    def coded(self, columns: Columns) -> tuple[Coded, ...]:
        """Prepare each distinct content once: codes, and what they stand for; a gap stands for a blank one."""
        prepared = (prepare(code, _find(columns, code.name, code.kind)) for code in self.contents)
        return tuple(Coded(torch.from_numpy(codes), torch.from_numpy(table)) for codes, table in prepared)

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

    @classmethod
    def learn(
        cls, data: ChoiceData | ScannedData, *, bend: bool = False, frozen: Mapping[str, Frozen] | None = None
    ) -> Encoder:
        """Learn vocabularies, means and scales from the training part; ``bend`` features with a long right tail.

        ``frozen`` names encoders of one's own that are not trained.
        """
        rich = bool(data.schema.contents)
        found: dict[str, Any] = {"contents": rich, "curves": data.schema.curves, "frozen": frozen}
        features = SideEncoder.learn(lambda: (part.features for part in data.parts()), bend=bend, **found)
        who = SideEncoder.learn(lambda: (part.individual for part in data.parts()), **found)
        return cls(data.schema, features, who)

    def encode(self, data: ChoiceData) -> EncodedSets:
        """Turn choice data into tensors; extra columns are ignored, missing ones refused."""
        n, s = len(data.rows), len(data)
        chosen = data.chosen if data.chosen is not None else np.zeros(s, np.int64)
        return EncodedSets(
            sizes=data.sizes,
            starts=torch.from_numpy(data.offsets[:-1].copy()),
            counts=torch.from_numpy(data.sizes),
            numeric=torch.from_numpy(self.features.numbers(data.features, n)),
            categorical=torch.from_numpy(self.features.indices(data.features, n)),
            individual_numeric=torch.from_numpy(self.individual.numbers(data.individual, s)),
            individual_categorical=torch.from_numpy(self.individual.indices(data.individual, s)),
            chosen=torch.from_numpy(chosen.copy()),
            weight=torch.from_numpy(data.weights.astype(np.float32)),
            contents=self.features.coded(data.features),
            individual_contents=self.individual.coded(data.individual),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        sides = {"features": self.features.to_dict(), "individual": self.individual.to_dict()}
        return {"schema": self.schema.to_dict(), **sides}

    @classmethod
    def from_dict(cls, entries: dict[str, Any], frozen: Mapping[str, Frozen] | None = None) -> Encoder:
        """Build from what :meth:`to_dict` returned, and the frozen encoders, which are not saved."""
        try:
            sides = [_side(entries[side], frozen or {}) for side in ("features", "individual")]
            return cls(Schema.from_dict(entries["schema"]), *sides)
        except (KeyError, TypeError) as error:
            raise ArtifactError(f"the saved encoder is incomplete ({error!r}): save the model again.") from error


def _side(entries: dict[str, Any], frozen: Mapping[str, Frozen]) -> SideEncoder:
    return SideEncoder(
        tuple(NumericCode.from_dict(code) for code in entries["numeric"]),
        tuple(CategoryCode(str(code["name"]), tuple(map(str, code["categories"]))) for code in entries["categorical"]),
        tuple(code_from_dict(code, frozen) for code in entries.get("contents", ())),
    )


def _look(parts: Parts) -> tuple[dict[str, Moments], dict[str, set[str]]]:
    """Return the moments of the columns of numbers, and the words of the others."""
    moments: dict[str, Moments] = {}
    words: dict[str, set[str]] = {}
    for columns in parts():
        for name, column in columns.items():
            if isinstance(column, Numeric):
                found = Moments.of(column.values.astype(np.float64))
                moments[name] = moments[name] + found if name in moments else found
            elif isinstance(column, Categorical):  # the table may name categories that only other parts use
                words.setdefault(name, set()).update(column.categories[k] for k in np.unique(column.codes))
    return moments, words


def _require_float32(scaled: NDArray[np.float64], code: NumericCode, column: NDArray[Any]) -> None:
    """Refuse what would become infinite."""
    most = np.finfo(np.float32).max
    if len(scaled) and (scaled.max() > most or scaled.min() < -most):
        far = int((np.abs(code.standardise(column.astype(np.float64))) > most).sum())
        raise SchemaError(
            f"column {code.name!r}: {far} values lie more than 3.4e38 training standard deviations from the "
            f"training mean. Correct them, or train on a table with values of this size."
        )


def _report_unseen(column: Categorical, unseen: NDArray[np.bool_], name: str) -> None:
    """Log how many rows fall to the reserved index; a warning from half of them on."""
    n = int(unseen.sum())
    if n:
        log.log(
            logging.WARNING if 2 * n >= len(unseen) else logging.INFO,
            "column %r: %d of %d rows hold categories never seen in training (first: %r)",
            name,
            n,
            len(unseen),
            column.categories[column.codes[int(np.argmax(unseen))]],
        )


def _find(columns: Columns, name: str, kind: Kind) -> Any:
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
