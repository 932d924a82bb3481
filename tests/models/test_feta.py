import pytest
import torch

from network_batches import chosen_places, largest_set, scrambled
from pcmcnet.data import ChoiceData
from pcmcnet.models import FETA


@torch.no_grad()
def test_probabilities_follow_the_formulas(trips: ChoiceData) -> None:
    network, batch = scrambled(FETA(hidden=(5, 4)), trips)
    s, n = largest_set(batch)
    alone = chosen_places(batch, s, range(n))
    individual, alternatives = network.represent(alone)
    u = network.utility(alone, individual, alternatives)[0]
    for i in range(n):
        u[i] += network.own(torch.cat([alternatives[0, i], individual[0]]))[0]
        for j in range(n):
            if j != i:
                pair = network.pairs.scores(individual, alternatives[:, [j, i]])[0, 0, 1]  # j acts on i
                u[i] += pair / (n - 1)
    torch.testing.assert_close(network(batch)[s, :n], u.log_softmax(0), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_effects_of_others_are_additive_in_sets_of_equal_size(trips: ChoiceData) -> None:
    """The effect of a third alternative on the odds of two does not depend on the fourth."""
    network, batch = scrambled(FETA(hidden=(5,)), trips)
    s, n = largest_set(batch)
    assert n >= 5

    def odds(a: int, b: int) -> float:
        log_p = network(chosen_places(batch, s, [0, 1, a, b]))[0]
        return float(log_p[0] - log_p[1])

    assert odds(2, 2) - odds(3, 2) - odds(2, 4) + odds(3, 4) == pytest.approx(0, abs=1e-12)
    assert abs(odds(2, 2) - odds(3, 2)) > 1e-3


def test_a_set_of_one_has_probability_1(trips: ChoiceData) -> None:
    network, batch = scrambled(FETA(hidden=(4,)), trips)
    assert network(chosen_places(batch, 0, [0]))[0].tolist() == [0.0]
