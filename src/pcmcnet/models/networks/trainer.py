"""Train one network: learn the encoder, build the network, set starting values, run the training loop.

A :class:`Trainer` holds options and stores no results. The same arguments give the same network, bit for bit on a CPU.
Trials, refits and averaged networks are all trained by :meth:`Trainer.train`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, EncodedSets, EncodedStream, Encoder, ScannedData, Schema, Sets, Source
from pcmcnet.data.batches import ConcatenatedTables
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.data.encoder import learn_encoder
from pcmcnet.errors import ConfigError, InputError, SchemaError
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.encoders import Encoders, encoder_class_names, frozen_encoders
from pcmcnet.models.networks.averaged_members import NetworkSpec, members_of
from pcmcnet.models.networks.network_config import NetworkConfig
from pcmcnet.selection import sample_sets
from pcmcnet.training import Checkpoint, TrainConfig, train
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import device_of, encode_on, seeded_initialisation, to_host
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import predict

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel

# -- Fine-tuning -------------------------------------------------------------------------------------------------------
# A fit may start from a fitted network and its encoder: for a new table with the same columns, or for more epochs.
#
# Numbers are standardised as in the first fit, and categories that it did not see get the code of unseen categories, so
# every weight keeps its meaning. Options that change the function of the network must be the same in both fits.

_OPTIONS_THAT_MAY_CHANGE = {"dropout", "initialisation", "precision"}  # the function of the weights is the same


@dataclass(frozen=True, eq=False)
class StartingNetwork:
    """The encoder, architecture and weights of the fitted network that a fit starts from.

    Parameters
    ----------
    encoder
        The encoder of the fitted network, with the schema of the new table.
    spec
        The architecture of the fitted network.
    members
        The weights of each averaged network.
    fingerprint, epochs
        Fingerprint of the table that the network was fitted to, and number of epochs of that fit.
    number
        Position of the member whose weights are used.
    """

    encoder: Encoder
    spec: NetworkSpec
    members: tuple[Mapping[str, Tensor], ...]
    fingerprint: str
    epochs: int
    number: int = 0

    @classmethod
    def of(cls, init: Any, model: NeuralModel, schema: Schema) -> StartingNetwork:
        """Copy the network of a fitted model, or raise an error if its class, options or columns are different."""
        if type(init) is not type(model):
            raise ConfigError(f"init: expected a fitted {type(model).__name__}, got {type(init).__name__}.")
        _require_columns(init.schema, schema)
        _require_options(init, model)
        states = (network.state_dict() for network in members_of(init.network_))
        members = tuple({name: tensor.detach().cpu().clone() for name, tensor in state.items()} for state in states)
        encoder = replace(init.encoder_, schema=schema)
        return cls(encoder, init.spec_, members, init.table_.fingerprint, init.record_.epochs)

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """The weights of the member at position ``number``."""
        return self.members[self.number]

    @property
    def identity(self) -> str:
        """Hash of all weights, which shows a resumed run whether it has the same starting network."""
        named = {f"{k}.{name}": w for k, weights in enumerate(self.members) for name, w in weights.items()}
        return hashlib.sha256(save_tensors(named)).hexdigest()


def _require_columns(theirs: Schema, ours: Schema) -> None:
    for role in ("features", "individual", "kinds", "signs", "alternative"):
        first, second = getattr(theirs, role), getattr(ours, role)
        first, second = (sorted(x) if isinstance(x, tuple) else x for x in (first, second))
        if first != second:
            raise SchemaError(
                f"init was fitted to a table with {role} {first}, but this table has {second}: read this table with "
                f"the schema of init, or fit without init."
            )


def _require_options(theirs: NeuralModel, ours: NeuralModel) -> None:
    training = {field.name for field in fields(TrainConfig)}
    for field in fields(ours.config):
        first, second = getattr(theirs.config, field.name), getattr(ours.config, field.name)
        if first != second and field.name not in training | _OPTIONS_THAT_MAY_CHANGE:
            raise ConfigError(
                f"init was fitted with {field.name}={first!r}, but this model has {field.name}={second!r}: use the "
                f"same value, or fit without init."
            )
    if encoder_class_names(theirs.encoders) != encoder_class_names(ours.encoders):
        raise ConfigError("init was fitted with different encoders: use the same encoders for this model.")


NetworkBuilder = Callable[[Encoder, NetworkSpec], ChoiceNetwork]  # returns a freshly initialised network


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A trained network with its encoder."""

    encoder: Encoder
    network: ChoiceNetwork
    history: list[dict[str, Any]]  # one entry per epoch
    epochs: int  # number of epochs that led to the weights of the network

    def choice_nll(self, sets: ChoiceData, pair_budget: int) -> Floats:  # -> (S,)
        """Return the negative log-likelihood of the choice in every set."""
        log_p = network_log_proba(self.network, self.encoder, sets, pair_budget)
        losses: Floats = -log_p[sets.offsets[:-1] + sets.require_chosen("a trial")]
        return losses


