"""Display names and units of columns, such as "Price" and "EUR" for the column totalPrice.

A schema file declares display names in one TOML table per column:

    [columns.totalPrice]
    name = "Price"
    unit = "EUR"

A fitted model saves display names and units, but does not use them as inputs. Figures, tables, reports and the served
page show display names and units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pcmcnet.errors import SchemaError, did_you_mean

_CURRENCY = re.compile(
    r"[$€£¥₹₩₽₺₪₫฿₴₦¢]|\b(aed|ars|aud|brl|cad|chf|clp|cny|cop|czk|dkk|egp|eur|gbp|hkd|huf|idr|ils|inr|jpy|krw|kwd|mad|mxn"
    r"|myr|ngn|nok|nzd|pen|php|pkr|pln|qar|ron|rub|sar|sek|sgd|thb|try|twd|uah|usd|vnd|zar"
    r"|cents?|ct|crowns?|dirhams?|dollars?|euros?|francs?|guilders?|kron[aeor]+|lira|pesos?|pence|penny|pounds?"
    r"|rand|ringgit|rubles?|rupees?|won|yen|yuan|zloty)\b"
)
_RATE = re.compile(r"/|\bper\b|\ba\b")
_MONEY_WORDS = {"price", "prices", "fare", "fares", "cost", "costs", "fee", "fees", "toll", "tolls"}
_ENTRIES = ("name", "unit")
_MAX_LETTERS = 60  # a name must fit next to an axis


@dataclass(frozen=True, slots=True)
class ColumnName:
    """Display name and unit of a column, each empty if not declared."""

    name: str = ""
    unit: str = ""


@dataclass(frozen=True)
class ColumnNames:
    """Display names of a table's columns. A column without a display name is shown under its name in the table.

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
        """Return the unit of a column, or an empty string if no unit is declared."""
        return self.declared.get(column, ColumnName()).unit

    def is_money(self, column: str) -> bool:
        """Return True if a column holds amounts of money, by its unit or, without a unit, by the words of its name.

        Examples
        --------
        >>> [DEFAULT_NAMES.is_money(column) for column in ("totalPrice", "train_cost", "log_cost", "time")]
        [True, True, False, False]
        """
        if unit := self.unit(column):
            return is_money(unit)
        words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column)}
        return bool(words & _MONEY_WORDS) and "log" not in words

    def label(self, column: str) -> str:
        """Return the display name followed by the unit, for an axis or a table header."""
        unit = self.unit(column)
        return f"{self[column]} ({unit})" if unit else self[column]

    def amount(self, column: str, value: str) -> str:
        """Return a value followed by its unit. For a column without a unit, return the name followed by the value."""
        unit = self.unit(column)
        return f"{value} {unit}" if unit else f"{self[column]} {value}"


def is_money(unit: str) -> bool:
    """Return True if a unit is an amount of money, such as "EUR" or "1,000 $", but not a rate such as "EUR/km".

    Examples
    --------
    >>> [is_money(unit) for unit in ("EUR", "1,000 $", "Swiss francs", "EUR/km", "min", "")]
    [True, True, True, False, False, False]
    """
    return bool(_CURRENCY.search(unit.lower())) and not _RATE.search(unit.lower())


DEFAULT_NAMES = ColumnNames({})  # the names in the table


def column_names(entries: Any, columns: Iterable[str]) -> dict[str, ColumnName]:
    """Return the display names of a schema, or raise SchemaError if they are invalid or refer to an unknown column."""
    known_columns = list(columns)
    if not isinstance(entries, Mapping):
        raise SchemaError(
            f"columns must map each column to a name and a unit, as in {_example('price')}, got {entries!r}."
        )
    for column in entries:
        if column not in known_columns:
            hint = did_you_mean(column, known_columns) if isinstance(column, str) else ""
            raise SchemaError(f"columns includes {column!r}, which has no role in this table.{hint}")
    return {name: entry if isinstance(entry, ColumnName) else _read(name, entry) for name, entry in entries.items()}


def _read(column: str, words: Any) -> ColumnName:
    if not isinstance(words, Mapping):
        raise SchemaError(f"columns[{column!r}]: expected {_example(column)}, got {words!r}.")
    for entry, text in words.items():
        if entry not in _ENTRIES:
            raise SchemaError(f"columns[{column!r}]: unknown entry {entry!r}." + did_you_mean(str(entry), _ENTRIES))
        if not isinstance(text, str) or len(text) > _MAX_LETTERS or text != " ".join(text.split()):
            raise SchemaError(
                f"columns[{column!r}]: the {entry} must be a single line of at most {_MAX_LETTERS} characters, "
                f"got {text!r}."
            )
    return ColumnName(**words)


def _example(column: str) -> str:
    return f"{{{column!r}: {{'name': 'Price', 'unit': 'EUR'}}}}"
