"""The panel of the best offer on the page."""

from collections.abc import Callable
from typing import Any

from browser import needs_chromium, violations
from served_page import cell, expect, get, link, settled

pytestmark = needs_chromium


def test_the_best_offer_is_shown_until_the_next_edit(address: str, visit: Callable[..., Any]) -> None:
    page = settled(visit(link(address, take=4)))
    panel = page.get_by_role("region", name="Best offer")
    panel.get_by_label("Maximise").select_option("revenue from totalPrice")
    panel.get_by_label("Always show").select_option("A")
    panel.get_by_label("Show at most").fill("3")
    panel.get_by_role("button", name="Find the best offer").click()
    answer = panel.locator("[data-offer=result]")
    expect(answer).to_contain_text("proven to be the best offer")
    example = get(address, "v1/example")["sets"][0]
    example["alternatives"] = example["alternatives"][:4]
    found = get(address, "v1/offer", {"set": example, "revenue": "totalPrice", "keep": [0], "most": 3})
    shown = ", ".join("ABCD"[k] for k in found["shown"])
    expect(panel.get_by_role("status")).to_contain_text(f"Best offer: {shown}.")
    expect(answer).to_contain_text(", ".join("ABCD"[k] for k in found["dropped"]))
    assert violations(settled(page)) == []
    cell(page, "totalPrice", "B").fill("150")
    expect(answer).to_be_hidden()


def test_errors_of_the_server_are_shown_in_the_panel(address: str, visit: Callable[..., Any]) -> None:
    page = settled(visit(link(address, take=3), refusals=(422,)))
    panel = page.get_by_role("region", name="Best offer")
    panel.get_by_label("Show at least").fill("3")
    panel.get_by_label("Show at most").fill("2")
    panel.get_by_role("button", name="Find the best offer").click()
    expect(panel).to_contain_text("not below 'least'")
