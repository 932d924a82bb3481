from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p, predicted_scores, require_sets, true_probabilities


class GivenLogProbabilities:
    """A model that predicts given log-probabilities for the rows of the table."""

    def __init__(self, log_p: ArrayLike) -> None:
        self.log_p = np.asarray(log_p)

    def predict_log_proba(self, data: ChoiceData) -> NDArray[np.float64]:
        return self.log_p


@pytest.fixture
def data() -> ChoiceData:
    """Sets X and Y of two alternatives each. Their rows alternate, and row 2 is an unavailable third of X."""
    return ChoiceData.from_long(
        {
            "trip": ["X", "Y", "X", "Y", "X"],
            "took": [1, 0, 0, 1, 0],
            "open": [1, 1, 0, 1, 1],
            "w": [1, 0, 1, 0, 1],
        },
        choice_set="trip",
        chosen="took",
        available="open",
        weight="w",
    )


def test_predictions_are_reordered_from_rows_to_alternatives(data: ChoiceData) -> None:
    p = np.array([0.9, 0.2, 0.0, 0.8, 0.1])
    with np.errstate(divide="ignore"):
        result = predicted_log_p(GivenLogProbabilities(np.log(p)), data)
    np.testing.assert_array_equal(result, np.log([0.9, 0.1, 0.2, 0.8]))
    np.testing.assert_array_equal(true_probabilities(p, data), [0.9, 0.1, 0.2, 0.8])


def test_float32_rounding_is_accepted(data: ChoiceData) -> None:
    p = np.array([0.9, 1e-30, 1, 1, 0.1], np.float32)
    assert predicted_log_p(GivenLogProbabilities(np.log(p)), data).dtype == np.float64
    assert true_probabilities(p, data).sum() == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize("shape", [(4,), (5, 1), ()])
def test_a_wrong_number_of_predictions_is_refused(shape: tuple[int, ...], data: ChoiceData) -> None:
    with pytest.raises(
        InputError, match=r"GivenLogProbabilities\.predict_log_proba: expected one .* the 5 table rows, got shape \("
    ):
        predicted_log_p(GivenLogProbabilities(np.zeros(shape)), data)


def test_nan_is_refused_with_its_row_and_set(data: ChoiceData) -> None:
    where = r"GivenLogProbabilities\.predict_log_proba, row 1 \(choice set Y\): .* got NaN; 2 such rows\. .* lower lr"
    with pytest.raises(InputError, match=where):
        predicted_log_p(GivenLogProbabilities([np.log(0.9), np.nan, 0, np.nan, np.log(0.1)]), data)


def test_nan_for_an_unavailable_row_is_ignored(data: ChoiceData) -> None:
    half = np.log(0.5)
    assert np.isfinite(predicted_log_p(GivenLogProbabilities([half, half, np.nan, half, half]), data)).all()


@pytest.mark.parametrize(("high", "found"), [(0.0, "1.5"), (np.inf, "inf"), (1e4, "inf")])
def test_predictions_that_are_not_probabilities_are_refused(high: float, found: str, data: ChoiceData) -> None:
    half = np.log(0.5)
    message = rf"choice set Y: expected probabilities that add up to 1, got a sum of {found}; 1 such sets\. .* scores"
    with pytest.raises(InputError, match=message):
        predicted_log_p(GivenLogProbabilities([half, half, 0, high, half]), data)


def test_true_probabilities_of_the_wrong_length_are_refused(data: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"truth: expected one .* 5 table rows, got shape \(4,\)"):
        true_probabilities([0.5] * 4, data)


@pytest.mark.parametrize("bad", [-0.5, np.nan])
def test_an_invalid_true_probability_is_refused_with_row_and_set(bad: float, data: ChoiceData) -> None:
    with pytest.raises(InputError, match=rf"truth, row 3 \(choice set Y\): expected a probability, got {bad}; 1 such"):
        true_probabilities([0.5, 0.5, 0.0, bad, 0.5], data)


def test_true_probabilities_must_sum_to_1_in_each_set(data: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"truth, choice set Y: .* got a sum of 0\.9999; 1 such sets\. Divide"):
        true_probabilities([0.5, 0.5, 0.0, 0.4999, 0.5], data)


@pytest.mark.parametrize(("sets", "count"), [([], 0), ([1], 1)])
def test_a_part_without_weight_is_refused(sets: list[int], count: int, data: ChoiceData) -> None:
    require_sets(data)
    with pytest.raises(InputError, match=f"at least one choice set with a weight above 0, got none in {count}"):
        require_sets(data.subset(sets))


# -- rankings and scores -----------------------------------------------------------------------------------------


class GivenRanking:
    """A model that ranks the rows of the table by given scores."""

    gives = "ranking"

    def __init__(self, scores: ArrayLike) -> None:
        self.scores = np.asarray(scores)

    def predict_scores(self, data: ChoiceData) -> NDArray[np.float64]:
        return self.scores


def test_a_model_gives_probabilities_by_default() -> None:
    assert gives_of(GivenLogProbabilities([])) == "probabilities"
    assert gives_of(GivenRanking([])) == "ranking"


def test_an_unknown_kind_of_prediction_is_refused() -> None:
    vague: Any = type("Vague", (), {"gives": "hints"})()
    with pytest.raises(InputError, match=r"Vague\.gives must be one of \('probabilities', .*got 'hints'"):
        gives_of(vague)


def test_scores_are_reordered_and_need_not_sum_to_1(data: ChoiceData) -> None:
    assert predicted_scores(GivenRanking([5, 3, -np.inf, 4, -1e9]), data).tolist() == [5, -1e9, 3, 4]


def test_scores_are_checked(data: ChoiceData) -> None:
    with pytest.raises(
        InputError, match=r"GivenRanking\.predict_scores: expected one score .* the 5 table rows, got shape"
    ):
        predicted_scores(GivenRanking([1.0]), data)
    with pytest.raises(InputError, match=r"predict_scores, row 1 \(choice set Y\): expected a score, got NaN; 1 such"):
        predicted_scores(GivenRanking([1, np.nan, 1, 1, 1]), data)
    with pytest.raises(
        InputError, match=r"GivenLogProbabilities\.predict_scores: a model that gives a ranking needs this method"
    ):
        predicted_scores(GivenLogProbabilities([]), data)
