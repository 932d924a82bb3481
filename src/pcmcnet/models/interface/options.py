"""Options of models: from keyword arguments, from saved JSON and from ``key=value`` words of a command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import (
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    TypeVar,
)

import numpy as np

from pcmcnet.errors import ConfigError, did_you_mean

# -- Option docs -------------------------------------------------------------------------------------------------------
# What the options of a model mean, out of the docstrings of its class of options and of those that it extends.

REQUIRED = MISSING
_SECTION = re.compile(r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^([\w, ]+)\n((?:    .+\n?)+)", re.MULTILINE)  # "name, other\n    what it means"


class OptionDoc(NamedTuple):
    """One option: its name, its default (``REQUIRED`` where it has none) and what it means."""

    name: str
    default: Any
    meaning: str


def option_docs(config: type) -> list[OptionDoc]:
    """Return the options of a class of options, in their order; each must have a description."""
    meanings = option_descriptions(config)
    if missing := [field.name for field in fields(config) if field.name not in meanings]:
        raise LookupError(f"{config.__name__}: no docstring describes {', '.join(missing)}.")
    defaults = (f.default if f.default_factory is MISSING else f.default_factory() for f in fields(config))
    return [OptionDoc(f.name, value, meanings[f.name]) for f, value in zip(fields(config), defaults, strict=True)]


def option_descriptions(config: type) -> dict[str, str]:
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


C = TypeVar("C")
P = ParamSpec("P")


def takes(config: Callable[P, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Tell type checkers and editors that a constructor takes what ``config`` takes; it stays as it is."""
    return lambda constructor: constructor


def make_config(config_class: type[C], options: Mapping[str, Any]) -> C:
    """Build a config from named values; an unknown name is refused with the nearest known one."""
    known = option_names(config_class)
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown option {name!r}." + did_you_mean(name, known))
    numpy_kinds = (np.generic, np.ndarray)  # whose values become Python's
    return config_class(**{k: v.tolist() if isinstance(v, numpy_kinds) else v for k, v in options.items()})


def option_names(config_class: type) -> list[str]:
    """Return the names of a config's options."""
    return [f.name for f in fields(config_class)]
