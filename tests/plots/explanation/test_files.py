"""Three files in a folder, whole or not at all."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from pcmcnet import Explanation
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.plots.explanation import page, write
from pcmcnet.reports.markdown import explanation_markdown
from pcmcnet.reports.sections import Facts, Figure, Heading, Section, Table, Tiles, words

pytestmark = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="needs plotly: pip install plotly")


def test_page_markdown_and_numbers_are_written(explained: dict[str, Explanation], tmp_path: Path) -> None:
    found = explained["chain"]
    files = write(found, tmp_path / "new" / "report")
    assert [file.name for file in files] == ["report.html", "report.md", "explanation.json"]
    assert sorted(file.name for file in (tmp_path / "new" / "report").iterdir()) == sorted(f.name for f in files)
    assert files[0].read_text("utf-8").startswith("<!doctype html>")
    assert files[1].read_text("utf-8").startswith("# ")
    assert json.loads(files[2].read_text("utf-8")) == json.loads(json.dumps(found.to_dict()))


def test_the_same_explanation_gives_the_same_files(explained: dict[str, Explanation], tmp_path: Path) -> None:
    first, second = (write(explained["logit"], tmp_path / name) for name in "ab")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_a_file_is_no_folder(explained: dict[str, Explanation], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="cannot be a folder"):
        write(explained["table"], tmp_path / "taken")


def test_without_plotly_nothing_is_written(
    explained: dict[str, Explanation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="plotly"):
        write(explained["table"], tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("unseen", ["\x1b[2J", "\x9b2J", "\u202e", "\x00", "\x7f"])
def test_what_a_terminal_would_obey_is_written_out(unseen: str) -> None:
    """A report is read by cat and less, too; names of columns and labels come from anywhere."""
    name, cells = f"a{unseen}b", [["label", "share"], [f"a{unseen}b", "1"]]
    blocks = (
        words(name),
        Heading(text=name),
        Facts(pairs={name: name}),
        Tiles(tiles=((name, name, name),)),
        Table(cells=cells, folded=name),
        Figure(traces=({"name": name},), caption=name, numbers=cells),
    )
    sections = [Section(name="s", title=name, blocks=blocks)]
    markdown, html = explanation_markdown(sections, title=name), page.explanation_page(sections, title=name)
    for text in (markdown, html.replace(page.plotly_script(), "")):
        assert unseen[0] not in text
        assert unseen[0].encode("unicode_escape").decode() in text
    (drawn,) = re.findall(r'<script type="application/json"[^>]*>(.*)</script>', html)
    assert json.loads(drawn)["data"] == [{"name": name}]
