"""A served PCMC-Net with factored rates: all paths give the numbers of the model, as with rates of all pairs."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from choice_tables import ROLES
from pcmcnet.data import ChoiceData
from pcmcnet.models import PCMCNet


@pytest.fixture(scope="module", params=[1, 2], ids=["one chain", "average"])
def factored(request: pytest.FixtureRequest, make_trips: Any) -> PCMCNet:
    data = ChoiceData.from_long(make_trips(), **{**ROLES, "weight": None})
    options: dict[str, Any] = {"hidden": (8,), "epochs": 2, "weight_decay": 0.0, "batch_size": 16}
    model: PCMCNet = PCMCNet(rank=3, members=request.param, **options).fit(data, progress=False)
    return model


@pytest.fixture(scope="module")
def client(factored: PCMCNet, make_client: Any) -> Any:
    return make_client(factored)


def open_set(sets: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the largest set, with all alternatives available."""
    one = max(sets, key=lambda each: len(each["alternatives"]))
    return {**one, "alternatives": [{**alternative, "open": True} for alternative in one["alternatives"]]}


def as_table(one: dict[str, Any], shown: Any) -> dict[str, Any]:
    rows = [one["alternatives"][k] for k in shown]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    return table | {name: [value] * len(rows) for name, value in one["individual"].items()} | {"trip": [0] * len(rows)}


def test_rates_and_probabilities_are_those_of_the_model(factored: PCMCNet, client: Any, sets: Any) -> None:
    one = open_set(sets)
    table = as_table(one, range(len(one["alternatives"])))
    answer = client.post("/v1/rates", json={"set": one}).json()
    np.testing.assert_allclose(answer["rates"], factored.rates(table)[0], rtol=1e-6)  # digits of the response
    np.testing.assert_allclose(answer["probabilities"], factored.predict_proba(table), atol=1e-6)
    (of_set,) = client.post("/v1/probabilities", json={"sets": [one]}).json()["sets"]
    np.testing.assert_allclose(of_set["probabilities"], factored.predict_proba(table), atol=1e-6)


def test_a_map_contains_the_predicted_shares(factored: PCMCNet, client: Any, sets: Any) -> None:
    one = open_set(sets)
    body = {"set": one, "x": "price", "y": "minutes", "place": 2, "between": [0, 1], "points": 3}
    answer = client.post("/v1/map", json=body).json()
    table = as_table(one, range(len(one["alternatives"])))
    expected = []
    for y, x in product(answer["y"], answer["x"]):
        table["price"][2], table["minutes"][2] = x, y
        p = factored.predict_proba(table)
        expected.append(p[0] / (p[0] + p[1]))
    np.testing.assert_allclose(np.ravel(answer["share"]), expected, atol=1e-5)


def test_the_best_offer_is_that_of_an_enumeration(factored: PCMCNet, client: Any, sets: Any) -> None:
    one = open_set(sets)
    n = len(one["alternatives"])
    answer = client.post("/v1/offer", json={"set": one, "revenue": "price", "keep": [0]}).json()
    earned = {}
    for extra in product([False, True], repeat=n - 1):
        shown = [0, *(k + 1 for k in range(n - 1) if extra[k])]
        table = as_table(one, shown)
        earned[tuple(shown)] = float(factored.predict_proba(table) @ np.array(table["price"]))
    assert answer["value"] == pytest.approx(max(earned.values()), rel=1e-5)  # float32
