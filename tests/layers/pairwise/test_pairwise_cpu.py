"""Chunks give the values and gradients of the plain formula, stored or recomputed, in both types."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from pcmcnet.layers.pairwise import cpu
from pcmcnet.layers.pairwise.cpu import plain_scores
from pcmcnet.layers.pairwise.pairwise_rates import pair_scores
from pcmcnet.layers.pairwise.rate_forms import PairOptions
from pcmcnet.layers.perceptron import Activation
from pcmcnet.layers.tensor_ops import real_pairs

SIZES = [5, 3, 3, 1, 7, 7, 2]
WIDTHS: list[tuple[int, ...]] = [(8,), (8, 6), (6, 8, 5)]
DEEP = (8, 6)
WAY = {"single_pairs_from": 0}


@pytest.fixture(params=[0, 10**9], ids=["by pairs", "by rows"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WAY, "single_pairs_from", request.param)


class Case:
    """Random halves of the first layer, later layers, and a weight for each score of a real pair."""

    def __init__(self, hidden: Sequence[int], sizes: Sequence[int] = SIZES, dtype: torch.dtype = torch.float64) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        self.mask = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
        self.weight = normal(*self.mask.shape, max(sizes)) * real_pairs(self.mask)
        widths = (*hidden, 1)
        self.inputs = [normal(*self.mask.shape, widths[0]), normal(*self.mask.shape, widths[0])]
        for a, b in pairwise(widths):
            self.inputs += [normal(b, a) / a**0.5, normal(b)]
        for tensor in self.inputs:
            tensor.requires_grad_()

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.inputs[2::2], self.inputs[3::2], strict=True))

    def plain(self, **options: Any) -> tuple[Tensor, list[Tensor]]:
        return self._both(plain_scores(*self.inputs[:2], self.layers, make(**options)))

    def chunks(self, *, mask: bool = True, **options: Any) -> tuple[Tensor, list[Tensor]]:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            pair_options = make(**{"plain_up_to": 0, "least_chunk_numbers": 1, **options})
            return self._both(pair_scores(*self.inputs[:2], self.layers, pair_options, self.mask if mask else None))

    def _both(self, scores: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return scores of real pairs, and all gradients of their weighted sum."""
        gradients = torch.autograd.grad((scores * self.weight).sum(), self.inputs)
        return scores.detach() * (self.weight != 0), list(gradients)


def make(*, activation: Activation = "leaky_relu", dtype: torch.dtype = torch.float64, **options: Any) -> PairOptions:
    return PairOptions(activation=activation, dtype=dtype, **(WAY | options))


def assert_same(ours: tuple[Tensor, list[Tensor]], theirs: tuple[Tensor, list[Tensor]], *, exact: bool = False) -> None:
    """Check equality to the last bit, or up to float64 rounding in sums of another order."""
    for a, b in zip([ours[0], *ours[1]], [theirs[0], *theirs[1]], strict=True):
        torch.testing.assert_close(a, b, rtol=0 if exact else 1e-11, atol=0 if exact else 1e-12)


@pytest.mark.parametrize("kept", [0, 2**30], ids=["recomputed", "stored"])
@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("hidden", WIDTHS)
def test_chunks_equal_the_plain_formula(hidden: tuple[int, ...], activation: Activation, kept: int) -> None:
    case = Case(hidden)
    assert_same(
        case.chunks(activation=activation, kept_bytes=kept, chunk_numbers=160), case.plain(activation=activation)
    )


@pytest.mark.parametrize("kept", [0, 3_000, 2**30], ids=["recomputed", "some stored", "stored"])
@pytest.mark.parametrize("chunk", [1, 8, 60, 400, 10**9], ids=["pairs", "small", "middle", "large", "one"])
@pytest.mark.parametrize("mask", [True, False])
def test_any_chunk_size_gives_the_same(chunk: int, kept: int, mask: bool) -> None:
    case = Case(DEEP)
    assert_same(case.chunks(chunk_numbers=chunk, kept_bytes=kept, mask=mask), case.plain())


def test_a_single_neuron_has_no_layers() -> None:
    case = Case(())
    assert_same(case.chunks(), case.plain())


def test_padding_before_real_alternatives_has_no_effect() -> None:
    case = Case(DEEP, sizes=[4, 4])
    case.mask = torch.tensor([[False, True, True, True], [True, False, True, False]])
    case.weight = case.weight * real_pairs(case.mask)
    assert_same(case.chunks(chunk_numbers=60), case.plain())


