from html.parser import HTMLParser
from pathlib import Path

import pytest

from pcmcnet.errors import InputError
from pcmcnet.reports import html as page

EVIL = "<b>&\"'"


class Cells(HTMLParser):
    """The cells of a page's tables, row after row, with their attributes."""

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


def test_a_table_has_its_cells_and_a_short_row_takes_the_rest_of_the_line() -> None:
    text = page.table([["model", "NLL", "TOP 1"], [EVIL, "1", "2"], ["net", "failed"]], strong=[0])
    head, first, second = Cells(text).rows
    assert [cell for cell, _ in head] == ["model", "NLL", "TOP 1"]
    assert [cell for cell, _ in first] == [EVIL, "1", "2"]
    assert second == [("net", {"scope": "row"}), ("failed", {"class": "failed", "colspan": "2"})]
    assert text.count('<tr class="best">') == 1
    assert text.index('<tr class="best">') < text.index("failed")


def test_facts_notes_and_titles_are_escaped() -> None:
    text = page.page(EVIL, page.note(EVIL) + page.facts({EVIL: EVIL}))
    assert EVIL not in text
    assert text.count("&lt;b&gt;") == 5  # title, heading, note, name and value
    assert Cells(text).rows == [[(EVIL, {}), (EVIL, {})]]


def test_a_picture_lies_in_the_page() -> None:
    assert page.picture(b"abc", EVIL).count("&lt;b&gt;") == 2
    assert 'src="data:image/png;base64,YWJj"' in page.picture(b"abc", "caption")


def test_a_page_is_written_by_its_name_only(tmp_path: Path) -> None:
    assert page.write_page("text", tmp_path / "a.html").read_text("utf-8") == "text"
    with pytest.raises(InputError, match=r"ends in \.html, got 'a.txt'"):
        page.write_page("text", tmp_path / "a.txt")


def test_pictures_lie_in_their_cells_and_only_as_data() -> None:
    uri = f"data:image/png;base64,{EVIL}"
    text = page.table([["room", "photo"], ["A", page.Thumbnail.of(uri)], ["B", page.Thumbnail.of("http://x/y.png")]])
    assert text.count("<img") == 1
    assert '<img class="thumbnail" alt="picture" src="data:image/png;base64,&lt;b&gt;&amp;&quot;&#x27;">' in text
    assert "http" not in text


def test_on_a_phone_rows_of_many_columns_are_cards_that_name_their_cells() -> None:
    head = ["room", "price", EVIL, "about"]
    rows = Cells(page.table([head, ["A", "1", "2", "a text that needs a second line"], ["B", "failed"]])).rows
    assert [attributes.get("data-head") for _, attributes in rows[1]] == [None, "price", EVIL, "about"]
    assert rows[1][3][1]["class"] == "words"
    assert "cards" not in page.table([head[:3], ["A", "1", "2"]])
