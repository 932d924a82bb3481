"""An explanation -> report.html, report.md and explanation.json in one folder, each written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pcmcnet.insight.explanation import Explanation
from pcmcnet.plots.explanation.sections import sections_of
from pcmcnet.reports.html import to_html
from pcmcnet.reports.markdown import to_markdown
from pcmcnet.storage.files import require_folder, write_bytes

NAMES = ("report.html", "report.md", "explanation.json")


def write(explanation: Explanation, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the report of an explanation.

    Parameters
    ----------
    explanation
        What :func:`pcmcnet.explain` returned.
    folder
        Where the files go; it is made where it is not there.

    Returns
    -------
    list of Path
        The page, the same words and tables in Markdown, and all numbers as JSON.

    Raises
    ------
    InputError
        When the folder cannot be one.
    ConfigError
        When plotly is not installed.
    """
    place = require_folder(folder)
    sections = sections_of(explanation)
    contents = (
        to_html(explanation.title, sections),
        to_markdown(explanation.title, sections),
        json.dumps(explanation.to_dict(), ensure_ascii=False, allow_nan=False) + "\n",
    )
    written = [place / name for name in NAMES]
    for path, text in zip(written, contents, strict=True):
        write_bytes(path, text.encode())
    return written
