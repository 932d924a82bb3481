"""Models trained by the loop: encode the columns, build the network, train it, predict in batches."""

from __future__ import annotations

import json
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from pcmcnet.arrays import Floats
from pcmcnet.data import Batch, ChoiceData, EncodedSets, EncodedStream, Encoder, ScannedData, Schema, Sets, Source
from pcmcnet.data.batches import Several
from pcmcnet.data.chunks import CHUNK_ROWS, Chunk, ChunkProblem, sets_in_chunks
from pcmcnet.data.contents.frozen import Frozen
from pcmcnet.data.encoding import learn_encoder
from pcmcnet.data.ragged import stretches
from pcmcnet.data.tensors import can_encode_rows
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.layers.threads import parts_for, threads
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.own_encoders import (
    class_names,
    digests,
    frozen_ones,
    own_encoders,
    require_same,
    require_used,
)
from pcmcnet.models.interface.prediction import MAX_MISS
from pcmcnet.models.networks.decay_search import Search, SearchLog, at_most
from pcmcnet.models.networks.fine_tuning import Start
from pcmcnet.models.networks.held_out_trials import Trials, held_out_trials
from pcmcnet.models.networks.network_config import NetworkConfig
from pcmcnet.models.networks.network_slopes import Input, jacobian_by_output, network_slopes
from pcmcnet.models.networks.network_summary import network_summary
from pcmcnet.models.saving.network_weights import read_network
from pcmcnet.models.saving.run_folder import REFIT, SEARCH, network_file, run_in
from pcmcnet.reports.formats import Summary
from pcmcnet.runtime.chunks import predict_chunks
from pcmcnet.runtime.device import device_of, resolve_device
from pcmcnet.runtime.device_batches import encode_on, to_host
from pcmcnet.runtime.prediction import predict, size_of
from pcmcnet.runtime.torch_settings import building, undisturbed
from pcmcnet.storage.files import json_bytes
from pcmcnet.training import Checkpoint, Outcome, TrainConfig, train
from pcmcnet.training.checkpoint import CHECKPOINT
from pcmcnet.training.data_parallel import current_group

log = logging.getLogger("pcmcnet")

_SMALL = 2**17  # weights of a network that leaves threads idle, as but a part of its work is shared by them
CHUNKS_AT_ONCE = 4  # chunks of a table that are predicted at a time, each of which is in memory. Both by choice


