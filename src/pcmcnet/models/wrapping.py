"""Models around models: the inner one by its name and options, and its files beside those of the wrapper.

A wrapper's options are the name and the options of the model inside, so that they survive JSON like any others; its
saved folder holds the files of the model inside behind a prefix, ``member-1-weights.safetensors`` for instance, and
``member-1-kind.json`` with its name and how it was trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pcmcnet.data.files import json_bytes
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.artifact import restored, state_files
from pcmcnet.models.base import ChoiceModel

_KIND = "kind.json"


def as_options(model: Any, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Take a model, or the name of one and its options, for the two options of a wrapper."""
    if not isinstance(model, ChoiceModel):
        return {"model": model, "options": dict(options or {})}
    if options is not None:
        raise ConfigError("options belong to a model given by its name: a model object has its own.")
    if model.extras:
        raise ConfigError("a model with encoders of your own cannot be inside another model: fit it by itself.")
    return {"model": model.name, "options": asdict(model.config)}


def unfitted(name: Any, options: Mapping[str, Any]) -> ChoiceModel:
    """Build the model inside by its name and options."""
    from pcmcnet.models import KINDS

    if not isinstance(name, str) or name not in KINDS:
        found = f"{name.__name__}, a class" if isinstance(name, type) else repr(name)
        known = did_you_mean(name, KINDS) if isinstance(name, str) else ""
        raise ConfigError(f"expected a model such as PCMCNet(), or the name of one, got {found}.{known}")
    return KINDS[name](**options)


def member_files(model: ChoiceModel, number: int) -> dict[str, bytes]:
    """Return the files of a fitted model inside, by names with its prefix."""
    kind = {"model": model.name, "training": model.training_}
    files = {**state_files(model), _KIND: json_bytes(kind)}
    return {f"member-{number}-{name}": content for name, content in files.items()}


def member_of(files: Mapping[str, bytes], number: int) -> ChoiceModel:
    """Build a fitted model from what :func:`member_files` returned."""
    prefix = f"member-{number}-"
    own = {name.removeprefix(prefix): content for name, content in files.items() if name.startswith(prefix)}
    kind = json.loads(own[_KIND])
    return restored(kind["model"], kind["training"], own)
