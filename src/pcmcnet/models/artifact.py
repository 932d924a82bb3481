"""A fitted model on disk: a folder that a person can read, and that executes nothing when read.

    model.json            kind of model, format, versions, the training table's fingerprint, hashes of all files
    config.json           options
    schema.json           roles of the training table's columns
    history.json          one entry per epoch
    encoder.json, weights.safetensors                           networks
    design.json, estimates.json, estimates.safetensors          logit models; classes.json for latent classes
    items.json, weights.safetensors                             models of items
    inputs.json, forest.skops                                   random forest
    member-1-weights.safetensors, ...                           the models inside a wrapper, each with all its files
    README.md             a card in plain words

``model.json`` is written last: a folder without it is not a model yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pcmcnet.data import Schema
from pcmcnet.data.files import json_bytes, to_disk, write_bytes, writing
from pcmcnet.data.lock import sole_writer
from pcmcnet.errors import ArtifactError, ConfigError, did_you_mean
from pcmcnet.models.base import ChoiceModel, as_path
from pcmcnet.models.contents import own_encoders
from pcmcnet.training.checkpoint import RUN_FILES, checkpoints, member_folders

FORMAT = 1
MANIFEST = "model.json"
# What readers of JSON and tensors raise where entries are not what they should be.
_AMISS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
)
_FILES = ("config.json", "schema.json", "history.json", "encoder.json", "weights.safetensors", "README.md", MANIFEST)
_MEMBER = re.compile(r"member-\d+-[\w.-]+")  # a file of a model inside a wrapper


def save_artifact(model: ChoiceModel, folder: Path) -> Path:
    """Write a fitted model; refuses a folder that holds anything but its own finished run."""
    _ = model.schema
    with sole_writer(folder):
        return _save(model, folder)


def _save(model: ChoiceModel, folder: Path) -> Path:
    require_free(folder)
    files = {**state_files(model), "README.md": _card(model, folder.name).encode()}
    manifest = {
        "format": FORMAT,
        "model": model.name,
        "training": model.training_,
        "versions": _versions(),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    manifest["sha256"] = _digest(json.loads(json_bytes(manifest)))
    _write_all(folder, {**files, MANIFEST: json_bytes(manifest)})
    return folder


def state_files(model: ChoiceModel) -> dict[str, bytes]:
    """Return all that a fitted model is made of, but its name and how it was trained; see :func:`restored`."""
    return {
        "config.json": json_bytes(asdict(model.config)),
        "schema.json": json_bytes(model.schema.to_dict()),
        "history.json": json_bytes(model.history),
        **model._files(),
    }


def restored(
    name: str, training: dict[str, Any], files: Mapping[str, bytes], extras: Mapping[str, Any] | None = None
) -> ChoiceModel:
    """Build a fitted model of the kind with that name; KeyError, TypeError or ValueError where files are amiss."""
    from pcmcnet.models import KINDS

    model = KINDS[name](**json.loads(files["config.json"]), **(extras or {}))
    model.history = json.loads(files["history.json"])
    model.training_ = training
    model._restore(files)
    model._schema = Schema.from_dict(json.loads(files["schema.json"]))
    return model


def require_free(folder: Path) -> None:
    """Refuse to save where something else is; a folder with a checkpoint and no model yet is a run's own."""
    above = next((parent for parent in folder.absolute().parents if parent.exists()), None)
    if above is not None and not above.is_dir():
        raise ArtifactError(f"{folder} cannot be written: {above} is a file, not a folder.")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if (folder / MANIFEST).exists():
        raise ArtifactError(f"{folder} holds a finished model already: choose another folder, or remove it first.")
    if not folder.is_dir() or not checkpoints(folder) or not all(map(_is_own, folder.iterdir())):
        raise ArtifactError(f"{folder} exists and is not empty: choose another folder, or remove it first.")


