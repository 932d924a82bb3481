"""The networks with factored rates: values by hand, their dense chains, context effects, signs, classes and exports."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from choice_tables import ROLES, read, trips
from network_batches import chosen_places, largest_set, log_odds_terms
from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.layers import stationary_distribution
from pcmcnet.layers.factored import FactoredRates
from pcmcnet.models import PCMCNet
from pcmcnet.models.networks.averaged_members import NetworkSpec
from pcmcnet.models.networks.chain_network import AveragedChains
from pcmcnet.models.networks.export import ExportedNetwork
from pcmcnet.models.networks.factored_network import FactoredMixture, FactoredNetwork
from pcmcnet.models.networks.network_slopes import NumericInput, jacobian_by_output
from pcmcnet.models.pcmcnet import PCMCNetConfig


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    """Sets of 1 to 5 trips with numbers, a category, labels and individual columns."""
    return read(trips(20, single=True, slope=-0.2), **{k: ROLES[k] for k in ("alternative", "individual", "features")})


def random_network(
    data: ChoiceData, *, rank: int = 3, classes: int = 1, spread: float = 0.7, **options: Any
) -> tuple[Any, Batch]:
    """Return a network with random weights in float64, and a batch of all sets."""
    encoder = Encoder.learn(data, labels=True)
    model = PCMCNet(**{"hidden": (6,), "rank": rank, **options})
    network: Any = model._build(encoder, NetworkSpec(classes=classes, rank=rank)).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in network.parameters():
            weights.copy_(spread * torch.randn(weights.shape, generator=generator))
        for part in network.sign_constrained:
            part.project_()
    batch = encoder.encode(data).batch(np.arange(len(data)))
    numbers: dict[str, Any] = {"numeric": batch.numeric.double(), "individual_numeric": batch.individual_numeric}
    return network, replace(batch, **{**numbers, "individual_numeric": batch.individual_numeric.double()})


@torch.no_grad()
def distribution_of(network: FactoredNetwork, batch: Batch) -> torch.Tensor:
    """Return the probabilities (B, J)."""
    p: torch.Tensor = network(batch).exp()
    return p


# -- values ---------------------------------------------------------------------------------------------------------


def test_two_factors_by_hand() -> None:
    """Inputs -1 and 1; log u = (0, x log 2), log v = (x log 3, 0).

    u_0 = (1, 1/2), u_1 = (1, 2), v_0 = (1/3, 1), v_1 = (3, 1), so q_01 = 3 + 1/2 and q_10 = 1/3 + 2. Of two
    alternatives, the first has the share q_10 / (q_01 + q_10) = (7/3) / (35/6) = 2/5.
    """
    table = {"trip": [0, 0], "took": [1, 0], "x": [-1.0, 1.0]}
    encoder = Encoder.learn(read(table, features=["x"]))
    network = FactoredNetwork(encoder, PCMCNetConfig(hidden=(), utility="none"), rank=2)
    batch = encoder.encode(read(table, features=["x"])).batch(np.array([0]))
    torch.testing.assert_close(batch.numeric.flatten(), torch.tensor([-1.0, 1.0]))
    with torch.no_grad():
        network.rates.what.weight.copy_(torch.tensor([[0.0], [math.log(2)], [math.log(3)], [0.0]]))
        network.rates.what.bias.zero_()
    rates = torch.tensor([[1 / 3 + 1 / 2, 3.5], [1 / 3 + 2, 5.0]])
    off_diagonal = ~torch.eye(2, dtype=torch.bool)
    ratio = network.chains(batch)[0, 0][off_diagonal] / rates[off_diagonal]
    torch.testing.assert_close(ratio[0], ratio[1])  # the time scale is free
    torch.testing.assert_close(distribution_of(network, batch), torch.tensor([[0.4, 0.6]]))


def test_equal_factors_give_the_logit_of_the_utility(data: ChoiceData) -> None:
    network, batch = random_network(data)
    with torch.no_grad():
        network.rates.layers[-1].weight.zero_()
    utility = network.utility(batch, *network.represent(batch))
    expected = utility.masked_fill(~batch.mask, -math.inf).log_softmax(1)
    torch.testing.assert_close(network(batch), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"utility": "none"}, {"hidden": ()}, {"activation": "tanh", "rank": 7}])
def test_probabilities_are_those_of_the_dense_chain(data: ChoiceData, options: dict[str, Any]) -> None:
    network, batch = random_network(data, **options)
    rates = network.chains(batch).squeeze(1)
    assert rates.shape == (*batch.mask.shape, batch.mask.shape[1])
    p = distribution_of(network, batch)
    torch.testing.assert_close(p, stationary_distribution(rates, batch.mask), rtol=0, atol=1e-12)
    assert p[batch.mask].std() > 0.1
    assert (p[~batch.mask] == 0).all()


def test_padding_changes_no_probability(data: ChoiceData) -> None:
    network, batch = random_network(data)
    p = distribution_of(network, batch)
    for s, size in enumerate(batch.mask.sum(1).tolist()):
        alone = distribution_of(network, chosen_places(batch, s, range(size)))
        torch.testing.assert_close(alone[0], p[s, :size], rtol=0, atol=1e-14)


def test_the_cost_of_a_set_is_its_alternatives_times_its_factors(data: ChoiceData) -> None:
    network, _ = random_network(data, rank=5)
    assert network.count_pairs(np.array([1, 4, 100])).tolist() == [5, 20, 500]


# -- properties -----------------------------------------------------------------------------------------------------


def test_one_factor_has_no_context_effects_and_several_have(data: ChoiceData) -> None:
    """With one factor, the odds of two alternatives are those of a logit, whatever the other alternatives are."""
    sizes = {}
    for rank in (1, 8):
        network, batch = random_network(data, rank=rank)
        terms = log_odds_terms(network, batch, *largest_set(batch))
        sizes[rank] = max(abs(term) for others, term in terms.items() if others)
    assert sizes[1] < 1e-12
    assert sizes[8] > 1e-2


@pytest.mark.parametrize("classes", [1, 2])
def test_copies_share_their_probability(data: ChoiceData, classes: int) -> None:
    network, batch = random_network(data, classes=classes)
    twice = replace(
        batch,
        numeric=batch.numeric.repeat(1, 2, 1),
        categorical=batch.categorical.repeat(1, 2, 1),
        mask=batch.mask.repeat(1, 2),
    )
    p, copies = distribution_of(network, batch), distribution_of(network, twice)
    J = p.shape[1]
    torch.testing.assert_close(copies[:, :J], p / 2, rtol=0, atol=1e-12)
    torch.testing.assert_close(copies[:, J:], p / 2, rtol=0, atol=1e-12)


def test_the_order_of_alternatives_does_not_matter(data: ChoiceData) -> None:
    network, batch = random_network(data)
    s, n = largest_set(batch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1)).tolist()
    p = distribution_of(network, chosen_places(batch, s, range(n)))[0]
    torch.testing.assert_close(
        distribution_of(network, chosen_places(batch, s, order))[0], p[order], rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("direction", ["decreasing", "increasing"])
def test_probabilities_move_with_the_sign(data: ChoiceData, direction: Any, classes: int) -> None:
    """Higher rates into an alternative and lower rates out of it raise its probability, for every factor."""
    options: dict[str, Any] = {"monotone": {"price": direction}, "rank": 4, "hidden": (8, 8), "classes": classes}
    network, batch = random_network(data, **options)
    moved = 0.0
    for place in range(batch.mask.shape[1]):
        higher = batch.numeric.clone()
        higher[:, place, 0] += 0.5
        change = (distribution_of(network, replace(batch, numeric=higher)) - distribution_of(network, batch))[:, place]
        gain = change if direction == "increasing" else -change
        assert gain.min() > -1e-13
        moved = max(moved, float(gain.max()))
    assert moved > 1e-3


# -- latent classes -------------------------------------------------------------------------------------------------


def test_a_mixture_weights_its_chains_by_their_shares(data: ChoiceData) -> None:
    network, batch = random_network(data, classes=3)
    assert isinstance(network, FactoredMixture)
    rates = network.chains(batch)
    assert rates.shape[:2] == (len(data), 3)
    p = torch.stack([stationary_distribution(q, batch.mask) for q in rates.unbind(1)], 1)
    assert (p[:, 0] - p[:, 1]).abs().max() > 0.01
    mixed = (network.log_membership(batch).exp().unsqueeze(-1) * p).sum(1)
    torch.testing.assert_close(distribution_of(network, batch), mixed, rtol=0, atol=1e-12)


# -- derivatives and export -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("individual", [False, True])
def test_slopes_agree_with_differences(data: ChoiceData, individual: bool, classes: int) -> None:
    network, batch = random_network(data, classes=classes, activation="tanh")
    slopes = jacobian_by_output(network, batch, NumericInput(individual=individual, k=0))
    name = "individual_numeric" if individual else "numeric"
    step = torch.zeros_like(getattr(batch, name))
    step[..., 0] = 1e-5 if individual else 0.0
    if not individual:
        step[:, 1, 0] = 1e-5
    with torch.no_grad():
        up, down = (network(replace(batch, **{name: getattr(batch, name) + by})) for by in (step, -step))
    expected = ((up - down) / 2e-5)[batch.mask]
    result = slopes if individual else slopes[:, :, 1]
    # central differences have an error of second order in the step of 1e-5
    torch.testing.assert_close(result[batch.mask], expected, rtol=1e-6, atol=1e-8)
    assert expected.abs().max() > 0.01


@pytest.mark.parametrize("classes", [1, 2])
def test_the_exported_form_gives_the_same_probabilities(data: ChoiceData, classes: int) -> None:
    """The export solves the chain of factors with operators of ONNX, in float32."""
    network, batch = random_network(data, classes=classes, spread=1.5)
    single = replace(batch, numeric=batch.numeric.float(), individual_numeric=batch.individual_numeric.float())
    sides = (single.numeric, single.categorical, single.individual_numeric, single.individual_categorical)
    exported = ExportedNetwork(network)(single.mask, *sides)
    torch.testing.assert_close(exported, distribution_of(network, batch).float(), rtol=0, atol=1e-5)  # float32


def test_the_exported_average_gives_the_mean_of_its_members(data: ChoiceData) -> None:
    networks = [random_network(data, spread=spread) for spread in (0.5, 0.9)]
    batch = networks[0][1]
    average = AveragedChains([network for network, _ in networks], [torch.nn.Identity()])
    single = replace(batch, numeric=batch.numeric.float(), individual_numeric=batch.individual_numeric.float())
    sides = (single.numeric, single.categorical, single.individual_numeric, single.individual_categorical)
    mean = sum(distribution_of(network, batch) for network, _ in networks) / 2
    torch.testing.assert_close(
        ExportedNetwork(average)(single.mask, *sides), mean.float(), rtol=0, atol=1e-5
    )  # float32


def test_an_average_has_the_chain_of_its_distribution(data: ChoiceData) -> None:
    networks = [random_network(data, spread=spread) for spread in (0.5, 0.9)]
    batch = networks[0][1]
    average = AveragedChains([network for network, _ in networks], [torch.nn.Identity()])
    with torch.no_grad():
        p, rates = average(batch).exp(), average.chains(batch).squeeze(1)
    torch.testing.assert_close(stationary_distribution(rates, batch.mask), p, rtol=0, atol=1e-12)
    assert average.count_pairs(np.array([4])).tolist() == [12]


# -- initial weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [(), (16,), (64, 64)])
def test_factors_start_with_a_spread_of_about_one(data: ChoiceData, hidden: tuple[int, ...]) -> None:
    """Equal factors have no gradient towards context effects."""
    encoder = Encoder.learn(data, labels=True)
    batch = encoder.encode(data).batch(np.arange(len(data)))
    for seed in range(3):
        torch.manual_seed(seed)
        network = FactoredNetwork(encoder, PCMCNetConfig(hidden=hidden), rank=16)
        with torch.no_grad():
            factors = torch.cat(network.log_factors(batch), -1)[batch.mask]
        assert 0.4 < float(factors.std(0).mean()) < 2.5
        terms = log_odds_terms(network, batch, *largest_set(batch))
        assert max(abs(term) for others, term in terms.items() if others) > 1e-3


@pytest.mark.parametrize("hidden", [(), (6, 5)])
def test_blocks_of_alternatives_give_the_same_factors_and_gradients(
    hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = FactoredRates(2, 3, 4, hidden).double()
    gen = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=gen, dtype=torch.float64) for shape in ((3, 2), (3, 11, 3))]

    def values_and_gradients() -> list[torch.Tensor]:
        leaves = [x.clone().requires_grad_() for x in inputs]
        outputs = network(*leaves)
        weights = [torch.arange(x.numel(), dtype=torch.float64).cos().view(x.shape) for x in outputs]
        return [*outputs, *torch.autograd.grad(outputs, [*leaves, *network.parameters()], weights)]

    expected = values_and_gradients()
    for most in (1, 7, 32):
        monkeypatch.setattr("pcmcnet.layers.factored.factored_rates.BLOCK_ALTERNATIVES", most)
        torch.testing.assert_close(values_and_gradients(), expected, rtol=1e-12, atol=1e-12)
