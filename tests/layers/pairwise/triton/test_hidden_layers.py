"""The pair network in bfloat16 on a GPU matches the formula up to rounding, and inputs keep 16 bits."""

import pytest
import torch
from torch import Tensor, nn

from pcmcnet.layers.pairwise.cpu import plain_scores
from pcmcnet.layers.pairwise.rate_forms import PairOptions

pytestmark = pytest.mark.gpu


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", requires_grad=True)


@pytest.mark.parametrize(
    ("sets", "places", "width", "known", "units"),
    [(30, 5, 7, 4, 64), (20, 3, 70, 0, 128), (40, 4, 33, 66, 128), (64, 33, 39, 60, 512)],
)
def test_values_and_gradients_match_the_formula(sets: int, places: int, width: int, known: int, units: int) -> None:
    from pcmcnet.layers.pairwise.triton.hidden_layers import FirstLayer
    from pcmcnet.layers.pairwise.triton.network import scores_of_inputs

    torch.manual_seed(0)
    first = FirstLayer(
        normal(sets, known),
        normal(sets, places, width),
        *(
            (torch.randn(units, k, device="cuda") / (2 * width + known) ** 0.5).requires_grad_()
            for k in (known, width, width)
        ),
        normal(units),
    )
    layers = nn.ModuleList([nn.Linear(units, units), nn.Linear(units, 1)]).cuda()
    flat = [(layer.weight, layer.bias) for layer in layers]
    mask = torch.arange(places, device="cuda") < torch.randint(2, places + 1, (sets, 1), device="cuda")
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1) & ~torch.eye(places, dtype=torch.bool, device="cuda")
    by = torch.randn(sets, places, places, device="cuda")

    def all_of(scores: Tensor) -> list[Tensor]:
        inputs = [t for t in first if t.numel()]
        return [scores.detach(), *torch.autograd.grad((scores * by).sum(), [*inputs, *layers.parameters()])]

    actual = all_of(scores_of_inputs(first, flat, PairOptions(activation="leaky_relu", dtype=torch.bfloat16), mask))
    leave = first.alternatives @ first.leave.T + (first.individual @ first.who.T).unsqueeze(1)
    enter = first.alternatives @ first.enter.T + first.bias
    plain = plain_scores(leave, enter, flat, PairOptions(activation="leaky_relu"))
    expected = all_of(plain.where(pairs, plain.new_zeros(())))
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(actual, expected, strict=True)]
    assert errors[0] < 0.02
    assert max(errors) < 0.1  # 8 bits move about one unit in a hundred across its kink, to the other slope


def test_inputs_keep_16_bits_and_their_positions() -> None:
    from pcmcnet.layers.pairwise.triton.hidden_layers import FirstLayer, halves, packed_inputs

    torch.manual_seed(0)
    sets, places, width, individual_width, units = 5, 3, 9, 6, 16
    individual, alternatives = (
        torch.randn(sets, individual_width, device="cuda"),
        100 + torch.randn(sets, places, width, device="cuda"),
    )
    who, leave, enter = (
        torch.randint(-4, 5, (units, k), device="cuda").float() for k in (individual_width, width, width)
    )
    first = FirstLayer(individual, alternatives, who, leave, enter, torch.arange(units, device="cuda").float())
    left, entered = halves(first, packed_inputs(first))
    exact_left = alternatives.double() @ leave.double().T + (individual.double() @ who.double().T).unsqueeze(1)
    exact_entered = alternatives.double() @ enter.double().T + torch.arange(units, device="cuda")
    for rounded, exact in ((left, exact_left), (entered, exact_entered)):
        assert float((rounded - exact).abs().max()) < 100 * 4 * width * 2**-16
