"""Files are written completely or not at all."""

import errno
import os
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest

from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.files.write_files import writable_table, write_table
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.storage import atomic_write, package_version, parse_json, write_bytes


def test_writing_creates_missing_folders(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a" / "b.txt", b"new")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"new"
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_failure_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_bytes(path, b"old")

    def write_half() -> None:
        with atomic_write(path) as draft:
            draft.write_bytes(b"half")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow", os.fsdecode(b"\xff.parquet")])
def test_the_suffix_determines_the_format(name: str, tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "é": ["x", "y"]})
    write_table(table, tmp_path / name)
    plain = (tmp_path / name).rename(tmp_path / f"table{Path(name).suffix}")  # a suffix that pyarrow knows
    assert read_table(plain).equals(table)


def test_an_unknown_suffix_is_refused_before_writing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.xlsx: unknown file format. Expected a name that ends in"):
        write_table(pa.table({"a": [1]}), tmp_path / "deep" / "t.xlsx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Free some space or choose another location"),
        (errno.EFBIG, "Free some space"),
        (errno.EROFS, "Get write permission"),
        (errno.ENOTDIR, "Choose another location"),
    ],
)
def test_a_system_error_names_the_path_and_a_remedy(number: int, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_bytes(path, b"old")
    where = rf"a.txt cannot be written: {os.strerror(number)}. {remedy}"
    with pytest.raises(ArtifactError, match=where), atomic_write(path):
        raise OSError(number, "whatever a library says")
    assert path.read_bytes() == b"old"
    with pytest.raises(ArtifactError, match="the checkpoint cannot be written: "), atomic_write(path, "the checkpoint"):
        raise OSError(number, "whatever a library says")


def test_files_and_folders_are_synced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is synced before the name, so a power cut leaves the old file or the new one."""
    order: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        order.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file")
        real_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        order.append("name")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_bytes(tmp_path / "a.txt", b"new")
    assert order == ["file", "name", "folder"]


def test_a_csv_holds_lists_as_json_and_refuses_pictures(tmp_path: Path) -> None:
    table = pa.table({"has": [["wifi", "pool"], None], "v": [[0.1, 2.0], [3.0, 4.0]], "word": [b"a", b"b"]})
    ready = writable_table(table, tmp_path / "t.csv")
    assert ready["has"].to_pylist() == ['["wifi", "pool"]', None]
    assert ready["v"].to_pylist() == ["[0.1, 2.0]", "[3.0, 4.0]"]
    assert ready["word"].to_pylist() == ["a", "b"]
    write_table(ready, tmp_path / "t.csv")
    assert writable_table(table, tmp_path / "t.parquet") is table
    for column in ([b"\x89PNG"], [{"a": 1}]):
        with pytest.raises(
            InputError, match=r"column 'photo': the type .* is not supported by CSV files: write \.parquet"
        ):
            writable_table(pa.table({"photo": column}), tmp_path / "t.csv")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000, "{", b"\xff"])
def test_invalid_or_deeply_nested_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|Expecting|decode"):
        parse_json(text)
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


# -- Versions ----------------------------------------------------------------------------------------------------------
# Versions of installed packages.


def test_versions_of_installed_and_missing_packages() -> None:
    assert package_version("numpy") == version("numpy")
    assert package_version("no-such-package") == "not installed as a package"
