from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.experiments import itineraries
from pcmcnet.experiments.kept_fits import fit_all
from pcmcnet.models import ChoiceModel, PCMCNet, Uniform
from pcmcnet.training import loop


@pytest.fixture
def parts(bookings: Callable[..., pa.Table]) -> list[ChoiceData]:
    tables = [itineraries.with_airline(bookings(sets, seed=sets)) for sets in (30, 10)]
    return [ChoiceData.from_long(table, **itineraries.ROLES) for table in tables]


def weights(folder: Path) -> bytes:
    return next(folder.glob("pcmcnet-*/weights.safetensors")).read_bytes()


def test_a_fit_is_named_by_all_that_it_depends_on(tmp_path: Path, parts: list[ChoiceData]) -> None:
    for kind, seed, data in [
        (Uniform(), 0, parts),
        (Uniform(), 1, parts),
        (PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0), 0, parts),
        (PCMCNet(hidden=(4,), epochs=2, weight_decay=0.0), 0, parts),
        (Uniform(), 0, parts[::-1]),
        (Uniform(), 0, parts),
    ]:
        fit_all({"model": kind}, *data, tmp_path, seed=seed)
    assert len(list(tmp_path.iterdir())) == 5


def test_models_that_do_not_stop_on_the_second_part_learn_from_both(tmp_path: Path, parts: list[ChoiceData]) -> None:
    small: dict[str, Any] = {"hidden": (4,), "epochs": 1, "weight_decay": 0.0}
    contestants: dict[str, ChoiceModel] = {
        "net": PCMCNet(**small),
        "paper's rule": PCMCNet(**small, min_delta=0.01),
        "uniform": Uniform(),
    }
    fitted = fit_all(contestants, *parts, tmp_path)
    sets = {}
    for label, model in fitted.items():
        assert isinstance(model, ChoiceModel)
        sets[label] = model.table_.choice_sets
    assert sets == {"net": 40, "paper's rule": 30, "uniform": 40}


def test_an_interrupted_network_goes_on_to_the_same_weights(
    tmp_path: Path, parts: list[ChoiceData], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PCMCNet(hidden=(4,), epochs=3, weight_decay=0.5)
    fit_all({"net": model}, *parts, tmp_path / "whole")
    epochs: list[int] = []
    real = loop._epoch

    def stops_after_two(steps: Any, config: Any, state: Any, **options: Any) -> object:
        epochs.append(state.epoch + 1)
        if epochs == [1, 2, 3]:
            raise KeyboardInterrupt
        return real(steps, config, state, **options)

    monkeypatch.setattr(loop, "_epoch", stops_after_two)
    with pytest.raises(KeyboardInterrupt):
        fit_all({"net": model}, *parts, tmp_path / "cut")
    fit_all({"net": model}, *parts, tmp_path / "cut")
    assert epochs == [1, 2, 3, 3]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
