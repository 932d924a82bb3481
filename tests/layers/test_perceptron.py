import torch

from pcmcnet.layers.perceptron import Perceptron


def test_the_layers_are_those_of_the_formula_written_out() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Perceptron(3, (4, 2), activation="tanh", start="spread").double()
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(1)).double()
    first, last = net.layers
    expected = torch.tanh(x @ first.weight.T + first.bias) @ last.weight.T + last.bias  # type: ignore[operator]
    torch.testing.assert_close(net(x), expected, rtol=1e-14, atol=1e-14)
    assert net(x).abs().min() > 0


def test_it_starts_at_nothing_and_still_learns() -> None:
    net = Perceptron(3, (4, 1))
    out = net(torch.ones(5, 3))
    assert (out == 0).all()
    out.sum().backward()
    grad = net.layers[-1].weight.grad
    assert grad is not None
    assert grad.any()  # type: ignore[operator]


def test_dropout_is_for_training_alone() -> None:
    net = Perceptron(3, (64, 1), dropout=0.5, start="spread")
    x = torch.ones(1, 3)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
