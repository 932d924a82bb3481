"""The result of a fit: one immutable record, which ``ChoiceModel.fit`` assigns once.

    Fitted
      schema    the roles of the training table's columns
      table     TrainingTable: what the model was fitted to
      state     FittedState: what the model learnt; every family of models has its own subclass

A state holds arrays, encoders and networks, which a model writes to files of its own, and plain facts, its ``record``.
Records and tables are saved as JSON and read back by the types of their fields, so the dataclasses of a model document
its part of the saved format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from pcmcnet.data import ChoiceData, Schema, Sets

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """What a model was fitted to.

    Parameters
    ----------
    fingerprint
        Hash of the choice sets that the model was fitted to.
    choice_sets, alternatives
        Their numbers.
    seed
        The seed of the fit.
    persons
        Number of persons, if the table declares them.
    drawn_from
        Fingerprint of the whole table, if the choice sets are a part of one.
    seconds
        Duration of the fit, if it was measured.
    description
        Ranges of the columns and example choice sets, as ``ChoiceData.describe`` gives them. Fits by several processes
        have none.
    """

    fingerprint: str
    choice_sets: int
    alternatives: int
    seed: int
    persons: int | None = None
    drawn_from: str | None = None
    seconds: float | None = None
    description: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, train: Sets, fingerprint: str, seed: int, description: Mapping[str, Any]) -> TrainingTable:
        """Return the facts of a training part."""
        knows_persons = isinstance(train, ChoiceData) and train.schema.person is not None
        return cls(
            fingerprint=fingerprint,
            choice_sets=len(train),
            alternatives=train.n_alternatives,
            seed=seed,
            persons=len(np.unique(train.groups())) if knows_persons else None,
            description=description,
        )

    @property
    def columns(self) -> Mapping[str, Any]:
        """The ranges of the columns by name; empty if they are not known."""
        columns: Mapping[str, Any] = self.description.get("columns", {})
        return columns


@dataclass(frozen=True, kw_only=True)
class FitRecord:
    """Plain facts about how a fit went. A model with more to say has a subclass."""

    converged: bool | None = None  # None for models whose fit always ends


@dataclass(frozen=True, kw_only=True)
class FittedState:
    """What a model learnt. A subclass adds its arrays, encoders and networks."""

    record: FitRecord = field(default_factory=FitRecord)
    history: Sequence[Mapping[str, Any]] = ()  # one entry per epoch, of models that train in epochs


@dataclass(frozen=True, kw_only=True)
class FittedModel:
    """A fitted model, apart from its options."""

    schema: Schema
    table: TrainingTable
    state: FittedState

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the table and of the fit that are set, as plain values."""
        facts = {**asdict(self.table), **asdict(self.state.record)}
        return {name: value for name, value in facts.items() if value is not None and name != "description"}


def record_to_dict(record: Any) -> Any:
    """Return a record as plain values for JSON, which has no infinity: such a number becomes its name."""
    if is_dataclass(record):
        return {f.name: record_to_dict(getattr(record, f.name)) for f in fields(record)}
    if isinstance(record, Mapping):
        return {str(key): record_to_dict(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [record_to_dict(value) for value in record]
    if isinstance(record, np.generic):
        return record_to_dict(record.item())
    return str(record) if isinstance(record, float) and not math.isfinite(record) else record


def record_from_dict(kind: type[R], entries: Any) -> R:
    """Return a record of the given class from what :func:`record_to_dict` returned; refuses entries that do not fit."""
    record: R = _read_value(kind, entries, kind.__name__)
    return record


def _read_value(kind: Any, value: Any, where: str) -> Any:
    """Return a value out of JSON as the type of a field."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _read_union(arguments, value, where)
    if origin is Literal:
        return _require(value in arguments, value, where)
    if is_dataclass(kind):
        return _read_dataclass(kind, value, where)
    if origin is tuple:  # tuple[X, ...]
        _require(isinstance(value, list), value, where)
        return tuple(_read_value(arguments[0], item, where) for item in value)
    if origin is Mapping:  # Mapping[str, X]
        _require(isinstance(value, dict), value, where)
        return {key: _read_value(arguments[1], item, where) for key, item in value.items()}
    if kind is float:
        number = float(value) if value in ("inf", "-inf", "nan") else value
        return float(_require(isinstance(number, int | float) and not isinstance(number, bool), number, where))
    if kind is int:
        return _require(isinstance(value, int) and not isinstance(value, bool), value, where)
    return _require(isinstance(value, NoneType if kind is NoneType else kind), value, where)


def _read_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Return a value as the first type of a union that it fits."""
    for kind in kinds:
        try:
            return _read_value(kind, value, where)
        except (TypeError, ValueError):
            continue
    raise TypeError(f"{where}: expected {' or '.join(getattr(k, '__name__', str(k)) for k in kinds)}, got {value!r}")


def _read_dataclass(kind: Any, entries: Any, where: str) -> Any:
    """Return a dataclass from its entries; unknown ones are refused."""
    _require(isinstance(entries, dict), entries, where)
    hints = get_type_hints(kind)
    unknown = [name for name in entries if name not in hints]
    if unknown:
        raise ValueError(f"{where}: entry {unknown[0]!r} is unknown")
    return kind(**{name: _read_value(hints[name], value, f"{where}.{name}") for name, value in entries.items()})


def _require(fits: bool, value: Any, where: str) -> Any:
    """Return the value if it fits its field."""
    if not fits:
        raise TypeError(f"{where}: a value of another type was expected, got {value!r}")
    return value
