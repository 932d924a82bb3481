"""Dropout drops the share it should, keeps the mean, and only in training."""

import pytest
import torch

from pcmcnet.layers.dropout import Dropout, random_mask


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(100_003,), (7, 3, 5_000)])
def test_a_share_of_entries_is_dropped_and_the_others_are_scaled(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    out = Dropout(p)(torch.ones(shape))
    dropped = (out == 0).double().mean().item()
    spread = (p * (1 - p) / out.numel()) ** 0.5
    assert abs(dropped - p) < 4 * spread  # four standard errors of a share, with a fixed seed
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 1 / (1 - p)))


@pytest.mark.parametrize(("p", "bits", "dropped"), [(0.5, 8, 128), (3 / 256, 8, 3), (0.3, 16, 19_661)])
def test_exactly_the_lowest_numbers_that_an_entry_can_draw_are_dropped(p: float, bits: int, dropped: int) -> None:
    """0.3 of 65,536 is 19,660.8; one number more or less would hide in the noise of any share that is counted."""
    kind = {8: torch.int8, 16: torch.int16}[bits]
    drawn = torch.empty(2**16, dtype=torch.int64).random_(-(2**63), None, generator=torch.Generator().manual_seed(0))
    numbers = drawn.view(kind).int() + 2 ** (bits - 1)  # 0 to 2^bits - 1
    edge = (numbers == dropped) | (numbers == dropped - 1)
    assert edge.any()
    mask = random_mask(numbers.shape, p, torch.Generator().manual_seed(0))
    assert torch.equal(mask == 0, numbers < dropped)


@pytest.mark.parametrize(("p", "share"), [(0.5, 8), (0.3, 4)])
def test_neighbours_that_share_a_random_number_are_independent(p: float, share: int) -> None:
    """Entries share * k and share * k + m come from one number: their correlation is that of chance, 1 / sqrt(n)."""
    torch.manual_seed(1)
    groups = Dropout(p)(torch.ones(400_000)).view(-1, share).double()
    correlation = torch.corrcoef(groups.T) - torch.eye(share, dtype=torch.float64)
    assert correlation.abs().max() < 4 / len(groups) ** 0.5


def test_the_gradient_passes_where_the_entry_was_kept() -> None:
    torch.manual_seed(2)
    x = torch.randn(1_000, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, out.detach() / x.detach())


def test_nothing_happens_outside_training_or_without_a_share() -> None:
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_mask_follows_the_seed() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.5)(torch.ones(100))

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


def test_a_mask_drawn_from_a_generator_leaves_the_global_one_alone() -> None:
    before = torch.get_rng_state()
    masks = [random_mask((3, 7), 0.5, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert masks[0].dtype == torch.int8
    assert set(masks[0].unique().tolist()) == {0, 1}
