"""A full disk gives one clear line with a remedy, and existing files are unchanged.

A limit on the size of a file simulates the full disk: the system then refuses to write as it does without space. If
the tests may mount a file system, a small one is really full.
"""

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pcmcnet.models import load

SPACE = "Free some space or choose another location, then try again; existing files are unchanged"
FIT = ["--set=hidden=4", "--set=epochs=4", "--set=dropout=0.2", "--set=batch_size=24", "--set=members=1"]


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(server: Any, table: Path, roles: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "model"
    assert server.run("fit", table, *roles, *FIT, "-o", folder).status == 0
    return folder


@pytest.mark.parametrize(
    ("options", "file"),
    [
        pytest.param(["--set=weight_decay=0.5"], "checkpoint {}/checkpoint.safetensors", id="checkpoint"),
        pytest.param([], "{}/search.json", id="search", marks=pytest.mark.slow),
    ],
)
def test_no_space_for_a_checkpoint_is_one_line_and_can_be_retried(
    options: list[str], file: str, server: Any, table: Path, roles: list[str], tmp_path: Path
) -> None:
    words = ["fit", table, *roles, *FIT, *options, "-o"]
    ended = server.run(*words, tmp_path / "model", limit=500)
    assert ended.message.startswith(f"{file.format(tmp_path / 'model')} cannot be written: ")
    assert SPACE in ended.message
    assert listing(tmp_path) == {}
    assert server.run(*words, tmp_path / "undisturbed").status == 0
    assert server.run(*words, tmp_path / "model", "--resume").status == 0
    assert weights(tmp_path / "model") == weights(tmp_path / "undisturbed")


def test_a_disk_that_fills_up_keeps_the_last_good_checkpoint(
    server: Any, undisturbed: Path, table: Path, roles: list[str], tmp_path: Path
) -> None:
    """The disk is full from the third checkpoint on. With free space, the run resumes from the second."""
    full = """
        import errno, os
        from pathlib import Path

        real, count = Path.write_bytes, [0]

        def write(path, content):
            if path.name.endswith("checkpoint.safetensors"):
                count[0] += 1
                if count[0] >= 3:
                    real(path, content[: len(content) // 2])
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return real(path, content)

        Path.write_bytes = write
    """
    words = ["fit", table, *roles, *FIT, "-o", tmp_path / "model"]
    ended = server.run(*words, before=full, every_state=True)
    assert "cannot be written: No space left on device. Free some space" in ended.message
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["checkpoint.safetensors", "search.json"]
    again = server.run(*words, "--resume")
    assert "resuming after epoch 2" in again.log
    assert weights(tmp_path / "model") == weights(undisturbed)


def test_no_space_for_the_model_keeps_the_run_for_later(
    server: Any, undisturbed: Path, table: Path, roles: list[str], tmp_path: Path
) -> None:
    full = """
        import errno, os
        from pathlib import Path

        real = Path.write_bytes

        def write(path, content):
            if path.name.endswith("README.md"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return real(path, content)

        Path.write_bytes = write
    """
    words = ["fit", table, *roles, *FIT, "-o", tmp_path / "model"]
    ended = server.run(*words, before=full)
    assert ended.message.startswith(f"{tmp_path / 'model'} cannot be written: No space left on device. ")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["checkpoint.safetensors", "search.json"]
    assert server.run(*words, "--resume").status == 0
    assert weights(tmp_path / "model") == weights(undisturbed)


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_no_space_for_a_prediction_keeps_the_earlier_one(
    ending: str, server: Any, model: Path, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / f"out.{ending}"
    out.write_bytes(b"an earlier one")
    ended = server.run("predict", model, table, "-o", out, limit=600)
    assert ended.message.startswith(f"{out} cannot be written: File too large. {SPACE}")
    assert listing(tmp_path) == {out.name: b"an earlier one"}
    assert server.run("predict", model, table, "-o", out).status == 0


def test_no_space_for_a_report_ends_in_one_line(server: Any, model: Path, table: Path, tmp_path: Path) -> None:
    parts = ["importance", "elasticities", "context", "axioms", "examples"]
    words = ["explain", model, table, "-o", tmp_path / "report", "--baseline", "none", "--sets", 10]
    words += [word for part in parts for word in ("--skip", part)]
    ended = server.run(*words, limit=2_000)
    assert "report.html cannot be written: File too large. Free some space" in ended.message
    assert listing(tmp_path) == {}


@pytest.mark.slow
def test_no_space_for_a_search_keeps_the_finished_trials(
    server: Any, table: Path, roles: list[str], tmp_path: Path
) -> None:
    words = ["tune", table, *roles, "--search", "lr=log:1e-3:1e-1", "--set=hidden=2", "--set=epochs=1"]
    words += ["-o", tmp_path / "study"]
    assert server.run(*words, "--trials", 2).status == 0
    model_before = (tmp_path / "study" / "model" / "model.json").read_bytes()
    ended = server.run(*words, "--trials", 60, limit=(tmp_path / "study" / "study.db").stat().st_size)
    assert "study.db cannot be written" in ended.message
    assert (
        "Finished trials are stored: check disk space and permissions, then run the same command again" in ended.message
    )
    assert (tmp_path / "study" / "model" / "model.json").read_bytes() == model_before
    again = server.run(*words, "--trials", 3)
    assert again.status == 0, again.log
    assert "trial 2/3: from an earlier run" in again.log


def test_no_space_for_a_comparison_keeps_the_finished_cells(
    server: Any, table: Path, roles: list[str], tmp_path: Path
) -> None:
    words = ["compare", table, *roles, "--models", "uniform", "--folds", 2, "-o", tmp_path / "out"]
    ended = server.run(*words, limit=700)
    assert "cannot be written: File too large. Free some space" in ended.message
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]
    assert server.run(*words).status == 0


# -- a small file system -------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 128 KiB, if the tests may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)]
    done = None if mount is None else subprocess.run([mount, *options], check=False, capture_output=True)
    if done is None or done.returncode:
        pytest.skip("a small file system cannot be mounted here: it takes the rights of root")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_really_full_disk_gives_the_same_error(
    server: Any, undisturbed: Path, table: Path, roles: list[str], small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(1024))
            file.flush()
    words = ["fit", table, *roles, *FIT, "-o", small_disk / "model"]
    assert "cannot be written: No space left on device. Free some space" in server.run(*words).message
    ballast.unlink()
    ended = server.run(*words, "--resume")
    assert ended.status == 0, ended.log
    assert weights(small_disk / "model") == weights(undisturbed)
    assert load(small_disk / "model").num_parameters > 0
    out = small_disk / "out.parquet"
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(1024))
            file.flush()
    assert "cannot be written: No space left on device" in server.run("predict", undisturbed, table, "-o", out).message
    assert not out.exists()


def test_the_file_size_limit_raises_an_error() -> None:
    """Python ignores SIGXFSZ, so the refusal of the system becomes an error. These tests depend on it."""
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
