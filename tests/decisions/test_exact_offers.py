"""The best offers of chains and mixtures, compared with all offers; bounds hold at any time."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.arrays import Bools
from pcmcnet.decisions.branch_and_bound import local_search, starting_offers
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.exact_offers import best_chain_offer
from pcmcnet.decisions.offer_value import Chains, expected_revenue


def chains(n: int, rng: np.random.Generator, members: int = 1, sigma: float = 1.5) -> Chains:
    """Draw log-normal rates between n alternatives and an outside option with revenue 0."""
    rates = np.exp(sigma * rng.standard_normal((1, members, n + 1, n + 1)))
    return Chains(rng.dirichlet(np.ones(members))[None], rates, np.append(0.0, rng.random(n)))


def start(value: Chains, rows: ConstraintRows) -> Bools:
    return starting_offers(rows, value.revenue, 1, np.random.default_rng(0))[0]


def test_two_alternatives_match_values_by_hand() -> None:
    """Option 0 (outside) earns 0, 1 and 2 earn 6 and 4. Rates from 0 are 1 (to 1) and 3 (to 2).

    The rate from 1 to 0 is 1, so {0, 1} earns 6 / 2 = 3. The same from 2 to 0: {0, 2} has p = (1, 3) / 4, earns 3.
    Rates between 1 and 2 are almost 0, so {0, 1, 2} has p = (1, 1, 3) / 5 and earns (6 + 12) / 5 = 3.6.
    """
    rates = np.array([[[[0, 1, 3], [1, 0, 1e-15], [1, 1e-15, 0]]]])
    value = Chains(np.ones((1, 1)), rates, np.array([0.0, 6.0, 4.0]))
    best = best_chain_offer(
        value, ConstraintRows.unconstrained(np.array([True, False, False])), np.array([True, True, False])
    )
    assert best.offer.tolist() == [True, True, True]
    assert best.value == pytest.approx(3.6, abs=1e-12)
    assert best.bound == pytest.approx(3.6, abs=1e-8)


@pytest.mark.parametrize("seed", range(40))
def test_no_offer_earns_more(seed: int, rows_maker: Any, enumerate_offers: Any) -> None:
    _compare(seed, rows_maker, enumerate_offers, most=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_200))
def test_no_offer_of_a_larger_catalogue_earns_more(seed: int, rows_maker: Any, enumerate_offers: Any) -> None:
    _compare(seed, rows_maker, enumerate_offers, most=12)


def _compare(seed: int, rows_maker: Any, enumerate_offers: Any, most: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, most + 1))
    value, rows = chains(n, rng, members=int(rng.integers(1, 4))), rows_maker(n, rng)
    best = best_chain_offer(value, rows, start(value, rows))
    assert rows.allow(best.offer[None])[0]
    assert best.value == pytest.approx(expected_revenue(value, enumerate_offers(rows)).max(), rel=1e-9)
    assert best.gap <= 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_of_an_interrupted_search_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    value, rows = chains(12, rng), ConstraintRows.unconstrained(np.arange(13) == 0)
    best = best_chain_offer(value, rows, start(value, rows))
    for patience in (0, 1, 2):
        left = iter(range(patience))
        stopped = best_chain_offer(value, rows, start(value, rows), stop=lambda left=left: next(left, None) is None)
        assert stopped.value <= best.value * (1 + 1e-12)
        assert stopped.bound >= best.value * (1 - 1e-9)
        assert stopped.nodes <= best.nodes


def test_local_search_finds_nearly_all_of_the_best_offers(rows_maker: Any, enumerate_offers: Any) -> None:
    hits = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        value = chains(int(rng.integers(3, 9)), rng)
        rows = rows_maker(len(value.revenue) - 1, rng)
        starts = starting_offers(rows, value.revenue, 8, rng)
        _, values = local_search(lambda offers, _, value=value: expected_revenue(value, offers), rows, starts)
        hits.append(values.max() >= expected_revenue(value, enumerate_offers(rows)).max() * (1 - 1e-9))
    assert np.mean(hits) >= 0.95
