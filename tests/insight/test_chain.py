import json

import numpy as np
import pytest
import torch

from pcmcnet import MNL, PCMC, Ensemble, PCMCNet
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.chain import Chain, chain
from pcmcnet.layers import stationary_distribution


def make_chain(rates: list[list[float]]) -> Chain:
    q = np.array(rates, dtype=np.float64)
    p = stationary_distribution(torch.from_numpy(q)).numpy()
    return Chain(labels=tuple("abcdefgh"[: len(q)]), rates=q, probabilities=p, choice_set=1)


@pytest.fixture(scope="module")
def games() -> ChoiceData:
    """Return rock, paper and scissors in all pairs and together; the better hand is chosen nine times in ten."""
    pairs = [("rock", "paper", 1), ("paper", "scissors", 1), ("scissors", "rock", 1)]
    rows = [
        {"game": 10 * k + t, "hand": hand, "took": int((place == better) == (t != 9)), "size": float(len(hand))}
        for k, (one, other, better) in enumerate(pairs)
        for t in range(10)
        for place, hand in enumerate((one, other))
    ]
    rows += [
        {"game": 30 + t, "hand": hand, "took": int(place == t), "size": float(len(hand))}
        for t in range(3)
        for place, hand in enumerate(("rock", "paper", "scissors"))
    ]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    return ChoiceData.from_long(table, choice_set="game", chosen="took", alternative="hand", features=["size"])


def test_a_chain_of_three_matches_values_by_hand() -> None:
    """All rates go one way round: p = 1/3 each, three flows of 1/3; eigenvalues -3/2 -+ i sqrt(3)/2."""
    result = make_chain([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    np.testing.assert_allclose(result.flows, result.rates / 3, rtol=1e-12)
    np.testing.assert_allclose(result.net_flows, (result.rates - result.rates.T) / 3, rtol=1e-12)
    assert result.circulation == pytest.approx(1, rel=1e-12)
    assert result.moves_to_settle == pytest.approx(1 / 1.5, rel=1e-12)


def test_a_pair_has_no_circulation() -> None:
    """Rates 1 and 1/4: p = (1/5, 4/5), flows of 1/5 each way, relaxation time 1/(1 + 1/4), so 2/5 / (5/4) moves."""
    result = make_chain([[0, 1], [0.25, 0]])
    np.testing.assert_allclose(result.probabilities, [0.2, 0.8], rtol=1e-12)
    assert result.circulation < 1e-15
    assert result.moves_to_settle == pytest.approx(0.32, rel=1e-12)


@pytest.mark.parametrize("n", [3, 6, 8])
def test_net_flows_of_a_reversible_chain_vanish(n: int) -> None:
    """q_ij = u_j s_ij with symmetric s has the stationary distribution u / sum(u)."""
    rng = np.random.default_rng(n)
    u, s = rng.exponential(size=n), rng.exponential(size=(n, n))
    q = u * (s + s.T) * (1 - np.eye(n))
    result = make_chain((q / q.max()).tolist())
    np.testing.assert_allclose(result.probabilities, u / u.sum(), rtol=1e-12)
    assert np.abs(result.net_flows).max() < 1e-14
    assert result.circulation < 1e-13


def test_inflow_equals_outflow() -> None:
    q = np.exp(np.random.default_rng(0).normal(0, 3, (6, 6))) * (1 - np.eye(6))
    result = make_chain((q / q.max()).tolist())
    np.testing.assert_allclose(result.flows.sum(axis=0), result.flows.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(result.net_flows.sum(axis=1), 0, atol=1e-14)
    assert 0 < result.circulation < 1


def test_a_nearly_disconnected_chain_settles_very_slowly() -> None:
    far = [[0, 1, 1e-9, 0], [1, 0, 0, 0], [0, 0, 0, 1], [1e-9, 0, 1, 0]]
    slow = make_chain(far).moves_to_settle
    assert 1e8 < slow < 1e10
    further = [[1e-8 * rate if rate < 1e-3 else rate for rate in row] for row in far]
    assert make_chain(further).moves_to_settle == np.inf
    assert make_chain(further).to_dict()["moves_to_settle"] is None


def test_the_stationary_distribution_equals_the_prediction(games: ChoiceData) -> None:
    model = PCMCNet(hidden=(8,), epochs=5, weight_decay=0.0, batch_size=8).fit(games, progress=False)
    for game in (0, 17, 32):
        result = chain(model, games, game)
        rows = games.rows[games.set_of_alternative == np.flatnonzero(games.set_ids == game)[0]]
        np.testing.assert_allclose(result.probabilities, model.predict_proba(games)[rows], rtol=0, atol=1e-6)
        expected = model.rates(games)[np.flatnonzero(games.set_ids == game)[0]]
        np.testing.assert_allclose(result.rates, expected, rtol=1e-6)


def test_cyclic_preferences_circulate(games: ChoiceData) -> None:
    result = chain(PCMC(restarts=1, ridge=0.01).fit(games), games, "31")
    assert result.labels == ("rock", "paper", "scissors")
    assert result.choice_set == 31
    assert result.circulation > 0.5
    assert (result.net_flows[[0, 1, 2], [1, 2, 0]] > 0).all()
    content = result.to_dict()
    assert json.loads(json.dumps(content)) == content
    assert content["labels"] == ["rock", "paper", "scissors"]


def test_alternatives_without_labels_are_named_by_number_and_feature() -> None:
    table = {"trip": [5, 7, 5, 7, 7], "took": [1, 1, 0, 0, 0], "cost": [1.0, 2.0, 3.0, 4.0, 5.0]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    assert chain(model, data, 7).labels == ("#1 (cost 2)", "#2 (cost 4)", "#3 (cost 5)")
    without_choices = {name: values for name, values in table.items() if name != "took"}
    np.testing.assert_array_equal(chain(model, without_choices, 7).rates, chain(model, data, 7).rates)


def test_a_set_of_one_alternative_has_a_trivial_chain() -> None:
    table = {"trip": [1, 1, 2], "took": [1, 0, 1], "cost": [1.0, 2.0, 3.0]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    result = chain(PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False), data, 2)
    assert (result.probabilities.tolist(), result.circulation, result.moves_to_settle) == ([1.0], 0.0, 0.0)


def test_models_without_a_chain_are_rejected(games: ChoiceData) -> None:
    with pytest.raises(InputError, match="MNL has no rates"):
        chain(MNL(), games, 0)
    with pytest.raises(InputError, match="to its members"):
        chain(Ensemble("pcmcnet"), games, 0)
    model = PCMC(restarts=1, ridge=1.0).fit(games)
    with pytest.raises(InputError, match=r"choice set 99 is not in the table, .* such as 0, 1, 2"):
        chain(model, games, 99)
