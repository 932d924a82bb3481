"""Log-probabilities of choice sets, chunk by chunk: threads read and encode some while the device predicts another.

    chunk  ->  encoded sets on the device  ->  log p (B, J) of each batch  ->  log p (N,), set after set, on the host

Chunks come in the order of the table. The device may be a CPU: tests take the way that a GPU takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import cycle

import torch
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.concurrency import results_in_order
from pcmcnet.data.batches import EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.chunks import Chunk, ChunkProblem, too_fine_columns
from pcmcnet.data.columns.statistics import Span, merge_spans
from pcmcnet.data.encoder import Encoder
from pcmcnet.data.kinds.category import UnseenCounts
from pcmcnet.data.tensors import EncodedChunk, encode_chunk
from pcmcnet.layers.tensor_ops import can_run_kernels
from pcmcnet.training.device import copy_positions, device_of, to_host
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import predict

ENCODING_THREADS = 2  # measured: with more, they and the launches of the network wait for each other


def predict_chunks(
    module: ChoiceNetwork,
    encoder: Encoder,
    chunks: Iterable[Chunk | ChunkProblem | ChoiceData],
    *,
    pair_budget: int,
    max_sum_error: float | None = None,
) -> Iterator[Floats | ChunkProblem]:
    """Yield log p (N,) of the alternatives of one chunk after the other, set after set; a problem ends it.

    It is a problem if the probabilities of a set miss the sum 1 by ``max_miss`` or more; None: the caller checks that.
    """
    unseen, spans, problems = UnseenCounts(), dict[str, Span](), list[ChunkProblem]()

    def on_the_device() -> Iterator[tuple[EncodedChunk, Tensor]]:
        for chunk in encode_chunks(encoder, chunks, device_of(module)):
            if isinstance(chunk, ChunkProblem):
                problems.append(chunk)
                return
            yield chunk, _flat(module, chunk.sets, pair_budget)

    # 1. Predict on the device; results come to the host while it works on the next chunk.
    for chunk, log_p in to_host(on_the_device()):
        if max_sum_error is not None and not log_p[-1] < max_sum_error:  # also where the sum is NaN
            yield ChunkProblem("probabilities do not sum to 1")
            return
        unseen.add(chunk.unseen)
        merge_spans(spans, chunk.spans)
        yield log_p[:-1].numpy()
    # 2. Only all chunks together show whether 32 bits tell the numbers of a column apart.
    problems += too_fine_columns(spans)
    # 3. Report what was seen, unless the table is read once more.
    if problems:
        yield problems[0]
    else:
        unseen.report()


def encode_chunks(
    encoder: Encoder, chunks: Iterable[Chunk | ChunkProblem | ChoiceData], device: torch.device
) -> Iterator[EncodedChunk | ChunkProblem]:
    """Encode chunks on a device in threads, and yield them in their order."""
    tasks = (partial(encode_chunk, encoder, chunk, device) for chunk in chunks)
    if device.type != "cuda":
        return results_in_order(tasks, ENCODING_THREADS)
    streams, reader = cycle(_streams(device)), torch.cuda.current_stream(device)
    return results_in_order(
        (partial(_on_stream, stream, task, reader) for task, stream in zip(tasks, streams, strict=False)),
        ENCODING_THREADS,
    )


def _on_stream(
    stream: torch.cuda.Stream, encode: Callable[[], EncodedChunk | ChunkProblem], reader: torch.cuda.Stream
) -> EncodedChunk | ChunkProblem:
    """Encode a chunk on a stream of its own; its memory is kept until the reader is done with it, too."""
    with torch.cuda.stream(stream):
        chunk = encode()
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
        index = copy_positions(sets, data.device)
        if can_run_kernels(log_p):
            from pcmcnet.training.batches_triton import scatter

            scatter(log_p, index, data, flat)
            continue
        # the largest miss of this batch and those before
        miss = (log_p.double().exp().masked_fill(~batch.mask, 0.0).sum(1) - 1).abs().amax()
        largest = torch.maximum(flat[n], miss)
        # padding is written to the last place, which then gets the largest miss back
        places = data.starts[index].unsqueeze(1) + torch.arange(log_p.shape[1], device=data.device)
        flat[places.masked_fill(~batch.mask, n)] = log_p.double()
        flat[n] = largest
    return flat
