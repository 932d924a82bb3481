"""What is wrong with the file of a table, in one sentence with its path: its ending, its contents, its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from pcmcnet.data.csv_file import BLOCK, TOO_LONG
from pcmcnet.errors import SchemaError, did_you_mean

ENDINGS = (".csv", ".csv.gz", ".parquet", ".arrow")


def ending(path: Path) -> str:
    """Name the format by the file's ending."""
    if path.is_dir():
        return "folder"
    for end in ENDINGS:
        if path.name.lower().endswith(end):
            return end
    raise SchemaError(f"{path}: unknown kind of file. Expected {', '.join(ENDINGS)} or a folder of .parquet files.")


def require_columns(wanted: Sequence[str], present: Sequence[str], *, where: str = "the table") -> None:
    """Refuse a column that is absent, or there more than once."""
    found = Counter(present)
    for name in wanted:
        if name not in found:
            raise SchemaError(f"{where} has no column {name!r}." + did_you_mean(name, present))
        if (times := found[name]) > 1:
            raise SchemaError(f"{where} has {times} columns named {name!r}: rename all but one.")


def one_line(error: Exception) -> str:
    """Fit what a library said into a sentence of ours."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300].rstrip(".")


@contextmanager
def one_sentence(path: Path) -> Iterator[None]:
    """Turn what a reader throws at a broken file into one sentence."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        if ending(path).startswith(".csv") and (isinstance(error, UnicodeDecodeError) or "UTF8" in str(error)):
            raise SchemaError(f"{path}: the file is not UTF-8 text. Save it as UTF-8.") from error
        if ending(path).startswith(".csv") and TOO_LONG in str(error):
            raise SchemaError(
                f"{path}: a line is longer than the {BLOCK // 2**20} MiB that are read at once. Close a quote that was "
                f"left open, shorten the values, or write the table as .parquet."
            ) from error
        raise SchemaError(
            f"{path}: cannot be read as {ending(path)} ({one_line(error)}). "
            f"The file may be truncated or of another kind: write it again."
        ) from error
