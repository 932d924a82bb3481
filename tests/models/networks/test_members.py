"""Networks trained from different starts, put together to one model."""

import json
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import pcmcnet as pn
from choice_tables import ROLES, read, trips
from pcmcnet import ChoiceData, PCMCNet, stationary_distribution
from pcmcnet.errors import ConfigError, StopFit, TrainingError
from pcmcnet.models.networks import neural_model, pcmcnet
from pcmcnet.models.networks.chain_network import PCMCNetwork
from pcmcnet.training import compiled_steps

EVERYTHING = {key: ROLES[key] for key in ("alternative", "individual", "features")}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(trips(60, slope=-0.3), **EVERYTHING)


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> PCMCNet:
    return PCMCNet(hidden=(6,), epochs=2, weight_decay=0.1, members=3).fit(data, progress=False)


def members(model: PCMCNet) -> list[PCMCNetwork]:
    assert isinstance(model.network_, PCMCNetwork)
    return model.network_.members


def test_probabilities_are_the_mean_of_those_of_the_members(model: PCMCNet, data: ChoiceData) -> None:
    batch = model.encoder_.encode(data).batch(np.arange(len(data)))
    with torch.no_grad():
        each = []
        for member, pieces in zip(members(model), model.training_["pieces"], strict=True):
            own = model.encoder_.with_pieces(pieces)
            alone = PCMCNetwork(own, model.config)
            alone.load_state_dict({k: v for k, v in member.state_dict().items() if not k.startswith("others.")})
            each.append(alone.eval()(own.encode(data).batch(np.arange(len(data)))).exp())
        found = model.network_.eval()(batch).exp()
    torch.testing.assert_close(found, torch.stack(each).mean(0))
    assert min(float((a - b).abs().max()) for a in each for b in each if a is not b) > 1e-3


def test_the_first_member_is_the_network_that_a_single_one_would_be(model: PCMCNet, data: ChoiceData) -> None:
    single = PCMCNet(hidden=(6,), epochs=2, weight_decay=0.1, members=1).fit(data, progress=False)
    weights = model.network_.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in single.network_.state_dict().items())
    assert [entry["train_loss"] for entry in model.history] == [entry["train_loss"] for entry in single.history]


def test_the_rates_are_those_of_a_chain_with_these_probabilities(model: PCMCNet, data: ChoiceData) -> None:
    p = np.split(model.predict_proba(data), data.offsets[1:-1])
    for rates, expected in zip(model.rates(data), p, strict=True):
        np.testing.assert_allclose(stationary_distribution(torch.from_numpy(rates)).numpy(), expected, rtol=1e-5)


def test_chains_that_are_left_alone_by_what_else_is_offered_are_those_of_the_members(
    model: PCMCNet, data: ChoiceData
) -> None:
    shares, rates = model.fixed_chains(data)
    assert np.array_equal(shares, np.full((60, 3), 1 / 3))
    laws = [stationary_distribution(torch.from_numpy(of_set)).numpy().mean(0) for of_set in rates]
    np.testing.assert_allclose(np.concatenate(laws), model.predict_proba(data), rtol=1e-5)


def test_the_best_offer_of_members_is_proven_and_that_of_enumeration(model: PCMCNet) -> None:
    catalogue = {name: values[:6] for name, values in trips(1, sizes=(6, 6)).items()}
    revenue = np.arange(1.0, 7.0)
    person = {"income": 30.0, "purpose": "work"}
    offer = pn.optimise_offer(model, catalogue, revenue=revenue, individual=person)
    assert offer.exact
    offers = [np.flatnonzero([number >> k & 1 for k in range(6)]) for number in range(1, 64)]
    earned = []
    for shown in offers:
        table = {name: np.asarray(values)[shown] for name, values in catalogue.items()}
        table |= {name: [value] * len(shown) for name, value in person.items()} | {"trip": [0] * len(shown)}
        earned.append(float(model.predict_proba(table) @ revenue[shown]))
    assert offer.value == pytest.approx(max(earned), rel=1e-5)


def test_copies_of_all_alternatives_share_their_probabilities() -> None:
    roles = {"choice_set": "trip", "chosen": "took", "features": ["price", "minutes"]}
    table = {name: np.asarray(values) for name, values in trips(40, slope=-0.3).items()}
    model = PCMCNet(hidden=(6,), epochs=2, weight_decay=0.1, members=3).fit(table_data(table, roles), progress=False)
    once = {name: values[table["trip"] == 0] for name, values in table.items()}
    twice = {name: np.tile(values, 2) for name, values in once.items()}
    twice["took"][len(once["took"]) :] = False
    p, q = (model.predict_proba(table_data(part, roles)) for part in (once, twice))
    np.testing.assert_allclose(q.reshape(2, -1), np.tile(p / 2, (2, 1)), rtol=1e-5)


def table_data(table: dict[str, Any], roles: dict[str, Any]) -> ChoiceData:
    return ChoiceData.from_long(table, **roles)


def test_a_saved_model_has_all_members_and_a_fit_from_it_goes_on_with_each(
    model: PCMCNet, data: ChoiceData, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    again = pn.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(data), model.predict_proba(data))
    assert again.summary().facts["networks"].startswith("3, from different starts")
    still = PCMCNet(hidden=(6,), epochs=1, weight_decay=0.1, members=3, lr=1e-9).fit(data, init=again, progress=False)
    np.testing.assert_allclose(still.predict_proba(data), model.predict_proba(data), atol=1e-5)
    assert "parameters in all, of 3 networks" in model.diagram()


