"""The networks of PCMC-Net: mixtures of chains, averages of chains, and compiled forms."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pcmcnet as pn
from choice_tables import ROLES, read, trips
from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.decisions.offer_value import Chains
from pcmcnet.decisions.optimise_offer import structure_of
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.chain import chain
from pcmcnet.layers import settings, solve_chain, stationary_distribution
from pcmcnet.models import PCMCNet
from pcmcnet.models.networks import chain_network, pairwise_network
from pcmcnet.models.networks.averaged_members import members_of
from pcmcnet.models.networks.chain_network import AveragedChains
from pcmcnet.models.networks.export import ExportedNetwork
from pcmcnet.models.networks.mixture_model import joint_losses
from pcmcnet.models.networks.pairwise_network import ChainMixture, PCMCNetwork
from pcmcnet.models.pcmcnet import PCMCNetConfig
from pcmcnet.serving.worker import has_single_chain
from pcmcnet.training.data_parallel import ProcessGroup, training_in_group

FAST: dict[str, Any] = {"hidden": (8, 8), "epochs": 2, "weight_decay": 0.1}


def shopping(persons: int = 30, sets: int = 3, seed: int = 0) -> ChoiceData:
    """Simulate households with a favourite of three brands. Larger households prefer it more."""
    rng = np.random.default_rng(seed)
    S = persons * sets
    household, size = np.repeat(np.arange(persons), sets), np.repeat(rng.normal(size=persons), sets)
    price, loyal = rng.uniform(1, 3, (S, 3)), np.repeat(rng.integers(3, size=persons), sets)
    u = -price + 2.0 * (np.arange(3) == loyal[:, None]) + rng.gumbel(size=(S, 3))
    table = {
        "trip": np.repeat(np.arange(S), 3),
        "household": np.repeat(household, 3),
        "size": np.repeat(size, 3),
        "brand": np.tile(["a", "b", "c"], S),
        "price": price.ravel(),
        "bought": (u == u.max(1, keepdims=True)).ravel(),
    }
    roles: dict[str, Any] = {
        "features": ["price"],
        "individual": ["size"],
        "alternative": "brand",
        "person": "household",
    }
    return ChoiceData.from_long(table, choice_set="trip", chosen="bought", **roles)


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return shopping()


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> PCMCNet:
    return PCMCNet(classes=3, **FAST).fit(data, progress=False)


def random_network(data: ChoiceData, **options: Any) -> tuple[ChainMixture, Batch]:
    """Return a network of three classes with random weights in float64, and all sets as a batch."""
    encoder = Encoder.learn(data, labels=True)
    torch.manual_seed(0)
    network = ChainMixture(encoder, PCMCNetConfig(hidden=(6,), **options), classes=3)
    for weights in network.parameters():
        torch.nn.init.normal_(weights, std=0.7)
    for part in network.sign_constrained:
        part.project_()
    encoded = encoder.encode(data)
    batch = encoded.batch(np.arange(len(data)))
    numbers: dict[str, Any] = {
        "numeric": batch.numeric.double(),
        "individual_numeric": batch.individual_numeric.double(),
    }
    return network.double(), replace(batch, weight=batch.weight.double(), **numbers)


# -- mixtures of chains ---------------------------------------------------------------------------------------------


def test_a_mixture_weights_chains_by_their_shares(model: PCMCNet, data: ChoiceData) -> None:
    probabilities = [
        np.stack([stationary_distribution(torch.from_numpy(q)).numpy() for q in model.rates(data, of_class=k)])
        for k in (1, 2, 3)
    ]  # 3 x (S, 3)
    shares = model.membership(data)  # (S, 3)
    mixed = np.einsum("sk,ksj->sj", shares, np.stack(probabilities))
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(data), mixed.ravel(), atol=2e-6)  # float32
    assert np.abs(probabilities[0] - probabilities[1]).max() > 0.01


def test_choices_of_a_person_are_joint() -> None:
    """Person 7 chose with .5, .1 and with .2, .6 in two classes of shares 3/4, 1/4: 3/4 .5 .2 + 1/4 .1 .6 = .09."""
    p = torch.tensor([[0.5, 0.1], [0.2, 0.6], [0.4, 0.8]], dtype=torch.float64)
    share_logits = torch.tensor([[math.log(3), 0.0]] * 3, dtype=torch.float64)
    result = joint_losses(share_logits, p.log(), torch.tensor([7, 7, 2]))
    expected = [-math.log(0.09) / 2, -math.log(0.09) / 2, -math.log(0.75 * 0.4 + 0.25 * 0.8)]
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)


def test_the_loss_of_a_batch_is_that_of_its_persons(data: ChoiceData) -> None:
    network, batch = random_network(data)
    log_m, p = network.log_membership(batch), network.classwise(batch)[1]
    chosen = p[torch.arange(len(data)), :, batch.chosen].log()  # (S, 3)
    assert batch.person is not None
    persons = [batch.person == individual for individual in np.unique(batch.person.numpy())]
    joint = torch.stack([torch.logsumexp(log_m[own][0] + chosen[own].sum(0), 0) for own in persons]).sum()
    torch.testing.assert_close(network.set_losses(batch).sum(), -joint)
    alone = replace(batch, person=None)
    torch.testing.assert_close(
        network.set_losses(alone), -network(batch)[torch.arange(len(data)), batch.chosen], rtol=1e-12, atol=1e-12
    )


def test_copies_share_their_probability_in_a_mixture(data: ChoiceData) -> None:
    """Uniform expansion holds in every class, and shares of classes do not depend on the set."""
    network, batch = random_network(data)
    twice = replace(
        batch,
        numeric=batch.numeric.repeat(1, 2, 1),
        categorical=batch.categorical.repeat(1, 2, 1),
        mask=batch.mask.repeat(1, 2),
    )
    p, copies = network(batch).exp(), network(twice).exp()
    torch.testing.assert_close(copies[:, :3] + copies[:, 3:], p, rtol=0, atol=1e-12)


def test_a_mixture_of_monotone_chains_is_monotone(data: ChoiceData) -> None:
    network, batch = random_network(data, monotone={"price": "decreasing"})
    dearer = batch.numeric.clone()
    dearer[:, 0, 0] += 0.5
    p, q = network(batch), network(replace(batch, numeric=dearer))
    assert (q[:, 0] < p[:, 0] + 1e-12).all()
    assert (q[:, 0] < p[:, 0] - 1e-6).any()


def test_posterior_shares_follow_bayes_rule(model: PCMCNet, data: ChoiceData) -> None:
    """Prior times the product over the sets of the person."""
    prior, posterior = model.membership(data), model.posterior(data)
    own = np.flatnonzero(data.groups(None) == data.groups(None)[0])
    picked = data.offsets[own] + data.require_chosen("a test")[own]
    p = np.exp(model._class_log_p(data))[picked]  # (3, 3)
    expected = prior[own[0]] * p.prod(0)
    np.testing.assert_allclose(posterior[own[0]], expected / expected.sum(), rtol=1e-5)
    given = model.predict_proba_given(data, data).reshape(-1, 3)
    probabilities = np.exp(model._class_log_p(data)).reshape(-1, 3, 3)  # (S, J, K)
    np.testing.assert_allclose(given[0], probabilities[0] @ posterior[0], rtol=1e-5)


def test_a_mixture_is_saved_with_its_classes(model: PCMCNet, data: ChoiceData, tmp_path: Path) -> None:
    loaded = pn.load(model.save(tmp_path / "model"))
    assert isinstance(loaded, PCMCNet)
    assert loaded.n_classes_ == 3
    np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))


def test_rates_of_a_mixture_need_a_class(model: PCMCNet, data: ChoiceData) -> None:
    with pytest.raises(
        InputError, match=r"is a mixture of 3 chains, one for each class: choose a class, as in of_class=1"
    ):
        model.rates(data)
    with pytest.raises(InputError, match=r"of_class: expected a class from 1 to 3, got 4"):
        model.rates(data, of_class=4)
    assert not has_single_chain(model)


def test_the_chain_of_a_set_belongs_to_a_class(model: PCMCNet, data: ChoiceData) -> None:
    shares = model.membership(data)[0]
    result = chain(model, data, 0)
    assert result.of_class == int(shares.argmax()) + 1
    assert result.share == pytest.approx(shares.max())
    assert result.name == f"choice set 0, class {result.of_class} ({result.share:.0%})"
    np.testing.assert_array_equal(chain(model, data, 0, of_class=2).rates, model.rates(data, of_class=2)[0])


def test_offers_can_be_optimised_for_a_mixture_of_chains(model: PCMCNet, data: ChoiceData) -> None:
    value = structure_of(model, data.subset([0, 1]), np.array([1.0, 2.0, 3.0]))
    assert isinstance(value, Chains)
    np.testing.assert_allclose(value.weights, model.membership(data)[:2])
    prices, size = data.features["price"], data.individual["size"]
    assert isinstance(prices, Numeric)
    assert isinstance(size, Numeric)
    offer = {"trip": [0, 0], "brand": ["a", "b"], "price": prices.values[:2], "size": size.values[[0, 0]]}
    p, shown = model.predict_proba(offer), np.array([[True, True, False]])
    np.testing.assert_allclose(value.probabilities(shown, np.array([0]))[0, :2], p, atol=1e-5)  # float32


@pytest.mark.slow  # tracing the exported elimination takes time
def test_an_exported_mixture_has_the_same_probabilities(model: PCMCNet, data: ChoiceData) -> None:
    batch = model.encoder_.encode(data).batch(np.arange(len(data)))
    assert isinstance(model.network_, ChainMixture)
    sides = (batch.numeric, batch.categorical, batch.individual_numeric)
    p = ExportedNetwork(model.network_)(batch.mask, *sides)
    np.testing.assert_allclose(p.numpy().ravel(), model.predict_proba(data), atol=1e-6)


def test_summary_and_diagram_name_the_classes(model: PCMCNet) -> None:
    assert model.summary().facts["classes"] == "3, one chain each"
    drawing = model.diagram()
    assert "3 classes k" in drawing
    assert f"{model.num_parameters:,} parameters in all" in drawing


def test_the_weight_decay_is_learnt_with_one_chain(data: ChoiceData) -> None:
    one, two = (PCMCNet(classes=k, hidden=(4,), epochs=1).fit(data, progress=False) for k in (1, 2))
    assert two.record_.decay_search == one.record_.decay_search
    assert two.n_classes_ == 2


def test_classes_of_persons_need_one_process(data: ChoiceData) -> None:
    with (
        training_in_group(ProcessGroup(size=2)),
        pytest.raises(ConfigError, match=r"by='person' is not supported.*by='set'"),
    ):
        PCMCNet(classes=2, **FAST).fit(data, progress=False)


@pytest.mark.parametrize("options", [{"utility": "none"}, {"by": "set"}, {"rate": "relu", "epsilon": 0.5}])
def test_classes_differ_in_every_form_of_the_network(data: ChoiceData, options: dict[str, Any]) -> None:
    fitted = PCMCNet(classes=2, **FAST, **options).fit(data, progress=False)
    p = np.exp(fitted._class_log_p(data))
    assert np.abs(p[:, 0] - p[:, 1]).max() > 1e-3


@pytest.mark.parametrize("value", [0, 1.5, "two"])
def test_an_impossible_number_of_classes_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"classes must be a whole number of at least 1, got"):
        PCMCNet(classes=value)


# -- averages of chains ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def average(data: ChoiceData) -> PCMCNet:
    return PCMCNet(hidden=(6,), epochs=2, weight_decay=0.1, members=3).fit(data, progress=False)


def test_the_rates_of_an_average_have_its_distribution(average: PCMCNet, data: ChoiceData) -> None:
    p = np.split(average.predict_proba(data), data.offsets[1:-1])
    for rates, expected in zip(average.rates(data), p, strict=True):
        np.testing.assert_allclose(stationary_distribution(torch.from_numpy(rates)).numpy(), expected, rtol=1e-5)


def test_small_batches_of_an_average_take_one_solution(
    average: PCMCNet, data: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def count_and_solve(rates: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        calls.append(len(rates))
        return solve_chain(rates, mask)

    for module in (chain_network, pairwise_network):
        monkeypatch.setattr(module, "solve_chain", count_and_solve)
    monkeypatch.setattr(PCMCNetwork.distribution, "__defaults__", (count_and_solve,))
    together = average.predict_proba(data)
    assert calls == [3 * len(data)]
    monkeypatch.setattr(settings, "SOLVE_TOGETHER_UP_TO_PAIRS", 0)
    np.testing.assert_allclose(average.predict_proba(data), together, rtol=1e-6)  # float32
    assert calls == [3 * len(data), *[len(data)] * 3]


def test_flows_of_an_average_are_the_mean_flows_of_its_members(average: PCMCNet, data: ChoiceData) -> None:
    """p_i q_ij = 1/M sum_m p^m_i q^m_ij, with the chains of the members alone."""
    network = average.network_
    assert isinstance(network, AveragedChains)
    network = network.eval()
    batch = average.encoder_.encode(data).batch(np.arange(len(data)))
    with torch.no_grad():
        rates, p = network.chains(batch).squeeze(1), network(batch).exp()
        flows = [
            member.distribution(seen).unsqueeze(2) * member.chains(seen).squeeze(1)
            for member, seen in network.chain_inputs(batch)
        ]
    off_diagonal = ~torch.eye(batch.mask.shape[1], dtype=torch.bool)
    result, expected = (x[:, off_diagonal] for x in (p.unsqueeze(2) * rates, torch.stack(flows).mean(0)))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-7)  # float32
    assert len(flows) == 3


def test_fixed_chains_of_an_average_are_those_of_its_members(average: PCMCNet, data: ChoiceData) -> None:
    shares, rates = average.fixed_chains(data)
    assert np.array_equal(shares, np.full((len(data), 3), 1 / 3))
    probabilities = [stationary_distribution(torch.from_numpy(of_set)).numpy().mean(0) for of_set in rates]
    np.testing.assert_allclose(np.concatenate(probabilities), average.predict_proba(data), rtol=1e-5)


def test_the_best_offer_of_an_average_is_proven() -> None:
    """An enumeration of all offers has no better one."""
    table = trips(60, slope=-0.3)
    roles = {key: ROLES[key] for key in ("alternative", "individual", "features")}
    model = PCMCNet(hidden=(6,), epochs=2, weight_decay=0.1, members=3).fit(read(table, **roles), progress=False)
    catalogue = {name: values[:6] for name, values in trips(1, sizes=(6, 6)).items()}
    revenue = np.arange(1.0, 7.0)
    person = {"income": 30.0, "purpose": "work"}
    offer = pn.optimise_offer(model, catalogue, revenue=revenue, individual=person)
    assert offer.exact
    earned = []
    for number in range(1, 64):
        shown = np.flatnonzero([number >> k & 1 for k in range(6)])
        part = {name: np.asarray(values)[shown] for name, values in catalogue.items()}
        part |= {name: [value] * len(shown) for name, value in person.items()} | {"trip": [0] * len(shown)}
        earned.append(float(model.predict_proba(part) @ revenue[shown]))
    assert offer.value == pytest.approx(max(earned), rel=1e-5)


def test_copies_share_their_probability_in_an_average() -> None:
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["price", "minutes"]}
    table = {name: np.asarray(values) for name, values in trips(40, slope=-0.3).items()}
    data = ChoiceData.from_long(table, **roles)
    model = PCMCNet(hidden=(6,), epochs=2, weight_decay=0.1, members=3).fit(data, progress=False)
    once = {name: values[table["trip"] == 0] for name, values in table.items()}
    twice = {name: np.tile(values, 2) for name, values in once.items()}
    twice["took"][len(once["took"]) :] = False
    p, q = (model.predict_proba(ChoiceData.from_long(part, **roles)) for part in (once, twice))
    np.testing.assert_allclose(q.reshape(2, -1), np.tile(p / 2, (2, 1)), rtol=1e-5)


# -- compiled training steps ----------------------------------------------------------------------------------------


def test_only_one_small_chain_has_a_compiled_form(model: PCMCNet, average: PCMCNet, data: ChoiceData) -> None:
    encoder = average.encoder_
    assert members_of(average.network_)[0].compiled_form is not None
    assert average.network_.compiled_form is None
    assert model.network_.compiled_form is None  # a mixture
    for options in (
        {"dropout": 0.1},
        {"activation": "tanh"},
        {"rate": "softplus"},
    ):
        config: Any = PCMCNetConfig(hidden=(4,), **options)
        assert PCMCNetwork(encoder, config).compiled_form is None


# -- recovery -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mixture_of_two_chains_is_recovered() -> None:
    """20,000 sets of 4. Classes depend on an individual column, rates on features of both alternatives: KL < 0.003."""
    rng = np.random.default_rng(0)
    S, J = 20_000, 4
    x, individuals = rng.normal(size=(S, J, 2)), rng.normal(size=S)
    first = 1 / (1 + np.exp(-0.5 - 2 * individuals))
    log_q = [
        1.5 * x[:, None, :, 0] + np.tanh(x[:, :, None, 1] * x[:, None, :, 0]),
        -1.0 * x[:, None, :, 0] + 1.5 * x[:, None, :, 1] - 0.5 * np.tanh(x[:, :, None, 0] - x[:, None, :, 0]),
    ]
    probabilities = [stationary_distribution(torch.from_numpy(np.exp(q))).numpy() for q in log_q]
    p = first[:, None] * probabilities[0] + (1 - first[:, None]) * probabilities[1]
    chosen = (rng.random((S, 1)) < p.cumsum(1)).argmax(1)
    table = {
        "set": np.repeat(np.arange(S), J),
        "x": x[..., 0].ravel(),
        "y": x[..., 1].ravel(),
        "who": np.repeat(individuals, J),
        "chosen": (np.arange(J) == chosen[:, None]).ravel(),
    }
    data = ChoiceData.from_long(table, choice_set="set", chosen="chosen", features=["x", "y"], individual=["who"])
    log_p = PCMCNet(classes=2).fit(data, progress=False).predict_log_proba(data).reshape(S, J)
    assert float((p * (np.log(p) - log_p)).sum(1).mean()) < 0.003
