"""Responses to numeric features side by side, and demand curves of the first."""

from collections.abc import Callable

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, RankBy
from pcmcnet.errors import InputError
from pcmcnet.insight.demand import demand
from pcmcnet.insight.numeric_effects import numeric_effects, numeric_features

Make = Callable[..., ChoiceData]


@pytest.fixture(scope="module")
def model(driven: ChoiceData) -> MNL:
    return MNL().fit(driven)  # type: ignore[no-any-return]


def test_features_that_vary_are_asked_about(driven: ChoiceData) -> None:
    assert numeric_features(driven) == ["price", "time", "noise"]
    assert numeric_features(driven.subset([0])) == []


def test_curves_are_those_of_demand_for_the_labels_of_largest_share(model: MNL, driven: ChoiceData) -> None:
    found = numeric_effects(model, driven, ["time", "price"])
    assert [table.column for table in found.tables] == ["time", "price"]
    assert set(found.curves) == {"bike", "bus", "car", "train"}
    expected = demand(model, driven, "time", alternative="bus")
    np.testing.assert_array_equal(found.curves["bus"].shares, expected.shares)
    assert found.to_dict()["demand"]["bus"] == expected.to_dict()


def test_without_labels_the_most_probable_of_each_set_is_followed(make_driven: Make) -> None:
    data = make_driven(labels=False)
    model = MNL().fit(data)
    found = numeric_effects(model, data, ["price"])
    best, drawn = found.curves.values()
    p = data.from_rows(model.predict_proba(data))
    tops = [p[a:b].max() for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
    assert best.now[0] == pytest.approx(np.average(tops, weights=data.weights), rel=1e-12)
    assert drawn.now[0] < best.now[0]
    assert (np.diff(best.shares[0]) < 0).all()  # the dearer, the rarer


def test_a_feature_with_values_below_0_has_semi_elasticities_and_is_set_to_values(
    model: MNL, driven: ChoiceData
) -> None:
    found = numeric_effects(model, driven, ["noise"])
    assert found.tables[0].kind == "semi"
    curve = found.curves["car"]
    assert not curve.scaled
    noise = driven.features["noise"].plain()
    assert noise.min() < curve.points.min() < 0 < curve.points.max() < noise.max()


def test_what_has_no_slope_is_refused(model: MNL, driven: ChoiceData) -> None:
    with pytest.raises(InputError, match="no numeric feature that varies"):
        numeric_effects(model, driven, [])
    with pytest.raises(InputError, match="gives a ranking"):
        numeric_effects(RankBy(column="price").fit(driven), driven, ["price"])
