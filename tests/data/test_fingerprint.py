"""Fingerprints: equal for equal tables, different for any difference that a model sees."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.data.choice_data import ChoiceData


def fingerprint(table: dict[str, Any], roles: dict[str, Any], **changes: Any) -> str:
    return ChoiceData.from_long(table, **{**roles, **changes}).fingerprint()


def test_the_same_table_has_the_same_fingerprint(trips: Any, roles: Any) -> None:
    assert fingerprint(trips, roles) == fingerprint({**trips}, {**roles})


@pytest.mark.parametrize(
    "change",
    [
        {"took": [0, 1, 0, 0, 1]},
        {"time": [10.0, 20.0, 12.0, 9.5, 30.001]},
        {"shade": ["red", "blue", "blue", "red", "blue"]},
        {"shade": ["red", "bleu", "bleu", "red", "red"]},
        {"income": [2.5, 2.5, 1.5, 1.5, 1.5]},
        {"town": ["A", "A", "A", "A", "A"]},
        {"mode": ["car", "bus", "car", "bus", "tram"]},
    ],
    ids=lambda change: ", ".join(change),
)
def test_any_difference_in_values_shows(change: dict[str, Any], trips: Any, roles: Any) -> None:
    assert fingerprint({**trips, **change}, roles) != fingerprint(trips, roles)


def test_a_difference_in_sizes_shows() -> None:
    roles = {"choice_set": "id", "chosen": "y", "features": ["x"]}
    table = {"y": [1, 0, 0, 1, 0], "x": [1, 2, 3, 4, 5]}
    assert fingerprint({**table, "id": [1, 1, 1, 2, 2]}, roles) == fingerprint({**table, "id": [3, 3, 3, 4, 4]}, roles)
    shifted = {"id": [1, 1, 2, 2, 2], "y": [1, 0, 0, 1, 0]}
    moved = {"id": [1, 1, 1, 2, 2], "y": [1, 0, 0, 0, 1]}
    assert fingerprint({**table, **shifted}, roles) != fingerprint({**table, **moved}, roles)


def test_a_difference_in_roles_or_weights_shows(trips: Any, roles: Any) -> None:
    weighted = {**trips, "w": [1, 1, 2, 2, 2]}
    found = {
        fingerprint(trips, roles),
        fingerprint(trips, roles, chosen=None),
        fingerprint(trips, roles, features=["seats", "time", "shade"]),
        fingerprint(trips, roles, categorical=["seats", "town", "shade"]),
        fingerprint(weighted, roles, weight="w"),
        fingerprint({**weighted, "w": [2, 2, 1, 1, 1]}, roles, weight="w"),
    }
    assert len(found) == 6


def test_persons_show_where_they_are_declared(trips: Any, roles: Any) -> None:
    other = {**trips, "person": ["p", "p", "p", "p", "p"]}
    assert fingerprint(other, roles) == fingerprint(trips, roles)
    assert fingerprint(other, roles, person="person") != fingerprint(trips, roles, person="person")


def test_categories_that_no_row_has_do_not_show(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    first = {name: values[:2] for name, values in trips.items()}
    assert data.subset([0]).fingerprint() == fingerprint(first, roles)
    assert data.subset([1]).features["shade"].kind == "categorical"
    last = {name: values[2:] for name, values in trips.items()}
    assert data.subset([1]).fingerprint() == fingerprint(last, roles)


def test_names_of_categories_do_not_run_together(trips: Any, roles: Any) -> None:
    one = {**trips, "shade": ["a', 'b", "c", "c", "c", "c"]}
    two = {**trips, "shade": ["a", "b', 'c", "b', 'c", "b', 'c", "b', 'c"]}
    assert fingerprint(one, roles) != fingerprint(two, roles)


def test_ids_and_unavailable_rows_do_not_show(trips: Any, roles: Any) -> None:
    renamed = {**trips, "trip": ["x", "x", "y", "y", "y"]}
    assert fingerprint(renamed, roles) == fingerprint(trips, roles)
    longer = {name: [*values, values[-1]] for name, values in trips.items()} | {"ok": [1, 1, 1, 1, 1, 0]}
    longer["shade"][-1], longer["time"][-1], longer["took"][-1] = "grey", np.nan, 0
    same = {**trips, "ok": [1] * 5}
    assert fingerprint(longer, roles, available="ok") == fingerprint(same, roles, available="ok")