@dataclass(frozen=True, eq=False)
class Trainer:
    """Everything that the training of a network depends on, apart from the data.

    Parameters
    ----------
    config
        Options of the model. Each call to :meth:`train` may use different training options.
    build
        Function that returns a new network for an encoder and a number of latent classes and factors.
    encoders
        Custom encoders by column.
    run
        Settings of the run, such as seed, starting network, run folder and progress.
    device
        Device to train on.
    identity
        Everything that the fit depends on. A run can only be resumed from a checkpoint with the same identity.
    length
        Factor by which the default number of epochs is multiplied if the option ``epochs`` is "auto".
    rank
        Number of factors of the rates, or None for a network that scores all pairs.
    """

    config: NetworkConfig
    build: NetworkBuilder
    encoders: Encoders
    run: FitRun
    device: torch.device
    identity: Mapping[str, Any]
    length: float = 1.0
    rank: int | None = None

    @property
    def epochs(self) -> int:
        """Number of epochs of a fit, before it is reduced on the basis of held-out sets."""
        return round(self.length * self.config.passes) if self.config.epochs == "auto" else self.config.epochs

    def with_run(self, **changes: Any) -> Trainer:
        """Return a trainer with some settings of the run replaced, such as ``seed``, ``init`` or ``progress``."""
        return replace(self, run=replace(self.run, **changes))

    @property
    def quiet(self) -> Trainer:
        """A copy of the trainer for trials, without progress, warnings, callbacks and checkpoints."""
        return self.with_run(progress=False, on_epoch=None, warn=False, run_folder=None)

    def train(
        self,
        data: Sets,
        valid: Sequence[Sets],
        config: NetworkConfig,
        *,
        classes: int = 1,
        encoder: Encoder | None = None,
        file: str = "",
    ) -> TrainedNetwork:
        """Return a network trained on ``data``.

        Parameters
        ----------
        data
            Choice sets to fit.
        valid
            Validation tables for early stopping. If empty, there is no early stopping.
        config
            Options of this training run. Here "auto" stands for the default weight decay or number of epochs.
        classes
            Number of latent classes of the network (default 1).
        encoder
            Encoder of the columns. If None (default), use the encoder of the starting network, or learn one from
            ``data``.
        file
            Name of the checkpoint in the run folder.
        """
        run, start = self.run, self.starting_network
        part = data.with_positive_weight()
        if part.largest < 2:
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        # 1. Learn the encoder, unless it is given.
        encoder = encoder or self.learn_encoder(part)
        # 2. Build the network. Its weights only depend on the seed, or are copied from a fitted network.
        with seeded_initialisation(run.seed):
            network = self.build(encoder, NetworkSpec(classes=classes, rank=self.rank))
        if start is not None:
            network.load_state_dict(start.weights)
        network.to(self.device)
        # 3. Encode the choice sets, and check on some of them that the network can learn.
        sets = encoded_source(part, encoder, self.device, warn=False)
        network.prepare(_sets_that_vary(sets), config.pair_budget)
        # 4. Set starting values by a quick estimate, unless the weights come from a fitted network.
        if start is None:
            network.set_starting_values(lambda n: encoder.encode(sample_sets(part, n, run.seed)), config.decay)
        # 5. Run the training loop; afterwards the network has the weights of the best epoch.
        held_out = [
            encoded_source(table.with_positive_weight(), encoder, self.device, warn=run.warn) for table in valid
        ]
        outcome = train(
            network,
            sets,
            config,
            valid=ConcatenatedTables(held_out) if held_out else None,
            seed=run.seed,
            checkpoint=self._checkpoint(file),
            progress=run.progress,
            on_epoch=run.on_epoch,
        )
        return TrainedNetwork(encoder, network, outcome.history, outcome.epochs)

    @property
    def starting_network(self) -> StartingNetwork | None:
        """The fitted network to start from, or None to start from new weights."""
        start: StartingNetwork | None = self.run.init
        return start

    def learn_encoder(self, part: Sets) -> Encoder:
        """Return the encoder of the starting network, or an encoder learnt from a part of the table."""
        if self.starting_network is not None:
            return self.starting_network.encoder
        return learn_network_encoder(part, self.config, self.encoders)

    def _checkpoint(self, file: str) -> Checkpoint | None:
        folder = self.run.run_folder
        return None if folder is None else Checkpoint(folder / file, self.identity, resume=self.run.resume)


def learn_network_encoder(part: Sets, config: NetworkConfig, encoders: Encoders) -> Encoder:
    """Return an encoder for a network, learnt from a part of a table."""
    return learn_encoder(part, bend=config.tails == "bend", labels=config.labels, frozen=frozen_encoders(encoders))


def network_log_proba(network: ChoiceNetwork, encoder: Encoder, data: ChoiceData, pair_budget: int) -> Floats:
    """Return the log-probabilities (N,) of the alternatives of choice sets in memory."""
    out = np.empty(len(data.rows))
    encoded = encode_on(device_of(network), encoder, data)
    batches = predict(network, encoded, pair_budget=pair_budget)
    for sets, log_p in to_host(map(itemgetter(0, 2), batches)):
        sizes = data.sizes[sets]
        real = np.arange(log_p.shape[1]) < sizes[:, None]  # alternatives, without padding
        out[consecutive_indices(data.offsets[sets], sizes)] = log_p.numpy()[real]
    return out


def encoded_source(data: Sets, encoder: Encoder, device: torch.device, *, warn: bool) -> Source:
    """Return an encoded table.

    A scanned table is encoded as it is read, and each process of a group reads a share of the table.
    """
    if isinstance(data, ScannedData):
        group = current_group()
        return EncodedStream(data, encoder, device, group.rank, group.size)
    return encode_on(device, encoder, data, warn=warn)


def _sets_that_vary(source: Source) -> EncodedSets:
    """Return the first chunk in which features vary within choice sets, or the last chunk if there is none."""
    for chunk in source.chunks():
        if chunk is source or chunk.varies_within_sets():
            break
    return chunk
