"""The page in a browser with a real server. A test fails on any console error and on any foreign request."""

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from browser import needs_chromium
from pcmcnet.data import ChoiceData
from pcmcnet.models import MNL, PCMCNet, Uniform
from served_page import answer, cell, expect, get, link, probabilities, serving, settled, with_pictures

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def modes() -> Iterator[str]:
    """Serve a logit with labels, three of four per set, and without individual columns, rates or baseline."""
    rng = np.random.default_rng(0)
    labels, took = [rng.permutation(["bike", "bus", "car", "train"])[:3] for _ in range(60)], np.zeros((60, 3), int)
    took[np.arange(60), rng.integers(0, 3, 60)] = 1
    table = {
        "trip": np.repeat(np.arange(60), 3),
        "mode": np.concatenate(labels),
        "took": took.ravel(),
        "price": rng.uniform(1, 9, 180),
        "minutes": rng.uniform(10, 60, 180),
    }
    roles: dict[str, Any] = {"choice_set": "trip", "alternative": "mode", "chosen": "took"}
    data = ChoiceData.from_long(table, **roles, features=["price", "minutes"])
    with serving(MNL().fit(data, progress=False)) as where:
        yield where


def test_the_page_shows_the_example_and_follows_edits(address: str, visit: Callable[..., Any], tmp_path: Path) -> None:
    page = visit(address, reduced_motion="no-preference")
    before = probabilities(page)
    assert before == pytest.approx(answer(address), abs=1e-6)
    assert sum(before) == pytest.approx(1, abs=1e-6)  # single precision
    assert sum(probabilities(page, "baseline")) == pytest.approx(1, abs=1e-6)
    cell(page, "totalPrice", "A").fill("120")
    after = probabilities(page)
    assert after == pytest.approx(answer(address, totalPrice=120), abs=1e-6)
    assert after != before
    change = page.locator(".bar.main .change").first
    assert float(change.inner_text().replace("−", "-")) == pytest.approx(100 * (after[0] - before[0]), abs=0.051)
    page.get_by_role("button", name="Set as reference").click()
    expect(change).to_have_text("")
    page.get_by_role("button", name="Sort by probability").click()
    assert probabilities(page) == pytest.approx(sorted(after, reverse=True), abs=1e-6)  # another order of summation
    page.screenshot(path=tmp_path / "light.png", full_page=True)


def test_a_price_that_attracts_is_a_caveat_on_the_page(visit: Callable[..., Any]) -> None:
    """The more expensive of two alternatives is chosen in 18 of 20 sets."""
    took = np.tile([0, 1], 20) ^ np.repeat(np.arange(20) < 2, 2)
    table = {"trip": np.repeat(np.arange(20), 2), "took": took, "price": np.tile([1.0, 2.0], 20) + np.arange(40) % 7}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    model = MNL().fit(data, progress=False)
    assert len(model.caveats) == 1
    with serving(model) as where:
        page = visit(where)
        expect(page.locator("#caveats li")).to_have_text([f"T{model.caveats[0][1:]}."])
        page.wait_for_load_state("networkidle")  # the server stops only after it has answered all requests


def test_copies_share_their_probability(address: str, visit: Callable[..., Any]) -> None:
    """Uniform expansion: if every alternative is doubled, each copy has half the probability."""
    page = visit(link(address, take=2))
    a, b = probabilities(page)
    page.get_by_role("button", name="Copy A", exact=True).click()
    once = probabilities(page)
    assert once[0] == pytest.approx(once[1], rel=1e-5)  # single precision
    page.get_by_role("button", name="Copy B", exact=True).click()
    assert probabilities(page) == pytest.approx([a / 2, a / 2, b / 2, b / 2], rel=1e-5)
    page.get_by_role("button", name="Delete A copy", exact=True).click()
    page.get_by_role("button", name="Delete B copy", exact=True).click()
    assert probabilities(page) == pytest.approx([a, b], abs=1e-6)
    for _ in range(4):
        page.get_by_role("button", name="Undo").click()
    assert probabilities(page) == pytest.approx([a, b], abs=1e-6)
    expect(page.get_by_role("button", name="Undo")).to_be_disabled()
    for _ in range(2):
        page.get_by_role("button", name="Redo").click()
    assert probabilities(page) == pytest.approx([a / 2, a / 2, b / 2, b / 2], rel=1e-5)
    page.get_by_role("button", name="Redo").press("Control+z")
    assert probabilities(page) == pytest.approx(once, rel=1e-5)
    page.get_by_role("button", name="Redo").press("Control+Shift+z")
    assert len(probabilities(page)) == 4


