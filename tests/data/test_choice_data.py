"""Choice data: the same structure from every source, results in table order, splits by sets and groups."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.schema import Schema
from pcmcnet.errors import InputError, SchemaError

# -- the same structure from every source ----------------------------------------------------------------


def to_csv(table: pa.Table, folder: Path) -> Path:
    pyarrow.csv.write_csv(table, folder / "t.csv")
    return folder / "t.csv"


def to_csv_gz(table: pa.Table, folder: Path) -> Path:
    path = folder / "t.csv.gz"
    path.write_bytes(gzip.compress(to_csv(table, folder).read_bytes()))
    return path


def to_pandas_csv(table: pa.Table, folder: Path) -> Path:
    table.to_pandas().to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def to_parquet(table: pa.Table, folder: Path) -> Path:
    pyarrow.parquet.write_table(table, folder / "t.parquet")
    return folder / "t.parquet"


def to_folder(table: pa.Table, folder: Path) -> Path:
    for k, name in enumerate(["0.parquet", "1/a.parquet", "1/b/c.parquet"]):
        (folder / "parts" / name).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table.slice(2 * k, 2 if k < 2 else None), folder / "parts" / name)
    return folder / "parts"


def to_arrow(table: pa.Table, folder: Path, *, stream: bool = False) -> Path:
    opened = pa.ipc.new_stream if stream else pa.ipc.new_file
    with opened(str(folder / "t.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return folder / "t.arrow"


def to_categories(table: pa.Table, folder: Path) -> pd.DataFrame:
    frame = table.to_pandas()
    return frame.assign(shade=frame["shade"].astype("category"), town=frame["town"].astype("category"))


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "csv": to_csv,
    "csv.gz": to_csv_gz,
    "csv by pandas": to_pandas_csv,
    "parquet": to_parquet,
    "folder of parquet": to_folder,
    "arrow file": to_arrow,
    "arrow stream": lambda table, folder: to_arrow(table, folder, stream=True),
    "path as text": lambda table, folder: str(to_parquet(table, folder)),
    "mapping": lambda table, folder: table.to_pydict(),
    "pyarrow": lambda table, folder: table,
    "pandas": lambda table, folder: table.to_pandas(),
    "pandas categories": to_categories,
    "polars": lambda table, folder: pl.from_arrow(table),
    "polars lazy": lambda table, folder: pl.from_arrow(table).lazy(),
}


@pytest.mark.parametrize("kinds", ["declared", "by dtype"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_choice_data(
    source: str, kinds: str, trips: Any, roles: Any, tmp_path: Path
) -> None:
    """Declared categories cover text, integers, fractions and booleans; a mapping is the reference."""
    trips |= {"direct": [True, False, True, True, False], "stars": [1.0, 2.0, 1.0, 2.5, 2.0], "ok": [1, 1, 0, 1, 1]}
    roles |= {"features": ["time", "seats", "shade", "direct", "stars"], "available": "ok"}
    if kinds == "declared":
        roles["categorical"] = ["town", "shade", "seats", "direct", "stars"]
    expected = ChoiceData.from_long(trips, **roles)
    data = ChoiceData.from_long(SOURCES[source](pa.table(trips), tmp_path), **roles)
    assert data.fingerprint() == expected.fingerprint()
    assert data.set_ids.tolist() == [7, 3]
    assert data.rows.tolist() == [0, 1, 3, 4]
    assert data.keep["person"].plain().tolist() == ["p", "q"]


def test_a_schema_reads_like_keyword_arguments(trips: Any, roles: Any) -> None:
    expected = ChoiceData.from_long(trips, **roles)
    data = ChoiceData.from_schema(trips, Schema(**roles))
    assert data.fingerprint() == expected.fingerprint()
    data = ChoiceData.from_schema(trips, expected.schema)
    assert data.schema == expected.schema
    assert data.schema.categorical == ("town", "shade")


def test_reading_does_not_change_the_table(trips: Any, roles: Any) -> None:
    frame = pd.DataFrame(trips)
    before = frame.copy()
    data = ChoiceData.from_long(frame, **roles)
    data.features["time"].values[0] = -1
    pd.testing.assert_frame_equal(frame, before)


def test_a_missing_column_is_named_with_the_closest_match(trips: Any, roles: Any) -> None:
    with pytest.raises(SchemaError, match=r"the table has no column 'seat'. Did you mean 'seats'\?"):
        ChoiceData.from_long(trips, **{**roles, "features": ["seat"]})


def test_column_names_may_use_any_script() -> None:
    table = {"番号": [1, 1], "prix (€)": [1.0, 2.0], 'größe, "x"': ["á", "b"], "выбор": [0, 1]}
    data = ChoiceData.from_long(table, choice_set="番号", chosen="выбор", features=["prix (€)", 'größe, "x"'])
    assert data.features['größe, "x"'].plain().tolist() == ["á", "b"]


def test_the_repr_describes_the_contents(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    facts = "2 choice sets of 2 to 3 alternatives, 5 in all; 3 features, 2 individual-level columns; choices known"
    assert repr(data) == f"ChoiceData({facts})"
    assert "0 choice sets of 0 alternatives" in repr(data.subset([]))
    assert "choices unknown" in repr(ChoiceData.from_long(trips, **{**roles, "chosen": None}))


def test_missing_choices_are_reported(trips: Any, roles: Any) -> None:
    assert ChoiceData.from_long(trips, **roles).require_chosen("fit").tolist() == [0, 2]
    unknown = ChoiceData.from_long(trips, **{**roles, "chosen": None})
    with pytest.raises(InputError, match="fit needs the choices: read the table with chosen=<column>"):
        unknown.require_chosen("fit")


# -- the order of the table ------------------------------------------------------------------------------


def test_results_are_in_table_order() -> None:
    """Sets b = rows 0, 3 and a = rows 1, 4; row 2 is unavailable. Alternatives have the order of rows 0, 3, 1, 4."""
    table = {"id": list("babba"), "ok": [1, 1, 0, 1, 1]}
    data = ChoiceData.from_long(table, choice_set="id", available="ok")
    assert data.to_rows([0.1, 0.2, 0.3, 0.4]).tolist() == [0.1, 0.3, 0.0, 0.2, 0.4]
    assert data.to_rows([1, 2, 3, 4], fill=-1).tolist() == [1, 3, -1, 2, 4]
    assert data.from_rows([0.1, 0.3, np.nan, 0.2, 0.4]).tolist() == [0.1, 0.2, 0.3, 0.4]
    first = data.subset([1])
    assert first.set_ids.tolist() == ["a"]
    assert first.to_rows([0.3, 0.4]).tolist() == [0.3, 0.4]
    assert data.subset([0]).to_rows([0.1, 0.2]).tolist() == [0.1, 0.0, 0.2]


@given(seed=st.integers(0, 2**16), data=st.data())
def test_to_rows_and_from_rows_are_inverse(seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 4, 12)
    ok = (rng.random(12) < 0.6) | np.isin(np.arange(12), [np.flatnonzero(ids == i)[0] for i in np.unique(ids)])
    sets = ChoiceData.from_long(
        {"id": ids, "ok": ok, "x": np.arange(12.0)}, choice_set="id", available="ok", features=["x"]
    )
    part = sets.subset(data.draw(st.lists(st.integers(0, len(sets) - 1), unique=True)))
    values = rng.normal(size=len(part.rows))
    rows = part.to_rows(values, fill=np.nan)
    np.testing.assert_array_equal(part.from_rows(rows), values)
    assert np.isnan(rows[part.hidden_rows]).all()
    x = part.to_rows(part.features["x"].plain(), fill=-1)
    assert (np.diff(x[x >= 0]) > 0).all()  # x is the row in the whole table: the order is kept


def test_values_of_another_length_are_refused(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long({**trips, "ok": [1, 1, 1, 0, 1]}, **roles, available="ok")
    with pytest.raises(InputError, match=r"one value for each of the 4 alternatives, got shape \(5,\)"):
        data.to_rows(np.zeros(5))
    with pytest.raises(InputError, match=r"one value for each of the 5 table rows, got shape \(4,\)"):
        data.from_rows(np.zeros(4))


# -- parts -----------------------------------------------------------------------------------------------


@pytest.fixture
def hundred() -> ChoiceData:
    """Make a hundred sets of two; set s belongs to person s // 4 and town s % 3."""
    ids = np.repeat(np.arange(100), 2)
    table = {"id": ids, "y": np.tile([1, 0], 100), "town": ids % 3, "person": [f"p{i // 4}" for i in ids]}
    return ChoiceData.from_long(table, choice_set="id", chosen="y", individual=["town"], keep=["person"])


