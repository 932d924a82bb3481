"""Combine a catalogue of alternatives and a table of individuals into choice sets that a model can predict.

The catalogue has a row for each alternative that could be offered, with the features that the model was fitted on and,
if the model uses labels, the label column. Individuals are in a separate table, because their columns do not depend on
the alternative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.files.tabular import read_table
from pcmcnet.errors import InputError, did_you_mean


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Alternatives that could be offered, combined into one choice set for each individual."""

    sets: ChoiceData  # P sets of n alternatives, in the order of the catalogue
    labels: tuple[str, ...]  # (n,)
    columns: Mapping[str, list[Any]]  # columns of the table, (n,) each
    outside: int | None  # position of the outside option

    @classmethod
    def read(cls, schema: Schema, table: Any, individual: Any = None, outside: Any = None) -> Catalogue:
        """Read a catalogue, with a row for each alternative, according to the schema of a fitted model.

        ``individual`` is a mapping from column names to values, or a table with a row for each individual.
        ``individual`` can be None if the model has no individual-level columns, or if the catalogue contains them.
        ``outside`` is the label of the outside option.
        """
        rows = read_table(table, text=schema.text_columns, ids=schema.id_columns)
        if not rows.num_rows:
            raise InputError("the catalogue has no rows: expected one row for each alternative that could be offered.")
        _require_single_labels(rows, schema)
        sets = _cross(rows, _individuals(schema, rows, individual), schema)
        labels = tuple(map(str, range(rows.num_rows)))
        if sets.labels is not None:
            labels = tuple(sets.labels.take(np.arange(rows.num_rows)).plain())
        place = None if outside is None else _place(labels, outside)
        return cls(sets, labels, rows.to_pydict(), place)

    def offer(self, labels: Sequence[Any]) -> Bools:  # (n,)
        """Return a mask (n,) of the offer that consists of the given labels and the outside option."""
        shown = np.zeros(len(self.labels), np.bool_)
        shown[[_place(self.labels, label) for label in labels]] = True
        if self.outside is not None:
            shown[self.outside] = True
        if not shown.any():
            raise InputError("current: expected at least one label, got none.")
        return shown

    def numbers(
        self, column: str | Sequence[float] | Mapping[Any, float], what: str, *, missing: float | None = None
    ) -> Floats:  # (n,)
        """Return a number for each alternative, taken from a column, a list or a mapping from labels to numbers.

        The number for the outside option is 0 by default. Missing values are replaced by ``missing``. If ``missing`` is
        None, they raise InputError.
        """
        if isinstance(column, str):
            if column not in self.columns:
                raise InputError(f"{what}: no column {column!r} in the catalogue." + did_you_mean(column, self.columns))
            values = self.columns[column]
        elif isinstance(column, Mapping):
            by_label = {str(label): number for label, number in column.items()}
            for label in by_label:
                _place(self.labels, label)
            values = [by_label.get(label) for label in self.labels]
        else:
            values = list(column)
        if len(values) != (n := len(self.labels)):
            raise InputError(f"{what}: expected {n} numbers, one for each alternative, got {len(values)}.")
        try:
            numbers = np.array([np.nan if value is None else value for value in values], np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{what}: expected numbers, got {values[0]!r} for {self.labels[0]!r}.") from None
        if self.outside is not None and np.isnan(numbers[self.outside]):
            numbers[self.outside] = 0.0
        wrong = ~np.isfinite(numbers) & (missing is None or ~np.isnan(numbers))
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise InputError(f"{what} of {self.labels[bad]!r}: expected a finite number, got {numbers[bad]}.")
        return numbers if missing is None else np.where(np.isnan(numbers), missing, numbers)


def _require_single_labels(rows: pa.Table, schema: Schema) -> None:
    """Raise InputError if a label occurs twice, as in a table of many choice sets."""
    if schema.alternative is None or schema.alternative not in rows.column_names:
        return
    counts = rows[schema.alternative].value_counts()
    times = counts.field("counts").to_numpy()
    if times.max(initial=0) > 1:
        label = counts.field("values")[int(times.argmax())].as_py()
        raise InputError(
            f"column {schema.alternative!r}: expected a catalogue with one row for each alternative that could be "
            f"offered, but {label!r} occurs {times.max():,} times. Keep the rows of one choice set, or write a table "
            f"with one row for each alternative."
        )


def _place(labels: tuple[str, ...], label: Any) -> int:
    """Return the position of a label in the catalogue."""
    if str(label) not in labels:
        raise InputError(f"{label!r} is not in the catalogue." + did_you_mean(str(label), labels))
    return labels.index(str(label))


def _individuals(schema: Schema, rows: pa.Table, individual: Any) -> pa.Table:
    """Return the table of individuals, with one row per individual."""
    if individual is None:
        missing = [name for name in schema.individual if name not in rows.column_names]
        if missing:
            raise InputError(
                f"the model needs the individual-level columns {', '.join(missing)}: pass individual={{...}}, or "
                f"add them to "
                f"the catalogue."
            )
        return rows.select(list(schema.individual)).slice(0, 1)
    if isinstance(individual, Mapping):
        lists = any(isinstance(value, list | tuple | np.ndarray) for value in individual.values())
        individual = individual if lists else {name: [value] for name, value in individual.items()}
    people = read_table(individual, text=schema.text_columns, ids=schema.id_columns)
    missing = [name for name in schema.individual if name not in people.column_names]
    if missing:
        needs = f"the model needs {', '.join(schema.individual)}." + did_you_mean(missing[0], people.column_names)
        raise InputError(f"individual: no value for {missing[0]!r}; {needs}")
    if not people.num_rows:
        raise InputError("individual: expected at least one individual, got none.")
    return people.select(list(schema.individual))


def _cross(rows: pa.Table, people: pa.Table, schema: Schema) -> ChoiceData:
    """Return choice sets that offer every alternative to every individual."""
    n, P = rows.num_rows, max(people.num_rows, 1)
    names = [name for name in dict.fromkeys((schema.alternative, *schema.table_features)) if name is not None]
    missing = [name for name in names if name not in rows.column_names]
    if missing:
        hint = did_you_mean(missing[0], rows.column_names)
        raise InputError(f"the catalogue has no column {missing[0]!r}, which the model needs." + hint)
    alternatives = rows.select(names).take(np.tile(np.arange(n), P))
    columns = {name: alternatives[name] for name in names}
    columns |= {name: people[name].take(np.repeat(np.arange(P), n)) for name in people.column_names}
    columns[schema.choice_set] = pa.array(np.repeat(np.arange(P), n))
    data = ChoiceData.from_schema(pa.table(columns), replace(schema.for_prediction(), available=None))
    if data.added:
        raise InputError(
            f"the model has the outside option {schema.outside!r}, which is not in the catalogue: add its row, whose "
            f"features may be empty, and pass outside={schema.outside!r}."
        )
    return data
