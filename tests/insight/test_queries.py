from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.queries import (
    alternative_name,
    draw_sets,
    place_of,
    position_of,
    require_place,
    require_sampling,
    set_id_of,
    set_of,
)

TABLE: dict[str, Any] = {
    "trip": ["x", "y", "x", "y", "y", "z"],
    "mode": ["car", "bus", "bus", "car", "bike", "car"],
    "price": [3.0, 5.0, 2.0, 8.0, 1.0, 4.0],
    "weight": [1.0, 2.0, 1.0, 2.0, 2.0, 0.0],
}


@pytest.fixture
def labelled() -> ChoiceData:
    return ChoiceData.from_long(TABLE, choice_set="trip", alternative="mode", features=["price"], weight="weight")


@pytest.fixture
def plain() -> ChoiceData:
    return ChoiceData.from_long(TABLE, choice_set="trip", features=["price"])


def test_an_alternative_is_found_by_its_label_or_its_row(labelled: ChoiceData, plain: ChoiceData) -> None:
    """Set x has rows 0 and 2. Set y has rows 1, 3 and 4, which are places 2, 3 and 4."""
    assert place_of(labelled, "y", "car") == 3
    assert place_of(plain, "y", 3) == 3
    assert place_of(plain, "x", 2) == 1
    assert place_of(plain, "y", "#3") == place_of(plain, "y", alternative_name(plain, 4)) == 4
    assert (alternative_name(labelled, 3), alternative_name(plain, 1), set_id_of(plain, 3)) == (
        "car",
        "#2 (price 2)",
        "y",
    )
    assert set_of(plain, [0, 1, 2, 4, 5]).tolist() == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("features", "name"),
    [
        (["price", "mode"], "#3 (bike)"),  # categories come before numbers
        (["mode", "price"], "#3 (bike)"),
        (["gap", "price"], "#3 (price 1)"),  # the first number is missing there
        (["gap"], "#3"),
        (["long"], "#3 (a name that goes on and…)"),
    ],
)
def test_without_labels_names_have_a_number_and_a_feature(features: list[str], name: str) -> None:
    table = {**TABLE, "gap": [1.0] * 4 + [np.nan] * 2, "long": ["a name that goes on and on"] * 6}
    data = ChoiceData.from_long(table, choice_set="trip", features=features, missing="indicator")
    assert alternative_name(data, 4) == name


def test_a_set_is_found_by_its_id_of_any_type(plain: ChoiceData) -> None:
    numbered = ChoiceData.from_long({"s": [4, 4, 7], "x": [1.0, 2.0, 3.0]}, choice_set="s", features=["x"])
    assert position_of(numbered, 7) == position_of(numbered, "7") == position_of(numbered, np.int64(7)) == 1
    with pytest.raises(InputError, match=r"choice set 5 is not in the table, .* such as 4, 7"):
        position_of(numbered, np.int64(5))


def test_the_id_of_a_set_is_a_plain_value() -> None:
    data = ChoiceData.from_long({"s": np.array([4, 4]), "x": [1.0, 2.0]}, choice_set="s", features=["x"])
    assert type(set_id_of(data, 1)) is int


@pytest.mark.parametrize(
    ("choice_set", "alternative", "message"),
    [
        ("w", "car", "choice set 'w' is not in the table, .* such as x, y, z"),
        ("x", "bike", "one alternative with the label 'bike', found 0 among car, bus"),
        ("x", "#1", "one alternative with the label '#1', found 0 among car, bus"),
    ],
)
def test_unknown_sets_and_alternatives_are_named(
    choice_set: str, alternative: str, message: str, labelled: ChoiceData
) -> None:
    with pytest.raises(InputError, match=message):
        place_of(labelled, choice_set, alternative)


@pytest.mark.parametrize("place", [-1, 6, 1.0, "car", True, None])
def test_invalid_places_are_rejected(place: Any, plain: ChoiceData) -> None:
    with pytest.raises(InputError, match="a: expected the flat index of an alternative, from 0 to 5"):
        require_place(plain, place, "a")


def test_sets_are_drawn_by_size_and_weight(labelled: ChoiceData) -> None:
    rng = np.random.default_rng(0)
    assert sorted(draw_sets(labelled, least=1, most=None, rng=rng)) == [0, 1]  # z has weight 0
    assert draw_sets(labelled, least=3, most=5, rng=rng).tolist() == [1]
    assert len(draw_sets(labelled, least=1, most=1, rng=rng)) == 1


@pytest.mark.parametrize(("name", "value"), [("limit", 0), ("sets", 1.5), ("seed", -1)])
def test_sampling_options_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a whole number"):
        require_sampling(**{name: value})


def test_a_text_names_an_alternative_as_a_last_resort() -> None:
    table = {"s": [1, 1], "v": [[1.0], [2.0]], "about": ["A quiet room", "Room in a lively street, close to bars"]}
    kinds: dict[str, Any] = {"v": "vector", "about": "text"}
    data = ChoiceData.from_long(table, choice_set="s", features=["v", "about"], kinds=kinds)
    assert alternative_name(data, 0).lower() == "#1 (a quiet room)"
    assert alternative_name(data, 1).lower() == "#2 (room in a lively street…)"
    bare = ChoiceData.from_long(table, choice_set="s", features=["v"], kinds={"v": "vector"})
    assert alternative_name(bare, 1) == "#2"
