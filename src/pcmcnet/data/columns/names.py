"""Display names and units of columns: totalPrice -> "Price", "EUR".

A schema file has a TOML table for each column, and a fitted model saves the names:

    [columns.totalPrice]
    name = "Price"
    unit = "EUR"

Figures, tables, reports and the served page show the display names and units; models ignore them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pcmcnet.errors import SchemaError, did_you_mean

_ENTRIES = ("name", "unit")
_MAX_LETTERS = 60  # a name must fit next to an axis


@dataclass(frozen=True, slots=True)
class ColumnName:
    """Display name and unit of a column; empty if none is declared."""

    name: str = ""
    unit: str = ""


@dataclass(frozen=True)
class ColumnNames:
    """Display names of a table's columns; a column without a display name is shown under its name in the table.

    Examples
    --------
    >>> names = ColumnNames({"totalPrice": ColumnName("Price", "EUR")})
    >>> names["totalPrice"], names.label("totalPrice"), names.label("stops")
    ('Price', 'Price (EUR)', 'stops')
    >>> names.amount("totalPrice", "219"), names.amount("stops", "2")
    ('219 EUR', 'stops 2')
    """

    declared: Mapping[str, ColumnName]

    def __getitem__(self, column: str) -> str:
        return self.declared.get(column, ColumnName()).name or column

    def unit(self, column: str) -> str:
        """Return the unit; empty if none is declared."""
        return self.declared.get(column, ColumnName()).unit

    def label(self, column: str) -> str:
        """Return the name followed by the unit, for an axis or a table header."""
        unit = self.unit(column)
        return f"{self[column]} ({unit})" if unit else self[column]

    def amount(self, column: str, value: str) -> str:
        """Return a value with its unit; without a unit, the name and the value."""
        unit = self.unit(column)
        return f"{value} {unit}" if unit else f"{self[column]} {value}"


DEFAULT_NAMES = ColumnNames({})  # the names in the table


def column_names(entries: Any, columns: Iterable[str]) -> dict[str, ColumnName]:
    """Return the display names of a schema; raise SchemaError if they are invalid or refer to an unknown column."""
    known_columns = list(columns)
    if not isinstance(entries, Mapping):
        raise SchemaError(f"columns must map columns to names and units, as in {_example('price')}, got {entries!r}.")
    for column in entries:
        if column not in known_columns:
            hint = did_you_mean(column, known_columns) if isinstance(column, str) else ""
            raise SchemaError(f"columns includes {column!r}, which has no role in this table.{hint}")
    return {name: entry if isinstance(entry, ColumnName) else _read(name, entry) for name, entry in entries.items()}


def _read(column: str, words: Any) -> ColumnName:
    if not isinstance(words, Mapping):
        raise SchemaError(f"columns, {column!r}: expected {_example(column)}, got {words!r}.")
    for entry, text in words.items():
        if entry not in _ENTRIES:
            raise SchemaError(f"columns, {column!r}: unknown entry {entry!r}." + did_you_mean(str(entry), _ENTRIES))
        if not isinstance(text, str) or len(text) > _MAX_LETTERS or text != " ".join(text.split()):
            raise SchemaError(
                f"columns, {column!r}: the {entry} must be a text of one line and at most {_MAX_LETTERS} letters, "
                f"got {text!r}."
            )
    return ColumnName(**words)


def _example(column: str) -> str:
    return f"{{{column!r}: {{'name': 'Price', 'unit': 'EUR'}}}}"
