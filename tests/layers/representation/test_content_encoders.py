"""Encoders of contents: each distinct content is encoded once, and nothing but itself decides on its vector."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from choice_tables import objects, picture
from pcmcnet.data.batches import Coded, Distinct
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.networks.multi import Bag
from pcmcnet.errors import ConfigError
from pcmcnet.layers.dropout import Dropout
from pcmcnet.layers.representation import Representation, representation_of, width_of

png = partial(picture, size=(9, 6))
TABLES = {
    "vector": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32),
    "datetime": np.array(["2024-01-01", "2024-02-05", "2024-05-05", "2025-01-01"], "datetime64[us]"),
    "multi": objects(("a", "b"), ("c",), ("a", "d"), ()),
    "text": objects("a quiet room for 20", "pool", "", "a pool for 3 and more"),
    "image": objects(*(png(value) for value in (1, 50, 100, 255))),
}


def prepared(kind: str) -> tuple[Any, torch.Tensor]:
    code = KINDS[kind].code.learn("x", TABLES[kind])
    table = torch.from_numpy(code.prepare(TABLES[kind]))
    return code, Coded(torch.arange(len(table)), table).at(torch.arange(len(table))).values


@pytest.mark.parametrize("kind", TABLES)
def test_the_width_is_known_beforehand_and_contents_are_encoded_one_by_one(kind: str) -> None:
    code, values = prepared(kind)
    encoder = KINDS[kind].encoder(code).eval()
    found = encoder(values)
    assert found.shape == (4, width_of(encoder, code))
    torch.testing.assert_close(encoder(values[2:3]), found[2:3], rtol=0, atol=1e-6)  # sums in another order


def test_the_vector_of_a_text_does_not_depend_on_the_longest_one_beside_it() -> None:
    _, values = prepared("text")
    encoder = KINDS["text"].encoder(None)
    torch.testing.assert_close(encoder(values[1:2, :1]), encoder(values)[1:2], rtol=0, atol=1e-6)
    longer = torch.cat([values, torch.zeros(4, 9, 4)], 1)
    torch.testing.assert_close(encoder(longer), encoder(values), rtol=0, atol=1e-6)  # sums in another order


def test_pictures_come_as_numbers_from_0_to_1() -> None:
    _, values = prepared("image")
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.amax((1, 2, 3)), torch.tensor([1, 50, 100, 255]) / 255)


def test_the_dropout_of_a_kind_draws_as_that_of_a_network() -> None:
    code, _ = prepared("image")
    (encoder,) = representation_of(SideEncoder((), (), (code,))).encoders
    assert [module.p for module in encoder.modules() if isinstance(module, Dropout)] == [0.3]
    assert not any(isinstance(module, nn.Dropout) for module in encoder.modules())


def test_ids_need_a_module_of_ones_own() -> None:
    with pytest.raises(ConfigError, match="'x' is of kind id, which needs a module of your own"):
        representation_of(SideEncoder((), (), (KINDS["id"].code.learn("x", np.arange(3)),)))


def test_a_module_of_ones_own_is_copied_with_its_weights() -> None:
    module = nn.Embedding(5, 3)
    side = SideEncoder((), (), (KINDS["id"].code.learn("x", np.arange(3)),))
    (copied,) = representation_of(side, own={"x": module}).encoders
    assert copied is not module
    assert torch.equal(copied.weight, module.weight)


class Odd(nn.Module):
    def __init__(self, give: Any) -> None:
        super().__init__()
        self.give = give

    def forward(self, values: torch.Tensor) -> Any:
        return self.give(values)


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda x: x.sum(), r"should give vectors, shape \(2, width\), got \(\)\."),
        (lambda x: x[:1], r"got \(1, 3\)\."),
        (lambda x: x.long(), r"got \(2, 3\)\."),
        (lambda x: None, "got NoneType"),
        (lambda x: 1 / 0, "and it failed: division by zero"),
    ],
)
def test_what_gives_no_vectors_is_refused_with_what_it_was_given(give: Any, message: str) -> None:
    code, _ = prepared("vector")
    with pytest.raises(ConfigError, match=r"column 'x': Odd was given two contents of kind vector, torch.float32 of "):
        width_of(Odd(give), code)
    with pytest.raises(ConfigError, match=message):
        width_of(Odd(give), code)


def test_asking_for_the_width_leaves_a_module_as_it_is() -> None:
    code, _ = prepared("vector")
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 4))
    state = torch.random.get_rng_state()
    assert width_of(module, code) == 4
    assert module.training
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(("size", "width"), [(3, 3), (64, 64), (384, 64)])
def test_a_wide_vector_is_first_made_narrow(size: int, width: int) -> None:
    code = KINDS["vector"].code.learn("x", np.random.default_rng(0).normal(size=(5, size)))
    assert width_of(KINDS["vector"].encoder(code), code) == width


def test_each_distinct_content_is_encoded_once_and_handed_out() -> None:
    seen = []

    class Watched(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            seen.append(len(values))
            return values * 10

    layer = Representation(1, encoders=[(Watched(), 2)])
    column = Coded(torch.tensor([2, 0, 2, 2]), torch.tensor([[1.0, 2], [3, 4], [5, 6]]))
    numbers = torch.tensor([[[0.5], [1.5]], [[2.5], [3.5]]])
    found = layer(numbers, torch.zeros(2, 2, 0), [column.at(torch.tensor([[0, 1], [2, 3]]))])
    assert seen == [2]
    assert found.tolist() == [[[50, 60, 0.5], [10, 20, 1.5]], [[50, 60, 2.5], [50, 60, 3.5]]]
    assert layer.width == 3


def test_gradients_of_all_who_have_a_content_come_together() -> None:
    encoder = nn.Linear(1, 1, bias=False)
    layer = Representation(0, encoders=[(encoder, 1)])
    layer(
        torch.zeros(3, 0), torch.zeros(3, 0), [Distinct(torch.tensor([[2.0]]), torch.zeros(3, dtype=int))]
    ).sum().backward()
    assert encoder.weight.grad is not None
    assert encoder.weight.grad.item() == 6


def test_a_side_has_categories_first_then_contents_then_numbers() -> None:
    side = SideEncoder((), (), (prepared("multi")[0], prepared("vector")[0]))
    layer = representation_of(side)
    assert layer.width == 2 + 3
    assert [type(encoder) for encoder in layer.encoders] == [Bag, nn.Identity]
