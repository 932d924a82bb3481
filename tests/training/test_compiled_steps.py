"""Compiled steps equal those of PyTorch up to rounding, for every supported network."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from choice_tables import ROLES, read, trips
from pcmcnet import PCMCNet
from pcmcnet.data.batches import EncodedSets
from pcmcnet.data.encoder import learn_encoder
from pcmcnet.errors import TrainingError
from pcmcnet.layers import settings
from pcmcnet.layers.likelihood import choice_nll
from pcmcnet.models.networks.chain_network import ChainNetwork
from pcmcnet.models.networks.factored_network import FactoredNetwork
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.models.pcmcnet import PCMCNetConfig
from pcmcnet.training import compiled_steps
from pcmcnet.training.compiled_steps import CompiledSteps
from pcmcnet.training.loop import train
from pcmcnet.training.prediction import predict
from pcmcnet.training.step import Steps, steps_for

needs_compiled = pytest.mark.skipif(
    compiled_steps.compiled_library() is None, reason="the package was built without a compiler"
)

EVERYTHING = {key: ROLES[key] for key in ("choice_set", "chosen", "alternative", "individual", "features", "weight")}
NO_INDIVIDUAL = {**EVERYTHING, "individual": []}
NUMBERS = {"choice_set": "trip", "chosen": "took", "features": ["price", "minutes"]}
LABELS = {"choice_set": "trip", "chosen": "took", "alternative": "mode"}


Networks = tuple[Any, PCMCNetConfig, ChainNetwork, ChainNetwork]


def both(roles: dict[str, Any], **options: Any) -> Networks:
    """Encode a small table; build a network with random weights, and its copy."""
    data = read(trips(40, sizes=(2, 6), single=True), **roles)
    encoder, config = learn_encoder(data, labels=True), PCMCNetConfig(clip=0.5, weight_decay=0.1, **options)
    torch.manual_seed(0)
    rank = config.rank
    network = FactoredNetwork(encoder, config, rank=rank) if isinstance(rank, int) else PCMCNetwork(encoder, config)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    for table in (*network.alternative.embeddings, *network.individual.embeddings):
        table.weight.data[0] = 0
    if getattr(network, "items", None) is not None:
        torch.nn.init.normal_(network.items)
    return encoder.encode(data), config, network, copy.deepcopy(network)


@needs_compiled
@pytest.mark.parametrize("rank", [None, 1, 3, 8], ids=["pairs", "1 factor", "3 factors", "8 factors"])
@pytest.mark.parametrize("options", [{}, {"hidden": ()}, {"hidden": (5,)}, {"hidden": (17, 3, 20)}], ids=str)
@pytest.mark.parametrize(
    "roles", [EVERYTHING, NO_INDIVIDUAL, NUMBERS, LABELS], ids=["all", "alone", "numbers", "labels"]
)
def test_a_step_has_the_gradient_and_update_of_pytorch(
    roles: dict[str, Any], options: dict[str, Any], rank: int | None
) -> None:
    require_same_step(*both(roles, rank=rank, **options))


@needs_compiled
@pytest.mark.parametrize(
    "options",
    [
        {"utility": "none"},
        {"utility": "none", "rate": "relu", "epsilon": 0.5, "activation": "relu"},
        {"epsilon": 0.01},
        {"activation": "relu"},
        {"activation": "relu", "rank": 5},
        {"utility": "none", "rank": 5},
    ],
    ids=str,
)
def test_other_rate_forms_match_pytorch(options: dict[str, Any]) -> None:
    require_same_step(*both(EVERYTHING, hidden=(9, 8), **options))


@needs_compiled
@pytest.mark.parametrize("roles", [EVERYTHING, NO_INDIVIDUAL, NUMBERS], ids=["all", "alone", "numbers"])
@pytest.mark.parametrize("options", [{}, {"utility": "none"}, {"rank": 4}], ids=["utility", "no utility", "factors"])
def test_signed_weights_match_pytorch(roles: dict[str, Any], options: dict[str, Any]) -> None:
    """With a taste of the individual that reverses the sign of some coefficients, so that these are clipped."""
    signs = {"price": "decreasing", "minutes": "increasing"}
    data, config, network, other = both(roles, hidden=(9, 8), monotone=signs, **options)
    for each in (network, other):
        for part in each.sign_constrained:
            part.project_()
    if network.utility is not None and network.utility.taste is not None:
        individual = network.represent(data.batch(np.arange(len(data))))[0]
        assert (network.utility.tastes(individual) != network.utility.weights(individual)).any()
    require_same_step(data, config, network, other)
    for part in network.sign_constrained:
        for weights, low, high in part.bounded_weights:
            assert (weights >= low).all()
            assert (weights <= high).all()


@needs_compiled
def test_rates_that_differ_by_any_factor_are_not_lost() -> None:
    data, config, network, other = both(EVERYTHING, hidden=(9, 8), utility="none")
    for each in (network, other):
        each.rates.output.weight.data *= 100
    scores = network.rates.scores(*network.represent(data.batch(np.arange(len(data)))))
    levels = scores.amax(2)
    assert (levels.amax(1) - levels.amin(1)).max() > 60
    require_same_step(data, config, network, other)


def sampled(data: EncodedSets) -> EncodedSets:
    """Return the sets with random expansion factors between 1/20 and 20."""
    generator = torch.Generator().manual_seed(5)
    return replace(data, log_expansion=(torch.rand(len(data.numeric), generator=generator) * 2 - 1) * np.log(20))


@needs_compiled
@pytest.mark.parametrize("roles", [EVERYTHING, NUMBERS], ids=["all", "numbers"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden": ()},
        {"epsilon": 0.01},
        {"utility": "none"},
        {"utility": "none", "rate": "relu", "epsilon": 0.5},
        {"rank": 1},
        {"rank": 5},
        {"rank": 5, "utility": "none"},
    ],
    ids=str,
)
def test_steps_on_sampled_alternatives_match_pytorch(roles: dict[str, Any], options: dict[str, Any]) -> None:
    data, *networks = both(roles, **({"hidden": (9, 8)} | options))
    require_same_step(sampled(data), *networks)


@needs_compiled
@pytest.mark.parametrize("rank", [None, 3], ids=["pairs", "factors"])
def test_losses_of_sampled_alternatives_match_pytorch(rank: int | None) -> None:
    """The training sets may be a sample and the validation sets not, and the other way round."""
    data, config, network, _ = both(EVERYTHING, rank=rank, hidden=(9, 8))
    losses = []
    for source, other in ((sampled(data), data), (data, sampled(data))):
        steps = steps_for(network, source, config)
        assert isinstance(steps, CompiledSteps)
        expected = torch.empty(len(data), dtype=torch.float64)
        for sets, batch, log_p in predict(network, other, pair_budget=1000):
            expected[torch.from_numpy(sets)] = choice_nll(log_p, batch.chosen).double()
        losses.append(steps.nll(other))
        torch.testing.assert_close(losses[-1], expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(*losses, rtol=0.01)


@needs_compiled
@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_factors_that_differ_by_any_ratio_are_not_lost(scale: float) -> None:
    """With log v from -1,000 to 1,000, some shares of entries are below the smallest positive float64."""
    data, config, network, other = both(NUMBERS, hidden=(9, 8), rank=4)
    for each in (network, other):
        each.rates.layers[-1].weight.data *= scale
    log_v = network.log_factors(data.batch(np.arange(len(data))))[1]
    assert log_v.max() - log_v.min() > 2 * scale
    require_same_step(data, config, network, other)


def require_same_step(data: Any, config: PCMCNetConfig, network: ChainNetwork, other: ChainNetwork) -> None:
    """Take a step both ways, and compare losses, gradients (a tenth of them is in the running means) and weights."""
    compiled, plain = steps_for(network, data, config), Steps(other, data, config)
    assert type(compiled) is CompiledSteps
    plan, rates = [np.arange(len(data))[::-1].copy()], [0.01]
    actual, expected = [], []
    for steps, sums in ((compiled, actual), (plain, expected)):
        sums.append(steps.run(data, plan, rates).clone())
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-5, atol=1e-6)
    names = [name for name, _ in network.named_parameters()]
    for name, ours, theirs in zip(names, compiled.optimiser.slots, plain.optimiser.slots, strict=True):
        largest = max(theirs.exp_avg.abs().flatten().tolist(), default=0.0)
        torch.testing.assert_close(ours.exp_avg, theirs.exp_avg, rtol=1e-4, atol=1e-5 * largest + 1e-8, msg=name)
        clear = theirs.exp_avg.abs() > 1e-6  # Adam turns any gradient, even rounding noise, into a full step
        torch.testing.assert_close(ours.weight[clear], theirs.weight[clear], rtol=1e-4, atol=1e-5, msg=name)
        assert ours.step == theirs.step == 1


@needs_compiled
def test_a_fit_learns_the_same_and_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = read(trips(60, slope=-0.3), **EVERYTHING)
    model = PCMCNet(hidden=(8, 8), epochs=3, batch_size=8, weight_decay=0.1)
    calls = []
    real = CompiledSteps._call
    monkeypatch.setattr(CompiledSteps, "_call", lambda self, *given: (calls.append(len(given[0])), real(self, *given)))
    at_once = model.fit(data, progress=False).predict_proba(data)
    monkeypatch.setattr(compiled_steps, "MULTIPLICATIONS_PER_CALL", 1e4)
    whole, calls[:] = list(calls), []
    assert np.array_equal(model.fit(data, progress=False).predict_proba(data), at_once)
    assert sum(calls) == sum(whole)
    assert len(calls) > 2 * len(whole)
    monkeypatch.setattr(compiled_steps, "compiled_library", lambda: None)
    calls.clear()
    np.testing.assert_allclose(model.fit(data, progress=False).predict_proba(data), at_once, atol=1e-4)
    assert not calls


@needs_compiled
@pytest.mark.parametrize("kind", ["compiled", "pytorch"])
@pytest.mark.parametrize("batch_size", [16, 40])
def test_equal_alternatives_give_no_gradient(kind: str, batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All alternatives of a set equal its first one, so the gradient is 0 up to rounding errors."""
    data, config, network, _ = both(NUMBERS, hidden=(9, 8), utility="none")
    first = data.starts.repeat_interleave(data.counts)
    equal = replace(data, numeric=data.numeric[first], categorical=data.categorical[first])
    if kind == "pytorch":
        monkeypatch.setattr(compiled_steps, "compiled_library", lambda: None)
    assert (type(steps_for(network, equal, config)) is CompiledSteps) is (kind == "compiled")
    with pytest.raises(TrainingError, match="epoch 1: no gradient reached the weights"):
        train(network, equal, replace(config, batch_size=batch_size))
    train(network, data, replace(config, epochs=1))


