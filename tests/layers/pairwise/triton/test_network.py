"""The fused pair network on a GPU matches the plain formula: values, gradients and dropout."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcmcnet.layers.pairwise.cpu import plain_scores
from pcmcnet.layers.pairwise.rate_forms import PairOptions
from pcmcnet.layers.perceptron import ACTIVATIONS

pytestmark = pytest.mark.gpu

Fused = Callable[..., Tensor]


@pytest.fixture
def fused() -> Fused:
    """Return a function that computes fused scores of layers, with options by name."""
    from pcmcnet.layers.pairwise.triton.network import scores_of_halves

    def scores(
        leave: Tensor, enter: Tensor, layers: nn.ModuleList, mask: Tensor | None = None, **options: Any
    ) -> Tensor:
        arguments: dict[str, Any] = {"activation": "leaky_relu", "dropout": 0.0, "dtype": torch.float32}
        flat = [(layer.weight, layer.bias) for layer in layers]
        return scores_of_halves(leave, enter, flat, PairOptions(**{**arguments, **options}), mask)

    return scores


def problem(sets: int, places: int, hidden: tuple[int, ...], *, seed: int = 0) -> tuple[Tensor, Tensor, nn.ModuleList]:
    torch.manual_seed(seed)
    leave, enter = (torch.randn(sets, places, hidden[0], device="cuda", requires_grad=True) for _ in range(2))
    layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise((*hidden, 1))).cuda()
    return leave, enter, layers


def gradients(scores: Tensor, leave: Tensor, enter: Tensor, layers: nn.ModuleList) -> list[Tensor]:
    by = torch.randn(scores.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    return [scores.detach(), *torch.autograd.grad((scores * by).sum(), [leave, enter, *layers.parameters()])]


def relative(actual: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest error of a tensor relative to its norm."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(actual, expected, strict=True))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("sets", "places", "hidden"),
    [(5, 7, (16, 24)), (2, 3, (7, 5, 6)), (1, 70, (8, 8)), (16, 50, (128, 256)), (3, 1, (8, 8))],
)
@pytest.mark.parametrize(("kept", "chunk"), [(1 << 30, 1 << 19), (0, 30), (1 << 30, 64)])
def test_values_and_gradients_match_the_formula(
    fused: Fused, activation: str, sets: int, places: int, hidden: tuple[int, ...], kept: int, chunk: int
) -> None:
    inputs = problem(sets, places, hidden)
    flat = [(layer.weight, layer.bias) for layer in inputs[2]]
    plain = plain_scores(inputs[0], inputs[1], flat, PairOptions(activation=activation))
    actual = gradients(fused(*inputs, activation=activation, kept_bytes=kept, chunk_pairs=chunk), *inputs)
    assert relative(actual, gradients(plain, *inputs)) < 1e-4  # float32; a unit at its kink may be on either side


def ragged(sets: int, places: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return masks of sets of all sizes from 1 to the largest, and of their pairs of different alternatives."""
    sizes = torch.randint(1, places + 1, (sets,), generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(places) < sizes.unsqueeze(1)).cuda()
    return mask, mask.unsqueeze(2) & mask.unsqueeze(1) & ~torch.eye(places, dtype=torch.bool, device="cuda")


