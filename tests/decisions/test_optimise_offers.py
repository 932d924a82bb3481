"""Offers for tables of individuals: memory and files of any row group size give the same bytes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pcmcnet as pn
from choice_tables import logit_choices, read
from pcmcnet.decisions.optimise_offers import individual_chunks
from pcmcnet.errors import InputError, SchemaError

CATALOGUE = {"mode": ["A", "B", "C", "D"], "x": [0.0, 1.0, -1.0, 0.5], "margin": [None, 3.0, 2.0, 2.5]}
PEOPLE = pa.table({"income": np.random.default_rng(0).integers(0, 3, 2_300).astype(float)})


@pytest.fixture(scope="module")
def model() -> pn.MNL:
    table = logit_choices(200, {"x": 1.0}, sizes=(2, 4))
    table["income"] = table["trip"] % 3
    data = read(table, alternative="mode", individual=["income"], features=["x"])
    return pn.MNL(formula="x + x:income | 0").fit(data)


@pytest.fixture(scope="module")
def expected(model: pn.MNL, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    offers = pn.optimise_offers(model, CATALOGUE, PEOPLE, "margin", outside="A")
    path = offers.write(tmp_path_factory.mktemp("offers") / "offers.parquet")
    assert pq.read_table(path).equals(offers.to_arrow())
    return path.read_bytes()


@pytest.mark.parametrize("rows", [64, 700, 5_000])
def test_files_and_memory_give_the_same_bytes(rows: int, model: pn.MNL, expected: bytes, tmp_path: Path) -> None:
    pq.write_table(PEOPLE, tmp_path / "people.parquet", row_group_size=rows)
    done = pn.write_offers(
        model, CATALOGUE, tmp_path / "people.parquet", tmp_path / "offers.parquet", "margin", outside="A"
    )
    assert done.path.read_bytes() == expected
    assert done.individuals == 2_300
    revenue = pq.read_table(done.path)["expected_revenue"].to_numpy()
    assert done.mean_expected_revenue == pytest.approx(revenue.mean(), rel=1e-12)


def test_at_most_two_chunks_are_in_memory(model: pn.MNL) -> None:
    """A chunk is yielded as soon as its rows are available."""
    read = []

    def batches() -> object:
        for number in range(40):
            read.append(number)
            yield pa.record_batch({"income": np.full(100, float(number))})

    chunks = individual_chunks(batches())
    first = next(chunks)
    assert (first.num_rows, len(read)) == (1_000, 10)
    assert [chunk.num_rows for chunk in chunks] == [1_000, 1_000, 1_000]
    assert first["income"].to_numpy()[[0, 999]].tolist() == [0.0, 9.0]


def test_invalid_tables_are_rejected(model: pn.MNL, tmp_path: Path) -> None:
    pq.write_table(PEOPLE.slice(0, 0), tmp_path / "none.parquet")
    with pytest.raises(InputError, match=r"none\.parquet: expected at least one individual"):
        pn.write_offers(model, CATALOGUE, tmp_path / "none.parquet", tmp_path / "offers.parquet", "margin")
    pq.write_table(PEOPLE.rename_columns(["incom"]), tmp_path / "other.parquet")
    with pytest.raises(SchemaError, match="'income'"):
        pn.write_offers(model, CATALOGUE, tmp_path / "other.parquet", tmp_path / "offers.parquet", "margin")
    assert not (tmp_path / "offers.parquet").exists()
