"""The folder of a run, which holds its checkpoints until the model is saved there.

    search.json                     trials of options, on parts of the table
    checkpoint.safetensors          the state of training: see :mod:`pcmcnet.training.checkpoint`
    refit-checkpoint.safetensors    likewise, of training again on both parts
    network-2-checkpoint...         likewise, of further networks that are averaged with the first
    member-1/, member-2/, ...       folders of the runs of several models that are trained as one

Once ``model.json`` is there, whatever else it holds is of no use any more, and is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pcmcnet.errors import InputError
from pcmcnet.storage import explain_write_errors
from pcmcnet.training.checkpoint import CHECKPOINT

REFIT, SEARCH = f"refit-{CHECKPOINT}", "search.json"
_RUN_FILE = re.compile(rf"{SEARCH}|(network-\d+-)?(refit-)?{CHECKPOINT}".replace(".", r"\."))


@contextmanager
def open_run_folder(folder: Path | None, *, resume: bool) -> Iterator[None]:
    """Make the folder of a run before any work is done for it, and leave none where nothing came of it."""
    if folder is None:
        yield
        return
    if checkpoint_files(folder) and not resume:
        raise InputError(
            f"{folder} holds an unfinished run: go on with it (resume=True, or --resume), or choose another folder."
        )
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # it holds something
            folder.rmdir()


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the files that an unfinished run, or those of the members of one, have left in its folder."""
    folders = [place for place in (folder, *member_folders(folder)) if place.is_dir()]
    return [file for place in folders for file in sorted(place.iterdir()) if is_run_file(file.name)]


def is_run_file(name: str) -> bool:
    """Tell the files of a run that is under way."""
    return _RUN_FILE.fullmatch(name) is not None


def network_checkpoint_file(file: str, number: int) -> str:
    """Return the file for the state of a further network beside that of the first, numbered from 2."""
    return f"network-{number}-{file}"


def member_folder(folder: Path, number: int) -> Path:
    """Return the folder for the run of one of several models that are trained as one, numbered from 1."""
    return folder / f"member-{number}"


def member_folders(folder: Path) -> list[Path]:
    """Return such folders that are there."""
    found = folder.glob("member-*") if folder.is_dir() else []
    return [place for place in found if place.is_dir() and place.name.removeprefix("member-").isdecimal()]
