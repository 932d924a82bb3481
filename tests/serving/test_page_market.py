"""The market view of the page: figures of pn.scenario, changes, curves, searches, links and exports."""

import csv
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from browser import needs_chromium, violations
from choice_tables import trips
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import airline, intercity
from pcmcnet.insight.market_shares import market_shares
from pcmcnet.insight.scenarios import Scenario, scenario
from pcmcnet.insight.scenarios.market_effects import MergedGroups
from pcmcnet.insight.scenarios.scenario import RevenueColumns, read_sets, simulate
from pcmcnet.models import MNL, HierarchicalMNL, PCMCNet
from served_page import cell, expect, get, probabilities, serving

pytestmark = needs_chromium
Visit = Callable[..., Any]
DEARER = "price *= 1.1 where mode == 'train' and purpose == 'business'"


@pytest.fixture(scope="module")
def city() -> tuple[PCMCNet, MNL]:
    data = intercity.read()
    return PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0).fit(data, progress=False), MNL().fit(data, progress=False)


@pytest.fixture(scope="module")
def market(city: tuple[PCMCNet, MNL]) -> Iterator[str]:
    """Serve the trips between cities as a market, with a logit with standard errors as the baseline."""
    with serving(*city, table=intercity.PATH) as where:
        yield where


def ready(page: Any) -> Any:
    """Wait until the market is shown and no request is in progress."""
    expect(page.locator("[data-market=tiles] .tile").first).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    return page