# -- dropout ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("p", [0.5, 0.3])
def test_stored_and_redrawn_masks_are_the_same(activation: Activation, p: float) -> None:
    case = Case(DEEP)
    kept, again, some = (
        case.chunks(activation=activation, dropout=p, kept_bytes=k, chunk_numbers=160) for k in (2**30, 0, 4_000)
    )
    assert_same(again, kept, exact=True)
    assert_same(some, kept, exact=True)
    assert not torch.equal(kept[0], case.plain(activation=activation)[0])


@pytest.mark.parametrize("kept", [0, 2**30], ids=["recomputed", "stored"])
@pytest.mark.parametrize("activation", get_args(Activation))
def test_gradients_with_dropout_match_the_formula(activation: Activation, kept: int) -> None:
    """One set in one chunk with all pairs draws the masks of the plain formula, layer by layer."""
    case = Case(DEEP, sizes=[6])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.manual_seed(int(torch.randint(2**63 - 1, (1,))))
        expected = case.plain(activation=activation, dropout=0.3)
    assert_same(
        case.chunks(activation=activation, dropout=0.3, kept_bytes=kept, mask=False, least_chunk_numbers=10**9),
        expected,
    )


def test_draws_between_forward_and_backward_change_nothing() -> None:
    """The masks are drawn again from their seeds, and torch's generator does not change."""
    case = Case(DEEP)
    expected = case.chunks(dropout=0.5, kept_bytes=0, chunk_numbers=160)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        scores = pair_scores(
            *case.inputs[:2],
            case.layers,
            make(plain_up_to=0, least_chunk_numbers=1, dropout=0.5, kept_bytes=0, chunk_numbers=160),
            case.mask,
        )
        torch.rand(7)
        before = torch.get_rng_state()
        assert_same(case._both(scores), expected, exact=True)
        assert torch.equal(torch.get_rng_state(), before)


def test_a_graph_may_be_differentiated_twice() -> None:
    case = Case(DEEP)
    scores = pair_scores(
        *case.inputs[:2],
        case.layers,
        make(plain_up_to=0, least_chunk_numbers=1, dropout=0.5, kept_bytes=4_000, chunk_numbers=160),
        case.mask,
    )
    loss = (scores * case.weight).sum()
    first = torch.autograd.grad(loss, case.inputs, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(loss, case.inputs)))


# -- threads ------------------------------------------------------------------------------------------------------


@pytest.fixture
def three_threads(threads: Callable[[int], None]) -> None:
    threads(3)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("kept", [0, 3_000, 2**30], ids=["recomputed", "some stored", "stored"])
@pytest.mark.parametrize("sizes", [SIZES, [12], [2], [1, 1, 2], [1]], ids=["sets", "one set", "a pair", "few", "none"])
def test_threads_give_the_same_results(sizes: list[int], kept: int) -> None:
    case = Case(DEEP, sizes)
    assert_same(case.chunks(chunk_numbers=60, kept_bytes=kept), case.plain())


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("kept", [0, 2**30], ids=["recomputed", "stored"])
def test_threads_draw_the_same_masks_each_time(kept: int) -> None:
    case = Case(DEEP)
    once, again = (case.chunks(chunk_numbers=60, kept_bytes=kept, dropout=0.5) for _ in range(2))
    assert_same(again, once, exact=True)
    assert not torch.equal(once[0], case.plain()[0])


@pytest.mark.usefixtures("three_threads")
def test_threads_predict_in_inference_mode() -> None:
    case = Case(DEEP)
    with torch.inference_mode():
        scores = pair_scores(*case.inputs[:2], case.layers, make(plain_up_to=0, least_chunk_numbers=1), case.mask)
    assert scores.is_inference()
    torch.testing.assert_close(scores * (case.weight != 0), case.plain()[0], rtol=1e-11, atol=1e-12)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(
    ("chunk", "least", "lengths"), [(60, 1, [5, 5, 6]), (58, 1, [10, 11, 11]), (60, 100, [3, 3, 3]), (60, 945, [1])]
)
def test_threads_share_chunks_of_a_minimum_size(chunk: int, least: int, lengths: list[int]) -> None:
    """118 pairs of 8 units; a multiple of 16 chunks if possible."""
    case = Case(DEEP)
    parts = cpu.chunks_by_thread(
        case.mask, case.inputs[0].shape, 8, make(chunk_numbers=chunk, least_chunk_numbers=least, single_pairs_from=8)
    )
    assert [len(part.chunks) for part in parts] == lengths
    sizes = {len(each) for part in parts for each in part.chunks}
    assert max(sizes) - min(sizes) <= 1
    assert sum(len(each) for part in parts for each in part.chunks) == 118


