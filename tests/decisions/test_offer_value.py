"""The revenue of offers, compared with values by hand and with predictions of the model."""

import numpy as np
import pytest
import torch

import pcmcnet as pn
from choice_tables import read, trips
from pcmcnet.decisions.offer_value import BlackBoxModel, Chains, Logits, expected_revenue
from pcmcnet.decisions.optimise_offer import structure_of

OFFERS = np.array([[True, True, False], [True, True, True], [False, True, False]])


def test_chains_of_two_and_three_match_values_by_hand() -> None:
    """Rates 1 and 3 between 0 and 1: p = (3, 1) / 4. With 2, rates 1 (1 to 2) and 2 (2 to 1): p = (6, 2, 1) / 9."""
    rates = np.array([[0, 1, 0], [3, 0, 1], [0, 2, 0]], float)[None, None]
    value = Chains(np.ones((1, 1)), rates, np.array([4.0, 8.0, 9.0]))
    np.testing.assert_allclose(expected_revenue(value, OFFERS), [5.0, (24 + 16 + 9) / 9, 8.0], rtol=1e-14)


def test_a_mixture_of_logits_matches_values_by_hand() -> None:
    """Half of the people have attractions 1, 1, 2, the others 3, 1, 4."""
    value = Logits(np.full((1, 2), 0.5), np.array([[[1, 1, 2], [3, 1, 4]]], float), np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(
        expected_revenue(value, OFFERS), [(1 / 2 + 3 / 4) / 2, (1 / 4 + 3 / 8) / 2, 0.0], rtol=1e-14
    )


@pytest.mark.parametrize(
    ("model", "structure"),
    [
        (pn.MNL(), Logits),
        (pn.MNL(formula="price:comfort | 0"), Logits),
        (pn.LatentClassMNL(classes=2, starts=1, prior=1.0), Logits),
        (pn.MixedMNL(random={"price": "normal"}, draws=20), Logits),
        (pn.PCMCNet(hidden=(4,), epochs=1, weight_decay=0.1), Chains),
        (pn.Ensemble(pn.PCMCNet(hidden=(4,), epochs=1, weight_decay=0.1), n=2), Chains),
        (pn.RandomForest(trees=3), BlackBoxModel),
    ],
)
def test_every_structure_agrees_with_its_model(model: pn.models.ChoiceModel, structure: type) -> None:
    data = read(trips(60, sizes=(3, 3), slope=-1.0), alternative="mode", features=["price", "comfort"])
    model.fit(data, progress=False)
    sets = data.subset([0, 1])
    value = structure_of(model, sets, np.arange(3.0))
    assert isinstance(value, structure)
    black_box = BlackBoxModel(model, sets, np.arange(3.0))
    who = np.array([0, 1, 1])
    np.testing.assert_allclose(value.probabilities(OFFERS, who), black_box.probabilities(OFFERS, who), atol=2e-6)
    np.testing.assert_allclose(
        value.for_individual(1).probabilities(OFFERS, 0 * who), value.probabilities(OFFERS, 0 * who + 1), atol=1e-12
    )


@pytest.mark.gpu
def test_chains_on_a_gpu_give_the_same_probabilities() -> None:
    rng = np.random.default_rng(0)
    weights, rates, revenue = rng.dirichlet(np.ones(3), 4), np.exp(rng.standard_normal((4, 3, 9, 9))), rng.random(9)
    offers, who = rng.random((200, 9)) < 0.5, rng.integers(0, 4, 200)
    offers[:, 0] = True
    here, there = (Chains(weights, rates, revenue, torch.device(name)) for name in ("cpu", "cuda"))
    np.testing.assert_allclose(there.probabilities(offers, who), here.probabilities(offers, who), rtol=1e-12)
