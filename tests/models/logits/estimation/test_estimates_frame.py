import math

import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL
from pcmcnet.errors import ConfigError
from pcmcnet.models.logits.estimation import Estimates
from pcmcnet.models.logits.estimation.estimates_frame import estimate_rows, interval_ends

ESTIMATES = Estimates(
    names=("cost", "logsum[rail]", "comfort", "far"),
    values=np.array([-2.0, 0.6, 0.5, 30.0]),
    null=np.array([0.0, 1.0, 0.0, 0.0]),
    covariances={"classical": np.diag([0.25, 0.04, 0.0, 1.0])},
    log_likelihood=-10.0,
    null_log_likelihood=-20.0,
    n_sets=30,
    steps=4,
    unbounded=("far",),
    fixed=("comfort",),
)


def test_z_p_and_the_interval_are_those_of_a_normal_law() -> None:
    """-2 / 0.5 = -4; (0.6 - 1) / 0.2 = -2 with p = erfc(sqrt(2)); the 95% interval is -2 -+ 1.959964 * 0.5."""
    cost, logsum, comfort, far = estimate_rows(ESTIMATES, "classical")
    assert (cost.name, cost.estimate, cost.std_error, cost.z) == ("cost", -2.0, 0.5, -4.0)
    assert (cost.lower, cost.upper) == pytest.approx((-2 - 0.979982, -2 + 0.979982), abs=1e-6)
    assert logsum.z == pytest.approx(-2.0, rel=1e-12)
    assert logsum.p == pytest.approx(math.erfc(math.sqrt(2)), rel=1e-12)
    assert (comfort.estimate, comfort.state) == (0.5, "fixed")
    assert all(math.isnan(x) for x in comfort[2:7])
    assert (far.std_error, far.lower, far.upper, far.state) == (math.inf, -math.inf, math.inf, "no finite estimate")


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="level must be a number above 0 and below 1, got 95"):
        estimate_rows(ESTIMATES, "classical", 95)


def test_an_interval_that_is_none_is_left_empty() -> None:
    assert interval_ends(math.nan, math.nan) == ("", "")
    assert interval_ends(-1.23456, 2.0) == ("-1.235", "2")


def test_a_model_gives_its_estimates_as_a_data_frame_and_its_intervals_in_the_summary() -> None:
    pytest.importorskip("pandas")
    data = read(logit_choices(80, {"x": 1.0, "y": 0.5}), features=["x", "y"])
    model = MNL(fixed={"y": 0.5}).fit(data)
    frame = model.estimates(errors="robust", level=0.9)
    assert list(frame.columns) == ["estimate", "std_error", "z", "p", "lower", "upper", "state"]
    assert frame.loc["x", "estimate"] == model.coefficients["x"]
    assert frame.loc["x", "std_error"] == model.standard_errors("robust")["x"]
    assert frame.loc["x", "upper"] - frame.loc["x", "lower"] == pytest.approx(
        2 * 1.6448536 * frame.loc["x", "std_error"], rel=1e-6
    )
    assert frame.loc["y", "state"] == "fixed"
    shown = model.summary(errors="robust", level=0.9)
    assert shown.header[-2:] == ("0.05", "0.95")
    assert shown.rows[0][-1] == f"{frame.loc['x', 'upper']:.4g}"
    assert shown.rows[1][-2:] == ("", "")


def test_what_was_calibrated_has_a_value_alone() -> None:
    cost, logsum, *_ = estimate_rows(ESTIMATES, "classical", calibrated=["cost"])
    assert (cost.estimate, cost.state) == (-2.0, "calibrated")
    assert all(math.isnan(x) for x in cost[2:7])
    assert logsum == estimate_rows(ESTIMATES, "classical")[1]
    assert ESTIMATES.rows("classical", ["cost"])[0] == ("cost", "-2", "calibrated", "", "")
