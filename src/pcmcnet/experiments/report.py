"""A result -> report.md, report.html and result.json in one folder, each written whole or not at all.

A result is a title, sections, the facts of the run, and its numbers, which go to result.json as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcmcnet.evaluation.compare import surroundings
from pcmcnet.reports.html import to_html
from pcmcnet.reports.markdown import to_markdown
from pcmcnet.reports.sections import Code, Facts, Picture, Section
from pcmcnet.reports.text import to_text
from pcmcnet.storage.files import require_folder, write_bytes
from pcmcnet.storage.to_json import to_json
from pcmcnet.storage.versions import package_version


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
        return to_text(self.title, self.sections)

    @property
    def pictures(self) -> list[Picture]:
        """The pictures of all sections."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts that survive JSON."""
        whole: dict[str, Any] = to_json(
            {"title": self.title, "command": self.command, "facts": self.facts, "values": self.values}
        )
        return whole

    def write(self, folder: str | Path) -> list[Path]:
        """Write report.md, report.html and result.json to a folder; returns all files, pictures included."""
        place = require_folder(folder)
        made = Section(title="How it was made", blocks=(Code(self.command), Facts(_spoken(self.facts))))
        sections = (*self.sections, made)
        contents = {
            "report.md": to_markdown(self.title, sections),
            "report.html": to_html(self.title, sections),
            "result.json": json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        }
        for name, text in contents.items():
            write_bytes(place / name, text.encode())
        drawn = [name for picture in self.pictures for name in (picture.file.name, *picture.others)]
        return [place / name for name in (*contents, *drawn)]


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