def test_an_added_alternative_has_medians_of_the_set(address: str, visit: Callable[..., Any]) -> None:
    page = visit(link(address, take=1))
    expect(page.get_by_role("button", name="Delete A", exact=True)).to_be_disabled()
    with_pictures(page)
    expect(page.get_by_text("The map needs three alternatives")).to_be_visible()
    page.get_by_role("button", name="Add alternative").click()
    first = get(address, "v1/example")["sets"][0]["alternatives"][0]
    assert float(cell(page, "totalPrice", "New").input_value()) == pytest.approx(first["totalPrice"], rel=1e-6)
    cell(page, "totalPrice", "New").fill("100")
    cell(page, "totalPrice", "A").fill("300")
    page.get_by_role("button", name="Add alternative").click()
    assert cell(page, "totalPrice", "New 2").input_value() == "200"  # the median
    assert cell(page, "airlines", "New 2").input_value() == first["airlines"]
    assert sum(probabilities(page)) == pytest.approx(1, abs=1e-6)


def test_a_reload_and_a_link_restore_the_state(address: str, visit: Callable[..., Any]) -> None:
    page = visit(link(address, take=4))
    cell(page, "totalPrice", "B").fill("333.5")
    page.get_by_label("Name of alternative C").fill("Überflug ✈")
    page.get_by_label("dtd", exact=True).fill("9")
    with_pictures(page).get_by_label("Choice among").select_option("all")
    before = probabilities(page)
    page.wait_for_timeout(2_000)  # the address is written after a pause
    url = page.url
    page.reload()
    for there in (page, visit(url)):
        assert probabilities(there) == pytest.approx(before, abs=1e-6)  # float32: batches differ
        assert there.url == url
        assert cell(there, "totalPrice", "B").input_value() == "333.5"
        expect(there.get_by_label("Name of alternative Überflug ✈")).to_be_visible()
        expect(with_pictures(there).get_by_label("Choice among")).to_have_value("all")
    page.get_by_role("button", name="Reset to example").click()
    expect(page.locator("#table tbody tr")).to_have_count(len(get(address, "v1/example")["sets"][0]["alternatives"]))
    assert cell(page, "totalPrice", "B").input_value() != "333.5"


def test_a_link_of_another_model_is_reported(address: str, visit: Callable[..., Any]) -> None:
    page = visit(address + "#" + base64.urlsafe_b64encode(b'{"v": 1, "columns": ["fare"], "rows": []}').decode())
    expect(page.get_by_text("belongs to a model with different columns")).to_be_visible()
    expect(page.locator("#table tbody tr")).to_have_count(len(get(address, "v1/example")["sets"][0]["alternatives"]))


def test_the_alternative_on_the_map_moves_by_keyboard(address: str, visit: Callable[..., Any]) -> None:
    page = with_pictures(visit(link(address, take=4), height=1800))
    colours = page.locator("#map canvas").evaluate(
        "c => [...new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)].length"
    )
    assert colours > 20
    name = page.locator("[data-map=c] option:checked").inner_text()
    column = page.locator("[data-map=x]").input_value()
    before, bars = float(cell(page, column, name).input_value()), probabilities(page)
    page.locator("#map .handle").focus()
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    assert float(cell(page, column, name).input_value()) > before
    assert probabilities(page) != bars
    canvas, handle = (page.locator(f"#map {part}").bounding_box() for part in ("canvas", ".handle .knob"))
    moved = float(cell(page, column, name).input_value())
    page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
    page.mouse.down()
    page.mouse.move(canvas["x"] + 1, canvas["y"] + canvas["height"] / 2, steps=3)
    page.mouse.up()
    assert float(cell(page, column, name).input_value()) < moved
    expect(page.locator("#map [data-map=readout]")).to_contain_text(f"With {name} here")
    baseline = page.locator("#map [data-map=model]")
    baseline.select_option("baseline")  # in a logit, a third alternative does not change the shares
    shares = page.locator("#map [data-map=readout] strong")
    for _ in range(100):  # the response of the other model may still be pending
        with_third, without = shares.all_inner_texts()[:2]
        if with_third == without:
            break
        page.wait_for_timeout(100)
    assert with_third == without


