"""Where the airline experiment gets its choice sets: the paper's files, the table of larch, or a simulation.

All three have the columns of the paper's table 4. The airline is that of the first flight: the first of ``airlines``,
whatever follows it. A source that comes in parts says which sets to fit on, to stop early on and to test on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pcmcnet.data import ChoiceData
from pcmcnet.data.splits import generator, split_parts
from pcmcnet.datasets import packaged
from pcmcnet.errors import InputError, SchemaError, did_you_mean
from pcmcnet.evaluation.cross_validation import Parts

FILES = {part: f"data_{part}_50alternatives-EUR-TopOD_filter.csv" for part in ("train", "dev", "test")}
ROLES: Mapping[str, Any] = {
    "choice_set": "individual",
    "chosen": "choice",
    "individual": ["OD", "officeID", "depWeekDay", "staySaturday", "isContinental", "isDomestic", "dtd"],
    "features": [
        "airline",
        "totalPrice",
        "stayDurationMinutes",
        "totalTripDurationMinutes",
        "nFlights",
        "nAirlines",
        "outDepTime",
        "outArrTime",
    ],
    "categorical": ["OD", "officeID", "airline"],
    "conflict": "first",  # days to departure may differ within a search: the first row, the cheapest, counts
}
SHARES = (0.8, 0.1, 0.1)  # of a simulated table: to fit on, to stop early on, to test on


@dataclass(frozen=True)
class Simulated:
    """Parts of a simulated table, and the least NLL that a model can expect on its test part."""

    parts: Parts
    best_nll: float


def with_airline(table: pa.Table) -> pa.Table:
    """Add the airline of the first flight, the first word of ``airlines``.

    Examples
    --------
    >>> with_airline(pa.table({"airlines": ["AF/KL", "BA"]}))["airline"].to_pylist()
    ['AF', 'BA']
    """
    if "airlines" not in table.column_names:
        raise SchemaError(f"expected a column 'airlines', got {table.column_names}.")
    words = pc.cast(table["airlines"], pa.string())
    first = pc.struct_field(pc.extract_regex(words, r"(?P<first>[^\W_]+)"), "first")
    if first.null_count:
        row = pc.index(pc.is_null(first), True).as_py()
        raise SchemaError(
            f"column 'airlines', row {row}: expected airlines such as 'AF/KL', got {words[row].as_py()!r}; "
            f"{first.null_count} such rows."
        )
    return table.append_column("airline", first)


def read_folder(folder: str | Path) -> Parts:
    """Read the paper's three files: one to fit on, one to stop early on, one to test on."""
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place} is no folder: expected one with {', '.join(FILES.values())}.")
    missing = [name for name in FILES.values() if not (place / name).is_file()]
    if missing:
        there = [path.name for path in place.iterdir()]
        raise InputError(f"{place}: {missing[0]} is missing." + did_you_mean(missing[0], there))
    train, dev, test = (_read(place / name) for name in FILES.values())
    return Parts(train, dev, test)


def _read(path: Path) -> ChoiceData:
    try:
        table = pyarrow.csv.read_csv(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: expected a CSV file, could not read it ({error}).") from error
    return ChoiceData.from_long(with_airline(table), **ROLES)


def larch_table() -> ChoiceData:
    """Read the 615 bookings that ship with the package larch.

    Origin and destination stay the two columns that they are there: so few bookings tell little of 91 pairs of them.
    """
    table = with_airline(packaged.load("itinerary"))
    roles = packaged.TABLES["itinerary"].roles
    features = ["airline" if name == "airlines" else name for name in roles["features"]]
    return ChoiceData.from_long(table, **{**roles, "features": features})


def simulate(sets: int, seed: int) -> Simulated:
    """Simulate choice sets and cut them into three parts."""
    from pcmcnet.datasets import airline

    table = with_airline(airline.simulate(sets, seed=seed))
    data = ChoiceData.from_long(table, **ROLES)
    cut = split_parts(data.groups(None), SHARES, generator(seed))
    train, dev, test = (data.subset(part) for part in cut)
    here = pc.is_in(table["individual"], pa.array(test.set_ids, table["individual"].type))
    return Simulated(Parts(train, dev, test), airline.best_possible_nll(table.filter(here)).realised)
