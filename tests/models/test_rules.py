"""Rules without parameters."""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, SchemaError
from pcmcnet.evaluation import evaluate
from pcmcnet.models import RankBy, Uniform, load
from pcmcnet.models.interface.parse_options import parse_option
from pcmcnet.models.rules import RankByConfig, dense_ranks

MakeTrips = Callable[..., pa.Table]


def prices(values: list[float | None], sets: list[int], took: list[int], **roles: Any) -> ChoiceData:
    table = {"s": sets, "took": took, "price": np.array(values, float)}
    return ChoiceData.from_long(table, choice_set="s", chosen="took", features=["price"], **roles)


@pytest.fixture(scope="module")
def three() -> ChoiceData:
    """Ranks by hand: 2 1 3 1 in the first set, 1 in the second, 1 1 2 in the third."""
    return prices([7, 5, 9, 5, 4, 2, 2, 3], [0, 0, 0, 0, 1, 2, 2, 2], [0, 1, 0, 0, 1, 0, 0, 1])


def test_the_smallest_is_first_and_equal_values_share_a_rank(three: ChoiceData) -> None:
    model = RankBy("price").fit(three)
    assert model.predict_scores(three).tolist() == [-2, -1, -3, -1, -1, -1, -1, -2]
    assert model.predict_proba(three).tolist() == [0, 0.5, 0, 0.5, 1, 0.5, 0.5, 0]
    assert model.predict(three).tolist() == [1, 4, 5]
    assert model.chosen_probabilities(three).tolist() == [0.5, 1, 0]


def test_the_largest_can_be_first(three: ChoiceData) -> None:
    model = RankBy(column="price", ascending=False).fit(three)
    assert model.predict_scores(three).tolist() == [-2, -3, -1, -3, -1, -2, -2, -1]
    assert model.predict_proba(three).tolist() == [0, 0, 1, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("ascending", [True, False])
def test_missing_values_rank_last_in_either_direction(ascending: bool) -> None:
    data = prices([3, None, 1, None, None], [0, 0, 0, 1, 1], [1, 0, 0, 1, 0], missing="indicator")
    scores = RankBy("price", ascending=ascending).fit(data).predict_scores(data).tolist()
    assert scores == ([-2, -3, -1, -1, -1] if ascending else [-1, -3, -2, -1, -1])


def test_ranks_are_dense_for_any_values() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, 200)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    values = rng.integers(0, 6, offsets[-1]).astype(float)
    expected = [np.unique(part, return_inverse=True)[1] + 1 for part in np.split(values, offsets[1:-1])]
    np.testing.assert_array_equal(dense_ranks(values, offsets), np.concatenate(expected))


def test_top_n_accuracy_follows_the_ranking(three: ChoiceData) -> None:
    """Choices: one of two tied at rank 1, a sole rank 1, and third of three: top 1 is 1/2, 1, 0; top 2 is 1, 1, 0."""
    model = RankBy("price").fit(three)
    report = evaluate(model, three, top=(1, 2, 3))
    np.testing.assert_allclose([report.top[n] for n in (1, 2, 3)], [0.5, 2 / 3, 1], rtol=1e-12)


def test_the_column_is_a_positional_argument_and_is_shown() -> None:
    assert RankBy("price").config == RankBy(column="price").config == RankByConfig("price")
    shown = inspect.signature(RankBy)
    assert list(shown.parameters) == ["column", "ascending"]
    assert shown.parameters["column"].default is inspect.Parameter.empty
    assert parse_option(RankByConfig, "column=price") == ("column", "price")
    assert parse_option(RankByConfig, "ascending=false") == ("ascending", False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "column must be the feature to rank by, such as column='price', got None"),
        ({"column": ""}, "column must be the feature"),
        ({"column": 3}, "column must be the feature to rank by.*got 3"),
        ({"column": "price", "ascending": "yes"}, "ascending must be true or false, got 'yes'"),
    ],
)
def test_options_of_the_wrong_type_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RankBy(**options)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("prise", r"no feature 'prise' to rank by. Did you mean 'price'\?"),
        ("comfort", "got 'comfort', which is categorical.*Known: minutes, price"),
        ("income", "column 'income' belongs to the individual.*cannot rank them.*Known: minutes, price"),
    ],
)
def test_a_column_that_cannot_rank_is_refused(column: str, message: str, trips: ChoiceData) -> None:
    with pytest.raises(SchemaError, match=message):
        RankBy(column).fit(trips)


def test_a_table_without_the_column_is_refused_at_prediction(
    trips: ChoiceData, make_trips: MakeTrips, roles: dict[str, Any]
) -> None:
    model = RankBy("price").fit(trips)
    other = ChoiceData.from_long(make_trips(), **roles | {"features": ["minutes"]})
    with pytest.raises(SchemaError, match=r"no feature 'price' to rank by\. Known: minutes"):
        model.predict(other)


def test_the_summary_names_column_and_direction(trips: ChoiceData) -> None:
    assert ("minutes", "smallest") in RankBy("minutes").fit(trips).summary().rows
    assert ("minutes", "largest") in RankBy("minutes", ascending=False).fit(trips).summary().rows


# -- Uniform ------------------------------------------------------------------------------------------------------


def test_each_of_n_available_alternatives_has_probability_1_over_n(trips: ChoiceData) -> None:
    model = Uniform().fit(trips)
    expected = np.concatenate([np.full(n, 1 / n) for n in trips.sizes])
    # through logarithms and back
    np.testing.assert_allclose(trips.from_rows(model.predict_proba(trips)), expected, rtol=1e-15)
    assert trips.hidden_rows.size
    assert (model.predict_proba(trips)[trips.hidden_rows] == 0).all()


def test_the_score_is_minus_the_mean_log_size(trips: ChoiceData) -> None:
    expected = -np.average(np.log(trips.sizes), weights=trips.weights)
    assert math.isclose(Uniform().fit(trips).score(trips), expected, rel_tol=1e-12)


def test_uniform_needs_neither_features_nor_labels() -> None:
    table = {"s": [0, 0, 1], "took": [0, 1, 1]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took")
    model = Uniform().fit(data)
    assert model.predict_proba(data).tolist() == [0.5, 0.5, 1.0]
    assert model.predict(data).tolist() == [0, 2]  # the first of equal alternatives


def test_only_the_common_files_are_saved(trips: ChoiceData, tmp_path: Path) -> None:
    folder = Uniform().fit(trips).save(tmp_path / "model")
    files = {"README.md", "config.json", "history.json", "model.json", "schema.json"}
    assert {path.name for path in folder.iterdir()} == files
    assert "1 / n" in str(load(folder).summary())