def test_the_three_effects_are_placed_as_in_the_paper(address: str, visit: Callable[..., Any]) -> None:
    """a = (4, 6), b = (6, 4) on a map from 0 to 10: (3, 5), (3.5, 6.5) and (2, 8)."""
    page = visit(link(address, take=1))
    find = "async ([a, b, better]) => (await import('/effects.js')).findEffects(a, b, better)"
    places = page.evaluate(find, [[0.4, 0.6], [0.6, 0.4], [1, 1]])
    for name, at in {"attraction": (0.3, 0.5), "similarity": (0.35, 0.65), "compromise": (0.2, 0.8)}.items():
        assert places[name] == pytest.approx(at, abs=1e-12)
    mirrored = page.evaluate(find, [[0.6, 0.4], [0.4, 0.6], [-1, -1]])
    assert mirrored["attraction"] == pytest.approx((0.7, 0.5), abs=1e-12)
    assert page.evaluate(find, [[0.6, 0.6], [0.4, 0.4], [1, 1]]) == {}  # one is better on both


def test_flows_are_drawn_and_balanced(address: str, visit: Callable[..., Any]) -> None:
    """Inflow equals outflow for every alternative."""
    page = with_pictures(visit(link(address, take=4)))
    expect(page.locator("#flow .disc")).to_have_count(4)
    arrows = page.locator("#flow .arrow").evaluate_all(
        "all => all.map(({dataset}) => [dataset.from, dataset.to, dataset.flow].map(Number))"
    )
    net = np.zeros(4)
    for i, j, flow in arrows:
        net[[int(i), int(j)]] += (-flow, flow)
    assert len(arrows) == 12
    np.testing.assert_allclose(net, 0, atol=1e-5)  # single precision


def test_invalid_values_are_marked_and_nothing_is_lost(address: str, visit: Callable[..., Any]) -> None:
    page = visit(link(address, take=3), refusals=(422,))
    before = probabilities(page)
    price = cell(page, "totalPrice", "B")
    price.fill("12 hundred")
    expect(page.locator("#status")).to_contain_text("totalPrice of B: not a number")
    expect(price).to_have_attribute("aria-invalid", "true")
    assert probabilities(page) == before
    page.reload()
    expect(cell(page, "totalPrice", "B")).to_have_value("12 hundred")
    cell(page, "totalPrice", "B").fill("1e39")
    expect(page.locator("#status")).to_contain_text("B, column 'totalPrice': expected a number below 3.4e38")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    cell(page, "totalPrice", "B").fill("1,234.5")
    assert sum(probabilities(page)) == pytest.approx(1, abs=1e-6)
    expect(page.locator("#status")).to_have_text("3 alternatives.")
    cell(page, "totalPrice", "B").fill("99999999")
    expect(page.locator("#status")).to_contain_text("One value is outside the training data")


def test_the_response_to_the_last_edit_wins(address: str, visit: Callable[..., Any]) -> None:
    """The first response arrives after those to later edits."""
    page = settled(visit(link(address, take=3)))
    held: list[Any] = []

    def hold(route: Any) -> None:
        if len(held) < 2:  # one for each model
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/probabilities", hold)
    price = cell(page, "totalPrice", "A")
    price.fill("100")
    while len(held) < 2:
        page.wait_for_timeout(20)
    for text in ("2", "25", "250"):
        price.fill(text)
    for route in held:
        route.continue_()
    assert probabilities(page) == pytest.approx(answer(address, 3, totalPrice=250), abs=1e-6)


