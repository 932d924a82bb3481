"""Several worker processes give the same bytes and errors as one."""

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
    """Yield three workers; their processes are started once."""
    with Processes(3) as workers:
        wait_for(workers)
        yield workers


def wait_for(workers: Processes) -> None:
    """Wait until all worker processes have started, so that they share the work."""
    for helper in workers._helpers:
        helper.ready.wait()


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a cache entry, except for the modification times."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("kind", ["folder", "parquet", "arrow", "csv"])
def test_three_workers_write_the_bytes_of_one(
    kind: str, three: Processes, make_table: Make, write: Write, roles: dict[str, Any], tmp_path: Path
) -> None:
    """Sets are scattered over several tasks, and each task sees the names in another order."""
    table = write(make_table(400), kind)
    one = ChoiceData.scan(table, cache=tmp_path / "one", memory="1 MiB", workers=1, **roles)
    shared = ChoiceData.scan(table, cache=tmp_path / "three", memory="1 MiB", workers=three, **roles)
    assert len(one.manifest.shards) > 1
    assert contents(one.folder) == contents(shared.folder)
    learnt = [json.dumps(Encoder.learn(data, bend=True, labels=True).to_dict()) for data in (one, shared)]
    assert learnt[0] == learnt[1]


def test_encoders_of_split_parts_do_not_depend_on_workers(
    three: Processes, make_table: Make, write: Write, roles: dict[str, Any]
) -> None:
    """Some shards may have no sets of a part."""
    table = write(make_table(60))
    one, shared = (ChoiceData.scan(table, memory="1 MiB", workers=w, **roles) for w in (1, three))
    parts = [data.split((0.9, 0.1), seed=1)[1] for data in (one, shared)]
    learnt = [json.dumps(Encoder.learn(part, bend=True).to_dict()) for part in parts]
    assert learnt[0] == learnt[1]


