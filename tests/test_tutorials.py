"""The tutorials run, and print what they show: numbers within a tolerance, since networks round by machine."""

from pathlib import Path

import pytest
from tools.tutorials import TUTORIALS, missing_table, outdated

PAGES = ("swissmetro.md",)
LONG = ("airline.md", "images-and-texts.md", "retail.md")  # networks, and chains of items with learnt penalties


# torch's own, when its forward mode is first used
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", [*PAGES, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_a_tutorial_runs_and_prints_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing := missing_table(TUTORIALS / name):
        pytest.skip(missing)
    monkeypatch.chdir(tmp_path)
    assert outdated(TUTORIALS / name) == []


def test_every_tutorial_is_run() -> None:
    assert {page.name for page in TUTORIALS.glob("*.md")} == {*PAGES, *LONG, "index.md"}


def test_a_page_that_prints_something_else_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('```python\nprint("two", 2)\n```\n\n```text title="Output"\ntwo 3\n```\n', "utf-8")
    assert outdated(page) == ["page.md, line 1: 3 on the page, 2 now"]


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\npcmcnet datasets no-such-table -o x.csv\n```\n", "utf-8")
    assert "no-such-table" in (missing_table(page) or "")
