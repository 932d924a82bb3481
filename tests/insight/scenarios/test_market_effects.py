"""Figures of two offers, worked out by hand from given probabilities."""

from typing import Any

import numpy as np
import pytest

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.insight.queries import with_values
from pcmcnet.insight.scenarios.market_effects import MarketComparison, MarketState, estimate_figures

TABLE = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "w": [1, 1, 3, 3], "p": [0.5, 0.5, 0.8, 0.2]}
REVENUE = np.array([10.0, 1.0, 10.0, 1.0])


class Given:
    """Its probabilities are a column of the table."""

    def predict_log_proba(self, data: ChoiceData) -> Any:
        return data.to_rows(np.log(data.features["p"].values.astype(float)), fill=-np.inf)  # type: ignore[union-attr]


def question(segment: list[int], codes: list[int], changed: list[bool]) -> MarketComparison:
    before = read(TABLE, features=["p"], weight="w")
    after = with_values(before, "p", [0.3, 0.7, 0.4, 0.6])
    groups = np.array(codes)
    sides = [MarketState(data, groups, REVENUE) for data in (before, after)]
    return MarketComparison(sides[0], sides[1], np.array(segment), np.array(changed), None)


def test_shares_volumes_and_revenue_by_hand() -> None:
    """Volumes of the first: 0.5 + 3 * 0.8 = 2.9, then 0.3 + 3 * 0.4 = 1.5, of a weight of 4."""
    asked = question([0, 0], [0, 1, 0, 1], [True, False])
    found = asked.split(asked.compute(Given()))
    np.testing.assert_allclose(found["volumes"], [[2.9, 1.1], [1.5, 2.5], [-1.4, 1.4]], rtol=1e-6)
    np.testing.assert_allclose(found["shares"], found["volumes"] / 4, rtol=1e-12)
    np.testing.assert_allclose(found["revenue"][:2], [[29, 1.1, 30.1], [15, 2.5, 17.5]], rtol=1e-6)
    np.testing.assert_allclose(found["diversion"], [0, 1], atol=1e-6)
    assert found["surplus"].tolist() == [0]
    assert asked.has_diversion(asked.compute(Given()))


def test_shares_within_segments_are_of_their_own_weight() -> None:
    """The second set, of weight 3, is a segment: its first alternative goes from 80% to 40%."""
    asked = question([0, 0, 1, 1], [0, 1, 2, 3], [True, False, True, False])
    found = asked.split(asked.compute(Given()))
    np.testing.assert_allclose(found["shares"][1], [0.3, 0.7, 0.4, 0.6], rtol=1e-6)
    np.testing.assert_allclose(found["volumes"][1], [0.3, 0.7, 1.2, 1.8], rtol=1e-6)
    np.testing.assert_allclose(found["diversion"], [0, 1, 0, 1], atol=1e-6)


def test_what_does_not_move_diverts_nothing() -> None:
    asked = question([0, 0], [0, 1, 0, 1], [True, False])
    still = MarketComparison(asked.before, asked.before, asked.segment, asked.changed, None)
    assert not still.has_diversion(still.compute(Given()))
    assert still.split(still.compute(Given()))["diversion"].tolist() == [0, 0]


def test_a_model_without_errors_has_no_intervals() -> None:
    found = estimate_figures(Given(), lambda model: np.ones(2), level=0.9, errors=None, intervals=True)
    assert found.low is None
    assert found.how == "no intervals: Given has no standard errors; an Ensemble of it has intervals"
    assert estimate_figures(Given(), lambda model: np.ones(2), level=0.9, errors=None, intervals=False).how.endswith(
        "no intervals requested"
    )
    with pytest.raises(ValueError, match="only logits have standard errors"):
        estimate_figures(Given(), lambda model: np.ones(2), level=0.9, errors="robust", intervals=True)
