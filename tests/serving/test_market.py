"""The route of markets: the figures of pn.scenario, its limits and its errors."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import choice_tables
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import airline, intercity
from pcmcnet.errors import ConfigError
from pcmcnet.insight.market_shares import market_shares
from pcmcnet.insight.scenarios import Scenario, scenario
from pcmcnet.models import MNL, ChoiceModel, Ensemble, HierarchicalMNL, PCMCNet
from pcmcnet.serving.app import create_app
from pcmcnet.serving.request_body import RequestError
from pcmcnet.serving.settings import ServeSettings

SCENARIOS = [
    [],
    ["price *= 1.1 where mode == 'car'"],
    ["minutes -= 5", "remove bus where income < 20", "add tram like car with price += 1"],
]


def csv_of(table: dict[str, Any]) -> str:
    file = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(table), file)
    return file.getvalue().decode()


@pytest.fixture(scope="module")
def table(make_trips: Any) -> dict[str, Any]:
    trips = make_trips(50, seed=3)
    rng = np.random.default_rng(0)
    return {**trips, "spend": rng.uniform(0, 2, len(trips["trip"])), "region": np.array(["N", "S"])[trips["trip"] % 2]}


def require_same(groups: list[dict[str, Any]], expected: Scenario) -> None:
    """Compare the figures of one grouping with those of pn.scenario."""
    parts = {"share": expected.shares, "volume": expected.volumes, "revenue": expected.revenue}
    parts["margin"] = expected.margin
    assert [one["group"] for one in groups] == [row.group for row in expected.shares.rows]
    for one in groups:
        for name, effects in parts.items():
            row = effects[one["group"]]
            keys = ("before", "after", "change", "low", "high")
            assert [one[name][key] for key in keys] == pytest.approx([getattr(row, key) for key in keys], abs=1e-6)


def post(client: Any, **request: Any) -> Any:
    response = client.post("/v1/market", json=request)
    assert response.status_code == 200, response.text
    return response.json()


def error(client: Any, status: int = 422, **request: Any) -> str:
    response = client.post("/v1/market", json=request)
    assert response.status_code == status
    return str(response.json()["error"])


@pytest.mark.parametrize("kind", ["network", "logit", "ensemble"])
def test_figures_are_those_of_scenario(
    kind: str, table: dict[str, Any], net: PCMCNet, logit: MNL, make_client: Any, tmp_path: Path
) -> None:
    model: ChoiceModel = {"network": net, "logit": logit}.get(kind) or Ensemble("mnl", n=2).fit(
        ChoiceData.from_long(
            {**table, "weight": np.ones(len(table["trip"]))}, **{**choice_tables.ROLES, "weight": None}
        )
    )
    client = make_client(model)
    asked = {"by": [None, "purpose", "income"], "revenue": "price", "unit_cost": "spend", "scenarios": SCENARIOS}
    answer = post(client, csv=csv_of(table), **asked)
    (tmp_path / "table.csv").write_text(csv_of(table))
    assert answer["sets"] == 50
    for found, changes in zip(answer["scenarios"][1:], SCENARIOS[1:], strict=True):
        assert [change["text"] for change in found["changes"]] == changes
        for grouping in found["groupings"]:
            options = {"by": grouping["by"], "revenue": "price", "unit_cost": "spend"}
            expected = scenario(model, tmp_path / "table.csv", changes, **options)
            require_same(grouping["groups"], expected)
            assert answer["intervals"] == expected.intervals
        assert found["notes"] == [*scenario(model, tmp_path / "table.csv", changes).notes]
        total = [found["margin"][key] for key in ("before", "after")]
        assert total == pytest.approx([expected.margin["all"].before, expected.margin["all"].after], abs=1e-5)
    today = answer["scenarios"][0]["groupings"][0]["groups"]
    assert sum(one["share"]["before"] for one in today) == pytest.approx(1, abs=1e-6)
    assert all(one["share"]["change"] == 0 for one in today)
    again = post(client, csv=csv_of(table), **asked)  # from the cache
    assert again == answer


def test_sets_and_the_table_of_the_server_are_markets_too(
    table: dict[str, Any], logit: MNL, net: PCMCNet, as_requests: Any, make_trips: Any, one_client: Any, tmp_path: Path
) -> None:
    (tmp_path / "market.csv").write_text(csv_of(table))
    with one_client(net, logit, table=tmp_path / "market.csv") as client:
        about = client.get("/v1/schema").json()["table"]
        assert (about["name"], about["sets"], about["labels"]) == (
            "market.csv",
            50,
            ["bike", "bus", "car", "train", "walk"],
        )
        assert {one["name"]: one["values"] for one in about["segments"]}["purpose"] == ["leisure", "work"]
        for model in ("main", "baseline"):
            served = post(client, table=True, scenarios=SCENARIOS, model=model, revenue="price", unit_cost="spend")
            sent = post(client, csv=csv_of(table), scenarios=SCENARIOS, model=model, revenue="price", unit_cost="spend")
            assert served["scenarios"][2]["margin"]["after"] == pytest.approx(
                sent["scenarios"][2]["margin"]["after"], abs=1e-5
            )
        listed = post(client, sets=as_requests(table), scenarios=SCENARIOS)
        shares = [
            [one["share"]["after"] for one in answer["scenarios"][2]["groupings"][0]["groups"]]
            for answer in (listed, post(client, table=True, scenarios=SCENARIOS))
        ]
        assert shares[0] == pytest.approx(shares[1], abs=1e-6)


def test_wrong_requests_name_the_entry_and_the_remedy(table: dict[str, Any], net: PCMCNet, make_client: Any) -> None:
    client, text = make_client(net), csv_of(table)
    assert "expected one of 'sets'" in error(client)
    assert "expected one of 'sets'" in error(client, csv=text, table=True)
    assert "start it with --table" in error(client, table=True)
    assert "expected true" in error(client, table=1)
    assert "csv: expected text" in error(client, csv=[text])
    assert "no column 'minutes'" in error(client, csv=text.replace("minutes", "hours", 1))
    assert "/tmp" not in error(client, csv="nonsense")
    assert "expected 1 to 32 lists" in error(client, csv=text, scenarios=[])
    assert "scenarios, entry 1: expected a list of at most 50 changes" in error(client, csv=text, scenarios=[[], "x"])
    assert "expected changes such as" in error(client, csv=text, scenarios=[[3]])
    assert "change 'prise *= 2'" in error(client, csv=text, scenarios=[["prise *= 2"]])
    assert "Did you mean 'price'?" in error(client, csv=text, scenarios=[["prise *= 2"]])
    assert "by, entry 0: expected the name of a column" in error(client, csv=text, by=[4])
    assert "by: the table has no column 'purpos'" in error(client, csv=text, by=["purpos"])
    assert "unit_cost='spend' needs the revenue" in error(client, csv=text, unit_cost="spend")
    assert "level: expected a number between 0 and 1" in error(client, csv=text, level=1)
    assert "intervals: expected true or false" in error(client, csv=text, intervals="yes")
    assert "unknown entry 'tables'" in error(client, tables=[])
    assert "model: 'baseline' is not served" in error(client, csv=text, model="baseline")


def test_merged_groups_have_intervals_and_segments_have_limits(
    table: dict[str, Any], logit: MNL, make_client: Any, tmp_path: Path
) -> None:
    """The share of two modes together is the sum of theirs, with an interval. Limits are those of pn.scenario."""
    client, text = make_client(logit), csv_of(table)
    merged = {"column": None, "merge": ["car", "bus"]}
    answer = post(client, csv=text, scenarios=[["price *= 1.1"]], by=[None, merged, "income: 30000, 60000"])
    each, (both, *others), segments = (one["groups"] for one in answer["scenarios"][0]["groupings"])
    by_name = {one["name"]: one["share"] for one in each}
    assert both["name"] == "car, bus"
    assert both["share"]["after"] == pytest.approx(by_name["car"]["after"] + by_name["bus"]["after"], abs=1e-9)
    assert both["share"]["low"] < both["share"]["change"] < both["share"]["high"]
    assert [one["share"] for one in others] == [by_name[one["name"]] for one in others]
    assert {one["segment"] for one in segments} == {"< 30000", "30000 to 60000", ">= 60000"}
    (tmp_path / "table.csv").write_text(text)
    expected = scenario(logit, tmp_path / "table.csv", "price *= 1.1", by="income: 30000, 60000").shares
    assert [one["share"]["after"] for one in segments] == pytest.approx([row.after for row in expected.rows], abs=1e-9)
    ask = {"csv": text, "scenarios": [["price *= 1.1"]]}
    assert "there is no group 'tram'" in error(client, **ask, by=[{"column": None, "merge": ["tram"]}])
    assert "the groups have segments" in error(client, **ask, by=[{"column": "purpose", "merge": ["car"]}])
    assert "by, entry 0, merge: expected a list" in error(client, **ask, by=[{"column": None, "merge": []}])
    assert "by, entry 0: 'merge' is missing" in error(client, **ask, by=[{"column": None}])
    assert "ascending limits" in error(client, **ask, by=["income: 3, 2"])
    assert "limits need an individual-level column" in error(client, **ask, by=["price: 3"])
    assert "only a numeric column can have limits" in error(client, **ask, by=["purpose: 3"])


@pytest.fixture(scope="module")
def hierarchy() -> HierarchicalMNL:
    """Return a hierarchical logit of 30 people, who choose among brands at different prices."""
    rng = np.random.default_rng(0)
    table = {
        "trip": np.repeat(np.arange(120), 3),
        "took": np.tile([1, 0, 0], 120),
        "brand": np.tile(["A", "B", "C"], 120),
        "price": rng.uniform(1, 5, 360).round(2),
        "person": np.repeat(np.arange(30), 12),
    }
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "alternative": "brand", "person": "person"}
    data = ChoiceData.from_long(table, features=["price"], **roles)
    return HierarchicalMNL(chains=2, burn_in=30, draws=40, thin=1).fit(data, progress=False)


@pytest.mark.parametrize("rule", ["logit", "first-choice"])
def test_the_people_of_a_hierarchical_logit_are_a_market(
    rule: Any, hierarchy: HierarchicalMNL, logit: MNL, table: dict[str, Any], make_client: Any
) -> None:
    """One choice set of products: shares and their 90% intervals are those of pn.market_shares, also after a change."""
    client = make_client(hierarchy)
    assert client.get("/v1/schema").json()["people"] == 30
    text, change = "trip,brand,price\n1,A,2\n1,B,2.5\n1,C,3\n", "price *= 1.2 where brand == 'B'"
    answer = post(client, csv=text, scenarios=[[change]], revenue="price", level=0.9, rule=rule)
    groups = answer["scenarios"][0]["groupings"][0]["groups"]
    assert answer["intervals"].startswith("90% intervals from")
    for when, low, high, price in (("before", None, None, 2.5), ("after", "after_low", "after_high", 3.0)):
        products = {"brand": ["A", "B", "C"], "price": [2.0, price, 3.0]}
        expected = market_shares(hierarchy, products, rule=rule, price="price")
        for one, row in zip(groups, expected.rows, strict=True):
            assert one["share"][when] == pytest.approx(row.share, abs=1e-6)
            assert one["revenue"][when] == pytest.approx(row.revenue, abs=1e-5)
            if low is not None and high is not None:
                assert one["share"][low] == pytest.approx(row.low, abs=1e-6)
                assert one["share"][high] == pytest.approx(row.high, abs=1e-6)
    assert post(client, csv=text, rule=rule, intervals=False)["intervals"] == "no intervals requested"
    assert "rule: expected null, 'logit' or 'first-choice'" in error(client, csv=text, rule="best")
    assert "needs the part-worths of a hierarchical logit" in error(make_client(logit), csv=csv_of(table), rule=rule)


def test_a_change_that_leaves_all_values_as_they_are_is_noted(
    table: dict[str, Any], logit: MNL, make_client: Any
) -> None:
    answer = post(make_client(logit), csv=csv_of(table), scenarios=[["price *= 1"], ["spend *= 2"]], revenue="spend")
    same, ignored = (one["notes"] for one in answer["scenarios"])
    assert same == ["no share changes: the changes leave all values as they are"]
    assert ignored[0].startswith("no share changes: the model ignores the changed columns")


def test_prices_cannot_become_negative(make_client: Any) -> None:
    """Prices in EUR that are nowhere negative stay so; minutes, which are not money, can change their sign."""
    client = make_client(MNL().fit(intercity.read(), progress=False))
    text = "\n".join(intercity.PATH.read_text().splitlines()[:8])  # two trips; the dearest train costs 81.44 EUR
    message = error(client, csv=text, scenarios=[["price *= -0.5 where mode == 'train'"]])
    assert message == "Price would be negative: down to -40.72 EUR."
    post(client, csv=text, scenarios=[["price *= 0"], ["time *= -1"]])


def test_markets_have_limits(table: dict[str, Any], net: PCMCNet, logit: MNL, make_client: Any, tmp_path: Path) -> None:
    text = csv_of(table)
    pairs = int((np.unique(table["trip"][table["open"] == 1], return_counts=True)[1] ** 2).sum())
    few = make_client(net, max_market_pairs=3 * pairs)
    post(few, csv=text, scenarios=[["price += 1"]])
    assert "too many pairs of alternatives" in error(few, csv=text, scenarios=[["price += 1"]] * 3)
    doubled = [["add c1 like car", "add c2 like car", "add c3 like car", "add c4 like car", "add c5 like car"]]
    assert "too many pairs" in error(few, csv=text, scenarios=doubled)
    assert "--max-market-rows" in error(make_client(net, max_market_rows=250), csv=text)
    assert "--max-market-bytes" in error(make_client(net, max_market_bytes=1_000), 413, csv=text)
    without = post(make_client(logit, max_market_pairs=3 * pairs), csv=text)
    assert "no intervals: they need predictions for" in without["intervals"]
    (tmp_path / "market.csv").write_text(text)
    with pytest.raises(ConfigError, match=r"market\.csv: the market has too many alternatives"):
        create_app(net, settings=ServeSettings(max_market_rows=100), table=tmp_path / "market.csv")


def test_a_timeout_stops_a_market(table: dict[str, Any], net: PCMCNet, make_client: Any) -> None:
    client = make_client(net, deadline=0)
    assert "timeout after 0 seconds" in error(client, 504, csv=csv_of(table))
    service = client.app.state.service
    assert service.markets.in_progress == 0
    service.markets.in_progress = 16
    try:
        with pytest.raises(RequestError, match="16 markets in progress"), service.markets.slot():
            pass
    finally:
        service.markets.in_progress = 0


def test_pictures_cannot_come_as_csv(rich: PCMCNet, make_client: Any) -> None:
    """A path in a request would make the server open a file."""
    assert "column 'photo' is of kind image" in error(make_client(rich), csv="search,photo\n1,/etc/passwd\n")


def test_many_airline_sets_are_the_same_as_in_python(make_client: Any, tmp_path: Path) -> None:
    data = ChoiceData.from_long(airline.simulate(300, seed=0), **airline.ROLES)
    net = PCMCNet(hidden=(8,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    sample = airline.simulate(2_000, seed=1).drop_columns(["true_prob", "alternative", "choice"])
    pyarrow.csv.write_csv(sample, tmp_path / "sample.csv")
    changes = ["totalPrice *= 1.1 where nFlights == 2", "remove where totalPrice > 4000"]
    asked = {"by": ["airlines", "staySaturday"], "revenue": "totalPrice", "scenarios": [changes]}
    answer = post(make_client(net), csv=(tmp_path / "sample.csv").read_text(), **asked)
    assert answer["sets"] == 2_000
    for grouping in answer["scenarios"][0]["groupings"]:
        expected = scenario(net, tmp_path / "sample.csv", changes, by=grouping["by"])
        shares = [one["share"]["after"] for one in grouping["groups"]]
        assert shares == pytest.approx([row.after for row in expected.shares.rows], abs=1e-6)