def _is_own(path: Path) -> bool:
    """Tell a file of the run, or one that was being written beside its place; or the folder of a member's run."""
    if path.is_dir():
        return path in member_folders(path.parent) and all(map(_is_own, path.iterdir()))
    own = {*RUN_FILES, *_FILES, "lock"}  # what was killed may have left its lock, and some of its files
    name = path.name.lstrip(".").partition(".")[2] if path.name.startswith(".") else path.name
    return name in own or bool(_MEMBER.fullmatch(name))


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder beside its place and rename it; into a folder that is there, file by file."""
    with writing(folder):
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
            to_disk(folder.parent)
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


def load(folder: str | Path, *, encoders: Mapping[str, Any] | None = None) -> ChoiceModel:
    """Read a model saved by ``model.save``; every file is checked against its recorded hash.

    Parameters
    ----------
    folder
        Where the model is.
    encoders
        The torch modules of your own that it was fitted with, by columns, built as they were then; their weights are
        read from the folder. What was frozen must be as it was.

    Raises
    ------
    ArtifactError
        When the folder is no model, is damaged or altered, or was written by a newer version.
    """
    from pcmcnet.models import KINDS
    from pcmcnet.models.wrapping import takes_encoders

    path = as_path(folder)
    manifest = _manifest(path)
    if manifest["model"] not in KINDS:
        known = did_you_mean(str(manifest["model"]), KINDS)
        raise ArtifactError(f"{path}: unknown kind of model {manifest['model']!r}.{known}")
    own = own_encoders(encoders)
    if own and not takes_encoders(KINDS[manifest["model"]]):
        raise ConfigError(f"{path} holds a {KINDS[manifest['model']].__name__}, which has no encoders: leave them out.")
    files = {name: _checked(path, name, digest) for name, digest in manifest["files"].items()}
    try:
        model = restored(manifest["model"], manifest["training"], files, {"encoders": own} if own else None)
        str(model.summary())  # what training left beside the parameters is read there
    except ArtifactError:
        raise
    except _AMISS as error:
        if own and isinstance(error, ConfigError):  # it is about what was given, most likely
            raise
        raise ArtifactError(f"{path}: the saved model is incomplete or altered ({error}).") from error
    return model


def _manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise ArtifactError(f"{path}: no such folder. Expected a folder written by fit or save.")
    if not (path / MANIFEST).exists():
        if checkpoints(path):
            raise ArtifactError(f"{path} holds an unfinished run, not a model yet: go on with fit --resume.")
        raise ArtifactError(f"{path} is not a saved model: {MANIFEST} is missing.")
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        kinds = {"format": int, "model": str, "training": dict, "files": dict}
        if not all(isinstance(manifest[entry], kind) for entry, kind in kinds.items()):
            raise TypeError("entries of the wrong kind")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path / MANIFEST} is damaged ({error}): save the model again.") from error
    if manifest["format"] > FORMAT:
        raise ArtifactError(
            f"{path} has format {manifest['format']}, and this version of pcmcnet reads up to {FORMAT}: "
            f"upgrade pcmcnet."
        )
    if manifest.pop("sha256", None) != _digest(manifest):
        raise ArtifactError(f"{path / MANIFEST} is altered since it was saved. Save the model again.")
    return dict(manifest)


def _checked(path: Path, name: str, digest: Any) -> bytes:
    if Path(name).name != name:
        raise ArtifactError(f"{path / MANIFEST} names {name!r}, which is not a plain file name.")
    try:
        content = (path / name).read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: file {name} is missing or unreadable ({error.strerror}).") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise ArtifactError(f"{path}: file {name} is truncated or altered since it was saved. Save the model again.")
    return content


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _versions() -> dict[str, str]:
    names = ("pcmcnet", "torch", "numpy", "pyarrow", "safetensors")
    return {"python": platform.python_version()} | {name: package_version(name) for name in names}


def package_version(name: str) -> str:
    """Return the version of an installed distribution; a source tree on the path is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


def _card(model: ChoiceModel, name: str) -> str:
    """Tell a person what is in the folder."""
    schema = model.schema
    columns = {
        "choice set": schema.choice_set,
        "chosen": schema.chosen,
        "alternative": schema.alternative,
        "individual": ", ".join(schema.individual) or "none",
        "features": ", ".join(schema.features) or "none",
        "categorical": ", ".join(schema.categorical or ()) or "none",
        "available": schema.available,
        "weight": schema.weight,
    }
    table = "\n".join(f"| {role} | {column} |" for role, column in columns.items() if column is not None)
    return f"""# {name}: a {type(model).__name__} choice model

Made by pcmcnet. Read it by `pcmcnet.load("{name}")`, or apply it by `pcmcnet predict {name} TABLE -o OUT.parquet`.

| role | column |
| --- | --- |
{table}

```text
{model.summary()}
```

Fingerprint of the training table: `{model.training_.get("fingerprint", "unknown")}`.
"""
