from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models import PCMCNet, PointerNetwork
from pcmcnet.models.pointer_network import PointerNetworkConfig, PointingNetwork

MakeTrips = Callable[..., pa.Table]
QUICK: dict[str, Any] = {"hidden": 8, "epochs": 2, "batch_size": 8, "lr": 0.02, "dropout": 0.0, "weight_decay": 0.0}


def double(network: torch.nn.Module, encoder: Encoder, data: ChoiceData) -> tuple[torch.nn.Module, Batch]:
    """Return a network and all sets in double precision."""
    batch = encoder.encode(data).batch(np.arange(len(data)))
    batch = replace(batch, numeric=batch.numeric.double(), individual_numeric=batch.individual_numeric.double())
    return network.double().eval(), batch


def fresh(data: ChoiceData, **options: Any) -> tuple[torch.nn.Module, Batch]:
    encoder = Encoder.learn(data)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = PointingNetwork(encoder, PointerNetworkConfig(**options))
    return double(network, encoder, data)


def single_set(batch: Batch, s: int) -> Batch:
    """Return one set without padding."""
    n = int(batch.mask[s].sum())
    return Batch(
        batch.numeric[s : s + 1, :n],
        batch.categorical[s : s + 1, :n],
        batch.individual_numeric[s : s + 1],
        batch.individual_categorical[s : s + 1],
        batch.mask[s : s + 1, :n],
        batch.chosen[s : s + 1],
        batch.weight[s : s + 1],
    )


# -- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden must be a whole number of at least 1, got 0"),
        ({"hidden": (8, 8)}, "hidden must be a whole number"),
        ({"layers": 0}, "layers must be a whole number of at least 1"),
        ({"dropout": 1.0}, "dropout must be a number of at least 0 and below 1"),
        ({"bidirectional": 1}, "bidirectional must be true or false, got 1"),
        ({"bidirectional": True, "hidden": 7}, "hidden must be even with bidirectional=True, got 7"),
        ({"epochs": 0}, "epochs must be a whole number"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PointerNetwork(**options)


# -- the network ---------------------------------------------------------------------------------------------------


def lstm_step(x: Tensor, h: Tensor, c: Tensor, cell: Any, suffix: str = "") -> tuple[Tensor, Tensor]:
    """One step as textbooks write it; gates in the order input, forget, candidate, output."""
    weights = (getattr(cell, f"weight_{kind}h{suffix}") for kind in "ih")
    biases = (getattr(cell, f"bias_{kind}h{suffix}") for kind in "ih")
    (w_x, w_h), (b_x, b_h) = weights, biases
    i, f, g, o = (w_x @ x + b_x + w_h @ h + b_h).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@torch.no_grad()
def test_probabilities_follow_the_formulas(trips: ChoiceData) -> None:
    network, batch = fresh(trips, hidden=6)
    assert isinstance(network, PointingNetwork)
    log_p = network(batch)
    for s in range(5):
        alone = single_set(batch, s)
        individual = network.individual(alone.individual_numeric, alone.individual_categorical)[0]
        h, c, encoded = torch.zeros(6).double(), torch.zeros(6).double(), []
        for alternatives in network.alternative(alone.numeric, alone.categorical)[0]:
            x = torch.tanh(network.read.weight @ torch.cat([alternatives, individual]) + network.read.bias)
            h, c = lstm_step(x, h, c, network.encoder, "_l0")
            encoded.append(h)
        assert network.ask is not None
        d, _ = lstm_step(network.start + network.ask.weight @ individual, h, c, network.decoder)
        query = network.query.weight @ d + network.query.bias
        u = torch.stack([network.point.weight[0] @ torch.tanh(network.key.weight @ e + query) for e in encoded])
        torch.testing.assert_close(log_p[s, : len(u)], u.log_softmax(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"layers": 2}, {"bidirectional": True}, {"layers": 2, "bidirectional": True}])
@torch.no_grad()
def test_padding_does_not_change_probabilities(options: dict[str, Any], trips: ChoiceData) -> None:
    network, batch = fresh(trips, hidden=8, **options)
    log_p = network(batch)
    assert len(set(trips.sizes.tolist())) > 2
    for s, n in enumerate(trips.sizes):
        torch.testing.assert_close(log_p[s, :n], network(single_set(batch, s))[0], rtol=1e-12, atol=1e-12)
    assert (log_p[~batch.mask] == -torch.inf).all()


@torch.no_grad()
def test_padded_values_are_never_read(trips: ChoiceData) -> None:
    network, batch = fresh(trips, hidden=8, bidirectional=True)
    strange = replace(batch, numeric=batch.numeric.masked_fill(~batch.mask.unsqueeze(-1), 1e6))
    assert not torch.equal(strange.numeric, batch.numeric)
    assert torch.equal(network(strange), network(batch))


