import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.reports import formats
from pcmcnet.reports.formats import plotly_script, to_html, to_markdown, write_html
from pcmcnet.reports.sections import (
    Block,
    Code,
    Dot,
    Facts,
    Figure,
    Heading,
    Intervals,
    PictureFile,
    Point,
    Points,
    Section,
    Table,
    Text,
    Thumbnail,
    Tiles,
    note,
)

EVIL = "<b>&\"'"


def body(*blocks: Block) -> str:
    """Return the page of one section, from its heading on."""
    page = to_html("Title", [Section(title="", blocks=blocks)])
    return page[page.index("<main>") :].replace(plotly_script(), "")


class Cells(HTMLParser):
    """The cells of the tables of a page, row by row, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, dict[str, str | None]]]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append(("", dict(attrs)))
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            text, attributes = self.rows[-1][-1]
            self.rows[-1][-1] = (text + data, attributes)


def test_the_last_cell_of_a_short_row_spans_the_rest() -> None:
    cells = [["model", "NLL", "TOP 1"], [EVIL, "1", "2"], ["net", "failed"]]
    text = body(Table(cells=cells, strong=frozenset({0})))
    head, first, second = Cells(text).rows
    assert [cell for cell, _ in head] == ["model", "NLL", "TOP 1"]
    assert [cell for cell, _ in first] == [EVIL, "1", "2"]
    assert second == [("net", {"scope": "row"}), ("failed", {"class": "failed", "colspan": "2"})]
    assert text.count('<tr class="best">') == 1
    assert text.index('<tr class="best">') < text.index("failed")


def test_every_text_of_every_block_is_escaped(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"abc")
    cells = [[EVIL, EVIL], [EVIL, EVIL]]
    blocks: tuple[Block, ...] = (
        *(Text(EVIL), note(EVIL), Heading(EVIL), Code(EVIL), Facts({EVIL: EVIL}), Tiles(((EVIL, EVIL, EVIL),))),
        Points((Point(EVIL, EVIL, "s"),)),
        *(Table(cells=cells, folded=EVIL), Figure(traces=({"name": EVIL},), caption=EVIL, numbers=cells)),
        Intervals(metric=EVIL, caption=EVIL, labels=(EVIL,), dots=(Dot(0, 1.0, 0.5, 1.5, marked=False),)),
        PictureFile(file=picture, caption=EVIL),
    )
    page = to_html(EVIL, [Section(name="s", title=EVIL, blocks=blocks)]).replace(plotly_script(), "")
    assert "<b>" not in page
    assert page.count("&lt;b&gt;&amp;&#34;&#39;") == 36
    assert 'src="data:image/png;base64,YWJj"' in page


def test_a_page_without_figures_has_no_script() -> None:
    text = to_html("Title", [Section(title="One", blocks=(Text("Words."),))])
    assert "script" not in text
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:\">" in text


def test_contents_list_the_named_sections() -> None:
    text = to_html("Title", [Section(name="a", title="First", blocks=()), Section(title="Second", blocks=())])
    assert re.findall(r'<a href="(.*)">(.*)</a>', text) == [("#a", "First")]
    assert "<nav" not in to_html("Title", [Section(title="Second", blocks=())])


def test_a_page_needs_the_extension_html(tmp_path: Path) -> None:
    assert write_html("text", tmp_path / "a.html").read_text("utf-8") == "text"
    with pytest.raises(InputError, match=r"ends in \.html, got 'a.txt'"):
        write_html("text", tmp_path / "a.txt")


def test_pictures_are_embedded_as_data() -> None:
    uri = f"data:image/png;base64,{EVIL}"
    text = body(Table(cells=[["room", "photo"], ["A", Thumbnail.of(uri)], ["B", Thumbnail.of("http://x/y.png")]]))
    assert text.count("<img") == 1
    assert '<img class="thumbnail" alt="picture" src="data:image/png;base64,&lt;b&gt;&amp;&#34;&#39;">' in text
    assert "http" not in text


def test_wide_tables_scroll_by_keyboard() -> None:
    head = ["room", "price", EVIL, "about"]
    text = body(Table(cells=[head, ["A", "1", "2", "a text that needs a second line"], ["B", "failed"]]))
    assert '<div class="wide" tabindex="0" role="group" aria-label="Table of room, price, ' in text
    assert Cells(text).rows[1][3][1]["class"] == "words"


def test_a_heading_folds_the_blocks_up_to_the_next() -> None:
    one, two = Heading("First", "open"), Heading("Second", "closed")
    text = body(note("before"), one, note("inside"), two, note("closed"), Heading("Third"), note("after"))
    order = [
        "before",
        "<details",
        "First",
        "inside",
        "</details>",
        "<details",
        "Second",
        "</details>",
        "Third",
        "after",
    ]
    at = -1
    for word in order:
        at = text.index(word, at + 1)
    assert text.count("<details") == text.count("</details>") == 2
    assert text.count(" open>") == 1


def test_half_width_figures_share_a_line() -> None:
    half = Figure(traces=(), caption="Half.", numbers=[["x"], ["1"]], narrow=True)
    whole = Figure(traces=(), caption="Whole.", numbers=[["x"], ["1"]], square=True)
    text = body(half, half, note("between"), half, whole)
    before, after = text[: text.index(">between<")], text[text.index(">between<") :]
    assert before.count('<div class="pair">') == 1
    assert '<div class="pair">' not in after
    assert 'style="height:min(360px, 80vw)"' in after


def test_without_plotly_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs plotly: pip install plotly"):
        plotly_script()


@pytest.mark.parametrize("unseen", ["\x1b[2J", "\x9b2J", "\u202e", "\x00", "\x7f"])
def test_control_characters_are_escaped(unseen: str) -> None:
    """A report may be read with cat or less, and names of columns and labels may come from anywhere."""
    name, cells = f"a{unseen}b", [["label", "share"], [f"a{unseen}b", "1"]]
    blocks = (
        Text(name),
        Heading(name),
        Facts({name: name}),
        Tiles(((name, name, name),)),
        Table(cells=cells, folded=name),
        Intervals(metric=name, caption=name, labels=(name,), dots=(Dot(0, 1.0, 0.5, 1.5, marked=False),)),
        Figure(traces=({"name": name},), caption=name, numbers=cells),
    )
    sections = [Section(name="s", title=name, blocks=blocks)]
    page = to_html(name, sections)
    for text in (to_markdown(name, sections), page.replace(plotly_script(), "")):
        assert unseen[0] not in text
        assert unseen[0].encode("unicode_escape").decode() in text
    (drawn,) = re.findall(r'<script type="application/json"[^>]*>(.*)</script>', page)
    assert json.loads(drawn)["data"] == [{"name": name}]
