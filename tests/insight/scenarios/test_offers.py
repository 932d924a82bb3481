"""How statements change the alternatives on offer, and which statements are rejected."""

from typing import Any

import numpy as np
import pytest

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.language import parse_change
from pcmcnet.insight.scenarios.offers import ChangeExtent, ScenarioOffer

TABLE = {
    "trip": [1, 1, 1, 2, 2],
    "took": [1, 0, 0, 0, 1],
    "mode": ["car", "bus", "air", "car", "bus"],
    "price": [2.0, 4.0, 9.0, 3.0, 5.0],
    "seat": ["a", "b", "a", "b", "b"],
    "income": [10.0] * 3 + [20.0] * 2,
    "zone": ["x"] * 3 + ["y"] * 2,
    "who": ["p"] * 3 + ["q"] * 2,
    "w": [1.0] * 3 + [3.0] * 2,
}
ROLES: dict[str, Any] = {
    "alternative": "mode",
    "features": ["price", "seat"],
    "individual": ["income", "zone"],
    "weight": "w",
    "person": "who",
}


@pytest.fixture
def data() -> ChoiceData:
    return read(TABLE, **ROLES)


def change(data: ChoiceData, *texts: str, known: frozenset[str] = frozenset()) -> ScenarioOffer:
    offer = ScenarioOffer.of(data)
    for text in texts:
        offer, _ = offer.apply(parse_change(text), known)
    return offer


def prices(offer: ScenarioOffer) -> list[float]:
    values: list[float] = offer.data.features["price"].values.tolist()  # type: ignore[union-attr]
    return values


def test_columns_change_if_the_condition_holds(data: ChoiceData) -> None:
    offer = change(data, "price *= 2 where mode == 'car'", "price += income where zone == 'y' and price > 5.5")
    assert prices(offer) == [4.0, 4.0, 9.0, 26.0, 5.0]
    assert offer.touched.tolist() == [True, False, False, True, False]
    assert prices(ScenarioOffer.of(data)) == [2.0, 4.0, 9.0, 3.0, 5.0]
    seat = change(data, "seat = 'b' where mode == 'air'").data.features["seat"]
    assert seat.plain().tolist() == ["a", "b", "b", "b", "b"]


def test_an_individual_column_changes_for_all_alternatives(data: ChoiceData) -> None:
    offer = change(data, "income += 5 where zone == 'x'", "zone = 'x'")
    assert offer.data.individual["income"].values.tolist() == [15.0, 20.0]  # type: ignore[union-attr]
    assert offer.data.individual["zone"].plain().tolist() == ["x", "x"]


def test_conditions_may_use_ids_weights_and_persons(data: ChoiceData) -> None:
    assert change(data, "price = 0 where trip == 2").touched.tolist() == [False] * 3 + [True] * 2
    assert change(data, "price = 0 where w > 2 and who == 'q'").touched.sum() == 2


def test_alternatives_are_removed(data: ChoiceData) -> None:
    offer, extent = ScenarioOffer.of(data).apply(parse_change("remove where price > 4.5"))
    assert extent == ChangeExtent(2, 2)
    assert offer.data.sizes.tolist() == [2, 1]
    assert prices(offer) == [2.0, 4.0, 3.0]
    assert offer.lost.tolist() == [False, False, True, False, True]
    assert offer.origin.tolist() == [0, 1, 3]
    assert offer.data.weights.tolist() == [1.0, 3.0]
    assert offer.data.set_ids.tolist() == [1, 2]
    assert change(data, "remove air").data.sizes.tolist() == [2, 2]


def test_a_new_alternative_is_a_copy_with_changes(data: ChoiceData) -> None:
    offer, extent = ScenarioOffer.of(data).apply(
        parse_change("add tram like bus with price *= 2, seat = 'c' where income > 15")
    )
    assert extent == ChangeExtent(1, 1)
    assert offer.data.sizes.tolist() == [3, 3]
    assert offer.names is not None
    assert offer.names.tolist() == ["car", "bus", "air", "car", "bus", "tram"]
    assert offer.data.labels is not None
    assert offer.data.labels.plain().tolist()[-1] == "bus"  # the label that the model sees
    assert prices(offer)[-1] == 10.0
    assert offer.touched.tolist() == [False] * 5 + [True]
    assert offer.origin.tolist() == [0, 1, 2, 3, 4, 4]
    assert "'tram' is new to the model, which treats it like 'bus'" in offer.notes[0]


def test_an_added_label_that_the_model_knows_is_kept(data: ChoiceData) -> None:
    """The first set already offers it, so nothing is added there."""
    offer = change(data, "add air like bus with price = 7", known=frozenset(["air"]))
    assert offer.data.sizes.tolist() == [3, 3]
    assert offer.data.labels is not None
    assert offer.data.labels.plain().tolist()[-1] == "air"
    assert not offer.notes


def test_a_known_label_is_also_set_in_its_feature() -> None:
    data = read({**TABLE, "kind": TABLE["mode"]}, **{**ROLES, "alternative": "mode", "features": ["price", "mode"]})
    offer = change(data, "add air like bus", known=frozenset(["air"]))
    assert offer.data.features["mode"].plain().tolist()[-1] == "air"


