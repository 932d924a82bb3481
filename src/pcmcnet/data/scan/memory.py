"""Parser for amounts of memory."""

from __future__ import annotations

import re

from pcmcnet.errors import ConfigError

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
