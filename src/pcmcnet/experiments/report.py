"""A result -> report.md, report.html and result.json in one folder, each written whole or not at all.

A result is a title, sections (words, tables, pictures, notes), the facts of the run, and its numbers, which go to
result.json as they are. The page is whole in itself, pictures included: see ``plots/page.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcmcnet.errors import visible
from pcmcnet.evaluation.compare import surroundings
from pcmcnet.models.saving.artifact import package_version
from pcmcnet.reports import html as page
from pcmcnet.reports.tables import Cells, escaped, markdown_table, text_table
from pcmcnet.storage.files import require_folder, write_bytes
from pcmcnet.storage.to_json import to_json


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG file of the result's folder, and other forms of it such as PDF.

    Parameters
    ----------
    file
        Name of the PNG file.
    caption
        What is to be seen.
    others
        Names of files that hold the same picture in other formats.
    """

    file: str
    caption: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report.

    Parameters
    ----------
    title
        Its heading.
    text
        What comes first, in words.
    tables
        Rows of text, the heads first.
    strong
        Which rows after the heads, from 0, stand out in every table of the page.
    pictures
        What is to be seen.
    notes
        What the reader has to know beside the tables.
    """

    title: str
    text: str = ""
    tables: tuple[Cells, ...] = ()
    strong: frozenset[int] = frozenset()
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """What an experiment found. Prints as text.

    Parameters
    ----------
    title, command
        Heading, and the command that gives the same again.
    sections
        What people read.
    values
        The numbers, of any depth, that go to result.json; an infinite one becomes null.
    facts
        How it came about: see :func:`facts`.
    """

    title: str
    command: str
    sections: tuple[Section, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [self.title]
        for section in self.sections:
            parts += [section.text] if section.text else []
            parts += map(text_table, section.tables)
            parts += ["\n".join(section.notes)] if section.notes else []
        return visible("\n\n".join(parts))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts that survive JSON."""
        whole: dict[str, Any] = to_json(
            {"title": self.title, "command": self.command, "facts": self.facts, "values": self.values}
        )
        return whole

    def to_markdown(self) -> str:
        """Return the report in Markdown; pictures are named by their files."""
        parts = [f"# {escaped(self.title)}"]
        for section in self.sections:
            parts.append(f"## {escaped(section.title)}")
            parts += [escaped(section.text)] if section.text else []
            parts += map(markdown_table, section.tables)
            parts += map(escaped, section.notes)
            parts += (_markdown_picture(picture) for picture in section.pictures)
        parts += ["## How it was made", f"```text\n{self.command}\n```"]
        parts.append(markdown_table([["fact", "value"], *_spoken(self.facts).items()]))
        return visible("\n\n".join(parts) + "\n")

    def to_html(self, folder: Path) -> str:
        """Return the report as one page, with the pictures of ``folder`` in it."""
        parts = []
        for section in self.sections:
            parts.append(f"<h2>{page.escape(section.title)}</h2>")
            parts += [f"<p>{page.escape(section.text)}</p>"] if section.text else []
            parts += [page.table(cells, strong=section.strong) for cells in section.tables]
            parts += map(page.note, section.notes)
            parts += [page.picture((folder / p.file).read_bytes(), p.caption) for p in section.pictures]
        parts += ["<h2>How it was made</h2>", page.facts({"command": self.command, **_spoken(self.facts)})]
        return page.page(self.title, "\n".join(parts))

    def write(self, folder: str | Path) -> list[Path]:
        """Write report.md, report.html and result.json to a folder; returns all files, pictures included."""
        place = require_folder(folder)
        contents = {
            "report.md": self.to_markdown(),
            "report.html": self.to_html(place),
            "result.json": json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        }
        for name, text in contents.items():
            write_bytes(place / name, text.encode())
        pictures = [name for s in self.sections for p in s.pictures for name in (p.file, *p.others)]
        return [place / name for name in (*contents, *pictures)]


def facts(*, seed: int, seconds: float, **more: Any) -> dict[str, Any]:
    """Gather what a reader needs to judge a result: seed, versions, machine and time, after what is given."""
    found = surroundings()
    versions = {"pcmcnet": package_version("pcmcnet"), **found["versions"]}
    return {**more, "seed": seed, "versions": versions, "machine": found["machine"], "seconds": round(seconds, 1)}


def _spoken(facts: Mapping[str, Any]) -> dict[str, str]:
    """Put facts into words."""
    return {
        name: ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, Mapping) else str(value)
        for name, value in facts.items()
    }


def _markdown_picture(picture: Picture) -> str:
    others = ", ".join(f"[{name}]({name})" for name in picture.others)
    return f"![{escaped(picture.caption)}]({picture.file})" + (f"\n\nAlso as {others}." if others else "")
