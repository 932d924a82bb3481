"""Loading of the libraries that are compiled when the package is built (hatch_build.py).

Without a library, the same work is done in Python, several times slower. A missing library is logged once per process,
an unusable one whenever it is loaded.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["load_library"]

log = logging.getLogger("pcmcnet")


def load_library(file: Path, *, version_function: str, version: int, fallback: str) -> Any:
    """Return a compiled library, or None if it is missing or unusable.

    Parameters
    ----------
    file
        The library; it has the ending .so on every platform.
    version_function
        Function of the library that returns the version of its interface, an int64.
    version
        Expected version. A library of another version is not used, because its structures may have another layout.
    fallback
        What happens without the library, for the messages.
    """
    if not file.exists():
        _warn_of_missing_libraries()
        return None
    try:
        library = ctypes.CDLL(str(file))
        installed = getattr(library, version_function)
        installed.restype = ctypes.c_int64
        found = installed()
    except (OSError, AttributeError) as error:
        log.warning("%s cannot be loaded (%s): %s, which is slower. Reinstall pcmcnet", file, error, fallback)
        return None
    if found != version:
        log.warning(
            "%s belongs to another version of this package: %s, which is slower. Reinstall pcmcnet", file, fallback
        )
        return None
    return library


@cache
def _warn_of_missing_libraries() -> None:
    log.warning(
        "pcmcnet was installed without its compiled steps: fits of small networks and of trees take several times "
        "longer. Install a C compiler, then run: "
        "pip install --force-reinstall --no-deps --no-binary pcmcnet pcmcnet"
    )
