"""Linear rates: values by hand, recovery of known weights, and invalid input."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save

import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models import MNL, LinearPCMC
from pcmcnet.models.linear_pcmc import PaddedChoices, column_names, linear_log_p

ROLES: dict[str, Any] = {"choice_set": "set", "chosen": "chosen", "alternative": "item", "features": ["x", "colour"]}


def simulate(sets: int, weights: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return sets of two or three of three items with a number and a colour. Rates are exp(w_i . [1, x_j])."""
    rng, rows = np.random.default_rng(seed), []
    for s in range(sets):
        items = rng.permutation(3)[: rng.integers(2, 4)]
        x, red = rng.normal(size=len(items)), rng.integers(2, size=len(items))
        rates = np.exp(weights[items] @ np.stack([np.ones(len(items)), x, red]))
        probabilities = pn.stationary_distribution(torch.from_numpy(rates)).numpy()
        chosen = rng.choice(len(items), p=probabilities)
        rows += [
            (s, "abc"[i], int(k == chosen), x[k], ("blue", "red")[red[k]], probabilities[k])
            for k, i in enumerate(items)
        ]
    names = ("set", "item", "chosen", "x", "colour", "p")
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


WEIGHTS = np.array([[0.0, 1.0, 0.5], [0.5, -0.5, 0.0], [-0.5, 0.3, -1.0]])


def test_two_items_have_detailed_balance() -> None:
    """Leaving a for b: exp(w_a . [1, 2]) = e; b for a: exp(w_b . [1, 1]) = 1; so p = (1, e) / (1 + e)."""
    weights = torch.tensor([[-1.0, 1.0], [2.0, -2.0]], dtype=torch.float64)
    x = torch.tensor([[[1.0, 1.0], [1.0, 2.0]]], dtype=torch.float64)
    result = linear_log_p(weights, torch.tensor([[0, 1]]), x, torch.ones(1, 2, dtype=torch.bool))
    expected = torch.tensor([[1.0, np.e]], dtype=torch.float64).log() - np.log(1 + np.e)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-14)


def test_a_known_chain_is_recovered() -> None:
    """1,500 choices for 9 weights that matter: the mean divergence of a fit is about 9 / 3,000 = .003."""
    table = simulate(1500, WEIGHTS, seed=0)
    data = ChoiceData.from_long(table, **ROLES)
    model = LinearPCMC(ridge=0).fit(data, progress=False)
    fresh = simulate(1000, WEIGHTS, seed=1)
    p, truth = model.predict_proba(ChoiceData.from_long(fresh, **ROLES)), fresh["p"]
    assert np.sum(truth * np.log(truth / p)) / 1000 < 0.006
    assert model.record_.converged
    assert model.record_.nll == pytest.approx(-model.score(data), rel=1e-9)


def test_a_strong_ridge_gives_a_logit_with_item_constants() -> None:
    """The likelihood is that of a multinomial logit up to the small l2 penalty, and detailed balance holds."""
    data = ChoiceData.from_long(simulate(300, WEIGHTS, seed=0), **ROLES)
    strong, limit = LinearPCMC(l2=1e-6, ridge=1e6).fit(data), MNL().fit(data)
    assert strong.score(data) == pytest.approx(limit.score(data), abs=1e-4)
    assert np.ptp(strong.weights_[:, 1:], axis=0).max() < 1e-3
    sample = PaddedChoices.of(data, strong.universe_, strong.encoder_)
    plain, _ = sample.fit(np.zeros(sample.shape), np.inf, LinearPCMC(l2=1e-6).config, 1e-12)
    assert (np.ptp(plain[:, 1:], axis=0) == 0).all()
    assert -sample.losses(plain).mean() == pytest.approx(limit.score(data), abs=1e-5)


def test_the_ridge_is_learnt_and_reported() -> None:
    table = simulate(300, WEIGHTS, seed=0)
    model = LinearPCMC().fit(ChoiceData.from_long(table, **ROLES))
    assert model.record_.penalty.penalty <= 10  # the items differ in their weights
    assert "held-out sets (NLL inf:" in str(model.summary())
    alike = simulate(300, np.tile([0.0, 1.0, 0.5], (3, 1)), seed=0)
    assert LinearPCMC().fit(ChoiceData.from_long(alike, **ROLES)).record_.penalty.penalty == math.inf