def add_change(page: Any, **fields: str) -> None:
    """Fill the form of a change and apply it."""
    for name, value in fields.items():
        field = page.locator(f"[data-change={name.replace('_', '-')}]")
        if field.evaluate("e => e.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.locator("[data-market=form]").get_by_role("button", name="Apply").click()
    ready(page)


def downloaded(page: Any, name: str, folder: Path) -> list[dict[str, str]]:
    """Return the rows of a table that the page exports."""
    with page.expect_download() as download:
        page.get_by_role("button", name=name).click()
    download.value.save_as(folder / "export.csv")
    return [*csv.DictReader((folder / "export.csv").read_text("utf-8").splitlines())]


def require_same(rows: list[dict[str, str]], expected: Scenario) -> None:
    """Compare an export with the figures of pn.scenario."""
    parts = {"share": expected.shares, "volume": expected.volumes, "revenue": expected.revenue}
    groups = [f"{row['purpose']}: {row['alternative']}" if "purpose" in row else row["alternative"] for row in rows]
    assert groups == [row.group for row in expected.shares.rows]
    for group, row in zip(groups, rows, strict=True):
        for name, effects in parts.items():
            for key in ("before", "after", "change", "low", "high"):
                value = getattr(effects[group], key)
                found = row.get(f"{name}_{key}") or None
                assert (found is None) == (value is None)
                assert value is None or float(found or 0) == pytest.approx(value, abs=1e-6, rel=1e-6)


def test_a_dearer_train_for_commuters(market: str, visit: Visit, city: tuple[PCMCNet, MNL], tmp_path: Path) -> None:
    """Shares, volumes and revenue by segment are those of pn.scenario, for both models and on the command line."""
    page = ready(visit(market))  # a server with a table starts with the market
    expect(page.locator("[data-market=size]")).to_have_text("1,000 choice sets with 3,412 alternatives")
    add_change(page, labels="train", where="purpose", where_category="business")
    expect(page.locator(".changes li")).to_contain_text("Price of train rises by 10%, where Purpose is business")
    expect(page.locator(".changes code")).to_have_text(DEARER)
    page.get_by_label("Segments").select_option("purpose")
    ready(page)
    for name, model in zip(("main", "baseline"), city, strict=True):
        page.get_by_label("Predicted by").last.select_option(name)
        expected = scenario(model, intercity.PATH, DEARER, by="purpose", revenue="price")
        require_same(downloaded(ready(page), "Download the market as CSV", tmp_path), expected)
        total = expected.revenue["all"]
        tile = page.locator("[data-total=revenue]")
        expect(tile).to_contain_text(f"{total.after:,.0f}")
        expect(tile).to_contain_text(f"{total.change:+.1f}".replace("-", "−"))
    expect(tile).to_contain_text("interval")  # of the logit
    words = shlex.split(page.locator("[data-market=command-text]").text_content().replace("\\\n", ""))
    assert words[:2] == ["pcmcnet", "scenario"]
    assert words[3:] == ["intercity.csv", "--change", DEARER, "--by", "purpose", "--revenue", "price"]


def test_alternatives_are_added_and_dropped_and_scenarios_compared(
    market: str, visit: Visit, city: tuple[PCMCNet, MNL], tmp_path: Path
) -> None:
    page = ready(visit(market))
    add_change(page, kind="add", name="night train", like="train", column="price", how="fall", value="20")
    page.get_by_role("button", name="Save as scenario").click()
    add_change(page, kind="drop", labels="bus", where="distance", sign="<", where_value="300")
    changes = ["add 'night train' like 'train' with price *= 0.8", "remove where mode == 'bus' and distance < 300"]
    assert page.locator(".changes code").all_inner_texts() == changes
    rows = {row["alternative"]: row for row in downloaded(page, "Download the comparison as CSV", tmp_path)}
    for heading, count in (("current changes", 2), ("Scenario 1", 1)):
        expected = scenario(city[0], intercity.PATH, changes[:count], intervals=False).shares
        for row in expected.rows:
            assert float(rows[row.group][heading]) == pytest.approx(row.after, abs=1e-6)
            assert float(rows[row.group][f"{heading}, change"]) == pytest.approx(row.change, abs=1e-6)
    page.locator("[data-market=measure]").select_option("revenue")
    expect(page.locator(".comparison tbody tr").last).to_contain_text("Total")
    page.get_by_role("button", name="Open Scenario 1").click()
    expect(page.locator(".changes li")).to_have_count(1)
    # The new alternative can be changed like the others.
    add_change(page, kind="change", labels="night train", column="price", how="set", value="5", where="")
    expect(page.locator(".changes code").last).to_have_text("price = 5 where mode == 'night train'")
    other = ready(visit(page.url))
    expect(other.locator(".changes li")).to_have_count(2)
    expect(other.get_by_label("Name of scenario 1")).to_have_value("Scenario 1")
    assert violations(ready(page)) == []


def test_segments_are_few_and_groups_are_sorted_by_a_click(market: str, visit: Visit) -> None:
    """Persons are no segments, bins have no exponents, and a click on a head sorts the groups within each segment."""
    page = ready(visit(market))
    by = page.get_by_label("Segments")
    assert "traveller" not in by.locator("option").evaluate_all("options => options.map((o) => o.value)")
    by.select_option("income")
    heads = ready(page).locator("[data-market=groups] .segment th")
    expect(heads.nth(1)).to_have_text(re.compile(r"^Income: [1-9]\d,\d{3} to [1-9]\d,\d{3} EUR/year$"))
    by.select_option("")
    expect(page.locator("[data-market=scale]")).to_have_text(re.compile(r"^Bars run from 0 to \d+%\.$"))
    add_change(page, labels="car", value="30")
    page.locator("[data-market=groups]").get_by_role("button", name="% points").click()
    rows = page.locator("[data-market=groups] tbody tr")
    assert rows.last.locator("th").inner_text() == "car"
    expect(page.locator("[data-market=groups] [aria-sort=descending] button")).to_be_focused()
    page.locator("[data-market=groups]").get_by_role("button", name="% points").click()
    assert rows.first.locator("th").inner_text() == "car"
    expect(page.locator("[data-market=groups] th[aria-sort=ascending]")).to_have_count(1)
    expect(page.locator("[data-market=scale]")).to_contain_text("is the share today")
    assert violations(ready(page)) == []


def test_a_wrong_change_is_explained_and_stays_out_of_links(market: str, visit: Visit) -> None:
    page = ready(visit(market, refusals=(422,)))
    add_change(page, labels="car")
    link = page.url
    page.locator("[data-change=value]").fill("ten")
    page.locator("[data-market=form]").get_by_role("button", name="Apply").click()
    expect(page.locator("[data-change=problem]")).to_have_text("Enter a number as the change.")
    page.get_by_text("Write a change yourself").click()
    page.get_by_label("Change in the language of scenarios").fill("prise *= 2")
    page.locator("[data-market=own-change]").get_by_role("button", name="Apply").click()
    expect(page.locator("[data-error=own-change]")).to_contain_text("Did you mean 'price'?")
    expect(page.locator("[data-error=own-change]")).to_contain_text("Not applied.")
    expect(page.locator("[data-market=results]")).to_be_visible()
    expect(page.locator(".changes li")).to_have_count(1)
    assert page.url == link


def test_a_change_that_is_refused_keeps_the_figures_and_says_why(market: str, visit: Visit) -> None:
    """A change of nothing and a negative price are refused in words. The condition does not stay."""
    page = ready(visit(market, refusals=(422,)))
    near = {"labels": "bus", "where": "distance", "sign": "<", "where_value": "300"}
    add_change(page, kind="drop", **near)
    expect(page.locator("[data-change=where]")).to_have_value("")
    problem = page.locator("[data-change=problem]")
    add_change(page, kind="change", column="price", how="fall", value="20", **near)
    expect(problem).to_have_text("No bus with Distance below 300 is left to change. Not applied.")
    expect(page.locator("[data-market=groups]")).to_be_visible()
    expect(page.locator(".changes li")).to_have_count(1)
    page.locator("[data-change=kind]").select_option("drop")  # another kind of change starts without a condition
    expect(page.locator("[data-change=where]")).to_have_value("")
    add_change(page, kind="change", column="price", how="fall", value="120", labels="train")
    expect(problem).to_contain_text("Price would be negative: down to -")
    expect(problem).to_contain_text("EUR. Not applied.")
    expect(page.locator(".changes li")).to_have_count(1)


def test_curves_and_best_prices_compare_scenarios(
    market: str, visit: Visit, city: tuple[PCMCNet, MNL], tmp_path: Path
) -> None:
    """The logit's best price of the bus in steps of 5% is that of all 13 prices, and the curve passes through it."""
    page = ready(visit(market))
    page.get_by_label("Predicted by").last.select_option("baseline")
    ready(page)
    expect(page.get_by_role("button", name="Find the best prices")).to_be_disabled()
    expect(page.locator("[data-best=why-not]")).to_contain_text("no outside option")
    own = page.get_by_role("group", name="Your alternatives")
    for name in ("train", "car", "bus", "plane"):
        own.get_by_label(name, exact=True).check()
    expect(page.get_by_role("button", name="Find the best offer")).to_be_disabled()  # no competitor
    for name in ("car", "plane"):
        own.get_by_label(name, exact=True).uncheck()
    values = {}
    for bus, train in product(range(-20, 25, 5), repeat=2):
        changes = [
            f"price *= {1 + step / 100:.6g} where mode == '{name}'"
            for name, step in (("bus", bus), ("train", train))
            if step
        ] or ["price *= 1"]
        revenue = scenario(city[1], intercity.PATH, changes, revenue="price", intervals=False).revenue
        values[bus, train] = revenue["bus"].after + revenue["train"].after
    best = max(values, key=values.__getitem__)
    page.get_by_label("within").select_option("20")
    page.get_by_role("button", name="Find the best prices").click()
    facts = page.locator("[data-best=facts]")
    expect(facts).to_contain_text(f"{values[best]:,.0f} EUR")
    expect(facts).to_contain_text("price lists were tried, in steps of 5%; a better one may exist.")
    pairs = zip(("bus", "train"), best, strict=True)
    changes = [f"price *= {1 + step / 100:.6g} where mode == '{name}'" for name, step in pairs]
    whole = MergedGroups(None, ("train", "bus"))
    options: dict[str, Any] = {"columns": RevenueColumns("price"), "surplus": False}
    ((result,),) = simulate(city[1], read_sets(city[1], intercity.PATH, ()), [changes], [whole], **options)
    both = result.revenue.rows[0]
    assert both.after == pytest.approx(values[best], rel=1e-6)
    expect(facts).to_contain_text(f"95% interval{both.after_low:,.0f} to {both.after_high:,.0f} EUR")
    expect(facts).to_contain_text("Everyone chooses one of the alternatives: nobody stays at home.")
    page.get_by_role("button", name="Find the best offer").click()
    expect(facts).to_contain_text("All 3 offers were compared.")
    page.get_by_label("by up to").select_option("20")
    page.locator("[data-curve=of]").select_option("bus")
    page.get_by_role("button", name="Draw the curves").click()
    expect(page.locator("[data-curve=revenue] path.line")).to_have_count(2)
    expect(page.locator("[data-curve=shares] path.band")).to_have_count(4)  # intervals of the logit
    rows = page.locator("[data-curve=numbers] tbody tr")
    for row, step in ((0, -20), (7, 8)):
        expected = scenario(
            city[1], intercity.PATH, f"price *= {1 + step / 100} where mode == 'bus'", revenue="price", intervals=False
        )
        expect(rows.nth(row)).to_contain_text(f"{100 * expected.shares['bus'].after:.1f}%")
        expect(rows.nth(row)).to_contain_text(f"{expected.revenue['all'].after:,.0f}")
    assert violations(ready(page)) == []
    page.get_by_role("button", name="Apply to the market").click()
    expect(page.locator(".changes li")).to_have_count(1)
    ready(page)


def test_best_prices_are_compared_with_today_and_own_revenue_is_shown(
    market: str, visit: Visit, city: tuple[PCMCNet, MNL]
) -> None:
    """A best price of x% on top of a train that is 50% dearer is (1.5 (1 + x) - 1) against today."""
    page = ready(visit(market))
    notes = page.locator("[data-market=notes]")
    expect(notes).to_contain_text("nobody stays at home. So higher prices and dropped alternatives look better")
    expect(notes).to_contain_text("No intervals: this model has no standard errors. Fit an ensemble")
    expect(page.locator("[data-total=revenue]")).to_contain_text("Revenue of all alternatives (EUR)")
    add_change(page, labels="train", value="50")
    page.get_by_role("group", name="Your alternatives").get_by_label("train", exact=True).check()
    expected = scenario(city[0], intercity.PATH, "price *= 1.5 where mode == 'train'", revenue="price").revenue["train"]
    own = page.locator("[data-total=own-revenue]")
    expect(own).to_contain_text("Your revenue (EUR): train")
    expect(own).to_contain_text(f"{expected.after:,.0f}")
    expect(own).to_contain_text(f"today {expected.before:,.0f}")
    ready(page).get_by_role("button", name="Find the best prices").click()
    facts = page.locator("[data-best=facts]")
    expect(facts).to_contain_text("No intervals: this model has no standard errors.")
    step = facts.locator("dd").first.inner_text().removeprefix("train ").replace("−", "-")
    total = 1.5 * (100 + (0 if step == "no change" else float(step.rstrip("%")))) - 100
    text = f"train {total:+.1f}".removesuffix(".0").replace("-", "−") + "%"
    expect(facts.locator("dd").nth(1)).to_have_text(text)
    page.get_by_label("Segments").select_option("purpose")  # sums over the segments
    expect(ready(page).locator("[data-total=own-revenue]")).to_contain_text(f"{expected.after:,.0f}")
    other = ready(visit(page.url))
    expect(other.get_by_role("group", name="Your alternatives").get_by_label("train", exact=True)).to_be_checked()
    add_change(other, kind="drop", labels="train")  # what is dropped still counts as one's own
    expect(other.locator("[data-total=own-revenue]")).to_contain_text(f"today {expected.before:,.0f}")


def test_changes_are_undone_and_choices_are_in_the_link(market: str, visit: Visit, city: tuple[PCMCNet, MNL]) -> None:
    """Undo and redo by buttons and keys. Curves stay when an alternative is ticked, and go when prices change."""
    page = ready(visit(market))
    undo, redo = (page.get_by_role("button", name=name, exact=True) for name in ("Undo", "Redo"))
    expect(undo).to_be_disabled()
    add_change(page, labels="train")
    page.get_by_role("button", name="Save as scenario").click()
    page.get_by_label("by up to").select_option("20")
    page.get_by_role("button", name="Draw the curves").click()
    curve = page.locator("[data-curve=revenue] path.line").first
    expect(curve).to_be_visible()
    page.get_by_role("group", name="Your alternatives").get_by_label("bus", exact=True).check()
    page.get_by_label("within").select_option("50")
    page.locator("[data-market=measure]").select_option("revenue")
    expect(ready(page).locator("[data-total=own-revenue]")).to_be_visible()
    expect(curve).to_be_visible()
    other = ready(visit(page.url))
    for name, value in (("curve=range", "20"), ("best=range", "50"), ("market=measure", "revenue")):
        expect(other.locator(f"[data-{name}]")).to_have_value(value)
    undo.click()
    expect(ready(page).locator("[data-market=measure]")).to_have_value("share")
    page.locator("[data-market=print]").focus()
    page.keyboard.press("Control+z")
    expect(ready(page).locator("[data-best=range]")).to_have_value("30")
    for _ in range(4):  # the alternative, the range of the curves, the scenario, the change
        undo.click()
        ready(page)
    expect(page.locator(".changes li")).to_have_count(0)
    expect(undo).to_be_disabled()
    redo.click()
    expect(ready(page).locator(".changes li")).to_have_count(1)
    page.locator("[data-market=print]").focus()
    page.keyboard.press("Control+Shift+z")
    expect(ready(page).locator("[data-market=comparison]")).to_be_visible()


def test_segments_have_limits_of_ones_own(market: str, visit: Visit, city: tuple[PCMCNet, MNL], tmp_path: Path) -> None:
    page = ready(visit(market, refusals=(422,)))
    limits = page.get_by_label("Limits")
    expect(limits).to_be_hidden()
    page.get_by_label("Segments").select_option("distance")
    ready(page)
    limits.fill("300, 600")
    limits.press("Enter")
    heads = page.locator("[data-market=groups] .segment th")
    expect(heads).to_have_text(["Distance: < 300 km", "Distance: 300 to 600 km", "Distance: >= 600 km"])
    add_change(page, labels="train")
    expected = scenario(
        city[0], intercity.PATH, "price *= 1.1 where mode == 'train'", by="distance: 300, 600", intervals=False
    )
    rows = downloaded(page, "Download the market as CSV", tmp_path)
    assert [float(row["share_after"]) for row in rows] == pytest.approx([row.after for row in expected.shares.rows])
    assert shlex.split(page.locator("[data-market=command-text]").text_content().replace("\\\n", ""))[7] == (
        "distance: 300, 600"
    )
    expect(ready(visit(page.url)).get_by_label("Limits")).to_have_value("300, 600")
    limits.fill("600, 300")
    limits.press("Enter")
    expect(page.locator("[data-market=status]")).to_contain_text("ascending limits, such as 'distance: 300, 600'")
    limits.fill("")
    limits.press("Enter")
    expect(ready(page).locator("[data-market=groups] .segment")).to_have_count(4)


def test_one_choice_set_of_the_market_opens_with_its_marks(
    market: str, visit: Visit, city: tuple[PCMCNet, MNL]
) -> None:
    page = ready(visit(market))
    add_change(page, labels="train", value="50")
    page.get_by_label("Choice set number").fill("7")
    page.get_by_role("button", name="Open the choice set").click()
    expect(page.locator("#from-market")).to_contain_text("intercity.csv, choice set 7.")
    found = get(market, "v1/market/set", {"table": True, "place": 6, "changes": ["price *= 1.5 where mode == 'train'"]})
    before, after = (
        get(market, "v1/probabilities", {"sets": [found[when]]})["sets"][0]["probabilities"]
        for when in ("before", "after")
    )
    assert probabilities(page) == pytest.approx(after, abs=1e-6)
    changes = page.locator(".bar.main .change").all_inner_texts()
    for text, p, q in zip(changes, before, after, strict=True):
        assert float(text.replace("−", "-") or 0) == pytest.approx(100 * (q - p), abs=0.051)  # shown with one decimal
    assert float(cell(page, "Price", "train").input_value()) == pytest.approx(
        found["after"]["alternatives"][0]["price"], rel=1e-6
    )
    page.get_by_role("button", name="Back to the market").click()
    expect(page.locator(".changes li")).to_have_count(1)
    ready(page)


@pytest.mark.parametrize("sets", [200, pytest.param(2_000, marks=pytest.mark.slow)])
def test_many_airline_sets_from_a_file(
    sets: int, address: str, models: tuple[PCMCNet, MNL], visit: Visit, tmp_path: Path
) -> None:
    """Choice sets without labels, opened from a file, grouped by airline."""
    sample = airline.simulate(sets, seed=1).drop_columns(["true_prob", "alternative", "choice"])
    pyarrow.csv.write_csv(sample, tmp_path / "sample.csv")
    page = visit(address)
    page.get_by_role("button", name="Market").click()
    expect(page.locator("[data-market=few]")).to_contain_text("only the few choice sets that are stored with the model")
    ready(page)
    page.locator("[data-market=file]").set_input_files(tmp_path / "sample.csv")
    expect(page.locator("[data-market=size]")).to_contain_text(f"{sets:,} choice sets with")
    ready(page).get_by_label("Segments").select_option("airlines")
    expect(page.locator("[data-best=goal]")).to_have_value("share")
    expect(page.locator("[data-best=no-money]")).to_be_visible()
    page.get_by_label("Revenue from").select_option("totalPrice")
    ready(page)
    expect(page.locator("[data-best=goal]")).to_have_value("revenue")
    add_change(page, column="totalPrice", where="nFlights", sign="==", where_value="2")
    change = "totalPrice *= 1.1 where nFlights == 2"
    expected = scenario(models[0], tmp_path / "sample.csv", change, by="airlines", revenue="totalPrice")
    require_same(downloaded(page, "Download the market as CSV", tmp_path), expected)
    link = page.url
    page.close()
    other = visit(link)  # the file is not part of the link
    expect(other.locator("[data-market=status]")).to_contain_text("made with the table sample.csv")


def test_a_baseline_without_an_answer_does_not_hide_the_model(visit: Visit, tmp_path: Path) -> None:
    """A logit with constants cannot predict a label that is new to it; the network can."""
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "alternative": "mode"}
    data = ChoiceData.from_long(trips(40, seed=0), **roles, features=["price", "minutes"])
    net = PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0).fit(data, progress=False)
    market = trips(20, seed=1)
    market["mode"] = np.array([mode if k else "zeppelin" for k, mode in enumerate(market["mode"])])
    pyarrow.csv.write_csv(pa.table(market), tmp_path / "market.csv")
    with serving(net, MNL().fit(data, progress=False), table=tmp_path / "market.csv") as where:
        page = ready(visit(where, refusals=(422,)))
        expect(page.locator("[data-market=groups]")).to_contain_text("zeppelin")
        page.get_by_label("Predicted by").last.select_option("baseline")
        expect(page.locator("[data-market=status]")).to_contain_text("zeppelin")
        expect(page.locator("[data-market=results]")).to_be_hidden()
        page.get_by_label("Predicted by").last.select_option("main")
        expect(ready(page).locator("[data-market=groups]")).to_contain_text("zeppelin")
        page.wait_for_load_state("networkidle")  # the server stops only after it has answered all requests


