"""Functions to read plain and gzipped CSV files, and to copy them with an additional column."""

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

from pcmcnet.data.columns.distinct import as_ids, as_numbers, formats_for_copy, value_type
from pcmcnet.errors import SchemaError
from pcmcnet.storage import atomic_write

# -- CSV file ----------------------------------------------------------------------------------------------------------
# A CSV file declares no types. They are guessed from its first block; if a later row contradicts the guess, the file is
# read again and Arrow infers the types from all rows. Columns declared as text keep their spelling: 007 differs from 7.
# So do ids, unless all of them are integers. Quoted values may contain line breaks. The separator is the first of
# comma, semicolon and tab that occurs outside quotes in the header; decimal numbers have points.

ENCODED_TEXT = {b"pcmcnet": b"encoded text"}  # marks a table whose dictionaries are text, not declared categories
BLOCK_BYTES = 2**22  # size of the blocks that Arrow parses: the maximum length of a line
LINE_TOO_LONG = "straddling"  # word in Arrow's error message for a longer line
_HEAD_BYTES = 2**16  # read before parsing, to find the separator and the encoding
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SEPARATORS = (b",", b";", b"\t")


class CsvFile:
    """A CSV file, plain or gzipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.separator = separator_of(path)
        self.parsing = pyarrow.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True)
        try:
            self._read_head(2**18)
        except pa.ArrowInvalid:  # perhaps a line is longer than that
            with self.stream() as file:
                head = file.read(BLOCK_BYTES)
            if len(head) == BLOCK_BYTES and not re.search(rb"[\r\n]", head):  # Arrow would report an empty file
                raise pa.ArrowInvalid(LINE_TOO_LONG) from None
            self._read_head(BLOCK_BYTES)

    def _read_head(self, block_size: int) -> None:
        """Read the column names and the first rows."""
        options = pyarrow.csv.ReadOptions(block_size=block_size)
        with pyarrow.csv.open_csv(self.stream(), read_options=options, parse_options=self.parsing) as reader:
            self.schema = reader.schema
            self.first: Any = next(iter(reader), None)
        self.names = list(self.schema.names)

    def read(self, columns: list[str], text: Collection[str], ids: Collection[str], compact: bool) -> pa.Table:
        """Read the given columns, in the given order."""
        table = self._typed(columns, {name for name in columns if name in text or name in ids}, compact)
        for place, name in enumerate(columns):
            if name in ids:
                table = table.set_column(place, name, as_ids(table[name]))
        return table.replace_schema_metadata(ENCODED_TEXT) if compact else table

    def copy(self, numbers: Collection[str], names: Collection[str]) -> pa.Table:
        """Read all columns as they are written. Only empty values count as missing.

        Columns that are not UTF-8 text are read as bytes, unless they are in ``numbers`` or ``names``.
        """
        formats = formats_for_copy(self.names, numbers, names)
        try:
            table = self._typed(self.names, formats, compact=False, null_words=[""])
        except pa.ArrowInvalid:
            binary = self.columns_of_bytes() - {*numbers, *names}
            if not binary:
                raise
            formats = {name: form for name, form in formats.items() if name not in binary}
            table = self._typed(self.names, formats, compact=False, null_words=[""], binary=binary)
        return as_numbers(table, formats)

    def columns_of_bytes(self) -> set[str]:
        """Return the columns with values that are not UTF-8 text."""
        undecodable: set[str] = set()
        for batch in self.batches(self.names, dict.fromkeys(self.names, pa.binary()), []):
            undecodable |= {name for name in self.names if not _is_utf8(batch.column(name))}
        return undecodable

    def _typed(
        self,
        columns: list[str],
        text: Collection[str],
        compact: bool,
        null_words: list[str] | None = None,
        binary: Collection[str] = (),
    ) -> pa.Table:
        """Read columns with the types guessed from the first rows, and those in ``binary`` as bytes.

        If later rows contradict a guess, Arrow infers the types.
        """
        self.require_closed_quotes()
        string = pa.dictionary(pa.int32(), pa.string()) if compact else pa.string()
        declared = {name: string for name in columns if name in text} | dict.fromkeys(binary, pa.binary())
        guessed = {name: self.guess(name, string, compact) for name in columns}
        try:
            table = self._read(columns, guessed | declared, compact, null_words)
        except pa.ArrowInvalid:
            table = self._read(columns, declared, compact, null_words)
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            if pa.types.is_binary(value_type(kind)) and name not in binary:
                raise pa.ArrowInvalid(f"invalid UTF8 data in column {name!r}")
        return table

    def guess(self, name: str, string: pa.DataType, compact: bool) -> pa.DataType:
        """Guess the type of a column from the first rows."""
        kind = self.schema.field(name).type
        if pa.types.is_string(kind):
            return string
        if compact and pa.types.is_integer(kind) and pc.max(pc.abs(self.first.column(name))).as_py() < 2**30:
            return pa.int32()
        return kind

    def _read(
        self, columns: list[str], types: dict[str, pa.DataType], compact: bool, null_words: list[str] | None
    ) -> pa.Table:
        options = conversion(columns, types, null_words, auto_dict_encode=compact, auto_dict_max_cardinality=2**31 - 1)
        blocks = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES)
        return pyarrow.csv.read_csv(
            self.stream(), read_options=blocks, parse_options=self.parsing, convert_options=options
        )

    def batches(
        self, columns: list[str], types: dict[str, pa.DataType], null_words: list[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns in blocks. ``types`` and ``null_words`` are the arguments of :func:`conversion`."""
        options = {
            "read_options": pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            "parse_options": self.parsing,
            "convert_options": conversion(columns, types, null_words),
        }
        with pyarrow.csv.open_csv(self.stream(), **options) as reader:
            yield from reader

    def require_closed_quotes(self) -> None:
        """Raise ArrowInvalid if a quote is never closed, because all rows after it would be read as one value."""
        # 1. In most files the last block shows that no quote is open.
        tail = b""
        with self.stream() as file:
            if file.seekable():
                file.seek(max(file.size() - BLOCK_BYTES, 0))
            while block := file.read(BLOCK_BYTES):
                tail = (tail + block)[-BLOCK_BYTES:]
        tail = tail.rstrip()
        if b'"' not in tail or tail.endswith(b'"'):
            return
        # 2. Otherwise the last value of the last column shows it: it contains line breaks.
        last = ""
        for batch in self.batches(self.names[-1:], {self.names[-1]: pa.string()}, []):
            last = str(batch.column(0)[-1]) if batch.num_rows else last
        if "\n" in last or "\r" in last:
            raise pa.ArrowInvalid("the file ends inside a quoted value")

    def stream(self) -> Any:
        """Open the file for reading from its beginning."""
        return _stream(self.path)


