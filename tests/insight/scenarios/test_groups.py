"""Groups before and after a change: by label, place, feature and segment."""

from typing import Any

import pytest

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.language import parse_change
from pcmcnet.insight.scenarios.market_effects import MergedGroups, group_alternatives
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


def test_new_labels_follow_the_sorted_labels() -> None:
    groups = grouped(table(), "add aero like car where zone == 'x'")
    assert groups.names == ("air", "bus", "car", "aero")
    assert groups.by == "mode"
    assert groups.before.tolist() == [2, 1, 2, 0]
    assert groups.after.tolist() == [2, 1, 3, 2, 0]
    assert groups.changed.tolist() == [False, False, False, True]
    assert grouped(table(), "remove air", "label").changed.tolist() == [True, False, False]


def test_places_refer_to_the_original_table() -> None:
    groups = grouped(table(None), "remove where price == 2")
    assert groups.names == ("#1", "#2")
    assert (groups.by, groups.after.tolist(), groups.changed.tolist()) == ("place", [1, 0, 1], [True, False])


def test_a_changed_feature_groups_each_table_by_its_own_values() -> None:
    groups = grouped(table(), "price = 9 where mode == 'car'", "price")
    assert groups.names == ("2", "3", "4", "5", "9")
    assert groups.before.tolist() == [0, 2, 1, 3]
    assert groups.after.tolist() == [4, 2, 4, 3]
    assert groups.changed.tolist() == [True, True, False, False, True]


def test_segments_by_a_changed_column_are_rejected() -> None:
    with pytest.raises(InputError, match="by='zone': the scenario changes this column"):
        grouped(table(), "zone = 'x' where zone == 'y'", "zone")


def test_each_segment_has_its_own_groups() -> None:
    groups = grouped(table(), "price = 9 where mode == 'car' and zone == 'y'", "zone")
    assert groups.names == ("x: air", "x: bus", "x: car", "y: air", "y: bus", "y: car")
    assert groups.before.tolist() == [2, 1, 5, 3]
    assert groups.segment.tolist() == [0, 0, 0, 1, 1, 1]
    assert groups.changed.tolist() == [False] * 5 + [True]


def test_merged_groups_come_first_and_count_as_one() -> None:
    """Groups air, bus, car are 0, 1, 2. Car and air become 0, and bus becomes 1."""
    merged = MergedGroups(None, ("car", "air")).merge(grouped(table(), "price = 9 where mode == 'air'"))
    assert merged.names == ("car, air", "bus")
    assert (merged.before.tolist(), merged.after.tolist()) == ([0, 1, 0, 0], [0, 1, 0, 0])
    assert (merged.changed.tolist(), merged.segment.tolist()) == ([True, False], [0, 0])
    with pytest.raises(InputError, match="there is no group 'boat': name groups of alternatives, such as 'air'"):
        MergedGroups(None, ("boat",)).merge(grouped(table(), "price *= 2"))
    with pytest.raises(InputError, match="the groups have segments"):
        MergedGroups("zone", ("x: car",)).merge(grouped(table(), "price *= 2", "zone"))


def test_features_have_no_limits() -> None:
    with pytest.raises(InputError, match="limits need an individual-level column"):
        grouped(table(), "price *= 2", "price: 3")
