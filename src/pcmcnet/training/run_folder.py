"""The folder of a run, which holds the checkpoints until the model is saved there.

    search.json                     losses of the trials that choose options
    checkpoint.safetensors          state of training: see :mod:`pcmcnet.training.checkpoint`
    refit-checkpoint.safetensors    state of the second training run, on the training and validation data
    network-2-checkpoint...         states of further networks, which are averaged with the first
    member-1/, member-2/, ...       run folders of the members of an ensemble

Once ``model.json`` is written, the other files are obsolete and are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.storage import differences, explain_write_errors

CHECKPOINT = "checkpoint.safetensors"  # default file name
REFIT, SEARCH = f"refit-{CHECKPOINT}", "search.json"
_RUN_FILE = re.compile(rf"{SEARCH}|(network-\d+-)?(refit-)?{CHECKPOINT}".replace(".", r"\."))


@contextmanager
def open_run_folder(folder: Path | None, *, resume: bool) -> Iterator[None]:
    """Create the folder of a run before the block, and remove the folder after the block if it is empty."""
    if folder is None:
        yield
        return
    if checkpoint_files(folder) and not resume:
        raise InputError(
            f"{folder} holds an unfinished run: resume it (resume=True, or --resume), or choose another folder."
        )
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # rmdir fails unless the folder is empty
            folder.rmdir()


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the files of an unfinished run in a folder, including the files of ensemble members."""
    folders = [path for path in (folder, *member_folders(folder)) if path.is_dir()]
    return [file for path in folders for file in sorted(path.iterdir()) if is_run_file(file.name)]


def is_run_file(name: str) -> bool:
    """Return True if a file with this name belongs to an unfinished run."""
    return _RUN_FILE.fullmatch(name) is not None


def network_checkpoint_file(file: str, number: int) -> str:
    """Return the checkpoint name of the second or a later network, given the name of the first network's checkpoint."""
    return f"network-{number}-{file}"


def member_folder(folder: Path, number: int) -> Path:
    """Return the run folder of an ensemble member. Members are numbered from 1."""
    return folder / f"member-{number}"


def member_folders(folder: Path) -> list[Path]:
    """Return the existing run folders of ensemble members."""
    paths = folder.glob("member-*") if folder.is_dir() else []
    return [path for path in paths if path.is_dir() and path.name.removeprefix("member-").isdecimal()]


def require_same_run(path: Path, saved: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise ArtifactError if a file was written by a run with a different identity."""
    if saved != ours:
        raise ArtifactError(
            f"{path} belongs to another run; differences: {', '.join(differences(saved, ours))}. "
            f"Resume with the same table, options and seed, or choose another folder."
        )