def test_a_table_that_is_too_large_is_not_sent(logit: MNL, visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "large.csv").write_text("x" * 60_000)
    with serving(logit, max_market_bytes=50_000) as where:
        page = visit(where)
        page.get_by_role("button", name="Market").click()
        ready(page)
        page.locator("[data-market=file]").set_input_files(tmp_path / "large.csv")
        expect(page.locator("[data-error=file]")).to_contain_text("--max-market-bytes")
        page.wait_for_load_state("networkidle")  # the server stops only after it has answered all requests


def test_a_timeout_can_be_tried_again(city: tuple[PCMCNet, MNL], visit: Visit) -> None:
    with serving(city[1], table=intercity.PATH) as where:
        page = visit(where + "#", refusals=(504,))
        page.route("**/v1/market", lambda route: route.fulfill(status=504, json={"error": "timeout after 30 seconds."}))
        page.reload()
        expect(page.locator("[data-market=status]")).to_contain_text("timeout after 30 seconds")
        page.unroute("**/v1/market")
        page.get_by_role("button", name="Try again").click()
        ready(page)
        expect(page.locator("[data-market=status]")).to_have_text("")
        page.wait_for_load_state("networkidle")


def test_the_market_works_by_keyboard_on_a_phone_in_dark_mode_and_in_print(
    market: str, visit: Visit, tmp_path: Path
) -> None:
    page = ready(visit(market, width=360, height=740, color_scheme="dark"))
    page.locator("[data-change=labels]").focus()
    page.keyboard.type("train")
    for _ in range(2):  # the way and the amount
        page.keyboard.press("Tab")
    page.keyboard.type("25")
    page.keyboard.press("Enter")
    expect(page.locator(".changes code")).to_have_text("price *= 1.25 where mode == 'train'")
    expect(page.locator(".changes .extent")).to_have_text(re.compile(r"^changes [\d,]+ train offers$"))
    for label in ("Column", "How", "Amount", "Where"):
        expect(page.locator("[data-market=form]").get_by_text(label, exact=True)).to_be_visible()
    hint = page.locator(".scroll-hint").first
    expect(hint).to_contain_text("Scroll the table sideways")
    expect(hint).to_be_visible()
    expect(page.locator("footer")).to_contain_text("The web address stores the changes, the scenarios")
    page.locator("[data-market=groups]").evaluate("table => { table.parentElement.scrollLeft = 2000; }")
    expect(hint).to_be_hidden()
    assert ready(page).evaluate("document.documentElement.scrollWidth") <= 360
    assert violations(page) == []
    page.screenshot(path=tmp_path / "market.png", full_page=True)
    page.emulate_media(media="print", color_scheme="light")
    expect(page.locator("[data-market=groups]")).to_be_visible()
    expect(page.locator(".changes .words")).to_be_visible()
    for hidden in (page.locator("[data-market=form]"), page.get_by_role("button", name="Apply")):
        expect(hidden.first).to_be_hidden()


