from typing import Any

import pytest
import torch

from network_batches import chosen_places, largest_set, scrambled
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.models import FATE


@torch.no_grad()
def test_probabilities_follow_the_formulas(trips: ChoiceData) -> None:
    network, batch = scrambled(FATE(hidden=(5,), set_hidden=(4, 3)), trips)
    s, n = largest_set(batch)
    alone = chosen_places(batch, s, range(n))
    individual, alternatives = network.represent(alone)
    known = [torch.cat([x, individual[0]]) for x in alternatives[0]]
    together = sum(network.member(x) for x in known) / n
    assert together.shape == (3,)
    u = (
        torch.stack([network.joint(torch.cat([x, together]))[0] for x in known])
        + network.utility(alone, individual, alternatives)[0]
    )
    torch.testing.assert_close(network(batch)[s, :n], u.log_softmax(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"set_hidden": ()}, "the number of set_hidden layers must be a number of at least 1"),
        ({"set_hidden": (0,)}, "set_hidden must be a whole number of at least 1, got 0"),
        ({"set_hidden": 8}, "set_hidden must be a list of widths"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FATE(**options)