def ids_of(parts: Any) -> list[list[int]]:
    return [part.set_ids.tolist() for part in parts]


def all_ids(parts: Any) -> list[int]:
    return sorted(i for ids in ids_of(parts) for i in ids)


def test_a_split_divides_the_sets_by_shares(hundred: ChoiceData) -> None:
    parts = hundred.split((0.7, 0.2, 0.1), seed=3)
    assert [len(part) for part in parts] == [70, 20, 10]
    assert all_ids(parts) == list(range(100))
    assert ids_of(parts) == ids_of(hundred.split((0.7, 0.2, 0.1), seed=3))
    assert ids_of(parts) != ids_of(hundred.split((0.7, 0.2, 0.1), seed=4))


def test_sets_with_positive_weights_are_not_copied(hundred: ChoiceData) -> None:
    assert hundred.with_positive_weight() is hundred
    some = replace(hundred, weights=np.where(np.arange(100) < 40, 0.0, 2.0))
    assert some.with_positive_weight().set_ids.tolist() == list(range(40, 100))


def test_folds_hold_out_each_set_once(hundred: ChoiceData) -> None:
    folds = hundred.folds(5, seed=1)
    assert [(len(rest), len(fold)) for rest, fold in folds] == [(80, 20)] * 5
    assert all_ids(fold for _, fold in folds) == list(range(100))
    for rest, fold in folds:
        assert sorted(rest.set_ids.tolist() + fold.set_ids.tolist()) == list(range(100))


