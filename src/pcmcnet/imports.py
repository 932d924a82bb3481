"""Public names of a package that are imported when they are first used, so that importing the package is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that imports names from its modules.

    A name must differ from the names of the package's modules, which become attributes of the package once they are
    imported.

    Parameters
    ----------
    package
        Name of the package.
    modules
        The module of each name, relative to the package.
    """

    def get_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get_name
