"""Steps of an epoch: gradients are cut as torch does, and those on a GPU are replayed with the same results."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import pcmcnet as pn
from pcmcnet.datasets import airline
from pcmcnet.training.step import GRAPHS, RecordedSteps, Steps, clip_gradients, rounded


@pytest.mark.parametrize("limit", [0.1, 1.0, 100.0, math.inf])
def test_gradients_are_cut_as_torch_does(limit: float) -> None:
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((), (3,), (2, 5))]
    generator = torch.Generator().manual_seed(0)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    copies = [nn.Parameter(p.detach()) for p in parameters]
    for ours, theirs in zip(parameters, copies, strict=True):
        assert ours.grad is not None
        theirs.grad = ours.grad.clone()
    idle = nn.Parameter(torch.zeros(2))  # has no gradient
    norm = clip_gradients([*parameters, idle], limit)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(copies, limit))
    for ours, theirs in zip(parameters, copies, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert idle.grad is None


def test_few_widths_are_recorded_each_an_eighth_above_the_next_at_most() -> None:
    sizes = range(1, 1_001)
    assert all(n <= rounded(n) <= 1.125 * n for n in sizes)
    assert len({rounded(n) for n in sizes}) <= GRAPHS


@pytest.mark.gpu
@pytest.mark.parametrize("hidden", [(16, 16), (128, 128)])
def test_replayed_steps_lead_where_plain_ones_do(hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    data = pn.ChoiceData.from_long(airline.simulate(600, seed=0), **airline.ROLES)
    losses = {}
    for kind in (Steps, RecordedSteps):
        monkeypatch.setattr("pcmcnet.training.loop.steps_for", kind)
        model = pn.PCMCNet(hidden=hidden, batch_size=16, epochs=4, precision="float32")
        model.fit(data, seed=0, device="cuda", progress=False)
        losses[kind] = [entry["train_loss"] for entry in model.history]
    np.testing.assert_allclose(losses[RecordedSteps], losses[Steps], rtol=0, atol=5e-3)  # padding changes sums' order


@pytest.mark.gpu
def test_dropout_of_replayed_steps_differs_from_step_to_step_and_repeats_with_the_seed() -> None:
    data = pn.ChoiceData.from_long(airline.simulate(400, seed=0), **airline.ROLES)

    def history(seed: int) -> list[float]:
        options = {"dropout": 0.5, "initialisation": "paper", "lr": 1e-9, "schedule": "constant", "warmup": 0.0}
        model = pn.PCMCNet(hidden=(32, 32), batch_size=20, epochs=3, **options)
        return [entry["train_loss"] for entry in model.fit(data, seed=seed, device="cuda", progress=False).history]

    first = history(0)
    assert first == pytest.approx(history(0), abs=1e-6)
    assert len({round(loss, 5) for loss in first}) == 3  # the weights stand still: only masks and batches differ
