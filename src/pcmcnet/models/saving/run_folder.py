"""The folder of a run, which holds its checkpoints until the model is saved there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pcmcnet.errors import InputError
from pcmcnet.storage.files import writing
from pcmcnet.training.checkpoint import checkpoints


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
