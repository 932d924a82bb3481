import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.experiments import experiment2, report
from pcmcnet.experiments.report import ExperimentResult, fit_all, run_facts
from pcmcnet.models import ChoiceModel, PCMCNet, Uniform
from pcmcnet.plots.style import save_picture
from pcmcnet.reports.sections import PictureFile, Section, Table, Text, note
from pcmcnet.training import loop

EVIL = "<script>alert('x')</script>&\"|"


class Page(HTMLParser):
    """The tags of a page with their attributes, and the text of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def result(folder: Path) -> ExperimentResult:
    blocks = (
        Text(f"Text {EVIL}"),
        Table(cells=[["model", "KL"], [EVIL, "0.1"], ["net", "failed: no luck"]], strong=frozenset([0])),
        *(note(f"Note {EVIL}"), note("Another.")),
        PictureFile(file=folder / "a.png", caption=f"Seen {EVIL}", others=("a.pdf",)),
    )
    return ExperimentResult(
        title=f"Title {EVIL}",
        command=f"pcmcnet {EVIL}",
        sections=(Section(title=f"Section {EVIL}", blocks=blocks),),
        values={"kl": 0.1, "nll": np.inf, "by_seed": (1.0, 2.0), 3: {"deep": float("nan")}},  # type: ignore[dict-item]
        facts=run_facts(seed=3, seconds=1.26, data=EVIL),
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    save_picture(Figure(figsize=(1, 1)), folder / "a.png", dpi=20)
    files = result(folder).write(folder)
    assert [file.name for file in files] == ["report.md", "report.html", "result.json", "a.png", "a.pdf"]
    assert sorted(file.name for file in folder.iterdir()) == ["a.png", "report.html", "report.md", "result.json"]
    return folder


def test_the_page_is_self_contained_and_escaped(written: Path) -> None:
    text = (written / "report.html").read_text("utf-8")
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert "://" not in text
    assert "script" not in tags
    assert not {"link", "iframe", "object"} & set(tags)
    (source,) = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    assert source is not None
    assert source.startswith("data:image/png;base64,")
    for words in ("Title", "Section", "Text", "Note", "pcmcnet"):
        assert any(f"{words} {EVIL}" in text_node for text_node in page.words)
    assert EVIL in page.words
    assert [attributes["alt"] for tag, attributes in page.tags if tag == "img"] == [f"Seen {EVIL}"]


def test_the_page_supports_phones_print_and_dark_mode(written: Path) -> None:
    text = (written / "report.html").read_text("utf-8")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "@media (prefers-color-scheme: dark)" in text
    assert "@media print" in text
    assert re.search(
        r'<div class="wide" tabindex="0"[^>]*><table>', text
    )  # scrolls horizontally, also with the keyboard


def test_numbers_that_are_not_finite_are_null_in_json(written: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    outcome = json.loads((written / "result.json").read_text("utf-8"), parse_constant=refuse)
    assert outcome["values"] == {"kl": 0.1, "nll": None, "by_seed": [1.0, 2.0], "3": {"deep": None}}
    assert outcome["title"] == f"Title {EVIL}"
    assert outcome["facts"]["seed"] == 3
    assert outcome["facts"]["seconds"] == 1.3
    assert {"pcmcnet", "torch", "python"} <= outcome["facts"]["versions"].keys()
    assert outcome["facts"]["machine"]


def test_markdown_links_pictures_and_escapes_cells(written: Path) -> None:
    lines = (written / "report.md").read_text("utf-8").splitlines()
    assert "| model | KL |" in lines
    assert "| net | failed: no luck |" in lines
    (row,) = [line for line in lines if line.endswith("| 0.1 |")]
    assert row.replace("\\|", "").count("|") == 3
    assert "](a.png)" in " ".join(lines)
    assert "Also as [a.pdf](a.pdf)." in lines


def test_a_result_prints_titles_tables_and_notes() -> None:
    text = str(result(Path()))
    assert text.startswith(f"Title {EVIL}\n\nText {EVIL}\n\nmodel")
    assert text.endswith(f"Note {EVIL}\nAnother.")


def test_a_file_is_refused_as_the_output_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file cannot be created: .* Choose another one"):
        result(tmp_path).write(tmp_path / "file")


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    blocks = (Text("w\x1b[2m"), Table(cells=[["a", "b"], ["c\x1b[3m", "d"]]), note("n\x1b[4m"))
    escaped = replace(result(tmp_path), sections=(Section(title="t\x1b[1m", blocks=blocks),), command="pcmcnet \x1b[5m")
    for file in escaped.write(tmp_path)[:2]:
        text = file.read_text("utf-8")
        assert "\x1b" not in text
        assert [f"x1b[{k}m" in text.replace("\\\\", "\\") for k in range(1, 6)] == [True] * 5
    assert "\x1b" not in str(escaped)


# -- Cached fits -------------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(bookings: Callable[..., pa.Table]) -> list[ChoiceData]:
    tables = [experiment2.with_airline(bookings(sets, seed=sets)) for sets in (30, 10)]
    return [ChoiceData.from_long(table, **experiment2.ROLES) for table in tables]


def weights(folder: Path) -> bytes:
    return next(folder.glob("pcmcnet-*/weights.safetensors")).read_bytes()


def test_a_cached_fit_is_named_after_all_its_inputs(tmp_path: Path, parts: list[ChoiceData]) -> None:
    for kind, seed, data in [
        (Uniform(), 0, parts),
        (Uniform(), 1, parts),
        (PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0), 0, parts),
        (PCMCNet(hidden=(4,), epochs=2, weight_decay=0.0), 0, parts),
        (Uniform(), 0, parts[::-1]),
        (Uniform(), 0, parts),
    ]:
        fit_all({"model": kind}, *data, tmp_path, seed=seed)
    assert len(list(tmp_path.iterdir())) == 5


def test_models_without_early_stopping_are_fitted_to_both_parts(tmp_path: Path, parts: list[ChoiceData]) -> None:
    small: dict[str, Any] = {"hidden": (4,), "epochs": 1, "weight_decay": 0.0}
    contestants: dict[str, ChoiceModel] = {
        "net": PCMCNet(**small),
        "paper's rule": PCMCNet(**small, min_delta=0.01),
        "uniform": Uniform(),
    }
    fitted = fit_all(contestants, *parts, tmp_path)
    sets = {}
    for label, model in fitted.items():
        assert isinstance(model, ChoiceModel)
        sets[label] = model.table_.choice_sets
    assert sets == {"net": 40, "paper's rule": 30, "uniform": 40}


def test_an_interrupted_network_resumes_to_the_same_weights(
    tmp_path: Path, parts: list[ChoiceData], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PCMCNet(hidden=(4,), epochs=3, weight_decay=0.5)
    fit_all({"net": model}, *parts, tmp_path / "whole")
    epochs: list[int] = []
    real = loop._epoch

    def stop_in_third_epoch(steps: Any, config: Any, state: Any, **options: Any) -> object:
        epochs.append(state.epoch + 1)
        if epochs == [1, 2, 3]:
            raise KeyboardInterrupt
        return real(steps, config, state, **options)

    monkeypatch.setattr(loop, "_epoch", stop_in_third_epoch)
    with pytest.raises(KeyboardInterrupt):
        fit_all({"net": model}, *parts, tmp_path / "cut")
    fit_all({"net": model}, *parts, tmp_path / "cut")
    assert epochs == [1, 2, 3, 3]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


# -- Published figures -------------------------------------------------------------------------------------------------
# Stored figures are compared with a second transcription of the paper.


def test_table_1_is_that_of_the_paper() -> None:
    rows = report.published_table1()
    assert [row.kl for row in rows.values()] == [0.119, 0.022, 0.018, 0.011, 0.009]
    assert [row.parameters for row in rows.values()] == [2, 4290, 97, 369, 641]
    assert report.published_sizes("table1") == (20_000, 10_000)


def test_table_3_is_that_of_the_paper() -> None:
    rows = report.published_table3().values()
    assert [row.top_1 for row in rows] == [0.063, 0.164, 0.154, 0.224, 0.271, 0.273, 0.257, 0.331]
    assert [row.top_5 for row in rows] == [0.255, 0.471, 0.472, 0.624, 0.672, 0.674, 0.665, 0.745]
    assert [row.nll for row in rows] == [3.24, None, None, 2.44, 2.33, None, 2.33, 2.03]
    assert report.published_sizes("table3") == (27_160, 6_791)


def test_table_2_holds_options_of_the_model() -> None:
    config = PCMCNet.paper(**report.published_table2()).config
    assert (config.hidden, config.batch_size, config.lr, config.dropout) == ((512, 512), 16, 0.001, 0.5)
    assert (config.activation, config.epochs) == ("leaky_relu", 66)
