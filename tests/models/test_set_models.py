"""What holds of the networks and context logits that see the whole set, whatever their weights."""

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
def asked(request: pytest.FixtureRequest, trips: ChoiceData) -> Any:
    """A network with random weights and a batch of unequal sets."""
    return scrambled(MODELS[request.param](**NETWORKS[request.param]), trips)


@torch.no_grad()
def test_the_order_of_a_sets_rows_plays_no_part(asked: Any) -> None:
    network, batch = asked
    s, n = largest_set(batch)
    order = np.random.default_rng(0).permutation(n)
    assert n > 2
    there, back = (network(chosen_places(batch, s, places))[0] for places in (range(n), order))
    torch.testing.assert_close(there[order], back, rtol=1e-12, atol=1e-12)
    assert there.exp().max() > 1.1 / n


@torch.no_grad()
def test_a_set_has_one_law_alone_and_padded_in_company(asked: Any) -> None:
    network, batch = asked
    log_p, sizes = network(batch), batch.mask.sum(1).tolist()
    assert len(set(sizes)) > 2
    for s, n in enumerate(sizes[:8]):
        alone = network(chosen_places(batch, s, range(n)))[0]
        torch.testing.assert_close(log_p[s, :n], alone, rtol=1e-11, atol=1e-11)
    assert (log_p[~batch.mask] == -torch.inf).all()


@torch.no_grad()
def test_padding_is_never_read(asked: Any) -> None:
    network, batch = asked
    strange = replace(batch, numeric=batch.numeric.masked_fill(~batch.mask.unsqueeze(-1), 1e6))
    assert not torch.equal(strange.numeric, batch.numeric)
    torch.testing.assert_close(network(strange), network(batch), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_the_law_depends_on_the_individual(asked: Any) -> None:
    network, batch = asked
    richer = replace(batch, individual_numeric=batch.individual_numeric + 1)
    real = batch.mask & (batch.mask.sum(1, keepdim=True) > 1)
    assert (network(richer) - network(batch))[real].abs().max() > 0.01


def test_every_weight_gets_a_gradient_and_all_are_finite(asked: Any) -> None:
    network, batch = asked
    log_p = network(batch)
    log_p.gather(1, batch.chosen.unsqueeze(1)).sum().backward()
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None, name
            assert torch.isfinite(weight.grad).all(), name
            assert weight.grad.any(), name
        weight.grad = None


@pytest.mark.parametrize("name", NAMES)
def test_contents_are_read_and_a_fit_goes_on_from_another(name: str) -> None:
    """With every other column constant, a column of vectors is all that there is to tell alternatives apart."""
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
    again = MODELS[name](**NETWORKS[name]).fit(data, init=first, progress=False)
    assert again.score(data) > first.score(data)
