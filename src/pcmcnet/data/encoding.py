"""Columns -> tensors: what is learnt from the training part, and nothing else, before the network.

Numbers are standardised by the training mean and standard deviation; a column that is constant in training
carries no information and becomes 0. Columns with a long right tail, such as prices, may be bent before, to
asinh(x / bend): near 0 that is a line, further out a logarithm, and it is defined for every number. Categories
are numbered 1..c in the training vocabulary; 0 is reserved for those never seen. Where the schema admits missing
numbers, they become the mean (0 once standardised) and each column with gaps gets a 0/1 indicator feature.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcmcnet.data.batches import EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns import Categorical, Columns, Kind, Numeric
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ArtifactError, SchemaError, did_you_mean

log = logging.getLogger("pcmcnet")

UNSEEN = 0  # the reserved index of every vocabulary
_SKEWED = 1.5  # skewness from which a tail is long: that of an exponential distribution is 2, of a normal one 0
_FEW = 10  # distinct values, such as counts, that are left as they are


@dataclass(frozen=True, slots=True)
class NumericCode:
    """Standardisation of one column; ``scale`` 0 marks a constant column, ``bend`` 0 one that is not bent."""

    name: str
    mean: float
    scale: float
    indicator: bool
    bend: float = 0.0

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bend, if so, and bring to mean 0 and standard deviation 1 in training."""
        return (_bent(values, self.bend) - self.mean) / self.scale

    def slope(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivative of :meth:`standardise`; 0 for missing values and for a constant column."""
        if self.scale == 0:
            return np.zeros_like(values)
        bent = 1 / np.hypot(values, self.bend) if self.bend > 0 else np.ones_like(values)
        return np.where(np.isnan(values), 0.0, bent / self.scale)


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

    @property
    def n_numeric(self) -> int:
        """Width of the numeric tensor: columns plus indicators."""
        return len(self.numeric) + sum(code.indicator for code in self.numeric)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of known categories of each categorical column."""
        return tuple(len(code.categories) for code in self.categorical)

    @classmethod
    def learn(cls, columns: Columns, *, bend: bool = False) -> SideEncoder:
        """Learn the codes of the columns, in their order."""
        numeric = [_learn_numeric(n, c, bend=bend) for n, c in columns.items() if isinstance(c, Numeric)]
        categorical = [_learn_categories(n, c) for n, c in columns.items() if isinstance(c, Categorical)]
        return cls(tuple(numeric), tuple(categorical))

    def numbers(self, columns: Columns, length: int) -> NDArray[np.float32]:
        """(length, n_numeric) standardised values, then indicators."""
        out = np.zeros((length, self.n_numeric), np.float32)
        extra = len(self.numeric)
        for k, code in enumerate(self.numeric):
            values = _find(columns, code.name, "numeric").values.astype(np.float64)
            gaps = np.isnan(values)
            if gaps.any() and not code.indicator:
                raise SchemaError(
                    f"column {code.name!r} has {int(gaps.sum())} missing values, but had none when the model was "
                    f"trained: fill them in, or train on a table with such gaps and missing='indicator'."
                )
            if code.scale > 0:
                scaled = np.where(gaps, 0.0, code.standardise(values))
                _require_float32(scaled, code.name)
                out[:, k] = scaled
            if code.indicator:
                out[:, extra] = gaps
                extra += 1
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


@dataclass(frozen=True, slots=True)
class Encoder:
    """Everything learnt from the training table's columns; saved with the model."""

    schema: Schema
    features: SideEncoder
    individual: SideEncoder

    @classmethod
    def learn(cls, data: ChoiceData, *, bend: bool = False) -> Encoder:
        """Learn vocabularies, means and scales from the training part; ``bend`` features with a long right tail."""
        features = SideEncoder.learn(data.features, bend=bend)
        return cls(data.schema, features, SideEncoder.learn(data.individual))

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
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        sides = {"features": asdict(self.features), "individual": asdict(self.individual)}
        return {"schema": self.schema.to_dict(), **sides}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Encoder:
        """Build from what :meth:`to_dict` returned."""
        try:
            return cls(Schema.from_dict(entries["schema"]), _side(entries["features"]), _side(entries["individual"]))
        except (KeyError, TypeError) as error:
            raise ArtifactError(f"the saved encoder is incomplete ({error!r}): save the model again.") from error


def _side(entries: dict[str, Any]) -> SideEncoder:
    return SideEncoder(
        tuple(NumericCode(**code) for code in entries["numeric"]),
        tuple(CategoryCode(code["name"], tuple(code["categories"])) for code in entries["categorical"]),
    )


def _learn_numeric(name: str, column: Numeric, *, bend: bool) -> NumericCode:
    values = column.values.astype(np.float64)
    gaps = np.isnan(values)
    values = values[~gaps]
    if not values.size:
        raise SchemaError(f"column {name!r} has no value at all in the training part: leave it out.")
    constant = values.min() == values.max()
    turn = _bend_of(values) if bend and not constant else 0.0
    values = _bent(values, turn)
    scale = 0.0 if constant else float(values.std())
    return NumericCode(name, float(values.mean()), scale, bool(gaps.any()), turn)


def _bend_of(values: NDArray[np.float64]) -> float:
    """Return where a column with a long right tail is to bend, 0 for others and for those of few distinct values."""
    spread = values.std()
    skewness = float((((values - values.mean()) / spread) ** 3).mean()) if spread > 0 else 0.0
    middle = float(np.median(np.abs(values)))
    few = len(np.unique(values)) <= _FEW
    return middle / 4 if skewness > _SKEWED and middle > 0 and not few else 0.0


def _bent(values: NDArray[np.float64], bend: float) -> NDArray[np.float64]:
    return np.arcsinh(values / bend) if bend > 0 else values


def _learn_categories(name: str, column: Categorical) -> CategoryCode:
    present = np.unique(column.codes)  # the table may name categories that only other parts use
    return CategoryCode(name, tuple(sorted(column.categories[k] for k in present)))


def _require_float32(scaled: NDArray[np.float64], name: str) -> None:
    """Refuse what would become infinite."""
    far = np.flatnonzero(np.abs(scaled) > np.finfo(np.float32).max)
    if far.size:
        raise SchemaError(
            f"column {name!r}: {far.size} values lie more than 3.4e38 training standard deviations from the "
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
            f"read the table by the model's schema, or declare the same categorical columns."
        )
    return columns[name]
