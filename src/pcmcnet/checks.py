"""Checks of options: a number within bounds, one of some words."""

from __future__ import annotations

import math
import sys

from pcmcnet.errors import ConfigError, did_you_mean

MAX_COUNT = 10**12  # of anything that is counted: more is a slip of the hand


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
    """Refuse anything but a (whole) number within bounds; a whole one counts something, and ends somewhere."""
    kinds = (int,) if whole else (int, float)
    fine = isinstance(value, kinds) and not isinstance(value, bool)
    if fine:
        assert isinstance(value, int | float)
        if whole and high == math.inf and value > MAX_COUNT:
            high = MAX_COUNT
        above = value > low if open_low else value >= low
        below = value < high if open_high else value <= high
        fine = above and below and abs(value) <= sys.float_info.max
    if not fine:
        noun = "a whole number" if whole else "a number"
        bounds = [f"{'above' if open_low else 'of at least'} {low:g}"] if low > -math.inf else []
        if high < math.inf:
            bounds.append(f"{'below' if open_high else 'at most'} {f'{int(high):,}' if whole else f'{high:g}'}")
        limits = f" {' and '.join(bounds)}" if bounds else ""
        raise ConfigError(f"{name} must be {noun}{limits}, got {value!r}.")


def require_word(name: str, value: object, words: tuple[str, ...]) -> None:
    """Refuse a word that is not among those known."""
    if value not in words:
        raise ConfigError(f"unknown {name} {value!r}." + did_you_mean(str(value), words))
