"""A table of choice sets of different sizes in scattered rows, as files of every kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

_ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "individual": ["income", "city"],
    "features": ["price", "time", "colour"],
    "available": "open",
    "weight": "weight",
    "keep": ["person"],
}


def _make_table(n: int = 300, *, seed: int = 0, shuffled: bool = True, text_ids: bool = True) -> pa.Table:
    """Make n sets of 1 to 6 alternatives with one choice each; the first alternative is always available."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, n)
    sets = np.repeat(np.arange(n), sizes)
    place = np.arange(len(sets)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ids = np.array([f"t{k}" for k in sets]) if text_ids else sets * 7 - 100
    table = pa.table(
        {
            "trip": ids,
            "took": (place == 0).astype(np.int64),
            "mode": np.array(["car", "bus", "bike", "walk", "tram", "boat"])[place],
            "open": (place == 0) | (rng.random(len(sets)) < 0.8),
            "weight": np.where(np.arange(n) % 10 == 0, 0.0, 1.0 + np.arange(n) % 3)[sets],
            "income": rng.normal(size=n)[sets],
            "city": rng.choice(["Rome", "Oslo", "Bern"], n)[sets],
            "person": sets // 3,
            "price": rng.lognormal(2, 1.5, len(sets)),
            "time": rng.normal(30, 5, len(sets)),
            "colour": rng.choice(["red", "blue", "green", "grey"], len(sets)),
        }
    )
    return table.take(pa.array(rng.permutation(len(sets)))) if shuffled else table


@pytest.fixture
def roles() -> dict[str, Any]:
    """Return the roles of the table's columns."""
    return dict(_ROLES)


@pytest.fixture
def make_table() -> Callable[..., pa.Table]:
    """Return the function that makes the table."""
    return _make_table


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a table as a file or folder of the given kind."""

    def write(table: pa.Table, kind: str = "folder", files: int = 4) -> Path:
        if kind == "folder":
            folder = tmp_path / "table"
            folder.mkdir(exist_ok=True)
            for k in range(files):
                begin, end = table.num_rows * k // files, table.num_rows * (k + 1) // files
                pyarrow.parquet.write_table(
                    table.slice(begin, end - begin), folder / f"part-{k}.parquet", row_group_size=97
                )
            return folder
        path = tmp_path / f"table.{kind}"
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path, row_group_size=101)
        elif kind == "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=99)
        elif kind == "csv":
            pyarrow.csv.write_csv(table, path)
        else:
            with pa.CompressedOutputStream(str(path), "gzip") as sink:
                pyarrow.csv.write_csv(table, sink)
        return path

    return write
