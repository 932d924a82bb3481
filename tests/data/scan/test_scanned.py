"""A scanned table equals the table in memory, set by set and row by row, for every file format."""

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.data import ChoiceData, Encoder, ScannedData
from pcmcnet.data.scan import scanned as kept
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError

Write = Callable[..., Path]
Make = Callable[..., pa.Table]
Roles = dict[str, Any]


@pytest.fixture
def scanned(write: Write, make_table: Make, roles: Roles) -> ScannedData:
    return ChoiceData.scan(write(make_table()), memory="1 MiB", **roles)


def ids_of(parts: Any) -> list[list[Any]]:
    return [part.read().set_ids.tolist() for part in parts]


def require_same(actual: ChoiceData, expected: ChoiceData) -> None:
    assert actual.fingerprint() == expected.fingerprint()
    assert actual.set_ids.tolist() == expected.set_ids.tolist()
    assert actual.rows.tolist() == expected.rows.tolist()
    assert sorted(actual.hidden_rows) == sorted(expected.hidden_rows)
    assert actual.keep["person"].plain().tolist() == expected.keep["person"].plain().tolist()


@pytest.mark.parametrize("kind", ["folder", "parquet", "arrow", "csv", "csv.gz"])
@pytest.mark.parametrize("text_ids", [True, False])
def test_all_shards_together_equal_the_table_in_memory(
    write: Write, kind: str, text_ids: bool, make_table: Make, roles: Roles
) -> None:
    path = write(make_table(text_ids=text_ids), kind)
    scanned = ChoiceData.scan(path, memory="1 MiB", **roles)
    assert len(scanned.manifest.shards) > 2
    require_same(scanned.read(), ChoiceData.from_long(path, **roles))


IDS: dict[str, Callable[[list[int]], Any]] = {
    "negative": lambda of: [-k for k in of],
    "unsigned": lambda of: pa.array([k + 2**63 for k in of], pa.uint64()),
    "halves": lambda of: [k / 2 for k in of],
    "dates": lambda of: [date(2024, 1, 1) + timedelta(k) for k in of],
    "instants": lambda of: pa.array(of, pa.timestamp("us")),
    "decimals": lambda of: pa.array([Decimal(k) for k in of], pa.decimal128(12, 2)),
    "dictionary": lambda of: pa.array([f"s{k}" for k in of]).dictionary_encode(),
    "bytes": lambda of: [str(k).encode() for k in of],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_may_be_of_any_kind(write: Write, make_table: Make, roles: Roles, kind: str) -> None:
    table = make_table(120, text_ids=False)
    ids = IDS[kind](table["trip"].to_pylist())
    path = write(table.set_column(0, "trip", pa.array(ids) if isinstance(ids, list) else ids))
    scanned = ChoiceData.scan(path, memory="1 MiB", **roles)
    assert len(scanned.manifest.shards) > 1
    require_same(scanned.read(), ChoiceData.from_long(path, **roles))


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.float64()])
def test_flags_may_be_dictionaries_of_numbers(write: Write, make_table: Make, roles: Roles, kind: pa.DataType) -> None:
    table = make_table(120)
    for name in ("open", "took"):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(kind).combine_chunks().dictionary_encode())
    path = write(table, "arrow")
    require_same(ChoiceData.scan(path, memory="1 MiB", **roles).read(), ChoiceData.from_long(table, **roles))


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_flags_may_be_text(write: Write, make_table: Make, roles: Roles, ending: str) -> None:
    table = make_table(120)
    for name in ("open", "took"):
        words = pa.array([("0", "TRUE")[value] for value in table[name].to_pylist()])
        table = table.set_column(table.column_names.index(name), name, words)
    path = write(table, ending)
    expected = ChoiceData.from_long(make_table(120), **roles)
    require_same(ChoiceData.from_long(path, **roles), expected)
    require_same(ChoiceData.scan(path, memory="1 MiB", **roles).read(), expected)


