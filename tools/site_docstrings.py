"""Adapt docstrings to the site: an extension of griffe, used in mkdocs.yml.

These forms are changed:

    :class:`X`                        Sphinx references are shown as code
    train, valid                      parameters that share a description get one entry each
    Returns / The model itself.       a sentence is shown as a description, not as a type
    for example::                     a double colon becomes a single colon
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_SHARED_ENTRY = re.compile(r"^(\w+(?:, \w+)+)\n((?:    .*\n?|\n(?=    ))+)", re.MULTILINE)
_RETURNS = re.compile(r"^Returns\n-------\n(?P<text>\S.*(?:\n(?![\n ]).*)*)(?=\n\n|\Z)", re.MULTILINE)


class SiteDocstrings(griffe.Extension):
    """Rewrites the docstrings of all objects."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            returns = str(obj.returns) if isinstance(obj, griffe.Function) and obj.returns else ""
            obj.docstring.value = for_the_site(obj.docstring.value, returns)


def for_the_site(text: str, returns: str = "") -> str:
    """Return a docstring in the form of the site; ``returns`` is the return annotation of a function."""
    text = _ROLE.sub(r"`\1`", text).replace("::\n\n    ", ":\n\n    ")
    text = _SHARED_ENTRY.sub(lambda m: "".join(f"{name}\n{m[2].rstrip()}\n" for name in m[1].split(", ")), text)
    return _RETURNS.sub(lambda m: _returns_section(m["text"], returns), text)


def _returns_section(text: str, returns: str) -> str:
    """Return a Returns section; a sentence becomes the description of the annotated type."""
    if not returns or " " not in text:
        return f"Returns\n-------\n{text}"
    return f"Returns\n-------\n{returns}\n    {' '.join(text.split())}"
