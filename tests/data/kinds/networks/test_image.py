"""Pictures of any size."""

import pytest
import torch

from pcmcnet.data.kinds.networks.image import Picture


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 64, 64), (1, 1, 1), (3, 64, 5)])
def test_pictures_of_any_size_have_vectors_of_one_width(shape: tuple[int, int, int]) -> None:
    assert Picture(shape)(torch.rand(2, *shape)).shape == (2, 8)
