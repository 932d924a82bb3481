"""A table with adjacent rows of each set is predicted without a scan."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest

import pcmcnet as pn
from pcmcnet.data import chunks
from pcmcnet.data.kinds.category import report_unseen_once
from pcmcnet.errors import ArtifactError, InputError, SchemaError
from pcmcnet.models.interface import prediction_files
from pcmcnet.models.interface.prediction_files import predict_folder
from pcmcnet.models.networks import neural_model

ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "code",
    "features": ["price", "mode"],
    "individual": ["age"],
}
SETS = 300


def a_table(ids: Callable[[int], Any] = int) -> pa.Table:
    """Return 300 trips, one set after another. The last ones have the smallest ids."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, SETS)
    trip, n = np.repeat(np.arange(SETS), sizes), int(sizes.sum())
    place = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    columns = {
        "trip": [ids((int(k) + 100) % SETS) for k in trip],
        "took": place == 0,
        "code": [f"00{k}" for k in place],
        "price": rng.normal(size=n),
        "mode": rng.choice(["car", "bus"], n),
        "age": rng.normal(size=SETS)[trip],
        "note": rng.choice(["a", "b"], n),  # has no role but is copied to the result
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def mnl() -> pn.MNL:
    fitted: pn.MNL = pn.MNL().fit(pn.ChoiceData.from_long(a_table(), **ROLES))
    return fitted


@pytest.fixture(scope="module")
def network() -> pn.PCMCNet:
    data = pn.ChoiceData.from_long(a_table(), **ROLES)
    return pn.PCMCNet(hidden=(4,), epochs=1, weight_decay=0.1, members=1).fit(data, device="cpu", progress=False)


@pytest.fixture(autouse=True)
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Divide tables into many chunks, and record each scan."""
    monkeypatch.setattr(prediction_files, "CHUNK_ROWS", 50)
    taken, scan = [], prediction_files._predict_shards
    monkeypatch.setattr(prediction_files, "_predict_shards", lambda *args: taken.append("scan") or scan(*args))
    return taken


def write(table: pa.Table, folder: Path, files: int = 4) -> Path:
    """Write files and row groups that end within sets. The last file has no rows."""
    folder.mkdir()
    for k in range(files):
        begin, end = table.num_rows * k // files, table.num_rows * (k + 1) // files
        pyarrow.parquet.write_table(table.slice(begin, end - begin), folder / f"{k}.parquet", row_group_size=33)
    pyarrow.parquet.write_table(table.slice(0, 0), folder / "z.parquet")
    return folder


def written(folder: Path) -> pa.Table:
    return pa.concat_tables([pyarrow.parquet.read_table(file) for file in sorted(folder.glob("*.parquet"))])


def contents(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("ids", [int, "trip {}".format], ids=["numbers", "text"])
@pytest.mark.parametrize("kind", ["mnl", "network", "network as on a GPU"])
def test_tables_with_adjacent_sets_are_predicted_without_a_scan(
    kind: str,
    ids: Callable[[int], Any],
    scans: list[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, table = request.getfixturevalue(kind.split()[0]), a_table(ids)
    folder = write(table, tmp_path / "in")
    for source, out in ((folder, tmp_path / "of folder"), (folder / "0.parquet", tmp_path / "of file")):
        with monkeypatch.context() as patch:
            patch.setattr(neural_model, "is_on_gpu", lambda network: "GPU" in kind)
            n = predict_folder(model, source, out)
        result = written(out)
        assert result.drop_columns(["probability"]).equals(table.slice(0, n))
        np.testing.assert_allclose(result["probability"].to_numpy(), model.predict_proba(source), rtol=0, atol=1e-6)
    assert scans == []
    assert contents(tmp_path / "of folder") == [f"{k}.parquet" for k in (0, 1, 2, 3, "z")]


def test_probabilities_agree_with_a_scan_and_with_memory(mnl: pn.MNL, scans: list[str], tmp_path: Path) -> None:
    folder = write(a_table(), tmp_path / "in")
    predict_folder(mnl, folder, tmp_path / "direct")
    predict_folder(mnl, folder, tmp_path / "scanned", cache=tmp_path / "cache")
    assert scans == ["scan"]
    direct, scanned = (written(tmp_path / out) for out in ("direct", "scanned"))
    assert direct.schema.equals(scanned.schema)
    for p in (direct["probability"].to_numpy(), scanned["probability"].to_numpy()):
        np.testing.assert_allclose(p, mnl.predict_proba(folder), rtol=0, atol=1e-14)


def test_chunks_predicted_in_parallel_have_the_same_probabilities(
    network: pn.PCMCNet, scans: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, result = write(a_table(), tmp_path / "in"), []
    for workers in (1, 3):
        monkeypatch.setattr(pn.PCMCNet, "_parallel_chunks", workers)
        predict_folder(network, folder, tmp_path / str(workers))
        result.append(written(tmp_path / str(workers)))
    assert result[0].equals(result[1])
    assert scans == []


@pytest.mark.parametrize("gpu", [False, True], ids=["on a CPU", "as on a GPU"])
@pytest.mark.parametrize("scanned", [False, True], ids=["one pass", "scan"])
def test_unseen_categories_are_reported_once_for_the_whole_table(
    gpu: bool,
    scanned: bool,
    network: pn.PCMCNet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = a_table()
    modes = table["mode"].to_pylist()
    modes[:200:2] = ["ship"] * 100
    folder = write(table.set_column(4, "mode", pa.array(modes)), tmp_path / "in")
    monkeypatch.setattr(neural_model, "is_on_gpu", lambda module: gpu)
    with caplog.at_level("INFO", "pcmcnet"):
        predict_folder(network, folder, tmp_path / "out", cache=tmp_path / "cache" if scanned else None)
    messages = [record.getMessage() for record in caplog.records if "never seen" in record.getMessage()]
    assert messages == [
        f"column 'mode': 100 of {len(modes)} rows hold categories never seen in training (first: 'ship')"
    ]


def test_concurrent_predictions_report_unseen_categories_separately(
    network: pn.PCMCNet, caplog: pytest.LogCaptureFixture
) -> None:
    ships = pa.table({**a_table().to_pydict(), "mode": ["ship"] * len(a_table())})
    with report_unseen_once(), ThreadPoolExecutor(1) as pool, caplog.at_level("INFO", "pcmcnet"):
        pool.submit(network.predict_proba, ships).result()
        assert "never seen" in caplog.text


@pytest.mark.parametrize("column", ["price", "trip"])
def test_files_of_a_folder_may_differ_in_types(column: str, mnl: pn.MNL, scans: list[str], tmp_path: Path) -> None:
    """Text of the file that is cast arrives as strings, text of the other file as codes."""
    table = a_table()
    table = table.set_column(3, "price", pc.cast(pc.multiply(table["price"], 10), pa.int64(), safe=False))
    folder = write(table, tmp_path / "in", files=2)
    other = pyarrow.parquet.read_table(folder / "1.parquet")
    at = other.column_names.index(column)
    pyarrow.parquet.write_table(other.set_column(at, column, other[column].cast(pa.int32())), folder / "1.parquet")
    predict_folder(mnl, folder, tmp_path / "out")
    assert scans == []
    result = [pyarrow.parquet.read_table(file)["probability"] for file in sorted((tmp_path / "out").glob("*.parquet"))]
    np.testing.assert_allclose(pa.chunked_array([c for x in result for c in x.chunks]), mnl.predict_proba(table))


def test_unavailable_rows_have_probability_0(scans: list[str], tmp_path: Path) -> None:
    table = a_table()
    table = table.append_column("open", pa.array(np.asarray(table["code"]) != "003"))
    model = pn.MNL().fit(pn.ChoiceData.from_long(table, available="open", **ROLES))
    predict_folder(model, write(table, tmp_path / "in"), tmp_path / "out")
    result = written(tmp_path / "out")["probability"].to_numpy()
    np.testing.assert_allclose(result, model.predict_proba(table), rtol=0, atol=1e-14)
    assert (result == 0).any()
    assert scans == []


@pytest.mark.parametrize("how", ["apart", "gone on at the end", "fractions"])
def test_tables_whose_sets_are_not_adjacent_are_scanned(
    how: str, mnl: pn.MNL, scans: list[str], tmp_path: Path
) -> None:
    table = a_table(float if how == "fractions" else int)
    if how == "apart":
        table = table.take(pa.array(np.random.default_rng(1).permutation(table.num_rows)))
    elif how == "gone on at the end":
        size = int((np.asarray(table["trip"]) == 100).sum())
        table = pa.concat_tables([table.slice(1), table.slice(0, 1)])
        assert size > 1
    predict_folder(mnl, write(table, tmp_path / "in"), tmp_path / "out")
    result = written(tmp_path / "out")["probability"].to_numpy()
    np.testing.assert_allclose(result, mnl.predict_proba(table), rtol=0, atol=1e-14)
    assert scans == ["scan"]


def test_tables_whose_ids_exceed_memory_are_scanned(
    mnl: pn.MNL, scans: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, inner = write(a_table(), tmp_path / "in"), chunks.chunk_lengths
    for memory, expected in ((SETS * 24, []), (SETS * 24 - 1, ["scan"])):
        monkeypatch.setattr(chunks, "chunk_lengths", lambda ids, rows, _, memory=memory: inner(ids, rows, memory))
        predict_folder(mnl, folder, tmp_path / str(memory))
        assert scans == expected


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("price", np.nan, r"column 'price', row {last} \(choice set 99\): expected a finite number, got nan; 1 such"),
        ("age", 1e6, r"'age' varies within 1 choice sets \(first: 99\)"),
        ("code", "000", r"column 'code', row {begin} \(choice set 99\): the label '000' occurs more than once"),
    ],
)
def test_errors_in_the_last_chunk_are_those_of_a_scan(
    column: str, value: Any, message: str, mnl: pn.MNL, tmp_path: Path
) -> None:
    table = a_table()
    last, begin = table.num_rows - 1, int(np.argmax(np.asarray(table["trip"]) == 99))
    assert table["trip"][-1].as_py() == 99
    values = [*table[column].to_pylist()[:-1], value]
    table = table.set_column(table.column_names.index(column), column, pa.array(values))
    folder = write(table, tmp_path / "in")
    messages = []
    for cache in (None, tmp_path / "cache"):
        with pytest.raises((SchemaError, InputError), match=message.format(last=last, begin=begin)) as error:
            predict_folder(mnl, folder, tmp_path / "out", cache=cache)
        messages.append(str(error.value))
        assert not list((tmp_path / "out").glob("*.parquet"))
        assert not (tmp_path / "out" / ".scan" / "files").exists()
    assert messages[0] == messages[1]


def test_probabilities_that_do_not_sum_to_1_are_refused(
    mnl: pn.MNL, scans: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = mnl._log_proba
    monkeypatch.setattr(mnl, "_log_proba", lambda data: inner(data) + 9.0 * np.repeat(data.set_ids == 99, data.sizes))
    with pytest.raises(InputError, match=r"1 of 300 choice sets have .* first is choice set 99"):
        predict_folder(mnl, write(a_table(), tmp_path / "in"), tmp_path / "out")
    assert scans == ["scan"]
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_errors_that_depend_on_all_chunks_are_detected(mnl: pn.MNL, tmp_path: Path) -> None:
    """Timestamps within a few minutes lose precision, which is known only after all chunks are read."""
    table = a_table()
    seconds = 1.7e9 + np.random.default_rng(0).uniform(0, 100, table.num_rows)
    table = table.set_column(table.column_names.index("price"), "price", pa.array(seconds))
    with pytest.raises(SchemaError, match="column 'price': its values differ by less than the precision"):
        predict_folder(mnl, write(table, tmp_path / "in"), tmp_path / "out")


def test_interrupted_predictions_leave_no_files(mnl: pn.MNL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = write(a_table(), tmp_path / "in"), tmp_path / "out"
    (out / ".scan" / "files").mkdir(parents=True)
    (out / ".scan" / "files" / "7").write_text("half a file")
    inner, chunks_seen = mnl._checked_log_proba, []

    def stop_at_the_fifth(data: pn.ChoiceData) -> Any:
        chunks_seen.append(data)
        if len(chunks_seen) == 5:
            raise KeyboardInterrupt
        return inner(data)

    with monkeypatch.context() as patch:
        patch.setattr(mnl, "_checked_log_proba", stop_at_the_fifth)
        with pytest.raises(KeyboardInterrupt):
            predict_folder(mnl, folder, out)
    assert contents(out) == []
    predict_folder(mnl, folder, out)
    assert contents(out) == [f"{k}.parquet" for k in (0, 1, 2, 3, "z")]


def test_a_full_disk_is_reported_without_a_scan(
    mnl: pn.MNL, scans: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prediction_files, "parquet_appender", full)
    with pytest.raises(ArtifactError, match=r"0\.parquet cannot be written: No space left on device"):
        predict_folder(mnl, write(a_table(), tmp_path / "in"), tmp_path / "out")
    assert scans == []


def test_a_csv_is_scanned(mnl: pn.MNL, scans: list[str], tmp_path: Path) -> None:
    pyarrow.csv.write_csv(a_table(), tmp_path / "in.csv")
    predict_folder(mnl, tmp_path / "in.csv", tmp_path / "out")
    assert scans == ["scan"]


@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: np.append(rows, 3)], ids=["grew", "shrank"])
def test_a_table_that_changes_during_reading_is_scanned(
    change: Callable[[Any], Any], mnl: pn.MNL, scans: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are added or removed after the ids were read."""
    inner = chunks.chunk_lengths
    monkeypatch.setattr(chunks, "chunk_lengths", lambda *args: change(inner(*args)))
    table = a_table()
    assert predict_folder(mnl, write(table, tmp_path / "in"), tmp_path / "out") == table.num_rows
    assert scans == ["scan"]