def test_columns_are_the_bias_numbers_and_categories() -> None:
    data = ChoiceData.from_long(simulate(20, WEIGHTS, seed=0), **ROLES)
    model = LinearPCMC().fit(data)
    assert column_names(model.encoder_.features) == ["bias", "x", "colour [blue]", "colour [red]"]
    assert model.num_parameters == 3 * 4
    assert "item left" in str(model.summary())


def test_a_strong_penalty_gives_uniform_probabilities() -> None:
    data = ChoiceData.from_long(simulate(50, WEIGHTS, seed=0), **ROLES)
    p = np.exp(LinearPCMC(l2=1e9, ridge=0).fit(data)._log_proba(data))
    np.testing.assert_allclose(p, 1 / data.sizes[data.set_of_alternative], rtol=1e-5)  # differences of about 50 / 1e9


def test_weights_count_as_repetitions_of_a_set() -> None:
    table = simulate(30, WEIGHTS, seed=0)
    twice = {k: np.concatenate([v, v + 30 if k == "set" else v]) for k, v in table.items()}
    weighted = {**table, "weight": np.full(len(table["set"]), 2.0)}
    one = LinearPCMC().fit(ChoiceData.from_long(weighted, **ROLES, weight="weight"))
    two = LinearPCMC().fit(ChoiceData.from_long(twice, **ROLES))
    # Sums are in another order, and the search ends within its tolerance.
    np.testing.assert_allclose(one.weights_, two.weights_, rtol=0, atol=1e-5)


def test_extreme_features_and_unseen_categories_have_probabilities() -> None:
    data = ChoiceData.from_long(simulate(50, WEIGHTS, seed=0), **ROLES)
    model = LinearPCMC().fit(data)
    far = {"set": [0, 0], "item": ["a", "b"], "chosen": [1, 0], "x": [1e6, -1e6], "colour": ["green", "red"]}
    p = model.predict_proba(ChoiceData.from_long(far, **ROLES))
    assert p.sum() == pytest.approx(1, rel=1e-12)
    assert (p > 0).all()


def test_features_and_labels_are_required() -> None:
    table = simulate(5, WEIGHTS, seed=0)
    with pytest.raises(InputError, match=r"needs features.*PCMC \(pcmc\)"):
        LinearPCMC().fit(ChoiceData.from_long(table, **{**ROLES, "features": []}))
    with pytest.raises(InputError, match="alternative=<column>"):
        LinearPCMC().fit(ChoiceData.from_long(table, **{**ROLES, "alternative": None}))
    with pytest.raises(ConfigError, match="l2 must be"):
        LinearPCMC(l2=-1)


def test_an_unseen_item_is_refused_with_a_remedy() -> None:
    data = ChoiceData.from_long(simulate(20, WEIGHTS, seed=0), **ROLES)
    model = LinearPCMC().fit(data)
    other = {"set": [7, 7], "item": ["a", "z"], "chosen": [1, 0], "x": [0.0, 0.0], "colour": ["red", "red"]}
    with pytest.raises(InputError, match=r"item 'z' \(choice set 7\).*PCMC-Net \(pcmcnet\)"):
        model.predict_proba(ChoiceData.from_long(other, **ROLES))


def test_a_long_summary_is_truncated() -> None:
    rows = [(s, f"item {i}", int(i == s), float(i)) for s in range(120) for i in (s, (s + 1) % 120)]
    table = dict(zip(("set", "item", "chosen", "x"), zip(*rows, strict=True), strict=True))
    text = str(LinearPCMC(max_iter=2).fit(ChoiceData.from_long(table, **{**ROLES, "features": ["x"]})).summary())
    assert "the first 200 weights" in text
    assert len(text.splitlines()) < 220


def test_damaged_weights_are_refused() -> None:
    data = ChoiceData.from_long(simulate(20, WEIGHTS, seed=0), **ROLES)
    model = LinearPCMC().fit(data)
    files, about = model._files(), (model.record_, model.table_)
    with pytest.raises(ArtifactError, match="cannot be read"):
        LinearPCMC()._restore({**files, "weights.safetensors": b"broken"}, *about)
    for wrong in (np.zeros((2, 2)), np.full((3, 4), np.nan)):
        with pytest.raises(ArtifactError, match="match the saved items"):
            LinearPCMC()._restore({**files, "weights.safetensors": save({"weights": wrong})}, *about)
