"""Checks of options: numbers within bounds, words from a list, and amounts of memory."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
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


def suggests_arguments(
    instead: Mapping[str, str] | None = None, *, call: str | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that raises an error with a remedy for an unknown or a missing argument.

    Parameters
    ----------
    instead
        What to write instead of an argument that other packages have, as a sentence without the final full stop
        (default: nothing).
    call
        The call to show if an argument is missing. Default: the function with its required arguments.
    """
    other_names = instead or {}

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        parameters = inspect.signature(function).parameters
        accepts = _Arguments.of(function.__name__, parameters, call)

        @wraps(function)
        def check_and_call(*args: P.args, **kwargs: P.kwargs) -> T:
            accepts.require_known(kwargs, other_names)
            accepts.require_no_extra(args, other_names)
            accepts.require_complete(args, kwargs)
            return function(*args, **kwargs)

        return check_and_call

    return decorate


@dataclass(frozen=True)
class _Arguments:
    """The arguments that a function accepts, without ``self`` and ``cls``."""

    function: str
    by_position: tuple[str, ...]
    by_name: tuple[str, ...]
    required: tuple[str, ...]
    is_method: bool
    has_any: bool  # whether the function takes any number of arguments or names
    call: str

    @classmethod
    def of(cls, function: str, parameters: Mapping[str, inspect.Parameter], call: str | None) -> _Arguments:
        """Return the arguments of a signature."""
        is_method = bool({"self", "cls"} & {*parameters})
        kinds = {name: parameter.kind for name, parameter in parameters.items() if name not in ("self", "cls")}
        by_name = tuple(name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY)
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        required = tuple(
            n for n, k in kinds.items() if parameters[n].default is inspect.Parameter.empty and k not in variable
        )
        by_position = tuple(n for n, k in kinds.items() if n not in by_name and k not in variable)
        words = [f"{name}=..." if name in by_name else name for name in required]
        has_any = any(kind in variable for kind in kinds.values())
        shown = call or f"{function}({', '.join(words)})"
        return cls(function, by_position, by_name, required, is_method, has_any, shown)

    def require_known(self, names: Iterable[str], instead: Mapping[str, str]) -> None:
        """Raise ArgumentError for a name that is no argument."""
        accepted = {*self.by_position, *self.by_name}
        for name in names:
            if name not in accepted and not self.has_any:
                remedy = f" {instead[name]}." if name in instead else did_you_mean(name, accepted)
                raise ArgumentError(f"{self.function} has no argument {name!r}.{remedy}")

    def require_no_extra(self, args: tuple[object, ...], instead: Mapping[str, str]) -> None:
        """Raise ArgumentError if there are more values than arguments that are passed by position."""
        if len(args) <= len(self.by_position) + self.is_method or self.has_any:
            return
        if self.by_name:
            words = ", ".join(f"{name}=..." for name in self.by_name[:2])
            raise ArgumentError(f"{self.function} takes most arguments by name: write {words}.")
        remedy = f" {instead['y']}." if "y" in instead else ""
        raise ArgumentError(f"{self.function} takes only {', '.join(self.by_position)}.{remedy}")

    def require_complete(self, args: tuple[object, ...], names: Collection[str]) -> None:
        """Raise ArgumentError if an argument without a default is missing."""
        if self.is_method and args and not hasattr(args[0], self.function):
            raise ArgumentError(
                f"{self.function} was called on a class, not on a model: create the model first, as in "
                f"MNL().{self.function}(...)."
            )
        passed = {*self.by_position[: len(args) - self.is_method], *names}
        missing = [name for name in self.required if name not in passed]
        if missing:
            listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
            raise ArgumentError(f"{self.function} needs {listed}: write {self.call}.")


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
