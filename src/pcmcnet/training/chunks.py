"""Log-probabilities of choice sets in chunks: threads read and encode chunks while the device predicts.

    chunk  ->  encoded sets on the device  ->  log p (B, J) of each batch  ->  log p (N,), set after set, on the host

Results are in the order of the table. The same code runs on a CPU, so that tests need no GPU.
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

ENCODING_THREADS = 2  # measured: with more, they and the launches of the network block each other


def predict_chunks(
    module: ChoiceNetwork,
    encoder: Encoder,
    chunks: Iterable[Chunk | ChunkProblem | ChoiceData],
    *,
    pair_budget: int,
    max_sum_error: float | None = None,
) -> Iterator[Floats | ChunkProblem]:
    """Yield the log-probabilities (N,) of each chunk, in the order of the sets, and stop after the first problem.

    For example, it is a problem if the probabilities of a set sum to a value that differs from 1 by ``max_sum_error``
    or more. If ``max_sum_error`` is None (default), the sums are not checked.
    """
    unseen, spans, problems = UnseenCounts(), dict[str, Span](), list[ChunkProblem]()

    def predict_each() -> Iterator[tuple[EncodedChunk, Tensor]]:
        for chunk in encode_chunks(encoder, chunks, device_of(module)):
            if isinstance(chunk, ChunkProblem):
                problems.append(chunk)
                return
            yield chunk, _flat(module, chunk.sets, pair_budget)

    # 1. Predict on the device; results are copied to the host while the device predicts the next chunk.
    for chunk, log_p in to_host(predict_each()):
        if max_sum_error is not None and not log_p[-1] < max_sum_error:  # also True if the sum is NaN
            yield ChunkProblem("probabilities do not sum to 1")
            return
        unseen.add(chunk.unseen)
        merge_spans(spans, chunk.spans)
        yield log_p[:-1].numpy()
    # 2. Check over all chunks whether float32 distinguishes the values of each column.
    problems += too_fine_columns(spans)
    # 3. Report unseen categories, unless a problem makes the caller read the table again.
    if problems:
        yield problems[0]
    else:
        unseen.report()


def encode_chunks(
    encoder: Encoder, chunks: Iterable[Chunk | ChunkProblem | ChoiceData], device: torch.device
) -> Iterator[EncodedChunk | ChunkProblem]:
    """Encode chunks on a device in several threads, and yield the encoded chunks in order."""
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
    """Encode a chunk on a separate stream, and keep its memory until the reader's stream has finished with it."""
    with torch.cuda.stream(stream):
        chunk = encode()
    stream.synchronize()
    if isinstance(chunk, EncodedChunk):
        chunk.sets.record_stream(reader)
    return chunk


@cache
def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    """Return the streams for encoding, which are cached because memory freed on a stream is available only there.

    The streams have a high priority, because the network's kernels would otherwise delay each short encoding kernel by
    milliseconds.
    """
    return [torch.cuda.Stream(device, priority=-1) for _ in range(ENCODING_THREADS)]  # type: ignore[no-untyped-call]


@torch.no_grad()
def _flat(module: ChoiceNetwork, data: EncodedSets, pair_budget: int) -> Tensor:
    """Return the log-probabilities of all N alternatives, followed by the largest error of a set's probability sum.

    The error of a probability sum is its deviation from 1. The device may still be computing the values when the
    function returns.
    """
    n = len(data.numeric)
    flat = torch.zeros(n + 1, dtype=torch.float64, device=data.device)
    for sets, batch, log_p in predict(module, data, pair_budget=pair_budget):
        index = copy_positions(sets, data.device)
        if can_run_kernels(log_p):
            from pcmcnet.training.batches_triton import scatter

            scatter(log_p, index, data, flat)
            continue
        # The largest deviation from a sum of 1 in this batch and the ones before.
        deviation = (log_p.double().exp().masked_fill(~batch.mask, 0.0).sum(1) - 1).abs().amax()
        largest = torch.maximum(flat[n], deviation)
        # Padding is written to the last entry, which is then overwritten with the largest deviation.
        places = data.starts[index].unsqueeze(1) + torch.arange(log_p.shape[1], device=data.device)
        flat[places.masked_fill(~batch.mask, n)] = log_p.double()
        flat[n] = largest
    return flat
