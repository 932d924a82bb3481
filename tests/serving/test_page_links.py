"""Links to the page, and choice sets that the model or the baseline cannot predict."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from browser import needs_chromium
from choice_tables import trips
from pcmcnet.data import ChoiceData
from pcmcnet.models import MNL, PCMCNet
from served_page import cell, expect, get, link, probabilities, serving, settled

pytestmark = needs_chromium
Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def with_constants() -> Iterator[str]:
    """Serve a network and, as the baseline, a logit with constants, which cannot predict unseen labels."""
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "alternative": "mode"}
    data = ChoiceData.from_long(trips(40, seed=0), **roles, features=["price", "minutes"])
    net = PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0).fit(data, progress=False)
    with serving(net, MNL().fit(data, progress=False)) as where:
        yield where


def test_a_baseline_without_an_answer_does_not_hide_the_model(with_constants: str, visit: Visit) -> None:
    page = settled(visit(with_constants, refusals=(422,)))
    before = len(probabilities(page))
    page.get_by_role("button", name="Add alternative").click()
    new = page.locator("#table .name input").last
    new.fill("zeppelin")
    shown = probabilities(page)
    assert len(shown) == before + 1
    assert sum(shown) == pytest.approx(1, abs=1e-6)
    assert min(shown) > 0
    expect(page.locator("#status")).to_contain_text("The baseline cannot predict this choice set: zeppelin")
    expect(page.locator(".bar.baseline .value").first).to_have_text("–")
    page.get_by_role("button", name="Save as scenario").click()
    expect(page.locator("#scenarios tbody tr")).to_have_count(before + 1)
    other = settled(visit(page.url, refusals=(422,)))  # the link works
    assert probabilities(other) == pytest.approx(shown, abs=1e-6)
    new.fill(get(with_constants, "v1/example")["sets"][0]["alternatives"][0]["mode"])
    expect(page.locator("#status")).to_contain_text("more than once")
    for _ in range(4):  # two labels, the scenario and the alternative
        page.get_by_role("button", name="Undo").click()
    assert len(probabilities(page, "baseline")) == before


def test_broken_states_stay_in_the_tab(address: str, visit: Visit) -> None:
    page = settled(visit(link(address, take=3), refusals=(422,)))
    cell(page, "totalPrice", "A").fill("222")
    before = probabilities(page)
    page.wait_for_timeout(500)  # the address is written after a pause
    for broken in ("1e39", "12 hundred"):
        cell(page, "totalPrice", "B").fill(broken)
        expect(page.locator("#status")).to_have_class("status bad")
        other = visit(page.url)
        assert probabilities(other) == pytest.approx(before, abs=1e-6)
        expect(cell(other, "totalPrice", "A")).to_have_value("222")
        other.close()
    page.reload()  # the tab keeps what was typed
    expect(cell(page, "totalPrice", "B")).to_have_value("12 hundred")


@pytest.mark.parametrize("value", [1e39, "12 hundred"])
def test_the_example_replaces_a_broken_link(value: Any, address: str, visit: Visit) -> None:
    good = visit(link(address, take=3))
    change = """async (value) => {
        const text = atob(location.hash.slice(1).replaceAll("-", "+").replaceAll("_", "/"));
        const state = JSON.parse(text);
        state.rows[1][3] = value;
        state.rows[1][4] = value;
        return btoa(JSON.stringify(state));
    }"""
    settled(good)
    broken = address + "#" + good.evaluate(change, value)
    page = settled(visit(broken, refusals=(422,)))
    expect(page.locator("#notices")).to_contain_text("cannot be predicted, so the example is shown instead")
    assert len(probabilities(page)) == len(get(address, "v1/example")["sets"][0]["alternatives"])


def test_copy_link_works_without_https(address: str, visit: Visit) -> None:
    """Browsers hide the clipboard from pages on plain http."""
    page = settled(visit(link(address, take=3)))
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.evaluate(
        "document.addEventListener('copy', () => { window.copied = String(document.getSelection()) "
        "|| document.activeElement.value; })"
    )
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#share")).to_have_text("Copied")
    assert page.evaluate("window.copied") == page.url


def test_number_fields_look_like_other_fields(address: str, visit: Visit) -> None:
    page = settled(visit(link(address, take=3), color_scheme="dark"))
    look = "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).borderRadius]"
    of_number = page.get_by_label("Show at most").evaluate(look)
    of_select = page.get_by_label("Always show").evaluate(look)
    assert of_number == of_select
    assert np.all(np.array([int(v) for v in of_number[0][4:-1].split(",")]) < 64)


def test_a_wide_header_has_one_row(address: str, visit: Visit) -> None:
    page = settled(visit(address, width=1400))
    assert page.locator("header").bounding_box()["height"] < 70
