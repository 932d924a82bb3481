"""London Passenger Mode Choice: 81,086 trips on foot, by bicycle, public transport or car, with a published split.

T. Hillel, M. Elshafie & Y. Jin, *Recreating passenger mode choice-sets for transport simulation: A case study of
London, UK*, Proceedings of the ICE, Smart Infrastructure and Construction 171 (2018). The published split uses survey
years 1 and 2 for training and year 3 for testing. No household is in both parts.

The file is not part of this package. It is a wide table with one row per trip, as CSV or Parquet. Durations are in
hours, costs in pounds, distances in metres.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.files.tabular import read_table
from pcmcnet.errors import DatasetError, SchemaError

__all__ = ["published_split", "read"]

TRAINING_YEARS, TEST_YEARS = (1, 2), (3,)
_YEAR = "survey_year"
_NONE = {"walk": 0, "cycle": 0, "pt": 0, "drive": 0}
_ROLES = {
    "chosen": "travel_mode",
    "choice_set": "trip_id",
    "alternatives": ["walk", "cycle", "pt", "drive"],
    "features": {
        "duration": {"walk": "dur_walking", "cycle": "dur_cycling", "pt": "dur_pt_total", "drive": "dur_driving"},
        "cost": {**_NONE, "pt": "cost_transit", "drive": "cost_driving_fuel"},
        "charge": {**_NONE, "drive": "cost_driving_con_charge"},
        "access": {**_NONE, "pt": "dur_pt_access"},
        "rail": {**_NONE, "pt": "dur_pt_rail"},
        "bus": {**_NONE, "pt": "dur_pt_bus"},
        "waiting": {**_NONE, "pt": "dur_pt_int_waiting"},
        "changes": {**_NONE, "pt": "pt_n_interchanges"},
        "traffic": {**_NONE, "drive": "driving_traffic_percent"},
    },
    "individual": [
        *("purpose", "fueltype", "faretype", "bus_scale", "travel_month", "day_of_week", "start_time_linear"),
        *("age", "female", "driving_license", "car_ownership", "distance"),
    ],
    "person": "household_id",
}


def read(path: str | os.PathLike[str], *, years: Collection[int] = (*TRAINING_YEARS, *TEST_YEARS)) -> ChoiceData:
    """Read trips as choice sets of four alternatives: walk, cycle, pt (public transport) and drive.

    Parameters
    ----------
    path
        The file, such as ``ltds.csv.gz``.
    years
        Survey years to read (default 1, 2 and 3).

    Returns
    -------
    ChoiceData
        Nine features, twelve individual-level columns. The households are the persons, so that folds keep the trips of
        a household together.

    Raises
    ------
    DatasetError
        If the file cannot be read, lacks a column, or has no trip in these years.
    """
    if isinstance(years, str) or not isinstance(years, Collection):
        raise DatasetError(f"years: expected survey years such as (1, 2), got {years!r}.")
    try:
        rows = read_table(path)
        if _YEAR not in rows.column_names:
            raise SchemaError(f"expected a column {_YEAR!r}, got {', '.join(rows.column_names[:5])}, ...")
        rows = rows.filter(pc.field(_YEAR).isin(list(years)))
        if not rows.num_rows:
            raise SchemaError(f"there is no trip with {_YEAR} in {sorted(years)}.")
        return ChoiceData.from_wide(rows, **_ROLES)  # type: ignore[arg-type]  # roles by name
    except (SchemaError, pa.ArrowException) as error:
        raise DatasetError(f"{os.fspath(path)} is not the table of London Passenger Mode Choice: {error}") from error


def published_split(path: str | os.PathLike[str]) -> tuple[ChoiceData, ChoiceData]:
    """Read the training part (survey years 1 and 2) and the test part (year 3) of the published split.

    Parameters
    ----------
    path
        The file, such as ``ltds.csv.gz``.

    Returns
    -------
    tuple
        54,766 choice sets to fit, and 26,320 to predict.

    Raises
    ------
    DatasetError
        If the file cannot be read, or lacks a column.
    """
    return read(path, years=TRAINING_YEARS), read(path, years=TEST_YEARS)
