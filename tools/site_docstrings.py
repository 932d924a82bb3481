"""Docstrings for the site: an extension of griffe that mkdocs.yml names.

The docstrings are written for people who read the code. The site wants a little more form:

    :class:`X`                        references of Sphinx are shown as code
    train, valid                      parameters with one description get an entry each, with their own type and default
    Returns / The model itself.       a sentence is a description and not a type
    for example::                     a block follows anyway: one colon is enough
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_TOGETHER = re.compile(r"^(\w+(?:, \w+)+)\n((?:    .*\n?|\n(?=    ))+)", re.MULTILINE)
_RETURNS = re.compile(r"^Returns\n-------\n(?P<text>\S.*(?:\n(?![\n ]).*)*)(?=\n\n|\Z)", re.MULTILINE)


class SiteDocstrings(griffe.Extension):
    """Give docstrings the form that the site shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            returns = str(obj.returns) if isinstance(obj, griffe.Function) and obj.returns else ""
            obj.docstring.value = for_the_site(obj.docstring.value, returns)


def for_the_site(text: str, returns: str = "") -> str:
    """Rewrite a docstring; ``returns`` is the annotation of what a function returns."""
    text = _ROLE.sub(r"`\1`", text).replace("::\n\n    ", ":\n\n    ")
    text = _TOGETHER.sub(lambda m: "".join(f"{name}\n{m[2].rstrip()}\n" for name in m[1].split(", ")), text)
    return _RETURNS.sub(lambda m: _described(m["text"], returns), text)


def _described(text: str, returns: str) -> str:
    """Write what is returned as a type with a description, where it is a sentence."""
    if not returns or " " not in text:
        return f"Returns\n-------\n{text}"
    return f"Returns\n-------\n{returns}\n    {' '.join(text.split())}"
