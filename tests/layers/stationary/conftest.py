"""Run tests with each solver, regardless of the size."""

from collections.abc import Iterator

import pytest

from pcmcnet.layers import settings


@pytest.fixture(scope="module", params=["elimination", "in blocks"])
def solver(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in blocks":
            patch.setattr(settings, "ELIMINATION_IN_BLOCKS_ABOVE_STATES", 0)
            patch.setattr(settings, "ELIMINATION_BLOCK_STATES", 2)  # small sets have many blocks
        yield
