import math
from dataclasses import replace

import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, ChoiceData, Uniform
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests import horowitz


@pytest.fixture(scope="module")
def modes() -> ChoiceData:
    table = logit_choices(200, {"x": 1.0, "y": 0.5, "z": 0.0}, sizes=(3, 4), constants=[0.0, 0.5, -0.5, 0.2])
    return read(table, alternative="mode", features=["x", "y", "z"], person="person")


def test_the_bound_is_that_computed_by_hand(modes: ChoiceData) -> None:
    """For r_2 - r_1 = (L_2 - K_2 - L_1 + K_1) / -L_0, the square is 2 (L_2 - L_1) - (K_2 - K_1)."""
    one, two = MNL(formula="y").fit(modes), MNL(formula="x + z").fit(modes)
    square = 2 * (two.estimates_.log_likelihood - one.estimates_.log_likelihood) - 1
    for test in (horowitz(one, two), horowitz(two, one)):
        assert test.statistic == pytest.approx(-math.sqrt(square), rel=1e-10)
        assert test.p_value == pytest.approx(math.erfc(math.sqrt(square / 2)) / 2, rel=1e-8)
        assert test.rejected
        assert test.degrees_of_freedom is None
    assert "The MNL (first) is rejected" in str(horowitz(one, two))
    assert "The MNL (second) is rejected" in str(horowitz(two, one))
    assert "the p-value is an upper bound" in horowitz(one, two).notes


def test_nested_models_have_a_note(modes: ChoiceData) -> None:
    small, large = MNL(formula="y").fit(modes), MNL(formula="x + y").fit(modes)
    assert "the models are nested: use likelihood_ratio" in horowitz(small, large).notes


def test_what_cannot_be_tested_is_explained(modes: ChoiceData) -> None:
    logit = MNL(formula="x").fit(modes)
    with pytest.raises(InputError, match=r"Uniform is not a logit: use pcmcnet\.vuong"):
        horowitz(logit, Uniform().fit(modes))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="fitted to different tables"):
        horowitz(logit, MNL(formula="y").fit(modes.subset(range(100))))
    # With one parameter more, a log-likelihood that is 0.7 higher has a lower adjusted rho-squared, and 1 - 1.4 < 0.
    large = MNL(formula="x + z").fit(modes)
    estimates = replace(large.estimates_, log_likelihood=logit.estimates_.log_likelihood + 0.7)
    large.fitted_ = replace(large.require_fitted(), state=replace(large.require_fitted().state, estimates=estimates))
    with pytest.raises(
        InputError, match=r"not defined: the MNL \(first\) has fewer parameters than the MNL \(second\)"
    ):
        horowitz(logit, large)
