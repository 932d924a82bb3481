"""Statistics of columns that come in parts."""

from collections import Counter

import numpy as np
import pytest

from pcmcnet.data.column_arrays import Categorical, Columns, Numeric
from pcmcnet.data.column_statistics import Statistics


def columns(values: list[float], codes: list[int], categories: tuple[str, ...]) -> Columns:
    return {
        "price": Numeric(np.array(values, np.float32)),
        "mode": Categorical(np.array(codes, np.int32), categories),
    }


def test_parts_together_are_the_whole_and_words_that_no_row_has_do_not_count() -> None:
    """Prices 1, 3 and 5, of which the last is in a part of its own: mean 3, sum of squares 8; "ship" is in no row."""
    parts = [columns([1, 3], [0, 2], ("bus", "ship", "car")), columns([5, np.nan], [0, 0], ("car", "ship"))]
    found = Statistics.together([Statistics.of(part) for part in parts])
    assert found.words == {"mode": Counter({"car": 3, "bus": 1})}
    moments = found.moments["price"]
    assert (moments.count, moments.gaps, moments.mean) == (3, 1, 3.0)
    assert moments.m2 == pytest.approx(8.0)


def test_no_part_has_no_columns() -> None:
    assert Statistics.together([]) == ({}, {})
