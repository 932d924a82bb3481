import math

import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, ChoiceData, NestedMNL
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests import likelihood_ratio, score_test


@pytest.fixture(scope="module")
def modes() -> ChoiceData:
    table = logit_choices(300, {"x": 1.0, "y": 0.3, "z": 0.0}, sizes=(2, 4), constants=[0.0, 0.5, -0.5, 0.2])
    table["weight"] = 1.0 + table["person"] % 3
    return read(table, alternative="mode", features=["x", "y", "z"], person="person", weight="weight")


def test_the_statistic_of_two_shares_is_that_found_by_hand() -> None:
    """30 of 40 choose the car in one town and 10 of 40 in the other; the score test is Pearson's test of equal shares.

    With 20 expected in each of four cells, the sum of (10)^2 / 20 is 20.
    """
    by_car = np.concatenate([np.arange(40) < 30, np.arange(40) < 10])
    table = {
        "trip": np.repeat(np.arange(80), 2),
        "took": np.column_stack([by_car, ~by_car]).ravel().astype(int),
        "mode": ["car", "bus"] * 80,
        "town": np.repeat(np.repeat(["A", "B"], 40), 2),
    }
    data = read(table, alternative="mode", individual=["town"])
    test = score_test(MNL(formula="| 1").fit(data), data, "| town")
    assert test.statistic == pytest.approx(20.0, rel=1e-10)
    assert test.p_value == pytest.approx(math.erfc(math.sqrt(10)), rel=1e-8)
    assert (test.degrees_of_freedom, test.rejected) == (1, True)
    assert test.decision == f"a model that estimates {test.details['tested'][0]!r} fits significantly better"


@pytest.mark.parametrize("errors", ["classical", "robust", "clustered"])
def test_the_statistic_agrees_with_scores_computed_apart(modes: ChoiceData, errors: str) -> None:
    small = MNL(formula="x", reference="A").fit(modes)
    test = score_test(small, modes, "x + y + z", errors=errors)  # type: ignore[arg-type]
    # 1. Probabilities, and the score of each choice set in all columns of the larger model.
    p = np.exp(modes.from_rows(small.predict_log_proba(modes)))
    labels = modes.labels.plain()  # type: ignore[union-attr]
    x = np.column_stack([*(modes.features[k].plain() for k in "xyz"), *(labels == name for name in "BCD")]).astype(
        float
    )
    mean = np.add.reduceat(p[:, None] * x, modes.offsets[:-1])
    scores = (x[modes.offsets[:-1] + modes.chosen] - mean) * modes.weights[:, None]
    w = modes.weights
    information = (x * (p * w[modes.set_of_alternative])[:, None]).T @ x - (mean * w[:, None]).T @ mean
    # 2. The covariance of the scores of y and z, by the inverse of the whole information or by the sandwich.
    tested, free = [1, 2], [0, 3, 4, 5]
    g = scores.sum(0)[tested]
    if errors == "classical":
        expected = g @ np.linalg.inv(information)[np.ix_(tested, tested)] @ g
    else:
        slope = information[np.ix_(tested, free)] @ np.linalg.inv(information[np.ix_(free, free)])
        residual = scores[:, tested] - scores[:, free] @ slope.T
        if errors == "clustered":
            n = len(set(modes.groups()))
            residual = np.array([residual[modes.groups() == k].sum(0) for k in range(n)]) * np.sqrt(n / (n - 1))
        expected = g @ np.linalg.inv(residual.T @ residual) @ g
    assert test.statistic == pytest.approx(expected, rel=1e-8)
    assert test.details["tested"] == ["y", "z"]


def test_the_score_test_is_close_to_the_likelihood_ratio_test(modes: ChoiceData) -> None:
    small, large = (MNL(formula=f).fit(modes) for f in ("x + y", "x + y + z + x:y"))
    score, ratio = score_test(small, modes, "x + y + z + x:y", errors="classical"), likelihood_ratio(small, large)
    assert score.degrees_of_freedom == ratio.degrees_of_freedom == 2
    assert score.statistic == pytest.approx(ratio.statistic, rel=0.1)  # equal to first order
    assert {note.split(":")[0] for note in score.notes} == {
        "the statistic is weighted",
        "classical errors assume that the choices of a person are independent",
    }


def test_fixed_coefficients_are_tested_without_a_formula(modes: ChoiceData) -> None:
    fixed, free = MNL(formula="x + y", fixed={"y": 0.3}).fit(modes), MNL(formula="x + y").fit(modes)
    test = score_test(fixed, modes, errors="classical")
    assert test.details["tested"] == ["y"]
    assert test.statistic == pytest.approx(likelihood_ratio(fixed, free).statistic, rel=0.1)  # equal to first order
    assert score_test(fixed, modes, "x + y + z").details["tested"] == ["y", "z"]


def test_an_offset_is_not_tested(modes: ChoiceData) -> None:
    small = MNL(formula="x", offset="z").fit(modes)
    assert score_test(small, modes, "x + y").details["tested"] == ["y"]


def test_what_cannot_be_tested_is_explained(modes: ChoiceData) -> None:
    small = MNL(formula="x + y").fit(modes)
    with pytest.raises(InputError, match="lacks the coefficients 'y' of the model"):
        score_test(small, modes, "x + z")
    with pytest.raises(InputError, match="there is no restriction to test: pass the formula of a larger utility"):
        score_test(small, modes)
    with pytest.raises(InputError, match="expected the choice sets that the model was fitted to"):
        score_test(small, modes.subset(range(50)), "x + y + z")
    with pytest.raises(InputError, match="'x/2' is a linear combination of 'x'"):
        score_test(small, modes, "x + y + x/2")
    nests = {"A": "one", "B": "one", "C": "two", "D": "two"}
    with pytest.raises(InputError, match=r"supports the multinomial logit .* got NestedMNL"):
        score_test(NestedMNL(formula="x", nests=nests).fit(modes), modes, "x + y")
    bounded = MNL(formula="x + y", bounds={"x": (None, 0)}).fit(modes)
    with pytest.raises(InputError, match="at a bound or have no finite estimate: 'x'"):
        score_test(bounded, modes, "x + y + z")
