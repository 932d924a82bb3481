"""Display names of columns: reading, writing and invalid names."""

from typing import Any

import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.names import ColumnName, ColumnNames, column_names
from pcmcnet.errors import SchemaError


def test_a_column_without_display_name_uses_its_own() -> None:
    names = ColumnNames({"t": ColumnName(unit="min"), "p": ColumnName("Price")})
    assert [names[column] for column in "tpx"] == ["t", "Price", "x"]
    assert [names.label(column) for column in "tpx"] == ["t (min)", "Price", "x"]
    assert [names.amount(column, "3") for column in "tpx"] == ["3 min", "Price 3", "x 3"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("price", r"columns must map each column to a name and a unit, as in .* got 'price'"),
        ({"prize": {"name": "Price"}}, r"columns includes 'prize', which has no role .* 'price'"),
        ({"price": "EUR"}, r"columns\['price'\]: expected .* got 'EUR'"),
        ({"price": {"units": "EUR"}}, r"columns\['price'\]: unknown entry 'units'.*'unit'"),
        ({"price": {"unit": 7}}, r"columns\['price'\]: the unit must be a single line .* got 7"),
        ({"price": {"name": "two\nlines"}}, r"the name must be a single line"),
    ],
)
def test_invalid_names_are_refused(given: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        column_names(given, ["trip", "price"])


def test_names_do_not_change_the_fingerprint() -> None:
    table = {"trip": [1, 1], "took": [0, 1], "price": [3.0, 4.5]}
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["price"]}
    plain = ChoiceData.from_long(table, **roles)
    named = ChoiceData.from_long(table, **roles, columns={"price": {"name": "Price", "unit": "EUR"}})
    assert named.schema.names.label("price") == "Price (EUR)"
    assert named.fingerprint() == plain.fingerprint()
    wide = ChoiceData.from_wide(
        {"took": ["a", "b"], "a_t": [1, 2], "b_t": [2, 1]},
        chosen="took",
        alternatives=["a", "b"],
        features={"t": "{alternative}_t"},
        columns={"t": {"unit": "min"}},
    )
    assert wide.schema.names.label("t") == "t (min)"
