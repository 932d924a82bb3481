"""Log-probabilities of choice sets, chunk by chunk: threads read and encode some while the device predicts another.

    chunk  ->  encoded sets on the device  ->  log p (B, J) of each batch  ->  log p (N,), set after set, on the host

Chunks come in the order of the table. The device may be a CPU: tests take the way that a GPU takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import cycle
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.data.ahead import ahead
from pcmcnet.data.batches import EncodedSets
from pcmcnet.data.chunks import ChunkProblem
from pcmcnet.data.tensors import EncodedChunk
from pcmcnet.layers.gpu import runs_kernels
from pcmcnet.training.device import device_of
from pcmcnet.training.device_batches import on_device, to_host
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import predict

EncodeTask: TypeAlias = Callable[[torch.device], EncodedChunk | ChunkProblem]
ENCODING_THREADS = 2  # measured: with more, they and the launches of the network wait for each other


class PredictedChunk(NamedTuple):
    """A chunk with its probabilities."""

    chunk: EncodedChunk
    log_p: Floats  # (N,) of its alternatives, set after set
    miss: float  # by how much the probabilities of a set miss the sum 1, at most


def predict_chunks(
    module: ChoiceNetwork, tasks: Iterable[EncodeTask], *, pair_budget: int
) -> Iterator[PredictedChunk | ChunkProblem]:
    """Encode chunks on the network's device and predict them, in their order; a problem ends it."""
    problems: list[ChunkProblem] = []

    def on_the_device() -> Iterator[tuple[EncodedChunk, Tensor]]:
        for chunk in encode_chunks(tasks, device_of(module)):
            if isinstance(chunk, ChunkProblem):
                problems.append(chunk)
                return
            yield chunk, _flat(module, chunk.sets, pair_budget)

    for chunk, log_p in to_host(on_the_device()):
        yield PredictedChunk(chunk, log_p[:-1].numpy(), float(log_p[-1]))
    yield from problems


def encode_chunks(tasks: Iterable[EncodeTask], device: torch.device) -> Iterator[EncodedChunk | ChunkProblem]:
    """Encode chunks in threads, and yield them in their order."""
    if device.type != "cuda":
        return ahead((partial(task, device) for task in tasks), ENCODING_THREADS)
    streams, reader = cycle(_streams(device)), torch.cuda.current_stream(device)
    return ahead(
        (partial(_encode_on, stream, task, reader) for task, stream in zip(tasks, streams, strict=False)),
        ENCODING_THREADS,
    )


def _encode_on(stream: torch.cuda.Stream, task: EncodeTask, reader: torch.cuda.Stream) -> EncodedChunk | ChunkProblem:
    """Encode a chunk on a stream of its own; its memory is kept until the reader is done with it, too."""
    with torch.cuda.stream(stream):
        chunk = task(stream.device)
    stream.synchronize()
    if isinstance(chunk, EncodedChunk):
        chunk.sets.record_stream(reader)
    return chunk


@cache
def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    """Return streams that are used again and again: memory once used on one is at hand there only.

    Their short kernels come before those of the network, which would keep them waiting for milliseconds each.
    """
    return [torch.cuda.Stream(device, priority=-1) for _ in range(ENCODING_THREADS)]  # type: ignore[no-untyped-call]


@torch.no_grad()
def _flat(module: ChoiceNetwork, data: EncodedSets, pair_budget: int) -> Tensor:
    """(N + 1,) log-probabilities of all alternatives, set after set, and by how much a set's sum misses 1 at most.

    On the device; nothing waits for them.
    """
    n = len(data.numeric)
    flat = torch.zeros(n + 1, dtype=torch.float64, device=data.device)
    for sets, batch, log_p in predict(module, data, pair_budget=pair_budget):
        index = on_device(sets, data.device)
        if runs_kernels(log_p):
            from pcmcnet.training.batches_triton import spread

            spread(log_p, index, data, flat)
            continue
        # the largest miss of this batch and those before
        miss = (log_p.double().exp().masked_fill(~batch.mask, 0.0).sum(1) - 1).abs().amax()
        largest = torch.maximum(flat[n], miss)
        # padding is written to the last place, which then gets the largest miss back
        places = data.starts[index].unsqueeze(1) + torch.arange(log_p.shape[1], device=data.device)
        flat[places.masked_fill(~batch.mask, n)] = log_p.double()
        flat[n] = largest
    return flat
