"""Prediction in chunks equals prediction of the whole table; tested on a CPU with the code path of a GPU."""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.data import chunks
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models.interface import prediction
from pcmcnet.models.networks import neural_model
from pcmcnet.training.chunks import predict_chunks

SIZES = np.array([3, 2, 4, 1, 3, 2, 5, 3])
ROLES = {"choice_set": "trip", "features": ["cost", "mode"], "individual": ["age"]}


def a_table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    owner, n = np.repeat(np.arange(len(SIZES)), SIZES), int(SIZES.sum())
    first = np.concatenate([[0], np.cumsum(SIZES)[:-1]])
    chosen = np.zeros(n)
    chosen[first] = 1
    columns = {"cost": rng.normal(size=n), "mode": rng.choice(["bus", "car"], n), "age": rng.normal(size=8)[owner]}
    return {"trip": owner, "chosen": chosen, **columns}


@pytest.fixture(scope="module")
def model() -> PCMCNet:
    data = ChoiceData.from_long(a_table(), chosen="chosen", **ROLES)
    return PCMCNet(hidden=(4,), epochs=1, weight_decay=0.1).fit(data, device="cpu", progress=False)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Use the code path of a GPU with chunks of four rows; return the results of tables predicted in chunks."""
    results, inner = [], prediction.table_log_proba

    def table_log_proba(*arguments: object) -> object:
        results.append(inner(*arguments))
        return results[-1]

    monkeypatch.setattr(neural_model, "is_on_gpu", lambda network: True)
    monkeypatch.setattr(prediction, "table_log_proba", table_log_proba)
    for module in (neural_model, chunks):
        monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    return results


def test_a_table_has_the_same_probabilities_in_chunks(
    model: PCMCNet, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    table = pa.table(a_table())
    pa.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    whole = model.predict_log_proba(table)
    results = request.getfixturevalue("as_on_a_gpu")
    for source in (table, a_table(), table.to_pandas(), tmp_path / "a.parquet", str(tmp_path / "a.parquet")):
        np.testing.assert_allclose(model.predict_log_proba(source), whole, atol=1e-6)
    assert len(results) == 5
    assert all(isinstance(log_p, np.ndarray) for log_p in results)


def test_choice_data_have_the_same_probabilities_in_chunks(model: PCMCNet, request: pytest.FixtureRequest) -> None:
    data = ChoiceData.from_long(a_table(), **ROLES)
    whole = model.predict_log_proba(data)
    request.getfixturevalue("as_on_a_gpu")
    np.testing.assert_allclose(model.predict_log_proba(data), whole, atol=1e-6)
    in_chunks = chunks.sets_in_chunks(data, 4)
    parts = list(predict_chunks(model.network_, model.encoder_, in_chunks, pair_budget=1000))
    assert len(parts) > 3
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-6)


def test_unseen_categories_are_reported_once_for_all_chunks(
    model: PCMCNet, as_on_a_gpu: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    table = {**a_table(), "mode": np.array(["ship"] * 11 + ["car"] * 12)}
    with caplog.at_level(logging.INFO, "pcmcnet"):
        model.predict_log_proba(pa.table(table))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["column 'mode': 11 of 23 rows hold categories never seen in training (first: 'ship')"]
    assert len(as_on_a_gpu) == 1


def test_errors_describe_the_whole_table(model: PCMCNet, as_on_a_gpu: list[object]) -> None:
    """Two chunks have missing values: the first ends the prediction in chunks, and the error counts both."""
    table = a_table()
    table["cost"][[0, 20]] = np.nan
    with pytest.raises(SchemaError, match=r"column 'cost', row 0 .* 2 such rows"):
        model.predict_log_proba(pa.table(table))
    assert isinstance(as_on_a_gpu[0], chunks.ChunkProblem)


def test_float32_resolution_is_judged_over_all_chunks(model: PCMCNet, as_on_a_gpu: list[object]) -> None:
    table = {**a_table(), "cost": 1.7e9 + np.arange(23.0)}
    with pytest.raises(SchemaError, match="column 'cost': its values differ by less than the precision"):
        model.predict_log_proba(pa.table(table))
    assert as_on_a_gpu == [
        chunks.ChunkProblem("column 'cost': float32 may not resolve the differences between its values")
    ]


def test_probabilities_that_do_not_sum_to_1_are_refused(
    model: PCMCNet, as_on_a_gpu: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = type(model.network_).forward
    monkeypatch.setattr(type(model.network_), "forward", lambda self, batch: forward(self, batch) + 1.0)
    with pytest.raises(InputError, match="8 of 8 choice sets have"):
        model.predict_log_proba(pa.table(a_table()))
    assert as_on_a_gpu == [chunks.ChunkProblem("probabilities do not sum to 1")]


def test_a_table_with_scattered_sets_is_read_in_one_chunk(
    model: PCMCNet, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A table in memory is checked first; a file is checked while it is read."""
    table = pa.table(a_table())
    table = pa.concat_tables([table.slice(1), table.slice(0, 1)])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    whole = model.predict_log_proba(table)
    results = request.getfixturevalue("as_on_a_gpu")
    for source in (table, tmp_path / "a.parquet"):
        np.testing.assert_array_equal(model.predict_log_proba(source), whole)
    (problem,) = results
    assert "may not be adjacent" in problem.reason


def test_an_error_in_a_chunk_is_not_hidden(
    model: PCMCNet, as_on_a_gpu: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of the row encoder is raised, even if it raises an error of this library."""

    def broken(*given: object) -> None:
        raise SchemaError("a bug")

    monkeypatch.setattr("pcmcnet.data.tensors.encode_rows", broken)
    with pytest.raises(SchemaError, match="a bug"):
        model.predict_log_proba(pa.table(a_table()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_predictions_in_chunks_on_a_gpu_match_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for module, way in ((neural_model, "sets_in_chunks"), (prediction, "table_log_proba")):
        inner = getattr(module, way)
        monkeypatch.setattr(module, way, lambda *given, way=way, inner=inner: calls.append(way) or inner(*given))
    for module in (neural_model, chunks):
        monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    data = ChoiceData.from_long(a_table(), chosen="chosen", **ROLES)
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.1).fit(data, device="cuda", progress=False)
    pa.parquet.write_table(pa.table(a_table()), tmp_path / "a.parquet")
    sources = (tmp_path / "a.parquet", pa.table(a_table()).to_pandas(), a_table(), data)
    probabilities = [model.predict_proba(source) for source in sources]
    assert calls == ["table_log_proba"] * 3 + ["sets_in_chunks"]
    model.network_.cpu()
    for each in probabilities:
        np.testing.assert_allclose(each, model.predict_proba(a_table()), atol=1e-5)
