"""The strongest context effect and its map."""

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, PCMCNet
from pcmcnet.insight.context_effects import context_summary, search
from pcmcnet.insight.order_effects import order_effects
from pcmcnet.insight.preference_map import preference_map_in_set


@pytest.fixture(scope="module")
def net(driven: ChoiceData) -> PCMCNet:
    return PCMCNet(hidden=(8,), epochs=5, weight_decay=0.0, batch_size=8).fit(driven, progress=False)  # type: ignore[no-any-return]


def test_the_map_shows_the_strongest_case(net: PCMCNet, driven: ChoiceData) -> None:
    summary = context_summary(net, driven, ["price", "time", "noise"])
    assert summary.search == search(net, driven)
    removed, i, j = summary.search.cases[0].places
    assert summary.features == ("price", "time")
    expected = preference_map_in_set(net, driven, i, j, removed, ("price", "time"), others=True, cells=24)
    assert summary.map is not None
    np.testing.assert_array_equal(summary.map.preference, expected.preference)
    assert summary.strongest == pytest.approx(abs(summary.search.cases[0].by_removing), rel=1e-12)
    assert not summary.has_no_effects
    assert summary.alternatives["price"] == tuple(
        float(str(driven.features["price"].plain()[place])) for place in (i, j, removed)
    )
    assert summary.to_dict()["map"]["features"] == ["price", "time"]
    assert summary.to_dict()["orders"] == order_effects(net, driven, sets=5).to_dict()


def test_a_logit_has_no_context_effects_and_no_map(driven: ChoiceData) -> None:
    summary = context_summary(MNL().fit(driven), driven, ["price", "time"])
    assert summary.has_no_effects
    assert summary.map is None
    assert summary.to_dict()["map"] is None
    assert summary.to_dict()["orders"] is None


def test_one_feature_is_not_enough_for_a_map(net: PCMCNet, driven: ChoiceData) -> None:
    assert context_summary(net, driven, ["price"]).map is None


def test_without_two_numeric_features_there_are_cases_but_no_map(net: PCMCNet, driven: ChoiceData) -> None:
    summary = context_summary(net, driven, ["price", "comfort"])
    assert summary.map is None
    assert summary.search.cases
