"""Designs for context effects: the chain around a logit, its information, and the power to detect an effect."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcmcnet as pn
from pcmcnet.datasets import markov
from pcmcnet.designs.attributes import Directions, level_directions, profile_space
from pcmcnet.designs.context_terms import ContextScores, ContextTerms, chain_probabilities, context_terms
from pcmcnet.designs.power import DesignPower, PowerRow

PRIOR = {"price": -0.7, "quality": 0.7}
ATTRIBUTES = {"price": [1, 2, 3, 4], "quality": [1, 2, 3, 4]}
SPACE = profile_space(ATTRIBUTES)
DIRECTIONS = level_directions(SPACE, {}, np.array([-0.7, 0.7]))
ALL = context_terms(SPACE, DIRECTIONS, ("dominance", "gain"))
A, B, DECOY = (1, 3), (0, 1), (2, 2)  # level numbers of price and quality: A dominates the decoy, B does not


def chain(levels: Any, effects: list[float], terms: ContextTerms = ALL) -> tuple[Any, Any]:
    """Return the probabilities and gradients of tasks, with the effects dominated, dominance and both gains."""
    tasks = np.array(levels)
    p, gradients = chain_probabilities(
        terms.space.encode(tasks), terms(tasks), np.array([[-0.7, 0.7]]), np.array([effects], dtype=np.float64)
    )
    return p[0], gradients[0]


def test_the_terms_compare_two_alternatives() -> None:
    """Prices 2, 1, 3 and qualities 4, 2, 3. Values are (4 - price) / 3 and (quality - 1) / 3.

    A dominates the decoy (2 < 3 and 4 > 3), and no other pair is dominated. A rate into the decoy, and only such a
    rate, leads to a dominated alternative. From A to B, the value of the price rises
    from 2/3 to 1, a squared gain of 1/9. From B to A, quality rises from 1/3 to 1, a squared gain of 4/9.
    """
    terms = ALL(np.array([[A, B, DECOY]]))[0]
    assert ALL.names == ("dominated", "dominance", "gain[price]", "gain[quality]")
    assert terms[..., 0].tolist() == [[0, 0, 1]] * 3
    assert terms[..., 1].tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert terms[0, 1, 2:].tolist() == pytest.approx([1 / 9, 0])
    assert terms[1, 0, 2:].tolist() == pytest.approx([0, 4 / 9])


def test_a_decoy_attracts_choices_to_the_alternative_that_dominates_it() -> None:
    """Adding the decoy does not change log P(A) / P(B) in the logit, and raises it in the chain, by about g p_c.

    A utility of the decoy itself, here 0.3, does not change the ratio.
    """
    pair, _ = chain([[A, B]], [0.0] * 4)
    for effect in (0.0, 0.01):
        p, _ = chain([[A, B, DECOY]], [0.3, effect, 0.0, 0.0])
        shift = math.log(p[0, 0] / p[0, 1]) - math.log(pair[0, 0] / pair[0, 1])
        assert shift == pytest.approx(effect * p[0, 2], rel=0.02, abs=1e-12)  # first order in the effect


def test_the_chain_is_that_of_its_rates() -> None:
    """The reference computes the distribution by another algorithm, from rates built entry by entry."""
    tasks, effects = np.array([[A, B, DECOY]]), np.array([-0.5, 1.5, -0.4, 0.8])
    p, _ = chain(tasks, effects.tolist())
    x, h = SPACE.encode(tasks)[0], ALL(tasks)[0]
    rates = [[math.exp(-0.7 * x[j, 0] + 0.7 * x[j, 1] + h[i, j] @ effects) for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(p[0], markov.probabilities(rates), rtol=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=5),
    st.lists(st.floats(-2, 2), min_size=4, max_size=4),
)
def test_gradients_are_those_of_finite_differences(levels: list[tuple[int, int]], effects: list[float]) -> None:
    p, gradients = chain([levels], effects)
    assert p.sum() == pytest.approx(1)
    assert np.abs((p[..., None] * gradients).sum(axis=1)).max() < 1e-12  # probabilities sum to 1
    for k in range(4):
        ends = []
        for step in (-1e-5, 1e-5):
            shifted = list(effects)
            shifted[k] += step
            ends.append(np.log(chain([levels], shifted)[0]))
        # the error of central differences is of order 1e-10 here, that of rounding 1e-16 / 1e-5
        np.testing.assert_allclose((ends[1] - ends[0]) / 2e-5, gradients[..., 2 + k], atol=1e-7)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=5), st.booleans())
def test_the_scores_near_the_logit_are_the_gradients_of_the_chain(levels: list[tuple[int, int]], none: bool) -> None:
    space = profile_space(ATTRIBUTES, none=none)
    terms = context_terms(space, DIRECTIONS, ("dominance", "gain"))
    beta = np.array([[-0.7, 0.7, -0.2]])[:, : len(space.names)]
    tasks = np.array([levels])
    p, gradients = chain_probabilities(space.encode(tasks), terms(tasks), beta, np.zeros((1, 4)))
    scores = ContextScores(terms, beta, np.ones(len(space.names)))(tasks)
    np.testing.assert_allclose(scores[:, 0], np.sqrt(p[0])[..., None] * gradients[0], atol=1e-12)


def test_the_error_of_context_effects_counts_the_coefficients_as_unknown() -> None:
    """With M in blocks, the error is det of the block of M^-1 for the effects, to the power of 1 / G."""
    plan = pn.design(ATTRIBUTES, prior=PRIOR, criterion="context", effects=["dominance", "gain"], starts=2)
    assert plan.parameters == ("price", "quality", "dominated", "dominance", "gain[price]", "gain[quality]")
    covariance = np.linalg.inv(plan.information[0])[3:, 3:]
    assert plan.error == pytest.approx(np.linalg.det(covariance) ** (1 / 3))
    assert plan.d_error == pytest.approx(np.linalg.det(plan.information[0][:2, :2]) ** (-1 / 2))


@pytest.fixture(scope="module")
def plans() -> dict[str, pn.ChoiceDesign]:
    """Return a D-efficient design and one for the attraction effect."""
    context = pn.design(ATTRIBUTES, prior=PRIOR, criterion="context", starts=3)
    return {"D": pn.design(ATTRIBUTES, prior=PRIOR, starts=3), "context": context}


def test_the_context_design_needs_at_most_half_the_respondents(plans: dict[str, pn.ChoiceDesign]) -> None:
    """80% power for an attraction effect of 1; `python -m benchmarks.designs context` prints the numbers."""
    needed = {
        name: pn.design_power(plan, "dominance", effects={"dominance": 1.0}, surveys=1, respondents=[10])
        for name, plan in plans.items()
    }
    assert needed["context"].respondents_for_power(0.8) <= needed["D"].respondents_for_power(0.8) / 2


def test_simulated_power_is_that_expected_from_the_information(plans: dict[str, pn.ChoiceDesign]) -> None:
    """A share of 400 surveys has a standard error of at most 0.025; the tolerance is three of them."""
    power = pn.design_power(plans["context"], "dominance", effects={"dominance": 1.0}, respondents=[80])
    row = power.rows[0]
    assert row.power == pytest.approx(row.expected_power, abs=0.075)
    assert row.coverage == pytest.approx(0.95, abs=0.04)
    assert row.width == pytest.approx(row.expected_width, rel=0.05)
    assert row.mean == pytest.approx(1, abs=4 * power.error / math.sqrt(80 * 400) + 0.02)  # and a bias of order 1 / N
    assert power.to_frame()["respondents"].tolist() == [80]
    assert "for 80% power" in str(power)


def test_respondents_follow_from_the_simulated_power() -> None:
    """40 respondents gave 70%, with a standard error of sqrt(0.7 * 0.3 / 400) = 2.29%.

    For 67.71%, z = 1.959964 + 0.459569 = 2.419533. 80% needs 1.959964 + 0.841621 = 2.801585. So the number is
    40 (2.801585 / 2.419533)^2 = 53.6. The rows of 10 and 400 respondents have powers that say little. With 99
    surveys, the number is (2.801585 * 2)^2 = 31.4, which follows from the error of 2.
    """
    rows = tuple(PowerRow(n, power, 0.9, 1.0, 1.0, 0.95, 1.0, 0) for n, power in ((10, 0.05), (40, 0.7), (400, 1.0)))
    power = DesignPower(target="x", truth=1.0, error=2.0, level=0.95, surveys=400, rows=rows)
    assert power.respondents_for_power(0.8) == 54
    assert "54 respondents, from the simulated surveys" in str(power)
    few = replace(power, surveys=99)
    assert few.respondents_for_power(0.8) == 32
    assert "32 respondents, as expected from the information" in str(few)


def test_an_effect_that_is_absent_is_found_in_one_of_twenty_surveys(plans: dict[str, pn.ChoiceDesign]) -> None:
    """A share of 400 surveys has a standard error of 0.011; the tolerance is three of them."""
    power = pn.design_power(plans["context"], "dominance", effects={"dominance": 0.0}, respondents=[100])
    assert power.rows[0].power == pytest.approx(0.05, abs=0.033)
    with pytest.raises(pn.PcmcNetError, match="the true value of 'dominance' is 0"):
        power.respondents_for_power()


def test_the_width_of_an_interval_of_a_ratio(plans: dict[str, pn.ChoiceDesign]) -> None:
    power = pn.design_power(plans["D"], "quality / price", respondents=[50], surveys=200)
    assert power.truth == pytest.approx(-1)
    assert power.rows[0].width == pytest.approx(power.rows[0].expected_width, rel=0.06)  # of 200 surveys
    n = power.respondents_for_width(0.2)
    assert 2 * 1.959964 * power.error / math.sqrt(n) <= 0.2 < 2 * 1.959964 * power.error / math.sqrt(n - 1)


def test_surveys_without_a_finite_estimate_count_as_not_detected(plans: dict[str, pn.ChoiceDesign]) -> None:
    """One respondent answers 12 tasks, which in some surveys are consistent with an infinite coefficient."""
    row = pn.design_power(plans["D"], "price", coefficients={"price": -4.0}, respondents=[1], surveys=200).rows[0]
    assert row.failed > 0
    assert row.power <= 1 - row.failed / 200
    assert math.isfinite(row.mean)


def test_versions_share_the_respondents() -> None:
    """With two versions, each task is answered by half of the respondents, so the error is that of plan.information."""
    plan = pn.design(ATTRIBUTES, prior=PRIOR, tasks=6, versions=2, starts=1)
    power = pn.design_power(plan, "price", respondents=[30], surveys=100)
    assert power.error == pytest.approx(plan.standard_errors()["price"])
    assert power.rows[0].width == pytest.approx(power.rows[0].expected_width, rel=0.1)  # of 100 surveys


# -- Bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effects": ["attraction"]}, "unknown context effect 'attraction'"),
        ({"effects": ["gain[brand]"]}, "unknown context effect 'gain.brand.'.*a direction and at least 3 levels"),
        ({"prior": None}, "context effects need the direction of an attribute: pass signs"),
        ({"tasks": 1}, "at most 2 coefficients, but the attributes and context effects have 6"),
        ({"alternatives": 2}, "criterion='context' needs at least three alternatives"),
    ],
)
def test_context_designs_that_cannot_exist_say_why(options: dict[str, Any], message: str) -> None:
    attributes = {**ATTRIBUTES, "brand": ["a", "b", "c"]}
    arguments = {"prior": PRIOR, "criterion": "context", "starts": 1, **options}
    with pytest.raises(pn.PcmcNetError, match=message):
        pn.design(attributes, **arguments)


def test_effects_that_nothing_allows_are_refused() -> None:
    space = profile_space({"x": [0, 1]})
    with pytest.raises(pn.PcmcNetError, match="effects: expected at least one context effect, got none"):
        context_terms(space, level_directions(space, {"x": "+"}, np.zeros(1)), ["gain"])
    plan = pn.design({"x": [1, 2, 3]}, tasks=3, balance=False, starts=1)
    model = pn.Uniform().fit(plan.to_choice_data(plan.simulate(2)))
    with pytest.raises(pn.PcmcNetError, match="needs coefficients of a logit, which Uniform does not have"):
        pn.design({"x": [1, 2, 3]}, prior=model, signs={"x": "+"}, criterion="context")


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("size", {}, "target: unknown parameter 'size'"),
        ("dominance", {}, "A context effect needs a true value, as in effects"),
        ("price / quality / price", {}, "expected a parameter or a ratio of two"),
        ("price / quality", {"coefficients": {"quality": 0.0}}, "the true value of 'quality' is 0"),
        ("price", {"coefficients": {"size": 0.0}}, "coefficients: unknown coefficient 'size'"),
        ("dominance", {"effects": {"dominance": "big"}}, "effect 'dominance' must be a number, got 'big'"),
        ("price", {"respondents": [0]}, "respondents must be a whole number of at least 1"),
    ],
)
def test_power_names_what_is_wrong(
    target: str, options: dict[str, Any], message: str, plans: dict[str, pn.ChoiceDesign]
) -> None:
    with pytest.raises(pn.PcmcNetError, match=message):
        pn.design_power(plans["D"], target, **{"surveys": 1, "respondents": [10], **options})


def test_a_design_without_decoys_cannot_reveal_dominance() -> None:
    plan = pn.design(ATTRIBUTES, prior=PRIOR, dominated="avoid", starts=1, tasks=6)
    with pytest.raises(pn.PcmcNetError, match="not identify dominated, dominance: no number of respondents"):
        pn.design_power(plan, "dominance", effects={"dominance": 1.0}, surveys=1, respondents=[10])


def test_a_long_table_marks_dominated_alternatives(plans: dict[str, pn.ChoiceDesign]) -> None:
    plan = plans["context"]
    table = plan.to_long(plan.simulate(1), dominance=True)
    dominates = plan.directions.dominates(plan.levels)
    assert table["dominated"].to_pylist() == dominates.any(axis=1).ravel().astype(int).tolist()
    assert table["dominates"].to_pylist() == dominates.any(axis=2).ravel().astype(int).tolist()
    assert sum(table["dominated"].to_pylist()) > 0


def test_attributes_without_direction_must_be_equal() -> None:
    """x is better if larger, y has no direction: (1, a) dominates (0, a) but not (0, b)."""
    directions = Directions((np.array([0.0, 1.0]), None))
    levels = np.array([[[1, 0], [0, 0], [0, 1]]])
    assert directions.dominates(levels)[0].tolist() == [[False, True, False], [False] * 3, [False] * 3]


def test_the_numbers_of_respondents_are_a_list(plans: dict[str, pn.ChoiceDesign]) -> None:
    for respondents in (50, []):
        with pytest.raises(pn.PcmcNetError, match=r"respondents: expected a list of numbers, as in \[50, 100\], got"):
            pn.design_power(plans["D"], "price", respondents=respondents, surveys=1)  # type: ignore[arg-type]
