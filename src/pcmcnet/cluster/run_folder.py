"""The folder of a run that several machines share: any folder, or any address that fsspec knows.

Each worker has a folder of its own, filled from the shared one when it starts. The first worker copies every new
checkpoint back; it appears under its name when it is complete.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.storage.files import write_bytes
from pcmcnet.training.run_folder import checkpoints, is_run_file


class SharedFolder:
    """A run's checkpoints at some address, and a folder of this process's own."""

    def __init__(self, address: str, own: Path) -> None:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]

        try:
            self.files, self.root = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise InputError(f"{address} cannot be a shared folder: {error}.") from error
        self.own, self._copied = own, dict[Path, tuple[int, int]]()

    @classmethod
    @contextmanager
    def opened(cls, address: str) -> Iterator[SharedFolder]:
        """Yield a folder whose local part is removed at the end."""
        with tempfile.TemporaryDirectory(prefix="pcmcnet-") as own:
            yield cls(address, Path(own))

    def holds_checkpoints(self) -> bool:
        """Tell whether an unfinished run has left its state there."""
        return bool(self._found())

    def pull(self) -> None:
        """Fill this process's folder with the checkpoints that are there."""
        for path in self._found():
            place = self.own / os.path.relpath(path, self.root)
            place.parent.mkdir(exist_ok=True)
            self.files.get_file(path, str(place))

    def push(self) -> None:
        """Copy the checkpoints that are new."""
        for file in checkpoints(self.own):
            stat = file.stat()
            state = (stat.st_mtime_ns, stat.st_ino)
            if self._copied.get(file) != state:
                self._put(file)
                self._copied[file] = state

    def _put(self, file: Path) -> None:
        target = f"{self.root}/{file.relative_to(self.own).as_posix()}"
        try:
            if "file" in (self.files.protocol if isinstance(self.files.protocol, tuple) else (self.files.protocol,)):
                write_bytes(target, file.read_bytes())
                return
            folder, _, name = target.rpartition("/")
            self.files.makedirs(folder, exist_ok=True)
            beside = f"{folder}/.new.{name}"
            self.files.put_file(str(file), beside)
            self.files.mv(beside, target)
        except OSError as error:
            raise ArtifactError(f"checkpoint {target} cannot be written: {error.strerror or error}.") from error

    def _found(self) -> list[str]:
        """Return the checkpoints that are there, of the run itself or of its members."""
        if not self.files.exists(self.root):
            return []
        return [path for path in self.files.find(self.root, maxdepth=2) if is_run_file(path.rpartition("/")[2])]
