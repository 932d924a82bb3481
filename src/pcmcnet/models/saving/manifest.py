"""The manifest of a saved model, ``model.json``: what was saved, by which versions, size and hash of each file.

Its own hash, ``sha256``, stands for all files but the card. A folder whose files differ from what it says is refused.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcmcnet.errors import ArtifactError, ConfigError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.fitted import record_to_dict
from pcmcnet.models.saving.file_checks import LARGEST, read_file
from pcmcnet.storage.files import json_bytes
from pcmcnet.storage.versions import package_version
from pcmcnet.training.run_folder import checkpoints

FORMAT = 2
MANIFEST = "model.json"
CARD = "README.md"
_LONGEST = 300  # letters of what a message says about a file's contents


def manifest_of(model: ChoiceModel, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what ``model.json`` says of a fitted model and of its files."""
    manifest = {
        "format": FORMAT,
        "model": model.name,
        "fit": fit_entries(model),
        "versions": _versions(),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "sizes": {name: len(content) for name, content in files.items()},
    }
    manifest["sha256"] = digest_of(json.loads(json_bytes(manifest)))
    return manifest


def fit_entries(model: ChoiceModel) -> dict[str, Any]:
    """Return the facts of the training table and of the fit, by the types of their fields."""
    return {"table": record_to_dict(model.table_), "record": record_to_dict(model.record_)}


def _versions() -> dict[str, str]:
    names = ("pcmcnet", "torch", "numpy", "pyarrow", "safetensors")
    return {"python": platform.python_version()} | {name: package_version(name) for name in names}


def read_manifest(path: Path, digest: str | None) -> dict[str, Any]:
    """Read and check ``model.json``; ``digest`` is its SHA-256, where that was given."""
    if not path.is_dir():
        raise ArtifactError(f"{path}: no such folder. Expected a folder written by fit or save.")
    if not (path / MANIFEST).exists():
        if checkpoints(path):
            raise ArtifactError(f"{path} holds an unfinished run, not a model yet: go on with fit --resume.")
        raise ArtifactError(f"{path} is not a saved model: {MANIFEST} is missing.")
    content = read_file(path, MANIFEST)
    _require_digest(path, content, digest)
    try:
        manifest = parsed(content)
        number = manifest["format"]
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError("the format is a whole number from 1 on")
        kinds = {"model": str, "fit": dict, "files": dict, "sizes": dict, "versions": dict} if number == FORMAT else {}
        if not all(isinstance(manifest[entry], kind) for entry, kind in kinds.items()):
            raise TypeError("entries of the wrong kind")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{path / MANIFEST} is damaged ({brief(error)}): save the model again.") from error
    if number != FORMAT:
        remedy = "upgrade pcmcnet" if number > FORMAT else "fit the model again"
        raise ArtifactError(
            f"{path} has format {brief(number)}, and this version of pcmcnet reads format {FORMAT}: {remedy}."
        )
    if manifest.pop("sha256", None) != digest_of(manifest):
        raise ArtifactError(f"{path / MANIFEST} is altered since it was saved. Save the model again.")
    return dict(manifest)


def _require_digest(path: Path, content: bytes, digest: str | None) -> None:
    """Refuse another manifest than the one that was meant."""
    if digest is None:
        return
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise ConfigError(f"digest: expected the 64 hexadecimal digits that sha256sum prints, got {digest!r}.")
    found = hashlib.sha256(content).hexdigest()
    if found != digest.lower():
        raise ArtifactError(f"{path} is another model than was asked for: the SHA-256 of its {MANIFEST} is {found}.")


def checked_files(path: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """Read all files that the manifest names but the card, and check them against their hashes."""
    files: dict[str, bytes] = {}
    room, sizes = LARGEST, manifest.get("sizes", {})
    for name, digest in manifest["files"].items():
        if name == CARD:
            continue
        files[name] = read_file(path, name, sizes.get(name), room=room)
        room -= len(files[name])
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ArtifactError(f"file {name} is truncated or altered since it was saved. Save the model again.")
    return files


def digest_of(manifest: Mapping[str, Any]) -> str:
    """Return the hash of all entries, which the manifest itself keeps."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def parsed(content: bytes) -> Any:
    """Read JSON whose text can be written again: half a character, which JSON can spell, cannot."""
    value = json.loads(content)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def brief(found: Any) -> str:
    """Write in one line of bounded length what may hold anything out of a folder."""
    line = " ".join(str(found).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
