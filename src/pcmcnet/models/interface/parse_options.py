"""Parse options such as ``hidden=512,512`` or ``random.price=normal``, using the types of the config's fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pcmcnet.errors import ConfigError
from pcmcnet.models.interface.options import option_names, unknown_option

_PAIR = re.compile(r"[ ,]*(.+?):([^:,]*)(?:,|$)")
_FLAGS = {"true": True, "false": False, "1": True, "0": False}

_EXAMPLES = {"random": "price:lognormal,time:normal"}  # of options that map names of coefficients to words


def parse_options(config_class: type, words: Iterable[str], into: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return several options as a dict, in which entries of a mapping such as random.price=normal are merged."""
    options = {} if into is None else into
    for word in words:
        name, value = parse_option(config_class, word)
        is_entry = "." in word.partition("=")[0] and isinstance(options.get(name), dict)
        options[name] = {**options[name], **value} if is_entry else value
    return options


def parse_option(config_class: type, word: str) -> tuple[str, Any]:
    """Return the name and the value of ``name=value``, such as hidden=512,512, refit=true or random.price=normal."""
    name, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(f"expected name=value, got {word!r}.")
    hints = get_type_hints(config_class)
    option, dot, key = name.partition(".")
    if dot and option in option_names(config_class):
        return option, {key: _parse_entry(option, key, text.strip(), hints[option])}
    if name not in option_names(config_class):
        raise unknown_option(name, config_class)
    try:
        return name, _parse(text.strip(), hints[name])
    except ValueError as error:
        example = f" Write, for example, {name}={_EXAMPLES[name]}." if name in _EXAMPLES else ""
        raise ConfigError(f"option {name}: cannot read {text!r} as {_describe(hints[name])}.{example}") from error


def _parse_entry(option: str, key: str, text: str, kind: Any) -> Any:
    """Parse one entry of an option that maps names to values."""
    kinds = [kind, *get_args(kind)] if get_origin(kind) in (Union, UnionType) else [kind]
    maps = [k for k in kinds if get_origin(k) is Mapping]
    if not maps or not key:
        raise ConfigError(f"option {option} has no named entries: use {option}=value.")
    value = get_args(maps[0])[1]
    try:
        return _parse_one(text, value)
    except ValueError as error:
        raise ConfigError(f"option {option}.{key}: cannot read {text!r} as {_describe(value)}.") from error


def _parse(text: str, kind: Any) -> Any:
    """Parse a value, using the first type that fits the text if the type is a union."""
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
        raise ValueError(text)  # a malformed number; words are left to the config, which lists the valid ones
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
    """Split name:value,name:value into pairs, where only names may contain commas and colons."""
    pairs, at = [], 0
    while text[at:].strip(" ,"):
        match = _PAIR.match(text, at)
        if match is None:
            raise ValueError(text)
        pairs.append((match[1], match[2]))
        at = match.end()
    return pairs


def _is_range(kind: Any) -> bool:
    """Return True if a type is a pair of bounds, each of which is a number or None."""
    return get_origin(kind) is tuple and get_args(kind) == (float | None, float | None)


def _parse_range(text: str) -> tuple[float | None, float | None]:
    """Parse bounds of the form low..high, where either bound may be missing."""
    low, dots, high = (part.strip() for part in text.partition(".."))
    if not dots:
        raise ValueError(text)
    return float(low) if low else None, float(high) if high else None


def _describe(kind: Any) -> str:
    """Return a description of the values that a type allows, for use in messages."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_describe(k) for k in get_args(kind))
    if get_origin(kind) is tuple:
        return "numbers such as 64,64" if get_args(kind)[0] is int else "words such as one,two"
    if get_origin(kind) is Mapping:
        value = "low..high" if _is_range(get_args(kind)[1]) else "value"
        return f"pairs such as name:{value},name:{value}"
    names = {bool: "true or false", Path: "a TOML file", int: "a whole number", float: "a number", type(None): "none"}
    return names.get(kind, "a word")
