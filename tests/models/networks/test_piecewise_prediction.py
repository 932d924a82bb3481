"""Prediction piece by piece gives what prediction of all at once gives; here on a CPU, with the same functions."""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.data import pieces as data_pieces
from pcmcnet.data.parquet_pieces import ParquetPieces, pieces_of
from pcmcnet.data.pieces import InMemory, Pieces, opened
from pcmcnet.errors import SchemaError
from pcmcnet.models.networks import neural_model, piecewise_prediction
from pcmcnet.models.networks.piecewise_prediction import predict_sets, predict_table

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


def pieces(model: PCMCNet, table: InMemory | Path) -> Pieces | ParquetPieces:
    found = pieces_of(table, model.schema.for_prediction(), rows=4)
    assert found is not None
    return found


def test_a_table_in_pieces_has_the_probabilities_of_the_whole(model: PCMCNet, tmp_path: Path) -> None:
    table = pa.table(a_table())
    pa.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    whole = model.predict_log_proba(table)
    for source in (table, opened(table.to_pandas(), model.schema), tmp_path / "a.parquet"):
        np.testing.assert_allclose(predict_table(model, pieces(model, source)), whole, atol=1e-6)


def test_choice_sets_in_pieces_have_the_probabilities_of_the_whole(
    model: PCMCNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piecewise_prediction, "ROWS", 4)
    data = ChoiceData.from_long(a_table(), **ROLES)
    np.testing.assert_allclose(predict_sets(model, data), model._log_proba(data), atol=1e-6)


def test_categories_never_seen_are_told_of_once_for_all_pieces(
    model: PCMCNet, caplog: pytest.LogCaptureFixture
) -> None:
    table = {**a_table(), "mode": np.array(["ship"] * 11 + ["car"] * 12)}
    with caplog.at_level(logging.INFO, "pcmcnet"):
        predict_table(model, pieces(model, pa.table(table)))
    told = [record.getMessage() for record in caplog.records]
    assert told == ["column 'mode': 11 of 23 rows hold categories never seen in training (first: 'ship')"]


def test_what_is_wrong_is_said_of_the_whole_table(model: PCMCNet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps in two pieces: as on a GPU, the pieces are tried first, and the error counts both gaps."""
    monkeypatch.setattr(neural_model, "in_pieces", lambda network: True)
    monkeypatch.setattr("pcmcnet.data.pieces.ROWS", 4)
    table = a_table()
    table["cost"][[0, 20]] = np.nan
    with pytest.raises(SchemaError, match=r"column 'cost', row 0 .* 2 such rows"):
        model.predict_log_proba(pa.table(table))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_predicts_in_pieces_what_a_cpu_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for way in ("predict_sets", "predict_table"):
        real = getattr(neural_model, way)
        monkeypatch.setattr(neural_model, way, lambda *given, real=real: taken.append(real) or real(*given))
    for module in (neural_model, piecewise_prediction, data_pieces):
        monkeypatch.setattr(module, "ROWS", 4)
    data = ChoiceData.from_long(a_table(), chosen="chosen", **ROLES)
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.1).fit(data, device="cuda", progress=False)
    pa.parquet.write_table(pa.table(a_table()), tmp_path / "a.parquet")
    sources = (tmp_path / "a.parquet", pa.table(a_table()).to_pandas(), a_table(), data)
    found = [model.predict_proba(source) for source in sources]
    assert taken == [predict_table, predict_table, predict_table, predict_sets]
    model.network_.cpu()
    for each in found:
        np.testing.assert_allclose(each, model.predict_proba(a_table()), atol=1e-5)
