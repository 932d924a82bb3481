import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, NotFittedError, SchemaError
from pcmcnet.models import PCMCNet, load
from pcmcnet.training import loop
from pcmcnet.training.run_folder import CHECKPOINT

MakeTrips = Callable[..., pa.Table]


class Interruption(KeyboardInterrupt):
    """Interrupts a fit."""


@pytest.fixture
def parts(trips: ChoiceData) -> tuple[ChoiceData, ChoiceData]:
    train, valid = trips.split((0.7, 0.3), seed=0)
    return train, valid


def weights(model: PCMCNet) -> dict[str, bytes]:
    return {name: t.numpy().tobytes() for name, t in model.network_.state_dict().items()}


def untimed(model: PCMCNet) -> list[dict[str, Any]]:
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in model.history]


# -- random numbers ------------------------------------------------------------------------------------------------


def test_the_seed_determines_the_model(trips: ChoiceData, quick: dict[str, Any]) -> None:
    a, b, c = (PCMCNet(**quick).fit(trips, seed=seed, progress=False) for seed in (3, 3, 4))
    assert weights(a) == weights(b)
    assert weights(a) != weights(c)


@pytest.mark.parametrize("rate", ["exp", "relu"])
def test_the_random_state_of_the_caller_has_no_effect_and_is_kept(
    rate: str, trips: ChoiceData, quick: dict[str, Any]
) -> None:
    results = []
    for state in (1, 2):
        torch.manual_seed(state)
        before = torch.get_rng_state()
        options = quick | {"rate": rate, "epsilon": 0.5, "initialisation": "paper", "dropout": 0.5}
        results.append(weights(PCMCNet(**options).fit(trips, progress=False)))
        assert torch.equal(torch.get_rng_state(), before)
    assert results[0] == results[1]


# -- weights of sets -----------------------------------------------------------------------------------------------


def test_sets_of_weight_0_have_no_effect(make_trips: MakeTrips, roles: dict[str, Any], quick: dict[str, Any]) -> None:
    """Sets 20 to 29 have weight 0, unique categories and extreme prices."""
    table = make_trips()
    idle = table["trip"].to_numpy() >= 20
    for name, values in {
        "weight": np.where(idle, 0, table["weight"].to_numpy()),
        "price": np.where(idle, 1e6, table["price"].to_numpy()),
        "comfort": np.where(idle, "luxury", table["comfort"].to_numpy(zero_copy_only=False).astype(str)),
    }.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    everything = ChoiceData.from_long(table, **roles)
    rest = ChoiceData.from_long(table.filter(pa.array(~idle)), **roles)
    valid = everything.subset(np.argsort(everything.weights == 0, kind="stable")[5:])  # includes sets of weight 0
    assert (everything.weights == 0).any()
    assert (valid.weights == 0).any()
    a = PCMCNet(**quick).fit(everything, valid, progress=False)
    b = PCMCNet(**quick).fit(rest, valid.subset(valid.weights > 0), progress=False)
    assert weights(a) == weights(b)
    assert untimed(a) == untimed(b)
    assert a.encoder_ == b.encoder_


def test_validation_sets_of_weight_0_may_have_invalid_values(
    make_trips: MakeTrips, roles: dict[str, Any], quick: dict[str, Any]
) -> None:
    """A missing value in a column that had none in training is refused, unless its set has weight 0."""
    table = make_trips()
    price = np.where(table["trip"].to_numpy() == 7, np.nan, table["price"].to_numpy())
    table = table.set_column(table.column_names.index("price"), "price", pa.array(price))
    data = ChoiceData.from_long(table, **roles, missing="indicator")
    incomplete = data.set_ids == 7
    weighted = replace(data, weights=np.where(incomplete, 0.0, data.weights))
    model = PCMCNet(**quick).fit(weighted.subset(~incomplete), weighted, progress=False)
    assert np.isfinite(model.history[-1]["valid_loss"])
    with pytest.raises(SchemaError, match=r"column 'price' has [0-9] missing values, but had none when the model was"):
        PCMCNet(**quick).fit(data.subset(~incomplete), data, progress=False)


@pytest.mark.parametrize(("tails", "is_bent"), [("bend", True), ("keep", False)])
def test_long_tails_are_bent_unless_tails_is_keep(
    make_trips: MakeTrips, roles: dict[str, Any], quick: dict[str, Any], tails: Any, is_bent: bool
) -> None:
    table = make_trips(seed=1)
    price = pa.array(np.exp(np.linspace(0, 9, table.num_rows)))
    data = ChoiceData.from_long(table.set_column(table.column_names.index("price"), "price", price), **roles)
    model = PCMCNet(**quick, tails=tails).fit(data, progress=False)
    assert next(code.bend > 0 for code in model.encoder_.features.numeric if code.name == "price") == is_bent


