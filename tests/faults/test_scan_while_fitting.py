"""A streaming fit continues, and can be resumed, while its table is scanned again or changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData, ScannedData
from pcmcnet.models import PCMCNet

ROLES: dict[str, Any] = {"choice_set": "set", "chosen": "took", "features": ["x"]}
OPTIONS: dict[str, Any] = {"hidden": (4,), "epochs": 3, "weight_decay": 0.01}


def write(path: Path, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    took = np.tile([1, 0, 0], 8000)
    table = {"set": np.repeat(np.arange(8000), 3), "took": took, "x": rng.normal(size=24000) + took}
    pyarrow.parquet.write_table(pa.table(table), path)


@pytest.fixture
def scan(tmp_path: Path) -> Callable[..., ScannedData]:
    write(tmp_path / "t.parquet")
    return lambda memory="2 MiB": ChoiceData.scan(tmp_path / "t.parquet", memory=memory, **ROLES)


def fitted(data: ScannedData, **options: Any) -> dict[str, Any]:
    model = PCMCNet(**OPTIONS).fit(data, progress=False, device="cpu", **options)
    return {name: weight.tolist() for name, weight in model.network_.state_dict().items()}


def test_a_scan_with_less_memory_between_epochs_changes_nothing(scan: Callable[..., ScannedData]) -> None:
    expected, scanned = fitted(scan()), []
    data = scan()
    assert not data.fits
    assert fitted(data, on_epoch=lambda entry: scanned.append(scan("1 MiB"))) == expected
    assert len({each.folder for each in scanned} | {data.folder}) == 2


def test_the_table_may_change_between_two_epochs(scan: Callable[..., ScannedData], tmp_path: Path) -> None:
    def change(entry: Any) -> None:
        write(tmp_path / "t.parquet", seed=1)
        scan()

    expected = fitted(scan())
    assert fitted(scan(), on_epoch=change) == expected


def test_a_fit_is_resumed_after_a_scan_with_less_memory(scan: Callable[..., ScannedData], tmp_path: Path) -> None:
    def stop(entry: Any) -> None:
        raise KeyboardInterrupt

    expected = fitted(scan())
    with pytest.raises(KeyboardInterrupt):
        fitted(scan(), run_folder=tmp_path / "run", on_epoch=stop)
    scan("1 MiB")
    assert fitted(scan(), run_folder=tmp_path / "run", resume=True) == expected
