"""``pcmcnet check`` and ``pcmcnet split``."""

import csv
import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData, Schema
from pcmcnet.datasets import intercity

Run = Callable[..., Any]


# -- check ---------------------------------------------------------------------------------------------------------


def test_the_printed_command_fits_the_table(cli: Run, tmp_path: Path) -> None:
    status, out, err = cli("check", intercity.PATH)
    assert (status, err) == (0, "")
    assert "1,000 choice sets of 2 to 4 alternatives, by 405 persons" in out
    assert "No problems were found." in out
    words = shlex.split(out.partition("\nNext:\n")[2].replace("\\\n", " "))
    assert words[:2] == ["pcmcnet", "fit"]
    words[words.index("-o") + 1] = str(tmp_path / "model")
    assert cli(*words[1:], "--model", "mnl").status == 0


def test_the_roles_may_be_written_and_corrected(cli: Run, tmp_path: Path) -> None:
    roles = tmp_path / "roles.toml"
    out = cli("check", intercity.PATH, "-o", roles, "--features", "price,time").out
    assert f"written: {roles}" in out
    assert out.endswith(f"    pcmcnet fit {intercity.PATH} --schema {roles} -o model\n")
    assert Schema.from_toml(roles).features == ("price", "time")


def test_a_wide_table_is_described(cli: Run, tmp_path: Path) -> None:
    rows = ["choice,cost_car,cost_bus,time_car,time_bus", "car,1,2,3,4", "bus,2,1,4,3", "car,1,2,2,2"]
    (tmp_path / "wide.csv").write_text("\n".join(rows))
    status, out, _ = cli("check", tmp_path / "wide.csv", "-o", tmp_path / "roles.toml")
    assert status == 0
    assert "wide table; chosen: choice" in out
    assert "3 choice sets of 2 alternatives" in out
    assert cli("check", tmp_path / "wide.csv").out.endswith("--schema roles.toml -o model\n")
    assert len(ChoiceData.from_schema(tmp_path / "wide.csv", Schema.from_toml(tmp_path / "roles.toml"))) == 3


def test_counts_of_markets_are_summed(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("week,brand,sold,x\n1,a,3,1\n1,b,0,2\n2,a,1,2\n2,b,4,1\n")
    roles = ("--choice-set", "week", "--counts", "sold", "--alternative", "brand")
    status, out, _ = cli("check", tmp_path / "sales.csv", *roles)
    assert status == 0
    assert "2 markets with 8 choices\n  a  offered in 2 markets, chosen 4 times (50%)\n" in out
    assert "--counts       sold" in out


def test_problems_set_the_status_and_are_listed_as_json(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("trip,took,x\n1,1,3\n1,1,4\n2,1,3\n2,0,4\n3,0,2\n3,1,1\n")
    status, out, _ = cli("check", tmp_path / "t.csv")
    assert status == 2
    assert "Problems:\n  - 1 choice set with several chosen alternatives (ids 1).\n" in out
    assert "Next:" not in out
    found = json.loads(cli("check", tmp_path / "t.csv", "--json").out)
    assert (found["rows"], found["choice_sets"], len(found["problems"])) == (6, None, 1)
    assert "no such file" in cli("check", tmp_path / "nothing.csv").message


# -- split ---------------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_persons_and_rows_stay_whole(cli: Run, tmp_path: Path) -> None:
    words = ["split", intercity.PATH, "--choice-set", "trip", "--person", "traveller", "-o", tmp_path / "parts"]
    status, out, _ = cli(*words)
    assert status == 0
    train, test = (rows_of(tmp_path / "parts" / f"{name}.csv") for name in ("train", "test"))
    whole = rows_of(intercity.PATH)
    assert train[0] == test[0] == whole[0]
    assert sorted(train[1:] + test[1:]) == sorted(whole[1:])
    person = whole[0].index("traveller")
    assert not {row[person] for row in train[1:]} & {row[person] for row in test[1:]}
    assert f"{tmp_path / 'parts' / 'train.csv'}: {len({row[0] for row in train[1:]}):,} choice sets" in out
    assert 150 < len({row[0] for row in test[1:]}) < 250


def test_the_seed_decides_and_three_parts_are_possible(cli: Run, tmp_path: Path) -> None:
    words = ["split", intercity.PATH, "--choice-set", "trip", "--shares", "0.5,0.25,0.25"]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert cli(*words, "--seed", seed, "-o", tmp_path / name).status == 0
    a, b, c = ((tmp_path / name / "valid.csv").read_bytes() for name in "abc")
    assert a == b != c
    parts = json.loads(cli(*words, "-o", tmp_path / "d", "--json").out)["parts"]
    assert [part["choice_sets"] for part in parts] == [500, 250, 250]


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv", ".csv.gz"])
def test_the_last_sets_by_a_column_are_the_test_part(cli: Run, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"t{ending}"
    table = pa.table(
        {"id": [4, 4, 1, 1, 2, 2, 3, 3], "day": ["d", "d", "a", "a", "b", "b", "c", "c"], "x": [*range(8)]}
    )
    if ending == ".csv":
        pyarrow.csv.write_csv(table, file)
    elif ending == ".csv.gz":
        with gzip.open(file, "wb") as stream:
            pyarrow.csv.write_csv(table, stream)
    elif ending == ".parquet":
        pyarrow.parquet.write_table(table, file)
    else:
        with pa.ipc.new_file(str(file), table.schema) as writer:
            writer.write_table(table)
    words = ["split", file, "--choice-set", "id", "--order", "day", "--shares", "0.75,0.25", "-o", tmp_path / "parts"]
    assert cli(*words).status == 0
    data = [ChoiceData.from_long(tmp_path / "parts" / f"{name}{ending}", choice_set="id") for name in ("train", "test")]
    assert [part.set_ids.tolist() for part in data] == [[1, 2, 3], [4]]


def test_rows_of_a_wide_table_are_choice_sets(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text("choice,cost_a,cost_b,time_a,time_b\n" + "a,1,2,3,4\nb,2,1,4,3\n" * 5)
    assert cli("check", tmp_path / "wide.csv", "-o", tmp_path / "roles.toml").status in (0, 2)
    words = ["split", tmp_path / "wide.csv", "--schema", tmp_path / "roles.toml", "-o", tmp_path / "parts"]
    assert cli(*words).status == 0
    assert [len(rows_of(tmp_path / "parts" / f"{name}.csv")) for name in ("train", "test")] == [9, 3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shares", "80,x"], "--shares: expected numbers such as 0.8,0.2; got '80,x'"),
        (["--shares", "0.5,0.2,0.2,0.1"], "two or three parts"),
        (["--by", "mode"], "column 'mode' varies within choice sets"),
        (["--order", "dat"], "no column 'dat'"),
    ],
)
def test_bad_input_gives_one_line(words: list[str], message: str, cli: Run, table: Path, tmp_path: Path) -> None:
    assert message in cli("split", table, "--choice-set", "trip", *words, "-o", tmp_path / "parts").message
    assert "add --choice-set COLUMN or --schema FILE" in cli("split", table, "-o", tmp_path / "parts").message
