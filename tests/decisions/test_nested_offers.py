"""The best offers of nested logits, compared with all offers."""

from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import logit_choices, read
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.exact_offers import NestedLogits, best_nested_offer
from pcmcnet.decisions.offer_value import BlackBoxModel, expected_revenue
from pcmcnet.decisions.optimise_offer import structure_of


def nested(n: int, rng: np.random.Generator) -> NestedLogits:
    """Draw n alternatives in up to three nests, and an outside option in its own nest."""
    nests = np.append(0, rng.integers(1, 4, n))
    logsums = np.append(1.0, rng.uniform(0.2, 1.0, 3))
    return NestedLogits(rng.normal(size=(1, n + 1)), nests, logsums, np.append(0.0, rng.random(n)))


@pytest.mark.parametrize("seed", range(30))
def test_no_offer_earns_more(seed: int, enumerate_offers: Any) -> None:
    _compare(seed, enumerate_offers, most=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_200))
def test_no_offer_of_a_larger_catalogue_earns_more(seed: int, enumerate_offers: Any) -> None:
    _compare(seed, enumerate_offers, most=12)


def _compare(seed: int, enumerate_offers: Any, most: int) -> None:
    rng = np.random.default_rng(seed)
    value = nested(int(rng.integers(2, most + 1)), rng)
    rows = ConstraintRows.unconstrained(np.arange(len(value.revenue)) == 0)
    best = best_nested_offer(value, rows, rows.always)
    assert best.value == pytest.approx(expected_revenue(value, enumerate_offers(rows)).max(), rel=1e-9)
    assert best.gap <= 1e-9


def test_with_constraints_the_unconstrained_offer_is_a_bound(rows_maker: Any, enumerate_offers: Any) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        value, rows = nested(6, rng), rows_maker(6, rng)
        offers = enumerate_offers(rows)
        best = best_nested_offer(value, rows, offers[0])
        assert rows.allow(best.offer[None])[0]
        assert best.bound >= expected_revenue(value, offers).max() * (1 - 1e-9)


def test_the_structure_of_a_fitted_nested_logit_is_used() -> None:
    data = read(logit_choices(300, {"x": 1.0}, sizes=(3, 4)), alternative="mode", features=["x"])
    model = pn.NestedMNL(nests={"A": "own", "B": "pair", "C": "pair", "D": "pair"}).fit(data)
    sets = data.subset(np.flatnonzero(data.sizes == 4)[:1])
    value = structure_of(model, sets, np.arange(4.0))
    assert isinstance(value, NestedLogits)
    offers, who = np.array([[True, True, False, True], [True, True, True, True]]), np.array([0, 0])
    expected = BlackBoxModel(model, sets, np.arange(4.0)).probabilities(offers, who)
    np.testing.assert_allclose(value.probabilities(offers, who), expected, atol=1e-12)
