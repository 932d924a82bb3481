"""Columns of contents in a table: reading, subsets, files, and memory of repeated contents."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData, Encoder, Schema
from pcmcnet.data.columns.arrays import Contents
from pcmcnet.errors import SchemaError

KINDS = {"v": "vector", "at": "datetime"}
TABLE = {
    "id": [1, 1, 2, 2, 3, 3],
    "y": [1, 0, 1, 0, 0, 1],
    "v": [[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [4.0, 4.0], [0.0, 1.0], [1.0, 2.0]],
    "at": ["2024-01-01", "2024-01-01", "2024-01-02", "2024-01-02", "2024-01-01", "2024-01-01"],
}


def data() -> ChoiceData:
    return ChoiceData.from_long(TABLE, choice_set="id", chosen="y", features=["v"], individual=["at"], kinds=KINDS)


def test_alternatives_and_individuals_have_contents() -> None:
    choices = data()
    assert choices.schema.categorical == ()
    assert choices.schema.kinds == KINDS
    assert choices.features["v"].codes.tolist() == [0, 1, 0, 2, 1, 0]
    assert choices.individual["at"].codes.tolist() == [0, 1, 0]


def test_an_individual_content_may_vary_only_with_conflict_first() -> None:
    table = {**TABLE, "at": [*TABLE["at"][:5], "2024-01-09"]}
    roles = {"choice_set": "id", "individual": ["at"], "kinds": {"at": "datetime"}}
    with pytest.raises(SchemaError, match=r"'at' varies within 1 choice sets \(first: 3\)"):
        ChoiceData.from_long(table, **roles)
    first = ChoiceData.from_long(table, **roles, conflict="first")
    assert first.individual["at"].codes.tolist() == [0, 1, 0]


def test_subsets_share_contents_and_join_to_the_same_table() -> None:
    whole = data()
    first, second = whole.subset([0, 1]), whole.subset([2])
    assert first.features["v"].table is whole.features["v"].table
    assert first.concat(second).fingerprint() == whole.fingerprint()


def test_joined_tables_store_each_content_once() -> None:
    whole = data()
    read = [
        ChoiceData.from_schema({k: v[rows] for k, v in TABLE.items()}, whole.schema)
        for rows in (slice(0, 4), slice(4, 6))
    ]
    joined = read[0].concat(read[1])
    assert len(joined.features["v"].table) == 3
    assert joined.fingerprint() == whole.fingerprint()
    assert joined.features["v"].plain()[4].tolist() == [0, 1]


def test_the_fingerprint_depends_on_contents_and_their_rows() -> None:
    whole = data()
    column = whole.features["v"]
    assert isinstance(column, Contents)
    renumbered = Contents((2 - column.codes).astype(np.int32), column.table[::-1], "vector")
    assert replace(whole, features={"v": renumbered}).fingerprint() == whole.fingerprint()
    other = Contents(column.codes, column.table + 1, "vector")
    assert replace(whole, features={"v": other}).fingerprint() != whole.fingerprint()
    swapped = Contents(column.codes[::-1].copy(), column.table, "vector")
    assert replace(whole, features={"v": swapped}).fingerprint() != whole.fingerprint()


def test_without_contents_gives_a_table_of_numbers() -> None:
    plain = data().without_contents()
    assert (plain.features, plain.individual) == ({}, {})
    assert plain.schema == Schema(choice_set="id", chosen="y", categorical=())


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_contents_are_read_from_files(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(pa.table(TABLE), path)
    else:
        lines = [",".join(TABLE)] + [f'{i},{y},"{v}",{at}' for i, y, v, at in zip(*TABLE.values(), strict=True)]
        path.write_text("\n".join(lines))
    assert ChoiceData.from_schema(path, data().schema).fingerprint() == data().fingerprint()


def test_memory_does_not_grow_with_repeated_content() -> None:
    """5,000 rows of 384 numbers take 7.7 MB as float32; only the 10 distinct ones are stored."""
    pool = np.random.default_rng(0).normal(size=(10, 384))
    rows = pool[np.arange(5_000) % 10]
    table = pa.table({"id": np.arange(5_000) // 5, "v": pa.FixedSizeListArray.from_arrays(rows.ravel(), 384)})
    tracemalloc.start()
    choices = ChoiceData.from_long(table, choice_set="id", features=["v"], kinds={"v": "vector"})
    encoded = Encoder.learn(choices).encode(choices)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert choices.features["v"].table.shape == encoded.contents[0].table.shape == (10, 384)
    assert used < 1e6
    assert encoded.nbytes < 0.3e6


def test_a_batch_stores_each_content_once() -> None:
    encoded = Encoder.learn(data()).encode(data())
    batch = encoded.batch(np.array([0, 2]))
    values, place = batch.contents[0]
    assert values.shape == (2, 2)
    assert torch_equal(values[place][0], encoded.contents[0].table[[0, 1]])
    assert torch_equal(values[place][1], encoded.contents[0].table[[1, 0]])
    assert batch.individual_contents[0].place.tolist() == [0, 0]


def torch_equal(first: object, second: object) -> bool:
    return bool(np.array_equal(np.asarray(first), np.asarray(second)))
