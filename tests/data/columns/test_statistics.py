"""Numbers that float32 cannot distinguish are detected, even if only all parts together show it."""

import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns import statistics as module
from pcmcnet.data.columns.statistics import (
    MAX_LISTED_VALUES,
    ColumnMoments,
    Span,
    is_close,
    median_magnitude,
    order_statistics,
    quantiles,
    without_missing,
)
from pcmcnet.data.encoder import Encoder
from pcmcnet.errors import SchemaError


def span(values: list[float]) -> Span:
    exact = np.array(values)
    result = Span.of(exact, exact.astype(np.float32))
    assert result is not None
    return result


def test_seconds_since_1970_are_refused_but_close_prices_are_not() -> None:
    seconds = np.arange(1.7e9, 1.7e9 + 2000)
    with pytest.raises(SchemaError, match="column 'when': its values differ by less"):
        span(seconds.tolist()).require_float32_resolution("when")
    span([1.0, 1.1]).require_float32_resolution("price")
    assert is_close(seconds.astype(np.float32))
    assert not is_close(np.arange(2000, dtype=np.float32))


def test_parts_are_judged_together() -> None:
    close = span(np.arange(1.7e9, 1.7e9 + 2000).tolist())
    (close + span([0.0, 5.0])).require_float32_resolution("when")  # the other part widens the range
    with pytest.raises(SchemaError, match=r"from 1700000000\.0 to 1700003999\.0"):
        (close + span(np.arange(1.7e9 + 2000, 1.7e9 + 4000).tolist())).require_float32_resolution("when")


def test_a_column_of_missing_values_has_no_span() -> None:
    assert Span.of(np.array([np.nan]), np.array([np.nan], np.float32)) is None


# -- Quantiles ---------------------------------------------------------------------------------------------------------
# Order statistics of a column in parts equal those of the sorted column.


FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


@given(values=FLOATS, cut=st.integers(0, 40), gaps=st.integers(0, 3), few=st.sampled_from([0, 40]))
def test_order_statistics_are_exact_for_any_parts(values: list[float], cut: int, gaps: int, few: int) -> None:
    x = np.array([*values, *[np.nan] * gaps], np.float32)
    parts = [x[:cut], x[cut:]]
    ranks = list(range(len(values)))
    with mock.patch.object(module, "_MAX_SORTED", few):  # small: values are counted instead of sorted
        statistics = order_statistics(lambda f: map(f, parts), ranks)
    assert np.array_equal(statistics, np.sort(np.array(values, np.float32)))


def test_quantiles_split_a_column_into_equal_shares() -> None:
    x = np.random.default_rng(0).normal(size=1601).astype(np.float32)
    knots = quantiles(lambda f: [f(x)], len(x), 16)
    assert len(knots) == 17
    assert np.histogram(x, knots)[0].tolist() == [100] * 15 + [101]


@pytest.mark.parametrize(("values", "knots"), [([5, 5, 5], [5]), ([0, 1, 1, 1], [0, 1]), ([2], [2])])
def test_equal_quantiles_are_merged(values: list[float], knots: list[float]) -> None:
    assert quantiles(lambda f: [f(np.array(values, np.float32))], len(values), 16).tolist() == knots


def test_missing_values_are_dropped_without_a_needless_copy() -> None:
    whole = np.array([3, -1, 2], np.float32)
    assert without_missing(whole) is whole
    assert without_missing(np.array([3, np.nan, 2], np.float32)).tolist() == [3, 2]


# -- Running moments ---------------------------------------------------------------------------------------------------
# Moments and medians of a column in parts equal those of the whole column.


NUMBERS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60)


def test_moments_match_values_worked_out_by_hand() -> None:
    """1, 2, 6: mean 3, deviations -2, -1, 3, squares 14, cubes -8 - 1 + 27 = 18."""
    moments = ColumnMoments.of(np.array([1.0, 2.0, math.nan, 6.0]))
    assert (moments.count, moments.mean, moments.m2, moments.m3, moments.low, moments.high, moments.gaps) == (
        3,
        3,
        14,
        18,
        1,
        6,
        1,
    )
    assert moments.skewness == pytest.approx(6 / (14 / 3) ** 1.5)


