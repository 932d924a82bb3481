"""Numbers that float32 cannot tell apart are noticed, also where only all parts of a table together show it."""

import numpy as np
import pytest

from pcmcnet.data.float32_resolution import Span, is_close
from pcmcnet.errors import SchemaError


def span(values: list[float]) -> Span:
    exact = np.array(values)
    found = Span.of(exact, exact.astype(np.float32))
    assert found is not None
    return found


def test_seconds_since_1970_are_refused_and_few_prices_are_not() -> None:
    seconds = np.arange(1.7e9, 1.7e9 + 2000)
    with pytest.raises(SchemaError, match="column 'when': its values differ by less"):
        span(seconds.tolist()).require_steps("when")
    span([1.0, 1.1]).require_steps("price")
    assert is_close(seconds.astype(np.float32))
    assert not is_close(np.arange(2000, dtype=np.float32))


def test_parts_are_judged_together() -> None:
    close = span(np.arange(1.7e9, 1.7e9 + 2000).tolist())
    (close + span([0.0, 5.0])).require_steps("when")  # now they spread
    with pytest.raises(SchemaError, match=r"from 1700000000\.0 to 1700003999\.0"):
        (close + span(np.arange(1.7e9 + 2000, 1.7e9 + 4000).tolist())).require_steps("when")


def test_a_column_of_gaps_has_no_span() -> None:
    assert Span.of(np.array([np.nan]), np.array([np.nan], np.float32)) is None
