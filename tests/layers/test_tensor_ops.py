"""Pairwise rates in all modes of differentiation, in one chunk and in several, and under torch's compiler."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers import PairwiseRates, log_probabilities, solve_chain, stationary_distribution, tensor_ops
from pcmcnet.layers.pairwise import RateForm
from pcmcnet.layers.pairwise.rate_forms import PairOptions
from pcmcnet.layers.perceptron import ACTIVATIONS
from pcmcnet.layers.tensor_ops import real_pairs

# a warning of torch at the first use of its forward mode
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@pytest.fixture(params=["whole", "in chunks"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute small batches also in chunks, as large ones are."""
    if request.param == "in chunks":
        chunked = partial(PairOptions, plain_up_to=0, chunk_numbers=64)
        monkeypatch.setattr("pcmcnet.layers.pairwise.pairwise_rates.PairOptions", chunked)


def network(rate: RateForm = "exp", activation: str = "tanh", dropout: float = 0.0) -> PairwiseRates:
    """Make a network without zero weights."""
    rates = PairwiseRates(
        3,
        4,
        (6, 5),
        activation=activation,  # type: ignore[arg-type]
        rate=rate,
        epsilon=0.5 if rate == "relu" else 0.0,
        dropout=dropout,
    ).double()
    gen = torch.Generator().manual_seed(0)
    for weight in rates.parameters():
        torch.nn.init.normal_(weight, std=0.5, generator=gen)
    return rates


