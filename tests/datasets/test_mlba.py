"""The MLBA against its definition over time, published values, the paper's table, and properties."""

import itertools
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.stats import norm

from pcmcnet.datasets import mlba
from pcmcnet.errors import ConfigError, InputError

TRAIN = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "mlba_train.parquet"
DECOY = [[(4, 6), (6, 4), (3.5, 5.5)]]

attributes = st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, (*shape, 2), elements=st.floats(0.1, 20))
)


def race_in_time(drifts: list[float]) -> list[float]:
    """Integrate the definition over time z by an adaptive rule: f_i times the 1 - F_j of the others."""

    def density(z: float, d: float) -> float:
        c, e = 2 / z - d, 1 / z - d
        return float(d * (norm.cdf(c) - norm.cdf(e)) + norm.pdf(e) - norm.pdf(c))

    def later(z: float, d: float) -> float:
        c, e = 2 / z - d, 1 / z - d
        return float(z * (c * norm.cdf(c) - e * norm.cdf(e) + norm.pdf(c) - norm.pdf(e)))

    def first(z: float, i: int) -> float:
        survivals = (later(z, d) for j, d in enumerate(drifts) if j != i)
        return density(z, drifts[i]) * float(np.prod(list(survivals)))

    some_positive = 1 - np.prod([norm.cdf(-d) for d in drifts])
    parts = list(itertools.pairwise([0, 0.3, 1, 4, np.inf]))
    return [
        sum(quad(first, *part, args=(i,), epsabs=1e-11, epsrel=1e-11)[0] for part in parts) / some_positive
        for i in range(len(drifts))
    ]


@pytest.mark.parametrize("i0", [-1, 0.5, 6])
def test_probabilities_match_the_definition_integrated_over_time(i0: float) -> None:
    """With m = 1 values are attributes; without decay of attention d_i = i0 + sum_j (s_i - s_j).

    Sums s = 3, 4, 3.5 differ from the others by -1.5, 1.5 and 0 in all.
    """
    p = mlba.probabilities([[(1, 2), (2, 2), (2.5, 1)]], m=1, lambda1=0, lambda2=0, i0=i0)
    np.testing.assert_allclose(p[0], race_in_time([i0 - 1.5, i0 + 1.5, i0]), rtol=0, atol=1e-9)


def test_attention_decays_by_lambda1_for_gains_and_lambda2_for_losses() -> None:
    """m = 1, (3, 1) against (1, 2): gain 2 on the first attribute, loss 1 on the second.

    d_1 = 1 + 2 exp(-2 (.3)) - exp(-.7) and d_2 = 1 - 2 exp(-2 (.7)) + exp(-.3).
    """
    p = mlba.probabilities([[(3, 1), (1, 2)]], m=1, lambda1=0.3, lambda2=0.7, i0=1)
    drifts = [1 + 2 * np.exp(-0.6) - np.exp(-0.7), 1 - 2 * np.exp(-1.4) + np.exp(-0.3)]
    np.testing.assert_allclose(p[0], race_in_time(drifts), rtol=0, atol=1e-9)


def test_curvature_follows_the_formula() -> None:
    """m = 2: (1, 2) has s = 3, t = 2, u = (3, 6) / sqrt(5); (2, 2) has s = 4, t = 1, u = (4, 4) / sqrt(2)."""
    low, high, even = 3 / np.sqrt(5), 6 / np.sqrt(5), 4 / np.sqrt(2)
    drifts = [1 + low + high - 2 * even, 1 + 2 * even - low - high]
    p = mlba.probabilities([[(1, 2), (2, 2)], [(2, 1), (2, 2)]], m=2, lambda1=0, lambda2=0, i0=1)
    np.testing.assert_allclose(p, [race_in_time(drifts)] * 2, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("alternatives", "expected"),
    [
        ([(23.8, 45.95), (45.75, 24), (17, 45.95)], [0.50553, 0.35964, 0.13483]),
        ([(25.5, 45.2), (35.2, 35.5), (24, 46.7)], [0.17152, 0.70840, 0.12008]),
        ([(73.35, 36.65), (53.05, 56.95), (43.05, 66.95)], [0.23027, 0.61005, 0.15968]),
    ],
    ids=["attraction", "similarity", "compromise"],
)
def test_a_strongly_curved_model_matches_published_values(
    alternatives: list[tuple[float, float]], expected: list[float]
) -> None:
    p = mlba.probabilities(np.array([alternatives]) / 10, m=22.30, lambda1=0.193, lambda2=0.278, i0=13.39)
    # the published values have five digits
    np.testing.assert_allclose(p[0], expected, rtol=0, atol=0.51e-5)


