"""Batches are on the device, or streamed to it if they do not fit; the results are the same."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
import torch

import pcmcnet as pn
from pcmcnet.data.batches import EncodedSets, plan_batches
from pcmcnet.data.encoder import Encoder
from pcmcnet.datasets import airline
from pcmcnet.training import device as training_device
from pcmcnet.training import prediction
from pcmcnet.training.device import batches_on, encode_on, gather_batch, to_host

MakeSets = Callable[..., EncodedSets]


def test_the_size_of_encoded_sets_is_estimated() -> None:
    data = pn.ChoiceData.from_long(airline.simulate(20, seed=0), **airline.ROLES)
    encoder = Encoder.learn(data)
    encoded = encode_on(torch.device("cpu"), encoder, data)
    assert encoded.starts.device.type == "cpu"
    assert encoded.nbytes <= encoder.nbytes(data) <= 1.01 * encoded.nbytes  # the estimate counts 8 bytes per weight


def test_sets_count_their_bytes(make_sets: MakeSets) -> None:
    sets = make_sets(20)
    held = [value for f in fields(sets) if isinstance(value := getattr(sets, f.name), torch.Tensor)]
    assert sets.nbytes == sum(t.numel() * t.element_size() for t in held) > 0


def test_batches_come_in_the_order_of_the_plan(make_sets: MakeSets) -> None:
    sets = make_sets(20)
    plan = plan_batches(sets.sizes, batch_size=6, pair_budget=10_000, rng=np.random.default_rng(0))
    batches = list(batches_on(torch.device("cpu"), sets, plan))
    assert [len(batch.mask) for batch in batches] == [len(index) for index in plan]
    for index, batch in zip(plan, batches, strict=True):
        assert torch.equal(batch.chosen, sets.chosen[torch.from_numpy(index)])


@pytest.mark.gpu
def test_the_kernel_gathers_the_same_batch_as_indexing(make_sets: MakeSets) -> None:
    simulated = pn.ChoiceData.from_long(airline.simulate(50, seed=0), **airline.ROLES)
    for data in (make_sets(20), Encoder.learn(simulated).encode(simulated)):
        on_device, index = data.to(torch.device("cuda")), torch.tensor([7, 3, 3, 19], device="cuda")
        actual, expected = gather_batch(on_device, index, data.largest + 2), on_device.gather(index, data.largest + 2)
        for f in fields(expected):
            mine, other = getattr(actual, f.name), getattr(expected, f.name)
            assert torch.equal(mine, other) if isinstance(other, torch.Tensor) else mine == other


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_results_are_copied_to_the_host_in_order(device: str) -> None:
    results = [(np.array([i]), torch.full((1 + i, 2), float(i), device=device)) for i in range(4)]
    actual = list(to_host(iter(results)))
    assert [int(sets[0]) for sets, _ in actual] == [0, 1, 2, 3]
    assert all(torch.equal(host, on_device.cpu()) for (_, host), (_, on_device) in zip(actual, results, strict=True))


@pytest.mark.gpu
def test_streamed_sets_give_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pn.ChoiceData.from_long(airline.simulate(300, seed=0), **airline.ROLES)
    results = []
    for share in (0.5, 0.0):
        monkeypatch.setattr(training_device, "SETS_SHARE_OF_MEMORY", share)
        model = pn.PCMCNet(hidden=(32, 32), batch_size=16, epochs=3, weight_decay=0.0, precision="float32")
        model.fit(data, seed=0, device="cuda", progress=False)
        results.append((model.history[-1]["train_loss"], model.predict_proba(data)))
    assert results[0][0] == pytest.approx(results[1][0], abs=5e-3)  # sums in another order, over 57 steps
    np.testing.assert_allclose(results[0][1], results[1][1], atol=0.02)


@pytest.mark.gpu
def test_overlapping_batches_give_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pn.ChoiceData.from_long(airline.simulate(400, seed=0), **airline.ROLES)
    model = pn.PCMCNet(hidden=(128, 128), batch_size=16, epochs=1, weight_decay=0.0).fit(
        data, device="cuda", progress=False
    )
    encoded = model.encoder_.encode(data).to(torch.device("cuda"))
    monkeypatch.setattr(prediction, "GPU_PAIR_BUDGETS_PER_BATCH", 1)
    actual = list(prediction.predict(model.network_, encoded, pair_budget=20_000))
    assert len(actual) > 5
    assert sorted(np.concatenate([sets for sets, _, _ in actual])) == list(range(400))
    with torch.no_grad():
        assert all(torch.equal(log_p, model.network_(batch)) for _, batch, log_p in actual)