def inputs(sets: int = 3, places: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    gen = torch.Generator().manual_seed(1)
    individual = torch.randn(sets, 3, generator=gen, dtype=torch.float64)
    alternatives = torch.randn(sets, places, 4, generator=gen, dtype=torch.float64)
    return individual, alternatives, torch.arange(places) < (places - torch.arange(sets)).unsqueeze(1)


def distribution_of(net: PairwiseRates, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
    return solve_chain(net(individual, alternatives, mask), mask)


def slope(function: Callable[[Tensor], Tensor], at: Tensor, along: Tensor, step: float = 1e-5) -> Tensor:
    return (function(at + step * along) - function(at - step * along)) / (2 * step)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("rate", ["exp", "softplus", "relu"])
def test_tangents_of_a_network_match_finite_differences(rate: RateForm) -> None:
    net, (individual, alternatives, mask) = network(rate), inputs()
    along = torch.randn(alternatives.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = slope(lambda x: distribution_of(net, individual, x, mask), alternatives, along)
    assert expected.abs().max() > 0.01
    for followed in (True, False):  # whether or not the weights require a gradient
        net.requires_grad_(followed)
        with forward_ad.dual_level():
            dual = distribution_of(net, individual, forward_ad.make_dual(alternatives, along), mask)  # type: ignore[no-untyped-call]
            actual = forward_ad.unpack_dual(dual).tangent  # type: ignore[no-untyped-call]
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-8)
        with torch.no_grad():
            by_jvp = jvp(lambda x: distribution_of(net, individual, x, mask), (alternatives,), (along,))[1]
        torch.testing.assert_close(by_jvp, actual, rtol=1e-13, atol=1e-15)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_all_modes_give_the_same_jacobian_of_rates(activation: str) -> None:
    """All modes treat the largest rate of a set as a constant."""
    net, (individual, alternatives, mask) = network(activation=activation), inputs()
    forward, reverse = (way(lambda x: net(individual, x, mask))(alternatives) for way in (jacfwd, jacrev))
    torch.testing.assert_close(forward, reverse, rtol=1e-11, atol=1e-13)
    leaf = alternatives.clone().requires_grad_()
    weight = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weight *= real_pairs(mask)
    (plain,) = torch.autograd.grad((net(individual, leaf, mask) * weight).sum(), leaf)
    torch.testing.assert_close((reverse * weight[..., None, None, None]).sum((0, 1, 2)), plain, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("size")
def test_torch_func_gradients_of_weights_match_backward() -> None:
    net, (individual, alternatives, mask) = network(), inputs()
    chosen = torch.tensor([0, 1, 2])

    def loss(weights: dict[str, Tensor]) -> Tensor:
        p = solve_chain(functional_call(net, weights, (individual, alternatives, mask)), mask)
        return -log_probabilities(p, mask).gather(1, chosen.unsqueeze(1)).sum()

    actual = grad(loss)(dict(net.named_parameters()))
    loss(dict(net.named_parameters())).backward()  # type: ignore[no-untyped-call]
    for name, weight in net.named_parameters():
        torch.testing.assert_close(actual[name], weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("size")
def test_vmap_of_grad_gives_the_gradient_of_each_set() -> None:
    """The mean of the per-set gradients is the gradient of the batch."""
    net, (individual, alternatives, mask) = network(), inputs()
    weights = {name: weight.detach() for name, weight in net.named_parameters()}

    def loss(weights: dict[str, Tensor], individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        rates = functional_call(net, weights, (individual[None], alternatives[None], mask[None]))
        return stationary_distribution(rates, mask[None])[0, 0].log()

    each = vmap(grad(loss), in_dims=(None, 0, 0, 0))(weights, individual, alternatives, mask)
    distribution_of(net, individual, alternatives, mask)[:, 0].log().sum().backward()  # type: ignore[no-untyped-call]
    for name, weight in net.named_parameters():
        torch.testing.assert_close(each[name].sum(0), weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("size")
def test_second_derivatives_match_finite_differences() -> None:
    net, (individual, alternatives, mask) = network(), inputs(2, 3)

    def loss(x: Tensor) -> Tensor:
        return distribution_of(net, individual, x, mask)[:, 0].log().sum()

    along = torch.randn(alternatives.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    expected = slope(grad(loss), alternatives, along)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close((hessian(loss)(alternatives) * along).sum((3, 4, 5)), expected, rtol=1e-6, atol=1e-8)
    leaf = alternatives.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (actual,) = torch.autograd.grad((first * along).sum(), leaf)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("size")
def test_second_derivatives_in_chunks_work_with_a_constant_gradient() -> None:
    """The sum of scores has a constant gradient of ones, which requires no gradient."""
    net, (individual, alternatives, mask) = network(), inputs()
    leaf = alternatives.clone().requires_grad_()
    full = torch.ones_like(mask)
    (first,) = torch.autograd.grad(net.scores(individual, leaf, full).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), leaf)
    expected = grad(lambda x: grad(lambda y: net.scores(individual, y, full).sum())(x).square().sum())(alternatives)
    torch.testing.assert_close(second, expected, rtol=1e-9, atol=1e-11)
    assert second.abs().max() > 0.01


def test_second_derivatives_with_dropout_in_chunks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.layers.pairwise.pairwise_rates.PairOptions", partial(PairOptions, plain_up_to=0))
    net, (individual, alternatives, mask) = network(dropout=0.5), inputs()
    leaf = alternatives.clone().requires_grad_()
    with pytest.raises(PcmcNetError, match=r"call eval\(\) on the module first, or use dropout=0"):
        torch.autograd.grad(net(individual, leaf, mask).sum(), leaf, create_graph=True)
    net.eval()
    (first,) = torch.autograd.grad(net(individual, leaf, mask).sum(), leaf, create_graph=True)
    assert first.requires_grad


@pytest.mark.parametrize(("hidden", "dropout"), [pytest.param((), 0.0, marks=pytest.mark.slow), ((6, 5), 0.5)])
def test_network_and_distribution_compile_to_one_graph(hidden: tuple[int, ...], dropout: float) -> None:
    torch.compiler.reset()
    net, (individual, alternatives, mask) = PairwiseRates(3, 4, hidden, dropout=dropout), inputs()
    torch.nn.init.normal_(net.output.weight)
    individual, alternatives = individual.float(), alternatives.float()

    def loss(x: Tensor) -> Tensor:
        return stationary_distribution(net(individual, x, mask), mask)[:, 0].log().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    leaf = alternatives.clone().requires_grad_()
    (actual,) = torch.autograd.grad(compiled(leaf), leaf)
    assert actual.abs().max() > 0
    net.eval()
    (actual,) = torch.autograd.grad(compiled(leaf), leaf)
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_derivatives_work_without_the_private_switch_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is slower but gives the same: p = (3, 1) / 4, and d p_0 / d q_01 = -q_10 / (q_01 + q_10)^2."""
    monkeypatch.setattr(tensor_ops, "_is_transform_active", lambda: True)
    rates = torch.tensor([[0.0, 1.0], [3.0, 0.0]], requires_grad=True)
    p = stationary_distribution(rates)
    p[0].backward()  # type: ignore[no-untyped-call]
    assert p.tolist() == [0.75, 0.25]
    assert rates.grad is not None
    assert rates.grad.tolist() == [[0.0, -3 / 16], [1 / 16, 0.0]]


def test_dropout_of_pairs_obeys_the_randomness_of_vmap() -> None:
    net = PairwiseRates(0, 3, hidden=(8, 8), dropout=0.5)
    torch.nn.init.normal_(net.output.weight)  # 0 at the start

    def one(x: Tensor) -> Tensor:
        return net(x.new_zeros(1, 0), x[None], torch.ones(1, 4, dtype=torch.bool))[0]

    inputs = torch.randn(1, 4, 3).expand(6, 4, 3)
    same, different = (vmap(one, randomness=how)(inputs) for how in ("same", "different"))
    torch.testing.assert_close(same[0], same[5])
    assert not torch.equal(different[0], different[5])


def test_an_empty_batch_has_an_empty_jacobian() -> None:
    net = PairwiseRates(0, 3, hidden=(4,))
    actual = jacfwd(lambda x: net(x[:, 0, :0], x, torch.ones(0, 2, dtype=torch.bool)))(torch.zeros(0, 2, 3))
    assert actual.shape == (0, 2, 2, 0, 2, 3)