@pytest.mark.skipif(not TRAIN.exists(), reason=f"needs {TRAIN}, which is not part of the repository")
def test_probabilities_match_every_set_of_the_papers_training_table() -> None:
    table = pq.read_table(TRAIN).sort_by([("choice_set", "ascending"), ("alternative", "ascending")])
    x = np.stack([table["attr1"].to_numpy(), table["attr2"].to_numpy()], axis=-1).reshape(-1, 3, 2)
    assert len(x) == 20_000
    expected = table["true_prob"].to_numpy().reshape(-1, 3)
    np.testing.assert_allclose(mlba.probabilities(x), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("center", "spread", "n"), [(5, 3, 3), (0, 1, 2), (3, 3, 60), (300, 100, 5)])
def test_the_quadrature_has_converged(center: float, spread: float, n: int) -> None:
    drift = np.random.default_rng(0).normal(center, spread, (40, n))
    drift[:, 0] = np.abs(drift[:, 0])
    p = mlba._race(drift)
    np.testing.assert_allclose(mlba._race(drift, nodes=2 * mlba.NODES), p, rtol=0, atol=1e-11)
    np.testing.assert_allclose(mlba._race(drift, panel=mlba.PANEL / 2), p, rtol=0, atol=1e-11)


@given(x=attributes, m=st.floats(0.1, 50), i0=st.floats(-10, 20), seed=st.integers(0, 2**16))
def test_rows_are_distributions_and_follow_relabelling(x: Any, m: float, i0: float, seed: int) -> None:
    p = mlba.probabilities(x, m=m, i0=i0)
    assert p.shape == x.shape[:2]
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-10)
    order = np.random.default_rng(seed).permutation(x.shape[1])
    np.testing.assert_allclose(mlba.probabilities(x[:, order], m=m, i0=i0), p[:, order], rtol=0, atol=1e-10)


@given(x=attributes)
def test_exchanging_the_two_attributes_changes_nothing(x: Any) -> None:
    np.testing.assert_allclose(mlba.probabilities(x[..., ::-1]), mlba.probabilities(x), rtol=0, atol=1e-10)


@given(x=attributes)
def test_a_set_has_the_same_probabilities_alone_and_in_a_batch(x: Any) -> None:
    alone = np.concatenate([mlba.probabilities(one[None]) for one in x])
    np.testing.assert_allclose(mlba.probabilities(x), alone, rtol=0, atol=1e-15)


def test_copies_share_equally_and_a_lone_alternative_is_certain() -> None:
    np.testing.assert_allclose(mlba.probabilities(np.full((1, 7, 2), 3.0)), 1 / 7, rtol=0, atol=1e-14)
    np.testing.assert_allclose(mlba.probabilities([[(2, 9)], [(5, 5)]]), 1, rtol=0, atol=1e-14)
    assert mlba.probabilities(np.empty((0, 3, 2))).shape == (0, 3)


def test_the_choice_is_uniform_when_no_drift_is_positive() -> None:
    """Sums 2 and 4 with m = 1 and no decay: drifts i0 - 2 and i0 + 2, so i0 = -2 is the last uniform value."""
    sets = [[(1, 1), (2, 2)]]
    p = mlba.probabilities(sets, m=1, lambda1=0, lambda2=0, i0=-2)
    assert p.tolist() == [[0.5, 0.5]]
    p = mlba.probabilities(sets, m=1, lambda1=0, lambda2=0, i0=-1.9)
    assert p[0, 1] > 0.99


@pytest.mark.parametrize("m", [5e-324, 1e-3, 1e3, 1e308])
def test_extreme_curvature_and_attributes_stay_finite(m: float) -> None:
    """t^m is far outside the range of floats; an overflow warning would fail this test."""
    p = mlba.probabilities([[(4, 6), (6, 4), (3.5, 5.5)], [(1e300, 1e-300), (1e-300, 1e300), (1, 1)]], m=m)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-14)


