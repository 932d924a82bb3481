"""Saved models: model folders, manifests, file checks, and loading without executing any code."""

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

from pcmcnet.checks import suggests_arguments
from pcmcnet.data import Schema
from pcmcnet.data.describe import require_description
from pcmcnet.errors import ArtifactError, ConfigError, UndefinedTermError, did_you_mean, printable
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

# -- Files of a model folder -------------------------------------------------------------------------------------------
# A folder may come from an untrusted source. So only regular files inside it are opened: no pipes or devices, which may
# never end, and no links that leave the folder. Sizes are limited to the recorded ones and to the constants below.

MAX_JSON_BYTES = 64 << 20  # parsed JSON may take 25 times as much memory
MAX_FOLDER_BYTES = 8 << 30  # all files together
# The flags keep a pipe or link that replaces a checked file from being waited for or followed.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def read_file(folder: Path, name: str, size: Any = None, *, max_bytes: int = MAX_FOLDER_BYTES) -> bytes:
    """Return the content of a file in the folder after all checks, given its recorded size if known."""
    if Path(name).name != name:
        raise ArtifactError(f"{folder}: expected a plain file name in {MANIFEST}, got {name!r}.")
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder.resolve()):
            raise ArtifactError(
                f"{folder}: {name} is a link to a file outside the folder: copy the model with its linked files "
                f"(cp -rL)."
            )
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ArtifactError(f"{folder}: {name} is not a regular file.")
        _require_size(folder, name, status.st_size, max_bytes)
        if size not in (None, status.st_size):
            raise ArtifactError(f"{folder}: file {name} was truncated or altered after saving: save the model again.")
        with os.fdopen(os.open(path, _FLAGS), "rb") as file:
            return file.read(status.st_size + 1)  # one byte more, so that a file that grew fails the hash check
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ArtifactError):
            raise
        why = getattr(error, "strerror", None) or error
        raise ArtifactError(f"{folder}: file {name} is missing or unreadable ({why}).") from error


def require_sizes(folder: Path, files: Mapping[str, bytes]) -> None:
    """Raise ArtifactError if files are too large to be loaded again."""
    max_bytes = MAX_FOLDER_BYTES
    for name, content in files.items():
        _require_size(folder, name, len(content), max_bytes)
        max_bytes -= len(content)


def _require_size(folder: Path, name: str, size: int, max_bytes: int) -> None:
    limit = min(MAX_JSON_BYTES, max_bytes) if name.endswith(".json") else max_bytes
    if size > limit:
        total = f"{MAX_FOLDER_BYTES >> 30} GiB for all files together"
        words = f"{limit >> 20:,} MiB" if limit < max_bytes else total
        raise ArtifactError(f"{folder}: file {name} has {size:,} bytes; the limit for saving and loading is {words}.")


# -- Manifest ----------------------------------------------------------------------------------------------------------
# `model.json` lists the model, the versions of packages, and the size and hash of each file. Its own hash, `sha256`,
# covers all files except the card. Folders with other hashes are not loaded.

FORMAT = 2
MANIFEST = "model.json"
CARD = "README.md"
MAX_QUOTED_CHARACTERS = 300  # of a file's contents, in a message