def test_everything_works_by_keyboard(address: str, visit: Callable[..., Any]) -> None:
    page = settled(visit(link(address, take=3)))
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    url = page.url
    page.keyboard.press("Enter")
    assert page.url == url  # it contains the state, not an anchor
    for _ in range(3):  # name, category, number
        page.keyboard.press("Tab")
    price = cell(page, "totalPrice", "A")
    expect(price).to_be_focused()
    before = float(price.input_value())
    page.keyboard.press("ArrowUp")
    typed = float(price.input_value())
    assert typed > before
    page.keyboard.press("Tab")
    expect(page.get_by_label("totalPrice of A, slider")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert float(price.input_value()) > typed
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(cell(page, "totalPrice", "B")).to_be_focused()
    page.keyboard.type("480")
    assert cell(page, "totalPrice", "B").input_value() == "480"
    outline = cell(page, "totalPrice", "B").evaluate("e => getComputedStyle(e).outlineStyle")
    assert outline == "solid"
    expect(page.locator("#live")).to_contain_text("Probabilities:")
    page.get_by_role("button", name="Copy C", exact=True).press("Enter")
    expect(page.get_by_label("Name of alternative C copy")).to_be_focused()
    page.get_by_role("button", name="Delete C copy", exact=True).press("Enter")
    expect(page.get_by_role("button", name="Delete C", exact=True)).to_be_focused()


def test_a_phone_needs_no_horizontal_scrolling(address: str, visit: Callable[..., Any], tmp_path: Path) -> None:
    page = settled(visit(link(address, take=4), width=360, height=740, color_scheme="light"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    expect(cell(page, "totalPrice", "B")).to_be_hidden()
    page.get_by_role("button", name="Edit B").click()
    cell(page, "totalPrice", "B").fill("150")
    assert sum(probabilities(page)) == pytest.approx(1, abs=1e-6)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g)")
        assert (max(map(int, background[:3])) < 64) == (scheme == "dark")
        page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)


def test_a_token_is_requested_and_kept_in_the_tab(
    address: str, models: tuple[PCMCNet, MNL], visit: Callable[..., Any]
) -> None:
    with serving(models[1], token="open sesame") as guarded:
        page = visit(link(address, take=2).replace(address, guarded), refusals=(401,))
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("rejected this token")).to_be_visible()
        page.get_by_label("Token").fill("open sesame")
        page.get_by_role("button", name="Continue").click()
        before = probabilities(page)
        page.reload()
        assert probabilities(page) == before
        assert "sesame" not in page.url
        page.close()


def test_labels_stay_unique_and_unsupported_panels_are_hidden(modes: str, visit: Callable[..., Any]) -> None:
    page = visit(modes, refusals=(422,))
    assert sum(probabilities(page)) == pytest.approx(1, abs=1e-9)
    for part in (page.locator("#flow"), page.locator("#who"), page.locator("[data-map=model]")):
        expect(part).to_be_hidden()
    expect(page.locator(".bar.baseline")).to_have_count(0)
    page.locator("button.copy").first.click()
    labels = page.locator("#table .name input").evaluate_all("all => all.map(one => one.value)")
    assert sorted(labels) == ["bike", "bus", "car", "train"]
    shown = probabilities(page)
    assert min(shown) > 0
    assert sum(shown) == pytest.approx(1, abs=1e-9)
    page.locator("button.copy").first.click()  # no label of the training table is left
    expect(page.locator("#status")).to_contain_text("was not in the training data")


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.slow)])
def test_labels_fit_and_an_indifferent_model_has_no_effects(width: int, visit: Callable[..., Any]) -> None:
    names = ["regional bus", "local train", "hired car"]
    table = {
        "trip": np.repeat(np.arange(20), 3),
        "mode": names * 20,
        "took": [1, 0, 0] * 20,
        "price": np.tile([1.0, 5.0, 9.0], 20) + np.repeat(np.arange(20), 3) % 7,
        "minutes": np.tile([60.0, 30.0, 10.0], 20) + np.repeat(np.arange(20), 3) % 5,
    }
    roles: dict[str, Any] = {"choice_set": "trip", "alternative": "mode", "chosen": "took"}
    data = ChoiceData.from_long(table, **roles, features=["price", "minutes"])
    with serving(Uniform().fit(data)) as where:
        page = settled(visit(where, width=width))
        fits = """lists => lists.map(list => {
            const pen = document.createElement("canvas").getContext("2d");
            const look = getComputedStyle(list);
            pen.font = `${look.fontWeight} ${look.fontSize} ${look.fontFamily}`;
            const room = list.clientWidth - parseFloat(look.paddingLeft) - parseFloat(look.paddingRight);
            return pen.measureText(list.value).width <= room;
        })"""
        assert page.locator("#table .name input").evaluate_all(fits) == [True] * 3
        with_pictures(page)
        expect(page.locator("#map")).to_contain_text("does not affect the prediction here, so no effects are marked")
        expect(page.locator("#map svg")).not_to_contain_text("is better")
        page.locator("#table .name input").first.fill("ferry")  # new labels are allowed
        expect(page.locator("#status")).to_have_text("3 alternatives.")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()