def test_an_unknown_option_for_tails_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown tails 'bent'. Did you mean 'bend'\?"):
        PCMCNet(tails="bent")


def test_weights_of_sets_change_the_fit(trips: ChoiceData, quick: dict[str, Any]) -> None:
    even = replace(trips, weights=np.ones(len(trips)))
    assert weights(PCMCNet(**quick).fit(trips, progress=False)) != weights(PCMCNet(**quick).fit(even, progress=False))


# -- validation and refit ------------------------------------------------------------------------------------------


def test_encoders_are_learnt_from_the_training_part_alone(
    make_trips: MakeTrips, roles: dict[str, Any], quick: dict[str, Any], parts: tuple[ChoiceData, ChoiceData]
) -> None:
    train, valid = parts
    table = make_trips(seed=1)
    strange = table.set_column(table.column_names.index("comfort"), "comfort", pa.array(["luxury"] * table.num_rows))
    for held_out in (None, valid, ChoiceData.from_long(strange, **roles)):
        model = PCMCNet(**quick, tails="keep").fit(train, held_out, progress=False)
        price = next(code for code in model.encoder_.features.numeric if code.name == "price")
        comfort = model.encoder_.features.categorical[0]
        assert price.mean == pytest.approx(train.features["price"].values.astype(np.float64).mean(), rel=1e-12)  # type: ignore[union-attr]
        assert comfort.categories == ("high", "low", "middle")


def test_the_epoch_with_the_best_validation_loss_is_kept(
    parts: tuple[ChoiceData, ChoiceData], quick: dict[str, Any]
) -> None:
    train, valid = parts
    model = PCMCNet(**quick | {"epochs": 6}).fit(train, valid, progress=False)
    losses = [entry["valid_loss"] for entry in model.history]
    assert model.record_.epochs == 1 + int(np.argmin(losses))
    assert -model.score(valid) == pytest.approx(min(losses), rel=1e-6)


