"""The state of a comparison on disk: what was measured survives an interruption.

    cells/plan.json                      table, folds, seed, ...: what all cells have in common
    cells/<model>-<hash>-<fold>.safetensors   one measured cell, written atomically once it is complete

A cell is keyed by the model's class and options, so models may be added, removed and renamed between two runs. A
folder with another plan is refused. A cell that is damaged counts as missing. Reading executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pcmcnet.arrays import Floats
from pcmcnet.errors import ArtifactError
from pcmcnet.evaluation.cross_validation import Cell
from pcmcnet.storage.diff import differences
from pcmcnet.storage.files import parse_json, write_bytes

log = logging.getLogger("pcmcnet")


@dataclass(frozen=True)
class CellStore:
    """The folder of a comparison; ``plan`` is anything JSON that all its cells depend on."""

    folder: Path
    plan: Mapping[str, Any]

    def open(self) -> None:
        """Make the folder, or check that the one there holds this comparison."""
        path = self.folder / "cells" / "plan.json"
        if path.exists():
            self._require_same(path)
            return
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ArtifactError(f"{self.folder} exists and holds no comparison: choose another folder, or empty it.")
        self.write_file("cells/plan.json", json.dumps(self.plan, indent=1) + "\n")

    def read(self, model: Mapping[str, Any], fold: int) -> Cell | None:
        """Return the cell of a model's identity and a fold, if it has been measured."""
        path = self._path(model, fold)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                metrics = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            text = metadata["cell"]
            entries = parse_json(text)
            if metadata["sha256"] != _digest(metrics, text) or entries["identity"] != self._identity(model, fold):
                raise ValueError("altered")
            cost = {**entries["cost"], "caveats": tuple(entries["cost"]["caveats"])}
            return Cell({name: metrics[name] for name in entries["metrics"]}, **cost)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s is damaged (%s): it is measured again", path, error)
            return None

    def write(self, model: Mapping[str, Any], fold: int, cell: Cell) -> None:
        """Keep a measured cell."""
        names = ("fit_seconds", "predict_seconds", "parameters", "where", "caveats")
        cost = {name: getattr(cell, name) for name in names}
        text = json.dumps({"identity": self._identity(model, fold), "metrics": list(cell.metrics), "cost": cost})
        content = save(cell.metrics, {"cell": text, "sha256": _digest(cell.metrics, text)})
        self._write(self._path(model, fold), content)

    def write_file(self, name: str, text: str) -> Path:
        """Write a text file of the folder, whole or not at all."""
        return self._write(self.folder / name, text.encode())

    def _write(self, path: Path, content: bytes) -> Path:
        write_bytes(path, content)
        return path

    def _path(self, model: Mapping[str, Any], fold: int) -> Path:
        digest = hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()
        return self.folder / "cells" / f"{model['model']}-{digest[:16]}-{fold + 1}.safetensors"

    def _identity(self, model: Mapping[str, Any], fold: int) -> Any:
        """What a cell must be of, as JSON gives it back."""
        return json.loads(json.dumps({"plan": self.plan, "model": model, "fold": fold}))

    def _require_same(self, path: Path) -> None:
        try:
            theirs = dict(parse_json(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise ArtifactError(f"{path} is damaged ({error}): choose another folder, or remove this one.") from error
        ours = json.loads(json.dumps(self.plan))
        if theirs != ours:
            raise ArtifactError(
                f"{self.folder} holds another comparison; what differs: {', '.join(differences(theirs, ours))}. "
                f"Repeat it with the same table and options, or choose another folder."
            )


def _digest(metrics: Mapping[str, Floats], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(metrics):
        digest.update(f"{name}{metrics[name].shape}".encode())
        digest.update(metrics[name].tobytes())
    return digest.hexdigest()
