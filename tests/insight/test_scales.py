"""Numbers without a meaningful zero: clock times, years and identifiers, by their unit or by name and values."""

from typing import Any

import pytest

from pcmcnet import ChoiceData
from pcmcnet.insight.queries import why_no_elasticity

CLOCK, YEAR, IDENTIFIER = "is a clock time", "is a calendar year", "is an identifier"


def reason(name: str, values: list[float], unit: str | None = None) -> str | None:
    columns: dict[str, Any] = {} if unit is None else {name: {"unit": unit}}
    data = ChoiceData.from_long(
        {"s": [1] * len(values), name: values}, choice_set="s", features=[name], columns=columns
    )
    return why_no_elasticity(data, name)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("outDepTime", [17060, 81155], CLOCK),
        ("arrival_hour", [0, 23.5], CLOCK),
        ("timeOfDay", [480, 1200], CLOCK),
        ("START_TIME", [0, 1439], CLOCK),
        ("vintage_year", [1999, 2020], YEAR),
        ("zone_id", [3, 8], IDENTIFIER),
        ("flightNumber", [101, 250], IDENTIFIER),
        ("countryCode", [1, 49], IDENTIFIER),
    ],
)
def test_names_and_values_identify_numbers_without_zero(name: str, values: list[float], expected: str) -> None:
    result = reason(name, values)
    assert result is not None
    assert result.startswith(expected)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("travel_time", [10, 90]),
        ("time_to_departure", [10, 90]),  # a duration
        ("arrTime", [-20, 90]),  # a clock time is not negative
        ("depTime", [0, 200_000]),  # nor this large
        ("age_years", [20, 60]),
        ("year", [1, 12]),  # for example, of a warranty
        ("price_code", [1.5, 2.5]),
        ("number_of_stops", [0, 2]),
        ("cost", [0, 5]),
        ("x", [float("nan"), 1.0]),
    ],
)
def test_other_numbers_have_a_meaningful_zero(name: str, values: list[float]) -> None:
    data = ChoiceData.from_long({"s": [1, 1], name: values}, choice_set="s", features=[name], missing="indicator")
    assert why_no_elasticity(data, name) is None


def test_a_declared_unit_takes_precedence_over_the_name() -> None:
    assert reason("depTime", [480, 600], "min") is None
    assert (reason("t", [480, 600], "clock") or "").startswith(CLOCK)
    assert (reason("t", [1990, 2000], "Calendar year") or "").startswith(YEAR)
    assert (reason("t", [1, 2], "id") or "").startswith(IDENTIFIER)
