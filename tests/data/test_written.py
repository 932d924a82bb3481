"""Text is read as numbers only where nothing is lost by it, and ids of a file without types stay apart."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.read_files import read_as_written
from pcmcnet.data.written import NUMBERS, Writing
from pcmcnet.errors import SchemaError
from pcmcnet.models import MNL

READ = {"memory": ChoiceData.from_long, "disk": lambda *args, **roles: ChoiceData.scan(*args, **roles).read()}
both_ways = pytest.mark.parametrize("read", READ.values(), ids=READ)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", None], pa.int64()),
        (["1.5", "3"], pa.float64()),
        (["1.5", "3.0", "-0.0"], pa.float64()),
        (["1e+20", "3"], pa.float64()),
        (["-0", "3"], pa.string()),
        (["inf", "3"], pa.string()),
        (["-inf", "3.5"], pa.string()),
        (["nan", "3.5"], pa.string()),
        (["3", "3.0"], pa.string()),
        (["12.1", "12.10"], pa.string()),
        (["007"], pa.string()),
        (["1e3"], pa.string()),
        (["12345678901234567890"], pa.string()),
        (["0.1234567890123456789"], pa.string()),
        ([" 7"], pa.string()),
        ([""], pa.string()),
        (["NA", "7"], pa.string()),
    ],
)
def test_text_is_read_as_numbers_where_each_written_again_is_the_same(texts: list[str | None], kind: Any) -> None:
    writing = Writing(NUMBERS)
    for text in texts:
        writing.look(pa.array([text], pa.string()))
    assert writing.type == kind


@pytest.mark.parametrize("ids", [("12.1", "12.10"), ("7", "007"), ("1e3", "1000"), ("9" * 20, "9" * 19 + "8")])
@both_ways
def test_ids_of_a_csv_are_one_only_where_they_are_written_alike(
    read: Any, ids: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("set,x\n" + "".join(f"{name},{k}\n" for name in ids for k in range(2)))
    data = read(path, choice_set="set", features=["x"])
    assert data.set_ids.tolist() == list(ids)
    assert data.sizes.tolist() == [2, 2]


@both_ways
def test_whole_numbers_are_the_same_ids_in_a_csv_as_in_parquet(read: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("set,x\n 30,1\n 30,2\n-4,3\n-4,4\n")
    pyarrow.parquet.write_table(pa.table({"set": [30, 30, -4, -4], "x": [1, 2, 3, 4]}), tmp_path / "t.parquet")
    of_csv, of_parquet = (read(tmp_path / f"t.{end}", choice_set="set", features=["x"]) for end in ("csv", "parquet"))
    np.testing.assert_array_equal(of_csv.set_ids, of_parquet.set_ids)
    assert of_csv.fingerprint() == of_parquet.fingerprint()


def test_scanned_parts_are_the_same_for_a_csv_and_for_parquet(tmp_path: Path) -> None:
    table = pa.table({"set": np.repeat(np.arange(50), 2), "x": np.arange(100.0)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    found = [
        ChoiceData.scan(tmp_path / name, choice_set="set", features=["x"]).split((0.5, 0.5))[0].read().set_ids.tolist()
        for name in ("t.parquet", "t.csv")
    ]
    assert found[0] == found[1]


def test_labels_of_numbers_and_labels_of_text_are_compared_by_their_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {
        "set": np.repeat(np.arange(30), 2),
        "item": [7, 10] * 30,
        "took": [1, 0] * 29 + [0, 1],
        "x": rng.normal(size=60),
    }
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    pyarrow.csv.write_csv(pa.table(table), tmp_path / "t.csv")
    roles: dict[str, Any] = {"choice_set": "set", "chosen": "took", "alternative": "item", "features": ["x"]}
    for one, other in (("t.parquet", "t.csv"), ("t.csv", "t.parquet")):
        model = MNL().fit(ChoiceData.from_long(tmp_path / one, **roles))
        np.testing.assert_array_equal(model.predict_proba(tmp_path / one), model.predict_proba(tmp_path / other))


def test_a_wide_csv_keeps_its_ids_and_codes_apart(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("trip,choice,a_x,b_x\n7,01,1,2\n007,1,3,4\n")
    data = ChoiceData.from_wide(
        tmp_path / "t.csv",
        chosen="choice",
        choice_set="trip",
        alternatives={"a": "1", "b": "01"},
        features={"x": "{alternative}_x"},
    )
    assert data.set_ids.tolist() == ["7", "007"]
    assert data.chosen is not None
    assert data.chosen.tolist() == [1, 0]


@both_ways
def test_line_ends_in_quotes_are_no_rows_in_a_file_of_any_size(read: Any, tmp_path: Path) -> None:
    """Larger than what is parsed at once, in memory and on disk."""
    note = '"' + "first line\n" * 40 + 'last"'
    (tmp_path / "t.csv").write_text(
        "set,took,x,note\n" + "".join(f"{k // 2},{k % 2},{k},{note}\n" for k in range(12_000))
    )
    assert (tmp_path / "t.csv").stat().st_size > 2**22
    data = read(tmp_path / "t.csv", choice_set="set", chosen="took", features=["x"])
    assert data.n_rows == 12_000
    assert data.features["x"].values.tolist() == list(range(12_000))


def test_ids_beyond_64_bits_stay_apart() -> None:
    data = ChoiceData.from_long({"set": [2**64, 2**64, 2**64 + 1], "x": [1, 2, 3]}, choice_set="set", features=["x"])
    assert data.set_ids.tolist() == [str(2**64), str(2**64 + 1)]


@pytest.mark.parametrize("role", ["choice_set", "person", "alternative"])
def test_ids_that_32_bit_numbers_may_have_merged_are_refused(role: str) -> None:
    table = {"set": [1, 2], "x": [1, 2], "id": np.array([2**24, 2**24 + 1], np.float32)}
    with pytest.raises(SchemaError, match=r"column 'id' holds floating-point ids of 2\*\*24 and more"):
        ChoiceData.from_long(table, **({"choice_set": "set", "features": ["x"]} | {role: "id"}))


def test_there_is_one_zero_among_ids_and_categories() -> None:
    table = {"set": [0.0, -0.0], "mode": ["a", "b"], "zone": ["-0.0", "0"], "x": [1, 2]}
    data = ChoiceData.from_long(
        table, choice_set="set", alternative="mode", features=["x", "zone"], categorical=["zone"]
    )
    assert len(data) == 1
    assert data.features["zone"].plain().tolist() == ["0", "0"]


def test_a_copy_of_a_csv_has_each_text_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('n,zip,gap,price,count\n1,007,NA,1.50,3\n2,501,,2.00,4\n3,7,"",NA,5\n')
    found = read_as_written(tmp_path / "t.csv", numbers=["price", "count"])
    assert found["n"].to_pylist() == [1, 2, 3]
    assert found["zip"].to_pylist() == ["007", "501", "7"]
    assert found["gap"].to_pylist() == ["NA", None, ""]
    assert found["price"].to_pylist() == ["1.50", "2.00", "NA"]  # a word that a number has no place for
    assert found["count"].type == pa.int64()
