"""Fits that start from a fitted network, with its encoder: for a new table of the same columns, or for more epochs.

Numbers are standardised as they were for the first fit, and categories that it did not know get the reserved code, so
that every weight means what it meant. Options that make a network another function have to be the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from safetensors.torch import save as save_tensors
from torch import Tensor

from pcmcnet.data import Encoder, Schema
from pcmcnet.errors import ConfigError, SchemaError
from pcmcnet.models.interface.own_encoders import class_names
from pcmcnet.training import TrainConfig

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel

_FREE = {"dropout", "initialisation", "precision"}  # options of a network that its weights do not depend on


@dataclass(frozen=True)
class Start:
    """What a fit begins with: the encoder, and the weights as they were then."""

    encoder: Encoder
    weights: Mapping[str, Tensor]
    training: Mapping[str, Any]  # of the model that it is taken from

    @classmethod
    def of(cls, init: Any, model: NeuralModel, schema: Schema) -> Start:
        """Take them from a fitted model of the same kind, options and columns."""
        if type(init) is not type(model):
            raise ConfigError(f"init: expected a fitted {type(model).__name__}, got {type(init).__name__}.")
        _require_columns(init.schema, schema)
        _require_options(init, model)
        weights = {name: tensor.detach().cpu().clone() for name, tensor in init.network_.state_dict().items()}
        return cls(replace(init.encoder_, schema=schema), weights, init.training_)

    def other(self, number: int) -> Start:
        """Return the same for another of the networks that are put together, counted from 1."""
        prefix = f"others.{number - 1}."
        weights = {name.removeprefix(prefix): w for name, w in self.weights.items() if name.startswith(prefix)}
        return replace(self, weights=weights)

    @property
    def first(self) -> Mapping[str, Tensor]:
        """The weights of one network."""
        return {name: weight for name, weight in self.weights.items() if not name.startswith("others.")}

    @property
    def identity(self) -> str:
        """A hash of the weights, by which a run knows what it was started from."""
        return hashlib.sha256(save_tensors(dict(self.weights))).hexdigest()


def _require_columns(theirs: Schema, ours: Schema) -> None:
    for role in ("features", "individual", "kinds", "alternative"):
        first, second = getattr(theirs, role), getattr(ours, role)
        first, second = (set(x) if isinstance(x, tuple) else x for x in (first, second))
        if first != second:
            told = [sorted(x) if isinstance(x, set) else x for x in (first, second)]
            raise SchemaError(
                f"init was fitted to a table with {role} {told[0]}, and this one has {told[1]}: read it by the schema "
                f"of init, or fit without init."
            )


def _require_options(theirs: NeuralModel, ours: NeuralModel) -> None:
    training = {field.name for field in fields(TrainConfig)}
    for field in fields(ours.config):
        first, second = getattr(theirs.config, field.name), getattr(ours.config, field.name)
        if first != second and field.name not in training | _FREE:
            raise ConfigError(
                f"init was fitted with {field.name}={first!r}, and this model has {field.name}={second!r}: give it the "
                f"same, or fit without init."
            )
    if class_names(theirs.encoders) != class_names(ours.encoders):
        raise ConfigError("init was fitted with other encoders than this model has: give it the same ones.")
