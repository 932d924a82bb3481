"""Dates and times: a trend, and the time of day, weekday and month as points on circles.

The time of day, the day of the week and the month each become (sin, cos) of their angle, so that 23:59 is close to 0:00
and December to January. The trend is the timestamp itself, standardised by the distinct timestamps of the training
part. Each timestamp thus becomes 7 numbers. All times are local: timestamps are converted to the time zone of the
column, which is then dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import MISSING_CODE, Contents
from pcmcnet.data.columns.distinct import is_text
from pcmcnet.data.kinds.kind import (
    BadTypeError,
    Kind,
    PixelBudget,
    ReadContents,
    ScaleCode,
    is_string,
    mostly_match,
    number_distinct,
    parse_texts,
    register,
)
from pcmcnet.errors import describe_value

_DAY_SECONDS = 86_400.0
_ISO_FORM = r"^\s*\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?$"
_DAYS_AFTER_MONDAY = 3  # of 1 January 1970, a Thursday


@dataclass(frozen=True, slots=True)
class DatetimeCode(ScaleCode):
    """Code of a timestamp column: the mean and scale of the trend, in seconds."""

    kind: ClassVar[str] = "datetime"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one encoded timestamp."""
        return (7,)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> DatetimeCode:
        """Learn the mean and scale of the trend."""
        seconds = _seconds(table)
        return cls(name, float(seconds.mean()), float(seconds.std()))

    def prepare(self, table: NDArray[Any]) -> NDArray[np.float32]:
        """Encode timestamps as sines and cosines of time of day, weekday and month, then the trend: (U,) -> (U, 7).

        Examples
        --------
        >>> noon = np.array(["1970-01-05T12:00"], "datetime64[us]")  # a Monday in January
        >>> DatetimeCode("at", mean=0.0, scale=86_400.0).prepare(noon).round(6).tolist()
        [[0.0, -1.0, 0.0, 1.0, 0.0, 1.0, 4.5]]
        """
        seconds = _seconds(table)
        days = np.floor(seconds / _DAY_SECONDS)
        months = table.astype("datetime64[M]").astype(np.int64)
        shares = [seconds / _DAY_SECONDS - days, (days + _DAYS_AFTER_MONDAY) % 7 / 7, months % 12 / 12]
        circles = [function(2 * np.pi * share) for share in shares for function in (np.sin, np.cos)]
        trend = (seconds - self.mean) / self.scale if self.scale > 0 else np.zeros(len(table))
        return np.stack([*circles, trend], 1).astype(np.float32)


def _instant(text: str) -> np.datetime64:
    return np.datetime64(datetime.fromisoformat(text.strip()).replace(tzinfo=None), "us")


def _seconds(table: NDArray[Any]) -> NDArray[np.float64]:
    seconds: NDArray[np.float64] = table.astype("datetime64[us]").astype(np.int64) / 1e6
    return seconds


class _DatetimeLearner:
    """Collects the distinct timestamps, each of which takes 8 bytes."""

    def __init__(self) -> None:
        self.instants = np.empty(0, "datetime64[us]")

    def add(self, table: NDArray[Any]) -> None:
        self.instants = np.union1d(self.instants, table)

    def code(self, name: str) -> DatetimeCode:
        return DatetimeCode.learn(name, self.instants)


class DatetimeKind(Kind):
    """Dates and times."""

    name, code, dtype = "datetime", DatetimeCode, "datetime64[us]"
    page_field = "datetime"
    learner_class = _DatetimeLearner
    fact_checks: ClassVar[Any] = {"min": is_string, "max": is_string}

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read timestamps, dates or ISO 8601 text and return codes (n,) and timestamps (U,) in microseconds."""
        kind = values.type
        if pa.types.is_null(kind):
            return np.full(len(values), MISSING_CODE, np.int32), np.empty(0, "datetime64[us]")
        if is_text(kind):
            expected = "a date or a time such as 2024-05-17T09:30"
            instants = np.array(
                parse_texts(values, _instant, expected, "Correct it, or drop the row."), "datetime64[us]"
            )
        elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            try:  # local time in the time zone of the column
                local = pc.local_timestamp(values) if pa.types.is_timestamp(kind) and kind.tz is not None else values
            except pa.ArrowInvalid as error:
                raise BadTypeError(f"expected a known time zone, got {kind.tz!r}") from error
            instants = local.cast(pa.timestamp("us"), safe=False).to_numpy()
        else:
            raise BadTypeError("expected dates, timestamps or text such as '2024-05-17T09:30'")
        present = ~np.isnat(instants)
        return number_distinct(instants[present], present, len(values), keys=instants[present].astype(np.int64))

    def recognise(self, column: str, texts: pa.Array) -> tuple[str, str] | None:
        """Recognise dates and times by the ISO 8601 format."""
        hint = f"declare kinds={{{column!r}: 'datetime'}} to read them as dates and times"
        return ("dates or times", hint) if mostly_match(texts, _ISO_FORM) else None

    def facts(self, column: Contents) -> dict[str, Any]:
        """Return the first and the last timestamp."""
        table = column.table
        return {"min": self.to_json(table.min()), "max": self.to_json(table.max())} if len(table) else {}

    def to_json(self, content: Any) -> str:
        """Return a timestamp as ISO 8601 text."""
        return str(content).removesuffix(".000000")

    def to_saved(self, content: Any) -> str:
        """Return a timestamp as ISO 8601 text, to the microsecond."""
        return str(content)

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the JSON schema of a timestamp."""
        description = "A date or a local time in ISO 8601, such as 2024-05-17T09:30."
        return {"type": "string", "description": description, "examples": ["2024-05-17T09:30"]}

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> str:
        """Check that a value is a string. The string is parsed later, by :meth:`read`."""
        if not isinstance(value, str):
            raise ValueError(f"expected a date or a time such as '2024-05-17T09:30', got {describe_value(value)}")
        return value


register(DatetimeKind())
