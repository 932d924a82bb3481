"""Pictures from paths and bytes: errors with their row, sizes and colours."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from choice_tables import objects, picture, read_column
from pcmcnet.data import ChoiceData
from pcmcnet.data.files.write_files import write_table
from pcmcnet.data.kinds.image import ImageCode
from pcmcnet.errors import SchemaError

png = partial(picture, size=(3, 2))
read = partial(read_column, "photo", "image")


def test_equal_pictures_in_several_files_are_stored_once(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2), ("copy of a", 1)):
        (tmp_path / f"{name}.png").write_bytes(png(value))
    paths = [str(tmp_path / f"{name}.png") for name in ("a", "b", "copy of a", "a")]
    by_path, by_bytes = read(paths), read([png(1), png(2), png(1), png(1)])
    for column in (by_path, by_bytes):
        assert column.codes.tolist() == [0, 1, 0, 0]
        assert column.table.tolist() == [png(1), png(2)]


def test_a_missing_file_is_refused_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1))
    paths = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    where = r"column 'photo', row 1 \(choice set A\): the picture .*b\.png cannot be read: No such file or directory\."
    with pytest.raises(SchemaError, match=where):
        read(paths)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(
        SchemaError, match=r"row 0 \(choice set A\): the picture .*pipe\.png cannot be read: it is not a regular file"
    ):
        read([str(tmp_path / "pipe.png")])


@pytest.mark.parametrize("form", ["csv", "parquet", "folder"])
def test_paths_are_relative_to_the_folder_of_the_table(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working folder has another picture of that name. Absolute paths are unchanged."""
    home, work = tmp_path / "home", tmp_path / "work"
    for folder, value in ((home, 1), (work, 2)):
        (folder / "photos").mkdir(parents=True)
        (folder / "photos" / "a.png").write_bytes(png(value))
    monkeypatch.chdir(work)
    table = pa.table({"id": ["A", "A"], "photo": ["photos/a.png", str(work / "photos" / "a.png")]})
    place = home / {"csv": "t.csv", "parquet": "t.parquet", "folder": "."}[form]
    write_table(table, home / "t.parquet" if form == "folder" else place)
    roles: dict[str, Any] = {"choice_set": "id", "features": ["photo"], "kinds": {"photo": "image"}}
    data = ChoiceData.from_long(place, **roles)
    assert data.features["photo"].plain().tolist() == [png(1), png(2)]
    assert read(["photos/a.png"]).table.tolist() == [png(2)]
    (home / "photos" / "a.png").unlink()
    with pytest.raises(SchemaError, match=r"row 0 .*Paths are relative to the table's folder, .*home"):
        ChoiceData.from_long(place, **roles)
    with pytest.raises(SchemaError, match="Paths are relative to the working folder"):
        read(["photos/b.png"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no picture", "expected a picture, got 10 bytes of another format"),
        (b"", "expected a picture, got 0 bytes of another format"),
        (png(3, size=(40, 40))[:45], r"the picture is damaged \("),
    ],
)
def test_a_broken_picture_is_refused_with_its_row(content: bytes, message: str, tmp_path: Path) -> None:
    where = rf"column 'photo', row 1 \(choice set A\): {message}"
    with pytest.raises(SchemaError, match=where):
        read([png(1), content])
    (tmp_path / "bad.png").write_bytes(content)
    with pytest.raises(SchemaError, match=rf"row 0 \(choice set A\): .*bad\.png: {message}"):
        read([str(tmp_path / "bad.png")])


def test_values_that_are_neither_paths_nor_bytes_are_refused() -> None:
    with pytest.raises(SchemaError, match="has type int64: expected paths of pictures, or their bytes"):
        read([1, 2])


def test_missing_pictures_are_allowed_only_if_declared() -> None:
    assert read(pa.array([png(1), None]), missing="indicator").codes.tolist() == [0, -1]
    with pytest.raises(SchemaError, match="expected a value of kind image, got nothing"):
        read(pa.array([png(1), None]))


def test_grey_pictures_of_one_size_are_unchanged() -> None:
    code = ImageCode.learn("photo", objects(png(7), png(9)))
    assert code.shape == (1, 2, 3)
    assert code.prepare(objects(png(7))).tolist() == [[[[7, 7, 7], [7, 7, 7]]]]


def test_mixed_pictures_become_64_by_64_with_three_channels() -> None:
    code = ImageCode.learn("photo", objects(png(7), png(9, mode="RGB", size=(90, 80))))
    assert code.shape == (3, 64, 64)
    pixels = code.prepare(objects(png(7), png(9, mode="RGB")))
    assert pixels.dtype == np.uint8
    assert (pixels[0] == 7).all()
    assert pixels[1].reshape(3, -1).max(1).tolist() == [9, 0, 0]


def test_new_pictures_are_resized_to_the_training_size() -> None:
    code = ImageCode.learn("photo", objects(png(7)))
    assert code.prepare(objects(png(5, size=(30, 10)))).shape == (1, 1, 2, 3)


def test_large_pictures_are_reduced_to_64_pixels_a_side() -> None:
    assert ImageCode.learn("photo", objects(png(7, size=(100, 20)))).shape == (1, 20, 64)
