import json

import numpy as np
import pytest
import torch

from pcmcnet import MNL, PCMC, Ensemble, PCMCNet
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.chain import Chain, chain
from pcmcnet.layers import stationary_distribution


def made(rates: list[list[float]]) -> Chain:
    q = np.array(rates, dtype=np.float64)
    law = stationary_distribution(torch.from_numpy(q)).numpy()
    return Chain(labels=tuple("abcdefgh"[: len(q)]), rates=q, probabilities=law, choice_set=1)


@pytest.fixture(scope="module")
def games() -> ChoiceData:
    """Rock, paper and scissors in all pairs and together; the better hand is taken nine times in ten."""
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


def test_a_chain_of_three_is_worked_out_by_hand() -> None:
    """All one way round: p = 1/3 each, three flows of 1/3, nothing back; eigenvalues -3/2 -+ i sqrt(3)/2."""
    found = made([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    np.testing.assert_allclose(found.flows, found.rates / 3, rtol=1e-12)
    np.testing.assert_allclose(found.net_flows, (found.rates - found.rates.T) / 3, rtol=1e-12)
    assert found.circulation == pytest.approx(1, rel=1e-12)
    assert found.moves_to_settle == pytest.approx(1 / 1.5, rel=1e-12)


def test_a_pair_never_circulates_and_settles_at_the_sum_of_its_rates() -> None:
    """Rates 1 and 1/4: p = (1/5, 4/5), flows of 1/5 either way, relaxation 1/(1 + 1/4), so 2/5 / (5/4) moves."""
    found = made([[0, 1], [0.25, 0]])
    np.testing.assert_allclose(found.probabilities, [0.2, 0.8], rtol=1e-12)
    assert found.circulation < 1e-15
    assert found.moves_to_settle == pytest.approx(0.32, rel=1e-12)


@pytest.mark.parametrize("n", [3, 6, 8])
def test_net_flows_of_a_reversible_chain_vanish(n: int) -> None:
    """q_ij = u_j s_ij with a symmetric s has the law u / sum(u)."""
    rng = np.random.default_rng(n)
    u, s = rng.exponential(size=n), rng.exponential(size=(n, n))
    q = u * (s + s.T) * (1 - np.eye(n))
    found = made((q / q.max()).tolist())
    np.testing.assert_allclose(found.probabilities, u / u.sum(), rtol=1e-12)
    assert np.abs(found.net_flows).max() < 1e-14
    assert found.circulation < 1e-13


def test_every_alternative_is_left_as_often_as_it_is_entered() -> None:
    q = np.exp(np.random.default_rng(0).normal(0, 3, (6, 6))) * (1 - np.eye(6))
    found = made((q / q.max()).tolist())
    np.testing.assert_allclose(found.flows.sum(axis=0), found.flows.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.net_flows.sum(axis=1), 0, atol=1e-14)
    assert 0 < found.circulation < 1


def test_a_chain_that_all_but_falls_apart_takes_for_ever_to_settle() -> None:
    far = [[0, 1, 1e-9, 0], [1, 0, 0, 0], [0, 0, 0, 1], [1e-9, 0, 1, 0]]
    slow = made(far).moves_to_settle
    assert 1e8 < slow < 1e10
    further = [[1e-8 * rate if rate < 1e-3 else rate for rate in row] for row in far]
    assert made(further).moves_to_settle == np.inf
    assert made(further).to_dict()["moves_to_settle"] is None


def test_the_law_of_the_chain_is_what_the_model_predicts(games: ChoiceData) -> None:
    model = PCMCNet(hidden=(8,), epochs=5, weight_decay=0.0, batch_size=8).fit(games, progress=False)
    for game in (0, 17, 32):
        found = chain(model, games, game)
        rows = games.rows[games.set_of_alternative == np.flatnonzero(games.set_ids == game)[0]]
        np.testing.assert_allclose(found.probabilities, model.predict_proba(games)[rows], rtol=0, atol=1e-6)
        expected = model.rates(games)[np.flatnonzero(games.set_ids == game)[0]]
        np.testing.assert_allclose(found.rates, expected, rtol=1e-6)


def test_a_circle_of_preferences_circulates(games: ChoiceData) -> None:
    found = chain(PCMC(restarts=1, ridge=0.01).fit(games), games, "31")
    assert found.labels == ("rock", "paper", "scissors")
    assert found.choice_set == 31
    assert found.circulation > 0.5
    assert (found.net_flows[[0, 1, 2], [1, 2, 0]] > 0).all()
    content = found.to_dict()
    assert json.loads(json.dumps(content)) == content
    assert content["labels"] == ["rock", "paper", "scissors"]


def test_alternatives_without_labels_are_named_by_number_and_feature() -> None:
    table = {"trip": [5, 7, 5, 7, 7], "took": [1, 1, 0, 0, 0], "cost": [1.0, 2.0, 3.0, 4.0, 5.0]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    assert chain(model, data, 7).labels == ("#1 (cost 2)", "#2 (cost 4)", "#3 (cost 5)")
    without_choices = {name: values for name, values in table.items() if name != "took"}
    np.testing.assert_array_equal(chain(model, without_choices, 7).rates, chain(model, data, 7).rates)


def test_a_set_of_one_is_a_chain_that_stays() -> None:
    table = {"trip": [1, 1, 2], "took": [1, 0, 1], "cost": [1.0, 2.0, 3.0]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    found = chain(PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False), data, 2)
    assert (found.probabilities.tolist(), found.circulation, found.moves_to_settle) == ([1.0], 0.0, 0.0)


def test_what_has_no_chain_is_refused(games: ChoiceData) -> None:
    with pytest.raises(InputError, match="MNL has no rates"):
        chain(MNL(), games, 0)
    with pytest.raises(InputError, match="Use its members"):
        chain(Ensemble("pcmcnet"), games, 0)
    model = PCMC(restarts=1, ridge=1.0).fit(games)
    with pytest.raises(InputError, match="choice set 99: not among the 33 of the table, such as 0, 1, 2"):
        chain(model, games, 99)
