"""The strongest case of context and its map."""

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, PCMCNet
from pcmcnet.insight.context_effects import context_summary, search
from pcmcnet.insight.order_effects import order_effects
from pcmcnet.insight.preference_map import preference_map_in_set


@pytest.fixture(scope="module")
def net(driven: ChoiceData) -> PCMCNet:
    return PCMCNet(hidden=(8,), epochs=5, weight_decay=0.0, batch_size=8).fit(driven, progress=False)  # type: ignore[no-any-return]


def test_the_map_is_that_of_the_strongest_case(net: PCMCNet, driven: ChoiceData) -> None:
    found = context_summary(net, driven, ["price", "time", "noise"])
    assert found.search == search(net, driven)
    removed, i, j = found.search.cases[0].places
    assert found.features == ("price", "time")
    expected = preference_map_in_set(net, driven, i, j, removed, ("price", "time"), others=True, cells=24)
    assert found.map is not None
    np.testing.assert_array_equal(found.map.preference, expected.preference)
    assert found.strongest == pytest.approx(abs(found.search.cases[0].by_removing), rel=1e-12)
    assert not found.has_no_effects
    assert found.alternatives["price"] == tuple(
        float(str(driven.features["price"].plain()[place])) for place in (i, j, removed)
    )
    assert found.to_dict()["map"]["features"] == ["price", "time"]
    assert found.to_dict()["orders"] == order_effects(net, driven, sets=5).to_dict()


def test_a_logit_has_no_context_effects_and_no_map(driven: ChoiceData) -> None:
    found = context_summary(MNL().fit(driven), driven, ["price", "time"])
    assert found.has_no_effects
    assert found.map is None
    assert found.to_dict()["map"] is None
    assert found.to_dict()["orders"] is None


def test_one_feature_is_not_enough_for_a_map(net: PCMCNet, driven: ChoiceData) -> None:
    assert context_summary(net, driven, ["price"]).map is None


def test_features_that_no_map_can_be_drawn_in_leave_the_cases_alone(net: PCMCNet, driven: ChoiceData) -> None:
    found = context_summary(net, driven, ["price", "comfort"])
    assert found.map is None
    assert found.search.cases
