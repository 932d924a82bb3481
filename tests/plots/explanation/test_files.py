"""Three files in a folder, whole or not at all."""

import importlib.util
import json
from pathlib import Path

import pytest

from pcmcnet import Explanation
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.plots.explanation import write
from pcmcnet.reports import html

pytestmark = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="needs plotly: pip install plotly")


def test_page_markdown_and_numbers_are_written(explained: dict[str, Explanation], tmp_path: Path) -> None:
    found = explained["chain"]
    files = write(found, tmp_path / "new" / "report")
    assert [file.name for file in files] == ["report.html", "report.md", "explanation.json"]
    assert sorted(file.name for file in (tmp_path / "new" / "report").iterdir()) == sorted(f.name for f in files)
    assert files[0].read_text("utf-8").startswith("<!doctype html>")
    assert files[1].read_text("utf-8").startswith("# ")
    assert json.loads(files[2].read_text("utf-8")) == json.loads(json.dumps(found.to_dict()))


def test_the_same_explanation_gives_the_same_files(explained: dict[str, Explanation], tmp_path: Path) -> None:
    first, second = (write(explained["logit"], tmp_path / name) for name in "ab")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_a_file_is_no_folder(explained: dict[str, Explanation], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="cannot be a folder"):
        write(explained["table"], tmp_path / "taken")


def test_without_plotly_nothing_is_written(
    explained: dict[str, Explanation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="plotly"):
        write(explained["table"], tmp_path)
    assert not any(tmp_path.iterdir())
