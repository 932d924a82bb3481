"""The panel of the best offer on the page."""

from collections.abc import Callable
from typing import Any

import numpy as np

from browser import needs_chromium, violations
from pcmcnet.data import ChoiceData
from pcmcnet.models import Uniform
from served_page import cell, expect, get, link, serving, settled

pytestmark = needs_chromium


def test_the_best_offer_is_shown_until_the_next_edit(address: str, visit: Callable[..., Any]) -> None:
    page = settled(visit(link(address, take=4)))
    panel = page.get_by_role("region", name="Best offer")
    find = panel.get_by_role("button", name="Find the best offer")
    expect(find).to_be_disabled()
    expect(panel).to_contain_text("no outside option: everyone chooses one of the alternatives shown")
    goals = panel.get_by_label("Maximise").locator("option")
    expect(goals).to_have_text([f"share of {name}" for name in "ABCD"])  # no column is declared as money
    panel.get_by_label("No column is declared as money").select_option("totalPrice")
    expect(panel.get_by_label("Maximise")).to_have_value("revenue totalPrice")
    panel.get_by_label("Always show").select_option("A")
    expect(panel).not_to_contain_text("no outside option", use_inner_text=True)
    panel.get_by_label("Show at most").fill("3")
    find.click()
    answer = panel.locator("[data-offer=result]")
    expect(answer).to_contain_text("proven to be the best offer")
    example = get(address, "v1/example")["sets"][0]
    example["alternatives"] = example["alternatives"][:4]
    found = get(address, "v1/offer", {"set": example, "revenue": "totalPrice", "keep": [0], "most": 3})
    shown = ", ".join("ABCD"[k] for k in found["shown"])
    expect(panel.get_by_role("status")).to_contain_text(f"Best offer: {shown}.")
    expect(answer).to_contain_text(", ".join("ABCD"[k] for k in found["dropped"]))
    expect(answer).to_contain_text("Without an outside option, everyone chooses one of the alternatives shown.")
    assert violations(settled(page)) == []
    cell(page, "totalPrice", "B").fill("150")
    expect(answer).to_be_hidden()


def test_errors_of_the_server_are_shown_in_the_panel(address: str, visit: Callable[..., Any]) -> None:
    page = settled(visit(link(address, take=3), refusals=(422,)))
    panel = page.get_by_role("region", name="Best offer")
    panel.get_by_label("Always show").select_option("A")
    panel.get_by_label("Show at least").fill("3")
    panel.get_by_label("Show at most").fill("2")
    panel.get_by_role("button", name="Find the best offer").click()
    expect(panel).to_contain_text("not below 'least'")


def test_revenue_is_offered_for_columns_declared_as_money(visit: Callable[..., Any]) -> None:
    table = {
        "trip": np.repeat(np.arange(20), 3),
        "took": [1, 0, 0] * 20,
        "price": np.tile([1.0, 5.0, 9.0], 20) + np.repeat(np.arange(20), 3) % 7,
        "minutes": np.tile([60.0, 30.0, 10.0], 20) + np.repeat(np.arange(20), 3) % 5,
    }
    names = {"price": {"unit": "EUR"}, "minutes": {"unit": "min"}}
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "columns": names}
    data = ChoiceData.from_long(table, **roles, features=["price", "minutes"])
    with serving(Uniform().fit(data)) as where:
        page = settled(visit(where))
        panel = page.get_by_role("region", name="Best offer")
        expected = ["revenue from price (EUR)", *(f"share of {name}" for name in "ABC")]
        expect(panel.get_by_label("Maximise").locator("option")).to_have_text(expected)
        expect(panel.get_by_text("No column is declared as money")).to_be_hidden()
        page.close()
