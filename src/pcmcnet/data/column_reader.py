"""Conversion of Arrow columns to checked NumPy columns, with errors that locate the first bad value.

An error names the column, the row (counted from 0 in the table), the choice set and the number of bad rows. A reader
checks only the rows that it reads, so bad values in unavailable rows are ignored.
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
from pcmcnet.data.columns.arrays import (
    Categorical,
    Column,
    Numeric,
    array_to_numpy,
    is_number,
    to_float32,
    to_numpy,
)
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
from pcmcnet.data.columns.wide_columns import recognise_wide
from pcmcnet.data.files.csv_files import ENCODED_TEXT
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.schema import Missing, Schema
from pcmcnet.errors import SchemaError, such_rows

log = logging.getLogger("pcmcnet")

MISSING_CATEGORY = "<missing>"
CORRECT = "Correct them, or list the column in categorical."
_LARGE_COLUMN_BYTES = 2**20  # columns of this size return their memory to the system when they are released
_WORDS_FOR_FLAGS = {"0", "1", "true", "false", "yes", "no", "y", "n", "t", "f", "x", "", "ja", "nein", "oui", "non"}
_MISSING_REMEDY = "Drop them or declare missing='indicator'."


@dataclass(frozen=True, slots=True)
class ExactColumn:
    """Some rows of a column, with unrounded numbers (NaN if missing) or category codes (-1 if missing)."""

    name: str
    values: NDArray[Any]
    rows: Ints
    categories: tuple[str, ...] | None = None

    def take(self, index: Ints) -> ExactColumn:
        """Return the given rows."""
        return replace(self, values=self.values[index], rows=self.rows[index])


@dataclass(frozen=True, slots=True)
class ChunkContext:
    """Row numbers of a chunk in a larger table, and value ranges of columns, which are checked after the last chunk."""

    numbers: Ints  # row numbers in the larger table
    spans: dict[str, Span] = field(default_factory=dict)  # of the columns of all chunks read so far


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads some rows of the columns of an Arrow table, and raises errors that locate bad values."""

    columns: dict[str, Any]
    rows: Ints
    in_order: bool  # ``rows`` are all rows of the table in order: values need not be gathered
    name_set: Callable[[int], str]
    dictionaries_are_text: bool
    context: ChunkContext | None = None  # if the table is a chunk of a larger one
    folder: Path | None = None  # folder of the table's file; paths in the table are relative to it
    distinct_by_column: dict[str, DistinctValues] = field(default_factory=dict)  # cache of distinct values

    @classmethod
    def of(
        cls,
        table: pa.Table,
        name_set: Callable[[int], str],
        context: ChunkContext | None = None,
        folder: Path | None = None,
    ) -> ColumnReader:
        """Return a reader of all rows. ``name_set(row)`` returns the id of a row's choice set."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        encoded_text = (table.schema.metadata or {}).items() >= ENCODED_TEXT.items()
        return cls(columns, np.arange(table.num_rows), True, name_set, encoded_text, context, folder)

    def at(self, rows: Ints) -> ColumnReader:
        """Return a reader of the given rows of the same columns."""
        in_order = len(rows) == self.n_rows and bool((np.diff(rows) > 0).all())
        return replace(self, rows=rows, in_order=in_order)

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return len(next(iter(self.columns.values())))

    def keep_only(self, columns: Set[str]) -> None:
        """Free all columns except ``columns``, in all readers of the table."""
        for name in self.columns.keys() - columns:
            self.release(name)

    def release(self, column: str) -> None:
        """Free a column in all readers of the table. The memory of a large column is returned to the system."""
        freed = self.columns.pop(column).nbytes
        self.distinct_by_column.pop(column, None)
        if freed >= _LARGE_COLUMN_BYTES:
            pa.default_memory_pool().release_unused()

    # Exact columns

    def exact(self, column: str, *, categorical: bool) -> ExactColumn:
        """Read a column without rounding."""
        return self._codes(column) if categorical else self._numbers(column)

    def _numbers(self, column: str, remedy: str = CORRECT) -> ExactColumn:
        values = self.columns[column]
        kind = value_type(values.type)
        if is_text(kind):
            codes, texts = self.distinct_values(column)
            codes = self._pick(codes)
            parsed = np.append(numbers(texts), np.nan)  # the last entry is for code -1: missing
            self.require_valid_text(column, codes, texts, np.isnan(parsed[:-1]), "expected a number", remedy)
            return ExactColumn(column, np.asarray(parsed[codes]), self.rows)
        if pa.types.is_dictionary(values.type):
            values = values.cast(kind)
        if not is_number(kind):
            raise SchemaError(
                f"column {column!r}: expected numbers, got the type {kind}. "
                f"Convert the column to numbers (a timestamp, for example, to seconds or to the hour of the day), "
                f"or list it in categorical{_declaration(column, kind)}."
            )
        return ExactColumn(column, self._pick(to_numpy(values)), self.rows)

    def _codes(self, column: str) -> ExactColumn:
        """Read a column of any type as categories. The name of a category is its value as text."""
        codes, values = self.distinct_values(column)
        try:
            labels = names(values)
        except UNREADABLE as error:
            raise SchemaError(
                f"column {column!r}: categories of type {values.type} are not supported. "
                f"Convert them to text or numbers."
            ) from error
        categories = tuple(dict.fromkeys(label for label in labels if label is not None))
        codes = self._pick(codes)
        if len(categories) < len(labels):  # NaN is missing, or two values have the same text
            place = {label: k for k, label in enumerate(categories)}
            codes = np.array([-1 if x is None else place[x] for x in labels] + [-1], np.int32)[codes]
        return ExactColumn(column, codes, self.rows, categories)

    def distinct_values(self, column: str) -> DistinctValues:
        """Return the distinct values of a column, and the code of each row, which is -1 for a missing value."""
        try:
            if column not in self.distinct_by_column:
                self.distinct_by_column[column] = distinct(self.columns[column])
        except UNREADABLE as error:
            raise SchemaError(
                f"column {column!r}: values of type {self.columns[column].type} cannot be compared. "
                f"Convert them to text or numbers."
            ) from error
        return self.distinct_by_column[column]

    def require_exact_ids(self, column: str) -> None:
        """Raise SchemaError if floating-point ids may have been rounded."""
        if pa.types.is_floating(self.columns[column].type):
            require_exact_ids(self.distinct_values(column).values.to_numpy(zero_copy_only=False), column)

    def _pick(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self.in_order else np.asarray(values[self.rows])

    # Checked columns

    def numeric(self, column: str, *, missing: Missing = "error") -> Numeric:
        """Read numbers as float32.

        Raises SchemaError for text and infinite values, and for missing values unless ``missing`` is "indicator".
        """
        narrow = self._finite_float32(column)
        if narrow is None:
            return self._checked_numbers(self._numbers(column), missing)
        if not pa.types.is_float32(self.columns[column].type) and (self.context is not None or is_close(narrow)):
            self._check_float32_resolution(self._numbers(column), narrow)
        return Numeric(narrow)

    def weight(self, column: str) -> NDArray[np.float32]:
        """Read weights as float32. Missing weights are an error. Tiny weights are not rounded to 0."""
        narrow = self._finite_float32(column)
        if narrow is not None and narrow.all():
            return narrow
        exact = self._numbers(column, remedy="Write weights as numbers.")
        values = self._numeric(exact, "error", missing_remedy="Correct or drop them.").values
        lost = (values == 0) & (exact.values != 0)
        return np.where(lost, np.copysign(np.finfo(np.float32).tiny, exact.values), values).astype(np.float32)

    def _finite_float32(self, column: str) -> NDArray[np.float32] | None:
        """Return numbers as float32, without a copy in a wider type, or None if the column needs further checks."""
        values = self.columns[column]
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            narrow = self._pick(to_float32(values))
            if np.isfinite(narrow).all():
                return narrow
        return None

    def categorical(
        self, column: str, *, missing: Missing = "error", missing_remedy: str = _MISSING_REMEDY
    ) -> Categorical:
        """Read categories. Missing values are an error, or form a category if ``missing`` is "indicator"."""
        return self._categorical(self._codes(column), missing, missing_remedy=missing_remedy)

    def checked(self, exact: ExactColumn, missing: Missing) -> Column:
        """Check a column that was read with :meth:`exact`, or some of its rows."""
        return self._checked_numbers(exact, missing) if exact.categories is None else self._categorical(exact, missing)

    def _checked_numbers(self, exact: ExactColumn, missing: Missing) -> Numeric:
        column = self._numeric(exact, missing)
        if exact.values.dtype != np.float32:
            present = column.values[~np.isnan(column.values)]
            if self.context is not None or is_close(present):
                self._check_float32_resolution(exact, column.values)
        return column

    def _check_float32_resolution(self, exact: ExactColumn, narrow: NDArray[np.float32]) -> None:
        """Raise SchemaError if float32 is too coarse for a column.

        In a chunk, only record the values' range for a later check.
        """
        span = Span.of(exact.values, narrow)
        if span is not None and self.context is not None:
            merge_spans(self.context.spans, {exact.name: span})
        elif span is not None:
            span.require_float32_resolution(exact.name)

    def _numeric(self, exact: ExactColumn, missing: Missing, *, missing_remedy: str = _MISSING_REMEDY) -> Numeric:
        values = exact.values
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        if values.dtype.kind == "f" and not np.isfinite(narrow).all():
            self._require_valid_values(exact, np.isinf(values), "expected a finite number", "Correct or drop them.")
            if missing == "error":
                self._require_valid_values(exact, np.isnan(values), "expected a finite number", missing_remedy)
            self._require_valid_values(exact, np.isinf(narrow), "expected a number below 3.4e38", "Rescale the column.")
        return Numeric(narrow)

    def _categorical(
        self, exact: ExactColumn, missing: Missing, *, missing_remedy: str = _MISSING_REMEDY
    ) -> Categorical:
        assert exact.categories is not None
        is_missing = exact.values < 0
        if not is_missing.any():  # copies a read-only view of Arrow's memory, which torch warns about
            return Categorical(np.require(exact.values, requirements="W"), exact.categories)
        if missing == "error":
            self._require_valid_values(exact, is_missing, "expected a category", missing_remedy, got="nothing")
        categories = tuple(dict.fromkeys([*exact.categories, MISSING_CATEGORY]))
        code = np.int32(categories.index(MISSING_CATEGORY))
        return Categorical(np.where(is_missing, code, exact.values), categories)

    def flag(self, column: str) -> NDArray[np.bool_]:
        """Read a column of 0/1 or false/true, possibly written as text.

        Raise SchemaError for values other than flags.
        """
        values = self._flags(column)

        def got(at: int) -> Any:
            value = self.columns[column][int(self.rows[at])].as_py()
            return repr(value) if isinstance(value, str) else "nothing" if value is None else value

        bad = ~((values == 0) | (values == 1))
        if bad.any():
            self.require_valid(column, bad, "expected 0 or 1", self._flag_remedy(column), got)
        return np.asarray(values == 1)

    def _flag_remedy(self, column: str) -> str:
        """Return what to do about values other than flags. Raise SchemaError if the table is wide."""
        if not is_text(value_type(self.columns[column].type)):
            return "Write 0 or 1, or false or true."
        values = [str(value) for value in self.distinct_values(column)[1].to_pylist()]
        wide = recognise_wide([*self.columns], values)
        if wide is not None and len({*wide.alternatives} & {*values}) > 1:
            problem = f"column {column!r}: expected 0 or 1, got the names of alternatives such as {values[0]!r}"
            raise wide.error(problem, [column])
        if any(value.lower() in _WORDS_FOR_FLAGS or value.isnumeric() for value in values):
            return "Write 0 or 1, or false or true."
        return (
            f"If {column!r} holds the label of the chosen alternative, name a column that is 1 in the row of the "
            f"chosen alternative, and 0 in the other rows of the set."
        )

    def is_flagged(self, column: str) -> NDArray[np.bool_]:
        """Return True where a flag is 1, and False for every other value."""
        return np.asarray(self._flags(column) == 1)

    def _flags(self, column: str) -> NDArray[Any]:
        """Read flags as numbers. Missing values, and text that is neither a number nor false/true, become NaN."""
        kind = value_type(self.columns[column].type)
        if is_text(kind):
            codes, values = self.distinct_values(column)
            return np.asarray(
                np.append(parse_flags(values), np.nan)[self._pick(codes)]
            )  # the last entry is for code -1: missing
        if not is_number(kind):
            raise SchemaError(f"column {column!r}: expected 0/1 or true/false, got the type {kind}.")
        return self._numbers(column).values

    # Errors

    def error_at(self, column: str, row: int, problem: str, remedy: str) -> SchemaError:
        """Return the SchemaError for a bad row of the table."""
        number = row if self.context is None else self.context.numbers[row]
        return SchemaError(f"column {column!r}, row {number} (choice set {self.name_set(row)}): {problem} {remedy}")

    def require_valid(
        self, column: str, bad: NDArray[np.bool_], problem: str, remedy: str, got: Callable[[int], object] | None = None
    ) -> None:
        """Raise SchemaError if any of the reader's rows is bad. The message shows the first bad row of the table.

        Parameters
        ----------
        column
            Name of the column.
        bad
            Mask of the bad rows among the reader's rows.
        problem
            Description of the problem, such as "expected a finite number".
        remedy
            Sentence that tells the user what to do.
        got
            Function that maps a position among the reader's rows to the bad value. If None, the message does not show
            the value.
        """
        marked = np.flatnonzero(bad)
        if marked.size:
            first = int(marked[np.argmin(self.rows[marked])])
            shown = "" if got is None else f", got {got(first)}"
            raise self.error_at(column, int(self.rows[first]), f"{problem}{shown}; {such_rows(marked.size)}.", remedy)

    def _require_valid_values(
        self, exact: ExactColumn, bad: NDArray[np.bool_], problem: str, remedy: str, got: str | None = None
    ) -> None:
        replace(self, rows=exact.rows).require_valid(
            exact.name, bad, problem, remedy, lambda at: got or exact.values[at]
        )

    def require_valid_text(
        self, column: str, codes: NDArray[np.int32], texts: pa.Array, bad: NDArray[np.bool_], problem: str, remedy: str
    ) -> None:
        """Raise SchemaError if a row holds one of the distinct texts that are marked as bad."""
        rows = np.append(bad, False)[codes]
        self.require_valid(column, rows, problem, remedy, lambda at: repr(texts[int(codes[at])].as_py()))


def require_exact_ids(ids: NDArray[Any], column: str) -> None:
    """Raise SchemaError if floating-point ids are so large that they cannot distinguish neighbouring integers."""
    bits = np.finfo(ids.dtype).nmant + 1 if ids.dtype.kind == "f" else 0
    if bits and (np.abs(ids.astype(np.float64)) >= 2.0**bits).any():
        raise SchemaError(
            f"column {column!r} holds floating-point ids of 2**{bits} or more, where distinct integers can be "
            f"rounded to the same number: store them as text or as 64-bit integers."
        )


def _declaration(column: str, kind: pa.DataType) -> str:
    """Return a hint about which kind to declare for a column of the given type, or an empty string if no kind fits."""
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
# Which columns are numbers and which are categories: as declared, or else by type and text.
#
# Columns of a numeric type are numbers; dictionaries and booleans are categories. Text columns are categories, with
# these exceptions:
#
#     nearly all plain numbers, a few other words        error: the words are mistakes
#     nearly all numbers, many distinct ones             error: $12.50, 5%, 1,200, or 12.5 stored as text
#     numbers, few distinct ones; dates; lists; texts    categories, with a warning that names the alternative
#
# Numbers with leading zeros, such as postcodes, are names.

AS_OTHERS = "expected a number as in the other rows"
_MAX_MISTAKE_SHARE = 0.1  # text in up to this share of rows of numbers is a mistake, not a category
_MAX_NUMERIC_CODES = 20  # more distinct numbers than this are measurements rather than codes

_CURRENCY = r"(?:[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CAD|AUD|CNY|INR)"
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+|\d{1,3}(?:[,' \x{a0}\x{202f}]\d{3})+(?:\.\d+)?|\d+,\d+|\d{1,3}(?:\.\d{3})+(?:,\d+)?)"
_NUMBER = rf"^\s*[-+]?\s*{_CURRENCY}?\s*[-+]?{_DIGITS}\s*(?:%|{_CURRENCY})?\s*$"
_LEADING_ZERO = r"^0\d+$"


def categorical_inputs(reader: ColumnReader, schema: Schema) -> tuple[str, ...]:
    """Return the model inputs that are categories."""
    if schema.categorical is not None:
        return schema.categorical
    inputs = [c for c in (*schema.individual, *schema.table_features) if c not in schema.kinds]
    return tuple(c for c in inputs if is_categorical(reader, c))


def is_categorical(reader: ColumnReader, column: str) -> bool:
    """Return True if a column is categorical by default, because it holds a dictionary, booleans or text.

    Raises SchemaError if a text column looks like numbers with some mistakes.
    """
    kind = reader.columns[column].type
    if pa.types.is_dictionary(kind) and not reader.dictionaries_are_text:
        return True
    if not (pa.types.is_dictionary(kind) or is_text(kind)):
        return bool(pa.types.is_boolean(kind))
    codes, values = reader.distinct_values(column)
    counts = np.bincount(codes + 1, minlength=len(values) + 1)[1:]  # without missing values
    mistakes = mistaken_text(column, values, counts)
    reader.require_valid_text(column, codes, values, mistakes, AS_OTHERS, CORRECT)
    return True


def mistaken_text(column: str, values: pa.Array, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the texts that are mistakes in a column of numbers. ``counts`` holds the frequency of each text.

    Raises SchemaError if the column holds many distinct numbers as text, and logs a warning for other doubtful columns.
    """
    # 1. A few texts among plain numbers are mistakes.
    total = int(counts.sum())
    is_word = ~np.isfinite(numbers(values))
    if is_word.any() and not is_word.all() and counts[is_word].sum() <= _MAX_MISTAKE_SHARE * total:
        return is_word
    # 2. All other texts are categories, unless nearly all are formatted numbers such as prices.
    texts = values if pa.types.is_string(values.type) else pa.array(values.to_pylist(), pa.string())  # of views
    is_formatted = ~is_word | _match(texts, _NUMBER)
    share = counts[is_formatted].sum() / max(total, 1)
    if is_formatted.any() and share >= 1 - _MAX_MISTAKE_SHARE and not _match(texts, _LEADING_ZERO).any():
        _report_numeric_text(column, texts, is_formatted, share)
    elif len(texts) and (hint := next(filter(None, (kind.recognise(column, texts) for kind in KINDS.values())), None)):
        message = "column %r holds %s, and is read as %d categories: %s, or list it in categorical."
        log.warning(message, column, hint[0], len(values), hint[1])
    return np.zeros(len(values), np.bool_)


def _report_numeric_text(column: str, texts: pa.Array, is_formatted: NDArray[np.bool_], share: float) -> None:
    """Raise SchemaError if a text column holds many distinct numbers, and log a warning if it holds few."""
    example = texts[int(np.argmax(is_formatted))].as_py()
    count = int(is_formatted.sum())
    if count > _MAX_NUMERIC_CODES:
        raise SchemaError(
            f"column {column!r}: expected numbers, got numbers stored as text, such as {example!r}, in {share:.0%} of "
            f"its values. Each of the {count} distinct numbers would be a category. Store them as plain numbers "
            f"(1234.5 for '$1,234.50', 0.05 for '5%'), or list the column in categorical."
        )
    message = (
        "column %r holds numbers as text, such as %r, and is read as %d categories: store it as numbers, or list it in "
        "categorical."
    )
    log.warning(message, column, example, len(texts))


def _match(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    return array_to_numpy(pc.match_substring_regex(texts, pattern).cast(pa.int8())).astype(np.bool_)