def test_sizes_are_known_without_reading_shards(
    scanned: ScannedData, write: Write, make_table: Make, roles: Roles
) -> None:
    data = ChoiceData.from_long(write(make_table()), **roles)
    assert (len(scanned), scanned.n_rows) == (len(data), data.n_rows)
    assert (scanned.tally.pairs, scanned.tally.largest) == ((data.sizes**2).sum(), data.sizes.max())
    assert scanned.schema == data.schema
    assert "300 choice sets of up to 6 alternatives" in repr(scanned)


def test_each_shard_is_choice_data_with_columns_on_disk(scanned: ScannedData) -> None:
    for shard in scanned.shards():
        assert not shard.data.features["price"].values.flags.owndata
        assert not shard.data.features["price"].values.flags.writeable
        assert (np.diff(shard.table_rows) > 0).all()
        rows = shard.data.to_rows(shard.shown_rows, fill=-1)
        assert (rows[rows >= 0] == shard.table_rows[rows >= 0]).all()


def test_parts_of_a_split_are_disjoint_and_complete(scanned: ScannedData) -> None:
    parts = scanned.split((0.6, 0.2, 0.2), seed=0)
    ids = [set(part.read().set_ids) for part in parts]
    assert sum(map(len, ids)) == len(set.union(*ids)) == len(scanned) == sum(map(len, parts))
    assert [round(len(part) / len(scanned), 1) for part in parts] == [0.6, 0.2, 0.2]  # shares of random draws
    assert ids[0] != set(scanned.split((0.6, 0.4), seed=4)[0].read().set_ids)
    whole = parts[1].concat(parts[0])
    assert set(whole.read().set_ids) == ids[0] | ids[1]
    with pytest.raises(InputError, match="neighbouring parts"):
        parts[0].concat(parts[2])


def test_a_split_of_a_part_is_drawn_independently(scanned: ScannedData) -> None:
    half, _ = scanned.split((0.5, 0.5), seed=0)
    quarter, rest = half.split((0.5, 0.5), seed=0)
    assert 0.3 < len(quarter) / len(half) < 0.7
    assert len(quarter) + len(rest) == len(half)


def test_groups_of_a_split_stay_whole(scanned: ScannedData) -> None:
    for by in ("person", "income"):
        first, second = (part.read() for part in scanned.split((0.5, 0.5), by=by))
        values = [set({**part.individual, **part.keep}[by].plain()) for part in (first, second)]
        assert not values[0] & values[1]
    with pytest.raises(SchemaError, match="read the table with keep"):
        scanned.split((0.5, 0.5), by="price")


def test_sets_of_a_person_stay_together_on_disk(
    scanned: ScannedData, write: Write, make_table: Make, roles: Roles
) -> None:
    path = write(make_table(), "parquet")
    panel = ChoiceData.scan(path, memory="1 MiB", **roles | {"person": "person"})
    require_same(panel.read(), ChoiceData.from_long(path, **roles | {"person": "person"}))
    persons = ids_of(scanned.split((0.5, 0.5), seed=2, by="person"))
    at_random = ids_of(scanned.split((0.5, 0.5), seed=2))
    assert ids_of(panel.split((0.5, 0.5), seed=2)) == persons != at_random
    assert ids_of(panel.split((0.5, 0.5), seed=2, by="trip")) == at_random


def test_groups_are_numbered_in_table_order(write: Write, make_table: Make, roles: Roles) -> None:
    panel = ChoiceData.scan(write(make_table()), memory="1 MiB", **{**roles, "keep": [], "person": "person"})
    for part in (panel, panel.split((0.5, 0.5), by="trip")[0]):
        in_memory = part.read()
        for by in (None, "person", "city", "trip"):
            assert pairs_of(part.groups(by)) == pairs_of(in_memory.groups(by))


def pairs_of(groups: Any) -> list[list[bool]]:
    """Return which pairs of sets are in the same group."""
    return (groups[:, None] == groups).tolist()


def test_a_sample_depends_on_its_seed(scanned: ScannedData) -> None:
    sample = scanned.sample(40, seed=1)
    assert len(sample) == 40
    assert sample.set_ids.tolist() == scanned.sample(40, seed=1).set_ids.tolist() != scanned.sample(40).set_ids.tolist()
    assert len(scanned.sample(10_000)) == len(scanned)
    with pytest.raises(InputError, match="whole number of at least 1, got 0"):
        scanned.sample(0)


