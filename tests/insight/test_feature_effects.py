"""Effects of categories and of numeric features."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, RankBy, Uniform
from pcmcnet.errors import InputError
from pcmcnet.insight.demand import demand
from pcmcnet.insight.feature_effects import all_category_effects, category_effects, numeric_effects, numeric_features


class CategoryLogit:
    """A logit with a given utility for each category."""

    gives = "probabilities"

    def __init__(self, **utility: float) -> None:
        self.utility = utility

    def predict_log_proba(self, data: ChoiceData) -> Any:
        u = np.array([self.utility[name] for name in data.features["line"].plain()])
        total = np.add.reduceat(np.exp(u), data.offsets[:-1])
        return data.to_rows(u - np.log(total)[data.set_of_alternative])


def pairs(lines: list[str]) -> ChoiceData:
    n = len(lines) // 2
    table = {"trip": np.repeat(np.arange(n), 2), "line": lines, "price": np.arange(2.0 * n)}
    return ChoiceData.from_long(table, choice_set="trip", features=["line", "price"])


def test_shares_are_predicted_with_the_category_inserted() -> None:
    """Every set is a pair with a B of weight 1. A has weight 3: inserted, A gets 3/4 and B 1/2.

    A and B are equally frequent, so the average share is 5/8 and the lifts are 1.2 and 0.8.
    """
    data = pairs(["B", "B"] * 6)
    mixed = pairs(["A", "A"] + ["B", "B"] * 6)
    effects = category_effects(CategoryLogit(A=np.log(3), B=0.0), mixed, "line", seed=0)
    best, worst = effects.rows
    share_a, share_b = (6 * 0.75 + 0.5) / 7, (6 * 0.5 + 0.25) / 7  # the other alternative of the first set is also an A
    assert (best.category, worst.category) == ("A", "B")
    assert best.share == pytest.approx(share_a, rel=1e-12)
    assert worst.share == pytest.approx(share_b, rel=1e-12)
    average = (2 * share_a + 12 * share_b) / 14
    assert best.lift == pytest.approx(share_a / average, rel=1e-12)
    assert best.low <= best.lift <= best.high
    assert best.is_significant
    with pytest.raises(InputError, match="'line': expected at least two categories"):
        category_effects(CategoryLogit(B=0.0), data, "line")


def test_equal_categories_have_lift_one() -> None:
    data = pairs(["A", "B", "C", "A", "B", "C", "A", "D"])
    effects = category_effects(CategoryLogit(A=1.0, B=1.0, C=1.0, D=1.0), data, "line", most=3)
    assert [row.lift for row in effects.rows] == pytest.approx([1.0] * 3, rel=1e-12)
    assert not any(row.is_significant for row in effects.rows)
    assert effects.others == 1
    assert str(effects).splitlines()[0].split()[0] == "line"
    assert effects.to_dict()["rows"][0]["category"] in "ABC"


def test_models_without_category_effects_are_rejected() -> None:
    data = pairs(["A", "B"] * 4)
    with pytest.raises(InputError, match=r"'price' is not a categorical feature: expected one of \['line'\]"):
        category_effects(CategoryLogit(A=0.0, B=0.0), data, "price")
    chosen = ChoiceData.from_long(
        {"trip": [1, 1, 2, 2], "took": [1, 0, 1, 0], "line": list("ABAB"), "price": [1.0, 2.0, 3.0, 4.0]},
        choice_set="trip",
        chosen="took",
        features=["line", "price"],
    )
    with pytest.raises(InputError, match="returns a ranking"):
        category_effects(RankBy(column="price").fit(chosen), chosen, "line")
    plain = ChoiceData.from_long(
        {"s": [1, 1], "took": [1, 0], "x": [1.0, 2.0]}, choice_set="s", chosen="took", features=["x"]
    )
    with pytest.raises(InputError, match="no categorical feature"):
        all_category_effects(MNL().fit(plain), plain, None)


def test_columns_are_ordered_by_importance() -> None:
    table = {"s": [1, 1, 2, 2], "took": [1, 0, 0, 1], "a": list("xyyx"), "b": list("uvuv")}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["a", "b"])
    effects = all_category_effects(Uniform().fit(data), data, ["b", "took", "a"])
    assert [table.column for table in effects.tables] == ["b", "a"]
    assert [one["column"] for one in effects.to_dict()["columns"]] == ["b", "a"]


# -- Numeric effects ---------------------------------------------------------------------------------------------------
# Responses to numeric features, and demand curves of the first.


Make = Callable[..., ChoiceData]


@pytest.fixture(scope="module")
def model(driven: ChoiceData) -> MNL:
    return MNL().fit(driven)  # type: ignore[no-any-return]


def test_only_varying_features_are_used(driven: ChoiceData) -> None:
    assert numeric_features(driven) == ["price", "time", "noise"]
    assert numeric_features(driven.subset([0])) == []


def test_curves_are_demand_curves_of_the_largest_labels(model: MNL, driven: ChoiceData) -> None:
    effects = numeric_effects(model, driven, ["time", "price"])
    assert [table.column for table in effects.tables] == ["time", "price"]
    assert set(effects.curves) == {"bike", "bus", "car", "train"}
    expected = demand(model, driven, "time", alternative="bus")
    np.testing.assert_array_equal(effects.curves["bus"].shares, expected.shares)
    assert effects.to_dict()["demand"]["bus"] == expected.to_dict()


def test_without_labels_the_favourite_of_each_set_is_followed(make_driven: Make) -> None:
    data = make_driven(labels=False)
    model = MNL().fit(data)
    effects = numeric_effects(model, data, ["price"])
    best, drawn = effects.curves.values()
    p = data.from_rows(model.predict_proba(data))
    tops = [p[a:b].max() for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
    assert best.now[0] == pytest.approx(np.average(tops, weights=data.weights), rel=1e-12)
    assert drawn.now[0] < best.now[0]
    assert (np.diff(best.shares[0]) < 0).all()  # a higher price means a lower share


def test_features_with_negative_values_have_semi_elasticities(model: MNL, driven: ChoiceData) -> None:
    effects = numeric_effects(model, driven, ["noise"])
    assert effects.tables[0].kind == "semi"
    curve = effects.curves["car"]
    assert not curve.scaled
    noise = driven.features["noise"].plain()
    assert noise.min() < curve.points.min() < 0 < curve.points.max() < noise.max()


def test_models_without_slopes_are_rejected(model: MNL, driven: ChoiceData) -> None:
    with pytest.raises(InputError, match="no numeric feature that varies"):
        numeric_effects(model, driven, [])
    with pytest.raises(InputError, match="returns a ranking"):
        numeric_effects(RankBy(column="price").fit(driven), driven, ["price"])