@needs_compiled
def test_utilities_far_below_0_are_handled() -> None:
    """Only differences of utilities matter; exp(900) would overflow."""
    data, config, network, other = both(LABELS, hidden=(4,))
    for each in (network, other):
        assert each.utility is not None
        each.utility.constants[0].data -= 900.0
    require_same_step(data, config, network, other)


@needs_compiled
def test_numbers_near_the_float_limit_are_handled() -> None:
    data, config, network, _ = both(NUMBERS, hidden=(4,))
    data.numeric[data.starts[int(data.sizes.argmax())], 0] = 3e38
    steps = steps_for(network, data, config)
    assert torch.isfinite(steps.run(data, [np.arange(len(data))], [0.01])).all()
    assert all(torch.isfinite(weight).all() for weight in network.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.1},
        {"activation": "tanh"},
        {"rate": "softplus"},
        {"rate": "relu", "epsilon": 0.5},  # with a utility term
        {"hidden": (129,)},
        {"precision": "bfloat16"},
    ],
    ids=str,
)
def test_other_networks_are_left_to_pytorch(options: dict[str, Any]) -> None:
    data, config, network, _ = both(EVERYTHING, **options)
    assert network.compiled_form is None
    assert type(steps_for(network, data, config)) is Steps


def test_weights_on_a_device_and_large_sets_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    data, config, network, other = both(NUMBERS, hidden=(4,))
    assert type(steps_for(network.to("meta"), data, config)) is Steps  # as for a table that does not fit on a GPU
    monkeypatch.setattr(settings, "COMPILED_UP_TO_ALTERNATIVES", int(data.sizes.max()) - 1)
    assert type(steps_for(other, data, config)) is Steps


