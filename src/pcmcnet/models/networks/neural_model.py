"""Base class of network models: build and train networks, predict in batches, save and load weights."""

from __future__ import annotations

import itertools
import json
import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import Batch, ChoiceData, Encoder, ScannedData, Schema, Sets
from pcmcnet.data.chunks import CHUNK_ROWS, Chunk, ChunkProblem, sets_in_chunks
from pcmcnet.data.kinds.frozen import Frozen
from pcmcnet.data.kinds.number import bin_codes
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
from pcmcnet.models.networks.averaged_members import AveragedNetwork, NetworkSpec, members_of
from pcmcnet.models.networks.fitting import (
    FittedNetwork,
    NetworkRecord,
    build_network,
    fit_network,
    joined_parts,
    refit_network,
)
from pcmcnet.models.networks.network_config import NetworkConfig
from pcmcnet.models.networks.network_slopes import NumericInput, jacobian_by_output, network_slopes
from pcmcnet.models.networks.trainer import StartingNetwork, Trainer, learn_network_encoder, network_log_proba
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import json_bytes
from pcmcnet.training.chunks import predict_chunks
from pcmcnet.training.device import device_of, encode_on, resolve_device, seeded_initialisation
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import parameter_count, predict
from pcmcnet.training.torch_settings import default_torch_settings

# -- Saved weights -----------------------------------------------------------------------------------------------------
# Saved options may describe a network of any size. So the network is first built on torch's device "meta", where
# tensors take no memory, and its tensors are compared with the file. Modules take memory and time even on that device,
# so the build stops if it registers more parameters than the file can fill.

Network = TypeVar("Network", bound=nn.Module)
MAX_PARAMETERS_PER_TENSOR = 2  # registered in a build; a module may replace a parameter of its base class


def read_network(content: bytes, build: Callable[[], Network]) -> Network:
    """Return a new network with saved weights, or raise ArtifactError if the weights do not fit or are not finite."""
    try:
        weights = load_tensors(content)
    except SafetensorError as error:
        raise ArtifactError(f"the saved weights cannot be read ({error}): save the model again.") from error
    with seeded_initialisation(0):
        with torch.device("meta"), _limited_parameters(MAX_PARAMETERS_PER_TENSOR * len(weights)):
            _require_fit(weights, build().state_dict())
        network = build()
    network.load_state_dict(weights)
    if not all(bool(torch.isfinite(p).all()) for p in network.parameters()):
        raise ArtifactError("some saved weights are not finite: fit the model again.")
    return network


