"""Chromium for tests, and accessibility checks by axe-core."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# The first has no windows and a third less work than the others, which draw hidden ones.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("PCMCNET_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: run `make browser`, or name the program in PCMCNET_CHROMIUM"
)
PATIENCE = 30_000  # milliseconds, for a busy machine
_ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # One process per page, and none for the suggestions of the address bar, which each window would load.
    "--disable-site-isolation-trials",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,IsolateOrigins,site-per-process",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser with a new profile."""
    why = "needs playwright: pip install -c constraints.txt playwright"
    play: Any = pytest.importorskip("playwright.sync_api", reason=why)
    with play.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


def violations(page: Any) -> list[str]:
    """Return the violations that axe-core finds on a page, each with its first element."""
    package = find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("needs axe-core: pip install -c constraints.txt axe-playwright-python")
    page.evaluate((Path(package.origin).parent / "axe.min.js").read_text("utf-8"))
    finish = "document.getAnimations().filter((one) => one instanceof CSSTransition).forEach((one) => one.finish())"
    page.evaluate(finish)  # a half-finished fade has less contrast
    report = page.evaluate(
        "async (options) => (await axe.run(options)).violations.map((v) => `${v.id}: ${v.nodes[0].html}`)",
        {"resultTypes": ["violations"]},  # passed checks are left out
    )
    return list(report)
