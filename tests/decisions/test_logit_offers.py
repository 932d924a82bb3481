"""The best offers of logits and their mixtures, compared with all offers."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.decisions.branch_and_bound import starting_offers
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.exact_offers import best_logit_mixture_offer, best_logit_offer
from pcmcnet.decisions.offer_value import Logits, expected_revenue


def logits(n: int, rng: np.random.Generator, members: int) -> Logits:
    attraction = np.exp(2 * rng.standard_normal((1, members, n + 1)))
    return Logits(rng.dirichlet(np.ones(members))[None], attraction, np.append(0.0, rng.random(n)))


def test_the_best_offer_of_a_logit_is_ordered_by_revenue() -> None:
    """Attraction 1 each, revenue 0 (outside), 4, 3, 1: {4} earns 2, {4, 3} earns 7/3, {4, 3, 1} earns 2."""
    value = Logits(np.ones((1, 1)), np.ones((1, 1, 4)), np.array([0.0, 4.0, 3.0, 1.0]))
    rows = ConstraintRows.unconstrained(np.array([True, False, False, False]))
    best = best_logit_offer(value, rows, np.array([True, True, True, True]))
    assert best.offer.tolist() == [True, True, True, False]
    assert (best.value, best.gap) == (pytest.approx(7 / 3, abs=1e-12), pytest.approx(0.0, abs=1e-9))


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_no_offer_earns_more(seed: int, members: int, rows_maker: Any, enumerate_offers: Any) -> None:
    _compare(seed, members, rows_maker, enumerate_offers, most=7)


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("seed", range(1_000, 1_200))
def test_no_offer_of_a_larger_catalogue_earns_more(
    seed: int, members: int, rows_maker: Any, enumerate_offers: Any
) -> None:
    _compare(seed, members, rows_maker, enumerate_offers, most=12)


def _compare(seed: int, members: int, rows_maker: Any, enumerate_offers: Any, most: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, most + 1))
    value, rows = logits(n, rng, members), rows_maker(n, rng)
    start = starting_offers(rows, value.revenue, 1, rng)[0]
    if members == 1:
        best = best_logit_offer(value, rows, start)
    else:
        best = best_logit_mixture_offer(value, rows, start, seconds=60.0)
    assert rows.allow(best.offer[None])[0]
    assert best.value == pytest.approx(expected_revenue(value, enumerate_offers(rows)).max(), rel=1e-9)
    assert best.gap <= 1e-6
