import pytest
import torch

from pcmcnet.data.kinds.category import embedding_width
from pcmcnet.layers.representation import Representation

NONE = torch.zeros(3, 0, dtype=torch.long)


@pytest.mark.parametrize(
    ("cardinality", "width"), [(1, 1), (2, 1), (3, 2), (4, 2), (97, 49), (98, 49), (99, 50), (100, 50), (101, 50)]
)
def test_width_of_an_embedding_is_half_the_cardinality_rounded_up_and_at_most_50(cardinality: int, width: int) -> None:
    assert embedding_width(cardinality) == width


def test_embeddings_come_first_and_numbers_pass_through() -> None:
    layer = Representation(2, [(5, 3), (101, 50)])
    numeric, categorical = torch.randn(4, 3, 2), torch.randint(0, 6, (4, 3, 2))
    out = layer(numeric, categorical)
    assert layer.width == 3 + 50 + 2
    assert out.shape == (4, 3, layer.width)
    first, second = (layer.get_parameter(f"embeddings.{k}.weight") for k in (0, 1))
    assert torch.equal(out[..., :3], first[categorical[..., 0]])
    assert torch.equal(out[..., 3:53], second[categorical[..., 1]])
    assert torch.equal(out[..., 53:], numeric)


def test_there_is_a_row_for_every_known_category_and_one_for_the_unseen() -> None:
    layer = Representation(0, [(5, 3)])
    out = layer(torch.zeros(6, 0), torch.arange(6).unsqueeze(1))
    assert out.shape == (6, 3)
    assert len(out.unique(dim=0)) == 6
    assert sum(p.numel() for p in layer.parameters()) == 6 * 3


def test_an_unseen_category_is_zero_and_learns_nothing() -> None:
    """Adam moves whatever has had a gradient; row 0 must have had none."""
    layer = Representation(1, [(4, 2)])
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    numeric, categorical = torch.ones(3, 1), torch.tensor([[0], [2], [0]])
    weight = layer.get_parameter("embeddings.0.weight")
    before = weight.detach().clone()
    for _ in range(3):
        optimiser.zero_grad()
        weight.grad = torch.autograd.grad((layer(numeric, categorical) - 7).square().sum(), weight)[0]
        optimiser.step()
    moved = (weight != before).all(1)
    assert moved.tolist() == [False, False, True, False, False]
    assert layer(numeric, categorical)[0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("n_numeric", [0, 2])
def test_without_categories_the_numbers_are_the_representation(n_numeric: int) -> None:
    layer, numeric = Representation(n_numeric, dropout=0.5), torch.randn(3, n_numeric)
    assert layer.width == n_numeric
    assert torch.equal(layer(numeric, NONE), numeric)
    assert list(layer.parameters()) == []


def test_without_numbers_the_embeddings_are_the_representation() -> None:
    layer = Representation(0, [(3, 2)])
    assert layer(torch.zeros(3, 0), torch.tensor([[1], [2], [3]])).shape == (3, layer.width)


def test_an_empty_batch_keeps_the_width() -> None:
    layer = Representation(2, [(3, 2)])
    assert layer(torch.zeros(0, 5, 2), torch.zeros(0, 5, 1, dtype=torch.long)).shape == (0, 5, layer.width)


def test_dropout_takes_embeddings_only_and_in_training_only() -> None:
    layer = Representation(1, [(40, 20)], dropout=0.5)
    numeric, categorical = torch.ones(200, 1), torch.full((200, 1), 7)
    in_training = layer(numeric, categorical)
    dropped = in_training[:, :-1] == 0
    assert 0.4 < dropped.float().mean() < 0.6  # 4,000 coins: 0.1 is more than twelve standard deviations
    assert (in_training[:, -1] == 1).all()
    layer.eval()
    expected = layer.get_parameter("embeddings.0.weight")[7].expand(200, -1)
    assert torch.equal(layer(numeric, categorical)[:, :-1], expected)
    assert torch.equal(in_training[:, :-1][~dropped], 2 * expected[~dropped])  # kept ones are scaled by 1 / (1 - 0.5)
