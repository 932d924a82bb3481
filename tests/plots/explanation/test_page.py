"""The page is whole in itself, well formed, safe against what a table may hold, and drawn by a real browser."""

import importlib.util
import json
import os
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pcmcnet import Explanation
from pcmcnet.plots.explanation.sections import sections_of
from pcmcnet.reports.html import plotly_script, to_html
from pcmcnet.reports.sections import Figure

NAMES = ["chain", "logit", "ranking", "unknown", "table"]
VOID = {"meta", "br", "img", "link", "input", "hr"}
CHROMIUM = os.environ.get("PCMCNET_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="needs plotly: pip install plotly")


class Elements(HTMLParser):
    """The elements of a page, with a check that each is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[int, str] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        at = len(self.found) - 1
        self.words[at] = self.words.get(at, "") + data


@pytest.fixture(scope="module")
def pages(explained: dict[str, Explanation]) -> dict[str, str]:
    return {name: to_html(found.title, sections_of(found)) for name, found in explained.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_well_formed_and_refers_to_nothing_outside(name: str, pages: dict[str, str]) -> None:
    elements = Elements(pages[name])
    referred = [value for _, found in elements.found for key, value in found.items() if key in ("src", "href")]
    assert referred
    assert all(value is not None and value.startswith("#") for value in referred)
    policy = next(found["content"] for tag, found in elements.found if found.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


@pytest.mark.parametrize("name", NAMES)
def test_contents_lead_to_the_sections(name: str, pages: dict[str, str], explained: dict[str, Explanation]) -> None:
    elements = Elements(pages[name])
    ids = [found["id"] for _, found in elements.found if "id" in found]
    assert len(ids) == len(set(ids))
    links = [found["href"] for tag, found in elements.found if tag == "a"]
    assert links == [f"#{section.name}" for section in sections_of(explained[name])]
    assert {link[1:] for link in links if link} <= set(ids)


@pytest.mark.parametrize("name", NAMES)
def test_figures_lie_in_the_page_as_json_each_with_its_place_and_its_numbers(
    name: str, pages: dict[str, str], explained: dict[str, Explanation]
) -> None:
    elements = Elements(pages[name])
    figures = [block for s in sections_of(explained[name]) for block in s.blocks if isinstance(block, Figure)]
    scripts = [k for k, (tag, found) in enumerate(elements.found) if tag == "script" and "type" in found]
    for k, figure in zip(scripts, figures, strict=True):
        assert elements.found[k - 1][1]["class"] == "plot"
        assert json.loads(elements.words[k])["data"] == json.loads(json.dumps(figure.traces))
    noscripts = sum(tag == "noscript" for tag, _ in elements.found)
    assert noscripts == 1 + len(figures)
    assert sum(tag == "details" for tag, _ in elements.found) >= len(figures)


def test_the_library_lies_in_the_page_once(pages: dict[str, str]) -> None:
    library = plotly_script()
    assert "</script" not in library
    assert len(library) > 1_000_000
    assert pages["chain"].count(library) == 1


def test_what_a_table_holds_is_shown_and_never_markup(pages: dict[str, str], evil: str) -> None:
    text = pages["chain"].replace(plotly_script(), "")
    assert evil not in text
    assert "<a href='" not in text
    assert evil in "".join(Elements(text).words.values())


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, or its path in PCMCNET_CHROMIUM")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_draws_every_figure_without_a_complaint_and_fetches_nothing(
    width: int, pages: dict[str, str], tmp_path: Path
) -> None:
    browsers: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = tmp_path / "report.html"
    path.write_text(pages["chain"], "utf-8")
    with browsers.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": width, "height": 900})
        said: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on(
            "request", lambda request: None if request.url.startswith(("file:", "data:")) else said.append(request.url)
        )
        tab.goto(path.as_uri())
        places = tab.locator(".plot").count()
        tab.wait_for_function("n => document.querySelectorAll('.plot svg.main-svg').length >= n", arg=places)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert said == []
