"""The style of pictures, and how they are saved."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.plots import style
from pcmcnet.plots.style import save_picture


def test_dollar_signs_are_escaped() -> None:
    figure = Figure()
    axes = figure.subplots()
    style.label_rows(axes, ["$a$", "b"])
    style.set_title(figure, "costs $5 or $6")
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"\$a\$", "b"]
    assert figure.get_suptitle() == r"costs \$5 or \$6"


def test_the_first_name_is_at_the_top() -> None:
    figure = Figure()
    axes = figure.subplots()
    style.label_rows(axes, ["a", "b", "c"])
    style.set_title(figure, "")
    assert axes.get_ylim() == (2.5, -0.5)
    assert figure.get_suptitle() == ""


def test_colours_are_distinct() -> None:
    assert len(set(style.COLOURS)) == len(style.COLOURS)


SRC = Path(__file__).parents[2] / "src"


def test_a_figure_is_saved_as_a_png_of_its_size(tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    path = save_picture(Figure(figsize=(3, 2)), tmp_path / "a.png", dpi=50)
    assert path == tmp_path / "a.png"
    assert png_size(path) == (150, 100)
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_a_picture_has_the_usual_file_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.touch()
    assert save_picture(Figure(), str(tmp_path / "a.png")).stat().st_mode == plain.stat().st_mode


def test_a_picture_replaces_an_earlier_one(tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    for width in (1, 2):
        path = save_picture(Figure(figsize=(width, 1)), tmp_path / "a.png", dpi=50)
    assert png_size(path) == (100, 50)


@pytest.mark.parametrize("earlier", [None, b"an earlier picture"])
def test_a_failed_write_keeps_the_earlier_file(
    earlier: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.png"
    if earlier is not None:
        target.write_bytes(earlier)

    def half(figure: Figure, path: Path, **options: Any) -> None:
        Path(path).write_bytes(b"half a picture")
        raise OSError("No space left on device")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(ArtifactError, match=r"a.png cannot be written: No space left"):
        save_picture(Figure(), target)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert files == ({} if earlier is None else {"a.png": earlier})


@pytest.mark.parametrize(("name", "start"), [("a.pdf", b"%PDF-"), ("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG")])
def test_the_extension_sets_the_format_and_files_have_no_date(name: str, start: bytes, tmp_path: Path) -> None:
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    path = save_picture(figure, tmp_path / name)
    first = path.read_bytes()
    assert first.startswith(start)
    assert b"Date" not in first
    assert save_picture(figure, path).read_bytes() == first


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_other_extensions_are_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"ends in .png, .pdf or .svg, got '{name}'"):
        save_picture(Figure(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the folder .*nowhere does not exist\. Create it first"):
        save_picture(Figure(), tmp_path / "nowhere" / "a.png")


@pytest.mark.slow
def test_matplotlib_is_loaded_only_for_drawing(tmp_path: Path) -> None:
    code = f"""
import sys, numpy as np, pcmcnet.plots as plots
assert "matplotlib" not in sys.modules
found = plots.preference_map(lambda x: np.full(x.shape[:2], 1 / 3), cells=2)
assert "matplotlib" not in sys.modules
plots.draw_preference_maps({{"uniform": found}}, {str(tmp_path / "a.png")!r})
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
