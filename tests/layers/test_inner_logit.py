"""The logit inside a chain: utilities by hand, agreement with a multinomial logit, exact gradients."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pcmcnet.data.batches import Batch, DistinctContents
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.category import CategoryCode
from pcmcnet.data.kinds.networks import TextPartWorth, VectorPartWorth
from pcmcnet.data.kinds.number import NumericCode
from pcmcnet.data.kinds.text import BUCKETS, hash_bucket
from pcmcnet.errors import ConfigError
from pcmcnet.layers import PairwiseRates, stationary_distribution
from pcmcnet.layers.inner_logit import RISING_ACTIVATIONS, LinearUtility, SignedLinear, unit_signs
from pcmcnet.layers.pairwise import rates_of_scores


def side(numbers: int = 2, categories: tuple[int, ...] = (3,), contents: tuple[Any, ...] = ()) -> SideEncoder:
    """Make codes of this many numbers, and one categorical column for each number of categories."""
    numeric = tuple(NumericCode(f"x{k}", 0.0, 1.0, indicator=False) for k in range(numbers))
    category_codes = tuple(CategoryCode(f"c{k}", tuple(map(str, range(n)))) for k, n in enumerate(categories))
    return SideEncoder(numeric, category_codes, contents)


def drawn(utility: LinearUtility, seed: int = 0) -> LinearUtility:
    """Draw the weights at random, in float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in utility.double().parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return utility


def batch_of(numeric: Tensor, categorical: Tensor, contents: tuple[DistinctContents, ...] = ()) -> Batch:
    sets, places = categorical.shape[:2]
    nothing = numeric.new_zeros(sets, 0)
    mask = torch.ones(sets, places, dtype=torch.bool)
    return Batch(numeric, categorical, nothing, nothing.long(), mask, mask[:, 0].long(), nothing.sum(1), contents)


def random_batch(seed: int, sets: int = 4, places: int = 5) -> tuple[Batch, Tensor, Tensor]:
    """Make sets with two numbers and a category of three values; individuals have width 2, alternatives 3."""
    generator = torch.Generator().manual_seed(seed)
    numeric, individual, alternatives = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((sets, places, 2), (sets, 2), (sets, places, 3))
    )
    categorical = torch.randint(4, (sets, places, 1), generator=generator)
    return batch_of(numeric, categorical), individual, alternatives


def distribution_of(utility: Tensor) -> Tensor:
    """Return the stationary distribution of a chain whose pair scores are 0, with this utility."""
    mask = torch.ones(utility.shape, dtype=torch.bool)
    scores = torch.zeros(*utility.shape, utility.shape[-1], dtype=utility.dtype)
    return stationary_distribution(rates_of_scores(scores + utility.unsqueeze(1), mask, rate="exp", epsilon=0.0))


# -- values worked out by hand -------------------------------------------------------------------------------------


def test_a_chain_of_utilities_matches_a_logit_by_hand() -> None:
    """Constants log 2 and log 3, slope log 4: exp u is 2, 3 and 1 times 4 to the power 0, 1 and 1/2; they sum to 16."""
    utility = LinearUtility(side(1, (2,)), 0, 1).double()
    with torch.no_grad():
        utility.constants[0][1:] = torch.tensor([[2.0], [3.0]]).double().log()
        utility.slopes[0] = math.log(4)
    batch = batch_of(torch.tensor([[[0.0], [1.0], [0.5]]]).double(), torch.tensor([[[1], [2], [0]]]))
    u = utility(batch, torch.zeros(1, 0).double(), torch.zeros(1, 3, 1).double())
    torch.testing.assert_close(u.exp(), torch.tensor([[2.0, 12.0, 2.0]]).double(), rtol=0, atol=1e-14)
    torch.testing.assert_close(distribution_of(u), torch.tensor([[2.0, 12.0, 2.0]]).double() / 16, rtol=0, atol=1e-14)


def test_utilities_combine_representation_and_individual_tastes() -> None:
    """v = (1, 2), V = (3, 0; 0, 4), I = (1, -1): weights v + V I = (4, -2); S = (1, 1) and (0, 3) give 2 and -6."""
    utility = LinearUtility(side(0, ()), 2, 2)
    assert utility.taste is not None
    with torch.no_grad():
        utility.worth.copy_(torch.tensor([1.0, 2.0]))
        utility.taste.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    batch = batch_of(torch.zeros(1, 2, 0), torch.zeros(1, 2, 0).long())
    individual, alternatives = torch.tensor([[1.0, -1.0]]), torch.tensor([[[1.0, 1.0], [0.0, 3.0]]])
    assert utility.weights(individual).tolist() == [[4.0, -2.0]]
    assert utility(batch, individual, alternatives).tolist() == [[2.0, -6.0]]


