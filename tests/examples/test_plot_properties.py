"""Every claim of the example on properties, and a complete run."""

import importlib
import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PICTURES = ("circle", "contractibility", "expansion", "regularity", "transitivity", "approximation")


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """Import the example as a module. Its files import one another by name, as in the folder of a script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("plot_properties")


@pytest.fixture(scope="module")
def chains(example: ModuleType) -> ModuleType:
    return sys.modules["properties_chains"]


@pytest.mark.slow
def test_the_example_writes_a_report_and_pictures(tmp_path: Path) -> None:
    folder = tmp_path / "properties"
    command = [sys.executable, str(EXAMPLES / "plot_properties.py"), "--output", str(folder), "--epochs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = (folder / "report.md").read_text("utf-8")
    assert {p.name for p in folder.iterdir()} == {"report.md", *(f"{name}.png" for name in PICTURES)}
    for name, text in zip(PICTURES, done.stdout.split("\n\n"), strict=False):
        assert f"{text}\n\n![{name}]({name}.png)" in report
        assert (folder / f"{name}.png").stat().st_size < 100_000


# -- a cycle ------------------------------------------------------------------------------------------------------


def test_two_hidden_units_learn_cycles_and_one_neuron_cannot(example: ModuleType) -> None:
    result = example.rock_paper_scissors(0.9)
    np.testing.assert_allclose(result.two_units, 0.9, rtol=1e-12)
    np.testing.assert_allclose(result.all_three, 1 / 3, rtol=1e-12)
    # By symmetry, indifference maximises the likelihood of a logit; 100 steps of training end close to it.
    np.testing.assert_allclose(result.one_neuron, 0.5, atol=1e-3)


# -- contractibility ----------------------------------------------------------------------------------------------


def test_the_share_of_the_car_depends_on_the_number_of_buses(example: ModuleType) -> None:
    result = example.red_bus_blue_bus()
    np.testing.assert_allclose(result.shares[:, 0], 1 / 3, rtol=1e-12)
    assert np.ptp(result.shares[:, 1]) > 0.5  # for any rate between the buses
    assert (np.diff(result.logit) < 0).all()
    np.testing.assert_allclose(result.car, 1 / (1 + result.colours), rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_with_even_pairs_the_car_cannot_keep_a_half(seed: int, chains: ModuleType) -> None:
    """With rates x_j from and to bus j, P(car) sum(x) = sum(P(j) x_j) <= max(x) (1 - P(car)), for any other rates."""
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(0, 3, (4, 4))
    rates[0] = rates[:, 0]
    x = rates[0, 1:]
    assert chains.probabilities(rates)[0] <= x.max() / (x.max() + x.sum()) < 0.5
    np.testing.assert_allclose([chains.probabilities_by_set(rates)[0, j][0] for j in (1, 2, 3)], 0.5, rtol=1e-12)


# -- uniform expansion --------------------------------------------------------------------------------------------


def test_copies_of_all_alternatives_keep_their_shares(example: ModuleType) -> None:
    result = example.uniform_expansion()
    assert result.all_copied[0].max() > 0.4  # far from indifferent
    np.testing.assert_allclose(result.all_copied, np.broadcast_to(result.all_copied[0], (8, 3)), rtol=1e-12)
    np.testing.assert_array_equal(result.one_copied[0], result.all_copied[0])
    assert (np.diff(result.one_copied[:, 0]) > 0).all()


# -- regularity ---------------------------------------------------------------------------------------------------


def test_a_decoy_raises_the_share_of_its_target(example: ModuleType) -> None:
    result = example.attraction(epochs=60, size=9)
    assert abs(result.pair - 0.5) < 0.05  # a short training
    assert result.with_decoy > result.pair + 0.1
    both = (result.network > 0.5) == (result.truth > 0.5)
    assert both.mean() > 0.8
    assert (result.network[:, 0] > 0.5).any()  # the network violates regularity where the true model does
    assert (result.truth[:, 0] > 0.5).any()


# -- stochastic transitivity --------------------------------------------------------------------------------------


def test_the_third_pair_is_independent_of_the_other_two(example: ModuleType) -> None:
    result = example.stochastic_transitivity(0.8, 0.7)
    np.testing.assert_allclose(result.network, result.target, rtol=1e-12)
    assert result.pair_error < 1e-12
    assert result.target.min() < 0.5 < 0.8 < result.logit
    assert result.logit == pytest.approx(28 / 31)  # odds of 4 times 7/3


# -- approximation ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def close(example: ModuleType) -> Any:
    return example.approximation(chains=3, units=(0, 32), epochs=400)


def test_the_error_of_the_construction_is_of_order_epsilon(close: Any) -> None:
    """Probabilities change in proportion to epsilon to first order, so a tenth of it gives a tenth of the error."""
    assert (np.diff(close.by_hand, axis=1) < 0).all()
    assert (close.by_hand[:, -1] < 1e-7).all()
    # The second-order term is about epsilon times the first, from 1e-4 on.
    np.testing.assert_allclose(close.by_hand[:, 5:] / close.by_hand[:, 4:-1], 0.1, rtol=1e-2)


def test_a_trained_network_approximates_the_chain_within_a_hundredth(close: Any) -> None:
    assert close.units.tolist() == [0, 32]
    assert close.trained[1] < 0.01
    assert close.trained[0] > 0.1
    assert len(close.true) == sum(k * math.comb(5, k) for k in range(2, 6))
    np.testing.assert_allclose(close.predicted, close.true, atol=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_random_chains_have_a_stationary_distribution_in_every_set(seed: int, example: ModuleType) -> None:
    rates = example.random_chain(5, seed)
    one_way = [(rates[i, j] == 0) + (rates[j, i] == 0) for i, j in itertools.combinations(range(5), 2)]
    assert 1 in one_way
    assert 2 not in one_way
    assert rates[rates > 0].min() == 1


def test_a_network_set_by_hand_has_the_given_rates(example: ModuleType, chains: ModuleType) -> None:
    rates = example.random_chain(4, seed=3)
    result = chains.rates_of(chains.by_hand(rates, epsilon=0.01), np.eye(4))
    floored = np.where(rates > 0, rates, 0.01) * (1 - np.eye(4))
    np.testing.assert_allclose(result, floored / rates.max(), rtol=1e-12)


def test_the_distance_is_the_maximum_over_sets(chains: ModuleType) -> None:
    one = {(0, 1): np.array([0.5, 0.5]), (0, 2): np.array([1.0, 0.0])}
    other = {(0, 1): np.array([0.4, 0.6]), (0, 2): np.array([0.7, 0.3])}
    assert chains.distance(one, other) == pytest.approx(0.3)