def prices(data: ScannedData) -> Iterator[tuple[Any, Any]]:
    return ((chunk.table_rows, chunk.data.to_rows(chunk.data.features["price"].values)) for chunk in data.chunks())


def test_values_by_row_are_in_table_order(scanned: ScannedData, write: Write, make_table: Make, roles: Roles) -> None:
    data = ChoiceData.from_long(write(make_table()), **roles)
    price = data.to_rows(data.features["price"].values)
    values = scanned.by_row(prices(scanned))
    assert values.tolist() == price.tolist()
    part, _ = scanned.split((0.5, 0.5))
    expected = part.read().to_rows(part.read().features["price"].values)
    assert part.by_row(prices(part)).tolist() == expected.tolist()


def test_buffers_are_as_large_as_memory_allows(scanned: ScannedData) -> None:
    order = list(range(len(scanned.manifest.shards)))[::-1]
    groups = scanned.buffers(order)
    assert [k for group in groups for k in group] == order
    assert all(sum(scanned.manifest.shards[k].bytes for k in group) <= scanned.memory / 4 for group in groups[:-1])


def test_fingerprints_of_different_tables_and_parts_differ(
    scanned: ScannedData, write: Write, make_table: Make, roles: Roles
) -> None:
    parts = scanned.split((0.5, 0.5))
    other = ChoiceData.scan(write(make_table(seed=1), "parquet"), memory="1 MiB", **roles)
    reopened = ChoiceData.scan(write(make_table(), "arrow"), memory="1 MiB", **roles)
    assert len({scanned.fingerprint(), other.fingerprint(), *(part.fingerprint() for part in parts)}) == 4
    assert reopened.fingerprint() == scanned.fingerprint()


# -- errors ------------------------------------------------------------------------------------------------------------


def spoiled(table: pa.Table, column: str, row: int, value: Any) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values))


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("price", 777, float("nan")),
        ("price", 777, float("inf")),
        ("took", 500, 2),
        ("open", 500, None),
        ("weight", 500, -1.0),
        ("colour", 600, None),
        ("mode", 700, None),
        ("trip", 800, None),
        ("person", 777, None),
    ],
)
def test_a_bad_value_is_refused_as_in_memory(
    write: Write, column: str, row: int, value: Any, make_table: Make, roles: Roles
) -> None:
    path, roles = write(spoiled(make_table(), column, row, value)), roles | {"person": "person"}
    with pytest.raises(SchemaError) as expected:
        ChoiceData.from_long(path, **roles)
    with pytest.raises(SchemaError) as error:
        ChoiceData.scan(path, memory="1 MiB", **roles)
    assert str(error.value).startswith(str(expected.value))
    assert f"column {column!r}, row {row}" in str(error.value)
    assert not list(path.with_name("table.pcmcnet").iterdir())


def test_text_among_numbers_is_judged_over_all_files(write: Write, make_table: Make, roles: Roles) -> None:
    table = make_table()
    text = [f"{x:.2f}" for x in table["price"].to_pylist()]
    text[444] = "cheap"
    path = write(table.set_column(table.column_names.index("price"), "price", pa.array(text)))
    with pytest.raises(SchemaError) as expected:
        ChoiceData.from_long(path, **roles)
    with pytest.raises(SchemaError) as error:
        ChoiceData.scan(path, memory="1 MiB", **roles)
    assert str(error.value) == str(expected.value)


def test_float32_resolution_is_judged_over_all_shards(write: Write, make_table: Make, roles: Roles) -> None:
    """Seconds since 1970 are refused, but not if only some shards have close values."""
    table = make_table()
    seconds = 1.7e9 + np.arange(table.num_rows) / 10
    place = table.column_names.index("time")
    with pytest.raises(SchemaError, match="column 'time': its values differ by less than the precision"):
        ChoiceData.scan(write(table.set_column(place, "time", pa.array(seconds))), memory="1 MiB", **roles)
    seconds[0] = 0
    ChoiceData.scan(write(table.set_column(place, "time", pa.array(seconds))), memory="1 MiB", **roles)


