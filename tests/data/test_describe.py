"""A description is small, is plain JSON, and depends only on the table."""

import json
import re
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data import describe as module
from pcmcnet.data.describe import describe
from pcmcnet.data.kinds import number
from pcmcnet.data.kinds.category import MAX_LISTED_CATEGORIES


def table(**more: Any) -> dict[str, Any]:
    trip = np.repeat([0, 1, 2], [2, 3, 5])
    took = np.isin(np.arange(10), [1, 2, 9]).astype(int)
    price = np.array([0.1, 0.2, 3, 4, 5, 6, 7, 8, 9, 10])
    return {"trip": trip, "took": took, "price": price, "kind": list("aabbbbccab"), **more}


ROLES: dict[str, Any] = {"choice_set": "trip", "chosen": "took"}


def test_numbers_have_a_range_and_categories_their_names() -> None:
    columns = describe(ChoiceData.from_long(table(), features=["price", "kind"], **ROLES))["columns"]
    assert columns["price"] == {"min": 0.1, "max": 10.0, "quartiles": [3.25, 5.5, 7.75]}
    assert columns["kind"] == {"categories": ["a", "b", "c"], "most": "b", "distinct": 3}


def test_the_example_is_the_first_set_of_median_size() -> None:
    data = ChoiceData.from_long(
        table(income=np.repeat([1, 2, 3], [2, 3, 5])), features=["price"], individual=["income"], **ROLES
    )
    assert describe(data)["example"] == {
        "individual": {"income": 2.0},
        "alternatives": [{"price": 3.0}, {"price": 4.0}, {"price": 5.0}],
        "chosen": 0,
    }


def test_a_large_example_is_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ALTERNATIVES", 2)
    example = describe(ChoiceData.from_long(table(), features=["price"], **ROLES))["example"]
    assert example["alternatives"] == [{"price": 0.1}, {"price": 0.2}]


def test_sets_of_weight_0_are_ignored() -> None:
    weights = np.repeat([0, 1, 0], [2, 3, 5])
    description = describe(ChoiceData.from_long(table(w=weights), features=["price"], weight="w", **ROLES))
    assert (description["columns"]["price"]["min"], description["columns"]["price"]["max"]) == (3.0, 5.0)
    assert len(description["example"]["alternatives"]) == 3


def test_missing_values_are_ignored_in_ranges_and_shown_as_none() -> None:
    price = np.array([1, 2, np.nan, 4, 5, np.nan, 7, 8, 9, 10])
    empty = np.full(10, np.nan)
    description = describe(
        ChoiceData.from_long(table(price=price, empty=empty), features=["price", "empty"], missing="indicator", **ROLES)
    )
    assert description["columns"]["price"]["min"] == 1.0
    assert description["columns"]["empty"] == {"min": None, "max": None, "quartiles": None}
    assert description["example"]["alternatives"][0] == {"price": None, "empty": None}


def test_only_the_most_frequent_categories_are_listed() -> None:
    n = 3 * MAX_LISTED_CATEGORIES
    names = [f"{k:04d}" for k in range(n)] + ["2999"]
    took = np.tile([1, 0], (n + 1) // 2 + 1)[: n + 1]
    took[-1] = 0
    data = ChoiceData.from_long(
        {"trip": np.append(np.arange(n) // 2, 0), "took": took, "kind": names}, features=["kind"], **ROLES
    )
    column = describe(data)["columns"]["kind"]
    assert column == {"categories": [*names[: MAX_LISTED_CATEGORIES - 1], "2999"], "most": "2999", "distinct": n}


def test_a_description_is_reproducible_json() -> None:
    data = ChoiceData.from_long(table(), features=["price", "kind"], **ROLES)
    assert json.loads(json.dumps(describe(data), allow_nan=False)) == describe(data)


def test_quartiles_of_a_long_table_use_a_sample_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number, "_QUARTILE_ROWS", 5)  # every second row: 0.1, 3, 5, 7, 9
    column = describe(ChoiceData.from_long(table(), features=["price"], **ROLES))["columns"]["price"]
    assert column == {"min": 0.1, "max": 10.0, "quartiles": [3.0, 5.0, 7.0]}


def test_further_examples_are_spread_over_the_table() -> None:
    n = 40
    data = ChoiceData.from_long(
        {"trip": np.repeat(np.arange(n), 2), "took": [1, 0] * n, "price": np.arange(2.0 * n)},
        features=["price"],
        **ROLES,
    )
    more = describe(data)["more_examples"]
    assert len(more) == 7
    prices = [one["alternatives"][0]["price"] for one in more]
    assert prices == sorted(set(prices))
    assert (prices[0], prices[-1]) == (2.0, 78.0)  # the first set is the example


# -- Notebook view -----------------------------------------------------------------------------------------------------
# How a notebook shows choice data.


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


def test_data_without_choices_or_sets_can_be_shown() -> None:
    data = ChoiceData.from_long(TABLE, choice_set="trip", features=["cost", "mode"])
    assert "choices||unknown" in shown(data)
    assert "choice sets||0" in shown(data.subset([]))


def test_many_categories_are_counted() -> None:
    table = {"s": [k // 2 for k in range(40)], "c": [f"name {k:02}" for k in range(40)]}
    data = ChoiceData.from_long(table, choice_set="s", features=["c"])
    assert "name 00, name 01, name 02, name 03, name 04 and 35 more" in shown(data)
