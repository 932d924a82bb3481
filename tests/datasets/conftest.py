"""Fixtures for tables of other packages, used if these are installed."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

import pytest

from pcmcnet.datasets import packaged
from pcmcnet.datasets.packaged import TABLES
from pcmcnet.datasets.packaged_tables import OWN


@pytest.fixture(scope="session", autouse=True)
def members_of_archives_are_read_once() -> Iterator[None]:
    """Cache the members of archives: finding a table among hundreds takes longer than reading it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packaged, "_member", cache(packaged._member))
        yield


@pytest.fixture
def needs() -> Callable[[str], None]:
    """Skip the test if the package of a table is not installed."""

    def check(name: str) -> None:
        if TABLES[name].distribution == OWN:
            return
        try:
            distribution(TABLES[name].distribution)
        except PackageNotFoundError:
            pytest.skip(f"needs a table of another package; run: {TABLES[name].install}")

    return check
