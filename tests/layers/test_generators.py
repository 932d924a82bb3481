"""Separate generators give torch's numbers for a seed and leave the global state unchanged."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.layers.generators import SeededGenerators, drawing_from, generator_on, kernel_seeds, redirect_draws
from pcmcnet.layers.pairwise import PairwiseRates
from pcmcnet.layers.perceptron import apply_dropout

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def state() -> Iterator[None]:
    """Check that the state of the global generator does not change."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


def globally(seed: int, function: Callable[[], Tensor]) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return function()


def test_no_generator_is_active_outside_a_block() -> None:
    assert generator_on(CPU) is None
    with drawing_from(draws := SeededGenerators(1)):
        assert generator_on(CPU) is draws.on(CPU)
    assert generator_on(CPU) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda: apply_dropout(torch.ones(100), 0.5),
        lambda: F.dropout(torch.ones(100), 0.5),
        lambda: F.alpha_dropout(torch.ones(100), 0.5, training=True),
        lambda: torch.rand(10),
        lambda: torch.randn(3, 4),
        lambda: torch.randperm(20),
        lambda: torch.randint(5, (9,)),
        lambda: torch.rand_like(torch.ones(5)),
        lambda: torch.bernoulli(torch.full((20,), 0.5)),
        lambda: torch.multinomial(torch.ones(10), 5),
        lambda: nn.Linear(4, 3).weight.detach(),
        lambda: nn.LSTM(4, 3, 2, dropout=0.5)(torch.ones(2, 4))[0].detach(),
        lambda: F.gumbel_softmax(torch.zeros(5)),
    ],
)
def test_redirected_code_draws_the_numbers_of_the_seed(
    function: Callable[[], Tensor],
) -> None:
    expected = globally(7, lambda: torch.stack([function(), function()]))
    with drawing_from(draws := SeededGenerators(0)):
        draws.on(CPU)
        draws.seed(7)
        with redirect_draws():
            actual = torch.stack([function(), function()])
        draws.seed(7)
        with redirect_draws():
            repeated = torch.stack([function(), function()])
    assert torch.equal(actual, expected)
    assert torch.equal(repeated, expected)
    assert not torch.equal(actual[0], actual[1])


def test_redirected_code_keeps_its_gradients() -> None:
    x = torch.ones(50, requires_grad=True)
    with drawing_from(SeededGenerators(0)), redirect_draws():
        F.dropout(x, 0.5).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert set(x.grad.tolist()) == {0.0, 2.0}


def test_without_active_generators_nothing_is_redirected() -> None:
    def both() -> Tensor:
        with redirect_draws():
            return torch.rand(5)

    assert torch.equal(globally(3, both), globally(3, lambda: torch.rand(5)))


@pytest.mark.parametrize("wide", [4, 300])
def test_dropout_over_pairs_uses_the_active_generators(wide: int) -> None:
    with torch.random.fork_rng(devices=[]):
        net = PairwiseRates(0, 2, (wide, wide), dropout=0.5)
    nn.init.ones_(net.output.weight)
    x, mask = torch.ones(20, 8, 2), torch.ones(20, 8, dtype=torch.bool)
    expected = globally(5, lambda: net(x[:, 0, :0], x, mask).detach())
    with drawing_from(SeededGenerators(5)):
        assert torch.equal(net(x[:, 0, :0], x, mask).detach(), expected)


def test_threads_draw_their_own_numbers() -> None:
    """A barrier after each draw interleaves the threads."""
    turn, draws = threading.Barrier(2), {}

    def draw(seed: int) -> None:
        with drawing_from(SeededGenerators(seed)):
            rows = []
            for _ in range(20):
                with redirect_draws():
                    rows += [torch.rand_like(torch.ones(3)), apply_dropout(torch.ones(30), 0.5)]
                turn.wait(timeout=60)
        draws[seed] = torch.cat(rows)

    workers = [threading.Thread(target=draw, args=(seed,)) for seed in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for seed in (1, 2):
        expected = globally(
            seed,
            lambda: torch.cat(
                [f() for _ in range(20) for f in (lambda: torch.rand(3), lambda: apply_dropout(torch.ones(30), 0.5))]
            ),
        )
        assert torch.equal(draws[seed], expected)


def test_prepared_seeds_are_used_before_new_ones() -> None:
    """Two and two of five prepared seeds are used; the next two exceed the rest, so torch draws them."""
    draws = SeededGenerators(3)
    with drawing_from(draws):
        draws.seeds = torch.arange(5, dtype=torch.int32)
        assert [kernel_seeds(CPU, 2).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        assert draws.generator_if_used(CPU) is None
        drawn = kernel_seeds(CPU, 2)
    assert draws.generator_if_used(CPU) is draws.on(CPU)
    assert torch.equal(drawn, globally(3, lambda: kernel_seeds(CPU, 2)))
