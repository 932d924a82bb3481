"""Options written as words, ``hidden=512,512`` or ``random.price=normal``, read by the types of the config's fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.interface.options import option_names

_PAIR = re.compile(r"[ ,]*(.+?):([^:,]*)(?:,|$)")
_FLAGS = {"true": True, "false": False, "1": True, "0": False}


def parse_options(config_class: type, words: Iterable[str], into: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read several options; entries of one that are set apart, as in random.price=normal, come together."""
    found = {} if into is None else into
    for word in words:
        name, value = parse_option(config_class, word)
        apart = "." in word.partition("=")[0] and isinstance(found.get(name), dict)
        found[name] = {**found[name], **value} if apart else value
    return found


def parse_option(config_class: type, word: str) -> tuple[str, Any]:
    """Read ``name=value`` by the type of the option: hidden=512,512, lr=0.001, refit=true, random.price=normal."""
    name, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(f"expected name=value, got {word!r}.")
    hints = get_type_hints(config_class)
    option, dot, key = name.partition(".")
    if dot and option in option_names(config_class):
        return option, {key: _parse_entry(option, key, text.strip(), hints[option])}
    if name not in option_names(config_class):
        raise ConfigError(f"unknown option {name!r}." + did_you_mean(name, option_names(config_class)))
    try:
        return name, _parse(text.strip(), hints[name])
    except ValueError as error:
        raise ConfigError(f"option {name}: cannot read {text!r} as {_describe(hints[name])}.") from error


def _parse_entry(option: str, key: str, text: str, kind: Any) -> Any:
    """Read the value of one entry of an option that maps names to values."""
    kinds = [kind, *get_args(kind)] if get_origin(kind) in (Union, UnionType) else [kind]
    maps = [k for k in kinds if get_origin(k) is Mapping]
    if not maps or not key:
        raise ConfigError(f"option {option} has no entries by name: give {option}=value.")
    value = get_args(maps[0])[1]
    try:
        return _parse_one(text, value)
    except ValueError as error:
        raise ConfigError(f"option {option}.{key}: cannot read {text!r} as {_describe(value)}.") from error


def _parse(text: str, kind: Any) -> Any:
    """Read a value; of a union, as the first of its kinds that the text fits."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if type(None) in kinds and text.lower() in ("", "none"):
        return None
    kinds = tuple(k for k in kinds if k is not type(None))
    for k in kinds[:-1]:
        try:
            return _parse_one(text, k)
        except ValueError:
            continue
    if len(kinds) > 1 and get_origin(kinds[-1]) is Literal and not text.isalpha():
        raise ValueError(text)  # a number gone wrong; a wrong word is for the config, which knows the right ones
    return _parse_one(text, kinds[-1])


def _parse_one(text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise ValueError(text)
        return _FLAGS[text.lower()]
    if kind in (int, float):
        return kind(text)
    if kind is Path:
        if not text.endswith(".toml"):
            raise ValueError(text)
        return Path(text)
    if _is_range(kind):
        return _parse_range(text)
    if get_origin(kind) is tuple:  # tuple[int, ...]
        return tuple(_parse_one(part.strip(), get_args(kind)[0]) for part in text.split(",") if part.strip())
    if get_origin(kind) is Mapping:  # Mapping[str, int]
        key, value = get_args(kind)
        return {_parse_one(a.strip(), key): _parse_one(b.strip(), value) for a, b in _pairs(text)}
    return text


def _pairs(text: str) -> list[tuple[str, str]]:
    """Part name:value,name:value; a name may hold commas and colons, a value neither."""
    pairs, at = [], 0
    while text[at:].strip(" ,"):
        match = _PAIR.match(text, at)
        if match is None:
            raise ValueError(text)
        pairs.append((match[1], match[2]))
        at = match.end()
    return pairs


def _is_range(kind: Any) -> bool:
    """Tell whether a kind is a pair of bounds, each a number or None."""
    return get_origin(kind) is tuple and get_args(kind) == (float | None, float | None)


def _parse_range(text: str) -> tuple[float | None, float | None]:
    """Read low..high, of which either may be missing."""
    low, dots, high = (part.strip() for part in text.partition(".."))
    if not dots:
        raise ValueError(text)
    return float(low) if low else None, float(high) if high else None


def _describe(kind: Any) -> str:
    """Say in words what a value looks like."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_describe(k) for k in get_args(kind))
    if get_origin(kind) is tuple:
        return "numbers such as 64,64" if get_args(kind)[0] is int else "words such as one,two"
    if get_origin(kind) is Mapping:
        value = "low..high" if _is_range(get_args(kind)[1]) else "value"
        return f"pairs such as name:{value},name:{value}"
    names = {bool: "true or false", Path: "a TOML file", int: "a whole number", float: "a number", type(None): "none"}
    return names.get(kind, "a word")
