"""Fits that start from a fitted network, with its encoder: for a new table of the same columns, or for more epochs.

Numbers are standardised as in the first fit, and categories that it did not know get the reserved code, so every weight
keeps its meaning. Options that change the function of the network must be the same in both fits.
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
from pcmcnet.models.networks.averaging import NetworkSpec, members_of
from pcmcnet.training import TrainConfig

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel

_FREE = {"dropout", "initialisation", "precision"}  # options of a network that its weights do not depend on


@dataclass(frozen=True, eq=False)
class StartingNetwork:
    """What a fit starts from: encoder, architecture and weights of a fitted network.

    Parameters
    ----------
    encoder
        The encoder, for the new table's schema.
    spec
        The architecture of the fitted network.
    members
        The weights of each averaged network.
    fingerprint, epochs
        Of the table that the network was fitted to, and of that fit.
    number
        Position of the member that this fit starts from.
    """

    encoder: Encoder
    spec: NetworkSpec
    members: tuple[Mapping[str, Tensor], ...]
    fingerprint: str
    epochs: int
    number: int = 0

    @classmethod
    def of(cls, init: Any, model: NeuralModel, schema: Schema) -> StartingNetwork:
        """Copy a fitted model of the same kind, options and columns.

        Raises
        ------
        ConfigError, SchemaError
            If kind, options or columns differ.
        """
        if type(init) is not type(model):
            raise ConfigError(f"init: expected a fitted {type(model).__name__}, got {type(init).__name__}.")
        _require_columns(init.schema, schema)
        _require_options(init, model)
        members = tuple(
            {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
            for network in members_of(init.network_)
        )
        encoder = replace(init.encoder_, schema=schema)
        return cls(encoder, init.spec_, members, init.table_.fingerprint, init.record_.epochs)

    def member(self, number: int) -> StartingNetwork:
        """Return the start of another averaged network, counted from 0."""
        return replace(self, number=number)

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """The weights of the member that this fit starts from."""
        return self.members[self.number]

    @property
    def identity(self) -> str:
        """A hash of all weights, by which a run recognises what it was started from."""
        named = {f"{k}.{name}": w for k, weights in enumerate(self.members) for name, w in weights.items()}
        return hashlib.sha256(save_tensors(named)).hexdigest()


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
