"""Pictures of any size."""

import pytest
import torch

from pcmcnet.data.kinds.networks import BagEncoder, BagPartWorth, PictureEncoder, TextPartWorth, VectorPartWorth
from pcmcnet.data.kinds.text import BUCKETS


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 64, 64), (1, 1, 1), (3, 64, 5)])
def test_pictures_of_any_size_have_vectors_of_one_width(shape: tuple[int, int, int]) -> None:
    assert PictureEncoder(shape)(torch.rand(2, *shape)).shape == (2, 8)


# -- Multi -------------------------------------------------------------------------------------------------------------
# Sums over the parts of a list, in which 0 is none.


def test_a_bag_is_the_sum_of_its_words_and_none_is_0() -> None:
    bag = BagEncoder(4)
    weights = bag.embedding.weight
    found = bag(torch.tensor([[1, 3, 3], [0, 0, 0]]))
    torch.testing.assert_close(found[0], weights[1] + 2 * weights[3])
    assert found[1].tolist() == [0.0, 0.0]


def test_a_list_is_worth_the_sum_of_its_parts() -> None:
    """Parts 1, 2, 3 are worth 10, 20, 30; 0 is none, and stays so, since it gets no gradient."""
    worth = BagPartWorth(3)
    with torch.no_grad():
        worth.parts[1:, 0] = torch.tensor([10.0, 20.0, 30.0])
    assert worth(torch.tensor([[1, 3], [2, 2], [1, 0], [0, 0]])).tolist() == [40.0, 40.0, 10.0, 0.0]
    worth(torch.tensor([[1, 0]])).sum().backward()
    assert worth.parts.grad is not None
    assert worth.parts.grad.flatten().tolist() == [0.0, 1.0, 0.0, 0.0]


# -- Text --------------------------------------------------------------------------------------------------------------
# What texts are worth.


def test_a_text_is_worth_its_words_their_ends_and_its_numbers() -> None:
    """Hashes 1, 2 and 3 are worth 1, 10 and 100, a unit of value 0.5."""
    worth = TextPartWorth()
    assert len(worth.parts) == BUCKETS + 1
    with torch.no_grad():
        worth.parts[1:4, 0] = torch.tensor([1.0, 10.0, 100.0])
        worth.value.fill_(0.5)
    texts = torch.tensor([[[1.0, 2.0, 3.0, 0.0], [1.0, 1.0, 2.0, 4.0]], [[0.0] * 4, [3.0, 0.0, 0.0, -2.0]]])
    assert worth(texts).tolist() == [111 + 12 + 2.0, 100 - 1.0]


# -- Vector ------------------------------------------------------------------------------------------------------------
# What vectors are worth.


def test_a_vector_is_worth_its_coordinates() -> None:
    worth = VectorPartWorth(2)
    with torch.no_grad():
        worth.slopes.copy_(torch.tensor([2.0, -1.0]))
    assert worth(torch.tensor([[1.0, 1.0], [0.0, 3.0]])).tolist() == [1.0, -3.0]
