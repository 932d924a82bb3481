"""The routes of the application, tested in this process."""

import json
from typing import Any

import numpy as np
import pytest

import choice_tables
from pcmcnet.data import ChoiceData
from pcmcnet.models import MNL, PCMCNet, RankBy, Uniform
from pcmcnet.serving import openapi


def error(answer: Any, status: int = 422) -> str:
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    return str(answer.json()["error"])


# -- probabilities ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["main", "baseline"])
def test_probabilities_equal_those_of_the_model(
    name: str, net: PCMCNet, logit: MNL, make_client: Any, make_trips: Any, as_requests: Any
) -> None:
    table = make_trips(8, seed=1)
    answer = make_client(net, logit).post("/v1/probabilities", json={"sets": as_requests(table), "model": name})
    served = np.concatenate([entry["probabilities"] for entry in answer.json()["sets"]])
    expected = (net if name == "main" else logit).predict_proba(table)
    assert (expected[table["open"] == 0] == 0).all()
    np.testing.assert_allclose(served, expected, rtol=0, atol=1e-12)


def test_unavailable_alternatives_have_probability_0(net: PCMCNet, make_client: Any, sets: Any) -> None:
    client = make_client(net)
    (one,) = sets[:1]
    for alternative in one["alternatives"]:
        alternative["open"] = True
    before = client.post("/v1/probabilities", json={"sets": [one]}).json()["sets"][0]["probabilities"]
    one["alternatives"].insert(1, {"open": False, "price": None})
    after = client.post("/v1/probabilities", json={"sets": [one]}).json()["sets"][0]["probabilities"]
    assert after == [before[0], 0.0, *before[1:]]
    one["alternatives"][:] = one["alternatives"][1:2]
    assert error(client.post("/v1/probabilities", json={"sets": [one]})) == (
        "set 0: expected at least one available alternative, got none."
    )


def test_categories_are_read_from_any_json_type(make_client: Any) -> None:
    table = {"s": [0, 0, 1, 1] * 5, "took": [1, 0] * 10, "zone": [1, 2, 2, 1] * 5, "price": [1.0, 2.0, 3.0, 4.0] * 5}
    data = ChoiceData.from_long(
        table | {"s": np.repeat(np.arange(10), 2)}, choice_set="s", chosen="took", features=["zone", "price"],
        categorical=["zone"],
    )  # fmt: skip
    client = make_client(PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False))

    def predict_in(zone: Any) -> Any:
        alternatives = [{"zone": zone, "price": 1}, {"zone": "2", "price": 1.0}]
        return client.post("/v1/probabilities", json={"sets": [{"alternatives": alternatives}]}).json()

    assert predict_in(1) == predict_in("1") == predict_in(1.0) == predict_in("1.0")
    assert predict_in(1) != predict_in("never seen")


def test_null_is_a_missing_value_if_the_model_allows_it(make_client: Any) -> None:
    table = {
        "s": np.repeat(np.arange(10), 2),
        "took": [1, 0] * 10,
        "price": [1.0, 2.0, np.nan, 4.0] * 5,
        "kind": ["a", None, "b", "c"] * 5,
    }
    roles: dict[str, Any] = {"choice_set": "s", "features": ["price", "kind"], "missing": "indicator"}
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(
        ChoiceData.from_long(table, chosen="took", **roles), progress=False
    )
    alternatives = [{"price": None, "kind": "b"}, {"price": 3, "kind": None}]
    answer = make_client(model).post("/v1/probabilities", json={"sets": [{"alternatives": alternatives}]})
    expected = model.predict_proba({"s": [0, 0], "price": [np.nan, 3], "kind": ["b", None]})
    np.testing.assert_allclose(answer.json()["sets"][0]["probabilities"], expected, rtol=0, atol=1e-12)
    schema = make_client(model).get("/v1/schema").json()
    assert [column["may_be_null"] for column in schema["columns"]] == [True, True]


# -- rates and maps -----------------------------------------------------------------------------------------------


def test_probabilities_are_stationary_for_the_rates(net: PCMCNet, make_client: Any, sets: Any) -> None:
    one = max(sets, key=lambda entry: len(entry["alternatives"]))
    answer = make_client(net).post("/v1/rates", json={"set": one}).json()
    q, p = np.array(answer["rates"]), np.array(answer["probabilities"])
    shown = np.array([bool(alternative["open"]) for alternative in one["alternatives"]])
    assert (q[~shown] == 0).all()
    assert (q[:, ~shown] == 0).all()
    balance = p @ q - p * q.sum(1)  # inflow minus outflow
    np.testing.assert_allclose(balance, 0, atol=1e-6)
    np.testing.assert_allclose(p.sum(), 1, atol=1e-6)


