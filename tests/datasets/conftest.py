"""Tables of other packages, for the tests where they are installed."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution

import pytest

from pcmcnet.datasets.packaged import TABLES


@pytest.fixture
def needs() -> Callable[[str], None]:
    """Skip the test where the package of a table is not installed."""

    def check(name: str) -> None:
        try:
            distribution(TABLES[name].distribution)
        except PackageNotFoundError:
            pytest.skip(f"needs a table of another package; run: {TABLES[name].install}")

    return check
