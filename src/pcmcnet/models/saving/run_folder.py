"""The folder of a run, which holds its checkpoints until the model is saved there.

    search.json                     trials of options, on parts of the table
    checkpoint.safetensors          the state of training: see :mod:`pcmcnet.training.checkpoint`
    refit-checkpoint.safetensors    likewise, of training again on both parts
    member-1/, member-2/, ...       folders of the runs of several models that are trained as one

Whatever it holds is gone once ``model.json`` is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pcmcnet.errors import InputError
from pcmcnet.storage.files import writing
from pcmcnet.training.checkpoint import CHECKPOINT

REFIT, SEARCH = f"refit-{CHECKPOINT}", "search.json"
RUN_FILES = (SEARCH, CHECKPOINT, REFIT)


@contextmanager
def run_in(folder: Path | None, *, resume: bool) -> Iterator[None]:
    """Make the folder of a run before any work is done for it, and leave none where nothing came of it."""
    if folder is None:
        yield
        return
    if checkpoints(folder) and not resume:
        raise InputError(
            f"{folder} holds an unfinished run: go on with it (resume=True, or --resume), or choose another folder."
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()


def checkpoints(folder: Path) -> list[Path]:
    """Return the files that an unfinished run, or those of the members of one, have left in its folder."""
    places = [place / name for place in (folder, *member_folders(folder)) for name in RUN_FILES]
    return [place for place in places if place.exists()]


def member_folder(folder: Path, number: int) -> Path:
    """Return the folder for the run of one of several models that are trained as one, numbered from 1."""
    return folder / f"member-{number}"


def member_folders(folder: Path) -> list[Path]:
    """Return such folders that are there."""
    found = folder.glob("member-*") if folder.is_dir() else []
    return [place for place in found if place.is_dir() and place.name.removeprefix("member-").isdecimal()]