def test_a_fit_that_is_stopped_trains_the_others_for_as_many_epochs(
    data: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths, real = [], neural_model.train

    def noted(*given: Any, **options: Any) -> Any:
        outcome = real(*given, **options)
        lengths.append(len(outcome.history))
        return outcome

    monkeypatch.setattr(neural_model, "train", noted)

    def stop(entry: dict[str, Any]) -> None:
        raise StopFit

    model = PCMCNet(hidden=(4,), epochs=3, weight_decay=0.1, members=3).fit(data, on_epoch=stop, progress=False)
    assert lengths == [1, 1, 1]
    assert len(members(model)) == 3


def test_epochs_of_all_networks_are_told(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pcmcnet")
    told: list[tuple[int, int]] = []
    model = PCMCNet(hidden=(4,), epochs=2, weight_decay=0.1, members=3)
    model.fit(data, on_epoch=lambda entry: told.append((entry.get("network", 1), entry["epoch"])))
    assert told == [(network, epoch) for network in (1, 2, 3) for epoch in (1, 2)]
    assert [line.split(": ")[0] for line in caplog.messages] == [
        "epoch 1/2",
        "epoch 2/2",
        "network 2 of 3",
        "network 3 of 3",
    ]


def test_a_fit_that_is_resumed_goes_on_with_the_network_at_which_it_stopped(data: ChoiceData, tmp_path: Path) -> None:
    def fit(last: int, **how: Any) -> tuple[PCMCNet, list[int]]:
        told: list[int] = []

        def on_epoch(entry: dict[str, Any]) -> None:
            told.append(entry.get("network", 1))
            if told[-1] == last:
                raise KeyboardInterrupt

        model = PCMCNet(hidden=(4,), epochs=2, weight_decay=0.1, members=3)
        return model.fit(data, on_epoch=on_epoch, progress=False, **how), told

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(3, run_folder=folder)
    assert (folder / "network-3-checkpoint.safetensors").exists()
    again, told = fit(0, run_folder=folder, resume=True)
    assert told == [3]  # the second of its two epochs
    np.testing.assert_array_equal(again.predict_proba(data), fit(0)[0].predict_proba(data))
    again.save(folder)
    assert not list(folder.glob("*checkpoint*"))


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "members": 3}], ids=["learnt", "given"])
def test_a_fitted_model_goes_to_another_process_without_its_table(data: ChoiceData, options: dict[str, Any]) -> None:
    model = PCMCNet(epochs=1, hidden=(4,), **options).fit(data, progress=False)
    sent = pickle.dumps(model)
    assert len(sent) < len(pickle.dumps(model.network_)) + 30_000
    assert np.array_equal(pickle.loads(sent).predict_proba(data), model.predict_proba(data))


def test_how_many_there_are_by_rule(data: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    def number(**options: object) -> int:
        return len(members(PCMCNet(epochs=1, hidden=(4,), **options).fit(data, progress=False)))

    assert number() == 6
    assert number(weight_decay=0.1) == 1
    assert number(dropout=0.5) == 1
    assert number(members=2) == 2
    assert number(members=2, dropout=0.5, weight_decay=0.1) == 2
    monkeypatch.setattr(pcmcnet, "SMALL_TABLE", 59)
    assert number() == 1
    with pytest.raises(ConfigError, match="members=2 needs classes=1"):
        PCMCNet(members=2, classes=2)
    with pytest.raises(ConfigError, match="members"):
        PCMCNet(members=0)


@pytest.mark.skipif(compiled_steps.library() is None, reason="the package was built without a compiler")
def test_networks_that_are_trained_side_by_side_are_those_trained_one_by_one(
    data: ChoiceData, threads: Callable[[int], None], tmp_path: Path
) -> None:
    """Whoever listens to epochs hears them one by one; others get the same networks from several threads."""
    fit, names = PCMCNet(hidden=(6,), epochs=2, weight_decay=4.0, members=4).fit, set()
    one_by_one = fit(data, progress=False, on_epoch=lambda entry: names.add(threading.current_thread().name))
    assert names == {threading.current_thread().name}
    threads(3)
    at_once = fit(data, progress=False, run_folder=tmp_path / "run")
    for model in (at_once, fit(data, progress=False, run_folder=tmp_path / "run", resume=True)):
        weights = model.network_.state_dict()
        assert all(torch.equal(weight, weights[name]) for name, weight in one_by_one.network_.state_dict().items())


@pytest.mark.skipif(compiled_steps.library() is None, reason="the package was built without a compiler")
def test_when_one_of_those_side_by_side_fails_it_is_named_and_the_others_stop_as_if_interrupted(
    data: ChoiceData, threads: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, under_way = neural_model.train, threading.Event()

    def train(module: Any, data: Any, config: Any, *, on_epoch: Any, **more: Any) -> Any:
        def told(entry: dict[str, Any]) -> None:
            under_way.set()
            on_epoch(entry)

        file = more["checkpoint"].path.name
        if file.startswith("network-2"):
            assert under_way.wait(timeout=30)
            raise TrainingError("it broke down.")
        if file.startswith("network-3"):
            return real(module, data, replace(config, epochs=1_000_000), on_epoch=told, **more)
        return real(module, data, config, on_epoch=on_epoch, **more)

    threads(2)
    monkeypatch.setattr(neural_model, "train", train)
    with pytest.raises(TrainingError, match="network 2 of 3: it broke down"):
        PCMCNet(hidden=(4,), epochs=2, weight_decay=0.1, members=3).fit(
            data, progress=False, run_folder=tmp_path / "run"
        )
    with safe_open(tmp_path / "run" / "network-3-checkpoint.safetensors", framework="pt") as file:
        assert not json.loads(file.metadata()["state"])["finished"]