@pytest.mark.parametrize("by", ["person", [i // 4 for i in range(100)], [f"p{i // 4}" for i in range(100)]])
def test_groups_stay_whole(by: Any, hundred: ChoiceData) -> None:
    parts = hundred.split((0.5, 0.5), seed=0, by=by)
    assert [len(part) for part in parts] == [52, 48]
    people = [set(part.keep["person"].plain().tolist()) for part in parts]
    assert not people[0] & people[1]
    for rest, fold in hundred.folds(5, seed=0, by=by):
        assert len(fold) == 20
        assert not set(rest.keep["person"].plain()) & set(fold.keep["person"].plain())


def test_sets_of_a_person_stay_together_by_default(hundred: ChoiceData) -> None:
    panel = replace(hundred, schema=replace(hundred.schema, person="person"))
    assert ids_of(panel.split((0.5, 0.5), seed=1)) == ids_of(hundred.split((0.5, 0.5), seed=1, by="person"))
    for actual, expected in zip(panel.folds(5, seed=1), hundred.folds(5, seed=1, by="person"), strict=True):
        assert ids_of(actual) == ids_of(expected)
    assert ids_of(panel.split((0.5, 0.5), by="id")) == ids_of(hundred.split((0.5, 0.5)))
    assert ids_of(panel.split((0.5, 0.5), by=panel.set_ids)) == ids_of(hundred.split((0.5, 0.5)))
    assert ids_of(panel.split((0.5, 0.5), by="town")) == ids_of(hundred.split((0.5, 0.5), by="town"))


def test_an_individual_column_can_define_groups(hundred: ChoiceData) -> None:
    folds = hundred.folds(3, by="town")
    assert sorted(set(fold.individual["town"].plain().tolist()).pop() for _, fold in folds) == [0, 1, 2]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (
            "persons",
            r"column 'persons' is neither an individual-level nor a kept column.*Did you mean 'person'",
        ),
        ([1, 2], r"by: expected one value per choice set \(100\), got shape \(2,\)"),
    ],
)
def test_unknown_groups_are_refused(by: Any, message: str, hundred: ChoiceData) -> None:
    with pytest.raises(InputError, match=message):
        hundred.split(by=by)


# -- a published table -----------------------------------------------------------------------------------


@pytest.fixture
def itinerary() -> Path:
    try:
        files = distribution("larch").files or []
    except PackageNotFoundError:
        files = []
    paths = [Path(str(file.locate())) for file in files if file.name == "itinerary_data.csv.gz"]
    if not paths:
        pytest.skip("pip install --no-deps larch==6.0.46")
    return paths[0]


ITINERARY: dict[str, Any] = {
    "choice_set": "individual",
    "chosen": "choice",
    "alternative": "alternative",
    "individual": ["origin", "destination", "pointOfSale", "dtd"],
    "features": ["totalPrice", "nFlights"],
}


def test_a_varying_individual_column_of_itinerary_is_named(itinerary: Path) -> None:
    message = r"'dtd' varies within 396 choice sets \(first: \d+(, \d+){4}\). Declare .*conflict='first'"
    with pytest.raises(SchemaError, match=message):
        ChoiceData.from_long(itinerary, **ITINERARY)


def test_the_itinerary_table_is_read_with_conflict_first(itinerary: Path) -> None:
    data = ChoiceData.from_long(itinerary, **ITINERARY, conflict="first")
    assert len(data) == 615
    assert data.sizes.max() == 50
    assert (data.sizes == 1).sum() == 3
    frame = pd.read_csv(itinerary)
    assert data.n_rows == len(frame)
    np.testing.assert_array_equal(
        data.to_rows(data.features["totalPrice"].plain()), frame["totalPrice"].astype(np.float32)
    )
    first = frame.groupby("individual", sort=False)["dtd"].first()
    assert data.set_ids.tolist() == first.index.tolist()
    np.testing.assert_array_equal(data.individual["dtd"].plain(), first.astype(np.float32))