@pytest.mark.usefixtures("three_threads")
def test_narrow_networks_use_one_thread() -> None:
    case = Case(DEEP)
    (part,) = cpu.chunks_by_thread(
        case.mask, case.inputs[0].shape, 8, make(chunk_numbers=60, least_chunk_numbers=1, single_pairs_from=9)
    )
    assert sum(map(len, part.chunks)) == sum(n**2 for n in SIZES)


def test_any_number_of_threads_draws_the_same_masks(threads: Callable[[int], None]) -> None:
    case, results = Case(DEEP), []
    for number in (1, 2, 5):
        threads(number)
        results.append(case.chunks(chunk_numbers=60, dropout=0.5))
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])


# -- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kept", "dropout"), [(0, 0.5), (20_000, 0.5), (20_000, 0.0), (2**30, 0.5)])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_stored_tensors_stay_within_the_budget(activation: Activation, kept: int, dropout: float) -> None:
    case = Case((16, 16))
    held: dict[int, Tensor] = {}

    def hold(tensor: Tensor) -> Tensor:
        held[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        options = make(
            activation=activation,
            plain_up_to=0,
            least_chunk_numbers=1,
            chunk_numbers=400,
            kept_bytes=kept,
            dropout=dropout,
        )
        pair_scores(*case.inputs[:2], case.layers, options, case.mask)
    inputs = {t.data_ptr() for t in case.inputs}
    size = sum(t.nbytes for at, t in held.items() if at not in inputs and t.dtype != torch.int64)  # without indices
    assert size <= kept
    assert (size > kept / 2) == (0 < kept < 2**30)  # the budget is used


def test_prediction_stores_nothing_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(DEEP)
    expected = pair_scores(
        *case.inputs[:2], case.layers, make(plain_up_to=0, least_chunk_numbers=1, chunk_numbers=160), case.mask
    )
    monkeypatch.setattr(cpu, "_PairScores", None)
    with torch.no_grad():
        scores = pair_scores(
            *case.inputs[:2], case.layers, make(plain_up_to=0, least_chunk_numbers=1, chunk_numbers=160), case.mask
        )
    assert torch.equal(scores, expected)


# -- bfloat16 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("small", [0, 2**30], ids=["chunks", "plain"])
def test_bfloat16_matches_float32_up_to_rounding(activation: Activation, small: int) -> None:
    """Each of about ten roundings is at most 2^-9, and a unit near the kink of relu may change its side."""
    case = Case((16, 16), dtype=torch.float32)
    case.weight = case.weight.abs()  # avoids cancellation in sums
    half = make(
        activation=activation, dtype=torch.bfloat16, plain_up_to=small, least_chunk_numbers=1, chunk_numbers=1_600
    )
    scores, gradients = case._both(pair_scores(*case.inputs[:2], case.layers, half, case.mask))
    expected, theirs = case.plain(activation=activation, dtype=torch.float32)
    assert scores.dtype == torch.float32
    assert not torch.equal(scores, expected)
    for a, b in zip([scores, *gradients], [expected, *theirs], strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < (0.05 if "relu" in activation else 0.02) * b.norm()


def test_bfloat16_products_are_summed_in_float32() -> None:
    """Many chunks of one row: in bfloat16, sums would stop growing after some hundred of them."""
    case = Case((8, 8), sizes=[3] * 400, dtype=torch.float32)
    case.weight = case.weight.abs()
    with torch.no_grad():
        for tensor in case.inputs:
            tensor.abs_()
    _, fine = case.chunks(dtype=torch.bfloat16, chunk_numbers=8)
    _, expected = case.plain(dtype=torch.float32)
    for a, b in zip(fine[2:], expected[2:], strict=True):
        assert (a - b).norm() < 0.01 * b.norm()  # roundings of 2^-9, which do not accumulate
