"""Log-probabilities of choice sets piece by piece on a GPU: threads read and encode some while it works on another.

    piece  ->  encoded sets on the device  ->  log p (B, J) of each batch  ->  log p (N,), set after set, on the host

Pieces come in the order of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import cycle
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcmcnet.data.ahead import ahead
from pcmcnet.data.batches import EncodedSets
from pcmcnet.layers.gpu import runs_kernels
from pcmcnet.training.device import device_of
from pcmcnet.training.device_batches import on_device, to_host
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import predict

T = TypeVar("T")
Encode = Callable[[torch.device], tuple[T, EncodedSets]]
THREADS = 2  # that encode (measured: with more, they and the launches of the network wait for each other)


def predict_pieces(
    module: ChoiceNetwork, pieces: Iterable[Encode[T]], *, pair_budget: int
) -> Iterator[tuple[T, NDArray[np.float64], float]]:
    """Yield what is known of each piece, log p (N,) of its alternatives, and by how much a sum of p misses 1 at most.

    A piece is a function that encodes some sets on the device it is given.
    """
    encoded = encoded_pieces(pieces, device_of(module))
    found = ((known, _flat(module, sets, pair_budget)) for known, sets in encoded)
    for known, log_p in to_host(found):
        yield known, log_p[:-1].numpy(), float(log_p[-1])


def encoded_pieces(pieces: Iterable[Encode[T]], device: torch.device) -> Iterator[tuple[T, EncodedSets]]:
    """Encode pieces in threads, and yield them in their order."""
    if device.type != "cuda":
        return ahead((partial(piece, device) for piece in pieces), THREADS)
    streams, reader = cycle(_streams(device)), torch.cuda.current_stream(device)
    return ahead(
        (partial(_encode_on, stream, piece, reader) for piece, stream in zip(pieces, streams, strict=False)), THREADS
    )


def _encode_on(stream: torch.cuda.Stream, piece: Encode[T], reader: torch.cuda.Stream) -> tuple[T, EncodedSets]:
    """Encode a piece beside what the device is doing; its memory is kept until the reader is done with it, too."""
    with torch.cuda.stream(stream):
        known, sets = piece(stream.device)
    stream.synchronize()
    sets.record_stream(reader)
    return known, sets


@cache
def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    """Return streams that are used again and again: memory once used on one is at hand there only.

    Their short kernels come before those of the network, which would keep them waiting for milliseconds each.
    """
    return [torch.cuda.Stream(device, priority=-1) for _ in range(THREADS)]  # type: ignore[no-untyped-call]


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
        places = data.starts[index].unsqueeze(1) + torch.arange(log_p.shape[1], device=data.device)
        miss = (log_p.double().exp().masked_fill(~batch.mask, 0.0).sum(1) - 1).abs().amax()
        largest = torch.maximum(flat[n], miss)  # the last place is for padding, too
        flat[places.masked_fill(~batch.mask, n)] = log_p.double()
        flat[n] = largest
    return flat