@pytest.mark.parametrize(
    ("sets", "places", "hidden"),
    [
        (5, 7, (16, 24)),
        (7, 3, (7, 5, 6)),
        (2, 70, (8, 8)),
        (40, 20, (128, 256)),
        (33, 9, (128, 128, 128)),
        (3, 1, (8, 8)),
    ],
)
@pytest.mark.parametrize(("kept", "chunk"), [(1 << 30, 1 << 19), (0, 30), (0, 200)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sets_of_different_sizes_ignore_padding(
    fused: Fused, sets: int, places: int, hidden: tuple[int, ...], kept: int, chunk: int, dtype: torch.dtype
) -> None:
    inputs, (mask, pairs) = problem(sets, places, hidden), ragged(sets, places)
    flat = [(layer.weight, layer.bias) for layer in inputs[2]]
    plain = plain_scores(inputs[0], inputs[1], flat, PairOptions(activation="leaky_relu"))
    actual = gradients(fused(*inputs, mask, kept_bytes=kept, chunk_pairs=chunk, dtype=dtype), *inputs)
    expected = gradients(plain.where(pairs, plain.new_zeros(())), *inputs)
    if not bool(pairs.any()):
        assert all(float(tensor.abs().max()) == 0 for tensor in actual)
    else:
        assert relative(actual, expected) < (1e-4 if dtype == torch.float32 else 0.1)  # see the test below


@pytest.mark.parametrize("hidden", [(128, 128), (512, 512), (384, 512), (512, 640), (256, 128, 136), (64, 64)])
def test_bfloat16_matches_float32_up_to_rounding(fused: Fused, hidden: tuple[int, ...]) -> None:
    inputs = problem(8, 33, hidden)
    exact, rounded = (gradients(fused(*inputs, dtype=t), *inputs) for t in (torch.float32, torch.bfloat16))
    assert relative(rounded, exact) < 0.1  # 8 bits move about one unit in a hundred across its kink, to the other slope
    assert relative(rounded[:1], exact[:1]) < 0.01  # the scores themselves


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("hidden", [(512, 512), (384, 128), (640, 128), (128, 256), (64, 64), (128, 128, 128)])
def test_without_gradients_the_scores_are_the_same(fused: Fused, hidden: tuple[int, ...], dtype: torch.dtype) -> None:
    leave, enter, layers = problem(9, 21, hidden)
    with_gradients = fused(leave, enter, layers, dtype=dtype).detach()
    with torch.no_grad():
        actual = fused(leave, enter, layers, dtype=dtype)
    assert float((actual - with_gradients).norm() / with_gradients.norm()) < (1e-5 if dtype == torch.float32 else 0.01)


@pytest.mark.parametrize("hidden", [(16, 16), (128, 256)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recomputed_dropout_has_the_same_mask(fused: Fused, hidden: tuple[int, ...], dtype: torch.dtype) -> None:
    inputs = problem(4, 9, hidden)
    results = []
    for kept, chunk in ((1 << 30, 1 << 19), (0, 50)):
        torch.manual_seed(3)
        results.append(gradients(fused(*inputs, dropout=0.5, dtype=dtype, kept_bytes=kept, chunk_pairs=chunk), *inputs))
    assert relative(*results) < (1e-5 if dtype == torch.float32 else 0.005)  # sums in another order


def test_gradients_with_dropout_match_finite_differences(fused: Fused) -> None:
    leave, enter, layers = problem(2, 4, (8, 8))

    def value() -> Tensor:
        torch.manual_seed(5)
        return fused(leave, enter, layers, activation="tanh", dropout=0.4).double().square().sum()

    parameters = [leave, enter, *layers.parameters()]
    for parameter, gradient in zip(parameters, torch.autograd.grad(value(), parameters), strict=True):
        way = torch.randn_like(parameter)
        with torch.no_grad():
            parameter.add_(way, alpha=1e-2)
            up = value()
            parameter.sub_(way, alpha=2e-2)
            down = value()
            parameter.add_(way, alpha=1e-2)
        torch.testing.assert_close((up - down) / 2e-2, (gradient * way).sum().double(), rtol=0.01, atol=0.02)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_units_are_dropped_independently_with_their_probability(fused: Fused, p: float) -> None:
    """With weights that pick single units, scores are 0 or 1 / (1 - p) times the unit: the mask itself."""
    width = 64
    layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, 1)]).cuda()
    leave, enter = torch.ones(16, 40, width, device="cuda"), torch.zeros(16, 40, width, device="cuda")
    masks = []
    with torch.no_grad():
        layers[0].weight.zero_()
        layers[0].bias.fill_(1.0)
        layers[1].bias.zero_()
        for unit in range(4):
            layers[1].weight.zero_()[0, unit] = 1.0
            torch.manual_seed(0)
            scores = fused(leave, enter, layers, dropout=p)
            assert sorted(scores.unique().tolist()) == pytest.approx([0.0, 1 / (1 - p)])
            masks.append((scores > 0).double().flatten())
    stacked = torch.stack(masks)
    n, share = stacked.shape[1], 1 - p
    assert float((stacked.mean(1) - share).abs().max()) < 5 * (p * share / n) ** 0.5
    assert float((torch.corrcoef(stacked) - torch.eye(4, device="cuda")).abs().max()) < 5 / n**0.5
    triple = (stacked[0] - share) * (stacked[1] - share) * (stacked[2] - share)
    assert abs(float(triple.mean())) < 5 * (p * share) ** 1.5 / n**0.5


def test_a_large_set_is_scored_within_the_budget(fused: Fused) -> None:
    leave, enter, layers = problem(1, 1_000, (512, 512))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fused(leave, enter, layers, dtype=torch.bfloat16, dropout=0.5, kept_bytes=0, chunk_pairs=1 << 17).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 1 << 30  # all pairs by units in bfloat16 take 1 GiB, four times


def test_more_sets_than_a_kernel_grid_can_be_scored(fused: Fused) -> None:
    leave, enter, layers = problem(70_000, 2, (4, 4))
    mask = torch.ones(70_000, 2, dtype=torch.bool, device="cuda")
    actual = gradients(fused(leave, enter, layers, mask), leave, enter, layers)
    flat = [(layer.weight, layer.bias) for layer in layers]
    plain = plain_scores(leave, enter, flat, PairOptions(activation="leaky_relu"))
    pairs = ~torch.eye(2, dtype=torch.bool, device="cuda")
    assert relative(actual, gradients(plain.where(pairs, plain.new_zeros(())), leave, enter, layers)) < 1e-4
