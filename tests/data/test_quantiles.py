"""Order statistics of a column that comes in parts are those of the sorted column."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data import quantiles as module
from pcmcnet.data.quantiles import order_statistics, quantiles, without_gaps

FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


@given(values=FLOATS, cut=st.integers(0, 40), gaps=st.integers(0, 3), few=st.sampled_from([0, 40]))
def test_order_statistics_are_exact_however_the_column_is_cut(
    values: list[float], cut: int, gaps: int, few: int
) -> None:
    x = np.array([*values, *[np.nan] * gaps], np.float32)
    parts = [x[:cut], x[cut:]]
    ranks = list(range(len(values)))
    with mock.patch.object(module, "_FEW", few):  # counted or sorted
        found = order_statistics(lambda f: map(f, parts), ranks)
    assert np.array_equal(found, np.sort(np.array(values, np.float32)))


def test_quantiles_cut_a_column_into_pieces_of_like_number() -> None:
    x = np.random.default_rng(0).normal(size=1601).astype(np.float32)
    knots = quantiles(lambda f: [f(x)], len(x), 16)
    assert len(knots) == 17
    assert np.histogram(x, knots)[0].tolist() == [100] * 15 + [101]


@pytest.mark.parametrize(("values", "knots"), [([5, 5, 5], [5]), ([0, 1, 1, 1], [0, 1]), ([2], [2])])
def test_quantiles_that_coincide_are_one(values: list[float], knots: list[float]) -> None:
    assert quantiles(lambda f: [f(np.array(values, np.float32))], len(values), 16).tolist() == knots


def test_gaps_are_left_out_and_a_column_without_any_is_no_copy() -> None:
    whole = np.array([3, -1, 2], np.float32)
    assert without_gaps(whole) is whole
    assert without_gaps(np.array([3, np.nan, 2], np.float32)).tolist() == [3, 2]