def test_shards_are_read_in_order_for_any_task_size(
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


def test_errors_are_the_same_as_with_one_worker(
    three: Processes, make_table: Make, write: Write, roles: dict[str, Any], tmp_path: Path
) -> None:
    table = make_table(400)
    for column, row, value in (("price", 700, None), ("price", 100, None), ("trip", 900, None), ("trip", 300, None)):
        values = table.column(column).to_pylist()
        values[row] = value
        table = table.set_column(table.column_names.index(column), column, pa.array(values))
        messages = []
        for workers in (1, three):
            with pytest.raises(SchemaError) as caught:
                ChoiceData.scan(write(table), cache=tmp_path / "cache", memory="1 MiB", workers=workers, **roles)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_workers_run_no_code_from_the_working_folder(
    make_table: Make, write: Write, roles: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files named like modules lie in the working folder, which an empty entry of the import path stands for."""
    hostile, table = tmp_path / "hostile", write(make_table(400))
    hostile.mkdir()
    for name in ("pcmcnet", "json", "numpy", "sitecustomize"):
        (hostile / f"{name}.py").write_text("import os; os.write(2, b'ran'); open('ran', 'w').close(); os._exit(1)")
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with Processes(2) as workers:
        wait_for(workers)
        data = ChoiceData.scan(table, cache=tmp_path / "cache", memory="1 MiB", workers=workers, **roles)
        assert len(data) == 400
        assert [helper.process.poll() for helper in workers._helpers] == [None]
    assert sorted(path.name for path in hostile.iterdir() if path.suffix != ".py") == []


def square(x: int) -> int:
    if x == 13:
        raise PcmcNetError(f"{x} is not for squares.")
    return x * x


def test_results_and_errors_come_in_item_order(three: Processes) -> None:
    assert list(three.map(square, range(10))) == [k * k for k in range(10)]
    assert list(three.map(abs, range(500))) == list(range(500))  # enough for two items per task
    results = []
    with pytest.raises(PcmcNetError, match="13 is not for squares"):
        results.extend(three.map(square, range(20)))
    assert list(three.map(square, [3])) == [9]


def die(x: int) -> int:
    if os.getpid() != x:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_a_dead_worker_is_an_error_and_stops_all_workers() -> None:
    with Processes(2) as workers:
        wait_for(workers)
        with pytest.raises(PcmcNetError, match=r"helper process .* ended unexpectedly"):
            list(workers.map(die, [os.getpid()] * 200_000))
    assert workers._helpers == []


def interrupt(x: int) -> None:
    """Interrupt the main process with Ctrl-C; a worker process runs for long."""
    if os.getpid() == x:
        raise KeyboardInterrupt
    time.sleep(60)


def test_an_interrupt_replaces_workers_without_waiting() -> None:
    with Processes(2) as workers:
        wait_for(workers)
        (helper,) = workers._helpers
        with pytest.raises(KeyboardInterrupt):
            list(workers.map(interrupt, [os.getpid()] * 9))
        assert helper.process.wait(60) == -signal.SIGKILL
        assert list(workers.map(square, range(3))) == [0, 1, 4]
        assert workers._helpers != [helper]


def test_work_does_not_wait_for_workers_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.data.scan.workers._PROGRAM", "import time; time.sleep(60)")
    with Processes(2) as workers:
        assert [list(workers.map(square, range(10))) for _ in range(2)] == [[k * k for k in range(10)]] * 2
        (helper,) = workers._helpers
        assert not helper.ready.is_set()
    assert helper.process.returncode != 0


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.data.scan.workers._PROGRAM", "")
    with Processes(2) as workers:
        wait_for(workers)
        with pytest.raises(PcmcNetError, match=r"helper process .* ended unexpectedly"):
            list(workers.map(square, range(10_000, 200_000)))


def test_tasks_are_consecutive_units() -> None:
    units = [3, 1, 4, 1, 5, 9, 2, 6]
    for count in range(2, 12):
        chunks = cut_into_chunks(units, count)
        assert [k for chunk in chunks for k in (chunk.units or ())] == list(range(len(units)))
        assert [chunk.first for chunk in chunks] == [sum(units[: (chunk.units or range(0)).start]) for chunk in chunks]
        assert len(chunks) <= count
    assert [chunk.units for chunk in cut_into_chunks(units, 1)] == [None]


@pytest.mark.parametrize("count", [8, 16, 512])
def test_tasks_shrink_so_that_workers_end_together(count: int) -> None:
    """A free worker takes the next task, so the first to finish waits at most a twentieth of its share."""
    sizes = [len(chunk.units or ()) for chunk in cut_into_chunks([1] * 10_000, count)]
    assert sizes[0] <= 2 * 10_000 / count + 1
    assert all(a + 1 >= b for a, b in pairwise(sizes))  # except for rounding to whole units
    for workers in (2, count // 8 + 1):
        free = [0] * workers
        for size in sizes:
            heapq.heappush(free, heapq.heappop(free) + size)
        assert max(free) - min(free) <= 10_000 / workers / 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries manage freed memory differently")
def test_freed_memory_is_reused() -> None:
    """Eight arrays of 2 MiB have 4,096 pages. If freed memory is kept, these pages are new to the process only once."""
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


def test_only_large_tables_use_several_workers_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert [workers_for(None, values).count for values in (1e7, 1e9)] == [1, 2]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert workers_for(None, 1e9).count == 1
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert workers_for(None, 1e9).count == 1
    with pytest.raises(ConfigError, match="workers must be"):
        workers_for(0)


def test_files_with_other_types_are_cast_the_same_way(three: Processes, tmp_path: Path) -> None:
    """Their row groups take another reading path."""
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
        rows = table.slice(part[0], len(part))
        pyarrow.parquet.write_table(rows, folder / f"{k}.parquet", row_group_size=100, **options)
    return folder


@pytest.mark.parametrize(
    "options",
    [{}, {"dictionary_pagesize_limit": 8, "data_page_size": 64, "write_batch_size": 8}, {"use_dictionary": ["city"]}],
    ids=["dictionaries", "dictionaries, then text", "one dictionary column"],
)
def test_dictionary_encoded_text_gives_the_same_bytes(
    options: dict[str, Any], three: Processes, make_table: Make, roles: dict[str, Any], tmp_path: Path
) -> None:
    """Some words are in no row of a block, and some rows have no word."""
    table = make_table(400)
    colours = [None if row % 7 == 0 else colour for row, colour in enumerate(table.column("colour").to_pylist())]
    table = table.set_column(table.column_names.index("colour"), "colour", pa.array(colours))
    roles |= {"missing": "indicator"}
    plain = written(table, tmp_path / "plain", use_dictionary=False)
    coded = written(table, tmp_path / "coded", **options)
    expected = ChoiceData.scan(plain, memory="1 MiB", workers=1, **roles)
    for workers in (1, three):
        cache = tmp_path / f"cache of {workers}"
        data = ChoiceData.scan(coded, cache=cache, memory="1 MiB", workers=workers, **roles)
        assert data.manifest.fingerprint == expected.manifest.fingerprint
    assert data.read().fingerprint() == ChoiceData.from_long(table, **roles).fingerprint()


def test_one_dictionary_encoded_file_gives_the_bytes_of_a_folder(
    make_table: Make, roles: dict[str, Any], tmp_path: Path
) -> None:
    table = make_table(400)
    folder = written(table, tmp_path / "folder")
    pyarrow.parquet.write_table(table, tmp_path / "file.parquet", row_group_size=70)
    one, several = (ChoiceData.scan(path, memory="1 MiB", **roles) for path in (tmp_path / "file.parquet", folder))
    assert one.manifest.fingerprint == several.manifest.fingerprint
