import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.errors import ArtifactError
from pcmcnet.evaluation.compare import CellStore
from pcmcnet.evaluation.paired_differences import Cell

PLAN = {"table": "a" * 64, "seed": 0, "split": None, "top": [1, 5]}
MODEL = {"model": "tilt", "class": "tests.Tilt", "options": {"scale": 1.0, "sizes": (1, 2)}}
OTHER = {**MODEL, "options": {"scale": 2.0, "sizes": (1, 2)}}
CELL = Cell({"nll": np.array([0.1, np.inf, 1 / 3]), "top_1": np.array([1.0, 0.0, 0.5])}, 1.25, 0.5, 7, "here", ("odd",))


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    cells = CellStore(tmp_path / "comparison", PLAN)
    cells.open()
    return cells


def is_cell(cell: Cell | None) -> bool:
    assert cell is not None
    assert (cell.fit_seconds, cell.predict_seconds, cell.parameters) == (1.25, 0.5, 7)
    assert (cell.where, cell.caveats) == ("here", ("odd",))
    assert list(cell.metrics) == ["nll", "top_1"]
    return all(np.array_equal(cell.metrics[name], values) for name, values in CELL.metrics.items())


def test_a_stored_cell_is_read_back_exactly(store: CellStore) -> None:
    assert store.read(MODEL, 0) is None
    store.write(MODEL, 0, CELL)
    reopened = CellStore(store.folder, PLAN)
    reopened.open()
    assert is_cell(reopened.read(MODEL, 0))


def test_cells_differ_by_model_and_fold(store: CellStore) -> None:
    store.write(MODEL, 0, CELL)
    assert store.read(MODEL, 1) is None
    assert store.read(OTHER, 0) is None


def test_file_names_contain_model_and_fold(store: CellStore, files_in: Callable[[Path], list[str]]) -> None:
    store.write(MODEL, 1, CELL)
    plan, cell = files_in(store.folder)
    assert plan == "cells/plan.json"
    assert cell.startswith("cells/tilt-")
    assert cell.endswith("-2.safetensors")
    assert json.loads((store.folder / plan).read_text()) == PLAN


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    """Replace this cell by that of another fold."""
    path.write_bytes(path.with_name(path.name.replace("-1.", "-2.")).read_bytes())


@pytest.mark.parametrize("harm", [truncate, alter, swap])
def test_a_damaged_cell_counts_as_missing(
    harm: Callable[[Path], Any], store: CellStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.write(MODEL, 0, CELL)
    store.write(MODEL, 1, CELL)
    (path,) = store.folder.glob("cells/*-1.safetensors")
    harm(path)
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        assert store.read(MODEL, 0) is None
    assert f"{path} is damaged" in caplog.text
    store.write(MODEL, 0, CELL)
    assert is_cell(store.read(MODEL, 0))


def test_another_plan_is_refused_with_its_differences(store: CellStore) -> None:
    other = CellStore(store.folder, {**PLAN, "seed": 1, "table": "b" * 64, "valid": 0.1})
    message = r"a comparison with different settings: table, seed \(0 there, 1 here\), valid \(null there"
    with pytest.raises(ArtifactError, match=message):
        other.open()


def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for place in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(ArtifactError, match="exists but contains no comparison: choose another folder"):
            CellStore(place, PLAN).open()
    with pytest.raises(ArtifactError, match="cannot be written"):
        CellStore(tmp_path / "thesis.tex" / "inside", PLAN).open()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_empty_folder_is_accepted(tmp_path: Path) -> None:
    CellStore(tmp_path, PLAN).open()
    assert (tmp_path / "cells" / "plan.json").exists()


@pytest.mark.parametrize("content", [b"{", b"[1]", b"3"])
def test_a_damaged_plan_is_refused(content: bytes, store: CellStore) -> None:
    (store.folder / "cells" / "plan.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"plan\.json is damaged"):
        store.open()
