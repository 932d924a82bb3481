"""Sums over the parts of a list, in which 0 is none."""

import torch

from pcmcnet.data.kinds.networks.multi import Bag, BagWorth


def test_a_bag_is_the_sum_of_its_words_and_none_is_0() -> None:
    bag = Bag(4)
    weights = bag.embedding.weight
    found = bag(torch.tensor([[1, 3, 3], [0, 0, 0]]))
    torch.testing.assert_close(found[0], weights[1] + 2 * weights[3])
    assert found[1].tolist() == [0.0, 0.0]


def test_a_list_is_worth_the_sum_of_its_parts() -> None:
    """Parts 1, 2, 3 are worth 10, 20, 30; 0 is none, and stays so, since it gets no gradient."""
    worth = BagWorth(3)
    with torch.no_grad():
        worth.parts[1:, 0] = torch.tensor([10.0, 20.0, 30.0])
    assert worth(torch.tensor([[1, 3], [2, 2], [1, 0], [0, 0]])).tolist() == [40.0, 40.0, 10.0, 0.0]
    worth(torch.tensor([[1, 0]])).sum().backward()
    assert worth.parts.grad is not None
    assert worth.parts.grad.flatten().tolist() == [0.0, 1.0, 0.0, 0.0]
