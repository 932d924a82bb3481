"""Steps of an epoch: gradients are clipped as in torch, and replayed steps on a GPU give the same results."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pcmcnet as pn
from pcmcnet.data import Batch, EncodedSets
from pcmcnet.datasets import airline
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.step import MAX_GRAPHS, RecordedSteps, Steps, clip_gradients, padded_width


class Slope(ChoiceNetwork):
    """A logit with the score w x, at w = 0: all alternatives of a set are equally likely."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch) -> Tensor:
        scores = (self.w * batch.numeric[..., 0]).masked_fill(~batch.mask, -math.inf)
        return scores.log_softmax(1)


@pytest.mark.parametrize("limit", [0.1, 1.0, 100.0, math.inf])
def test_gradients_are_clipped_as_in_torch(limit: float) -> None:
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


def test_the_gradient_is_of_the_weighted_mean_for_any_batch_size(
    make_sets: Callable[..., EncodedSets],
) -> None:
    """Adam divides out a factor of the gradient, so the gradient itself is compared."""
    sets = make_sets(6, weight=[1.0, 2.0, 0.5, 3.0, 1.0, 2.5])
    module = Slope()
    config = TrainConfig(clip=0.0, weight_decay=0.0)
    steps = Steps(module, sets, config)
    batch = sets.batch(np.arange(6))
    steps.step(batch)
    x = batch.numeric[..., 0]
    at_0 = (x * batch.mask).sum(1) / batch.mask.sum(1) - x[torch.arange(6), batch.chosen]  # d NLL / d w of each set
    expected = (batch.weight * at_0).sum() / batch.weight.sum()
    torch.testing.assert_close(module.w.grad, expected)
    sums = [float((batch.weight * batch.mask.sum(1).log()).sum()), 10.0, abs(float(expected))]
    torch.testing.assert_close(steps.total, torch.tensor(sums, dtype=torch.float64), rtol=1e-6, atol=0)


def test_recorded_widths_differ_by_at_most_an_eighth() -> None:
    sizes = range(1, 1_001)
    assert all(n <= padded_width(n) <= 1.125 * n for n in sizes)
    assert len({padded_width(n) for n in sizes}) <= MAX_GRAPHS


@pytest.mark.gpu
@pytest.mark.parametrize(("hidden", "rank"), [((16, 16), None), ((128, 128), None), ((16, 16), 8), ((128, 128), 8)])
def test_replayed_steps_match_plain_ones(
    hidden: tuple[int, ...], rank: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pn.ChoiceData.from_long(airline.simulate(600, seed=0), **airline.ROLES)
    losses = {}
    for kind in (Steps, RecordedSteps):
        monkeypatch.setattr("pcmcnet.training.loop.steps_for", kind)
        model = pn.PCMCNet(hidden=hidden, rank=rank, batch_size=16, epochs=4, weight_decay=0.0, precision="float32")
        model.fit(data, seed=0, device="cuda", progress=False)
        losses[kind] = [entry["train_loss"] for entry in model.history]
    np.testing.assert_allclose(
        losses[RecordedSteps], losses[Steps], rtol=0, atol=5e-3
    )  # padding changes the order of sums


@pytest.mark.gpu
def test_fits_with_factors_in_bfloat16_and_in_float32_agree() -> None:
    """Over 152 steps, the fit in bfloat16 learns as much as that in float32."""
    data = pn.ChoiceData.from_long(airline.simulate(600, seed=0), **airline.ROLES)
    losses = {}
    for precision in ("bfloat16", "float32"):
        model = pn.PCMCNet(hidden=(128, 128), rank=8, batch_size=16, epochs=4, weight_decay=0.0, precision=precision)
        model.fit(data, seed=0, device="cuda", progress=False)
        losses[precision] = [entry["train_loss"] for entry in model.history]
    assert losses["float32"][-1] < losses["float32"][0] - 0.1
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0, atol=0.05)  # 8 bits instead of 24


@pytest.mark.gpu
def test_dropout_of_replayed_steps_varies_and_follows_the_seed() -> None:
    data = pn.ChoiceData.from_long(airline.simulate(400, seed=0), **airline.ROLES)

    def history(seed: int) -> list[float]:
        options = {"dropout": 0.5, "initialisation": "paper", "lr": 1e-9, "schedule": "constant", "warmup": 0.0}
        model = pn.PCMCNet(hidden=(32, 32), batch_size=20, epochs=3, weight_decay=0.0, **options)
        return [entry["train_loss"] for entry in model.fit(data, seed=seed, device="cuda", progress=False).history]

    first = history(0)
    assert first == pytest.approx(history(0), abs=1e-6)
    assert len({round(loss, 5) for loss in first}) == 3  # the weights are constant: only masks and batches differ
