"""Vectors on disk: found again, by other processes too; damaged ones are as if they were not there."""

import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pcmcnet.data.contents.vector_cache import VectorCache

KEYS = [bytes([k]) * 32 for k in range(3)]
VECTORS = {key: np.array([k, 0.5], np.float32) for k, key in enumerate(KEYS)}


@pytest.fixture
def vault(tmp_path: Path) -> VectorCache:
    found = VectorCache(tmp_path / "new" / "folder", "encoder")
    found.keep(VECTORS)
    return found


def test_vectors_are_found_again(vault: VectorCache) -> None:
    found = vault.find([*KEYS[1:], b"x" * 32])
    assert {key: vector.tolist() for key, vector in found.items()} == {KEYS[1]: [1, 0.5], KEYS[2]: [2, 0.5]}


def test_many_are_asked_for_at_once(vault: VectorCache) -> None:
    many = {k.to_bytes(32): np.array([k], np.float32) for k in range(1200)}
    vault.keep(many)
    assert {key: float(vector[0]) for key, vector in vault.find(list(many)).items()} == {
        key: float(vector[0]) for key, vector in many.items()
    }


def test_each_encoder_has_a_file_of_its_own(vault: VectorCache) -> None:
    assert VectorCache(vault.path.parent, "other").find(KEYS) == {}
    assert not VectorCache(vault.path.parent, "other").path.exists()


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_torn_file_is_written_anew(vault: VectorCache, size: int, caplog: pytest.LogCaptureFixture) -> None:
    vault.path.write_bytes(vault.path.read_bytes()[:size])
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        assert vault.find(KEYS) == {}
    vault.keep(VECTORS)
    assert set(vault.find(KEYS)) == set(KEYS)


def test_a_file_of_something_else_is_written_anew(vault: VectorCache, caplog: pytest.LogCaptureFixture) -> None:
    vault.path.write_bytes(b"something else " * 1000)
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        vault.keep(VECTORS)
    assert "is damaged" in caplog.text
    vault.keep(VECTORS)
    assert set(vault.find(KEYS)) == set(KEYS)


def test_an_altered_vector_is_not_believed(vault: VectorCache) -> None:
    with sqlite3.connect(vault.path) as file:
        file.execute("UPDATE vectors SET vector = ? WHERE key = ?", (bytes(8), KEYS[1]))
    file.close()
    assert set(vault.find(KEYS)) == {KEYS[0], KEYS[2]}


def test_a_batch_is_written_whole_or_not_at_all(vault: VectorCache) -> None:
    """A process killed within a batch leaves a journal, from which the file is as it was before."""
    code = (
        "import os, sqlite3, sys\n"
        "file = sqlite3.connect(sys.argv[1])\n"
        "file.execute('PRAGMA cache_size = 1')\n"  # so that pages go to the file before the end
        "file.execute('BEGIN')\n"
        "file.execute('DELETE FROM vectors')\n"
        "file.executemany('INSERT INTO vectors VALUES (?, ?, 0)', [(os.urandom(32), bytes(4000)) for _ in range(50)])\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, vault.path], check=False).returncode == 9
    assert set(vault.find(KEYS)) == set(KEYS)


def test_a_place_that_cannot_be_written_is_told_and_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        VectorCache(tmp_path / "file" / "folder", "encoder").keep(VECTORS)
        (tmp_path / "encoder.sqlite").mkdir()
        VectorCache(tmp_path, "encoder").keep(VECTORS)
    assert caplog.text.count("vectors are computed and not kept") == 2
