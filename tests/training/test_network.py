"""The training loop uses only declared methods of a network; by default a network is trained by its NLL."""

import ast
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pcmcnet.training
from pcmcnet.data import Batch, EncodedSets
from pcmcnet.layers.likelihood import choice_nll
from pcmcnet.training import ChoiceNetwork, TrainConfig, train
from pcmcnet.training.prediction import predict
from pcmcnet.training.step import Steps, steps_for

MakeSets = Callable[..., EncodedSets]


class Slope(ChoiceNetwork):
    """A logit with the score w x, initially w = 1."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(()))

    def scores(self, batch: Batch) -> Tensor:
        return self.w * batch.numeric[..., 0]

    def forward(self, batch: Batch) -> Tensor:
        return self.scores(batch).masked_fill(~batch.mask, -math.inf).log_softmax(1)


class Doubled(Slope):
    """Counts every loss twice."""

    def set_losses(self, batch: Batch) -> Tensor:
        return 2 * super().set_losses(batch)


def test_a_network_that_declares_nothing_has_the_defaults(make_sets: MakeSets) -> None:
    network, data = Slope(), make_sets()
    assert network.loss_is_nll
    switches = ("batches_by_person", "supports_cuda_graphs", "takes_generators", "computes_in_chunks")
    assert [getattr(network, name) for name in switches] == [False] * 4
    assert [*network.prior_weights, *network.sign_constrained] == []
    assert network.compiled_form is None
    assert type(steps_for(network, data, TrainConfig())) is Steps
    batch = data.batch(np.arange(len(data)))
    torch.testing.assert_close(network.set_losses(batch), choice_nll(network(batch), batch.chosen), rtol=0, atol=0)


def test_a_network_must_define_only_forward(make_sets: MakeSets) -> None:
    class Nothing(ChoiceNetwork):
        pass

    with pytest.raises(NotImplementedError, match="Nothing does not define forward"):
        Nothing()(make_sets().batch(np.arange(2)))


def test_training_minimises_a_custom_loss(make_sets: MakeSets) -> None:
    """Loss and gradient are doubled; the validation loss is still the negative log-likelihood."""
    data, config = make_sets(12), TrainConfig(epochs=1, batch_size=99, weight_decay=0.0, lr=1e-9)
    plain, doubled = (train(network, data, config, valid=data).history[0] for network in (Slope(), Doubled()))
    assert not Doubled().loss_is_nll
    assert doubled["train_loss"] == pytest.approx(2 * plain["train_loss"], rel=1e-6)
    assert doubled["gradient_norm"] == pytest.approx(2 * plain["gradient_norm"], rel=1e-6)
    assert doubled["valid_loss"] == pytest.approx(plain["valid_loss"], rel=1e-6)


def test_other_outputs_use_the_same_batches(make_sets: MakeSets) -> None:
    data, network = make_sets(20), Slope()
    answers = predict(network, data, pair_budget=40, compute=network.scores)
    batches = predict(network, data, pair_budget=40)
    for (sets, batch, scores), (expected, _, _) in zip(answers, batches, strict=True):
        assert np.array_equal(sets, expected)
        assert not scores.requires_grad
        torch.testing.assert_close(scores, batch.numeric[..., 0], rtol=0, atol=0)


def test_training_does_not_use_getattr() -> None:
    """An attribute read by ``getattr`` would not be declared in any class."""
    uses = []
    for file in Path(pcmcnet.training.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[asked, *_]):
                    if any(word in ast.unparse(asked) for word in ("network", "module")):
                        uses.append(f"{file.name}:{node.lineno}")
    assert uses == []
