"""Arrow columns -> checked numpy columns, each trouble with its place.

Errors name the column, the row (counted from 0 in the table as given), the choice set and how many rows
are affected. A reader looks at its own rows only: what stands in unavailable ones does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.columns.arrays import Categorical, Column, Numeric, is_number, to_float32, to_numpy
from pcmcnet.data.columns.distinct import (
    UNREADABLE,
    DistinctValues,
    distinct,
    is_text,
    names,
    numbers,
    parse_flags,
    value_type,
)
from pcmcnet.data.columns.statistics import Span, is_close, merge_spans
from pcmcnet.data.files.csv_files import ENCODED_TEXT
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.schema import Missing, Schema
from pcmcnet.errors import SchemaError

log = logging.getLogger("pcmcnet")

MISSING_CATEGORY = "<missing>"
CORRECT = "Correct them, or list the column in categorical."
_MUCH = 2**20  # bytes
_DECLARE = "Drop them or declare missing='indicator'."


@dataclass(frozen=True, slots=True)
class ExactColumn:
    """A column as the table has it, at some rows: numbers with NaN for gaps, or codes with -1 for gaps."""

    name: str
    values: NDArray[Any]
    rows: Ints
    categories: tuple[str, ...] | None = None

    def take(self, index: Ints) -> ExactColumn:
        """Take some of the rows."""
        return replace(self, values=self.values[index], rows=self.rows[index])


@dataclass(frozen=True, slots=True)
class ChunkContext:
    """Some rows of a larger table: their numbers there, and what only the whole table can be judged by."""

    numbers: Ints
    spans: dict[str, Span] = field(default_factory=dict)  # of the columns of all parts read so far


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads columns of one Arrow table at some of its rows, and says where a bad value stands."""

    columns: dict[str, Any]
    rows: Ints
    in_order: bool  # the rows are all rows of the table, from first to last: nothing needs to be gathered
    name_set: Callable[[int], str]
    dictionaries_are_text: bool
    part: ChunkContext | None = None  # of a larger table
    folder: Path | None = None  # of the table's file, from which paths in it count
    found: dict[str, DistinctValues] = field(default_factory=dict)  # distinct values, once they are known

    @classmethod
    def of(
        cls,
        table: pa.Table,
        name_set: Callable[[int], str],
        part: ChunkContext | None = None,
        folder: Path | None = None,
    ) -> ColumnReader:
        """Read all rows; ``name_set(row)`` names a row's choice set."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        encoded_text = (table.schema.metadata or {}).items() >= ENCODED_TEXT.items()
        return cls(columns, np.arange(table.num_rows), True, name_set, encoded_text, part, folder)

    def at(self, rows: Ints) -> ColumnReader:
        """Return a reader of the same columns at other rows."""
        in_order = len(rows) == self.n_rows and bool((np.diff(rows) > 0).all())
        return replace(self, rows=rows, in_order=in_order)

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return len(next(iter(self.columns.values())))

    def keep_only(self, columns: Set[str]) -> None:
        """Free what is not needed any more, in all readers of the table."""
        for name in self.columns.keys() - columns:
            self.forget(name)

    def forget(self, column: str) -> None:
        """Free one column, in all readers of the table; memory goes back to the system where it is much."""
        freed = self.columns.pop(column).nbytes
        self.found.pop(column, None)
        if freed >= _MUCH:
            pa.default_memory_pool().release_unused()

    # Columns as they are

    def exact(self, column: str, *, categorical: bool) -> ExactColumn:
        """Read a column without rounding."""
        return self._codes(column) if categorical else self._numbers(column)

    def _numbers(self, column: str, remedy: str = CORRECT) -> ExactColumn:
        values = self.columns[column]
        kind = value_type(values.type)
        if is_text(kind):
            codes, texts = self.distinct_values(column)
            codes = self._pick(codes)
            parsed = np.append(numbers(texts), np.nan)  # the last entry is for the gaps' -1
            self.require_valid_text(column, codes, texts, np.isnan(parsed[:-1]), "expected a number", remedy)
            return ExactColumn(column, np.asarray(parsed[codes]), self.rows)
        if pa.types.is_dictionary(values.type):
            values = values.cast(kind)
        if not is_number(kind):
            raise SchemaError(
                f"column {column!r} has the type {kind}, expected numbers. "
                f"Convert it to a number (a timestamp, for example, to seconds or to parts of the day), "
                f"or list it in categorical{_declaration(column, kind)}."
            )
        return ExactColumn(column, self._pick(to_numpy(values)), self.rows)

    def _codes(self, column: str) -> ExactColumn:
        """Read anything as categories named by their text."""
        found = self.distinct_values(column)
        try:
            labels = names(found.values)
        except UNREADABLE as error:
            raise SchemaError(
                f"column {column!r} has the type {found.values.type}, which has no text form to name categories by."
            ) from error
        categories = tuple(dict.fromkeys(label for label in labels if label is not None))
        codes = self._pick(found.codes)
        if len(categories) < len(labels):  # gaps of the type's own (NaN), or values of the same name
            place = {label: k for k, label in enumerate(categories)}
            codes = np.array([-1 if x is None else place[x] for x in labels] + [-1], np.int32)[codes]
        return ExactColumn(column, codes, self.rows, categories)

    def distinct_values(self, column: str) -> DistinctValues:
        """Number the distinct values of a column, of all rows; gaps get -1."""
        try:
            if column not in self.found:
                self.found[column] = distinct(self.columns[column])
        except UNREADABLE as error:
            raise SchemaError(
                f"column {column!r} has the type {self.columns[column].type}: its values cannot be told apart. "
                f"Convert it to text or numbers."
            ) from error
        return self.found[column]

    def require_exact(self, column: str) -> None:
        """Refuse ids that may have been rounded."""
        if pa.types.is_floating(self.columns[column].type):
            require_exact(self.distinct_values(column).values.to_numpy(zero_copy_only=False), column)

    def _pick(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self.in_order else np.asarray(values[self.rows])

    # Checked columns

    def numeric(self, column: str, *, missing: Missing = "error") -> Numeric:
        """Read numbers as float32; refuse text, infinities and (unless an indicator is wanted) gaps."""
        narrow = self._narrow(column)
        if narrow is None:
            return self._checked_numbers(self._numbers(column), missing)
        if not pa.types.is_float32(self.columns[column].type) and (self.part is not None or is_close(narrow)):
            self._judge_steps(self._numbers(column), narrow)
        return Numeric(narrow)

    def weight(self, column: str) -> NDArray[np.float32]:
        """Read weights as float32; nothing can stand for a missing one, and one too small for it does not become 0."""
        narrow = self._narrow(column)
        if narrow is not None and narrow.all():
            return narrow
        exact = self._numbers(column, remedy="Write weights as numbers.")
        values = self._numeric(exact, "error", gap_remedy="Correct or drop them.").values
        lost = (values == 0) & (exact.values != 0)
        return np.where(lost, np.copysign(np.finfo(np.float32).tiny, exact.values), values).astype(np.float32)

    def _narrow(self, column: str) -> NDArray[np.float32] | None:
        """Read numbers without a wider copy, where there is no trouble with them."""
        values = self.columns[column]
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            narrow = self._pick(to_float32(values))
            if np.isfinite(narrow).all():
                return narrow
        return None

    def categorical(self, column: str, *, missing: Missing = "error", gap_remedy: str = _DECLARE) -> Categorical:
        """Read categories; refuse gaps unless they are a category of their own."""
        return self._categorical(self._codes(column), missing, gap_remedy=gap_remedy)

    def checked(self, exact: ExactColumn, missing: Missing) -> Column:
        """Check what :meth:`exact` returned, or some rows of it."""
        return self._checked_numbers(exact, missing) if exact.categories is None else self._categorical(exact, missing)

    def _checked_numbers(self, exact: ExactColumn, missing: Missing) -> Numeric:
        column = self._numeric(exact, missing)
        if exact.values.dtype != np.float32:  # of which nothing is lost
            known = column.values[~np.isnan(column.values)]
            if self.part is not None or is_close(known):
                self._judge_steps(exact, column.values)
        return column

    def _judge_steps(self, exact: ExactColumn, narrow: NDArray[np.float32]) -> None:
        """Refuse numbers that float32 cannot tell apart, or leave it to the end of the larger table."""
        span = Span.of(exact.values, narrow)
        if span is not None and self.part is not None:
            merge_spans(self.part.spans, {exact.name: span})
        elif span is not None:
            span.require_float32_resolution(exact.name)

    def _numeric(self, exact: ExactColumn, missing: Missing, *, gap_remedy: str = _DECLARE) -> Numeric:
        values = exact.values
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        if values.dtype.kind == "f" and not np.isfinite(narrow).all():
            self._refuse(exact, np.isinf(values), "expected a finite number", "Correct or drop them.")
            if missing == "error":
                self._refuse(exact, np.isnan(values), "expected a finite number", gap_remedy)
            self._refuse(exact, np.isinf(narrow), "expected a number below 3.4e38", "Rescale the column.")
        return Numeric(narrow)

    def _categorical(self, exact: ExactColumn, missing: Missing, *, gap_remedy: str = _DECLARE) -> Categorical:
        assert exact.categories is not None
        gaps = exact.values < 0
        if not gaps.any():  # a view into Arrow's memory may not be written to, and torch complains of it
            return Categorical(np.require(exact.values, requirements="W"), exact.categories)
        if missing == "error":
            self._refuse(exact, gaps, "expected a category", gap_remedy, got="nothing")
        categories = tuple(dict.fromkeys([*exact.categories, MISSING_CATEGORY]))
        return Categorical(np.where(gaps, np.int32(categories.index(MISSING_CATEGORY)), exact.values), categories)

    def flag(self, column: str) -> NDArray[np.bool_]:
        """Read a column that may only hold 0/1 or false/true, be it as text."""
        values = self._flags(column)

        def got(at: int) -> Any:
            value = self.columns[column][int(self.rows[at])].as_py()
            return repr(value) if isinstance(value, str) else "nothing" if value is None else value

        bad = ~((values == 0) | (values == 1))
        self.require_valid(column, bad, "expected 0 or 1", "Write 0 or 1, or false or true.", got)
        return np.asarray(values == 1)

    def is_set(self, column: str) -> NDArray[np.bool_]:
        """Tell where a flag is 1; whatever else stands there counts as 0."""
        return np.asarray(self._flags(column) == 1)

    def _flags(self, column: str) -> NDArray[Any]:
        """Read 0 and 1, NaN for gaps and other text, and other numbers as they are."""
        kind = value_type(self.columns[column].type)
        if is_text(kind):
            codes, values = self.distinct_values(column)
            return np.asarray(np.append(parse_flags(values), np.nan)[self._pick(codes)])  # the last entry is for gaps
        if not is_number(kind):
            raise SchemaError(f"column {column!r} has the type {kind}, expected 0/1 or true/false.")
        return self._numbers(column).values

    # Errors

    def error_at(self, column: str, row: int, problem: str, remedy: str) -> SchemaError:
        """Build the error for a table row."""
        number = row if self.part is None else self.part.numbers[row]
        return SchemaError(f"column {column!r}, row {number} (choice set {self.name_set(row)}): {problem} {remedy}")

    def require_valid(
        self, column: str, bad: NDArray[np.bool_], problem: str, remedy: str, got: Callable[[int], object] | None = None
    ) -> None:
        """Refuse the reader's rows that are marked, and show the first in the table; ``got`` says what stands there."""
        marked = np.flatnonzero(bad)
        if marked.size:
            first = int(marked[np.argmin(self.rows[marked])])
            shown = "" if got is None else f", got {got(first)}"
            raise self.error_at(column, int(self.rows[first]), f"{problem}{shown}; {marked.size} such rows.", remedy)

    def _refuse(
        self, exact: ExactColumn, bad: NDArray[np.bool_], problem: str, remedy: str, got: str | None = None
    ) -> None:
        replace(self, rows=exact.rows).require_valid(
            exact.name, bad, problem, remedy, lambda at: got or exact.values[at]
        )

    def require_valid_text(
        self, column: str, codes: NDArray[np.int32], texts: pa.Array, bad: NDArray[np.bool_], problem: str, remedy: str
    ) -> None:
        """Refuse the distinct texts that are marked, where one of them stands in some row."""
        rows = np.append(bad, False)[codes]
        self.require_valid(column, rows, problem, remedy, lambda at: repr(texts[int(codes[at])].as_py()))