@contextmanager
def _limited_parameters(most: int) -> Iterator[None]:
    """Raise ArtifactError if this thread registers more than ``most`` parameters of modules within the block."""
    thread, count = threading.get_ident(), itertools.count(1)

    def check(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if threading.get_ident() == thread and next(count) > most:
            raise ArtifactError(
                "the saved weights do not match the saved options, which describe a larger network. Save the model "
                "again."
            )

    hook = register_module_parameter_registration_hook(check)
    try:
        yield
    finally:
        hook.remove()


def _require_fit(weights: Mapping[str, Tensor], network: Mapping[str, Tensor]) -> None:
    """Raise ArtifactError unless the tensors have the names, shapes and types of the network."""
    actual, expected = ({k: (tuple(v.shape), v.dtype) for k, v in part.items()} for part in (weights, network))
    if actual != expected:
        name = min(k for k in actual.keys() | expected.keys() if actual.get(k) != expected.get(k))
        got, wanted = (f"{p[name][0]} of {p[name][1]}" if name in p else "absent" for p in (actual, expected))
        raise ArtifactError(
            f"the saved weights do not match the saved options: {name}: expected {wanted}, got {got}. Save the model "
            f"again."
        )


MAX_SMALL_WEIGHTS = 2**17  # smaller networks leave threads idle, so that chunks can be predicted in parallel
MAX_PARALLEL_CHUNKS = 4  # chunks in memory at the same time


class NeuralModel(ChoiceModel):
    """Base class of models with a neural network, which each subclass builds.

    Parameters
    ----------
    encoders
        Custom encoders by column: see :class:`pcmcnet.models.networks.network_config.EncoderArguments`.
    options
        Options of the model: the fields of ``config_class``.
    """

    stops_early = True
    streams = True
    uses_device = True
    shares_batches = True
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
        """The custom encoders, which are not options since they cannot be saved as JSON."""
        return {"encoders": self.encoders} if self.encoders else {}

    @property
    def identity(self) -> dict[str, Any]:
        """The options, and the classes and hashes of custom encoders, as JSON-compatible values."""
        encoders = {"encoders": encoder_digests(self.encoders)} if self.encoders else {}
        return {**super().identity, **encoders}

    @abstractmethod
    def _build(self, encoder: Encoder, spec: NetworkSpec) -> ChoiceNetwork:
        """Return a new network for an encoder and an architecture; the bins are part of the encoder."""

    def _more_facts(self) -> dict[str, str]:
        """Return the entries that this class of models adds to the summary."""
        return {}

    # -- fit --------------------------------------------------------------------------------------------------

    @one_thread_per_operation(math.inf)
    def _fit(self, train: Sets, valid: Sets | None, run: FitRun) -> FittedNetwork:
        return fit_network(self._trainer(train, valid, run), train, valid, average=self.average_class)

    @one_thread_per_operation(math.inf)
    def _refit(self, train: ChoiceData, run: FitRun) -> FittedNetwork:
        return refit_network(self._trainer(train, None, run), train, self._state, average=self.average_class)

    def _trainer(self, train: Sets, valid: Sets | None, run: FitRun) -> Trainer:
        """Return the trainer of this model's networks."""
        require_content_columns(self.encoders, train.schema)
        identity = self._run_identity(train, valid, run)
        device, length = resolve_device(run.device), self._fit_length(train.schema)
        return Trainer(self.config, self._build, self.encoders, run, device, identity, length)

    def _fit_length(self, schema: Schema) -> float:
        """Return the factor of the automatic number of epochs for a table with this schema."""
        return 1.0

    def _start(self, init: Any, schema: Schema) -> StartingNetwork | None:
        return None if init is None else StartingNetwork.of(init, self, schema)

    def _run_identity(self, train: Sets, valid: Sets | None, run: FitRun) -> dict[str, Any]:
        """Return the identity of a run: everything that the fit depends on.

        A run can only be resumed from a checkpoint with the same identity.
        """
        return {
            "model": self.name,
            **self.identity,
            "seed": run.seed,
            **({"memory": train.memory} if isinstance(train, ScannedData) else {}),  # decides on the batches
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
        """Learn the encoders of a scanned table and cache them, for processes that share the fit."""
        learn_network_encoder(train.with_positive_weight(), self.config, self.encoders)
        if self.config.refit and valid is not None:
            learn_network_encoder(joined_parts(train, valid)().with_positive_weight(), self.config, self.encoders)

    # -- the fitted network -----------------------------------------------------------------------------------

    @property
    def encoder_(self) -> Encoder:
        """The encoder of the columns, learnt from the training part."""
        return self._state.encoder

    @property
    def network_(self) -> ChoiceNetwork:
        """The trained network."""
        return self._state.network

    @property
    def spec_(self) -> NetworkSpec:
        """The architecture that the fit has chosen."""
        spec: NetworkSpec = self.record_.spec
        return spec

    @property
    def num_parameters(self) -> int:
        """Number of weights."""
        return sum(p.numel() for p in self.network_.parameters())

    @property
    def _encodes_chunks(self) -> bool:
        return is_on_gpu(self.network_) and can_encode_rows(self.schema.for_prediction())

    @property
    def _parallel_chunks(self) -> int:
        is_small = device_of(self.network_).type == "cpu" and parameter_count(self.network_) < MAX_SMALL_WEIGHTS
        return min(threads(), MAX_PARALLEL_CHUNKS) if is_small else 1

    def _log_proba_of_chunks(self, chunks: Iterable[Chunk | ChunkProblem]) -> Iterator[Floats | ChunkProblem]:
        if not self._encodes_chunks:
            return super()._log_proba_of_chunks(chunks)
        budget = self.config.pair_budget
        return predict_chunks(self.network_, self.encoder_, chunks, pair_budget=budget, max_sum_error=MAX_MISS)

    def _log_proba(self, data: ChoiceData) -> Floats:
        if is_on_gpu(self.network_) and data.n_alternatives > CHUNK_ROWS and not data.schema.contents:
            chunks = sets_in_chunks(data, CHUNK_ROWS)
            log_ps = predict_chunks(self.network_, self.encoder_, chunks, pair_budget=self.config.pair_budget)
            return np.concatenate(list(cast("Iterator[Floats]", log_ps)))  # choice data are checked
        return network_log_proba(self.network_, self.encoder_, data, self.config.pair_budget)

    def _predict_batches(self, data: ChoiceData, compute: Callable[[Batch], Tensor]) -> Iterator[tuple[Ints, Tensor]]:
        """Yield, for each batch, the positions (B,) of its choice sets and the values (B, ...) of ``compute``."""
        network, budget = self.network_, self.config.pair_budget
        encoded = encode_on(device_of(network), self.encoder_, data)
        for sets, _, values in predict(network, encoded, pair_budget=budget, compute=compute):
            yield sets, values

    @default_torch_settings()
    def _slopes(self, data: ChoiceData, column: str) -> Floats:
        return network_slopes(self, data, column)

    def _has_kinks(self, column: str) -> bool:
        # Bins end at quantiles of the training column, and so do the intervals of a piecewise-linear curve.
        codes = (*self.encoder_.features.numeric, *self.encoder_.individual.numeric)
        most_bins = max(self.spec_.bins)
        return any(
            code.curve == "piecewise" or bool(bin_codes(code, most_bins)) for code in codes if code.name == column
        )

    def _jacobian(self, batch: Batch, at: NumericInput) -> Tensor:
        """Return derivatives of log-probabilities with respect to an input: (B, J, J), or (B, J) for an individual."""
        return jacobian_by_output(self.network_, batch, at)

    def summary(self) -> Summary:
        """Return a summary of the training and of the network's weights."""
        return network_summary(self)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        weights = {k: v.detach().cpu().contiguous() for k, v in self.network_.state_dict().items()}
        modules = {"modules": encoder_class_names(self.encoders)} if self.encoders else {}
        encoder = json_bytes({**self.encoder_.to_dict(), **modules})
        return {"encoder.json": encoder, "weights.safetensors": save_tensors(weights)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedNetwork:
        entries, spec, weights = json.loads(files["encoder.json"]), record.spec, files["weights.safetensors"]
        spec.require_valid(len(weights) // 4)  # float32 values
        require_saved_encoders(self.encoders, entries.get("modules", {}))
        encoder = Encoder.from_dict(entries, frozen_encoders(self.encoders))
        build = partial(build_network, self._build, encoder, spec, self.average_class)
        return FittedNetwork(encoder=encoder, network=read_network(weights, build), record=record)


def is_on_gpu(network: nn.Module) -> bool:
    """Return True if a network is on a GPU, which computes predictions faster than one thread reads a table."""
    return device_of(network).type == "cuda"


def network_summary(model: NeuralModel) -> Summary:
    """Return a summary with options, losses, and the weight shapes of the network or of the first averaged network."""
    record, members = model.record_, members_of(model.network_)
    suffix = " (first network)" if len(members) > 1 else ""
    facts = {
        **model._common_facts(),
        "epochs": str(record.epochs),
        "weight decay": _decay_fact(record),
        "parameters": f"{model.num_parameters:,}",
    }
    history = model.history
    if history:
        facts[f"training NLL{suffix}"] = f"{history[-1]['train_loss']:.4f}"
        valid_loss = history[min(record.epochs, len(history)) - 1]["valid_loss"]
        if valid_loss is not None:
            facts[f"validation NLL{suffix}"] = f"{valid_loss:.4f}"
    weights = members[0].named_parameters()
    rows = tuple((name, " x ".join(map(str, p.shape)), f"{p.numel():,}") for name, p in weights)
    return Summary(
        type(model).__name__, facts | model._more_facts(), ("weights", "shape", "parameters"), rows, model.caveats
    )


def _decay_fact(record: NetworkRecord) -> str:
    """Return the weight decay as text, with the losses of the search if it was learnt."""
    decay, search = f"{record.weight_decay:.3g}", record.decay_search
    if search is None:
        return decay
    losses = ", ".join(f"{trial.value:g}: {trial.held_out_nll:.4f}" for trial in search.trials)
    return f"{decay}, learnt from {search.held_out_sets:,} held-out sets (NLL {losses})"
