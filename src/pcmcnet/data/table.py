"""Anything tabular -> an Arrow table of the columns asked for -> checked numpy columns.

Paths (.csv, .csv.gz, .parquet, .arrow, a folder of parquet), mappings of arrays, and every data frame
that narwhals knows. Errors name the column, the row (counted from 0 in the table as given), the choice
set and how many rows are affected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
from numpy.typing import NDArray

from pcmcnet.data.columns import Categorical, Numeric
from pcmcnet.data.schema import Missing
from pcmcnet.errors import SchemaError, did_you_mean

T = TypeVar("T")

MISSING_CATEGORY = "<missing>"
_COLUMN_OF_CSV_ERROR = re.compile(r"column #(\d+)( \('(?P<name>.*?)'\))?: CSV conversion error to (?P<type>\w+)")


def read_table(table: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a path, a mapping or a data frame into Arrow; only ``columns`` when given."""
    if isinstance(table, str | Path):
        return _read_path(Path(table), columns)
    if isinstance(table, pa.Table):
        return _select(table, columns)
    if isinstance(table, Mapping):
        try:
            return _select(pa.table(dict(table)), columns)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise SchemaError(f"the mapping given is not a table: {_first_line(error)}.") from error
    return _read_frame(table, columns)


def column_names(path: str | Path) -> list[str]:
    """Return the names in a file's header without reading its rows."""
    return list(_guarded(Path(path), lambda p: _dataset(p).schema).names)


def _read_frame(table: Any, columns: Sequence[str] | None) -> pa.Table:
    try:
        frame = nw.from_native(table)
    except TypeError as error:
        raise SchemaError(
            f"expected a path, a mapping of arrays or a data frame (pandas, polars, pyarrow, ...), "
            f"got {type(table).__name__}."
        ) from error
    except Exception as error:  # frames with duplicate or unnamed columns, each library in its own way
        raise SchemaError(f"the data frame cannot be read: {_first_line(error)}.") from error
    try:
        names = list(frame.collect_schema().names())
        _require_columns(columns or (), names)
        frame = frame.select(*(columns if columns is not None else names))
        arrow = frame.collect("pyarrow").to_arrow() if isinstance(frame, nw.LazyFrame) else frame.to_arrow()
    except SchemaError:
        raise
    except Exception as error:  # mixed objects in a pandas column and the like
        raise SchemaError(f"the data frame cannot be read: {_first_line(error)}.") from error
    return arrow


def _read_path(path: Path, columns: Sequence[str] | None) -> pa.Table:
    if not path.exists():
        raise SchemaError(f"{path}: no such file or folder.")
    _require_columns(columns or (), column_names(path), where=str(path))
    return _guarded(path, lambda p: _read_csv(p, columns) if _format(p) == "csv" else _read_columnar(p, columns))


def _format(path: Path) -> str:
    """Name the format by the file's ending."""
    if path.is_dir():
        return "parquet"
    name = path.name.lower()
    for ending, kind in ((".csv", "csv"), (".csv.gz", "csv"), (".parquet", "parquet"), (".arrow", "ipc")):
        if name.endswith(ending):
            return kind
    raise SchemaError(
        f"{path}: unknown kind of file. Expected .csv, .csv.gz, .parquet, .arrow or a folder of .parquet files."
    )


def _dataset(path: Path) -> Any:
    files: Any = str(path)
    if path.is_dir():
        files = sorted(str(p) for p in path.rglob("*.parquet"))
        if not files:
            raise SchemaError(f"{path}: the folder holds no .parquet file.")
    return pyarrow.dataset.dataset(files, format=_format(path))


def _guarded(path: Path, read: Callable[[Path], T]) -> T:
    """Turn what a reader throws at a broken file into one sentence."""
    try:
        return read(path)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise SchemaError(
            f"{path}: cannot be read as {_format(path)} ({_first_line(error)}). "
            f"The file may be truncated or of another kind: write it again."
        ) from error


def _read_columnar(path: Path, columns: Sequence[str] | None) -> pa.Table:
    return _dataset(path).to_table(columns=None if columns is None else list(columns))


