"""The cache is made once, is valid only for its source files, and never looks complete when it is not."""

import errno
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import forked
from pcmcnet.data import ChoiceData, ScannedData, Schema
from pcmcnet.data.scan import cache, convert
from pcmcnet.errors import ArtifactError, InputError

Write = Callable[..., Path]
Make = Callable[..., pa.Table]
Scan = Callable[..., ScannedData]


@pytest.fixture
def folder(write: Write, make_table: Make) -> Path:
    return write(make_table(100))


@pytest.fixture
def scan(folder: Path, roles: dict[str, Any]) -> Scan:
    return lambda **options: ChoiceData.scan(folder, **({"memory": "1 MiB", **roles} | options))


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the conversions."""
    calls: list[int] = []
    inner = convert._convert
    monkeypatch.setattr(convert, "_convert", lambda *args: calls.append(1) or inner(*args))
    return calls


def test_a_second_scan_finds_the_cache(scan: Scan, conversions: list[int]) -> None:
    assert scan().fingerprint() == scan().fingerprint()
    scan(memory="2 MiB")  # smaller shards are fine, too
    assert len(conversions) == 1


def test_other_roles_have_their_own_entry(scan: Scan, conversions: list[int]) -> None:
    first, second = scan(), scan(keep=[])
    assert first.folder != second.folder
    assert first.folder.parent == second.folder.parent
    scan(), scan(keep=[])
    assert len(conversions) == 2


def test_the_schema_of_a_model_finds_the_cache_of_its_table(scan: Scan, folder: Path, conversions: list[int]) -> None:
    """The model's schema has details that the table determined, such as which columns are categories."""
    first = scan()
    assert first.schema != Schema.from_dict(first.manifest.identity["roles"])
    reopened = ScannedData.of(folder, first.schema, cache=None, memory="1 MiB")
    assert (reopened.folder, len(conversions)) == (first.folder, 1)
    other = replace(first.schema, features=("price",), categorical=("city",))
    assert ScannedData.of(folder, other, cache=None, memory="1 MiB").folder != first.folder
    assert len(conversions) == 2


def test_less_memory_makes_smaller_shards(scan: Scan, conversions: list[int]) -> None:
    assert len(scan(memory="1 GiB").manifest.shards) == 1
    assert len(scan(memory="1 MiB").manifest.shards) > 1
    assert len(conversions) == 2


def test_a_cache_in_use_survives_a_scan_with_less_memory(scan: Scan, conversions: list[int]) -> None:
    wide, narrow = scan(memory="1 GiB"), scan(memory="1 MiB")
    assert wide.folder != narrow.folder
    assert wide.read().fingerprint() == narrow.read().fingerprint()
    assert scan(memory="1 GiB").fingerprint() == wide.fingerprint()  # despite the scan in between
    assert len(conversions) == 2


def test_a_cache_of_a_changed_table_is_removed_once_unused(scan: Scan, write: Write, make_table: Make) -> None:
    before = scan()
    fingerprint = before.read().fingerprint()
    write(make_table(100, seed=1))
    held = pickle.loads(pickle.dumps(before))  # as in a worker process
    del before
    after = scan()
    assert held.read().fingerprint() == fingerprint
    assert {path.name for path in after.folder.parent.iterdir()} == {held.folder.name, after.folder.name}
    del held
    write(make_table(100, seed=2))
    last = scan()
    assert {path.name for path in last.folder.parent.iterdir()} == {after.folder.name, last.folder.name}


