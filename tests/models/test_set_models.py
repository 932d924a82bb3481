"""Properties of networks and context logits that use the whole set, for any weights."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from network_batches import chosen_places, largest_set, scrambled
from pcmcnet.data import ChoiceData
from pcmcnet.models import MODELS
from quick_models import NETWORKS

NAMES = sorted(NETWORKS)


@pytest.fixture(scope="module", params=NAMES)
def network_and_batch(request: pytest.FixtureRequest, trips: ChoiceData) -> Any:
    """A network with random weights and a batch of unequal sets."""
    return scrambled(MODELS[request.param](**NETWORKS[request.param]), trips)


@torch.no_grad()
def test_probabilities_do_not_depend_on_the_order_of_rows(network_and_batch: Any) -> None:
    network, batch = network_and_batch
    s, n = largest_set(batch)
    order = np.random.default_rng(0).permutation(n)
    assert n > 2
    in_order, permuted = (network(chosen_places(batch, s, places))[0] for places in (range(n), order))
    torch.testing.assert_close(in_order[order], permuted, rtol=1e-12, atol=1e-12)
    assert in_order.exp().max() > 1.1 / n


@torch.no_grad()
def test_padding_does_not_change_probabilities(network_and_batch: Any) -> None:
    network, batch = network_and_batch
    log_p, sizes = network(batch), batch.mask.sum(1).tolist()
    assert len(set(sizes)) > 2
    for s, n in enumerate(sizes[:8]):
        alone = network(chosen_places(batch, s, range(n)))[0]
        torch.testing.assert_close(log_p[s, :n], alone, rtol=1e-11, atol=1e-11)
    assert (log_p[~batch.mask] == -torch.inf).all()


@torch.no_grad()
def test_padded_values_are_never_read(network_and_batch: Any) -> None:
    network, batch = network_and_batch
    strange = replace(batch, numeric=batch.numeric.masked_fill(~batch.mask.unsqueeze(-1), 1e6))
    assert not torch.equal(strange.numeric, batch.numeric)
    torch.testing.assert_close(network(strange), network(batch), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_probabilities_depend_on_the_individual(network_and_batch: Any) -> None:
    network, batch = network_and_batch
    richer = replace(batch, individual_numeric=batch.individual_numeric + 1)
    real = batch.mask & (batch.mask.sum(1, keepdim=True) > 1)
    assert (network(richer) - network(batch))[real].abs().max() > 0.01


def test_every_weight_has_a_finite_gradient(network_and_batch: Any) -> None:
    network, batch = network_and_batch
    log_p = network(batch)
    log_p.gather(1, batch.chosen.unsqueeze(1)).sum().backward()
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None, name
            assert torch.isfinite(weight.grad).all(), name
            assert weight.grad.any(), name
        weight.grad = None


@pytest.mark.parametrize("name", NAMES)
def test_networks_use_contents_and_can_continue_a_fit(name: str) -> None:
    """Alternatives differ only in a column of vectors."""
    rng = np.random.default_rng(0)
    table = {
        "set": np.repeat(np.arange(20), 2),
        "took": np.tile([True, False], 20),
        "spot": list(rng.normal(size=(40, 3))),
    }
    roles: dict[str, Any] = {"choice_set": "set", "chosen": "took", "features": ["spot"], "kinds": {"spot": "vector"}}
    data = ChoiceData.from_long(table, **roles)
    first = MODELS[name](**NETWORKS[name]).fit(data, progress=False)
    assert len(np.unique(first.predict_proba(data).round(6))) > 20
    continued = MODELS[name](**NETWORKS[name]).fit(data, init=first, progress=False)
    assert continued.score(data) > first.score(data)
