"""A problem that trains in milliseconds."""

from collections.abc import Callable

import pytest

from choice_tables import encoded_sets
from pcmcnet.data import EncodedSets


@pytest.fixture
def make_sets() -> Callable[..., EncodedSets]:
    """Make encoded sets of 2 to 5 alternatives with two features."""
    return encoded_sets
