"""Columns of contents in a table: who has them, how they travel, and that repeated content takes no memory."""

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
    found = data()
    assert found.schema.categorical == ()
    assert found.schema.kinds == KINDS
    assert found.features["v"].codes.tolist() == [0, 1, 0, 2, 1, 0]
    assert found.individual["at"].codes.tolist() == [0, 1, 0]


def test_an_individual_content_that_varies_within_a_set_is_refused_or_the_first_is_taken() -> None:
    table = {**TABLE, "at": [*TABLE["at"][:5], "2024-01-09"]}
    roles = {"choice_set": "id", "individual": ["at"], "kinds": {"at": "datetime"}}
    with pytest.raises(SchemaError, match=r"'at' varies within 1 choice sets \(first: 3\)"):
        ChoiceData.from_long(table, **roles)
    first = ChoiceData.from_long(table, **roles, conflict="first")
    assert first.individual["at"].codes.tolist() == [0, 1, 0]


def test_parts_of_a_table_share_its_contents_and_join_to_the_same_table() -> None:
    whole = data()
    first, second = whole.subset([0, 1]), whole.subset([2])
    assert first.features["v"].table is whole.features["v"].table
    assert first.concat(second).fingerprint() == whole.fingerprint()


def test_tables_read_apart_join_with_each_content_once() -> None:
    whole = data()
    read = [
        ChoiceData.from_schema({k: v[rows] for k, v in TABLE.items()}, whole.schema)
        for rows in (slice(0, 4), slice(4, 6))
    ]
    joined = read[0].concat(read[1])
    assert len(joined.features["v"].table) == 3
    assert joined.fingerprint() == whole.fingerprint()
    assert joined.features["v"].plain()[4].tolist() == [0, 1]


def test_the_fingerprint_follows_contents_and_who_has_them() -> None:
    whole = data()
    column = whole.features["v"]
    assert isinstance(column, Contents)
    renumbered = Contents((2 - column.codes).astype(np.int32), column.table[::-1], "vector")
    assert replace(whole, features={"v": renumbered}).fingerprint() == whole.fingerprint()
    other = Contents(column.codes, column.table + 1, "vector")
    assert replace(whole, features={"v": other}).fingerprint() != whole.fingerprint()
    swapped = Contents(column.codes[::-1].copy(), column.table, "vector")
    assert replace(whole, features={"v": swapped}).fingerprint() != whole.fingerprint()


def test_a_table_without_its_contents_is_a_plain_one() -> None:
    plain = data().without_contents()
    assert (plain.features, plain.individual) == ({}, {})
    assert plain.schema == Schema(choice_set="id", chosen="y", categorical=())


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_files_carry_contents(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(pa.table(TABLE), path)
    else:
        lines = [",".join(TABLE)] + [f'{i},{y},"{v}",{at}' for i, y, v, at in zip(*TABLE.values(), strict=True)]
        path.write_text("\n".join(lines))
    assert ChoiceData.from_schema(path, data().schema).fingerprint() == data().fingerprint()


def test_memory_does_not_grow_with_repeated_content() -> None:
    """5,000 rows of 384 numbers are 7.7 MB as float32, of which 10 distinct ones are kept."""
    pool = np.random.default_rng(0).normal(size=(10, 384))
    rows = pool[np.arange(5_000) % 10]
    table = pa.table({"id": np.arange(5_000) // 5, "v": pa.FixedSizeListArray.from_arrays(rows.ravel(), 384)})
    tracemalloc.start()
    found = ChoiceData.from_long(table, choice_set="id", features=["v"], kinds={"v": "vector"})
    encoded = Encoder.learn(found).encode(found)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.features["v"].table.shape == encoded.contents[0].table.shape == (10, 384)
    assert kept < 1e6
    assert encoded.nbytes < 0.3e6


def test_a_batch_holds_each_of_its_contents_once() -> None:
    encoded = Encoder.learn(data()).encode(data())
    batch = encoded.batch(np.array([0, 2]))
    values, place = batch.contents[0]
    assert values.shape == (2, 2)
    assert torch_equal(values[place][0], encoded.contents[0].table[[0, 1]])
    assert torch_equal(values[place][1], encoded.contents[0].table[[1, 0]])
    assert batch.individual_contents[0].place.tolist() == [0, 0]


def torch_equal(first: object, second: object) -> bool:
    return bool(np.array_equal(np.asarray(first), np.asarray(second)))
