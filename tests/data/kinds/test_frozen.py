"""Frozen encoders run once per content, in memory and on disk, and are identified by their contents."""

import functools
import logging
import sqlite3
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from choice_tables import objects, picture
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.frozen import Frozen, VectorCache
from pcmcnet.errors import ConfigError

png = functools.partial(picture, size=(4, 6))


class Sentences(nn.Module):
    """A stand-in for an installed sentence model: the length of a text times its weight."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([scale, 1.0]))
        self.dropout = nn.Dropout(0.9)
        self.received: list[Any] = []

    def encode(self, texts: list[str], shift: float = 0.0) -> Any:
        assert not self.dropout.training
        self.received += texts
        return torch.tensor([[len(text), text.count(" ")] for text in texts]) * self.scale + shift

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.received += list(values)
        return values.flatten(1).float() @ torch.ones(values[0].numel(), 2) * self.scale


TEXTS = objects("A room", "Suite", "a quiet room")


def test_contents_are_encoded_in_batches() -> None:
    model = Sentences()
    vectors = Frozen(model.encode, batch_size=2).vectors("about", "text", TEXTS)
    assert vectors.tolist() == [[6, 1], [5, 0], [12, 2]]
    assert vectors.dtype == np.float32
    assert model.received == ["A room", "Suite", "a quiet room"]
    assert model.training
    assert model.dropout.training


@pytest.mark.parametrize(
    ("kind", "table", "first"),
    [
        ("multi", objects(("a", "b"), ()), ("a", "b")),
        ("datetime", np.array(["2024-05-17T09:30", "2024-01-01"], "datetime64[us]"), datetime(2024, 5, 17, 9, 30)),
        ("id", np.array([7, 2]), 7),
    ],
)
def test_other_kinds_are_passed_as_python_objects(kind: Any, table: np.ndarray, first: Any) -> None:
    received: list[Any] = []

    def encode(contents: list[Any]) -> Any:
        received.extend(contents)
        return np.zeros((len(contents), 1))

    Frozen(encode).vectors("x", kind, table)
    assert received[0] == first


def test_vectors_are_passed_as_arrays_and_pictures_as_images() -> None:
    doubled = Frozen(lambda rows: [2 * row for row in rows]).vectors("v", "vector", np.array([[1, 2]], np.float32))
    assert doubled.tolist() == [[2, 4]]
    frozen = Frozen(lambda images: [[*image.size, *image.getpixel((0, 0))] for image in images])
    assert frozen.vectors("photo", "image", objects(png(9))).tolist() == [[4, 6, 9, 9, 9]]


def test_a_module_receives_transformed_contents() -> None:
    model = Sentences(0.5)
    frozen = Frozen.pictures(model, lambda image: torch.from_numpy(np.asarray(image).copy()))
    assert frozen.vectors("photo", "image", objects(png(1))).tolist() == [[36, 72]]  # 4 x 6 pixels of 3 colours
    assert frozen.sees_contents


def test_a_module_without_transform_receives_network_inputs() -> None:
    model, table = Sentences(), objects(png(0), png(255))
    code = KINDS["image"].code.learn("photo", table)
    frozen = Frozen(model)
    assert not frozen.sees_contents
    assert frozen.vectors("photo", "image", table, code).tolist() == [[0, 0], [24, 24]]


# -- one call per content ----------------------------------------------------------------------------------------------


def test_only_the_last_request_stays_in_memory() -> None:
    model = Sentences()
    frozen = Frozen(model.encode)
    frozen.vectors("about", "text", TEXTS)
    frozen.vectors("about", "text", TEXTS[1:])  # a part of the remembered contents: these stay in memory
    frozen.vectors("about", "text", TEXTS)
    assert len(model.received) == 3
    frozen.vectors("about", "text", objects(TEXTS[1], "new"))
    assert len(frozen._last[1]) == 2
    frozen.vectors("about", "text", TEXTS)
    assert model.received[3:] == ["new", "A room", *TEXTS[2:]]


def test_a_cache_serves_later_processes(tmp_path: Path) -> None:
    first, later = Sentences(), Sentences()
    expected = Frozen(first.encode, cache=tmp_path).vectors("about", "text", TEXTS)
    vectors = Frozen(later.encode, cache=tmp_path).vectors("other", "text", objects(*TEXTS[::-1], "new"))
    assert later.received == ["new"]
    assert np.array_equal(vectors[2::-1], expected)


def test_changed_weights_make_another_encoder(tmp_path: Path) -> None:
    model = Sentences()
    frozen = Frozen(model.encode, cache=tmp_path)
    frozen.vectors("about", "text", TEXTS)
    model.scale.data.mul_(2)
    assert frozen.vectors("about", "text", TEXTS).tolist() == [[12, 2], [10, 0], [24, 4]]
    assert len(model.received) == 6
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda m: Frozen(m.encode, name="x"),
        lambda m: Frozen(functools.partial(m.encode, shift=1.0)),
        lambda m: Frozen(m),
        lambda m: Frozen(m, transform=torch.as_tensor),
        lambda m: Frozen(Sentences(2.0).encode),
        lambda m: Frozen(nn.Sequential(m)),
    ],
)
def test_any_change_to_the_encoder_changes_its_identity(change: Any) -> None:
    model = Sentences()
    assert Frozen(model.encode).identity == Frozen(Sentences().encode, batch_size=7).identity
    assert change(model).identity != Frozen(model.encode).identity


def test_the_identity_of_a_partial_includes_its_arguments(tmp_path: Path) -> None:
    shifted = Frozen(functools.partial(Sentences().encode, shift=1.0), cache=tmp_path)
    assert shifted.vectors("about", "text", TEXTS[:1]).tolist() == [[7, 2]]
    assert shifted.label == "Frozen(Sentences.encode)"


def test_vectors_in_a_damaged_cache_are_recomputed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = Frozen(Sentences().encode, cache=tmp_path).vectors("about", "text", TEXTS)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:3000])
    model = Sentences()
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        vectors = Frozen(model.encode, cache=tmp_path).vectors("about", "text", TEXTS)
    assert np.array_equal(vectors, expected)
    assert len(model.received) == 3
    fresh = Sentences()
    Frozen(fresh.encode, cache=tmp_path).vectors("about", "text", TEXTS)
    assert not fresh.received


def test_batches_encoded_before_a_failure_are_kept(tmp_path: Path) -> None:
    def fail(texts: list[str]) -> Any:
        if "Suite" in texts:
            raise MemoryError("too much")
        return [[len(text)] for text in texts]

    with pytest.raises(ConfigError, match=r"'about': Frozen\(.*fail\) was given 1 values of kind text and failed"):
        Frozen(fail, name="f", cache=tmp_path, batch_size=1).vectors("about", "text", TEXTS)
    encoded: list[str] = []
    later = Frozen(fail, name="f", cache=tmp_path)
    later.encode = lambda texts: [encoded.append(text) or [len(text)] for text in texts]
    later.vectors("about", "text", TEXTS)
    assert encoded == ["Suite", "a quiet room"]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda texts: np.zeros((1, 2)), r"all of the same size, got shape \(1, 2\)"),
        (lambda texts: np.zeros(3), r"got shape \(3,\)"),
        (lambda texts: np.zeros((3, 0)), r"got shape \(3, 0\)"),
        (lambda texts: [[1], [2, 3], [4]], "and failed"),
        (lambda texts: np.full((3, 1), np.nan), "expected finite vectors"),
    ],
)
def test_an_encoder_must_return_one_vector_per_content(encode: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Frozen(encode).vectors("about", "text", TEXTS)


def test_vectors_of_different_sizes_are_refused() -> None:
    growing = Frozen(lambda texts: np.zeros((1, len(texts[0]))), batch_size=1)
    with pytest.raises(ConfigError, match=r"'about': Frozen.* returned vectors of different sizes: \[5, 6, 12\]"):
        growing.vectors("about", "text", TEXTS)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda folder: Frozen(Sentences), "expected a torch module or a function, got the class Sentences"),
        (lambda folder: Frozen("name"), "expected a torch module or a function, got 'name'"),
        (lambda folder: Frozen(len, transform=len), "transform is not supported with a function"),
        (lambda folder: Frozen(len, batch_size=0), "batch_size must be a whole number of at least 1, got 0"),
        (lambda folder: Frozen(len, cache=folder), r"Frozen\(len\) needs a name to be cached"),
        (lambda folder: Frozen(len, name="n", cache=__file__), "the cache must be a folder"),
        (lambda folder: Frozen.sentences(len), "expected a sentence-transformers model"),
        (lambda folder: Frozen.sentences("all-MiniLM-L6-v2"), "is not a folder. Give the folder of a saved model"),
        (lambda folder: Frozen.pictures(Sentences()), "expected a transform from a picture to a tensor"),
    ],
)
def test_unsuitable_encoders_are_refused(build: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        build(tmp_path)


# -- installed models ------------------------------------------------------------------------------------------------


def test_a_sentence_model_is_read_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def build(folder: str, **options: Any) -> Sentences:
        calls.append((folder, options))
        return Sentences()

    package = ModuleType("sentence_transformers")
    package.SentenceTransformer = build  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    frozen = Frozen.sentences(tmp_path, cache=tmp_path / "cache")
    assert calls == [(str(tmp_path), {"local_files_only": True})]
    assert frozen.vectors("about", "text", TEXTS).shape == (3, 2)


@pytest.mark.parametrize(
    ("package", "build"),
    [
        ("sentence-transformers", lambda folder: Frozen.sentences(folder)),
        ("timm", lambda folder: Frozen.pictures(timm_like())),
    ],
)
def test_a_missing_package_is_named(package: str, build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(
        ConfigError, match=f"needs the package {package}, which is not installed: pip install {package}"
    ):
        build(tmp_path)


def timm_like() -> nn.Module:
    model = Sentences()
    model.pretrained_cfg = {}  # type: ignore[assignment]
    return model


def test_a_timm_model_uses_its_own_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_transform(*, size: int, is_training: bool) -> Any:
        assert not is_training
        return lambda image: torch.from_numpy(np.asarray(image.resize((size, size))).copy())

    package = ModuleType("timm")
    package.data = SimpleNamespace(  # type: ignore[attr-defined]
        create_transform=create_transform, resolve_model_data_config=lambda model: {"size": 2}
    )
    monkeypatch.setitem(sys.modules, "timm", package)
    vectors = Frozen.pictures(timm_like()).vectors("photo", "image", objects(png(1)))
    assert vectors.tolist() == [[12, 12]]


# -- Vector cache ------------------------------------------------------------------------------------------------------
# Vectors on disk are found again, also by other processes. Damaged ones count as absent.


KEYS = [bytes([k]) * 32 for k in range(3)]
VECTORS = {key: np.array([k, 0.5], np.float32) for k, key in enumerate(KEYS)}


@pytest.fixture
def stored(tmp_path: Path) -> VectorCache:
    cache = VectorCache(tmp_path / "new" / "folder", "encoder")
    cache.store(VECTORS)
    return cache


def test_vectors_are_found_again(stored: VectorCache) -> None:
    vectors = stored.find([*KEYS[1:], b"x" * 32])
    assert {key: vector.tolist() for key, vector in vectors.items()} == {KEYS[1]: [1, 0.5], KEYS[2]: [2, 0.5]}


def test_many_vectors_are_found_in_one_call(stored: VectorCache) -> None:
    many = {k.to_bytes(32): np.array([k], np.float32) for k in range(1200)}
    stored.store(many)
    assert {key: float(vector[0]) for key, vector in stored.find(list(many)).items()} == {
        key: float(vector[0]) for key, vector in many.items()
    }


def test_each_encoder_has_its_own_file(stored: VectorCache) -> None:
    assert VectorCache(stored.path.parent, "other").find(KEYS) == {}
    assert not VectorCache(stored.path.parent, "other").path.exists()


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_truncated_file_is_replaced(stored: VectorCache, size: int, caplog: pytest.LogCaptureFixture) -> None:
    stored.path.write_bytes(stored.path.read_bytes()[:size])
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        assert stored.find(KEYS) == {}
    stored.store(VECTORS)
    assert set(stored.find(KEYS)) == set(KEYS)


def test_a_file_of_another_format_is_replaced(stored: VectorCache, caplog: pytest.LogCaptureFixture) -> None:
    stored.path.write_bytes(b"something else " * 1000)
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        stored.store(VECTORS)
    assert "is damaged" in caplog.text
    stored.store(VECTORS)
    assert set(stored.find(KEYS)) == set(KEYS)


def test_a_corrupted_vector_is_ignored(stored: VectorCache) -> None:
    with sqlite3.connect(stored.path) as file:
        file.execute("UPDATE vectors SET vector = ? WHERE key = ?", (bytes(8), KEYS[1]))
    file.close()
    assert set(stored.find(KEYS)) == {KEYS[0], KEYS[2]}


def test_a_batch_is_written_completely_or_not_at_all(stored: VectorCache) -> None:
    """A process killed during a batch leaves a journal, and the journal restores the file."""
    code = (
        "import os, sqlite3, sys\n"
        "file = sqlite3.connect(sys.argv[1])\n"
        "file.execute('PRAGMA cache_size = 1')\n"  # pages reach the file before the commit
        "file.execute('BEGIN')\n"
        "file.execute('DELETE FROM vectors')\n"
        "file.executemany('INSERT INTO vectors VALUES (?, ?, 0)', [(os.urandom(32), bytes(4000)) for _ in range(50)])\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, stored.path], check=False).returncode == 9
    assert set(stored.find(KEYS)) == set(KEYS)


def test_an_unwritable_cache_folder_only_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        VectorCache(tmp_path / "file" / "folder", "encoder").store(VECTORS)
        (tmp_path / "encoder.sqlite").mkdir()
        VectorCache(tmp_path, "encoder").store(VECTORS)
    assert caplog.text.count("vectors are computed but not stored") == 2