def _read_csv(path: Path, columns: Sequence[str] | None) -> pa.Table:
    """Read a CSV; a column whose type turns out wrong further down is read again as a wider one."""
    types: dict[str, pa.DataType] = {}
    while True:
        options = pyarrow.csv.ConvertOptions(
            include_columns=None if columns is None else list(columns),
            column_types=types,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        try:
            return pyarrow.csv.read_csv(path, convert_options=options)
        except pa.ArrowInvalid as error:
            found = _COLUMN_OF_CSV_ERROR.search(str(error))
            if found is None:
                raise
            name = found["name"] or column_names(path)[int(found[1])]
            wider = pa.float64() if found["type"] == "int64" and name not in types else pa.string()
            if types.get(name) == wider:
                raise
            types[name] = wider


def _select(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    if columns is None:
        return table
    _require_columns(columns, table.column_names)
    return table.select(list(columns))


def _require_columns(wanted: Sequence[str], present: Sequence[str], *, where: str = "the table") -> None:
    for name in wanted:
        if name not in present:
            raise SchemaError(f"{where} has no column {name!r}." + did_you_mean(name, present))
        if list(present).count(name) > 1:
            raise SchemaError(f"{where} has {list(present).count(name)} columns named {name!r}: rename all but one.")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


# -- checked columns ---------------------------------------------------------------------------------------------


class Reader:
    """Reads columns of one Arrow table at the available rows, and says where a bad value stands."""

    def __init__(self, table: pa.Table, *, rows: NDArray[np.int64], set_ids: Callable[[int], str]) -> None:
        """``rows`` are the table rows to read, in order; ``set_ids(row)`` names a row's choice set."""
        self.table = table
        self.rows = rows
        self.set_ids = set_ids

    def fail(self, column: str, row: int, problem: str, remedy: str) -> SchemaError:
        """Build the error for a table row."""
        return SchemaError(f"column {column!r}, row {row} (choice set {self.set_ids(row)}): {problem} {remedy}")

    def is_categorical_by_dtype(self, column: str) -> bool:
        """Tell the default kind: strings, dictionaries and booleans are categories, unless text spoils numbers."""
        kind = self.table.schema.field(column).type
        if pa.types.is_dictionary(kind) or pa.types.is_boolean(kind):
            return True
        if not _is_text(kind):
            return False
        numbers = _numbers_in_text(self.table[column])
        text = ~np.isfinite(numbers) & self.table[column].is_valid().to_numpy()
        if 0 < text.sum() <= 0.1 * len(numbers):
            row = int(np.flatnonzero(text)[0])
            raise self.fail(
                column,
                row,
                f"expected a number as in the other rows, got {self.table[column][row].as_py()!r}; "
                f"{int(text.sum())} such rows.",
                "Correct them, or list the column in categorical.",
            )
        return True

    def numeric(self, column: str, *, missing: Missing = "error") -> Numeric:
        """Read numbers as float32; refuse text, infinities and (unless an indicator is wanted) gaps."""
        values = self._floats(column)[self.rows]
        bad = ~np.isfinite(values) if missing == "error" else np.isinf(values)
        self._refuse(column, bad, values, "expected a finite number", _remedy(missing))
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        self._refuse(column, np.isinf(narrow), values, "expected a number below 3.4e38", "Rescale the column.")
        return Numeric(narrow)

    def _floats(self, column: str) -> NDArray[np.float64]:
        values = self.table[column]
        kind = values.type
        if pa.types.is_dictionary(kind):
            values, kind = values.cast(kind.value_type), kind.value_type
        if _is_text(kind):
            numbers = _numbers_in_text(values)
            text = np.flatnonzero(np.isnan(numbers) & values.is_valid().to_numpy())
            if text.size:
                row = int(text[0])
                raise self.fail(
                    column,
                    row,
                    f"expected a number, got {values[row].as_py()!r}; {text.size} such rows.",
                    "Correct them, or list the column in categorical.",
                )
            return numbers
        if not (pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or _is_number(kind)):
            raise SchemaError(
                f"column {column!r} has the type {kind}, expected numbers. "
                f"Convert it to a number (a timestamp, for example, to seconds or to parts of the day), "
                f"or list it in categorical."
            )
        return _to_float64(values)

    def categorical(self, column: str, *, missing: Missing = "error") -> Categorical:
        """Read anything as categories named by their text."""
        try:
            text = self.table[column].cast(pa.string())
        except pa.ArrowException as error:
            raise SchemaError(
                f"column {column!r} has the type {self.table[column].type}, which has no text form to use as category."
            ) from error
        absent = text.is_null().to_numpy()[self.rows]
        if missing == "error":
            self._refuse(column, absent, np.full(len(absent), "nothing"), "expected a category", _remedy(missing))
        encoded = dictionary(text.fill_null(MISSING_CATEGORY))
        return Categorical(encoded.indices.to_numpy()[self.rows], tuple(encoded.dictionary.to_pylist()))

    def flag(self, column: str) -> NDArray[np.bool_]:
        """Read a column that may only hold 0/1 or false/true."""
        values = self.table[column]
        if _is_text(values.type) or not (pa.types.is_boolean(values.type) or _is_number(values.type)):
            raise SchemaError(f"column {column!r} has the type {values.type}, expected 0/1 or true/false.")
        numbers = _to_float64(values)[self.rows]
        self._refuse(column, (numbers != 0) & (numbers != 1), numbers, "expected 0 or 1", "Correct them.")
        return numbers == 1

    def _refuse(self, column: str, bad: NDArray[np.bool_], values: NDArray[Any], problem: str, remedy: str) -> None:
        where = np.flatnonzero(bad)
        if where.size:
            first = where[np.argmin(self.rows[where])]
            raise self.fail(
                column,
                int(self.rows[first]),
                f"{problem}, got {values[first]}; {where.size} such rows.",
                remedy,
            )


def dictionary(values: pa.ChunkedArray) -> pa.DictionaryArray:
    """Number the distinct values in the order of their first rows."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    encoded = values.dictionary_encode().unify_dictionaries()
    if encoded.num_chunks == 1:
        return encoded.chunk(0)
    return encoded.combine_chunks()


def _remedy(missing: Missing) -> str:
    return "Drop them or declare missing='indicator'." if missing == "error" else "Correct or drop them."


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _to_float64(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Cast to float64 with NaN for nulls; integers beyond 2**53 may round."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    numbers = pc.fill_null(values.cast(pa.float64(), safe=False), np.nan)
    return np.asarray(numbers.to_numpy(), dtype=np.float64)


def _numbers_in_text(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Parse each distinct text once; NaN where it is no number."""
    encoded = dictionary(values.cast(pa.string()))
    parsed = np.array([_parse(text) for text in encoded.dictionary.to_pylist()] + [np.nan])
    codes = pc.fill_null(encoded.indices, -1).to_numpy()
    return parsed[codes]


def _parse(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
