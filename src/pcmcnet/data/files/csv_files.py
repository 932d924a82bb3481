"""CSV files, compressed or not: reading them, and copying them with one more column."""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from pcmcnet.data.columns.distinct import as_ids, as_numbers, forms_for_copy, value_type
from pcmcnet.errors import SchemaError
from pcmcnet.storage import atomic_write

# -- Csv file ----------------------------------------------------------------------------------------------------------
# A CSV says nothing of types. They are guessed from its first block and the file is read by them, which holds no more
# than the columns in memory; where a later row disproves the guess, the whole file decides. Columns declared as text
# keep what is written: 007 stays apart from 7. So do ids, which are numbers only where nothing is lost. Values in
# quotes may have line ends within. Columns are separated by the first of comma, semicolon and tab that the header has
# outside quotes; decimal numbers have points.

ENCODED_TEXT = {b"pcmcnet": b"encoded text"}  # marks a table whose dictionaries are text, not declared categories
BLOCK = 2**22  # bytes that are parsed at once, at most
TOO_LONG = "straddling"  # by this word Arrow says that a line is longer
_HEAD = 2**16  # bytes that are looked at before the file is parsed
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # how text of two bytes for each letter may begin
_SIGNS = (b",", b";", b"\t")  # between the columns, as spreadsheets write them


