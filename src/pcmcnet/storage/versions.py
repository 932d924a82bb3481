"""Which version of a package is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version(name: str) -> str:
    """Return the version of an installed distribution; a source tree on the path is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"
