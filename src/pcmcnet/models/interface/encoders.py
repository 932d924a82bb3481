"""Custom encoders for content columns (texts, images, vectors), and models that ignore such columns.

No code is saved with a model. A torch module is saved as its weights and the name of its class. To load it, ``load``
needs a module of the same class, built in the same way as for the fit. A frozen encoder is saved as a hash that
identifies it, with the vectors of a few values of the content column from the training part. To load it, ``load`` needs
the same encoder.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pcmcnet.data import Schema
from pcmcnet.errors import ArtifactError, ConfigError, did_you_mean

if TYPE_CHECKING:  # slow to import: models without custom encoders do without them
    from torch import nn

    from pcmcnet.data.kinds.frozen import Frozen

Encoders: TypeAlias = "Mapping[str, nn.Module | Frozen]"

log = logging.getLogger("pcmcnet")


def without_contents(model: str, train: Any, valid: Any) -> tuple[Any, Any]:
    """Return the training and validation parts without content columns, and log a warning that lists the columns."""
    if not train.schema.contents:
        return train, valid
    columns = ", ".join(f"{name} ({kind})" for name, kind in train.schema.contents.items())
    log.warning("%s uses only numeric and categorical columns; these columns are ignored: %s", model, columns)
    return train.without_contents(), None if valid is None else valid.without_contents()


def require_encoders(encoders: Any) -> dict[str, nn.Module | Frozen]:
    """Return checked encoders by column, or raise ConfigError if one is not a torch module or a frozen encoder."""
    if encoders is None:
        return {}
    from torch import nn

    from pcmcnet.data.kinds.frozen import Frozen

    if not isinstance(encoders, Mapping) or not all(isinstance(name, str) for name in encoders):
        raise ConfigError(f"encoders must map columns to modules, as in {{'photo': MyModule()}}, got {encoders!r}.")
    for name, module in encoders.items():
        if not isinstance(module, nn.Module | Frozen):
            value = f"the class {module.__name__}" if isinstance(module, type) else repr(module)
            hint = " Freeze a function: Frozen(function)." if callable(module) and not isinstance(module, type) else ""
            raise ConfigError(f"encoders: expected a torch module for column {name!r}, got {value}.{hint}")
        if isinstance(module, nn.Module):
            _require_weights(name, module)
    return dict(encoders)


def _require_weights(name: str, module: nn.Module) -> None:
    """Raise ConfigError if the weights of a module cannot be saved."""
    from torch import nn

    subject = f"encoders: {type(module).__name__} for column {name!r}"
    weights = module.state_dict().values()
    if any(nn.parameter.is_lazy(tensor) for tensor in weights):
        raise ConfigError(f"{subject} has lazy weights that are not initialised: call it once with two values.")
    addresses = [tensor.data_ptr() for tensor in weights if tensor.numel()]
    if len(set(addresses)) < len(addresses):
        raise ConfigError(
            f"{subject} shares weights between two of its modules; shared weights cannot be saved: copy them."
        )


def frozen_encoders(encoders: Encoders) -> dict[str, Frozen]:
    """Return the encoders that are not trained."""
    from pcmcnet.data.kinds.frozen import Frozen

    return {name: encoder for name, encoder in encoders.items() if isinstance(encoder, Frozen)}


def require_content_columns(modules: Encoders, schema: Schema) -> None:
    """Raise ConfigError if an encoder is for a column that is not a content column."""
    for name in modules:
        if name not in schema.contents:
            raise ConfigError(
                f"encoders includes {name!r}, which is not a content column: set its kind, such as vector, in kinds."
                + did_you_mean(name, schema.contents)
            )


def encoder_class_names(modules: Encoders) -> dict[str, str]:
    """Return the class name of each module, and the label of each frozen encoder."""
    if not modules:
        return {}
    from pcmcnet.data.kinds.frozen import Frozen

    return {
        name: module.label if isinstance(module, Frozen) else type(module).__qualname__
        for name, module in modules.items()
    }


def encoder_digests(modules: Encoders) -> dict[str, str]:
    """Return the class name of each encoder and a hash of its weights, which together identify the encoder."""
    return {name: f"{kind} {_digest(modules[name])}" for name, kind in encoder_class_names(modules).items()}


def _digest(module: nn.Module | Frozen) -> str:
    from safetensors.torch import save as save_tensors

    from pcmcnet.data.kinds.frozen import Frozen

    if isinstance(module, Frozen):
        return module.identity
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    return hashlib.sha256(save_tensors(weights)).hexdigest()


def require_saved_encoders(modules: Encoders, saved: Mapping[str, str]) -> None:
    """Raise ArtifactError unless the encoders have the classes that a saved model was fitted with."""
    classes = encoder_class_names(modules)
    for name, kind in saved.items():
        if name not in classes:
            raise ArtifactError(
                f"the model was fitted with a custom encoder for column {name!r}, of class {kind}: use "
                f"load(folder, encoders={{{name!r}: {kind if kind.endswith(')') else f'{kind}(...)'}}})."
            )
        if classes[name] != kind:
            raise ArtifactError(
                f"encoders: expected an encoder of class {kind} for column {name!r}, as in the fit, got one of "
                f"class {classes[name]}."
            )
    for name in classes:
        if name not in saved:
            raise ArtifactError(
                f"the model was fitted without a custom encoder for column {name!r}: leave it out of encoders."
            )