def test_a_model_without_rates_is_rejected(net: PCMCNet, logit: MNL, make_client: Any, sets: Any) -> None:
    answer = make_client(net, logit).post("/v1/rates", json={"set": sets[0], "model": "baseline"})
    assert error(answer) == "MNL has no rates: use /v1/probabilities, or serve a PCMC model."


def three() -> dict[str, Any]:
    alternative = {"price": 5.0, "minutes": 30, "comfort": "low"}
    return {
        "individual": {"income": 30.0, "purpose": "work"},
        "alternatives": [
            {**alternative, "mode": mode, "price": p} for mode, p in (("bus", 5), ("car", 9), ("bike", 2))
        ],
    }


def test_a_map_contains_the_predicted_shares(net: PCMCNet, make_client: Any) -> None:
    client = make_client(net)
    request = {"set": three(), "x": "price", "y": "minutes", "place": 2, "between": [0, 1], "points": 3}
    answer = client.post("/v1/map", json=request).json()
    facts = {column["name"]: column for column in client.get("/v1/schema").json()["columns"]}
    assert [answer["x"][0], answer["x"][-1]] == [facts["price"]["min"], facts["price"]["max"]]
    assert [answer["y"][0], answer["y"][-1]] == [facts["minutes"]["min"], facts["minutes"]["max"]]
    at = three()
    at["alternatives"][2] |= {"price": answer["x"][2], "minutes": answer["y"][1]}
    p = client.post("/v1/probabilities", json={"sets": [at]}).json()["sets"][0]["probabilities"]
    np.testing.assert_allclose(answer["share"][1][2], p[0] / (p[0] + p[1]), rtol=0, atol=1e-6)


def test_under_iia_a_third_alternative_changes_nothing(net: PCMCNet, logit: MNL, make_client: Any) -> None:
    request = {"set": three(), "x": "price", "y": "minutes", "place": 2, "between": [0, 1], "model": "baseline"}
    share = np.array(make_client(net, logit).post("/v1/map", json=request).json()["share"])
    assert share.shape == (25, 25)
    np.testing.assert_allclose(share, share[0, 0], rtol=0, atol=1e-9)


def test_a_map_has_no_share_if_both_probabilities_are_0(make_client: Any, make_trips: Any) -> None:
    data = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", features=["price", "minutes"])
    client = make_client(RankBy("price").fit(data))
    one = {"alternatives": [{"price": p, "minutes": 1} for p in (5, 9, 2)]}
    request = {"set": one, "x": "price", "y": "minutes", "place": 2, "between": [0, 1], "points": 2, "x_range": [1, 6]}
    assert client.post("/v1/map", json=request).json()["share"] == [[None, 1.0], [None, 1.0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": "prise"}, "x: expected a numeric feature, got 'prise'. Did you mean 'price'?"),
        ({"x": "comfort"}, "x: expected a numeric feature, got 'comfort'."),
        ({"x": "income"}, "x: expected a numeric feature, got 'income'."),
        ({"x": 3}, "x: expected a numeric feature, got 3."),
        ({"y": "price"}, "y: expected a column other than x, got 'price' twice."),
        ({"place": 3}, "place: expected the index of an alternative, from 0 to 2, got 3."),
        ({"place": True}, "place: expected the index of an alternative, from 0 to 2, got true."),
        ({"between": [0]}, "between: expected the indices of two alternatives, got a list of 1."),
        ({"between": [0, -1]}, "between, entry 1: expected the index of an alternative, from 0 to 2, got -1."),
        ({"between": [1, 1]}, "between: expected two different alternatives, got 1 twice."),
        ({"points": 51}, "points: expected an integer from 2 to 50 along each axis, got 51."),
        ({"points": 2.5}, "points: expected an integer from 2 to 50 along each axis, got 2.5."),
        ({"x_range": [3, 3]}, "x_range: expected low < high, both below 3.4e+38, got [3, 3]."),
        ({"x_range": [3]}, "x_range: expected the lowest and highest value as [low, high], got a list of 1."),
        ({"y_range": "all"}, "y_range: expected the lowest and highest value as [low, high], got 'all'."),
        ({"model": "baseline"}, "model: 'baseline' is not served. Known: main."),
        ({"model": []}, "model: a list of 0 is not served."),
        ({"colour": 1}, "the request: unknown entry 'colour'."),
    ],
)
def test_an_invalid_map_is_rejected(change: dict[str, Any], message: str, net: PCMCNet, make_client: Any) -> None:
    request = {"set": three(), "x": "price", "y": "minutes", "place": 2, "between": [0, 1], "points": 2}
    assert error(make_client(net).post("/v1/map", json=request | change)).startswith(message)


