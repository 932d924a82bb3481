from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian
from torch.func import functional_call

from choice_tables import ROLES, trips
from network_batches import chosen_places, largest_set, log_odds_terms, scrambled
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.models import LCL
from pcmcnet.models.lcl import Indicators, entry_names, plain_columns

A = np.array([[0.5, -1.0, 0.0], [0.8, 0.0, 0.3], [0.0, 0.4, -0.6]])
C = np.array([1.0, -0.5, 0.3])


def context_choices(sets: int, seed: int) -> tuple[ChoiceData, Any]:
    """Simulate a linear context logit with four alternatives of three features; also return the true probabilities."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sets, 4, 3)) + rng.normal(size=(sets, 1, 3))
    u = np.einsum("sjp,sp->sj", x, C + x.mean(1) @ A.T)
    p = np.exp(u - u.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    chosen = (rng.random((sets, 1)) > p.cumsum(1)).sum(1)
    table = {
        "set": np.repeat(np.arange(sets), 4),
        "took": (np.arange(4) == chosen[:, None]).ravel(),
        **{name: x[:, :, k].ravel() for k, name in enumerate("abc")},
    }
    return ChoiceData.from_long(table, choice_set="set", chosen="took", features=["a", "b", "c"]), p.ravel()


def divergence(model: Any, data: ChoiceData, p: Any) -> float:
    """Return the mean Kullback-Leibler divergence from the true probabilities."""
    return float((p * (np.log(p) - model.predict_log_proba(data))).sum() / len(data))


@torch.no_grad()
def test_probabilities_follow_the_formulas(trips: ChoiceData) -> None:
    network, batch = scrambled(LCL(), trips)
    s, n = largest_set(batch)
    alone = chosen_places(batch, s, range(n))
    individual, alternatives = network.represent(alone)
    mean = sum(alternatives[0]) / n
    u = (
        torch.stack([(network.context @ mean) @ x for x in alternatives[0]])
        + network.utility(alone, individual, alternatives)[0]
    )
    torch.testing.assert_close(network(batch)[s, :n], u.log_softmax(0), rtol=1e-12, atol=1e-12)


def test_without_context_it_is_a_multinomial_logit(trips: ChoiceData) -> None:
    """Without context, the odds of two alternatives do not depend on the other alternatives."""
    network, batch = scrambled(LCL(), trips)
    s, n = largest_set(batch)
    assert max(abs(term) for group, term in log_odds_terms(network, batch, s, n).items() if group) > 0.01
    network.context.data.zero_()
    assert max(abs(term) for group, term in log_odds_terms(network, batch, s, n).items() if group) < 1e-12


@pytest.mark.parametrize("seed", [0, 1])
def test_the_likelihood_is_concave(seed: int, trips: ChoiceData) -> None:
    """The Hessian of the negative log-likelihood has no negative eigenvalue at any point."""
    network, batch = scrambled(LCL(), trips.subset(np.arange(12)), seed=seed, scale=1.0)
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    flat = torch.cat([weight.ravel() for weight in weights.values()])

    def loss(at: torch.Tensor) -> torch.Tensor:
        parts = at.split([weight.numel() for weight in weights.values()])
        values = {name: part.view_as(weights[name]) for name, part in zip(weights, parts, strict=True)}
        log_p = functional_call(network, values, (batch,))
        return -log_p.gather(1, batch.chosen.unsqueeze(1)).sum()

    curvature = torch.linalg.eigvalsh(hessian(loss, flat))
    assert curvature.min() > -1e-9 * curvature.max()
    assert curvature.max() > 0.1


@pytest.fixture(scope="module")
def recovered() -> tuple[LCL, ChoiceData, Any]:
    model = LCL(weight_decay=0.0, epochs=8, lr=0.02, batch_size=32).fit(context_choices(1_500, 0)[0], progress=False)
    return model, *context_choices(500, 1)


def test_a_simulated_context_logit_is_recovered(recovered: tuple[LCL, ChoiceData, Any]) -> None:
    """With 15 weights and 1,500 sets, the mean divergence of the best estimate is about 15 / 3,000."""
    assert divergence(*recovered) < 0.02
    uniform = (recovered[2] * np.log(4 * recovered[2])).sum() / len(recovered[1])
    assert uniform > 0.5


def test_the_summary_lists_effects_by_size(recovered: tuple[LCL, ChoiceData, Any]) -> None:
    model = recovered[0]
    effects = model.context_effects()
    assert [abs(e.effect) for e in effects] == sorted((abs(e.effect) for e in effects), reverse=True)
    assert len(effects) == 9
    assert (effects[0].coefficient, effects[0].mean_of) == ("a", "b")
    assert effects[0].effect < 0
    summary = model.summary()
    assert summary.rows[0] == ("a", "b", f"{effects[0].effect:+.4f}")
    assert "all 9" in summary.facts["effects"]


def test_effects_of_categories_have_their_names(trips: ChoiceData) -> None:
    model = LCL(epochs=1, weight_decay=1.0).fit(trips, progress=False)
    names = {effect.coefficient for effect in model.context_effects()}
    assert {"price", "minutes", "mode=car", "comfort=low"} <= names
    assert len(model.summary().rows) == 20
    assert f"the 20 largest of {len(names) ** 2:,}" in model.summary().facts["effects"]


@pytest.mark.slow
def test_a_simulated_context_logit_is_recovered_from_many_sets() -> None:
    model = LCL().fit(context_choices(20_000, 2)[0], progress=False)
    assert divergence(model, *context_choices(5_000, 3)) < 0.003


# -- Plain columns -----------------------------------------------------------------------------------------------------


def test_indicators_are_one_hot_and_unseen_categories_are_zero() -> None:
    assert Indicators(3)(torch.tensor([0, 2, 3])).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_plain_columns_have_named_entries_and_no_weights() -> None:
    side = Encoder.learn(ChoiceData.from_long(trips(), **ROLES), labels=True).features
    columns = plain_columns(side)
    assert not list(columns.parameters())
    names = entry_names(side, columns)
    assert len(names) == columns.width == columns(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.int64)).shape[-1]
    assert names[-2:] == ["price", "minutes"]
    assert names[0] == f"{side.categorical[0].name}={side.categorical[0].categories[0]}"


def test_contents_bins_and_large_categories_have_numbered_entries() -> None:
    table: dict[str, Any] = trips(200)
    rows = len(table["trip"])
    table["seat"] = [f"seat {k % 60}" for k in range(rows)]
    table["spot"] = [[float(k % 7), float(k % 5)] for k in range(rows)]
    kinds = {"spot": "vector", "price": "spline"}
    roles = ROLES | {"features": ["price", "seat", "spot"], "kinds": kinds}
    side = Encoder.learn(ChoiceData.from_long(table, **roles)).features
    columns = plain_columns(side)
    names = entry_names(side, columns)
    assert len(names) == columns.width
    assert {"seat[1]", "seat[30]", "spot[1]", "price[1]", "price"} <= set(names)
    assert any(parameter.requires_grad for parameter in columns.parameters())
