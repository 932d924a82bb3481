"""Options of models: from keyword arguments, from saved JSON and from ``key=value`` words of a command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

from pcmcnet.errors import ConfigError, did_you_mean

_FLAGS = {"true": True, "false": False, "1": True, "0": False}

C = TypeVar("C")


def make_config(config_class: type[C], options: Mapping[str, Any]) -> C:
    """Build a config from named values; an unknown name is refused with the nearest known one."""
    known = option_names(config_class)
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown option {name!r}." + did_you_mean(name, known))
    return config_class(**{name: _plain(value) for name, value in options.items()})


def _plain(value: Any) -> Any:
    """Take numpy's numbers and arrays for Python's."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def option_names(config_class: type) -> list[str]:
    """Return the names of a config's options."""
    return [f.name for f in fields(config_class)]


def parse_option(config_class: type, word: str) -> tuple[str, Any]:
    """Read ``name=value`` by the type of the option: hidden=512,512, lr=0.001, refit=true."""
    name, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(f"expected name=value, got {word!r}.")
    hints = get_type_hints(config_class)
    if name not in option_names(config_class):
        raise ConfigError(f"unknown option {name!r}." + did_you_mean(name, option_names(config_class)))
    try:
        return name, _parse(text.strip(), hints[name])
    except ValueError as error:
        raise ConfigError(f"option {name}: cannot read {text!r} as {_describe(hints[name])}.") from error


def _parse(text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise ValueError(text)
        return _FLAGS[text.lower()]
    if kind is int:
        return int(text)
    if kind is float:
        return float(text)
    if kind == tuple[int, ...]:
        return tuple(int(part) for part in text.split(",") if part.strip())
    if float in get_args(kind) and not text.isalpha():  # a number or a word
        return float(text)
    return text


def _describe(kind: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", tuple[int, ...]: "numbers such as 64,64"}
    return names.get(kind, "a number or a word" if float in get_args(kind) else "a word")
