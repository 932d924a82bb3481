"""Checks of options: numbers within bounds, words from a list, and amounts of memory."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from pcmcnet.errors import ArgumentError, ConfigError, did_you_mean

P = ParamSpec("P")
T = TypeVar("T")

MAX_COUNT = 10**12  # upper bound of every whole-number option: a larger value is a typing error


def require_number(
    name: str,
    value: object,
    *,
    whole: bool = False,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise ConfigError unless a value is a number within bounds.

    Parameters
    ----------
    name
        Name of the option, for the message.
    value
        Value to check. A bool is not accepted as a number.
    whole
        Whether the number must be an int. If ``high`` is not given, the number may be at most ``MAX_COUNT``.
    low, high
        Bounds of the number, which are included by default.
    open_low, open_high
        Whether the lower or upper bound itself is excluded.
    """
    kinds = (int,) if whole else (int, float)
    is_valid = isinstance(value, kinds) and not isinstance(value, bool)
    if is_valid:
        assert isinstance(value, int | float)
        if whole and high == math.inf and value > MAX_COUNT:
            high = MAX_COUNT
        is_above = value > low if open_low else value >= low
        is_below = value < high if open_high else value <= high
        is_valid = is_above and is_below and abs(value) <= sys.float_info.max
    if not is_valid:
        noun = "a whole number" if whole else "a number"
        bounds = [f"{'above' if open_low else 'of at least'} {low:g}"] if low > -math.inf else []
        if high < math.inf:
            bounds.append(f"{'below' if open_high else 'at most'} {f'{int(high):,}' if whole else f'{high:g}'}")
        limits = f" {' and '.join(bounds)}" if bounds else ""
        raise ConfigError(f"{name} must be {noun}{limits}, got {value!r}.")


def require_word(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise ConfigError unless a value is one of the given words."""
    if value not in words:
        raise ConfigError(f"unknown {name} {value!r}." + did_you_mean(str(value), words))


def require_device_name(name: object) -> None:
    """Raise ConfigError for a name that PyTorch does not use, such as "gpu". Other names are checked later.

    Parameters
    ----------
    name
        Name of a device.
    """
    if str(name).partition(":")[0].lower() in ("gpu", "nvidia", "tpu"):
        raise ConfigError(
            f"there is no device {name!r}: write 'cuda' for an NVIDIA GPU, 'cpu', or 'auto' for a GPU if there is one."
        )


# -- Names of arguments ----------------------------------------------------------------------------------------------


def suggests_arguments(instead: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that raises an error with a remedy for an unknown argument.

    Parameters
    ----------
    instead
        What to write instead of an argument that other packages have, as a sentence without the final full stop.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        parameters = inspect.signature(function).parameters
        arguments = {*parameters} - {"self", "cls"}
        by_name = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if name not in arguments:
                    remedy = f" {instead[name]}." if name in instead else did_you_mean(name, arguments)
                    raise ArgumentError(f"{function.__name__} has no argument {name!r}.{remedy}")
            if by_name and len(args) > len(parameters) - len(by_name):
                words = ", ".join(f"{name}=..." for name in by_name[:2])
                raise ArgumentError(f"{function.__name__} takes most arguments by name: write {words}.")
            if len(args) > len(parameters):
                names = ", ".join(name for name in parameters if name not in ("self", "cls"))
                remedy = f" {instead['y']}." if "y" in instead else ""
                raise ArgumentError(f"{function.__name__} takes only {names}.{remedy}")
            return function(*args, **kwargs)

        return call

    return decorate


# -- Amounts of memory ------------------------------------------------------------------------------------------

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_MIN_MEMORY = 2**20  # bytes


def bytes_of(amount: str | int) -> int:
    """Return an amount of memory, such as "1 GiB", "512 MB" or a number of bytes, in bytes.

    Examples
    --------
    >>> bytes_of("1 GiB"), bytes_of("500MB"), bytes_of(2**20)
    (1073741824, 500000000, 1048576)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(amount).lower())
    size = round(float(match[1]) * _UNITS[match[2]]) if match and match[2] in _UNITS else 0
    if isinstance(amount, bool) or size < _MIN_MEMORY:
        raise ConfigError(f"memory must be an amount of at least 1 MiB, such as '1 GiB' or '500 MB', got {amount!r}.")
    return size
