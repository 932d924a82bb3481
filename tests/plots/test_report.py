"""A report: its files, its sections, and its page in a browser."""

import base64
import importlib.util
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from browser import PATIENCE, chromium, needs_chromium, violations
from pcmcnet import ChoiceData, Explanation, PCMCNet, explain
from pcmcnet.datasets import airline, intercity
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.explanation import PARTS
from pcmcnet.plots import write_explanation
from pcmcnet.plots.report import explanation_sections
from pcmcnet.reports import formats
from pcmcnet.reports.formats import _rounded, packed_script, plotly_script, to_html, to_markdown
from pcmcnet.reports.sections import Dot, Facts, Figure, Intervals, Section, Table, Text, Tiles
from pcmcnet.reports.tables import markdown_table

pytestmark = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="needs plotly: pip install plotly")


def test_page_markdown_and_numbers_are_written(explained: dict[str, Explanation], tmp_path: Path) -> None:
    explanation = explained["chain"]
    files = write_explanation(explanation, tmp_path / "new" / "report")
    page = explanation.save(tmp_path / "page.html")
    assert page.read_text() == files[0].read_text()
    assert explanation.save(tmp_path / "folder").name == "report.html"
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == sorted(path.name for path in files)
    with pytest.raises(InputError, match=r"ends in \.html, got 'page.pdf'"):
        explanation.save(tmp_path / "page.pdf")
    assert [file.name for file in files] == ["report.html", "report.md", "explanation.json"]
    assert sorted(file.name for file in (tmp_path / "new" / "report").iterdir()) == sorted(f.name for f in files)
    assert files[0].read_text("utf-8").startswith("<!doctype html>")
    assert files[1].read_text("utf-8").startswith("# ")
    assert json.loads(files[2].read_text("utf-8")) == json.loads(json.dumps(explanation.to_dict()))


def test_the_same_explanation_gives_the_same_files(explained: dict[str, Explanation], tmp_path: Path) -> None:
    first, second = (write_explanation(explained["logit"], tmp_path / name) for name in "ab")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_a_file_as_folder_is_rejected(explained: dict[str, Explanation], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="cannot be created"):
        write_explanation(explained["table"], tmp_path / "taken")


def test_without_plotly_nothing_is_written(
    explained: dict[str, Explanation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="plotly"):
        write_explanation(explained["table"], tmp_path)
    assert not any(tmp_path.iterdir())


def by_name(explanation: Explanation) -> dict[str, Section]:
    return {section.name: section for section in explanation_sections(explanation)}


def text_of(section: Section) -> str:
    return " ".join(block.text for block in section.blocks if isinstance(block, Text))


@pytest.mark.parametrize("name", ["chain", "logit", "ranking", "unknown", "table"])
def test_every_available_part_has_a_section(name: str, explained: dict[str, Explanation]) -> None:
    explanation = explained[name]
    available = [part for part in PARTS if getattr(explanation, part) is not None]
    first, *names, last = by_name(explanation)
    assert (first, last) == ("findings" if explanation.findings else "glance", "made")
    assert sorted({*names, first} - {"findings", "glance"}) == sorted(available)
    facts = by_name(explanation)["made"].blocks[0]
    assert isinstance(facts, Facts)
    assert {f"no section on {part}": why for part, why in explanation.left_out.items()}.items() <= facts.pairs.items()


def test_in_sample_figures_are_labelled(explained: dict[str, Explanation]) -> None:
    explanation = explained["chain"]
    sections = by_name(explanation)
    for name in ("glance", "fit"):
        assert "The model was trained on this table" in text_of(sections[name])
    table = next(block for block in sections["fit"].blocks if isinstance(block, Table))
    assert [row[-1] for row in table.cells] == ["measured", "in-sample", *["out of sample, 5 folds"] * 2]
    assert explanation.fit is not None
    assert table.cells[1][1].startswith(f"{explanation.fit.report.nll:.4f} [")
    assert "columns to which the model has overfitted" in text_of(sections["importance"])


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ("most", "mostly in-sample"),
        ("some", "possibly partly in-sample"),
        ("none known", "The model was trained on another table"),
    ],
)
def test_the_report_names_the_kind_of_table(seen: str, words: str, explained: dict[str, Explanation]) -> None:
    explanation = explained["chain"]
    assert explanation.fit is not None
    warning = None if seen == "none known" else f"It is {words}."
    fit = replace(explanation.fit, seen=seen, warning=warning)  # type: ignore[arg-type]
    section = by_name(replace(explanation, fit=fit))["fit"]
    assert words in text_of(section)
    if warning is not None:
        table = next(block for block in section.blocks if isinstance(block, Table))
        assert table.cells[1][-1] == words
    assert "This is the table" not in text_of(section)


