import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from choice_tables import picture
from pcmcnet.data import ChoiceData
from pcmcnet.models import PCMCNet, load

Run = Callable[..., Any]
CODES = [("007", "08:30"), ("008", "09:00"), ("009", "10:15")]
AS_TEXT = pyarrow.csv.ConvertOptions(column_types={"code": pa.string(), "slot": pa.string()})


def read(path: Path) -> pa.Table:
    if path.suffix == ".csv":
        return pyarrow.csv.read_csv(path)
    if path.is_dir():
        return pa.concat_tables(map(read, sorted(path.glob("*.parquet"))), promote_options="default")
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
def test_predictions_are_added_as_a_column(ending: str, cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "deeper" / f"predicted{ending}"
    result = cli("predict", model, table, "-o", out)
    before, after = read(table), read(out)
    assert (result.status, result.err) == (0, "")
    assert result.out == f"wrote {before.num_rows} rows to {out}\n"
    assert after.column_names == [*before.column_names, "probability"]
    for name in before.column_names:
        assert after[name].to_pylist() == before[name].to_pylist()
    np.testing.assert_array_equal(after["probability"].to_numpy(), load(model).predict_proba(table))
    assert [p.name for p in out.parent.iterdir()] == [out.name]


def test_a_table_without_choices_can_be_predicted(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(read(table).drop_columns(["took"]), tmp_path / "new.parquet")
    result = cli("predict", model, tmp_path / "new.parquet", "-o", tmp_path / "out.parquet", "--column", "p", "--json")
    assert json.loads(result.out) == {"output": str(tmp_path / "out.parquet"), "rows": read(table).num_rows}
    np.testing.assert_array_equal(read(tmp_path / "out.parquet")["p"].to_numpy(), load(model).predict_proba(table))


def test_a_folder_is_predicted_file_by_file(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = read(table)
    for k in range(2):
        half = rows.slice(k * rows.num_rows // 2, (k + 1) * rows.num_rows // 2 - k * rows.num_rows // 2)
        pyarrow.parquet.write_table(half, tmp_path / "in" / f"{k}.parquet")
    result = cli("predict", model, tmp_path / "in", "-o", tmp_path / "out", "--memory", "1 MiB", "--json")
    assert json.loads(result.out) == {"output": str(tmp_path / "out"), "rows": rows.num_rows}
    predicted = pa.concat_tables([read(tmp_path / "out" / f"{k}.parquet") for k in range(2)])
    assert predicted["price"].to_pylist() == rows["price"].to_pylist()
    expected = load(model).predict_proba(table)  # batches of different widths round differently
    np.testing.assert_allclose(predicted["probability"].to_numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("out", ["out.parquet", "out"])
def test_unused_columns_may_be_missing_in_some_files(
    out: str, cli: Run, model: Path, table: Path, tmp_path: Path
) -> None:
    rows = read(table)
    half = rows.num_rows // 2
    (tmp_path / "in").mkdir()
    noted = rows.slice(0, half).append_column("note", pa.array(["seen"] * half))
    pyarrow.parquet.write_table(noted, tmp_path / "in" / "0.parquet")
    pyarrow.parquet.write_table(rows.slice(half), tmp_path / "in" / "1.parquet")
    assert cli("predict", model, tmp_path / "in", "-o", tmp_path / out).status == 0
    predicted = read(tmp_path / out)
    assert predicted["note"].to_pylist() == ["seen"] * half + [None] * (rows.num_rows - half)
    np.testing.assert_allclose(predicted["probability"].to_numpy(), load(model).predict_proba(table), rtol=0, atol=1e-6)
    pyarrow.parquet.write_table(rows.slice(half).drop_columns(["price"]), tmp_path / "in" / "1.parquet")
    assert "1.parquet has no column 'price'" in cli("predict", model, tmp_path / "in", "-o", tmp_path / out).message


# Bad input by name: the arguments, and the expected message.
CASES = {
    "no model": (["{here}", "{table}"], r"is not a saved model: model.json is missing"),
    "no folder": (["{here}/nowhere", "{table}"], r"nowhere: no such folder. Expected a folder written by fit or save"),
    "unfinished run": (["{here}/run", "{table}"], r"holds an unfinished run, not a model"),
    "damaged model": (["{here}/damaged", "{table}"], r"file weights.safetensors was truncated or altered"),
    "missing file": (["{model}", "nowhere.csv"], r"nowhere.csv: no such file or folder"),
    "missing column": (["{model}", "{here}/other.csv"], r"has no column 'price'. Did you mean 'prise'\?"),
    "column taken": (["{model}", "{table}", "--column", "income"], r"already has a column 'income': choose another"),
    "memory for a file": (["{model}", "{table}", "--memory", "1 GiB"], r"in chunks: use a folder as --output"),
    "unknown ending": (["{model}", "{table}", "-o", "{here}/o.xlsx"], r"o.xlsx: unknown file format. Expected a name"),
    "ending before work": (["{here}/nowhere", "nowhere.csv", "-o", "{here}/o.xlsx"], r"o.xlsx: unknown file format"),
}


@pytest.mark.parametrize("how", ["cli", pytest.param("program", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_one_line_and_writes_nothing(
    case: str, how: str, model: Path, table: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    words, message = CASES[case]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.safetensors").touch()
    shutil.copytree(model, tmp_path / "damaged")
    (tmp_path / "damaged" / "weights.safetensors").write_bytes(b"")
    pyarrow.csv.write_csv(read(table).rename_columns({"price": "prise"}), tmp_path / "other.csv")
    before = sorted(tmp_path.rglob("*"))
    filled = [word.format(model=model, table=table, here=tmp_path) for word in words]
    result = request.getfixturevalue(how)("predict", "-o", tmp_path / "out.csv", *filled)
    assert result.status == 2
    assert re.search(message, result.message)
    assert sorted(tmp_path.rglob("*")) == before


def test_csv_codes_and_times_are_read_like_in_the_library(cli: Run, tmp_path: Path) -> None:
    """007 is not a number and 08:30 not a time if they were categories in training."""
    rows = [f"{s},{code},{slot},{int(code == '007')}" for s in range(40) for code, slot in CODES]
    (tmp_path / "codes.csv").write_text("\n".join(["set,code,slot,took", *rows]))
    roles = ["--choice-set", "set", "--chosen", "took", "--features", "code,slot", "--categorical", "code,slot"]
    assert cli("fit", tmp_path / "codes.csv", *roles, "--set", "epochs=3", "-o", tmp_path / "m").status == 0
    assert cli("predict", tmp_path / "m", tmp_path / "codes.csv", "-o", tmp_path / "out.csv").status == 0
    out = pyarrow.csv.read_csv(tmp_path / "out.csv", convert_options=AS_TEXT)
    assert out["code"].to_pylist()[:2] == ["007", "008"]
    expected = load(tmp_path / "m").predict_proba(tmp_path / "codes.csv")
    np.testing.assert_allclose(out["probability"].to_numpy(), expected, rtol=0, atol=1e-12)
    assert expected[0] > 0.35 > expected[1]  # the code has an effect, so it was read


def test_a_prediction_does_not_overwrite_its_table(cli: Run, model: Path, table: Path) -> None:
    before = table.read_bytes()
    result = cli("predict", model, table, "-o", table)
    assert "is the input table: choose another output file" in result.message
    assert table.read_bytes() == before


def test_lists_survive_csv_and_pictures_are_rejected(cli: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {
        "s": np.repeat(np.arange(20), 2),
        "y": [1, 0] * 20,
        "has": [["x", "y"], ["z"]] * 20,
        "v": rng.normal(size=(40, 3)).tolist(),
        "at": np.repeat(np.datetime64("2024-05-01", "s") + rng.integers(10**6, size=20), 2),
    }
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    kinds: dict[str, Any] = {"has": "multi", "v": "vector", "at": "datetime"}
    roles: dict[str, Any] = {"choice_set": "s", "chosen": "y", "features": ["has", "v"], "individual": ["at"]}
    data = ChoiceData.from_long(tmp_path / "t.parquet", **roles, kinds=kinds)
    PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False).save(tmp_path / "model")
    for source, out in (("t.parquet", "p.csv"), ("p.csv", "q.parquet")):
        result = cli(
            "predict", tmp_path / "model", tmp_path / source, "-o", tmp_path / out, "--column", f"p of {source}"
        )
        assert result.status == 0, result.err
    predicted = read(tmp_path / "q.parquet")
    assert predicted["p of t.parquet"].to_pylist() == pytest.approx(predicted["p of p.csv"].to_pylist(), abs=1e-12)
    pictured = pa.table({**table, "photo": [picture(9, (4, 4))] * 40})
    pyarrow.parquet.write_table(pictured, tmp_path / "pictured.parquet")
    refused = cli("predict", tmp_path / "model", tmp_path / "pictured.parquet", "-o", tmp_path / "r.csv")
    assert "column 'photo': the type binary is not supported by CSV files" in refused.message
    assert not (tmp_path / "r.csv").exists()


AS_IT_WAS = [
    "set,who,price,took,zip,account,note,at,version,share",
    '1,30,2.50,1,00501,12345678901234567890,"two',
    'lines",2024-05-17T09:30:00+02:00,1.10,0.5',
    "1,30,3.25,0,7,12345678901234567891,NA,2024-05-17T09:30:00Z,1.1,1.5",
    '2,31,1.75,0,,0,"",,1,2.25',
    "2,31,4.00,1,10,1,x,now,1,3.75",
]


@pytest.fixture
def model_and_table(tmp_path: Path) -> tuple[Path, Path]:
    """Return the paths of a model of prices and of a table with unused columns."""
    (tmp_path / "t.csv").write_text("\r\n".join(AS_IT_WAS) + "\r\n", newline="")
    data = ChoiceData.from_long(tmp_path / "t.csv", choice_set="set", chosen="took", features=["price"], person="who")
    PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False).save(tmp_path / "model")
    return tmp_path / "model", tmp_path / "t.csv"


def test_csv_to_csv_keeps_all_bytes(cli: Run, model_and_table: tuple[Path, Path], tmp_path: Path) -> None:
    assert cli("predict", *model_and_table, "-o", tmp_path / "out.csv").status == 0
    lines = (tmp_path / "out.csv").read_bytes().decode().split("\r\n")
    values = iter(["probability", *map(repr, load(model_and_table[0]).predict_proba(model_and_table[1]).tolist())])
    whole = "\r\n".join(line if line.endswith('"two') or not line else f"{line},{next(values)}" for line in AS_IT_WAS)
    assert "\r\n".join(lines) == whole + "\r\n"


@pytest.mark.parametrize("out", ["out.parquet", "out.arrow", "folder"])
def test_csv_to_other_formats_loses_nothing(
    out: str, cli: Run, model_and_table: tuple[Path, Path], tmp_path: Path
) -> None:
    assert cli("predict", *model_and_table, "-o", tmp_path / out).status == 0
    predicted = read(tmp_path / ("folder/t.parquet" if out == "folder" else out)).to_pydict()
    assert (predicted["set"], predicted["who"]) == ([1, 1, 2, 2], [30, 30, 31, 31])
    assert predicted["zip"] == ["00501", "7", None, "10"]
    assert predicted["account"] == ["12345678901234567890", "12345678901234567891", "0", "1"]
    assert predicted["note"] == ["two\r\nlines", "NA", "", "x"]
    assert predicted["at"] == ["2024-05-17T09:30:00+02:00", "2024-05-17T09:30:00Z", None, "now"]
    assert predicted["version"] == ["1.10", "1.1", "1", "1"]
    assert (predicted["price"], predicted["share"]) == ([2.5, 3.25, 1.75, 4.0], [0.5, 1.5, 2.25, 3.75])


@pytest.mark.parametrize("out", ["out.csv", "out.parquet", "out.arrow", "folder"])
@pytest.mark.parametrize("rows", [1, 30_000], ids=["first block", "later block"])
def test_unused_columns_need_not_be_utf8(
    rows: int, out: str, cli: Run, model_and_table: tuple[Path, Path], tmp_path: Path
) -> None:
    """The name in the last row is in Latin-1. All ways of prediction accept it, and write its bytes unchanged."""
    lines = [f"{k},{price},caf\u00e9,{k}.5" for k in range(rows) for price in (1.5, 2.0)]
    content = "\n".join(["set,price,name,share", *lines, ""]).encode() + "-1,3.0,n\u00e9e,0.5\n".encode("latin-1")
    (tmp_path / "odd.csv").write_bytes(content)
    expected = load(model_and_table[0]).predict_proba(tmp_path / "odd.csv")
    result = cli("predict", model_and_table[0], tmp_path / "odd.csv", "-o", tmp_path / out)
    assert result.status == 0, result.err
    if out == "out.csv":
        written = (tmp_path / out).read_bytes().splitlines()
        assert [line.rpartition(b",")[0] for line in written] == content.splitlines()
        return
    predicted = read(tmp_path / ("folder/odd.parquet" if out == "folder" else out)).to_pydict()
    assert (predicted["name"][0], predicted["name"][-1]) == ("caf\u00e9".encode(), b"n\xe9e")
    assert predicted["share"][:3] + predicted["set"][-1:] == [0.5, 0.5, 1.5 if rows > 1 else 0.5, -1]
    np.testing.assert_allclose(predicted["probability"], expected, rtol=1e-12)


@pytest.mark.parametrize("out", ["out.csv", "out.parquet", "folder"])
def test_columns_of_the_model_must_be_utf8(
    out: str, cli: Run, model_and_table: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "odd.csv").write_bytes("set,price\n1,2\né,3\n".encode("latin-1"))
    result = cli("predict", model_and_table[0], tmp_path / "odd.csv", "-o", tmp_path / out)
    assert "odd.csv: the file is not UTF-8 text. Save it as UTF-8" in result.message


@pytest.mark.parametrize("out", ["out.csv", "out.parquet", "folder"])
@pytest.mark.parametrize("ids", [("-0", "0"), ("inf", "1"), (" 1", "2 "), ("1.5", "2")])
def test_ids_are_written_unchanged(
    ids: tuple[str, str], out: str, cli: Run, model_and_table: tuple[Path, Path], tmp_path: Path
) -> None:
    lines = [f"{name},{name},{price}" for name in ids for price in (1.5, 2)]
    (tmp_path / "odd.csv").write_text("\n".join(["set,who,price", *lines]))
    assert cli("predict", model_and_table[0], tmp_path / "odd.csv", "-o", tmp_path / out).status == 0
    if out == "out.csv":
        written = (tmp_path / out).read_text().split("\n")[1:]
        assert [line.rpartition(",")[0] for line in written] == lines
    else:
        predicted = read(tmp_path / ("folder/odd.parquet" if out == "folder" else out)).to_pydict()
        assert predicted["set"] == predicted["who"] == [name for name in ids for _ in range(2)]


@pytest.mark.parametrize("out", ["out.parquet", "folder"])
def test_parquet_columns_keep_their_types(
    out: str, cli: Run, model_and_table: tuple[Path, Path], tmp_path: Path
) -> None:
    instant = pa.array([1, None, 3, 4], pa.timestamp("ns", "Europe/Rome"))
    table = pa.table(
        {
            "set": pa.array([1, 1, 2, 2], pa.int16()),
            "who": pa.array([1, 1, 2, 2], pa.uint64()),
            "price": pa.array([1, 2, 3, 4], pa.float32()),
            "zip": pa.array(["00501", "NA", "", None]).dictionary_encode(),
            "at": instant,
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert cli("predict", model_and_table[0], tmp_path / "t.parquet", "-o", tmp_path / out).status == 0
    predicted = read(tmp_path / ("folder/t.parquet" if out == "folder" else out))
    assert predicted.drop_columns("probability").equals(table)


@pytest.mark.parametrize("out", ["out.csv", "out.parquet", "folder"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_without_rows_gets_the_column(
    ending: str, out: str, cli: Run, model: Path, table: Path, tmp_path: Path
) -> None:
    none = read(table).slice(0, 0)
    if ending == "csv":
        (tmp_path / "t.csv").write_text(",".join(none.column_names) + "\n")
    else:
        pyarrow.parquet.write_table(none, tmp_path / "t.parquet")
    assert cli("predict", model, tmp_path / f"t.{ending}", "-o", tmp_path / out).out.startswith("wrote 0 rows")
    predicted = read(tmp_path / ("folder/t.parquet" if out == "folder" else out))
    assert (predicted.num_rows, predicted.column_names) == (0, [*none.column_names, "probability"])


def test_a_wide_table_is_predicted_in_long_form(cli: Run, tmp_path: Path) -> None:
    """Columns are separated by semicolons, as in many surveys."""
    rows = ["choice;car_time;bus_time", *(f"{k % 2 + 1};{10 + k % 3};{9 + k % 4}" for k in range(12))]
    table, roles, out = tmp_path / "t.csv", tmp_path / "roles.toml", tmp_path / "out.csv"
    table.write_text("\n".join(rows) + "\n")
    roles.write_text(
        '[wide]\nchosen = "choice"\nalternatives = {car = 1, bus = 2}\nfeatures = {time = "{alternative}_time"}\n'
    )
    assert cli("fit", table, "--schema", roles, "--model", "mnl", "-o", tmp_path / "model").status == 0
    result = cli("predict", tmp_path / "model", table, "-o", out)
    assert (result.status, result.out) == (0, f"wrote 24 rows to {out}\n")
    predicted = read(out)
    assert predicted.column_names == ["choice_set", "alternative", "time", "probability"]
    assert predicted["alternative"].to_pylist()[:4] == ["car", "bus", "car", "bus"]
    np.testing.assert_array_equal(predicted["probability"].to_numpy(), load(tmp_path / "model").predict_proba(table))
    assert "NLL" in cli("evaluate", tmp_path / "model", table).out
