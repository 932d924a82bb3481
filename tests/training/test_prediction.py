"""Prediction in batches: every set once, without dropout or gradients, in small batches if contents are large."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pcmcnet import concurrency
from pcmcnet.data import Batch, ChoiceData, EncodedSets, Encoder
from pcmcnet.training import ChoiceNetwork, prediction
from pcmcnet.training.prediction import predict

MakeSets = Callable[..., EncodedSets]


class Scores(ChoiceNetwork):
    """A multinomial logit of two features, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Dropout(0.3), nn.Linear(2, 1))

    def forward(self, batch: Batch) -> Tensor:
        return self.net(batch.numeric).squeeze(-1).masked_fill(~batch.mask, -math.inf).log_softmax(1)


@pytest.mark.parametrize("pair_budget", [1, 40, 10_000])
def test_every_set_is_predicted_once_without_dropout(pair_budget: int, make_sets: MakeSets) -> None:
    data, module = make_sets(), Scores().train()
    predicted = []
    for sets, batch, log_p in predict(module, data, pair_budget=pair_budget):
        assert not log_p.requires_grad
        torch.testing.assert_close(log_p, module.eval()(batch), rtol=0, atol=0)
        predicted += sets.tolist()
    assert sorted(predicted) == list(range(len(data)))


def test_an_interrupt_ends_a_prediction_in_any_thread(make_sets: MakeSets, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = predict(Scores(), make_sets(), pair_budget=1)
    next(batches)
    monkeypatch.setattr(concurrency, "_interrupted", True)
    with pytest.raises(KeyboardInterrupt):
        next(batches)


def test_each_process_predicts_its_share_of_every_batch(make_sets: MakeSets) -> None:
    data, module = make_sets(), Scores()
    actual = [
        sets
        for rank in range(3)
        for sets, _, _ in predict(module, data, pair_budget=10_000, share=lambda sets, rank=rank: sets[rank::3])
    ]
    assert sorted(np.concatenate(actual).tolist()) == list(range(len(data)))


def test_sets_with_large_contents_are_predicted_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "CONTENT_NUMBERS_PER_BATCH", 270)
    table = {"s": np.repeat(np.arange(40), 2), "v": np.random.default_rng(0).normal(size=(80, 10))}
    data = ChoiceData.from_long(table, choice_set="s", features=["v"], kinds={"v": "vector"})
    encoded = Encoder.learn(data).encode(data)
    vectors_per_batch: list[int] = []

    class Look(ChoiceNetwork):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(()))  # gives the network a device

        def forward(self, batch: Batch) -> Tensor:
            vectors_per_batch.append(batch.contents[0].values.numel())
            return torch.zeros(batch.mask.shape)

    sets = [sets for sets, _, _ in predict(Look(), encoded, pair_budget=10**6)]
    assert sorted(np.concatenate(sets).tolist()) == list(range(40))
    assert sorted(vectors_per_batch) == [20, 260, 260, 260]  # 13 sets of two vectors each