def test_the_report_of_a_logit_states_no_context_effects(explained: dict[str, Explanation]) -> None:
    (only,) = by_name(explained["logit"])["context"].blocks
    assert isinstance(only, Text)
    assert "no context effects" in only.text


def test_the_tile_with_the_nll_names_the_best_baseline(explained: dict[str, Explanation]) -> None:
    tiles = by_name(explained["chain"])["glance"].blocks[0]
    fit = explained["chain"].fit
    assert isinstance(tiles, Tiles)
    assert fit is not None
    assert fit.rival == "mnl"
    remark = next(remark for name, _, remark in tiles.tiles if name.startswith("NLL"))
    nll = fit.baselines["mnl"].values["nll"]  # type: ignore[index]
    assert remark == f"mnl: {nll:.4f}, uniform: {fit.report.uniform['nll']:.4f}; lower is better"


def test_sections_for_specialists_are_folded(explained: dict[str, Explanation]) -> None:
    folded = [section.name for section in explanation_sections(explained["chain"]) if section.folded]
    assert folded == ["context", "axioms", "model", "made"]
    page = to_html("Report", explanation_sections(explained["chain"]))
    for title in ("Context effects", "Axioms of choice", "The model", "How this report was made"):
        assert f'<details class="section"><summary><h2>{title}</h2></summary>' in page


def test_axioms_that_hold_are_named(explained: dict[str, Explanation]) -> None:
    explanation = explained["logit"].axioms
    assert explanation is not None
    assert f"Satisfied in all cases checked: {', '.join(explanation.obeyed)}." in text_of(
        by_name(explained["logit"])["axioms"]
    )


def test_a_ranking_has_only_accuracies(explained: dict[str, Explanation]) -> None:
    section = by_name(explained["ranking"])["fit"]
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert table.cells[1][1] == "-"
    assert "no NLL" in text_of(section)


def test_caveats_are_at_the_top(explained: dict[str, Explanation]) -> None:
    explanation = explained["chain"]
    assert explanation.model is not None
    marked = replace(explanation, model=replace(explanation.model, caveats=("the search was stopped",)))
    assert "Caveat: the search was stopped." in text_of(by_name(marked)["glance"])


def test_the_report_escapes_names_of_the_table(explained: dict[str, Explanation]) -> None:
    for explanation in explained.values():
        sections = explanation_sections(explanation)
        text = to_markdown(explanation.title, sections)
        for section in sections:
            assert f"\n## {section.title}\n" in text
            for block in section.blocks:
                if isinstance(block, Table):
                    assert markdown_table(block.cells) in text
                if isinstance(block, Figure):
                    assert markdown_table(block.numbers) in text
        assert "<a " not in text.replace("\\<", "")


def test_the_figure_has_the_model_and_its_baselines(
    explained: dict[str, Explanation],
) -> None:
    fit = explained["chain"].fit
    assert fit is not None
    assert fit.baselines is not None
    (drawn,) = [block for block in by_name(explained["chain"])["fit"].blocks if isinstance(block, Intervals)]
    assert drawn.labels == ("this model", "uniform", "mnl")
    assert [row.label for row in fit.baselines.rows] == ["uniform", "mnl", "this model"]
    assert drawn.dots[0] == Dot(0, fit.report.values["nll"], *fit.report.intervals["nll"], marked=True)
    assert not any(dot.marked for dot in drawn.dots[1:])
    assert drawn.caption == "NLL with intervals; hollow: in-sample."
    ranking = by_name(explained["ranking"])["fit"].blocks
    assert [block.metric for block in ranking if isinstance(block, Intervals)] == ["TOP 1"]


