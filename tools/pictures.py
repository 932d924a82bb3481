"""Take the screenshots of the report and the served page for the documentation: ``python -m tools.pictures``.

The report explains a PCMC-Net on trips between cities that it was not fitted to. Its findings are printed, because the
documentation quotes them. The page serves a small PCMC-Net and a logit that are fitted to the itinerary table. Needs
Chromium and playwright: see ``make browser``.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
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
    server, address = _serve(place)
    try:
        _shoot(browser, address, ROOT / "docs" / "page.png", {"width": 1400, "height": 800}, act=_scenario)
    finally:
        server.terminate()
        server.wait()


def _table() -> tuple[Any, Any]:
    """Return the itinerary table and its schema, with readable column names."""
    table, schema = packaged.long_form("itinerary")
    return table, Schema.from_dict({**schema.to_dict(), "columns": NAMES})


def _serve(place: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a server of the saved models; return it with its address."""
    words = ["serve", str(place / "itineraries"), "--baseline", str(place / "logit"), "--port", "0"]
    server = subprocess.Popen([sys.executable, "-m", "pcmcnet.cli", *words], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    line = server.stderr.readline()  # serving ... at http://... (Ctrl+C stops)
    return server, next(word for word in line.split() if word.startswith("http"))


def _scenario(page: Any) -> None:
    """Save a scenario and make the first alternative cheaper."""
    page.wait_for_selector("[aria-busy=false]")
    page.get_by_role("button", name="Save as scenario").click()
    page.get_by_label("Price of A", exact=True).fill("50000")


def _shoot(browser: Any, address: str, file: Path, size: dict[str, int], act: Any = None) -> None:
    page = browser.new_context(viewport=size).new_page()
    page.goto(address)
    page.wait_for_timeout(4000)
    if act is not None:
        act(page)
        page.wait_for_timeout(4000)
    page.screenshot(path=file, full_page=act is not None)
    page.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
