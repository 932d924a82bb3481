"""Pairwise rates in every way in which torch differentiates, in one piece and in several, under torch's compiler."""

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

# torch's own, when the forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@pytest.fixture(params=["whole", "in pieces"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small batches take the way of large ones, too."""
    if request.param == "in pieces":
        made = partial(PairOptions, plain_up_to=0, chunk_numbers=64)
        monkeypatch.setattr("pcmcnet.layers.pairwise.pairwise_rates.PairOptions", made)


def network(rate: RateForm = "exp", activation: str = "tanh", dropout: float = 0.0) -> PairwiseRates:
    """With weights that are not 0 anywhere."""
    made = PairwiseRates(
        3,
        4,
        (6, 5),
        activation=activation,  # type: ignore[arg-type]
        rate=rate,
        epsilon=0.5 if rate == "relu" else 0.0,
        dropout=dropout,
    ).double()
    gen = torch.Generator().manual_seed(0)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.5, generator=gen)
    return made


def inputs(sets: int = 3, places: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    gen = torch.Generator().manual_seed(1)
    who = torch.randn(sets, 3, generator=gen, dtype=torch.float64)
    what = torch.randn(sets, places, 4, generator=gen, dtype=torch.float64)
    return who, what, torch.arange(places) < (places - torch.arange(sets)).unsqueeze(1)


def law(net: PairwiseRates, who: Tensor, what: Tensor, mask: Tensor) -> Tensor:
    return solve_chain(net(who, what, mask), mask)


def slope(function: Callable[[Tensor], Tensor], at: Tensor, along: Tensor, step: float = 1e-5) -> Tensor:
    return (function(at + step * along) - function(at - step * along)) / (2 * step)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("rate", ["exp", "softplus", "relu"])
def test_the_law_of_a_network_has_the_tangents_of_finite_differences(rate: RateForm) -> None:
    net, (who, what, mask) = network(rate), inputs()
    along = torch.randn(what.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = slope(lambda x: law(net, who, x, mask), what, along)
    assert expected.abs().max() > 0.01
    for followed in (True, False):  # whether or not the weights have a gradient to be followed back
        net.requires_grad_(followed)
        with forward_ad.dual_level():
            dual = law(net, who, forward_ad.make_dual(what, along), mask)  # type: ignore[no-untyped-call]
            found = forward_ad.unpack_dual(dual).tangent  # type: ignore[no-untyped-call]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
        with torch.no_grad():
            same = jvp(lambda x: law(net, who, x, mask), (what,), (along,))[1]
        torch.testing.assert_close(same, found, rtol=1e-13, atol=1e-15)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_rates_have_one_jacobian_in_both_modes_and_in_the_plain_one(activation: str) -> None:
    """The largest rate of a set is a constant to all of them."""
    net, (who, what, mask) = network(activation=activation), inputs()
    forward, reverse = (way(lambda x: net(who, x, mask))(what) for way in (jacfwd, jacrev))
    torch.testing.assert_close(forward, reverse, rtol=1e-11, atol=1e-13)
    leaf = what.clone().requires_grad_()
    weight = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weight *= real_pairs(mask)
    (plain,) = torch.autograd.grad((net(who, leaf, mask) * weight).sum(), leaf)
    torch.testing.assert_close((reverse * weight[..., None, None, None]).sum((0, 1, 2)), plain, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("size")
def test_gradients_in_the_weights_are_those_of_backward() -> None:
    net, (who, what, mask) = network(), inputs()
    chosen = torch.tensor([0, 1, 2])

    def loss(weights: dict[str, Tensor]) -> Tensor:
        p = solve_chain(functional_call(net, weights, (who, what, mask)), mask)
        return -log_probabilities(p, mask).gather(1, chosen.unsqueeze(1)).sum()

    found = grad(loss)(dict(net.named_parameters()))
    loss(dict(net.named_parameters())).backward()  # type: ignore[no-untyped-call]
    for name, weight in net.named_parameters():
        torch.testing.assert_close(found[name], weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("size")
def test_vmap_of_grad_gives_the_gradient_of_each_set() -> None:
    """As of per-sample gradients: the mean of them is the gradient of the batch."""
    net, (who, what, mask) = network(), inputs()
    weights = {name: weight.detach() for name, weight in net.named_parameters()}

    def loss(weights: dict[str, Tensor], who: Tensor, what: Tensor, mask: Tensor) -> Tensor:
        rates = functional_call(net, weights, (who[None], what[None], mask[None]))
        return stationary_distribution(rates, mask[None])[0, 0].log()

    each = vmap(grad(loss), in_dims=(None, 0, 0, 0))(weights, who, what, mask)
    law(net, who, what, mask)[:, 0].log().sum().backward()  # type: ignore[no-untyped-call]
    for name, weight in net.named_parameters():
        torch.testing.assert_close(each[name].sum(0), weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("size")
def test_second_derivatives_are_those_of_finite_differences() -> None:
    net, (who, what, mask) = network(), inputs(2, 3)

    def loss(x: Tensor) -> Tensor:
        return law(net, who, x, mask)[:, 0].log().sum()

    along = torch.randn(what.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    expected = slope(grad(loss), what, along)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close((hessian(loss)(what) * along).sum((3, 4, 5)), expected, rtol=1e-6, atol=1e-8)
    leaf = what.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (found,) = torch.autograd.grad((first * along).sum(), leaf)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("size")
def test_second_derivatives_in_pieces_are_no_zero_where_the_gradient_is_a_constant() -> None:
    """The scores' sum has a gradient of ones, which asks for no derivative itself."""
    net, (who, what, mask) = network(), inputs()
    leaf = what.clone().requires_grad_()
    full = torch.ones_like(mask)
    (first,) = torch.autograd.grad(net.scores(who, leaf, full).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), leaf)
    expected = grad(lambda x: grad(lambda y: net.scores(who, y, full).sum())(x).square().sum())(what)
    torch.testing.assert_close(second, expected, rtol=1e-9, atol=1e-11)
    assert second.abs().max() > 0.01


def test_second_derivatives_with_dropout_in_pieces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.layers.pairwise.pairwise_rates.PairOptions", partial(PairOptions, plain_up_to=0))
    net, (who, what, mask) = network(dropout=0.5), inputs()
    leaf = what.clone().requires_grad_()
    with pytest.raises(PcmcNetError, match=r"call eval\(\) on the module first, or use dropout=0"):
        torch.autograd.grad(net(who, leaf, mask).sum(), leaf, create_graph=True)
    net.eval()
    (first,) = torch.autograd.grad(net(who, leaf, mask).sum(), leaf, create_graph=True)
    assert first.requires_grad


@pytest.mark.parametrize(("hidden", "dropout"), [pytest.param((), 0.0, marks=pytest.mark.slow), ((6, 5), 0.5)])
def test_a_network_and_its_law_are_compiled_in_one_graph(hidden: tuple[int, ...], dropout: float) -> None:
    torch.compiler.reset()
    net, (who, what, mask) = PairwiseRates(3, 4, hidden, dropout=dropout), inputs()
    torch.nn.init.normal_(net.output.weight)
    who, what = who.float(), what.float()

    def loss(x: Tensor) -> Tensor:
        return stationary_distribution(net(who, x, mask), mask)[:, 0].log().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    leaf = what.clone().requires_grad_()
    (found,) = torch.autograd.grad(compiled(leaf), leaf)
    assert found.abs().max() > 0
    net.eval()
    (found,) = torch.autograd.grad(compiled(leaf), leaf)
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_without_the_private_switch_of_torch_all_goes_the_way_of_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slower, and the same numbers: p = (3, 1) / 4, and d p_0 / d q_01 = -q_10 / (q_01 + q_10)^2."""
    monkeypatch.setattr(tensor_ops, "_is_transform_active", lambda: True)
    rates = torch.tensor([[0.0, 1.0], [3.0, 0.0]], requires_grad=True)
    p = stationary_distribution(rates)
    p[0].backward()  # type: ignore[no-untyped-call]
    assert p.tolist() == [0.75, 0.25]
    assert rates.grad is not None
    assert rates.grad.tolist() == [[0.0, -3 / 16], [1 / 16, 0.0]]


def test_dropout_of_pairs_answers_to_vmap() -> None:
    net = PairwiseRates(0, 3, hidden=(8, 8), dropout=0.5)
    torch.nn.init.normal_(net.output.weight)  # 0 at the start

    def one(x: Tensor) -> Tensor:
        return net(x.new_zeros(1, 0), x[None], torch.ones(1, 4, dtype=torch.bool))[0]

    given = torch.randn(1, 4, 3).expand(6, 4, 3)
    same, different = (vmap(one, randomness=how)(given) for how in ("same", "different"))
    torch.testing.assert_close(same[0], same[5])
    assert not torch.equal(different[0], different[5])


def test_no_sets_have_an_empty_jacobian() -> None:
    net = PairwiseRates(0, 3, hidden=(4,))
    found = jacfwd(lambda x: net(x[:, 0, :0], x, torch.ones(0, 2, dtype=torch.bool)))(torch.zeros(0, 2, 3))
    assert found.shape == (0, 2, 2, 0, 2, 3)
