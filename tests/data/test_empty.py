"""A table without rows cannot be learnt from and has no predictions."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models import MNL, PCMCNet

ROLES: dict[str, Any] = {"choice_set": "set", "chosen": "took", "alternative": "mode", "features": ["x", "colour"]}


@pytest.fixture
def rows() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "set": np.repeat(np.arange(20), 2),
            "mode": ["car", "bus"] * 20,
            "took": [1, 0, 0, 1] * 10,
            "x": rng.normal(size=40),
            "colour": rng.choice(["red", "blue"], 40),
            "weight": np.ones(40),
        }
    )


@pytest.mark.parametrize("model", [MNL(), PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0)], ids=["mnl", "pcmcnet"])
def test_predictions_of_an_empty_table_are_empty(model: Any, rows: pa.Table, tmp_path: Path) -> None:
    model.fit(ChoiceData.from_long(rows, **ROLES), progress=False)
    none = rows.slice(0, 0)
    pyarrow.parquet.write_table(none, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("set,mode,x,colour\n")
    scanned = ChoiceData.scan(tmp_path / "t.csv", **(ROLES | {"chosen": None}))
    for table in (none, {name: [] for name in none.column_names}, tmp_path / "t.parquet", tmp_path / "t.csv", scanned):
        probabilities = model.predict_proba(table)
        assert (probabilities.shape, probabilities.dtype) == ((0,), np.float64)


def test_a_model_cannot_be_fitted_to_an_empty_table(rows: pa.Table, tmp_path: Path) -> None:
    none = rows.slice(0, 0)
    pyarrow.parquet.write_table(none, tmp_path / "t.parquet")
    for read in (ChoiceData.from_long, ChoiceData.scan):
        with pytest.raises(SchemaError, match="the table is empty: expected at least one row"):
            read(tmp_path / "t.parquet", **ROLES)
    with pytest.raises(InputError, match="needs the choices"):
        MNL().fit(ChoiceData.from_long(none, **(ROLES | {"chosen": None, "weight": "weight"})))


@pytest.mark.parametrize("kind", ["vector", "datetime", "multi", "text", "image", "id"])
def test_a_column_of_contents_may_be_empty(kind: Any) -> None:
    data = ChoiceData.from_long({"set": [], "a": []}, choice_set="set", features=["a"], kinds={"a": kind})
    assert len(data) == len(data.features["a"]) == 0


def test_an_empty_scan_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("set,x\n")
    with pytest.raises(InputError, match="no choice set is selected"):
        ChoiceData.scan(tmp_path / "t.csv", choice_set="set", features=["x"]).read()


def test_a_wide_table_without_rows_has_no_choice_sets() -> None:
    roles: dict[str, Any] = {"alternatives": ["a", "b"], "features": {"x": "{alternative}_x"}}
    assert len(ChoiceData.from_wide({"a_x": [], "b_x": []}, chosen=None, **roles)) == 0
    with pytest.raises(SchemaError, match="the table is empty"):
        ChoiceData.from_wide({"took": [], "a_x": [], "b_x": []}, chosen="took", **roles)
