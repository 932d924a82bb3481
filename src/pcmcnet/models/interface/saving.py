"""Saved models: the folder of a run, the manifest, the checks of files, and loading without executing anything."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pcmcnet.data import Schema
from pcmcnet.data.describe import require_description
from pcmcnet.errors import ArtifactError, ConfigError, did_you_mean, printable
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.encoders import require_encoders
from pcmcnet.models.interface.fitted import FittedModel, TrainingTable, record_from_dict, record_to_dict
from pcmcnet.models.interface.options import option_names
from pcmcnet.storage import (
    as_path,
    explain_write_errors,
    flush_to_disk,
    json_bytes,
    package_version,
    sole_writer,
    write_bytes,
)
from pcmcnet.training.run_folder import checkpoint_files, is_run_file, member_folders

# -- The files of a saved model's folder: which of them are read, and how large they may be ----------------------------
# A folder may come from anyone. So only plain files inside it are opened: no pipe or device, which may never end, and
# no link that leads out of it. None is read beyond the size that was noted when it was saved, or beyond the limits
# below.

MAX_JSON_BYTES = 64 << 20  # bytes; once read, they may take 25 times as many
LARGEST = 8 << 30  # bytes of all files together
# A pipe that took a file's place after it was looked at would be waited for, and a link followed.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def read_file(folder: Path, name: str, size: Any = None, *, room: int = LARGEST) -> bytes:
    """Read a file of the folder, of ``size`` bytes where that was noted, and of no more than ``room``."""
    if Path(name).name != name:
        raise ArtifactError(f"{folder}: the file {name!r} is named, which is not a plain file name.")
    try:
        place = (folder / name).resolve(strict=True)
        if not place.is_relative_to(folder.resolve()):
            raise ArtifactError(
                f"{folder}: {name} is a link that leads out of the folder: copy the model with the files that its "
                f"links name (cp -rL)."
            )
        found = place.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ArtifactError(f"{folder}: {name} is no plain file.")
        _require_size(folder, name, found.st_size, room)
        if size not in (None, found.st_size):
            raise ArtifactError(
                f"{folder}: file {name} is truncated or altered since it was saved. Save the model again."
            )
        with os.fdopen(os.open(place, _FLAGS), "rb") as file:
            return file.read(found.st_size + 1)  # one that grew does not fit its hash
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ArtifactError):
            raise
        why = getattr(error, "strerror", None) or error
        raise ArtifactError(f"{folder}: file {name} is missing or unreadable ({why}).") from error


def require_sizes(folder: Path, files: Mapping[str, bytes]) -> None:
    """Refuse to save what would be refused when it is read."""
    room = LARGEST
    for name, content in files.items():
        _require_size(folder, name, len(content), room)
        room -= len(content)


def _require_size(folder: Path, name: str, size: int, room: int) -> None:
    most = min(MAX_JSON_BYTES, room) if name.endswith(".json") else room
    if size > most:
        limit = f"{most >> 20:,} MiB" if most < room else f"{LARGEST >> 30} GiB for all files together"
        raise ArtifactError(f"{folder}: file {name} has {size:,} bytes, and at most {limit} are saved and read.")


# -- Manifest ----------------------------------------------------------------------------------------------------------
# The manifest of a saved model, `model.json`: what was saved, by which versions, size and hash of each file.
#
# Its own hash, `sha256`, stands for all files but the card. A folder whose files differ from what it says is refused.

FORMAT = 2
MANIFEST = "model.json"
CARD = "README.md"
_LONGEST = 300  # letters of what a message says about a file's contents


def manifest_of(model: ChoiceModel, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what ``model.json`` says of a fitted model and of its files."""
    packages = ("pcmcnet", "torch", "numpy", "pyarrow", "safetensors")
    manifest = {
        "format": FORMAT,
        "model": model.name,
        "fit": fit_entries(model),
        "versions": {"python": platform.python_version(), **{name: package_version(name) for name in packages}},
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "sizes": {name: len(content) for name, content in files.items()},
    }
    manifest["sha256"] = manifest_digest(json.loads(json_bytes(manifest)))
    return manifest


def fit_entries(model: ChoiceModel) -> dict[str, Any]:
    """Return the facts of the training table and of the fit, by the types of their fields."""
    return {"table": record_to_dict(model.table_), "record": record_to_dict(model.record_)}


