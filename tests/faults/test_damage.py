"""Truncated files and flipped bits give one of our errors with a remedy, and never a wrong model.

Positions are drawn from a seed; the tests of each format try more of them (tests/models/saving/test_artifact.py,
tests/training/test_checkpoint.py).
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.files.write_files import write_table
from pcmcnet.errors import ArtifactError, PcmcNetError
from pcmcnet.evaluation import compare
from pcmcnet.models import MNL, Boosted, PCMCNet, Uniform, load
from pcmcnet.tuning import tune

SLOW = pytest.mark.slow
ROLES: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["price", "comfort"]}


@pytest.fixture(scope="module")
def rows(table: Path) -> pa.Table:
    return read_table(table)


@pytest.fixture(scope="module")
def data(rows: pa.Table) -> ChoiceData:
    return ChoiceData.from_long(rows, **ROLES)


def damaged(content: bytes, n: int, seed: int = 0) -> Iterator[bytes]:
    """Yield the content with one bit flipped, and truncated, n times each."""
    rng = np.random.default_rng(seed)
    for bit in rng.integers(0, 8 * len(content), n):
        spoilt = bytearray(content)
        spoilt[bit // 8] ^= 1 << (bit % 8)
        yield bytes(spoilt)
    for length in rng.integers(0, len(content), n):
        yield content[:length]


def refusal(call: Callable[[], Any]) -> tuple[str, Any]:
    """Return the message of our error, or an empty text, and the result."""
    try:
        return "", call()
    except PcmcNetError as error:
        return str(error), None


# -- tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [40, pytest.param(1_000, marks=SLOW)])
def test_a_damaged_parquet_table_is_refused_or_read_correctly(n: int, rows: pa.Table, tmp_path: Path) -> None:
    """Every page has a checksum. The footer has none, but it holds only names and types, no values."""
    path = tmp_path / "t.parquet"
    write_table(rows, path)
    outcomes: Counter[str] = Counter()
    for content in damaged(path.read_bytes(), n):
        path.write_bytes(content)
        message, table = refusal(lambda: read_table(path))
        if message:
            outcomes["refused"] += 1
            assert "t.parquet: cannot be read as .parquet" in message
            assert "The file may be truncated or have another format: write it again" in message
            continue
        unchanged = all(
            column.to_pylist() == rows.column(k).to_pylist()
            for k, column in enumerate(table.columns[: rows.num_columns])
        )
        outcomes["same values" if unchanged else "other values"] += 1
    assert outcomes["refused"] > n
    assert outcomes["other values"] <= 0.02 * n  # a type in the footer changed


@pytest.mark.parametrize("n", [40, pytest.param(1_000, marks=SLOW)])
def test_a_damaged_arrow_table_is_refused_or_read_in_bounds(n: int, rows: pa.Table, tmp_path: Path) -> None:
    """The format has no checksum, so a value may change; but no length or offset points beyond the file."""
    path = tmp_path / "t.arrow"
    write_table(rows, path)
    refused = 0
    for content in damaged(path.read_bytes(), n):
        path.write_bytes(content)
        message, _ = refusal(lambda: read_table(path).to_pylist())
        refused += bool(message)
        assert not message or "cannot be read as .arrow" in message
    assert refused > n  # all truncated files, and some of the others


def test_one_damaged_file_of_a_folder_is_refused(rows: pa.Table, tmp_path: Path) -> None:
    for part in range(3):
        write_table(rows, tmp_path / f"{part}.parquet")
    path = tmp_path / "1.parquet"
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(PcmcNetError, match="The file may be truncated or have another format: write it again"):
        read_table(tmp_path)


# -- models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, pytest.param(100, marks=SLOW)])
@pytest.mark.parametrize("kind", ["network", "logit"])
def test_a_damaged_file_of_a_model_is_refused(kind: str, n: int, data: ChoiceData, tmp_path: Path) -> None:
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0) if kind == "network" else MNL()
    folder = model.fit(data, progress=False).save(tmp_path / "model")
    for path in sorted(p for p in folder.iterdir() if p.name != "README.md"):  # a card may be edited
        content = path.read_bytes()
        for spoilt in damaged(content, n):
            path.write_bytes(spoilt)
            with pytest.raises(ArtifactError, match=r"altered|damaged|truncated|upgrade"):
                load(folder)
        path.write_bytes(content)
    load(folder)


@pytest.mark.parametrize("n", [10, pytest.param(200, marks=SLOW)])
def test_a_damaged_checkpoint_is_refused_with_a_remedy(n: int, data: ChoiceData, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(entry: dict[str, Any]) -> None:
        raise StopError

    folder, model = tmp_path / "run", PCMCNet(hidden=(4,), epochs=2, weight_decay=0.0)
    with pytest.raises(StopError):
        model.fit(data, progress=False, run_folder=folder, on_epoch=stop)
    path = folder / "checkpoint.safetensors"
    content = path.read_bytes()
    for spoilt in damaged(content, n):
        path.write_bytes(spoilt)
        with pytest.raises(ArtifactError, match="delete it and train from the start"):
            model.fit(data, progress=False, run_folder=folder, resume=True)
    path.write_bytes(content)
    whole = PCMCNet(hidden=(4,), epochs=2, weight_decay=0.0).fit(data, progress=False)
    resumed = model.fit(data, progress=False, run_folder=folder, resume=True)
    assert np.array_equal(resumed.predict_proba(data), whole.predict_proba(data))


# -- searches and comparisons --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searched(data: ChoiceData, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[Path], Any]]:
    """Return the folder of a search, and a function that resumes it."""

    def search(folder: Path) -> Any:
        result = tune(Boosted(trees=3), data, space={"trees": (2, 5)}, trials=3, folder=folder, progress=False)
        return result.best, result.best_value, [(t.state, t.value, t.options) for t in result.trials]

    folder = tmp_path_factory.mktemp("search") / "study"
    search(folder)
    return folder, search


@pytest.mark.parametrize("n", [4, pytest.param(150, marks=SLOW)])
def test_a_damaged_study_is_refused_or_gives_the_same_result(
    n: int, searched: tuple[Path, Callable[[Path], Any]], tmp_path: Path
) -> None:
    """SQLite detects damaged pages, and the hash of a trial detects a changed number."""
    folder, search = searched
    content, undamaged = (folder / "study.db").read_bytes(), search(folder)
    for spoilt in damaged(content, n):
        copy = shutil.copytree(folder, tmp_path / "study")
        (copy / "study.db").write_bytes(spoilt)
        message, result = refusal(lambda: search(tmp_path / "study"))
        assert result == undamaged or "choose another folder" in message or "Remove the folder" in message, message
        shutil.rmtree(copy)


@pytest.mark.parametrize("name", ["trial_values", "trial_params"])
def test_a_changed_number_of_a_trial_is_detected(
    name: str, searched: tuple[Path, Callable[[Path], Any]], tmp_path: Path
) -> None:
    import sqlite3

    folder, search = searched
    copy = shutil.copytree(folder, tmp_path / "study")
    column = "value" if name == "trial_values" else "param_value"
    with sqlite3.connect(copy / "study.db") as connection:
        connection.execute(f"UPDATE {name} SET {column} = {column} + 1 WHERE trial_id = 2")
    connection.close()
    with pytest.raises(
        ArtifactError, match=r"trial 2 in study.db was altered after it was stored. Remove the folder and"
    ):
        search(copy)


def test_a_damaged_cell_of_a_comparison_is_measured_again(data: ChoiceData, tmp_path: Path) -> None:
    def result() -> Any:
        entries = compare({"u": Uniform(), "m": MNL()}, data, folds=2, folder=tmp_path / "c", progress=False).to_dict()
        return [(row["values"], row["intervals"]) for row in entries["rows"]]

    whole = result()
    cell = next((tmp_path / "c" / "cells").glob("mnl*.safetensors"))
    content = cell.read_bytes()
    for spoilt in damaged(content, 5):
        cell.write_bytes(spoilt)
        assert result() == whole
    plan = tmp_path / "c" / "cells" / "plan.json"
    plan.write_bytes(plan.read_bytes()[:20])
    with pytest.raises(ArtifactError, match=r"is damaged .*choose another folder, or remove this one"):
        result()
