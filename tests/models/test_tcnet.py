import math
from typing import Any

import pytest
import torch

from network_batches import chosen_places, largest_set, scrambled
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.models import TCNet
from pcmcnet.models.tcnet import Attention


@torch.no_grad()
def test_attention_is_a_mean_of_values_weighted_by_matches() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        attention = Attention(4, 2).double()
        tokens, of = torch.rand(1, 2, 4).double(), torch.rand(1, 3, 4).double()
    mask = torch.tensor([[True, True, False]])
    q, k, v = attention.query(tokens)[0], attention.key(of)[0], attention.value(of)[0]
    expected = torch.zeros(2, 4).double()
    for head in (slice(0, 2), slice(2, 4)):
        for i in range(2):
            match = torch.stack([q[i, head] @ k[j, head] / math.sqrt(2) for j in range(2)])  # the third is padding
            expected[i, head] = match.softmax(0) @ v[:2, head]
    torch.testing.assert_close(attention(tokens, of, mask)[0], attention.out(expected), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_utilities_follow_the_formulas(trips: ChoiceData) -> None:
    network, batch = scrambled(TCNet(width=4, heads=2, hidden=(3,), blocks=2, utility="none"), trips)
    s, n = largest_set(batch)
    alone = chosen_places(batch, s, range(n))
    individual, alternatives = network.represent(alone)
    tokens = network.token(torch.cat([alternatives, individual.unsqueeze(1).expand(-1, n, -1)], -1))
    assortment = tokens
    for block in network.assortment:
        assortment = block(assortment, assortment, alone.mask)
    for block in network.candidates:
        tokens = block(tokens, assortment, alone.mask)
    u = network.worth(network.norm(tokens))[0, :, 0]
    torch.testing.assert_close(network(batch)[s, :n], u.log_softmax(0), rtol=1e-12, atol=1e-12)
    changed = network.candidates[0](tokens, assortment.flip(-1), alone.mask)
    assert not torch.allclose(changed, network.candidates[0](tokens, assortment, alone.mask))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be a whole number of at least 1, got 0"),
        ({"heads": 3}, "width must be a multiple of heads, got 32 and 3"),
        ({"blocks": 0}, "blocks must be a whole number of at least 1 and at most 100, got 0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TCNet(**options)
