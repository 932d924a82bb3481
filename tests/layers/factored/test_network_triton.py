"""The bfloat16 kernels of the network of the factors, against float64, and their dropout."""

from itertools import chain

import pytest
import torch
from torch import Tensor, nn

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers.factored import FactoredRates
from pcmcnet.layers.generators import SeededGenerators, drawing_from

pytestmark = pytest.mark.gpu


def inputs_of(d_individual: int, d: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    individual = torch.randn(6, d_individual, generator=generator).cuda().requires_grad_()
    return individual, torch.randn(6, 21, d, generator=generator).cuda().requires_grad_()


def gradients(network: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """Return log u, log v, and the gradients by inputs and weights."""
    outputs = network(*inputs)
    weights = [torch.arange(x.numel(), device="cuda").cos().view(x.shape).to(x.dtype) for x in outputs]
    leaves = [x for x in chain(inputs, network.parameters()) if x.numel()]
    return [*(x.detach() for x in outputs), *torch.autograd.grad(outputs, leaves, weights)]


def relative_error(actual: Tensor, exact: Tensor) -> float:
    return float((actual.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("activation", ["tanh", "silu", "sigmoid", "gelu"])
@pytest.mark.parametrize("hidden", [(128,), (128, 136), (40, 24, 16)])
@pytest.mark.parametrize("d_individual", [0, 7])
def test_values_and_gradients_are_as_precise_as_operators_in_bfloat16(
    d_individual: int, hidden: tuple[int, ...], activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error is relative to the norm of its tensor. It is below 3%, or twice the error of PyTorch's operators."""
    torch.manual_seed(0)
    network = FactoredRates(d_individual, 5, 3, hidden, activation=activation, precision="bfloat16").cuda()  # type: ignore[arg-type]
    inputs = inputs_of(d_individual, 5)
    assert network._has_kernels(inputs[1])
    ours = gradients(network, *inputs)
    monkeypatch.setattr(FactoredRates, "_has_kernels", lambda self, inputs: False)
    operators = gradients(network, *inputs)
    network.precision = "float32"  # of the hidden layers, if the inputs are not in float64
    exact = gradients(network.double(), *(x.detach().double().requires_grad_() for x in inputs))
    for a, b, c in zip(ours, operators, exact, strict=True):
        assert relative_error(a, c) < max(0.03, 2 * relative_error(b, c))


def test_float32_and_bfloat16_differ_by_rounding_only() -> None:
    torch.manual_seed(0)
    network = FactoredRates(7, 5, 3, (128, 128)).cuda()
    inputs = inputs_of(7, 5)
    ours = network(*inputs)
    network.precision = "float32"
    for a, b in zip(ours, network(*inputs), strict=True):
        assert a.dtype == torch.float32
        assert 0 < relative_error(a.detach(), b.detach().double()) < 0.02


def test_dropout_scales_the_remaining_units() -> None:
    """With weights of 1, biases of 1 and inputs of 0, an output is the number of remaining units, doubled."""
    network = FactoredRates(0, 5, 2, (256,), dropout=0.5, precision="bfloat16").cuda()
    with torch.no_grad():
        network.what.bias.fill_(1.0)
        last = network.layers[0]
        assert isinstance(last, nn.Linear)
        last.weight.fill_(1.0)
    individual, alternatives = torch.zeros(200, 0, device="cuda"), torch.zeros(200, 10, 5, device="cuda")
    with drawing_from(SeededGenerators(1)):
        log_u, log_v = network(individual, alternatives)
    counts = log_u[..., 0] / 2
    assert torch.equal(log_u, log_v)
    assert torch.equal(counts, counts.round())
    assert abs(float(counts.mean()) - 128) < 1  # standard error 8 / sqrt(2000)
    assert 6 < float(counts.std()) < 10
    with drawing_from(SeededGenerators(1)):
        assert torch.equal(network(individual, alternatives)[0], log_u)
    assert torch.equal(network.eval()(individual, alternatives)[0], torch.full_like(log_u, 256))


def test_the_backward_pass_drops_the_units_of_the_forward_pass() -> None:
    """With biases of 1, inputs of 0 and an identity as output layer, output k is 2 if unit k remains, otherwise 0.

    All weights of the gradient are small whole numbers, so bfloat16 is exact.
    """
    network = FactoredRates(0, 5, 128, (256,), dropout=0.5, precision="bfloat16").cuda()
    with torch.no_grad():
        network.what.bias.fill_(1.0)
        last = network.layers[0]
        assert isinstance(last, nn.Linear)
        last.weight.copy_(torch.eye(256))
    out = torch.cat(network(torch.zeros(200, 0, device="cuda"), torch.zeros(200, 10, 5, device="cuda")), -1)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    weight = torch.randint(-8, 9, out.shape, device="cuda").float()
    by_bias, by_last = torch.autograd.grad(out, (network.what.bias, last.weight), weight)
    assert torch.equal(by_bias, (out * weight).sum((0, 1)))
    assert torch.equal(by_last, weight.flatten(0, 1).T @ out.flatten(0, 1))


def test_second_derivatives_are_refused() -> None:
    network = FactoredRates(0, 5, 2, (128,)).cuda()
    inputs = inputs_of(0, 5)
    with pytest.raises(PcmcNetError, match=r"second derivatives are not supported .* use torch.func"):
        torch.autograd.grad(network(*inputs)[0].sum(), network.what.weight, create_graph=True)
