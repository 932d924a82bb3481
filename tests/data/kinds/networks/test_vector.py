"""What vectors are worth."""

import torch

from pcmcnet.data.kinds.networks.vector import VectorWorth


def test_a_vector_is_worth_its_coordinates() -> None:
    worth = VectorWorth(2)
    with torch.no_grad():
        worth.slopes.copy_(torch.tensor([2.0, -1.0]))
    assert worth(torch.tensor([[1.0, 1.0], [0.0, 3.0]])).tolist() == [1.0, -3.0]
