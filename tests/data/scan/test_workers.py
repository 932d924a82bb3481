"""A table that several processes convert and learn from gives the bytes of one, and the errors of one."""

import heapq
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.scan.spill import cut_into_chunks
from pcmcnet.data.scan.workers import Processes, workers_for
from pcmcnet.errors import ConfigError, PcmcNetError, SchemaError

Write = Callable[..., Path]
Make = Callable[..., pa.Table]


@pytest.fixture(scope="module")
def three() -> Iterator[Processes]:
    """Yield three workers; the helpers are started once."""
    with Processes(3) as workers:
        wait_for(workers)
        yield workers


def wait_for(workers: Processes) -> None:
    """Wait until all helpers have started, so that they have a share of the work."""
    for helper in workers._helpers:
        helper.ready.wait()


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of an entry, but for its times of change."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("kind", ["folder", "parquet", "arrow", "csv"])
def test_three_workers_make_the_bytes_of_one(
    kind: str, three: Processes, make_table: Make, write: Write, roles: dict[str, Any], tmp_path: Path
) -> None:
    """Sets lie in several pieces, and names are met in another order in each."""
    table = write(make_table(400), kind)
    one = ChoiceData.scan(table, cache=tmp_path / "one", memory="1 MiB", workers=1, **roles)
    shared = ChoiceData.scan(table, cache=tmp_path / "three", memory="1 MiB", workers=three, **roles)
    assert len(one.manifest.shards) > 1
    assert contents(one.folder) == contents(shared.folder)
    learnt = [json.dumps(Encoder.learn(data, bend=True, labels=True).to_dict()) for data in (one, shared)]
    assert learnt[0] == learnt[1]


def test_parts_of_a_split_are_learnt_from_alike(
    three: Processes, make_table: Make, write: Write, roles: dict[str, Any]
) -> None:
    """Some shards may have no set of a part."""
    table = write(make_table(60))
    one, shared = (ChoiceData.scan(table, memory="1 MiB", workers=w, **roles) for w in (1, three))
    parts = [data.split((0.9, 0.1), seed=1)[1] for data in (one, shared)]
    learnt = [json.dumps(Encoder.learn(part, bend=True).to_dict()) for part in parts]
    assert learnt[0] == learnt[1]


