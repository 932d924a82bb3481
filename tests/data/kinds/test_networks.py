"""Networks and utility terms of pictures, lists, texts and vectors."""

import pytest
import torch

from pcmcnet.data.kinds.networks import BagEncoder, BagPartWorth, PictureEncoder, TextPartWorth, VectorPartWorth
from pcmcnet.data.kinds.text import BUCKETS


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 64, 64), (1, 1, 1), (3, 64, 5)])
def test_pictures_of_any_size_give_vectors_of_one_width(shape: tuple[int, int, int]) -> None:
    assert PictureEncoder(shape)(torch.rand(2, *shape)).shape == (2, 8)


# -- Multi -------------------------------------------------------------------------------------------------------------
# Sums over the entries of a list; code 0 is padding.


def test_a_bag_is_the_sum_of_its_words_without_padding() -> None:
    bag = BagEncoder(4)
    weights = bag.embedding.weight
    sums = bag(torch.tensor([[1, 3, 3], [0, 0, 0]]))
    torch.testing.assert_close(sums[0], weights[1] + 2 * weights[3])
    assert sums[1].tolist() == [0.0, 0.0]


def test_utility_of_a_list_is_the_sum_of_its_entries() -> None:
    """Entries 1, 2, 3 have utilities 10, 20, 30. Code 0 is padding: it has utility 0 and gets no gradient."""
    worth = BagPartWorth(3)
    with torch.no_grad():
        worth.parts[1:, 0] = torch.tensor([10.0, 20.0, 30.0])
    assert worth(torch.tensor([[1, 3], [2, 2], [1, 0], [0, 0]])).tolist() == [40.0, 40.0, 10.0, 0.0]
    worth(torch.tensor([[1, 0]])).sum().backward()
    assert worth.parts.grad is not None
    assert worth.parts.grad.flatten().tolist() == [0.0, 1.0, 0.0, 0.0]


# -- Text --------------------------------------------------------------------------------------------------------------
# Utilities of texts.


def test_utility_of_a_text_sums_words_endings_and_numbers() -> None:
    """Hashes 1, 2 and 3 have utilities 1, 10 and 100; a unit of value has 0.5."""
    worth = TextPartWorth()
    assert len(worth.parts) == BUCKETS + 1
    with torch.no_grad():
        worth.parts[1:4, 0] = torch.tensor([1.0, 10.0, 100.0])
        worth.value.fill_(0.5)
    texts = torch.tensor([[[1.0, 2.0, 3.0, 0.0], [1.0, 1.0, 2.0, 4.0]], [[0.0] * 4, [3.0, 0.0, 0.0, -2.0]]])
    assert worth(texts).tolist() == [111 + 12 + 2.0, 100 - 1.0]


# -- Vector ------------------------------------------------------------------------------------------------------------
# Utilities of vectors.


def test_utility_of_a_vector_is_linear() -> None:
    worth = VectorPartWorth(2)
    with torch.no_grad():
        worth.slopes.copy_(torch.tensor([2.0, -1.0]))
    assert worth(torch.tensor([[1.0, 1.0], [0.0, 3.0]])).tolist() == [1.0, -3.0]
