"""The rate network, the three rate forms, what one neuron can represent, and initialisations that are not dead."""

import copy
import itertools
import math
import pickle
from collections.abc import Sequence
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.layers.likelihood import choice_nll, log_probabilities
from pcmcnet.layers.pairwise import RATE_FLOOR, PairwiseRates, RateForm, rates_of_scores
from pcmcnet.layers.perceptron import Activation
from pcmcnet.layers.settings import PLAIN_SCORES_UP_TO_NUMBERS
from pcmcnet.layers.stationary import stationary_distribution
from pcmcnet.models.networks.starting_values import revive_dead_rates

FORMS: list[tuple[RateForm, float]] = [("relu", 0.5), ("softplus", 0.0), ("softplus", 0.3), ("exp", 0.0), ("exp", 0.3)]
DEPTHS: list[tuple[int, ...]] = [(), (16,), (16, 16), (16, 16, 16)]
SEEDS = st.integers(0, 2**32 - 1)


def network(*widths: int, seed: int = 0, dtype: torch.dtype = torch.float64, **options: Any) -> PairwiseRates:
    """Make a network (d_individual, d_alternative, *hidden); the global random state is restored."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return PairwiseRates(widths[0], widths[1], widths[2:], **options).to(dtype)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def all_real(x: Tensor) -> Tensor:  # (B, J, ...) -> (B, J)
    return torch.ones(x.shape[:2], dtype=torch.bool)


def no_individual(x: Tensor) -> Tensor:  # (B, J, D) -> (B, 0)
    return torch.zeros(len(x), 0, dtype=x.dtype)


def distribution_of(net: PairwiseRates, x: Tensor) -> Tensor:  # (B, J, D) -> (B, J)
    return stationary_distribution(net(no_individual(x), x, all_real(x)))


def naive_rates(scores: Tensor, rate: RateForm, epsilon: float) -> Tensor:
    """Apply the formulas in the docstring of the module."""
    if rate == "relu":
        return F.relu(scores) + epsilon
    return (torch.log(1 + torch.exp(scores)) if rate == "softplus" else torch.exp(scores)) + epsilon


def set_weights(net: PairwiseRates, **weights: Sequence[Any]) -> None:
    """Set parameters, named as in ``state_dict`` with __ for a point."""
    state = {name.replace("__", "."): torch.tensor(value, dtype=torch.float64) for name, value in weights.items()}
    net.load_state_dict(state)


# -- the network --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d_alternative", "hidden", "count"),
    [(2, (16,), 97), (2, (16, 16), 369), (2, (16, 16, 16), 641), (3, (), 7)],
    ids=["table 1, 1x16", "table 1, 2x16", "table 1, 3x16", "one neuron on one-hots"],
)
def test_parameter_counts_match_the_paper(d_alternative: int, hidden: tuple[int, ...], count: int) -> None:
    assert sum(p.numel() for p in network(0, d_alternative, *hidden).parameters()) == count


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("hidden", DEPTHS)
@pytest.mark.parametrize("d_individual", [0, 3])
def test_the_split_first_layer_equals_concatenated_inputs(
    d_individual: int, hidden: tuple[int, ...], activation: Activation
) -> None:
    """R_ij concatenates I, S_i and S_j and uses the same weights: values and all gradients agree."""
    net = network(d_individual, 2, *hidden, activation=activation, initialisation="paper")
    individual, x, weight = normal(4, d_individual), normal(4, 5, 2, seed=1), normal(4, 5, 5, seed=2)
    parameters = list(net.parameters())

    individuals = individual[:, None, None].expand(-1, 5, 5, -1)
    pairs = torch.cat([individuals, x.unsqueeze(2).expand(-1, 5, 5, -1), x.unsqueeze(1).expand(-1, 5, 5, -1)], -1)
    first = [part.weight for part in (net.who, net.leave, net.enter) if part is not None]
    h = F.linear(pairs, torch.cat(first, 1), net.enter.bias)
    for k in range(len(hidden)):
        h = getattr(F, activation)(h)
        h = F.linear(h, net.get_parameter(f"layers.{k}.weight"), net.get_parameter(f"layers.{k}.bias"))
    expected = h.squeeze(-1)

    scores = net.scores(individual, x)
    torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-13)
    ours = torch.autograd.grad((scores * weight).sum(), parameters)
    theirs = torch.autograd.grad((expected * weight).sum(), parameters)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_a_score_depends_only_on_its_pair_and_individual() -> None:
    net = network(2, 3, 8, initialisation="paper")
    individual, x = normal(2, 2), normal(2, 4, 3, seed=1)
    moved = x.clone()
    moved[1, 3] += 1
    unchanged = net.scores(individual, moved) == net.scores(individual, x)
    expected = torch.ones(2, 4, 4, dtype=torch.bool)
    expected[1, 3, :] = expected[1, :, 3] = False
    assert torch.equal(unchanged, expected)


def test_dropout_acts_in_training_only() -> None:
    net, x = network(0, 2, 64, dropout=0.5, initialisation="paper"), normal(1, 3, 2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.equal(net.scores(no_individual(x), x), net.scores(no_individual(x), x))
    net.eval()
    assert torch.equal(net.scores(no_individual(x), x), net.scores(no_individual(x), x))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_large_batch_matches_its_sets_one_by_one(dropout: float) -> None:
    """The batch is computed in chunks, a single set by the plain formula; no dropout outside training."""
    net = network(2, 3, 32, 32, dropout=dropout, initialisation="paper").eval()
    individual, x, weight = normal(8, 2), normal(8, 20, 3, seed=1), normal(8, 20, 20, seed=2)
    sizes = [20, 20, 7, 7, 7, 3, 2, 1]
    mask = torch.arange(20) < torch.tensor(sizes).unsqueeze(1)
    assert mask.numel() * 20 * 32 > PLAIN_SCORES_UP_TO_NUMBERS
    pairs = mask.unsqueeze(1) & mask.unsqueeze(2) & ~torch.eye(20, dtype=torch.bool)
    rates = net(individual, x, mask)
    ours = torch.autograd.grad((rates * weight * pairs).sum(), list(net.parameters()))
    total = torch.zeros((), dtype=torch.float64)
    for k, n in enumerate(sizes):
        alone = net(individual[k : k + 1], x[k : k + 1, :n], mask[k : k + 1, :n])
        total = total + (alone * weight[k, :n, :n] * pairs[k, :n, :n]).sum()
        torch.testing.assert_close(rates[k, :n, :n] * pairs[k, :n, :n], alone[0] * pairs[k, :n, :n], rtol=1e-11, atol=0)
    for a, b in zip(ours, torch.autograd.grad(total, list(net.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


def test_a_network_can_be_copied_and_pickled() -> None:
    net, x = network(0, 2, 8, initialisation="paper"), normal(1, 3, 2)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other.scores(no_individual(x), x), net.scores(no_individual(x), x))


def test_bfloat16_rounds_the_scores_slightly() -> None:
    net = network(0, 2, 16, 16, dtype=torch.float32, precision="bfloat16", initialisation="paper")
    fine = network(0, 2, 16, 16, dtype=torch.float32, precision="float32", initialisation="paper")
    x = normal(4, 5, 2, dtype=torch.float32)
    ours, theirs = net.scores(no_individual(x), x), fine.scores(no_individual(x), x)
    assert ours.dtype == torch.float32
    assert 0 < (ours - theirs).abs().max() < 0.05 * theirs.abs().max()  # some roundings of 2^-9


# -- scores to rates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "epsilon"), FORMS)
@given(n=st.integers(2, 6), seed=SEEDS)
def test_distribution_and_gradient_match_the_formula(rate: RateForm, epsilon: float, n: int, seed: int) -> None:
    scores = 3 * normal(2, n, n, seed=seed)
    scores.requires_grad_()
    weight = normal(2, n, seed=seed + 1)
    p = stationary_distribution(rates_of_scores(scores, all_real(scores), rate=rate, epsilon=epsilon))
    naive = stationary_distribution(naive_rates(scores, rate, epsilon))
    torch.testing.assert_close(p, naive, rtol=1e-10, atol=0)
    (ours,), (theirs,) = (torch.autograd.grad((q * weight).sum(), scores) for q in (p, naive))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


EXTREMES = [
    *[(a, b) for a in (-1e30, -1e4, 0.0, 1e4, 1e30) for b in (-1e30, -1e4, 0.0, 1e4, 1e30)],
    (-100.0, -103.0),  # softplus underflows in float32
    (88.0, 90.0),  # exp overflows
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rate", "epsilon"), [*FORMS, ("relu", 1e-30), ("exp", 1e30)])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_extreme_scores_give_bounded_rates_and_finite_gradients(
    n: int, rate: RateForm, epsilon: float, dtype: torch.dtype
) -> None:
    choice = torch.randint(0, 2, (len(EXTREMES), n, n), generator=torch.Generator().manual_seed(n))
    scores = torch.tensor(EXTREMES, dtype=dtype).unsqueeze(1).expand(-1, n, -1).gather(2, choice).requires_grad_()
    mask = all_real(scores)
    rates = rates_of_scores(scores, mask, rate=rate, epsilon=epsilon)
    off = rates[:, ~torch.eye(n, dtype=torch.bool)]
    assert (off >= RATE_FLOOR * (1 - 1e-7)).all()  # RATE_FLOOR itself is rounded to float32
    assert (off.amax(1) >= 1 - 1e-6).all()
    assert (off.amax(1) <= (2 if rate == "exp" and epsilon else 1 + 1e-6)).all()  # exp f and epsilon, each at most 1
    log_p = log_probabilities(stationary_distribution(rates), mask)
    (grad,) = torch.autograd.grad(log_p.sum(), scores)
    assert torch.isfinite(log_p).all()
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("shift", [-1e4, -200.0, -60.0])
def test_softplus_far_below_zero_equals_exp(shift: float) -> None:
    """log(1 + e^f) = e^f (1 - e^f / 2 + ...), and e^shift cancels in the distribution; in float32 it would be 0."""
    scores = normal(3, 4, 4, dtype=torch.float32).requires_grad_()
    p = stationary_distribution(rates_of_scores(scores, all_real(scores), rate="exp", epsilon=0.0))
    (grad,) = torch.autograd.grad(p[:, 0].sum(), scores)
    low = (scores.detach() + shift).requires_grad_()
    q = stationary_distribution(rates_of_scores(low, all_real(low), rate="softplus", epsilon=0.0))
    (grad_low,) = torch.autograd.grad(q[:, 0].sum(), low)
    spacing = torch.finfo(torch.float32).eps * abs(shift)  # f + shift loses the digits below this
    torch.testing.assert_close(q, p, rtol=4 * spacing, atol=0)
    torch.testing.assert_close(grad_low, grad, rtol=4 * spacing, atol=4 * spacing)


@pytest.mark.parametrize(("rate", "epsilon"), FORMS)
@pytest.mark.parametrize("filler", [-1e30, 1e30])
def test_scores_at_padding_and_diagonal_have_no_effect(rate: RateForm, epsilon: float, filler: float) -> None:
    scores = normal(3, 4, 4)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
    filled = torch.where(mask.unsqueeze(2) & mask.unsqueeze(1), scores, filler)
    filled.diagonal(dim1=1, dim2=2).fill_(filler)
    ours, expected = filled.requires_grad_(), scores.requires_grad_()
    p, q = (
        stationary_distribution(rates_of_scores(s, mask, rate=rate, epsilon=epsilon), mask) for s in (ours, expected)
    )
    (grad,) = torch.autograd.grad(p[:, 0].log().sum(), ours)
    (grad_expected,) = torch.autograd.grad(q[:, 0].log().sum(), expected)
    assert torch.equal(p, q)
    assert torch.equal(grad, grad_expected)
    assert (grad[2] == 0).all()  # a set of one


@pytest.mark.parametrize(("rate", "epsilon"), FORMS)
def test_a_set_of_one_has_finite_rates(rate: RateForm, epsilon: float) -> None:
    scores = 100 * normal(5, 1, 1, dtype=torch.float32).abs()
    assert torch.isfinite(rates_of_scores(scores, all_real(scores), rate=rate, epsilon=epsilon)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rate", "epsilon"), FORMS)
def test_half_precision_scores_become_float32_rates(rate: RateForm, epsilon: float, dtype: torch.dtype) -> None:
    scores = normal(2, 3, 3).to(dtype)
    rates = rates_of_scores(scores, all_real(scores), rate=rate, epsilon=epsilon)
    assert rates.dtype == torch.float32
    assert torch.equal(rates, rates_of_scores(scores.float(), all_real(scores), rate=rate, epsilon=epsilon))


# -- properties of the model (the paper's section 3.2) ----------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("rate", "epsilon"), FORMS)
@pytest.mark.parametrize("copies", [2, 5])
def test_copies_of_every_alternative_share_its_probability(
    copies: int, rate: RateForm, epsilon: float, dtype: torch.dtype, error: float
) -> None:
    """Uniform expansion. In float32 the scores are rounded to about 1e-6, differently for other shapes."""
    net = network(0, 2, 16, 16, dtype=dtype, rate=rate, epsilon=epsilon, initialisation="paper")
    x = normal(6, 4, 2, seed=1, dtype=dtype)
    once = distribution_of(net, x)
    many = distribution_of(net, x.repeat_interleave(copies, 1)).reshape(6, 4, copies)
    assert once.std() > 0.01  # not the uniform distribution, which would always pass
    torch.testing.assert_close(many, once.unsqueeze(2).expand_as(many) / copies, rtol=error, atol=0)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_mass_of_a_type_does_not_depend_on_rates_within_types(dtype: torch.dtype, error: float) -> None:
    """Contractibility: types of 1, 2 and 4 copies; the rates within each are replaced at random.

    The float32 bound is that of the layer, 1e-5 of every component.
    """
    net = network(0, 2, 16, dtype=dtype, initialisation="paper")
    types, x = torch.tensor([0, 1, 1, 2, 2, 2, 2]), normal(5, 3, 2, dtype=dtype)
    rates = net(no_individual(x), x[:, types], all_real(x[:, types]))
    inside = torch.exp(5 * normal(5, 7, 7, seed=1, dtype=dtype))
    other = torch.where(types.unsqueeze(1) == types, inside, rates)
    p, q = (stationary_distribution(r) for r in (rates, other))
    assert (p - q).abs().max() > 0.01
    mass_p, mass_q = (torch.zeros(5, 3, dtype=dtype).index_add_(1, types, probabilities) for probabilities in (p, q))
    torch.testing.assert_close(mass_q, mass_p, rtol=error, atol=0)


PAIRS = [(0, 1), (1, 2), (2, 0)]  # each wins against the next with probability alpha
ONE_HOT = torch.eye(3, dtype=torch.float64)


def pair_wins(net: PairwiseRates) -> list[float]:
    """Return P(0 over 1), P(1 over 2), P(2 over 0)."""
    return distribution_of(net, ONE_HOT[torch.tensor(PAIRS)])[:, 0].tolist()


@pytest.mark.parametrize(("rate", "epsilon"), FORMS)
@given(weights=st.lists(st.floats(-30, 30), min_size=7, max_size=7))
def test_one_neuron_cannot_have_cyclic_preferences(rate: RateForm, epsilon: float, weights: list[float]) -> None:
    """The paper says one neuron on one-hots (six coefficients, one bias) can play rock-paper-scissors. It cannot.

    Its score is f_ij = a_i + b_j + c, so f_01 + f_12 + f_20 = f_10 + f_21 + f_02: both are the sum of all six
    coefficients and three biases. That 0 beats 1 means q_10 > q_01, and a rate that does not fall with its
    score then has f_10 > f_01. Similarly f_21 > f_12 and f_02 > f_20, so the sums differ. Better than a coin in
    all three pairs is impossible, not only the paper's matrix: i beats j only if b_i - a_i > b_j - a_j, an order.
    """
    net = network(0, 3, rate=rate, epsilon=epsilon)
    set_weights(net, leave__weight=[weights[:3]], enter__weight=[weights[3:6]], enter__bias=weights[6:])
    assert min(pair_wins(net)) <= 0.5 + 1e-12


@given(weights=st.lists(st.floats(-4, 4), min_size=7, max_size=7))
def test_one_neuron_with_exponential_rates_is_a_multinomial_logit(weights: list[float]) -> None:
    """q_ij = exp(a_i + b_j + c) is in detailed balance with p_i = exp(b_i - a_i): p_i q_ij = exp(b_i + b_j + c).

    The floor is e^-40 of the largest rate and these are at most e^16 apart, so it adds e^-24 = 4e-11 at most.
    """
    net = network(0, 3, rate="exp")
    set_weights(net, leave__weight=[weights[:3]], enter__weight=[weights[3:6]], enter__bias=weights[6:])
    a, b = torch.tensor([weights[:3], weights[3:6]], dtype=torch.float64)
    torch.testing.assert_close(distribution_of(net, ONE_HOT[None])[0], torch.softmax(b - a, 0), rtol=1e-9, atol=0)


def rock_paper_scissors(alpha: float, *, scale: float = 1e3) -> PairwiseRates:
    """Represent the paper's matrix times ``scale`` with two hidden neurons, as far as epsilon allows.

    Let u_ij = a_i + b_j with a = (0, 2, 1), b = (-1, 0, -2): u is (-2, 1, 1) at the likely moves 0 -> 2, 1 -> 0,
    2 -> 1 and 0 at the others 0 -> 1, 1 -> 2, 2 -> 0. Then max(0, u) + max(0, -u) / 2 is 1 at the first three
    and 0 at the rest: f = scale ((2 alpha - 1) that + 1 - alpha) - epsilon gives rates scale alpha and
    scale (1 - alpha), which must be at least epsilon.
    """
    a, b = torch.tensor([0.0, 2, 1]), torch.tensor([-1.0, 0, -2])
    net, gap = network(0, 3, 2, activation="relu", rate="relu", epsilon=0.5), scale * (2 * alpha - 1)
    set_weights(
        net,
        leave__weight=[a.tolist(), (-a).tolist()],
        enter__weight=[b.tolist(), (-b).tolist()],
        enter__bias=[0, 0],
        layers__0__weight=[[gap, gap / 2]],
        layers__0__bias=[scale * (1 - alpha) - 0.5],
    )
    return net


@pytest.mark.parametrize("alpha", [0.51, 0.6, 0.75, 0.9, 0.999])
def test_two_hidden_neurons_represent_rock_paper_scissors(alpha: float) -> None:
    net = rock_paper_scissors(alpha)
    matrix = torch.tensor([[0, 1 - alpha, alpha], [alpha, 0, 1 - alpha], [1 - alpha, alpha, 0]], dtype=torch.float64)
    rates = net(no_individual(ONE_HOT[None]), ONE_HOT[None], all_real(ONE_HOT[None]))[0].fill_diagonal_(0)
    torch.testing.assert_close(rates, matrix / alpha, rtol=1e-10, atol=1e-15)
    torch.testing.assert_close(
        distribution_of(net, ONE_HOT[None])[0], torch.full((3,), 1 / 3, dtype=torch.float64), rtol=1e-10, atol=0
    )
    assert pair_wins(net) == pytest.approx([alpha] * 3, rel=1e-10)


def test_a_certain_win_is_the_limit_of_large_rates() -> None:
    """alpha = 1 needs a rate of 0, and no rate is below epsilon = 0.5: P = scale / (scale + 0.5)."""
    for scale in (1e1, 1e3, 1e6):
        net = rock_paper_scissors(1.0, scale=scale)
        assert pair_wins(net) == pytest.approx([scale / (scale + 0.5)] * 3, rel=1e-10)
    torch.testing.assert_close(
        distribution_of(net, ONE_HOT[None])[0], torch.full((3,), 1 / 3, dtype=torch.float64), rtol=1e-10, atol=0
    )


def test_rock_paper_scissors_is_not_regular() -> None:
    """With alpha = 0.9, dropping 2 from {0, 1, 2} lowers P(1) from 1/3 to 0.1: impossible in a random utility model."""
    net = rock_paper_scissors(0.9)
    assert 1 - pair_wins(net)[0] == pytest.approx(0.1, rel=1e-10)
    assert distribution_of(net, ONE_HOT[None])[0, 1].item() == pytest.approx(1 / 3, rel=1e-10)


# -- initialisation ---------------------------------------------------------------------------------------------------


def first_gradient(net: PairwiseRates, seed: int = 0, n_sets: int = 8) -> float:
    """Return the size of the first gradient of the loss on random sets of 3 with 2 features."""
    x, mask = normal(n_sets, 3, 2, seed=seed), torch.ones(n_sets, 3, dtype=torch.bool)
    chosen = torch.randint(0, 3, (n_sets,), generator=torch.Generator().manual_seed(seed))
    loss = choice_nll(log_probabilities(distribution_of(net, x), mask), chosen).mean()
    return max(g.abs().max().item() for g in torch.autograd.grad(loss, list(net.parameters())))


@pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, 200), marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("hidden", DEPTHS)
@pytest.mark.parametrize(("rate", "epsilon"), FORMS)
def test_safe_initialisation_is_uniform_and_never_dead(
    rate: RateForm, epsilon: float, hidden: tuple[int, ...], seeds: range
) -> None:
    for seed in seeds:
        net = network(0, 2, *hidden, seed=seed, rate=rate, epsilon=epsilon)
        torch.testing.assert_close(
            distribution_of(net, normal(2, 3, 2)), torch.full((2, 3), 1 / 3, dtype=torch.float64)
        )
        assert first_gradient(net, seed) > 1e-3


@pytest.mark.parametrize("activation", get_args(Activation))
def test_safe_initialisation_is_never_dead_for_any_activation(activation: Activation) -> None:
    for seed in range(10):
        assert first_gradient(network(0, 2, 16, 16, seed=seed, activation=activation), seed) > 1e-3


@pytest.mark.parametrize("hidden", DEPTHS)
def test_revive_repairs_dead_initialisations_of_the_paper(hidden: tuple[int, ...]) -> None:
    """One set, 50 seeds: some networks are dead. These have gradient 0 until revived; others do not change."""
    options: dict[str, Any] = {"rate": "relu", "epsilon": 0.5, "initialisation": "paper"}
    dead = []
    for seed in range(50):
        net, x = network(0, 2, *hidden, seed=seed, **options), normal(1, 3, 2, seed=seed)
        dead.append(first_gradient(net, seed, n_sets=1) == 0)
        weights = [p.clone() for p in net.parameters()]
        scores = net.scores(no_individual(x), x)[0][~torch.eye(3, dtype=torch.bool)]
        assert revive_dead_rates(net, no_individual(x), x, all_real(x)) == (scores.median() <= 0)
        if scores.median() > 0:
            assert all(torch.equal(a, b) for a, b in zip(weights, net.parameters(), strict=True))
        assert first_gradient(net, seed, n_sets=1) > 0
        assert not revive_dead_rates(net, no_individual(x), x, all_real(x))
    assert 0 < sum(dead) < 50


def test_revive_uses_only_real_pairs() -> None:
    """Only the padded alternative and the diagonals have positive scores."""
    net, mask = network(0, 1, rate="relu", epsilon=0.5), torch.tensor([[True, True, False]])
    x = torch.tensor([[[1.0], [2.0], [9.0]]], dtype=torch.float64)
    set_weights(net, leave__weight=[[1]], enter__weight=[[1]], enter__bias=[-3.5])
    assert net.scores(no_individual(x), x).tolist() == [[[-1.5, -0.5, 6.5], [-0.5, 0.5, 7.5], [6.5, 7.5, 14.5]]]
    assert revive_dead_rates(net, no_individual(x), x, mask)
    assert net.scores(no_individual(x), x)[0, 0, 1].item() == 1


@pytest.mark.parametrize("rate", ["exp", "softplus"])
def test_other_rate_forms_need_no_revival(rate: RateForm) -> None:
    net, x = network(0, 2, rate=rate), normal(1, 3, 2)
    set_weights(net, leave__weight=[[0, 0]], enter__weight=[[0, 0]], enter__bias=[-50])
    assert not revive_dead_rates(net, no_individual(x), x, all_real(x))
    assert first_gradient(net) > 1e-3


def test_a_set_of_one_needs_no_revival() -> None:
    net, x = network(0, 2, rate="relu", epsilon=0.5, initialisation="paper"), normal(4, 1, 2)
    assert not revive_dead_rates(net, no_individual(x), x, all_real(x))


def test_initial_weights_of_the_paper_have_variance_2_over_fan_in() -> None:
    """The fan-in of the first layer is that of the concatenation: 10 + 2 x 20 = 50."""
    net = network(10, 20, 1000, 500, initialisation="paper")
    assert net.who is not None
    first = torch.cat([net.who.weight, net.leave.weight, net.enter.weight], 1)
    assert first.std().item() == pytest.approx(math.sqrt(2 / 50), rel=0.02)  # 50,000 draws: 0.3% is one deviation
    second = net.get_parameter("layers.0.weight")
    assert second.std().item() == pytest.approx(math.sqrt(2 / 1000), rel=0.01)  # 500,000 draws: 0.1%
    assert net.output.weight.std().item() == pytest.approx(math.sqrt(2 / 500), rel=0.2)  # 500 draws: 3%


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "sofplus"}, r"unknown rate 'sofplus'\. Did you mean 'softplus'\?"),
        ({"rate": "zzz"}, r"unknown rate 'zzz'\. Known: exp, relu, softplus\."),
        ({"activation": "leakyrelu"}, r"unknown activation 'leakyrelu'\. Did you mean 'leaky_relu'\?"),
        ({"activation": "zzz"}, r"unknown activation 'zzz'\. Known: gelu, leaky_relu, relu, sigmoid, silu, tanh\."),
        ({"initialisation": "papper"}, r"unknown initialisation 'papper'\. Did you mean 'paper'\?"),
        ({"precision": "half"}, r"unknown precision 'half'"),
        ({"rate": "relu"}, r"rate='relu' needs epsilon > 0"),
        ({"rate": "relu", "epsilon": 0}, r"rate='relu' needs epsilon > 0.*The paper uses 0\.5"),
        *(({"rate": r, "epsilon": -0.1}, r"epsilon must be .* at least 0, got -0\.1") for r in get_args(RateForm)),
        ({"epsilon": math.nan}, "epsilon must be .* at least 0, got nan"),
        ({"epsilon": math.inf}, "epsilon must be .* at least 0, got inf"),
    ],
)
def test_unknown_options_and_invalid_epsilon_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PairwiseRates(0, 2, **options)


def test_all_documented_options_are_accepted() -> None:
    for (rate, epsilon), activation in itertools.product(FORMS, get_args(Activation)):
        net, x = network(1, 2, 4, rate=rate, epsilon=epsilon, activation=activation), normal(2, 3, 2)
        assert torch.isfinite(net(normal(2, 1), x, all_real(x))).all()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 2), (2, 4, 5), (2, 4)), r"alternatives: expected shape \(B, J, 3\), got \(2, 4, 5\)"),
        (((2, 2), (4, 3), (2, 4)), r"alternatives: expected shape \(B, J, 3\), got \(4, 3\)"),
        (((2, 1), (2, 4, 3), (2, 4)), r"individual: expected shape \(2, 2\), got \(2, 1\)"),
        (((1, 2), (2, 4, 3), (2, 4)), r"individual: expected shape \(2, 2\), got \(1, 2\)"),
        (((2, 2), (2, 4, 3), (2, 5)), r"mask: expected shape \(2, 4\), got \(2, 5\)"),
    ],
)
def test_a_wrong_shape_is_refused_by_name(shapes: list[tuple[int, ...]], message: str) -> None:
    net = network(2, 3, 8)
    with pytest.raises(InputError, match=message):
        net(*(torch.ones(shape, dtype=torch.float64) for shape in shapes))
