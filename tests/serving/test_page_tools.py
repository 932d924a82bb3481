"""Tools of the page: first steps, searchable lists, scenarios, tables of choice sets, pictures."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from browser import needs_chromium, violations
from choice_tables import largest
from pcmcnet.data import ChoiceData
from pcmcnet.models import MNL, PCMCNet
from pcmcnet.serving.app import page_files
from served_page import cell, expect, get, link, probabilities, serving, settled, with_pictures

pytestmark = needs_chromium

LINES = [f"L{k:02d}" for k in range(30)]
Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def fares() -> Iterator[str]:
    """Serve a logit of price, minutes and wifi that ignores noise and the 30 lines."""
    rng = np.random.default_rng(0)
    s, n = np.repeat(np.arange(120), 4), 480
    price, minutes, noise = rng.integers(40, 400, n), rng.integers(30, 200, n), rng.normal(size=n).round(3)
    wifi = rng.integers(2, size=n)
    u = -0.02 * price - 0.02 * minutes + 0.8 * wifi + rng.gumbel(size=n)
    table = {
        "trip": s,
        "took": largest(u, s),
        "noise": noise,
        "fare": price,
        "minutes": minutes,
        "wifi": wifi,
        "line": np.array(LINES)[np.concatenate([np.arange(30), rng.integers(30, size=n - 30)])],
        "member": rng.integers(2, size=120)[s],
    }
    data = ChoiceData.from_long(
        table,
        choice_set="trip",
        chosen="took",
        individual=["member"],
        features=["noise", "fare", "minutes", "wifi", "line"],
        columns={"fare": {"name": "Price", "unit": "EUR"}, "minutes": {"unit": "min"}},
    )
    model = MNL(formula="fare + minutes + wifi").fit(data, progress=False)
    with serving(model, title="Summer fares") as where:
        yield where


def ask(address: str, individual: Any, alternatives: list[Any]) -> list[float]:
    body = {"sets": [{"individual": individual, "alternatives": alternatives}]}
    return list(get(address, "v1/probabilities", body)["sets"][0]["probabilities"])


# -- the first ten seconds ----------------------------------------------------------------------------------------


def test_the_header_names_the_model_and_steps_can_be_dismissed(fares: str, visit: Visit) -> None:
    page = settled(visit(fares))
    expect(page.get_by_role("heading", name="Summer fares")).to_be_visible()
    expect(page.locator("#model")).to_have_text("MNL, fitted to 120 choice sets with 480 alternatives")
    assert page.title() == "Summer fares – pcmcnet"
    steps = page.get_by_role("region", name="First steps")
    expect(steps).to_contain_text("Change a value")
    page.get_by_role("button", name="Got it").click()
    expect(steps).to_be_hidden()
    page.reload()
    settled(page)
    expect(steps).to_be_hidden()


def test_the_page_says_that_the_model_is_loading(fares: str, visit: Visit) -> None:
    page = visit("about:blank")
    held: list[Any] = []
    page.route("**/v1/schema", lambda route: held.append(route))
    page.goto(fares)
    expect(page.get_by_text("Loading the model…")).to_be_visible()
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    settled(page)
    expect(page.get_by_text("Loading the model…")).to_be_hidden()


def test_columns_have_units_and_the_map_starts_with_key_features(fares: str, visit: Visit) -> None:
    page = settled(visit(fares))
    heads = page.locator("#table thead th").all_inner_texts()
    assert any(re.match(r"Price \(EUR\)", head.replace("\u200b", "")) for head in heads)
    with_pictures(page)
    expect(page.locator("#map svg")).to_contain_text("Price (EUR) (less is better)")  # waits until the map is drawn
    axes = {page.locator(f"[data-map={axis}]").input_value() for axis in "xy"}
    assert axes == {"fare", "minutes"}
    without = float(page.locator("#map [data-map=readout] strong").nth(1).inner_text().rstrip("%"))
    ends = [float(text.rstrip("%")) for text in page.locator("#map svg text").all_text_contents() if text.endswith("%")]
    assert ends[0] < without < ends[1]  # grey is the share without the third alternative


# -- fields -------------------------------------------------------------------------------------------------------


def test_categories_can_be_searched_and_new_ones_are_marked(fares: str, visit: Visit) -> None:
    page = settled(visit(fares))
    field = cell(page, "line", "A")
    field.click()
    options = page.locator("#choices [role=option]")
    expect(options).to_have_count(30)
    field.fill("2")
    assert options.all_inner_texts() == [name for name in LINES if "2" in name]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") == "choice-1"
    page.keyboard.press("Enter")
    expect(field).to_have_value("L12")
    expect(options.first).to_be_hidden()
    expect(page.locator("#status")).to_have_text("4 alternatives.")
    field.fill("Zeppelin")
    expect(field).to_have_accessible_description("new to the model")
    expect(page.locator("#table")).to_contain_text("new to the model")
    expect(page.locator("#status")).to_contain_text("One value is outside")
    options_of_b = cell(page, "line", "B")
    options_of_b.click()
    options.nth(3).click()
    expect(options_of_b).to_have_value("L03")


def test_columns_of_zero_and_one_are_switches(fares: str, visit: Visit) -> None:
    page = settled(visit(fares))
    example = get(fares, "v1/example")["sets"][0]
    switch = page.get_by_role("switch", name="wifi of A", exact=True)
    assert switch.is_checked() == (example["alternatives"][0]["wifi"] == 1)
    switch.press("Space")
    example["alternatives"][0]["wifi"] = 1 - example["alternatives"][0]["wifi"]
    assert probabilities(page) == pytest.approx(ask(fares, **example), abs=1e-6)
    expect(page.get_by_role("switch", name="member")).to_be_visible()


def test_steps_of_number_fields_fit_the_set(fares: str, visit: Visit) -> None:
    """Prices of 73,547 to 101,183 in a table with prices up to 910,039: the next is 74,000, and never 90,000."""
    page = visit(link(fares, take=2))
    make = """async ([column, values, from]) => {
        const span = (await import('/scale.js')).makeSpan(column, values);
        const slider = span.value(span.place(from) + 1);
        return [span.next(from, 1, 1), span.next(from, -1, 1), span.next(from, 1, 10), slider, span.steps];
    }"""
    column = {"field": "number", "whole": True, "min": 10215, "max": 910039}
    up, down, far, slider, steps = page.evaluate(make, [column, [73547, 89717, 101183], 73547])
    assert (up, down, far) == (74000, 73500, 75000)
    assert 73547 < slider < 75000
    assert steps >= 100
    small = page.evaluate(make, [{**column, "whole": False, "min": 0, "max": 1}, [0.25, 0.5], 0.25])
    assert small[:2] == pytest.approx([0.255, 0.245], abs=1e-12)
    page.get_by_label("Price of A", exact=True).fill("200")
    page.get_by_label("Price of A", exact=True).press("ArrowUp")
    assert 200 < float(page.get_by_label("Price of A", exact=True).input_value()) <= 210


# -- scenarios ----------------------------------------------------------------------------------------------------


def test_scenarios_are_compared_kept_and_downloaded(fares: str, visit: Visit, tmp_path: Path) -> None:
    page = settled(visit(fares))
    example = get(fares, "v1/example")["sets"][0]
    as_it_was = ask(fares, **example)
    page.get_by_role("button", name="Save as scenario").click()
    page.get_by_label("Price of A", exact=True).fill("40")
    example["alternatives"][0]["fare"] = 40
    cheap = ask(fares, **example)
    assert probabilities(page) == pytest.approx(cheap, abs=1e-6)
    page.get_by_role("button", name="Save as scenario").click()
    page.get_by_label("Name of scenario 2").fill("A for 40")
    page.get_by_label("Name of scenario 2").press("Tab")
    page.get_by_label("Price of A", exact=True).fill("390")
    settled(page)

    def shown() -> dict[str, list[str]]:
        rows = page.locator("#scenarios tbody tr")
        texts = [re.findall(r"[<>\d.]+%", row) for row in rows.all_inner_texts()]
        return dict(zip(page.locator("#scenarios tbody th").all_inner_texts(), texts, strict=True))

    expect(page.locator("#scenarios tbody tr")).to_have_count(4)
    assert shown()["A"][1:] == [f"{100 * as_it_was[0]:.1f}%", f"{100 * cheap[0]:.1f}%"]
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the scenarios as CSV").click()
    download.value.save_as(tmp_path / "scenarios.csv")
    head, *rows = csv.reader((tmp_path / "scenarios.csv").read_text("utf-8").splitlines())
    assert head == ["alternative", "now", "Scenario 1", "A for 40"]
    assert float(next(row for row in rows if row[0] == "A")[3]) == pytest.approx(cheap[0], abs=1e-6)
    page.wait_for_timeout(500)  # the address is written after a pause
    before = shown()
    page.reload()
    expect(page.get_by_label("Name of scenario 2")).to_have_value("A for 40")
    settled(page)
    assert shown() == before
    page.get_by_role("button", name="Open A for 40").click()
    assert probabilities(page) == pytest.approx(cheap, abs=1e-6)
    page.get_by_role("button", name="Delete Scenario 1").click()
    expect(page.locator("#scenarios thead input")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#scenarios thead input")).to_have_count(2)


# -- tables -------------------------------------------------------------------------------------------------------


def test_a_pasted_set_is_shown_and_table_errors_are_reported(fares: str, visit: Visit) -> None:
    page = settled(visit(fares))
    page.get_by_role("button", name="Open table…").click()
    text = page.get_by_label("Table", exact=True)
    text.fill("price;minutes\n100;60\n")
    page.get_by_role("button", name="Load table").click()
    said = page.locator("[data-table=message]")
    expect(said).to_have_text("Missing columns: member, noise, wifi, line. The table has: price, minutes.")
    text.fill('member;noise;Price;minutes;wifi;line\n1;0.5;100;60;1;"L03"\n1;0.5;cheap;45;0;L04\n')
    page.get_by_role("button", name="Load table").click()
    expect(said).to_have_text('Line 3, fare: expected a number, got "cheap".')
    text.fill('member;noise;Price;minutes;wifi;line\n1;0,5;100;60;1;"L03"\n1;0,5;"1 200";45;0;L04\n')
    page.get_by_role("button", name="Load table").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#table tbody tr")).to_have_count(2)
    both = [
        {"noise": 0.5, "fare": 100, "minutes": 60, "wifi": 1, "line": "L03"},
        {"noise": 0.5, "fare": 1200, "minutes": 45, "wifi": 0, "line": "L04"},
    ]
    assert probabilities(page) == pytest.approx(ask(fares, {"member": 1}, both), abs=1e-6)


def test_predictions_of_many_sets_can_be_downloaded(fares: str, visit: Visit, tmp_path: Path) -> None:
    sets = get(fares, "v1/examples")["sets"]
    features = ["noise", "fare", "minutes", "wifi", "line"]
    lines = [["trip", "note", "member", *features]]
    for k, one in enumerate(sets):
        rows = [[f"t{k}", 'say "hi"', one["individual"]["member"], *map(a.get, features)] for a in one["alternatives"]]
        lines += rows
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    (tmp_path / "sets.csv").write_text(file.getvalue(), "utf-8")
    page = settled(visit(fares))
    page.get_by_role("button", name="Open table…").click()
    page.get_by_label("CSV file").set_input_files(tmp_path / "sets.csv")
    expect(page.locator("[data-table=message]")).to_have_text(f"8 choice sets with {len(lines) - 1} alternatives.")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download predictions").click()
    download.value.save_as(tmp_path / "answers.csv")
    head, *rows = csv.reader((tmp_path / "answers.csv").read_text("utf-8").splitlines())
    assert head == [*lines[0], "probability"]
    assert [row[:2] for row in rows] == [[str(cell) for cell in row[:2]] for row in lines[1:]]
    expected = [p for one in get(fares, "v1/probabilities", {"sets": sets})["sets"] for p in one["probabilities"]]
    assert [float(row[-1]) for row in rows] == pytest.approx(expected, abs=1e-9)
    page.get_by_label("Show choice set").select_option("t3")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert probabilities(page) == pytest.approx(ask(fares, **sets[3]), abs=1e-6)
    page.get_by_role("button", name="Open table…").click()
    page.get_by_role("button", name="Open as a market").click()
    expect(page.locator("[data-market=size]")).to_have_text(f"8 choice sets with {len(lines) - 1} alternatives")
    expect(page.locator("[data-market=groups]")).to_be_visible()


def test_another_example_is_another_set_of_the_training_table(fares: str, visit: Visit) -> None:
    page = settled(visit(fares))
    sets = get(fares, "v1/examples")["sets"]
    for one in (*sets[1:], sets[0]):
        page.get_by_role("button", name="Next example").click()
        assert float(page.get_by_label("Price of A", exact=True).input_value()) == one["alternatives"][0]["fare"]
    assert probabilities(page) == pytest.approx(ask(fares, **sets[0]), abs=1e-6)
    page.get_by_role("button", name="Undo").click()
    assert float(page.get_by_label("Price of A", exact=True).input_value()) == sets[-1]["alternatives"][0]["fare"]


# -- pictures, accessibility, sizes -------------------------------------------------------------------------------


def test_every_chart_can_be_saved_as_a_picture(
    address: str, models: tuple[PCMCNet, MNL], visit: Visit, tmp_path: Path
) -> None:
    page = with_pictures(visit(link(address, take=4)))
    for place in ("[data-map=picture] svg", "[data-flow=picture] svg"):
        expect(page.locator(place)).to_be_visible()
    for chart in ("bars", "map", "flows"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Download the {chart} as PNG").click()
        download.value.save_as(tmp_path / f"{chart}.png")
        with Image.open(tmp_path / f"{chart}.png") as picture:
            assert picture.size[0] > 600
            assert len(picture.convert("RGB").getcolors(1_000_000) or []) > 20  # something is drawn


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 390),
        pytest.param("light", 1280, marks=pytest.mark.slow),
        pytest.param("dark", 390, marks=pytest.mark.slow),
        ("dark", 1280),
    ],
)
def test_axe_finds_no_violations(scheme: str, width: int, address: str, fares: str, visit: Visit) -> None:
    page = settled(visit(link(address, take=4), width=width, color_scheme=scheme))
    page.get_by_role("button", name="Save as scenario").click()
    with_pictures(page)
    assert violations(page) == []
    page.get_by_role("button", name="Open table…").click()
    assert violations(page) == []
    page = settled(visit(fares, width=width, color_scheme=scheme))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width > 1000:
        cell(page, "line", "A").fill("Zeppelin 2")
        settled(page)
        cell(page, "line", "B").click()
    assert violations(page) == []


def test_the_page_is_small_and_requests_each_file_once(fares: str, visit: Visit) -> None:
    requested: list[str] = []
    page = visit("about:blank")
    page.on("request", lambda request: requested.append(request.url.removeprefix(fares)))
    page.goto(fares)
    settled(page)
    # The tab also requests the icon.
    files = [path for path in requested if not path.startswith("v1/") and path != "icon.svg"]
    assert len(files) == len(set(files)) <= 30
    assert not [
        path for path in files if path.startswith("market/") and path.endswith(".js")
    ]  # loaded when it is shown
    assert len(files) < len(page_files()) <= 45
    assert sum(len(file.content) for file in page_files().values()) < 320_000
    assert sum(path.startswith("v1/") for path in requested) <= 12  # schema, examples, probabilities, map