def _is_utf8(values: pa.Array) -> bool:
    """Return True if all values of a binary column are UTF-8 text."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def separator_of(path: Path) -> str:
    """Return the separator of a CSV file, or raise an error if it has UTF-16 text or decimal commas."""
    with _stream(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(_UTF16_MARKS) or b"\0" in head[:4]:
        raise pa.ArrowInvalid("invalid UTF8 data")
    outside = re.sub(rb'"[^"]*"', b"", head)  # quoted names may contain line breaks and commas
    header = re.split(rb"[\r\n]", outside, maxsplit=1)[0]
    separator = next((sign for sign in _SEPARATORS if sign in header), b",")
    decimal = None if separator == b"," else re.search(rb"(?<=[;\t\r\n])-?\d+,\d+(?=[;\t\r\n])", outside)
    if decimal is not None:
        raise SchemaError(
            f"{path}: expected decimal points, got numbers with decimal commas such as {decimal[0].decode()}. Save the "
            f"file with decimal points."
        )
    return separator.decode()


def _stream(path: Path) -> Any:
    zipped = path.name.lower().endswith(".gz")
    return pa.input_stream(str(path), compression="gzip" if zipped else None)


def conversion(columns: list[str], types: dict[str, pa.DataType], null_words: list[str] | None, **options: Any) -> Any:
    """Return Arrow's options to convert CSV columns.

    ``null_words`` are the texts that mean a missing value. If ``null_words`` is None, Arrow's default list is used.
    """
    if null_words is not None:
        options["null_values"] = null_words
    return pyarrow.csv.ConvertOptions(
        include_columns=columns,
        column_types=types,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        **options,
    )


# -- CSV copy ----------------------------------------------------------------------------------------------------------
# A CSV with one more column: the existing columns stay the same, byte for byte.

_BYTES = "latin-1"  # maps each byte to one character, for text of any encoding
_MARK = codecs.BOM_UTF8.decode(_BYTES)  # byte order mark that spreadsheets write at the start of a file


def append_column(source: Path, target: Path, name: str, values: NDArray[Any]) -> None:
    """Copy a CSV file, plain or gzipped, and add a column of numbers.

    Parameters
    ----------
    source
        The CSV file.
    target
        Path of the copy, which is not compressed.
    name
        Name of the new column.
    values
        Numbers of the new column, one per row.

    Raises
    ------
    SchemaError
        If the number of rows differs from the length of ``values``.
    """
    separator = separator_of(source)
    # quote the name if it contains a separator, a quote or a line break
    quoted = '"' + name.replace('"', '""') + '"' if any(sign in name for sign in f'{separator}"\r\n') else name
    cells = chain([quoted.encode().decode(_BYTES)], map(repr, values.tolist()))
    with (
        atomic_write(target) as temporary,
        _open_lines(source) as lines,
        temporary.open("w", encoding=_BYTES, newline="") as out,
    ):
        for record in records(lines, separator):
            body = record.rstrip("\r\n")
            cell = next(cells, None) if body else ""  # an empty line is not a row
            if cell is None:
                break
            out.write(f"{body}{separator}{cell}{record[len(body) :]}" if body else record)
        else:
            if next(cells, None) is None:
                return
        raise SchemaError(f"{source} no longer has {len(values)} rows: the file changed while it was read. Try again.")


def records(lines: Iterable[str], separator: str = ",") -> Iterator[str]:
    r"""Yield the records of a CSV file. A record with line breaks inside quotes has several lines.

    Examples
    --------
    >>> list(records(["1,plain\n", '2,"two\n', 'lines"\n', '3,5" pipe\n']))
    ['1,plain\n', '2,"two\nlines"\n', '3,5" pipe\n']
    """
    record: list[str] = []  # lines of the current record
    mark = _MARK  # only in the first line
    for line in lines:
        record.append(line)
        text, mark = line.removeprefix(mark), ""
        if not (len(record) > 1 or '"' in text) or not _ends_inside(text, separator, inside=len(record) > 1):
            yield "".join(record)
            record = []
    if record:
        yield "".join(record)


def _ends_inside(line: str, separator: str, *, inside: bool) -> bool:
    """Return True if a line ends inside a quoted value. ``inside`` is True if the line begins inside a quoted value."""
    at = 0
    while True:
        # 1. Skip values without quotes: a quote that does not begin a value is an ordinary character.
        if not inside and not line.startswith('"', at):
            at = line.find(separator, at) + 1
            if not at:
                return False
            continue
        # 2. Find the end of a quoted value.
        end = line.find('"', at if inside else at + 1)
        inside = end < 0 or line.startswith('"', end + 1)  # two quotes stand for one inside the value
        if end < 0:
            return True
        at = end + 2 if inside else line.find(separator, end) + 1
        if not at:
            return False


def _open_lines(path: Path) -> TextIO:
    """Open a CSV file for reading line by line, with unchanged line endings."""
    opening = gzip.open if path.name.lower().endswith(".gz") else open
    return cast("TextIO", opening(path, "rt", encoding=_BYTES, newline=""))
