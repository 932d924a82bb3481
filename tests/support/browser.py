"""Chromium for tests, and axe-core's judgement of what it shows."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# The first one has no windows: a third less work than the others, which draw theirs unseen.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("PCMCNET_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: run `make browser`, or name the program in PCMCNET_CHROMIUM"
)
PATIENCE = 30_000  # milliseconds, for a machine that does much else
_ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # One process for a page, and none for the list below the address bar, which each new window would load.
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
    """Return what axe-core finds wrong with a page, each with the first element."""
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("needs axe-core: pip install -c constraints.txt axe-playwright-python")
    page.evaluate((Path(found.origin).parent / "axe.min.js").read_text("utf-8"))
    finish = "document.getAnimations().filter((one) => one instanceof CSSTransition).forEach((one) => one.finish())"
    page.evaluate(finish)  # half a fade has half a contrast
    told = page.evaluate(
        "async (options) => (await axe.run(options)).violations.map((v) => `${v.id}: ${v.nodes[0].html}`)",
        {"resultTypes": ["violations"]},  # what is right is not described
    )
    return list(told)