def test_texts_pictures_instants_lists_and_vectors_can_be_edited(
    rich: PCMCNet, draw: Callable[..., bytes], visit: Callable[..., Any], tmp_path: Path
) -> None:
    with serving(rich) as where:
        page = visit(where, width=1500)
        before = probabilities(page)
        assert before == pytest.approx(answer(where), abs=1e-6)
        expect(page.locator("#table td.image img").first).to_be_visible()
        cell(page, "about", "A").fill("Loud, by the station")
        cell(page, "services", "A").fill("pool, sauna")
        cell(page, "taste", "A").fill("1, 2, 3")
        expect(page.locator("#status")).to_contain_text("taste of A: expected 4 numbers, got 3")
        cell(page, "taste", "A").fill("1, 2, 3, -4.5")
        page.get_by_label("at", exact=True).fill("2024-03-02T23:15:00")
        (tmp_path / "room.png").write_bytes(draw(250, (30, 20)))
        cell(page, "photo", "A").set_input_files(tmp_path / "room.png")
        expect(page.locator("#table td.image img").first).to_have_js_property("naturalWidth", 30)
        after = probabilities(page)
        sent = get(where, "v1/example")
        (one,) = sent["sets"]
        one["individual"]["at"] = "2024-03-02T23:15:00"
        one["alternatives"][0] |= {
            "photo": base64.b64encode(draw(250, (30, 20))).decode(),
            "about": "Loud, by the station",
            "services": ["pool", "sauna"],
            "taste": [1, 2, 3, -4.5],
        }
        found = get(where, "v1/probabilities", sent)["sets"][0]["probabilities"]
        assert after == pytest.approx(found, abs=1e-6)
        assert after != pytest.approx(before, abs=1e-4)
        page.get_by_role("button", name="pool, services of A").click()  # removes it from the list
        expect(cell(page, "services", "A")).to_have_value("sauna")
        assert probabilities(page) != after
        page.get_by_role("button", name="Copy A", exact=True).click()
        assert sum(probabilities(page)) == pytest.approx(1, abs=1e-6)  # single precision
        page.wait_for_timeout(1_000)  # the address is written after a pause
        shown = probabilities(page)
        page.reload()
        assert probabilities(page) == shown
        expect(cell(page, "about", "B")).to_have_value(re.compile("."))
        page.screenshot(path=tmp_path / "rich.png", full_page=True)
        page.close()


def test_large_pictures_are_scaled_and_invalid_ones_reported(
    rich: PCMCNet, visit: Callable[..., Any], tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).integers(255, size=(600, 900, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "large.png")
    (tmp_path / "notes.txt").write_text("no picture")
    with serving(rich) as where:
        page = settled(visit(where, width=360, height=740))
        page.get_by_role("button", name="Edit A").click()
        page.get_by_role("button", name="Edit A").click()
        cell(page, "photo", "A").set_input_files(tmp_path / "notes.txt")
        expect(page.locator("#table td.image").first).to_contain_text("not a picture")
        cell(page, "photo", "A").set_input_files(tmp_path / "large.png")
        expect(page.locator("#table td.image img").first).to_have_js_property("naturalWidth", 128)
        assert sum(probabilities(page)) == pytest.approx(1, abs=1e-6)  # single precision
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.screenshot(path=tmp_path / "phone.png", full_page=True)
        page.close()