CONTENTS: dict[str, Any] = {
    "vector": np.array([[1.0, 0.0], [3.0, 2.0]], np.float32),
    "datetime": np.array(["2024-01-01", "2024-02-05"], "datetime64[us]"),
    "multi": np.array([("a", "b"), ("b",)], object),
    "text": np.array(["a quiet room", "a pool for 20"], object),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_contents_have_the_same_utility_in_all_rows(kind: str) -> None:
    """The first of three alternatives has one content, and the others share another."""
    code = KINDS[kind].code.learn("x", CONTENTS[kind])  # type: ignore[attr-defined]
    values = torch.from_numpy(code.prepare(CONTENTS[kind]))
    utility = drawn(LinearUtility(side(0, (), (code,)), 0, 0))
    place = torch.tensor([[0, 1, 1]])
    empty = torch.zeros(1, 3, 0)
    u = utility.plain(empty.double(), empty.long(), [DistinctContents(values, place)])
    alone = utility.worths["0"](values.double())
    torch.testing.assert_close(u, alone[place], rtol=0, atol=1e-14)
    assert u[0, 0] != u[0, 1] == u[0, 2]
    assert sum(p.numel() for p in utility.plain_weights) == sum(p.numel() for p in utility.parameters())


def test_a_word_is_looked_up_by_its_hash() -> None:
    code = KINDS["text"].code.learn("x", CONTENTS["text"])  # type: ignore[attr-defined]
    worth = TextPartWorth()
    with torch.no_grad():
        worth.parts[hash_bucket("pool"), 0] = 3.0
    utilities = worth(torch.from_numpy(code.prepare(np.array(["a pool", "a room", "Pool pool"], object))))
    assert utilities.tolist() == [3.0, 0.0, 6.0]


def test_pictures_and_user_modules_have_no_utility_term() -> None:
    vector = KINDS["vector"].code.learn("v", CONTENTS["vector"])  # type: ignore[attr-defined]
    assert list(LinearUtility(side(0, (), (vector,)), 0, 1).worths) == ["0"]
    assert list(LinearUtility(side(0, (), (vector,)), 0, 1, custom=["v"]).worths) == []


# -- properties --------------------------------------------------------------------------------------------------------


def test_initial_utilities_are_zero() -> None:
    batch, individual, alternatives = random_batch(0)
    assert not LinearUtility(side(), 2, 3).double()(batch, individual, alternatives).any()


@given(seed=st.integers(0, 2**16))
def test_a_chain_of_utilities_is_a_multinomial_logit(seed: int) -> None:
    batch, individual, alternatives = random_batch(seed)
    u = drawn(LinearUtility(side(), 2, 3), seed)(batch, individual, alternatives)
    torch.testing.assert_close(distribution_of(u), u.softmax(1), rtol=0, atol=1e-12)


@given(seed=st.integers(0, 2**16))
def test_an_unseen_category_has_utility_0_for_any_weights(seed: int) -> None:
    batch, individual, alternatives = random_batch(seed)
    utility = drawn(LinearUtility(side(), 2, 3), seed)
    with torch.no_grad():
        utility.constants[0][0] = 0.0
    unseen = batch.categorical[..., 0] == 0
    plain = utility.plain(batch.numeric, batch.categorical, ())
    torch.testing.assert_close(plain[unseen], (batch.numeric @ utility.slopes)[unseen], rtol=0, atol=0)
    utility(batch, individual, alternatives).square().sum().backward()
    assert utility.constants[0].grad is not None
    assert utility.constants[0].grad[0].item() == 0.0  # training leaves it at 0


def test_gradients_are_exact() -> None:
    batch, individual, alternatives = random_batch(1, sets=2, places=3)
    utility = drawn(LinearUtility(side(), 2, 3))
    batch = batch_of(batch.numeric, batch.categorical.clamp(min=1))
    weights = [p.detach().requires_grad_() for p in utility.parameters()]
    names = [name for name, _ in utility.named_parameters()]

    def computed(individual: Tensor, alternatives: Tensor, *given: Tensor) -> Tensor:
        values = dict(zip(names, given, strict=True))
        u: Tensor = torch.func.functional_call(utility, values, (batch, individual, alternatives))
        return distribution_of(u)

    assert torch.autograd.gradcheck(computed, [individual.requires_grad_(), alternatives.requires_grad_(), *weights])


def test_gradients_of_content_utilities_are_exact() -> None:
    words = torch.tensor([[[1.0, 2.0, 3.0, 0.7], [1.0, 1.0, 2.0, -4.0]]]).double()
    text, vector = TextPartWorth().double(), VectorPartWorth(3).double()
    parts = torch.randn(4, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def of_text(few: Tensor, value: Tensor) -> Tensor:
        whole = torch.cat([few, few.new_zeros(BUCKETS - 3, 1)])
        utility: Tensor = torch.func.functional_call(text, {"parts": whole, "value": value}, (words,))
        return utility

    assert torch.autograd.gradcheck(of_text, [parts, torch.tensor(0.3).double().requires_grad_()])
    given_vectors = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(vector, [given_vectors])


# -- Monotone weights --------------------------------------------------------------------------------------------------
# Signed weights make a rate increase or decrease in an input, for all inputs.


def test_bounds_follow_from_the_signs_of_inputs_and_units() -> None:
    """Inputs with signs +, none, -; units that increase, decrease, or ignore the signed inputs."""
    layer = SignedLinear(torch.tensor([1.0, 0.0, -1.0]), torch.tensor([1.0, -1.0, 0.0]))
    inf = math.inf
    assert layer.low.tolist() == [[0, -inf, -inf], [-inf, -inf, 0], [0, -inf, 0]]
    assert layer.high.tolist() == [[inf, inf, 0], [0, inf, inf], [0, inf, 0]]


def test_projection_zeroes_and_reflection_flips_wrong_signs() -> None:
    layer = SignedLinear(torch.tensor([1.0, 0.0, -1.0]), torch.tensor([1.0, 0.0]))
    weights = torch.tensor([[-2.0, -3.0, 4.0], [5.0, -6.0, 7.0]])
    with torch.no_grad():
        layer.weight.copy_(weights)
        layer.project_()
        assert layer.weight.tolist() == [[0, -3, 0], [0, -6, 0]]
        layer.weight.copy_(weights)
        layer.reflect_()
        assert layer.weight.tolist() == [[2, -3, -4], [0, -6, 0]]


def test_bounds_are_not_saved() -> None:
    signed, plain = SignedLinear(torch.ones(2), unit_signs(5)), torch.nn.Linear(2, 5)
    assert signed.state_dict().keys() == plain.state_dict().keys()


def test_a_quarter_of_the_units_increases_and_a_quarter_decreases() -> None:
    assert unit_signs(6).tolist() == [1, -1, 0, 0, 1, -1]
    assert unit_signs(1).tolist() == [1]


@given(
    activation=st.sampled_from(RISING_ACTIVATIONS),
    hidden=st.sampled_from([(), (1,), (5,), (8, 6), (4, 4, 4)]),
    double=st.booleans(),
    step=st.floats(1e-3, 10),
    seed=st.integers(0, 2**16),
)
def test_rates_are_monotone_in_a_signed_input(
    activation: str, hidden: tuple[int, ...], double: bool, step: float, seed: int
) -> None:
    """Entry 2 has sign -1. If it rises for one alternative, rates into it fall, rates out rise, and its share falls.

    The score is a sum of at most 8 products of float32, of relative precision 6e-8, and of size 1 to 100.
    """
    torch.manual_seed(seed)
    dtype, tolerance = (torch.float64, 1e-12) if double else (torch.float32, 1e-4)
    rates = PairwiseRates(2, 3, hidden, activation=activation, signs=torch.tensor([0.0, 0.0, -1.0]))  # type: ignore[arg-type]
    rates = rates.to(dtype)
    for module in rates.modules():
        if isinstance(module, SignedLinear):
            torch.nn.init.normal_(module.weight)
            module.project_()
    individual, alternatives, mask = (
        torch.randn(4, 2, dtype=dtype),
        torch.randn(4, 5, 3, dtype=dtype),
        torch.ones(4, 5).bool(),
    )
    dearer = alternatives.clone()
    dearer[:, 0, 2] += step
    with torch.no_grad():
        before, after = rates.scores(individual, alternatives), rates.scores(individual, dearer)
        moved = after - before
        assert (moved[:, 1:, 0] <= tolerance).all()
        assert (moved[:, 0, 1:] >= -tolerance).all()
        torch.testing.assert_close(after[:, 1:, 1:], before[:, 1:, 1:])
        if double:
            scaled = [stationary_distribution(s.clamp(-30, 30).exp(), mask)[:, 0] for s in (before, after)]
            assert (scaled[1] <= scaled[0] * (1 + 1e-9)).all()


def test_a_signed_network_still_uses_the_input() -> None:
    torch.manual_seed(0)
    rates = PairwiseRates(0, 1, (8, 8), initialisation="paper", signs=torch.tensor([-1.0]))
    alternatives = torch.tensor([[[0.0], [1.0]]])
    scores = rates.scores(torch.zeros(1, 0), alternatives)[0]
    assert scores[1, 0] > scores[0, 1]  # the rate to the cheaper alternative is higher


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_a_nonmonotone_activation_is_refused(activation: str) -> None:
    with pytest.raises(ConfigError, match=f"monotone activation.*got '{activation}'"):
        PairwiseRates(0, 1, activation=activation, signs=torch.ones(1))  # type: ignore[arg-type]