def test_people_of_a_hierarchical_logit_choose(visit: Visit, tmp_path: Path) -> None:
    """Shares by the people's first choices are those of pn.market_shares; the choice is in the link."""
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
    model = HierarchicalMNL(chains=2, burn_in=30, draws=40, thin=1).fit(data, progress=False)
    products = {"brand": ["A", "B", "C"], "price": [2.0, 2.5, 3.0]}
    pyarrow.csv.write_csv(pa.table({"trip": [1, 1, 1], **products}), tmp_path / "products.csv")
    with serving(model, table=tmp_path / "products.csv") as where:
        page = ready(visit(where))
        people = page.get_by_label("Who chooses")
        people.select_option("first-choice")
        expect(page.locator("[data-market=notes]")).to_contain_text("answered by all 30 people of the model")
        add_change(page, labels="B", value="20")
        rows = downloaded(page, "Download the market as CSV", tmp_path)
        dearer = {**products, "price": [2.0, 3.0, 3.0]}
        for when, changed in (("before", products), ("after", dearer)):
            expected = market_shares(model, changed, rule="first-choice").rows
            assert [float(row[f"share_{when}"]) for row in rows] == pytest.approx(
                [row.share for row in expected], abs=1e-6
            )
        assert rows[1]["share_low"] != ""
        expect(page.get_by_role("button", name="Copy command")).to_be_disabled()  # the command has no such rule
        other = ready(visit(page.url))
        expect(other.get_by_label("Who chooses")).to_have_value("first-choice")
        assert violations(ready(page)) == []
        page.wait_for_load_state("networkidle")
