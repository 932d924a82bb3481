"""The best offers of mixtures of many logits, compared with all offers; bounds hold at any time."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.decisions.branch_and_bound import starting_offers
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.exact_offers import best_mixture_offer
from pcmcnet.decisions.offer_value import Logits, expected_revenue


def tastes(n: int, rng: np.random.Generator, draws: int) -> Logits:
    """Draw tastes for two features of n alternatives and an outside option without features."""
    features = np.vstack([np.zeros(2), rng.standard_normal((n, 2))])
    attraction = np.exp(rng.normal([1.0, -1.0], 1.5, (1, draws, 2)) @ features.T)
    return Logits(np.full((1, draws), 1 / draws), attraction, np.append(0.0, rng.random(n)))


def test_two_kinds_of_people_match_values_by_hand() -> None:
    """The outside option has attraction 1; alternatives earn 4 and 2. Half of the people have attractions 1 and 0+,
    the others 0+ and 1.

    {1} earns 4/2 from the first half and nothing from the other: 1. {2} earns 2/2 from the other: 0.5. Both earn 1.5.
    """
    attraction = np.array([[[1, 1, 1e-300], [1, 1e-300, 1]]])
    value = Logits(np.full((1, 2), 0.5), attraction, np.array([0.0, 4.0, 2.0]))
    best = best_mixture_offer(
        value, ConstraintRows.unconstrained(np.array([True, False, False])), np.array([True, True, False])
    )
    assert best.offer.tolist() == [True, True, True]
    assert (best.value, best.bound) == (pytest.approx(1.5, abs=1e-12), pytest.approx(1.5, abs=1e-8))


@pytest.mark.parametrize("seed", range(30))
def test_no_offer_earns_more(seed: int, rows_maker: Any, enumerate_offers: Any) -> None:
    _compare(seed, rows_maker, enumerate_offers, most=7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_200))
def test_no_offer_of_a_larger_catalogue_earns_more(seed: int, rows_maker: Any, enumerate_offers: Any) -> None:
    _compare(seed, rows_maker, enumerate_offers, most=12)


def _compare(seed: int, rows_maker: Any, enumerate_offers: Any, most: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, most + 1))
    value, rows = tastes(n, rng, draws=25), rows_maker(n, rng)
    best = best_mixture_offer(value, rows, starting_offers(rows, value.revenue, 1, rng)[0])
    assert rows.allow(best.offer[None])[0]
    assert best.value == pytest.approx(expected_revenue(value, enumerate_offers(rows)).max(), rel=1e-9)
    assert best.gap <= 1e-9


def test_the_bound_of_an_interrupted_search_holds() -> None:
    rng = np.random.default_rng(3)
    value, rows = tastes(15, rng, draws=10), ConstraintRows.unconstrained(np.arange(16) == 0)
    best = best_mixture_offer(value, rows, rows.always)
    for patience in (0, 1):
        left = iter(range(patience))
        stopped = best_mixture_offer(value, rows, rows.always, stop=lambda left=left: next(left, None) is None)
        assert stopped.value <= best.value * (1 + 1e-12)
        assert best.value * (1 - 1e-9) <= stopped.bound
        assert stopped.nodes < best.nodes