@needs_compiled
def test_tensors_of_another_memory_layout_are_left_to_pytorch() -> None:
    data, config, network, other = both(NUMBERS, hidden=(4,))
    turned = replace(data, numeric=data.numeric.t().contiguous().t(), weight=data.weight.double())
    sums = []
    for steps, sets in ((steps_for(network, turned, config), turned), (steps_for(other, data, config), data)):
        assert type(steps) is CompiledSteps
        sums.append(steps.run(sets, [np.arange(len(data))], [0.01]).clone())
    torch.testing.assert_close(*sums, rtol=1e-5, atol=1e-6)
    assert steps.run(data, [], []).tolist() == [0, 0, 0]


def test_an_unusable_compiled_library_is_logged_and_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "libsteps.so"
    broken.write_bytes(b"no library")
    try:
        compiled_steps.compiled_library.cache_clear()
        monkeypatch.setattr(compiled_steps, "VERSION", -1)
        assert compiled_steps.compiled_library() is None
        assert ("belongs to another version of" in caplog.text) is compiled_steps.LIBRARY_FILE.exists()
        compiled_steps.compiled_library.cache_clear()
        monkeypatch.setattr(compiled_steps, "LIBRARY_FILE", broken)
        assert compiled_steps.compiled_library() is None
        assert "training uses PyTorch" in caplog.text
    finally:
        compiled_steps.compiled_library.cache_clear()