def read_manifest(path: Path, digest: str | None) -> dict[str, Any]:
    """Read and check ``model.json``; ``digest`` is its SHA-256, where that was given."""
    if not path.is_dir():
        raise ArtifactError(f"{path}: no such folder. Expected a folder written by fit or save.")
    if not (path / MANIFEST).exists():
        if checkpoint_files(path):
            raise ArtifactError(f"{path} holds an unfinished run, not a model yet: go on with fit --resume.")
        raise ArtifactError(f"{path} is not a saved model: {MANIFEST} is missing.")
    content = read_file(path, MANIFEST)
    _require_digest(path, content, digest)
    try:
        manifest = parse_saved_json(content)
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
    if manifest.pop("sha256", None) != manifest_digest(manifest):
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


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return the hash of all entries, which the manifest itself keeps."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def parse_saved_json(content: bytes) -> Any:
    """Read JSON whose text can be written again: half a character, which JSON can spell, cannot."""
    value = json.loads(content)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def brief(found: Any) -> str:
    """Write in one line of bounded length what may hold anything out of a folder."""
    line = " ".join(str(found).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


# -- A fitted model on disk: a folder that a person can read, and that executes nothing when read ----------------------
#   model.json            kind of model, format, versions, the training table's fingerprint, size and hash of each file
#     config.json           options
#     schema.json           roles of the training table's columns
#     history.json          one entry per epoch
#     encoder.json, weights.safetensors                           networks
#     design.json, estimates.json, estimates.safetensors          logit models; classes.json for latent classes
#     items.json, weights.safetensors                             models of items
#     inputs.json, forest.skops                                   random forest
#     member-1-weights.safetensors, ...                           the models inside a wrapper, each with all its files
#     README.md             a card in plain words, which may be edited
#
# `model.json` is written last: a folder without it is not a model yet. Its own hash stands for all files but the card.

_FILES = ("config.json", "schema.json", "history.json", "encoder.json", "weights.safetensors", CARD, MANIFEST)
_MEMBER = re.compile(r"member-\d+-[\w.-]+")  # a file of a model inside a wrapper


def save_artifact(model: ChoiceModel, folder: Path) -> Path:
    """Write a fitted model; refuses a folder that holds anything but its own finished run."""
    model.require_fitted()
    with sole_writer(folder):
        require_free_folder(folder)
        files = {**state_files(model), CARD: _card(model, folder.name).encode()}
        require_sizes(folder, files)
        _write_all(folder, {**files, MANIFEST: json_bytes(manifest_of(model, files))})
    return folder


def state_files(model: ChoiceModel) -> dict[str, bytes]:
    """Return the files of a fitted model, apart from its manifest; :func:`restore_model` reads them."""
    return {
        "config.json": json_bytes(asdict(model.config)),
        "schema.json": json_bytes(model.schema.to_dict()),
        "history.json": json_bytes(model.history),
        **model._files(),
    }


def restore_model(
    name: str, fit: Mapping[str, Any], files: Mapping[str, bytes], extras: Mapping[str, Any] | None = None
) -> ChoiceModel:
    """Return a fitted model of the kind with that name; raises what readers meet in damaged files.

    Parameters
    ----------
    name
        Name of the model in the registry.
    fit
        What :func:`fit_entries` returned.
    files
        What :func:`state_files` returned.
    extras
        What no option can hold, such as modules for columns.
    """
    from pcmcnet.models import KINDS

    # 1. The model with its options.
    options, known = parse_saved_json(files["config.json"]), option_names(KINDS[name].config_class)
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(f"option {unknown[0]!r} is unknown")
    model = KINDS[name](**options, **(extras or {}))
    # 2. What it was fitted to.
    schema = Schema.from_dict(parse_saved_json(files["schema.json"]))
    table = record_from_dict(TrainingTable, fit["table"])
    require_description(table.description, schema)
    history = json.loads(files["history.json"])
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise TypeError("the history is not a list of epochs")
    # 3. What it learnt.
    record = record_from_dict(model.record_class, fit["record"])
    state = replace(model._restore(files, record, table), record=record, history=history)
    model.fitted_ = FittedModel(schema=schema, table=table, state=state)
    return model


def require_free_folder(folder: Path) -> None:
    """Refuse to save where something else is; a folder with what a run begins with, and no model, is a run's."""
    above = next((parent for parent in folder.absolute().parents if parent.exists()), None)
    if above is not None and not above.is_dir():
        raise ArtifactError(f"{folder} cannot be written: {above} is a file, not a folder.")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if (folder / MANIFEST).exists():
        raise ArtifactError(f"{folder} holds a finished model already: choose another folder, or remove it first.")
    half = any(is_run_file(_meant(path)) for path in folder.glob(".*"))
    begun = half or checkpoint_files(folder) or member_folders(folder)
    if not folder.is_dir() or not begun or not all(map(_is_own, folder.iterdir())):
        raise ArtifactError(f"{folder} exists and is not empty: choose another folder, or remove it first.")


def _is_own(path: Path) -> bool:
    """Tell a file of the run, or one that was being written beside its place; or the folder of a member's run."""
    if path.is_dir():
        return path in member_folders(path.parent) and all(map(_is_own, path.iterdir()))
    own = {*_FILES, "lock"}  # what was killed may have left its lock, and some of its files
    name = _meant(path)
    return name in own or is_run_file(name) or bool(_MEMBER.fullmatch(name))


def _meant(path: Path) -> str:
    """Return the name of a file, or the one it was to get when it was whole."""
    return path.name.lstrip(".").partition(".")[2] if path.name.startswith(".") else path.name


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder beside its place and rename it; into a folder that is there, file by file."""
    with explain_write_errors(folder):
        if folder.exists():
            _fill(folder, files)
            for left in folder.iterdir():  # only what the run itself has left: see require_free
                if left.is_dir():
                    shutil.rmtree(left)
                elif left.name not in files:
                    left.unlink()
            return
        beside = folder.with_name(f".{os.getpid()}.{folder.name}")
        try:
            beside.mkdir(parents=True)
            for name, content in files.items():
                write_bytes(beside / name, content, named=folder)
            beside.rename(folder)
            flush_to_disk(folder.parent)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files in their order, the manifest last; all or none."""
    try:
        for name, content in files.items():
            write_bytes(folder / name, content, named=folder)
    except BaseException:
        for name in files:
            (folder / name).unlink(missing_ok=True)
        raise


def load(folder: str | Path, *, encoders: Mapping[str, Any] | None = None, digest: str | None = None) -> ChoiceModel:
    """Read a model saved by ``model.save``; every file but the card is checked against its recorded hash.

    Parameters
    ----------
    folder
        Where the model is. Nothing in it is executed: see SECURITY.md for what is promised of a folder from others.
    encoders
        The torch modules of your own that it was fitted with, by columns, built as they were then; their weights are
        read from the folder. What was frozen must be as it was.
    digest
        SHA-256 of the folder's ``model.json``, as ``sha256sum`` prints it, from a source that you trust: a folder with
        another is refused. It stands for all files but the card.

    Raises
    ------
    ArtifactError
        When the folder is no model, is damaged or altered, or was written by a newer version.
    """
    from pcmcnet.models import KINDS
    from pcmcnet.models.wrapper import can_take_encoders

    path, own = as_path(folder), require_encoders(encoders)
    manifest = read_manifest(path, digest)
    name, extras = manifest["model"], {"encoders": own} if own else None
    try:
        if name not in KINDS:
            raise ArtifactError(f"unknown kind of model {name!r}.{did_you_mean(name, KINDS)}")
        if own and not can_take_encoders(KINDS[name]):
            raise ConfigError(f"{path} holds a {KINDS[name].__name__}, which has no encoders: leave them out.")
        model = restore_model(name, manifest["fit"], checked_files(path, manifest), extras)
        str(model.summary())  # reads the record
    except Exception as error:  # of unknown files, readers raise what they meet
        if own and isinstance(error, ConfigError):  # it is about what was given, most likely
            raise
        raise _refusal(path, manifest, error) from error
    return model


def _refusal(path: Path, manifest: Mapping[str, Any], error: Exception) -> ArtifactError:
    """Say why a folder cannot be read, and whether a newer version could."""
    why = brief(str(error).removeprefix(f"{path}: ") or type(error).__name__)
    theirs, ours = manifest.get("versions", {}).get("pcmcnet"), package_version("pcmcnet")
    if _newer(theirs, ours):
        first = why.split(". ")[0].rstrip(".")
        return ArtifactError(
            f"{path} was saved by a newer version of pcmcnet, {brief(theirs)}, and this is {ours}: {first}; "
            f"upgrade pcmcnet."
        )
    if isinstance(error, ArtifactError):
        return ArtifactError(f"{path}: {why}")
    return ArtifactError(f"{path}: the saved model is incomplete or altered ({why}).")


def _newer(theirs: Any, ours: str) -> bool:
    """Compare versions such as 0.10.1 by their numbers."""
    numbers = [[int(part[:9]) for part in re.findall(r"\d+", str(version))[:3]] for version in (theirs, ours)]
    return all(numbers) and numbers[0] > numbers[1]


def _card(model: ChoiceModel, name: str) -> str:
    """Tell a person what is in the folder."""
    schema = model.schema
    columns = {
        "choice set": schema.choice_set,
        "chosen": schema.chosen,
        "rank": schema.rank,
        "alternative": schema.alternative,
        "individual": ", ".join(schema.individual) or "none",
        "features": ", ".join(schema.features) or "none",
        "categorical": ", ".join(schema.categorical or ()) or "none",
        "available": schema.available,
        "weight": schema.weight,
    }
    table = "\n".join(f"| {role} | {column} |" for role, column in columns.items() if column is not None)
    text = f"""# {name}: a {type(model).__name__} choice model

Made by pcmcnet. Read it by `pcmcnet.load("{name}")`, or apply it by `pcmcnet predict {name} TABLE -o OUT.parquet`.

| role | column |
| --- | --- |
{table}

```text
{model.summary()}
```

Fingerprint of the training table: `{model.table_.fingerprint}`.
"""
    return printable(text)
