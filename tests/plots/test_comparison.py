"""A comparison as a picture and as a page."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes

from browser import chromium, needs_chromium, violations
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.errors import InputError
from pcmcnet.evaluation import compare
from pcmcnet.evaluation.comparison import Comparison, ComparisonRow
from pcmcnet.models import PCMCNet
from pcmcnet.plots import ComparisonChart, comparison_chart, comparison_page, draw_comparison, write_comparison_page
from pcmcnet.plots.style import BLUE, ORANGE

DESIGN: dict[str, Any] = {"folds": 5, "split": None, "by": None, "valid": 0.0, "seed": 0}


def row(label: str, **facts: Any) -> ComparisonRow:
    return ComparisonRow(**{"label": label, "model": "net", "options": {}, **facts})


def comparison(rows: tuple[ComparisonRow, ...], **change: Any) -> Comparison:
    facts: dict[str, Any] = {"n_sets": 6, "best": None, "top": (1,), "uniform": {"nll": 1.1, "top_1": 0.3}}
    return Comparison(rows=rows, **{**facts, "design": DESIGN, **change})


ROWS = (
    row("uni$form", values={"nll": 1.1, "top_1": 0.3}, intervals={"nll": (1.0, 1.2), "top_1": (0.3, 0.3)}),
    row("broken", error="no luck"),
    row("net", values={"nll": 0.8, "top_1": 0.6}, intervals={"nll": (0.7, np.inf), "top_1": (0.5, 0.7)}),
    row("forest", gives="scores", values={"nll": 0.9, "top_1": 0.5}),
    row("cheap", gives="ranking", values={"top_1": 0.4}, intervals={"top_1": (0.2, 0.6)}),
    row("sure", values={"nll": np.inf, "top_1": 0.2}, intervals={"nll": (2.0, np.inf), "top_1": (0.1, 0.3)}),
)


@pytest.fixture
def chart() -> ComparisonChart:
    return comparison_chart(comparison(ROWS, best="net"))


def test_lines_are_the_rows_without_failures(chart: ComparisonChart) -> None:
    assert chart.labels == ("uni$form", "net", "forest", "cheap", "sure")
    assert chart.best == 1
    assert chart.left_out == ("broken failed", "sure: infinite NLL", "cheap: a ranking, without NLL")


def test_dots_are_the_values_of_the_table(chart: ComparisonChart) -> None:
    nll, top = chart.panels
    assert (nll.metric, nll.caption, nll.reference) == ("NLL", "NLL (lower is better)", 1.1)
    assert (top.metric, top.caption, top.reference) == ("TOP 1", "TOP 1 (higher is better)", 0.3)
    assert [tuple(dot) for dot in nll.dots] == [
        (0, 1.1, 1.0, 1.2, False),
        (1, 0.8, 0.7, np.inf, False),
        (2, 0.9, 0.9, 0.9, True),
    ]
    assert [dot.line for dot in top.dots] == [0, 1, 2, 3, 4]
    assert not any(dot.marked for dot in top.dots)


def test_limits_include_all_finite_values_with_a_margin(chart: ComparisonChart) -> None:
    """From 0.7 to 1.2, with a margin of 0.5 / 20 on each side."""
    assert chart.panels[0].limits == pytest.approx((0.675, 1.225), rel=1e-12)


def test_equal_values_still_have_an_axis() -> None:
    same = row("a", values={"nll": 1.1, "top_1": 0.3})
    assert comparison_chart(comparison((same,))).panels[1].limits == pytest.approx((0.25, 0.35), rel=1e-12)


def test_the_chart_has_the_numbers_of_a_real_comparison() -> None:
    table = mlba.simulate(40, seed=0)
    data = ChoiceData.from_long(table, choice_set="choice_set", chosen="chosen", features=["attr1", "attr2"])
    nets = {f"net {k}": PCMCNet(hidden=(4,), epochs=k) for k in (1, 2)}
    result = compare(nets, data, folds=2, top=(1, 2, 5), progress=False)
    frame = result.to_arrow().to_pydict()
    # Sets have three alternatives, so every model has TOP 5 = 1 and it is not drawn.
    assert set(frame["top_5"]) == {1.0}
    assert result.notes == ["TOP 5 is left out: no choice set has more than 5 alternatives."]
    assert result.cells()[0][:4] == ["model", "NLL", "TOP 1", "TOP 2"]
    for panel, name in zip(comparison_chart(result).panels, ("nll", "top_1", "top_2"), strict=True):
        assert [dot.value for dot in panel.dots] == frame[name]
        assert [dot.low for dot in panel.dots] == frame[f"{name}_low"]
        assert [dot.high for dot in panel.dots] == frame[f"{name}_high"]
        assert panel.reference == result.uniform[name]


def test_a_comparison_of_failures_is_rejected() -> None:
    with pytest.raises(InputError, match="every model in the comparison failed"):
        comparison_chart(comparison((row("broken", error="no luck"),)))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """Return the drawn panels in order."""
    titled: list[Axes] = []
    set_title = Axes.set_title

    def record(axes: Axes, *args: Any, **options: Any) -> Any:
        titled.append(axes)
        return set_title(axes, *args, **options)

    monkeypatch.setattr(Axes, "set_title", record)
    return titled


def test_the_picture_shows_dots_intervals_and_the_reference(
    chart: ComparisonChart, tmp_path: Path, drawn: list[Axes], png_size: Callable[[Path], tuple[int, int]]
) -> None:
    path = draw_comparison(chart, tmp_path / "comparison.png", title="a $ title")
    assert png_size(path) == (1480, 640)  # 1.6 + 2 2.9 by 1.5 + 5 0.34 inches at 200 dpi
    assert [file.name for file in tmp_path.iterdir()] == ["comparison.png"]
    nll, top = drawn
    reference, *lines = nll.lines
    assert list(reference.get_xdata()) == [1.1, 1.1]
    intervals, dots = lines[::2], lines[1::2]
    result = [(*line.get_xdata(), line.get_ydata()[0]) for line in intervals]  # type: ignore[index, misc]
    assert result == [(1.0, 1.2, 0), (0.7, pytest.approx(1.225), 1), (0.9, 0.9, 2)]  # inf ends at the edge
    assert [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots] == [(1.1, 0), (0.8, 1), (0.9, 2)]  # type: ignore[index]
    assert [dot.get_color() for dot in dots] == [BLUE, ORANGE, BLUE]
    assert [dot.get_markerfacecolor() for dot in dots] == [BLUE, ORANGE, "white"]
    assert [text.get_text() for text in nll.get_yticklabels()][:2] == [r"uni\$form", "net"]
    assert top.get_title() == "TOP 1 (higher is better)"
    assert nll.get_ylim() == (4.5, -0.5)


def test_an_invalid_path_is_rejected(chart: ComparisonChart, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.png, \.pdf or \.svg, got 'a.jpg'"):
        draw_comparison(chart, tmp_path / "a.jpg")


FULL_DESIGN: dict[str, Any] = {
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
    """The tags of a page in order with attributes and text, and the tags that are never closed."""

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


def full_comparison(**change: Any) -> Comparison:
    def row(label: str, **facts: Any) -> ComparisonRow:
        return ComparisonRow(**{"label": label, "model": "net", "options": {"hidden": (8,), "note": EVIL}, **facts})

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
    return Comparison(**{"rows": rows, **facts, "design": FULL_DESIGN, **change})


def test_the_page_is_well_formed_self_contained_and_escaped() -> None:
    text = comparison_page(full_comparison(), title=f"Models {EVIL}")
    page = Page(text)
    assert page.open == []
    assert "://" not in text
    assert "script" not in {tag for tag, _ in page.tags}
    assert not any(name in {"src", "href", "onload"} for _, attributes in page.tags for name in attributes)
    assert page.texts["h1"] == [f"Models {EVIL}"]
    assert page.texts["th"].count(EVIL) == 1
    assert "failed: no luck " + EVIL in page.texts["td"]


def test_the_page_has_the_table_of_the_comparison() -> None:
    result = full_comparison()
    cells = Page(comparison_page(result)).texts
    head, first, second, _ = result.cells()
    assert cells["th"][: len(head)] == head
    assert cells["td"][:12] == [*first[1:], *second[1:]]


def test_the_chart_has_the_numbers_at_their_positions() -> None:
    """The axis of NLL spans 0.7 to 1.1 with a margin of 0.02, so 0.8 is at 120 + 250 0.12 / 0.44."""
    page = Page(comparison_page(full_comparison()))
    assert f"{EVIL}: 0.8000 [0.7000, 0.9000]" in page.texts["title"]
    circles = [attributes for tag, attributes in page.tags if tag == "circle"]
    assert len(circles) == 3  # one NLL (the other is infinite) and two accuracies
    assert float(circles[0]["cx"] or 0) == pytest.approx(120 + 250 * 0.12 / 0.44, abs=0.05)  # rounded to a tenth
    drawings = re.findall(r"<svg.*?</svg>", comparison_page(full_comparison()), re.DOTALL)
    assert [len(ElementTree.fromstring(drawing).findall("g")) for drawing in drawings] == [1, 2]
    assert any("seed: infinite NLL" in note for note in page.texts["p"])


def test_the_page_describes_the_design() -> None:
    text = " ".join(part for parts in Page(comparison_page(full_comparison())).texts.values() for part in parts)
    for fact in ("5-fold cross-validation", "5 folds", "60", "abc123", "an abacus; device cpu", "torch 2.13", "10%"):
        assert fact in text
    assert "hidden=(8,)" in text


def test_the_page_suits_phones_paper_and_dark_mode() -> None:
    text = comparison_page(full_comparison())
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "@media (prefers-color-scheme: dark)" in text
    assert "@media print" in text
    assert re.search(r"\.wide \{ overflow-x: auto;", text)


def test_a_page_of_failures_has_no_chart() -> None:
    failed = tuple(row for row in full_comparison().rows if row.error is not None)
    text = comparison_page(full_comparison(rows=failed, best=None))
    assert "Every model failed" in text
    assert "<svg" not in text


def test_a_split_is_distinguished_from_folds() -> None:
    text = comparison_page(full_comparison(design={**FULL_DESIGN, "folds": 1, "split": [0.8, 0.2], "by": "person"}))
    assert "one split, 80% for training and 20% for testing" in text
    assert "person" in text


def test_the_page_is_written_to_an_html_file(tmp_path: Path) -> None:
    path = write_comparison_page(full_comparison(), tmp_path / "page.html", title="Title")
    assert path.read_text("utf-8") == comparison_page(full_comparison(), title="Title")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(InputError, match=r"ends in \.html, got 'page.htm'"):
        write_comparison_page(full_comparison(), tmp_path / "page.htm")


@pytest.mark.parametrize("unseen", ["\x1b[2J", "\x9b2J", "\u202e", "\x00", "\x7f"])
def test_invisible_characters_are_escaped(unseen: str) -> None:
    rows = (ComparisonRow(label="net", model="net", options={unseen: unseen}, error=f"a{unseen}b"),)
    text = comparison_page(
        full_comparison(rows=rows, best=None, design={**FULL_DESIGN, "by": f"c{unseen}d"}), title=f"e{unseen}f"
    )
    assert unseen[0] not in text
    shown = unseen[0].encode("unicode_escape").decode() + unseen[1:]
    for around in ("a{}b", "c{}d", "e{}f"):
        assert around.format(shown) in text


@needs_chromium
@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_axe_finds_no_violations(scheme: str, tmp_path: Path) -> None:
    file = write_comparison_page(full_comparison(), tmp_path / "comparison.html")
    with chromium() as browser:
        for width in (390, 1200):
            page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
            page.goto(file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert violations(page) == []
