"""Knots of curves are standardised training quantiles, never too close, and checked when read."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.columns.arrays import Categorical, Columns, Numeric
from pcmcnet.data.columns.statistics import ColumnMoments
from pcmcnet.data.kinds import number
from pcmcnet.data.kinds.number import BinCode, NumericCode, Statistics, bin_codes


def learnt(values: Any, kind: str = "piecewise", *, bend: bool = False, missing: str = "error") -> NumericCode:
    table = {"id": np.arange(len(values)) // 2, "x": values}
    data = ChoiceData.from_long(table, choice_set="id", features=["x"], kinds={"x": kind}, missing=missing)
    (code,) = Encoder.learn(data, bend=bend).features.numeric
    return code


def test_knots_are_standardised_quantiles() -> None:
    code = learnt(np.arange(34.0), "spline")
    assert code.curve == "spline"
    assert len(code.knots) == 17
    np.testing.assert_allclose(code.knots[:: len(code.knots) - 1], [-16.5 / code.scale, 16.5 / code.scale])


def test_knots_use_the_transformed_scale_of_the_column() -> None:
    values = np.exp(np.linspace(0, 8, 40))
    code = learnt(values, bend=True)
    assert code.bend > 0
    np.testing.assert_allclose(code.knots[-1], code.standardise(values[-1:].astype(np.float32).astype(np.float64))[0])


def test_only_columns_beyond_the_skewness_limit_are_transformed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.exp(np.linspace(0, 8, 40))
    skewness = ColumnMoments.of(values.astype(np.float32).astype(np.float64)).skewness
    monkeypatch.setattr(number, "_MIN_SKEWNESS", skewness)
    assert learnt(values, bend=True).bend == 0
    monkeypatch.setattr(number, "_MIN_SKEWNESS", np.nextafter(skewness, 0))
    assert learnt(values, bend=True).bend > 0


def test_close_knots_are_merged() -> None:
    """Nearly all numbers are within 0.001 of 1: they share a bin, and the last bin extends to the end."""
    code = learnt([*np.linspace(1, 1.001, 99), 9.0])
    assert len(code.knots) == 2
    assert np.diff(code.knots).min() >= 0.02


@pytest.mark.parametrize(("values", "knots"), [([5.0, 5.0, 5.0], 0), ([0.0, 1.0, 1.0], 2)])
def test_a_constant_has_no_knots_and_a_flag_has_two(values: list[float], knots: int) -> None:
    assert len(learnt(values).knots) == knots


def test_missing_values_do_not_change_the_knots() -> None:
    with_gaps = learnt([1.0, 2.0, np.nan, 3.0, 4.0], missing="indicator")
    assert with_gaps.knots == learnt([1.0, 2.0, 3.0, 4.0]).knots
    assert with_gaps.indicator


def test_a_plain_column_has_no_curve() -> None:
    data = ChoiceData.from_long({"id": [1, 1], "x": [1.0, 2.0]}, choice_set="id", features=["x"])
    (code,) = Encoder.learn(data).features.numeric
    assert (code.curve, code.knots) == (None, ())


def learnt_bins(values: Any, most: int, **options: Any) -> list[BinCode]:
    table = {"id": np.arange(len(values)) // 2, "x": values}
    data = ChoiceData.from_long(table, choice_set="id", features=["x"], **options)
    (code,) = Encoder.learn(data, bend=True).with_knots(data).features.numeric
    return bin_codes(code, most)


def test_bins_measure_the_distance_between_knots() -> None:
    codes = learnt_bins(np.arange(33.0), 4)
    through = np.stack([code.standardise(np.array([-8.0, 0.0, 4.0, 10.0, 32.0, 40.0])) for code in codes], 1)
    expected = [[0, 0, 0, 0], [0, 0, 0, 0], [0.5, 0, 0, 0], [1, 0.25, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    np.testing.assert_allclose(through, expected, atol=1e-12)


def test_bins_use_the_transformed_scale_of_the_column() -> None:
    values = np.exp(np.linspace(0, 8, 40))
    codes = learnt_bins(values, 16)
    assert all(code.bend > 0 for code in codes)
    inside = np.stack([code.standardise(values) for code in codes])
    assert -1e-6 < inside.min() < inside.max() < 1 + 1e-6
    np.testing.assert_allclose(inside[:, [0, -1]].sum(0), [0, len(codes)], atol=1e-5)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([0.0, 1.0, 1.0, 0.0], {}),
        ([5.0] * 4, {}),
        ([1.0, 2.0, 3.0, np.nan], {"missing": "indicator"}),
        ([1.0, 2.0, 3.0, 4.0], {"kinds": {"x": "spline"}}),
    ],
)
def test_flags_constants_and_curves_have_no_bins(values: list[float], options: dict[str, Any]) -> None:
    assert learnt_bins(values, 8, **options) == []


def test_the_number_of_bins_is_limited_by_option_and_values() -> None:
    assert [len(learnt_bins(np.arange(200.0), most)) for most in (0, 1, 5, 16, 99)] == [0, 1, 5, 16, 16]
    assert len(learnt_bins(np.arange(40.0) % 4, 16)) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"curve": "circle"},
        {"knots": [1.0]},
        {"knots": [1.0, 1.0]},
        {"knots": [2.0, 1.0]},
        {"knots": [0.0, float("inf")]},
        {"knots": ["a", "b"]},
        {"scale": -1.0},
        {"mean": float("nan")},
        {"indicator": 1},
        {"name": 3},
    ],
)
def test_invalid_entries_are_refused(change: dict[str, Any]) -> None:
    entries = {"name": "x", "mean": 0.0, "scale": 1.0, "indicator": False, "curve": "piecewise", "knots": [0.0, 1.0]}
    assert NumericCode.from_dict(entries).knots == (0.0, 1.0)
    with pytest.raises(TypeError):
        NumericCode.from_dict(entries | change)


# -- Column statistics -------------------------------------------------------------------------------------------------
# Statistics of columns in parts.


def columns(values: list[float], codes: list[int], categories: tuple[str, ...]) -> Columns:
    return {
        "price": Numeric(np.array(values, np.float32)),
        "mode": Categorical(np.array(codes, np.int32), categories),
    }


def test_merged_statistics_ignore_unused_categories() -> None:
    """Prices 1, 3 in one part and 5 in another: mean 3, sum of squares 8. "ship" is in no row."""
    parts = [columns([1, 3], [0, 2], ("bus", "ship", "car")), columns([5, np.nan], [0, 0], ("car", "ship"))]
    merged = Statistics.merge([Statistics.of(part) for part in parts])
    assert merged.words == {"mode": Counter({"car": 3, "bus": 1})}
    moments = merged.moments["price"]
    assert (moments.count, moments.gaps, moments.mean) == (3, 1, 3.0)
    assert moments.m2 == pytest.approx(8.0)


def test_merging_no_parts_gives_no_columns() -> None:
    assert Statistics.merge([]) == ({}, {})
