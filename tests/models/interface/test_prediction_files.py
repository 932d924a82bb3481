"""Prediction file by file: every row appears once and in order, and no final file is incomplete."""

import errno
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import pcmcnet as pn
from pcmcnet.errors import ArtifactError, InputError, SchemaError
from pcmcnet.models.interface import prediction_files as prediction
from pcmcnet.models.interface.prediction_files import predict_folder

ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "code",
    "features": ["price", "mode"],
    "available": "open",
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Return 200 trips with shuffled rows. Codes are text that looks like numbers."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 6, 200)
    trip = np.repeat(np.arange(200), sizes)
    place = np.arange(len(trip)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    columns = {
        "trip": trip,
        "took": (place == 0).astype(int),
        "code": [f"00{k}" for k in place],
        "price": rng.normal(size=len(trip)),
        "mode": rng.choice(["car", "bus"], len(trip)),
        "open": (place < 4).astype(int),
        "note": rng.choice(["a", "b"], len(trip)),  # has no role but is copied to the result
    }
    return pa.table(columns).take(pa.array(rng.permutation(len(trip))))


@pytest.fixture(scope="module")
def model(rows: pa.Table) -> pn.MNL:
    fitted: pn.MNL = pn.MNL().fit(pn.ChoiceData.from_long(rows, **ROLES))
    return fitted


def write_folder(rows: pa.Table, folder: Path) -> Path:
    """Write four files without the choices. One of them is in a subfolder and sorts last."""
    bare = rows.drop_columns(["took"])
    for k, name in enumerate(("a.parquet", "b.parquet", "c/d.parquet", "e.parquet")):
        begin, end = bare.num_rows * k // 4, bare.num_rows * (k + 1) // 4
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(bare.slice(begin, end - begin), folder / name, row_group_size=50)
    return folder


def test_every_file_is_written_with_its_rows_and_probabilities(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    table, out = write_folder(rows, tmp_path / "in"), tmp_path / "out"
    assert predict_folder(model, table, out, memory="1 MiB") == rows.num_rows
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert names == ["a.parquet", "b.parquet", "c/d.parquet", "e.parquet"]
    result = pa.concat_tables([pyarrow.parquet.read_table(out / name) for name in names])
    assert result.drop_columns(["probability"]).equals(rows.drop_columns(["took"]))
    np.testing.assert_allclose(result["probability"].to_numpy(), model.predict_proba(rows), rtol=0, atol=1e-12)


def test_one_file_gives_one_file(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    pyarrow.csv.write_csv(rows, tmp_path / "in.csv")
    predict_folder(model, tmp_path / "in.csv", tmp_path / "out", column="p")
    result = pyarrow.parquet.read_table(tmp_path / "out" / "in.parquet")
    assert result["code"].to_pylist() == rows["code"].to_pylist()
    np.testing.assert_allclose(result["p"].to_numpy(), model.predict_proba(rows), rtol=0, atol=1e-6)  # of the text


def test_a_given_cache_is_kept_and_reused(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    table = write_folder(rows, tmp_path / "in")
    for out in ("first", "second"):
        predict_folder(model, table, tmp_path / out, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_an_interrupted_prediction_leaves_nothing_and_can_be_repeated(
    rows: pa.Table, model: pn.MNL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, out = write_folder(rows, tmp_path / "in"), tmp_path / "out"
    inner = prediction._files

    def stop_at_the_third(*args: Any) -> Iterator[Any]:
        yield from islice(inner(*args), 2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prediction, "_files", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            predict_folder(model, table, out)
    assert not list(out.rglob("*.parquet"))
    assert {path.name for path in out.rglob("*")}.isdisjoint({"files", "probabilities"})
    assert predict_folder(model, table, out) == rows.num_rows
    assert not (out / ".scan").exists()


def test_a_refused_table_leaves_an_empty_folder(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    price = pa.array([np.nan, *rows["price"].to_pylist()[1:]])
    table = write_folder(rows.set_column(rows.column_names.index("price"), "price", price), tmp_path / "in")
    with pytest.raises(SchemaError, match="price"):
        predict_folder(model, table, tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())


def with_more_sets(rows: pa.Table) -> pa.Table:
    more = rows.set_column(0, "trip", pa.array(rows["trip"].to_numpy() + 1000))
    return pa.concat_tables([rows, more])


CHANGES: dict[str, Callable[[Path, pa.Table], object]] = {
    "comes": lambda folder, rows: pyarrow.parquet.write_table(rows, folder / "0.parquet"),
    "goes": lambda folder, rows: (folder / "a.parquet").unlink(),
    "grows": lambda folder, rows: pyarrow.parquet.write_table(with_more_sets(rows), folder / "b.parquet"),
    "shrinks": lambda folder, rows: pyarrow.parquet.write_table(rows.slice(3), folder / "b.parquet"),
    "changes": lambda folder, rows: pyarrow.parquet.write_table(rows.sort_by("price"), folder / "b.parquet"),
}


@pytest.mark.parametrize("layout", ["shuffled", "adjacent"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_file_is_written_if_the_table_changes_during_reading(
    change: str, layout: str, rows: pa.Table, model: pn.MNL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_folder(rows if layout == "shuffled" else rows.sort_by("trip"), tmp_path / "in")
    inner, original = pn.MNL._checked_log_proba, pyarrow.parquet.read_table(table / "b.parquet")

    def predict(self: pn.MNL, data: pn.ChoiceData) -> Any:
        CHANGES[change](table, original)
        monkeypatch.setattr(pn.MNL, "_checked_log_proba", inner)
        return inner(self, data)

    monkeypatch.setattr(pn.MNL, "_checked_log_proba", predict)
    with pytest.raises(SchemaError, match="in was changed while it was read: try again"):
        predict_folder(model, table, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_results_do_not_overwrite_other_files(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    bare = rows.drop_columns(["took"])
    pyarrow.parquet.write_table(bare, tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match=r"t\.parquet is the table itself: choose another output folder"):
        predict_folder(model, tmp_path / "t.parquet", tmp_path)
    pyarrow.csv.write_csv(bare, tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"t\.parquet does not belong to this result"):
        predict_folder(model, tmp_path / "t.csv", tmp_path)
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").equals(bare)


def test_a_prediction_can_be_repeated(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    table = write_folder(rows, tmp_path / "in")
    for _ in range(2):
        assert predict_folder(model, table, tmp_path / "out") == rows.num_rows


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot keep space for a file")
def test_a_full_disk_is_reported_before_any_prediction(
    rows: pa.Table, model: pn.MNL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: int) -> None:
        assert args[1:] == (0, 8 * rows.num_rows)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ArtifactError, match="probabilities cannot be written: No space left on device"):
        predict_folder(model, write_folder(rows, tmp_path / "in"), tmp_path / "out")


def test_batches_of_copied_rows_depend_on_the_size_of_all_columns(
    rows: pa.Table, model: pn.MNL, tmp_path: Path
) -> None:
    long = pa.array(["x" * 20_000] * rows.num_rows)
    table = write_folder(rows.append_column("letter", long), tmp_path / "in")
    (file, *_) = prediction._files(table, tmp_path / "out", model.schema, 2**20)
    assert file.batch_rows <= 2**20 // 20_000


def test_invalid_folders_and_column_names_are_refused(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    table = write_folder(rows, tmp_path / "in")
    with pytest.raises(SchemaError, match="is inside the table"):
        predict_folder(model, table, table / "out")
    with pytest.raises(SchemaError, match="already has a column 'price'"):
        predict_folder(model, table, tmp_path / "out", column="price")
    with pytest.raises(SchemaError, match="no such file"):
        predict_folder(model, tmp_path / "none", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "z.parquet").touch()
    with pytest.raises(InputError, match=r"z\.parquet does not belong to this result"):
        predict_folder(model, table, tmp_path / "out")