NAMES = ["chain", "logit", "ranking", "unknown", "table"]
VOID = {"meta", "br", "img", "link", "input", "hr"}
pytestmark = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="needs plotly: pip install plotly")


class Elements(HTMLParser):
    """The elements of a page; checks that each is closed in the right order."""

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
    return {
        name: to_html(explanation.title, explanation_sections(explanation)) for name, explanation in explained.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_well_formed_and_self_contained(name: str, pages: dict[str, str]) -> None:
    elements = Elements(pages[name])
    referred = [
        value for _, explanation in elements.found for key, value in explanation.items() if key in ("src", "href")
    ]
    assert referred
    assert all(value is not None and value.startswith("#") for value in referred)
    policy = next(explanation["content"] for tag, explanation in elements.found if explanation.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


@pytest.mark.parametrize("name", NAMES)
def test_contents_link_to_the_sections(name: str, pages: dict[str, str], explained: dict[str, Explanation]) -> None:
    elements = Elements(pages[name])
    ids = [explanation["id"] for _, explanation in elements.found if "id" in explanation]
    assert len(ids) == len(set(ids))
    links = [explanation["href"] for tag, explanation in elements.found if tag == "a"]
    sections = [f"#{section.name}" for section in explanation_sections(explained[name])]
    assert links == [*sections, *(f"#{finding.part}" for finding in explained[name].findings)]
    assert {link[1:] for link in links if link} <= set(ids)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_contains_its_figures_as_json(
    name: str, pages: dict[str, str], explained: dict[str, Explanation]
) -> None:
    elements = Elements(pages[name])
    figures = [block for s in explanation_sections(explained[name]) for block in s.blocks if isinstance(block, Figure)]
    scripts = [
        k for k, (tag, explanation) in enumerate(elements.found) if explanation.get("type") == "application/json"
    ]
    for k, figure in zip(scripts, figures, strict=True):
        assert elements.found[k - 1][1]["class"] == "plot"
        assert json.loads(elements.words[k])["data"] == json.loads(json.dumps(_rounded(figure.traces)))
    noscripts = sum(tag == "noscript" for tag, _ in elements.found)
    assert noscripts == 1 + len(figures)
    assert sum(tag == "details" for tag, _ in elements.found) >= len(figures)


def test_figures_have_six_digits() -> None:
    assert _rounded({"x": (1 / 3, 1e-9 / 3), "n": 12345678, "name": "a"}) == {
        "x": [0.333333, 3.33333e-10],
        "n": 12345678,
        "name": "a",
    }


def test_the_page_contains_plotly_once(pages: dict[str, str]) -> None:
    library = packed_script(plotly_script())
    assert not set("<&") & set(library)
    assert len(library) > 1_000_000
    assert pages["chain"].count(library) == 1
    packed = library.translate({ord(","): "<", ord(":"): "&"})
    assert zlib.decompress(base64.b85decode(packed)).decode() == plotly_script()


def test_the_page_escapes_texts_of_the_table(pages: dict[str, str], evil: str) -> None:
    text = pages["chain"].replace(packed_script(plotly_script()), "")
    assert evil not in text
    assert "<a href='" not in text
    assert evil in "".join(Elements(text).words.values())


# -- in a browser -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Any, pages: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a report as a file. Check at the end that there was no console error and no other request."""
    said: list[str] = []
    contexts = []

    def open_(name: str = "chain", *, width: int = 1200, scheme: str = "light") -> Any:
        path = tmp_path / f"{name}.html"
        path.write_text(pages[name], "utf-8")
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else said.append(asked.url),
        )
        tab.goto(path.as_uri())
        tab.wait_for_function(
            "() => [...document.querySelectorAll('.plot')].every("
            "(plot) => plot.closest('details:not([open])') || plot.querySelector('svg.main-svg'))"
        )
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert said == []


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_violations(scheme: str, visit: Callable[..., Any]) -> None:
    tab = visit(scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert violations(tab) == []


@needs_chromium
def test_sections_are_short_on_a_phone(visit: Callable[..., Any]) -> None:
    tab = visit(width=390)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    screens = tab.evaluate(
        "Object.fromEntries([...document.querySelectorAll('section')].map("
        "(one) => [one.id, one.getBoundingClientRect().height / innerHeight]))"
    )
    assert max(screens.values()) < 5, screens
    cut = tab.locator(".wide.cut")
    assert cut.count() > 0
    wide = "one => getComputedStyle(one, '::after').content"
    assert "Scroll sideways" in cut.first.evaluate(wide)
    whole = tab.locator(".wide:not(.cut)").evaluate_all(
        "all => all.every((one) => one.scrollWidth <= one.clientWidth + 1)"
    )
    assert whole


@needs_chromium
def test_every_figure_can_be_downloaded(visit: Callable[..., Any], tmp_path: Path) -> None:
    tab = visit()
    buttons = tab.get_by_role("button", name="Download PNG")
    assert tab.locator(".plot, svg.intervals").count() == tab.locator("button.save").count()
    tab.get_by_text("A surprising choice").click()
    tab.wait_for_function(
        "() => document.querySelectorAll('#examples details.group[open] .plot svg.main-svg').length >= 4"
    )
    intervals = tab.locator("svg.intervals + button")
    for button in (buttons.first, intervals, tab.locator("#examples details.group").nth(1).get_by_role("button").first):
        with tab.expect_download() as download:
            button.click()
        download.value.save_as(tmp_path / "saved.png")
        with Image.open(tmp_path / "saved.png") as saved:
            assert saved.size[0] > 300
    assert download.value.suggested_filename.startswith("examples-")


@needs_chromium
def test_a_browser_that_cannot_unpack_plotly_shows_the_numbers(
    browser: Any, pages: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "old.html").write_text(pages["chain"], "utf-8")
    tab = browser.new_page()
    tab.add_init_script("delete window.DecompressionStream")
    tab.goto((tmp_path / "old.html").as_uri())
    tab.wait_for_selector("text=This browser cannot draw the figure")
    assert tab.locator(".plot").count() == 0
    tab.close()


@needs_chromium
def test_a_link_to_a_folded_section_opens_it(visit: Callable[..., Any]) -> None:
    tab = visit()
    is_open = "() => document.querySelector('#context > details').open"
    assert not tab.evaluate(is_open)
    tab.locator(".points a[href='#context']").click()
    tab.wait_for_function(is_open)
    tab.wait_for_function("() => document.querySelector('#context .plot svg.main-svg')")


@pytest.mark.parametrize("table", ["intercity", "airline"])
def test_the_report_of_a_real_table_has_at_most_two_megabytes(table: str) -> None:
    """Trips between cities have up to four alternatives; sets of flights have up to fifty."""
    if table == "intercity":
        data = intercity.read().subset(range(200))
    else:
        data = ChoiceData.from_long(airline.simulate(40, seed=0), **airline.ROLES)
    model = PCMCNet(hidden=(8,), epochs=1, members=1, weight_decay=0.0).fit(data, progress=False)
    explanation = explain(model, data, sets=15, baselines={}, progress=False)
    assert explanation.context is not None
    assert len(to_html("Report", explanation_sections(explanation)).encode()) <= 2_000_000


def test_a_report_has_at_most_two_megabytes(pages: dict[str, str]) -> None:
    assert all(len(page.encode()) <= 2_000_000 for page in pages.values())


def test_findings_are_at_the_top_and_link_to_their_figures(pages: dict[str, str]) -> None:
    text = pages["chain"]
    assert text.index('<ul class="points">') < text.index('<ul class="tiles">')