def require_exact(ids: NDArray[Any], column: str) -> None:
    """Refuse floating-point ids so large that whole numbers next to each other are one."""
    bits = np.finfo(ids.dtype).nmant + 1 if ids.dtype.kind == "f" else 0
    if bits and (np.abs(ids.astype(np.float64)) >= 2.0**bits).any():
        raise SchemaError(
            f"column {column!r} holds floating-point ids of 2**{bits} and more, where neighbours coincide: "
            f"store them as text or as 64-bit integers."
        )


def _declaration(column: str, kind: pa.DataType) -> str:
    """Say how a column of a type is declared, where there is a kind for it."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_date(kind):
        word = "'datetime'"
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        word = "'vector'" if is_number(kind.value_type) else "'multi'"
    elif types.is_binary(kind) or types.is_large_binary(kind):
        word = "'image'"
    else:
        return ""
    return f", or declare kinds={{{column!r}: {word}}}"


# -- Number or category ------------------------------------------------------------------------------------------------
# Which columns are numbers, and which are categories: as declared, or else by their types and their texts.
#
# A column is one of categories if its type is a dictionary or boolean, and one of numbers if its type is. Text becomes
# categories, unless it plainly is something else:
#
#     nearly all plain numbers, a few other words        refused: mistakes
#     nearly all numbers, many distinct ones             refused: $12.50, 5%, 1,200, or 12.5 held as text
#     numbers, few distinct ones; dates; lists; texts    categories, and the log says what else they could be
#
# Numbers with leading zeros, such as postcodes, are names.

AS_OTHERS = "expected a number as in the other rows"
_FEW = 0.1  # up to this share of text among numbers is taken for mistakes, not for categories
_MANY = 20  # more distinct numbers than this are prices rather than codes

_SIGN = r"(?:[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CAD|AUD|CNY|INR)"
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+|\d{1,3}(?:[,' \x{a0}\x{202f}]\d{3})+(?:\.\d+)?|\d+,\d+|\d{1,3}(?:\.\d{3})+(?:,\d+)?)"
_NUMBER = rf"^\s*[-+]?\s*{_SIGN}?\s*[-+]?{_DIGITS}\s*(?:%|{_SIGN})?\s*$"
_NAME = r"^0\d+$"


def categorical_inputs(reader: ColumnReader, schema: Schema) -> tuple[str, ...]:
    """Return which inputs of models are categories."""
    if schema.categorical is not None:
        return schema.categorical
    inputs = [c for c in (*schema.individual, *schema.table_features) if c not in schema.kinds]
    return tuple(c for c in inputs if is_categorical(reader, c))


def is_categorical(reader: ColumnReader, column: str) -> bool:
    """Tell the default kind of a column: dictionaries, booleans and text are categories, unless text spoils numbers."""
    kind = reader.columns[column].type
    if pa.types.is_dictionary(kind) and not reader.dictionaries_are_text:
        return True
    if not (pa.types.is_dictionary(kind) or is_text(kind)):
        return bool(pa.types.is_boolean(kind))
    codes, values = reader.distinct_values(column)
    mistakes = mistaken_text(column, values, np.bincount(codes + 1, minlength=len(values) + 1)[1:])  # without gaps
    reader.require_valid_text(column, codes, values, mistakes, AS_OTHERS, CORRECT)
    return True


def mistaken_text(column: str, values: pa.Array, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which distinct texts, with their counts, are mistakes among numbers; refuse numbers held as text."""
    # 1. A few texts among plain numbers are mistakes.
    none, total = np.zeros(len(values), np.bool_), int(counts.sum())
    spoils = ~np.isfinite(numbers(values))
    if spoils.any() and not spoils.all() and counts[spoils].sum() <= _FEW * total:
        return spoils
    # 2. Else they are categories, unless nearly all are prices and the like; the log says what else they may be.
    texts = pa.array(values.to_pylist(), pa.string())  # old releases of Arrow cannot cast views
    written = ~spoils | _match(texts, _NUMBER)
    share = counts[written].sum() / max(total, 1)
    if written.any() and share >= 1 - _FEW and not _match(texts, _NAME).any():
        _say_numbers(column, texts, written, share)
    elif len(texts) and (hint := next(filter(None, (kind.recognise(column, texts) for kind in KINDS.values())), None)):
        message = "column %r holds %s, and is taken as %d categories: %s, or list it in categorical."
        log.warning(message, column, hint[0], len(values), hint[1])
    return none


def _say_numbers(column: str, texts: pa.Array, written: NDArray[np.bool_], share: float) -> None:
    """Refuse many distinct numbers held as text, and say of few that they are taken as categories."""
    example = texts[int(np.argmax(written))].as_py()
    count = int(written.sum())
    if count > _MANY:
        raise SchemaError(
            f"column {column!r}: expected numbers, got numbers held as text such as {example!r}; {share:.0%} of its "
            f"values, {count} distinct ones, each of which would be a category. Store them as plain numbers (1234.5 "
            f"for '$1,234.50', 0.05 for '5%'), or list the column in categorical."
        )
    message = (
        "column %r holds numbers as text, such as %r, and is taken as %d categories: store it as numbers if that is "
        "what they are, or list it in categorical."
    )
    log.warning(message, column, example, len(texts))


def _match(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    return np.asarray(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False), np.bool_)
