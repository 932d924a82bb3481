"""Notebooks to download, and the weights of pages in searches."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs")
from tools import site_pages

ROOT = Path(__file__).parents[1]
PAGE = """# A page

See [the table](../table-format.md).

```python
n = 2
```

```text title="Output"
2
```

![A figure](page/figure.png)

```bash
pcmcnet models
```

The end.
"""


def test_the_hook_loads_without_the_root_on_the_path() -> None:
    # "-I" leaves out the working directory, as the program mkdocs does.
    load = f"import runpy; runpy.run_path({str(ROOT / 'tools' / 'site_pages.py')!r})"
    subprocess.run([sys.executable, "-I", "-c", load], check=True, cwd=ROOT)


def test_a_page_becomes_a_notebook() -> None:
    book = site_pages.notebook(PAGE, "https://host/repo", "tutorials/page.md")
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in book["cells"]] == [
        (
            "markdown",
            "# A page\n\nSee [the table](https://host/repo/blob/main/docs/tutorials/../table-format.md).",
        ),
        ("code", "%pip install --quiet pcmcnet pandas"),
        ("code", "n = 2"),
        ("code", "%%bash\npcmcnet models"),
        ("markdown", "The end."),
    ]


def test_notebooks_of_the_site_are_valid() -> None:
    nbformat = pytest.importorskip("nbformat")
    pages = [
        p
        for p in ROOT.glob("docs/**/*.md")
        if site_pages.WITH_NOTEBOOK.fullmatch(p.relative_to(ROOT / "docs").as_posix())
    ]
    assert {"quick-start", "gallery", "swissmetro", "retail"} <= {page.stem for page in pages}
    for page in pages:
        nbformat.validate(site_pages.notebook(page.read_text("utf-8"), "https://host/repo", page.name))


@pytest.mark.parametrize(
    ("path", "boost", "links"),
    [("quick-start.md", 3.0, True), ("reference/MNL.md", 0.5, False), ("tutorials/index.md", 1.5, False)],
)
def test_search_prefers_guides_and_pages_link_to_their_notebooks(path: str, boost: float, links: bool) -> None:
    page = SimpleNamespace(meta={}, file=SimpleNamespace(src_uri=path))
    text = site_pages.on_page_markdown("# Title\n\nText", page, None, None)
    assert page.meta["search"]["boost"] == boost
    assert ("(quick-start.ipynb){ download" in text) == links