def test_refit_trains_on_both_parts_for_the_best_number_of_epochs(
    parts: tuple[ChoiceData, ChoiceData], quick: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    train, valid = parts
    with caplog.at_level(logging.INFO, "pcmcnet"):
        model = PCMCNet(**quick | {"refit": True}).fit(train, valid, progress=False)
    best = model.record_.epochs
    assert f"training again on the training and validation parts for {best} epochs" in caplog.messages
    direct = PCMCNet(**quick | {"epochs": best}).fit(train.concat(valid), progress=False)
    assert weights(model) == weights(direct)
    assert [entry["valid_loss"] is not None for entry in model.history] == [True] * len(model.history)


def test_refit_without_a_validation_part_has_no_effect(trips: ChoiceData, quick: dict[str, Any]) -> None:
    with_it = PCMCNet(**quick | {"refit": True}).fit(trips, progress=False)
    assert weights(with_it) == weights(PCMCNet(**quick).fit(trips, progress=False))
    assert with_it.record_.refit is False


# -- interruption --------------------------------------------------------------------------------------------------


def counting(left: list[int]) -> Any:
    """Return a progress display that interrupts the fit after ``left[0]`` reports, or counts reports below 0."""

    @contextmanager
    def watch(epochs: int, *, show: bool) -> Iterator[Any]:
        def report(entry: dict[str, Any]) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Interruption

        yield report

    return watch


@pytest.mark.parametrize("with_valid", [False, True], ids=["no-valid", "refit"])
def test_a_fit_interrupted_after_any_epoch_resumes_bit_for_bit(
    with_valid: bool,
    parts: tuple[ChoiceData, ChoiceData],
    quick: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train, valid = parts[0], parts[1] if with_valid else None
    options = quick | {"refit": True}
    left = [0]
    monkeypatch.setattr(loop, "show_epochs", counting(left))
    whole = PCMCNet(**options).fit(train, valid, progress=False)
    reports = -left[0]
    assert reports == len(whole.history) + (whole.record_.epochs if with_valid else 0)
    for number in range(1, reports + 1):
        folder = tmp_path / str(number)
        left[0] = number
        with pytest.raises(Interruption):
            PCMCNet(**options).fit(train, valid, progress=False, run_folder=folder)
        assert (folder / f"refit-{CHECKPOINT}").exists() == (number > len(whole.history))
        resumed = PCMCNet(**options).fit(train, valid, progress=False, run_folder=folder, resume=True)
        assert weights(resumed) == weights(whole)
        assert untimed(resumed) == untimed(whole)
        assert (resumed.record_, resumed.table_) == (whole.record_, whole.table_)
    np.testing.assert_array_equal(resumed.predict_proba(parts[1]), whole.predict_proba(parts[1]))


def test_a_folder_with_an_unfinished_run_is_refused_unless_resumed(
    trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    PCMCNet(**quick).fit(trips, progress=False, run_folder=tmp_path)
    with pytest.raises(InputError, match=r"holds an unfinished run: resume it \(resume=True, or --resume\)"):
        PCMCNet(**quick).fit(trips, progress=False, run_folder=tmp_path)


@pytest.mark.parametrize(
    ("options", "seed", "named"),
    [({"lr": 0.5}, 0, "options.lr"), ({}, 1, "seed"), ({"hidden": (9,)}, 0, "options.hidden")],
)
def test_the_run_of_another_model_is_not_resumed(
    options: dict[str, Any], seed: int, named: str, trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    PCMCNet(**quick).fit(trips, progress=False, run_folder=tmp_path)
    with pytest.raises(ArtifactError, match=rf"belongs to another run; differences: {named} \("):
        PCMCNet(**quick | options).fit(trips, seed=seed, progress=False, run_folder=tmp_path, resume=True)


def test_the_run_of_another_table_is_not_resumed(
    parts: tuple[ChoiceData, ChoiceData], quick: dict[str, Any], tmp_path: Path
) -> None:
    train, valid = parts
    PCMCNet(**quick).fit(train, progress=False, run_folder=tmp_path)
    with pytest.raises(ArtifactError, match="belongs to another run; differences: training table, validation table"):
        PCMCNet(**quick).fit(valid, train, progress=False, run_folder=tmp_path, resume=True)


# -- prediction ----------------------------------------------------------------------------------------------------


def test_probabilities_do_not_depend_on_batches(
    fitted: PCMCNet, trips: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_batch = fitted.predict_log_proba(trips)
    monkeypatch.setattr(fitted, "config", replace(fitted.config, pair_budget=1))  # one set per batch
    # Matrix products in float32 round differently for other shapes.
    np.testing.assert_allclose(fitted.predict_log_proba(trips), in_one_batch, rtol=1e-5, atol=1e-6)


def test_predictions_use_no_dropout(fitted: PCMCNet, trips: ChoiceData) -> None:
    fitted.network_.train()
    np.testing.assert_array_equal(fitted.predict_proba(trips), fitted.predict_proba(trips))


# -- summary and progress ------------------------------------------------------------------------------------------


def test_the_summary_lists_parts_and_facts(fitted: PCMCNet, trips: ChoiceData) -> None:
    summary = fitted.summary()
    assert summary.title == "PCMCNet"
    assert "hidden=(8,)" in summary.facts["options"]
    assert summary.facts["trained on"] == f"{len(trips)} choice sets, {len(trips.rows)} alternatives"
    assert summary.facts["training NLL"] == f"{fitted.history[-1]['train_loss']:.4f}"
    assert sum(int(row[-1].replace(",", "")) for row in summary.rows) == fitted.num_parameters


def test_the_summary_shows_the_validation_loss_of_the_best_epoch(
    parts: tuple[ChoiceData, ChoiceData], quick: dict[str, Any]
) -> None:
    model = PCMCNet(**quick).fit(*parts, progress=False)
    best = model.history[model.record_.epochs - 1]["valid_loss"]
    assert model.summary().facts["validation NLL"] == f"{best:.4f}"


@pytest.mark.parametrize("ask", [lambda m: m.num_parameters, lambda m: m.summary()])
def test_an_unfitted_network_has_no_summary_or_parameters(ask: Callable[[PCMCNet], Any]) -> None:
    with pytest.raises(NotFittedError, match="this PCMCNet is not fitted"):
        ask(PCMCNet())


def test_progress_is_one_line_per_epoch_and_can_be_turned_off(
    trips: ChoiceData, quick: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pcmcnet"):
        PCMCNet(**quick).fit(trips, progress=False)
        assert caplog.messages == []
        PCMCNet(**quick).fit(trips)
    assert [m.partition(":")[0] for m in caplog.messages] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]


# -- invalid input -------------------------------------------------------------------------------------------------


def test_sets_of_one_alternative_are_refused(quick: dict[str, Any]) -> None:
    table = {"s": [0, 1, 2], "x": [1.0, 2.0, 3.0], "took": [1, 1, 1]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x"])
    with pytest.raises(InputError, match="every choice set has a single alternative: there is nothing to learn"):
        PCMCNet(**quick).fit(data, progress=False)


@pytest.mark.parametrize("device", ["abacus", "cuda:99", "meta"])
def test_an_unavailable_device_is_named(device: str, trips: ChoiceData, quick: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"device '{device}' is not available"):
        PCMCNet(**quick).fit(trips, device=device, progress=False)


@pytest.mark.gpu
def test_a_model_trained_on_a_gpu_predicts_there_and_loads_on_a_cpu(
    trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    model = PCMCNet(**quick).fit(trips, device="cuda", progress=False)
    assert next(model.network_.parameters()).is_cuda
    back = load(model.save(tmp_path / "model"))
    # float32 sums in another order on another device
    np.testing.assert_allclose(back.predict_proba(trips), model.predict_proba(trips), atol=1e-5)