def test_shards_are_looked_at_in_their_order_however_many_a_task_has(
    three: Processes, make_table: Make, write: Write, roles: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ChoiceData.scan(write(make_table(600)), memory="1 MiB", **roles)
    sizes = [len(part) for part in data.parts()]
    assert len(sizes) > 4
    assert len(set(sizes)) > 2
    for tasks in (1, 16):
        monkeypatch.setattr("pcmcnet.data.scan.scanned._MIN_TASKS_PER_WORKER", tasks)
        for workers in (None, three):
            assert list(data.by(workers).each(len)) == sizes


def test_an_error_is_that_of_one_worker(
    three: Processes, make_table: Make, write: Write, roles: dict[str, Any], tmp_path: Path
) -> None:
    table = make_table(400)
    for column, row, value in (("price", 700, None), ("price", 100, None), ("trip", 900, None), ("trip", 300, None)):
        values = table.column(column).to_pylist()
        values[row] = value
        table = table.set_column(table.column_names.index(column), column, pa.array(values))
        told = []
        for workers in (1, three):
            with pytest.raises(SchemaError) as caught:
                ChoiceData.scan(write(table), cache=tmp_path / "cache", memory="1 MiB", workers=workers, **roles)
            told.append(str(caught.value))
        assert told[0] == told[1]


def square(x: int) -> int:
    if x == 13:
        raise PcmcNetError(f"{x} is not for squares.")
    return x * x


def test_results_come_in_the_order_of_the_items_and_an_error_in_its_turn(three: Processes) -> None:
    assert list(three.map(square, range(10))) == [k * k for k in range(10)]
    assert list(three.map(abs, range(500))) == list(range(500))  # so many that a helper has two at a time
    found = []
    with pytest.raises(PcmcNetError, match="13 is not for squares"):
        found.extend(three.map(square, range(20)))
    assert list(three.map(square, [3])) == [9]


def die(x: int) -> int:
    if os.getpid() != x:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_a_helper_that_dies_is_an_error_and_none_is_left() -> None:
    with Processes(2) as workers:
        wait_for(workers)
        with pytest.raises(PcmcNetError, match=r"helper process .* ended unexpectedly"):
            list(workers.map(die, [os.getpid()] * 200_000))
    assert workers._helpers == []


def interrupt(x: int) -> None:
    """Press Ctrl-C where it is heard; a helper is at work for long."""
    if os.getpid() == x:
        raise KeyboardInterrupt
    time.sleep(60)


def test_an_interrupt_does_not_wait_for_helpers_and_others_take_their_place() -> None:
    with Processes(2) as workers:
        wait_for(workers)
        (helper,) = workers._helpers
        with pytest.raises(KeyboardInterrupt):
            list(workers.map(interrupt, [os.getpid()] * 9))
        assert helper.process.wait(60) == -signal.SIGKILL
        assert list(workers.map(square, range(3))) == [0, 1, 4]
        assert workers._helpers != [helper]


def test_nobody_waits_for_a_helper_that_has_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.data.scan.workers._PROGRAM", "import time; time.sleep(60)")
    with Processes(2) as workers:
        assert [list(workers.map(square, range(10))) for _ in range(2)] == [[k * k for k in range(10)]] * 2
        (helper,) = workers._helpers
        assert not helper.ready.is_set()
    assert helper.process.returncode != 0


def test_a_helper_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.data.scan.workers._PROGRAM", "")
    with Processes(2) as workers:
        wait_for(workers)
        with pytest.raises(PcmcNetError, match=r"helper process .* ended unexpectedly"):
            list(workers.map(square, range(10_000, 200_000)))


def test_pieces_are_neighbouring_units() -> None:
    units = [3, 1, 4, 1, 5, 9, 2, 6]
    for count in range(2, 12):
        pieces = cut_into_chunks(units, count)
        assert [k for piece in pieces for k in (piece.units or ())] == list(range(len(units)))
        assert [piece.first for piece in pieces] == [sum(units[: (piece.units or range(0)).start]) for piece in pieces]
        assert len(pieces) <= count
    assert [piece.units for piece in cut_into_chunks(units, 1)] == [None]


@pytest.mark.parametrize("count", [8, 16, 512])
def test_pieces_fall_in_size_so_that_nobody_waits_long_for_the_last(count: int) -> None:
    """Whoever is free takes the next: the first to be done waits for a twentieth of its own share at most."""
    sizes = [len(piece.units or ()) for piece in cut_into_chunks([1] * 10_000, count)]
    assert sizes[0] <= 2 * 10_000 / count + 1
    assert all(a + 1 >= b for a, b in pairwise(sizes))  # but for rounding to whole units
    for workers in (2, count // 8 + 1):
        free = [0] * workers
        for size in sizes:
            heapq.heappush(free, heapq.heappop(free) + size)
        assert max(free) - min(free) <= 10_000 / workers / 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory by rules of their own")
def test_memory_that_is_freed_is_kept_for_the_next_array() -> None:
    """Eight arrays of 2 MiB at a time have 4,096 pages: with memory kept, they are new to the process once."""
    program = """
import resource
import numpy as np
from pcmcnet.data.scan.workers import keep_freed_memory
for settle in (int, keep_freed_memory):  # at first nothing is settled
    settle()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        several = [np.ones(2**18) for _ in range(8)]
        del several
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=env)
    plain, kept = map(int, run.stdout.split())
    assert kept < plain / 4


def test_by_default_only_a_large_table_has_several_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert [workers_for(None, values).count for values in (1e7, 1e9)] == [1, 2]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert workers_for(None, 1e9).count == 1
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert workers_for(None, 1e9).count == 1
    with pytest.raises(ConfigError, match="workers must be"):
        workers_for(0)


def test_files_with_other_types_are_cast_alike(three: Processes, tmp_path: Path) -> None:
    """Their row groups are read by another way."""
    folder = tmp_path / "table"
    folder.mkdir()
    for k, kind in enumerate((pa.int64(), pa.int32(), pa.int64(), pa.int32())):
        sets = np.repeat(np.arange(20) + 20 * k, 2)
        price = pa.array(np.arange(40) + 40 * k).cast(kind)
        table = pa.table({"set": sets, "chosen": np.arange(40) % 2, "price": price})
        pyarrow.parquet.write_table(table, folder / f"{k}.parquet", row_group_size=7)
    roles = {"choice_set": "set", "chosen": "chosen", "features": ["price"]}
    one, shared = (
        ChoiceData.scan(folder, cache=tmp_path / str(k), memory="1 MiB", workers=w, **roles)
        for k, w in enumerate((1, three))
    )
    assert contents(one.folder) == contents(shared.folder)


def written(table: pa.Table, folder: Path, **options: Any) -> Path:
    """Write a table as three Parquet files of several row groups each."""
    folder.mkdir()
    for k, part in enumerate(np.array_split(np.arange(table.num_rows), 3)):
        piece = table.slice(part[0], len(part))
        pyarrow.parquet.write_table(piece, folder / f"{k}.parquet", row_group_size=100, **options)
    return folder


@pytest.mark.parametrize(
    "options",
    [{}, {"dictionary_pagesize_limit": 8, "data_page_size": 64, "write_batch_size": 8}, {"use_dictionary": ["city"]}],
    ids=["words", "words, then text", "words of one column"],
)
def test_text_that_a_file_has_as_words_and_codes_makes_the_same_bytes(
    options: dict[str, Any], three: Processes, make_table: Make, roles: dict[str, Any], tmp_path: Path
) -> None:
    """Some words are in none of the rows that are read at once, and some rows have none."""
    table = make_table(400)
    colours = [None if row % 7 == 0 else colour for row, colour in enumerate(table.column("colour").to_pylist())]
    table = table.set_column(table.column_names.index("colour"), "colour", pa.array(colours))
    roles |= {"missing": "indicator"}
    plain = written(table, tmp_path / "plain", use_dictionary=False)
    coded = written(table, tmp_path / "coded", **options)
    expected = ChoiceData.scan(plain, memory="1 MiB", workers=1, **roles)
    for workers in (1, three):
        cache = tmp_path / f"cache of {workers}"
        found = ChoiceData.scan(coded, cache=cache, memory="1 MiB", workers=workers, **roles)
        assert found.manifest.fingerprint == expected.manifest.fingerprint
    assert found.read().fingerprint() == ChoiceData.from_long(table, **roles).fingerprint()


def test_one_file_whose_text_is_read_as_codes_makes_the_bytes_of_a_folder(
    make_table: Make, roles: dict[str, Any], tmp_path: Path
) -> None:
    table = make_table(400)
    folder = written(table, tmp_path / "folder")
    pyarrow.parquet.write_table(table, tmp_path / "file.parquet", row_group_size=70)
    one, several = (ChoiceData.scan(path, memory="1 MiB", **roles) for path in (tmp_path / "file.parquet", folder))
    assert one.manifest.fingerprint == several.manifest.fingerprint
