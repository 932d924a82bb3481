"""Fits and predictions on a CPU are bitwise the same for any torch settings of the process and in any thread."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pcmcnet as pn
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.training.device import seeded_initialisation
from pcmcnet.training.torch_settings import default_torch_settings

Surroundings = Callable[[], AbstractContextManager[Any]]


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


EACH: dict[str, Surroundings] = {
    "autocast to bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "float64": lambda: default_type(torch.float64),
    "bfloat16": lambda: default_type(torch.bfloat16),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "device of a block": lambda: torch.device("meta"),
    "default device": lambda: default_device("meta"),
    "deterministic": deterministic,
}


class Encoder(nn.Module):
    """A user module with torch's dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        mapped: Tensor = self.dropout(self.map(x))
        return mapped


@pytest.fixture(scope="module")
def data() -> pn.ChoiceData:
    rng = np.random.default_rng(0)
    sets, n = 60, 4
    x = rng.normal(size=(sets * n, 3))
    chosen = np.zeros((sets, n), int)
    chosen[np.arange(sets), x[:, 0].reshape(sets, n).argmax(1)] = 1
    table = {
        "set": np.repeat(np.arange(sets), n),
        "chosen": chosen.ravel(),
        "item": np.tile(list("abcd"), sets),
        "x": x[:, 0],
        "kind": rng.choice(["p", "q", "r"], sets * n),
        "who": np.repeat(rng.normal(size=sets), n),
        "vector": list(x),
    }
    return pn.ChoiceData.from_long(
        table,
        choice_set="set",
        chosen="chosen",
        alternative="item",
        individual=["who"],
        features=["x", "kind", "vector"],
        kinds={"vector": "vector"},
    )


def encoder() -> Encoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Encoder()


USER_ENCODER = encoder()  # made once: all threads share the generator

MODELS: dict[str, Callable[[], ChoiceModel]] = {
    "pcmcnet": lambda: pn.PCMCNet(hidden=(8, 8), dropout=0.25, epochs=2, weight_decay=3.0),  # starts as a logit
    "user encoder": lambda: pn.PCMCNet(hidden=(8,), epochs=2, weight_decay=0.1, encoders={"vector": USER_ENCODER}),
    "dpn": lambda: pn.PointerNetwork(hidden=8, layers=2, dropout=0.25, epochs=2, weight_decay=0.1),
    "pcmc": lambda: pn.PCMC(),
    "thurstone": lambda: pn.Thurstone(),
}


def fitted(name: str, data: pn.ChoiceData, seed: int = 0) -> ChoiceModel:
    return MODELS[name]().fit(data, seed=seed, device="cpu", progress=False)


@pytest.fixture(scope="module")
def references(data: pn.ChoiceData) -> dict[str, ChoiceModel]:
    return {name: fitted(name, data) for name in MODELS}


def require_same(ours: ChoiceModel, theirs: ChoiceModel) -> None:
    assert ours._files() == theirs._files()


@pytest.mark.filterwarnings("ignore::UserWarning")  # models that ignore contents warn
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("around", EACH)
def test_torch_settings_do_not_change_fits_and_predictions(
    name: str, around: str, data: pn.ChoiceData, references: dict[str, ChoiceModel]
) -> None:
    plain, model = references[name], MODELS[name]()
    with EACH[around]():
        model.fit(data, seed=0, device="cpu", progress=False)
        within = plain.predict_proba(data)
    require_same(model, plain)
    assert np.array_equal(within, plain.predict_proba(data))
    assert np.array_equal(model.predict_proba(data), within)


def test_torch_settings_do_not_change_saving_and_loading(
    data: pn.ChoiceData, references: dict[str, ChoiceModel], tmp_path: Any
) -> None:
    references["pcmcnet"].save(tmp_path / "model")
    for around in EACH.values():
        with around():
            loaded = pn.load(tmp_path / "model")
        assert np.array_equal(loaded.predict_proba(data), references["pcmcnet"].predict_proba(data))


@pytest.mark.parametrize("around", EACH)
def test_torch_settings_do_not_change_slopes(
    around: str, data: pn.ChoiceData, references: dict[str, ChoiceModel]
) -> None:
    expected = references["pcmcnet"]._slopes(data, "x")
    assert expected is not None
    with EACH[around]():
        slopes = references["pcmcnet"]._slopes(data, "x")
    assert slopes is not None
    assert np.array_equal(slopes, expected)


def test_torch_settings_are_restored(data: pn.ChoiceData) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode(), default_device("meta"):
        fitted("pcmcnet", data)
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_inference_mode_enabled()
        assert torch.get_default_device() == torch.device("meta")
        with default_torch_settings():
            assert not torch.is_autocast_enabled("cpu")
            assert not torch.is_inference_mode_enabled()
            assert torch.zeros(1).device == torch.device("cpu")


# -- random numbers -----------------------------------------------------------------------------------------------


def random_state() -> list[Any]:
    return [torch.get_rng_state().tolist(), [np.array(x).tolist() for x in np.random.get_state()], random.getstate()]  # noqa: NPY002


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_does_not_use_the_global_random_state(
    name: str, data: pn.ChoiceData, references: dict[str, ChoiceModel]
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        before = random_state()
        model = fitted(name, data)
        assert random_state() == before
    require_same(model, references[name])


def test_initial_weights_are_those_of_torch_for_the_seed() -> None:
    """Saved runs and published seeds must keep their results."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = [nn.Linear(3, 4).weight, nn.Embedding(5, 2).weight, nn.Conv1d(2, 3, 2).weight]
    with seeded_initialisation(5):
        weights = [nn.Linear(3, 4).weight, nn.Embedding(5, 2).weight, nn.Conv1d(2, 3, 2).weight]
    assert all(map(torch.equal, weights, expected))
    with default_type(torch.float64), seeded_initialisation(5):
        assert torch.equal(nn.Linear(3, 4).weight, expected[0])


@pytest.mark.parametrize("name", ["pcmcnet", "user encoder", "dpn"])
def test_fits_in_threads_equal_sequential_fits(name: str, data: pn.ChoiceData) -> None:
    expected = [fitted(name, data, seed) for seed in range(3)]
    models: dict[int, ChoiceModel] = {}
    workers = [
        threading.Thread(target=lambda seed=seed: models.update({seed: fitted(name, data, seed)})) for seed in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for seed, model in enumerate(expected):
        require_same(models[seed], model)


def test_a_fit_does_not_disturb_draws_of_the_caller(data: pn.ChoiceData) -> None:
    worker = threading.Thread(target=lambda: fitted("pcmcnet", data))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        expected = torch.rand(4000)
        torch.manual_seed(1)
        worker.start()
        draws = torch.cat([torch.rand(16) for _ in range(250)])
        worker.join()
    assert torch.equal(draws, expected)


@pytest.mark.gpu
def test_a_fit_on_a_gpu_keeps_random_state_and_settings(data: pn.ChoiceData) -> None:
    losses: list[list[float]] = []
    for around in (torch.enable_grad, lambda: torch.autocast("cuda", dtype=torch.bfloat16), torch.inference_mode):
        torch.cuda.manual_seed(3 + len(losses))
        before = torch.cuda.get_rng_state()
        model = MODELS["pcmcnet"]()
        with around():
            model.fit(data, seed=0, device="cuda", progress=False)
        assert torch.equal(torch.cuda.get_rng_state(), before)
        losses.append([entry["train_loss"] for entry in model.history])
    np.testing.assert_allclose(losses[1:], losses[:1] * 2, rtol=0, atol=1e-5)
