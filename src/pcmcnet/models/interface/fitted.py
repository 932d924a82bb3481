"""The result of a fit: one immutable record, which ``ChoiceModel.fit`` assigns once.

    FittedModel
      schema    roles of the columns of the training table
      table     TrainingTable: facts about the training table
      state     FittedState: estimates, encoders and networks; each family of models has a subclass

A model writes the arrays, encoders and networks of its state to separate files. Facts about the fit are in the
``record`` of the state. Records and tables are saved as JSON and read with the types of their fields, so these
dataclasses document the saved format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from pcmcnet.data import ChoiceData, Schema, Sets
from pcmcnet.models.interface.sign_check import SignCheck

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """Facts about the table that a model was fitted to.

    Parameters
    ----------
    fingerprint
        Hash of the choice sets.
    choice_sets, alternatives
        Number of choice sets, and total number of their alternatives.
    seed
        Seed of the fit.
    persons
        Number of persons, if the table has a person column.
    drawn_from
        Fingerprint of the whole table, if the model was fitted to a part of it.
    seconds
        Duration of the fit, if it was measured.
    sampled
        Whether the alternatives are a sample of those of larger sets.
    description
        Ranges of the columns and example choice sets, as returned by ``ChoiceData.describe``. The description is empty
        after a fit by several processes.
    signs
        Results of the check of expected signs, one per checked column. Empty after a fit by several processes.
    """

    fingerprint: str
    choice_sets: int
    alternatives: int
    seed: int
    persons: int | None = None
    drawn_from: str | None = None
    seconds: float | None = None
    sampled: bool | None = None  # None if not, so that the facts about most tables are shorter
    description: Mapping[str, Any] = field(default_factory=dict)
    signs: tuple[SignCheck, ...] = ()

    @classmethod
    def of(cls, train: Sets, fingerprint: str, seed: int, description: Mapping[str, Any]) -> TrainingTable:
        """Return the record of a training part."""
        has_persons = isinstance(train, ChoiceData) and train.schema.person is not None
        return cls(
            fingerprint=fingerprint,
            choice_sets=len(train),
            alternatives=train.n_alternatives,
            seed=seed,
            persons=len(np.unique(train.groups())) if has_persons else None,
            sampled=True if isinstance(train, ChoiceData) and train.expansion is not None else None,
            description=description,
        )

    @property
    def columns(self) -> Mapping[str, Any]:
        """Ranges of the columns by name. The mapping is empty if the table was not described."""
        columns: Mapping[str, Any] = self.description.get("columns", {})
        return columns


@dataclass(frozen=True, kw_only=True)
class FitRecord:
    """Facts about a fit that are saved as JSON. A model that saves more information defines a subclass."""

    converged: bool | None = None  # None for models without an iterative search


@dataclass(frozen=True, kw_only=True)
class FittedState:
    """The learnt part of a model. A subclass adds arrays, encoders and networks."""

    record: FitRecord = field(default_factory=FitRecord)
    history: Sequence[Mapping[str, Any]] = ()  # one entry per epoch; empty for models that do not train in epochs


@dataclass(frozen=True, kw_only=True)
class FittedModel:
    """Everything that a fitted model contains, except its options."""

    schema: Schema
    table: TrainingTable
    state: FittedState

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the table and the fit that are not None, as plain values."""
        facts = {**asdict(self.table), **asdict(self.state.record)}
        return {
            name: value for name, value in facts.items() if value is not None and name not in ("description", "signs")
        }


def record_to_dict(record: Any) -> Any:
    """Return a record as JSON-compatible values, with strings for NaN and infinities, which JSON does not have."""
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
    """Return a record from the output of :func:`record_to_dict`.

    Raises
    ------
    TypeError, ValueError
        If an entry is unknown or does not have the type of its field.
    """
    record: R = _read_value(kind, entries, kind.__name__)
    return record


def _read_value(kind: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to the type of a field."""
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
    """Convert a JSON value to the first type of a union that fits the value."""
    for kind in kinds:
        try:
            return _read_value(kind, value, where)
        except (TypeError, ValueError):
            continue
    raise TypeError(f"{where}: expected {' or '.join(getattr(k, '__name__', str(k)) for k in kinds)}, got {value!r}")


def _read_dataclass(kind: Any, entries: Any, where: str) -> Any:
    """Return a dataclass from its JSON entries, or raise ValueError if an entry is unknown."""
    _require(isinstance(entries, dict), entries, where)
    hints = get_type_hints(kind)
    unknown = [name for name in entries if name not in hints]
    if unknown:
        raise ValueError(f"{where}: entry {unknown[0]!r} is unknown")
    return kind(**{name: _read_value(hints[name], value, f"{where}.{name}") for name, value in entries.items()})


def _require(fits: bool, value: Any, where: str) -> Any:
    """Return the value if its type fits the field, or raise TypeError otherwise."""
    if not fits:
        raise TypeError(f"{where}: unexpected type for the value {value!r}")
    return value