def test_a_cache_made_by_another_thread_is_not_replaced(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, other = convert._convert, []

    def slow(*args: Any) -> Any:
        monkeypatch.setattr(convert, "_convert", inner)
        thread = threading.Thread(target=lambda: other.append((data := scan(), data.folder.stat().st_ino)))
        thread.start()
        thread.join()
        return inner(*args)

    monkeypatch.setattr(convert, "_convert", slow)
    data = scan()
    assert [(data.folder, data.folder.stat().st_ino)] == [(each.folder, number) for each, number in other]
    assert len(data.read()) == 100


def test_a_changed_source_is_converted_again(
    scan: Scan, conversions: list[int], write: Write, make_table: Make
) -> None:
    before = scan().fingerprint()
    write(make_table(100, seed=1))
    after = scan()
    assert after.fingerprint() != before
    assert len(conversions) == 2
    assert [path.name for path in after.folder.parent.iterdir()] == [after.folder.name]


def test_a_renamed_file_is_detected(scan: Scan, folder: Path, conversions: list[int]) -> None:
    scan()
    (folder / "part-3.parquet").rename(folder / "part-0a.parquet")  # the order of rows changes
    scan()
    assert len(conversions) == 2


def test_a_truncated_shard_is_written_again(scan: Scan, conversions: list[int]) -> None:
    data = scan()
    shard = data.folder / data.manifest.shards[0].name
    shard.write_bytes(shard.read_bytes()[:-8])
    assert scan().read().fingerprint()
    assert len(conversions) == 2


def test_a_flipped_bit_is_detected_when_a_shard_is_opened(scan: Scan) -> None:
    data = scan()
    shard = data.folder / data.manifest.shards[1].name
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ArtifactError, match=f"{shard.name} is damaged"):
        scan().read()


def test_new_shards_are_hashed_again_only_if_they_change(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    inner = cache.hash_file
    monkeypatch.setattr(cache, "hash_file", lambda path: (hashed.append(path.name), inner(path))[1])
    data = scan()
    names = [shard.name for shard in data.manifest.shards]
    assert hashed == names
    data.read()
    assert hashed == names
    scan().read()  # another object, which did not write the shards
    assert hashed == names * 2
    shard = data.folder / names[1]
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(ArtifactError, match="is damaged"):
        data.read()


def test_a_shard_that_changes_during_use_is_detected(scan: Scan) -> None:
    data = scan()
    data.read()
    shard = data.folder / data.manifest.shards[1].name
    shard.write_bytes(b"other")
    with pytest.raises(ArtifactError, match="is damaged or was removed"):
        data.read()


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"shards": 3}', b"\x00\x01"])
def test_a_damaged_manifest_is_ignored(scan: Scan, conversions: list[int], damage: bytes) -> None:
    (scan().folder / "manifest.json").write_bytes(damage)
    assert scan().read().fingerprint()
    assert len(conversions) == 2


def test_a_killed_conversion_does_not_look_complete(folder: Path, scan: Scan, roles: dict[str, Any]) -> None:
    program = f"""
import os, signal
from pcmcnet.data import ChoiceData
from pcmcnet.data.scan import cache, convert
inner = convert.describe_shard
def describe_shard(path, loaded):
    os.kill(os.getpid(), signal.SIGKILL)
convert.describe_shard = describe_shard
ChoiceData.scan({str(folder)!r}, memory="1 MiB", **{roles!r})
"""
    assert forked.run(program).returncode == -9
    (left,) = folder.with_name("table.pcmcnet").iterdir()
    assert left.name.startswith(".")
    data = scan()
    assert [path.name for path in data.folder.parent.iterdir()] == [data.folder.name]
    assert len(data.read()) == 100


def test_a_failed_conversion_leaves_no_files(scan: Scan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert, "write_shard", full)
    with pytest.raises(InputError, match=r"cannot be written: No space left on device\. Free some space"):
        scan()
    assert not list(folder.with_name("table.pcmcnet").iterdir())


def test_two_processes_may_write_the_same_entry(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, failed = cache._replace_entry, list[int]()

    def meanwhile(*given: Path) -> None:
        if len(failed) < 2:
            failed.append(1)
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        inner(*given)

    monkeypatch.setattr(cache, "_replace_entry", meanwhile)
    assert len(scan().read()) == 100
    assert len(failed) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_is_an_error(scan: Scan, tmp_path: Path) -> None:
    place = tmp_path / "read-only"
    place.mkdir(mode=0o500)
    with pytest.raises(InputError, match="choose another folder with cache"):
        scan(cache=place)


def test_a_cache_that_is_a_file_is_an_error(scan: Scan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another folder with cache"):
        scan(cache=tmp_path / "file")


def test_the_cache_folder_can_be_chosen(scan: Scan, tmp_path: Path, folder: Path) -> None:
    assert scan(cache=tmp_path / "deep" / "cache").folder.parent == tmp_path / "deep" / "cache"
    assert not folder.with_name("table.pcmcnet").exists()
