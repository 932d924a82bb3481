"""A table is predicted file by file: every row once, in its place, and nothing half-written under a final name."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import pcmcnet as pn
from pcmcnet.errors import InputError, SchemaError
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
    """200 trips whose rows are shuffled; codes are text that looks like numbers."""
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
        "note": rng.choice(["a", "b"], len(trip)),  # no role: it comes back all the same
    }
    return pa.table(columns).take(pa.array(rng.permutation(len(trip))))


@pytest.fixture(scope="module")
def model(rows: pa.Table) -> pn.MNL:
    fitted: pn.MNL = pn.MNL().fit(pn.ChoiceData.from_long(rows, **ROLES))
    return fitted


def write_folder(rows: pa.Table, folder: Path) -> Path:
    """Write four files, one of them deeper and named after the others, without the choices."""
    bare = rows.drop_columns(["took"])
    for k, name in enumerate(("a.parquet", "b.parquet", "c/d.parquet", "e.parquet")):
        begin, end = bare.num_rows * k // 4, bare.num_rows * (k + 1) // 4
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(bare.slice(begin, end - begin), folder / name, row_group_size=50)
    return folder


def test_every_file_comes_back_with_its_rows_and_their_probabilities(
    rows: pa.Table, model: pn.MNL, tmp_path: Path
) -> None:
    table, out = write_folder(rows, tmp_path / "in"), tmp_path / "out"
    assert predict_folder(model, table, out, memory="1 MiB") == rows.num_rows
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert names == ["a.parquet", "b.parquet", "c/d.parquet", "e.parquet"]
    found = pa.concat_tables([pyarrow.parquet.read_table(out / name) for name in names])
    assert found.drop_columns(["probability"]).equals(rows.drop_columns(["took"]))
    np.testing.assert_allclose(found["probability"].to_numpy(), model.predict_proba(rows), rtol=0, atol=1e-12)


def test_one_file_becomes_one_file(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    pyarrow.csv.write_csv(rows, tmp_path / "in.csv")
    predict_folder(model, tmp_path / "in.csv", tmp_path / "out", column="p")
    found = pyarrow.parquet.read_table(tmp_path / "out" / "in.parquet")
    assert found["code"].to_pylist() == rows["code"].to_pylist()
    np.testing.assert_allclose(found["p"].to_numpy(), model.predict_proba(rows), rtol=0, atol=1e-6)  # of the text


def test_a_given_cache_stays_and_the_next_prediction_finds_it(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    table = write_folder(rows, tmp_path / "in")
    for out in ("first", "second"):
        predict_folder(model, table, tmp_path / out, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_an_interrupted_prediction_leaves_whole_files_alone_and_can_be_done_again(
    rows: pa.Table, model: pn.MNL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, out = write_folder(rows, tmp_path / "in"), tmp_path / "out"
    inner, done = prediction._append, []

    def stop_at_the_third(*args: Any) -> int:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(args[0].target.name)
        return inner(*args)

    with monkeypatch.context() as patch:
        patch.setattr(prediction, "_append", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            predict_folder(model, table, out)
    assert [path.name for path in sorted(out.glob("*.parquet"))] == done == ["a.parquet", "b.parquet"]
    assert predict_folder(model, table, out) == rows.num_rows
    assert not (out / ".scan").exists()


def test_places_and_names_that_cannot_be_are_refused(rows: pa.Table, model: pn.MNL, tmp_path: Path) -> None:
    table = write_folder(rows, tmp_path / "in")
    with pytest.raises(SchemaError, match="lies within the table"):
        predict_folder(model, table, table / "out")
    with pytest.raises(SchemaError, match="already has a column 'price'"):
        predict_folder(model, table, tmp_path / "out", column="price")
    with pytest.raises(SchemaError, match="no such file"):
        predict_folder(model, tmp_path / "none", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "z.parquet").touch()
    with pytest.raises(InputError, match=r"z\.parquet is no part of this result"):
        predict_folder(model, table, tmp_path / "out")