@pytest.mark.parametrize("bidirectional", [False, True])
@torch.no_grad()
def test_the_encoder_is_bidirectional_only_on_request(bidirectional: bool, trips: ChoiceData) -> None:
    network, batch = fresh(trips, hidden=8, bidirectional=bidirectional)
    assert isinstance(network, PointingNetwork)
    s = int(np.argmax(trips.sizes))
    alone = single_set(batch, s)
    steps = torch.rand(
        1, int(trips.sizes[s]), network.read.in_features, generator=torch.Generator().manual_seed(0)
    ).double()
    changed = steps.clone()
    changed[0, -1] += 1
    before, after = (network.encode(x, alone.mask)[0] for x in (steps, changed))
    assert torch.equal(before[0, 0], after[0, 0]) is not bidirectional
    assert not torch.equal(before[0, -1], after[0, -1])


def test_every_weight_has_a_finite_gradient(trips: ChoiceData) -> None:
    network, batch = fresh(trips, hidden=8, layers=2, bidirectional=True)
    network(batch)[:, 0].sum().backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert torch.isfinite(weight.grad).all(), name
        assert weight.grad.any(), name


# -- order of alternatives -----------------------------------------------------------------------------------------


def test_alternatives_are_read_in_the_order_of_rows(make_trips: MakeTrips, roles: dict[str, Any]) -> None:
    table = make_trips(seed=5)  # rows of all sets mixed
    data = ChoiceData.from_long(table, **roles)
    encoder = Encoder.learn(data)
    batch = encoder.encode(data).batch(np.random.default_rng(0).permutation(len(data))[:8])
    price = encoder.features.numeric[0]
    assert price.name == "price"
    is_open = table["open"].to_numpy() == 1
    for k, s in enumerate(np.random.default_rng(0).permutation(len(data))[:8]):
        rows = np.flatnonzero((table["trip"].to_numpy() == data.set_ids[s]) & is_open)
        shown = batch.numeric[k, batch.mask[k], 0].double().numpy() * price.scale + price.mean
        # standardised in float32 and back
        np.testing.assert_allclose(shown, table["price"].to_numpy()[rows], rtol=1e-5)


def test_the_order_of_alternatives_changes_probabilities(trips: ChoiceData, make_trips: MakeTrips) -> None:
    model = PointerNetwork(**QUICK).fit(trips, progress=False)
    table = make_trips(seed=5)
    backwards = np.arange(table.num_rows)[::-1]
    there, back = model.predict_proba(table), model.predict_proba(table.take(backwards))[backwards]
    assert np.abs(there - back).max() > 0.01


def test_the_summary_notes_that_the_order_matters(trips: ChoiceData) -> None:
    summary = PointerNetwork(**QUICK).fit(trips, progress=False).summary()
    assert "depend on the order of the rows" in summary.facts["order"]
    assert PointerNetwork.order_matters


def always_the_third(sets: int, seed: int) -> ChoiceData:
    """Return sets of 3 to 6 rows with random features. The third row is chosen."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 7, sets)
    place = np.concatenate([np.arange(n) for n in sizes])
    table = {"s": np.repeat(np.arange(sets), sizes), "took": place == 2, "x": rng.normal(size=len(place))}
    return ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x"])


def accuracy(model: Any, data: ChoiceData) -> float:
    """Return the share of sets whose third row is predicted."""
    return float((model.predict(data) == data.offsets[:-1] + 2).mean())


@pytest.mark.slow
def test_a_pointer_network_learns_to_choose_the_third_row() -> None:
    train, test = always_the_third(400, seed=0), always_the_third(400, seed=1)
    assert accuracy(PointerNetwork().fit(train, progress=False), test) > 0.99
    chance = float((1 / test.sizes).mean())
    blind = accuracy(PCMCNet(hidden=(16,), epochs=3, weight_decay=0.0).fit(train, progress=False), test)
    assert abs(blind - chance) < 0.1  # four standard deviations of 400 guesses


# -- columns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("individual", [[], ["income"], ["purpose"]])
@pytest.mark.parametrize("features", [["price"], ["comfort"]])
def test_any_mix_of_columns_can_be_fitted(
    individual: list[str], features: list[str], make_trips: MakeTrips, roles: dict[str, Any]
) -> None:
    data = ChoiceData.from_long(make_trips(), **roles | {"individual": individual, "features": features})
    p = PointerNetwork(**QUICK | {"dropout": 0.3, "layers": 2}).fit(data, progress=False).predict_proba(data)
    np.testing.assert_allclose(p.sum(), len(data), rtol=1e-6)


def test_a_table_without_features_is_refused(make_trips: MakeTrips, roles: dict[str, Any]) -> None:
    data = ChoiceData.from_long(make_trips(), **roles | {"features": []})
    message = "PointerNetwork needs features or labels of alternatives: declare features, or declare an alternative"
    with pytest.raises(InputError, match=message):
        PointerNetwork(**QUICK, labels=False).fit(data, progress=False)


def test_a_pointer_network_can_use_labels_alone(make_trips: MakeTrips, roles: dict[str, Any]) -> None:
    data = ChoiceData.from_long(make_trips(), **roles | {"features": []})
    model = PointerNetwork(**QUICK).fit(data, progress=False)
    assert [code.name for code in model.encoder_.features.categorical] == ["mode"]
    assert len(np.unique(model.predict_proba(data))) > 20
