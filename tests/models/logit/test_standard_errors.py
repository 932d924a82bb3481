import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from choice_tables import logit_choices, read
from pcmcnet import MNL
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import Maximum
from pcmcnet.models.logit.parameter_bounds import Parameters
from pcmcnet.models.logit.standard_errors import Estimates, estimate_rows, infer, interval_ends, z_test


def estimated(seed: int = 0, clusters: Any = None, weights: Any = None, sets: int = 300) -> Estimates:
    """Return estimates of a logit with two columns. Some sets have one alternative."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, sets)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    logit = LogitLikelihood.from_matrix(rng.normal(size=(offsets[-1], 2)), offsets, rng.integers(0, sizes))
    w = np.ones(sets) if weights is None else weights
    b, hessian, steps = logit.maximise(w)
    return infer(
        Maximum(
            values=b,
            log_likelihood=float(w @ logit.log_likelihoods(b)),
            hessian=hessian,
            scores=logit.scores(b),
            steps=steps,
            spread=logit.spread,
        ),
        Parameters.free(b, ("x", "y")),
        weights=w,
        sizes=sizes,
        clusters=clusters,
    )


def given_estimates(values: list[float], covariance: list[list[float]], **more: Any) -> Estimates:
    facts: dict[str, Any] = {"log_likelihood": -80.0, "null_log_likelihood": -100.0, "n_sets": 50, "steps": 4}
    names = tuple("abcdef"[: len(values)])
    return Estimates(
        names, np.array(values), np.zeros(len(values)), {"classical": np.array(covariance)}, **(facts | more)
    )


# -- covariances ---------------------------------------------------------------------------------------------------


def test_covariances_of_one_coefficient_are_those_found_by_hand() -> None:
    """H = -3/4 from four sets with scores 1/4, 1/4, 1/4 and -3/4: 4/3, and 16/9 times 12/16."""
    result = infer(
        Maximum(
            values=np.array([np.log(3.0)]),
            log_likelihood=-1.0,
            hessian=np.array([[-0.75]]),
            scores=np.array([[0.25], [0.25], [0.25], [-0.75]]),
            steps=1,
        ),
        Parameters.free(np.array([np.log(3.0)]), ("x",)),
        weights=np.ones(4),
        sizes=np.full(4, 2),
        clusters=np.array([0, 0, 1, 1]),
    )
    assert result.covariance()[0, 0] == pytest.approx(4 / 3, rel=1e-12)
    assert result.covariance("robust")[0, 0] == pytest.approx(16 / 9 * 12 / 16, rel=1e-12)
    assert result.covariance("clustered")[0, 0] == pytest.approx(2 * 16 / 9 * (1 / 4 + 1 / 4), rel=1e-12)
    assert result.null_log_likelihood == pytest.approx(-4 * np.log(2), rel=1e-12)
    assert (result.n_sets, result.clusters) == (4, 2)


def test_one_cluster_per_set_gives_robust_errors_with_a_correction() -> None:
    result = estimated(clusters=np.random.default_rng(1).permutation(300))
    np.testing.assert_allclose(result.covariance("clustered"), result.covariance("robust") * 300 / 299, rtol=1e-12)
    assert result.clusters == 300


def test_doubled_weights_halve_only_the_classical_covariance() -> None:
    weights = np.full(300, 2.0)
    result = estimated(weights=weights, clusters=np.arange(300))
    np.testing.assert_allclose(result.covariance("robust"), estimated().covariance("robust"), rtol=1e-6)
    np.testing.assert_allclose(result.covariance(), estimated().covariance() / 2, rtol=1e-6)


def test_clusters_without_weight_do_not_count() -> None:
    weights = np.ones(300)
    weights[:3] = 0
    result = estimated(weights=weights, clusters=np.arange(300))
    assert (result.clusters, result.n_sets) == (297, 297)


def test_one_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="clustered errors need at least 2 clusters, got 1: choose another column"):
        estimated(clusters=np.zeros(300, np.int64))


def test_covariances_are_selected_by_name() -> None:
    result = estimated()
    with pytest.raises(InputError, match="errors must be one of classical, robust, clustered, got 'robus'"):
        result.covariance("robus")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="clustered errors need clusters: fit with cluster=<column>"):
        result.covariance("clustered")


def test_bic_counts_the_weight_of_sets_with_several_alternatives() -> None:
    doubled = estimated(weights=np.full(300, 2.0))
    single = int((np.random.default_rng(0).integers(1, 5, 300) == 1).sum())  # sizes in ``estimated``
    assert (doubled.n_sets, doubled.weight, doubled.n_single) == (300, 600.0, single)
    assert doubled.bic == pytest.approx(2 * np.log(600 - 2 * single) - 2 * doubled.log_likelihood)
    assert doubled.facts()["choice sets"] == f"300, {single} of them with one alternative"
    assert given_estimates([1.0], [[1.0]]).bic == pytest.approx(np.log(50) + 160)  # saved by a version without weights


def test_fixed_and_bounded_parameters_do_not_widen_other_errors() -> None:
    """With b fixed and c at its bound, the variance of a is 1 / 4, whatever their covariance."""
    information = np.array([[4.0, 1.0, 2.0], [1.0, 3.0, 1.0], [2.0, 1.0, 5.0]])
    low, high = np.array([-np.inf, 2.0, -1.0]), np.array([np.inf, 2.0, 0.0])
    result = infer(
        Maximum(
            values=np.array([0.5, 2.0, 0.0]),
            log_likelihood=-50.0,
            hessian=-information,
            scores=np.ones((100, 3)),
            steps=1,
        ),
        Parameters(("a", "b", "c"), np.zeros(3), low, high),
        weights=np.ones(100),
        sizes=np.full(100, 3),
    )
    assert (result.fixed, result.at_bound, result.n_parameters) == (("b",), ("c",), 2)
    np.testing.assert_allclose(result.covariance(), np.diag([0.25, 0, 0]), rtol=1e-12)
    np.testing.assert_allclose(result.covariance("robust"), np.diag([100 / 16, 0, 0]), rtol=1e-12)
    assert result.aic == pytest.approx(2 * 2 + 100)
    assert result.bic == pytest.approx(2 * np.log(100) + 100)
    np.testing.assert_allclose(list(result.standard_errors().values()), [0.5, np.nan, np.nan])
    assert [row[1:] for row in result.rows("classical")[1:]] == [("2", "fixed", "", ""), ("0", "at its bound", "", "")]
    assert result.facts()["parameters"] == "2, and 1 fixed"
    ratio, error = result.delta(lambda b: b[0] / b[1])
    assert (float(ratio), float(error)) == pytest.approx((0.25, 0.25))


def test_coefficients_of_flat_directions_are_named() -> None:
    """Only b_1 + b_2 is identified, with information 2 of 100 sets. The third coefficient is not affected."""
    information = np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 4.0]])
    result = infer(
        Maximum(
            values=np.array([20.0, -20.0, 1.0]),
            log_likelihood=-1.0,
            hessian=-information,
            scores=np.zeros((100, 3)),
            steps=1,
            spread=np.ones(3),
        ),
        Parameters.free(np.array([20.0, -20.0, 1.0]), ("a", "b", "c")),
        weights=np.ones(100),
        sizes=np.full(100, 2),
    )
    assert result.unbounded == ("a", "b")
    assert result.standard_errors() == {"a": np.inf, "b": np.inf, "c": pytest.approx(0.5)}
    assert [row[1:] for row in result.rows("classical")] == [
        ("20", "inf", "0.00", "1.000"),
        ("-20", "inf", "-0.00", "1.000"),
        ("1", "0.5", "2.00", "0.046"),
    ]
    assert result.facts()["no finite estimate"] == "'a', 'b'"


def test_all_directions_may_be_flat() -> None:
    result = infer(
        Maximum(
            values=np.array([30.0]),
            log_likelihood=-1e-13,
            hessian=np.array([[-1e-13]]),
            scores=np.zeros((9, 1)),
            steps=1,
            spread=np.ones(1),
        ),
        Parameters.free(np.array([30.0]), ("a",)),
        weights=np.ones(9),
        sizes=np.full(9, 2),
    )
    assert result.unbounded == ("a",)
    assert result.standard_errors("robust") == {"a": np.inf}


# -- fit statistics ------------------------------------------------------------------------------------------------


def test_information_criteria_are_those_found_by_hand() -> None:
    result = given_estimates([1.0, 2.0], [[1.0, 0.0], [0.0, 4.0]], constants_log_likelihood=-90.0)
    assert result.aic == 164
    assert result.bic == pytest.approx(160 + 2 * np.log(50))
    assert result.rho_squared == pytest.approx(0.2)
    assert result.adjusted_rho_squared == pytest.approx(0.18)
    assert list(result.facts().items()) == [
        ("choice sets", "50"),
        ("parameters", "2"),
        ("log-likelihood", "-80.000"),
        ("null log-likelihood", "-100.000"),
        ("constants-only log-likelihood", "-90.000"),
        ("rho-squared", "0.2000"),
        ("adjusted rho-squared", "0.1800"),
        ("AIC", "164.00"),
        ("BIC", "167.82"),
        ("steps", "4"),
    ]


def test_rho_squared_is_0_if_the_null_log_likelihood_is_0() -> None:
    result = given_estimates([1.0], [[1.0]], log_likelihood=0.0, null_log_likelihood=0.0)
    assert (result.rho_squared, result.adjusted_rho_squared) == (0.0, 0.0)


def test_z_and_p_use_the_null_value() -> None:
    result = Estimates(("a",), np.array([0.6]), np.array([1.0]), {"robust": np.array([[0.04]])}, -1.0, -2.0, 9, 3)
    assert result.rows("robust") == (("a", "0.6", "0.2", "-2.00", "0.046"),)
    assert z_test(1.5, 0.5) == (3.0, pytest.approx(2 * norm.sf(3), rel=1e-12))
    assert z_test(0.0, 0.0) == (0.0, 1.0)
    assert z_test(1.0, 0.0) == (np.inf, 0.0)


def test_coefficients_are_indexed_by_name() -> None:
    result = estimated()
    assert result.position("y") == 1
    with pytest.raises(InputError, match="has no coefficient 'z'"):
        result.position("z")


# -- delta method --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1.0, 1e-12, 1e9])
def test_the_error_of_a_ratio_has_the_closed_form(unit: float) -> None:
    """Var(a / b) = (s_aa - 2 r s_ab + r^2 s_bb) / b^2 with r = a / b."""
    a, b, s = -1.2, -0.8 * unit, np.array([[0.04, 0.01 * unit], [0.01 * unit, 0.09 * unit**2]])
    value, error = given_estimates([a, b], s.tolist()).delta(lambda v: v[0] / v[1])
    r = a / b
    assert value == pytest.approx(r)
    # central differences with a relative step of 1e-5
    assert error == pytest.approx(np.sqrt(s[0, 0] - 2 * r * s[0, 1] + r**2 * s[1, 1]) / abs(b), rel=1e-8)


def test_linear_functions_have_exact_errors() -> None:
    result = given_estimates([0.0, 2.0], [[1.0, 0.5], [0.5, 4.0]])
    value, error = result.delta(lambda v: np.array([[v[0], v[1]], [v[0] + v[1], 7.0]]))
    np.testing.assert_allclose(value, [[0, 2], [2, 7]])
    np.testing.assert_allclose(error, [[1, 2], [np.sqrt(6), 0]], rtol=1e-9)


def test_functions_of_coefficients_without_estimate_have_no_error() -> None:
    result = given_estimates([1.0, 30.0], [[1.0, 0.0], [0.0, 0.0]], unbounded=("b",))
    _, error = result.delta(lambda v: np.array([v[0], v[0] / v[1], v[1]]))
    assert error.tolist() == [pytest.approx(1), np.inf, np.inf]


# -- Estimates frame ---------------------------------------------------------------------------------------------------


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


def test_z_p_and_intervals_are_normal() -> None:
    """-2 / 0.5 = -4; (0.6 - 1) / 0.2 = -2 with p = erfc(sqrt(2)); the 95% interval is -2 -+ 1.959964 * 0.5."""
    cost, logsum, comfort, far = estimate_rows(ESTIMATES, "classical")
    assert (cost.name, cost.estimate, cost.std_error, cost.z) == ("cost", -2.0, 0.5, -4.0)
    assert (cost.lower, cost.upper) == pytest.approx((-2 - 0.979982, -2 + 0.979982), abs=1e-6)
    assert logsum.z == pytest.approx(-2.0, rel=1e-12)
    assert logsum.p == pytest.approx(math.erfc(math.sqrt(2)), rel=1e-12)
    assert (comfort.estimate, comfort.state) == (0.5, "fixed")
    assert all(math.isnan(x) for x in comfort[2:7])
    assert (far.std_error, far.lower, far.upper, far.state) == (math.inf, -math.inf, math.inf, "no finite estimate")


def test_an_invalid_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="level must be a number above 0 and below 1, got 95"):
        estimate_rows(ESTIMATES, "classical", 95)


def test_an_undefined_interval_is_empty() -> None:
    assert interval_ends(math.nan, math.nan) == ("", "")
    assert interval_ends(-1.23456, 2.0) == ("-1.235", "2")


def test_estimates_are_a_data_frame_and_the_summary_has_intervals() -> None:
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


def test_calibrated_constants_have_a_value_only() -> None:
    cost, logsum, *_ = estimate_rows(ESTIMATES, "classical", calibrated=["cost"])
    assert (cost.estimate, cost.state) == (-2.0, "calibrated")
    assert all(math.isnan(x) for x in cost[2:7])
    assert logsum == estimate_rows(ESTIMATES, "classical")[1]
    assert ESTIMATES.rows("classical", ["cost"])[0] == ("cost", "-2", "calibrated", "", "")
