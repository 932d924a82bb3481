"""Errors in a choice set are reported with their place."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.models import PCMCNet
from pcmcnet.serving.request_body import RequestError
from pcmcnet.serving.request_sets import SetReader, input_columns, require_known_columns
from pcmcnet.serving.settings import ServeSettings

Change = Callable[[Any], Any]


@pytest.fixture
def reader(net: PCMCNet) -> SetReader:
    settings = ServeSettings(max_sets=20, max_alternatives=6, max_pairs=300)
    return SetReader(net.schema, input_columns(net.schema), settings)


def put(*path: Any, value: Any) -> Change:
    """Return a function that sets a nested value."""

    def change(sets: Any) -> Any:
        at = sets
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        return sets

    return change


def drop(*path: Any) -> Change:
    def change(sets: Any) -> Any:
        at = sets
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]
        return sets

    return change


FIRST = (1, "alternatives", 1)  # alternative 1 of set 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sets: {}, "sets: expected a list with at least one choice set, got an object."),
        (lambda sets: [], "sets: expected a list with at least one choice set, got a list of 0."),
        (
            lambda sets: sets * 3,
            "sets: expected at most 20 choice sets in a request, got 24: send them in several requests.",
        ),
        (put(2, value="x"), "set 2: expected an object, got 'x'."),
        (put(2, "who", value={}), "set 2: unknown entry 'who'. Known: alternatives, individual."),
        (put(2, "individuals", value={}), "set 2: unknown entry 'individuals'. Did you mean 'individual'?"),
        (drop(2, "alternatives"), "set 2: 'alternatives' is missing."),
        (
            put(2, "individual", value=None),
            "set 2, individual: expected an object with a value for each column, got null.",
        ),
        (drop(2, "individual"), "set 2, individual: column 'income' is missing: add a value of kind number."),
        (
            drop(2, "individual", "purpose"),
            "set 2, individual: column 'purpose' is missing: add a value of kind category.",
        ),
        (
            put(2, "individual", "incme", value=1),
            "set 2, individual: unknown column 'incme'. Did you mean 'income'?",
        ),
        (
            put(2, "individual", "price", value=1),
            "set 2, individual: column 'price' belongs to each alternative: move it there.",
        ),
        (
            put(2, "individual", "income", value="30"),
            "set 2, individual, column 'income': expected a number, got '30'.",
        ),
        (
            put(2, "individual", "purpose", value=None),
            "set 2, individual, column 'purpose': expected a category, got null.",
        ),
        (
            put(2, "alternatives", value=[]),
            "set 2, alternatives: expected a list with at least one alternative, got a list of 0.",
        ),
        (
            put(2, "alternatives", value=[{}] * 7),
            "set 2: expected at most 6 alternatives, got 7: remove some, or raise --max-alternatives.",
        ),
        (
            put(*FIRST, value=3),
            "set 1, alternative 1: expected an object with a value for each column, got 3.",
        ),
        (put(*FIRST, "prise", value=3), "set 1, alternative 1: unknown column 'prise'. Did you mean 'price'?"),
        (
            put(*FIRST, "took", value=1),
            "set 1, alternative 1: column 'took' is not used in predictions: remove it.",
        ),
        (
            put(*FIRST, "income", value=1),
            "set 1, alternative 1: column 'income' belongs to the individual: move it there.",
        ),
        (drop(*FIRST, "minutes"), "set 1, alternative 1: column 'minutes' is missing: add a value of kind number."),
        (put(*FIRST, "price", value=None), "set 1, alternative 1, column 'price': expected a number, got null."),
        (put(*FIRST, "price", value=True), "set 1, alternative 1, column 'price': expected a number, got true."),
        (put(*FIRST, "price", value=[1]), "set 1, alternative 1, column 'price': expected a number, got a list of 1."),
        (
            put(*FIRST, "price", value=float("inf")),
            "set 1, alternative 1, column 'price': expected a number below 3.4e38, got inf.",
        ),
        (
            put(*FIRST, "price", value=-4e38),
            "set 1, alternative 1, column 'price': expected a number below 3.4e38, got -4e+38.",
        ),
        (
            put(*FIRST, "price", value=10**400),
            "set 1, alternative 1, column 'price': expected a number below 3.4e38, got a whole number of more than 60",
        ),
        (
            put(*FIRST, "comfort", value={}),
            "set 1, alternative 1, column 'comfort': expected a category, got an object.",
        ),
        (
            put(*FIRST, "comfort", value=float("inf")),
            "set 1, alternative 1, column 'comfort': expected a category, got a number that is not finite.",
        ),
        (
            put(*FIRST, "open", value="yes"),
            "set 1, alternative 1, column 'open': expected true or false, or 1 or 0, got 'yes'.",
        ),
        (
            put(*FIRST, "mode", value="car"),
            "set 1, alternative 1, column 'mode': the label 'car' occurs more than once in this set: labels must",
        ),
        (
            lambda sets: [{**sets[0], "alternatives": [{}] * 6}] * 9,
            "sets: expected at most 300 pairs of alternatives in a request, got 324: send fewer or",
        ),
    ],
)
def test_errors_are_reported_with_their_place(change: Change, message: str, reader: SetReader, sets: Any) -> None:
    sets[1]["alternatives"][1]["open"] = 1  # values of unavailable alternatives are ignored
    with pytest.raises(RequestError) as refusal:
        reader.read(change(sets))
    assert refusal.value.status == 422
    assert refusal.value.message.startswith(message)


def test_a_long_name_is_not_sent_back_in_full(reader: SetReader, sets: Any) -> None:
    sets[0]["alternatives"][0]["x" * 100_000] = 1
    with pytest.raises(RequestError) as refusal:
        reader.read(sets)
    assert len(refusal.value.message) < 300


def test_sets_are_read_like_a_table(reader: SetReader, net: PCMCNet, make_trips: Any, as_requests: Any) -> None:
    table = make_trips(8, seed=1)
    result, expected = reader.read(as_requests(table)), net._read(table)
    assert result.fingerprint() == expected.fingerprint()
    np.testing.assert_array_equal(result.rows, expected.rows)
    np.testing.assert_array_equal(result.hidden_rows, expected.hidden_rows)


def test_a_label_may_also_be_a_numeric_feature() -> None:
    table = {"s": [0, 0, 1, 1], "took": [1, 0, 0, 1], "item": [1, 2, 2, 3], "price": [1.0, 2.0, 3.0, 4.0]}
    roles: dict[str, Any] = {"choice_set": "s", "alternative": "item", "features": ["item", "price"]}
    data = ChoiceData.from_long(table, chosen="took", **roles)
    reader = SetReader(data.schema, input_columns(data.schema), ServeSettings())
    result = reader.read([{"alternatives": [{"item": 1, "price": 1}, {"item": 2.0, "price": 2}]}])
    expected = ChoiceData.from_long({name: values[:2] for name, values in table.items()}, **roles)
    assert result.fingerprint() == expected.fingerprint()


# -- Columns -----------------------------------------------------------------------------------------------------------
# Columns that a request may have, and messages for others.


@pytest.mark.parametrize("name", ["trip", "took", "town", "who"])
def test_unused_and_unknown_columns_have_different_messages(name: str, net: PCMCNet) -> None:
    """Predictions do not use the person, the id of the set, the choice and kept columns."""
    schema = replace(net.schema, keep=("town",), person="who")
    with pytest.raises(RequestError, match=rf"set 0: column '{name}' is not used in predictions: remove it"):
        require_known_columns([name], input_columns(schema), schema, individual=True, at="set 0")
    with pytest.raises(RequestError, match="set 0: unknown column 'whom'"):
        require_known_columns(["whom"], input_columns(schema), schema, individual=True, at="set 0")
