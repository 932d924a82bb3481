"""What the options of a model mean, out of the docstrings of its class of options and of those that it extends."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

REQUIRED = MISSING
_SECTION = re.compile(r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^([\w, ]+)\n((?:    .+\n?)+)", re.MULTILINE)  # "name, other\n    what it means"


class OptionDoc(NamedTuple):
    """One option: its name, its default (``REQUIRED`` where it has none) and what it means."""

    name: str
    default: Any
    meaning: str


def option_docs(config: type) -> list[OptionDoc]:
    """Return the options of a class of options, in their order.

    Raises
    ------
    LookupError
        When an option has no description.
    """
    meanings = meanings_of(config)
    missing = [field.name for field in fields(config) if field.name not in meanings]
    if missing:
        raise LookupError(f"{config.__name__}: no docstring describes {', '.join(missing)}.")
    found = []
    for field in fields(config):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        found.append(OptionDoc(field.name, default, meanings[field.name]))
    return found


def meanings_of(config: type) -> dict[str, str]:
    """Return what the docstrings say of each option, in one line."""
    found: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        for section in _SECTION.findall(inspect.cleandoc(owner.__doc__ or "")):
            for names, meaning in _ENTRY.findall(section):
                found |= {name.strip(): " ".join(plain_roles(meaning).split()) for name in names.split(",")}
    return found


def plain_roles(text: str) -> str:
    """Write references of Sphinx as code: ":meth:`~a.b`" becomes "`a.b`", and double backticks become single."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
