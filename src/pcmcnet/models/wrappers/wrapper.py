"""Models around models: the inner one by its name and options, and its files beside those of the wrapper.

A wrapper's options are the name and the options of the model inside, so that they survive JSON like any others; its
saved folder holds the files of the model inside behind a prefix, ``member-1-weights.safetensors`` for instance, and
``member-1-kind.json`` with its name and how it was trained. Encoders of one's own are handed on to the model inside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self

from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.own_encoders import own_encoders
from pcmcnet.models.saving.saved_model import restored, state_files
from pcmcnet.storage.files import json_bytes

_KIND = "kind.json"
LEVELS = 4  # of models around models
_INSIDE = "options__"  # before the name of an option of the model inside


class Wrapper(ChoiceModel):
    """A model around another, with the encoders of one's own that the inner one is to have."""

    config: Any
    _inside: dict[str, Any]  # what the model inside is given beside its options

    def _take(self, model: Any, encoders: Mapping[str, Any] | None) -> ChoiceModel:
        """Take over what no option can hold, and what is a class variable elsewhere; return the model inside."""
        if isinstance(model, ChoiceModel):
            if encoders is not None:
                raise ConfigError("encoders belong to a model given by its name: a model object has its own.")
            self._inside = dict(model.extras)
        else:
            self._inside = {"encoders": found} if (found := own_encoders(encoders)) else {}
        inner = self._inner()
        self.gives = inner.gives  # type: ignore[misc]
        self.order_matters = inner.order_matters  # type: ignore[misc]
        self.reads_contents = inner.reads_contents  # type: ignore[misc]
        return inner

    def _inner(self) -> ChoiceModel:
        """Return the model inside, unfitted."""
        return unfitted(self.config.model, self.config.options, self._inside)

    @property
    def extras(self) -> dict[str, Any]:
        """Return what the model inside is given beside its options."""
        return self._inside

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options by name, with ``deep`` also those of the model inside, as ``options__name``."""
        own = super().get_params(deep)
        return own | ({_INSIDE + name: value for name, value in self.config.options.items()} if deep else {})

    def set_params(self, **params: Any) -> Self:
        """Change options by name, those of the model inside as ``options__name``; the model is then not fitted."""
        inside = {name.removeprefix(_INSIDE): params.pop(name) for name in list(params) if name.startswith(_INSIDE)}
        if inside or "model" in params:
            kept = {} if "model" in params else self.config.options
            params["options"] = {**params.get("options", kept), **inside}
        return super().set_params(**params)

    @property
    def identity(self) -> dict[str, Any]:
        """Return the options, and what tells encoders of one's own from others."""
        return {**self._inner().identity, **super().identity}


def as_options(model: Any, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Take a model, or the name of one and its options, for the two options of a wrapper."""
    if not isinstance(model, ChoiceModel):
        return {"model": model, "options": dict(options or {})}
    if options is not None:
        raise ConfigError("options belong to a model given by its name: a model object has its own.")
    return {"model": model.name, "options": asdict(model.config)}


def unfitted(name: Any, options: Mapping[str, Any], extras: Mapping[str, Any] | None = None) -> ChoiceModel:
    """Build the model inside by its name and options, with encoders of one's own where it has a use for them."""
    from pcmcnet.models import KINDS

    if not isinstance(name, str) or name not in KINDS:
        found = f"{name.__name__}, a class" if isinstance(name, type) else repr(name)
        known = did_you_mean(name, KINDS) if isinstance(name, str) else ""
        raise ConfigError(f"expected a model such as PCMCNet(), or the name of one, got {found}.{known}")
    if extras and not takes_encoders(KINDS[name]):
        raise ConfigError(f"{KINDS[name].__name__} has no encoders: leave them out.")
    if _levels(options) > LEVELS:  # each checks those inside it twice
        raise ConfigError(f"models around models go at most {LEVELS} levels deep, got {_levels(options)}.")
    return KINDS[name](**options, **(extras or {}))


def _levels(options: Any) -> int:
    """Count the models that options name inside each other."""
    levels = 0
    while isinstance(options, Mapping) and "options" in options:
        options, levels = options["options"], levels + 1
    return levels


def takes_encoders(kind: type[ChoiceModel]) -> bool:
    """Tell whether a model, or one inside it, may have encoders of one's own."""
    return kind.reads_contents or issubclass(kind, Wrapper)


def member_files(model: ChoiceModel, number: int) -> dict[str, bytes]:
    """Return the files of a fitted model inside, by names with its prefix."""
    kind = {"model": model.name, "training": model.training_}
    files = {**state_files(model), _KIND: json_bytes(kind)}
    return {f"member-{number}-{name}": content for name, content in files.items()}


def member_of(files: Mapping[str, bytes], number: int, extras: Mapping[str, Any] | None = None) -> ChoiceModel:
    """Build a fitted model from what :func:`member_files` returned."""
    prefix = f"member-{number}-"
    own = {name.removeprefix(prefix): content for name, content in files.items() if name.startswith(prefix)}
    kind = json.loads(own[_KIND])
    return restored(kind["model"], kind["training"], own, extras)
