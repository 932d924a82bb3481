"""The route of the best offer: compared with all available offers, and bad requests."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.decisions.optimise_offer import NO_OUTSIDE_OPTION
from pcmcnet.models import MNL, PCMCNet, RandomForest


def request_body(**changes: Any) -> dict[str, Any]:
    """Return a request with three alternatives; the last one is not available."""
    alternative = {"minutes": 30, "comfort": "low"}
    modes = [("bus", 5, 1), ("car", 9, 1), ("bike", 2, 0)]
    alternatives = [{**alternative, "mode": mode, "price": price, "open": there} for mode, price, there in modes]
    who = {"income": 30.0, "purpose": "work"}
    return {"set": {"individual": who, "alternatives": alternatives}, "revenue": "price", "keep": [0], **changes}


def revenue_of(client: Any, shown: Any, revenue: list[float]) -> float:
    """Return the expected revenue of an offer, by its probabilities."""
    one = request_body()["set"]
    rows = [k for k in range(3) if shown[k]]
    rows_shown = [{**one["alternatives"][k], "open": 1} for k in rows]
    answer = client.post("/v1/probabilities", json={"sets": [{**one, "alternatives": rows_shown}]}).json()
    return float(np.dot(answer["sets"][0]["probabilities"], [revenue[k] for k in rows]))


@pytest.mark.parametrize(
    ("goal", "revenue", "size"),
    [({}, [5, 9, 2], (1, 3)), ({"least": 3}, [5, 9, 2], (3, 3)), ({"target": 2, "most": 2}, [0, 0, 1], (1, 2))],
)
def test_no_other_offer_earns_more(
    goal: dict[str, Any], revenue: list[float], size: tuple[int, int], net: PCMCNet, make_client: Any
) -> None:
    client = make_client(net)
    question = request_body(**goal)
    if "target" in goal:
        del question["revenue"]
    answer = client.post("/v1/offer", json=question).json()
    offers = [s for s in product([0, 1], repeat=3) if s[0] and size[0] <= sum(s) <= size[1]]
    best = max(revenue_of(client, shown, revenue) for shown in offers)
    assert answer["value"] == pytest.approx(best, rel=1e-5)
    assert answer["current_value"] == pytest.approx(revenue_of(client, (1, 1, 0), revenue), rel=1e-5)
    assert answer["exact"]
    assert answer["gap"] == pytest.approx(0, abs=1e-6)
    now, then = {0, 1}, set(answer["shown"])
    assert (set(answer["added"]), set(answer["dropped"])) == (then - now, now - then)
    assert [p > 0 for p in answer["probabilities"]] == [k in then for k in range(3)]


def test_an_offer_notes_a_wrong_sign(make_trips: Any, make_client: Any) -> None:
    data = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", features=["price"])
    model = MNL(formula="price", fixed={"price": 0.2}).fit(data)
    few = {"alternatives": [{"price": p} for p in (3, 5, 9)]}
    answer = make_client(model).post("/v1/offer", json={"set": few, "revenue": "price"}).json()
    assert answer["notes"] == [NO_OUTSIDE_OPTION, *model.sign_caveats.values()]
    assert len(answer["notes"]) == 2


def test_a_model_of_unknown_structure_gives_a_heuristic_offer(make_trips: Any, make_client: Any) -> None:
    roles = {"features": ["price", "minutes"]}
    data = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", **roles)
    client = make_client(RandomForest(trees=3).fit(data))
    few = {"alternatives": [{"price": p, "minutes": 10} for p in (3, 5, 9)]}
    answer = client.post("/v1/offer", json={"set": few, "revenue": "price", "least": 2}).json()
    assert (answer["exact"], answer["gap"]) == (False, None)
    many = {"alternatives": [{"price": p, "minutes": 10} for p in range(16)]}
    refused = client.post("/v1/offer", json={"set": many, "revenue": "price"})
    assert refused.status_code == 422
    assert "expected at most 15 alternatives, got 16" in refused.json()["error"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"revenue": "prise"}, "revenue: expected a numeric feature, got 'prise'. Did you"),
        ({"target": 0}, "the request: expected either 'revenue' (a column) or 'target'"),
        ({"keep": 0}, "keep: expected a list of indices, got 0."),
        ({"keep": [7]}, "keep, entry 0: expected the index of an alternative, from 0 to 2, got 7."),
        ({"least": 0}, "least: expected an integer of at least 1, got 0."),
        ({"most": 1.5}, "most: expected an integer of at least 1, got 1.5."),
        (
            {"least": 3, "most": 2},
            "most: expected a number not below 'least' or the length of 'keep', got 2.",
        ),
        ({"colour": 1}, "the request: unknown entry 'colour'."),
        ({"model": "other"}, "model: 'other' is not served."),
    ],
)
def test_bad_requests_are_rejected(change: dict[str, Any], message: str, logit: MNL, make_client: Any) -> None:
    answer = make_client(logit).post("/v1/offer", json=request_body(**change))
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(message)