def test_too_large_maps_and_unavailable_alternatives_are_rejected(net: PCMCNet, make_client: Any) -> None:
    request = {"set": three(), "x": "price", "y": "minutes", "place": 2, "between": [0, 1], "points": 10}
    assert error(make_client(net, max_pairs=899).post("/v1/map", json=request)) == (
        "points: expected at most 899 pairs of alternatives in a map, got 900: use fewer points, or fewer alternatives."
    )
    request["set"]["alternatives"][2]["open"] = 0
    assert (
        error(make_client(net).post("/v1/map", json=request))
        == "place: alternative 2 is not available: choose another."
    )


# -- facts --------------------------------------------------------------------------------------------------------


def test_the_schema_describes_the_model(net: PCMCNet, logit: MNL, make_client: Any, make_trips: Any) -> None:
    table = make_trips()
    served = make_client(net, logit, max_sets=7).get("/v1/schema").json()
    openapi.About.model_validate(served)
    assert (served["model"], served["class"], served["options"]["hidden"]) == ("pcmcnet", "PCMCNet", [8])
    assert (served["has_rates"], served["has_baseline"]) == (True, True)
    assert (served["baseline"]["model"], served["baseline"]["has_rates"]) == ("mnl", False)
    assert served["limits"]["sets"] == 7
    roles = {column["name"]: (column["role"], column["kind"], column["required"]) for column in served["columns"]}
    assert roles == {
        "income": ("individual", "number", True),
        "purpose": ("individual", "category", True),
        "mode": ("alternative", "category", True),
        "price": ("feature", "number", True),
        "minutes": ("feature", "number", True),
        "comfort": ("feature", "category", True),
        "open": ("available", "flag", False),
    }
    facts = {column["name"]: column for column in served["columns"]}
    shown = np.flatnonzero(table["open"])
    assert facts["price"]["min"] == pytest.approx(table["price"][shown].min(), rel=1e-6)  # stored as float32
    assert facts["price"]["typical"] == pytest.approx(np.median(table["price"][shown]), rel=1e-6)  # stored as float32
    assert facts["comfort"]["categories"] == ["high", "low", "middle"]


