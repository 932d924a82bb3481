"""Log-sums without limit, and which coefficients go with them."""

import numpy as np
import pytest

from pcmcnet.models.logits.estimation import Estimates
from pcmcnet.models.logits.estimation.logsum_bounds import LEAST, MOST, at_end, without_limit


def found(values: list[float], **more: tuple[str, ...]) -> Estimates:
    """Two coefficients and two log-sums, with errors of 1."""
    return Estimates(
        names=("a", "b", "logsum[m]", "logsum[n]"),
        values=np.array(values),
        null=np.zeros(4),
        covariances={"classical": np.eye(4)},
        log_likelihood=-1.0,
        null_log_likelihood=-2.0,
        n_sets=10,
        steps=1,
        **more,  # type: ignore[arg-type]
    )


LOGSUMS = ("logsum[m]", "logsum[n]")


@pytest.mark.parametrize(("value", "end"), [(LEAST, True), (0.2, False), (1.0, False), (50.0, False), (MOST, True)])
def test_the_ends_of_the_search(value: float, end: bool) -> None:
    assert at_end(value) is end


def test_a_coefficient_that_grows_in_proportion_has_no_finite_error() -> None:
    """H_aa = -1 and H_am = .02: as l_m goes on from 100 by itself, a = 2 goes on by 2; b does not move."""
    bend = -np.eye(4)
    bend[0, 2] = bend[2, 0] = 0.02
    told = without_limit(found([2.0, 2.0, MOST, 0.5], at_bound=("logsum[m]",)), bend, LOGSUMS)
    assert told.unbounded == ("a", "logsum[m]")
    assert told.at_bound == ()
    assert told.standard_errors() == {"a": np.inf, "b": 1.0, "logsum[m]": np.inf, "logsum[n]": 1.0}


def test_log_sums_that_run_together_count_together() -> None:
    """a would follow either of them, but not both at once: it depends on their difference."""
    bend = -np.eye(4)
    bend[0, 2:] = bend[2:, 0] = [0.02, -0.02]
    assert without_limit(found([2.0, 2.0, MOST, MOST]), bend, LOGSUMS).unbounded == LOGSUMS
    assert "a" in without_limit(found([2.0, 2.0, MOST, 1.0]), bend, LOGSUMS).unbounded


def test_bounds_that_were_given_and_fixed_values_are_no_ends() -> None:
    at_its_bound = found([1.0, 1.0, MOST, 0.5], at_bound=("logsum[m]",))
    assert without_limit(at_its_bound, -np.eye(4), ("logsum[n]",)) is at_its_bound
    fixed = found([1.0, 1.0, MOST, 0.5], fixed=("logsum[m]",))
    assert without_limit(fixed, -np.eye(4), LOGSUMS) is fixed
