"""A CSV with one more column: what was there before stays as it was, byte for byte."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, cast

from numpy.typing import NDArray

from pcmcnet.data.csv_file import separator_of
from pcmcnet.errors import SchemaError
from pcmcnet.storage.files import replacing

_BYTES = "latin-1"  # a character for each byte, whatever the file's own encoding is
_MARK = codecs.BOM_UTF8.decode(_BYTES)  # that spreadsheets begin a file with


def append_column(source: Path, target: Path, name: str, values: NDArray[Any]) -> None:
    """Write a CSV, zipped or not, with a column of numbers added, one for each of its rows.

    Raises
    ------
    SchemaError
        When the file does not have as many rows as there are numbers.
    """
    separator = separator_of(source)
    cells = chain([_in_quotes(name, separator).encode().decode(_BYTES)], map(repr, values.tolist()))
    with replacing(target) as beside, _opened(source) as lines, beside.open("w", encoding=_BYTES, newline="") as out:
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


def _in_quotes(name: str, separator: str) -> str:
    """Write a name as a CSV has it: in quotes where it would not be one value without."""
    return '"' + name.replace('"', '""') + '"' if any(sign in name for sign in f'{separator}"\r\n') else name


def _opened(path: Path) -> TextIO:
    """Open a CSV for reading line by line, line ends as they are."""
    opening = gzip.open if path.name.lower().endswith(".gz") else open
    return cast(TextIO, opening(path, "rt", encoding=_BYTES, newline=""))