@pytest.mark.parametrize("name", ["net", "logit", "rich"])
def test_the_example_is_a_valid_request(name: str, request: pytest.FixtureRequest, make_client: Any) -> None:
    client = make_client(request.getfixturevalue(name))
    served = client.get("/v1/example")
    openapi.Example.model_validate(served.json())
    answer = client.post("/v1/probabilities", content=served.content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text
    (one,) = served.json()["sets"]
    assert len(answer.json()["sets"][0]["probabilities"]) == len(one["alternatives"])
    label = client.get("/v1/schema").json()["label"]
    assert label == (None if name == "rich" else "mode")
    assert all(label in alternative for alternative in one["alternatives"] if label is not None)


def test_the_page_gets_examples_names_and_units(make_client: Any, make_trips: Any) -> None:
    data = ChoiceData.from_long(
        make_trips(),
        choice_set="trip",
        chosen="took",
        features=["price", "minutes"],
        columns={"price": {"name": "Fare", "unit": "EUR"}},
    )
    client = make_client(Uniform().fit(data), title="summer fares")
    about = client.get("/v1/schema").json()
    openapi.About.model_validate(about)
    assert (about["title"], about["choice_set"]) == ("summer fares", "trip")
    assert [(c["title"], c["unit"]) for c in about["columns"]] == [("Fare", "EUR"), ("minutes", "")]
    every = client.get("/v1/examples").json()
    assert len(every["sets"]) == 8
    assert client.get("/v1/example").json()["sets"] == every["sets"][:1]
    assert client.post("/v1/probabilities", json=every).status_code == 200


def test_all_categories_of_a_network_are_listed(make_client: Any, net: PCMCNet) -> None:
    facts = net.table_.columns["comfort"]
    whole = facts["categories"]
    facts["categories"] = whole[:1]
    try:
        columns = {c["name"]: c for c in make_client(net).get("/v1/schema").json()["columns"]}
    finally:
        facts["categories"] = whole
    assert columns["comfort"]["categories"] == whole == ["high", "low", "middle"]


def test_a_model_without_a_description_is_served(make_client: Any, make_trips: Any) -> None:
    data = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", features=["price", "minutes"])
    model = Uniform().fit(data)
    model.add_table_facts(description={})
    client = make_client(model)
    assert "without an example" in error(client.get("/v1/example"), 404)
    assert [column["min"] for column in client.get("/v1/schema").json()["columns"]] == [None, None]
    one = {"alternatives": [{"price": p, "minutes": 4} for p in (1, 3)]}
    request = {"set": one, "x": "price", "y": "minutes", "place": 0, "between": [0, 1], "points": 2}
    answer = client.post("/v1/map", json=request).json()
    assert (answer["x"], answer["y"]) == ([0.0, 4.0], [3.5, 4.5])


def test_nothing_is_loaded_from_other_hosts(net: PCMCNet, make_client: Any) -> None:
    client = make_client(net)
    assert client.get("/docs").status_code == 404
    assert client.get("/redoc").status_code == 404
    assert client.get("/openapi.json").json()["openapi"].startswith("3.")
    for path in ("/", "/health", "/v1/schema", "/nowhere"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"


def test_a_live_server_may_not_be_ready(net: PCMCNet, make_client: Any) -> None:
    """A full or stopping server accepts no requests, but it is alive and must not be restarted."""
    client = make_client(net, queue=1, token="secret")
    worker = client.app.state.service.worker
    assert [client.get(path).json() for path in ("/health", "/live", "/ready")] == [{"status": "ok"}] * 3
    with worker.admit():
        assert error(client.get("/ready"), 503) == "the server has 1 requests in progress: try again in a moment."
        assert [client.get(path).status_code for path in ("/health", "/live")] == [200, 200]
    assert client.get("/ready").status_code == 200
    worker.stop()
    assert error(client.get("/ready"), 503) == "the server is stopping: try again in a moment."
    assert [client.get(path).status_code for path in ("/health", "/live")] == [200, 200]


def test_unknown_paths_and_methods_give_json_errors(net: PCMCNet, make_client: Any) -> None:
    client = make_client(net)
    assert error(client.get("/v1/nowhere"), 404) == "unknown path: see /openapi.json."
    assert error(client.get("/v1/map"), 405) == "this path does not support this method."
    assert error(client.get("/../pyproject.toml"), 404)
    assert error(client.get("/%2e%2e/app.py"), 404)


def test_openapi_describes_the_columns_of_the_model(net: PCMCNet, make_client: Any) -> None:
    paths = make_client(net).get("/openapi.json").json()["paths"]
    body = paths["/v1/rates"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    one = body["properties"]["set"]["properties"]
    assert one["individual"]["required"] == ["income", "purpose"]
    assert one["alternatives"]["items"]["required"] == ["mode", "price", "minutes", "comfort"]
    assert json.dumps(paths).count("token is required") == 0


# -- access -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer secret2", "é"])
def test_requests_without_the_token_are_rejected(header: str | None, net: PCMCNet, make_client: Any) -> None:
    client = make_client(net, token="secret")
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for path in ("/v1/schema", "/v1/example", "/metrics", "/openapi.json", "/nowhere"):
        answer = client.get(path, headers=headers)
        assert "a token is required" in error(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert error(client.post("/v1/probabilities", content=b"{", headers=headers), 401)
    assert client.get("/health", headers=headers).status_code == 200
    assert client.get("/", headers=headers).status_code == 200


def test_requests_with_the_token_are_answered(net: PCMCNet, make_client: Any, sets: Any) -> None:
    client = make_client(net, token="secret")
    for scheme in ("Bearer", "bearer"):
        headers = {"Authorization": f"{scheme} secret"}
        assert client.post("/v1/probabilities", json={"sets": sets}, headers=headers).status_code == 200
    described = client.get("/openapi.json", headers=headers).json()
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert "401" in described["paths"]["/v1/map"]["post"]["responses"]


def test_foreign_host_names_are_rejected(net: PCMCNet, make_client: Any) -> None:
    client = make_client(net, hosts=("localhost", "127.0.0.1", "[::1]"))
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]"):
        assert client.get("/v1/schema", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example:8000", "", "é", "127.0.0.1:8000:9000"):
        for path in ("/v1/example", "/", "/health"):
            answer = client.get(path, headers={"Host": host.encode("latin-1")})
            assert (
                error(answer, 421)
                == "host: expected one of localhost, 127.0.0.1, [::1]. To allow any host, serve the model with a token."
            )


def test_the_schema_has_the_caveats_that_the_page_shows(make_client: Any) -> None:
    data = choice_tables.read(choice_tables.trips(40), **choice_tables.ROLES)
    wrong = MNL(formula="price", fixed={"price": 0.2}).fit(data, progress=False)
    assert make_client(wrong).get("/v1/schema").json()["caveats"] == [wrong.sign_caveats["price"]]
    right = MNL(formula="price", fixed={"price": -0.2}).fit(data, progress=False)
    assert make_client(right).get("/v1/schema").json()["caveats"] == []
