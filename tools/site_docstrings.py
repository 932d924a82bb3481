"""Docstrings for the site: an extension of griffe that mkdocs.yml names.

Docstrings refer to each other as Sphinx does. The site has links from signatures and headings; in running text such a
reference is shown as code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class PlainRoles(griffe.Extension):
    """Show :class:`X` as code, in all docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", obj.docstring.value)
