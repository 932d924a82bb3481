"""Workers of Ray give the same shards, encoder and errors as one process."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import pcmcnet as pn
from pcmcnet import cluster
from pcmcnet.cluster.training import RayWorkers
from pcmcnet.data import Encoder
from pcmcnet.errors import SchemaError

ray = pytest.importorskip("ray")


@pytest.fixture
def roles(data: pn.ChoiceData) -> dict[str, Any]:
    return data.schema.to_dict()


@pytest.fixture
def searches(table: pa.Table, tmp_path: Path) -> Path:
    folder = tmp_path / "searches"
    folder.mkdir()
    for k in range(3):
        part = table.slice(table.num_rows * k // 3, table.num_rows * (k + 1) // 3 - table.num_rows * k // 3)
        pa.parquet.write_table(part, folder / f"{k}.parquet", row_group_size=500)
    return folder


@pytest.mark.usefixtures("local_ray")
def test_results_and_errors_come_in_the_order_of_the_items() -> None:
    """Nine items are more than are submitted at a time."""

    def square(number: int) -> int:
        if number == 7:
            raise SchemaError("7 has none")
        return number**2

    results = RayWorkers(ray, 2).map(square, range(9))
    assert [next(results) for _ in range(7)] == [0, 1, 4, 9, 16, 25, 36]
    with pytest.raises(SchemaError, match="7 has none"):
        next(results)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_two_workers_scan_and_learn_like_one_process(
    searches: Path, roles: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # workers have a different working folder
    one = pn.ChoiceData.scan("searches", cache="one", memory="1 MiB", workers=1, **roles)
    two = cluster.scan("searches", cache="two", memory="1 MiB", workers=2, **roles)
    assert len(one.manifest.shards) > 1
    assert two.manifest == one.manifest
    for shard in one.manifest.shards:
        assert (one.folder / shard.name).read_bytes() == (two.folder / shard.name).read_bytes()
    shared = two.by(RayWorkers(ray, 2))
    learnt = [json.dumps(Encoder.learn(data, bend=True).to_dict()) for data in (one, shared)]
    assert learnt[0] == learnt[1]


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_errors_are_the_same_as_with_one_process(searches: Path, roles: dict[str, Any], tmp_path: Path) -> None:
    table = pyarrow.parquet.read_table(searches / "1.parquet")
    broken = pa.array([None, *table.column(roles["choice_set"]).to_pylist()[1:]])
    place = table.column_names.index(roles["choice_set"])
    pa.parquet.write_table(table.set_column(place, roles["choice_set"], broken), searches / "1.parquet")
    messages = []
    for scan, cache in ((pn.ChoiceData.scan, "one"), (cluster.scan, "two")):
        with pytest.raises(SchemaError) as caught:
            scan(searches, cache=tmp_path / cache, memory="1 MiB", workers=2, **roles)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