def test_memory_is_bounded_by_the_chunk_size() -> None:
    """Without chunks, one pairwise array would take 32 MB and a dozen arrays of nodes 6 MB each."""
    x = np.random.default_rng(0).uniform(4, 5, (500, 64, 2))
    tracemalloc.start()
    mlba.probabilities(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 8 * mlba.CHUNK_VALUES + 4 * x.nbytes  # a dozen temporaries, and some arrays of the size of x


def test_choice_sets_have_a_b_and_a_third_in_range() -> None:
    x = mlba.choice_sets(1_000, np.random.default_rng(0))
    assert x.shape == (1_000, 3, 2)
    assert (x[:, 0] == (4, 6)).all()
    assert (x[:, 1] == (6, 4)).all()
    assert (x[:, 2] >= 1).all()
    assert (x[:, 2] <= 9).all()
    # mean 5 and standard deviation 8 / sqrt(12) = 2.31, so that 4 standard errors are 0.29
    np.testing.assert_allclose(x[:, 2].mean(axis=0), 5, rtol=0, atol=0.29)


def test_a_simulated_table_has_its_columns_and_probabilities() -> None:
    table = mlba.simulate(5, seed=3)
    assert table.schema == pa.schema(
        {
            "choice_set": pa.int32(),
            "alternative": pa.string(),
            "attr1": pa.float64(),
            "attr2": pa.float64(),
            "chosen": pa.int8(),
            "true_prob": pa.float64(),
        }
    )
    assert table["choice_set"].to_pylist() == [s for s in range(5) for _ in range(3)]
    assert table["alternative"].to_pylist() == ["a", "b", "c"] * 5
    x = np.stack([table["attr1"].to_numpy(), table["attr2"].to_numpy()], axis=-1).reshape(5, 3, 2)
    assert (x[:, :2] == [mlba.A, mlba.B]).all()
    np.testing.assert_array_equal(table["true_prob"].to_numpy().reshape(5, 3), mlba.probabilities(x))
    assert (table["chosen"].to_numpy().reshape(5, 3).sum(axis=1) == 1).all()


def test_the_seed_reproduces_a_simulated_table() -> None:
    assert mlba.simulate(50, seed=1).equals(mlba.simulate(50, seed=1))
    assert not mlba.simulate(50, seed=1).equals(mlba.simulate(50, seed=2))


def test_sampled_frequencies_agree_with_the_true_probabilities() -> None:
    """Counts have mean sum(p) and variance sum(p (1 - p)); 13 groups within 4 sigma fail 1 seed in 1,200."""
    table = mlba.simulate(20_000, seed=0)
    p, chosen = table["true_prob"].to_numpy(), table["chosen"].to_numpy()
    alternative = np.arange(len(p)) % 3
    tenth = np.searchsorted(np.quantile(p, np.linspace(0.1, 0.9, 9)), p)
    for group in [*(alternative == k for k in range(3)), *(tenth == k for k in range(10))]:
        z = (chosen[group] - p[group]).sum() / np.sqrt((p[group] * (1 - p[group])).sum())
        assert abs(z) < 4


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        (np.ones((3, 2)), r"got shape \(3, 2\)\. For a single set, pass a list"),
        (np.ones((4, 3, 3)), r"got shape \(4, 3, 3\)"),
        (np.ones((4, 0, 2)), r"got shape \(4, 0, 2\)"),
        ([[(1, 2)], [(1, 2), (3, 4)]], "got a list that cannot be converted .* same number of alternatives"),
        ([[("cheap", "good")]], "got a list that cannot be converted .* Use only numbers"),
    ],
)
def test_a_wrong_shape_is_refused(bad: Any, shown: str) -> None:
    expected = r"attributes: expected numbers of shape \(sets, alternatives, 2\) with at least 1 alternative, "
    with pytest.raises(InputError, match=expected + shown):
        mlba.probabilities(bad)


@pytest.mark.parametrize("bad", [0.0, -1.5, np.nan, np.inf])
def test_a_nonpositive_attribute_is_refused_with_its_place(bad: float) -> None:
    x = np.ones((4, 3, 2))
    x[2, 1, 1] = x[3, 0, 0] = bad
    where = "attributes, set 2, alternative 1, attribute 1: expected a finite number above 0"
    with pytest.raises(InputError, match=f"{where}, got {bad}; 2 such values. Shift or drop them"):
        mlba.probabilities(x)


def test_a_drift_out_of_range_is_refused_with_its_place() -> None:
    x = np.ones((2, 2, 2))
    x[1, 1] = 1e5
    where = "attributes, set 1, alternative 1: expected a drift of at most 10000, got 200003"
    with pytest.raises(InputError, match=f"{where}; 1 such alternatives. Divide the attributes"):
        mlba.probabilities(x, m=1, lambda1=0)
    with pytest.raises(InputError, match=r"set 0, alternative 0: .* got nan; 2 such alternatives"):
        mlba.probabilities(np.full((1, 2, 2), 1.7e308))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("m", 0.0, "a finite number above 0, got 0.0. The paper uses m=5.0."),
        ("m", -1, "a finite number above 0, got -1."),
        ("m", np.nan, "a finite number above 0, got nan."),
        ("m", "5", "a finite number above 0, got '5'."),
        ("lambda1", -0.1, "a finite number, 0 or above, got -0.1. The paper uses lambda1=0.2."),
        ("lambda2", np.inf, "a finite number, 0 or above, got inf. The paper uses lambda2=0.4."),
        ("i0", np.inf, "a finite number, got inf. The paper uses i0=5.0."),
    ],
)
def test_a_parameter_out_of_range_is_refused(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name}: expected {expected}")):
        mlba.probabilities(DECOY, **{name: value})


@pytest.mark.parametrize("sets", [0, -3, 2.5, "many", 2**31])
def test_an_invalid_number_of_sets_is_refused(sets: Any) -> None:
    with pytest.raises(ConfigError, match=f"sets: expected a whole number from 1 to 2147483647, got {sets!r}"):
        mlba.simulate(sets, seed=0)


@pytest.mark.parametrize("seed", [-1, None, 0.5])
def test_an_invalid_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ConfigError, match=f"seed: expected a whole number, 0 or above, got {seed!r}"):
        mlba.simulate(1, seed=seed)