def test_without_labels_alternatives_are_copied_by_a_condition() -> None:
    data = read(TABLE, **{**ROLES, "alternative": None})
    offer = change(data, "copy with price = 1 where seat == 'a'")
    assert offer.data.sizes.tolist() == [5, 2]
    assert prices(offer) == [2.0, 4.0, 9.0, 1.0, 1.0, 3.0, 5.0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prize = 1", "no feature or individual-level column 'prize'. Did you mean 'price'"),
        ("took = 1", "column 'took' holds the choices"),
        ("trip = 1", "column 'trip' holds the ids of the choice sets"),
        ("w = 1", "column 'w' holds the weight"),
        ("who = 1", "column 'who' holds the ids of the persons"),
        ("mode = 'bus'", "column 'mode' holds the labels: .* use remove LABEL or add LABEL like LABEL"),
        (
            "price = 1 where mode == 'cra'",
            "selects none of the 5 alternatives in 2 choice sets. No mode is 'cra'. Did you mean 'car'",
        ),
        ("price = 1 where price > 99", "the condition selects none of the 5 alternatives"),
        ("price = 1 where price", "expected a condition after where, such as mode == 'car', got the number price"),
        ("price = 'x'", "column 'price' is numeric: expected a number, got a word"),
        ("seat = price", "column 'seat' is categorical: expected a word in quotes"),
        ("price /= price - 2", "expected finite numbers, got inf in choice set 1 and 0 more such values"),
        ("income += price", "'income' is an individual-level column"),
        ("income = 1 where mode == 'car'", "'income' is an individual-level column"),
        ("remove where zone == 'x'", "leave 1 of 2 choice sets empty, such as choice set 1"),
        ("remove aire", "no alternative has the label 'aire'. Did you mean 'air'"),
        ("remove air where zone == 'y'", "nothing to remove"),
        ("add tram like bsu", "no alternative has the label 'bsu'. Did you mean 'bus'"),
        ("add car like bus", "all selected choice sets already offer 'car'"),
        ("copy with price = 1", "a new alternative needs one: use add LABEL like LABEL"),
    ],
)
def test_invalid_changes_are_explained(text: str, problem: str, data: ChoiceData) -> None:
    with pytest.raises(InputError, match=problem):
        change(data, text)


@pytest.mark.parametrize("label", ["mode", None])
def test_no_change_affects_the_outside_option(label: str | None) -> None:
    """Its features are missing, so no comparison with them holds, not even a negated one."""
    data = read(TABLE, **{**ROLES, "alternative": label}, outside="none")
    out = np.array([False, False, False, True, False, False, True])
    assert data.outside is not None
    assert data.outside.tolist() == out.tolist()
    for text in ("remove where not price <= 8", "remove where price != 3 and price != 5 and price < 9 and seat != 'a'"):
        offer, extent = ScenarioOffer.of(data).apply(parse_change(text))
        assert extent == ChangeExtent(1, 1)
        assert not (offer.lost & out).any()
    offer, extent = ScenarioOffer.of(data).apply(parse_change("price = 1"))
    assert extent == ChangeExtent(5, 2)
    assert np.isnan(prices(offer)).tolist() == (~offer.touched).tolist() == out.tolist()
    seat = change(data, "seat = 'z'").data.features["seat"].plain()
    assert (seat == "z").tolist() == (~out).tolist()
    assert change(data, "income += 1").data.individual["income"].values.tolist() == [11.0, 21.0]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="the outside option 'none' cannot be changed"):
        change(data, "remove where mode == 'none'" if label else "remove where none == 1")


def test_the_outside_option_cannot_be_removed_or_copied() -> None:
    data = read(TABLE, **ROLES, outside="none")
    changed = change(data, "remove where mode in ('air', 'none')")
    assert changed.data.sizes.tolist() == [3, 3]
    assert changed.notes == ("'none' is the outside option and stays on offer",)
    assert not change(data, "remove where not price <= 8").notes
    for text in ("remove none", "add nothing like none", "price = 1 where mode == 'none'"):
        with pytest.raises(InputError, match="cannot be changed, copied or removed"):
            change(data, text)
    with pytest.raises(InputError, match="'none' holds the indicator of the outside option"):
        change(read(TABLE, **{**ROLES, "alternative": None}, outside="none"), "none = 1")


def test_columns_that_cannot_be_changed_are_rejected() -> None:
    with_zone = read(TABLE, alternative="mode", features=["price"], keep=["zone"])
    with pytest.raises(InputError, match="'zone' is kept only for grouping"):
        change(with_zone, "zone = 'x'")
    text = read(TABLE, features=["price", "seat"], kinds={"seat": "text"})
    with pytest.raises(InputError, match="'seat' is of kind text"):
        change(text, "price = 1 where seat == 'a'")
    with pytest.raises(InputError, match="'seat' is of kind text: only numbers and categories can be changed"):
        change(text, "seat = 'a'")
    with pytest.raises(InputError, match=r"the table has no labels, so there is no 'air': use remove where"):
        change(text, "remove air")
    assert np.isnan(
        prices(
            change(
                read({**TABLE, "price": [2.0, None, 9.0, 3.0, 5.0]}, features=["price"], missing="indicator"),
                "price *= 2",
            )
        )[1]
    )
