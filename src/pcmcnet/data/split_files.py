"""Split a table into files, such as a training table and a test table, without changing its rows.

The rows of a choice set stay together, and so do the choice sets of a person. Groups are assigned to the parts in a
random order, or by the smallest value of a column such as a date, so that the last part is the most recent.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.arrays import Ints
from pcmcnet.data.columns.arrays import array_to_numpy
from pcmcnet.data.columns.distinct import distinct
from pcmcnet.data.files.read_files import ending
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.files.write_files import write_table
from pcmcnet.data.schema import Schema
from pcmcnet.data.subsets import generator, split_parts
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.storage import atomic_write

PART_NAMES = {2: ("train", "test"), 3: ("train", "valid", "test")}


class TablePart(NamedTuple):
    """One file of a split table, with its number of choice sets and of rows."""

    path: Path
    choice_sets: int
    rows: int


def split_table(
    table: Path,
    folder: Path,
    schema: Schema,
    parts: Sequence[float] = (0.8, 0.2),
    *,
    seed: int = 0,
    by: str | None = None,
    order: str | None = None,
) -> list[TablePart]:
    """Write the parts of a table to files in a folder, in the format of the table.

    Parameters
    ----------
    table
        A CSV, Parquet or Arrow file.
    folder
        Folder for the files train, test and, with three parts, valid.
    schema
        Roles of the columns, of which the choice set and the person are used.
    parts
        Shares of the parts, which add up to 1. Default 0.8 and 0.2.
    seed
        Seed of the random order. Default 0.
    by
        Column whose groups stay together. Default: the person, if declared.
    order
        Column that orders the choice sets, such as a date. By default, the order is random.

    Returns
    -------
    list of TablePart
        The files.

    Raises
    ------
    InputError
        If the shares are not valid, or if there are too few groups.
    SchemaError
        If the table cannot be read.
    """
    if len(parts) not in PART_NAMES:
        raise InputError(f"expected the shares of two or three parts, such as 0.8,0.2; got {len(parts)}.")
    kind = ending(table)
    if kind == "folder":
        raise SchemaError(f"{table} is a folder: expected one CSV, Parquet or Arrow file.")
    # 1. Number the sets, and find the group and the rank of each. A row of a wide table is a choice set.
    id_column = None if schema.wide else schema.choice_set
    group_column = schema.group_column if by is None else by
    names = [name for name in dict.fromkeys((id_column, group_column, order)) if name is not None]
    ids = [name for name in (id_column, group_column) if name is not None]
    columns = read_table(table, names or None, ids=ids)
    sets = np.arange(columns.num_rows) if id_column is None else _codes(columns, id_column)
    first = np.unique(sets, return_index=True)[1]
    groups = np.arange(len(first))
    if group_column is not None:
        group_of_row = _codes(columns, group_column)
        groups = group_of_row[first]
        if (groups[sets] != group_of_row).any():
            raise SchemaError(f"column {group_column!r} varies within choice sets, so it cannot keep them together.")
    ranks = None if order is None else _ranks(columns, order)[first]
    # 2. Assign each row to the part of its set.
    members = split_parts(groups, parts, generator(seed), ranks)
    part_of_set = np.empty(len(first), np.int64)
    for number, positions in enumerate(members):
        part_of_set[positions] = number
    part_of_row = part_of_set[sets]
    # 3. Write the rows of each part.
    paths = [folder / f"{name}{kind}" for name in PART_NAMES[len(parts)]]
    if kind in (".csv", ".csv.gz"):
        _split_lines(table, paths, part_of_row)
    else:
        rows = read_table(table)
        for number, path in enumerate(paths):
            write_table(rows.filter(pa.array(part_of_row == number)), path)
    counts = np.bincount(part_of_row, minlength=len(paths))
    return [TablePart(path, len(members[number]), int(counts[number])) for number, path in enumerate(paths)]


def _codes(columns: pa.Table, name: str) -> Ints:
    """Return the number of each row's value. Raise SchemaError if a value is missing."""
    codes = distinct(columns[name]).codes.astype(np.int64)
    if (codes < 0).any():
        raise SchemaError(f"column {name!r}, row {int(np.argmax(codes < 0))}: expected an id, got nothing.")
    return codes


def _ranks(columns: pa.Table, name: str) -> Ints:
    """Return the rank of each row's value. Missing values come last."""
    codes, values = distinct(columns[name])
    ranks = np.full(len(values) + 1, len(values), np.int64)
    ranks[array_to_numpy(pc.sort_indices(values)).astype(np.int64)] = np.arange(len(values))
    return ranks[codes]


def _split_lines(table: Path, paths: Sequence[Path], part_of_row: Ints) -> None:
    """Copy each row of a CSV file, as it is written, to the file of its part."""
    with ExitStack() as stack:
        rows = csv.reader(stack.enter_context(_open_text(table, "rt")))
        files = [stack.enter_context(_open_text(stack.enter_context(atomic_write(path)), "wt")) for path in paths]
        writers = [csv.writer(file, lineterminator="\n") for file in files]
        head = next(rows)
        for writer in writers:
            writer.writerow(head)
        for row, part in zip((row for row in rows if row), part_of_row, strict=True):
            writers[part].writerow(row)


def _open_text(path: Path, mode: str) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, mode, encoding="utf-8", newline="")  # type: ignore[return-value]
    return path.open(mode, encoding="utf-8", newline="")
