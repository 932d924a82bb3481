"""Groups before and after: by label, place, feature and segment."""

from typing import Any

import pytest

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.language import parse_change
from pcmcnet.insight.scenarios.market_effects import group_alternatives
from pcmcnet.insight.scenarios.offers import ScenarioOffer

TABLE = {
    "trip": [1, 1, 2, 2],
    "took": [1, 0, 0, 1],
    "mode": ["car", "bus", "car", "air"],
    "price": [2.0, 4.0, 3.0, 5.0],
    "zone": ["x", "x", "y", "y"],
}


def table(label: str | None = "mode") -> ChoiceData:
    return read(TABLE, alternative=label, features=["price"], individual=["zone"])


def grouped(data: ChoiceData, text: str, by: str | None = None) -> Any:
    return group_alternatives(data, ScenarioOffer.of(data).apply(parse_change(text))[0], by)


def test_labels_are_sorted_and_new_ones_follow() -> None:
    found = grouped(table(), "add aero like car where zone == 'x'")
    assert found.names == ("air", "bus", "car", "aero")
    assert found.by == "mode"
    assert found.before.tolist() == [2, 1, 2, 0]
    assert found.after.tolist() == [2, 1, 3, 2, 0]
    assert found.changed.tolist() == [False, False, False, True]
    assert grouped(table(), "remove air", "label").changed.tolist() == [True, False, False]


def test_places_are_those_of_the_first_table() -> None:
    found = grouped(table(None), "remove where price == 2")
    assert found.names == ("#1", "#2")
    assert (found.by, found.after.tolist(), found.changed.tolist()) == ("place", [1, 0, 1], [True, False])


def test_groups_by_a_feature_that_changes_are_by_the_values_of_each_table() -> None:
    found = grouped(table(), "price = 9 where mode == 'car'", "price")
    assert found.names == ("2", "3", "4", "5", "9")
    assert found.before.tolist() == [0, 2, 1, 3]
    assert found.after.tolist() == [4, 2, 4, 3]
    assert found.changed.tolist() == [True, True, False, False, True]


def test_segments_by_a_column_that_the_change_changes_are_refused() -> None:
    with pytest.raises(InputError, match="by='zone': the scenario changes this column"):
        grouped(table(), "zone = 'x' where zone == 'y'", "zone")


def test_segments_of_choice_sets_have_their_own_groups() -> None:
    found = grouped(table(), "price = 9 where mode == 'car' and zone == 'y'", "zone")
    assert found.names == ("x: air", "x: bus", "x: car", "y: air", "y: bus", "y: car")
    assert found.before.tolist() == [2, 1, 5, 3]
    assert found.segment.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.changed.tolist() == [False] * 5 + [True]