def test_weights_may_be_0_in_a_shard_but_not_in_all(write: Write, make_table: Make, roles: Roles) -> None:
    table = make_table()
    place = table.column_names.index("weight")
    one = np.where(np.array(table["trip"].to_pylist()) == table["trip"][0].as_py(), 1.0, 0.0)
    scanned = ChoiceData.scan(write(table.set_column(place, "weight", pa.array(one))), memory="1 MiB", **roles)
    assert len(scanned.with_positive_weight()) == 1
    with pytest.raises(SchemaError, match="all weights are 0"):
        ChoiceData.scan(write(table.set_column(place, "weight", pa.array(one * 0))), memory="1 MiB", **roles)


def test_roles_memory_and_paths_are_checked(write: Write, make_table: Make, roles: Roles) -> None:
    path = write(make_table())
    with pytest.raises(SchemaError, match=r"no column 'prise'\. Did you mean 'price'"):
        ChoiceData.scan(path, **(roles | {"features": ["prise"]}))
    with pytest.raises(SchemaError, match="unknown schema entry 'feature'"):
        ChoiceData.scan(path, choice_set="trip", feature=["price"])
    with pytest.raises(ConfigError, match="at least 1 MiB, such as '1 GiB'"):
        ChoiceData.scan(path, memory="lots", **roles)
    with pytest.raises(InputError, match="expected the path of a file or folder, got dict"):
        ChoiceData.scan({"trip": [1]}, **roles)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="no such file"):
        ChoiceData.scan(path / "none", **roles)
    with pytest.raises(SchemaError, match="the table is empty"):
        ChoiceData.scan(write(make_table().slice(0, 0), "parquet"), **roles)


# -- Encoder cache -----------------------------------------------------------------------------------------------------
# An encoder is learnt once per part of a scanned table, and again only if the stored one is unusable.


@pytest.fixture
def scan(
    write: Callable[..., Path], make_table: Callable[..., pa.Table], roles: dict[str, Any]
) -> Callable[[], ScannedData]:
    """Open the table again, as another process does."""
    path = write(make_table())
    return lambda: ChoiceData.scan(path, memory="1 MiB", **roles)


@pytest.mark.parametrize("bend", [True, False])
def test_the_stored_encoder_is_used_without_reading_shards(scan: Callable[[], ScannedData], bend: bool) -> None:
    expected = Encoder.learn(scan(), bend=bend)
    assert kept.learn_or_load_encoder(scan(), bend=bend) == expected
    reopened = scan()
    assert kept.learn_or_load_encoder(reopened, bend=bend) == expected
    assert not reopened.verified.seen


def test_each_part_and_option_has_its_own_encoder(scan: Callable[[], ScannedData]) -> None:
    whole = scan()
    parts = whole.split((0.5, 0.5))
    how = [{"bend": bend, "labels": labels} for bend in (True, False) for labels in (True, False)]
    ways = [(part, options) for part in (whole, whole.with_positive_weight(), *parts) for options in how]
    for part, options in ways * 2:
        assert kept.learn_or_load_encoder(part, **options) == Encoder.learn(part, **options)
    assert len(list(whole.folder.glob("encoder-*.json"))) == len(ways)


@pytest.mark.parametrize("content", ["", "{}", '{"encoder": "{}", "sha256": "0"}', "[1]", "half"])
def test_a_damaged_encoder_is_learnt_again(scan: Callable[[], ScannedData], content: str) -> None:
    data = scan()
    expected = kept.learn_or_load_encoder(data)
    (file,) = data.folder.glob("encoder-*.json")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content == "half" else content.encode())
    assert kept.learn_or_load_encoder(data) == expected
    assert file.read_bytes() == whole


def test_the_encoder_is_learnt_even_if_it_cannot_be_stored(
    scan: Callable[[], ScannedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ArtifactError("cannot be written")

    data = scan()
    monkeypatch.setattr(kept, "write_bytes", refuse)
    assert kept.learn_or_load_encoder(data) == Encoder.learn(data)
    assert not list(data.folder.glob("encoder-*"))