def manifest_of(model: ChoiceModel, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the content of ``model.json`` for a fitted model and its files."""
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
    """Return information about the training table and the fit as JSON-compatible values."""
    table = record_to_dict(model.table_)
    if not table["signs"]:  # a field of a later release, so models without it are saved as before
        del table["signs"]
    return {"table": table, "record": record_to_dict(model.record_)}


def read_manifest(path: Path, digest: str | None) -> dict[str, Any]:
    """Return the checked content of ``model.json``, whose SHA-256 must be ``digest`` if it is given."""
    if not path.is_dir():
        if path.is_file():
            raise ArtifactError(
                f"{path} is a file: expected the folder of a saved model. If {path.name} is the table, name the model "
                f"first and the table second."
            )
        raise ArtifactError(f"{path}: no such folder. Expected a folder written by fit or save.")
    if not (path / MANIFEST).exists():
        if checkpoint_files(path):
            raise ArtifactError(f"{path} holds an unfinished run, not a model: continue it with fit --resume.")
        raise ArtifactError(
            f"{path} is not a saved model: {MANIFEST} is missing. Expected a folder written by fit or save."
        )
    content = read_file(path, MANIFEST)
    _require_digest(path, content, digest)
    try:
        manifest = parse_saved_json(content)
        number = manifest["format"]
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError("the format is not a positive whole number")
        kinds = {"model": str, "fit": dict, "files": dict, "sizes": dict, "versions": dict} if number == FORMAT else {}
        if not all(isinstance(manifest[entry], kind) for entry, kind in kinds.items()):
            raise TypeError("an entry has the wrong type")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{path / MANIFEST} is damaged ({short_line(error)}): save the model again.") from error
    if number != FORMAT:
        remedy = "upgrade pcmcnet" if number > FORMAT else "fit the model again"
        raise ArtifactError(
            f"{path} has format {short_line(number)}, but this version of pcmcnet reads format {FORMAT}: {remedy}."
        )
    if manifest.pop("sha256", None) != manifest_digest(manifest):
        raise ArtifactError(f"{path / MANIFEST} was altered after saving: save the model again.")
    return dict(manifest)


def _require_digest(path: Path, content: bytes, digest: str | None) -> None:
    """Raise ArtifactError if the SHA-256 of the manifest is not the expected one."""
    if digest is None:
        return
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise ConfigError(f"digest: expected the 64 hexadecimal digits that sha256sum prints, got {digest!r}.")
    actual = hashlib.sha256(content).hexdigest()
    if actual != digest.lower():
        raise ArtifactError(f"{path} is not the expected model: the SHA-256 of its {MANIFEST} is {actual}.")


def checked_files(path: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """Return all files of the manifest except README.md, or raise ArtifactError if a hash differs."""
    files: dict[str, bytes] = {}
    max_bytes, sizes = MAX_FOLDER_BYTES, manifest.get("sizes", {})
    for name, digest in manifest["files"].items():
        if name == CARD:
            continue
        files[name] = read_file(path, name, sizes.get(name), max_bytes=max_bytes)
        max_bytes -= len(files[name])
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ArtifactError(f"file {name} was truncated or altered after saving: save the model again.")
    return files


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return the hash of all entries of the manifest, which the manifest stores as ``sha256``."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def parse_saved_json(content: bytes) -> Any:
    """Return the value of a JSON text, or raise ValueError for lone surrogates, which could not be saved again."""
    value = json.loads(content)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def short_line(value: Any) -> str:
    """Return a value as one line of limited length, since values read from a folder may be of any size."""
    line = " ".join(str(value).split())
    return line if len(line) <= MAX_QUOTED_CHARACTERS else f"{line[:MAX_QUOTED_CHARACTERS]} …"


# -- A saved model: a readable folder without executable code ----------------------------------------------------------
#   model.json            name of the model, format, versions, facts about the fit, size and hash of each file
#     config.json           options
#     schema.json           roles of the training table's columns
#     history.json          one entry per epoch
#     encoder.json, weights.safetensors                           networks
#     design.json, estimates.json, estimates.safetensors          logit models; classes.json for latent classes
#     items.json, weights.safetensors                             models of items
#     inputs.json, forest.skops                                   random forest
#     member-1-weights.safetensors, ...                           all files of the models inside a wrapper
#     README.md             a card for readers, which may be edited
#
# `model.json` is written last: a folder without it is incomplete. Its hash covers all files except the card.

_FILES = ("config.json", "schema.json", "history.json", "encoder.json", "weights.safetensors", CARD, MANIFEST)
_MEMBER = re.compile(r"member-\d+-[\w.-]+")  # a file of a model inside a wrapper


def save_artifact(model: ChoiceModel, folder: Path) -> Path:
    """Write a fitted model to a folder that is new, empty, or the run folder of the fit."""
    model.require_fitted()
    with sole_writer(folder):
        require_free_folder(folder)
        files = {**state_files(model), CARD: _card(model, folder.name).encode()}
        require_sizes(folder, files)
        _write_all(folder, {**files, MANIFEST: json_bytes(manifest_of(model, files))})
    return folder


def state_files(model: ChoiceModel) -> dict[str, bytes]:
    """Return the files of a fitted model, apart from its manifest, for :func:`restore_model`."""
    return {
        "config.json": json_bytes(asdict(model.config)),
        "schema.json": json_bytes(model.schema.to_dict()),
        "history.json": json_bytes(model.history),
        **model._files(),
    }


def restore_model(
    name: str, fit: Mapping[str, Any], files: Mapping[str, bytes], extras: Mapping[str, Any] | None = None
) -> ChoiceModel:
    """Return a fitted model from its saved files.

    Parameters
    ----------
    name
        Name of the model in the registry.
    fit
        Facts about the fit, as returned by :func:`fit_entries`.
    files
        Files of the model, as returned by :func:`state_files`.
    extras
        Constructor arguments that are not options, such as ``encoders``.

    Raises
    ------
    Exception
        If a file is damaged, its reader may raise any exception, which :func:`load` converts to an ArtifactError.
    """
    from pcmcnet.models import KINDS

    # 1. Build the model with its options.
    options, names = parse_saved_json(files["config.json"]), option_names(KINDS[name].config_class)
    unknown = [option for option in options if option not in names]
    if unknown:
        raise ValueError(f"option {unknown[0]!r} is unknown")
    model = KINDS[name](**options, **(extras or {}))
    # 2. Read the facts about its training table.
    schema = Schema.from_dict(parse_saved_json(files["schema.json"]))
    table = record_from_dict(TrainingTable, fit["table"])
    require_description(table.description, schema)
    history = json.loads(files["history.json"])
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise TypeError("the history is not a list of epochs")
    # 3. Read the learnt state.
    record = record_from_dict(model.record_class, fit["record"])
    state = replace(model._restore(files, record, table), record=record, history=history)
    model.fitted_ = FittedModel(schema=schema, table=table, state=state)
    return model


def require_free_folder(folder: Path) -> None:
    """Raise ArtifactError unless a folder is new, empty, or an unfinished run without a model."""
    parent = next((parent for parent in folder.absolute().parents if parent.exists()), None)
    if parent is not None and not parent.is_dir():
        raise ArtifactError(f"{folder} cannot be written: {parent} is a file, not a folder.")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if (folder / MANIFEST).exists():
        raise ArtifactError(
            f"{folder} already holds a model: choose another folder, or remove it first.",
            command_line=f"{folder} already holds a model: add --overwrite, or choose another folder.",
        )
    has_partial_files = any(is_run_file(_final_name(path)) for path in folder.glob(".*"))
    is_run = has_partial_files or checkpoint_files(folder) or member_folders(folder)
    if not folder.is_dir() or not is_run or not all(map(_belongs_to_run, folder.iterdir())):
        raise ArtifactError(f"{folder} exists and is not empty: choose another folder, or remove it first.")


def remove_model(folder: Path) -> None:
    """Remove the saved model or the unfinished run in a folder. Raise ArtifactError if there are other files."""
    names = {*read_manifest(folder, None)["files"], CARD, MANIFEST} if (folder / MANIFEST).exists() else set()
    others = [path.name for path in folder.iterdir() if path.name not in names and not _belongs_to_run(path)]
    if others:
        raise ArtifactError(f"{folder} holds other files than a model, such as {others[0]!r}: choose another folder.")
    shutil.rmtree(folder)


def _belongs_to_run(path: Path) -> bool:
    """Return True if a file or the folder of a member was written by this library."""
    if path.is_dir():
        return path in member_folders(path.parent) and all(map(_belongs_to_run, path.iterdir()))
    name = _final_name(path)
    # A killed run may have left its lock, and files of the model.
    return name in {*_FILES, "lock"} or is_run_file(name) or bool(_MEMBER.fullmatch(name))


def _final_name(path: Path) -> str:
    """Return the name of a file or, for a partially written file, its intended name."""
    return path.name.lstrip(".").partition(".")[2] if path.name.startswith(".") else path.name


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder under a temporary name and rename it, or write file by file if the folder exists."""
    with explain_write_errors(folder):
        if folder.exists():
            _fill(folder, files)
            for path in folder.iterdir():  # only files of the run are left: see require_free_folder
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in files:
                    path.unlink()
            return
        temporary = folder.with_name(f".{os.getpid()}.{folder.name}")
        try:
            temporary.mkdir(parents=True)
            for name, content in files.items():
                write_bytes(temporary / name, content, named=folder)
            temporary.rename(folder)
            flush_to_disk(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files in order, with the manifest last, and remove them after an error."""
    try:
        for name, content in files.items():
            write_bytes(folder / name, content, named=folder)
    except BaseException:
        for name in files:
            (folder / name).unlink(missing_ok=True)
        raise


@suggests_arguments(call="load('model')")
def load(folder: str | Path, *, encoders: Mapping[str, Any] | None = None, digest: str | None = None) -> ChoiceModel:
    """Load a model that was saved by ``model.save``, after checking the hashes of all files except README.md.

    Parameters
    ----------
    folder
        Path of the model folder. No code in the folder is executed. SECURITY.md has advice on folders from untrusted
        sources.
    encoders
        Custom encoders that the model was fitted with, by column (default None), built in the same way as for the fit.
        The weights of torch modules are read from the folder. Frozen encoders must be the same as in the fit.
    digest
        Expected SHA-256 of ``model.json``, as printed by ``sha256sum``. If None (default), the hash is not compared.
        The hash covers all files except README.md.

    Returns
    -------
    ChoiceModel
        The fitted model.

    Raises
    ------
    ArtifactError
        If the folder is not a saved model, is damaged or altered, has a different digest, or was saved by a newer
        version.
    ConfigError
        If the model does not support encoders, or the digest is malformed.
    """
    from pcmcnet.models import KINDS
    from pcmcnet.models.wrapper import can_take_encoders

    path, modules = as_path(folder), require_encoders(encoders)
    manifest = read_manifest(path, digest)
    name, extras = manifest["model"], {"encoders": modules} if modules else None
    try:
        if name not in KINDS:
            raise ArtifactError(f"unknown model {name!r}.{did_you_mean(name, KINDS)}")
        if modules and not can_take_encoders(KINDS[name]):
            raise ConfigError(f"encoders are not supported by {KINDS[name].__name__}, the model in {path}.")
        model = restore_model(name, manifest["fit"], checked_files(path, manifest), extras)
        str(model.summary())  # fails if facts in the record are missing or wrong
    except Exception as error:  # readers of damaged files raise exceptions of many kinds
        if modules and isinstance(error, ConfigError):  # the encoders are wrong, not the folder
            raise
        raise _load_error(path, manifest, error) from error
    return model


def _load_error(path: Path, manifest: Mapping[str, Any], error: Exception) -> ArtifactError:
    """Return the error for a folder that cannot be loaded, which suggests an upgrade if a newer version saved it."""
    why = short_line(str(error).removeprefix(f"{path}: ") or type(error).__name__)
    theirs, ours = manifest.get("versions", {}).get("pcmcnet"), package_version("pcmcnet")
    if _newer(theirs, ours):
        first = why.split(". ")[0].rstrip(".")
        return ArtifactError(
            f"{path} was saved by pcmcnet {short_line(theirs)}, a newer version than {ours}: {first}; upgrade pcmcnet."
        )
    if isinstance(error, ArtifactError | UndefinedTermError):
        return ArtifactError(f"{path}: {why}")
    return ArtifactError(f"{path}: the saved model is incomplete or altered ({why}).")


def _newer(theirs: Any, ours: str) -> bool:
    """Return True if the first version is newer, comparing versions such as 0.10.1 number by number."""
    numbers = [[int(part[:9]) for part in re.findall(r"\d+", str(version))[:3]] for version in (theirs, ours)]
    return all(numbers) and numbers[0] > numbers[1]


def _card(model: ChoiceModel, name: str) -> str:
    """Return the text of README.md, which describes the saved model."""
    schema = model.schema
    columns = {
        "choice set": schema.choice_set,
        "chosen": schema.chosen,
        "rank": schema.rank,
        "counts": schema.counts,
        "alternative": schema.alternative,
        "individual": ", ".join(schema.individual) or "none",
        "features": ", ".join(schema.features) or "none",
        "categorical": ", ".join(schema.categorical or ()) or "none",
        "available": schema.available,
        "weight": schema.weight,
    }
    table = "\n".join(f"| {role} | {column} |" for role, column in columns.items() if column is not None)
    text = f"""# {name}: a {type(model).__name__} choice model

Saved by pcmcnet. Load it with `pcmcnet.load("{name}")`, or predict with `pcmcnet predict {name} TABLE -o OUT.parquet`.

| role | column |
| --- | --- |
{table}

```text
{model.summary()}
```

Fingerprint of the training table: `{model.table_.fingerprint}`.
"""
    return printable(text)
