from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcmcnet import MNL, ChoiceData, Ensemble, PCMCNet, PointerNetwork, StopFit, load
from pcmcnet.errors import ConfigError, InputError, NotFittedError, SchemaError
from pcmcnet.models.networks.fitting import InitRecord

ROLES: dict[str, Any] = {"choice_set": "set", "chosen": "took", "features": ["price", "brand"], "individual": ["age"]}
QUICK: dict[str, Any] = {"hidden": (4,), "epochs": 2, "weight_decay": 0.1, "batch_size": 8}


def table(seed: int, brands: str = "abc", sets: int = 40) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    took = rng.integers(3, size=sets)
    return {
        "set": np.repeat(np.arange(sets), 3),
        "took": (np.arange(3 * sets) % 3 == np.repeat(took, 3)).astype(int),
        "price": rng.gamma(2, 5 * (seed + 1), 3 * sets),
        "brand": rng.choice(list(brands), 3 * sets),
        "age": np.repeat(rng.normal(40, 9, sets), 3),
    }


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return ChoiceData.from_long(table(0), **ROLES)


@pytest.fixture(scope="module")
def fitted(data: ChoiceData) -> PCMCNet:
    return PCMCNet(**QUICK).fit(data, progress=False)


def test_a_fit_continues_from_the_given_weights(data: ChoiceData, fitted: PCMCNet) -> None:
    before = fitted.predict_proba(data)
    still = PCMCNet(**{**QUICK, "epochs": 1, "lr": 1e-12}).fit(data, init=fitted, progress=False)
    np.testing.assert_allclose(still.predict_proba(data), before, atol=1e-6)
    more = PCMCNet(**QUICK).fit(data, init=fitted, progress=False)
    assert more.history[0]["train_loss"] < fitted.history[0]["train_loss"]
    np.testing.assert_array_equal(fitted.predict_proba(data), before)  # unchanged
    assert more.record_.init == InitRecord(fingerprint=data.fingerprint(), epochs=2)


def test_a_model_can_continue_from_itself(data: ChoiceData, fitted: PCMCNet) -> None:
    options = {**QUICK, "weight_decay": "auto"}  # the search runs several fits, each from the same start
    model = PCMCNet(**options).fit(data, init=fitted, progress=False)
    continued = PCMCNet(**QUICK).fit(data, progress=False)
    continued.config = model.config
    assert continued.fit(data, init=continued, progress=False) is continued
    np.testing.assert_array_equal(continued.predict_proba(data), model.predict_proba(data))


def test_a_new_table_is_encoded_as_the_old_one(data: ChoiceData, fitted: PCMCNet, tmp_path: Path) -> None:
    other = ChoiceData.from_long(table(3, brands="abxy"), **{**ROLES, "features": ["brand", "price"]})
    model = PCMCNet(**QUICK, dropout=0.5).fit(other, init=fitted, progress=False)
    assert model.encoder_.features == fitted.encoder_.features  # x and y have the code of unseen categories
    assert model.encoder_.schema == model.schema == other.schema
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(other), model.predict_proba(other))


def test_a_pointer_network_can_be_continued(data: ChoiceData) -> None:
    options: dict[str, Any] = {**QUICK, "hidden": 4}
    first = PointerNetwork(**options).fit(data, progress=False)
    more = PointerNetwork(**options).fit(data, init=first, progress=False)
    assert more.history[0]["train_loss"] < first.history[0]["train_loss"]


@pytest.mark.parametrize(
    ("options", "roles", "message"),
    [
        (
            {"hidden": (8,)},
            {},
            r"init was fitted with hidden=\(4,\), but this model has hidden=\(8,\): use the same",
        ),
        (
            {"activation": "relu"},
            {},
            "init was fitted with activation='leaky_relu', but this model has activation='relu'",
        ),
        ({"tails": "keep"}, {}, "tails='bend'"),
        (
            {},
            {"features": ["price"]},
            r"with features \['brand', 'price'\], but this table has",
        ),
        ({}, {"kinds": {"price": "spline"}}, r"with kinds \{\}, but this table has \{'price': 'spline'\}"),
    ],
)
def test_options_that_change_the_meaning_of_weights_are_refused(
    fitted: PCMCNet, options: dict[str, Any], roles: dict[str, Any], message: str
) -> None:
    model = PCMCNet(**{**QUICK, **options})
    with pytest.raises((ConfigError, SchemaError), match=message):
        model.fit(ChoiceData.from_long(table(0), **{**ROLES, **roles}), init=fitted, progress=False)
    with pytest.raises(NotFittedError):
        _ = model.schema


def test_init_must_be_a_fitted_network_of_the_same_class(data: ChoiceData, fitted: PCMCNet) -> None:
    with pytest.raises(ConfigError, match="init: expected a fitted PCMCNet, got MNL"):
        PCMCNet(**QUICK).fit(data, init=MNL().fit(data))
    with pytest.raises(NotFittedError):
        PCMCNet(**QUICK).fit(data, init=PCMCNet(**QUICK))
    with pytest.raises(ConfigError, match="init is not supported by MNL"):
        MNL().fit(data, init=fitted)
    with pytest.raises(ConfigError, match="init is not supported by Ensemble"):
        Ensemble(fitted, n=2).fit(data, init=fitted)


def test_a_run_is_not_resumed_with_another_start(data: ChoiceData, fitted: PCMCNet, tmp_path: Path) -> None:
    def stop(entry: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PCMCNet(**QUICK).fit(data, init=fitted, progress=False, run_folder=tmp_path / "run", on_epoch=stop)
    with pytest.raises(InputError, match="init"):
        PCMCNet(**QUICK).fit(data, progress=False, run_folder=tmp_path / "run", resume=True)
    resumed = PCMCNet(**QUICK).fit(data, init=fitted, progress=False, run_folder=tmp_path / "run", resume=True)
    whole = PCMCNet(**QUICK).fit(data, init=fitted, progress=False)
    np.testing.assert_allclose(resumed.predict_proba(data), whole.predict_proba(data), atol=1e-6)


# -- callbacks -------------------------------------------------------------------------------------------------------


def test_a_callback_can_stop_a_fit_and_keep_its_weights(data: ChoiceData, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def enough(entry: dict[str, Any]) -> None:
        seen.append(entry)
        if entry["epoch"] == 2:
            raise StopFit

    options: dict[str, Any] = {**QUICK, "epochs": 9, "schedule": "constant", "warmup": 0.0}
    model = PCMCNet(**options).fit(data, progress=False, on_epoch=enough, run_folder=tmp_path / "run")
    assert [entry["epoch"] for entry in seen] == [1, 2]
    assert (model.record_.epochs, len(model.history)) == (2, 2)
    short = PCMCNet(**{**options, "epochs": 2}).fit(data, progress=False)
    for name, weights in short.network_.state_dict().items():
        torch.testing.assert_close(model.network_.state_dict()[name], weights)


def test_other_exceptions_of_a_callback_leave_the_model_unchanged(data: ChoiceData) -> None:
    def fail(entry: dict[str, Any]) -> None:
        raise RuntimeError("no")

    model = PCMCNet(**QUICK)
    with pytest.raises(RuntimeError, match="no"):
        model.fit(data, progress=False, on_epoch=fail)
    with pytest.raises(NotFittedError):
        _ = model.schema
