"""Dates and times: reading, and their encoding as time of day, weekday, month and trend."""

import datetime as dt
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from choice_tables import read_column
from pcmcnet.data.kinds.datetime import DatetimeCode
from pcmcnet.errors import SchemaError

read = partial(read_column, "at", "datetime")
MORNING = dt.datetime(2024, 5, 17, 9, 30)


@pytest.mark.parametrize(
    "values",
    [
        [MORNING, MORNING],
        np.array(["2024-05-17T09:30"] * 2, "datetime64[m]"),
        np.array(["2024-05-17T09:30"] * 2, "datetime64[ns]"),
        ["2024-05-17T09:30", "2024-05-17 09:30:00"],
        ["2024-05-17T09:30+02:00", "2024-05-17T09:30Z"],
        pa.array([MORNING.replace(hour=7)] * 2, pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms", "Europe/Paris")),
        [MORNING.replace(tzinfo=dt.timezone(dt.timedelta(hours=5.5))), MORNING.replace(tzinfo=dt.UTC)],
        [MORNING.replace(tzinfo=dt.UTC), MORNING],
    ],
    ids=["python", "minutes", "nanoseconds", "text", "text with zones", "zone", "two zones", "with and without zone"],
)
def test_times_are_read_in_local_time(values: Any) -> None:
    column = read(values)
    assert column.codes.tolist() == [0, 0]
    assert column.table.tolist() == [MORNING]


def test_dates_are_midnights() -> None:
    assert read([dt.date(2024, 5, 17)]).table.tolist() == [dt.datetime(2024, 5, 17)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["2024-05-17", "17.5.2024"], r"row 1 \(choice set A\): expected a date or a time .*, got '17\.5\.2024'"),
        (pa.array([MORNING] * 2, pa.timestamp("us", "Mars/Base")), "expected a known time zone.*'Mars/Base'"),
        ([3, 4], "has type int64: expected dates, timestamps or text"),
        ([MORNING, None], r"row 1 \(choice set A\): expected a value of kind datetime, got nothing"),
    ],
)
def test_values_that_are_not_times_are_refused(values: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read(values)


@pytest.mark.parametrize(
    ("text", "circles"),
    [
        ("2024-01-01T00:00", [0, 1, 0, 1, 0, 1]),  # a Monday
        ("2024-01-01T06:00", [1, 0, 0, 1, 0, 1]),
        ("2024-04-01T18:00", [-1, 0, 0, 1, 1, 0]),  # a Monday, a quarter of a year later
        ("1969-07-07T12:00", [0, -1, 0, 1, 0, -1]),  # a Monday before 1970
    ],
)
def test_hour_weekday_and_month_are_points_on_circles(text: str, circles: list[float]) -> None:
    """A quarter turn is (1, 0), half a turn (0, -1)."""
    encoded = DatetimeCode("at", 0.0, 1.0).prepare(np.array([text], "datetime64[us]"))
    np.testing.assert_allclose(encoded[0, :6], circles, rtol=0, atol=1e-6)


def test_sunday_is_the_last_day_of_the_week() -> None:
    encoded = DatetimeCode("at", 0.0, 1.0).prepare(np.array(["2024-01-07"], "datetime64[us]"))
    np.testing.assert_allclose(
        encoded[0, 2:4], [np.sin(2 * np.pi * 6 / 7), np.cos(2 * np.pi * 6 / 7)], rtol=0, atol=1e-6
    )


def test_the_trend_is_standardised_on_training_and_extrapolates() -> None:
    days = np.array(["2024-01-01", "2024-01-03"], "datetime64[us]")
    code = DatetimeCode.learn("at", days)
    later = np.array(["2024-01-01", "2024-01-03", "2024-01-05"], "datetime64[us]")
    np.testing.assert_allclose(code.prepare(later)[:, 6], [-1, 1, 3], rtol=0, atol=1e-6)


def test_a_single_time_has_no_trend() -> None:
    day = np.array(["2024-01-01"], "datetime64[us]")
    assert DatetimeCode.learn("at", day).prepare(day)[0, 6] == 0
