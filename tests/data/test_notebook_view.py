"""What a notebook shows of choice data."""

import re

from pcmcnet.data import ChoiceData

TABLE = {
    "trip": [1, 1, 2, 2, 2],
    "who": ["a", "a", "b", "b", "b"],
    "took": [1, 0, 0, 1, 0],
    "mode": ["car", "bus", "car", "bus", "<bike>"],
    "cost": [2.0, 4.0, 3.0, 5.0, 1.0],
    "income": [10, 10, 20, 20, 20],
}


def shown(data: ChoiceData) -> str:
    return re.sub(r"\s*<[^>]+>\s*", "|", data._repr_html_().split("</style>")[1])


def test_sizes_roles_and_values_are_shown() -> None:
    roles = {"choice_set": "trip", "chosen": "took", "alternative": "mode", "person": "who"}
    text = shown(ChoiceData.from_long(TABLE, **roles, features=["cost"], individual=["income"]))
    for words in (
        "choice sets||2",
        "alternatives||5, 2 to 3 in a set",
        "choices||known (took)",
        "persons||2 (who)",
        "mode||label||category||&lt;bike&gt;, bus, car",
        "cost||alternative||number||1 to 5, median 3",
        "income||individual||number||10 to 20, median",
    ):
        assert words in text, words


def test_data_without_choices_and_without_sets_are_shown_too() -> None:
    data = ChoiceData.from_long(TABLE, choice_set="trip", features=["cost", "mode"])
    assert "choices||unknown" in shown(data)
    assert "choice sets||0" in shown(data.subset([]))


def test_many_categories_are_counted() -> None:
    table = {"s": [k // 2 for k in range(40)], "c": [f"name {k:02}" for k in range(40)]}
    data = ChoiceData.from_long(table, choice_set="s", features=["c"])
    assert "name 00, name 01, name 02, name 03, name 04 and 35 more" in shown(data)
