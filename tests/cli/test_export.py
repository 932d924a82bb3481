import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pcmcnet import PCMCNet

Run = Callable[..., Any]


def test_the_written_files_are_listed(cli: Run, model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(PCMCNet, "export", lambda _, file: file)
    result = cli("export", model, tmp_path / "model.onnx")
    assert result == (0, f"wrote {tmp_path / 'model.onnx'} and {tmp_path / 'model.encoder.json'}\n", "")
    result = cli("export", model, tmp_path / "model.pt2", "--json")
    assert json.loads(result.out) == {
        k: str(tmp_path / f"model.{end}") for k, end in (("graph", "pt2"), ("encoder", "encoder.json"))
    }


@pytest.mark.slow
def test_a_saved_model_is_exported_with_its_encoder(cli: Run, model: Path, tmp_path: Path) -> None:
    result = cli("export", model, tmp_path / "out" / "model.pt2", "--json")
    assert result.status == 0, result.err
    written = json.loads(result.out)
    assert written == {
        k: str(tmp_path / "out" / f"model.{end}") for k, end in (("graph", "pt2"), ("encoder", "encoder.json"))
    }
    names = [entry["name"] for entry in json.loads(Path(written["encoder"]).read_text("utf-8"))["inputs"]]
    assert list(torch.export.load(written["graph"]).graph_signature.user_inputs) == names


def test_an_unknown_extension_gives_a_one_line_error(cli: Run, model: Path, tmp_path: Path) -> None:
    line = cli("export", model, tmp_path / "model.pb").message
    assert line.startswith("expected a file name that ends in .onnx or .pt2, got ")


@pytest.mark.slow
def test_onnx_export_prints_no_library_messages(
    cli: Run, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("onnxscript")
    with caplog.at_level("INFO"):
        assert cli("export", model, tmp_path / "model.onnx").status == 0
    assert not [record.name for record in caplog.records if record.levelno >= 20]