class Trained(NamedTuple):
    """What is learnt from one training part."""

    outcome: Outcome
    encoder: Encoder
    network: nn.Module


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
    encoder_: Encoder
    network_: nn.Module

    def __init__(self, *, encoders: Mapping[str, nn.Module | Frozen] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.encoders = own_encoders(encoders)

    @property
    def extras(self) -> dict[str, Any]:
        """Return the modules of one's own, which no option can hold."""
        return {"encoders": self.encoders} if self.encoders else {}

    @property
    def identity(self) -> dict[str, Any]:
        """Return the options, and the classes and weights of modules of one's own, as values that survive JSON."""
        own = {"encoders": digests(self.encoders)} if self.encoders else {}
        return {**super().identity, **own}

    @abstractmethod
    def _build(self, encoder: Encoder) -> nn.Module:
        """Return a freshly initialised network that maps a batch to log-probabilities."""

    def _prepare(self, network: nn.Module, data: EncodedSets) -> None:
        """Look at a fresh network with some training sets before training; nothing to do by default."""

    def _begin(self, network: nn.Module, config: TrainConfig, sample: Callable[[int], EncodedSets]) -> None:
        """Set weights of a fresh network from a sample of the training sets; nothing to do by default."""

    def _add_members(
        self, run: Callable[[FitSettings, int, Encoder], Trained], part: Sets, settings: FitSettings
    ) -> None:
        """Train further networks, as ``run`` does with settings, a number and an encoder of each; none by default."""

    def _more_facts(self) -> dict[str, str]:
        """Return facts for the end of the summary that a kind of network alone has; none by default."""
        return {}

    def _start(self, init: Any, schema: Schema) -> Start | None:
        return None if init is None else Start.of(init, self, schema)

    @parts_for(math.inf)
    def _fit(self, train: Sets, valid: Sets | None, settings: FitSettings) -> None:
        place, folder = resolve_device(settings.device), settings.run_folder
        require_used(self.encoders, train.schema)
        start: Start | None = settings.init
        identity = self._run_identity(train, valid, settings.seed, start)
        both = self._both(train, valid) if self.config.refit and valid is not None else None
        last = CHECKPOINT if both is None else REFIT

        def run(part: Sets, held_out: Sets | None, config: TrainConfig, file: str) -> Outcome:
            outcome = self._run(part, held_out, config, settings, device=place, checkpoint=kept_in(file))
            if file == last:
                config = replace(config, epochs=len(outcome.history))  # the first may have been stopped before its end
                same = partial(self._trained, part, held_out, config, device=place)

                def another(given: FitSettings, k: int, encoder: Encoder) -> Trained:
                    return same(given, checkpoint=kept_in(network_file(file, k)), encoder=encoder)

                self._add_members(another, part, settings)
            return outcome

        def kept_in(file: str) -> Checkpoint | None:
            return None if folder is None else Checkpoint(folder / file, identity, resume=settings.resume)

        with run_in(folder, resume=settings.resume):
            kept = SearchLog.opened(None if folder is None else folder / SEARCH, identity, resume=settings.resume)
            trials = held_out_trials(self, train, valid, settings, place, kept) if self._searches else None
            search = trials.search_decay() if trials is not None and self.config.weight_decay == "auto" else None
            config = self._resolved(search)
            self._choose_form(trials, search, config)
            outcome = run(train, valid, config, CHECKPOINT)
            if both is not None:
                log.info("training again on both parts for %d epochs", outcome.epochs)
                train = both()
                run(train, None, replace(config, epochs=outcome.epochs), REFIT)
        self.history = outcome.history
        self.training_ = {
            "fingerprint": identity["training table"] if both is None else train.fingerprint(),
            "choice_sets": len(train),
            "alternatives": train.n_alternatives,
            "epochs": outcome.epochs,
            "weight_decay": config.decay,
            "refit": both is not None,
            **({} if search is None else {"search": search.to_dict()}),
            **({} if start is None else {"init": {name: start.training[name] for name in ("fingerprint", "epochs")}}),
        }

    def _run_identity(self, train: Sets, valid: Sets | None, seed: int, start: Start | None) -> dict[str, Any]:
        """Return all that a fit depends on, by which a checkpoint knows the run that it belongs to."""
        return {
            "model": self.name,
            **self.identity,
            "seed": seed,
            **({"memory": train.memory} if isinstance(train, ScannedData) else {}),  # which decides on the batches
            "training table": train.fingerprint(),
            "validation table": None if valid is None else valid.fingerprint(),
            **({} if start is None else {"init": start.identity}),
        }

    @property
    def _searches(self) -> bool:
        """Whether something is to be learnt from held-out sets."""
        return self.config.weight_decay == "auto"

    def _choose_form(self, trials: Trials | None, search: Search | None, config: TrainConfig) -> None:
        """Decide, perhaps by held-out sets, on what the options leave open of the network; by default nothing."""

    def _resolved(self, search: Search | None) -> NetworkConfig:
        """Return the options with numbers in the place of what was learnt."""
        if search is None:
            return self.config
        epochs = search.epochs(self.config.passes) if self.config.epochs == "auto" else self.config.epochs
        log.info("weight decay %.3g, %d epochs: learnt from %d held-out sets", search.decay, epochs, search.held_out)
        return replace(self.config, weight_decay=search.decay, epochs=epochs)

    def _run(self, *given: Any, **more: Any) -> Outcome:
        """Let the model have the encoder and the network of one training part."""
        outcome, self.encoder_, self.network_ = self._trained(*given, **more)
        return outcome

    def _trained(
        self,
        part: Sets,
        held_out: Sets | Sequence[Sets] | None,
        config: TrainConfig,
        settings: FitSettings,
        *,
        device: torch.device,
        checkpoint: Checkpoint | None,
        encoder: Encoder | None = None,
    ) -> Trained:
        """Learn the encoder, unless given, and the weights from one training part; the model stays as it is."""
        part = part.counted()
        held_out = () if held_out is None else held_out if isinstance(held_out, Sequence) else (held_out,)
        if part.largest < 2:
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        start: Start | None = settings.init
        encoder = encoder or (self._encoder(part) if start is None else start.encoder)
        with building(settings.seed):
            network = self._build(encoder)
        if start is not None:
            network.load_state_dict(start.first)
        network.to(device)
        data = _source(part, encoder, device, tell=False)
        self._prepare(network, _telling(data))
        if start is None:
            self._begin(network, config, lambda n: encoder.encode(at_most(part, n, settings.seed)))
        valid = [_source(sets.counted(), encoder, device, tell=settings.tells) for sets in held_out]
        outcome = train(
            network,
            data,
            config,
            valid=Several(valid) if valid else None,
            seed=settings.seed,
            checkpoint=checkpoint,
            progress=settings.progress,
            on_epoch=settings.on_epoch,
        )
        return Trained(outcome, encoder, network)

    def _encoder(self, part: Sets) -> Encoder:
        bend, frozen = self.config.tails == "bend", frozen_ones(self.encoders)
        return learn_encoder(part, bend=bend, labels=self.config.labels, frozen=frozen)

    def survey(self, train: Sets, valid: Sets | None) -> None:
        """Learn the encoders that a fit needs, for whoever finds them kept beside a scanned table."""
        self._encoder(train.counted())
        if self.config.refit and valid is not None:
            self._encoder(self._both(train, valid)().counted())

    def _both(self, train: Sets, valid: Sets) -> Callable[[], Sets]:
        """Return how to join both parts, or say that this cannot be done."""
        if isinstance(train, ChoiceData) and isinstance(valid, ChoiceData):
            return lambda: train.concat(valid)
        if isinstance(train, ScannedData) and isinstance(valid, ScannedData):
            joined = train.concat(valid)
            return lambda: joined
        raise ConfigError("refit=True needs both parts in memory, or both from one split of a scanned table.")

    @property
    def num_parameters(self) -> int:
        """Number of trained weights."""
        _ = self.schema
        return sum(p.numel() for p in self.network_.parameters())

    @property
    def _encodes_chunks(self) -> bool:
        return is_on_gpu(self.network_) and can_encode_rows(self.schema.for_prediction())

    @property
    def _chunks_at_once(self) -> int:
        small = device_of(self.network_).type == "cpu" and size_of(self.network_) < _SMALL
        return min(threads(), CHUNKS_AT_ONCE) if small else 1

    def _log_proba_of_chunks(self, chunks: Iterable[Chunk | ChunkProblem]) -> Iterator[Floats | ChunkProblem]:
        if not self._encodes_chunks:
            return super()._log_proba_of_chunks(chunks)
        budget = self.config.pair_budget
        return predict_chunks(self.network_, self.encoder_, chunks, pair_budget=budget, max_miss=MAX_MISS)

    def _log_proba(self, data: ChoiceData) -> Floats:
        if is_on_gpu(self.network_) and data.n_alternatives > CHUNK_ROWS and not data.schema.contents:
            chunks = sets_in_chunks(data, CHUNK_ROWS)
            log_ps = predict_chunks(self.network_, self.encoder_, chunks, pair_budget=self.config.pair_budget)
            return np.concatenate(list(cast("Iterator[Floats]", log_ps)))  # choice data has no problems: it is checked
        encoded = encode_on(device_of(self.network_), self.encoder_, data)
        out = np.empty(len(data.rows))
        found = predict(self.network_, encoded, pair_budget=self.config.pair_budget)
        for sets, log_p in to_host(map(itemgetter(0, 2), found)):
            sizes = data.sizes[sets]
            real = np.arange(log_p.shape[1]) < sizes[:, None]
            out[stretches(data.offsets[sets], sizes)] = log_p.numpy()[real]
        return out

    @undisturbed()
    def _slopes(self, data: ChoiceData, column: str) -> Floats:
        return network_slopes(self, data, column)

    def _jacobian(self, batch: Batch, at: Input) -> Tensor:
        """Differentiate log-probabilities in an input of alternatives, (B, J, J), or of the individual, (B, J)."""
        return jacobian_by_output(self.network_, batch, at)

    def summary(self) -> Summary:
        """List the network's parts with their numbers of parameters, and how training went."""
        return network_summary(self)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        weights = {k: v.detach().cpu().contiguous() for k, v in self.network_.state_dict().items()}
        own = {"modules": class_names(self.encoders)} if self.encoders else {}
        encoder = json_bytes({**self.encoder_.to_dict(), **own})
        return {"encoder.json": encoder, "weights.safetensors": save_tensors(weights)}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        entries = json.loads(files["encoder.json"])
        require_same(self.encoders, entries.get("modules", {}))
        self.encoder_ = Encoder.from_dict(entries, frozen_ones(self.encoders))
        self.network_ = read_network(files["weights.safetensors"], lambda: self._build(self.encoder_))


def is_on_gpu(network: nn.Module) -> bool:
    """Return whether a network is on a GPU, which predicts tables faster than a thread reads them."""
    return device_of(network).type == "cuda"


def require_differences(data: EncodedSets) -> None:
    """Refuse sets whose alternatives are all alike, for networks that do not read them in an order."""
    if not data.varies_within_sets():
        raise InputError("no feature differs between the alternatives of any choice set: there is nothing to learn.")


def _source(data: Sets, encoder: Encoder, device: torch.device, *, tell: bool = True) -> Source:
    """Encode what is in memory at once, and what is on disk as it is needed, by each process of a group its own."""
    if isinstance(data, ScannedData):
        group = current_group()
        return EncodedStream(data, encoder, device, group.rank, group.size)
    return encode_on(device, encoder, data, tell=tell)


def _telling(data: Source) -> EncodedSets:
    """Return the first piece in which alternatives of a set differ, or the last."""
    for piece in data.pieces():
        if piece is data or piece.varies_within_sets():
            break
    return piece
