"""Prediction of a folder of files by workers that may be killed at any time."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pcmcnet as pn
from pcmcnet import cluster
from pcmcnet.cluster import prediction
from pcmcnet.errors import ArtifactError, InputError, SchemaError

Kill = Callable[..., list[int]]


def write_parts(table: pa.Table, folder: Path, files: int) -> None:
    """Split a table into files by choice set. Rows of a set are not adjacent; some files are in a subfolder."""
    folder.mkdir()
    ids = table["individual"].to_numpy()
    places = np.unique(ids, return_inverse=True)[1]
    for k in range(files):
        rows = np.flatnonzero(places % files == k)
        path = folder / ("below" if k % 5 == 4 else "") / f"part-{k:03}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table.take(np.random.default_rng(k).permutation(rows)), path)


def require_whole(source: Path, target: Path, model: pn.PCMCNet) -> None:
    """Check that every row is present once, in order, with the probability that a single process predicts."""
    names = sorted(str(file.relative_to(source)) for file in source.rglob("*.parquet"))
    assert sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()) == names
    for name in names:
        rows, written = pq.read_table(source / name), pq.read_table(target / name)
        assert written.drop_columns("probability").equals(rows)
        np.testing.assert_allclose(written["probability"].to_numpy(), model.predict_proba(rows), rtol=0, atol=1e-7)


def kill_conditions(target: Path, files: int, kills: int, seed: int) -> list[Callable[[], bool]]:
    """Return conditions that hold after random numbers of predicted files."""
    at = sorted(np.random.default_rng(seed).choice(files - 2, kills, replace=False))
    return [lambda n=n: sum(1 for _ in target.rglob("*.parquet")) > n for n in at]


def predict_here(ray: Any, task: Any, names: Sequence[str], workers: int) -> Iterator[dict[str, Any]]:
    """Do the work of the workers in this process."""
    return map(prediction._Worker(ray.put(task)), [{"name": name} for name in names])


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(("files", "kills"), [(3, 0), pytest.param(100, 12, marks=pytest.mark.slow)])
def test_the_result_is_complete_if_workers_are_killed(
    files: int,
    kills: int,
    table: pa.Table,
    fitted: pn.PCMCNet,
    tmp_path: Path,
    kill_workers: Kill,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    write_parts(table, source, files)
    killed = kill_workers("MapWorker", kill_conditions(target, files, kills, seed=1))
    done = cluster.predict(fitted, source, target, workers=2, progress=False)
    assert len(killed) == kills
    assert (done.files, done.rows, done.kept) == (files, table.num_rows, 0)
    require_whole(source, target, fitted)

    times = {file: file.stat().st_mtime_ns for file in target.rglob("*.parquet")}
    gone, changed = sorted(times)[:2]
    gone.unlink()
    os.utime(source / changed.relative_to(target))
    if not kills:
        monkeypatch.setattr(prediction, "_predict_files", predict_here)
    again = cluster.predict(fitted, source, target, workers=1, progress=False)
    assert again.kept == files - 2
    redone = {file for file in times if file.stat().st_mtime_ns != times[file]}
    assert redone == {gone, changed}
    require_whole(source, target, fitted)


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_bad_file_is_named_and_the_others_are_predicted(table: pa.Table, fitted: pn.PCMCNet, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    write_parts(table, source, 4)
    whole = (source / "part-002.parquet").read_bytes()
    (source / "part-002.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SchemaError, match=r"part-002\.parquet: cannot be read.* All other files have been predicted"):
        cluster.predict(fitted, source, target, workers=2, progress=False)
    assert sorted(file.name for file in target.iterdir()) == [f"part-00{k}.parquet" for k in (0, 1, 3)]
    (source / "part-002.parquet").write_bytes(whole)
    assert cluster.predict(fitted, source, target, workers=2, progress=False).kept == 3
    require_whole(source, target, fitted)


@pytest.mark.usefixtures("local_ray")
def test_a_set_in_two_files_is_rejected_before_writing(table: pa.Table, fitted: pn.PCMCNet, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    first = table["individual"].to_numpy()[0]
    inside = np.flatnonzero(table["individual"].to_numpy() == first)
    pq.write_table(table.take(inside[:1]), source / "a.parquet")
    pq.write_table(table.slice(inside[1]), source / "b.parquet")
    with pytest.raises(SchemaError, match=rf"choice set {first} .* rows in a\.parquet and in b\.parquet; 1 such"):
        cluster.predict(fitted, source, target, progress=False)
    assert not list(target.rglob("*.parquet"))


@pytest.mark.usefixtures("local_ray")
def test_a_folder_with_other_results_is_not_overwritten(table: pa.Table, fitted: pn.PCMCNet, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    write_parts(table, source, 1)
    write_parts(table, target, 1)
    with pytest.raises(ArtifactError, match=r"part-000\.parquet was not written by this command: choose another"):
        cluster.predict(fitted, source, target, progress=False)
    assert pq.read_table(target / "part-000.parquet").equals(pq.read_table(source / "part-000.parquet"))


def test_nested_folders_are_rejected(fitted: pn.PCMCNet, tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "out", tmp_path.parent):
        with pytest.raises(SchemaError, match="must not contain each other"):
            cluster.predict(fitted, tmp_path, target)


def test_a_folder_without_files_is_rejected(fitted: pn.PCMCNet, tmp_path: Path) -> None:
    (tmp_path / "in" / "_hidden").mkdir(parents=True)
    (tmp_path / "in" / "_hidden" / "a.parquet").touch()
    with pytest.raises(SchemaError, match=r"in: the folder contains no \.parquet file"):
        cluster.predict(fitted, tmp_path / "in", tmp_path / "out")
    with pytest.raises(SchemaError, match=r"none: expected a folder of \.parquet files"):
        cluster.predict(fitted, tmp_path / "none", tmp_path / "out")


# -- Offers ------------------------------------------------------------------------------------------------------------
# Workers write the same file of offers as one process, byte for byte.


@pytest.mark.usefixtures("local_ray")
def test_workers_write_the_same_offers_as_one_process(table: pa.Table, tmp_path: Path) -> None:
    roles = {"choice_set": "individual", "chosen": "choice", "individual": ["dtd"], "features": ["totalPrice"]}
    model = pn.MNL(formula="totalPrice + totalPrice:dtd | 0").fit(pn.ChoiceData.from_long(table, **roles))
    shelf = {"totalPrice": [100.0, 150.0, 200.0, 300.0], "margin": [0.0, 10.0, 20.0, 40.0]}
    people, by_workers, alone = (tmp_path / f"{name}.parquet" for name in ("people", "workers", "alone"))
    pq.write_table(pa.table({"dtd": [float(k % 50) for k in range(3_500)]}), people)
    written = cluster.write_offers(model, shelf, people, by_workers, "margin", outside="0", workers=2)
    expected = pn.write_offers(model, shelf, people, alone, "margin", outside="0")
    assert by_workers.read_bytes() == alone.read_bytes()
    assert written._replace(path=alone) == expected
    with pytest.raises(InputError, match="no column 'margins'"):
        cluster.write_offers(model, shelf, people, by_workers, "margins", outside="0", workers=2)
