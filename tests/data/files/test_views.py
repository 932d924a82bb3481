"""Arrow view types (written by polars) and run-end encoded columns are read like any other."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.files.read_files import plain_type, without_views
from pcmcnet.models import MNL
from pcmcnet.models.interface.prediction_files import predict_folder

ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "features": ["price", "brand", "class"],
}


@pytest.fixture
def frame() -> pl.DataFrame:
    n = 30
    return pl.DataFrame(
        {
            "trip": [f"t{k // 3}" for k in range(n)],
            "took": [k % 3 == k // 3 % 3 for k in range(n)],
            "mode": [("car", "bus", "rail")[k % 3] for k in range(n)],
            "price": [float(k % 7) for k in range(n)],
            "brand": [("a", "b")[k % 2] for k in range(n)],
            "class": [("first", "second")[k % 5 == 0] for k in range(n)],
            "note": [["x"], []] * (n // 2),
        }
    ).with_columns(pl.col("brand").cast(pl.Categorical), pl.col("class").cast(pl.Enum(["first", "second"])))


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_a_polars_file_is_read_in_memory_and_streamed(ending: str, frame: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / f"t.{ending}"
    (frame.write_ipc if ending == "arrow" else frame.write_parquet)(path)
    expected = ChoiceData.from_long(frame.to_pandas(use_pyarrow_extension_array=False), **ROLES)
    scanned = ChoiceData.scan(path, cache=tmp_path / "cache", **ROLES)
    for data in (ChoiceData.from_long(path, **ROLES), next(iter(scanned.shards())).data):
        assert data.schema.categorical == ("brand", "class")
        for name in ROLES["features"]:
            np.testing.assert_array_equal(data.features[name].plain(), expected.features[name].plain())
        assert list(data.set_ids) == list(expected.set_ids)


def test_predictions_for_a_polars_file_are_written_to_a_folder(frame: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    frame.write_ipc(path)
    model = MNL().fit(ChoiceData.from_long(path, **ROLES), progress=False)
    predict_folder(model, path, tmp_path / "out")
    written = pyarrow.parquet.read_table(tmp_path / "out" / "t.parquet")
    np.testing.assert_allclose(written["probability"].to_numpy(), model.predict_proba(path), atol=1e-6)
    for name in frame.columns:
        assert written[name].to_pylist() == frame[name].to_list()


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["é", None], pa.string_view()),
        pa.array([b"\0", None], pa.binary_view()),
        pa.array([["a"], None], pa.list_(pa.string_view())),
        pa.array([["a"], None], pa.large_list(pa.string_view())),
        pa.array([["a"], None], pa.list_(pa.string_view(), 1)),
        pa.array([{"a": "b"}, None], pa.struct([("a", pa.string_view())])),
        pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array(["a"], pa.string_view())),
    ],
)
def test_converting_view_types_keeps_the_values(column: pa.Array) -> None:
    plain = without_views(pa.table({"a": column, "b": [1, 2]}))
    assert "view" not in str(plain.schema)
    assert plain["a"].to_pylist() == column.to_pylist()
    assert plain_type(plain["a"].type) == plain["a"].type


@pytest.mark.parametrize("column", ["trip", "took", "price"])
def test_run_end_encoded_columns_are_read_and_streamed(column: str, tmp_path: Path) -> None:
    table = pa.table({"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "price": [2.5, 2.5, 3.0, None]})
    values = table[column].combine_chunks()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), values)
    runs = table.set_column(table.column_names.index(column), column, runs)
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), runs.schema) as writer:
        writer.write_table(runs)
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["price"], "missing": "indicator"}
    expected = ChoiceData.from_long(table, **roles).fingerprint()
    assert ChoiceData.from_long(runs, **roles).fingerprint() == expected
    assert ChoiceData.from_long(tmp_path / "t.arrow", **roles).fingerprint() == expected
    assert ChoiceData.scan(tmp_path / "t.arrow", **roles).read().fingerprint() == expected
