from typing import Any

import pytest
import torch

from network_batches import chosen_places, largest_set, log_odds_terms, scrambled
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.models import DeepHalo

SMALL: dict[str, Any] = {"hidden": (4,), "width": 3, "heads": 2}


@torch.no_grad()
def test_probabilities_follow_the_formulas(trips: ChoiceData) -> None:
    network, batch = scrambled(DeepHalo(order=3, **SMALL), trips)
    network.size.fill_(2.5)
    s, n = largest_set(batch)
    alone = chosen_places(batch, s, range(n))
    individual, alternatives = network.represent(alone)
    z0 = [network.alone(torch.cat([x, individual[0]])) for x in alternatives[0]]
    z = list(z0)
    for layer in network.layers:
        h = layer.summary(sum(z) / 2.5)
        g = [layer.features(x).view(2, 3) for x in z0]
        z = [z[i] + (h[0] * g[i][0] + h[1] * g[i][1]) / 2 for i in range(n)]
    u = torch.stack([network.worth(x)[0] for x in z]) + network.utility(alone, individual, alternatives)[0]
    torch.testing.assert_close(network(batch)[s, :n], u.log_softmax(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_groups_above_the_order_have_no_joint_effect(order: int, trips: ChoiceData) -> None:
    """At most order - 1 other alternatives jointly affect the odds of two."""
    network, batch = scrambled(DeepHalo(order=order, **SMALL), trips)
    s, n = largest_set(batch)
    assert n >= 5
    terms = log_odds_terms(network, batch, s, n)
    sizes = {size: max(abs(value) for group, value in terms.items() if len(group) == size) for size in range(n - 1)}
    assert all(value > 1e-4 for size, value in sizes.items() if size < order)
    assert all(value < 1e-11 for size, value in sizes.items() if size >= order)


def test_a_continued_fit_keeps_the_mean_size_of_training_sets(trips: ChoiceData, tmp_path: Any) -> None:
    model = DeepHalo(**SMALL, epochs=1, weight_decay=1.0).fit(trips, progress=False)
    assert float(model.network_.size) == pytest.approx(trips.sizes.mean())
    larger = trips.subset([s for s in range(len(trips)) if trips.sizes[s] > 3])
    continued = DeepHalo(**SMALL, epochs=1, weight_decay=1.0).fit(larger, init=model, progress=False)
    assert float(continued.network_.size) == float(model.network_.size)


def test_the_summary_shows_the_order(trips: ChoiceData) -> None:
    for order, words in ((1, "1: a logit, no context effects"), (3, "3: joint effects of up to 2 other alternatives")):
        model = DeepHalo(order=order, **SMALL, epochs=1, weight_decay=1.0).fit(trips, progress=False)
        assert model.summary().facts["order"] == words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order must be a whole number of at least 1"),
        ({"order": 2.5}, "order must be a whole number"),
        ({"heads": 0}, "heads must be a whole number of at least 1, got 0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeepHalo(**options)
