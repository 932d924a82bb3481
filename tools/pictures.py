"""Take the screenshots of the report and the served page for the documentation: ``python -m tools.pictures``.

The report explains a PCMC-Net on trips between cities that it was not fitted to. Its findings are printed, because the
documentation quotes them. The page serves a small PCMC-Net and a logit that are fitted to the itinerary table. Its
market view shows the trips between cities. Needs Chromium and playwright: see ``make browser``.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pcmcnet as pn
from pcmcnet.data import Schema
from pcmcnet.datasets import intercity, packaged

log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
NAMES = {
    "totalPrice": {"name": "Price"},
    "totalTripDurationMinutes": {"name": "Trip duration", "unit": "min"},
    "stayDurationMinutes": {"name": "Stay", "unit": "min"},
    "nFlights": {"name": "Flights"},
    "nAirlines": {"name": "Airlines on the way"},
    "airlines": {"name": "Airline"},
    "outDepTime": {"name": "Departure"},
    "outArrTime": {"name": "Arrival"},
    "dtd": {"name": "Days to departure"},
}
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_WIDE, _PHONE = {"width": 1200, "height": 1500}, {"width": 390, "height": 844}


def main() -> None:
    """Fit the models, explain and serve them, and take the screenshots."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("PCMCNET_CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        _shoot_report(browser, Path(folder))
        _shoot_page(browser, Path(folder))
        _shoot_market(browser, Path(folder))
        browser.close()


def _shoot_report(browser: Any, place: Path) -> None:
    train, test = intercity.read().split((0.8, 0.2), seed=0)
    net = pn.PCMCNet().fit(train, seed=0, progress=False)
    explanation = pn.explain(net, test, title="Trips between cities", progress=False)
    for finding in explanation.findings:
        log.info("- %s (%s)", finding.text, finding.figures)
    report = explanation.save(place / "report.html")
    for name, size in (("explain.png", _WIDE), ("explain-phone.png", _PHONE)):
        _shoot(browser, report.as_uri(), ROOT / "docs" / "insight" / name, size)


def _shoot_page(browser: Any, place: Path) -> None:
    data = pn.ChoiceData.from_schema(*_table())
    net = pn.PCMCNet(hidden=(32, 32), epochs=6, weight_decay=1.0).fit(data, seed=0, progress=False)
    net.save(place / "itineraries")
    pn.MNL().fit(data, progress=False).save(place / "logit")
    with _serving(place / "itineraries", "--baseline", place / "logit") as address:
        _shoot(browser, address, ROOT / "docs" / "page.png", {"width": 1400, "height": 800}, act=_scenario)


def _shoot_market(browser: Any, place: Path) -> None:
    """Take pictures of the market: the page with a network, and a phone in dark mode with a logit and its intervals."""
    data = intercity.read()
    pn.PCMCNet().fit(data, seed=0, progress=False).save(place / "trips")
    pn.MNL().fit(data, progress=False).save(place / "trips-logit")
    with _serving(place / "trips", "--table", intercity.PATH) as address:
        _shoot(browser, address, ROOT / "docs" / "market.png", {"width": 1250, "height": 800}, act=_dearer_train)
    with _serving(place / "trips-logit", "--table", intercity.PATH) as address:
        file = ROOT / "docs" / "market-phone.png"
        _shoot(browser, address, file, _PHONE, act=_dearer_train, color_scheme="dark", full_page=False)


def _table() -> tuple[Any, Any]:
    """Return the itinerary table and its schema, with readable column names."""
    table, schema = packaged.long_form("itinerary")
    return table, Schema.from_dict({**schema.to_dict(), "columns": NAMES})


@contextmanager
def _serving(*words: str | Path) -> Iterator[str]:
    """Run ``pcmcnet serve`` during the block; yield its address."""
    command = [sys.executable, "-m", "pcmcnet", "serve", *map(str, words), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = server.stderr.readline()  # serving ... at http://... (Ctrl+C stops)
        yield next(word for word in line.split() if word.startswith("http"))
    finally:
        server.terminate()
        server.wait()


def _scenario(page: Any) -> None:
    """Save a scenario and make the first alternative cheaper."""
    page.wait_for_selector("[aria-busy=false]")
    page.get_by_role("button", name="Save as scenario").click()
    page.get_by_label("Price of A", exact=True).fill("50000")


def _dearer_train(page: Any) -> None:
    """Compare a dearer train on business trips with the same train at a higher speed, and find the best prices."""
    form = page.locator("[data-market=form]")
    form.locator("[data-change=labels]").select_option("train")
    form.locator("[data-change=where]").select_option("purpose")
    form.get_by_role("button", name="Apply").click()
    page.wait_for_timeout(1500)
    page.get_by_role("button", name="Save as scenario").click()
    page.locator("[data-market=by]").select_option("purpose")
    form.locator("[data-change=column]").select_option("time")
    form.locator("[data-change=how]").select_option("fall")
    form.locator("[data-change=value]").fill("15")
    form.locator("[data-change=where]").select_option("")
    form.get_by_role("button", name="Apply").click()
    page.wait_for_timeout(2500)
    for name in ("train", "bus"):
        page.get_by_role("group", name="Your alternatives").get_by_label(name, exact=True).check()
    page.wait_for_timeout(1500)
    page.locator("[data-curve=of]").select_option("train")
    page.get_by_role("button", name="Draw the curves").click()
    page.wait_for_selector("[data-curve=shares] svg")
    page.get_by_role("button", name="Find the best prices").click()
    page.wait_for_selector("[data-best=facts] dt", timeout=60_000)
    page.locator("[data-market=tiles]").scroll_into_view_if_needed()


def _shoot(
    browser: Any,
    address: str,
    file: Path,
    size: dict[str, int],
    act: Any = None,
    *,
    color_scheme: str = "light",
    full_page: bool | None = None,
) -> None:
    page = browser.new_context(viewport=size, color_scheme=color_scheme).new_page()
    page.goto(address)
    page.wait_for_timeout(4000)
    if act is not None:
        act(page)
        page.wait_for_timeout(4000)
    page.screenshot(path=file, full_page=act is not None if full_page is None else full_page)
    page.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
