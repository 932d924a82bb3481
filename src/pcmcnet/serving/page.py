"""The files of the page, read once when the server starts: a request names one of them or none."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
}


class File(NamedTuple):
    """The content of a file, and its media type."""

    content: bytes
    kind: str


def page_files() -> dict[str, File]:
    """Return the files by path, ``/`` for index.html; none where the page is not installed."""
    folder = files("pcmcnet.serving") / "page"
    found = dict(_walk(folder, "/")) if folder.is_dir() else {}
    index = found.pop("/index.html", None)
    return {} if index is None else {"/": index, **found}


def _walk(folder: Traversable, path: str) -> Iterator[tuple[str, File]]:
    for entry in folder.iterdir():
        _, dot, suffix = entry.name.rpartition(".")
        if entry.is_dir():
            yield from _walk(entry, f"{path}{entry.name}/")
        elif dot + suffix in TYPES:
            yield path + entry.name, File(entry.read_bytes(), TYPES[dot + suffix])