def test_moments_of_one_part_are_bitwise_those_of_numpy() -> None:
    values = np.random.default_rng(0).lognormal(size=10_001)
    moments = ColumnMoments.of(values)
    assert (moments.mean, moments.spread) == (values.mean(), values.std())


@given(values=NUMBERS, cut=st.integers(0, 60), again=st.integers(0, 60))
def test_moments_of_parts_add_up_to_those_of_the_whole(values: list[float], cut: int, again: int) -> None:
    x = np.array(values)
    begin, end = sorted((min(cut, len(x)), min(again, len(x))))
    parts = [ColumnMoments.of(x[:begin]), ColumnMoments.of(x[begin:end]), ColumnMoments.of(x[end:])]
    whole, joined = ColumnMoments.of(x), parts[0] + parts[1] + parts[2]
    scale = max(np.abs(x).max(), 1e-30)  # rounding errors are relative to this
    assert joined.count == whole.count
    assert joined.mean == pytest.approx(whole.mean, abs=1e-13 * scale)
    assert joined.m2 == pytest.approx(whole.m2, abs=1e-12 * scale**2 * len(x))
    assert joined.m3 == pytest.approx(whole.m3, abs=1e-12 * scale**3 * len(x))
    assert (joined.low, joined.high, joined.few) == (whole.low, whole.high, whole.few)


def test_missing_values_count_in_parts_without_numbers() -> None:
    nothing = ColumnMoments.of(np.array([math.nan, math.nan]))
    some = ColumnMoments.of(np.array([4.0, math.nan]))
    assert (nothing + some).gaps == (some + nothing).gaps == 3
    assert (nothing + some).mean == 4


@pytest.mark.parametrize(("n", "few"), [(MAX_LISTED_VALUES, True), (MAX_LISTED_VALUES + 1, False)])
def test_few_distinct_values_are_distinguished_from_many(n: int, few: bool) -> None:
    late = np.concatenate([np.zeros(5000), np.arange(n)])  # the first rows have a single value
    assert ColumnMoments.of(late).few is few
    assert (ColumnMoments.of(late[:5003]) + ColumnMoments.of(late[5003:])).few is few


@given(values=NUMBERS, cut=st.integers(0, 60))
def test_the_median_is_exact_for_any_parts(values: list[float], cut: int) -> None:
    x = np.array(values, np.float32)
    parts = [x[:cut], np.array([math.nan], np.float32), x[cut:]]
    assert median_magnitude(lambda f: map(f, parts), len(x)) == np.median(np.abs(x.astype(np.float64)))


def test_an_encoder_learnt_in_parts_equals_that_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    n = 400
    table = {
        "id": np.repeat(np.arange(n), 3),
        "price": rng.lognormal(3, 1.5, 3 * n),
        "time": rng.normal(10, 2, 3 * n),
        "colour": rng.choice(["red", "blue", "green"], 3 * n),
        "income": np.repeat(rng.normal(size=n), 3),
    }
    data = ChoiceData.from_long(table, choice_set="id", features=["price", "time", "colour"], individual=["income"])
    parts = [data.subset(np.arange(k, n, 4)) for k in range(4)]
    whole = Encoder.learn(data, bend=True)
    in_parts = SimpleNamespace(schema=data.schema, each=lambda f: map(f, parts))
    joined = Encoder.learn(in_parts, bend=True)  # type: ignore[arg-type]
    assert whole.features.numeric[0].bend == joined.features.numeric[0].bend > 0
    assert whole.features.categorical == joined.features.categorical
    for ours, theirs in zip(
        joined.features.numeric + joined.individual.numeric,
        whole.features.numeric + whole.individual.numeric,
        strict=True,
    ):
        assert ours.mean == pytest.approx(theirs.mean, rel=1e-13, abs=1e-13)
        assert ours.scale == pytest.approx(theirs.scale, rel=1e-13)