@needs_compiled
@pytest.mark.parametrize(
    "roles", [EVERYTHING, NO_INDIVIDUAL, NUMBERS, LABELS], ids=["all", "alone", "numbers", "labels"]
)
@pytest.mark.parametrize("hidden", [(), (5,), (17, 3, 20)], ids=str)
def test_losses_of_sets_match_pytorch(
    roles: dict[str, Any], hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, config, network, _ = both(roles, hidden=hidden)
    steps = steps_for(network, data, config)
    assert isinstance(steps, CompiledSteps)
    expected = torch.empty(len(data), dtype=torch.float64)
    for sets, batch, log_p in predict(network, data, pair_budget=1000):
        expected[torch.from_numpy(sets)] = choice_nll(log_p, batch.chosen).double()
    at_once = steps.nll(data)
    torch.testing.assert_close(at_once, expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(compiled_steps, "MULTIPLICATIONS_PER_CALL", 1.0)  # one call per set
    torch.testing.assert_close(steps.nll(data), at_once, rtol=0, atol=0)
    monkeypatch.setattr(settings, "COMPILED_UP_TO_ALTERNATIVES", int(data.sizes.max()) - 1)
    assert steps.nll(data) is None


@needs_compiled
@pytest.mark.parametrize(
    "form", [{"rate": "exp"}, {"rate": "relu", "epsilon": 0.5, "utility": "none"}], ids=["exp", "relu"]
)
def test_nan_weights_give_nan_losses(form: dict[str, Any]) -> None:
    """Only sets of one alternative have a finite loss: they need no rates."""
    data, config, network, _ = both(NUMBERS, **form)
    torch.nn.init.constant_(network.rates.output.weight, torch.nan)
    steps = steps_for(network, data, config)
    actual = steps.nll(data)
    assert actual is not None
    assert actual.isnan().tolist() == (data.sizes > 1).tolist()


@needs_compiled
def test_unsupported_validation_sets_are_predicted_by_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = read(trips(60, slope=-0.3), **EVERYTHING)
    train, valid = data.split((0.7, 0.3), seed=0)
    fit = PCMCNet(hidden=(8, 8), epochs=3, weight_decay=0.1, members=1).fit
    compiled = [entry["valid_loss"] for entry in fit(train, valid, progress=False).history]
    monkeypatch.setattr(CompiledSteps, "nll", lambda self, data: None)
    plain = [entry["valid_loss"] for entry in fit(train, valid, progress=False).history]
    np.testing.assert_allclose(compiled, plain, rtol=1e-5)
    assert compiled != plain  # one is rounded to float32
