"""Columns of contents in models: who leaves them out, and modules of one's own for them.

Such a module is checked, told from others, and asked for again when a model is read: no code is saved. Of a module the
weights are, with the network's, and the name of its class. Whoever reads the model gives a module of that class, as
built for the fit. Of a frozen encoder not even the weights are saved, but a hash by which it is known again, and a few
training contents with the vectors that it gave them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from safetensors.torch import save as save_tensors
from torch import nn

from pcmcnet.data import Schema
from pcmcnet.data.kinds.frozen import Frozen
from pcmcnet.errors import ArtifactError, ConfigError, did_you_mean

Encoders = Mapping[str, nn.Module | Frozen]

log = logging.getLogger("pcmcnet")


def without_contents(model: str, train: Any, valid: Any) -> tuple[Any, Any]:
    """Leave out the columns of contents, for which a model has no use, and say so; there are none in scanned data."""
    if not train.schema.contents:
        return train, valid
    named = ", ".join(f"{name} ({kind})" for name, kind in train.schema.contents.items())
    log.warning("%s reads numbers and categories alone: left out %s", model, named)
    return train.without_contents(), None if valid is None else valid.without_contents()


def require_encoders(given: Any) -> dict[str, nn.Module | Frozen]:
    """Take a mapping from columns to modules or frozen encoders."""
    found = {} if given is None else given
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"encoders must name a module for each column, as in {{'photo': MyModule()}}, got {given!r}.")
    for name, module in found.items():
        if not isinstance(module, nn.Module | Frozen):
            what = f"the class {module.__name__}" if isinstance(module, type) else repr(module)
            hint = " Freeze a function: Frozen(function)." if callable(module) and not isinstance(module, type) else ""
            raise ConfigError(f"encoders: expected a torch module for column {name!r}, got {what}.{hint}")
        if isinstance(module, nn.Module):
            _require_weights(name, module)
    return dict(found)


def _require_weights(name: str, module: nn.Module) -> None:
    """Refuse a module whose weights cannot be saved."""
    told = f"encoders: {type(module).__name__} for column {name!r}"
    weights = module.state_dict().values()
    if any(nn.parameter.is_lazy(tensor) for tensor in weights):
        raise ConfigError(f"{told} has weights of no size yet: call it once, on two contents.")
    places = [tensor.data_ptr() for tensor in weights if tensor.numel()]
    if len(set(places)) < len(places):
        raise ConfigError(f"{told} has weights that are in two of its parts, which cannot be saved: keep them in one.")


def frozen_encoders(encoders: Encoders) -> dict[str, Frozen]:
    """Take those that are not trained."""
    return {name: encoder for name, encoder in encoders.items() if isinstance(encoder, Frozen)}


def require_content_columns(modules: Encoders, schema: Schema) -> None:
    """Refuse a module for a column that is none of contents."""
    for name in modules:
        if name not in schema.contents:
            raise ConfigError(
                f"encoders names {name!r}, which is no column of a kind such as vector: declare it in kinds."
                + did_you_mean(name, schema.contents)
            )


def encoder_class_names(modules: Encoders) -> dict[str, str]:
    """Return the name of each module's class."""
    return {
        name: module.label if isinstance(module, Frozen) else type(module).__qualname__
        for name, module in modules.items()
    }


def encoder_digests(modules: Encoders) -> dict[str, str]:
    """Return the class of each module with a hash of its weights: what a fit depends on."""
    return {name: f"{kind} {_digest(modules[name])}" for name, kind in encoder_class_names(modules).items()}


def _digest(module: nn.Module | Frozen) -> str:
    if isinstance(module, Frozen):
        return module.identity
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    return hashlib.sha256(save_tensors(weights)).hexdigest()


def require_saved_encoders(modules: Encoders, saved: Mapping[str, str]) -> None:
    """Refuse other modules than a saved model was fitted with."""
    given = encoder_class_names(modules)
    for name, kind in saved.items():
        if name not in given:
            raise ArtifactError(
                f"the model was fitted with a module of its user's for column {name!r}, of the class {kind}: give it "
                f"by load(folder, encoders={{{name!r}: {kind if kind.endswith(')') else f'{kind}(...)'}}})."
            )
        if given[name] != kind:
            raise ArtifactError(
                f"the model was fitted with a module of the class {kind} for column {name!r}, got one of the class "
                f"{given[name]}."
            )
    for name in given:
        if name not in saved:
            raise ArtifactError(
                f"the model was fitted without a module of its user's for column {name!r}: leave it out."
            )
