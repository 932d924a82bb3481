"""Figures of two offers with given probabilities, against values worked out by hand."""

from typing import Any

import numpy as np
import pytest

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.insight.queries import with_values
from pcmcnet.insight.scenarios.market_effects import MarketComparison, MarketState, estimate_figures

TABLE = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "w": [1, 1, 3, 3], "p": [0.5, 0.5, 0.8, 0.2]}
REVENUE = np.array([10.0, 1.0, 10.0, 1.0])


class ColumnModel:
    """A model that reads its probabilities from a column of the table."""

    def predict_log_proba(self, data: ChoiceData) -> Any:
        return data.to_rows(np.log(data.features["p"].values.astype(float)), fill=-np.inf)  # type: ignore[union-attr]


def make_comparison(segment: list[int], codes: list[int], changed: list[bool]) -> MarketComparison:
    before = read(TABLE, features=["p"], weight="w")
    after = with_values(before, "p", [0.3, 0.7, 0.4, 0.6])
    groups = np.array(codes)
    sides = [MarketState(data, groups, REVENUE) for data in (before, after)]
    return MarketComparison(sides[0], sides[1], np.array(segment), np.array(changed), None)


def test_shares_volumes_and_revenue_match_values_by_hand() -> None:
    """The first alternative has 0.5 + 3 * 0.8 = 2.9 before and 0.3 + 3 * 0.4 = 1.5 after, of a total weight of 4."""
    comparison = make_comparison([0, 0], [0, 1, 0, 1], [True, False])
    figures = comparison.split(comparison.compute(ColumnModel()))
    np.testing.assert_allclose(figures["volumes"], [[2.9, 1.1], [1.5, 2.5], [-1.4, 1.4]], rtol=1e-6)
    np.testing.assert_allclose(figures["shares"], figures["volumes"] / 4, rtol=1e-12)
    np.testing.assert_allclose(figures["revenue"][:2], [[29, 1.1, 30.1], [15, 2.5, 17.5]], rtol=1e-6)
    np.testing.assert_allclose(figures["diversion"], [0, 1], atol=1e-6)
    assert figures["surplus"].tolist() == [0]
    assert comparison.has_diversion(comparison.compute(ColumnModel()))


def test_segment_shares_use_the_weight_of_the_segment() -> None:
    """The second set, of weight 3, is a segment: its first alternative goes from 80% to 40%."""
    comparison = make_comparison([0, 0, 1, 1], [0, 1, 2, 3], [True, False, True, False])
    figures = comparison.split(comparison.compute(ColumnModel()))
    np.testing.assert_allclose(figures["shares"][1], [0.3, 0.7, 0.4, 0.6], rtol=1e-6)
    np.testing.assert_allclose(figures["volumes"][1], [0.3, 0.7, 1.2, 1.8], rtol=1e-6)
    np.testing.assert_allclose(figures["diversion"], [0, 1, 0, 1], atol=1e-6)


def test_an_unchanged_offer_diverts_nothing() -> None:
    comparison = make_comparison([0, 0], [0, 1, 0, 1], [True, False])
    still = MarketComparison(comparison.before, comparison.before, comparison.segment, comparison.changed, None)
    assert not still.has_diversion(still.compute(ColumnModel()))
    assert still.split(still.compute(ColumnModel()))["diversion"].tolist() == [0, 0]


def test_a_model_without_standard_errors_has_no_intervals() -> None:
    figures = estimate_figures(ColumnModel(), lambda model: np.ones(2), level=0.9, errors=None, intervals=True)
    assert figures.low is None
    assert figures.how == "no intervals: ColumnModel has no standard errors; use pn.bootstrap, or fit an Ensemble"
    assert estimate_figures(
        ColumnModel(), lambda model: np.ones(2), level=0.9, errors=None, intervals=False
    ).how.endswith("no intervals requested")
    with pytest.raises(ValueError, match="has no standard errors"):
        estimate_figures(ColumnModel(), lambda model: np.ones(2), level=0.9, errors="robust", intervals=True)
