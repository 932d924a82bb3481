"""Log-probabilities by a network of chunks that are encoded on its device while it predicts others.

A GPU takes this way; it gives the same on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.chunks import CHUNK_ROWS, Chunk, ChunkProblem
from pcmcnet.data.float32_resolution import Span, merge_spans
from pcmcnet.data.kinds.category import Unseen
from pcmcnet.data.parts import sets_between
from pcmcnet.data.tensors import EncodedChunk, encode_rows
from pcmcnet.models.interface.prediction import MAX_MISS
from pcmcnet.training.chunks import predict_chunks

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel


def predict_rows(model: NeuralModel, chunks: Iterable[Chunk | ChunkProblem]) -> Iterator[Floats | ChunkProblem]:
    """Yield log-probabilities of the rows of one chunk after the other, in their order; a problem ends it."""
    tasks = (_rows_task(model.encoder_, chunk) for chunk in chunks)
    unseen, spans = Unseen(), dict[str, Span]()
    for predicted in predict_chunks(model.network_, tasks, pair_budget=model.config.pair_budget):
        if isinstance(predicted, ChunkProblem):
            yield predicted
            return
        if not predicted.miss < MAX_MISS:  # also where it is NaN
            yield ChunkProblem("probabilities do not sum to 1")
            return
        unseen.add(predicted.chunk.unseen)
        merge_spans(spans, predicted.chunk.spans)
        yield predicted.log_p
    # only all chunks together show whether 32 bits tell the numbers of a column apart
    for name, span in spans.items():
        if span.is_blurred:
            yield ChunkProblem(f"32 bits may not tell the numbers of column {name!r} apart")
            return
    unseen.report()


def predict_sets(model: NeuralModel, data: ChoiceData) -> Floats:
    """(N,) log-probabilities of the alternatives, set after set."""
    cuts = sorted({*np.searchsorted(data.offsets, range(0, len(data.rows), CHUNK_ROWS)).tolist(), len(data)})
    chunks = (replace(data, **sets_between(data, begin, end)) for begin, end in pairwise(cuts))
    tasks = (partial(_encode_sets, model.encoder_, chunk) for chunk in chunks)
    unseen, log_p = Unseen(), []
    for predicted in predict_chunks(model.network_, tasks, pair_budget=model.config.pair_budget):
        assert not isinstance(predicted, ChunkProblem)  # choice data is checked already
        unseen.add(predicted.chunk.unseen)
        log_p.append(predicted.log_p)
    unseen.report()
    return np.concatenate(log_p)


def _rows_task(encoder: Encoder, chunk: Chunk | ChunkProblem) -> Callable[[torch.device], EncodedChunk | ChunkProblem]:
    return (lambda _: chunk) if isinstance(chunk, ChunkProblem) else partial(encode_rows, encoder, chunk)


def _encode_sets(encoder: Encoder, data: ChoiceData, device: torch.device) -> EncodedChunk:
    unseen = Unseen()
    return EncodedChunk(encoder.encode_part(data, unseen, device), unseen)
