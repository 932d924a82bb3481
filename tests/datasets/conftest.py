"""Tables of other packages, for the tests where they are installed."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

import pytest

from pcmcnet.datasets import packaged
from pcmcnet.datasets.packaged import TABLES


@pytest.fixture(scope="session", autouse=True)
def members_of_archives_are_read_once() -> Iterator[None]:
    """A table in an archive of hundreds takes longer to find than to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packaged, "_member", cache(packaged._member))
        yield


@pytest.fixture
def needs() -> Callable[[str], None]:
    """Skip the test where the package of a table is not installed."""

    def check(name: str) -> None:
        try:
            distribution(TABLES[name].distribution)
        except PackageNotFoundError:
            pytest.skip(f"needs a table of another package; run: {TABLES[name].install}")

    return check
