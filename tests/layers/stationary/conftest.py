"""Each solver in turn, whichever would be chosen for the size."""

from collections.abc import Iterator

import pytest

from pcmcnet.layers.stationary import dispatch as solvers
from pcmcnet.layers.stationary import elimination_in_blocks as blocked


@pytest.fixture(scope="module", params=["elimination", "blocked"])
def solver(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "blocked":
            patch.setattr(solvers, "LARGE", 0)
            patch.setattr(blocked, "PANEL", 2)  # so that small sets have many panels
        yield
