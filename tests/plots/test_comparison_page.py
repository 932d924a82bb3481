import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from browser import chromium, needs_chromium, violations
from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import Comparison, Row
from pcmcnet.plots import comparison_page, write_comparison_page

DESIGN: dict[str, Any] = {
    "folds": 5,
    "split": None,
    "by": None,
    "valid": 0.1,
    "seed": 3,
    "resamples": 1000,
    "table": "abc123",
    "machine": "an abacus",
    "device": "cpu",
    "version": "0.1",
    "versions": {"python": "3.11", "torch": "2.13"},
}
EVIL = "<script>alert('x')</script>&\""
VOID = {"meta", "line", "circle"}


class Page(HTMLParser):
    """Tags in their order with their attributes, the text in them, and what was opened and never closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def comparison(**change: Any) -> Comparison:
    def row(label: str, **facts: Any) -> Row:
        return Row(**{"label": label, "model": "net", "options": {"hidden": (8,), "note": EVIL}, **facts})

    cost = {"fit_seconds": 2.0, "predict_seconds": 0.1, "parameters": 12}
    rows = (
        row(
            EVIL,
            values={"nll": 0.8, "top_1": 0.6},
            intervals={"nll": (0.7, 0.9), "top_1": (0.5, 0.7)},
            difference=0.0,
            **cost,
        ),
        row("seed", gives="scores", values={"nll": np.inf, "top_1": 0.6}, n_impossible=1, **cost),
        row("broken", error=f"no luck {EVIL}"),
    )
    facts: dict[str, Any] = {"n_sets": 60, "best": EVIL, "top": (1,), "uniform": {"nll": 1.1, "top_1": 0.3}}
    return Comparison(**{"rows": rows, **facts, "design": DESIGN, **change})


def test_the_page_is_well_formed_whole_and_escaped() -> None:
    text = comparison_page(comparison(), title=f"Models {EVIL}")
    page = Page(text)
    assert page.open == []
    assert "://" not in text
    assert "script" not in {tag for tag, _ in page.tags}
    assert not any(name in {"src", "href", "onload"} for _, attributes in page.tags for name in attributes)
    assert page.texts["h1"] == [f"Models {EVIL}"]
    assert page.texts["th"].count(EVIL) == 1
    assert "failed: no luck " + EVIL in page.texts["td"]


def test_the_table_is_that_of_the_comparison() -> None:
    found = comparison()
    cells = Page(comparison_page(found)).texts
    head, first, second, _ = found.cells()
    assert cells["th"][: len(head)] == head
    assert cells["td"][:12] == [*first[1:], *second[1:]]


def test_the_chart_has_the_numbers_of_the_table_where_they_belong() -> None:
    """The axis of NLL spans 0.7 to 1.1 and a margin of 0.02: 0.8 lies at 120 + 250 0.12 / 0.44."""
    page = Page(comparison_page(comparison()))
    assert f"{EVIL}: 0.8000 [0.7000, 0.9000]" in page.texts["title"]
    circles = [attributes for tag, attributes in page.tags if tag == "circle"]
    assert len(circles) == 3  # one NLL, since the other is infinite, and two accuracies
    assert float(circles[0]["cx"] or 0) == pytest.approx(120 + 250 * 0.12 / 0.44, abs=0.05)  # to a tenth
    drawings = re.findall(r"<svg.*?</svg>", comparison_page(comparison()), re.DOTALL)
    assert [len(ElementTree.fromstring(drawing).findall("g")) for drawing in drawings] == [1, 2]
    assert any("seed: infinite NLL" in note for note in page.texts["p"])


def test_the_page_tells_how_it_was_measured() -> None:
    text = " ".join(part for parts in Page(comparison_page(comparison())).texts.values() for part in parts)
    for fact in ("5-fold cross-validation", "5 folds", "60", "abc123", "an abacus; device cpu", "torch 2.13", "10%"):
        assert fact in text
    assert "hidden=(8,)" in text


def test_the_page_suits_phones_paper_and_the_dark() -> None:
    text = comparison_page(comparison())
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "@media (prefers-color-scheme: dark)" in text
    assert "@media print" in text
    assert re.search(r"\.wide \{ overflow-x: auto;", text)


def test_a_page_of_failures_has_no_chart() -> None:
    failed = tuple(row for row in comparison().rows if row.error is not None)
    text = comparison_page(comparison(rows=failed, best=None))
    assert "Every model failed" in text
    assert "<svg" not in text


def test_a_split_is_told_apart_from_folds() -> None:
    text = comparison_page(comparison(design={**DESIGN, "folds": 1, "split": [0.8, 0.2], "by": "person"}))
    assert "one split, 80% to fit and 20% to test" in text
    assert "person" in text


def test_the_page_is_written_whole_and_by_its_name(tmp_path: Path) -> None:
    path = write_comparison_page(comparison(), tmp_path / "page.html", title="Title")
    assert path.read_text("utf-8") == comparison_page(comparison(), title="Title")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(InputError, match=r"ends in \.html, got 'page.htm'"):
        write_comparison_page(comparison(), tmp_path / "page.htm")


@pytest.mark.parametrize("unseen", ["\x1b[2J", "\x9b2J", "\u202e", "\x00", "\x7f"])
def test_what_cannot_be_seen_is_written_out(unseen: str) -> None:
    rows = (Row(label="net", model="net", options={unseen: unseen}, error=f"a{unseen}b"),)
    text = comparison_page(
        comparison(rows=rows, best=None, design={**DESIGN, "by": f"c{unseen}d"}), title=f"e{unseen}f"
    )
    assert unseen[0] not in text
    shown = unseen[0].encode("unicode_escape").decode() + unseen[1:]
    for around in ("a{}b", "c{}d", "e{}f"):
        assert around.format(shown) in text


@needs_chromium
@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_axe_finds_nothing_wrong(scheme: str, tmp_path: Path) -> None:
    file = write_comparison_page(comparison(), tmp_path / "comparison.html")
    with chromium() as browser:
        for width in (390, 1200):
            page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
            page.goto(file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert violations(page) == []
