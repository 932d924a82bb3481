"""What people call a column, and the unit it is measured in: totalPrice -> "Price", "EUR".

A schema file says it in a table for each column, and models carry it along:

    [columns.totalPrice]
    name = "Price"
    unit = "EUR"

Models never see these words. Figures, tables, reports and the served page do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pcmcnet.errors import SchemaError, did_you_mean

_ENTRIES = ("name", "unit")
_LONGEST = 60  # letters: a name stands at an axis


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column in words; empty where nothing was said."""

    name: str = ""
    unit: str = ""


@dataclass(frozen=True)
class ColumnNames:
    """What the columns of a table are called, those with no word by the name in the table.

    Examples
    --------
    >>> names = ColumnNames({"totalPrice": ColumnName("Price", "EUR")})
    >>> names["totalPrice"], names.label("totalPrice"), names.label("stops")
    ('Price', 'Price (EUR)', 'stops')
    >>> names.amount("totalPrice", "219"), names.amount("stops", "2")
    ('219 EUR', 'stops 2')
    """

    known: Mapping[str, ColumnName]

    def __getitem__(self, column: str) -> str:
        return self.known.get(column, ColumnName()).name or column

    def unit(self, column: str) -> str:
        """Return the unit, empty where none was said."""
        return self.known.get(column, ColumnName()).unit

    def label(self, column: str) -> str:
        """Return the name with the unit behind it, for an axis or the head of a table."""
        unit = self.unit(column)
        return f"{self[column]} ({unit})" if unit else self[column]

    def amount(self, column: str, value: str) -> str:
        """Write a value with its unit, or with its name where it has none."""
        unit = self.unit(column)
        return f"{value} {unit}" if unit else f"{self[column]} {value}"


DEFAULT_NAMES = ColumnNames({})  # columns by their names in the table


def column_names(given: Any, known: Iterable[str]) -> dict[str, ColumnName]:
    """Read the words of a schema; SchemaError if they are no mapping, or name an unknown column or entry."""
    columns = list(known)
    if not isinstance(given, Mapping):
        raise SchemaError(f"columns must say what columns are called, as in {_example('price')}, got {given!r}.")
    for column in given:
        if column not in columns:
            hint = did_you_mean(column, columns) if isinstance(column, str) else ""
            raise SchemaError(f"columns names {column!r}, which has no role in this table.{hint}")
    return {name: words if isinstance(words, ColumnName) else _read(name, words) for name, words in given.items()}


def _read(column: str, words: Any) -> ColumnName:
    if not isinstance(words, Mapping):
        raise SchemaError(f"columns, {column!r}: expected {_example(column)}, got {words!r}.")
    for entry, text in words.items():
        if entry not in _ENTRIES:
            raise SchemaError(f"columns, {column!r}: unknown entry {entry!r}." + did_you_mean(str(entry), _ENTRIES))
        if not isinstance(text, str) or len(text) > _LONGEST or text != " ".join(text.split()):
            raise SchemaError(
                f"columns, {column!r}: the {entry} must be a text of one line and at most {_LONGEST} letters, "
                f"got {text!r}."
            )
    return ColumnName(**words)


def _example(column: str) -> str:
    return f"{{{column!r}: {{'name': 'Price', 'unit': 'EUR'}}}}"
