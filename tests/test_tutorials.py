"""The tutorials run and print their shown outputs; numbers have a tolerance because machines round differently."""

from pathlib import Path

import pytest
from tools.tutorials import TUTORIALS, missing_table, outdated

PAGES = ("swissmetro.md",)
# these fit networks, or chains with learnt penalties
LONG = ("airline.md", "catalogue.md", "images-and-texts.md", "retail.md", "survey.md")


# a warning of torch at the first use of its forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", [*PAGES, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_a_tutorial_prints_its_shown_outputs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing := missing_table(TUTORIALS / name):
        pytest.skip(missing)
    monkeypatch.chdir(tmp_path)
    assert outdated(TUTORIALS / name) == []


def test_every_tutorial_is_tested() -> None:
    assert {page.name for page in TUTORIALS.glob("*.md")} == {*PAGES, *LONG, "index.md"}


def test_a_page_with_another_output_is_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('```python\nprint("two", 2)\n```\n\n```text title="Output"\ntwo 3\n```\n', "utf-8")
    assert outdated(page) == ["page.md, line 1: 3 on the page, 2 now"]


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\npcmcnet datasets no-such-table -o x.csv\n```\n", "utf-8")
    assert "no-such-table" in (missing_table(page) or "")
