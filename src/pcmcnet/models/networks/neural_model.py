"""Models trained by the loop: encode the columns, build the network, train it, predict in batches."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import Batch, ChoiceData, Encoder, ScannedData, Schema, Sets
from pcmcnet.data.chunks import CHUNK_ROWS, Chunk, ChunkProblem, sets_in_chunks
from pcmcnet.data.kinds.frozen import Frozen
from pcmcnet.data.tensors import can_encode_rows
from pcmcnet.errors import ArtifactError
from pcmcnet.layers.threads import one_thread_per_operation, threads
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.encoders import (
    encoder_class_names,
    encoder_digests,
    frozen_encoders,
    require_content_columns,
    require_encoders,
    require_saved_encoders,
)
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.interface.prediction import MAX_MISS
from pcmcnet.models.networks.averaging import AveragedNetwork, NetworkSpec, members_of
from pcmcnet.models.networks.fitting import FittedNetwork, NetworkRecord, build_network, fit_network, joined_parts
from pcmcnet.models.networks.network_config import NetworkConfig
from pcmcnet.models.networks.network_slopes import NumericInput, jacobian_by_output, network_slopes
from pcmcnet.models.networks.trainer import StartingNetwork, Trainer, learn_network_encoder, network_log_proba
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import json_bytes
from pcmcnet.training.chunks import predict_chunks
from pcmcnet.training.device import default_torch_settings, device_of, encode_on, resolve_device, seeded_initialisation
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import parameter_count, predict

# -- The weights of a network, read from a safetensors file for the network that saved options describe ----------------
# Options may describe a network of any size. So its tensors are compared with those of the file first, on torch's
# device "meta", where they have shapes and take no memory.

Network = TypeVar("Network", bound=nn.Module)


def read_network(content: bytes, build: Callable[[], Network]) -> Network:
    """Build a network and give it the weights of a file; refuses weights that do not fit, or are not finite."""
    try:
        weights = load_tensors(content)
    except SafetensorError as error:
        raise ArtifactError(f"the saved weights cannot be read ({error}): save the model again.") from error
    with seeded_initialisation(0):
        with torch.device("meta"):
            _require_fit(weights, build().state_dict())
        network = build()
    network.load_state_dict(weights)
    if not all(bool(torch.isfinite(p).all()) for p in network.parameters()):
        raise ArtifactError("the saved weights are not all finite numbers: fit the model again.")
    return network


def _require_fit(weights: Mapping[str, Tensor], network: Mapping[str, Tensor]) -> None:
    """Refuse tensors of other names, shapes or types than the network has."""
    found, expected = ({k: (tuple(v.shape), v.dtype) for k, v in part.items()} for part in (weights, network))
    if found != expected:
        name = min(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))
        told = [f"{part[name][0]} of {part[name][1]}" if name in part else "absent" for part in (found, expected)]
        raise ArtifactError(
            f"the saved weights do not fit the saved options: {name} is {told[0]}, expected {told[1]}. Save the model "
            f"again."
        )


_SMALL = 2**17  # weights of a network that leaves threads idle, as but a part of its work is shared by them
CHUNKS_AT_ONCE = 4  # chunks of a table that are predicted at a time, each of which is in memory. Both by choice


class NeuralModel(ChoiceModel):
    """A network over encoded choice sets; a subclass builds it.

    Parameters
    ----------
    encoders
        Modules of one's own by columns of contents, in the place of those that come with the kind: each maps the
        distinct contents of a batch (u, ...) to vectors (u, width). A fit trains a copy from the weights they have;
        what needs no gradient stays as it is. What is :class:`Frozen` is run once for each content, and not trained.
    options
        As ``config_class`` has them.
    """

    stops_early = True
    streams = True
    reads_contents = True
    config: NetworkConfig
    _state: FittedNetwork
    record_class = NetworkRecord
    average_class: ClassVar[type[AveragedNetwork]] = AveragedNetwork

    def __init__(self, *, encoders: Mapping[str, nn.Module | Frozen] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.encoders = require_encoders(encoders)

    @property
    def extras(self) -> dict[str, Any]:
        """Return the modules of one's own, which no option can hold."""
        return {"encoders": self.encoders} if self.encoders else {}

    @property
    def identity(self) -> dict[str, Any]:
        """Return the options, and the classes and weights of modules of one's own, as values that survive JSON."""
        own = {"encoders": encoder_digests(self.encoders)} if self.encoders else {}
        return {**super().identity, **own}

    @abstractmethod
    def _build(self, encoder: Encoder, classes: int) -> ChoiceNetwork:
        """Return a freshly initialised network that maps a batch to log-probabilities."""

    def _more_facts(self) -> dict[str, str]:
        """Return facts for the end of the summary that a kind of network alone has; none by default."""
        return {}

    # -- fit --------------------------------------------------------------------------------------------------

    @one_thread_per_operation(math.inf)
    def _fit(self, train: Sets, valid: Sets | None, run: FitRun) -> FittedNetwork:
        return fit_network(self._trainer(train, valid, run), train, valid, average=self.average_class)

    def _trainer(self, train: Sets, valid: Sets | None, run: FitRun) -> Trainer:
        """Return what trains networks of this model on the device of the run."""
        require_content_columns(self.encoders, train.schema)
        identity = self._run_identity(train, valid, run)
        return Trainer(self.config, self._build, self.encoders, run, resolve_device(run.device), identity)

    def _start(self, init: Any, schema: Schema) -> StartingNetwork | None:
        return None if init is None else StartingNetwork.of(init, self, schema)

    def _run_identity(self, train: Sets, valid: Sets | None, run: FitRun) -> dict[str, Any]:
        """Return all that a fit depends on, by which a checkpoint recognises its run."""
        return {
            "model": self.name,
            **self.identity,
            "seed": run.seed,
            **({"memory": train.memory} if isinstance(train, ScannedData) else {}),  # which decides on the batches
            "training table": run.fingerprint,
            "validation table": None if valid is None else valid.fingerprint(),
            **({} if run.init is None else {"init": run.init.identity}),
        }

    def _training_table(self, train: Sets, valid: Sets | None, run: FitRun, description: Any) -> TrainingTable:
        if not self.config.refit or valid is None:
            return super()._training_table(train, valid, run, description)
        both = joined_parts(train, valid)()
        return TrainingTable.of(both, both.fingerprint(), run.seed, description)

    def survey(self, train: Sets, valid: Sets | None) -> None:
        """Learn the encoders that a fit needs and keep them with a scanned table, for processes that share the fit."""
        learn_network_encoder(train.with_positive_weight(), self.config, self.encoders)
        if self.config.refit and valid is not None:
            learn_network_encoder(joined_parts(train, valid)().with_positive_weight(), self.config, self.encoders)

    # -- the fitted network -----------------------------------------------------------------------------------

    @property
    def encoder_(self) -> Encoder:
        """What was learnt about the columns from the training part."""
        return self._state.encoder

    @property
    def network_(self) -> ChoiceNetwork:
        """The trained network."""
        return self._state.network

    @property
    def spec_(self) -> NetworkSpec:
        """The architecture that the fit has found."""
        spec: NetworkSpec = self.record_.spec
        return spec

    @property
    def num_parameters(self) -> int:
        """Number of trained weights."""
        return sum(p.numel() for p in self.network_.parameters())

    @property
    def _encodes_chunks(self) -> bool:
        return is_on_gpu(self.network_) and can_encode_rows(self.schema.for_prediction())

    @property
    def _parallel_chunks(self) -> int:
        small = device_of(self.network_).type == "cpu" and parameter_count(self.network_) < _SMALL
        return min(threads(), CHUNKS_AT_ONCE) if small else 1

    def _log_proba_of_chunks(self, chunks: Iterable[Chunk | ChunkProblem]) -> Iterator[Floats | ChunkProblem]:
        if not self._encodes_chunks:
            return super()._log_proba_of_chunks(chunks)
        budget = self.config.pair_budget
        return predict_chunks(self.network_, self.encoder_, chunks, pair_budget=budget, max_sum_error=MAX_MISS)

    def _log_proba(self, data: ChoiceData) -> Floats:
        if is_on_gpu(self.network_) and data.n_alternatives > CHUNK_ROWS and not data.schema.contents:
            chunks = sets_in_chunks(data, CHUNK_ROWS)
            log_ps = predict_chunks(self.network_, self.encoder_, chunks, pair_budget=self.config.pair_budget)
            return np.concatenate(list(cast("Iterator[Floats]", log_ps)))  # choice data has no problems: it is checked
        return network_log_proba(self.network_, self.encoder_, data, self.config.pair_budget)

    def _predict_batches(self, data: ChoiceData, compute: Callable[[Batch], Tensor]) -> Iterator[tuple[Ints, Tensor]]:
        """Yield positions (B,) of choice sets, and the answer (B, ...) of the network for them."""
        network, budget = self.network_, self.config.pair_budget
        encoded = encode_on(device_of(network), self.encoder_, data)
        for sets, _, values in predict(network, encoded, pair_budget=budget, compute=compute):
            yield sets, values

    @default_torch_settings()
    def _slopes(self, data: ChoiceData, column: str) -> Floats:
        return network_slopes(self, data, column)

    def _jacobian(self, batch: Batch, at: NumericInput) -> Tensor:
        """Differentiate log-probabilities in an input of alternatives, (B, J, J), or of the individual, (B, J)."""
        return jacobian_by_output(self.network_, batch, at)

    def summary(self) -> Summary:
        """List the network's parts with their numbers of parameters, and how training went."""
        return network_summary(self)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        weights = {k: v.detach().cpu().contiguous() for k, v in self.network_.state_dict().items()}
        own = {"modules": encoder_class_names(self.encoders)} if self.encoders else {}
        encoder = json_bytes({**self.encoder_.to_dict(), **own})
        return {"encoder.json": encoder, "weights.safetensors": save_tensors(weights)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedNetwork:
        entries, spec, weights = json.loads(files["encoder.json"]), record.spec, files["weights.safetensors"]
        spec.require_valid(len(weights) // 4)  # float32 numbers
        require_saved_encoders(self.encoders, entries.get("modules", {}))
        encoder = Encoder.from_dict(entries, frozen_encoders(self.encoders))
        build = partial(build_network, self._build, encoder, spec, self.average_class)
        return FittedNetwork(encoder=encoder, network=read_network(weights, build), record=record)


def is_on_gpu(network: nn.Module) -> bool:
    """Return whether a network is on a GPU, which predicts tables faster than a thread reads them."""
    return device_of(network).type == "cuda"


def network_summary(model: NeuralModel) -> Summary:
    """Return options, course of training and weights with their shapes; of averaged networks, those of the first."""
    record, members = model.record_, members_of(model.network_)
    whose = " of the first" if len(members) > 1 else ""
    facts = {
        **model._common_facts(),
        "epochs": str(record.epochs),
        "weight decay": _decay_fact(record),
        "parameters": f"{model.num_parameters:,}",
    }
    history = model.history
    if history:
        facts[f"last training NLL{whose}"] = f"{history[-1]['train_loss']:.4f}"
        valid_loss = history[min(record.epochs, len(history)) - 1]["valid_loss"]
        if valid_loss is not None:
            facts[f"validation NLL{whose}"] = f"{valid_loss:.4f}"
    weights = members[0].named_parameters()
    rows = tuple((name, " x ".join(map(str, p.shape)), f"{p.numel():,}") for name, p in weights)
    return Summary(type(model).__name__, facts | model._more_facts(), ("weights", "shape", "parameters"), rows)


def _decay_fact(record: NetworkRecord) -> str:
    """Return the weight decay, and how it was learnt."""
    decay, search = f"{record.weight_decay:.3g}", record.decay_search
    if search is None:
        return decay
    tried = ", ".join(f"{trial.value:g}: {trial.held_out_nll:.4f}" for trial in search.trials)
    return f"{decay}, learnt from {search.held_out_sets:,} held-out sets (NLL {tried})"