class CsvFile:
    """Text with a sign between the columns, zipped or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.separator = separator_of(path)
        self.parsing = pyarrow.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True)
        try:
            self._look(2**18)
        except pa.ArrowInvalid:  # a line may be longer than that
            with self.stream() as file:
                head = file.read(BLOCK)
            if len(head) == BLOCK and not re.search(rb"[\r\n]", head):  # Arrow would say that the file is empty
                raise pa.ArrowInvalid(TOO_LONG) from None
            self._look(BLOCK)

    def _look(self, block_size: int) -> None:
        """Read the names of the columns and the first rows."""
        options = pyarrow.csv.ReadOptions(block_size=block_size)
        with pyarrow.csv.open_csv(self.stream(), read_options=options, parse_options=self.parsing) as reader:
            self.schema = reader.schema
            self.first: Any = next(iter(reader), None)
        self.names = list(self.schema.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read some columns, in the order asked for."""
        table = self._typed(columns, {name for name in columns if name in text or name in ids}, compact)
        for place, name in enumerate(columns):
            if name in ids:
                table = table.set_column(place, name, as_ids(table[name]))
        return table.replace_schema_metadata(ENCODED_TEXT) if compact else table

    def copy(self, numbers: Collection[str], names: Collection[str]) -> pa.Table:
        """Read all columns as they are written; only what is empty is a gap."""
        forms = forms_for_copy(self.names, numbers, names)
        return as_numbers(self._typed(self.names, forms, compact=False, gaps=[""]), forms)

    def _typed(
        self, columns: list[str], text: Collection[str], compact: bool, gaps: list[str] | None = None
    ) -> pa.Table:
        """Read columns by the types that were guessed, or else by those that the whole file admits."""
        self.require_closed_quotes()
        string = pa.dictionary(pa.int32(), pa.string()) if compact else pa.string()
        declared = {name: string for name in columns if name in text}
        guessed = {name: self.guess(name, string, compact) for name in columns}
        try:
            table = self._read(columns, guessed | declared, compact, gaps)
        except pa.ArrowInvalid:
            table = self._read(columns, declared, compact, gaps)
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            if pa.types.is_binary(value_type(kind)):
                raise pa.ArrowInvalid(f"invalid UTF8 data in column {name!r}")
        return table

    def guess(self, name: str, string: pa.DataType, compact: bool) -> pa.DataType:
        """Guess a column's type from the first rows."""
        kind = self.schema.field(name).type
        if pa.types.is_string(kind):
            return string
        if compact and pa.types.is_integer(kind) and pc.max(pc.abs(self.first.column(name))).as_py() < 2**30:
            return pa.int32()
        return kind

    def _read(
        self, columns: list[str], types: dict[str, pa.DataType], compact: bool, gaps: list[str] | None
    ) -> pa.Table:
        options = conversion(columns, types, gaps, auto_dict_encode=compact, auto_dict_max_cardinality=2**31 - 1)
        blocks = pyarrow.csv.ReadOptions(block_size=BLOCK)
        return pyarrow.csv.read_csv(
            self.stream(), read_options=blocks, parse_options=self.parsing, convert_options=options
        )

    def batches(
        self, columns: list[str], types: dict[str, pa.DataType], gaps: list[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns by these types, block by block; see :func:`conversion` for ``gaps``."""
        options = {
            "read_options": pyarrow.csv.ReadOptions(block_size=BLOCK, use_threads=False),
            "parse_options": self.parsing,
            "convert_options": conversion(columns, types, gaps),
        }
        with pyarrow.csv.open_csv(self.stream(), **options) as reader:
            yield from reader

    def require_closed_quotes(self) -> None:
        """Refuse a file that ends within quotes: all rows from there on would be one value of its last column."""
        # 1. Mostly the end of the file shows that no quote is open.
        tail = b""
        with self.stream() as file:
            if file.seekable():
                file.seek(max(file.size() - BLOCK, 0))
            while block := file.read(BLOCK):
                tail = (tail + block)[-BLOCK:]
        tail = tail.rstrip()
        if b'"' not in tail or tail.endswith(b'"'):
            return
        # 2. Else the last value does: line ends are in it.
        last = ""
        for batch in self.batches(self.names[-1:], {self.names[-1]: pa.string()}, []):
            last = str(batch.column(0)[-1]) if batch.num_rows else last
        if "\n" in last or "\r" in last:
            raise pa.ArrowInvalid("the file ends within a value that a quote has opened")

    def stream(self) -> Any:
        """Open the file for reading from its beginning."""
        return _stream(self.path)


def separator_of(path: Path) -> str:
    """Return the sign between the columns; refuse other text than UTF-8, and decimal commas beside it."""
    with _stream(path) as file:
        head = file.read(_HEAD)
    if head.startswith(_WIDE) or b"\0" in head[:4]:
        raise pa.ArrowInvalid("invalid UTF8 data")
    outside = re.sub(rb'"[^"]*"', b"", head)  # line ends and commas within quotes are of a name
    header = re.split(rb"[\r\n]", outside, maxsplit=1)[0]
    sign = next((sign for sign in _SIGNS if sign in header), b",")
    decimal = None if sign == b"," else re.search(rb"(?<=[;\t\r\n])-?\d+,\d+(?=[;\t\r\n])", outside)
    if decimal is not None:
        raise SchemaError(
            f"{path}: numbers seem to be written with decimal commas, such as {decimal[0].decode()}. Save it with "
            f"points in decimal numbers."
        )
    return sign.decode()


def _stream(path: Path) -> Any:
    zipped = path.name.lower().endswith(".gz")
    return pa.input_stream(str(path), compression="gzip" if zipped else None)


def conversion(columns: list[str], types: dict[str, pa.DataType], gaps: list[str] | None, **options: Any) -> Any:
    """Say how a CSV's columns are converted; ``gaps`` are the words for nothing, the common ones unless given."""
    if gaps is not None:
        options["null_values"] = gaps
    return pyarrow.csv.ConvertOptions(
        include_columns=columns,
        column_types=types,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        **options,
    )


# -- Csv copy ----------------------------------------------------------------------------------------------------------
# A CSV with one more column: what was there before stays as it was, byte for byte.

_BYTES = "latin-1"  # a character for each byte, whatever the file's own encoding is
_MARK = codecs.BOM_UTF8.decode(_BYTES)  # that spreadsheets begin a file with


def append_column(source: Path, target: Path, name: str, values: NDArray[Any]) -> None:
    """Write a CSV, zipped or not, with a column of numbers; SchemaError if it has not as many rows."""
    separator = separator_of(source)
    # the name is in quotes where it would not be one value without
    quoted = '"' + name.replace('"', '""') + '"' if any(sign in name for sign in f'{separator}"\r\n') else name
    cells = chain([quoted.encode().decode(_BYTES)], map(repr, values.tolist()))
    with atomic_write(target) as beside, _opened(source) as lines, beside.open("w", encoding=_BYTES, newline="") as out:
        for record in records(lines, separator):
            body = record.rstrip("\r\n")
            cell = next(cells, None) if body else ""  # an empty line is no row
            if cell is None:
                break
            out.write(f"{body}{separator}{cell}{record[len(body) :]}" if body else record)
        else:
            if next(cells, None) is None:
                return
        raise SchemaError(f"{source} has not {len(values)} rows any more: it was changed meanwhile. Try again.")


def records(lines: Iterable[str], separator: str = ",") -> Iterator[str]:
    r"""Join the lines that a value in quotes goes across.

    Examples
    --------
    >>> list(records(["1,plain\n", '2,"two\n', 'lines"\n', '3,5" pipe\n']))
    ['1,plain\n', '2,"two\nlines"\n', '3,5" pipe\n']
    """
    begun: list[str] = []
    mark = _MARK  # only the first line may begin with it
    for line in lines:
        begun.append(line)
        text, mark = line.removeprefix(mark), ""
        if not (len(begun) > 1 or '"' in text) or not _ends_inside(text, separator, inside=len(begun) > 1):
            yield "".join(begun)
            begun = []
    if begun:
        yield "".join(begun)


def _ends_inside(line: str, separator: str, *, inside: bool) -> bool:
    """Tell whether a line ends within a value in quotes; quotes begin a value or are a part of it."""
    at = 0
    while True:
        if not inside and not line.startswith('"', at):
            at = line.find(separator, at) + 1
            if not at:
                return False
            continue
        end = line.find('"', at if inside else at + 1)
        inside = end < 0 or line.startswith('"', end + 1)  # two quotes are one, within the value
        if end < 0:
            return True
        at = end + 2 if inside else line.find(separator, end) + 1
        if not at:
            return False


def _opened(path: Path) -> TextIO:
    """Open a CSV for reading line by line, line ends as they are."""
    opening = gzip.open if path.name.lower().endswith(".gz") else open
    return cast("TextIO", opening(path, "rt", encoding=_BYTES, newline=""))
