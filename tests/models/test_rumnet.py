from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.batches import Batch
from pcmcnet.errors import ConfigError
from pcmcnet.insight.axioms import audit
from pcmcnet.models.rumnet import RandomUtilities, RUMnet, RUMnetConfig

TABLE = {"s": [1, 1, 2, 2], "took": [1, 0, 0, 1], "x": [1.0, 2.0, 3.0, 5.0], "y": [0.0, 2.0, 7.0, 4.0]}
KNOWN = Encoder.learn(ChoiceData.from_long(TABLE, choice_set="s", chosen="took", features=["x", "y"]))


@given(seed=st.integers(0, 2**16), size=st.floats(0.1, 5), n=st.integers(2, 6), samples=st.integers(1, 4))
def test_an_added_alternative_raises_no_other_probability(seed: int, size: float, n: int, samples: int) -> None:
    """Regularity, whatever the weights and the alternatives are."""
    generator = torch.Generator().manual_seed(seed)
    network = RandomUtilities(KNOWN, RUMnetConfig(hidden=(5,), samples=samples, noise=2)).double().eval()
    with torch.no_grad():
        for weights in network.parameters():
            weights.copy_(size * torch.randn(weights.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(1, n, 2, generator=generator, dtype=torch.float64).expand(n, n, 2)
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[torch.arange(1, n), torch.arange(1, n)] = (
        False  # the first set is complete, each other one lacks an alternative
    )
    none = torch.zeros(n, n, 0, dtype=torch.int64)
    alone, one = torch.zeros(n, 0, dtype=torch.float64), torch.zeros(n, dtype=torch.int64)
    with torch.no_grad():
        p = network(Batch(x, none, alone, none[:, 0], mask, one, one)).exp()
    torch.testing.assert_close(p.sum(1), torch.ones(n, dtype=torch.float64))
    assert (p[~mask] == 0).all()
    assert (p[1:] >= p[0] - 1e-12).masked_select(mask[1:]).all()


def test_the_inner_logits_have_equal_shares(network_of: Callable[..., Any], journeys: ChoiceData) -> None:
    model = network_of("rumnet", spread=0.5, samples=3)
    shares, logits = model.as_logits(journeys)
    assert shares.shape == (len(journeys), 9)
    mixed = (np.exp(logits) / 9).sum(1)
    np.testing.assert_allclose(mixed, journeys.from_rows(model.predict_proba(journeys)), rtol=1e-4)
    assert np.exp(logits).std(1).max() > 0.01  # they differ
    result = audit(model, journeys, sets=40)
    assert result["regularity"].verdict == "holds"
    assert result["independence"].verdict == "violated"


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="samples must be a whole number of at least 1"):
        RUMnet(samples=0)
    with pytest.raises(ConfigError, match="noise"):
        RUMnet(noise=0)
    with pytest.raises(ConfigError, match="the number of hidden layers"):
        RUMnet(hidden=())
